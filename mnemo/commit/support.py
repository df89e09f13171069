"""Which steps facts and instructions rest on: their times and their episodes."""

from __future__ import annotations

from datetime import UTC, datetime

from mnemo._clock import Breather, as_utc
from mnemo.commit.known import Known
from mnemo.graph.changeset import Changeset
from mnemo.graph.edges import EdgeKind
from mnemo.graph.nodes import Episodic, Semantic

__all__ = ["Support"]

_EVER = datetime.min.replace(tzinfo=UTC)


class Support:
    """The steps behind the facts and instructions of a changeset and of what it meets."""

    def __init__(self, changeset: Changeset, known: Known) -> None:
        steps = {
            node.id: node
            for node in (*known.nodes.values(), *changeset.nodes)
            if isinstance(node, Episodic)
        }
        self._steps: dict[str, list[Episodic]] = {}
        breather = Breather()
        for edge in (*known.edges, *changeset.edges):
            breather.breathe()
            if edge.kind is EdgeKind.PROVENANCE and edge.target in steps:
                self._steps.setdefault(edge.source, []).append(steps[edge.target])

    def latest(self, fact: Semantic) -> datetime:
        """When *fact* was last said: its latest step, else the best that it knows."""
        times = [as_utc(step.at) for step in self._steps.get(fact.id, ()) if step.at is not None]
        return max(times, default=self.start(fact))

    def start(self, fact: Semantic) -> datetime:
        """Since when *fact* holds: ``valid_from``, else when it was made, else ever."""
        at = fact.valid_from or fact.created_at
        return as_utc(at) if at is not None else _EVER

    def is_restated(self, id: str, *, by: str) -> bool:
        """Whether every episode behind *id*, of which there is one, is behind *by* too."""
        mine = self._episodes(id)
        return bool(mine) and mine <= self._episodes(by)

    def unite(self, id: str, survivor: str) -> None:
        """Let the steps of *id* be those of *survivor* too."""
        self._steps.setdefault(survivor, []).extend(self._steps.get(id, ()))

    def _episodes(self, id: str) -> set[tuple[str | None, str]]:
        steps = self._steps.get(id, ())
        return {(step.session_id, step.episode_id) for step in steps if step.episode_id}

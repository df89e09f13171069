"""
Contradictions: the fact said later holds, the other is closed, nothing is deleted.

The facts of one slot form a timeline, and each is closed by the next one that
contradicts it. A new fact is put in its place by the time of its latest step, so the
order of commits does not matter; on equal times the one committed later holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from mnemo._clock import Breather, as_utc
from mnemo.commit.draft import Draft
from mnemo.commit.known import Known
from mnemo.commit.neighbours import Neighbours
from mnemo.commit.support import Support
from mnemo.graph.changeset import Changeset
from mnemo.graph.lookup import lookup_keys, rival_keys
from mnemo.graph.nodes import Semantic
from mnemo.graph.similarity import contradicts

__all__ = ["supersede"]


def supersede(
    draft: Draft, changeset: Changeset, known: Known, near: Neighbours, support: Support
) -> None:
    """Close what the new facts contradict, or the new facts by what is known to be later."""
    timeline = _Timeline(draft, known, near, support)
    breather = Breather()
    for fact in changeset.nodes:
        breather.breathe()
        if isinstance(fact, Semantic):
            timeline.place(fact, changeset.replaces.get(fact.id, ()))


class _Timeline:
    def __init__(self, draft: Draft, known: Known, near: Neighbours, support: Support) -> None:
        self._draft = draft
        self._known = known
        self._near = near
        self._support = support
        self._placed: dict[str, list[str]] = {}

    def place(self, said: Semantic, replaces: Iterable[str]) -> None:
        """Put the fact that *said* became in its place among those that it contradicts."""
        found = [self._draft.survivor(id, Semantic) for id in replaces]
        if self._draft.is_new(said.id):
            found += self._rivals(said)
            self._remember(said)
        rivals = {fact.id: fact for fact in found if fact is not None}
        fact = self._draft.survivor(said.id, Semantic)
        if fact is None:
            return
        rivals.pop(fact.id, None)
        at = self._support.latest(fact)
        later = [rival for rival in rivals.values() if self._support.latest(rival) > at]
        for rival in rivals.values():
            if self._support.latest(rival) <= at:
                self._close(rival, by=fact)
        if later:
            self._close(fact, by=min(later, key=self._order))

    def _rivals(self, fact: Semantic) -> list[Semantic | None]:
        keys = rival_keys(fact.proposition)
        ids = [node.id for key in keys for node in self._known.keys.get(("semantic", key), ())]
        ids += [id for key in keys for id in self._placed.get(key, ())]
        ids += self._near.of(fact.id)
        others = (self._draft.survivor(id, Semantic) for id in dict.fromkeys(ids))
        return [o for o in others if o and contradicts(o.proposition, fact.proposition)]

    def _remember(self, fact: Semantic) -> None:
        for key in lookup_keys(fact):
            self._placed.setdefault(key, []).append(fact.id)

    def _order(self, fact: Semantic) -> tuple[datetime, datetime]:
        return self._support.latest(fact), self._support.start(fact)

    def _close(self, fact: Semantic, *, by: Semantic) -> None:
        """Let *by* close *fact*, unless something earlier has closed it already."""
        starts = self._support.start
        end = max(starts(fact), starts(by))
        if fact.valid_to is None or as_utc(fact.valid_to) > end:
            self._draft.set(fact.id, valid_to=end, superseded_by=by.id)

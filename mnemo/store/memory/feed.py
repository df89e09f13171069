"""What one repository's indexes follow, in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.step import Step
from mnemo.graph.edges import EdgeKind
from mnemo.graph.nodes import Episodic, Intent, Node, Tag, Vector
from mnemo.protocols import EmbeddingSpace, FeedChanges, FeedCursor
from mnemo.store.memory.state import Kept, RepoState

__all__ = ["MemoryFeed", "is_owned"]


class MemoryFeed:
    """``DocumentFeed`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept]) -> None:
        self._repo_id = repo_id
        self._kept = kept

    @property
    def _repo(self) -> RepoState:
        return self._kept().repo(self._repo_id)

    async def changes(self, after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        """What came after *after*; *removed* goes before the rest."""
        await cancel_shielded_checkpoint()
        repo = self._repo
        steps = _new_steps(repo, after.step, limit)
        nodes, until = _changed_nodes(repo, after.revision, limit)
        vectors, seq = _new_vectors(repo, after.vector, limit)
        cursor = FeedCursor(
            step=steps[-1].ordinal if steps else after.step,
            revision=until,
            removal=len(repo.removals),
            vector=seq,
        )
        return FeedChanges(
            cursor=cursor,
            revision=repo.revision,
            steps=tuple(steps),
            nodes=tuple(nodes),
            details={node.id: found for node in nodes if (found := _details(repo, node))},
            origins=_origins(repo, nodes),
            removed=() if after == FeedCursor() else tuple(repo.removals[after.removal :]),
            vectors=vectors,
            more=len(steps) == limit or until < repo.revision or len(vectors) == limit,
        )

    async def save_vectors(self, space: EmbeddingSpace, vectors: Mapping[str, Vector]) -> None:
        """Keep vectors; keys whose owner is gone are skipped."""
        repo = self._repo
        kept = {key: vector for key, vector in vectors.items() if is_owned(repo, key)}
        repo.check_space(space, kept.values())
        if kept:
            repo.stamp(space)
        for key, vector in kept.items():
            repo.put_vector(key, vector)
        await cancel_shielded_checkpoint()

    async def space(self) -> EmbeddingSpace | None:
        """What the repository is stamped with; ``None`` before the first vector."""
        await cancel_shielded_checkpoint()
        return self._repo.space

    async def steps(self, node_ids: Sequence[str]) -> dict[str, Step]:
        """The steps behind episodic node ids, committed or not, with their annotations."""
        await cancel_shielded_checkpoint()
        known = self._repo.step_of
        return {id: known[id].step for id in node_ids if id in known}

    async def goals(self, episode_ids: Sequence[str]) -> dict[str, str]:
        """The goals of episodes; unknown ones are absent."""
        await cancel_shielded_checkpoint()
        wanted = set(episode_ids)
        sessions = self._kept().sessions.values()
        episodes = [e for s in sessions if s.repo_id == self._repo_id for e in s.episodes]
        return {episode.id: episode.goal for episode in episodes if episode.id in wanted}

    async def counts(self) -> dict[str, int]:
        """``steps``, ``messages``, ``vectors``, ``edges:<kind>``, ``nodes:<type>``: how many."""
        await cancel_shielded_checkpoint()
        repo = self._repo
        messages = sum(len(thread.messages) for thread in repo.threads.values())
        counts = {"steps": len(repo.steps), "messages": messages, "vectors": len(repo.vectors)}
        names = [f"nodes:{state.node.type}" for state in repo.nodes.values()]
        names += [f"edges:{edge.kind}" for edge in repo.edges]
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        return counts


def _new_steps(repo: RepoState, after: int, limit: int) -> list[Step]:
    start = bisect_right(repo.steps, after, key=lambda state: state.step.ordinal)
    steps: list[Step] = []
    for state in repo.steps[start:]:
        if not state.gone:
            steps.append(state.step)
        if len(steps) == limit:
            break
    return steps


def _changed_nodes(repo: RepoState, after: int, limit: int) -> tuple[list[Node], int]:
    """Nodes of whole revisions, of at least one; and the last revision that was read."""
    start = bisect_right(repo.changed, after, key=lambda entry: entry[0])
    found: dict[str, int] = {}
    for revision, id in repo.changed[start:]:
        state = repo.nodes.get(id)
        if state is None or state.revision != revision:
            continue
        if state.node.type not in ("episodic", "source"):
            found[id] = revision
    if len(found) <= limit:
        return [repo.nodes[id].node for id in found], repo.revision
    revisions = list(found.values())
    until = revisions[limit] - 1 if revisions[limit] > revisions[0] else revisions[0]
    return [repo.nodes[id].node for id in found if found[id] <= until], until


def _new_vectors(repo: RepoState, after: int, limit: int) -> tuple[dict[str, Vector], int]:
    vectors: dict[str, Vector] = {}
    for seq in range(after + 1, len(repo.vector_log) + 1):
        key = repo.vector_log[seq - 1]
        if key in repo.vectors and repo.vectors[key][0] == seq:
            vectors[key] = repo.vectors[key][1]
        if len(vectors) == limit:
            return vectors, seq
    return vectors, len(repo.vector_log)


def _details(repo: RepoState, node: Node) -> dict[str, Any]:
    if node.type == "semantic":
        tags = [n.label for n in _linked(repo, node, EdgeKind.MEMBERSHIP) if isinstance(n, Tag)]
        steps = [n for n in _linked(repo, node, EdgeKind.PROVENANCE) if isinstance(n, Episodic)]
        return {
            "tags": tuple(tags),
            "latest_at": _latest(steps),
            "steps": tuple(sorted(step.id for step in steps)),
        }
    if node.type == "procedural":
        linked = _linked(repo, node, EdgeKind.HIERARCHICAL)
        return {"intents": tuple(n.description for n in linked if isinstance(n, Intent))}
    return {}


def _origins(repo: RepoState, nodes: list[Node]) -> dict[str, str]:
    if not nodes:
        return {}
    # Of changesets with one revision the first wrote it, the others wrote nothing.
    by_revision = {done.revision: id for id, done in reversed(repo.changesets.items())}
    revisions = {node.id: repo.nodes[node.id].revision for node in nodes}
    return {id: by_revision[no] for id, no in revisions.items() if no in by_revision}


def _latest(steps: Sequence[Episodic]) -> datetime | None:
    times = [step.at.astimezone(UTC) for step in steps if step.at is not None]
    return max(times, default=None)


def _linked(repo: RepoState, node: Node, kind: EdgeKind) -> list[Node]:
    edges = [edge for edge in repo.edges_of.get(node.id, ()) if edge.kind is kind]
    others = [e.target if e.source == node.id else e.source for e in edges]
    return [repo.nodes[id].node for id in others]


def is_owned(repo: RepoState, key: str) -> bool:
    """Whether the node or step that a vector's key names is there."""
    id = key.removesuffix("/observation").removesuffix("/action")
    step = repo.step_of.get(id)
    return id in repo.nodes or (step is not None and not step.gone)

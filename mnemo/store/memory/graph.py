"""The graph of one repository, in memory: everything is checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.journal import Owner
from mnemo.errors import CommitFailed, StaleRevision
from mnemo.graph.changeset import Revision
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import MetadataDelta, NodeMetadata
from mnemo.graph.nodes import Episodic, Node, NodeType, Source, Vector
from mnemo.protocols import Applied, Clock, GraphWrite
from mnemo.store.memory.sessions import settle, settled_place
from mnemo.store.memory.state import Kept, RepoState
from mnemo.store.memory.upkeep import check_upkeep, keep_up, would_change

__all__ = ["MemoryGraph"]


class MemoryGraph:
    """``GraphStore`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept], clock: Clock) -> None:
        self._repo_id = repo_id
        self._kept = kept
        self._clock = clock

    @property
    def _repo(self) -> RepoState:
        return self._kept().repo(self._repo_id)

    async def revision(self) -> Revision:
        """The present revision."""
        await cancel_shielded_checkpoint()
        return self._repo.revision

    async def apply(self, write: GraphWrite, owner: Owner) -> Applied:
        """Write everything or nothing; see ``GraphStore``. *Cancellation*: completes."""
        applied = self._apply(write, owner)
        await cancel_shielded_checkpoint()
        return applied

    def _apply(self, write: GraphWrite, owner: Owner) -> Applied:
        kept, repo, now = self._kept(), self._repo, self._clock.now()
        kept.refuse_erased(_origins(write))
        earlier = repo.changesets.get(write.changeset_id)
        place = None
        if write.settlement is not None:
            again = earlier is not None
            place = settled_place(kept, write.settlement, owner.token, again=again)
        applied = replace(earlier, again=True) if earlier else _write(repo, write, now)
        if place is not None and write.settlement is not None:
            settle(place, write.settlement, applied.node_ids)
        return applied

    async def delete(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Delete nodes with all that hangs on them; give the ids that existed."""
        repo = self._repo
        known = tuple(id for id in dict.fromkeys(ids) if id in repo.nodes)
        if known:
            repo.revision += 1
        for id in known:
            repo.drop_node(id)
        await cancel_shielded_checkpoint()
        return known

    async def nodes(
        self,
        ids: Sequence[str] | None = None,
        *,
        types: Sequence[NodeType] | None = None,
        keys: Sequence[str] | None = None,
        newest: int | None = None,
    ) -> list[Node]:
        """Nodes by id (in the order of *ids*) or by type, oldest first; see ``GraphStore``."""
        repo = self._repo
        await cancel_shielded_checkpoint()
        if ids is not None:
            return [_whole(repo, id) for id in dict.fromkeys(ids) if id in repo.nodes]
        among: dict[str, None] = dict.fromkeys(repo.nodes)
        if keys is not None:
            last = slice(None if newest is None else -newest, None)
            of_keys = (list(repo.keyed.get(key, ()))[last] for key in keys)
            among, newest = dict.fromkeys(id for ids in of_keys for id in ids), None
        found = [id for id in among if types is None or repo.nodes[id].node.type in types]
        newest_first = newest is not None
        if newest_first:
            found.sort()
        found.sort(key=lambda id: repo.nodes[id].metadata.created_at, reverse=newest_first)
        return [_whole(repo, id) for id in found[:newest]]

    async def metadata(self, ids: Sequence[str]) -> dict[str, NodeMetadata]:
        """Entries of the ids that exist."""
        await cancel_shielded_checkpoint()
        return {id: self._repo.nodes[id].metadata for id in ids if id in self._repo.nodes}

    async def edges(self, ids: Sequence[str], *, kind: EdgeKind | None = None) -> list[Edge]:
        """Edges with an end among *ids*, each once."""
        await cancel_shielded_checkpoint()
        found = dict.fromkeys(edge for id in ids for edge in self._repo.edges_of.get(id, ()))
        return [edge for edge in found if kind is None or edge.kind is kind]

    async def touch(self, counts: Mapping[str, int], at: datetime) -> None:
        """Add to access counts of nodes that exist; no new revision."""
        for id, count in counts.items():
            if (state := self._repo.nodes.get(id)) is not None:
                last = max(state.metadata.last_accessed_at or at, at)
                total = state.metadata.access_count + count
                state.metadata = replace(state.metadata, access_count=total, last_accessed_at=last)
        await cancel_shielded_checkpoint()


def _origins(write: GraphWrite) -> Iterator[str | None]:
    """The steps, episodes and sessions that the raw nodes of *write* are of."""
    for node in write.nodes:
        if isinstance(node, Episodic | Source):
            yield from (node.id, node.episode_id, node.session_id)


def _whole(repo: RepoState, id: str) -> Node:
    node = repo.nodes[id].node
    return replace(node, vector=repo.vectors[id][1]) if id in repo.vectors else node


def _write(repo: RepoState, write: GraphWrite, now: datetime) -> Applied:
    if repo.revision != write.expected_revision:
        raise StaleRevision(f"revision {write.expected_revision} was replaced by {repo.revision}")
    edge_count, upkeep = 0, write.upkeep
    if upkeep is not None:
        check_upkeep(repo, upkeep)
        if write.is_empty and not would_change(repo, upkeep):
            return Applied(revision=repo.revision, node_ids=write.node_ids, edge_count=0)
        if write.is_empty:
            repo.revision += 1
    if not write.is_empty:
        added = [n if n.created_at else replace(n, created_at=now) for n in write.nodes]
        vectors = _vectors(write)
        repo.check_space(write.space, vectors.values())
        _refuse_contradictions(repo, write)
        changed = _changed(repo, write)
        edge_count = _write_graph(repo, write, added, changed, vectors)
    removed = keep_up(repo, upkeep) if upkeep is not None else ()
    applied = Applied(revision=repo.revision, node_ids=write.node_ids, edge_count=edge_count)
    repo.changesets[write.changeset_id] = applied
    return replace(applied, removed=removed)


def _refuse_contradictions(repo: RepoState, write: GraphWrite) -> None:
    new = {node.id for node in write.nodes}
    if len(new) < len(write.nodes) or new & repo.nodes.keys():
        raise CommitFailed("nothing was written: a node id is in use already")
    named = [end for edge in write.edges for end in (edge.source, edge.target)]
    named += [*write.metadata, *(change.id for change in write.changes)]
    if unknown := next((id for id in named if id not in new and id not in repo.nodes), None):
        raise CommitFailed(f"nothing was written: the node {unknown!r} does not exist")


def _vectors(write: GraphWrite) -> dict[str, Vector]:
    vectors = {node.id: node.vector for node in write.nodes}
    vectors |= {c.id: c.fields["vector"] for c in write.changes if "vector" in c.fields}
    return {id: vector for id, vector in vectors.items() if vector is not None}


def _changed(repo: RepoState, write: GraphWrite) -> list[Node]:
    nodes: dict[str, Node] = {}
    for change in write.changes:
        node = nodes.get(change.id) or repo.nodes[change.id].node
        nodes[change.id] = replace(node, **change.fields)
    return list(nodes.values())


def _write_graph(
    repo: RepoState,
    write: GraphWrite,
    added: Sequence[Node],
    changed: Sequence[Node],
    vectors: Mapping[str, Vector],
) -> int:
    repo.revision += 1
    repo.stamp(write.space if vectors else None)
    for node in added:
        assert node.created_at is not None
        repo.put_node(replace(node, vector=None), NodeMetadata(created_at=node.created_at))
    for node in changed:
        repo.put_node(replace(node, vector=None), repo.nodes[node.id].metadata)
        if node.type in ("intent", "tag"):
            repo.mark_changed(repo.neighbours(node.id))
    edge_count = sum(repo.put_edge(edge) for edge in write.edges)
    repo.mark_changed({id for edge in write.edges if (id := _described(edge)) is not None})
    for id, delta in write.metadata.items():
        repo.nodes[id].metadata = _plus(repo.nodes[id].metadata, delta)
    for id, vector in vectors.items():
        repo.put_vector(id, vector)
    return edge_count


def _described(edge: Edge) -> str | None:
    """Whose document an edge is part of."""
    if edge.kind is EdgeKind.SIBLING:
        return None
    return edge.source if edge.kind is EdgeKind.PROVENANCE else edge.target


def _plus(metadata: NodeMetadata, delta: MetadataDelta) -> NodeMetadata:
    return replace(
        metadata,
        cumulative_reward=metadata.cumulative_reward + delta.cumulative_reward,
        reward_count=metadata.reward_count + delta.reward_count,
        support_count=metadata.support_count + delta.support_count,
    )

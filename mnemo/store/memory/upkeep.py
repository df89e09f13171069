"""Upkeep in memory: merging, removing, setting penalties; checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mnemo.errors import CommitFailed
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import NodeMetadata
from mnemo.graph.nodes import Episodic
from mnemo.graph.upkeep import RAW, ROUTING, Upkeep
from mnemo.store.memory.state import RepoState

__all__ = ["check_upkeep", "keep_up", "would_change"]


def check_upkeep(repo: RepoState, upkeep: Upkeep) -> None:
    """*Raises* ``CommitFailed``: it names an unknown node, or would remove a raw step."""
    if unknown := next((id for id in upkeep.named_ids if id not in repo.nodes), None):
        raise CommitFailed(f"nothing was written: the node {unknown!r} does not exist")
    leaving = (*upkeep.merges, *upkeep.removals)
    if raw := next((id for id in leaving if repo.nodes[id].node.type in RAW), None):
        raise CommitFailed(f"nothing was written: {raw!r} is a raw step, which stays")


def would_change(repo: RepoState, upkeep: Upkeep) -> bool:
    """Whether there is anything for it to do."""
    named = upkeep.changed or upkeep.merges or upkeep.penalties or _leaving(repo, upkeep)
    return bool(named or (upkeep.sweeps and _orphans(repo)))


def keep_up(repo: RepoState, upkeep: Upkeep) -> tuple[str, ...]:
    """Do *upkeep* as of the present revision; give the ids that it removed."""
    for node in upkeep.changed:
        repo.put_node(replace(node, vector=None), repo.nodes[node.id].metadata)
    for id, penalty in upkeep.penalties.items():
        state = repo.nodes[id]
        state.metadata = replace(state.metadata, penalty=penalty)
    _merge(repo, upkeep.merges)
    removed = list(dict.fromkeys((*upkeep.merges, *_leaving(repo, upkeep))))
    for id in removed:
        _drop(repo, id)
    orphans = _orphans(repo) if upkeep.sweeps else []
    for id in orphans:
        _drop(repo, id)
    return (*removed, *orphans)


def _leaving(repo: RepoState, upkeep: Upkeep) -> list[str]:
    until = upkeep.accessed_until
    found = []
    for id in dict.fromkeys(upkeep.removals):
        accessed = repo.nodes[id].metadata.last_accessed_at
        if until is None or accessed is None or accessed <= until:
            found.append(id)
    return found


def _orphans(repo: RepoState) -> list[str]:
    """Routing nodes that nothing hangs on."""
    routing = [id for id, state in repo.nodes.items() if state.node.type in ROUTING]
    return [id for id in routing if not any(e.source == id for e in repo.edges_of.get(id, ()))]


def _drop(repo: RepoState, id: str) -> None:
    shown = (EdgeKind.MEMBERSHIP, EdgeKind.HIERARCHICAL)
    edges = [e for e in repo.edges_of.get(id, ()) if e.source == id and e.kind in shown]
    # What a tag or an intent says is part of its members' documents.
    repo.mark_changed([edge.target for edge in edges])
    repo.discard_node(id)


# ── Merging ──────────────────────────────────────────────────────────────────────────


def _merge(repo: RepoState, merges: Mapping[str, str]) -> None:
    losers: dict[str, list[str]] = {}
    for loser, survivor in merges.items():
        losers.setdefault(survivor, []).append(loser)
        for edge in list(repo.edges_of.get(loser, ())):
            source, target = (merges.get(end, end) for end in (edge.source, edge.target))
            if source != target:
                repo.put_edge(Edge(source, target, edge.kind))
    for survivor, lost in losers.items():
        entries = [repo.nodes[id].metadata for id in (survivor, *lost)]
        repo.nodes[survivor].metadata = _united(entries, _episodes(repo, survivor))
    repo.mark_changed(losers)


def _united(entries: list[NodeMetadata], episodes: int) -> NodeMetadata:
    accessed = [entry.last_accessed_at for entry in entries if entry.last_accessed_at is not None]
    return NodeMetadata(
        created_at=min(entry.created_at for entry in entries),
        last_accessed_at=max(accessed, default=None),
        access_count=sum(entry.access_count for entry in entries),
        cumulative_reward=sum(entry.cumulative_reward for entry in entries),
        reward_count=sum(entry.reward_count for entry in entries),
        support_count=episodes or max(entry.support_count for entry in entries),
        penalty=min(entry.penalty for entry in entries),
    )


def _episodes(repo: RepoState, id: str) -> int:
    """How many episodes are known behind the provenance of a node."""
    edges = [e for e in repo.edges_of[id] if e.source == id and e.kind is EdgeKind.PROVENANCE]
    steps = [repo.nodes[edge.target].node for edge in edges]
    known = (step for step in steps if isinstance(step, Episodic) and step.episode_id)
    return len({(step.session_id, step.episode_id) for step in known})

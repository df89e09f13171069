"""What the memory store holds, in plain objects; the counters are those of the feed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from mnemo._ids import new_id
from mnemo.episode.archive import EpisodeStatus
from mnemo.episode.journal import Owner, SessionState, StagedTrajectory
from mnemo.episode.step import Step
from mnemo.errors import Conflict, EmbeddingSpaceMismatch
from mnemo.graph.changeset import Changeset
from mnemo.graph.edges import Edge
from mnemo.graph.lookup import lookup_keys
from mnemo.graph.metadata import NodeMetadata
from mnemo.graph.nodes import Node, Vector
from mnemo.protocols import Applied, EmbeddingSpace
from mnemo.store.memory.note_state import NotesState
from mnemo.store.memory.threads import Debts, ThreadState

__all__ = ["EpisodeState", "Kept", "NodeState", "RepoState", "SessionData", "StepState"]


@dataclass(slots=True, eq=False)
class StepState:
    """A step; *gone* from recall, but not from search."""

    step: Step
    committed: bool = False
    gone: bool = False


@dataclass(slots=True, eq=False)
class EpisodeState:
    """An episode with all that is known of it."""

    id: str
    goal: str
    goal_at: datetime
    status: EpisodeStatus = "open"
    steps: list[StepState] = field(default_factory=list)
    staged: dict[str, StagedTrajectory] = field(default_factory=dict)
    changeset: Changeset | None = None
    changeset_steps: tuple[int, ...] = ()
    receipt_nodes: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.status in ("committed", "discarded")


@dataclass(slots=True, eq=False)
class SessionData:
    """A session; its present or last episode is the last one."""

    id: str
    repo_id: str
    state: SessionState
    owner: str | None
    updated_at: datetime
    episodes: list[EpisodeState]
    error: str | None = None
    error_trajectory: str | None = None
    keys: dict[str, StepState] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NodeState:
    """A node without its vector, its counts, and the revision that changed it last."""

    node: Node
    metadata: NodeMetadata
    revision: int


@dataclass(slots=True, eq=False)
class RepoState:
    """
    One repository. The logs only grow; an entry that a later one overtook is skipped.

    Attributes:
        changed: (revision, node id), ascending.
        removals: Node ids; the position plus one is the counter.
        vector_log: Keys; likewise.
        owed: Messages of *threads* that wait for their vector.
        salt: Of the digests of erased messages' ids.
    """

    id: str
    revision: int = 0
    space: EmbeddingSpace | None = None
    steps: list[StepState] = field(default_factory=list)
    step_of: dict[str, StepState] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    edges: dict[Edge, None] = field(default_factory=dict)
    edges_of: defaultdict[str, dict[Edge, None]] = field(default_factory=lambda: defaultdict(dict))
    keyed: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    changesets: dict[str, Applied] = field(default_factory=dict)
    changed: list[tuple[int, str]] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)
    vectors: dict[str, tuple[int, Vector]] = field(default_factory=dict)
    vector_log: list[str] = field(default_factory=list)
    next_space: EmbeddingSpace | None = None
    moving: dict[str, tuple[bytes, Vector]] = field(default_factory=dict)
    """Vectors of *next_space* with their texts' digests, waiting for the switch."""
    threads: dict[str, ThreadState] = field(default_factory=dict)
    owed: Debts = field(default_factory=Debts)
    salt: str = field(default_factory=partial(new_id, "salt"))
    notes: NotesState = field(default_factory=NotesState)

    def put_node(self, node: Node, metadata: NodeMetadata) -> None:
        """Insert or replace a node and its lookup keys; as of the present revision."""
        self._drop_keys(node.id)
        self.nodes[node.id] = NodeState(node, metadata, self.revision)
        for key in lookup_keys(node):
            self.keyed[key][node.id] = None
        self.changed.append((self.revision, node.id))

    def mark_changed(self, ids: Iterable[str]) -> None:
        """Let the feed show nodes again, whose documents changed."""
        for id in ids:
            self.nodes[id].revision = self.revision
            self.changed.append((self.revision, id))

    def put_edge(self, edge: Edge) -> bool:
        """Whether it was new."""
        if edge in self.edges:
            return False
        self.edges[edge] = self.edges_of[edge.source][edge] = self.edges_of[edge.target][edge] = (
            None
        )
        return True

    def neighbours(self, id: str) -> set[str]:
        """Ids at the other ends of its edges."""
        return {e.target if e.source == id else e.source for e in self.edges_of.get(id, ())}

    def drop_node(self, id: str) -> None:
        """Delete a node; its neighbours' documents may have changed by that."""
        self.mark_changed(self.neighbours(id))
        self.discard_node(id)

    def discard_node(self, id: str) -> None:
        """Delete a node with edges, keys, vectors, and its step from recall."""
        for edge in list(self.edges_of.pop(id, ())):
            other = edge.target if edge.source == id else edge.source
            self.edges.pop(edge)
            self.edges_of[other].pop(edge)
        self._drop_keys(id)
        del self.nodes[id]
        if id in self.step_of:
            self.step_of[id].gone = True
        self.remove(id)

    def remove(self, id: str) -> None:
        """Tell the feed that a node or step is gone, and drop its vectors."""
        self.removals.append(id)
        for key in (id, f"{id}/observation", f"{id}/action"):
            self.vectors.pop(key, None)

    def put_vector(self, key: str, vector: Vector) -> None:
        """Keep a copy of *vector*."""
        self.vector_log.append(key)
        self.vectors[key] = (len(self.vector_log), vector.copy())

    def check_space(self, space: EmbeddingSpace | None, vectors: Iterable[Vector]) -> None:
        """Compare vectors with the stamp. *Raises* ``EmbeddingSpaceMismatch``."""
        lengths = {vector.shape[0] for vector in vectors}
        if not lengths:
            return
        stamp = self.space
        if stamp and space and (stamp.name, stamp.dimensions) != (space.name, space.dimensions):
            raise EmbeddingSpaceMismatch(self.id, str(stamp), str(space))
        known = stamp or space
        expected = known.dimensions if known else min(lengths)
        if lengths != {expected}:
            other = max(lengths - {expected})
            stored = str(known or f"{expected} dimensions")
            raise EmbeddingSpaceMismatch(self.id, stored, f"vectors of {other} dimensions")

    def stamp(self, space: EmbeddingSpace | None) -> None:
        """Remember the space of the first vectors."""
        if self.space is None and space is not None:
            self.space = EmbeddingSpace(space.name, space.dimensions)

    def owe_messages_anew(self) -> None:
        """The vectors of messages are of no use any more; they wait for others."""
        for id, thread in self.threads.items():
            for seq in thread.vectors:
                self.owed.owe(thread.messages[seq].no, id, seq)
            thread.vectors.clear()

    def _drop_keys(self, id: str) -> None:
        if id in self.nodes:
            for key in lookup_keys(self.nodes[id].node):
                self.keyed[key].pop(id, None)


@dataclass(slots=True, eq=False)
class Kept:
    """Everything; it outlives ``aclose``, so that a store can be opened again."""

    sessions: dict[str, SessionData] = field(default_factory=dict)
    episode_ids: set[str] = field(default_factory=set)
    repos: dict[str, RepoState] = field(default_factory=dict)
    leases: dict[str, tuple[Owner, float]] = field(default_factory=dict)
    ordinal: int = 0
    message_no: int = 0
    erased: set[str] = field(default_factory=set)
    """Ids of steps, episodes and sessions that were forgotten."""

    def refuse_erased(self, ids: Iterable[str | None]) -> None:
        """*Raises* ``Conflict`` if one of *ids* was forgotten."""
        if not self.erased.isdisjoint(ids):
            raise Conflict("nothing was written: it comes from steps that were forgotten")

    def repo(self, id: str) -> RepoState:
        """The repository, entered at its first use."""
        return self.repos.setdefault(id, RepoState(id))

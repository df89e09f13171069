"""What a session's journal holds: the record, its acts, one transaction each, the replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, NamedTuple, TypeAlias

from mnemo.errors import StoreCorrupt
from mnemo.values.changeset import Changeset, NodeChange, Revision, Upkeep
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.graph import Edge, MetadataDelta, Node
from mnemo.values.jobs import Intake
from mnemo.values.steps import Annotation, Step


class SessionState(StrEnum):
    """The five states of a session, and no other."""

    IDLE = "idle"
    COLLECTING = "collecting"
    EXTRACTING = "extracting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """
    One line about a session.

    Attributes:
        goal: That of its present or last episode.
        steps: Steps of its present or last episode.
        updated_at: Its last durable act, aware.
        thread_id: The thread whose ``extract`` job it belongs to; ``None``: it is by hand.
    """

    id: str
    repo_id: str
    goal: str
    state: SessionState
    steps: int
    updated_at: datetime
    episode_id: str | None = None
    thread_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryRecord:
    """
    One line about a stored repository.

    Attributes:
        nodes: Node type → how many; types without any are absent.
        created_at: When the first of what it holds was stored, aware; ``None``: it is empty.
        changed_at: When a session, thread, note or the graph grew last, likewise.
        failed: Sessions by hand whose extraction failed, and background jobs whose last try did:
            those that were given up, and those that are tried again.
        ready: Sessions by hand that wait for a commit.
        waiting: Background jobs that wait or run, those of embedding left out.
    """

    id: str
    threads: int
    sessions: int
    nodes: Mapping[str, int]
    created_at: datetime | None
    changed_at: datetime | None
    failed: int = 0
    ready: int = 0
    waiting: int = 0

    def __repr__(self) -> str:
        held = f"{self.threads} threads, {self.sessions} sessions, {sum(self.nodes.values())} nodes"
        return f"<RepositoryRecord {self.id!r}: {held}>"


class Opening(NamedTuple):
    """
    What a repository that opens finds in the store: the space of its vectors, and whether the
    newest text has none, jobs wait or run, threads have a viewport or expire, and items expire.
    """

    space: EmbeddingSpace | None
    owes_vectors: bool
    has_jobs: bool
    tends_threads: bool
    expires_items: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """
    Which running service, of a unique *token*, may write a session. *host* is the machine and its
    boot; *started*, in its ticks, tells a reused *pid*.
    """

    token: str
    host: str
    pid: int
    started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What changes a session's record, in one transaction."""

    leads_to: ClassVar[SessionState | None] = None
    """The state of the session after it; ``None``: the state stays."""

    session_id: str
    episode_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStarted(Act):
    """An idle session collects for a new goal."""

    leads_to: ClassVar[SessionState | None] = SessionState.COLLECTING
    goal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsAnnotated(Act):
    """Annotations became known, or known better (a deferred reward)."""

    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeClosed(Act):
    """No step is added any more."""

    leads_to: ClassVar[SessionState | None] = SessionState.EXTRACTING


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTrajectory:
    """An extraction's result, to be committed; its key is unique per episode."""

    key: str
    trajectory_id: str
    steps: tuple[int, ...]
    changeset: Changeset


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryStaged(Act):
    """One trajectory's result is kept, so that it is never extracted again."""

    staged: StagedTrajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionAbandoned(Act):
    """Extraction gave up; everything is kept."""

    leads_to: ClassVar[SessionState | None] = SessionState.FAILED
    error: str
    trajectory_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRetried(Act):
    """A failed extraction is tried again."""

    leads_to: ClassVar[SessionState | None] = SessionState.EXTRACTING


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesetStaged(Act):
    """The whole changeset (with its id) is kept, staged trajectories go."""

    leads_to: ClassVar[SessionState | None] = SessionState.READY
    changeset: Changeset
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDiscarded(Act):
    """The episode ends uncommitted; staged results go, its steps leave recall."""

    leads_to: ClassVar[SessionState | None] = SessionState.IDLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """
    What a commit does to its session, in the same transaction as the graph.

    Attributes:
        steps: Indexes of those that are committed; *staged*: keys of trajectories that go.
        ends: Whether the episode ends with it: the state becomes ``idle`` and the
            staged whole changeset goes; else the state stays.
    """

    session_id: str
    episode_id: str
    steps: tuple[int, ...]
    staged: tuple[str, ...]
    ends: bool
    at: datetime
    intake: Intake | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """
    A session as its last durable act left it.

    Attributes:
        steps: Those of the present episode, ascending; of *committed* the indexes.
        staged: By key; *changeset* is the whole one, in ``ready``.
        error: Why extraction gave up, in ``failed``; *error_trajectory* says where.
        keys: Idempotency key → step, of all episodes of the session.
        receipt_nodes: Node ids that this episode's earlier commits left.
    """

    record: SessionRecord
    steps: tuple[Step, ...]
    committed: frozenset[int] = frozenset()
    staged: Mapping[str, StagedTrajectory] = field(default_factory=lambda: MappingProxyType({}))
    changeset: Changeset | None = None
    changeset_steps: tuple[int, ...] = ()
    error: str | None = None
    error_trajectory: str | None = None
    keys: Mapping[str, Step] = field(default_factory=lambda: MappingProxyType({}))
    receipt_nodes: tuple[str, ...] = ()


Intact: TypeAlias = bool | list[StoreCorrupt]
"""Whether a read passes by damaged rows: True logs them, a list gets them as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphWrite:
    """
    A reconciled changeset: exactly what one transaction writes.

    Attributes:
        changeset_id: Met again, nothing is written and the first answer is given.
        expected_revision: The revision that it was reconciled against.
        nodes: To insert, complete with ``created_at``. ``source`` and ``episodic`` nodes
            carry no vector (those of their step serve); another node without one is
            found by keyword until the index has caught up with it.
        edges: To insert; one that exists already is skipped.
        dropped: Stored edges to delete, before *edges* are inserted.
        metadata: Node id → difference; every new node gets an entry in any case.
        changes: New field values (``vector`` included) of stored nodes.
        node_ids: What the receipt names: ids that exist afterwards, created or changed.
        settlement: What it does to its session; ``None`` for ``repo.apply``.
        space: Of the vectors in it; stamps the repository if it has none. ``None``: the
            vectors must have the stamped length.
        upkeep: What maintenance does, after the rest. If that and the rest change
            nothing, the revision stays and the id is not remembered.
    """

    changeset_id: str
    expected_revision: Revision
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    dropped: tuple[Edge, ...] = ()
    metadata: Mapping[str, MetadataDelta] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    node_ids: tuple[str, ...] = ()
    settlement: Settlement | None = None
    space: EmbeddingSpace | None = None
    upkeep: Upkeep | None = None

    @property
    def is_empty(self) -> bool:
        """Whether, upkeep aside, the graph stays as it is; then the revision stays too."""
        return not (self.nodes or self.edges or self.dropped or self.metadata or self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a graph write left; *again*: had been applied; *removed* is told the first time."""

    revision: Revision
    node_ids: tuple[str, ...]
    edge_count: int
    again: bool = False
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """
    What a check of the whole store found; no *problems* is healthy.

    Attributes:
        repaired: What was put right before the check, if that was asked for.
    """

    problems: tuple[str, ...]
    counts: Mapping[str, int]
    schema_version: int
    synchronous: str
    repaired: tuple[str, ...] = ()

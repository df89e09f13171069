"""
What happened, in the past tense: frozen, sent after the fact is durable.

Events carry ids and numbers, and of texts only a query; never what was stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mnemo.values.changeset import MaintenanceReport
from mnemo.values.chat import Usage
from mnemo.values.notes import NoteChange

__all__ = [
    "AnnotationFailed",
    "ChangesetApplied",
    "CompactionRecorded",
    "CompressionFailed",
    "ConsolidationCompleted",
    "DecayCompleted",
    "EmbedderUnfit",
    "Event",
    "EventsDropped",
    "EvictionCompleted",
    "EvictionFailed",
    "MemoryUpdateFinished",
    "NodesDeleted",
    "RecallExecuted",
    "RecallFailed",
    "SessionExpired",
    "SessionTransitioned",
    "SnapshotTaken",
    "StepAnnotated",
    "StepAppended",
    "TrajectoryCommitted",
    "TrajectoryExtractionFailed",
    "TrajectoryFlushed",
    "ValidationCompleted",
    "WriteFailed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """
    The base of every event.

    Attributes:
        repo_id: The repository it happened in.
        at: When, aware, by the service's clock.
        trace: What was measured on the way, where there is something.
    """

    repo_id: str
    at: datetime
    trace: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTransitioned(Event):
    """
    The session's state changed; *node_ids* are set where a commit ended in ``idle``.

    At the end of an extraction, *trace* has ``stages``: stage → ``model``, ``embedded`` or
    ``failed`` → how often it ran so since the session was opened, and ``model_calls``.
    """

    session_id: str
    from_state: str
    to_state: str
    node_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAppended(Event):
    """A step became durable."""

    session_id: str
    step_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnnotated(Event):
    """A step's subgoal, state and reward became durable."""

    session_id: str
    step_index: int
    trajectory_id: str
    boundary_detected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationFailed(Event):
    """A batch of steps could not be annotated; extraction will ask again."""

    session_id: str
    step_indexes: tuple[int, ...]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryCommitted(Event):
    """Auto-commit wrote a trajectory in the background."""

    session_id: str
    trajectory_id: str
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryFlushed(Event):
    """Auto-commit wrote the unfinished trajectory because no step had come for a while."""

    session_id: str
    trajectory_id: str
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryExtractionFailed(Event):
    """A trajectory could not be extracted; its steps stay uncommitted and durable."""

    session_id: str
    trajectory_id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpired(Event):
    """Auto-commit ended a session that had received no step for a long time."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesetApplied(Event):
    """A changeset was written; not sent for one that was met again."""

    changeset_id: str
    revision: int
    node_ids: tuple[str, ...]
    edge_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesDeleted(Event):
    """Nodes and their edges were deleted."""

    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed(Event):
    """A commit, apply or deletion was rolled back; nothing was written."""

    operation: str
    error: str
    session_id: str | None = None
    changeset_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationCompleted(Event):
    """Facts that say the same were merged, if there were any."""

    report: MaintenanceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayCompleted(Event):
    """What is old, unused and unrewarded was deleted, if there was any."""

    report: MaintenanceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationCompleted(Event):
    """Facts and instructions were held against their evidence."""

    report: MaintenanceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRecorded(Event):
    """A summary stands for a range of a thread from now on; both ends inclusive."""

    thread_id: str
    start_seq: int
    end_seq: int
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionFailed(Event):
    """A thread could not be summarised; it is loaded as it was."""

    thread_id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken(Event):
    """A snapshot stands for a range that left a thread's window; both ends inclusive."""

    thread_id: str
    level: int
    from_seq: int
    to_seq: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionCompleted(Event):
    """A range left a thread's window; *kind* is ``snapshot``, ``ok`` or ``fallback``."""

    thread_id: str
    from_seq: int
    to_seq: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionFailed(Event):
    """A run of Mneme over a thread brought no outcome; the window is as it was."""

    thread_id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUpdateFinished(Event):
    """
    An update of notes at the end of a task ended, or failed before it began.

    Attributes:
        ran: Whether work had begun.
        wrote: Whether it changed a note; *notes* says what.
        triggered_by: ``request``, ``correction``, ``preference``, ``iterations`` or ``None``.
        turns: Calls of the model.
        usage: What they cost together.
        prefix_reused: Whether its requests began with the task's own messages, unchanged.
        gave_up: Whether the part counts as judged although this and earlier updates failed.
        error: Class and message of what ended it, without secrets.
    """

    update_id: str
    task_id: str | None
    ran: bool
    wrote: bool
    notes: tuple[NoteChange, ...]
    triggered_by: str | None
    turns: int
    usage: Usage
    prefix_reused: bool
    gave_up: bool = False
    cancelled: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallExecuted(Event):
    """A recall was answered; *query* is the query as given."""

    query: str
    mode: str
    result_count: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallFailed(Event):
    """A recall could not be answered."""

    query: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderUnfit(Event):
    """Most of what was said last is in a language that the embedder does not know; said once."""

    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsDropped(Event):
    """The reader lagged; *count* of its oldest events were lost to it (never to the store)."""

    count: int

    @classmethod
    def after(cls, kept: Event, count: int) -> EventsDropped:
        """Report *count* events lost before *kept*."""
        return cls(repo_id=kept.repo_id, at=kept.at, count=count)

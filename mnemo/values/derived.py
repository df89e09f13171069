"""What is derived from a thread's messages, each naming its range, and erased with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from mnemo.values.messages import StoredMessage

Origin: TypeAlias = Literal["caller", "model", "fallback"]
OutcomeKind: TypeAlias = Literal["snapshot", "ok", "fallback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """
    What is kept of a thread beside its messages; outlives ``purge`` and expiry.

    Attributes:
        next_seq: What the next stored message gets.
        epoch: Raised by ``clear`` and ``purge``; *epoch_start* is its first seq.
        boundary: Seq of the oldest message of the epoch that no eviction has dealt with.
        budget_tokens: Of the viewport that Mneme watches it with; ``None``: nobody does.
        ttl_s: Seconds; ``None``: as the configuration says; 0: for ever.
        declined_to: End of the newest snapshot that a model, asked for a level-2 one, said
            needs none; those up to it do not have it asked again. -1: it never did.
        extracted_seq: Everything before it that ``remember`` was given is extracted; ``None``:
            it was given nothing.
    """

    id: str
    next_seq: int = 0
    epoch: int = 0
    epoch_start: int = 0
    boundary: int = 0
    budget_tokens: int | None = None
    ttl_s: float | None = None
    next_goal: int = 1
    declined_to: int = -1
    extracted_seq: int | None = None


def alive_since(ttl_s: float | None, default_ttl_s: float | None, now: datetime) -> datetime | None:
    """Messages of a thread recorded before this time are expired; ``None``: none ever is."""
    seconds = default_ttl_s if ttl_s is None else ttl_s
    if not seconds:
        return None
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """
    A summary that stands for messages in what ``load`` returns; they themselves stay.

    Attributes:
        start_seq, end_seq: Its range, both inclusive.
        token_count: Of the text.
        level: 1: of messages; 2: of summaries.
        origin: ``caller``, ``model`` or ``fallback``: who wrote the text.
        superseded_by: The level-2 record that took its place.
    """

    id: str
    thread_id: str
    epoch: int
    start_seq: int
    end_seq: int
    summary_text: str
    token_count: int
    level: Literal[1, 2]
    origin: Origin
    at: datetime
    superseded_by: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether it shapes what is loaded."""
        return self.superseded_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    A text that stands for a range which left the window.

    Attributes:
        from_seq, to_seq: Its range, both inclusive.
        level: 1: of messages; 2: of snapshots.
        said_from, said_to: When its first and last message were said.
        covered_by: The level-2 snapshot that contains its whole range.
    """

    id: str
    thread_id: str
    epoch: int
    level: Literal[1, 2]
    from_seq: int
    to_seq: int
    text: str
    token_count: int
    origin: Origin
    at: datetime
    said_from: datetime
    said_to: datetime
    covered_by: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether nothing of a higher level contains it."""
        return self.covered_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOutcome:
    """The verdict on a range that left the window; *snapshot_id* goes with its snapshot."""

    thread_id: str
    epoch: int
    from_seq: int
    to_seq: int
    kind: OutcomeKind
    snapshot_id: str | None
    attempts: int
    at: datetime

    is_live = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An objective of a thread; *parent_id* is that of a root, or ``None``."""

    thread_id: str
    epoch: int
    id: int
    parent_id: int | None
    description: str
    status: Literal["active", "completed"]
    created_at: datetime
    completed_at: datetime | None = None

    @property
    def is_live(self) -> bool:
        """Whether it is still pursued."""
        return self.status == "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalCompletion:
    """What completing a goal did: itself, its sub-goals completed with it, the pins released."""

    goal: Goal
    completed_children: tuple[Goal, ...]
    released_pins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A message that goals hold on to, with an excerpt of at most 200 characters."""

    thread_id: str
    epoch: int
    seq: int
    message_id: str
    excerpt: str
    goal_ids: tuple[int, ...]
    token_count: int

    is_live = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfaced:
    """
    What passive recall showed in one turn.

    Attributes:
        seq: Of the user message that the turn began with.
        shown: ``(session id, message id)`` of each memory; *hits* as JSON objects.
    """

    thread_id: str
    epoch: int
    seq: int
    shown: tuple[tuple[str, str], ...]
    hits: tuple[dict[str, Any], ...]
    at: datetime

    is_live = True


Derived: TypeAlias = Compaction | Snapshot | EvictionOutcome | Goal | Pin | Surfaced


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """
    A range to be summarised: of messages, or of summaries that become one.

    Attributes:
        messages: Ascending; empty where *summaries* are not.
        summaries: Texts, oldest first; empty where *messages* are not.
        earlier: Summaries of what was said before the range, oldest first; for continuity,
            not to be told again.
        max_tokens: Of the text, at most, by the service's count.
    """

    messages: tuple[StoredMessage, ...] = ()
    summaries: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    max_tokens: int

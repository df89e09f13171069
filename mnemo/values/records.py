"""Records: what was said or observed, in streams of a session's steps or a thread's messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from mnemo.runtime.clock import as_utc
from mnemo.values.derived import Snapshot
from mnemo.values.filters import Filters
from mnemo.values.messages import Kind, StoredMessage, ToolCall, searchable_text

RecordKind: TypeAlias = Kind | Literal["observation", "action", "snapshot"]
RECORD_KINDS: frozenset[str] = frozenset(
    {"observation", "action", "snapshot", *get_args(Kind)} - {"summary"}
)
"""The kinds of records that a search can be asked for."""


@dataclass(frozen=True, slots=True)
class Group:
    """Operands that must all occur, and those of which none may."""

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        """It in the words of a full-text index."""
        return " NOT ".join([" AND ".join(map(_quoted, self.wanted)), *map(_quoted, self.unwanted)])


@dataclass(frozen=True, slots=True)
class Query:
    """A query as groups of which one must match; no group: nothing searchable."""

    groups: tuple[Group, ...]

    @property
    def expression(self) -> str:
        """For the index: quoted operands, ``NOT`` before ``AND`` before ``OR``."""
        return " OR ".join(group.expression for group in self.groups)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The operands that speak for a hit, each once."""
        return tuple(dict.fromkeys(word for group in self.groups for word in group.wanted))


def _quoted(operand: str) -> str:
    return '"' + operand.replace('"', '""') + '"'


SNAPSHOTS_BESIDE = 3
"""Snapshots on each side of a record's surroundings, at most."""
DAYS_OF_A_YEAR = 365.0
SCORE_DIGITS = 9
"""Decimals to which scores are told apart."""
COMMON_SHARE = 0.2
"""Share of the records above which a term tells nothing."""
FEW_RECORDS = 20
"""Records below which every term tells something."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Relevance against age at *now*: one year old weighs ``1 / (1 + decay)``."""

    now: datetime
    decay: float = 0.3

    def score(self, relevance: float, at: datetime) -> float:
        """Greater is better; a time in the future is no bonus."""
        days = max(0.0, (self.now - as_utc(at)).total_seconds() / 86_400)
        return relevance / (1 + self.decay * days / DAYS_OF_A_YEAR)

    def order(
        self, relevance: float, at: datetime, session_id: str, seq: int
    ) -> tuple[float, float, str, int]:
        """Smallest first: score, then the newer, then the stream, then the later said."""
        score = round(self.score(relevance, at), SCORE_DIGITS)
        return -score, -as_utc(at).timestamp(), session_id, -seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """
    One thing said or observed.

    Attributes:
        message_id: Its id; of a step's half ``"<node id>/observation"`` or ``"<node id>/action"``.
        session_id: The session's id for steps, the thread's for messages and snapshots.
        seq: Its own, or its first; of a step's half twice the step's ordinal, plus one for
            the action.
        text: What is searched; of a tool's call or result its content whatever is indexed.
    """

    message_id: str
    session_id: str
    seq: int
    kind: RecordKind
    at: datetime
    actor: str | None
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    is_error: bool = False
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHit:
    """A record that matches; *relevance* is BM25 turned positive, or 1 for a substring."""

    record: Record
    relevance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """
    What an agent sees anyhow, and a search for it leaves out.

    Attributes:
        message_seq: Of a thread: messages from this seq on, and steps made of them; of these
            only the ones recorded at *message_since* or later.
        last_steps: Of a session: so many steps, the last ones, and messages they repeat.
        ids: Ids of the thread's snapshots that are shown.
    """

    stream: str
    message_seq: int | None = None
    message_since: datetime | None = None
    last_steps: int = 0
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """
    What to find, at most *limit* hits.

    Attributes:
        default_ttl_s: Seconds after which messages of threads without a ``ttl_s`` of their
            own are expired; ``None``: never.
        scan_limit: Records that a search for short substrings looks at, at most.
        default_actor: Who a user is that is not named.
    """

    query: Query
    ranking: Ranking
    session_id: str | None = None
    hidden: Hidden | None = None
    default_ttl_s: float | None = None
    limit: int = 100
    scan_limit: int = 50_000
    filters: Filters = field(default_factory=Filters)
    kinds: frozenset[str] | None = None
    default_actor: str = "User"
    agent_name: str = "Agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewQuery:
    """A record by its id, how many neighbours on each side, and when messages expire."""

    message_id: str
    session_id: str | None = None
    before: int = 10
    after: int = 10
    default_ttl_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """
    A record and what lies around it, ascending.

    Attributes:
        last_seq: Of a snapshot: where its range ends; of all others: their seq.
        snapshots_before: Of the record's thread and epoch the nearest ones that end ahead of
            all this, without what another one contains; *snapshots_after* likewise.
    """

    target: Record
    before: tuple[Record, ...]
    after: tuple[Record, ...]
    last_seq: int = 0
    snapshots_before: tuple[Snapshot, ...] = ()
    snapshots_after: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfacingQuery:
    """
    What could come to mind, at most *limit* records.

    Attributes:
        terms: Words or short runs, at most 32; a record must match *min_terms* of them.
    """

    terms: tuple[str, ...]
    ranking: Ranking
    min_terms: int = 2
    hidden: Hidden | None = None
    excluded: frozenset[tuple[str, str]] = frozenset()
    default_ttl_s: float | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfacing:
    """
    What the index says of some terms: in how many of all *records* each occurs.

    *hits*: best first, of present epochs, each with the terms it matches, of which one is telling.
    """

    records: int
    counts: Mapping[str, int] = field(default_factory=dict)
    hits: tuple[tuple[RecordHit, frozenset[str]], ...] = ()


def telling_terms(counts: Mapping[str, int], records: int) -> list[str]:
    """Of the terms that occur those that not every other record holds, the rarest first."""
    most = records if records < FEW_RECORDS else COMMON_SHARE * records
    return sorted((t for t, n in counts.items() if 0 < n <= most), key=lambda t: (counts[t], t))


def term_weight(count: int, records: int) -> float:
    """What a term that *count* of *records* hold says for one of them; BM25's, never 0."""
    return math.log1p((records - count + 0.5) / (count + 0.5))


def message_record(message: StoredMessage) -> Record:
    """A message as a record."""
    return Record(
        message_id=message.stored_id,
        session_id=message.thread_id,
        seq=message.seq,
        kind=message.kind or "user",
        at=message.said_at,
        actor=message.actor,
        text=searchable_text(message, tools=True),
        tool_calls=tuple(message.tool_calls),
        is_error=message.is_error,
        name=message.name,
    )


def snapshot_record(snapshot: Snapshot) -> Record:
    """A snapshot as a record."""
    return Record(
        message_id=snapshot.id,
        session_id=snapshot.thread_id,
        seq=snapshot.from_seq,
        kind="snapshot",
        at=snapshot.at,
        actor=None,
        text=snapshot.text,
    )

"""
Records: single things said or observed, as keyword search and drill-down see them.

A record's place is its stream: one session's steps (each half a record of its own) or
one thread's messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from mnemo.transcript.derived import Snapshot
from mnemo.transcript.message import Kind, ToolCall

__all__ = [
    "Group",
    "Hidden",
    "Query",
    "Record",
    "RecordHit",
    "RecordKind",
    "RecordQuery",
    "Surfacing",
    "SurfacingQuery",
    "Surroundings",
    "ViewQuery",
]

RecordKind: TypeAlias = Kind | Literal["observation", "action", "snapshot"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """
    One thing said or observed.

    Attributes:
        message_id: Of a message its id; of a step's half ``"<node id>/observation"`` or
            ``"<node id>/action"``; of a snapshot its id.
        session_id: The session's id for steps, the thread's for messages and snapshots.
        seq: Of a message its seq; of a step's half twice the step's ordinal, plus one for
            the action; of a snapshot its first seq.
        at: When it was said, aware.
        text: What is searched; of a tool's call or result its content whatever is indexed.
        tool_calls, is_error, name: Of messages.
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
        stream: A thread's or a session's id.
        message_seq: Of the thread: messages from this seq on.
        ordinal: Of the session: steps from this ordinal on.
        ids: Record ids (snapshots that are shown).
    """

    stream: str
    message_seq: int | None = None
    ordinal: int | None = None
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """
    What to find.

    Attributes:
        session_id: Only of this stream.
        hidden: What to leave out.
        default_ttl_s: Seconds after which messages of threads without a ``ttl_s`` of their
            own are expired; ``None``: never.
        limit: Hits, at most.
        scan_limit: Records that a search for short substrings looks at, at most.
    """

    query: Query
    session_id: str | None = None
    hidden: Hidden | None = None
    default_ttl_s: float | None = None
    limit: int = 100
    scan_limit: int = 50_000


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
        snapshots: All live and covered snapshots of the record's thread and epoch (for
            a step: none), ascending by range.
    """

    target: Record
    before: tuple[Record, ...]
    after: tuple[Record, ...]
    snapshots: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfacingQuery:
    """
    What could come to mind.

    Attributes:
        terms: Words or short runs, each an operand; at most 32.
        hidden: What the agent sees anyhow.
        excluded: ``(session id, message id)`` of records to leave out.
        limit: Records, at most.
    """

    terms: tuple[str, ...]
    hidden: Hidden | None = None
    excluded: frozenset[tuple[str, str]] = frozenset()
    default_ttl_s: float | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfacing:
    """
    What the index says of some terms.

    Attributes:
        records: How many there are in all.
        counts: Term → in how many records it occurs.
        hits: Best first, each with the terms it matches; messages of earlier epochs of
            any thread are not among them.
    """

    records: int
    counts: Mapping[str, int] = field(default_factory=dict)
    hits: tuple[tuple[RecordHit, frozenset[str]], ...] = ()

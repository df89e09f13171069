"""What the lines of conversations must look like, and the records that they become."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from mnemo.episode.archive import ArchivedMessage, ArchivedMessageVector
from mnemo.episode.archive_shapes import Count, Id, Packed, Shape, Time
from mnemo.runtime.validation import MOST_NUMBER
from mnemo.transcript.derived import (
    Compaction,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Thread,
)
from mnemo.transcript.message import StoredMessage, ToolCall, embedded_text, searchable_text

__all__ = ["TALK_SHAPES"]

OriginName: TypeAlias = Literal["caller", "model", "fallback"]
LevelNumber: TypeAlias = Literal[1, 2]
RoleName: TypeAlias = Literal["user", "assistant", "system", "tool"]
KindName: TypeAlias = Literal[
    "user", "assistant", "system", "tool_call", "tool_result", "thought", "reply", "summary"
]
Positive: TypeAlias = Annotated[int, Field(ge=1, le=MOST_NUMBER)]

_FIELDS = tuple(f.name for f in fields(StoredMessage))


class _Thread(Shape):
    id: Id
    next_seq: Count
    epoch: Count
    epoch_start: Count
    boundary: Count
    budget_tokens: Positive | None
    ttl_s: Annotated[float, Field(ge=0)] | None
    next_goal: Positive
    declined_to: Annotated[int, Field(ge=-1, le=MOST_NUMBER)]

    def record(self) -> Thread:
        if max(self.epoch_start, self.boundary, self.declined_to) > self.next_seq:
            raise ValueError("epoch_start, boundary and declined_to must not be past next_seq")
        # Not model_dump: the fields are all that there is, by their names.
        return Thread(**dict(self))


class _Message(Shape):
    thread: Id
    seq: Count
    id: Id
    epoch: Count
    role: RoleName
    type: KindName
    content: str | list[dict[str, Any]] | None
    tool_calls: list[Annotated[list[Any], Field(min_length=3, max_length=3)]]
    tool_call_id: str | None
    is_error: bool
    name: str | None
    actor: str | None
    at: Time
    recorded_at: Time
    tokens: Count
    metadata: dict[str, Any]
    searched: bool
    owed: bool

    def record(self) -> ArchivedMessage:
        message = StoredMessage(
            role=self.role,
            content=self.content,
            id=self.id,
            tool_calls=tuple(ToolCall(*call) for call in self.tool_calls),
            tool_call_id=self.tool_call_id,
            is_error=self.is_error,
            name=self.name,
            actor=self.actor,
            kind=self.type,
            at=self.at,
            metadata=self.metadata,
            thread_id=self.thread,
            seq=self.seq,
            epoch=self.epoch,
            recorded_at=self.recorded_at,
        )
        if self.owed and not embedded_text(message):
            raise ValueError("it has nothing that a vector could be made of, but waits for one")
        if self.searched and not searchable_text(message, tools=True):
            raise ValueError("it has nothing that could be searched for, but is said to be")
        values = {name: getattr(message, name) for name in _FIELDS} | {"token_count": self.tokens}
        exact = StoredMessage.restored(**values)
        return ArchivedMessage(message=exact, searched=self.searched, owed=self.owed)


class _MessageVector(Shape):
    thread: Id
    seq: Count
    vector: Packed

    def record(self) -> ArchivedMessageVector:
        return ArchivedMessageVector(thread_id=self.thread, seq=self.seq, vector=self.vector)


def _require_range(first: int, last: int) -> None:
    if first > last:
        raise ValueError("its range ends before it begins")


class _Compaction(Shape):
    thread: Id
    id: Id
    epoch: Count
    start_seq: Count
    end_seq: Count
    level: LevelNumber
    text: str
    tokens: Count
    origin: OriginName
    at: Time
    superseded_by: Id | None

    def record(self) -> Compaction:
        _require_range(self.start_seq, self.end_seq)
        return Compaction(
            id=self.id,
            thread_id=self.thread,
            epoch=self.epoch,
            start_seq=self.start_seq,
            end_seq=self.end_seq,
            summary_text=self.text,
            token_count=self.tokens,
            level=self.level,
            origin=self.origin,
            at=self.at,
            superseded_by=self.superseded_by,
        )


class _Snapshot(Shape):
    thread: Id
    id: Id
    epoch: Count
    from_seq: Count
    to_seq: Count
    level: LevelNumber
    text: str
    tokens: Count
    origin: OriginName
    at: Time
    said_from: Time
    said_to: Time
    covered_by: Id | None

    def record(self) -> Snapshot:
        _require_range(self.from_seq, self.to_seq)
        return Snapshot(
            id=self.id,
            thread_id=self.thread,
            epoch=self.epoch,
            level=self.level,
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            text=self.text,
            token_count=self.tokens,
            origin=self.origin,
            at=self.at,
            said_from=self.said_from,
            said_to=self.said_to,
            covered_by=self.covered_by,
        )


class _Outcome(Shape):
    thread: Id
    epoch: Count
    from_seq: Count
    to_seq: Count
    type: Literal["snapshot", "ok", "fallback"]
    snapshot: Id | None
    attempts: Count
    at: Time

    def record(self) -> EvictionOutcome:
        _require_range(self.from_seq, self.to_seq)
        return EvictionOutcome(
            thread_id=self.thread,
            epoch=self.epoch,
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            kind=self.type,
            snapshot_id=self.snapshot,
            attempts=self.attempts,
            at=self.at,
        )


class _Goal(Shape):
    thread: Id
    epoch: Count
    id: Positive
    parent: Positive | None
    description: str
    status: Literal["active", "completed"]
    created_at: Time
    completed_at: Time | None

    def record(self) -> Goal:
        return Goal(
            thread_id=self.thread,
            epoch=self.epoch,
            id=self.id,
            parent_id=self.parent,
            description=self.description,
            status=self.status,
            created_at=self.created_at,
            completed_at=self.completed_at,
        )


class _Pin(Shape):
    thread: Id
    epoch: Count
    seq: Count
    message: Id
    excerpt: str
    goals: list[Positive]
    tokens: Count

    def record(self) -> Pin:
        return Pin(
            thread_id=self.thread,
            epoch=self.epoch,
            seq=self.seq,
            message_id=self.message,
            excerpt=self.excerpt,
            goal_ids=tuple(self.goals),
            token_count=self.tokens,
        )


TALK_SHAPES: dict[str, type[Shape]] = {
    "thread": _Thread,
    "message": _Message,
    "message_vector": _MessageVector,
    "compaction": _Compaction,
    "snapshot": _Snapshot,
    "outcome": _Outcome,
    "goal": _Goal,
    "pin": _Pin,
}
"""By the kind of record."""

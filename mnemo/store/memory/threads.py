"""What the memory store holds of one thread, found by place, id, call, role and time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from mnemo.graph.nodes import Vector
from mnemo.transcript.derived import (
    Compaction,
    Derived,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Surfaced,
    Thread,
)
from mnemo.transcript.message import Role, StoredMessage

__all__ = ["Debts", "MessageState", "Place", "Shelf", "ThreadState", "Timeline", "key_of"]

Place: TypeAlias = tuple[int, int, int]
Key: TypeAlias = str | tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class MessageState:
    """
    A message as it is kept.

    Attributes:
        no: Ascending over all messages of the store, in order of arrival.
        text: What keyword search knows it by; blank: not at all.
    """

    no: int
    message: StoredMessage
    text: str


def key_of(value: Derived) -> Key:
    """What tells it from others of its kind and thread."""
    match value:
        case Compaction() | Snapshot():
            return value.id
        case EvictionOutcome():
            return value.epoch, value.from_seq
        case Goal():
            return value.id, 0
        case Pin() | Surfaced():
            return value.epoch, value.seq


def place_of(value: Derived) -> Place:
    """What it is ordered by among its kind: its epoch, and then its range, seq or id."""
    match value:
        case Compaction():
            return value.epoch, value.start_seq, value.end_seq
        case Snapshot() | EvictionOutcome():
            return value.epoch, value.from_seq, value.to_seq
        case Goal():
            return value.epoch, value.id, 0
        case Pin() | Surfaced():
            return value.epoch, value.seq, 0


@dataclass(slots=True, eq=False)
class Shelf:
    """What of one kind was derived from one thread; *live* is its live part."""

    values: dict[Key, Derived] = field(default_factory=dict)
    live: dict[Key, Derived] = field(default_factory=dict)
    order: list[tuple[Place, Key]] = field(default_factory=list)

    def put(self, value: Derived) -> Derived | None:
        """Insert or replace; what was replaced."""
        before = self.drop(value)
        key = key_of(value)
        self.values[key] = value
        if value.is_live:
            self.live[key] = value
        entry = (place_of(value), key)
        self.order.insert(bisect_left(self.order, entry), entry)
        return before

    def drop(self, value: Derived) -> Derived | None:
        """Delete; what was there."""
        key = key_of(value)
        before = self.values.pop(key, None)
        if before is not None:
            self.live.pop(key, None)
            del self.order[bisect_left(self.order, (place_of(before), key))]
        return before

    def chosen(self, *, epoch: int | None, live: bool, newest: int | None) -> list[Derived]:
        """Ascending; the last *newest* of those that the rest allows."""
        order = self.order
        if live and len(self.live) < len(self.values):
            order = sorted((place_of(value), key) for key, value in self.live.items())
        found: list[Derived] = []
        for _, key in reversed(order):
            if newest is not None and len(found) >= newest:
                break
            value = self.values[key]
            if epoch in (None, value.epoch):
                found.append(value)
        found.reverse()
        return found


@dataclass(slots=True, eq=False)
class Timeline:
    """
    The order of a thread's messages: their seqs, and what is counted along them.

    Attributes:
        starts: Tokens before each message, from an arbitrary zero; *end* after the last.
        in_time: Whether no message was recorded before one that precedes it.
    """

    seqs: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)
    roles: dict[Role, list[int]] = field(default_factory=dict)
    end: int = 0
    in_time: bool = True

    def append(self, message: StoredMessage) -> None:
        """Go on with a message whose seq is past all others."""
        if self.times and message.recorded_at < self.times[-1]:
            self.in_time = False
        self.seqs.append(message.seq)
        self.starts.append(self.end)
        self.times.append(message.recorded_at)
        self.roles.setdefault(message.role, []).append(message.seq)
        self.end += message.tokens

    def cut(self, seqs: Sequence[int]) -> bool:
        """Take *seqs* (ascending) away if they are its head or its tail; whether they were."""
        low = bisect_left(self.seqs, seqs[0])
        high = low + len(seqs)
        if self.seqs[low:high] != seqs or (low and high < len(self.seqs)):
            return False
        if high == len(self.seqs):
            self.end = self.starts[low]
        for column in (self.seqs, self.starts, self.times):
            del column[low:high]
        for own in self.roles.values():
            del own[bisect_left(own, seqs[0]) : bisect_right(own, seqs[-1])]
        return True

    def range(
        self,
        from_seq: int,
        to_seq: int | None = None,
        role: Role | None = None,
        newest: int | None = None,
    ) -> Sequence[int]:
        """The seqs of the range, both ends inclusive, ascending; only so many, the last ones."""
        seqs = self.seqs if role is None else self.roles.get(role, [])
        low = bisect_left(seqs, from_seq)
        high = len(seqs) if to_seq is None else bisect_right(seqs, to_seq)
        return seqs[low if newest is None else max(low, high - newest) : high]

    def span(self, from_seq: int) -> tuple[int, int]:
        """How many messages there are from a seq on, and their tokens together."""
        low = bisect_left(self.seqs, from_seq)
        count = len(self.seqs) - low
        return count, self.end - self.starts[low] if count else 0

    def alive_from(self, since: datetime | None) -> int:
        """A seq before which everything was recorded before *since*."""
        if since is None or not self.in_time:
            return 0
        place = bisect_left(self.times, since)
        return self.seqs[place] if place < len(self.seqs) else self.seqs[-1] + 1 if self.seqs else 0


@dataclass(slots=True, eq=False)
class ThreadState:
    """
    One thread; what is reached by two ways is changed by its methods alone.

    Attributes:
        line: Where its messages stand.
        erased: Digests of the ids of erased messages.
        vectors: By seq.
    """

    row: Thread
    messages: dict[int, MessageState] = field(default_factory=dict)
    line: Timeline = field(default_factory=Timeline)
    seq_of: dict[str, int] = field(default_factory=dict)
    of_call: dict[str, list[int]] = field(default_factory=dict)
    erased: set[bytes] = field(default_factory=set)
    vectors: dict[int, Vector] = field(default_factory=dict)
    shelves: dict[type, Shelf] = field(default_factory=dict)

    def shelf(self, kind: type) -> Shelf:
        """Where *kind* is kept."""
        return self.shelves.setdefault(kind, Shelf())

    def insert(self, states: Iterable[MessageState]) -> None:
        """Add messages, wherever their seqs lie."""
        last = self.line.seqs[-1] if self.line.seqs else -1
        in_line = True
        for state in states:
            message = state.message
            self.messages[message.seq] = state
            self.seq_of[message.stored_id] = message.seq
            for call in _calls_of(message):
                self.of_call.setdefault(call, []).append(message.seq)
            in_line = in_line and message.seq > last
            if in_line:
                self.line.append(message)
                last = message.seq
        if not in_line:
            self._line_up()

    def remove(self, seqs: Sequence[int]) -> list[MessageState]:
        """Take messages away (*seqs* ascending, all there); give them."""
        gone = [self.messages.pop(seq) for seq in seqs]
        for state in gone:
            message = state.message
            del self.seq_of[message.stored_id]
            for call in _calls_of(message):
                self.of_call[call].remove(message.seq)
                if not self.of_call[call]:
                    del self.of_call[call]
        if gone and not self.line.cut(seqs):
            self._line_up()
        return gone

    def _line_up(self) -> None:
        self.line = Timeline()
        for seq in sorted(self.messages):
            self.line.append(self.messages[seq].message)


def _calls_of(message: StoredMessage) -> list[str]:
    answered = [] if message.tool_call_id is None else [message.tool_call_id]
    return [call.id for call in message.tool_calls] + answered


@dataclass(slots=True, eq=False)
class Debts:
    """Messages of a repository that wait for their vector: thread and seq by their number."""

    all: dict[int, tuple[str, int]] = field(default_factory=dict)
    of: dict[str, dict[int, int]] = field(default_factory=dict)
    _in_order: bool = True

    def owe(self, no: int, thread_id: str, seq: int) -> None:
        """From now on it waits."""
        if self.all and no < next(reversed(self.all)):
            self._in_order = False
        self.all[no] = (thread_id, seq)
        self.of.setdefault(thread_id, {})[no] = seq

    def settle(self, no: int) -> bool:
        """It waits no more; whether it did."""
        entry = self.all.pop(no, None)
        if entry is not None:
            del self.of[entry[0]][no]
        return entry is not None

    def clear(self) -> None:
        """Nothing waits."""
        self.all, self.of, self._in_order = {}, {}, True

    def oldest(self, thread_id: str | None) -> Iterable[tuple[str, int]]:
        """Thread and seq, in order of arrival."""
        if not self._in_order:
            self.all = dict(sorted(self.all.items()))
            self.of = {thread: dict(sorted(own.items())) for thread, own in self.of.items()}
            self._in_order = True
        if thread_id is None:
            return self.all.values()
        return ((thread_id, seq) for seq in self.of.get(thread_id, {}).values())

"""
The window: every live message from the boundary on; room is made before it is read.

What would not fit is dealt with in the transaction that reads, so a message is summarised
before it is absent, never after. One aggregate decides; no list of what is visible is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from mnemo.config import Config
from mnemo.context.eviction import Committed, evict_by_fallback
from mnemo.context.zones import Budget, Zone, eviction_zone, inner_cuts, reach, torn_zone
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.text import count_tokens
from mnemo.values.counting import Count
from mnemo.values.derived import Thread
from mnemo.values.messages import Message, StoredMessage, answered_ids
from mnemo.values.units import Unit, completed, leads, units_of

HEAD = 2_000
"""Messages read at once from the beginning of a window that is far too long (S)."""
MAX_ZONES = 20
"""Zones that leave in one transaction, at most: it holds up all other writers (S)."""


@dataclass(frozen=True, slots=True)
class Frame:
    """
    The settings by which a window is read.

    Attributes:
        deadline_s: Seconds until an unanswered call counts as abandoned.
        count: Counts what is made for the view.
    """

    budget: Budget
    deadline_s: float
    count: Count = count_tokens


@dataclass(frozen=True)
class ThreadWindow:
    """
    A window, or what of it can be shown, as of one moment.

    Attributes:
        since: Messages recorded before it are expired.
        now: That moment.
        units: Ascending.
        messages: Those of *units*, completed: results behind their calls, none missing.
        missing: Seqs, both inclusive, that belong to the window and are not in it.
    """

    thread: Thread
    since: datetime | None
    now: datetime
    units: list[Unit]
    messages: list[Message]
    missing: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        tx: TranscriptReader,
        thread: Thread,
        since: datetime | None,
        units: list[Unit],
        frame: Frame,
        *,
        missing: tuple[int, int] | None = None,
    ) -> ThreadWindow:
        """Make the window of *units*, which end with the thread's newest one."""
        newest_open = bool(units) and units[-1].is_open(tx.now, frame.deadline_s)
        messages = completed(units, newest_open=newest_open, count=frame.count)
        return cls(thread, since, tx.now, units, messages, missing)

    @cached_property
    def tokens(self) -> int:
        """Of what is shown, with what was made for the view."""
        return sum(message.token_count or 0 for message in self.messages)

    @cached_property
    def span(self) -> int:
        """Of its messages as they are stored: what decides whether room is made."""
        return sum(unit.tokens for unit in self.units)


def whole_window(
    tx: TranscriptReader, thread: Thread, since: datetime | None, frame: Frame
) -> ThreadWindow:
    """Read the whole window, however long it is."""
    messages = tx.messages(thread.id, from_seq=thread.boundary, since=since)
    return ThreadWindow.of(tx, thread, since, units_of(messages), frame)


def window_if_fits(
    tx: TranscriptReader, thread: Thread, since: datetime | None, frame: Frame
) -> ThreadWindow | None:
    """Read the window if it fits or nothing can leave it; ``None``: evict first."""
    _, span = tx.span(thread.id, from_seq=thread.boundary, since=since)
    if span <= frame.budget.window:
        window = whole_window(tx, thread, since, frame)
        if window.tokens <= frame.budget.window:
            return window
    if _Head.read(tx, thread, since, frame).zone(tx.now) is not None:
        return None
    return whole_window(tx, thread, since, frame)


def make_room(
    tx: TranscriptWriter, thread: Thread, since: datetime | None, frame: Frame, config: Config
) -> tuple[list[Committed], bool]:
    """
    Evict from the window until it fits, or nothing can leave it any more.

    An unanswered call does not hold the window open here, unless it is in the newest unit.

    Returns:
        What left, and whether that is all: in one transaction so many zones leave at most.
    """
    head = _Head.read(tx, thread, since, frame)
    left: list[Committed] = []
    while not head.fits and (zone := head.zone(tx.now)) is not None:
        if len(left) == MAX_ZONES:
            return left, False
        left.append(evict_by_fallback(tx, tx.thread(thread.id), zone, config))
        if head.is_torn_by(zone):
            head = _Head.read(tx, tx.thread(thread.id), since, frame)
        else:
            head.drop(zone)
    return left, head.is_whole


def newest_window(
    tx: TranscriptReader, thread: Thread, since: datetime | None, frame: Frame
) -> ThreadWindow:
    """Read the newest units that fit of a window that is too long; ``missing`` names the rest."""
    units = units_of(_newest_messages(tx, thread, since, frame.budget.window))
    if not units:
        return ThreadWindow.of(tx, thread, since, units, frame)
    ascending = sorted((m for unit in units for m in unit.messages), key=lambda m: m.seq)
    clean = (units[0].first_seq, *inner_cuts(units, now=tx.now, deadline_s=0))
    for cut in (*clean, *_torn_cuts(ascending, clean[-1], frame.budget.window)):
        missing = (thread.boundary, cut - 1) if cut > thread.boundary else None
        rest = units_of(message for message in ascending if message.seq >= cut)
        window = ThreadWindow.of(tx, thread, since, rest, frame, missing=missing)
        if window.tokens <= frame.budget.window or len(rest) == 1:
            break
    return window


def _torn_cuts(ascending: Sequence[StoredMessage], behind: int, tokens: int) -> Iterator[int]:
    """The seqs behind the last clean cut from which on messages fit, ascending."""
    left = sum(message.tokens for message in ascending)
    for message in ascending:
        if message.seq > behind and (left <= tokens or message is ascending[-1]):
            yield message.seq
        left -= message.tokens


def _newest_messages(
    tx: TranscriptReader, thread: Thread, since: datetime | None, tokens: int
) -> list[StoredMessage]:
    """The newest messages, more than *tokens* of them if there are so many."""
    wanted = HEAD
    while True:
        found = tx.messages(thread.id, from_seq=thread.boundary, newest=wanted, since=since)
        if len(found) < wanted or sum(message.tokens for message in found) > tokens:
            return found
        wanted *= 2


class _Head:
    """
    The beginning of a window: enough of it to say what leaves first.

    Args:
        span: Of the whole window, as it is stored.

    Attributes:
        is_whole: Whether it is all of the window.
    """

    def __init__(
        self,
        thread: Thread,
        frame: Frame,
        units: Sequence[Unit],
        *,
        span: int,
        now: datetime,
        is_whole: bool,
    ) -> None:
        self.is_whole = is_whole
        self._from_seq = thread.boundary
        self._frame = frame
        self._units = list(units)
        self._span = span
        self._shown = [_shown_tokens(unit, frame) for unit in units[:-1]] if is_whole else []
        if is_whole and units:
            self._shown.append(_shown_tokens(units[-1], frame, newest_at=now))

    @classmethod
    def read(
        cls, tx: TranscriptReader, thread: Thread, since: datetime | None, frame: Frame
    ) -> _Head:
        """Read as much as it takes to know the first zone, if there is one."""
        _, span = tx.span(thread.id, from_seq=thread.boundary, since=since)
        wanted = HEAD
        while span > frame.budget.window and thread.boundary + wanted < thread.next_seq:
            units = _first_units(tx, thread, since, thread.boundary + wanted - 1)
            head = cls(thread, frame, units, span=span, now=tx.now, is_whole=False)
            if head.zone(tx.now) is not None:
                return head
            wanted *= 2
        messages = tx.messages(thread.id, from_seq=thread.boundary, since=since)
        return cls(thread, frame, units_of(messages), span=span, now=tx.now, is_whole=True)

    @property
    def fits(self) -> bool:
        """Whether the window fits, as stored and, where that is known, as shown."""
        return max(self._span, sum(self._shown)) <= self._frame.budget.window

    def zone(self, now: datetime) -> Zone | None:
        """Return what leaves first; ``None``: nothing can, or more must be read."""
        if not self.is_whole and not self._reaches_far():
            return None
        zone = eviction_zone(
            self._units, self._frame.budget, from_seq=self._from_seq, now=now, deadline_s=0
        )
        if zone is None and self.is_whole:
            return torn_zone(self._units, from_seq=self._from_seq)
        return zone

    def is_torn_by(self, zone: Zone) -> bool:
        """Whether *zone*, its first, holds a part of a group only."""
        return any(unit.first_seq <= zone.to_seq < unit.last_seq for unit in self._units)

    def drop(self, zone: Zone) -> None:
        """Drop *zone*, the first one, which tears no group."""
        gone = sum(unit.first_seq <= zone.to_seq for unit in self._units)
        del self._units[:gone], self._shown[:gone]
        self._span -= zone.tokens
        self._from_seq = zone.to_seq + 1

    def _reaches_far(self) -> bool:
        far = reach(self._frame.budget)
        for unit in self._units[:-1]:
            far -= unit.tokens
            if far < 0:
                return True
        return False


def _first_units(
    tx: TranscriptReader, thread: Thread, since: datetime | None, to_seq: int
) -> list[Unit]:
    """The units that begin up to *to_seq*, each whole, wherever its last message lies."""
    head = tx.messages(thread.id, from_seq=thread.boundary, to_seq=to_seq, since=since)
    while head and leads(head[-1]):
        following = head[-1].seq + 1
        found = tx.messages(thread.id, from_seq=following, to_seq=following, since=since)
        if not found:
            break
        head += found
    calls = {call.id for unit in units_of(head) for call in unit.unanswered}
    results = {id for message in head for id in answered_ids(message)}
    made = {call.id for message in head for call in message.tool_calls}
    parted = tx.of_calls(thread.id, sorted(calls | results - made))
    last = max(to_seq, head[-1].seq if head else to_seq)
    tail = [m for m in parted if m.seq > last and (since is None or m.recorded_at >= since)]
    return [unit for unit in units_of([*head, *tail]) if unit.first_seq <= to_seq]


def _shown_tokens(unit: Unit, frame: Frame, *, newest_at: datetime | None = None) -> int:
    """Count the tokens of *unit* as shown; *newest_at*: it is the newest one, at that time."""
    if not unit.is_group and unit.messages[-1].role != "tool":
        return unit.tokens
    is_open = newest_at is not None and unit.is_open(newest_at, frame.deadline_s)
    shown = completed([unit], newest_open=is_open, count=frame.count)
    return sum(message.token_count or 0 for message in shown)

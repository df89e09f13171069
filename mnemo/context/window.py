"""
The window: every live message from the boundary on; room is made before it is read.

What would not fit is dealt with in the transaction that reads, so a message is summarised before it
is absent, never after. One aggregate decides; no list of what is visible is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from mnemo.config import Config
from mnemo.context.eviction import Committed, evict_by_fallback
from mnemo.context.zones import Budget, Zone, eviction_zone, inner_cuts, reach, torn_zone
from mnemo.conversation.scope import ThreadScope
from mnemo.log.record_rows import LAST_SEQ
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.text import count_tokens
from mnemo.values.counting import Count
from mnemo.values.derived import Thread
from mnemo.values.messages import Message, StoredMessage
from mnemo.values.units import Unit, completed, units_of

HEAD = 2_000
"""Messages read at once from the beginning of a window that is far too long (S)."""
MAX_ZONES = 20
"""Zones that leave in one transaction, at most: it holds up all other writers (S)."""


@dataclass(frozen=True, slots=True)
class Frame:
    """By what a window is read; *deadline_s*: until an unanswered call counts as abandoned."""

    budget: Budget
    deadline_s: float
    count: Count = count_tokens


@dataclass(frozen=True)
class ThreadWindow:
    """A window as of *now*; *units* ascending; *missing*: seqs, inclusive, that it cannot show."""

    scope: ThreadScope
    now: datetime
    units: list[Unit]
    messages: list[Message]
    missing: tuple[int, int] | None = None

    @cached_property
    def tokens(self) -> int:
        """Of what is shown, with what was made for the view."""
        return sum(message.token_count or 0 for message in self.messages)

    @cached_property
    def span(self) -> int:
        """Of its messages as they are stored: what decides whether room is made."""
        return sum(unit.tokens for unit in self.units)


@dataclass(frozen=True, slots=True)
class WindowReader:
    """Reads the window of a thread in one transaction."""

    tx: TranscriptReader
    scope: ThreadScope
    frame: Frame

    @property
    def thread(self) -> Thread:
        """The thread's row."""
        return self.scope.thread

    def anew(self) -> WindowReader:
        """The same, of the row as this transaction has it by now."""
        return replace(self, scope=replace(self.scope, thread=self.tx.thread(self.thread.id)))

    def whole(self) -> ThreadWindow:
        """Read the whole window, however long it is."""
        return self._window(units_of(self._messages()))

    def if_fits(self) -> ThreadWindow | None:
        """Read the window if it fits or nothing can leave it; ``None``: evict first."""
        if self._span() <= self.frame.budget.window:
            window = self.whole()
            if window.tokens <= self.frame.budget.window:
                return window
        return self.whole() if self.head().zone(self.tx.now) is None else None

    def newest(self) -> ThreadWindow:
        """Read the newest units that fit of one that is too long; ``missing`` names the rest."""
        tokens, wanted = self.frame.budget.window, HEAD
        while True:
            found = self._messages(newest=wanted)
            if len(found) < wanted or sum(message.tokens for message in found) > tokens:
                break
            wanted *= 2
        units = units_of(found)
        if not units:
            return self._window(units)
        ascending = sorted((m for unit in units for m in unit.messages), key=lambda m: m.seq)
        clean = (units[0].first_seq, *inner_cuts(units, now=self.tx.now, deadline_s=0))
        for cut in (*clean, *_torn_cuts(ascending, clean[-1], tokens)):
            missing = (self.thread.boundary, cut - 1) if cut > self.thread.boundary else None
            rest = units_of(message for message in ascending if message.seq >= cut)
            window = self._window(rest, missing)
            if window.tokens <= tokens or len(rest) == 1:
                break
        return window

    def head(self) -> _Head:
        """Read as much as it takes to know the first zone, if there is one."""
        span, boundary, wanted = self._span(), self.thread.boundary, HEAD
        while span > self.frame.budget.window and boundary + wanted < self.thread.next_seq:
            units = self._first_units(boundary + wanted - 1)
            head = _Head(self, units, span=span, is_whole=False)
            if head.zone(self.tx.now) is not None:
                return head
            wanted *= 2
        return _Head(self, units_of(self._messages()), span=span, is_whole=True)

    def _window(self, units: list[Unit], missing: tuple[int, int] | None = None) -> ThreadWindow:
        """Make the window of *units*, which end with the thread's newest one."""
        now, count = self.tx.now, self.frame.count
        newest_open = bool(units) and units[-1].is_open(now, self.frame.deadline_s)
        messages = completed(units, newest_open=newest_open, count=count)
        return ThreadWindow(self.scope, now, units, messages, missing)

    def _messages(self, **which: Any) -> list[StoredMessage]:
        """Its messages, or *which* of them; see ``TranscriptReader.messages``."""
        which = {"from_seq": self.thread.boundary} | which
        return self.scope.messages(self.tx, **which)

    def _span(self) -> int:
        from_seq = self.thread.boundary
        return self.tx.span(self.thread.id, from_seq=from_seq, since=self.scope.since)[1]

    def _first_units(self, to_seq: int) -> list[Unit]:
        """The units that begin up to *to_seq*, each whole, wherever its last message lies."""
        head, runs = self._messages(to_seq=to_seq), ((self.thread.boundary, LAST_SEQ),)
        return self.scope.units(self.tx, head, runs)


def make_room(
    tx: TranscriptWriter, reader: WindowReader, config: Config
) -> tuple[list[Committed], bool]:
    """
    Evict until the window fits; give what left, and whether that is all it could.

    Unanswered calls do not hold the window open here, unless in the newest unit. The number of
    zones per transaction is bounded.
    """
    head, thread_id = reader.head(), reader.thread.id
    left: list[Committed] = []
    while not head.fits and (zone := head.zone(tx.now)) is not None:
        if len(left) == MAX_ZONES:
            return left, False
        left.append(evict_by_fallback(tx, tx.thread(thread_id), zone, config))
        if head.is_torn_by(zone):
            head = reader.anew().head()
        else:
            head.drop(zone)
    return left, head.is_whole


def _torn_cuts(ascending: Sequence[StoredMessage], behind: int, tokens: int) -> Iterator[int]:
    """The seqs behind the last clean cut from which on messages fit, ascending."""
    left = sum(message.tokens for message in ascending)
    for message in ascending:
        if message.seq > behind and (left <= tokens or message is ascending[-1]):
            yield message.seq
        left -= message.tokens


class _Head:
    """The first units of a window of *span* stored tokens; *is_whole*: they are all of it."""

    def __init__(
        self, reader: WindowReader, units: Sequence[Unit], *, span: int, is_whole: bool
    ) -> None:
        frame, now = reader.frame, reader.tx.now
        self.is_whole = is_whole
        self._from_seq = reader.thread.boundary
        self._budget = frame.budget
        self._units = list(units)
        self._span = span
        self._shown = [_shown_tokens(unit, frame) for unit in units[:-1]] if is_whole else []
        if is_whole and units:
            self._shown.append(_shown_tokens(units[-1], frame, newest_at=now))

    @property
    def fits(self) -> bool:
        """Whether the window fits, as stored and, where that is known, as shown."""
        return max(self._span, sum(self._shown)) <= self._budget.window

    def zone(self, now: datetime) -> Zone | None:
        """Return what leaves first; ``None``: nothing can, or more must be read."""
        known = sum(unit.tokens for unit in self._units[:-1])
        if not self.is_whole and known <= reach(self._budget):
            return None
        zone = eviction_zone(
            self._units, self._budget, from_seq=self._from_seq, now=now, deadline_s=0
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


def _shown_tokens(unit: Unit, frame: Frame, *, newest_at: datetime | None = None) -> int:
    """Count the tokens of *unit* as shown; *newest_at*: it is the newest one, at that time."""
    if not unit.is_group and unit.messages[-1].role != "tool":
        return unit.tokens
    is_open = newest_at is not None and unit.is_open(newest_at, frame.deadline_s)
    shown = completed([unit], newest_open=is_open, count=frame.count)
    return sum(message.token_count or 0 for message in shown)

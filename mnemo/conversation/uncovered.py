"""Live messages that no compaction record covers, read page by page from the end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.conversation.scope import ThreadScope
from mnemo.log.transcript import TranscriptReader
from mnemo.values.derived import Compaction
from mnemo.values.messages import StoredMessage, answered_ids
from mnemo.values.units import Unit, leads, stands_last, units_of

PAGE = 64
"""Messages that are read at once, at least."""


class Uncovered:
    """
    The live messages of a thread's epoch that no record covers.

    Read page by page from the newest on, only as far as somebody asks: what a load costs
    does not grow with the history. Valid within one transaction.

    Args:
        records: The live ones, ascending; no two share a seq.
    """

    def __init__(
        self, tx: TranscriptReader, scope: ThreadScope, records: Sequence[Compaction]
    ) -> None:
        self._tx = tx
        self._scope = scope
        self._records = records
        self._starts = [record.start_seq for record in records]
        self._runs = _runs_from_the_end(records, scope.thread.epoch_start)
        self._run = next(self._runs, None)
        self._floor = scope.thread.next_seq
        self._known: dict[int, StoredMessage] = {}
        self._asked: set[str] = set()

    def covers(self, seq: int) -> bool:
        """Whether a record stands for what is at *seq*."""
        place = bisect_right(self._starts, seq)
        return place > 0 and seq <= self._records[place - 1].end_seq

    def newest(self, count: int, *, pinned: bool = False) -> list[Unit]:
        """
        The last *count* units, whole and ascending; fewer: all there are.

        Args:
            pinned: Whether system messages count as well.
        """
        size, went_on = max(PAGE, 2 * count), False
        while True:
            whole = self._units()
            units = [unit for unit in whole if pinned or not unit.is_pinned][-count:]
            doubts = self._doubts(units, [unit for unit in whole if unit.is_group])
            if self._run is None or (len(units) == count and not doubts):
                return units
            if len(units) < count:
                self._read(size)
                size *= 2
            elif not went_on:
                # Mostly a call lies just before the page that its result begins; asking for
                # its id at once would find every use of an id that is used again and again.
                self._read(PAGE)
                went_on = True
            else:
                self._ask(doubts)

    def newest_open_group(self, deadline_s: float) -> Unit | None:
        """The newest unit of the thread, if it waits for a result and nothing is behind it."""
        newest = next(iter(self.newest(1, pinned=True)), None)
        if newest is None or not newest.is_open(self._tx.now, deadline_s):
            return None
        is_covered_later = bool(self._starts) and self._starts[-1] > newest.first_seq
        is_last = stands_last(newest, units_of(self._known.values()))
        return newest if is_last and not is_covered_later else None

    def holding(self, seq: int) -> Unit | None:
        """The unit of the message at *seq*; ``None``: it is covered, expired or gone."""
        found = self._at(seq)
        if found is None:
            return None
        seen = {seq: found}
        for _ in range(2):  # a result leads to its call, that to the results of all its calls
            if ids := _call_ids(seen.values()):
                seen |= self._of_calls(ids)
        for message in [*seen.values()]:
            seen |= self._leading(message)
        return next(u for u in units_of(seen.values()) if any(m.seq == seq for m in u.messages))

    def _leading(self, message: StoredMessage) -> dict[int, StoredMessage]:
        """The items before *message* that lead it, and what it leads itself, by seq."""
        found: dict[int, StoredMessage] = {}
        before = self._at(message.seq - 1)
        while before is not None and leads(before):
            found[before.seq] = before
            before = self._at(before.seq - 1)
        behind: StoredMessage | None = message
        while behind is not None and leads(behind):
            behind = self._at(behind.seq + 1)
            found |= {} if behind is None else {behind.seq: behind}
        return found

    def system(self) -> list[Unit]:
        """The system messages, ascending."""
        found = self._messages(self._scope.thread.epoch_start, None, role="system")
        return [Unit((message,)) for message in found if not self.covers(message.seq)]

    def vectors(self) -> tuple[list[int], NDArray[np.float32]]:
        """Seqs of the epoch's live messages that have a vector, covered or not; and those."""
        scope = self._scope
        return self._tx.vectors(
            scope.thread.id, from_seq=scope.thread.epoch_start, since=scope.since
        )

    def _units(self) -> list[Unit]:
        """Units that lie wholly in what was read; what is only known in part lies before."""
        units = units_of(self._known.values())
        return [unit for unit in units if unit.first_seq >= self._floor]

    def _doubts(self, units: Sequence[Unit], groups: Sequence[Unit]) -> list[str]:
        """Ids of calls whose other half may lie in what was not read, if that would matter."""
        doubts: set[str] = set()
        for unit in (*units, *groups):
            # A result that none of the known calls comes before: an older call may.
            early = (m for m in unit.messages if m.role == "tool" and m.seq <= unit.seq)
            doubts.update(id for message in early for id in answered_ids(message))
        callers = self._first_callers() if any(unit.unanswered for unit in units) else {}
        for unit in units:
            # One that was called before as well has its early results there, not here.
            doubts.update(call.id for call in unit.unanswered if callers[call.id] == unit.seq)
        return sorted(doubts - self._asked)

    def _first_callers(self) -> dict[str, int]:
        first: dict[str, int] = {}
        for seq in sorted(self._known):
            for call in self._known[seq].tool_calls:
                first.setdefault(call.id, seq)
        return first

    def _ask(self, ids: Sequence[str]) -> None:
        self._asked.update(ids)
        self._known |= self._of_calls(ids)

    def _read(self, size: int) -> None:
        if self._run is None:
            return
        start, end = self._run
        page = self._messages(start, end, newest=size)
        self._known.update((message.seq, message) for message in page)
        self._floor = page[0].seq if len(page) == size else start
        if self._floor > start:
            found = self._leading(self._known[self._floor])
            self._known |= found
            self._floor = min(self._floor, *found, self._floor)
        left = self._floor > start
        self._run = (start, self._floor - 1) if left else next(self._runs, None)

    def _at(self, seq: int) -> StoredMessage | None:
        if self.covers(seq) or seq < self._scope.thread.epoch_start:
            return None
        if seq in self._known:
            return self._known[seq]
        return next(iter(self._messages(seq, seq)), None)

    def _of_calls(self, ids: Iterable[str]) -> dict[int, StoredMessage]:
        found = self._tx.of_calls(self._scope.thread.id, sorted(ids))
        return {m.seq: m for m in found if self._scope.shows(m) and not self.covers(m.seq)}

    def _messages(self, start: int, end: int | None, **arguments: Any) -> list[StoredMessage]:
        return self._tx.messages(
            self._scope.thread.id,
            from_seq=start,
            to_seq=end,
            since=self._scope.since,
            **arguments,
        )


def _runs_from_the_end(
    records: Sequence[Compaction], start: int
) -> Iterator[tuple[int, int | None]]:
    end: int | None = None
    for record in reversed(records):
        if end is None or record.end_seq < end:
            yield record.end_seq + 1, end
        end = record.start_seq - 1
    if end is None or start <= end:
        yield start, end


def _call_ids(messages: Collection[StoredMessage]) -> set[str]:
    ids = {call.id for message in messages for call in message.tool_calls}
    return ids | {id for message in messages for id in answered_ids(message)}

"""Loading: choose the messages of a thread that an agent reads; cut long tool results."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.config import ConversationConfig
from mnemo.conversation.compaction import reconstructed
from mnemo.conversation.scope import ThreadScope, ThreadSettings, live_records
from mnemo.errors import UsageError
from mnemo.log.transcript import TranscriptReader
from mnemo.values.counting import Count
from mnemo.values.derived import Compaction
from mnemo.values.messages import Message, StoredMessage, answered_ids
from mnemo.values.strategies import Composite, Nearest, Recent, Retrieval, Summary, ToolOutputPruner
from mnemo.values.units import Unit, leads, placed, stands_last, units_of, viewed

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

    def vectors(self, newest: int | None) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The last *newest* vectors of the epoch's live messages, covered or not, by seq."""
        scope = self._scope
        start = scope.thread.epoch_start
        return self._tx.vectors(scope.thread.id, from_seq=start, since=scope.since, newest=newest)

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
        return self._scope.messages(self._tx, from_seq=start, to_seq=end, **arguments)


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


DUST = 1e-9
"""Of floating point, that must not take a token from a share."""


def load(
    tx: TranscriptReader,
    scope: ThreadScope,
    settings: ThreadSettings,
    config: ConversationConfig,
    near: Nearness,
    budget_tokens: int | None,
) -> list[Message]:
    """
    The present epoch through its records, the pinned messages and the strategy's choice.

    Reads as much of the thread's end as the choice needs, the records, and what is pinned.

    Args:
        near: How near messages are to the query.

    Raises:
        UsageError: What is required alone exceeds the budget; both numbers are named.
    """
    count, max_chars = config.count, limit_of(settings.compressions)
    records = live_records(tx, scope)
    live = Uncovered(tx, scope, records)

    def seen(unit: Unit) -> list[tuple[int, Message]]:
        newest = live.newest_open_group(config.tool_deadline_s) if unit.unanswered else None
        left_open = newest is not None and newest.first_seq == unit.first_seq
        return placed(pruned(unit, max_chars, count), left_open=left_open, count=count)

    def cost(unit: Unit) -> int:
        return sum(message.token_count or 0 for _, message in seen(unit))

    choice = choose(settings.retrieval, live, near)
    pinned = live.system()
    units = choice.every_unit()
    if budget_tokens is not None:
        summaries = reconstructed([], records, count)
        needed = sum(m.token_count or 0 for m in summaries) + sum(map(cost, pinned))
        _require_room(needed + (cost(units[-1]) if units else 0), budget_tokens)
        units = fitting(choice, budget_tokens - needed, cost)
    shown = [place for unit in (*pinned, *units) for place in seen(unit)]
    shown.sort(key=lambda place: place[0])
    return reconstructed(shown, records, count)


def _require_room(needed: int, budget_tokens: int) -> None:
    if needed > budget_tokens:
        raise UsageError(
            f"the summaries, the system messages and the newest unit have {needed} tokens, "
            f"the budget is {budget_tokens}: raise it, or compact more"
        )


def limit_of(compressions: Iterable[Summary | ToolOutputPruner]) -> int | None:
    """The characters of a tool result that all pruners let through; ``None``: any number."""
    limits = [one.max_chars for one in compressions if isinstance(one, ToolOutputPruner)]
    return min(limits, default=None)


def pruned(unit: Unit, max_chars: int | None, count: Count) -> Unit:
    """Cut and mark every tool result in *unit* that is longer than *max_chars*."""
    if max_chars is None:
        return unit
    return Unit(tuple(_pruned(message, max_chars, count) for message in unit.messages))


def _pruned(message: StoredMessage, max_chars: int, count: Count) -> StoredMessage:
    if message.role != "tool" or len(message.text) <= max_chars:
        return message
    text = message.text
    note = f"[{len(text) - max_chars} more characters; view message {message.id} for all of it]"
    shown = f"{text[:max_chars]}\n{note}" if max_chars else note
    return viewed(message, "pruned", count, content=_in_place(message, shown))


def _in_place(message: StoredMessage, text: str) -> str | list[dict[str, Any]]:
    """Put the cut text before the blocks without text, such as images."""
    if not isinstance(message.content, list):
        return text
    others = [block for block in message.content if not isinstance(block.get("text"), str)]
    return [{"type": "text", "text": text}, *others]


# ── Retrieval strategies ──────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Nearness:
    """
    The nearness of messages to a query.

    Attributes:
        vector: Of the query, unit norm, shape ``(d,)``; ``None``: there is no query.
        failure: Why nearness cannot be told, once the embedder or the index failed.
    """

    vector: NDArray[np.float32] | None = None
    failure: Exception | None = None

    def ranked(self, live: Uncovered, newest: int | None) -> list[int] | None:
        """
        Seqs that have a vector, the nearest first, ties newest first; ``None``: it failed.

        A message of several passages is as near as the nearest of them.

        Args:
            newest: Only so many of the vectors count, the last ones.
        """
        if self.failure is not None or self.vector is None:
            return None
        try:
            seqs, vectors = live.vectors(newest)
            cosines = vectors @ self.vector if len(seqs) else np.empty(0, np.float32)
        except Exception as error:
            self.failure = error
            return None
        return list(dict.fromkeys(seqs[np.lexsort((-seqs, -cosines))].tolist()))


@dataclass(frozen=True, slots=True)
class Choice:
    """
    The units that a strategy chose.

    Attributes:
        units: Of a plain strategy, ascending.
        parts: Of a composite: what each part chose, with its weight.
    """

    units: tuple[Unit, ...] = ()
    parts: tuple[tuple[float, Choice], ...] = ()

    def every_unit(self) -> list[Unit]:
        """List the units of all strategies, each once, ascending."""
        return _ascending([*self.units, *(u for _, part in self.parts for u in part.every_unit())])


def asks_for_meaning(strategy: Retrieval) -> bool:
    """Whether *strategy* compares with the query, so that the query needs a vector."""
    if isinstance(strategy, Composite):
        return any(map(asks_for_meaning, strategy.strategies))
    return isinstance(strategy, Nearest)


def choose(strategy: Retrieval, live: Uncovered, near: Nearness) -> Choice:
    """
    Choose among the units that are not pinned.

    Where nearness cannot be told, a ``Nearest`` chooses as ``Recent`` of its ``k``; as a
    part of a ``Composite`` it leaves the choice to the other parts.
    """
    choice = _choice(strategy, live, near)
    return choice or Choice(tuple(live.newest(2 * _first_k(strategy))))


def _choice(strategy: Retrieval, live: Uncovered, near: Nearness) -> Choice | None:
    if isinstance(strategy, Recent):
        return Choice(tuple(live.newest(2 * strategy.k)))
    if isinstance(strategy, Nearest):
        units = _nearest(strategy, live, near)
        return None if units is None else Choice(tuple(units))
    weighed = zip(strategy.weights, strategy.strategies, strict=True)
    parts = [(weight, _choice(part, live, near)) for weight, part in weighed]
    left = tuple((weight, part) for weight, part in parts if part is not None)
    return Choice(parts=left) if left else None


def _nearest(strategy: Nearest, live: Uncovered, near: Nearness) -> list[Unit] | None:
    chosen: dict[int, Unit] = {}
    if near.vector is not None or near.failure is not None:
        ranked = near.ranked(live, strategy.max_index_size)
        if ranked is None:
            return None
        for seq in ranked:
            if len(chosen) == strategy.k:
                break
            if unit := live.holding(seq):
                chosen[unit.first_seq] = unit
    if len(chosen) < strategy.k:  # what has no vector yet is as far away as can be
        for unit in reversed(live.newest(strategy.k)):
            if len(chosen) < strategy.k:
                chosen.setdefault(unit.first_seq, unit)
    return _ascending(chosen.values())


def _first_k(strategy: Retrieval) -> int:
    return _first_k(strategy.strategies[0]) if isinstance(strategy, Composite) else strategy.k


def fitting(choice: Choice, room: int, cost: Callable[[Unit], int]) -> list[Unit]:
    """
    Return the units of *choice* that fit, ascending; always with the newest one.

    Units are taken newest first, up to the first that does not fit. Each part of a
    composite has its weight's share of the room, and what the parts before it left; what
    another part took already costs it nothing.

    Args:
        room: Tokens for all of them.
        cost: Tokens of a unit as it is shown.
    """
    units = choice.every_unit()
    if not units:
        return []
    taken = {units[-1].first_seq: units[-1]}
    _take(choice, room - cost(units[-1]), cost, taken)
    return _ascending(taken.values())


def _take(choice: Choice, room: int, cost: Callable[[Unit], int], taken: dict[int, Unit]) -> int:
    used = 0
    for unit in reversed(choice.units):
        if unit.first_seq in taken:
            continue
        tokens = cost(unit)
        if used + tokens > room:
            break
        taken[unit.first_seq] = unit
        used += tokens
    total, reached = sum(weight for weight, _ in choice.parts), 0.0
    for weight, part in choice.parts:
        reached += weight
        share = math.floor(room * reached / total + DUST) - used
        used += _take(part, share, cost, taken)
    return used


def _ascending(units: Iterable[Unit]) -> list[Unit]:
    each = {unit.first_seq: unit for unit in units}
    return [each[seq] for seq in sorted(each)]

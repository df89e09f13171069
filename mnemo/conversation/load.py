"""Loading: choose the messages of a thread that an agent reads; cut long tool results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.config import ConversationConfig
from mnemo.conversation.compaction import reconstructed
from mnemo.conversation.scope import ThreadScope, ThreadSettings
from mnemo.errors import UsageError
from mnemo.log.transcript import TranscriptReader
from mnemo.log.units import lies_in
from mnemo.values.counting import Count
from mnemo.values.derived import Compaction
from mnemo.values.messages import Message, StoredMessage
from mnemo.values.strategies import Composite, Nearest, Recent, Retrieval, Summary, ToolOutputPruner
from mnemo.values.units import Unit, placed, stands_last, units_of, viewed

PAGE = 64
"""Messages that are read at once, at least."""


class Uncovered:
    """
    The live messages of a thread's epoch that none of *records* (live, ascending) covers. Read page
    by page from the newest on, only as far as somebody asks: what a load costs does not grow with
    the history. Valid within one transaction.
    """

    def __init__(
        self, tx: TranscriptReader, scope: ThreadScope, records: Sequence[Compaction]
    ) -> None:
        self._tx = tx
        self._scope = scope
        self._records = records
        self._runs = scope.uncovered(records)
        self._unread = self._runs[:]
        self._floor = scope.thread.next_seq
        self._known: dict[int, StoredMessage] = {}
        self._whole: set[int] = set()

    def newest(self, count: int, *, pinned: bool = False) -> list[Unit]:
        """The last *count* units, whole and ascending, system messages too if *pinned*; or all."""
        size = max(PAGE, 2 * count)
        while True:
            # What is only known in part begins before what was read.
            read = [
                unit for unit in units_of(self._known.values()) if unit.first_seq >= self._floor
            ]
            units = [unit for unit in read if pinned or not unit.is_pinned][-count:]
            members = [message for unit in units for message in unit.messages]
            # A result that none of the known calls comes before: an older call may.
            early = [m for u in read for m in u.messages if m.role == "tool" and m.seq <= u.seq]
            doubtful = [one for one in (*members, *early) if one.seq not in self._whole]
            if not self._unread or (len(units) == count and not doubtful):
                return units
            if len(units) == count:
                whole = self._scope.units(self._tx, doubtful, self._runs, self._known.values())
                self._known |= {m.seq: m for unit in whole for m in unit.messages}
                self._whole.update(message.seq for message in doubtful)
            else:
                self._read(size)
                size *= 2

    def newest_open_group(self, deadline_s: float) -> Unit | None:
        """The newest unit of the thread, if it waits for a result and nothing is behind it."""
        newest = next(iter(self.newest(1, pinned=True)), None)
        if newest is None or not newest.is_open(self._tx.now, deadline_s):
            return None
        is_covered_later = any(one.start_seq > newest.first_seq for one in self._records[-1:])
        is_last = stands_last(newest, units_of(self._known.values()))
        return newest if is_last and not is_covered_later else None

    def holding(self, seq: int) -> Unit | None:
        """The unit of the message at *seq*; ``None``: it is covered, expired or gone."""
        found = self._messages(seq, seq) if lies_in(self._runs, seq) else []
        return next(iter(self._scope.units(self._tx, found, self._runs)), None)

    def system(self) -> list[Unit]:
        """The system messages, ascending."""
        found = self._messages(self._scope.thread.epoch_start, None, role="system")
        return [Unit((message,)) for message in found if lies_in(self._runs, message.seq)]

    def vectors(self, newest: int | None) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The last *newest* vectors of the epoch's live messages, covered or not, by seq."""
        scope = self._scope
        start = scope.thread.epoch_start
        return self._tx.vectors(scope.thread.id, from_seq=start, since=scope.since, newest=newest)

    def _read(self, size: int) -> None:
        start, end = self._unread.pop()
        page = self._messages(start, end, newest=size)
        self._known |= {message.seq: message for message in page}
        self._floor = page[0].seq if len(page) == size else start
        if self._floor > start:
            self._unread.append((start, self._floor - 1))

    def _messages(self, start: int, end: int | None, **arguments: Any) -> list[StoredMessage]:
        return self._scope.messages(self._tx, from_seq=start, to_seq=end, **arguments)


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

    *Raises* ``UsageError``: what is required alone exceeds the budget; both numbers are named.
    """
    count, max_chars = config.count, limit_of(settings.compressions)
    records = scope.all(tx, Compaction, live=True)
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
    The nearness of messages to a query of unit *vector*, shape ``(d,)``; *failure*: why it cannot
    be told, once the embedder or the index failed.
    """

    vector: NDArray[np.float32] | None = None
    failure: Exception | None = None

    def ranked(self, live: Uncovered, newest: int | None) -> list[int] | None:
        """
        Seqs among the *newest* vectors, nearest first, ties newest first; ``None``: it failed.

        The nearest passage of a message counts.
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
    """The units that a strategy chose, ascending; of a composite its *parts*, with weights."""

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

    If nearness fails, ``Nearest`` chooses as ``Recent``; within a ``Composite`` it is skipped.
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
    Return the units of *choice* whose *cost* fits the *room*; always with the newest one.

    Units are taken newest first, up to the first that does not fit. Each part of a composite has
    its weight's share of the room, and what the parts before it left; what another part took
    already costs it nothing.
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

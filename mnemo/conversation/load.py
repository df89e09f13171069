"""Loading: choose the messages of a thread that an agent reads; cut long tool results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.conversation.compaction import reconstructed
from mnemo.conversation.scope import ThreadScope, live_records
from mnemo.conversation.uncovered import Uncovered
from mnemo.errors import UsageError
from mnemo.log.transcript import TranscriptReader
from mnemo.values.counting import Count
from mnemo.values.messages import Message, StoredMessage
from mnemo.values.strategies import Composite, Nearest, Recent, Retrieval, Summary, ToolOutputPruner
from mnemo.values.units import Unit, placed, viewed

DUST = 1e-9
"""Of floating point, that must not take a token from a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    The request of a load.

    Attributes:
        near: How near messages are to the query.
        max_chars: Of a tool result; ``None``: any number.
        budget_tokens: ``None``: no bound.
        tool_deadline_s: Seconds until a call without a result counts as abandoned.
        count: Counts the tokens of what is made for the view.
    """

    retrieval: Retrieval
    near: Nearness
    max_chars: int | None
    budget_tokens: int | None
    tool_deadline_s: float
    count: Count


def load(tx: TranscriptReader, scope: ThreadScope, wanted: Wanted) -> list[Message]:
    """
    The present epoch through its records, the pinned messages and the strategy's choice.

    Reads as much of the thread's end as the choice needs, the records, and what is pinned.

    Raises:
        UsageError: What is required alone exceeds the budget; both numbers are named.
    """
    records = live_records(tx, scope)
    live = Uncovered(tx, scope, records)
    choice = choose(wanted.retrieval, live, wanted.near)
    view = _View(live, wanted)
    pinned = live.system()
    units = choice.every_unit()
    if wanted.budget_tokens is not None:
        summaries = reconstructed([], records, wanted.count)
        needed = sum(m.token_count or 0 for m in summaries) + sum(map(view.cost, pinned))
        _require_room(needed + (view.cost(units[-1]) if units else 0), wanted.budget_tokens)
        units = fitting(choice, wanted.budget_tokens - needed, view.cost)
    shown = [place for unit in (*pinned, *units) for place in view.placed(unit)]
    shown.sort(key=lambda place: place[0])
    return reconstructed(shown, records, wanted.count)


class _View:
    """Shows units with results pruned and groups completed."""

    def __init__(self, live: Uncovered, wanted: Wanted) -> None:
        self._wanted = wanted
        self._live = live

    def placed(self, unit: Unit) -> list[tuple[int, Message]]:
        """Return what is shown of *unit*, each message with its seq."""
        shown = pruned(unit, self._wanted.max_chars, self._wanted.count)
        left_open = bool(unit.unanswered) and self._is_left_open(unit)
        return placed(shown, left_open=left_open, count=self._wanted.count)

    def cost(self, unit: Unit) -> int:
        """Tokens of what is shown of *unit*."""
        return sum(message.token_count or 0 for _, message in self.placed(unit))

    def _is_left_open(self, unit: Unit) -> bool:
        newest = self._live.newest_open_group(self._wanted.tool_deadline_s)
        return newest is not None and newest.first_seq == unit.first_seq


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

        Args:
            newest: Only so many of the vectors count, the last ones.
        """
        if self.failure is not None or self.vector is None:
            return None
        try:
            seqs, vectors = live.vectors()
            kept = slice(-newest, None) if newest else slice(None)
            cosines = vectors[kept] @ self.vector if seqs else np.empty(0, np.float32)
        except Exception as error:
            self.failure = error
            return None
        places = np.array(seqs[kept], np.int64)
        order = np.lexsort((-places, -cosines))
        return [int(seq) for seq in places[order]]


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

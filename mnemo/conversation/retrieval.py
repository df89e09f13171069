"""Retrieval strategies: the units that one chooses, and those that fit a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemo.conversation.uncovered import Uncovered
from mnemo.values.strategies import Composite, Nearest, Recent, Retrieval
from mnemo.values.units import Unit

__all__ = ["Choice", "Nearness", "asks_for_meaning", "choose", "fitting"]

DUST = 1e-9
"""Of floating point, that must not take a token from a share."""


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
    The units of *choice* that fit, ascending; its newest is among them in any case.

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

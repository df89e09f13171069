"""Strategies as values: which part of a history to load, and how to make it shorter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mnemo.runtime.validation import every, whole_number


class _Omitted:
    """The type of ``OMITTED``; its repr is what a signature shows."""

    def __repr__(self) -> str:
        return "OMITTED"


OMITTED: Any = _Omitted()
"""In place of a keyword that was not given: the configuration decides."""
MOST_UNITS = 10_000
"""Largest ``k``."""


@dataclass(frozen=True, slots=True)
class Recent:
    """The last ``2k`` units: a turn counts as two. ``k`` in [1, 10,000]."""

    k: int = 10

    def __post_init__(self) -> None:
        whole_number("k", self.k, 1, MOST_UNITS)


@dataclass(frozen=True, slots=True)
class Nearest:
    """
    The ``k`` units nearest to the query, in the order in which they were said.

    Without a query the last ``k`` units.

    Attributes:
        max_index_size: Vectors of the thread that are compared, the newest; ``None``: all.
    """

    k: int = 10
    max_index_size: int | None = None

    def __post_init__(self) -> None:
        whole_number("k", self.k, 1, MOST_UNITS)
        if self.max_index_size is not None:
            whole_number("max_index_size", self.max_index_size, 1)


@dataclass(frozen=True, slots=True, init=False)
class Composite:
    """
    What any of its strategies chooses; each gets its weight's share of a token budget.

    ``Composite()`` is ``Recent(6)`` with 0.6 and ``Nearest(10)`` with 0.4.

    Attributes:
        weights: As many as strategies, each above 0, in proportion; default: equal.
    """

    strategies: tuple[Recent | Nearest | Composite, ...]
    weights: tuple[float, ...]

    def __init__(
        self, *strategies: Recent | Nearest | Composite, weights: Sequence[float] | None = None
    ) -> None:
        if not strategies:
            strategies = (Recent(6), Nearest(10))
            weights = (0.6, 0.4) if weights is None else weights
        if not all(isinstance(one, Recent | Nearest | Composite) for one in strategies):
            raise ValueError("a Composite is made of Recent, Nearest and Composite strategies")
        given = (1.0,) * len(strategies) if weights is None else tuple(every("weights", weights))
        if len(given) != len(strategies):
            raise ValueError(f"{len(strategies)} strategies need as many weights, not {len(given)}")
        if not all(isinstance(w, int | float) and 0 < w < math.inf for w in given):
            raise ValueError("each weight must be a number above 0")
        object.__setattr__(self, "strategies", strategies)
        object.__setattr__(self, "weights", given)


@dataclass(frozen=True, slots=True)
class Summary:
    """
    Old messages are summarised in the background; the originals stay.

    Attributes:
        max_tokens: Uncovered tokens above which it is due; at least 1.
        keep_last: Units that stay verbatim; at least 0.
        max_summary_tokens: Of one summary, at most; at least 1.
    """

    max_tokens: int = 4_000
    keep_last: int = 5
    max_summary_tokens: int = 1_000

    def __post_init__(self) -> None:
        whole_number("max_tokens", self.max_tokens, 1)
        whole_number("keep_last", self.keep_last, 0)
        whole_number("max_summary_tokens", self.max_summary_tokens, 1)


@dataclass(frozen=True, slots=True)
class ToolOutputPruner:
    """Tool results longer than ``max_chars`` characters are shown cut; 0: the note only."""

    max_chars: int = 4_000

    def __post_init__(self) -> None:
        whole_number("max_chars", self.max_chars, 0)


Retrieval: TypeAlias = Recent | Nearest | Composite
Compression: TypeAlias = Summary | ToolOutputPruner

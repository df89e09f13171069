"""Usage and cost of a call, as far as a server reports them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mnemo.errors import ConfigError
from mnemo.protocols import Usage

MOST_TOKENS = 10**12
"""No call has used more, whatever a server says."""


@dataclass(frozen=True, slots=True)
class Price:
    """
    US dollars per million tokens of one model.

    Attributes:
        cached_per_million: Of input tokens that the server had in its cache; ``None``: as
            any other input.

    Raises:
        ConfigError: A price is negative or no number.
    """

    input_per_million: float
    output_per_million: float
    cached_per_million: float | None = None

    def __post_init__(self) -> None:
        given = (self.input_per_million, self.output_per_million, self.cached_per_million)
        for price in given[: 2 if self.cached_per_million is None else 3]:
            number = isinstance(price, int | float) and not isinstance(price, bool)
            if not number or not 0 <= price < math.inf:  # type: ignore[operator]
                raise ConfigError(f"a price must be a number of dollars from 0, not {price!r}")

    def cost(self, usage: Usage) -> float:
        """US dollars of *usage*."""
        cached_price = self.cached_per_million
        if cached_price is None:
            cached_price = self.input_per_million
        fresh = usage.input_tokens - usage.cached_tokens
        return (
            fresh * self.input_per_million
            + usage.cached_tokens * cached_price
            + usage.output_tokens * self.output_per_million
        ) / 1_000_000


def price_table(prices: Mapping[str, Price] | None) -> dict[str, Price]:
    """A copy of *prices*. *Raises* ``ConfigError``: A name is no text or a value no ``Price``."""
    table = dict(prices or {})
    for name, price in table.items():
        if not isinstance(name, str) or not isinstance(price, Price):
            raise ConfigError(f"prices must map model names to Price, but {name!r} has {price!r}")
    return table


def usage_of(
    asked: str,
    said: Any,
    input_tokens: int,
    output_tokens: int,
    cached_tokens: int,
    *,
    prices: Mapping[str, Price],
) -> Usage:
    """The usage of a call; *said* is the server's name of the model: more exact, or nonsense."""
    model = said if isinstance(said, str) and said.strip() else asked
    usage = Usage(model, input_tokens, output_tokens, min(cached_tokens, input_tokens))
    price = prices.get(model) or prices.get(asked)
    return usage if price is None else replace(usage, cost_usd=price.cost(usage))


def counted(value: Any, *path: str) -> int:
    """The number of tokens at *path* in *value*; 0 where there is none that makes sense."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0
    return int(min(value, MOST_TOKENS)) if value < math.inf else 0

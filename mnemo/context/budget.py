"""The token budget of a viewport, divided into caps for its parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from mnemo.config import ViewportConfig

MOST_TOKENS = 10**12
"""Of a budget; no window is as long (S)."""
DUST = 6
"""Decimals to which a share is rounded before it is rounded down: 699.9999999999999 is 700."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """
    The parts of a viewport, all in tokens.

    Attributes:
        total: Of the whole rendering; at least 1.
        long_term: For level-2 snapshots, at most.
        recent: For level-1 snapshots, at most.
        goals: For goals and pins, at most.
        recall: For what comes to mind, at most.
        notes: For the overview of notes, at most; 0 where it is not asked for.
        window: For the raw messages; it does not grow by what the others leave unused.
        trigger: Of the window, above which room is made.
        zone: Of the window, what leaves it at once.
    """

    total: int
    long_term: int
    recent: int
    goals: int
    recall: int
    window: int
    trigger: int
    zone: int
    notes: int = 0

    @classmethod
    def of(cls, budget_tokens: int, config: ViewportConfig, *, notes: bool = False) -> Self:
        """
        Divide *budget_tokens*.

        Args:
            notes: Whether notes have their share, however many there are; the window is
                smaller by it.

        Raises:
            ConfigError: With notes the window would be too small.
            ValueError: It is below 1, above ``MOST_TOKENS``, or not a whole number.
        """
        if isinstance(budget_tokens, bool) or not isinstance(budget_tokens, int):
            raise ValueError(f"a budget is a whole number of tokens, not {budget_tokens!r}")
        if budget_tokens < 1:
            raise ValueError(f"a budget needs at least 1 token, not {budget_tokens}")
        if budget_tokens > MOST_TOKENS:
            raise ValueError(f"a budget has at most {MOST_TOKENS} tokens, not {budget_tokens}")
        shares = (
            config.l2_fraction,
            config.l1_fraction,
            config.goals_fraction,
            config.recall_fraction,
        )
        long_term, recent, goals, recall = (_share(budget_tokens, each) for each in shares)
        window = _share(budget_tokens, config.window_fraction(notes=notes))
        return cls(
            total=budget_tokens,
            long_term=long_term,
            recent=recent,
            goals=goals,
            recall=recall,
            window=window,
            trigger=_share(window, config.trigger_fraction),
            zone=_share(window, config.eviction_fraction),
            notes=_share(budget_tokens, config.notes_fraction) if notes else 0,
        )


def _share(whole: int, fraction: float) -> int:
    return math.floor(round(whole * fraction, DUST))

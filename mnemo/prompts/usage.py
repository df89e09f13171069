"""Usage of models: cost by purpose, outcome of each stage, and the budget that stops calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mnemo.config import SessionConfig
from mnemo.errors import BudgetExceeded
from mnemo.protocols import Purpose, Usage

How: TypeAlias = Literal["model", "embedded", "failed"]
"""How a stage ran: a model answered, the embedded stage did it, or it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """
    What calls cost together, failed and corrective ones included.

    Attributes:
        calls: Calls that were started.
        input_tokens: Of the calls that were answered, in the model's tokens; so the others.
        cached_tokens: Those of *input_tokens* that the server had in its cache.
        cost_usd: US dollars of the calls whose price is known; ``None`` without one.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_usd=_sum(self.cost_usd, other.cost_usd),
        )


_CALL = ModelUsage(calls=1)


class UsageMeter:
    """
    Adds up every call, and how stages ran. For one event loop, not for threads.

    Calls in flight when a bound of *budget* is reached are let through: so tokens and cost may
    pass it by theirs. *whole* counts all that this one counts, too.

    Attributes:
        left_out: Facts that ``config.extraction.max_facts`` left out.
    """

    __slots__ = ("_budget", "_by_purpose", "_parent", "_ran", "left_out", "total")

    def __init__(
        self, budget: SessionConfig | None = None, *, whole: UsageMeter | None = None
    ) -> None:
        self._budget = budget
        self._by_purpose: dict[Purpose, ModelUsage] = {}
        self._ran: Counter[tuple[str, How]] = Counter()
        self._parent = whole
        self.left_out: int = 0
        self.total: ModelUsage = ModelUsage()

    @property
    def by_purpose(self) -> Mapping[Purpose, ModelUsage]:
        """Purpose → what its calls cost; purposes never asked are absent."""
        return dict(self._by_purpose)

    @property
    def stages(self) -> Mapping[str, Mapping[How, int]]:
        """Stage → how it ran → how often."""
        stages: defaultdict[str, dict[How, int]] = defaultdict(dict)
        for (stage, how), count in self._ran.items():
            stages[stage][how] = count
        return dict(stages)

    def started(self, purpose: Purpose) -> None:
        """Count a call, whatever becomes of it. *Raises* ``BudgetExceeded``: it may not be made."""
        if (budget := self._budget) is not None:
            tokens = self.total.input_tokens + self.total.output_tokens
            for limit, most, now in (
                ("max_model_calls", budget.max_model_calls, self.total.calls),
                ("max_model_tokens", budget.max_model_tokens, tokens),
                ("max_model_cost_usd", budget.max_model_cost_usd, self.total.cost_usd or 0.0),
            ):
                if most is not None and now >= most:
                    raise BudgetExceeded(f"session.{limit}", now, purpose=purpose)
        self._add(purpose, _CALL)

    def answered(self, purpose: Purpose, usage: Usage) -> None:
        """Add what an answer reports."""
        cost = ModelUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cost_usd=usage.cost_usd,
        )
        self._add(purpose, cost)

    def add(self, purpose: Purpose, usage: Usage) -> None:
        """Add a call that was made and answered elsewhere, whatever the budget says."""
        self._add(purpose, _CALL)
        self.answered(purpose, usage)

    def ran(self, stage: str, how: How) -> None:
        """Count that *stage* ran, and how."""
        self._ran[stage, how] += 1
        if self._parent is not None:
            self._parent.ran(stage, how)

    def leave_out(self, facts: int) -> None:
        """Count *facts* that a bound left out."""
        self.left_out += facts
        if self._parent is not None:
            self._parent.leave_out(facts)

    def _add(self, purpose: Purpose, cost: ModelUsage) -> None:
        self._by_purpose[purpose] = self._by_purpose.get(purpose, ModelUsage()) + cost
        self.total += cost
        if self._parent is not None:
            self._parent._add(purpose, cost)


def _sum(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other

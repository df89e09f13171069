"""The budget of one update: turns, tokens, cost and time."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from mnemo.config import NotesConfig
from mnemo.errors import BudgetExceeded
from mnemo.notes.model_input import PURPOSE, tokens_of
from mnemo.protocols import ChatReply, ChatRequest, Clock, Usage
from mnemo.runtime.tasks import on_clock
from mnemo.runtime.text import count_tokens

__all__ = ["UpdateBudget", "summed"]


@dataclass(slots=True)
class UpdateBudget:
    """
    The budget of one update; its time runs from construction, by the service's clock.

    Attributes:
        turns: Calls that were begun.
        used: What those that answered have cost.
    """

    config: NotesConfig
    clock: Clock
    began: float
    turns: int = 0
    used: list[Usage] = field(default_factory=list)

    @classmethod
    def starting(cls, config: NotesConfig, clock: Clock) -> UpdateBudget:
        """A budget whose time starts now."""
        return cls(config, clock, clock.monotonic())

    def admit(self, request: ChatRequest) -> ChatRequest:
        """
        Admit *request* as a turn, with the output tokens that are left as its bound.

        Raises:
            BudgetExceeded: A limit is reached, or would be by its estimated input.
        """
        config, total = self.config, summed(self.used)
        tokens = total.input_tokens + total.output_tokens
        estimate = tokens + sum(map(tokens_of, request.messages))
        estimate += count_tokens(json.dumps(list(request.tools), default=str))
        left = config.max_output_tokens - total.output_tokens
        self._check("turns", config.max_turns, self.turns)
        self._check("wall", config.max_wall_s, self.clock.monotonic() - self.began)
        self._check("cost", config.max_cost_usd, total.cost_usd or 0.0)
        self._check("tokens", config.max_output_tokens, total.output_tokens)
        if estimate >= config.max_total_tokens:
            raise _exceeded("tokens", config.max_total_tokens, estimate)
        self.turns += 1
        return replace(request, max_output_tokens=left)

    def _check(self, which: str, limit: float, spent: float) -> None:
        if spent >= limit:
            raise _exceeded(which, limit, spent)

    async def within(self, work: Callable[[], Awaitable[ChatReply]]) -> ChatReply:
        """
        Run *work* within the time that is left.

        Raises:
            BudgetExceeded: The time is over; *work* was cancelled, and what it says is late.
        """
        most = self.config.max_wall_s
        left = most - (self.clock.monotonic() - self.began)
        try:
            reply = await on_clock(self.clock.sleep, max(0.0, left), work)
        except TimeoutError as error:
            raise _exceeded("wall", most, self.clock.monotonic() - self.began) from error
        if (spent := self.clock.monotonic() - self.began) > most:
            raise _exceeded("wall", most, spent)
        return reply

    def out_of_output(self) -> BudgetExceeded:
        """The error of a reply that was cut off at what was left of the output."""
        spent = summed(self.used).output_tokens
        return _exceeded("tokens", self.config.max_output_tokens, spent)


def _exceeded(which: str, limit: float, spent: float) -> BudgetExceeded:
    return BudgetExceeded(limit, spent, which=which, purpose=PURPOSE)


def summed(used: list[Usage]) -> Usage:
    """Sum of *used*; an unknown cost counts 0."""
    return Usage(
        model=next((usage.model for usage in reversed(used) if usage.model), ""),
        input_tokens=sum(usage.input_tokens for usage in used),
        output_tokens=sum(usage.output_tokens for usage in used),
        cached_tokens=sum(usage.cached_tokens for usage in used),
        cost_usd=math.fsum(usage.cost_usd or 0.0 for usage in used),
    )

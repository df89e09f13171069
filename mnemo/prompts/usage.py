"""What a session's model calls cost."""

from __future__ import annotations

from mnemo.protocols import Usage

__all__ = ["UsageMeter"]


class UsageMeter:
    """
    Adds up every call, failed and corrective ones included. For one event loop, not for threads.

    Attributes:
        calls: Calls that were started.
        input_tokens: Of the calls that were answered, in the model's tokens.
        output_tokens: Likewise.
        cost_usd: Of the calls whose price is known; ``None`` until there is one.
    """

    __slots__ = ("calls", "cost_usd", "input_tokens", "output_tokens")

    def __init__(self) -> None:
        self.calls = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost_usd: float | None = None

    def started(self) -> None:
        """Count a call, whatever becomes of it."""
        self.calls += 1

    def answered(self, usage: Usage) -> None:
        """Add what an answer reports."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        if usage.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + usage.cost_usd

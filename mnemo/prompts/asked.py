"""How a question to the memory stands in a request: itself, and apart from it where it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mnemo._clock import date_in_words
from mnemo.episode.step import Step
from mnemo.prompts.data import block, step_rows

__all__ = ["QUESTION", "Asked"]

QUESTION = "QUESTION"
"""The block of the question itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    A question to the memory.

    Attributes:
        at: When it is asked; what "yesterday" is counted from.
        goal: What whoever asks is working on; ``None`` if that is not known.
        steps: Their last steps, oldest first.
    """

    query: str
    at: datetime
    goal: str | None = None
    steps: tuple[Step, ...] = ()

    @property
    def blocks(self) -> str:
        """The question, then the work that it comes from, each in blocks of its own."""
        parts = [block(QUESTION, [{"question": self.query, "asked_on": date_in_words(self.at)}])]
        if self.goal is not None:
            parts.append(block("THE ASKER'S GOAL", [{"goal": self.goal}]))
        if self.steps:
            parts.append(block("THE ASKER'S LAST STEPS", step_rows(self.steps)))
        return "\n\n".join(parts)

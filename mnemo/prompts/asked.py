"""How a question to the memory stands in a request: itself, and apart from it where it is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from mnemo.english.dates import date_in_words
from mnemo.episode.step import Step
from mnemo.prompts.data import block, shortened, step_rows

__all__ = ["QUESTION", "Asked"]

QUESTION = "QUESTION"
"""The block of the question itself."""
MAX_CONTEXT_CHARACTERS = 2_000
"""Characters of the goal and of each text of a step; they only explain the question (S)."""


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
            goal = shortened(self.goal, MAX_CONTEXT_CHARACTERS)
            parts.append(block("THE ASKER'S GOAL", [{"goal": goal}]))
        if self.steps:
            parts.append(block("THE ASKER'S LAST STEPS", step_rows(self._short_steps)))
        return "\n\n".join(parts)

    @property
    def _short_steps(self) -> list[Step]:
        return [
            replace(
                step,
                observation=shortened(step.observation, MAX_CONTEXT_CHARACTERS),
                action=shortened(step.action, MAX_CONTEXT_CHARACTERS),
            )
            for step in self.steps
        ]

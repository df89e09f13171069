"""The procedural extractor that asks a chat model, for instructions and then for their returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mnemo.config import Config
from mnemo.episode.trajectory import Instruction, Trajectory
from mnemo.prompts.ask import Asker
from mnemo.prompts.procedural import procedural_question
from mnemo.prompts.profiles import Profile
from mnemo.prompts.returns import returns_question

__all__ = ["ModelProceduralExtractor"]


class ModelProceduralExtractor:
    """One call per trajectory gives its instructions; if there are any, a second scores them."""

    def __init__(self, asker: Asker, config: Config, profile: Profile | None = None) -> None:
        self._asker = asker
        self._max_instructions = config.extraction.max_instructions
        self._profile = profile

    async def extract_instructions(self, trajectory: Trajectory) -> Sequence[Instruction]:
        """
        Give the instructions with their returns.

        Raises:
            ModelError: Of either call, ``InvalidReply`` after one correction.
                *Cancellation*: safe.
        """
        instructions = await self._asker.ask(
            procedural_question(trajectory, self._profile, max_instructions=self._max_instructions)
        )
        if not instructions:
            return []
        returns = await self._asker.ask(returns_question(trajectory, instructions, self._profile))
        return [replace(i, return_score=r) for i, r in zip(instructions, returns, strict=True)]

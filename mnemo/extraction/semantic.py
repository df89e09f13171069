"""The semantic extractor that asks a chat model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from mnemo.config import Config
from mnemo.episode.trajectory import Fact, Trajectory
from mnemo.prompts.ask import Asker
from mnemo.prompts.data import shortened
from mnemo.prompts.profiles import Profile
from mnemo.prompts.semantic import StoredFact, semantic_question

__all__ = ["ModelSemanticExtractor", "NearbyFacts"]

NearbyFacts: TypeAlias = Callable[[str, int], Awaitable[Sequence[StoredFact]]]
"""``nearby(text, limit)``: the stored facts nearest to a text, best first."""

SHOWN_FACTS = 12
"""Stored facts that a model is shown, at most."""
COMPARED_CHARACTERS = 4_000
"""Head and tail of a trajectory's text that its nearest facts are looked up by (S)."""


class ModelSemanticExtractor:
    """
    One call per trajectory gives its facts.

    Args:
        nearby: Where the facts come from that a new one may replace; ``None``: none.
    """

    def __init__(
        self,
        asker: Asker,
        config: Config,
        profile: Profile | None = None,
        *,
        nearby: NearbyFacts | None = None,
    ) -> None:
        self._asker = asker
        self._max_facts = config.extraction.max_facts
        self._profile = profile
        self._nearby = nearby

    async def extract_facts(self, trajectory: Trajectory) -> Sequence[Fact]:
        """
        Give the facts as the model words them, not yet cleaned.

        Raises:
            ModelError: One of its kinds, ``InvalidReply`` after one correction.
                *Cancellation*: safe.
        """
        stored = await self._stored(trajectory)
        question = semantic_question(trajectory, stored, self._profile, max_facts=self._max_facts)
        return await self._asker.ask(question)

    async def _stored(self, trajectory: Trajectory) -> Sequence[StoredFact]:
        if self._nearby is None:
            return ()
        text = shortened("\n".join(step.text for step in trajectory.steps), COMPARED_CHARACTERS)
        return (await self._nearby(text, SHOWN_FACTS))[:SHOWN_FACTS]

"""The annotator that asks a chat model."""

from __future__ import annotations

from collections.abc import Sequence

from mnemo.prompts.annotate import annotate_question
from mnemo.prompts.ask import Asker
from mnemo.prompts.profiles import Profile
from mnemo.protocols import Annotated, AnnotationRequest

__all__ = ["ModelAnnotator"]


class ModelAnnotator:
    """One call per batch gives states, subgoals, and the rewards that have become known."""

    batch_size: int | None = None

    def __init__(self, asker: Asker, profile: Profile | None = None) -> None:
        self._asker = asker
        self._profile = profile

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        """
        Annotate every step of ``request.fresh``, and give the last reward if closing.

        Raises:
            ModelError: One of its kinds, ``InvalidReply`` after one correction.
                *Cancellation*: safe.
        """
        return await self._asker.ask(annotate_question(request, self._profile))

"""Which intents are one, and how the common one is worded. May ask a model, before any write."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mnemo._text import is_blank, one_line
from mnemo.commit.known import Known
from mnemo.config import CommitConfig
from mnemo.errors import ModelError
from mnemo.graph.lookup import text_key
from mnemo.graph.nodes import Intent, Vector
from mnemo.graph.similarity import equal_text

__all__ = ["IntentPlan", "MergeIntent", "VectorsOf", "plan_intents"]

logger = logging.getLogger(__name__)

MergeIntent = Callable[[str, str], Awaitable[str]]
"""Words the common description of a stored and a new intent."""

VectorsOf = Callable[[Sequence[str]], Awaitable[Mapping[str, Vector]]]
"""Vectors of texts, as far as the embedder gave them."""

# Rounding of float32 must not turn "equal to the threshold" into "below".
_ROUNDING = 1e-6


@dataclass(slots=True)
class IntentPlan:
    """
    What becomes of the intents of a changeset.

    Attributes:
        same: Id of a new intent → the stored or earlier new one that stands for it.
        reworded: Id of a surviving intent → its new description and vector.
    """

    same: dict[str, str] = field(default_factory=dict)
    reworded: dict[str, tuple[str, Vector]] = field(default_factory=dict)


async def plan_intents(
    new: Iterable[Intent],
    known: Known,
    *,
    config: CommitConfig,
    merge: MergeIntent | None,
    vectors_of: VectorsOf,
) -> IntentPlan:
    """
    Decide for each new intent, in order, whether one that is known stands for it.

    Args:
        merge: ``None`` where there is no model: then the known one is used as it is.
    """
    planner = _Planner(known, config, merge, vectors_of)
    for intent in new:
        await planner.place(intent)
    return planner.plan


class _Planner:
    def __init__(
        self,
        known: Known,
        config: CommitConfig,
        merge: MergeIntent | None,
        vectors_of: VectorsOf,
    ) -> None:
        self.plan = IntentPlan()
        self._known = known
        self._config = config
        self._merge = merge
        self._vectors_of = vectors_of
        self._kept: list[Intent] = []

    async def place(self, intent: Intent) -> None:
        found, cosine = self._nearest(intent)
        if found is None or cosine < self._config.intent_merge_threshold - _ROUNDING:
            self._kept.append(intent)
            return
        self.plan.same[intent.id] = found.id
        if cosine < self._config.intent_identity_threshold - _ROUNDING:
            await self._reword(found, intent)

    def _nearest(self, intent: Intent) -> tuple[Intent | None, float]:
        if equal := self._equal(intent):
            return equal, 1.0
        found = [*self._stored_cosines(intent), *self._own_cosines(intent)]
        return max(found, key=lambda pair: pair[1], default=(None, -1.0))

    def _equal(self, intent: Intent) -> Intent | None:
        stored = self._known.keys.get(("intent", text_key(intent.description)), ())
        candidates = [n for n in stored if isinstance(n, Intent)] + self._kept
        same = (c for c in candidates if equal_text(self._text(c), intent.description))
        return next(same, None)

    def _stored_cosines(self, intent: Intent) -> Iterable[tuple[Intent, float]]:
        for id, cosine in self._known.near.get(intent.id, ()):
            stored = self._known.nodes.get(id)
            if isinstance(stored, Intent):
                yield stored, self._cosine(intent, self._vector(stored), otherwise=cosine)

    def _own_cosines(self, intent: Intent) -> Iterable[tuple[Intent, float]]:
        for kept in self._kept:
            vector = self._vector(kept)
            yield kept, self._cosine(intent, kept.vector if vector is None else vector)

    def _cosine(self, intent: Intent, vector: Vector | None, *, otherwise: float = -1.0) -> float:
        if intent.vector is None or vector is None:
            return otherwise
        return float(np.dot(intent.vector, vector))

    def _text(self, intent: Intent) -> str:
        return self.plan.reworded[intent.id][0] if self._is_reworded(intent) else intent.description

    def _vector(self, intent: Intent) -> Vector | None:
        """The vector it got here; the one it came with is the index's affair."""
        return self.plan.reworded[intent.id][1] if self._is_reworded(intent) else None

    def _is_reworded(self, intent: Intent) -> bool:
        return intent.id in self.plan.reworded

    async def _reword(self, stored: Intent, intent: Intent) -> None:
        before = self._text(stored)
        text = await self._common(before, intent.description)
        if text is None or text == before:
            return
        vector = (await self._vectors_of([text])).get(text)
        # Without its vector the new text could not be found: the old one stays.
        if vector is not None:
            self.plan.reworded[stored.id] = text, vector

    async def _common(self, stored: str, new: str) -> str | None:
        if self._merge is None:
            return None
        try:
            text = one_line(await self._merge(stored, new))
        except ModelError as error:
            logger.warning("intents were not merged, the stored one is used: %s", error)
            return None
        return None if is_blank(text) else text

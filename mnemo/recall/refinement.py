"""The expansion loop: hops over the graph, refined by a chat model at a plateau."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mnemo.config import RecallConfig
from mnemo.prompts.data import AskedQuestion
from mnemo.prompts.profiles import Profile
from mnemo.prompts.refine import refine_question
from mnemo.recall.candidates import HopZero
from mnemo.recall.run import Adviser, Progress
from mnemo.recall.search import Search

__all__ = ["SecondLook", "expand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """
    The model that suggests further tags, and the search for them.

    Attributes:
        find: Runs tags through hop 0.
    """

    adviser: Adviser
    asked: AskedQuestion
    profile: Profile | None
    find: Callable[[Sequence[str]], Awaitable[HopZero]]


async def expand(
    search: Search,
    look: SecondLook | None,
    *,
    max_hops: int,
    config: RecallConfig,
    progress: Progress,
) -> tuple[dict[str, Any], ...]:
    """
    Go *max_hops* hops, or until nothing is new and nothing else can be looked for.

    A hop whose best new candidate does not exceed the best before by ``plateau_delta``
    is followed by a refinement, as long as the budget lasts.

    Returns:
        The refinements: ``hop``, ``tags``, and the best relevance on the way, of hops and
        refinements, ``best_before`` and ``best_after``.
    """
    refinements = _Refinements(search, look, min(config.refinement_budget, max_hops), progress)
    best = config.refinement_threshold
    for hop in range(1, max_hops + 1):
        with progress.phase("expand"):
            reached = await search.hop(hop)
        gain, best = reached - best, max(best, reached)
        if gain < config.plateau_delta and refinements.possible:
            with progress.phase("refine"):
                best = await refinements.after(hop, best)
        elif not reached:
            break
    return tuple(refinements.made)


class _Refinements:
    """
    The refinements of one recall.

    One that leads nowhere does not count against the budget; but a model that never
    has an idea is asked at most once more per refinement that it was allowed.
    """

    def __init__(
        self, search: Search, look: SecondLook | None, budget: int, progress: Progress
    ) -> None:
        self._search = search
        self._look = look
        self._budget = budget
        self._in_vain = 0
        self._progress = progress
        self.made: list[dict[str, Any]] = []

    @property
    def possible(self) -> bool:
        """Whether there is somebody to ask, and budget for it."""
        if self._look is None or self._look.adviser.hangs:
            return False
        return len(self.made) < self._budget and self._in_vain <= self._budget

    async def after(self, hop: int, best: float) -> float:
        """Refine after *hop*; gives the *best* relevance on the way from then on."""
        assert self._look is not None
        look = self._look
        texts = [scored.node.text for scored in self._search.ranked]
        tags = await look.adviser.ask(refine_question(look.asked, texts, look.profile), ())
        if not tags:
            self._in_vain += 1
            return best
        reached = await self._search.refine(await look.find(tags), hop)
        after = max(best, reached)
        self.made.append({"hop": hop, "tags": tags, "best_before": best, "best_after": after})
        return after

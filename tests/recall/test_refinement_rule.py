"""When a second look is taken: the plateau, hop by hop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from mnemo.config import RecallConfig
from mnemo.prompts.usage import UsageMeter
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.search import expand
from mnemo.testing import ScriptedChatModel


@dataclass
class SteppingSearch:
    """A search whose hops and refinements reach the relevances that a test says."""

    hops: Sequence[float]
    refined: Sequence[float] = ()
    ranked: Sequence[Any] = ()
    done: list[Any] = field(default_factory=list)

    async def hop(self, hop: int) -> float:
        """Reach what is written for *hop*."""
        self.done.append(hop)
        return self.hops[hop - 1]

    async def refine(self, found: Any, hop: int) -> float:
        """Reach what is written for this refinement."""
        self.done.append(f"refined after {hop}")
        return self.refined[sum(isinstance(act, str) for act in self.done) - 1]


async def expanded(search: SteppingSearch, *, budget: int = 1, model: bool = True) -> Any:
    scripted = ScriptedChatModel({"refine": {"tags": ["bees"]}})
    request = RecallRequest.checked("?", max_hops=len(search.hops))
    run = RecallRun(request, datetime(2024, 3, 1, tzinfo=UTC), plans=model)
    run.advised_by(scripted, UsageMeter(), timeout_s=120)
    await expand(search, run, RecallConfig(refinement_budget=budget))  # type: ignore[arg-type]
    return run.trace.refinements


@pytest.mark.parametrize(
    ("reached", "refined"), [(0.0, True), (0.5, True), (0.64, True), (0.66, False), (1.0, False)]
)
async def test_the_first_hop_is_compared_with_the_threshold(reached, refined):
    """A gain over 0.6 of less than 0.05, or nothing new, is a plateau."""
    search = SteppingSearch([reached], [0.3])
    made = await expanded(search)
    assert bool(made) == refined
    assert search.done == ([1, "refined after 1"] if refined else [1])


async def test_later_hops_are_compared_with_the_best_before():
    """0.7 and 0.8 each gain enough, 0.82 does not."""
    search = SteppingSearch([0.7, 0.8, 0.82, 0.9], [0.95])
    (made,) = await expanded(search)
    assert search.done == [1, 2, 3, "refined after 3", 4]
    assert made == {"hop": 3, "tags": ("bees",), "best_before": 0.82, "best_after": 0.95}


async def test_what_a_refinement_reaches_counts_for_the_next_hop():
    """The next hop has to exceed it too."""
    search = SteppingSearch([0.2, 0.8], [0.78, 0.1])
    first, second = await expanded(search, budget=2)
    assert (first["best_before"], first["best_after"]) == (0.6, 0.78)
    assert (second["hop"], second["best_before"], second["best_after"]) == (2, 0.8, 0.8)


async def test_hops_end_where_nothing_is_new():
    """Without anybody to ask, or without budget left, the first empty hop is the last."""
    alone = SteppingSearch([0.3, 0.0, 0.9])
    assert await expanded(alone, model=False) == ()
    assert alone.done == [1, 2]
    spent = SteppingSearch([0.0, 0.0, 0.9], [0.5])
    assert len(await expanded(spent)) == 1
    assert spent.done == [1, "refined after 1", 2]

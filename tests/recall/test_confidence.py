"""Results of little confidence: what their text says first, and when nothing is given."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
from helpers import repository

from mnemo import Config, RecallResult, Repository
from mnemo.exchange import RecallShape, restored
from mnemo.recall.result import UNSURE

CARGO = ("The red boat sank.", "A boat carries wine.", "The boat of Ada is white.")


@pytest.fixture
async def repo() -> AsyncIterator[Repository]:
    """A repository with three sentences, which warns below a confidence of 0.5."""
    config = Config(recall={"warn_below": 0.5})
    async with repository(config=config) as opened:
        await opened.remember(CARGO, wait=True)
        yield opened


@pytest.fixture
async def found(repo: Repository) -> RecallResult:
    """What is known about boats."""
    return await repo.recall("boat", k=3)


def with_confidence(result: RecallResult, confidence: float) -> RecallResult:
    """*result* as if its confidence were another."""
    return replace(result, confidence=confidence)


async def test_a_text_begins_with_a_warning_below_the_configured_confidence(found):
    """``config.recall.warn_below`` is the least confidence that is not warned of."""
    sure, unsure = with_confidence(found, 0.5), with_confidence(found, 0.49)
    assert len(found.candidates) == 3
    assert sure.as_text().startswith("- ")
    assert unsure.as_text() == f"{UNSURE}\n{sure.as_text()}"
    assert unsure.as_text(style="full") == f"{UNSURE}\n{sure.as_text(style='full')}"


async def test_no_budget_is_exceeded_and_no_candidate_stands_without_its_warning(found):
    """For every budget up to that of the whole text, whatever tokens are counted with."""
    for count in (found.count, len, lambda text: len(text.split())):
        unsure = replace(found, confidence=0.1, count=count)
        texts = {budget: unsure.as_text(budget) for budget in range(count(unsure.as_text()) + 1)}
        assert all(count(text) <= budget for budget, text in texts.items())
        assert all(not text or text.startswith(UNSURE) for text in texts.values())
        assert {"", UNSURE, unsure.as_text()} <= set(texts.values())


async def test_the_warning_goes_over_http_as_well(found):
    """Confidence and bound are part of the service's reply, so that a client prints the same."""
    unsure = with_confidence(found, 0.1)
    shape = RecallShape.model_validate(unsure).model_dump_json()
    assert restored(RecallShape.model_validate_json(shape)).as_text() == unsure.as_text()


async def test_an_empty_result_has_no_text_at_all(found):
    """There is nothing to warn of."""
    assert with_confidence(replace(found, candidates=[]), 0.1).as_text() == ""


async def test_below_the_least_confidence_nothing_is_given(repo, found):
    """At it, all is; ``min_confidence`` of ``recall`` and ``recall_in_context``, from 0 to 1."""
    least, all_of_it = found.confidence, [c.node.id for c in found.candidates]
    for ask in (repo.recall, partial(repo.recall_in_context, "none")):
        enough = await ask("boat", k=3, min_confidence=least)
        assert [c.node.id for c in enough.candidates] == all_of_it
        too_little = await ask("boat", k=3, min_confidence=math.nextafter(least, 1.0))
        assert (too_little.candidates, too_little.confidence) == ([], least)
        for wrong in (-0.1, 1.1, float("nan"), "high"):
            with pytest.raises(ValueError, match="min_confidence"):
                await ask("boat", min_confidence=wrong)

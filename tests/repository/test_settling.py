"""Settling: waiting until nothing is on its way."""

import anyio
import pytest

from mnemo import ModelUnavailable, UsageError
from mnemo.config import Config
from mnemo.testing import ScriptedChatModel

ALLERGIC = "I am allergic to peanuts."


async def test_what_was_remembered_is_a_fact_with_its_source(open_kit):
    """Nobody waits for quiet; afterwards everything has its vector and nothing is owed."""
    kit = await open_kit(embedded=True)
    for thread in ("a", "b"):
        await kit.repo.remember(ALLERGIC, thread_id=thread)
    await kit.repo.settle()
    counted = await kit.repo.statistics()
    assert counted.on_its_way == {}
    assert (counted.steps, counted.index.waiting, counted.jobs.waiting) == (2, 0, 0)
    found = await kit.repo.recall("What is the user allergic to?", types=["semantic"])
    assert found.candidates[0].sources[0].text == ALLERGIC


async def test_nothing_is_settled_at_once(open_kit):
    """An empty repository, and one with a session that only collects, do not wait."""
    kit = await open_kit(embedded=True)
    await kit.repo.settle(timeout_s=0.5)
    session = await kit.begun("Lea sails.", "noted")
    await kit.repo.settle()
    assert session.statistics().append_backlog == 0


async def test_a_timeout_names_what_is_not_settled(open_kit):
    """The error counts each kind of work; the work goes on, and the next call sees its end."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    await kit.repo.remember(ALLERGIC)
    async with anyio.create_task_group() as group:

        async def settling() -> None:
            with pytest.raises(TimeoutError, match="1 jobs to run"):
                await kit.repo.settle(timeout_s=3)

        group.start_soon(settling)
        await kit.until(lambda: model.waiting == 1)
        await kit.clock.advance(3)
    model.unblock()
    await kit.repo.settle()
    assert len(await kit.repo.get_nodes(["semantic"])) == 1


async def test_a_closed_episode_is_waited_for(open_kit):
    """A session that extracts is on its way; one that is ready waits for its user."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    session = await kit.closed("Lea sails.", "noted")
    assert "sessions that extract or commit" in (await kit.repo.statistics()).on_its_way
    model.unblock()
    await kit.repo.settle()
    assert session.state == "ready"


async def test_what_is_dead_is_not_waited_for(open_kit):
    """A job that was given up is visible, and not on its way."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("no answer")})
    kit = await open_kit(model=model, config=Config(jobs={"max_tries": 1}))
    await kit.repo.remember(ALLERGIC)
    await kit.repo.settle()
    assert (await kit.repo.statistics()).jobs.dead == 1


async def test_a_wait_ends_with_the_repository_and_with_its_caller(open_kit):
    """A closed repository is a ``UsageError``; a cancelled wait leaves the work alone."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    await kit.repo.remember(ALLERGIC)
    async with anyio.create_task_group() as group:
        group.start_soon(kit.repo.settle)
        await kit.until(lambda: model.waiting == 1)
        group.cancel_scope.cancel()
    async with anyio.create_task_group() as group:

        async def settling() -> None:
            with pytest.raises(UsageError, match="closed"):
                await kit.repo.settle()

        group.start_soon(settling)
        await anyio.lowlevel.checkpoint()
        await kit.memory.close_repo("r")


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), "soon"])
async def test_a_bad_timeout_is_refused(open_kit, timeout_s):
    """A ``ValueError`` names the argument."""
    kit = await open_kit(embedded=True)
    with pytest.raises(ValueError, match="timeout_s"):
        await kit.repo.settle(timeout_s=timeout_s)  # type: ignore[arg-type]


async def test_without_background_work_another_service_does_it(open_kit, db):
    """What is stored is found by its words, no index is made, and nothing is lost."""
    kit = await open_kit(embedded=True, store=db, config=Config(jobs={"background": False}))
    await kit.repo.remember(ALLERGIC)
    await kit.clock.advance(60)
    counted = await kit.repo.statistics()
    assert (counted.jobs.waiting, counted.steps, counted.index.documents) == (1, 0, 0)
    assert [hit.snippet for hit in await kit.repo.search("peanuts")] == [ALLERGIC]
    await kit.memory.aclose()
    other = await open_kit(embedded=True, store=db)
    await other.repo.settle()
    assert (await other.repo.statistics()).steps == 1

"""Sessions in the inspector: boundaries, what a commit would add, retry, discard, the queue."""

import pytest
import pytest_asyncio
from helpers import BUILD, TRIP, annotating
from inspector_kit import SCRIPT, inspected, served

from mnemo.errors import ModelUnavailable
from mnemo.testing import ScriptedChatModel, block_rows

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

SEEN = ("tokyo trains", "kyoto temples", "compiler errors")


def facts(request):
    """A fact for each step."""
    steps = block_rows(request, "STEPS")
    return {"facts": [fact(step["observation"], step["index"]) for step in steps]}


def fact(text, step):
    """A fact as a model gives it."""
    return {"proposition": text, "concepts": [], "confidence": 0.8, "steps": [step]}


@pytest.fixture(scope="module")
def model():
    """The first two steps serve one subgoal, the third another."""
    return ScriptedChatModel.answering({"annotate": annotating([TRIP, TRIP, BUILD])})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(model):
    """One server for all tests of this file, with a chat model."""
    async with served(model, annotation={"batch_size": 1}) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def session(server, model, request):
    """A session that collected three steps, in a repository of its own."""
    model.script("semantic", facts)
    repo = await server.memory.open_repo(request.node.name)
    begun = await repo.start_session("travel, then repair", session_id=repo.id)
    for seen in SEEN:
        await begun.append(seen, f"{SCRIPT} {seen}")
    return begun


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser, server, session):
    """The page of that session."""
    async with inspected(browser, server) as inspector:
        await inspector.open("sessions", repo=session.repo_id, session=session.id)
        yield inspector.page


async def now(page, state):
    """Wait until the page shows the session in that state."""
    await page.get_by_text(f"State: {state}", exact=True).wait_for()


async def test_a_boundary_is_shown_before_the_step_that_begins_a_trajectory(page):
    """The third step, of another subgoal, begins a trajectory; what is as before is not told."""
    third = page.locator(".steps > li").nth(2)
    await third.get_by_text("a new trajectory begins here").wait_for()
    assert await page.locator(".steps .boundary").count() == 1
    told = await page.locator(".steps > li").evaluate_all(
        "all => all.map((one) => one.querySelector('.origin').innerText)"
    )
    wanted = (f"subgoal: {TRIP}", None, f"subgoal: {BUILD}")
    for one, subgoal in zip(told, wanted, strict=True):
        assert subgoal in one if subgoal else "subgoal" not in one
    assert "reward 0.50" in told[0]


async def test_what_a_commit_would_add_is_shown_before_it(page, session):
    """Close, see facts and instructions that recall does not know yet, commit: they are stored."""
    await page.get_by_role("button", name="Close and extract").click()
    added = page.get_by_role("region", name="What a commit would add")
    await added.get_by_text("tokyo trains").first.wait_for()
    assert await added.get_by_text("fact", exact=True).count() == 3
    assert await added.get_by_text("instruction", exact=True).count() == 2
    assert await added.get_by_text(SCRIPT).count() == 2
    await page.get_by_text("Recall does not know the facts below").wait_for()
    await page.get_by_role("button", name="Commit").click()
    await now(page, "idle")
    await added.wait_for(state="detached")
    await page.get_by_text("committed or discarded").wait_for()
    assert await page.title() != "owned"


async def test_a_failed_extraction_is_retried_then_discarded_with_two_clicks(page, model, session):
    """The failure is named; a retry extracts; the first click on Discard only asks."""
    model.script("semantic", ModelUnavailable("the model is down"))
    await page.get_by_role("button", name="Close and extract").click()
    await now(page, "failed")
    card = page.get_by_role("region", name="State")
    await card.get_by_text("the model is down").wait_for()
    await card.get_by_text("3 steps are kept; nothing was written.").wait_for()
    model.script("semantic", facts)
    await page.get_by_role("button", name="Retry", exact=True).click()
    await now(page, "ready")
    await page.get_by_role("button", name="Discard …").click()
    sure = page.get_by_role("button", name="Discard for good?")
    await sure.wait_for()
    assert session.state == "ready"
    await sure.click()
    await now(page, "idle")
    assert await page.locator(".failure, .card.bad").count() == 0


async def test_a_failed_extraction_is_retried_without_the_model(page, model, session):
    """The model is still down: the built-in way extracts, and what it found can be committed."""
    model.script("semantic", ModelUnavailable("the model is down"))
    await page.get_by_role("button", name="Close and extract").click()
    await now(page, "failed")
    await page.get_by_role("button", name="Retry without the model").click()
    await now(page, "ready")
    await page.get_by_role("button", name="Commit").click()
    await now(page, "idle")
    model.script("semantic", facts)


async def test_operations_that_wait_are_shown_in_their_order_until_they_end(page, model, session):
    """While an extraction is held, what was asked for meanwhile waits; then it runs."""
    model.block("semantic")
    await page.get_by_role("button", name="Close and extract").click()
    await now(page, "extracting")
    session.commit_async()
    last = session.start_episode_async("rest")
    await page.get_by_text("Queue: commit → start episode.").wait_for()
    model.unblock("semantic")
    await last
    await page.get_by_text("Queue: no operation waits.").wait_for()
    await now(page, "collecting")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (360, 740)])
async def test_the_button_of_a_failed_session_is_in_the_first_600_pixels(
    browser, server, model, session, width, height
):
    """The view opens on what failed: its error and Retry stand above, whatever else there is."""
    repo = server.memory.repo(session.repo_id)
    for n in range(30):
        await repo.start_session(f"go on {n}")
    model.script("semantic", ModelUnavailable("the model is down"))
    await session.close()
    await session.wait_for("failed")
    async with inspected(browser, server, size=(width, height)) as inspector:
        for params in ({}, {"session": session.id}):
            await inspector.open("sessions", repo=repo.id, **params)
            retry = inspector.page.get_by_role("button", name="Retry", exact=True)
            box = await retry.bounding_box()
            assert box["y"] + box["height"] <= 600
            assert await inspector.page.evaluate("scrollY") == 0
        assert "1 session failed" in await inspector.page.locator("h1").inner_text()
        await inspector.open("overview", repo=repo.id)
        box = await inspector.page.get_by_role("button", name="Retry").first.bounding_box()
        assert box["y"] + box["height"] <= 600
    await session.discard()

"""What the page keeps within bounds, with smaller ones: drafts, what is selected, steps."""

import re
from pathlib import Path

import pytest
import pytest_asyncio
from inspector_kit import inspected, served

import mnemo.web
from mnemo import Changeset, Semantic

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

VIEWS = Path(mnemo.web.__file__).parent / "static" / "views"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    """One server for all tests of this file; each test has a repository of its own."""
    async with served() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def repo(server, request):
    """An empty repository."""
    return await server.memory.open_repo(request.node.name)


async def bound(page, view, **bounds):
    """Serve the script of a view with other numbers in its constants; what it does is its own."""
    text = (VIEWS / f"{view}.js").read_text(encoding="utf-8")
    for name, number in bounds.items():
        text, count = re.subn(rf"(?m)^const {name} = [\d_]+;", f"const {name} = {number};", text)
        assert count == 1, name

    async def answer(route):
        await route.fulfill(body=text, content_type="text/javascript")

    await page.route(f"**/views/{view}.js", answer)
    await page.reload()


async def filled(repo, count):
    """Ids of so many facts, in the order in which they are listed."""
    facts = [Semantic(f"Lantern {number} hangs here.") for number in range(count)]
    await repo.apply(Changeset(tuple(facts)))
    return [memory.id for memory in await repo.memories()]


async def test_the_last_drafts_are_kept(browser, server, repo):
    """The first of one too many is gone, the others are as they were typed."""
    ids = await filled(repo, 3)
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await bound(page, "memories", MOST_DRAFTS=2)
        for number, id in enumerate(ids):
            await inspector.open("memories", repo=repo.id, id=id)
            await page.get_by_role("button", name="Correct").click()
            await page.get_by_label("New wording").fill(f"Mine is {number}.")
        for number, id in list(enumerate(ids))[1:]:
            await inspector.open("memories", repo=repo.id, id=id)
            assert await page.get_by_label("New wording").input_value() == f"Mine is {number}."
        await inspector.open("memories", repo=repo.id, id=ids[0])
        await page.get_by_role("button", name="Correct").wait_for()
        assert await page.get_by_label("New wording").count() == 0


async def test_a_selection_takes_no_more_than_a_call_does(browser, server, repo):
    """One too many is not taken in; one that is taken out makes room."""
    await filled(repo, 3)
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await bound(page, "memories", MOST_SHOWN=2)
        await inspector.open("memories", repo=repo.id)
        boxes = page.get_by_role("checkbox", name="Select: ")
        chosen = page.get_by_role("region", name="Selection")
        for number in range(3):
            await boxes.nth(number).click()
        await chosen.get_by_text("2 selected").wait_for()
        await inspector.settled()
        assert await chosen.get_by_text("2 selected").count() == 1
        await boxes.nth(0).click()
        await chosen.get_by_text("1 selected").wait_for()
        await boxes.nth(2).click()
        await chosen.get_by_text("2 selected").wait_for()


async def test_the_first_steps_of_a_session_are_shown(browser, server, repo):
    """A page more at each press, up to a bound, which is told then."""
    session = await repo.start_session("count the lanterns")
    for number in range(5):
        await session.append(f"Lantern {number} hangs here.", "")
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await bound(page, "sessions", PAGE=2, MOST_STEPS=4)
        await inspector.open("sessions", repo=repo.id, session=session.id)
        await page.get_by_text("Lantern 1 hangs here.").first.wait_for()
        assert await page.get_by_text("Lantern 2 hangs here.").count() == 0
        await page.get_by_role("button", name="Show more steps").click()
        await page.get_by_text("Lantern 3 hangs here.").first.wait_for()
        await page.get_by_text("the first 4 steps").wait_for()
        assert await page.get_by_text("Lantern 4 hangs here.").count() == 0
        assert await page.get_by_role("button", name="Show more steps").count() == 0

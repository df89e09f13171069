"""What the inspector says of itself: a stranger finds each of its words explained on the page."""

import re
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from inspector_kit import VIEWS, inspected

from mnemo import Changeset, Semantic
from mnemo.errors import ModelUnavailable
from mnemo.testing import ScriptedChatModel

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest_asyncio.fixture(loop_scope="module")
async def repo(server, request):
    """Ada in sessions that are committed, ready and open, and in a conversation."""
    repo = await server.memory.open_repo(request.node.name)
    trip = await repo.start_session("plan a trip", session_id=f"{repo.id}/trip")
    for n, seen in enumerate(("I live in Lund. I swim.", "I play the cello.", "I have a cat.")):
        await trip.append(seen, "Noted it", at=START + timedelta(days=n), actor="Ada")
    await trip.close_and_commit()
    meal = await repo.start_session("choose a meal", session_id=f"{repo.id}/meal")
    await meal.append("I like soup.", "Looked for soup", at=START, actor="Ada")
    await meal.close()
    await meal.wait_for("ready")
    bags = await repo.start_session("pack", session_id=f"{repo.id}/bags")
    await bags.append("I take a coat.", "", at=START, actor="Ada")
    await repo.conversation("chat").append(
        [{"role": "user", "content": f"Day {n}."} for n in "abc"]
    )
    await repo.remember("I ski.", actor="Ada", thread_id="chat", at=START, wait=True)
    return repo


async def test_every_view_says_what_it_shows(inspector, repo):
    """Under its title each view has a sentence of its own."""
    said = []
    for view in VIEWS:
        await inspector.open(view, repo=repo.id)
        said.append(await inspector.page.locator("h1 + .about").inner_text())
    assert len(set(said)) == len(VIEWS)
    assert all(said)


async def test_the_overview_counts_what_is_extracted_and_names_what_is_not(inspector, repo):
    """Steps that facts came from, messages that no session has, and where each memory is from."""
    text = await inspector.open("overview", repo=repo.id)
    assert "4 of 6 steps are extracted and committed" in text
    assert "All steps and 4 messages are kept as they were said" in text
    waiting = inspector.page.locator("section[aria-labelledby=unextracted] .rows > li")
    told = await waiting.all_inner_texts()
    assert [row.split()[0] for row in told] == ["ready", "collecting", "3"]
    assert told[-1].startswith("3 messages of conversations are in no session")
    known = inspector.page.locator("section[aria-labelledby=known] .rows > li")
    await (
        known.filter(has_text="Ada skis.").get_by_role("link", name="conversation chat").wait_for()
    )
    await known.filter(has_text="cello").get_by_role("link", name=f"session {repo.id}/trip").click()
    await inspector.page.get_by_role("heading", name="One session").wait_for()


async def test_what_has_failed_is_named_before_what_goes_on(browser, server):
    """Among more open sessions than are listed, the oldest, which failed, stands first."""
    model = ScriptedChatModel()
    model.script("semantic", ModelUnavailable("the model is down"))
    repo = await server.memory.open_repo("many", chat_model=model)
    failed = await repo.start_session("fail")
    await failed.append("seen", "done")
    await failed.close()
    await failed.wait_for("failed")
    for n in range(21):
        await repo.start_session(f"go on {n}")
    async with inspected(browser, server) as inspector:
        text = await inspector.open("overview", repo="many")
        rows = inspector.page.locator("section[aria-labelledby=unextracted] .rows > li")
        assert "session fail could not be extracted" in await rows.first.inner_text()
        assert await rows.count() == 20
        assert "20 of 22 unfinished sessions are shown." in text


async def test_a_recall_explains_every_name_that_it_shows(inspector, repo):
    """Each bar, kind and phase stands in the list of words, with a meaning."""
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    page = inspector.page
    await page.locator("main details").evaluate_all("all => all.forEach(one => one.open = true)")
    bars = await page.locator(".bar > span:first-child").all_inner_texts()
    kinds = await page.locator(".candidates .badge").all_inner_texts()
    terms = await page.locator(".terms dt").all_inner_texts()
    assert "\N{MIDDLE DOT} shared words" in bars
    assert {*bars, *kinds} <= {*terms, "ended"}
    assert all(await page.locator(".terms dd").all_inner_texts())
    found = await repo.recall("Where does Ada live?", explain=True)
    assert "multi_hop 1" in found.trace.found
    told = await page.locator(".facts").first.inner_text()
    assert "over the graph, hop 1" in told


async def test_a_session_explains_its_state_and_leads_to_what_came_of_it(inspector, repo):
    """The list has a legend of the states in it; a session leads to its memories."""
    await inspector.open("sessions", repo=repo.id, session=f"{repo.id}/trip")
    page = inspector.page
    legend = await page.locator(".states dt").all_inner_texts()
    assert sorted(legend) == ["collecting", "idle", "ready"]
    assert await page.locator(".states dd").count() == 3
    await page.get_by_role("link", name="Memories from this session").click()
    await page.get_by_role("link", name="Ada plays the cello.").wait_for()
    assert await page.get_by_role("link", name="Ada skis.").count() == 0
    await inspector.open("sessions", repo=repo.id, session=f"{repo.id}/bags")
    await page.get_by_text("Step 0, Ada:").wait_for()


async def test_a_list_of_memories_says_whether_it_is_all_of_them(inspector, repo):
    """While older memories were not looked through, the page says so; then that these are all."""
    facts = [Semantic(f"Lantern {n} hangs in room {n}.") for n in range(201)]
    await repo.apply(Changeset(tuple(facts)))
    page = inspector.page
    await inspector.open("memories", repo=repo.id, words="lantern")
    await page.get_by_text("of the newest 200. “Load more” looks through older ones.").wait_for()
    await page.get_by_role("button", name="Load more").click()
    await page.get_by_text("201 memories shown, newest first: all that match.").wait_for()


async def test_the_legend_of_the_graph_says_what_its_lines_and_colours_mean(inspector, repo):
    """Kinds of edges and communities stand there in words, the library's name beside them."""
    await inspector.open("graph", repo=repo.id)
    legend = await inspector.page.locator(".legend").inner_text()
    for words in ("a tag and its fact (membership)", "facts that were said together (sibling)"):
        assert words in legend, words
    assert "tied to each other more than to others" in legend
    await inspector.page.get_by_text(re.compile(r"All \d+ marks\.")).wait_for()


async def test_days_of_a_filter_are_those_that_the_page_shows(browser, server, repo):
    """In a time zone far from UTC a memory is found by the day that stands beside it."""
    context = await browser.new_context(timezone_id="Pacific/Auckland")
    page = await context.new_page()
    night = datetime(2026, 5, 4, 20, tzinfo=UTC)  # the fifth in Auckland
    await repo.remember("I row.", actor="Ada", at=night, wait=True)
    await page.goto(f"{server.url}/#token={server.tokens['all']}")
    for day, found in (("2026-05-04", 0), ("2026-05-05", 1)):
        await page.goto(f"{server.url}/#/memories?repo={repo.id}&since={day}&until={day}")
        await page.get_by_text("1 memory shown" if found else "0 memories shown").wait_for()
        assert await page.get_by_role("row", name="since 2026-05-05").count() == found
    await context.close()

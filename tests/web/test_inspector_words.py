"""What the inspector says of itself: a stranger finds each of its words explained on the page."""

import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
from inspector_kit import VIEWS, inspected, served

from mnemo import Changeset, Semantic
from mnemo.repository import jobs
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


async def test_every_view_says_behind_a_question_mark_what_it_shows(inspector, repo):
    """The key opens a sentence of the view's own, and the keys; Escape closes it."""
    said = []
    for view in VIEWS:
        await inspector.open(view, repo=repo.id)
        await inspector.page.keyboard.press("?")
        said.append(await inspector.page.locator("dialog .about").inner_text())
        await inspector.page.keyboard.press("Escape")
    assert len(set(said)) == len(VIEWS)
    assert all(said)


async def test_keys_of_one_letter_can_be_switched_off(inspector, repo):
    """Then they do nothing, also after a reload."""
    page = inspector.page
    await inspector.open("overview", repo=repo.id)
    await page.keyboard.press("?")
    await page.get_by_label("Keys of one letter are off").check()
    await page.keyboard.press("Escape")
    await page.reload()
    await inspector.settled()
    await page.keyboard.press("g")
    await page.keyboard.press("m")
    await page.keyboard.press("/")
    assert await page.locator("main").get_attribute("data-view") == "overview"
    assert await page.evaluate("document.activeElement === document.body")


async def test_the_overview_names_what_waits_for_a_hand(inspector, repo):
    """A session to commit stands there with its button; messages in no session are no trouble."""
    await inspector.open("overview", repo=repo.id)
    troubles = inspector.page.get_by_role("region", name="What failed and what waits")
    row = troubles.locator(".trouble").filter(has_text=repo.id)
    assert "choose a meal" in await row.inner_text()
    assert "recall knows it once it is committed" in await row.inner_text()
    await row.get_by_role("link").click()
    await inspector.page.get_by_role("heading", name="choose a meal").wait_for()


async def test_what_has_failed_is_named_before_what_goes_on(browser, server):
    """Among many open sessions the oldest, which failed, stands first and is opened."""
    repo = await server.memory.open_repo("many", chat_model=ScriptedChatModel())
    failed = await repo.start_session("fail")
    await failed.append("seen", "done")
    await failed.close()
    await failed.wait_for("failed")
    await repo.start_session("rest a while")
    for n in range(69):
        await repo.start_session(f"go on {n}")
    async with inspected(browser, server) as inspector:
        page = inspector.page
        text = await inspector.open("sessions", repo="many")
        assert text.startswith("1 session failed")
        rows = page.get_by_role("region", name="List").locator(".row")
        assert "fail" in await rows.first.inner_text()
        state = page.get_by_role("region", name="State")
        await state.get_by_text("Nothing is scripted for annotate").wait_for()
        await page.get_by_role("button", name="Load more").click()
        await rows.nth(70).wait_for()
        await page.get_by_role("searchbox", name="Goal or first words").fill("while rest")
        await rows.first.get_by_text("rest a while").wait_for()
        assert await rows.count() == 1
    await failed.discard()


async def test_a_session_leads_to_what_came_of_it(inspector, repo):
    """A remembered session has its first words for a name; each leads to its memories."""
    await inspector.open("sessions", repo=repo.id, session=f"{repo.id}/trip")
    page = inspector.page
    rows = page.get_by_role("region", name="List").locator(".row")
    await rows.get_by_text("I ski.").wait_for()
    await page.get_by_role("link", name="Memories from this session").click()
    await page.get_by_role("link", name="Ada plays the cello.").wait_for()
    assert await page.get_by_role("link", name="Ada skis.").count() == 0
    await inspector.open("sessions", repo=repo.id, session=f"{repo.id}/bags")
    await page.locator(".steps").get_by_text("I take a coat.").wait_for()


async def test_a_list_of_memories_says_whether_it_is_all_of_them(inspector, repo):
    """While there are older ones the page says so; then that these are all."""
    facts = [Semantic(f"Lantern {n} hangs in room {n}.") for n in range(61)]
    await repo.apply(Changeset(tuple(facts)))
    page = inspector.page
    await inspector.open("memories", repo=repo.id, words="lantern")
    await page.get_by_text("newest 50 that match").wait_for()
    await page.get_by_role("button", name="Load more").click()
    await page.get_by_text("61 memories: all that match").wait_for()
    await inspector.open("memories", repo=repo.id)
    await page.get_by_text("newest 50 of ").wait_for()
    await page.get_by_role("button", name="Load more").click()
    await page.get_by_text("memories: all there are").wait_for()


async def test_seldom_filters_come_when_they_are_asked_for_and_stay_where_they_are_set(
    inspector, repo
):
    """Order and days stand behind one chip; the oldest first is the other end of the list."""
    await repo.apply(Changeset((Semantic("The oak tree is old."),)))
    await repo.apply(Changeset((Semantic("The fir tree is new."),)))
    page = inspector.page
    await inspector.open("memories", repo=repo.id, words="tree")
    assert await page.get_by_label("order").count() == 0
    await page.get_by_role("button", name="+ filter").click()
    await page.get_by_label("order").select_option("oldest first")
    rows = page.locator("main .row")
    await rows.first.filter(has_text="The oak tree is old.").wait_for()
    assert "order=oldest" in page.url
    await page.reload()
    await rows.first.filter(has_text="The oak tree is old.").wait_for()
    assert await page.get_by_role("button", name="+ filter").count() == 0


async def test_of_many_threads_the_last_are_listed_and_all_are_found(inspector, repo):
    """The list has an end, and says so; a name leads to what is behind it."""
    for number in range(202):
        await repo.conversation(f"talk-{number:03}").append({"role": "user", "content": "Hello."})
    page = inspector.page
    await inspector.open("threads", repo=repo.id)
    await page.get_by_text("the last 200 of 203; others are found by their name").wait_for()
    assert await page.locator("main .row").count() == 200
    await page.get_by_role("searchbox", name="Thread").fill("talk-001")
    await page.locator("main .row").filter(has_text="talk-001").wait_for()
    assert await page.locator("main .row").count() == 1


async def test_a_long_question_is_seen_whole_and_asked_by_enter(browser, server, repo):
    """On a telephone, too: the field grows; a new line is made with Shift alone."""
    async with inspected(browser, server, size=(360, 740)) as inspector:
        page = inspector.page
        await inspector.open("recall", repo=repo.id)
        field = page.get_by_label("Question")
        low = (await field.bounding_box())["height"]
        await field.fill("Which of the many coats that were ever mentioned does she take to Tokyo?")
        assert (await field.bounding_box())["height"] >= 2.5 * 22 > low
        await field.press("Enter")
        await page.get_by_role("heading", name="Prompt text").wait_for()
        assert "query=Which+of" in page.url


async def test_selected_memories_are_forgotten_together(inspector, repo):
    """What goes is quoted before; then it is erased, and the page says what was."""
    page = inspector.page
    kept = await repo.add_memory("The mill is old.")
    for text in ("The quince is ripe.", "The quince is sour."):
        await repo.add_memory(text)
    await inspector.open("memories", repo=repo.id, words="quince")
    for text in ("ripe", "sour"):
        await page.get_by_role("checkbox", name=f"Select: The quince is {text}.").check()
    await page.get_by_text("2 selected").wait_for()
    await page.get_by_role("button", name="Forget …").click()
    goes = page.get_by_role("region", name="Forget")
    for text in ("ripe", "sour"):
        await goes.get_by_text(f"The quince is {text}.").wait_for()
    await goes.get_by_role("button", name="Erase for good").click()
    await page.get_by_text("Erased: 2 facts.").wait_for()
    await page.get_by_text("No memory matches").wait_for()
    assert (await repo.memory(kept.id)).text == "The mill is old."


async def test_selected_memories_are_exported_and_copied_as_curl(inspector, repo):
    """The file has a line of JSON for each; each command reads one memory."""
    texts = {"The plum is blue.", "The plum is sweet."}
    ids = {(await repo.add_memory(text)).id for text in texts}
    page = inspector.page
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await inspector.open("memories", repo=repo.id, words="plum")
    for text in texts:
        await page.get_by_role("checkbox", name=f"Select: {text}").check()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export").click()
    lines = (await (await download.value).path()).read_text("utf-8").splitlines()
    assert {json.loads(line)["text"] for line in lines} == texts
    await page.get_by_role("button", name="Copy as curl").click()
    await page.get_by_role("button", name="copied").wait_for()
    commands = (await page.evaluate("navigator.clipboard.readText()")).splitlines()
    asked = [parse_qs(urlsplit(command.split("'")[1]).query) for command in commands]
    assert {one["id"][0] for one in asked} == ids
    assert {one["repo"][0] for one in asked} == {repo.id}


async def test_repositories_are_sorted_by_every_column(inspector, server, repo):
    """Each head sorts, down and then up, and says which way."""
    await repo.remember("I knit.", actor="Ada", wait=True)
    for id in server.memory.list_repos():
        await server.memory.repo(id).settle()  # facts of earlier tests are counted meanwhile
    page = inspector.page
    await inspector.open("overview", repo=repo.id)
    table = page.get_by_role("region", name="Repositories").locator("table")
    heads = await table.locator("thead th").all_inner_texts()
    assert [head.strip(" ↓") for head in heads] == [
        *("Name", "Failed", "To commit", "Waiting", "Facts", "Last write"),
    ]  # fmt: skip
    for place in (0, 4):
        seen = []
        for way in ("descending", "ascending"):
            await table.locator("thead button").nth(place).click()
            await table.locator(f"th[aria-sort={way}]").nth(0).wait_for()
            rows = table.locator("tbody tr")  # read at once: what others forget may change counts
            seen.append(await rows.evaluate_all(f"all => all.map(r => r.cells[{place}].innerText)"))
        order = [[int(one.replace(",", "")) if place else one for one in some] for some in seen]
        assert order == [sorted(order[0], reverse=True), sorted(order[1])]
        assert place or set(order[0]) == set(order[1])


async def test_days_of_a_filter_are_those_that_the_page_shows(browser, server, repo):
    """In a time zone far from UTC a memory is found by the day that stands beside it."""
    context = await browser.new_context(timezone_id="Pacific/Auckland")
    page = await context.new_page()
    night = datetime(2026, 5, 4, 20, tzinfo=UTC)  # the fifth in Auckland
    await repo.remember("I row.", actor="Ada", at=night, wait=True)
    await page.goto(f"{server.url}/#token={server.tokens['all']}")
    for day, found in (("2026-05-04", 0), ("2026-05-05", 1)):
        await page.goto(f"{server.url}/#/memories?repo={repo.id}&since={day}&until={day}")
        await page.get_by_text("1 memory: all" if found else "No memory matches").wait_for()
        assert await page.get_by_role("link", name="5 May").count() == found
    await context.close()


async def test_what_waits_is_told_and_not_that_there_is_nothing(browser):
    """How many messages wait, and for what; the list of facts says when they come."""
    async with served(jobs={"quiet_s": 3_600}) as server, server.client() as client:
        for thread in ("a", "b"):
            said = {"content": f"I live in {thread}.", "thread_id": thread}
            assert (await client.post("/v1/remember?repo=later", json=said)).is_success
        async with inspected(browser, server) as inspector:
            page = inspector.page
            await inspector.open("overview", repo="later")
            backlog = page.get_by_role("region", name="Backlog")
            await backlog.get_by_text(
                "2 messages wait, until nothing more is said for a moment."
            ).wait_for()
            row = page.get_by_role("region", name="Repositories").locator("tbody tr")
            assert await row.locator("td").nth(2).inner_text() == "2"
            for view in ("memories", "people"):
                told = await inspector.open(view, repo="later")
                assert "2 conversations wait. What is said becomes facts once" in told


async def test_the_rate_of_a_slow_model_and_when_it_is_done_are_told(browser, monkeypatch):
    """Those of the service, on the page; what waits is never told as that there is nothing."""
    monkeypatch.setattr(jobs, "RATE_S", 1e6)  # a slow machine forgets nothing meanwhile
    model = ScriptedChatModel.answering({"semantic": {"facts": []}})
    async with served(model, jobs={"quiet_s": 0}) as server, server.client() as client:

        async def levels():
            return (await client.get("/v1/statistics?repo=slow")).json()["jobs"]

        async def say(*texts, **more):
            body = {"content": texts, "thread_id": "chat"} | more
            assert (await client.post("/v1/remember?repo=slow", json=body)).is_success

        await say("I live in Lund.", "I row.", wait=True)
        model.block("semantic")
        await say(*(f"Crate {number} is full." for number in range(5)))
        async with inspected(browser, server) as inspector:
            page = inspector.page
            before = await levels()
            await inspector.open("overview", repo="slow")
            backlog = page.get_by_role("region", name="Backlog")
            await backlog.get_by_text("5 messages wait").wait_for()
            told = await backlog.inner_text()
            after = await levels()
            rate = re.search(r"; ([\d.]+) a (second|minute|hour), done in about (\d+) (\w+)", told)
            assert rate, told
            per_s = float(rate[1]) / {"second": 1, "minute": 60, "hour": 3_600}[rate[2]]
            assert 0.94 * after["per_s"] <= per_s <= 1.06 * before["per_s"]
            unit_s = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}[rate[4]]
            at_least, at_most = ((int(rate[3]) + half) * unit_s for half in (-0.5, 0.5))
            assert at_least <= after["seconds_left"]
            assert before["seconds_left"] <= at_most
            for view in VIEWS:
                assert "no fact" not in (await inspector.open(view, repo="slow")).lower()
            assert (await levels())["messages"] == 5
            model.unblock()
            await inspector.open("overview", repo="slow")
            await backlog.wait_for(state="detached")

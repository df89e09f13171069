"""The inspector while the store changes: Overview's numbers, failures, and a stream that breaks."""

import json
import signal

import anyio
import pytest
import pytest_asyncio
from cut_proxy import CutProxy
from helpers import TRIP, annotating, repository
from http_kit import unused_port
from inspector_kit import inspected, inspected_at, served

from mnemo import Changeset, Message, Semantic
from mnemo.errors import ExtractionFailed, ModelUnavailable
from mnemo.testing import ScriptedChatModel
from mnemo.web import new_token, token_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

SILENT_MS = 51_000


@pytest.fixture(scope="module")
def model():
    """Every step serves the same subgoal."""
    return ScriptedChatModel.answering({"annotate": annotating([TRIP])})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(model):
    """One server for all tests of this file, with a chat model."""
    async with served(model, annotation={"batch_size": 1}) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def repo(server, request):
    """An empty repository."""
    return await server.memory.open_repo(request.node.name)


async def facts(inspector, repo_id, count):
    """Wait until the Overview's row of a repository has that number of facts."""
    rows = inspector.page.get_by_role("region", name="Repositories").locator("tbody tr")
    row = rows.filter(has=inspector.page.get_by_role("link", name=repo_id, exact=True))
    await row.locator("td").nth(3).get_by_text(count, exact=True).wait_for()


async def live(inspector):
    """Wait until the page follows its stream."""
    await inspector.page.get_by_text("live", exact=True).wait_for()


async def told(inspector, last):
    """The seqs that the list of events tells of, oldest first, once it has the last of them."""
    page = inspector.page
    words = page.get_by_role("searchbox", name="Words")
    await words.fill(f'changes ["chat",{last}]')
    await page.locator(".events > li").first.wait_for()
    await words.fill("changes")
    shown = page.locator(".events details")
    await shown.evaluate_all("all => all.forEach((one) => { one.open = true; })")
    await page.locator(".events pre").nth(await shown.count() - 1).wait_for()
    rows = await page.locator(".events pre").all_inner_texts()
    return [seq for row in reversed(rows) for _, seq in json.loads(row)["messages"]]


async def said(repo, number):
    """Append a message to the only conversation; its text says which it is."""
    await repo.conversation("chat").append([Message(role="user", content=f"Day {number}.")])


async def test_the_overview_follows_the_store_and_tells_what_came_in_and_went_out(
    browser, server, repo
):
    """What is stored is counted without a reload; messages and recalls of all repositories come."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("overview", repo=repo.id)
        await live(inspector)
        await page.evaluate("window.isTheSame = true")
        await repo.remember(["I play the cello.", "I live in Lund."], actor="Ada", wait=True)
        await facts(inspector, repo.id, "2")
        news = page.get_by_role("region", name="Just now")
        await news.get_by_role("link", name="in I live in Lund.").wait_for()
        other = await server.memory.open_repo(f"{repo.id} other")
        await other.recall("Where does Eva live?")
        went = news.get_by_role("link", name="out Where does Eva live?")
        await went.get_by_text("nothing found").wait_for()
        await repo.recall("Where does Ada live?")
        await news.get_by_role("link", name="out Where does Ada live?").click()
        await page.get_by_role("heading", name="Why line 1").wait_for()
        assert await page.evaluate("isTheSame")


async def test_failures_of_one_cause_stand_first_on_the_overview_and_are_retried_together(
    browser, server, model, repo
):
    """Two sessions fail alike: one cause, one button; when both are done, all is well again."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("overview", repo=repo.id)
        await live(inspector)
        troubles = page.get_by_role("region", name="What failed and what waits")
        sessions = []
        for goal in ("plan a trip", "plan another"):
            model.script("semantic", ModelUnavailable("the model is down"))
            session = await repo.start_session(goal)
            await session.append("tokyo trains", "")
            await session.close()
            await session.wait_for("failed", timeout_s=15)
            sessions.append(session)
        await troubles.get_by_text("One cause: the model is down").wait_for()
        assert "plan another" in await troubles.inner_text()
        assert (await troubles.bounding_box())["y"] < 120
        model.script("semantic", {"facts": []})
        await troubles.get_by_role("button", name="Retry both").click()
        for session in sessions:
            await session.wait_for("ready", timeout_s=15)
        waits = "2 sessions to commit. The rest is well."
        await page.get_by_role("heading", level=1, name=waits).wait_for()
        await troubles.get_by_text("to commit", exact=True).nth(1).wait_for()
        for session in sessions:
            await (
                troubles.locator(".trouble")
                .filter(has_text=session.goal)
                .get_by_role("button", name="Commit")
                .click()
            )
            await session.wait_for("idle", timeout_s=15)
        await page.get_by_role("heading", level=1, name="All is well.").wait_for()
        assert await troubles.count() == 0


async def test_a_conversation_that_is_tried_again_is_listed_as_often_as_it_is_counted(
    browser, server, model, repo
):
    """Its job and its session are one failure, with a button that tries it now."""
    model.script("semantic", ModelUnavailable("the model rests"))
    with pytest.raises(ExtractionFailed):
        await repo.remember("I row.", thread_id="boat", wait=True)
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("overview", repo=repo.id)
        trouble = page.locator(".trouble").filter(has_text=repo.id)
        await trouble.get_by_text("the model rests · is tried again by itself").wait_for()
        assert await trouble.count() == 1
        rows = page.get_by_role("region", name="Repositories").locator("tbody tr")
        row = rows.filter(has=page.get_by_role("link", name=repo.id, exact=True))
        assert await row.locator("td").first.inner_text() == "1"
        model.script("semantic", {"facts": []})
        await trouble.get_by_role("button", name="Retry").click()
        await trouble.wait_for(state="detached")
        await row.locator("td").first.get_by_text("0", exact=True).wait_for()


async def test_rows_of_sessions_stay_where_they_are_while_steps_arrive(browser, server, repo):
    """The list does not move under the pointer; a new session comes first in its group."""
    async with inspected(browser, server) as inspector:
        rows = inspector.page.get_by_role("region", name="List").locator(".row")
        first = await repo.start_session("pack", session_id=f"{repo.id}/1")
        await first.append("a bag", "")
        await repo.settle()  # its annotation is a change of the session too
        await (await repo.start_session("fly", session_id=f"{repo.id}/2")).append("a plane", "")
        await inspector.open("sessions", repo=repo.id)
        goals = rows.locator(":scope > :first-child")
        assert await goals.all_inner_texts() == ["fly", "pack"]
        await first.append("a coat", "")
        await rows.nth(1).get_by_text("2 steps", exact=True).wait_for()
        assert await goals.all_inner_texts() == ["fly", "pack"]
        await repo.start_session("rest", session_id=f"{repo.id}/3")
        await goals.get_by_text("rest").wait_for()
        assert await goals.all_inner_texts() == ["rest", "fly", "pack"]


async def test_what_is_typed_stays_while_the_page_renews(browser, server, repo):
    """A field keeps its text and the focus when rows arrive; another address fills it anew."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("memories", repo=repo.id, words="cello")
        await live(inspector)
        words = page.get_by_role("searchbox", name="Words")
        await words.fill("Ada plays")
        await page.wait_for_url("**words=Ada+plays")
        await repo.add_memory("Ada plays the cello.")
        await page.get_by_role("link", name="Ada plays the cello.").wait_for()
        await inspector.settled()
        assert await words.input_value() == "Ada plays"
        assert await words.evaluate("field => field === document.activeElement")
        await page.get_by_label("replaced ones too").check()
        await page.wait_for_url("**words=Ada+plays&**replaced=1")
        await page.go_back()
        await page.wait_for_url("**words=Ada+plays")
        await inspector.settled()
        replaced = page.get_by_label("replaced ones too")
        assert (await words.input_value(), await replaced.is_checked()) == ("Ada plays", False)


async def test_more_pages_stay_through_renewals(browser, server, repo):
    """What "Load more" brought is still there when the store changes, behind what is new."""
    lanterns = [Semantic(f"Lantern {n} hangs in room {n}.") for n in range(120)]
    await repo.apply(Changeset(tuple(lanterns)))
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("memories", repo=repo.id)
        await live(inspector)
        rows = page.get_by_role("region", name="List").locator("li .row")
        assert await rows.count() == 50
        await page.get_by_role("button", name="Load more").click()
        await rows.nth(99).wait_for()
        await repo.add_memory("Ada plays the cello.")
        await rows.first.get_by_text("Ada plays the cello.").wait_for()
        await inspector.settled()
        assert await rows.count() == 100


async def test_a_draft_survives_another_version_and_shows_both(browser, server, repo):
    """What was typed stays beside what came meanwhile; it is saved as the version after that."""
    memory = await repo.add_memory("Pine Bay has two pitches left, 38 a night.")
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("memories", repo=repo.id, id=memory.id)
        await live(inspector)
        await page.get_by_role("button", name="Correct").click()
        mine = "Pine Bay has one pitch left, 42 a night."
        await page.get_by_label("New wording").fill(mine)
        await repo.update_memory(memory.id, "Pine Bay has two pitches left, 42 a night.")
        await page.get_by_text("It changed while you wrote.").wait_for()
        await page.get_by_role("status").get_by_text("two pitches left, 42 a night").wait_for()
        assert await page.get_by_label("New wording").input_value() == mine
        await inspector.open("notes", repo=repo.id)
        await inspector.open("memories", repo=repo.id, id=memory.id)
        assert await page.get_by_label("New wording").input_value() == mine
        await page.get_by_role("button", name="Save mine as version 3").click()
        await page.locator(".wording").get_by_text("one").wait_for()
        assert (await repo.memory(memory.id)).text == mine


@pytest.mark.slow
async def test_words_find_a_memory_among_ten_thousand(browser, server, repo):
    """The oldest of 10,000 facts is found by its words, as soon as they are typed."""
    await repo.apply(Changeset((Semantic("The quince tree stands behind the mill."),)))
    facts = [Semantic(f"Lantern {n} hangs in room {n}.") for n in range(10_000)]
    await repo.apply(Changeset(tuple(facts)))
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("memories", repo=repo.id)
        await page.get_by_role("searchbox", name="Words").fill("mill quince")
        await page.get_by_role("link", name="The quince tree stands behind the mill.").wait_for()
        await page.get_by_text("1 memory: all that match").wait_for()


@pytest.mark.parametrize("step", [211, 463])
async def test_a_stream_cut_at_any_byte_is_resumed_and_tells_each_change_once(
    browser, server, repo, step
):
    """Wherever the connection ends, also within an event, none is missed and none comes twice."""
    async with (
        CutProxy(server.url) as proxy,
        inspected_at(browser, proxy.url, server.tokens["all"]) as inspector,
    ):
        await inspector.open("activity", repo=repo.id)
        await live(inspector)
        count = 0
        for cut in range(1, 7):
            proxy.cut_after(cut * step)
            while not proxy.has_cut.is_set():
                await said(repo, count)
                count += 1
                await proxy.moved()
            await said(repo, count)
            count += 1
        await live(inspector)
        await said(repo, count)
        assert await told(inspector, count) == list(range(count + 1))
        inspector.forgive("Failed to load resource")


async def test_a_stream_that_falls_silent_is_begun_again(browser, server, repo):
    """Nothing comes through and nothing says so: the page notices, and what it missed follows."""
    async with (
        CutProxy(server.url) as proxy,
        inspected_at(browser, proxy.url, server.tokens["all"]) as inspector,
    ):
        await inspector.page.clock.install()
        await inspector.page.reload()
        await inspector.open("activity", repo=repo.id)
        await live(inspector)
        proxy.hold()
        await said(repo, 0)
        await inspector.page.clock.fast_forward(SILENT_MS)
        assert await told(inspector, 0) == [0]


async def test_a_killed_server_that_returns_is_followed_from_where_it_stopped(
    browser, serve, tmp_path
):
    """What was stored meanwhile comes once; for a server with other tokens one is asked for."""
    secrets, port = (new_token(), new_token()), unused_port()

    def started(secret):
        hashed = token_of(secret, "all").sha256
        lines = f"[[tokens]]\nname = 'all'\nsha256 = '{hashed}'\nrights = 'write'\n"
        (tmp_path / "tokens.toml").write_text(lines)
        return serve("--token-file", "tokens.toml", "--store", "memory.db", port=port)

    async def stored(first, last):
        async with repository(tmp_path / "memory.db", "ada", workers=0, embedder="static") as repo:
            for n in range(first, last + 1):
                await said(repo, n)

    await stored(0, 1)
    server = await anyio.to_thread.run_sync(started, secrets[0])
    async with inspected_at(browser, server.url, secrets[0]) as inspector:
        page = inspector.page
        await inspector.open("activity", repo="ada")
        await live(inspector)
        await stored(2, 3)
        assert await told(inspector, 3) == [2, 3]
        await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
        await page.get_by_text("not connected", exact=True).wait_for()
        await page.get_by_role("alert").get_by_text("Not connected since").wait_for()
        await stored(4, 9)
        server = await anyio.to_thread.run_sync(started, secrets[0])
        await live(inspector)
        await stored(10, 11)
        assert await told(inspector, 11) == list(range(2, 12))
        await page.get_by_role("link", name="Overview").click()
        await page.get_by_role("region", name="Just now").get_by_text("Day 11.").wait_for()
        await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
        await anyio.to_thread.run_sync(started, secrets[1])
        await page.get_by_label("Token").fill(secrets[1])
        await page.get_by_role("button", name="Open").click()
        await live(inspector)
        await page.get_by_role("region", name="Just now").get_by_text("Day 11.").wait_for()
        inspector.forgive("Failed to load resource")


async def test_one_hairline_goes_through_all_curves_and_the_figures_are_of_that_minute(
    browser, server, repo
):
    """By keys and by the pointer; the same numbers stand in a table."""
    series = {
        "writes": [n % 7 for n in range(60)],
        "recalls": [2] * 60,
        "recall_p95_ms": [None] * 30 + [14.0] * 30,
        "waiting": [0] * 59 + [441],
        "failed": [1 if n == 58 else 0 for n in range(60)],
    }
    curves = {"step_s": 60, "from": 1_790_000_000, "series": series}
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await page.route("**/v1/curves?**", lambda route: route.fulfill(json=curves))
        await inspector.open("overview", repo=repo.id)
        group = page.get_by_role("group", name="Curves")
        figures = group.locator(".figure b")
        assert await figures.all_inner_texts() == ["2", "2", "14", "441", "1"]
        # As many may wait no longer.
        await group.get_by_text("441 at most").wait_for()
        assert await group.locator("canvas").count() == 5
        await group.press("ArrowLeft")
        await group.get_by_text("in this minute").wait_for()
        assert await figures.all_inner_texts() == ["2", "2", "14", "0", "1"]
        await group.press("ArrowLeft")
        await figures.first.get_by_text("1", exact=True).wait_for()
        assert await figures.all_inner_texts() == ["1", "2", "14", "0", "0"]
        box = await group.locator(".u-over").nth(1).bounding_box()
        await page.mouse.move(box["x"] + box["width"] * 10 / 59, box["y"] + 10)
        await figures.first.get_by_text("3", exact=True).wait_for()
        assert await figures.nth(2).inner_text() == "–"
        lines = await group.locator(".u-cursor-x").evaluate_all(
            "all => all.map((one) => Math.round(new DOMMatrix(one.style.transform).m41))"
        )
        assert max(lines) - min(lines) <= 1
        await page.get_by_text("as numbers").click()
        rows = page.get_by_role("region", name="as numbers").locator("tbody tr")
        await rows.nth(59).wait_for()
        assert await rows.count() == 60


async def test_the_numbers_of_the_curves_are_sorted_by_every_column(browser, server, repo):
    """By clicks and keys, down and then up; what was not measured is less than nothing."""
    columns = {
        "writes": [n * 7 % 60 for n in range(60)],
        "recalls": [n * 11 % 60 for n in range(60)],
        "recall_p95_ms": [None] * 30 + [n * 13 % 30 for n in range(30)],
        "waiting": [n * 17 % 60 for n in range(60)],
        "failed": [n * 23 % 60 for n in range(60)],
    }
    curves = {"step_s": 60, "from": 1_790_000_000, "series": columns}
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await page.route("**/v1/curves?**", lambda route: route.fulfill(json=curves))
        await inspector.open("overview", repo=repo.id)
        await page.get_by_text("as numbers").click()
        table = page.get_by_role("region", name="as numbers").locator("table")
        rows = table.locator("tbody tr")
        await rows.nth(59).wait_for()

        async def column(place, way):
            await table.locator(f"th:nth-child({place + 1})[aria-sort={way}]").wait_for()
            return await rows.evaluate_all(f"all => all.map(row => row.cells[{place}].innerText)")

        times = await column(0, "descending")
        for place, values in enumerate(columns.values(), 1):
            known = sorted(n for n in values if n is not None)
            up = ["–"] * (60 - len(known)) + [str(n) for n in known]
            await table.locator("thead button").nth(place).click()
            assert await column(place, "descending") == up[::-1]
            await table.locator("thead button").nth(place).press("Enter")
            assert await column(place, "ascending") == up
        for way, told in (("descending", times), ("ascending", times[::-1])):
            await table.locator("thead button").first.click()
            assert await column(0, way) == told
        assert await inspector.violations() == []

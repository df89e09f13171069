"""The inspector while the store changes: Overview's numbers, failures, and a stream that breaks."""

import json
import signal
from datetime import UTC, datetime, timedelta

import anyio
import pytest
import pytest_asyncio
from cut_proxy import CutProxy
from helpers import TRIP, annotating, repository
from http_kit import unused_port
from inspector_kit import inspected, inspected_at, served

from mnemo import Message
from mnemo.errors import ModelUnavailable
from mnemo.testing import ScriptedChatModel
from mnemo.web import new_token, token_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
MINUTE = timedelta(seconds=61)
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


async def number(inspector, section, name, value):
    """Wait until a number of the Overview, which is named so, has that value."""
    row = inspector.page.locator(f"section[aria-labelledby={section}] .numbers > div").filter(
        has=inspector.page.locator("dt").get_by_text(name, exact=True)
    )
    await row.locator("dd").get_by_text(value, exact=True).wait_for()


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


async def test_numbers_of_the_overview_follow_the_store_and_fall_again(browser, server, repo):
    """What is stored is counted without a reload, and leaves the last minute when that is over."""
    async with inspected(browser, server) as inspector:
        await inspector.page.clock.set_fixed_time(START)
        await inspector.open("overview", repo=repo.id)
        await live(inspector)
        await inspector.page.evaluate("window.isTheSame = true")
        for name in ("messages stored", "memories written", "recalls", "failures"):
            await number(inspector, "lately", name, "0")
        await repo.remember(["I play the cello.", "I live in Lund."], actor="Ada", wait=True)
        await number(inspector, "lately", "messages stored", "2")
        await number(inspector, "lately", "memories written", "2")
        await number(inspector, "sizes", "messages", "2")
        await inspector.page.locator(".lead strong").get_by_text("2 facts").wait_for()
        await inspector.page.locator("section[aria-labelledby=known] .rows > li").nth(1).wait_for()
        await repo.recall("Where does Ada live?")
        await number(inspector, "lately", "recalls", "1")
        await inspector.page.clock.set_fixed_time(START + MINUTE)
        for name in ("messages stored", "memories written", "recalls"):
            await number(inspector, "lately", name, "0")
        await number(inspector, "sizes", "messages", "2")
        assert await inspector.page.evaluate("isTheSame")


async def test_a_failure_appears_on_the_overview_when_it_happens(browser, server, model, repo):
    """A session's states follow each other; what failed is named, also when that is over."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await page.clock.set_fixed_time(START)
        await inspector.open("overview", repo=repo.id)
        await live(inspector)
        await page.get_by_text("Nothing has failed since the page was opened.").wait_for()
        waiting = page.get_by_role("region", name="What is not extracted or not committed yet")
        session = await repo.start_session("plan a trip")
        await waiting.get_by_text("collecting", exact=True).wait_for()
        await session.append("tokyo trains", "")
        model.script("semantic", ModelUnavailable("the model is down"))
        await session.close()
        await waiting.get_by_text("failed", exact=True).wait_for()
        failures = page.get_by_role("region", name="In the last minute").locator(".rows > li")
        await failures.get_by_text("the extraction failed").wait_for()
        await number(inspector, "lately", "failures", "1")
        await session.discard()
        await waiting.get_by_text("Nothing waits").wait_for()
        await failures.get_by_role("link", name="its session").click()
        await page.get_by_role("heading", name="One session").wait_for()


async def test_rows_of_sessions_stay_where_they_are_while_steps_arrive(browser, server, repo):
    """The list does not move under the pointer; a new session comes first."""
    async with inspected(browser, server) as inspector:
        rows = inspector.page.locator("tbody tr")
        first = await repo.start_session("pack", session_id=f"{repo.id}/1")
        await first.append("a bag", "")
        await repo.settle()  # its annotation is a change of the session too
        await (await repo.start_session("fly", session_id=f"{repo.id}/2")).append("a plane", "")
        await inspector.open("sessions", repo=repo.id)
        goals = rows.locator("th")
        assert await goals.all_inner_texts() == ["fly", "pack"]
        await first.append("a coat", "")
        await rows.nth(1).get_by_text("2", exact=True).wait_for()
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
        words, replaced = page.get_by_label("Words"), page.get_by_label("replaced ones too")
        await replaced.check()
        await words.fill("Ada plays")
        await repo.add_memory("Ada plays the cello.")
        await page.get_by_role("link", name="Ada plays the cello.").wait_for()
        await inspector.settled()
        assert (await words.input_value(), await replaced.is_checked()) == ("Ada plays", True)
        assert await words.evaluate("field => field === document.activeElement")
        await words.press("Enter")
        await page.wait_for_url("**words=Ada+plays&**replaced=1")
        await page.go_back()
        await page.wait_for_url("**words=cello")
        await inspector.settled()
        assert (await words.input_value(), await replaced.is_checked()) == ("cello", False)


@pytest.mark.parametrize("step", [211, 463])
async def test_a_stream_cut_at_any_byte_is_resumed_and_tells_each_change_once(
    browser, server, repo, step
):
    """Wherever the connection ends, also within an event, none is missed and none comes twice."""
    async with (
        CutProxy(server.url) as proxy,
        inspected_at(browser, proxy.url, server.tokens["all"]) as inspector,
    ):
        await inspector.open("events", repo=repo.id)
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
        await inspector.open("events", repo=repo.id)
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
        await inspector.open("events", repo="ada")
        await live(inspector)
        await stored(2, 3)
        assert await told(inspector, 3) == [2, 3]
        await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
        await page.get_by_text("not connected", exact=True).wait_for()
        await stored(4, 9)
        server = await anyio.to_thread.run_sync(started, secrets[0])
        await live(inspector)
        await stored(10, 11)
        assert await told(inspector, 11) == list(range(2, 12))
        await page.get_by_role("link", name="Overview").click()
        await number(inspector, "sizes", "messages", "12")
        await anyio.to_thread.run_sync(server.stop, signal.SIGKILL)
        await anyio.to_thread.run_sync(started, secrets[1])
        await page.get_by_label("Token").fill(secrets[1])
        await page.get_by_role("button", name="Open").click()
        await live(inspector)
        await number(inspector, "sizes", "messages", "12")
        inspector.forgive("Failed to load resource")

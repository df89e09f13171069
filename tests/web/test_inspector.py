"""The inspector in a headless Chromium: every view, what it says, and what it must not do."""

import asyncio
import math
import re

import pytest
import pytest_asyncio
from inspector_kit import SCRIPT, VIEWS, fill, inspected

from mnemo.repository import names
from mnemo.session.machine import TABLE

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def repo(server, request):
    """A repository with something of everything."""
    name = request.node.name
    await fill(server, name)
    return name


async def test_an_empty_store_says_so_and_a_wrong_token_asks_for_one(browser, server):
    """Without a repository the page says how to begin; with a wrong token it wants another."""
    async with inspected(browser, server, token="stranger") as inspector:
        assert "The store is empty" in await inspector.settled()
        assert await inspector.violations() == []
        assert server.tokens["stranger"] not in inspector.page.url
    async with inspected(browser, server, token="wrong") as inspector:
        await inspector.page.get_by_label("Token").fill(server.tokens["stranger"])
        await inspector.page.get_by_role("button", name="Open").click()
        await inspector.page.get_by_text("The store is empty").wait_for()
        inspector.complaints.clear()  # the browser itself logs the 401


async def test_every_view_of_an_empty_repository_says_that_it_is_empty(browser, server):
    """A repository that holds nothing has a word for it in each view, and no error."""
    async with server.client() as client:
        await client.post("/v1/settle?repo=empty", json={})
    async with inspected(browser, server) as inspector:
        for view in VIEWS:
            await inspector.open(view, repo="empty")
            if view != "overview":  # which is of all repositories
                assert await inspector.page.locator("[data-empty]").first.is_visible(), view
            assert await inspector.page.locator(".failure").count() == 0, view


async def test_a_stranger_finds_what_is_known_of_ada_and_where_it_comes_from(browser, server, repo):
    """Memories → a memory → its source and its conversation; a name leads to all facts of Ada."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("overview", repo=repo)
        row = page.get_by_role("region", name="Repositories").get_by_role("row", name=repo)
        await row.get_by_role("link").click()
        await page.get_by_role("link", name="Memories", exact=True).click()
        await page.get_by_label("Words, looked for in all").fill("moved")
        await page.get_by_text("1 memory: all that match").wait_for()
        await page.get_by_role("link", name="Ada moved to Malmö").click()
        panel = page.get_by_role("region", name="One memory")
        await panel.get_by_text("I moved to Malmö.", exact=True).wait_for()
        await panel.get_by_role("link", name="Ada lives in Lund.").wait_for()
        await panel.get_by_role("link", name="Read around it").click()
        await page.locator(".talk .chosen").get_by_text("I moved to Malmö.").wait_for()
        await page.locator(".talk .chosen").get_by_role("link", name="Ada").click()
        await page.get_by_role("heading", level=1, name="Ada").wait_for()
        now = page.get_by_role("region", name="Now")
        await now.get_by_role("button", name="Ada moved to Malmö.").wait_for()
        await page.get_by_role("region", name="Before").get_by_text("Ada lives in Lund.").wait_for()
        await inspector.open("recall", repo=repo, query="Where does Ada live?")
        await page.get_by_role("heading", name="Why line 1").wait_for()
        await page.get_by_role("region", name="Why line 1").locator("blockquote").first.wait_for()


async def test_a_memory_is_corrected_and_forgotten_by_keyboard(browser, server, repo):
    """Keys reach the search, the list, the correction, and the erasure behind its dry run."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("sessions", repo=repo)
        await page.keyboard.press("g")
        await page.keyboard.press("m")
        await page.locator("main[data-view=memories] h1").wait_for(state="attached")
        await inspector.settled()
        await page.keyboard.press("/")
        await page.keyboard.type("cello")
        await page.get_by_text("1 memory: all that match").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Correct").press("Enter")
        await page.get_by_label("New wording").fill("Ada plays the viola.")
        await page.get_by_role("button", name="Save").press("Enter")
        panel = page.get_by_role("region", name="One memory")
        await panel.locator(".wording .added").get_by_text("viola").wait_for()
        await page.get_by_role("button", name="Forget …").press("Enter")
        goes = page.get_by_role("region", name="Forget")
        await goes.get_by_text("I play the cello.").wait_for()
        await goes.get_by_role("button", name="Erase for good").press("Enter")
        await panel.wait_for(state="detached")
        await page.get_by_text("Erased: 1 fact, 1 message").wait_for()
        await inspector.open("memories", repo=repo, words="viola")
        await page.get_by_text("No memory matches").wait_for()


async def test_a_session_is_committed_from_the_page_and_activity_follows(browser, server, repo):
    """Close, commit, and the state with it; the table of the page is the machine's; events come."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("sessions", repo=repo, session=f"{repo}/1")
        drawn = await page.locator(".machine > li").evaluate_all(
            "all => all.flatMap(one => [...one.querySelectorAll('ul li')].map("
            "way => [one.querySelector('strong').textContent, way.textContent]))"
        )
        table = [(str(row.source), f"{row.trigger} → {row.dest}") for row in TABLE]
        assert sorted(map(tuple, drawn)) == sorted(table)
        await page.get_by_role("button", name="Close and extract").click()
        await page.get_by_role("button", name="Commit").click()
        await page.get_by_text("State: idle").wait_for()
        await page.get_by_role("link", name="Activity").click()
        await page.get_by_text("ChangesetApplied").first.wait_for()
        await page.get_by_role("button", name="Pause").click()
        async with server.client() as client:
            said = {"content": "Ada rows.", "wait": True}
            (await client.post("/v1/remember", params={"repo": repo}, json=said)).raise_for_status()
        await page.get_by_text(re.compile("[1-9][0-9]* more since")).wait_for()


async def test_an_address_that_changes_while_the_page_is_first_drawn_is_followed(
    browser, server, repo
):
    """The way to another view is not lost between the first drawing and the first event."""
    async with inspected(browser, server) as inspector:
        await inspector.open("overview", repo=repo)
        await inspector.page.add_init_script(
            f"""new MutationObserver((_, observer) => {{
                if (document.querySelector("main")?.dataset.view !== "overview") return;
                observer.disconnect();
                location.hash = "#/notes?repo={repo}";
            }}).observe(document, {{ childList: true, subtree: true }});"""
        )
        await inspector.page.reload()
        await inspector.page.get_by_role("heading", level=1, name="1 note").wait_for()


async def test_a_view_loads_while_the_store_changes_faster_than_it_answers(browser, server, repo):
    """An event during a slow answer does not begin it anew: the view appears, and then renews."""
    async with inspected(browser, server) as inspector, server.client() as client:
        page, appeared, asked = inspector.page, asyncio.Event(), 0

        async def slow(route):
            nonlocal asked
            asked += 1
            step = {"observation": f"Step {asked}."}
            await client.post(f"/v1/session/steps?repo={repo}&session={repo}/1", json=step)
            await page.wait_for_timeout(800)
            if asked > 1:
                await appeared.wait()
            await route.continue_()

        await page.route("**/v1/session?**", slow)
        await inspector.open("sessions", repo=repo, session=f"{repo}/1")
        await page.get_by_text("State: collecting").wait_for()
        appeared.set()
        await page.locator(".steps").get_by_text("Step 1.").wait_for()
        await page.unroute_all(behavior="ignoreErrors")


async def test_the_queue_of_a_session_is_shown(browser, server, repo):
    """A session names what waits in its queue."""
    async with inspected(browser, server) as inspector:
        text = await inspector.open("sessions", repo=repo, session=f"{repo}/1")
        assert "Queue: no operation waits." in text
        assert "0 model calls" not in text


async def test_a_reader_sees_no_way_to_write(browser, server, repo):
    """A read-only token has no buttons that would be refused."""
    async with inspected(browser, server, token="reader") as inspector:
        page = inspector.page
        await inspector.open("sessions", repo=repo, session=f"{repo}/1")
        assert await page.get_by_role("main").get_by_role("button").count() == 0
        await inspector.open("memories", repo=repo, words="cello")
        await page.get_by_role("link", name="Ada plays the cello.").click()
        await page.get_by_role("heading", name="History").wait_for(state="attached")
        for name in ("Correct", "Forget …"):
            assert await page.get_by_role("button", name=name).count() == 0
        await inspector.open("notes", repo=repo, topic="trips")
        assert await page.get_by_role("link", name="Write a note").count() == 0


async def test_a_text_of_a_megabyte_is_cut_until_it_is_asked_for(browser, server):
    """A huge message does not stop the page; all of it can be had, as text."""
    async with server.client() as client:
        messages = [{"role": "user", "content": f"{SCRIPT}{'x' * 1_000_000}"}]
        where = {"repo": "large", "thread": "t"}
        answer = await client.post(
            "/v1/conversation/messages", params=where, json={"messages": messages}
        )
        answer.raise_for_status()
    async with inspected(browser, server) as inspector:
        text = await inspector.open("threads", repo="large", thread="t")
        assert SCRIPT in text
        assert len(text) < 10_000
        await inspector.page.get_by_role("button", name="Show all").click()
        assert len(await inspector.page.locator(".talk .text").inner_text()) > 1_000_000


async def test_the_graph_of_a_name_leads_to_its_neighbours_and_their_facts(
    browser, server, repo, monkeypatch
):
    """A neighbour is opened; the facts that name both stand beside, and lead to the memory."""
    # On a machine that counts slowly the list of names would stand after the last fact came.
    monkeypatch.setattr(names, "SLOW_S", math.inf)
    async with server.client() as client:
        for text in ("Ada and Eva bake.", "Eva likes tea.", "Ada likes tea."):
            body = {"text": text, "tags": ["Eva", "tea"]}
            answer = await client.post("/v1/memories", params={"repo": repo}, json=body)
            answer.raise_for_status()
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("people", repo=repo, name="Ada")
        await page.get_by_role("link", name="Graph").click()
        await page.get_by_role("link", name=re.compile("^Eva, ")).first.click()
        both = page.get_by_role("region", name="Ada and Eva")
        await both.get_by_role("link", name="Ada and Eva bake.").wait_for()
        await inspector.settled()
        first = await page.locator("svg.columns").inner_html()
        await page.reload()
        await both.get_by_role("link", name="Ada and Eva bake.").wait_for()
        await inspector.settled()
        assert await page.locator("svg.columns").inner_html() == first
        await both.get_by_role("link", name="Ada and Eva bake.").click()
        await page.get_by_role("region", name="One memory").wait_for()


async def test_a_note_is_rendered_and_its_versions_are_compared(browser, server, repo):
    """Markdown is shown, HTML in it as text; a version opens to the lines that it changed."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await inspector.open("notes", repo=repo, topic="trips")
        await page.get_by_text("Version 2: updated").click()
        added = page.locator(".diff .added")
        assert SCRIPT in await added.inner_text()
        assert "Ada likes trains." in await page.locator(".diff .gone").inner_text()
        await page.get_by_role("button", name="Correct").click()
        await page.get_by_label("Text (Markdown)").fill(f"## Trips\n\n- by **train** {SCRIPT}")
        await page.get_by_role("button", name="Save").click()
        note = page.locator(".markdown")
        await note.get_by_role("heading", name="Trips").wait_for()
        assert await note.locator("li strong").inner_text() == "train"
        assert SCRIPT in await note.inner_text()
        assert await note.locator("script, img").count() == 0

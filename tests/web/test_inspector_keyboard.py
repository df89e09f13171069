"""The inspector by keyboard and to a screen reader: every control, and what renews beneath it."""

import pytest
import pytest_asyncio
from inspector_kit import VIEWS, fill, inspected

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

OPENED = "all => all.forEach((one) => { one.open = true; })"
CONTROLS = "a[href], button, input, select, summary, textarea, [tabindex='0']"
MARKED = f"""() => {{
    window.marked = [...document.querySelectorAll("{CONTROLS}")]
        .filter((one) => one.checkVisibility());
    document.activeElement.blur();
    return marked.length;
}}"""
SEEN = """() => {
    const one = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(one.closest(".search, .chip") ?? one);
    const { width, height } = one.getBoundingClientRect();
    const outlined = outlineStyle !== "none" && outlineWidth !== "0px" && width * height > 0;
    return [marked.indexOf(one), outlined];
}"""
LOST = (
    """() => marked.filter((one) => !one.isConnected).map((one) => one.outerHTML.slice(0, 120))"""
)


@pytest_asyncio.fixture(loop_scope="module")
async def repo(server, request):
    """A repository with something of everything."""
    await fill(server, request.node.name)
    return server.memory.repo(request.node.name)


async def shown(inspector, repo, view):
    """Open *view*, one of its items beside the list, and all that folds open."""
    items = {
        "recall": {"query": "Where does Ada live?"},
        "sessions": {"session": f"{repo.id}/1"},
        "threads": {"thread": "chat/1"},
        "notes": {"topic": "trips"},
        "people": {"name": "Ada"},
    }
    page = inspector.page
    await inspector.open(view, repo=repo.id, **items.get(view, {}))
    await page.get_by_text("live", exact=True).wait_for()
    if view == "memories":
        await page.get_by_role("link", name="Ada plays the cello.").click()
        await page.get_by_role("heading", name="History").wait_for(state="attached")
    if view == "activity":
        await repo.recall("Where does Ada live?")
        await page.locator(".events details").first.wait_for()
    await page.locator("main details").evaluate_all(OPENED)
    await inspector.settled()


async def nameless(page):
    """Roles of what can have the focus and has no name for a screen reader."""
    tree = await (await page.context.new_cdp_session(page)).send("Accessibility.getFullAXTree")
    found = []
    for node in tree["nodes"]:
        facts = {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
        named = node.get("name", {}).get("value", "").strip()
        if facts.get("focusable") and not node["ignored"] and not named:
            found.append(node["role"]["value"])
    return found


@pytest.mark.parametrize("view", VIEWS)
async def test_tab_reaches_every_control_which_has_a_name_and_a_visible_focus(
    browser, server, repo, view
):
    """Once through the page by Tab: each control comes, outlined; none is without a name."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await shown(inspector, repo, view)
        count = await page.evaluate(MARKED)
        reached = {}
        for _ in range(count + 20):
            await page.keyboard.press("Tab")
            place, outlined = await page.evaluate(SEEN)
            reached[place] = outlined or reached.get(place, False)  # a date has several stops
        reached.pop(-1, None)
        assert sorted(reached) == list(range(count))
        assert all(reached.values()), [place for place, seen in reached.items() if not seen]
        assert set(await nameless(page)) <= {"main"}


RENEWED = {
    "overview": "main a:has-text('I row.')",
    "memories": "main .row:has-text('Ada rows.')",
    "people": "main .row:has-text('Ada rows.')",
    "sessions": ".steps > li:has-text('A new step.')",
    "threads": ".talk > li:has-text('I row.')",
    "notes": "main .row:has-text('boats')",
    "activity": ".events > li:has-text('StepAppended')",
}
"""What appears in a view that follows the store, when that changes."""


@pytest.mark.parametrize("view", RENEWED)
async def test_rows_that_renew_leave_every_control_and_the_focus_in_place(
    browser, server, repo, view
):
    """New rows come; no control is made anew, and the one with the focus keeps it."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        await shown(inspector, repo, view)
        count = await page.evaluate(MARKED)
        await page.evaluate("marked.filter((one) => one.closest('main')).at(-1).focus()")
        assert await page.locator(RENEWED[view]).count() == 0
        await repo.remember("I row.", actor="Ada", thread_id="chat/1", wait=True)
        await server.memory.session(f"{repo.id}/1").append("A new step.", "")
        await repo.notes.write("boats", "Ada rows.", "Boats.")
        await page.locator(RENEWED[view]).first.wait_for()
        await inspector.settled()
        lost = await page.evaluate(LOST)
        allowed = ("#/threads?",) if view == "overview" else ()  # "Just now" has the newest alone
        assert [one for one in lost if not any(text in one for text in allowed)] == []
        assert await page.evaluate(
            "document.activeElement === marked.findLast((one) => one.closest('main'))"
        )
        assert count > 8


async def test_the_focus_stays_where_a_control_was_that_is_taken_away(browser, server, repo):
    """Close, commit, save, forget: their button goes, the focus is in its part, not at the top."""
    async with inspected(browser, server) as inspector:
        page = inspector.page
        focus = page.locator(":focus")
        await shown(inspector, repo, "sessions")
        part = page.locator("main section section, main section, main").and_(focus)
        for act, state in (("Close and extract", "ready"), ("Commit", "idle")):
            await page.get_by_role("button", name=act).press("Enter")
            await page.locator(".machine .now strong").get_by_text(state, exact=True).wait_for()
            await part.wait_for()
        await shown(inspector, repo, "memories")
        part = page.get_by_role("region", name="One memory")
        await page.get_by_role("button", name="Correct").press("Enter")
        await page.get_by_label("New wording").fill("Ada plays the viola.")
        await page.get_by_role("button", name="Save").press("Enter")
        await part.locator(".wording").get_by_text("viola").wait_for()
        await part.and_(focus).wait_for()
        await page.get_by_role("button", name="Forget …").press("Enter")
        await page.get_by_role("button", name="Erase for good").press("Enter")
        await page.get_by_role("main").and_(focus).wait_for()
        assert await part.count() == 0

"""How the inspector looks: every view, in light and dark, on a telephone and on a wall."""

import pytest
import pytest_asyncio
from inspector_kit import VIEWS, fill, inspected, served

from mnemo import Message

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

REPO = "family"
OPENED = "all => all.forEach((one) => { one.open = true; })"
LONG = "https://example.org/" + "a-word-without-an-end" * 12
OUTSIDE = """() => {
    const found = [];
    const cut = (what, text) => found.push(`${what}: ${text.trim().slice(0, 60)}`);
    if (document.documentElement.scrollWidth > innerWidth) cut("page", "wider than the window");
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const parent = node.parentElement;
        const isShown = parent.checkVisibility() && !parent.closest("option, .hidden");
        if (!isShown || !node.data.trim()) continue;
        range.selectNodeContents(node);
        const boxes = [[document.body, { left: 0, right: innerWidth, top: -1e9, bottom: 1e9 }]];
        let isShort = false; // a line that ends in an ellipsis, and is whole where it leads
        for (let one = parent; one !== document.body; one = one.parentElement) {
            const { overflowX, overflowY, textOverflow } = getComputedStyle(one);
            if (overflowX === "visible") continue;
            isShort ||= textOverflow === "ellipsis";
            let { left, right, top, bottom } = one.getBoundingClientRect();
            if (overflowY === "auto") [top, bottom] = [-1e9, 1e9];
            boxes.push([one, { left, right, top, bottom }]);
        }
        for (const rect of isShort ? [] : range.getClientRects()) {
            if (rect.width < 1) continue;
            const [box] = boxes.find(([, { left, right, top, bottom }]) => rect.left < left - 1
                || rect.right > right + 1 || rect.top < top - 1 || rect.bottom > bottom + 1) ?? [];
            if (!box) continue;
            cut(box.className || box.tagName, node.data);
            break;
        }
    }
    const pen = document.createElement("canvas").getContext("2d");
    const fields = "input[type=search], input:not([type]), select";
    for (const field of document.querySelectorAll(fields)) {
        if (!field.checkVisibility()) continue;
        const text = field.selectedOptions?.[0].text ?? (field.value ? "" : field.placeholder);
        const style = getComputedStyle(field);
        pen.font = style.font;
        const arrow = field.tagName === "SELECT" ? 16 : 0;
        const room = field.clientWidth - 2 * parseFloat(style.paddingLeft) - arrow;
        if (pen.measureText(text).width > room + 1) cut(field.tagName, text);
    }
    return found;
}"""
"""What is shown in part only: text outside the window or its box, and what a field offers."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    """One server with something of everything, and with words that no line can hold."""
    async with served(viewport={"budget_tokens": 1_000, "auto_evict": False}) as found:
        await fill(found, REPO)
        repo = found.memory.repo(REPO)
        await repo.add_memory(f"{LONG} is a page.", tags=[LONG])
        chat = repo.conversation(LONG[:120])
        await chat.append(
            [Message(role="user", content=f"{LONG} {'It rained. ' * n}") for n in range(30)]
        )
        await chat.pins.attach([3], [(await chat.goals.add(f"Read {LONG}")).id])
        await chat.viewport().evict()
        await repo.notes.write("a-topic" + "-of-many-words" * 4, LONG, LONG[:200])
        await repo.settle()
        yield found


SHOWN = {
    "overview": [{}],
    "people": [{}, {"name": "Ada"}, {"name": LONG, "as": "graph"}, {"name": "Ada", "as": "graph"}],
    "memories": [{}, {"words": "example"}, {"words": "cello"}],
    "recall": [{"query": "Where does Ada live?"}, {"query": f"What is {LONG}?"}],
    "sessions": [{}, {"session": f"{REPO}/1"}],
    "threads": [{}, {"thread": "chat/1"}, {"thread": LONG[:120]}],
    "notes": [{}, {"topic": "trips"}, {"topic": "a-topic" + "-of-many-words" * 4}],
    "activity": [{}],
}


@pytest.mark.parametrize("width", [360, 1280, 3840])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_view_shows_all_of_its_text_with_contrast(browser, server, width, scheme):
    """Nothing is wider than the window or cut, axe-core finds no fault, the console is silent."""
    async with inspected(browser, server, size=(width, 900)) as inspector:
        page = inspector.page
        await page.emulate_media(color_scheme=scheme)
        faults = []
        for view in VIEWS:
            for params in SHOWN[view]:
                await inspector.open(view, repo=REPO, **params)
                if view == "memories" and params:
                    await page.locator("main .row").first.click()
                    await page.get_by_role("heading", name="History").wait_for(state="attached")
                if view == "activity":
                    await page.get_by_text("live", exact=True).wait_for()
                    repo = server.memory.repo(REPO)
                    await repo.recall(f"What is {LONG}?")
                    await page.locator(".events details").first.wait_for()
                await page.locator("main details").evaluate_all(OPENED)
                await inspector.settled()
                found = [*await page.evaluate(OUTSIDE), *await inspector.violations()]
                faults += [f"{view} {params}: {one}" for one in found]
        assert not faults, "\n".join(faults)


async def test_on_a_wall_all_is_larger_and_stays_in_the_window(browser, server):
    """At 4K the foot of the sidebar is in sight, and a curve's hairline is where the pointer is."""
    async with inspected(browser, server, size=(3840, 2160)) as inspector:
        page = inspector.page
        await inspector.open("overview", repo=REPO)
        foot = await page.locator(".side footer").bounding_box()
        assert 1_900 < foot["y"] + foot["height"] <= 2_160
        title = await page.locator("h1").evaluate("one => one.getBoundingClientRect().height")
        assert title >= 40
        plot = page.locator(".curve .u-over").first
        box = await plot.bounding_box()
        at = box["x"] + box["width"] * 0.25
        await page.mouse.move(at, box["y"] + box["height"] / 2)
        await page.locator(".curve").first.get_by_text("at ").wait_for()
        line = await page.locator(".curve .u-cursor-x").first.bounding_box()
        assert abs(line["x"] - at) <= box["width"] / 59


async def test_on_a_telephone_what_was_asked_for_is_in_sight(browser, server):
    """The answer comes before how it was found; what is chosen in a list takes the list's place."""
    async with inspected(browser, server, size=(360, 740)) as inspector:
        page = inspector.page
        await inspector.open("recall", repo=REPO, query="Where does Ada live?")
        tops = [
            (await page.get_by_text(text).first.bounding_box())["y"]
            for text in ("Prompt text", "How it was found")
        ]
        assert tops == sorted(tops)
        assert tops[0] < 600
        await page.get_by_role("link", name="People").click()
        await page.locator("main[data-view=people]").wait_for()
        await page.get_by_role("link", name="Ada", exact=False).first.click()
        await page.get_by_role("heading", level=1, name="Ada").wait_for()
        await inspector.settled()
        assert await page.evaluate("scrollY") == 0
        now = page.get_by_role("region", name="Now")
        assert (await now.bounding_box())["y"] < 600
        await page.get_by_role("link", name="‹ All names").click()
        await page.get_by_role("searchbox", name="Find a name").wait_for()
        await page.get_by_role("link", name="More").click()
        await page.get_by_role("link", name="Memories").click()
        await page.get_by_role("link", name="Ada plays the cello.").click()
        chosen = page.get_by_role("heading", name="One memory")
        await chosen.and_(page.locator(":focus")).wait_for()
        assert 0 <= (await chosen.bounding_box())["y"] < 740

"""Parts of the inspector's views: graph, recall, threads, events; stored markup is never run."""

from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from inspector_kit import SCRIPT, served

from mnemo import Changeset, Edge, Message, Semantic, Tag
from mnemo.recall import rivals
from mnemo.recall.rivals import Ranking, Rivals

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
DRAWN = "document.querySelector('.canvas .fills')._cyreg.cy"
"""The drawing's own object, in the page."""
AWAY = f"{DRAWN}.nodes('.away').map((node) => node.data('label')).join()"
"""The labels of the marks that are faint."""
OVERLAPS = f"""(() => {{
    const named = {DRAWN}.nodes(".named").map((node) => node.boundingBox(
        {{ includeNodes: false, includeEdges: false, includeLabels: true }}));
    return [named.length, named.filter((a, n) => named.some((b, m) => m < n
        && a.x1 < b.x2 && b.x1 < a.x2 && a.y1 < b.y2 && b.y1 < a.y2)).length];
}})()"""

COVERED = f"""(() => {{
    const bodies = {DRAWN}.nodes().map((node) => node.boundingBox({{ includeLabels: false }}));
    return bodies.filter((a, n) => bodies.some((b, m) => m < n
        && a.x1 < b.x2 && b.x1 < a.x2 && a.y1 < b.y2 && b.y1 < a.y2)).length;
}})()"""
"""How many marks lie on another."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    """One server for all tests of this file; each test has a repository of its own."""
    async with served(viewport={"budget_tokens": 1_000, "auto_evict": False}) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def repo(server, request):
    """An empty repository."""
    return await server.memory.open_repo(request.node.name)


async def moved(repo):
    """Two homes of Ada, one after the other, and what else there is to draw."""
    told = {"actor": "Ada", "thread_id": "chat/1", "wait": True}
    await repo.remember(["I live in Lund.", "I play the cello."], at=START, **told)
    await repo.remember("I moved to Malmö.", at=START + timedelta(days=90), **told)
    await repo.add_memory("When Ada plays, close the window.", type="procedural")
    await repo.settle()


async def drawn(inspector, repo, **params):
    """Open the graph and wait until it is drawn."""
    await inspector.open("graph", repo=repo.id, **params)
    await inspector.page.get_by_text("Placing the marks").wait_for(state="detached")
    return inspector.page


async def faint(page, labels):
    """Wait until those marks are faint, in a frame's turn: the page permits no evaluated text."""
    await page.evaluate(
        f"""(labels) => new Promise((done) => {{
            const look = () => ({AWAY}.startsWith(labels) && (labels || !{AWAY})
                ? done() : requestAnimationFrame(look));
            look();
        }})""",
        labels,
    )


async def test_the_slider_fades_what_did_not_hold_and_any_time_brings_it_back(inspector, repo):
    """On the first day Ada lives in Lund, on the last in Malmö."""
    await moved(repo)
    page = await drawn(inspector, repo)
    assert await page.evaluate(AWAY) == ""
    slider = page.get_by_role("slider", name="What held when")
    await slider.press("Home")
    await page.get_by_text("2026-03-02", exact=True).wait_for()
    await faint(page, "Ada moved to Malmö.")
    await slider.press("End")
    await faint(page, "Ada lives in Lund.")
    await page.get_by_role("button", name="Any time").click()
    await faint(page, "")


async def test_labels_cover_no_other_and_every_mark_is_in_the_legend(inspector, repo):
    """Of many marks some are named, apart from each other; each kind, line and colour is told."""
    await moved(repo)
    tags = [f"topic {n}" for n in range(6)]
    for n in range(60):
        await repo.add_memory(f"Lantern {n} hangs in room {n}.", tags=[tags[n % 6]])
    page = await drawn(inspector, repo)
    named, overlapping = await page.evaluate(OVERLAPS)
    assert named >= 10
    assert overlapping == 0
    legend = await page.locator(".legend").inner_text()
    for sign in ("● fact", "■ instruction", "◆ tag", "membership", "hollow, dashed", "faint"):
        assert sign in legend, sign
    assert await page.locator(".legend").get_by_role("link", name="topic 0").count() == 1
    await page.locator(".legend").get_by_role("link", name="topic 0").click()
    await page.get_by_text("of the community “topic 0”").wait_for()


async def test_communities_without_an_edge_between_them_lie_apart(inspector, repo):
    """A large graph of tags opens on marks that cover no other; a mark opens, a word finds one."""
    tags = [Tag(f"topic {n}") for n in range(20)]
    facts = [Semantic(f"Lantern {n} hangs in room {n}.") for n in range(2_000)]
    edges = [Edge(tags[n % 20].id, fact.id, "membership") for n, fact in enumerate(facts)]
    await repo.apply(Changeset((*tags, *facts), tuple(edges)))
    page = await drawn(inspector, repo)
    await page.get_by_text("20 communities of 2,020").wait_for()
    assert await page.evaluate(COVERED) == 0
    assert await page.evaluate(OVERLAPS) == [20, 0]
    await page.get_by_role("button", name="topic 19").click()
    await page.get_by_text("of the community “topic 19”").wait_for()
    await page.get_by_label("Find among the marks").fill("room 1999")
    await page.locator(".marks > li").and_(page.locator(":only-child")).wait_for()
    assert "Lantern 1999 hangs in room 1999." in await page.locator(".marks").inner_text()


async def test_a_recall_shows_why_it_ranked_what_it_costs_and_how_long_it_took(inspector, repo):
    """Parts of the score are bars; tokens are those of the text; phases make the whole time."""
    await moved(repo)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    first = inspector.page.locator(".candidates > li").first
    bars = [bar.split("\n")[0] for bar in await first.locator(".bar").all_inner_texts()]
    assert bars[:2] == ["score", "relevance"]
    assert bars[-5:] == ["recency", "frequency", "reward", "penalty", "weight of its kind"]
    assert {"words", "· shared words", "meaning", "· meaning"} <= set(bars)
    found = await repo.recall("Where does Ada live?", explain=True)
    costs = found.trace.tokens
    told = await inspector.page.locator(".candidates > li > p:nth-child(2)").all_inner_texts()
    assert f"; {costs[0]} tokens" in told[0]
    assert f"{sum(costs)} tokens with those above" in told[-1]
    await inspector.page.get_by_text(f"{sum(costs)} tokens as lines for a prompt").wait_for()
    trace = inspector.page.get_by_role("region", name="How it was found")
    rows = [row.split("\n") for row in await trace.locator(".waterfall .bar").all_inner_texts()]
    assert {"embed", "score"} <= {name for name, *_ in rows}
    whole = float((await trace.locator("h3").inner_text()).split()[1])
    assert abs(whole - sum(float(ms.split()[0]) for *_, ms in rows)) <= 0.05 * (len(rows) + 1)


async def test_the_reasons_of_all_candidates_are_drawn_on_one_scale(inspector, repo):
    """A group is the sum of its parts; the strongest of all fills its track, others their share."""
    await moved(repo)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    page = inspector.page
    await page.locator("main details").evaluate_all("all => all.forEach(one => one.open = true)")
    found = await repo.recall("Where does Ada live?", explain=True)
    sums = [
        {group: sum(parts.values()) for group, parts in candidate.why.grouped.items()}
        for candidate in found.candidates
    ]
    most = max(abs(value) for groups in sums for value in groups.values())
    for number, groups in enumerate(sums):
        shown = page.locator(".candidates > li").nth(number)
        for group, value in groups.items():
            bar = shown.locator(".bar").filter(has=page.get_by_text(group, exact=True)).first
            style = await bar.locator(".fill").get_attribute("style")
            width = float(style.partition("width: ")[2].partition("%")[0])
            assert abs(width - 100 * abs(value) / most) < 1


async def test_what_is_outdated_is_struck_through_and_names_what_to_see(
    inspector, repo, monkeypatch
):
    """Until when it held, and the number of what replaced it."""
    await moved(repo)

    def second_by_first(question: str, given: Rivals, **_: object) -> Ranking:
        count = len(given.texts)
        return Ranking(list(range(count)), [None, 0, *[None] * (count - 2)])

    monkeypatch.setattr(rivals, "outdated", second_by_first)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    shown = inspector.page.locator(".candidates > li")
    assert await shown.count() > 2
    struck = [await shown.nth(n).locator(".lead s").count() for n in range(await shown.count())]
    assert struck == [0, 1, *[0] * (len(struck) - 2)]
    told = await shown.nth(1).locator("> p:nth-child(2)").inner_text()
    assert "ended" in told
    assert ", see 1" in told


async def test_a_thread_shows_what_leaves_next_and_what_is_kept_beside_it(inspector, repo):
    """The oldest messages are in the zone that leaves; goals, pins and snapshots are listed."""
    chat = repo.conversation("chat/1")
    said = [Message(role="user", content=f"Day {n}. {'It rained. ' * 20}") for n in range(20)]
    await chat.append(said)
    goal = await chat.goals.add("Stay dry")
    await chat.pins.attach([3], [goal.id])
    assert (await chat.viewport().evict()) is not None
    look = await chat.look()
    text = await inspector.open("threads", repo=repo.id, thread="chat/1")
    page = inspector.page
    assert "leaves the window next" in text
    assert ("of the eviction zone leave next" in text) == look.is_due
    for name, kept in (("Goals", "Stay dry"), ("Pins", "Day 3."), ("Snapshots", "Day 0.")):
        shown = await page.locator(f"h3:text-is('{name}') + p + ul").inner_text()
        assert kept in shown, name
        assert "{" not in shown, name
    for zone in ("eviction", "middle", "recent"):
        wanted = [f"message {message.seq}" for message in getattr(look.zones, zone)]
        rows = await page.locator(f".talk > .zone.{zone} .origin").all_inner_texts()
        assert [row.split(",")[0] for row in rows] == wanted, zone
    assert look.zones.eviction
    assert await page.locator(".talk > .zone.out").first.is_visible()


async def test_events_are_filtered_by_words_as_they_come(inspector, repo):
    """Of what happens only what has all words is listed, also of what comes later."""
    await inspector.open("events", repo=repo.id)
    page = inspector.page
    await page.get_by_text("live", exact=True).wait_for()
    session = await repo.start_session("look out", session_id=f"{repo.id}/1")
    await session.append("rain", "")
    await page.locator(".events").get_by_text("StepAppended").wait_for()
    await page.locator(".events").get_by_text("changes", exact=True).first.wait_for()
    await page.get_by_role("searchbox", name="Words").fill('stepappended "step_index":1')
    await page.get_by_text("nothing matches").wait_for()
    await session.append("sun", "")
    await page.locator(".events").get_by_text("step index: 1").wait_for()
    assert await page.locator(".events > li").count() == 1
    await page.locator(".events summary").click()
    await page.locator(".events pre").get_by_text('"step_index": 1').wait_for()


async def test_stored_markup_is_text_in_recall_graph_threads_and_events(inspector, repo):
    """A script in a fact, a tag, a message, a thread's name and an event is shown, never run."""
    page = inspector.page
    await inspector.open("events", repo=repo.id)
    await page.get_by_text("live", exact=True).wait_for()
    await repo.add_memory(f"{SCRIPT} harms nobody.", tags=[SCRIPT])
    await repo.conversation(SCRIPT).append([Message(role="user", content=f"{SCRIPT} said.")])
    await (await repo.start_session("harm", session_id=SCRIPT)).append("seen", "")
    await page.locator(".events").get_by_text("<script>").first.wait_for()
    assert SCRIPT in await inspector.open("recall", repo=repo.id, query="What harms nobody?")
    assert f"{SCRIPT} said." in await inspector.open("threads", repo=repo.id, thread=SCRIPT)
    await drawn(inspector, repo)
    await page.get_by_role("region", name="Marks").get_by_text(SCRIPT).first.click()
    await page.locator(".lead").get_by_text(SCRIPT).wait_for()
    assert await page.locator("main script, main img").count() == 0
    assert not (await page.title()).startswith("owned")

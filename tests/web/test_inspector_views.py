"""Parts of the inspector's views: graph, recall, threads, events; stored markup is never run."""

from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from inspector_kit import SCRIPT, inspected, served

from mnemo import Changeset, Edge, Message, Semantic, Tag
from mnemo.recall import candidates
from mnemo.recall.rivals import Ranking, Rivals

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


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


async def test_what_changed_is_drawn_with_what_holds_now(inspector, repo):
    """A lane has the replaced fact, when, and the present one; it marks both below."""
    await moved(repo)
    await inspector.open("people", repo=repo.id, name="Ada")
    changed = inspector.page.get_by_role("region", name="What changed")
    lane = changed.get_by_role("button").first
    text = await lane.inner_text()
    assert "Ada lives in Lund." in text
    assert "Ada moved to Malmö." in text
    await lane.click()
    chosen = inspector.page.locator("main li.chosen")
    await chosen.first.get_by_text("Ada moved to Malmö.").wait_for()
    before = inspector.page.get_by_role("region", name="Before")
    assert "Ada moved to Malmö." in await before.inner_text()
    await inspector.open("people", repo=repo.id, name="cello")
    assert await changed.count() == 0


async def test_a_fact_quotes_its_source_only_where_the_words_differ(inspector, repo):
    """What was said as it stands is told in one line; other words are quoted."""
    await moved(repo)
    await inspector.open("people", repo=repo.id, name="Ada")
    now = inspector.page.get_by_role("region", name="Now")
    await now.get_by_role("button", name="Ada plays the cello.").click()
    await now.locator("blockquote").get_by_text("I play the cello.").wait_for()
    await now.get_by_role("link", name="Read around it").wait_for()
    await repo.remember("The mill is old.", actor="Ada", thread_id="chat/1", wait=True)
    await inspector.open("people", repo=repo.id, name="mill")
    await now.get_by_role("button", name="The mill is old.").click()
    await now.get_by_text("in these words by Ada").wait_for()


async def test_columns_have_eight_neighbours_and_more_on_demand(inspector, repo):
    """The strongest stand first; the others are a number that opens them."""
    tags = [Tag(f"topic {n:02}") for n in range(12)]
    facts = [Semantic(f"Lantern {n} hangs in room {n}.") for n in range(12)]
    lamp = Tag("lantern")
    edges = [
        Edge(tag.id, fact.id, "membership")
        for m, tag in enumerate(tags)
        for n, fact in enumerate(facts)
        if n >= m or n == 0
    ]
    edges += [Edge(lamp.id, fact.id, "membership") for fact in facts]
    await repo.apply(Changeset((lamp, *tags, *facts), tuple(edges)))
    await inspector.open("people", repo=repo.id, name="lantern", **{"as": "graph"})
    page = inspector.page
    names = [
        (await one.get_attribute("aria-label"))
        for one in await page.locator("svg.columns a.box").all()
    ]
    assert names[:3] == ["lantern, 12 facts", "topic 00, 12 facts", "topic 01, 12 facts"]
    assert names[8:10] == ["topic 07, 6 facts", "+ 4 more"]
    await page.get_by_role("link", name="+ 4 more").first.click()
    await page.get_by_role("link", name="topic 11, 2 facts").first.wait_for()
    columns = page.get_by_role("group", name="Columns")
    await columns.press("ArrowDown")
    await page.get_by_role("heading", name="lantern and topic 01").wait_for()
    await columns.press("ArrowRight")
    await page.get_by_role("heading", level=1, name="topic 01").wait_for()


async def test_imported_facts_without_tags_say_so_instead_of_a_drawing(inspector, repo):
    """Nothing ties them together, and the view says it in both of its pictures."""
    facts = [Semantic(f"lantern {n} hangs in room {n}.") for n in range(60)]
    await repo.apply(Changeset(tuple(facts)))
    for params in ({}, {"as": "graph"}):
        text = await inspector.open("people", repo=repo.id, **params)
        assert "60 facts have no tags and no speaker" in text
        assert await inspector.page.locator("main svg.columns").count() == 0
    text = await inspector.open("people", repo=repo.id, name="lantern", **{"as": "graph"})
    assert "No other name stands in a fact with it" in text


async def test_a_recall_shows_the_lines_their_tokens_and_what_makes_the_score(inspector, repo):
    """Each line with its tokens; behind a fold the single signals; the phases of the time."""
    await moved(repo)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    page = inspector.page
    found = await repo.recall("Where does Ada live?", explain=True)
    costs = found.trace.tokens
    told = await page.locator(".lines > li .num:last-child").all_inner_texts()
    assert [int(cost) for cost in told] == list(costs)
    await page.get_by_text(f"of {sum(costs)} tokens").wait_for()
    await page.locator("main details").evaluate_all("all => all.forEach(one => one.open = true)")
    signals = await page.locator(".signals dt").all_inner_texts()
    assert len(signals) == len(found.candidates[0].why.signals) + 6
    assert signals[-6:] == [
        "relevance",
        "recency",
        "frequency",
        "reward",
        "penalty",
        "mode weight",
    ]
    assert all(await page.locator(".signals .means").all_inner_texts())
    how = await page.get_by_role("region", name="How it was found").inner_text()
    assert "embed" in how
    assert "score" in how


async def test_past_recalls_are_listed_and_asked_again(browser):
    """Where the service keeps them; where not, the setting is named."""
    async with served(recall={"keep_last": 10}) as server:
        repo = await server.memory.open_repo("kept")
        await repo.remember("I live in Lund.", actor="Ada", wait=True)
        await repo.recall("Where does Ada live?", k=3)
        async with inspected(browser, server) as inspector:
            await inspector.open("recall", repo="kept")
            past = inspector.page.get_by_role("region", name="Past recalls")
            await past.get_by_role("link", name="Where does Ada live?").click()
            await inspector.page.get_by_role("heading", name="Why line 1").wait_for()
            assert await inspector.page.get_by_label("at most").input_value() == "3"
    async with served() as server:
        await server.memory.open_repo("none")
        await server.memory.repo("none").remember("I ski.", wait=True)
        async with inspected(browser, server) as inspector:
            text = await inspector.open("recall", repo="none")
            assert "None yet, or none is kept: the setting recall.keep_last" in text


async def test_where_is_says_the_rank_of_a_memory_or_what_left_it_out(inspector, repo):
    """One that is found has its rank; one below "at most" is told so."""
    await moved(repo)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?", k="1")
    page = inspector.page
    where = page.get_by_role("region", name="Where is")
    for words, text in (("moved", "Ada moved to Malmö."), ("cello", "Ada plays the cello.")):
        await where.get_by_role("searchbox").fill(words)
        await where.get_by_role("button", name=text).click()
        (memory,) = [one for one in (await repo.memories()).items if one.text == text]
        found = await repo.recall("Where does Ada live?", k=1, expect=memory.id)
        standing = where.get_by_role("status")
        if found.expected.rank is not None:
            await standing.get_by_text(f"Rank {found.expected.rank}").wait_for()
        else:
            await standing.get_by_text("below").wait_for()
    assert found.expected.left_out_by is not None
    await where.get_by_role("searchbox").fill("no such word")
    await where.get_by_text("No memory has these words.").wait_for()


async def test_the_budget_snaps_to_line_ends_and_cuts_what_is_not_sent(inspector, repo):
    """The slider goes line by line; what is below the cut stays readable, and is not copied."""
    await moved(repo)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    page = inspector.page
    lines = page.locator(".lines > li:not(.cut)")
    count = await lines.count()
    costs = (await repo.recall("Where does Ada live?", explain=True)).trace.tokens
    slider = page.get_by_role("slider", name="Budget")
    await slider.press("ArrowLeft")
    kept = sum(costs[: count - 1])
    await page.get_by_text(f"Cut at {kept} tokens. The line below is not sent.").wait_for()
    assert int(await slider.input_value()) == kept
    assert await page.locator(".lines > li.unsent").count() == 1
    await slider.fill(str(costs[0] + 1))
    await page.get_by_text(f"Cut at {costs[0]} tokens.").wait_for()
    assert await lines.count() == count
    await page.get_by_role("button", name="By time").click()
    await lines.first.get_by_text("[1]").wait_for()


async def test_the_reasons_of_all_candidates_are_drawn_on_one_scale(inspector, repo):
    """A group is the sum of its parts; the strongest of all fills its track, others their share."""
    await moved(repo)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    found = await repo.recall("Where does Ada live?", explain=True)
    sums = []
    for candidate in found.candidates:
        group = {name: sum(parts.values()) for name, parts in candidate.why.grouped.items()}
        last = group.get("who", 0) + group.get("when and where", 0)
        sums.append([group.get("words", 0), group.get("meaning", 0), last])
    most = max(abs(value) for values in sums for value in values)
    for number, values in enumerate(sums):
        bars = inspector.page.locator(".lines > li").nth(number).locator(".bars")
        for place, value in enumerate(values):
            bar = bars.nth(place).locator("rect:last-child")
            width, room = float(await bar.get_attribute("width")), 28.5 if value >= 0 else 9.5
            wanted = abs(value) / most * room
            assert abs(width - wanted) < 0.2 or (value and width == 1 and wanted < 1)


async def test_what_is_outdated_is_struck_through_and_names_what_to_see(
    inspector, repo, monkeypatch
):
    """Until when it held, and the number of what replaced it."""
    await moved(repo)

    def second_by_first(question: str, given: Rivals, **_: object) -> Ranking:
        count = len(given.texts)
        return Ranking(list(range(count)), [None, 0, *[None] * (count - 2)])

    monkeypatch.setattr(candidates, "outdated", second_by_first)
    await inspector.open("recall", repo=repo.id, query="Where does Ada live?")
    shown = inspector.page.locator(".lines > li")
    assert await shown.count() > 2
    struck = [await shown.nth(n).locator("s").count() for n in range(await shown.count())]
    assert struck == [0, 1, *[0] * (len(struck) - 2)]
    told = await shown.nth(1).inner_text()
    assert "until" in told
    assert "; see [1]" in told


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
    assert ("leave next" in text) == look.is_due
    assert ("Nothing leaves below" in text) != look.is_due
    kept = page.get_by_role("region", name="Kept beside it")
    for name, words in (("Goals", "Stay dry"), ("Pins", "Day 3."), ("Snapshots", "Day 0.")):
        shown = await kept.locator(f"h3:text-is('{name}') + ul").inner_text()
        assert words in shown, name
        assert "{" not in shown, name
    colours = {"eviction", "middle", "recent"} if look.is_due else set()
    for zone in ("eviction", "middle", "recent"):
        wanted = [str(message.seq) for message in getattr(look.zones, zone)]
        rows = await page.locator(
            f".talk > .zone.{zone} .said-row > :first-child"
        ).all_inner_texts()
        assert rows == (wanted if zone in colours else []), zone
    assert look.zones.eviction
    assert await page.get_by_text("not in the window").count() > 0
    await page.get_by_role("link", name="As sent").click()
    sent = page.get_by_role("region", name="Messages as sent")
    await sent.get_by_text("Day 19.").wait_for()


async def test_messages_that_leave_are_hatched_up_to_a_border(inspector, repo):
    """A full window says how many leave; the list opens at the border, below them."""
    chat = repo.conversation("chat/1")
    said = [Message(role="user", content=f"Day {n}. {'It rained. ' * 20}") for n in range(60)]
    await chat.append(said)
    look = await chat.look()
    assert look.is_due
    await inspector.open("threads", repo=repo.id, thread="chat/1")
    page = inspector.page
    count = len(look.zones.eviction)
    await page.get_by_role("heading", name=f"The window is full: {count} messages leave").wait_for()
    border = page.locator(".talk > .border")
    await border.get_by_text(f"{count} messages above leave next.").wait_for()
    above = page.locator(".talk > .zone:has(+ .border) .said-row > :first-child")
    assert await above.inner_text() == str(look.zones.eviction[-1].seq)


async def test_events_are_filtered_by_words_as_they_come(inspector, repo):
    """Of what happens only what has all words is listed, also of what comes later."""
    await inspector.open("activity", repo=repo.id)
    page = inspector.page
    await page.get_by_text("live", exact=True).wait_for()
    session = await repo.start_session("look out", session_id=f"{repo.id}/1")
    await session.append("rain", "")
    await page.locator(".events").get_by_text("StepAppended").wait_for()
    await page.locator(".events").get_by_text("changes", exact=True).first.wait_for()
    await page.get_by_role("searchbox", name="Words").fill('stepappended "step_index":1')
    await page.get_by_text("Nothing matches").wait_for()
    await session.append("sun", "")
    await page.locator(".events").get_by_text("step index: 1").wait_for()
    assert await page.locator(".events > li").count() == 1
    await page.locator(".events summary").click()
    await page.locator(".events pre").get_by_text('"step_index": 1').wait_for()


async def test_more_threads_than_a_page_has_are_all_known(inspector, repo):
    """The page reads them by thousands; what stands behind the first is found by its name."""
    for number in range(1_001):
        message = {"role": "user", "content": "I sing."}
        await repo.conversation(f"t{number:04}").append(message)
    text = await inspector.open("threads", repo=repo.id)
    assert "1001 threads" in text.replace(",", "")
    await inspector.page.get_by_label("Thread").fill("t1000")
    await inspector.page.get_by_role("link", name="t1000").wait_for()


async def test_stored_markup_is_text_in_recall_people_threads_and_activity(inspector, repo):
    """A script in a fact, a tag, a message, a thread's name and an event is shown, never run."""
    page = inspector.page
    await inspector.open("activity", repo=repo.id)
    await page.get_by_text("live", exact=True).wait_for()
    await repo.add_memory(f"{SCRIPT} harms nobody.", tags=[SCRIPT])
    await repo.conversation(SCRIPT).append([Message(role="user", content=f"{SCRIPT} said.")])
    await (await repo.start_session("harm", session_id=SCRIPT)).append("seen", "")
    await page.locator(".events").get_by_text("<script>").first.wait_for()
    assert SCRIPT in await inspector.open("recall", repo=repo.id, query="What harms nobody?")
    assert f"{SCRIPT} said." in await inspector.open("threads", repo=repo.id, thread=SCRIPT)
    await repo.add_memory("It harms nobody.", tags=[SCRIPT])
    for params in ({}, {"as": "graph"}):
        await inspector.open("people", repo=repo.id, name=SCRIPT, **params)
        assert SCRIPT in await page.locator("h1").inner_text()
        assert params or "harms nobody." in await page.inner_text("main")
    assert await page.locator("main script, main img").count() == 0
    assert not (await page.title()).startswith("owned")

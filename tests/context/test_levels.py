"""Snapshots of level 2, and fallbacks that get better words."""

from dataclasses import replace
from typing import Any

import pytest
from mneme_kit import Watched, ok, snapshot, watched

from mnemo.errors import ModelUnavailable
from mnemo.prompts.mneme import STANDING
from mnemo.protocols import ChatRequest

LEVEL_2 = STANDING["summarize"][1]


class Writer:
    """Answers level 1 with ``s0``, ``s1``, …, and level 2 as its test says."""

    def __init__(self, *level_2: Any) -> None:
        self.level_2 = list(level_2) or [snapshot("folded")]
        self.folds: list[ChatRequest] = []
        self.written = 0

    def __call__(self, request: ChatRequest) -> Any:
        if request.messages[0].content == LEVEL_2:
            self.folds.append(request)
            return self.level_2[min(len(self.folds), len(self.level_2)) - 1]
        self.written += 1
        return snapshot(f"s{self.written - 1}")


async def evictions(kit: Watched, number: int) -> None:
    """Say as much as it takes for so many more zones to leave, one by one."""
    for _ in range(number):
        await kit.say_and_settle(6 if kit.said == 0 else 2)


async def test_five_snapshots_are_folded_into_one_of_level_2(opened):
    """Four are not; the request has all five texts, the result their whole range."""
    writer = Writer()
    async with opened(writer) as kit:
        await evictions(kit, 4)
        assert writer.folds == []
        await evictions(kit, 1)
        [request] = writer.folds
        shown = request.messages[1].content
        assert [f"\ns{i}\n" in shown for i in range(5)] == [True] * 5
        assert '<snapshot messages="0..1" dates="2024-01-01" trusted="false">' in shown
        assert [tool["name"] for tool in request.tools] == ["save_snapshot", "everything_ok"]
        [folded] = await kit.snapshots.list(level=2)
        assert (folded.from_seq, folded.to_seq, folded.text) == (0, 9, "folded")
        assert (folded.origin, folded.covered_by) == ("model", None)
        hidden = await kit.snapshots.list(level=1)
        assert [s.covered_by for s in hidden] == [folded.id] * 5
        assert await kit.snapshots.list(current=True) == [folded]
        assert [e.level for e in kit.events("SnapshotTaken")] == [1, 1, 1, 1, 1, 2]


async def test_ranges_that_needed_no_snapshot_are_within(opened):
    """The level 2 spans from the first start to the last end."""
    answers = [snapshot("a"), ok(), snapshot("b")]

    def script(request: ChatRequest) -> Any:
        return snapshot("ab") if request.messages[0].content == LEVEL_2 else answers.pop(0)

    async with opened(script, l2_threshold=2) as kit:
        await evictions(kit, 3)
        assert await kit.texts(current=True) == [(0, 5, "ab")]


async def test_a_refusal_is_remembered_also_over_a_restart(tmp_path):
    """Nobody is asked again before as many further snapshots exist."""
    writer = Writer(ok(), snapshot("folded"))
    async with watched(tmp_path, script=writer, l2_threshold=2) as kit:
        await evictions(kit, 3)
        said = kit.said
        assert len(writer.folds) == 1
    async with watched(tmp_path, script=writer, l2_threshold=2) as kit:
        kit.said = said
        await kit.mneme.resume()
        await kit.mneme.evict("t")
        await kit.settle()
        assert len(writer.folds) == 1
        await evictions(kit, 1)
        assert len(writer.folds) == 2
        assert await kit.texts(current=True) == [(0, 7, "folded")]


async def test_a_failing_level_2_concerns_it_alone(opened):
    """No level-1 work is repeated; after its attempts it is made by rule."""
    writer = Writer("prose")
    async with opened(writer, l2_threshold=2) as kit:
        await evictions(kit, 2)
        assert len(writer.folds) == 3
        assert writer.written == 2
        assert await kit.boundary() == 4
        [folded] = await kit.snapshots.list(current=True)
        assert (folded.level, folded.origin, folded.text) == (2, "fallback", "s0\ns1")


async def test_a_level_2_that_waits_holds_up_no_eviction(opened):
    """Its attempts have waits of their own."""
    writer = Writer(ModelUnavailable("down"))
    async with opened(writer, l2_threshold=2, retry_backoff_s=60) as kit:
        await kit.say_and_settle(6)
        await kit.say(2)
        await kit.talk.until(lambda: kit.mneme.statistics().waiting == 1)
        await kit.say(2)
        await kit.talk.until(lambda: kit.mneme.statistics().evictions == 3)
        assert len(writer.folds) == 1


async def test_without_a_model_level_2_is_of_first_paragraphs(opened):
    """At once; whatever they were, they fit the limit together."""
    async with opened(l2_threshold=2, snapshot_max_chars=200) as kit:
        await evictions(kit, 2)
        [folded] = await kit.snapshots.list(current=True)
        assert (folded.level, folded.origin) == (2, "fallback")
        assert folded.text.startswith("Messages 0..1")
        assert "Messages 2..3" in folded.text
        assert len(folded.text) <= 200


async def test_long_term_memory_over_its_share_is_folded_again(opened):
    """The two oldest become one over both ranges; there is no level 3."""
    writer = Writer(snapshot("x" * 180), snapshot("y" * 180), snapshot("both"))
    async with opened(writer, l2_threshold=2) as kit:
        await evictions(kit, 4)
        assert len(writer.folds) == 3
        shown = writer.folds[2].messages[1].content
        assert shown.index("x" * 180) < shown.index("y" * 180)
        assert await kit.texts(current=True) == [(0, 7, "both")]
        assert len(await kit.snapshots.list(level=2)) == 3
        assert len(await kit.snapshots.list(level=1)) == 4


async def test_a_single_snapshot_over_the_share_is_left(opened):
    """It is cut as it is shown."""
    writer = Writer(snapshot("x" * 4_000))
    async with opened(writer, l2_threshold=2) as kit:
        await evictions(kit, 2)
        assert len(writer.folds) == 1


async def test_a_level_2_of_snapshots_that_changed_is_thrown_away(opened):
    """It is made anew of what there is."""

    async def script(request: ChatRequest) -> Any:
        if request.messages[0].content != LEVEL_2:
            return snapshot("s")
        if len(kit.requests) == 3:
            await reword()
        return snapshot(f"folded at {len(kit.requests)}")

    async def reword() -> None:
        [first, *_] = await kit.snapshots.list()
        await kit.talk.parts.store.writing(lambda tx: tx.put(replace(first, text="other")))

    async with opened(script, l2_threshold=2) as kit:
        await evictions(kit, 2)
        assert await kit.texts(current=True) == [(0, 3, "folded at 4")]
        assert "other" in kit.requests[3].messages[1].content


async def test_a_fallback_gets_better_words_after_a_success(opened):
    """The newest one, once per run, in its place: same id, same range."""
    asked: list[str] = []

    def script(request: ChatRequest) -> Any:
        asked.append(request.messages[1].content)
        return "prose" if len(asked) <= 3 else snapshot(f"s{len(asked)}")

    async with opened(script) as kit:
        await kit.say_and_settle(6)
        [fallback] = await kit.snapshots.list()
        await kit.say_and_settle(2)
        assert len(asked) == 5
        assert "── EVICTION ZONE ──\nmessage 0 User: Sentence 0." in asked[4]
        assert "── MIDDLE ZONE ──\nmessage 4 " in asked[4]
        better, other = await kit.snapshots.list()
        assert (better.id, better.text, better.origin) == (fallback.id, "s5", "model")
        assert (other.from_seq, other.text) == (2, "s4")
        assert await kit.boundary() == 4
        assert await kit.verdicts() == [(0, 1, "fallback"), (2, 3, "snapshot")]
        await kit.say_and_settle(2)
        assert len(asked) == 6


async def test_a_fallback_that_the_model_leaves_is_not_offered_again(opened):
    """A failure is told, and the next run offers it again."""
    answers: list[Any] = ["prose"] * 3 + [
        snapshot("a"),
        "prose",
        snapshot("b"),
        ok(),
        snapshot("c"),
    ]
    async with opened(lambda request: answers.pop(0)) as kit:
        await kit.say_and_settle(6)
        for left in (3, 1, 0):
            await kit.say_and_settle(2)
            assert len(answers) == left
        assert (await kit.snapshots.list())[0].origin == "fallback"
        assert kit.mneme.statistics().failures == 4


async def test_only_current_snapshots_of_a_level_are_listed(opened):
    """By range, whatever their level; there is no third."""
    async with opened(Writer(), l2_threshold=2) as kit:
        await evictions(kit, 3)
        assert await kit.texts() == [(0, 1, "s0"), (0, 3, "folded"), (2, 3, "s1"), (4, 5, "s2")]
        assert await kit.texts(current=True) == [(0, 3, "folded"), (4, 5, "s2")]
        assert await kit.texts(level=1, current=True) == [(4, 5, "s2")]
        with pytest.raises(ValueError, match="level"):
            await kit.snapshots.list(level=3)  # type: ignore[arg-type]


async def test_memory_shows_each_text_once_at_its_level(opened):
    """Under its heading, nowhere else; what is covered is absent."""
    async with opened(Writer(), l2_threshold=2) as kit:
        view = kit.viewport()
        await evictions(kit, 1)
        memory = (await view.render()).memory or ""
        assert memory.count("s0") == 1
        assert "## Recent memory" in memory
        assert "## Long-term memory" not in memory
        await evictions(kit, 2)
        memory = (await view.render()).memory or ""
        assert memory.index("## Long-term memory") < memory.index("folded")
        assert memory.index("folded") < memory.index("## Recent memory") < memory.index("s2")
        assert "s0" not in memory

"""Mneme failing: attempts, waits, the fallback, and nobody else who notices."""

from typing import Any

import anyio
import pytest
from mneme_kit import Watched, attach, both, ok, snapshot, watched
from talk_kit import assistant, result, user

from mnemo.context.eviction import Snapshots
from mnemo.errors import ModelUnavailable, StoreLocked, UsageError
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.testing import tool_call

CUT_OFF = ChatReply(tool_calls=(snapshot("half"),), truncated=True)
FAILING: list[Any] = [
    "I have saved everything.",
    CUT_OFF,
    tool_call("launch"),
    ModelUnavailable("down"),
    RuntimeError("boom"),
    attach([0], [1]),
    "",
]


@pytest.mark.parametrize("answer", FAILING, ids=lambda answer: str(answer)[:20])
async def test_after_three_attempts_the_range_leaves_by_rule(opened, answer):
    """Whatever the model does instead of a verdict; what it staged is dropped."""
    async with opened(answer, max_rounds=2) as kit:
        await kit.goals.add("one")
        await kit.say_and_settle(6)
        [outcome] = await kit.snapshots.outcomes()
        assert (outcome.from_seq, outcome.to_seq, outcome.kind) == (0, 1, "fallback")
        assert outcome.attempts == 3
        assert await kit.boundary() == 2
        [taken] = await kit.snapshots.list()
        assert taken.origin == "fallback"
        assert "User: Sentence 0." in taken.text
        assert await kit.pins.list() == []
        assert kit.mneme.statistics().failures == 3
        assert len(kit.events("EvictionFailed")) == 3


async def test_an_attempt_waits_for_its_time(opened):
    """Five seconds, then ten, by the clock; the boundary stays until the last."""
    async with opened("prose", retry_backoff_s=5) as kit:
        await kit.say(6)
        for asked, wait in ((1, 5), (2, 10)):
            await kit.talk.until(lambda: kit.mneme.statistics().waiting == 1)
            await kit.talk.clock.advance(0)  # a wait that is counted may be about to begin
            assert len(kit.requests) == asked
            kit.talk.clock.advance(wait - 1)
            await kit.say(1, tokens=1)
            await kit.mneme._flights.settled("t")
            assert len(kit.requests) == asked
            assert await kit.boundary() == 0
            kit.talk.clock.advance(1)
            await kit.talk.until(lambda more=asked: len(kit.requests) == more + 1)
        await kit.settle()
        assert await kit.verdicts() == [(0, 1, "fallback")]


async def test_who_asks_for_it_does_not_wait(opened):
    """``evict`` runs at once, and ``None`` says that the run brought no outcome."""
    async with opened("prose", retry_backoff_s=5) as kit:
        await kit.say(6)
        await kit.talk.until(lambda: kit.mneme.statistics().waiting == 1)
        assert await kit.mneme.evict("t") is None
        outcome = await kit.mneme.evict("t")
        assert outcome is not None
        assert (outcome.kind, outcome.attempts) == ("fallback", 3)
        await kit.settle()


async def test_what_cannot_be_retried_is_not(opened):
    """A refusal that would be repeated ends the attempts."""
    async with opened(ModelUnavailable("no such model", retryable=False)) as kit:
        await kit.say_and_settle(6)
        assert len(kit.requests) == 1
        [outcome] = await kit.snapshots.outcomes()
        assert (outcome.kind, outcome.attempts) == ("fallback", 1)


async def test_a_run_that_hangs_is_ended_by_the_clock(opened):
    """After ``run_timeout_s``, whatever the model does."""
    async with opened(snapshot("late"), max_attempts=1) as kit:
        kit.model.block()
        await kit.say(6)
        await kit.talk.until(lambda: kit.model.waiting == 1)
        kit.talk.clock.advance(119)
        assert kit.model.waiting == 1
        await kit.talk.clock.advance(1)
        await kit.settle()
        assert await kit.verdicts() == [(0, 1, "fallback")]
        [failed] = kit.events("EvictionFailed")
        assert "no verdict within 120 s" in failed.error


async def test_a_later_attempt_may_succeed(opened):
    """Its outcome says how many it took; the next range begins at one."""
    async with opened(["prose", OSError("gone"), snapshot("s"), ok()]) as kit:
        await kit.say_and_settle(8)
        first, second = await kit.snapshots.outcomes()
        assert (first.kind, first.attempts) == ("snapshot", 3)
        assert (second.kind, second.attempts) == ("ok", 1)


async def test_without_a_model_the_fallback_is_the_ordinary_way(opened):
    """At once, and a pure function of the zone."""
    async with opened() as kit:
        await kit.say_and_settle(6)
        [outcome] = await kit.snapshots.outcomes()
        assert (outcome.kind, outcome.attempts) == ("fallback", 0)
        [taken] = await kit.snapshots.list()
        assert taken.origin == "fallback"
        assert taken.text.splitlines() == [
            "Messages 0..1, 2024-01-01; first sentences only.",
            "User: Sentence 0.",
            "Assistant: Sentence 1.",
        ]
        assert kit.mneme.statistics().failures == 0


async def test_the_same_zone_elsewhere_gives_the_same_text_but_for_its_dates(
    opened,
):
    """Another thread, another day."""
    async with opened() as kit:
        await kit.say_and_settle(6)
        kit.talk.clock.advance(86_400)
        other, kit.said = kit.talk.log("u"), 0
        kit.mneme.watch("u", 1_000)
        await kit.say(6, log=other)
        with anyio.fail_after(120):
            await kit.mneme.settled("u")
        [taken] = await kit.snapshots.list()
        [elsewhere] = await Snapshots(kit.talk.parts, kit.talk.settings("u")).list()
        assert elsewhere.text == taken.text.replace("2024-01-01", "2024-01-02")


async def test_a_zone_without_speech_tells_its_range_and_its_tools(opened):
    """There is nothing else to tell."""
    async with opened() as kit:
        batch = [m for i in range(6) for m in _called(i)]
        await kit.log.append(batch)
        await kit.settle()
        [taken] = await kit.snapshots.list()
        assert taken.text.splitlines() == [
            "Messages 0..3, 2024-01-01; first sentences only.",
            "[2 tools called]",
        ]


def _called(number: int) -> list[Any]:
    call = assistant(None, f"c{number}", token_count=50)
    return [call, result(f"c{number}", token_count=50)]


async def test_nobody_notices_a_model_that_always_raises(opened):
    """Append, load, messages and render answer throughout."""
    async with opened(RuntimeError("boom"), retry_backoff_s=5) as kit:
        view = kit.viewport()
        for _ in range(20):
            await kit.say(1)
            assert (await kit.log.history())[-1].id == f"m{kit.said - 1}"
            shown = await view.messages()
            assert shown[-1].id == f"m{kit.said - 1}"
            assert (await view.render()).token_count <= 1_000
            await kit.talk.clock.advance(3)
        assert kit.mneme.statistics().failures > 0


async def test_a_store_that_fails_is_an_event_and_tried_again(opened):
    """The next append finds the thread still due."""
    async with opened(snapshot("s")) as kit:
        real = kit.talk.parts.store.writing
        broken = True

        async def writing(work: Any, **named: Any) -> Any:
            if broken and "kept" in getattr(work, "__qualname__", ""):
                raise StoreLocked("busy")
            return await real(work, **named)

        object.__setattr__(kit.talk.parts.store, "writing", writing)
        await kit.say_and_settle(6)
        assert await kit.boundary() == 0
        assert {"StoreLocked: busy"} == {e.error for e in kit.events("EvictionFailed")}
        broken = False
        await kit.say_and_settle(1, tokens=1)
        assert await kit.boundary() == 2


async def test_a_repository_that_closes_is_no_failure(opened, monkeypatch, caplog):
    """A look that meets a closed repository is no event, no count, and no warning."""
    async with opened(ok()) as kit:
        await kit.say_and_settle(6)

        async def reading(work: Any) -> Any:
            raise UsageError("repository 'r' is closed")

        monkeypatch.setattr(kit.mneme._parts.store, "reading", reading)
        with pytest.raises(UsageError, match="closed"):
            await kit.mneme.evict("t")
        assert kit.events("EvictionFailed") == []
        assert kit.mneme.statistics().failures == 0
        assert [one.message for one in caplog.records if one.levelname != "INFO"] == []


async def test_a_reply_that_finds_its_repository_closed_is_no_failure(opened, monkeypatch, caplog):
    """A run whose model answers while the repository closes is no event, count or warning."""
    async with opened(both(snapshot("s"))) as kit:
        kit.model.block()
        await kit.say(6)
        await kit.talk.until(lambda: kit.model.waiting == 1)

        async def closed(work: Any) -> Any:
            raise UsageError("repository 'r' is closed")

        monkeypatch.setattr(kit.mneme._parts.store, "reading", closed)
        monkeypatch.setattr(kit.mneme._parts.store, "writing", closed)
        kit.model.unblock()
        await kit.talk.until(lambda: kit.mneme.statistics().running == 0)
        assert kit.events("EvictionFailed") == []
        assert kit.mneme.statistics().failures == 0
        assert [one.message for one in caplog.records if one.levelname != "INFO"] == []


async def test_a_restart_finds_what_is_due_from_the_store_alone(tmp_path):
    """The budget, the boundary, outcomes, snapshots and pins are as before."""
    async with watched(tmp_path, script=both(attach([0], [1]), snapshot("s"))) as kit:
        await kit.goals.add("one")
        await kit.say_and_settle(6)
        before = await _all_of(kit)
        kit.model.block()
        await kit.say(4)
        await kit.talk.until(lambda: kit.model.waiting == 1)
    async with watched(tmp_path, script=ok(), budget=None) as kit:
        assert await _all_of(kit) == before
        await kit.mneme.resume()
        await kit.talk.until(lambda: kit.mneme.statistics().evictions > 0)
        await kit.settle()
        assert (await kit.verdicts())[:2] == [(0, 1, "snapshot"), (2, 3, "ok")]


async def test_to_settle_is_to_wait_for_what_an_earlier_process_left_due(tmp_path):
    """Nobody has looked at the thread since it was opened; what is due is due all the same."""
    async with watched(tmp_path, script=snapshot()) as kit:
        kit.model.block()
        await kit.say(6)
        await kit.talk.until(lambda: kit.model.waiting == 1)
    async with watched(tmp_path, script=ok(), budget=None) as kit:
        await kit.mneme.settled("t")
        assert await kit.verdicts() == [(0, 1, "ok")]


async def _all_of(kit: Watched) -> Any:
    row = await kit.row()
    return (
        (row.boundary, row.epoch, row.budget_tokens),
        await kit.snapshots.outcomes(),
        await kit.snapshots.list(),
        await kit.goals.list(),
        await kit.pins.list(),
    )


async def test_threads_that_are_not_watched_are_not_looked_at_again(opened):
    """Not for a while; a viewport changes that at once."""
    async with opened(snapshot(), budget=None) as kit:
        reads = 0
        real = kit.talk.parts.store.reading

        async def reading(work: Any) -> Any:
            nonlocal reads
            reads += 1
            return await real(work)

        object.__setattr__(kit.talk.parts.store, "reading", reading)
        for _ in range(20):
            await kit.say(1)
            await kit.mneme.settled("t")
        assert reads <= 2
        kit.viewport()
        await kit.say_and_settle(1)
        assert len(kit.requests) > 0


async def test_a_thread_that_waits_holds_up_no_other(opened):
    """Threads run independently."""

    def by_thread(request: ChatRequest) -> Any:
        return snapshot("u") if "Other" in request.messages[1].content else "prose"

    async with opened(by_thread, retry_backoff_s=60) as kit:
        await kit.say(6)
        kit.mneme.watch("u", 1_000)
        log = kit.talk.log("u")
        await log.append([user(f"Other {i}", token_count=100) for i in range(6)])
        with anyio.fail_after(120):
            await kit.mneme.settled("u")
        assert (await kit.talk.row("u")).boundary == 2
        assert await kit.boundary() == 0

"""Mneme while others write: appends, clear, purge, a reading that evicts, another process."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
from mneme_kit import Watched, attach, both, ok, snapshot, watched
from talk_kit import user
from world import store_at

from mnemo.context.eviction import due_eviction, evict_by_fallback
from mnemo.log.transcript import TranscriptWriter
from mnemo.testing import ManualClock
from mnemo.values.derived import EvictionOutcome


async def held(kit: Watched, number: int = 6) -> None:
    """Have a run wait for its model."""
    kit.model.block()
    await kit.say(number)
    await kit.talk.until(lambda: kit.model.waiting == 1)


async def go_on(kit: Watched) -> None:
    """Let the model answer, and wait for all that follows."""
    kit.model.unblock()
    await kit.settle()


class Held:
    """A store whose next reading of a transcript is held back once it has read."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.gate: anyio.Event | None = None
        self.holds = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def transcript(self, repo_id: str) -> Any:
        """The transcript of the store, with readings that can be held."""
        return HeldTranscript(self, self.inner.transcript(repo_id))


class HeldTranscript:
    """See ``Held``."""

    def __init__(self, held: Held, inner: Any) -> None:
        self.held = held
        self.writing = inner.writing
        self.inner = inner

    async def reading(self, work: Callable[[Any], Any]) -> Any:
        """What the store gives, later than it was read."""
        gate, self.held.gate = self.held.gate, None
        found = await self.inner.reading(work)
        if gate is not None:
            self.held.holds = True
            await gate.wait()
        return found


async def test_an_eviction_asked_for_after_the_append_that_makes_it_due_finds_it(
    tmp_path,
):
    """The run under way had looked before the append, so it is not the one that answers."""
    held_store = Held(store_at(tmp_path / "talk.db", ManualClock()))
    async with watched(store=held_store, auto_evict=False) as kit:
        await kit.say(5)
        gate = held_store.gate = anyio.Event()
        kit.mneme._flights.poke("t")
        await kit.talk.until(lambda: held_store.holds)
        await kit.say(1)
        found: list[EvictionOutcome | None] = []

        async def evict() -> None:
            found.append(await kit.mneme.evict("t"))

        async with anyio.create_task_group() as group:
            group.start_soon(evict)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        (outcome,) = found
        assert outcome is not None
        assert (outcome.from_seq, outcome.to_seq) == (0, 1)


async def by_fallback(kit: Watched) -> EvictionOutcome:
    """Let what is due leave by rule, as a reading does that cannot wait."""
    config = kit.talk.parts.config

    def work(tx: TranscriptWriter) -> EvictionOutcome:
        found = due_eviction(tx, "t", config)
        assert found is not None
        return evict_by_fallback(tx, tx.thread("t"), found.zone(), config).outcome

    return await kit.talk.parts.store.writing(work)


async def test_appends_do_not_wait_and_do_not_spoil_a_run(opened):
    """The range was read before; what came meanwhile is judged after."""
    async with opened(snapshot("s")) as kit:
        await held(kit)
        await kit.say(1)
        assert len(await kit.log.history()) == 7
        await go_on(kit)
        assert await kit.verdicts() == [(0, 1, "snapshot")]
        assert len(kit.requests) == 1


async def test_a_clear_during_a_run_throws_its_result_away(opened):
    """The new epoch begins with nothing."""
    async with opened(both(attach([0], [1]), snapshot("s"))) as kit:
        await kit.goals.add("one")
        await held(kit)
        await kit.log.clear()
        await go_on(kit)
        assert await kit.snapshots.list() == []
        assert await kit.snapshots.outcomes() == []
        assert await kit.pins.list() == []
        assert await kit.boundary() == 6
        assert kit.mneme.statistics().failures == 0


async def test_a_purge_during_a_run_throws_its_result_away(opened):
    """Nothing of what was erased comes back as a snapshot."""
    async with opened(snapshot("s")) as kit:
        await held(kit)
        await kit.log.purge()
        await go_on(kit)
        assert await kit.snapshots.list() == []
        assert await kit.boundary() == 6
        kit.model.script("summarize", snapshot("t"))
        await kit.say_and_settle(6)
        assert await kit.texts() == [(6, 7, "t")]


async def test_a_fallback_of_exactly_the_range_gets_the_models_words(opened):
    """Same id, boundary as it was, pins added."""
    async with opened(both(attach([0], [1]), snapshot("better"))) as kit:
        await kit.goals.add("one")
        await held(kit)
        outcome = await by_fallback(kit)
        await go_on(kit)
        [taken] = await kit.snapshots.list()
        assert (taken.id, taken.text, taken.origin) == (outcome.snapshot_id, "better", "model")
        assert await kit.snapshots.outcomes() == [outcome]
        assert await kit.boundary() == 2
        assert [pin.seq for pin in await kit.pins.list()] == [0]
        assert kit.events("EvictionCompleted") == []
        assert [event.origin for event in kit.events("SnapshotTaken")] == ["model"]


async def test_everything_ok_changes_nothing_after_a_fallback(opened):
    """The text by rule stays, and nothing is pinned."""
    async with opened(both(attach([0], [1]), ok())) as kit:
        await kit.goals.add("one")
        await held(kit)
        await by_fallback(kit)
        await go_on(kit)
        [taken] = await kit.snapshots.list()
        assert taken.origin == "fallback"
        assert await kit.pins.list() == []


async def test_a_fallback_of_another_range_throws_the_result_away(opened):
    """What is due is judged anew; no range is dealt with twice."""
    async with opened(snapshot("s")) as kit:
        await held(kit)
        await kit.say(4)
        await by_fallback(kit)
        await by_fallback(kit)
        boundary = await kit.boundary()
        await go_on(kit)
        covered = [seq for first, last, _ in await kit.verdicts() for seq in range(first, last + 1)]
        assert covered == list(range(await kit.boundary()))
        assert await kit.boundary() >= boundary


async def test_a_reading_does_not_wait_for_a_run(opened):
    """What does not fit is dealt with by rule; the run's words take its place if they match."""
    async with opened(snapshot("better")) as kit:
        await held(kit)
        await kit.say(2)
        shown = await kit.viewport().messages()
        assert [message.id for message in shown] == ["m2", "m3", "m4", "m5", "m6", "m7"]
        await go_on(kit)
        assert (0, 1, "better") in await kit.texts()


async def test_a_goal_completed_during_a_run_gets_no_pin(opened):
    """The others keep theirs; the outcome is committed."""
    async with opened(both(attach([0], [1, 2]), attach([1], [1]), snapshot("s"))) as kit:
        await kit.goals.add("one")
        await kit.goals.add("two")
        kit.model.block()
        await kit.say(6)
        await kit.talk.until(lambda: kit.model.waiting == 1)
        real = kit.talk.parts.store.writing
        completed = False

        async def writing(work: Any, **named: Any) -> Any:
            nonlocal completed
            if not completed and "kept" in work.__qualname__:
                completed = True
                await kit.goals.complete(1)
            return await real(work, **named)

        object.__setattr__(kit.talk.parts.store, "writing", writing)
        await go_on(kit)
        assert [(pin.seq, pin.goal_ids) for pin in await kit.pins.list()] == [(0, (2,))]
        assert await kit.boundary() == 2


async def test_a_message_erased_before_it_is_pinned_makes_the_check_fail(opened):
    """The range is dealt with anew, without it."""
    async with opened([both(attach([5], [1]), snapshot("s")), snapshot("t")]) as kit:
        await kit.goals.add("one")
        await kit.say(1, tokens=1)
        real = kit.talk.parts.store.writing
        erased = False

        async def writing(work: Any, **named: Any) -> Any:
            nonlocal erased
            if not erased and "kept" in work.__qualname__:
                erased = True
                await real(lambda tx: tx.erase("t", [5]))
            return await real(work, **named)

        object.__setattr__(kit.talk.parts.store, "writing", writing)
        await kit.say_and_settle(9)
        assert erased
        assert await kit.pins.list() == []
        assert all(text != "s" for _, _, text in await kit.texts())
        assert await kit.boundary() > 0


async def test_two_services_on_one_file_store_one_result(tmp_path):
    """Both may ask a model; the check at commit lets one through."""
    async with (
        watched(tmp_path, script=snapshot("one")) as one,
        watched(tmp_path, script=snapshot("two")) as other,
    ):
        one.model.block()
        other.model.block()
        await one.say(6)
        await one.talk.until(lambda: one.model.waiting == 1)
        other.mneme.poke("t")
        await other.talk.until(lambda: other.model.waiting == 1)
        await go_on(other)
        await go_on(one)
        assert await one.texts() == [(0, 1, "two")]
        assert await one.verdicts() == [(0, 1, "snapshot")]
        assert (await one.snapshots.outcomes()) == (await other.snapshots.outcomes())


async def test_threads_run_side_by_side_up_to_a_limit(opened):
    """``max_parallel_runs`` of them; the others wait for their turn."""
    async with opened(snapshot("s"), max_parallel_runs=2, budget=None) as kit:
        kit.model.block()
        for name in ("a", "b", "c"):
            kit.mneme.watch(name, 1_000)
            await kit.talk.log(name).append([user(f"{i}", token_count=100) for i in range(6)])
        await kit.talk.until(lambda: kit.model.waiting == 2)
        assert kit.mneme.statistics().running == 3
        kit.model.unblock()
        with anyio.fail_after(120):
            for name in ("a", "b", "c"):
                await kit.mneme.settled(name)
        assert [(await kit.talk.row(name)).boundary for name in "abc"] == [2, 2, 2]


async def test_joining_a_run_gives_its_outcome(opened):
    """Whoever asks for an eviction meanwhile gets that of the run in flight."""
    async with opened(snapshot("s")) as kit:
        await held(kit)
        outcomes: list[Any] = []

        async def join() -> None:
            outcomes.append(await kit.mneme.evict("t"))

        async with anyio.create_task_group() as group:
            group.start_soon(join)
            group.start_soon(join)
            await anyio.lowlevel.checkpoint()
            kit.model.unblock()
        assert [outcome.to_seq for outcome in outcomes] == [1, 1]
        assert len(kit.requests) == 1


async def test_a_closing_repository_leaves_a_run_undone(tmp_path):
    """Nothing was written; the next service finds it due."""
    async with watched(tmp_path, script=snapshot("s")) as kit:
        await held(kit)
    async with watched(tmp_path, script=snapshot("t"), budget=None) as kit:
        assert await kit.snapshots.outcomes() == []
        await kit.mneme.resume()
        await kit.talk.until(lambda: kit.mneme.statistics().evictions == 1)
        assert await kit.texts() == [(0, 1, "t")]

"""Whatever is said, whatever is asked for and however a model fails: the invariants hold."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mneme_kit import Watched, attach, both, ok, snapshot, watched
from talk_kit import assistant, result, user

from mnemo.context.zones import Budget
from mnemo.errors import ModelUnavailable
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.testing import tool_call
from mnemo.values.derived import Snapshot
from mnemo.values.messages import Message
from mnemo.values.units import units_of

HANGS = "hangs"
ANSWERS: list[Any] = [
    snapshot("kept"),
    snapshot("k" * 300),
    ok(),
    both(snapshot("with"), ok()),
    both(attach([0, 1], [1]), snapshot("pinned")),
    attach([10**6, -1], [1]),
    attach("all", {"goal": 1}),
    tool_call("save_snapshot", text=["wrong"]),
    tool_call("delete_everything"),
    "It is all saved, believe me.",
    ChatReply(tool_calls=(snapshot("cut"),), truncated=True),
    ChatReply(tool_calls=(7, {"name": None})),  # type: ignore[arg-type]
    ModelUnavailable("down"),
    ModelUnavailable("never", retryable=False),
    RuntimeError("boom"),
    HANGS,
]
STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 8), st.sampled_from([1, 50, 100, 300, 900])),
    st.tuples(st.just("call"), st.integers(0, 2), st.sampled_from([20, 100])),
    st.tuples(st.just("answer"), st.sampled_from([20, 100, 400])),
    st.tuples(st.just("goal"), st.booleans()),
    st.tuples(st.just("read"), st.sampled_from([300, 1_000, 2_000])),
    st.tuples(st.just("evict")),
    st.tuples(st.just("wait"), st.sampled_from([1, 200])),
    st.tuples(st.just("clear")),
)


class World:
    """One thread, everything that was said in it, and the model that is asked about it."""

    def __init__(self, kit: Watched, answers: Sequence[Any]) -> None:
        self.kit = kit
        self.answers = list(answers)
        self.asked = 0
        self.said: list[Message] = []
        self.open_calls: list[str] = []
        self.boundaries: dict[int, int] = {}
        self.budget = 1_000

    async def answer(self, request: ChatRequest) -> Any:
        """The next answer; a first request must come of a span above the trigger."""
        await self._came_of_need(request)
        self.asked += 1
        answer = self.answers[self.asked % len(self.answers)]
        if isinstance(answer, str) and answer == HANGS:
            await anyio.sleep_forever()
        return answer

    async def _came_of_need(self, request: ChatRequest) -> None:
        shown = re.search(
            r"── EVICTION ZONE ──\n(?:\[.*\n)?message (\d+) ", request.messages[1].content
        )
        row = await self.kit.row()
        if shown is None or len(request.messages) > 2 or int(shown[1]) < row.boundary:
            return  # levels, later rounds, fallbacks that are offered once more
        _, span = await self.kit.talk.parts.store.reading(
            lambda tx: tx.span("t", from_seq=row.boundary)
        )
        assert row.budget_tokens is not None
        viewport = self.kit.talk.parts.config.viewport
        assert span > Budget.of(row.budget_tokens, viewport).trigger

    async def step(self, step: tuple[Any, ...]) -> None:
        """Do one thing, and let all that follows from it happen."""
        match step:
            case ("say", int(number), int(tokens)):
                await self.append([self._words(i, tokens) for i in range(number)])
            case ("call", int(number), int(tokens)):
                ids = [f"c{len(self.said)}-{i}" for i in range(number)] or [f"c{len(self.said)}"]
                self.open_calls += ids
                await self.append([assistant(None, *ids, token_count=tokens)])
            case ("answer", int(tokens)):
                id = self.open_calls.pop() if self.open_calls else "nobody's"
                await self.append([result(id, token_count=tokens)])
            case ("goal", True):
                await self.kit.goals.add("an aim")
            case ("goal", False):
                for goal in (await self.kit.goals.list(active_only=True))[:1]:
                    await self.kit.goals.complete(goal.id)
            case ("read", int(budget)):
                self.budget = budget
                await self.kit.viewport(budget).messages()
            case ("evict",):
                async with ticking(self.kit):
                    await self.kit.mneme.evict("t")
            case ("wait", int(seconds)):
                await self.kit.talk.clock.advance(seconds)
            case ("clear",):
                await self.kit.log.clear()

    async def append(self, messages: list[Message]) -> None:
        """Say it."""
        await self.kit.log.append(messages)
        self.said += messages

    def _words(self, place: int, tokens: int) -> Message:
        text = f"Words {len(self.said) + place}. More."
        speak = assistant if (len(self.said) + place) % 2 else user
        return speak(text, token_count=tokens)

    async def check(self) -> None:
        """All invariants of section 12."""
        row = await self.kit.row()
        outcomes = await self.kit.snapshots.outcomes()
        covered = [seq for o in outcomes for seq in range(o.from_seq, o.to_seq + 1)]
        assert covered == list(range(row.epoch_start, row.boundary)), "coverage"
        snapshots = await self.kit.snapshots.list()
        self._one_snapshot_per_text(outcomes, [s for s in snapshots if s.level == 1])
        self._chains_end(snapshots)
        assert row.boundary >= self.boundaries.get(row.epoch, 0), "only forward"
        self.boundaries[row.epoch] = row.boundary
        history = await self.kit.log.history()
        assert [m.content for m in history] == [m.content for m in self.said], "raw log"
        living = [m for m in history if m.epoch == row.epoch]
        newest = living[-1].seq if living else row.epoch_start
        assert row.boundary <= newest, "over-eviction"
        for pin in await self.kit.pins.list():
            assert pin.seq in {message.seq for message in living}

    @staticmethod
    def _one_snapshot_per_text(outcomes: Sequence[Any], snapshots: Sequence[Snapshot]) -> None:
        told = [(o.from_seq, o.to_seq, o.snapshot_id) for o in outcomes if o.kind != "ok"]
        assert told == [(s.from_seq, s.to_seq, s.id) for s in snapshots]
        assert all(o.snapshot_id is None for o in outcomes if o.kind == "ok")

    @staticmethod
    def _chains_end(snapshots: Sequence[Snapshot]) -> None:
        by_id = {snapshot.id: snapshot for snapshot in snapshots}
        for lower in snapshots:
            while lower.covered_by is not None:
                upper = by_id[lower.covered_by]
                assert upper.level == 2
                assert upper.from_seq <= lower.from_seq
                assert lower.to_seq <= upper.to_seq
                lower = upper


@asynccontextmanager
async def ticking(kit: Watched) -> AsyncIterator[None]:
    """Time passes as long as somebody waits for something."""

    async def tick() -> None:
        while True:
            await kit.talk.clock.advance(50)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            yield
            group.cancel_scope.cancel()


async def lived(answers: Sequence[Any], steps: Sequence[tuple[Any, ...]], **rest: Any) -> World:
    """A world in which *steps* have happened, checked after each."""
    worlds: list[World] = []

    async def answer(request: ChatRequest) -> Any:
        return await worlds[0].answer(request)

    async with watched(script=answer, **rest) as kit:
        worlds.append(World(kit, answers))
        for step in steps:
            await worlds[0].step(step)
            await worlds[0].check()
            async with ticking(kit):
                await kit.mneme.settled("t")
            await worlds[0].check()
        return worlds[0]


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5),
    steps=st.lists(STEPS, min_size=1, max_size=14),
    threshold=st.integers(2, 4),
)
def test_the_invariants_hold_after_every_step(answers, steps, threshold):
    """
    Coverage, only forward, no over-eviction, raw log untouched, and no run without need.

    Answers include prose, cut-off replies, unknown tools, wrong types, hanging, both
    terminal tools and pins on messages that are not there.
    """

    async def live() -> None:
        await lived(answers, steps, l2_threshold=threshold, retry_backoff_s=5)

    anyio.run(live)


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_a_window_is_below_its_trigger_once_all_is_settled(steps):
    """Unless an unanswered call, or the newest unit alone, holds it."""

    async def live() -> None:
        async with watched() as kit:
            world = World(kit, [ok()])
            for step in steps:
                await world.step(step)
            await world.append([user("last", token_count=1)])
            await kit.talk.clock.advance(200)
            await world.append([user("last", token_count=1)])
            async with ticking(kit):
                await kit.mneme.settled("t")
            await world.check()
            row = await kit.row()
            _, span = await kit.talk.parts.store.reading(
                lambda tx: tx.span("t", from_seq=row.boundary)
            )
            trigger = Budget.of(row.budget_tokens or 1, kit.talk.parts.config.viewport).trigger
            history = await kit.log.history(from_seq=row.boundary)
            assert span <= trigger or len(units_of(history)) < 2

    anyio.run(live)

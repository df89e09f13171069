"""Loading over random histories: whatever lies where, nothing is parted, lost or read twice."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from talk_kit import Talk, open_talk
from world import store_at

from mnemo.conversation import load as loading
from mnemo.errors import Conflict, UsageError
from mnemo.testing import ManualClock
from mnemo.values.messages import VIEW, Message, StoredMessage, ToolCall
from mnemo.values.strategies import Composite, Nearest, Recent, Retrieval, ToolOutputPruner
from mnemo.values.units import units_of

CALLS = some.sampled_from("abcdefgh")
EVERYTHING = Recent(10_000)


@dataclass(frozen=True)
class Talked:
    """A thread made at random, and how it is loaded."""

    said: list[Message]
    ranges: list[tuple[int, int]]
    clear_at: int | None
    retrieval: Retrieval
    prune: bool


def said() -> some.SearchStrategy[Message]:
    """One message: speech, rules, calls, and results that may answer them or nothing."""
    word = some.sampled_from(["ferry", "bread", "rain", "cat"])
    tokens = some.integers(1, 9)
    return some.one_of(
        some.builds(Message, role=some.just("user"), content=word, token_count=tokens),
        some.builds(
            Message,
            role=some.just("assistant"),
            content=word | some.none(),
            tool_calls=some.lists(
                some.builds(ToolCall, id=CALLS, name=some.just("f")),
                max_size=3,
                unique_by=lambda call: call.id,
            ),
        ),
        some.builds(Message, role=some.just("tool"), content=word, tool_call_id=CALLS),
        some.builds(Message, role=some.just("system"), content=word, token_count=tokens),
    )


def chosen() -> some.SearchStrategy[Retrieval]:
    """Any strategy, with few units."""
    k = some.integers(1, 4)
    plain = some.builds(Recent, k) | some.builds(Nearest, k)
    pair = some.tuples(plain, plain).map(lambda two: Composite(*two, weights=[2, 1]))
    return plain | pair


talked = some.builds(
    Talked,
    said=some.lists(said(), max_size=30),
    ranges=some.lists(some.tuples(some.integers(0, 29), some.integers(0, 29)), max_size=3),
    clear_at=some.none() | some.integers(0, 20),
    retrieval=chosen(),
    prune=some.booleans(),
)

thoroughly = settings(max_examples=examples(120), suppress_health_check=list(HealthCheck))


def over(case: Talked, check: Callable[[Talk, Any], Any]) -> None:
    """Make the thread of *case* and run *check* on it, with pages of three messages."""

    async def run() -> None:
        clock = ManualClock()
        async with open_talk(store_at(None, clock), clock) as talk:
            compression = ToolOutputPruner(2) if case.prune else None
            log = talk.log(retrieval=case.retrieval, compression=compression)
            split = case.clear_at if case.clear_at is not None else 0
            await log.append(case.said[:split])
            if case.clear_at is not None:
                await log.clear()
            await log.append(case.said[split:])
            await talk.embed()
            for first, last in case.ranges:
                try:
                    await log.compact(min(first, last), max(first, last), "summary")
                except (ValueError, Conflict):
                    continue
            await check(talk, log)

    paged, loading.PAGE = loading.PAGE, 3
    try:
        anyio.run(run)
    finally:
        loading.PAGE = paged


def assert_whole(loaded: list[Message]) -> None:
    """Every tool message stands behind its call; everything else ascends."""
    waiting: list[str] = []
    places: list[int] = []
    for number, message in enumerate(loaded):
        if message.role == "tool":
            assert waiting.pop(0) == message.tool_call_id
            continue
        is_last_group = all(later.role == "tool" for later in loaded[number + 1 :])
        assert not waiting
        answered = {later.tool_call_id for later in loaded[number + 1 :]}
        calls = [call.id for call in message.tool_calls]
        waiting = [id for id in calls if id in answered] if is_last_group else calls
        if message.kind == "summary":
            places.append(message.metadata["start_seq"])
        elif isinstance(message, StoredMessage):
            places.append(message.seq)
    assert not waiting
    assert places == sorted(set(places))


@thoroughly
@given(talked, some.sampled_from([None, "ferry", "rain cat"]))
def test_no_load_parts_a_call_from_its_result(case, query):
    """No bare tool message, no call without its result, ascending, whatever is chosen."""

    async def check(talk: Talk, log: Any) -> None:
        assert_whole(await log.load(query=query))

    over(case, check)


@thoroughly
@given(talked, some.sampled_from([None, "ferry"]))
def test_what_was_loaded_can_be_appended_again(case, query):
    """``append(load() + [new])`` stores exactly the new message."""

    async def check(talk: Talk, log: Any) -> None:
        before = await log.history()
        loaded = await log.load(query=query)
        stored = await log.append([*loaded, Message(role="user", content="new")])
        assert (await log.history())[: len(before)] == before
        assert [m.text for m in (await log.history())[len(before) :]] == ["new"]
        kept = [m for m in loaded if m.kind != "summary" and VIEW not in m.metadata]
        assert stored[:-1] == kept

    over(case, check)


@thoroughly
@given(talked)
def test_every_live_message_is_shown_or_summarised_once(case):
    """Each message of the epoch is itself in the whole load, or inside exactly one range."""

    async def check(talk: Talk, log: Any) -> None:
        whole = await talk.log(retrieval=EVERYTHING).load()
        ranges = [
            (m.metadata["start_seq"], m.metadata["end_seq"]) for m in whole if m.kind == "summary"
        ]
        shown = [m.seq for m in whole if isinstance(m, StoredMessage)]
        epoch_start = (await talk.row()).epoch_start
        for message in await log.history(from_seq=epoch_start):
            covering = [r for r in ranges if r[0] <= message.seq <= r[1]]
            assert len(covering) + shown.count(message.seq) == 1

    over(case, check)


@thoroughly
@given(talked)
def test_reading_a_tail_chooses_as_reading_everything(case):
    """``Recent`` gives the last units of the whole uncovered history, found page by page."""

    async def check(talk: Talk, log: Any) -> None:
        records = await log.compactions()
        live = await log.history(from_seq=(await talk.row()).epoch_start)
        bare = [m for m in live if not any(r.start_seq <= m.seq <= r.end_seq for r in records)]
        units = [unit for unit in units_of(bare) if not unit.is_pinned]
        for k in (1, 2, 5):
            expected = {m.seq for unit in units[-2 * k :] for m in unit.messages}
            loaded = await talk.log(retrieval=Recent(k)).load()
            seqs = {m.seq for m in loaded if isinstance(m, StoredMessage) and m.role != "system"}
            assert seqs == expected

    over(case, check)


@thoroughly
@given(talked, some.integers(1, 120), some.sampled_from([None, "bread"]))
def test_a_budget_is_kept_or_refused(case, budget, query):
    """What is loaded fits; a larger budget loads no less; too small a one is refused."""

    async def check(talk: Talk, log: Any) -> None:
        try:
            loaded = await log.load(query=query, budget_tokens=budget)
        except UsageError as error:
            needed, named = map(int, re.findall(r"(\d+)", str(error)))
            assert named == budget < needed
            least = await log.load(query=query, budget_tokens=needed)
            assert sum(m.token_count for m in least) == needed
            return
        assert sum(m.token_count for m in loaded) <= budget
        assert_whole(loaded)
        unbounded = await log.load(query=query)
        assert [m.id for m in loaded] == [m.id for m in unbounded if m in loaded]
        assert await log.load(query=query, budget_tokens=1_000_000) == unbounded

    over(case, check)

"""Curves over HTTP: what came in, went out, waits and failed, in steps."""

import anyio
import anyio.lowlevel
import pytest
from inspector_kit import LIMIT_S

from mnemo import Config, Mnemo, ModelUnavailable
from mnemo.runtime.board import Board
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel
from mnemo.web import token_of
from mnemo.web.curves import STEPS, Recorder

SERIES = {"writes", "recalls", "recall_p95_ms", "waiting", "failed"}


async def curves(client, span):
    """The curves of *span*."""
    answer = await client.get("/v1/curves", params={"span": span})
    assert answer.status_code == 200, answer.text
    return answer.json()


def total(numbers):
    """Of what was measured."""
    return sum(number or 0 for number in numbers)


@pytest.mark.slow
async def test_a_served_store_shows_what_came_in_and_went_out(serve):
    """By seconds and by minutes, with null where the service was not there yet."""
    server = serve("--store", "a.db")
    async with server.client() as client:
        for number in range(3):
            text = f"Ada plays piece {number}."
            assert (await client.post("/v1/remember", json={"content": text})).is_success
        assert (await client.post("/v1/recall", json={"query": "Ada"})).is_success
        with anyio.fail_after(LIMIT_S):
            while total((await curves(client, "minutes"))["series"]["writes"]) < 3:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        for span, (step_s, count) in STEPS.items():
            found = await curves(client, span)
            series = found["series"]
            assert found["step_s"] == step_s
            assert found["from"] % step_s == 0
            assert set(series) == SERIES
            assert {len(numbers) for numbers in series.values()} == {count}
            assert series["writes"][0] is None
            assert total(series["writes"]) == 3
            assert total(series["recalls"]) == 1
            assert 0 < max(p95 or 0 for p95 in series["recall_p95_ms"]) < 60_000
            assert max(number or 0 for number in series["waiting"]) == 3
            assert total(series["failed"]) == 0
        assert (await client.get("/v1/curves?span=year")).status_code == 422


async def test_steps_are_bounded(memory):
    """Two days keep no more than the longest span has; a step that is over is forgotten whole."""
    clock = ManualClock()
    recorder = Recorder(memory, clock.now)
    repo = await memory.open_repo("a")
    subscription = memory.subscribe(recorder._happened)
    for _ in range(2):
        await repo.recall("Ada")
    subscription.cancel()
    first = recorder.curves("day").series
    assert (first.recalls[-1], first.writes[-1], first.writes[-2]) == (2, 0, None)
    for _ in range(2 * 1_440):
        clock.advance(60)
        recorder._count(writes=2)
    found = recorder.curves("day").series
    assert set(found.writes) == {2}
    assert set(found.recall_p95_ms) == {None}
    assert first.recall_p95_ms[-1] is not None


async def test_workers_count_on_one_board(memory):
    """What each has measured is added up; the 95th percentile is of the recalls of both."""
    clock, board = ManualClock(), Board()
    first, second = (Recorder(memory, clock.now, board) for _ in range(2))
    for number in range(90):
        first._count(recall_s=0.001, writes=1)
        second._count(recall_s=0.001 if number else 0.5, waiting=7)
    for _ in range(9):
        second._count(recall_s=0.2, failed=1)
    first._count(waiting=3)
    found = second.curves("minutes").series
    assert (found.recalls[-1], found.writes[-1], found.failed[-1]) == (189, 90, 9)
    assert (found.recall_p95_ms[-1], found.waiting[-1]) == (200.0, 7)
    clock.advance(1)
    first._count(recall_s=0.003)
    found = second.curves("minutes").series
    assert found.recall_p95_ms[-2:] == [200.0, 3.0]
    assert found.waiting[-2:] == [7, None]


async def test_what_fails_and_waits_is_told_to_tokens_of_all_repositories():
    """Another token learns of the traffic alone."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("no answer")})
    config = Config(jobs={"max_tries": 1, "quiet_s": 0})
    async with Mnemo("memory:", embedder=HashingEmbedder(), chat_model=model, config=config) as own:
        recorder, repo = Recorder(own, ManualClock().now), await own.open_repo("a")
        async with anyio.create_task_group() as group:
            group.start_soon(recorder.run)
            await anyio.lowlevel.checkpoint()
            await repo.remember("Ada plays the cello.")
            await recorder._look()
            await repo.settle()
            group.cancel_scope.cancel()
        seen = recorder.curves("minutes").series
        assert (seen.waiting[-1], seen.failed[-1]) == (1, 1)
        hidden = recorder.curves("minutes", of_all=False).series
        assert set(hidden.waiting + hidden.failed) == {None}
        assert hidden.recalls[-1] == 0


@pytest.mark.parametrize(("repositories", "shown"), [(["a"], [None]), (["*"], [3, 4])])
async def test_a_token_of_one_repository_is_shown_the_traffic_alone(connect, repositories, shown):
    """The route passes on what the token permits."""
    client = connect(token_of("secret", "one", repositories=repositories), secret="secret")
    client._transport.app.app.state.curves._count(writes=2, failed=3, waiting=4)
    series = (await curves(client, "day"))["series"]
    assert max(number or 0 for number in series["writes"]) == 2
    levels = {*series["failed"], *series["waiting"]} - {None}
    assert sorted(levels) == [one for one in shown if one]

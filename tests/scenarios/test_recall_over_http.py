"""Recall over a model server that may fail in every way: the candidates are always there."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import pytest
import scripted_faults as faults
from http_kit import collect, http_kit
from scripted_server import ScriptedServer

from mnemo import Config, RecallResult
from mnemo.errors import ModelTimeout, RecallFailed

FOREVER = math.inf
LONG_S = 600.0
"""Seconds that no test waits."""
QUESTION = "When does the train to Kyoto leave?"
PLANNING = ("mode", "plan", "refine")
REASONING = ("reason_semantic", "reason_procedural", "reason_episodic")

BROKEN: Mapping[faults.Fault, str] = {
    faults.DROPPED: "ModelUnavailable",
    faults.DROPPED_MID_BODY: "ModelUnavailable",
    faults.RATE_LIMITED: "RateLimited",
    faults.SERVER_ERROR: "ModelUnavailable",
    faults.KEY_REFUSED: "ModelUnavailable",
    faults.TRUNCATED_JSON: "ModelUnavailable",
    faults.WRONG_CONTENT_TYPE: "ModelUnavailable",
    **dict.fromkeys(faults.REPLIES, "InvalidReply"),
}


def planning(server: ScriptedServer) -> list[Any]:
    """What a recall has asked so far, and not what annotates steps beside it."""
    return [request for request in server.requests if request.purpose != "annotate"]


def texts(result: RecallResult) -> list[str]:
    return [candidate.node.text for candidate in result.candidates]


@pytest.mark.slow
async def test_every_stage_is_asked_over_http(server, provider):
    """Mode, plan, refinement and words, each by a request of its own that is let in."""
    server.keys = {"sk-test-0123456789"}
    async with http_kit(server, chat_model=provider.model(server)) as kit:
        session = await kit.collected("travel")
        await session.close_and_commit()
        types = ("semantic", "procedural", "episodic")
        result = await kit.repo.recall(QUESTION, reason=True, types=types)
        assert result.trace.degraded == ()
        assert dict(result.trace.stages) == dict.fromkeys((*PLANNING, *REASONING), "model")
        assert result.answer is not None
        assert "train to Kyoto" in (result.answer.episodic or "")
        usage = (await kit.repo.statistics()).recall_usage
        asked = {purpose: len(server.calls(purpose)) for purpose in (*PLANNING, *REASONING)}
        assert {purpose: spent.calls for purpose, spent in usage.items()} == asked
        assert result.trace.model_calls == sum(asked.values())


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name)
@pytest.mark.long
async def test_a_fault_of_the_server_takes_no_candidate_away(server, provider, fault):
    """All stages fail: the embedded plan answers, each failure is named; healed, all is well."""
    model = provider.model(server)
    async with http_kit(server) as plain, http_kit(server, chat_model=model) as kit:
        for repo in (plain.repo, kit.repo):
            session = await repo.start_session("travel")
            await collect(session)
            await repo.settle()  # with some vectors missing, others are ahead
        expected = await plain.repo.recall(QUESTION)
        server.fail(fault, times=FOREVER)
        result = await kit.repo.recall(QUESTION)
        assert texts(result) == texts(expected)
        assert (result.mode, result.tags) == (expected.mode, expected.tags)
        assert result.answer is None
        assert set(result.trace.degraded) == {f"{stage}: {BROKEN[fault]}" for stage in PLANNING}
        assert dict(result.trace.stages) == dict.fromkeys(PLANNING, "failed")
        server.heal()
        healed = await kit.repo.recall(QUESTION, reason=True)
        assert healed.trace.degraded == ()
        assert healed.answer is not None


class Deadlines:
    """``anyio`` for a module whose deadlines pass when the test says so, not when time does."""

    def __init__(self) -> None:
        self._open: list[anyio.CancelScope] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(anyio, name)

    def move_on_after(self, seconds: float) -> anyio.CancelScope:
        """A scope that ends with ``expire``."""
        assert seconds == LONG_S
        self._open.append(anyio.CancelScope())
        return self._open[-1]

    def expire(self) -> None:
        """Let the deadlines of all that wait pass."""
        for scope in self._open:
            scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [faults.NEVER_ANSWERS, faults.SLOW_DRIP], ids=lambda f: f.name)
async def test_a_hanging_server_is_waited_for_once(
    server,
    provider,
    fault,
    monkeypatch,
):
    """One timeout for the whole recall, its requests are closed, and nothing is asked again."""
    deadlines = Deadlines()
    monkeypatch.setattr("mnemo.recall.request.anyio", deadlines)
    config = Config(recall={"timeout_s": LONG_S})

    async def expire_after(asked: int) -> None:
        await server.until(lambda: len(planning(server)) == asked)
        deadlines.expire()

    async with http_kit(server, chat_model=provider.model(server), config=config) as kit:
        await kit.collected("travel")
        await kit.repo.recall(QUESTION, reason=False)
        before = len(planning(server))
        server.fail(fault, times=FOREVER)
        async with anyio.create_task_group() as group:
            group.start_soon(expire_after, before + 2)
            result = await kit.repo.recall(QUESTION)
        assert len(result.candidates) == 3
        assert "plan: ModelTimeout" in result.trace.degraded
        asked = planning(server)[before:]
        assert sorted(request.purpose for request in asked) == ["mode", "plan"]
        await server.until(lambda: all(request.left for request in asked))
        async with anyio.create_task_group() as group:
            group.start_soon(expire_after, before + 4)
            with pytest.raises(RecallFailed) as failure:
                await kit.repo.recall(QUESTION, reason=True)
        assert isinstance(failure.value.__cause__, ModelTimeout)


@pytest.mark.parametrize("purpose", ["plan", "refine", "reason_episodic"])
async def test_a_cancelled_recall_closes_its_requests(server, provider, purpose):
    """Whatever stage it is in: the server sees its client go, and the next recall is served."""
    server.fail(faults.NEVER_ANSWERS, purpose=purpose)
    async with http_kit(server, chat_model=provider.model(server)) as kit:
        await kit.collected("travel")
        async with anyio.create_task_group() as group:
            group.start_soon(partial(kit.repo.recall, QUESTION, reason=True))
            await server.until(lambda: bool(server.calls(purpose)))
            group.cancel_scope.cancel()
        await server.until(lambda: server.calls(purpose)[0].left)
        assert (await kit.repo.recall(QUESTION)).trace.degraded == ()

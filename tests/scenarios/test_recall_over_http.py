"""Recall over a model server that may fail in every way: the candidates are always there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import anyio
import pytest
import scripted_faults as faults
from http_kit import ANTHROPIC, OPENAI, Provider, collect, http_kit
from scripted_server import ScriptedServer

from mnemo import Config, RecallResult
from mnemo.errors import ModelTimeout, RecallFailed

FOREVER = math.inf
SHORT_S = 0.15
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


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda provider: provider.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Both protocols, one after the other."""
    return request.param


def texts(result: RecallResult) -> list[str]:
    return [candidate.node.text for candidate in result.candidates]


@pytest.mark.slow
async def test_every_stage_is_asked_over_http(server: ScriptedServer, provider: Provider) -> None:
    """Mode, plan, refinement and words, each by a request of its own that is let in."""
    server.keys = {"sk-test-0123456789"}
    async with http_kit(server, chat_model=provider.model(server)) as kit:
        session = await kit.repo.start_session("travel")
        await collect(session)
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
async def test_a_fault_of_the_server_takes_no_candidate_away(
    server: ScriptedServer, provider: Provider, fault: faults.Fault
) -> None:
    """All stages fail: the embedded plan answers, each failure is named; healed, all is well."""
    model = provider.model(server)
    async with http_kit(server) as plain, http_kit(server, chat_model=model) as kit:
        for repo in (plain.repo, kit.repo):
            session = await repo.start_session("travel")
            await collect(session)
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


@pytest.mark.slow
@pytest.mark.parametrize("fault", [faults.NEVER_ANSWERS, faults.SLOW_DRIP], ids=lambda f: f.name)
async def test_a_hanging_server_is_waited_for_once(
    server: ScriptedServer, provider: Provider, fault: faults.Fault
) -> None:
    """One timeout for the whole recall, its requests are closed, and nothing is asked again."""
    config = Config(recall={"timeout_s": SHORT_S})
    async with http_kit(server, chat_model=provider.model(server), config=config) as kit:
        session = await kit.repo.start_session("travel")
        await collect(session)
        await kit.repo.recall(QUESTION, reason=False)
        before = len(server.requests)
        server.fail(fault, times=FOREVER)
        result = await kit.repo.recall(QUESTION)
        assert len(result.candidates) == 3
        assert result.trace.seconds["plan"] < 10 * SHORT_S
        assert "plan: ModelTimeout" in result.trace.degraded
        asked = [request.purpose for request in server.requests[before:]]
        assert sorted(purpose for purpose in asked if purpose != "annotate") == ["mode", "plan"]
        await server.until(lambda: all(r.left for r in server.requests[before:]))
        with pytest.raises(RecallFailed) as failure:
            await kit.repo.recall(QUESTION, reason=True)
        assert isinstance(failure.value.__cause__, ModelTimeout)


@pytest.mark.parametrize("purpose", ["plan", "refine", "reason_episodic"])
async def test_a_cancelled_recall_closes_its_requests(
    server: ScriptedServer, provider: Provider, purpose: str
) -> None:
    """Whatever stage it is in: the server sees its client go, and the next recall is served."""
    server.fail(faults.NEVER_ANSWERS, purpose=purpose)
    async with http_kit(server, chat_model=provider.model(server)) as kit:
        session = await kit.repo.start_session("travel")
        await collect(session)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(kit.repo.recall, QUESTION, reason=True))
            await server.until(lambda: bool(server.calls(purpose)))
            group.cancel_scope.cancel()
        await server.until(lambda: server.calls(purpose)[0].left)
        assert (await kit.repo.recall(QUESTION)).trace.degraded == ()

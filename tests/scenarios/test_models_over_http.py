"""Every way in which a model server can fail a session: a typed error, nothing lost, a retry."""

import math
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import anyio
import pytest
import scripted_faults as faults
from helpers import BUILD, TRIP, annotating
from http_kit import OPENAI, HttpKit, Provider, http_kit
from scripted_server import ScriptedServer

from mnemo import Config, ExtractionFailed, InvalidReply, ModelUnavailable, Session
from mnemo.errors import ModelError, ModelTimeout, RateLimited
from mnemo.events import AnnotationFailed, TrajectoryExtractionFailed
from mnemo.testing import ManualClock

FOREVER = math.inf
SHORT_S = 1.0
"""Seconds per call where a test waits for them to pass; long enough for a busy machine."""

BROKEN: dict[faults.Fault, type[ModelError]] = {
    faults.DROPPED: ModelUnavailable,
    faults.DROPPED_MID_BODY: ModelUnavailable,
    faults.RATE_LIMITED: RateLimited,
    faults.rate_limited(3): RateLimited,
    faults.SERVER_ERROR: ModelUnavailable,
    faults.OVERLOADED: ModelUnavailable,
    faults.KEY_REFUSED: ModelUnavailable,
    faults.TRUNCATED_JSON: ModelUnavailable,
    faults.WRONG_CONTENT_TYPE: ModelUnavailable,
    **dict.fromkeys(faults.REPLIES, InvalidReply),
}
SLOW: dict[faults.Fault, type[ModelError]] = {
    faults.NEVER_ANSWERS: ModelTimeout,
    faults.SLOW_DRIP: ModelTimeout,
}
MATRIX = [
    *(pytest.param(fault, error, id=fault.name) for fault, error in BROKEN.items()),
    *(
        pytest.param(fault, error, id=fault.name, marks=pytest.mark.slow)
        for fault, error in SLOW.items()
    ),
]


def kit_of(
    server: ScriptedServer, provider: Provider, *, timeout_s: float = 60.0, **arguments: Any
) -> AbstractAsyncContextManager[HttpKit]:
    """A service whose chat model is *server*."""
    config = Config(extraction={"timeout_s": timeout_s})
    return http_kit(server, **{"chat_model": provider.model(server), "config": config} | arguments)


def patience(error: type[ModelError]) -> float:
    """Seconds per call: short where the test is about time."""
    return SHORT_S if error is ModelTimeout else 60.0


async def expect_failure(kit: HttpKit, session: Session, error: type[ModelError]) -> ModelError:
    """Close; the session must end as ``failed`` with *error* as cause and all that was said."""
    await session.close()
    assert await session.wait_for("failed", timeout_s=120) == "failed"
    assert isinstance(session.error, ExtractionFailed)
    cause = session.error.__cause__
    assert type(cause) is error, cause
    assert session.statistics().steps == 3
    assert await kit.steps_in_graph() == []
    assert len(await kit.repo.search("Kyoto")) == 3
    assert await kit.healthy()
    return cause


async def expect_retry(kit: HttpKit, session: Session) -> None:
    """Commit twice, once to try again and once to store; each step is there once."""
    assert (await session.commit()).status == "retrying"
    assert await session.wait_for("ready", timeout_s=120) == "ready"
    assert (await session.commit()).status == "committed"
    assert await kit.steps_in_graph() == [(session.id, i) for i in range(3)]
    assert session.error is None
    assert await kit.healthy()


@pytest.mark.parametrize(("fault", "error"), MATRIX)
@pytest.mark.parametrize("purpose", ["semantic", "annotate"])
@pytest.mark.long
async def test_a_fault_of_the_server_fails_the_episode_and_a_retry_completes_it(
    server, provider, fault, error, purpose
):
    """Steps are durable all the same; ``failed`` with the cause; healed, all is committed once."""
    server.fail(fault, purpose=purpose, times=FOREVER)
    async with kit_of(server, provider, timeout_s=patience(error)) as kit:
        session = await kit.collected("travel")
        assert session.state == "collecting"
        cause = await expect_failure(kit, session, error)
        assert cause.purpose == purpose
        assert bool(kit.seen.of(AnnotationFailed)) == (purpose == "annotate")
        server.heal()
        await expect_retry(kit, session)


@pytest.mark.parametrize("purpose", ["procedural", "returns"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.SERVER_ERROR, ModelUnavailable),
        (faults.EMPTY_OBJECT, InvalidReply),
        (faults.CUT_OFF, InvalidReply),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_the_other_questions_of_extraction_fail_alike(server, purpose, fault, error):
    """Instructions and returns are as needed as facts are."""
    server.fail(fault, purpose=purpose, times=FOREVER)
    async with kit_of(server, OPENAI) as kit:
        session = await kit.collected("travel")
        assert (await expect_failure(kit, session, error)).purpose == purpose
        server.heal()
        await expect_retry(kit, session)


class AskedClock(ManualClock):
    """Keeps for how many seconds it was asked to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await super().sleep(seconds)


async def test_close_and_commit_waits_as_long_as_the_server_asks(server, provider):
    """``Retry-After`` beyond the adapter's patience is honoured between two extractions."""
    clock = AskedClock()
    server.fail(faults.rate_limited(25), purpose="semantic")
    model = provider.model(server, max_wait_s=1)
    async with kit_of(server, provider, chat_model=model, clock=clock) as kit:
        session = await kit.collected("travel")
        async with anyio.create_task_group() as group:
            group.start_soon(partial(session.close_and_commit, max_retries=1))
            await session.wait_for("failed")
            assert isinstance(session.error, ExtractionFailed)
            assert isinstance(session.error.__cause__, RateLimited)
            assert session.error.__cause__.retry_after_s == 25
            began = clock.monotonic()
            with anyio.fail_after(120):
                while session.state == "failed":
                    await clock.advance(1)
        # The clock goes on while the retry takes real time: only a lower bound holds for it.
        assert clock.monotonic() - began >= 25
        assert any(25 <= seconds <= 27 for seconds in clock.asked)
        assert len(await kit.steps_in_graph()) == 3


async def test_a_failing_merge_of_intents_does_not_fail_the_commit(server, provider):
    """The stored intent stays as it is, and the new instruction is linked to it."""
    intents = iter(
        [
            "deploy the customer payment service cluster today",
            "deploy the customer payment service cluster now",
        ]
    )

    def procedural(request: Any) -> dict[str, Any]:
        intent = next(intents)
        done = {"condition": f"when asked to {intent}", "expected_outcome": "it runs"}
        return {"instructions": [{"intent": intent, "instruction": f"do {intent}", **done}]}

    server.script("procedural", procedural)
    server.fail(faults.SERVER_ERROR, purpose="merge_intent", times=FOREVER)
    async with kit_of(server, provider) as kit:
        for _ in range(2):
            session = await kit.collected("travel")
            await session.close_and_commit(max_retries=0)
        assert server.calls("merge_intent")
        nodes: list[Any] = await kit.repo.get_nodes(["intent"])
        assert [node.description for node in nodes] == [
            "deploy the customer payment service cluster today"
        ]
        linked = await kit.repo.get_linked_nodes([nodes[0].id], edge_type="hierarchical")
        assert len(linked) == 2


async def test_a_background_trajectory_that_fails_is_taken_up_at_the_close(server, provider):
    """Auto-commit: still ``collecting``, nothing committed; the close takes every step once."""
    server.script("annotate", annotating([TRIP, TRIP, BUILD]))
    server.fail(faults.KEY_REFUSED, purpose="procedural", times=FOREVER)
    config = Config(session={"auto_commit": True})
    async with kit_of(server, provider, config=config) as kit:
        session = await kit.collected("travel")
        await server.until(lambda: bool(kit.seen.of(TrajectoryExtractionFailed)))
        assert session.state == "collecting"
        assert await kit.steps_in_graph() == []
        server.heal()
        receipt = await session.close_and_commit(max_retries=0)
        assert receipt.status == "committed"
        assert await kit.steps_in_graph() == [(session.id, i) for i in range(3)]
        assert await kit.healthy()


async def test_a_service_closed_under_a_hanging_server_goes_on_at_the_next_start(
    server, provider, tmp_path
):
    """The request is closed, the session found again as ``extracting``, and committed once."""
    store = tmp_path / "memory.db"
    server.fail(faults.NEVER_ANSWERS, purpose="semantic", times=FOREVER)
    async with kit_of(server, provider, store=store) as kit:
        session = await kit.collected("travel")
        await session.close()
        await server.until(lambda: len(server.calls("semantic")) == 1)
    await server.until(lambda: server.connections == 0)
    assert server.calls("semantic")[0].left
    server.heal()
    async with kit_of(server, provider, store=store) as kit:
        (record,) = await kit.repo.unfinished_sessions()
        assert (record.id, record.state) == (session.id, "extracting")
        again = await kit.repo.resume_session(session.id)
        await again.wait_for("ready", timeout_s=120)
        await again.commit()
        assert await kit.steps_in_graph() == [(session.id, i) for i in range(3)]
        assert await kit.healthy()

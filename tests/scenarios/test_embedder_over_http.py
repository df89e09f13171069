"""Vectors over HTTP in a session's life: without them everything still works, only poorer."""

import math
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
import scripted_faults as faults
from http_kit import DIMENSIONS, HttpKit, embedder_of, http_kit
from scripted_server import ScriptedServer

from mnemo import EmbeddingSpaceMismatch, ExtractionFailed, InvalidReply, ModelUnavailable
from mnemo.errors import ModelTimeout, RateLimited
from mnemo.testing import ScriptedChatModel

FOREVER = math.inf


def kit_of(server: ScriptedServer, **arguments: Any) -> AbstractAsyncContextManager[HttpKit]:
    """A service whose chat model is in the process and whose vectors come from *server*."""
    chat_model, embedder = ScriptedChatModel.answering(), embedder_of(server)
    return http_kit(server, **{"chat_model": chat_model, "embedder": embedder} | arguments)


async def until_embedded(kit: HttpKit) -> None:
    """Wait until every document has its vector; fails after two minutes."""
    with anyio.fail_after(120):
        while True:
            await kit.repo.recall("anything", reason=False)
            statistics = await kit.repo.statistics()
            if statistics.index.documents and not statistics.index.waiting:
                return
            await anyio.sleep(0.005)


@pytest.mark.slow
async def test_vectors_of_a_server_serve_the_whole_way(server):
    """Appended, extracted, committed and found, with the server's vectors stamped in the store."""
    async with kit_of(server) as kit:
        session = await kit.collected("travel")
        await session.close_and_commit()
        await until_embedded(kit)
        found = await kit.repo.recall("When does the train leave?", reason=False)
        assert found.candidates
        assert found.trace.degraded == ()
        assert (await kit.repo.statistics()).embedding_space == f"e ({DIMENSIONS} dimensions)"
        assert len(await kit.steps_in_graph()) == 3


async def test_without_vectors_recall_goes_by_keywords(server):
    """Appends return, recall finds the steps and says what it did without."""
    server.fail(faults.KEY_REFUSED, times=FOREVER)
    async with kit_of(server) as kit:
        session = await kit.collected("travel")
        found = await kit.repo.recall("When does the train leave?", reason=False)
        assert {source.step_index for source in found.sources} == {0, 1, 2}
        assert "embedder: ModelUnavailable" in found.trace.degraded
        server.heal()
        await session.append("one more step pokes the index", "noted")
        await until_embedded(kit)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.DROPPED, ModelUnavailable),
        (faults.DROPPED_MID_BODY, ModelUnavailable),
        (faults.rate_limited(3), RateLimited),
        (faults.SERVER_ERROR, ModelUnavailable),
        (faults.KEY_REFUSED, ModelUnavailable),
        (faults.TRUNCATED_JSON, ModelUnavailable),
        (faults.WRONG_CONTENT_TYPE, ModelUnavailable),
        pytest.param(faults.NEVER_ANSWERS, ModelTimeout, marks=pytest.mark.slow),
        pytest.param(faults.SLOW_DRIP, ModelTimeout, marks=pytest.mark.slow),
        (faults.WRONG_WIDTH, InvalidReply),
        (faults.TOO_FEW_ROWS, InvalidReply),
        (faults.NAN_ROW, InvalidReply),
        (faults.ZERO_ROW, InvalidReply),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.long
async def test_a_failing_embedder_fails_the_extraction_and_a_retry_completes(server, fault, error):
    """The typed error is the cause, all steps are kept, and each is committed once."""
    server.fail(fault, purpose="embed", times=FOREVER)
    embedder = embedder_of(server, timeout_s=0.15 if error is ModelTimeout else 60.0)
    async with kit_of(server, embedder=embedder) as kit:
        session = await kit.collected("travel")
        await session.close()
        assert await session.wait_for("failed", timeout_s=120) == "failed"
        assert isinstance(session.error, ExtractionFailed)
        assert type(session.error.__cause__) is error
        assert session.error.__cause__.purpose == "embed"
        assert session.statistics().steps == 3
        assert await kit.steps_in_graph() == []
        embedder._transport.timeout_s = 60.0  # A busy machine takes its time.
        server.heal()
        assert (await session.commit()).status == "retrying"
        await session.wait_for("ready", timeout_s=120)
        assert (await session.commit()).status == "committed"
        assert await kit.steps_in_graph() == [(session.id, 0), (session.id, 1), (session.id, 2)]
        assert await kit.healthy()


async def test_a_commit_does_not_wait_for_vectors(server):
    """An embedder that fails after extraction costs the nodes their vectors, which follow."""
    async with kit_of(server) as kit:
        session = await kit.collected("travel")
        await session.close()
        await session.wait_for("ready", timeout_s=120)
        server.fail(faults.KEY_REFUSED, times=FOREVER)
        receipt = await session.commit()
        assert receipt.status == "committed"
        assert (await kit.repo.recall("train", types=("semantic",), reason=False)).candidates
        server.heal()
        second = await kit.repo.start_session("another")
        await second.append("this pokes the index", "noted")
        await until_embedded(kit)
        assert await kit.healthy()


@pytest.mark.slow
async def test_another_width_than_the_stores_is_refused_at_the_door(server, tmp_path):
    """``EmbeddingSpaceMismatch`` names both spaces before anything is asked or written."""
    path = tmp_path / "memory.db"
    async with kit_of(server, store=path) as kit:
        session = await kit.collected("travel")
        await session.close_and_commit()
        await until_embedded(kit)
    server.reset()
    other = embedder_of(server, dimensions=DIMENSIONS // 2)
    with pytest.raises(EmbeddingSpaceMismatch, match=r"e \(64 dimensions\).*e \(32 dimensions\)"):
        async with kit_of(server, store=path, embedder=other):
            pytest.fail("it was let in")
    assert server.requests == []
    async with kit_of(server, store=path) as kit:
        assert len(await kit.steps_in_graph()) == 3
        assert await kit.healthy()


async def test_a_width_the_server_does_not_give_says_which_it_gives(
    server,
):
    """An embedder set to 64 over a model of 48: the error has both numbers and the way out."""
    server.dimensions = 48
    embedder = embedder_of(server, send_dimensions=False)
    async with kit_of(server, embedder=embedder) as kit:
        session = await kit.collected("travel")
        with pytest.raises(ExtractionFailed) as caught:
            await session.close_and_commit(max_retries=0)
        said = str(caught.value.__cause__)
        assert "48 dimensions" in said
        assert "64 were expected" in said
        assert "dimensions=48" in said

"""What a long write to a PostgreSQL store keeps waiting, and what it does not."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import anyio
import anyio.to_thread
import psycopg
import pytest
from contracts.talk import said
from helpers import lines_of
from postgres_server import execute, postgres_store
from world import NOON, SPACE, Kit, unit_vector

from mnemo import Mnemo
from mnemo.errors import EmbeddingSpaceMismatch
from mnemo.log.job_rules import claim_jobs, demand_extraction
from mnemo.log.transcript import TranscriptWriter
from mnemo.protocols import EmbeddingSpace
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.items import Item
from mnemo.values.jobs import Intake, JobState
from mnemo.values.journal import EpisodeDiscarded

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def exported() -> list[str]:
    """The lines of a repository with a step."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        session = await repo.start_session("Count")
        await session.append("number 1", "noted")
        return await lines_of(memory, "r")


async def test_an_import_keeps_no_other_repository_waiting(postgres_url, postgres_server):
    """In the middle of its transaction others open and close the store, and write to theirs."""
    lines, schema = await exported(), postgres_url.rpartition("=")[2]
    async with (
        Mnemo(postgres_url, embedder=HashingEmbedder()) as memory,
        anyio.create_task_group() as tasks,
    ):
        with psycopg.connect(postgres_server) as holder:
            holder.execute(f"LOCK TABLE {schema}.item_vectors IN EXCLUSIVE MODE")
            tasks.start_soon(memory.import_repo, "imported", lines)
            while await anyio.to_thread.run_sync(execute, postgres_server, _WAITING) == [(0,)]:
                pass
            async with Mnemo(postgres_url, embedder=HashingEmbedder()) as other:
                repo = await other.open_repo("other")
                session = await repo.start_session("Write")
                await session.append("not kept waiting", "noted")
                assert (await other.check()).problems == ()
            assert execute(postgres_server, _WAITING) == [(1,)]
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        found = {record.id: record.sessions for record in await memory.repos()}
        assert found == {"imported": 1, "other": 1}


def remember(tx: TranscriptWriter, *, seq: int, demanding: bool) -> None:
    """Append a message to thread ``"t"``, and have it be extracted at once."""
    message, thread = said(seq), tx.thread("t")
    tx.add([message])
    tx.keep(replace(thread, next_seq=seq + 1))
    if demanding:
        demand_extraction(tx, [message], quiet_s=5, most_waiting=12, at_once=True)


async def blocked(server: str, count: int) -> None:
    """Wait until so many statements wait for a lock."""
    while await anyio.to_thread.run_sync(execute, server, _WAITING) != [(count,)]:
        pass


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of *waits* ends."""

    async def wait(one: Callable[[], Awaitable[object]]) -> None:
        await one()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for one in waits:
            tasks.start_soon(wait, one)


@pytest.mark.parametrize("demanding", [False, True], ids=["append", "remember"])
async def test_a_worker_undoes_nothing_that_is_appended_while_it_commits(
    postgres_url, postgres_server, demanding
):
    """
    A commit that finishes a thread's job is held between its reads and its writes.

    What another service appends to the thread then stays, is due, and more can follow.
    """
    schema, clock = postgres_url.rpartition("=")[2], ManualClock()
    stores = [postgres_store(postgres_url, clock) for _ in range(2)]
    application, worker = stores
    await application.open()
    kit = Kit(lambda _: worker, clock, worker, await worker.open())
    await application.transcript("r").writing(partial(remember, seq=0, demanding=True))
    (job,) = await worker.transcript("r").writing(partial(claim_jobs, owner=kit.owner, limit=1))
    await kit.start()
    done = Intake(thread_id="t", token=job.token, to_seq=1, message_ids=("m0",))
    settlement = replace(kit.settlement(ends=True), intake=done)
    appended = anyio.Event()

    async def append() -> None:
        work = partial(remember, seq=1, demanding=demanding)
        await application.transcript("r").writing(work)
        appended.set()

    async with anyio.create_task_group() as tasks:
        with psycopg.connect(postgres_server) as holder:
            holder.execute(f"SELECT 1 FROM {schema}.jobs FOR UPDATE")
            tasks.start_soon(partial(kit.apply, settlement=settlement))
            await blocked(postgres_server, 1)
            tasks.start_soon(append)
            await first_of(appended.wait, partial(blocked, postgres_server, 2))
    thread, left = await application.transcript("r").reading(
        lambda tx: (tx.thread("t"), tx.job("extract", "t"))
    )
    assert (thread.next_seq, thread.extracted_seq) == (2, 1)
    assert left is not None
    assert left.state is (JobState.WAITING if demanding else JobState.DONE)
    await application.transcript("r").writing(partial(remember, seq=2, demanding=False))
    assert (await application.check()).problems == ()
    for store in stores:
        await store.aclose()


async def test_two_spaces_are_not_stamped_at_once(postgres_url, postgres_server):
    """Two services write the first vectors of a repository, under other locks: one is refused."""
    schema, clock = postgres_url.rpartition("=")[2], ManualClock()
    store, other = (postgres_store(postgres_url, clock) for _ in range(2))
    kit = Kit(lambda _: store, clock, store, await store.open())
    await other.open()
    await kit.start()
    step = await kit.append("said")
    item = Item(namespace=(), key="k", texts=(("text", "put"),), value={}, created_at=NOON,
                updated_at=NOON)  # fmt: skip
    found: list[object] = []

    async def keep(writing: Callable[[], Awaitable[object]]) -> None:
        try:
            found.append(await writing())
        except EmbeddingSpaceMismatch:
            found.append("refused")

    save = partial(
        store.feed("r").save_vectors,
        SPACE,
        {f"{step.node_id}/observation": unit_vector(1, 0, 0, 0)},
    )
    elsewhere = EmbeddingSpace("elsewhere", 3)
    put = partial(
        other.items("r").writing, lambda tx: tx.put(item, [unit_vector(1, 0, 0)], elsewhere)
    )
    async with anyio.create_task_group() as tasks:
        with psycopg.connect(postgres_server) as holder:
            holder.execute(f"SELECT 1 FROM {schema}.repos FOR UPDATE")
            tasks.start_soon(keep, save)
            tasks.start_soon(keep, put)
            await blocked(postgres_server, 2)
    assert sorted(map(str, found)) == ["None", "refused"]
    assert (await store.check()).problems == ()
    await store.aclose()
    await other.aclose()


@pytest.mark.parametrize("what", ["message", "step"])
async def test_no_vector_is_kept_of_what_goes_while_it_is_saved(
    postgres_url, postgres_server, what
):
    """A vector is held between the look for its owner and the insert; the owner is erased."""
    schema, clock = postgres_url.rpartition("=")[2], ManualClock()
    store, other = (postgres_store(postgres_url, clock) for _ in range(2))
    kit = Kit(lambda _: store, clock, store, await store.open())
    await other.open()
    for session in ("stays", "goes"):
        await kit.start(session)
    step = await kit.append("stays", session="stays")
    gone = (await kit.append("goes", session="goes")).node_id
    await store.transcript("r").writing(partial(remember, seq=0, demanding=False))
    (message,) = (await kit.changes()).messages
    keys = [f"{one}/observation" for one in (step.node_id, gone if what == "step" else message)]
    vectors = dict.fromkeys(keys, unit_vector(1, 0, 0, 0))
    await store.feed("r").save_vectors(SPACE, {keys[0]: vectors[keys[0]]})
    erased = anyio.Event()

    async def erase() -> None:
        if what == "step":
            discarded = EpisodeDiscarded(**kit.place("goes", None))
            await other.sessions("r").record(discarded, kit.owner)
        else:
            await other.transcript("r").writing(lambda tx: tx.erase("t", [0]))
        erased.set()

    async with anyio.create_task_group() as tasks:
        with psycopg.connect(postgres_server) as holder:
            holder.execute(f"SELECT 1 FROM {schema}.vectors FOR UPDATE")
            tasks.start_soon(store.feed("r").save_vectors, SPACE, vectors)
            await blocked(postgres_server, 1)
            tasks.start_soon(erase)
            await first_of(erased.wait, partial(blocked, postgres_server, 2))
    assert (await store.check()).problems == ()
    await store.aclose()
    await other.aclose()

"""What a long write to a PostgreSQL store keeps waiting, and what it does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import anyio.to_thread
import psycopg
import pytest
from anyio.streams.memory import MemoryObjectSendStream
from postgres_server import execute
from store.test_postgres_order import services

from mnemo import Changeset, Config, Conflict, Mnemo, MnemoError, Semantic, Step
from mnemo.testing import HashingEmbedder
from mnemo.testing.contracts.kit import NOON, Kit
from mnemo.values.erasure import Selection
from mnemo.values.journal import SessionRecord, SessionState

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

Doomed: TypeAlias = MemoryObjectSendStream[tuple[str, str]]
Act: TypeAlias = Callable[[Mnemo], Awaitable[None]]

REPOS = ("r", "other")
"""Of two that share no lock by their hashes."""
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def until_waiting(server: str, count: int) -> None:
    """Return once so many transactions wait for a lock."""
    with anyio.fail_after(30):
        while await anyio.to_thread.run_sync(execute, server, _WAITING) != [(count,)]:
            pass


async def exported() -> list[str]:
    """The lines of a repository with a step."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        session = await repo.start_session("Count")
        await session.append("number 1", "noted")
        async with memory.export_repo("r") as lines:
            return [line async for line in lines]


async def test_an_import_keeps_no_other_repository_waiting(
    postgres_url: str, postgres_server: str
) -> None:
    """In the middle of its transaction others open and close the store, and write to theirs."""
    lines, schema = await exported(), postgres_url.rpartition("=")[2]
    async with (
        Mnemo(postgres_url, embedder=HashingEmbedder()) as memory,
        anyio.create_task_group() as tasks,
    ):
        with psycopg.connect(postgres_server) as holder:
            holder.execute(f"LOCK TABLE {schema}.item_vectors IN EXCLUSIVE MODE")
            tasks.start_soon(memory.import_repo, "imported", lines)
            await until_waiting(postgres_server, 1)
            async with Mnemo(postgres_url, embedder=HashingEmbedder()) as other:
                repo = await other.open_repo("other")
                session = await repo.start_session("Write")
                await session.append("not kept waiting", "noted")
                assert (await other.check()).problems == ()
            assert execute(postgres_server, _WAITING) == [(1,)]
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        found = {record.id: record.sessions for record in await memory.repos()}
        assert found == {"imported": 1, "other": 1}


async def forget(memory: Mnemo) -> None:
    await (await memory.open_repo("r")).forget(session_id="gone")


async def rehearse(memory: Mnemo) -> None:
    await (await memory.open_repo("r")).forget(session_id="gone", dry_run=True)


async def delete(memory: Mnemo) -> None:
    await memory.delete_repo("r")


async def move(memory: Mnemo) -> None:
    await memory.reembed("r", embedder=HashingEmbedder(dimensions=32))


@pytest.mark.parametrize(
    ("act", "table", "left"),
    [
        (forget, "erased", ["the boat is here", "the boat is late"]),
        (rehearse, "erased", ["the boat is gone", "the boat is here", "the boat is late"]),
        (move, "moving", ["the boat is gone", "the boat is here", "the boat is late"]),
        (delete, "erased", []),
    ],
)
async def test_an_overhaul_keeps_its_own_repository_waiting_alone(
    postgres_url: str, postgres_server: str, act: Act, table: str, left: list[str]
) -> None:
    """In the middle of it others write to theirs; what is written to its own comes behind it."""
    schema, late = postgres_url.rpartition("=")[2], list[Step | MnemoError]()
    quiet = Config(jobs={"background": False})
    async with Mnemo(postgres_url, embedder=HashingEmbedder(), config=quiet) as writing:
        repos = {name: await writing.open_repo(name) for name in REPOS}
        kept = {name: await repo.start_session("Talk") for name, repo in repos.items()}
        await kept["r"].append("the boat is here", "")
        gone = await repos["r"].start_session("Talk", session_id="gone")
        await gone.append("the boat is gone", "")
        await gone.aclose()
        await repos["r"].apply(Changeset((Semantic("Mara owns a boat."),)))
        async with (
            Mnemo(postgres_url, embedder=HashingEmbedder()) as memory,
            anyio.create_task_group() as tasks,
        ):

            async def append_late() -> None:
                try:
                    late.append(await kept["r"].append("the boat is late", ""))
                except MnemoError as error:
                    late.append(error)

            with psycopg.connect(postgres_server) as holder:
                holder.execute(f"LOCK TABLE {schema}.{table} IN EXCLUSIVE MODE")
                tasks.start_soon(act, memory)
                await until_waiting(postgres_server, 1)
                await kept["other"].append("not kept waiting", "")
                await repos["other"].conversation("t").append({"role": "user", "content": "Nor I."})
                tasks.start_soon(append_late)
                await until_waiting(postgres_server, 2)
        async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
            assert isinstance(late[0], Step if left else Conflict)
            assert (await memory.check()).problems == ()
    found = execute(postgres_server, f"SELECT observation FROM {schema}.steps ORDER BY 1")
    assert [text for (text,) in found] == sorted([*left, "not kept waiting"])


async def test_an_id_that_another_repository_erases_is_not_used_again(
    postgres_url: str, postgres_server: str
) -> None:
    """A session of that id waits for the end of the erasure, and is refused then."""
    schema = postgres_url.rpartition("=")[2]
    used = SessionRecord(
        id="gone",
        repo_id=REPOS[1],
        goal="Use its id",
        state=SessionState.COLLECTING,
        steps=0,
        updated_at=NOON,
        episode_id="new",
    )
    async with services(postgres_url, 2) as (one, two):
        await one.start("gone", repo=REPOS[0])
        async with anyio.create_task_group() as tasks:
            with psycopg.connect(postgres_server) as holder:
                holder.execute(f"LOCK TABLE {schema}.meta IN EXCLUSIVE MODE")
                tasks.start_soon(one.store.delete_repository, REPOS[0])
                await until_waiting(postgres_server, 1)

                async def start() -> None:
                    with pytest.raises(Conflict, match="forgotten"):
                        await two.store.sessions.create(used, goal_at=NOON, owner=two.owner)

                tasks.start_soon(start)
                await until_waiting(postgres_server, 2)


@pytest.mark.long
async def test_erasures_beside_writers_lose_nothing_and_leave_nothing(postgres_url: str) -> None:
    """Of sessions forgotten while they are written, all is gone; all others are whole."""
    told: dict[str, list[str]] = {}
    async with services(postgres_url, 4) as (eraser, *kits):
        to_erase, erased = anyio.create_memory_object_stream[tuple[str, str]](100)

        async def write(kit: Kit, name: str, doomed: Doomed) -> None:
            async with doomed:
                for number in range(30):
                    id, repo = f"{name}-{number}", REPOS[number // 2 % 2]
                    await kit.start(id, repo=repo)
                    texts = [(f"step {place} of {id}", "") for place in range(4)]
                    await kit.append_all(texts, session=id)
                    if number % 2:
                        await doomed.send((repo, id))
                    else:
                        told[id] = [text for text, _ in texts * 2]
                    late = [await kit.append_all([text], session=id) for text in texts]
                    expected = Step if id in told else Step | Conflict
                    assert all(isinstance(one, expected) for (one,) in late)

        async with anyio.create_task_group() as tasks, erased:
            for number, kit in enumerate(kits):
                tasks.start_soon(write, kit, f"w{number}", to_erase.clone())
            to_erase.close()
            forgotten = []
            async for repo, id in erased:
                await eraser.store.overhaul(repo).erase(Selection(session_id=id))
                forgotten.append(id)
        assert len(forgotten) == len(told) == 45
        for id in forgotten:
            assert await eraser.store.sessions.load(id) is None
        for id, texts in told.items():
            assert [step.observation for step in (await eraser.load(id)).steps] == texts
        assert (await eraser.store.check()).problems == ()

"""Two server processes on one store: each serves what the other wrote, and tells of it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from inspector_kit import LIMIT_S
from postgres_server import ON_POSTGRES

from mnemo.client import RemoteMnemo, RemoteRepository

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def store(request, tmp_path):
    """Where an empty store is; asked for before ``serve``, whose servers end first."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "shared.db")


@pytest.fixture
def addresses(store, serve):
    """The addresses of two servers of the store."""
    servers = [serve("--store", store) for _ in range(2)]
    return [f"{one.url}/#token={one.token}" for one in servers]


@asynccontextmanager
async def clients(addresses: list[str]) -> AsyncIterator[list[RemoteMnemo]]:
    """A client of each server."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(RemoteMnemo(one)) for one in addresses]


@asynccontextmanager
async def shared(addresses: list[str]) -> AsyncIterator[list[RemoteRepository]]:
    """One repository through each of the servers."""
    async with clients(addresses) as memories:
        yield [memory.repo("shared") for memory in memories]


def told(event):
    """The seqs of the messages that a live event tells of."""
    return [seq for _, seq in event.data["messages"]] if event.name == "changes" else []


async def heard(events, seq):
    """Read *events* until the message *seq*; gives the seqs read, and the last cursor."""
    seqs, cursor = [], None
    with anyio.fail_after(LIMIT_S):
        async for event in events:
            seqs += told(event)
            cursor = event.cursor or cursor
            if seq in seqs:
                return seqs, cursor
    raise AssertionError(f"the stream ended after {seqs}")


async def test_a_fact_told_to_one_server_is_recalled_by_the_other(addresses):
    """Each remembers and recalls; extraction of both gives one set of memories, each once."""
    async with shared(addresses) as (first, second):
        await first.remember("I live in Lund.", actor="Ada", key="0", wait=True)
        await second.remember("My sister Eva lives in Oslo.", actor="Ada", key="1", wait=True)
        for repo in (first, second):
            found = await repo.recall("Where does Ada live?")
            assert "Lund" in found.as_text()
            assert "Oslo" in (await repo.recall("Where does Eva live?")).as_text()
        listed = [[one.id for one in (await repo.memories()).items] for repo in (first, second)]
        assert listed[0] == listed[1]
        assert len(set(listed[0])) == len(listed[0]) >= 2


async def test_a_message_sent_to_both_servers_is_stored_once(addresses):
    """A key is one message, whichever server it comes through, at the same time too."""
    async with shared(addresses) as repos:
        stored: list[str] = []

        async def tell(repo: RemoteRepository, number: int) -> None:
            told = await repo.remember(f"Ada has {number} cats.", key=str(number))
            stored.append(told.messages[0].id)

        async with anyio.create_task_group() as group:
            for number in range(20):
                for repo in repos:
                    group.start_soon(tell, repo, number)
        history = await repos[0].conversation("default").history()
        assert sorted(m.id for m in history) == sorted(set(stored))
        assert [m.seq for m in history] == list(range(20))


async def test_a_write_of_one_server_is_told_to_a_listener_of_the_other(addresses):
    """A listener resumes by its cursor through either server: each change comes once, in order."""
    async with clients(addresses) as memories:
        first, second = (memory.repo("shared") for memory in memories)
        await first.remember("Ada sings.", key="0")
        async with memories[1].events("shared") as events:
            assert (await anext(events)).name == "ready"
            await first.remember("Ada plays.", key="1")
            seqs, cursor = await heard(events, 1)
            assert seqs == [1]
        for number, repo in enumerate((first, second, first), start=2):
            await repo.remember(f"Ada has {number} cats.", key=str(number))
        for memory in memories:
            async with memory.events("shared", after=cursor) as events:
                assert (await heard(events, 4))[0] == [2, 3, 4]

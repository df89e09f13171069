"""An erasure holds up its own repository alone, and nobody there for ever."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import anyio
import pytest
from postgres_server import execute

from mnemo import Config, Mnemo, Repository
from mnemo.errors import ConfigError
from mnemo.maintenance import reembed
from mnemo.store.postgres.connection import Address
from mnemo.store.rows import found_repo
from mnemo.store.tx import Tx
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

PATIENCE_S = 60
"""More than any of this takes, and less than what never ends (S)."""


@pytest.fixture
async def services(postgres_url: str) -> AsyncIterator[tuple[Mnemo, Mnemo]]:
    """Two services over one store, as on two machines."""
    async with AsyncExitStack() as stack:
        config = Config(store={"busy_timeout_s": PATIENCE_S})
        first, second = (
            Mnemo(postgres_url, config=config, embedder=HashingEmbedder(8)) for _ in range(2)
        )
        yield (await stack.enter_async_context(first), await stack.enter_async_context(second))


class Held:
    """What a transaction waits for when it is nearly through; *held*: that one waits."""

    def __init__(self) -> None:
        self.held, self.released = threading.Event(), threading.Event()

    async def met(self) -> None:
        assert await anyio.to_thread.run_sync(self.held.wait, PATIENCE_S)

    def wait(self) -> None:
        self.held.set()
        assert self.released.wait(PATIENCE_S)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Erasures and moves in repository ``a`` are held before their commit."""
    found = Held()

    def holding(module: object, name: str) -> None:
        plain = getattr(module, name)

        def call(tx: Tx, *values: object, **more: object) -> object:
            repo = found_repo(tx, "a")
            result = plain(tx, *values, **more)
            if {repo, "a"} & {*values[:1], more.get("repo_id")}:
                found.wait()
            return result

        monkeypatch.setattr(module, name, call)

    from mnemo import stores
    from mnemo.erasure import erase

    holding(erase, "erase_items")
    holding(stores, "delete_repository")
    holding(reembed, "owe_items")
    yield found
    found.released.set()


async def filled(memory: Mnemo, id: str) -> Repository:
    """A repository with a session of its own, and a conversation."""
    repo = await memory.open_repo(id)
    await repo.conversation("t").append({"role": "user", "content": "Ana drinks green tea"})
    await repo.remember("Ana lives in Porto.", thread_id="old", wait=True)
    return repo


async def used(repo: Repository) -> None:
    """Append to, recall, forget of and keep in a repository."""
    await repo.conversation("t").append({"role": "user", "content": "Omar has a boat"})
    session = await repo.start_session("go on")
    await session.append("the boat is blue", "looked")
    assert "boat" in (await repo.recall("who has a boat?")).as_text()
    assert (await repo.forget(session_id=session.id)).steps == 1
    await repo.items.put(("plans",), "next", {"text": "row"})


@pytest.mark.parametrize("what", ["forget", "delete", "reembed"])
async def test_other_repositories_go_on(services, held, postgres_server, what):
    """In the service that erases and in another one, for as long as it takes; its own waits."""
    first, second = services
    repo, there = await filled(first, "a"), await second.open_repo("a")
    others = [await filled(first, "b"), await second.open_repo("b")]
    appended: list[str] = []

    async def erase() -> None:
        match what:
            case "forget":
                await repo.forget(thread_id="old")
            case "delete":
                await first.delete_repo("a")
            case "reembed":
                await first.reembed("a", embedder=HashingEmbedder(16))

    async def append(own: Repository) -> None:
        await own.conversation("late").append({"role": "user", "content": "later"})
        appended.append(own.id)

    if what != "forget":
        await first.close_repo("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(erase)
        await held.met()
        tasks.start_soon(append, there)
        if what == "forget":
            tasks.start_soon(append, repo)
        with anyio.fail_after(PATIENCE_S):
            for other in others:
                await used(other)
        assert appended == []
        held.released.set()
    assert appended == ["a"] * (2 if what == "forget" else 1)
    assert execute(
        postgres_server, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    ) == [(0,)]


async def test_nobody_starves(services):
    """Ten append without end while one erases, from both services: all of them get on."""
    first, second = services
    repos = [await filled(first, "a"), await second.open_repo("a")]
    counts = [0] * 10
    erased = anyio.Event()

    async def append(place: int) -> None:
        talk = repos[place % 2].conversation(f"t{place}")
        while not erased.is_set() or counts[place] < 3:
            await talk.append({"role": "user", "content": f"number {counts[place]}"})
            counts[place] += 1

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for place in range(10):
                tasks.start_soon(append, place)
            for _ in range(10):
                await repos[0].remember("I sail.", thread_id="gone", wait=True)
                await repos[0].forget(thread_id="gone")
            erased.set()
    for place, count in enumerate(counts):
        found = await repos[0].conversation(f"t{place}").history()
        assert [message.text for message in found] == [f"number {n}" for n in range(count)]


def test_transactions_are_split_by_repository_where_the_url_says_so():
    """Any other way is refused."""
    assert Address.of("postgresql://host/db?split=repository").splits
    assert "split" not in Address.of("postgresql://host/db?split=repository").conninfo
    assert not Address.of("postgresql://host/db").splits
    with pytest.raises(ConfigError, match="split=repository"):
        Address.of("postgresql://host/db?split=thread")

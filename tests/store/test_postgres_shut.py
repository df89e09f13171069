"""An erasure holds up its own repository alone, and nobody there for ever."""

import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial

import anyio
import pytest
from postgres_server import execute, postgres_store

from mnemo import Config, Mnemo, Repository
from mnemo.errors import ConfigError
from mnemo.maintenance import reembed
from mnemo.store.engine import pay_off, repository_locks, session_lock
from mnemo.store.postgres.connection import Address
from mnemo.store.postgres.writer import Writer
from mnemo.store.rows import found_repo, repo_number
from mnemo.store.tx import Tx
from mnemo.stores import PostgresStore
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


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """Two stores over one database, without anything that writes by itself."""
    found = [postgres_store(postgres_url, busy_timeout_s=PATIENCE_S) for _ in range(2)]
    async with AsyncExitStack() as stack:
        for store in found:
            await store.open()
            stack.push_async_callback(store.aclose)
        yield found


@pytest.mark.parametrize("merged", [False, True])
async def test_two_services_do_not_wait_for_each_other(stores, caplog, merged):
    """Whatever comes first in their batches, they count on in repositories in one order."""
    numbers: dict[str, int] = {}

    def make(tx: Tx) -> None:
        numbers.update((id, repo_number(tx, id)) for id in "ba")

    def count(tx: Tx, ids: list[str]) -> list[str]:
        time.sleep(0.1 * merged)
        tx.dialect.reserve(tx, "steps", {numbers[id]: 1 for id in ids})
        return ids

    def count_slowly(tx: Tx, id: str) -> None:
        tx.dialect.reserve(tx, "steps", {numbers[id]: 1})
        time.sleep(0.4)

    async def write_both(store: PostgresStore, order: str) -> None:
        gate, name = Held(), f"s{order}"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                partial(store.engine.writing, lambda tx: gate.wait(), locks=[("owner", name)])
            )
            await gate.met()
            for id in order:
                write = partial(store.engine.writing, partial(count_slowly, id=id))
                if merged and order == "ba":
                    write = partial(store.engine.merging, count, id)
                tasks.start_soon(partial(write, locks=[session_lock(id, name)]))
            await anyio.wait_all_tasks_blocked()
            gate.released.set()

    await stores[0].engine.writing(make, locks=[("graph", "a"), ("graph", "b")])
    caplog.set_level(logging.INFO, logger="mnemo")
    async with anyio.create_task_group() as tasks:
        for store, order in zip(stores, ("ab", "ba"), strict=True):
            tasks.start_soon(write_both, store, order)
    assert [record for record in caplog.messages if "repeated" in record] == []


async def test_what_was_put_off_is_erased_beside_the_writes_of_others(stores):
    """Of one repository after the other, each by itself, also where there is nothing to erase."""
    first, second = (store.engine for store in stores)
    held = Held()

    def owe(tx: Tx) -> None:
        tx.run(
            "INSERT INTO segments (repo, chain, no, part, documents, until, named, bytes) "
            "VALUES (?, 'expired', 0, 0, 0, '', ?, ?)",
            (repo_number(tx, "a"), b"", b""),
        )

    await first.writing(owe, locks=[("graph", "a")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(second.writing, lambda tx: held.wait(), locks=[("graph", "b")]))
        await held.met()
        try:
            with anyio.fail_after(PATIENCE_S / 4):
                await pay_off(first.writing)
        finally:
            held.released.set()
    left = "SELECT count(*) FROM segments"
    assert await first.reading(lambda tx: tx.run(left).fetchone()) == (0,)


async def test_a_repository_whose_gate_has_the_least_number_is_written(stores):
    """The checksum of its id is 0."""
    id = "repo-jaymggm"
    for locks in ([("graph", id)], repository_locks(id)):
        assert await stores[0].engine.writing(lambda tx: 7, locks=locks) == 7


@pytest.mark.parametrize(
    ("name", "locks"),
    [
        ("_aside_of", repository_locks("a")),
        ("_write_at_once", repository_locks("a")),
        ("_write_at_once", [("graph", "a")]),
    ],
)
async def test_a_writer_that_fails_says_so_and_goes_on(stores, monkeypatch, name, locks):
    """Whatever it raises, whoever waits is told, and the next one is served."""
    engine = stores[0].engine
    with monkeypatch.context() as patched, anyio.fail_after(PATIENCE_S / 4):
        patched.setattr(Writer, name, lambda *_: {}["a"])
        with pytest.raises(KeyError):
            await engine.writing(lambda tx: 7, locks=locks)
    assert await engine.writing(lambda tx: 7, locks=locks) == 7


class Vanishing(dict[str, object]):
    """What it has is gone by the time that it is taken."""

    def __contains__(self, key: object) -> bool:
        return True


async def test_a_repository_that_waits_no_longer_is_written(stores):
    """A writer aside may be through with it while the main one looks."""
    engine = stores[0].engine
    engine._writer()._behind = Vanishing()
    with anyio.fail_after(PATIENCE_S / 4):
        assert await engine.writing(lambda tx: 7, locks=[("graph", "a")]) == 7


def test_transactions_are_split_by_repository_where_the_url_says_so():
    """Any other way is refused."""
    assert Address.of("postgresql://host/db?split=repository").splits
    assert "split" not in Address.of("postgresql://host/db?split=repository").conninfo
    assert not Address.of("postgresql://host/db").splits
    with pytest.raises(ConfigError, match="split=repository"):
        Address.of("postgresql://host/db?split=thread")

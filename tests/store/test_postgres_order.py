"""Several processes write to one PostgreSQL store, and one follows: nothing is lost or doubled."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import anyio.lowlevel
import psycopg
import pytest
from postgres_server import execute, postgres_store
from world import Kit

from mnemo import StoreError, StoreLocked
from mnemo.protocols import FeedCursor
from mnemo.stores import PostgresStore
from mnemo.testing import ManualClock

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.long]

SERVICES = 4
WRITERS = 32
STEPS = 25
REPOS = ("one", "two")


@asynccontextmanager
async def services(url: str, count: int) -> AsyncIterator[list[Kit]]:
    """Services with writers and connections of their own, as processes have them."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        kits = []
        for _ in range(count):
            store = postgres_store(url, clock)
            kits.append(Kit(lambda _: postgres_store(url), clock, store, await store.open()))
            stack.push_async_callback(store.aclose)
        yield kits


class Follower:
    """Reads a repository behind a cursor, again and again, in small parts."""

    def __init__(self, store: PostgresStore, repo: str) -> None:
        self.feed = store.feed(repo)
        self.cursor = FeedCursor()
        self.seen: list[str] = []

    async def read(self) -> None:
        more = True
        while more:
            changes = await self.feed.changes(self.cursor, limit=7)
            self.seen += [step.node_id for step in changes.steps]
            self.cursor, more = changes.cursor, changes.more

    async def follow(self, done: anyio.Event) -> None:
        while not done.is_set():
            await self.read()


async def write(kit: Kit, name: str, repo: str, told: list[str]) -> None:
    """Append the steps of a session one by one, as its annotation would have it."""
    await kit.start(name, repo=repo)
    for number in range(STEPS):
        step = await kit.append(f"{name} says {number}", session=name, repo=repo)
        told.append(step.node_id)


async def test_a_follower_sees_each_step_of_many_writers_once(postgres_url):
    """32 writers in four services, two repositories: what was told is seen, each step once."""
    told: dict[str, list[str]] = {repo: [] for repo in REPOS}
    async with services(postgres_url, SERVICES + 1) as (reader, *kits):
        followers = {repo: Follower(reader.store, repo) for repo in REPOS}
        done = anyio.Event()
        async with anyio.create_task_group() as following:
            for follower in followers.values():
                following.start_soon(follower.follow, done)
            async with anyio.create_task_group() as writing:
                for number in range(WRITERS):
                    repo = REPOS[number % len(REPOS)]
                    kit = kits[number % SERVICES]
                    writing.start_soon(write, kit, f"s{number}", repo, told[repo])
            done.set()
        for repo, follower in followers.items():
            await follower.read()
            assert len(follower.seen) == len(set(follower.seen))
            assert set(follower.seen) == set(told[repo])
            assert len(told[repo]) == WRITERS * STEPS // len(REPOS)


async def test_a_commit_that_waits_does_not_hide_from_a_follower(postgres_url):
    """A number that is taken, not committed, holds up those behind it in its repository alone."""
    server, schema = postgres_url.partition("&schema")[0], postgres_url.rpartition("=")[2]
    async with services(postgres_url, 3) as (reader, slow, quick):
        await slow.start("a", repo="one")
        await quick.start("b", repo="one")
        await quick.start("c", repo="two")
        execute(server, _SLOW.format(schema))
        try:
            follower = Follower(reader.store, "one")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_append, slow, "a", "wait for it")
                await _until_asleep(server)
                await quick.append("elsewhere", session="c", repo="two")
                await follower.read()
                assert follower.seen == []
                tasks.start_soon(_append, quick, "b", "behind it")
            await follower.read()
            assert len(follower.seen) == 2
        finally:
            execute(server, _NOT_SLOW.format(schema))


_SLOW = """
CREATE FUNCTION {0}.dawdle() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON {0}.steps DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.observation = 'wait for it') EXECUTE FUNCTION {0}.dawdle()
"""
_NOT_SLOW = "DROP FUNCTION {0}.dawdle CASCADE"


async def _append(kit: Kit, session: str, observation: str) -> None:
    await kit.append(observation, session=session, repo="one")


async def _until_asleep(server: str) -> None:
    """Return once a transaction sleeps in its commit."""
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    while execute(server, asleep) == [(0,)]:
        await anyio.lowlevel.checkpoint()


_ENDS = """
CREATE SEQUENCE {0}.ended;
CREATE FUNCTION {0}.ends() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('{0}.ended') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON {0}.steps DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION {0}.ends()
"""
_NO_ENDS = "DROP FUNCTION {0}.ends CASCADE; DROP SEQUENCE {0}.ended"


async def test_a_commit_that_the_server_broke_off_is_repeated(postgres_url):
    """The connection ends within COMMIT: the outcome is looked up, and the step written once."""
    server, schema = postgres_url.partition("&schema")[0], postgres_url.rpartition("=")[2]
    async with services(postgres_url, 1) as (kit,):
        await kit.start()
        execute(server, _ENDS.format(schema))
        try:
            await kit.append("said once")
            ended = execute(server, f"SELECT last_value FROM {schema}.ended")
        finally:
            execute(server, _NO_ENDS.format(schema))
        assert ended == [(2,)]
        assert [step.observation for step in (await kit.load()).steps] == ["said once"]


async def test_a_commit_whose_outcome_nobody_knows_is_not_repeated(postgres_url):
    """A day later others have swept what told it: the caller is to read what is stored."""
    server, schema = postgres_url.partition("&schema")[0], postgres_url.rpartition("=")[2]
    async with services(postgres_url, 1) as (kit,):
        await kit.start()
        execute(server, f"UPDATE {schema}.commits SET at = at - interval '25 hours'")
        async with services(postgres_url, 1):
            assert len(execute(server, f"SELECT writer FROM {schema}.commits")) == 1
        execute(server, _ENDS.format(schema))
        try:
            with pytest.raises(StoreError, match="read again what is stored"):
                await kit.append("said at most once")
        finally:
            execute(server, _NO_ENDS.format(schema))
        assert (await kit.load()).steps == ()
        await kit.append("said once")
        assert [step.observation for step in (await kit.load()).steps] == ["said once"]


@pytest.mark.parametrize(
    ("options", "config", "words"),
    [
        ("&options=-c%20statement_timeout%3D500", {}, "statement timeout; try again"),
        ("", {"busy_timeout_s": 1.0}, "try again"),
    ],
    ids=["server's timeout", "busy timeout"],
)
async def test_a_lock_beyond_a_timeout_refuses_a_write(postgres_url, options, config, words):
    """It is StoreLocked, nothing is written, and once the lock is free the next write goes on."""
    server, schema = postgres_url.partition("&schema")[0], postgres_url.rpartition("=")[2]
    store = postgres_store(f"{postgres_url}{options}", ManualClock(), **config)
    kit = Kit(lambda _: store, ManualClock(), store, await store.open())
    await kit.start()
    with psycopg.connect(server) as holder:
        holder.execute(f"LOCK TABLE {schema}.steps IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreLocked, match=words):
            await kit.append("refused")
    await kit.append("taken")
    assert [step.observation for step in (await kit.load()).steps] == ["taken"]
    await store.aclose()

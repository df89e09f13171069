"""Scrubbing a PostgreSQL store: the bytes of what was erased leave the server's files."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from helpers import committed
from postgres_server import execute, new_schema

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SECRET = "xyzzyplughfrotz"


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    """The URL of a schema that no other test has left rows in."""
    with new_schema(postgres_server) as url:
        yield url


def bytes_left(url: str) -> list[str]:
    """Tables and indexes of the schema in whose files the secret stands."""
    server, schema = url.partition("&schema")[0], url.rpartition("=")[2]
    execute(server, "CHECKPOINT")
    files = execute(
        server,
        "SELECT relname, pg_relation_filepath(c.oid) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = '{schema}' AND pg_relation_filepath(c.oid) IS NOT NULL",
    )
    return [str(name) for name, file in files if _holds(server, str(file))]


def _holds(server: str, file: str) -> bool:
    found = execute(server, f"SELECT position('{SECRET}'::bytea IN pg_read_binary_file('{file}'))")
    return found != [(0,)]


async def forget_secret(memory: Mnemo) -> bool:
    """Remember and forget it; give whether the report says that its bytes are gone."""
    repo = await memory.open_repo("r")
    await committed(repo, f"the word is {SECRET}", "noted", goal="talk", session_id="s")
    return (await repo.forget(session_id="s")).scrubbed


async def test_a_scrub_rewrites_what_was_erased_from(url):
    """The report says that bytes are left; after ``scrub`` they stand in no file of the schema."""
    async with Mnemo(url, embedder=HashingEmbedder()) as memory:
        assert not await forget_secret(memory)
        assert any(name.startswith("steps_") for name in bytes_left(url))
        assert await memory.scrub()
        assert bytes_left(url) == []
        assert await memory.scrub()
        assert (await memory.check()).problems == ()


async def test_a_reader_of_an_older_state_holds_up_the_scrub(url, postgres_server):
    """While it may read what was erased, ``scrub`` says so; afterwards it does its work."""
    async with Mnemo(url, embedder=HashingEmbedder()) as memory:
        with psycopg.connect(postgres_server) as reader:
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")
            await forget_secret(memory)
            assert not await memory.scrub()
        assert await memory.scrub()


async def test_a_reader_that_ends_is_waited_for(url, postgres_server):
    """A transaction that is about to end, such as a reader of this service, defeats no scrub."""
    looked = (
        "SELECT 1 FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%pg_prepared_xacts%'"
    )
    async with Mnemo(url, embedder=HashingEmbedder()) as memory:
        with psycopg.connect(postgres_server) as reader:
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")
            await forget_secret(memory)
            scrubbing = asyncio.create_task(memory.scrub())
            while not (
                scrubbing.done() or await asyncio.to_thread(execute, postgres_server, looked)
            ):
                pass
        assert await scrubbing


async def test_a_table_that_is_read_for_long_is_left_to_the_next_scrub(
    url, postgres_server, caplog
):
    """Who began to read it during the scrub keeps no others waiting behind its rewrite."""
    schema = url.rpartition("=")[2]
    caplog.set_level("INFO", "mnemo")
    async with Mnemo(url, embedder=HashingEmbedder()) as memory:
        await forget_secret(memory)
        with psycopg.connect(postgres_server) as reader:
            reader.execute(f"LOCK TABLE {schema}.steps IN ACCESS SHARE MODE")
            assert not await memory.scrub()
            assert f"{schema}.steps_0 is being read" in caplog.text
        assert await memory.scrub()
        assert bytes_left(url) == []


async def test_a_role_that_does_not_own_the_tables_is_told(url, postgres_server, caplog):
    """It may erase, not rewrite: ``scrub`` gives False and logs why."""
    schema = url.rpartition("=")[2]
    role = f"r{schema}"
    async with Mnemo(url, embedder=HashingEmbedder()):
        pass
    execute(
        postgres_server,
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};"
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    )
    try:
        running = url.replace("postgres:@", f"{role}@")
        async with Mnemo(running, embedder=HashingEmbedder()) as memory:
            await forget_secret(memory)
            assert not await memory.scrub()
        assert "does not own the tables" in caplog.text
    finally:
        execute(postgres_server, f"DROP SCHEMA {schema} CASCADE; DROP ROLE {role}")

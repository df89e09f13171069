"""A store in PostgreSQL: the whole way of a memory, and what keeps a store from opening."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from postgres_server import empty, execute, new_schema, postgres_store

from mnemo import ConfigError, Mnemo, SchemaTooNew, StoreCorrupt, StoreError, StoreUnavailable
from mnemo.store.schema import VERSION
from mnemo.store.store import EngineStore
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def fresh_url(postgres_server: str) -> Iterator[str]:
    """The URL of a schema that nobody has made tables in."""
    with new_schema(postgres_server) as url:
        yield url


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


async def made(url: str) -> None:
    """Make the tables."""
    store = postgres_store(url)
    await store.open()
    await store.aclose()


async def test_a_memory_in_postgres_is_there_for_the_next_service(postgres_url: str) -> None:
    """What is appended, committed and remembered is recalled and searched from another one."""
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("trips")
        session = await repo.start_session("Help plan a trip to Japan")
        await session.append("User wants to visit Tokyo", "Asked for the dates")
        await session.close_and_commit()
        await repo.remember("I am allergic to peanuts.", wait=True)
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("trips")
        assert "Tokyo" in (await repo.recall("Which city does the user want to visit?")).as_text()
        assert "peanuts" in (await repo.recall("What is the user allergic to?")).as_text()
        assert [hit.snippet for hit in await repo.search("tokyo")] == ["User wants to visit Tokyo"]
        report = await memory.check()
        assert report.problems == ()


@pytest.mark.parametrize("schema", ["Memory", "a-b", "x" * 64, 'a"b'])
async def test_a_schema_that_is_no_plain_name_is_refused(schema: str) -> None:
    """Names that would have to be quoted are ConfigError before anything connects."""
    with pytest.raises(ConfigError, match="plain name"):
        await Mnemo(f"postgresql://nobody@localhost/db?schema={schema}").open()


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    """No server: StoreUnavailable, with host and database and no password."""
    memory = Mnemo("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=2")
    with pytest.raises(StoreUnavailable, match=r"db at 127\.0\.0\.1") as caught:
        await memory.open()
    assert "secret" not in str(caught.value)


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that fails says what to install."""
    for module in [name for name in sys.modules if name.startswith("mnemo.store.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"mnemo-sessions\[postgres\]"):
        await Mnemo("postgresql://localhost/db").open()


@pytest.mark.parametrize("role", ["stranger"])
async def test_a_role_that_does_not_exist_is_a_plain_error(postgres_server: str, role: str) -> None:
    """What the server refuses to let in is a StoreError that no repetition mends."""
    url = postgres_server.replace("postgres:@", f"{role}@")
    with pytest.raises(StoreError, match="refuses the connection") as caught:
        await postgres_store(url).open()
    assert not isinstance(caught.value, StoreUnavailable)


async def test_tables_of_a_newer_version_are_not_touched(fresh_url: str) -> None:
    """A schema of a version that this mnemo does not know is SchemaTooNew."""
    await made(fresh_url)
    execute(fresh_url.partition("&schema")[0], _newer(schema_of(fresh_url)))
    with pytest.raises(SchemaTooNew) as caught:
        await postgres_store(fresh_url).open()
    assert (caught.value.found, caught.value.supported) == (VERSION + 1, VERSION)


def _newer(schema: str) -> str:
    return f"UPDATE {schema}.meta SET value = '{VERSION + 1}' WHERE name = 'schema'"


@pytest.mark.parametrize("columns", ["name TEXT, value TEXT", "x INTEGER"])
async def test_tables_of_somebody_else_are_not_touched(fresh_url: str, columns: str) -> None:
    """A schema with other tables of the same names is refused, and nothing is made in it."""
    server, schema = fresh_url.partition("&schema")[0], schema_of(fresh_url)
    execute(server, f"CREATE SCHEMA {schema}")
    execute(server, f"CREATE TABLE {schema}.meta ({columns})")
    with pytest.raises(StoreCorrupt, match="name another one"):
        await postgres_store(fresh_url).open()
    tables = execute(server, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    assert tables == [("meta",)]


async def test_a_database_that_is_not_utf8_is_refused(postgres_server: str) -> None:
    """Texts of every script have to fit: another encoding is a StoreError that says so."""
    execute(postgres_server, "DROP DATABASE IF EXISTS latin")
    execute(
        postgres_server,
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    )
    parts = urlsplit(postgres_server)
    try:
        with pytest.raises(StoreError, match="LATIN1"):
            await postgres_store(parts._replace(path="/latin").geturl()).open()
    finally:
        execute(postgres_server, "DROP DATABASE latin WITH (FORCE)")


async def test_a_role_without_ddl_runs_what_an_owner_made(fresh_url: str) -> None:
    """It cannot make the tables, and says who can; once they are there, it needs no more."""
    server, schema = fresh_url.partition("&schema")[0], schema_of(fresh_url)
    role = f"r{schema}"
    execute(server, f"CREATE ROLE {role} LOGIN")
    execute(server, f"REVOKE CREATE ON DATABASE postgres FROM {role}")
    running = fresh_url.replace("postgres:@", f"{role}@")
    try:
        with pytest.raises(StoreError, match="open it once as owner"):
            await postgres_store(running).open()
        await made(fresh_url)
        for rights in (
            "USAGE ON SCHEMA {0}",
            "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0}",
            "USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {0}",
        ):
            execute(server, f"GRANT {rights.format(schema)} TO {role}")
        async with Mnemo(running, embedder=HashingEmbedder()) as memory:
            repo = await memory.open_repo("r")
            await repo.remember("I live in Bern.", wait=True)
            assert (await repo.search("Bern"))[0].snippet == "I live in Bern."
    finally:
        execute(server, f"DROP SCHEMA IF EXISTS {schema} CASCADE; DROP ROLE {role}")


_END_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'mnemo' AND pid <> pg_backend_pid()
"""


async def test_connections_that_the_administrator_ended_are_opened_anew(
    postgres_url: str, postgres_server: str
) -> None:
    """After pg_terminate_backend reads and writes go on, and nothing acknowledged is lost."""
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        session = await repo.start_session("Count")
        for number in range(5):
            await session.append(f"number {number}", "noted")
            execute(postgres_server, _END_CONNECTIONS)
            found = await repo.search("number", limit=10)
            assert {hit.snippet for hit in found} == {f"number {n}" for n in range(number + 1)}


async def test_emptying_a_schema_leaves_what_belongs_to_it(postgres_url: str) -> None:
    """The fixture of these tests: rows go, the version and the locks stay."""
    await made(postgres_url)
    empty(postgres_url)
    server, schema = postgres_url.partition("&schema")[0], schema_of(postgres_url)
    assert execute(server, f"SELECT count(*) FROM {schema}.owners") == [(0,)]
    assert execute(server, f"SELECT count(*) FROM {schema}.locks") == [(4096,)]
    store: EngineStore = postgres_store(postgres_url)
    await store.open()
    await store.aclose()

"""A store in PostgreSQL: the whole way of a memory, and what keeps a store from opening."""

import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from helpers import lines_of, repository
from postgres_server import empty, execute, new_schema, postgres_store

import mnemo.store.postgres
from mnemo import ConfigError, Mnemo, SchemaTooNew, StoreCorrupt, StoreError, StoreUnavailable
from mnemo.store.schema import VERSION
from mnemo.stores import EngineStore
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


async def test_a_memory_in_postgres_is_there_for_the_next_service(postgres_url):
    """What is appended, committed and remembered is recalled and searched from another one."""
    async with repository(postgres_url, "trips") as repo:
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
async def test_a_schema_that_is_no_plain_name_is_refused(schema):
    """Names that would have to be quoted are ConfigError before anything connects."""
    with pytest.raises(ConfigError, match="plain name"):
        await Mnemo(f"postgresql://nobody@localhost/db?schema={schema}").open()


async def test_a_server_that_is_not_there_is_named_without_the_password():
    """No server: StoreUnavailable, with host and database and no password."""
    memory = Mnemo("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=2")
    with pytest.raises(StoreUnavailable, match=r"db at 127\.0\.0\.1") as caught:
        await memory.open()
    assert "secret" not in str(caught.value)


async def test_without_the_extra_the_error_names_it(monkeypatch):
    """An import that fails says what to install."""
    monkeypatch.setattr(mnemo.store, "postgres", mnemo.store.postgres)  # as it is, afterwards
    for module in [name for name in sys.modules if name.startswith("mnemo.store.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"mnemo-sessions\[postgres\]"):
        await Mnemo("postgresql://localhost/db").open()


@pytest.mark.parametrize("role", ["stranger"])
async def test_a_role_that_does_not_exist_is_a_plain_error(postgres_server, role):
    """What the server refuses to let in is a StoreError that no repetition mends."""
    url = postgres_server.replace("postgres:@", f"{role}@")
    with pytest.raises(StoreError, match="refuses the connection") as caught:
        await postgres_store(url).open()
    assert not isinstance(caught.value, StoreUnavailable)


async def test_tables_of_a_newer_version_are_not_touched(fresh_url):
    """A schema of a version that this mnemo does not know is SchemaTooNew."""
    await made(fresh_url)
    execute(fresh_url.partition("&schema")[0], _stamped(schema_of(fresh_url), VERSION + 1))
    with pytest.raises(SchemaTooNew) as caught:
        await postgres_store(fresh_url).open()
    assert (caught.value.found, caught.value.supported) == (VERSION + 1, VERSION)
    assert "`pip install --upgrade mnemo-sessions`" in str(caught.value)


async def test_tables_of_a_development_version_are_refused(fresh_url):
    """They are mnemo's, never of a later version; the error says how to take the data over."""
    await made(fresh_url)
    renamed = f"UPDATE {schema_of(fresh_url)}.meta SET name = 'schema', value = '13' "
    execute(fresh_url.partition("&schema")[0], f"{renamed} WHERE name = 'version'")
    with pytest.raises(StoreError, match=r"development version .*schema 13.*convert") as caught:
        await postgres_store(fresh_url).open()
    assert type(caught.value) is StoreError


async def test_tables_of_a_preview_are_refused(fresh_url):
    """They lack the newest table; the error says how to take the data over."""
    await made(fresh_url)
    execute(fresh_url.partition("&schema")[0], f"DROP TABLE {schema_of(fresh_url)}.recalls")
    with pytest.raises(StoreError, match=r"preview of mnemo .*export.*import") as caught:
        await postgres_store(fresh_url).open()
    assert type(caught.value) is StoreError


async def test_tables_are_whole_where_the_engine_has_shards(fresh_url):
    """As the URL says; else the large ones are in parts."""
    schema, server = schema_of(fresh_url), fresh_url.partition("&schema")[0]
    kinds = "SELECT DISTINCT relkind::text FROM pg_class WHERE relname = 'steps' AND relnamespace"
    await made(f"{fresh_url}&split=repository")
    assert execute(server, f"{kinds} = '{schema}'::regnamespace") == [("r",)]
    await made(fresh_url)
    execute(server, f"DROP SCHEMA {schema} CASCADE")
    await made(fresh_url)
    assert execute(server, f"{kinds} = '{schema}'::regnamespace") == [("p",)]


def _stamped(schema: str, version: int) -> str:
    return f"UPDATE {schema}.meta SET value = '{version}' WHERE name = 'version'"


_HELD = (
    "SELECT relname FROM pg_class WHERE relnamespace = '{0}'::regnamespace UNION ALL "
    "SELECT proname FROM pg_proc WHERE pronamespace = '{0}'::regnamespace ORDER BY 1"
)


@pytest.mark.parametrize(
    "held",
    [
        "CREATE TABLE meta (x INTEGER)",
        "CREATE TABLE meta (name TEXT, value TEXT)",
        "CREATE TABLE meta (name TEXT, value TEXT); INSERT INTO meta VALUES ('schema', '3')",
        "CREATE TABLE repos (x INTEGER); CREATE TABLE messages (id UUID); CREATE TABLE nodes ()",
        "CREATE MATERIALIZED VIEW steps AS SELECT 1 AS no",
        "CREATE TYPE threads AS (x INTEGER)",
        "CREATE SEQUENCE locks",
        "CREATE FUNCTION occurrences(text[], text[]) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
    ],
)
async def test_what_somebody_else_has_in_the_schema_is_not_touched(fresh_url, held):
    """A schema in use is refused by name, and nothing is made in it."""
    server, schema = fresh_url.partition("&schema")[0], schema_of(fresh_url)
    execute(server, f"CREATE SCHEMA {schema}; SET search_path = {schema}; {held}")
    before = execute(server, _HELD.format(schema))
    with pytest.raises(StoreCorrupt, match=f"{schema}.*name another one"):
        await postgres_store(fresh_url).open()
    assert execute(server, _HELD.format(schema)) == before


async def test_a_database_that_is_not_utf8_is_refused(postgres_server):
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


async def an_archive() -> list[str]:
    """The lines of a repository with a note."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        await repo.notes.write("harbour", "Closed on Mondays.", "Opening hours")
        return await lines_of(memory, "r")


async def test_a_role_without_ddl_runs_what_an_owner_made(fresh_url):
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
            await memory.import_repo("copy", await an_archive())
            assert [one.id for one in await memory.repos()] == ["copy", "r"]
    finally:
        execute(server, f"DROP SCHEMA IF EXISTS {schema} CASCADE; DROP ROLE {role}")


_END_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'mnemo' AND pid <> pg_backend_pid()
"""


async def test_connections_that_the_administrator_ended_are_opened_anew(
    postgres_url, postgres_server
):
    """After pg_terminate_backend reads and writes go on, and nothing acknowledged is lost."""
    async with repository(postgres_url, "r") as repo:
        session = await repo.start_session("Count")
        for number in range(5):
            await session.append(f"number {number}", "noted")
            execute(postgres_server, _END_CONNECTIONS)
            found = await repo.search("number", limit=10)
            assert {hit.snippet for hit in found} == {f"number {n}" for n in range(number + 1)}


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_commit_whose_answer_is_lost_is_looked_up(postgres_url, monkeypatch, is_committed):
    """Whether the server had committed or not, the step is acknowledged and there once."""
    lost: list[str] = []

    class Connection(psycopg.Connection[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            if query != "COMMIT" or len(lost) != 1:
                return super().execute(query, *args, **kwargs)
            lost.append(query)
            if is_committed:
                super().execute(query)
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("psycopg.connect", Connection.connect)
    async with repository(postgres_url, "r") as repo:
        session = await repo.start_session("Count")
        lost.append("from now on")
        await session.append("number 1", "noted")
        await session.append("number 2", "noted")
        assert lost[1:] == ["COMMIT"]
        found = sorted(hit.snippet for hit in await repo.search("number"))
        assert found == ["number 1", "number 2"]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_an_import_whose_answer_is_lost_is_looked_up(postgres_url, monkeypatch, is_committed):
    """It was written: it is done. It was not: nothing is left, and it can be imported again."""
    lost: list[str] = []

    class Connection(psycopg.Connection[Any]):
        moves = False

        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            self.moves = self.moves or "INSERT INTO commits" in query
            if query != "COMMIT" or not self.moves or lost:
                return super().execute(query, *args, **kwargs)
            lost.append(query)
            if is_committed:
                super().execute(query)
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    async with Mnemo("memory:", embedder=HashingEmbedder()) as here:
        repo = await here.open_repo("r")
        await repo.remember("Ana lives in Bern.", key="first")
        lines = await lines_of(here, "r")
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as there:
        monkeypatch.setattr("psycopg.connect", Connection.connect)  # not the writer's
        if not is_committed:
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                await there.import_repo("r", lines)
            assert there.list_repos() == []
        await there.import_repo("r", lines)
        assert lost == ["COMMIT"]
        copied = await there.open_repo("r")
        assert [hit.snippet for hit in await copied.search("Bern")] == ["Ana lives in Bern."]


_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def test_a_first_commit_that_is_still_under_way_is_waited_for(
    postgres_url, postgres_server, monkeypatch
):
    """It ends while its outcome is looked up: it counts, and is not made a second time."""
    await made(postgres_url)
    lost: list[psycopg.Connection[Any]] = []
    commits: list[threading.Thread] = []

    class Connection(psycopg.Connection[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            if query != "COMMIT":
                return super().execute(query, *args, **kwargs)
            commits.append(threading.Thread(target=self.commit_late))
            if len(commits) > 1:
                return super().execute(query, *args, **kwargs)
            lost.append(self)
            commits[0].start()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        @property
        def closed(self) -> bool:
            return self in lost or super().closed

        def commit_late(self) -> None:
            while execute(postgres_server, _WAITING) == [(0,)]:
                pass
            self.pgconn.exec_(b"COMMIT")
            self.pgconn.finish()

    monkeypatch.setattr("psycopg.connect", Connection.connect)
    store: EngineStore = postgres_store(postgres_url)
    await store.open()
    commits[0].join()
    assert len(commits) == 1
    await store.aclose()


async def test_a_notice_while_the_writer_has_no_connection_is_of_another(
    postgres_url,
):
    """Whoever listens for jobs asks whose it is, also between an ended connection and the next."""
    store = postgres_store(postgres_url)
    await store.open()
    writer = store.engine._writer()
    process = writer._connection.info.backend_pid
    assert writer.is_own(process)
    writer._connection.close()
    assert not writer.is_own(process + 1)
    await store.aclose()


async def test_emptying_a_schema_leaves_what_belongs_to_it(postgres_url):
    """The fixture of these tests: rows go, the version and the locks stay."""
    await made(postgres_url)
    empty(postgres_url)
    server, schema = postgres_url.partition("&schema")[0], schema_of(postgres_url)
    assert execute(server, f"SELECT count(*) FROM {schema}.owners") == [(0,)]
    assert execute(server, f"SELECT count(*) FROM {schema}.locks") == [(4096,)]
    store: EngineStore = postgres_store(postgres_url)
    await store.open()
    await store.aclose()


async def test_inserted_rows_come_back_as_they_were(postgres_url, monkeypatch):
    """Quotes, escapes, bytes, flags and nothing survive, also where rows take many statements."""
    monkeypatch.setattr("mnemo.store.postgres.connection._MOST_JSON", 100)
    columns = ("repo", "key", "digest", "vector")
    rows = [(n, 'a"\\\n\t\u2028 é 😀' + "x" * n, bytes(range(n)), b"\\x00") for n in range(70)]
    rows.append((True, "flag", b"", b"\0"))
    store = postgres_store(postgres_url)
    await store.open()
    await store.engine.writing(lambda tx: tx.insert("moving", columns, rows))
    found = await store.engine.reading(
        lambda tx: tx.run("SELECT repo, key, digest, vector FROM moving").fetchall()
    )
    assert sorted(found) == sorted(rows)
    await store.aclose()


async def test_a_long_list_comes_back_as_it_was(postgres_url, monkeypatch):
    """The words of a long text are handed over in parts, beside what is short."""
    monkeypatch.setattr("mnemo.store.postgres.connection._MOST_AT_ONCE", 3)
    columns = ("no", "repo", "words", "length", "lowered", "triples", "at")
    rows = [(n, 1, [f'"é\\{m}' for m in range(n)], n, None, ["a"] * n, 0.5) for n in range(1, 9)]
    store = postgres_store(postgres_url)
    await store.open()
    await store.engine.writing(lambda tx: tx.insert("texts", columns, rows))
    found = await store.engine.reading(
        lambda tx: tx.run(f"SELECT {', '.join(columns)} FROM texts ORDER BY no").fetchall()
    )
    assert found == rows
    await store.aclose()

"""A database that is shared: others have tables of the same names, which are never touched."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from helpers import committed, lines_of
from postgres_server import execute

from mnemo import Config, Mnemo, StoreCorrupt
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

CONFIG = Config(recall={"record_access": False})
_NAMES = """
SELECT relname FROM pg_class WHERE relnamespace = 'names'::regnamespace AND relkind = 'r'
"""
# Whoever reads or writes one of them is refused; a function raises.
_TWINS = """
CREATE SCHEMA IF NOT EXISTS {0} AUTHORIZATION tenant;
GRANT USAGE, CREATE ON SCHEMA {0} TO tenant, memo;
SET ROLE tenant; SET search_path = {0}, pg_temp;
CREATE FUNCTION json_of(text) RETURNS json LANGUAGE plpgsql AS 'BEGIN RAISE ''touched''; END';
CREATE FUNCTION occurrences(text[], text[]) RETURNS bigint LANGUAGE plpgsql
AS 'BEGIN RAISE ''touched''; END';
"""
_TWIN = "CREATE TABLE {0} (x INTEGER); CREATE INDEX {0}_x ON {0} (x);"


@pytest.fixture
def database(postgres_server: str) -> Iterator[str]:
    """The URL of a role in a database whose every name is taken in the role's search path."""
    execute(postgres_server, "CREATE ROLE tenant; CREATE ROLE memo LOGIN IN ROLE pg_read_all_stats")
    execute(postgres_server, "CREATE DATABASE shared")
    owner = urlsplit(postgres_server)._replace(path="/shared").geturl()
    try:
        execute(
            postgres_server,
            "GRANT CREATE, TEMPORARY ON DATABASE shared TO memo;"
            "ALTER ROLE memo IN DATABASE shared SET search_path = tenant, public, memory",
        )
        yield owner
    finally:
        execute(postgres_server, "DROP DATABASE shared WITH (FORCE)")
        execute(postgres_server, "DROP ROLE tenant; DROP ROLE memo")


def role(database: str, schema: str) -> str:
    return f"{database.replace('postgres:@', 'memo@')}&schema={schema}"


def service(url: str) -> Mnemo:
    return Mnemo(url, config=CONFIG, embedder=HashingEmbedder())


async def archive(memory: Mnemo, id: str) -> list[str]:
    return await lines_of(memory, id)


async def lived(memory: Mnemo) -> None:
    """Everyday calls."""
    repo = await memory.open_repo("r", exist_ok=True)
    await committed(repo, "The harbour of Porto is closed.", "Noted it", goal="Plan a trip")
    await repo.remember("I live in Bern.", thread_id="t")
    await repo.remember("My word is xyzzy.", thread_id="gone")
    await repo.settle()
    await repo.notes.write("harbour", "Closed on Mondays.", "Opening hours")
    await repo.items.put(("a",), "k", {"text": "A pear."})
    assert "Bern" in (await repo.recall("Where does the user live?")).as_text()
    assert {hit.snippet for hit in await repo.search('harbour OR "live in"')}
    assert len(await repo.search("pear", limit=5)) == 0
    assert (await repo.memories()).items
    assert (await repo.forget(thread_id="gone")).messages == 1
    assert (await repo.consolidate()) is not None
    assert (await memory.check()).problems == ()
    assert await memory.scrub()
    assert (await memory.check()).problems == ()


async def test_tables_of_others_with_our_names_are_not_touched(database):
    """First in the search path or in ``public``: calls, upkeep and copies keep to their schema."""
    async with service(role(database, "names")):
        names = [name for (name,) in execute(database, _NAMES)]
    twins = "".join(_TWIN.format(name) for name in names)
    for schema in ("tenant", "public"):
        execute(database, _TWINS.format(schema) + twins)
    async with service(role(database, "memory")) as memory:
        await lived(memory)
        lines = await archive(memory, "r")
        (copied,) = await memory.copy_to(role(database, "second"))
        assert copied.repo_id == "r"
        await memory.close_repo("r")
        await memory.delete_repo("r")
        assert await memory.scrub()
    async with service(role(database, "second")) as second:
        assert await archive(second, "r") == lines
    for schema in ("tenant", "public"):
        held = [execute(database, f"SELECT * FROM {schema}.{name}") for name in names]
        assert held == [[]] * len(names)
        with pytest.raises(StoreCorrupt, match="name another one"):
            await service(role(database, schema)).open()


async def test_what_others_put_beside_our_tables_is_not_checked(postgres_url):
    """Types that we have not, in a table without a key; our rows are checked as ever."""
    schema = postgres_url.rpartition("=")[2]
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        await (await memory.open_repo("r")).remember("I own a boat.", thread_id="t")
        made = f"CREATE TABLE {schema}.audit AS SELECT '{{}}'::jsonb AS row, now() AS at, 1 AS no"
        execute(postgres_url.partition("&schema")[0], made)
        assert (await memory.check()).problems == ()

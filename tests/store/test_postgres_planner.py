"""The planner knows partitioned tables: services analyse them as they grow, and not at rest."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import pytest
from helpers import until
from postgres_server import execute, new_schema

from mnemo import Config, Message, Mnemo
from mnemo.store.postgres import engine, planner
from mnemo.store.postgres.connection import PostgresTx
from mnemo.store.postgres.dialect import spelled
from mnemo.store.postgres.schema import PARTED
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

CONFIG = Config(jobs={"background": False}, recall={"record_access": False})


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    """The URL of a schema in which nothing was counted yet."""
    with new_schema(postgres_server) as url:
        yield url


class Tables:
    """The partitioned tables behind *url*."""

    def __init__(self, url: str) -> None:
        self.server, _, self.schema = url.partition("&schema=")

    def analysed(self) -> dict[str, int]:
        """How often each was analysed, which has statistics since."""
        found = execute(
            self.server,
            f"""SELECT relname, analyze_count FROM pg_stat_user_tables t
            WHERE schemaname = '{self.schema}' AND relname IN {PARTED} AND analyze_count > 0
            AND EXISTS (SELECT FROM pg_stats s WHERE s.schemaname = t.schemaname
                        AND s.tablename = t.relname AND s.inherited AND s.attname = 'repo')""",
        )
        return {str(name): int(str(count)) for name, count in found}

    def add(self, rows: int, repo: int = 1) -> None:
        """Insert texts; the server has counted them when the connection is closed."""
        execute(
            self.server,
            f"""INSERT INTO {self.schema}.texts (no, repo, words, length, at)
            SELECT n + coalesce((SELECT max(no) FROM {self.schema}.texts), 0), {repo},
                   ARRAY['kettle'], 1, 0 FROM generate_series(1, {rows}) n""",
        )

    def analyse(self, role: str = "") -> bool:
        """As a service does, on a connection of its own."""
        with psycopg.connect(self.server, autocommit=True) as connection:
            if role:
                connection.execute(f"SET ROLE {role}")
            return planner.analyse(connection, self.schema)


@pytest.fixture
async def tables(url: str) -> Tables:
    """Those of a new store."""
    async with service(url):
        return Tables(url)


def service(url: str) -> Mnemo:
    return Mnemo(url, embedder=HashingEmbedder(), config=CONFIG)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each look of a service has found, at intervals of a hundredth of a second."""
    found: list[bool] = []

    def analyse(*args: Any) -> bool:
        found.append(planner.analyse(*args))
        return found[-1]

    monkeypatch.setattr(engine, "analyse", analyse)
    for name in ("_LOOK_S", "_MOST_LOOK_S", "_AFTER_ERROR_S"):
        monkeypatch.setattr(engine, name, 0.01)
    return found


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Plans of the statements that rank texts, from now on."""
    found: list[Any] = []

    def run(tx: PostgresTx, statement: str, values: Any = (), plain=PostgresTx.run) -> Any:
        if "c.aged" in statement:
            cursor = psycopg.RawCursor(tx._connection)
            cursor.execute(f"EXPLAIN (FORMAT JSON) {spelled(statement)[0]}", values)
            ((plan,),) = cursor.fetchall()
            found.append(plan[0]["Plan"])
        return plain(tx, statement, values)

    monkeypatch.setattr(PostgresTx, "run", run)
    return found


def nodes(plan: Any) -> Iterator[Any]:
    """Those of *plan* that it is sure to run: what is looked up for a snapshot is left out."""
    yield plan
    for part in plan.get("Plans", ()):
        if part["Parent Relationship"] != "SubPlan":
            yield from nodes(part)


async def test_a_new_store_has_statistics_soon_after_many_messages(url, looks, plans):
    """
    Then a search looks up the message of a step by its key, not in all of its thread, and in one
    partition. Looks at a store at rest analyse nothing.
    """
    async with service(url) as memory:
        repo = await memory.open_repo("r")
        said = [f"the kettle {n} is in kitchen {n % 97}" for n in range(2_000)]
        for at in range(0, len(said), 500):
            messages = [Message("user", text) for text in said[at : at + 500]]
            await repo.conversation(f"t{at}").append(messages)
    begun = len(looks)
    async with service(url) as memory:
        await until(lambda: Tables(url).analysed().keys() == {"messages", "texts"})
        # If the first service has looked at half of them, this one finds twice as many.
        await until(lambda: len(looks) > begun + 1 and not any(looks[-2:]))
        analysed, seen = Tables(url).analysed(), len(looks)
        await until(lambda: len(looks) > seen + 6)
        assert Tables(url).analysed() == analysed
        assert not any(looks[seen:])
        assert await (await memory.open_repo("r")).search("kitchen 7")
    used = [node for node in nodes(plans[-1]) if "Relation Name" in node]
    (of_step,) = [node for node in used if node["Alias"] == "o"]
    assert "(id = p.message)" in of_step["Index Cond"]
    names = {node["Relation Name"] for node in used}
    for table in PARTED:
        assert sum(name.startswith(f"{table}_") for name in names) <= 1, names


def test_tables_are_analysed_at_1000_rows_and_at_each_doubling(tables):
    """Not before, and once each."""
    for rows, is_due in ((999, False), (1, True), (999, False), (1, True), (1_000, False)):
        tables.add(rows)
        assert [tables.analyse(), tables.analyse()] == [is_due, False]
    assert tables.analysed() == {"texts": 2}


def test_tables_are_analysed_each_day_if_a_tenth_has_changed(tables, monkeypatch):
    """The day is over at once here; a table at rest is left alone."""
    tables.add(2_000)
    assert tables.analyse()
    monkeypatch.setattr(planner, "_DUE", planner._DUE.replace("'1 day'", "'0 s'"))
    assert not tables.analyse()
    tables.add(150)
    assert not tables.analyse()
    tables.add(100, repo=2)
    assert [tables.analyse(), tables.analyse()] == [True, False]


async def test_several_services_analyse_a_table_once(tables):
    """They look at the same time."""
    tables.add(5_000)
    found: list[bool] = []

    async def look() -> None:
        found.append(await anyio.to_thread.run_sync(tables.analyse))

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(look)
    assert found.count(True) == 1
    assert tables.analysed() == {"texts": 1}


async def test_a_table_that_others_hold_is_analysed_at_a_later_look(tables, url, looks, caplog):
    """The service logs it and goes on."""
    tables.add(1_000)
    lock = f"LOCK TABLE {tables.schema}.texts_3 IN SHARE UPDATE EXCLUSIVE MODE"
    with caplog.at_level(logging.INFO, "mnemo"):
        async with service(url):
            with psycopg.connect(tables.server) as connection:
                connection.execute(lock)
                await until(lambda: "analysed at the next look" in caplog.text)
                assert tables.analysed() == {}
            await until(lambda: tables.analysed() == {"texts": 1})


def test_who_does_not_own_the_tables_leaves_them(tables, request):
    """The server would refuse it, with a warning each time."""
    tables.add(1_000)
    role = f"role_{tables.schema}"
    execute(tables.server, f"CREATE ROLE {role}")
    request.addfinalizer(partial(execute, tables.server, f"DROP ROLE {role}"))
    assert not tables.analyse(role)
    assert tables.analyse()

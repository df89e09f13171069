"""What the calls on one repository touch: its own rows, found by its number or by their own."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from damaged_stores import erasures, fill, more_reads, more_writes, reads, service, writes
from engines import bare_transaction
from helpers import lines_of
from postgres_server import ON_POSTGRES, execute
from world import NOON, opened

from mnemo.errors import UsageError
from mnemo.index.erased import _HAVE_STEPS
from mnemo.store.postgres import dialect as postgres
from mnemo.store.postgres.connection import PostgresTx
from mnemo.store.sqlite import dialect as sqlite
from mnemo.store.sqlite.connection import SqliteTx
from mnemo.testing import HashingEmbedder, ManualClock

OWNED = {
    "repo": "the repository",
    **dict.fromkeys(("no", "ordinal", "rowid", "seq"), "a row by its number"),
    **dict.fromkeys(("session", "episode", "thread", "note", "item"), "what belongs to a row"),
    **dict.fromkeys(("source", "target", "node"), "what hangs on a node"),
}
"""Columns that an index may be searched by for one value: each has rows of one repository."""
KEYS = {
    **dict.fromkeys((("repos", "id"), ("names", "id")), "the one row of a repository"),
    ("meta", "name"): "one row of the store's own",
    ("owners", "token"): "one row of a service that is open",
    ("erased", "digest"): "one digest, salted with the repository's id",
    ("sessions", "owner"): "what a service has left, when it opens and closes",
    ("jobs", "state"): "what runs or is due: looked at once for all repositories of a service",
}
"""Likewise, of tables that stand aside."""
SMALL = {
    "owners": "a row for each service that is open",
    "caches": "a row for each folder of a machine",
    "meta": "a few rows of the store's own",
    "sqlite_sequence": "a row for each table",
    "erased": "only whether there is a row",
}
"""Tables that may be read from end to end."""
WHOLE = {
    "SELECT r.no, n.id FROM": "a page of repositories: behind an id, in order, up to a limit",
    "SELECT r.id FROM segments s $join repos r": "a scrub reads an index of those alone",
    "SELECT DISTINCT digest FROM segments": "an erasure reads an index of large ones alone",
    "SELECT coalesce(max(ordinal), 0) FROM steps": "SQLite seeks the last row",
    "SELECT coalesce(max(no), 0) FROM": "SQLite seeks the last row",
}
"""What statements begin with that may read more, and why."""
FEW = {
    "jobs": "a row for each session and thread that has something to do",
    "moving": "what a change of the embedding space has not taken over yet",
    "notes": "a row for each topic",
    "note_vectors": "a row for each topic",
    "note_words": "a row for each topic",
}
"""Tables in which all rows of a repository may be read to find some."""
ALL_OF_ONE = {
    "SELECT 'session', count(*) FROM": "an archive counts its rows",
    "SELECT t.no, m.seq, m.id, t.id FROM threads": "an id is looked for in each thread",
    "SELECT 'threads', repo, '', count(*)": "a list of repositories counts what each has",
    "SELECT n.repo, m.created_at FROM": "and since when, by its first and last of each kind",
}
"""What else may do so, likewise."""
FULL_TEXT = {
    "text_words": "on SQLite each token begins with the number of its repository",
    "texts": "on PostgreSQL the words of all texts are in one index",
}
"""Names of tables of the full text, which is matched in ways of its own."""

Values = Sequence[Any] | Mapping[str, Any]
Walks = dict[str, list[str]]
"""Statement → what it reads of others."""
_PLANNED = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")
_NAMED = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+([\w.]+)(?:\s+(?:AS\s+)?([a-z]\w*))?", re.A)
_STEP = re.compile(
    r"(?P<how>SCAN|SEARCH) (?P<name>\S+)"
    r"(?: VIRTUAL TABLE INDEX \d+:(?P<virtual>\S*))?"
    r"(?: USING (?P<automatic>AUTOMATIC )?.*?\((?P<column>\w+)=(?P<rest>[^)]*))?"
)


def is_owned(table: str, column: str) -> bool:
    return column in OWNED or (table, column) in KEYS


def is_full_text(table: str) -> bool:
    return any(re.match(name, table) for name in FULL_TEXT)


# ── SQLite ───────────────────────────────────────────────────────────────────────────


def walked_in_file(tx: SqliteTx, statement: str, values: Values) -> list[str]:
    """The steps of SQLite's plan that read rows of others."""
    connection, text = tx._connection, sqlite.spelled(statement)
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    names: dict[str, set[str]] = defaultdict(set)
    for table, alias in _NAMED.findall(text):
        names[table.rpartition(".")[2]].add(table)
        names[alias].add(table)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", values)
    return [
        detail
        for *_, detail in plan
        if (step := _STEP.match(detail))
        for table in names[step["name"]] & known
        if not _is_own(step, table) or _reads_all_of_one(step, table, connection, statement)
    ]


def _is_own(step: re.Match[str], table: str) -> bool:
    if is_full_text(table) or step["virtual"] == "=":
        return True
    if step["how"] == "SCAN":
        return table in SMALL
    return not step["automatic"] and step["column"] is not None and is_owned(table, step["column"])


_INDEXED = """
SELECT DISTINCT i.name FROM pragma_index_list(?) l JOIN pragma_index_info(l.name) i
WHERE i.name <> 'repo'
"""


_OPTIONAL = re.compile(r"\(CAST\(\? AS TEXT\) IS NULL OR [\w.]+ = \?\)")


def _reads_all_of_one(
    step: re.Match[str], table: str, connection: sqlite3.Connection, statement: str
) -> bool:
    """Whether it reads all that a repository has in *table*, though *statement* names a few."""
    if step["column"] != "repo" or step["rest"] != "?" or table in {*SMALL, *FEW}:
        return False
    if statement.strip().startswith(tuple(ALL_OF_ONE)):
        return False
    if " IN $" in statement:
        return True
    named = _OPTIONAL.sub("", statement)
    alias = rf"\b{step['name']}\." if f" {step['name']}." in named else r"(?<![\w.])"
    indexed = "|".join(name for (name,) in connection.execute(_INDEXED, (table,)))
    return bool(indexed) and bool(re.search(rf"{alias}(?:{indexed}) = ", named))


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────

_INDEXES = """
SELECT c.relname, t.relname, a.attname FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE t.relnamespace = current_schema()::regnamespace
"""


# A table of a few pages is read whole; each is planned for as if there were 100,000 times as many
# repositories.
_ENLARGED = """
ANALYZE;
UPDATE pg_statistic s SET stakind1 = 0, stakind2 = 0, stakind3 = 0, stakind4 = 0, stakind5 = 0,
       stadistinct = CASE WHEN stadistinct > 0 THEN -stadistinct / reltuples ELSE stadistinct END
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.oid = s.starelid AND a.attnum = s.staattnum AND c.reltuples > 0
AND c.relnamespace = '{schema}'::regnamespace AND a.attname IN ({owned});
UPDATE pg_class SET reltuples = 100000 * reltuples
WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'i') AND reltuples > 0;
"""


def walked_on_server(tx: PostgresTx, statement: str, values: Values) -> list[str]:
    """The nodes of PostgreSQL's plan that read rows of others."""
    text, names = postgres.spelled(statement)
    given = [values[name] for name in names] if isinstance(values, Mapping) else values
    cursor = psycopg.RawCursor(tx._connection)
    indexes = {name: row for name, *row in cursor.execute(_INDEXES)}
    cursor.execute(f"EXPLAIN (FORMAT JSON, VERBOSE) {text}", given)
    ((plan,),) = cursor.fetchall()
    return [*_walks(plan[0]["Plan"], indexes)]


def _walks(node: dict[str, Any], indexes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    kind, table = node["Node Type"], node.get("Relation Name")
    if node.get("Schema", "").startswith("pg_"):
        return
    if kind == "Seq Scan" and table not in SMALL:
        yield f"{kind} {table}"
    if index := node.get("Index Name"):
        table, column = indexes[index]
        condition = node.get("Index Cond", "")
        found = is_owned(table, column) and re.search(rf"\b{column} = ", condition)
        if not found and table not in SMALL and not is_full_text(table):
            yield f"{kind} {index}: {condition}"
    for part in node.get("Plans", ()):
        yield from _walks(part, indexes)


# ── Calls ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def guarded_rows() -> None:
    """Nothing: it looks for the owners of rows."""


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    """What statements read of others, from now on; each is planned as it is run first."""
    found: Walks = {}
    planned = set[str]()

    def plan(tx: Any, statement: str, values: Values, walked: Callable[..., list[str]]) -> None:
        if statement in planned or not _PLANNED.match(statement):
            return
        planned.add(statement)
        steps = walked(tx, statement, values)
        if steps and not statement.strip().startswith(tuple(WHOLE)):
            found[statement] = steps

    for engine, walked in ((SqliteTx, walked_in_file), (PostgresTx, walked_on_server)):

        def run(
            tx: Any, statement: str, values: Values = (), walked=walked, plain=engine.run
        ) -> Any:
            plan(tx, statement, values, walked)
            return plain(tx, statement, values)

        def run_many(
            tx: Any, statement: str, rows: Any, walked=walked, plain=engine.run_many
        ) -> int:
            given = list(rows)
            if given:
                plan(tx, statement, given[0], walked)
            return plain(tx, statement, given)

        monkeypatch.setattr(engine, "run", run)
        monkeypatch.setattr(engine, "run_many", run_many)
    return found


@pytest.fixture(params=["file", ON_POSTGRES])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A store with repository ``r``, which has a row in every table, and copies of it."""
    of_server = request.param == "postgres"
    place = request.getfixturevalue("postgres_url") if of_server else tmp_path / "mnemo.db"
    async with opened(place, ManualClock(NOON)) as kit:
        await fill(kit)
        await kit.store.release(kit.owner)
    async with service(place) as memory:
        repo = await memory.open_repo("r")
        await repo.remember(["I sail to the pier.", "Ana has a boat."], wait=True)
        lines = await lines_of(memory)
        for number in range(8 if of_server else 2):
            await memory.import_repo(f"r{number}", lines)
    if of_server:
        server, _, schema = place.partition("&schema=")
        execute(server, _ENLARGED.format(schema=schema, owned=", ".join(map(repr, OWNED))))
        # A table without a row stays small, whatever the statistics say.
        place += "&options=-c%20jit%3Doff%20-c%20enable_seqscan%3Doff"
    return place


async def test_calls_on_a_repository_touch_its_own_rows_alone(place, walks):
    """From opening the store to closing it: reading, writing, erasing, archives."""
    async with service(place) as memory:
        lines = await lines_of(memory)
        await memory.import_repo("another", lines)
        repo = await memory.open_repo("r")
        calls = (*reads(repo), *more_reads(repo), *writes(repo), *more_writes(repo))
        for _, call in (*calls, *reads(repo), *erasures(repo)):
            with suppress(UsageError):
                await call()
        await memory.close_repo("r")
        await memory.reembed("r", embedder=HashingEmbedder(8))
        await memory.delete_repo("r")
    assert walks == {}


async def test_a_page_of_repositories_reads_their_rows_alone(place, walks):
    """What is counted and dated is looked up by the numbers of the page, whatever is beside it."""
    async with service(place) as memory:
        assert [one.id for one in await memory.repos(limit=1, after="r")] == ["r0"]
        assert len(await memory.repos(limit=3, ids=["r1", "r"], prefixes=["r"])) == 3
        threads = await (await memory.open_repo("r")).threads(limit=1)
    assert len(threads) == 1
    assert walks == {}


OLD = {
    "by the order of all steps": """
SELECT t.node_id FROM steps t WHERE t.ordinal > 7 AND +t.repo = 1 ORDER BY t.ordinal LIMIT 5""",
    "jobs by what they are of": """
DELETE FROM jobs WHERE kind = 'session' AND EXISTS
(SELECT 1 FROM sessions s WHERE s.repo = jobs.repo AND s.id = jobs.subject AND s.no IN (1, 2))""",
    "from end to end": "SELECT no FROM nodes WHERE id || '' = 'n'",
    "the last one of all": "SELECT max(at) FROM nodes",
    "by an index made for it": """
SELECT m.id FROM messages m JOIN sessions s ON s.id = m.name WHERE m.no = 1""",
}


@pytest.mark.parametrize("name", OLD)
def test_a_statement_that_walks_the_rows_of_others_is_named(name):
    """Whatever way it takes: along numbers, from end to end, or by an index made for it."""
    with bare_transaction(None) as tx:
        assert walked_in_file(tx, OLD[name], ())
        own = OLD["by the order of all steps"].replace("+", "")
        assert walked_in_file(tx, own, ()) == []


FOR_A_FEW = """
SELECT f.id FROM nodes f {0} edges e ON e.repo = f.repo AND e.target = f.no
WHERE f.repo = 1 AND f.id IN $texts"""


@pytest.mark.parametrize(
    ("statement", "values", "is_named"),
    [
        (_HAVE_STEPS, [1, "[]", 0], False),
        (FOR_A_FEW.format("JOIN"), ["[]"], True),
        (FOR_A_FEW.format("$join"), ["[]"], False),
        ("SELECT id FROM nodes WHERE repo = 1", [], False),
        ("SELECT node_id FROM steps WHERE repo = 1 AND episode = 2 ORDER BY ordinal", [], True),
    ],
)
def test_a_statement_that_walks_a_repository_for_a_few_rows_is_named(statement, values, is_named):
    """All that is there is read by its repository alone only where all of it is asked for."""
    with bare_transaction(None) as tx:
        assert bool(walked_in_file(tx, statement, values)) is is_named


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OLD.keys() - {"jobs by what they are of"}))
def test_a_statement_that_walks_the_rows_of_others_is_named_on_postgres(postgres_url, name):
    """Likewise, of the server's plans; but for the jobs, which it looks up by the sessions."""
    with bare_transaction(postgres_url) as tx:
        assert walked_on_server(tx, OLD[name], ())

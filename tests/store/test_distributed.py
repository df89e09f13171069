"""Whether the PostgreSQL engine could run on shards: each statement parsed as PostgreSQL does."""

import ast
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from damaged_stores import erasures, fill, more_reads, more_writes, reads, service, writes
from distribution import Checker, PgQueryError, parsed
from helpers import lines_of
from world import NOON, opened

import mnemo
from mnemo import Mnemo
from mnemo.erasure import repositories
from mnemo.errors import UsageError
from mnemo.index import erased
from mnemo.jobs import job_rows
from mnemo.store import archive_rows, rows
from mnemo.store.postgres import schema
from mnemo.store.postgres.connection import PostgresTx
from mnemo.store.postgres.dialect import spelled
from mnemo.store.postgres.writer import Writer
from mnemo.testing import HashingEmbedder, ManualClock

REFERENCE = {
    "names": "the number of each repository by its id: written when one is made or deleted",
    "meta": "a few rows of the store's own",
    "owners": "a row for each service that is open",
    "erased": "salted digests, which outlive their repository: written by erasures alone",
    "locks": "what writers lock, by the hash of repository and kind",
    "caches": "a row for each machine's folder",
    "commits": "a row for each writer, in which it looks up whether it has committed",
}
"""Tables that are not distributed, and why: every machine has them, or one for all."""
NUMBERS = {
    "names.no": "numbers repositories, in the table that every machine has",
    **dict.fromkeys(
        ("sessions.no", "episodes.no", "nodes.no", "threads.no", "compactions.no"),
        "tells rows apart; none is followed by it, and a gap or another machine's range does not "
        "matter",
    ),
    **dict.fromkeys(("snapshots.no", "notes.no", "items.no"), "likewise"),
    **dict.fromkeys(
        (
            *("note_marks.seq", "note_journal.seq", "note_usage.seq", "recalls.no"),
            *("staged.rowid", "changesets.rowid"),
        ),
        "orders the rows of one repository, whose writers take turns, and is not followed: rows "
        "that went through different machines may be out of order",
    ),
}
"""Columns that a sequence numbers, and why that may be."""
OF_ALL = {
    job_rows._OWING: "the poller's look over the jobs of all repositories",
    job_rows._SOON: "likewise",
    job_rows._BACKLOG: "the levels of a service are of all repositories",
    job_rows._RELEASE: "a service that opens or closes gives up the sessions that it owned",
    repositories._PAGE: "lists the repositories",
    repositories._NAMED: "likewise",
    repositories._COUNTS: "likewise",
    repositories._TIMES: "likewise",
    erased._OWED: "what a scrub of the whole store looks for",
    rows._DIGESTS: "what a folder with copies of segments may keep, of all repositories",
}
"""Statements that read or write all shards, and why; those of a check of the store aside."""
STAGED = "staging."
"""Tables of one connection, which an import reads."""


def colocated(distributed: dict[str, str]) -> Checker:
    """For what looks at all shards: it joins rows of one repository alone."""
    return Checker(distributed, colocated=True)


# ── The schema ───────────────────────────────────────────────────────────────────────


@dataclass
class Declared:
    """What the statements of the schema declare."""

    columns: dict[str, dict[str, bool]] = field(default_factory=dict)
    """Table → column → whether it may not be NULL."""
    keys: list[tuple[str, list[str]]] = field(default_factory=list)
    """Table and columns of primary keys and unique constraints and indexes."""
    counted: set[str] = field(default_factory=set)
    parted: dict[str, list[str]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    """Foreign keys, triggers, and sequences that are made by themselves."""

    def read(self, kind: str, tree: Any) -> None:
        """Note what one statement declares."""
        if kind == "create_stmt" and "partbound" not in tree:
            self._read_table(tree)
        elif kind == "index_stmt" and tree.get("unique"):
            elements = [each["index_elem"]["name"] for each in tree["index_params"]]
            self.keys.append((tree["relation"]["relname"], elements))
        elif kind == "alter_table_stmt":
            for command in tree["cmds"]:
                if "column_def" in (given := command["alter_table_cmd"].get("def", {})):
                    self._read_column(tree["relation"]["relname"], given["column_def"])
        elif kind in ("create_seq_stmt", "create_trig_stmt"):
            self.others.append(kind)

    def _read_table(self, tree: Any) -> None:
        table = tree["relation"]["relname"]
        self.columns[table] = {}
        for element in tree.get("table_elts", ()):
            if "column_def" in element:
                self._read_column(table, element["column_def"])
            else:
                self._read_constraint(table, element["constraint"], [])
        if "partspec" in tree:
            params = tree["partspec"]["part_params"]
            self.parted[table] = [each["partition_elem"]["name"] for each in params]

    def _read_column(self, table: str, column: Any) -> None:
        name, constraints = column["colname"], column.get("constraints", ())
        kinds = [each["constraint"]["contype"] for each in constraints]
        required = {"CONSTR_NOTNULL", "CONSTR_PRIMARY"} & {*kinds}
        self.columns[table][name] = bool(required)
        for each in constraints:
            self._read_constraint(table, each["constraint"], [name])
        type = column["type_name"]["names"][-1]["string"]["sval"]
        if "serial" in type or "CONSTR_IDENTITY" in kinds:
            self.counted.add(f"{table}.{name}")

    def _read_constraint(self, table: str, constraint: Any, columns: list[str]) -> None:
        named = [each["string"]["sval"] for each in constraint.get("keys", ())]
        if constraint["contype"] in ("CONSTR_PRIMARY", "CONSTR_UNIQUE"):
            self.keys.append((table, named or columns))
        elif constraint["contype"] == "CONSTR_FOREIGN":
            self.others.append(f"foreign key of {table}")


@pytest.fixture(scope="module")
def declared() -> Declared:
    """What the engine declares, without a server."""
    scripts: list[str] = []
    info = SimpleNamespace(server_version=180_000)
    connection = SimpleNamespace(execute=lambda script, *_: scripts.append(script), info=info)
    schema._make(connection, schema.PARTITIONS)  # type: ignore[arg-type]
    found = Declared()
    for script in scripts:
        for kind, tree in parsed(script.replace("%s", "NULL")):
            found.read(kind, tree)
    return found


@pytest.fixture(scope="module")
def distributed(declared: Declared) -> dict[str, str]:
    """The distributed tables, each with the column that holds the repository."""
    tables = declared.columns.keys() - REFERENCE.keys()
    return {table: "no" if table == "repos" else "repo" for table in tables}


def test_each_row_names_its_repository(declared, distributed):
    """But for tables that every machine has, which are named with the reason."""
    assert declared.columns.keys() >= REFERENCE.keys()
    assert len(distributed) > 30
    assert [t for t, column in distributed.items() if not declared.columns[t].get(column)] == []


def test_each_key_holds_the_repository(declared, distributed):
    """A unique index over all machines is none; a foreign key would need it as well."""
    assert len(declared.keys) > 40
    lacking = [key for key in declared.keys if distributed.get(key[0], key[1][0]) not in key[1]]
    assert lacking == []
    assert declared.others == []


def test_numbers_are_counted_by_their_repository(declared):
    """In its row; what a sequence numbers is named with the reason."""
    assert declared.counted == NUMBERS.keys()


def test_large_tables_are_parted_by_repository(declared):
    """By its hash, as shards are."""
    assert declared.parted == {table: ["repo"] for table in schema.PARTED}


@pytest.mark.parametrize(
    ("script", "faults"),
    [
        ("CREATE TABLE t (no BIGSERIAL PRIMARY KEY, repo BIGINT)", ["key", "number", "null"]),
        ("CREATE TABLE t (repo BIGINT NOT NULL, a BIGINT UNIQUE)", ["key"]),
        ("CREATE TABLE t (repo BIGINT NOT NULL, a BIGINT REFERENCES u (a))", ["other"]),
        ("CREATE TABLE t (repo BIGINT NOT NULL); CREATE UNIQUE INDEX i ON t (a)", ["key"]),
        ("CREATE TABLE t (repo BIGINT NOT NULL, a BIGINT, PRIMARY KEY (repo, a))", []),
    ],
)
def test_a_schema_that_could_not_be_distributed_is_told(script, faults):
    """Each of its faults."""
    found = Declared()
    for kind, tree in parsed(script):
        found.read(kind, tree)
    told = ["key"] * any("repo" not in columns for _, columns in found.keys)
    told += ["number"] * bool(found.counted) + ["other"] * bool(found.others)
    told += ["null"] * (not found.columns["t"]["repo"])
    assert told == faults


# ── Statements as they stand in the code ─────────────────────────────────────────────

_STATEMENT = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\s")
_OTHER_ENGINE = ("mnemo.store.sqlite", "mnemo.store.postgres.scrub", "mnemo.store.postgres.schema")
_OF_CHECKS = ("mnemo.graph.graph_checks", "mnemo.log.log_checks", "mnemo.log.text_check")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, archive_rows.Kind):
        yield value.query


def statements() -> Iterator[tuple[str, str]]:
    """Module and text of every statement that a module of the library holds."""
    root = Path(mnemo.__file__).parent
    for file in sorted(root.rglob("*.py")):
        if not re.search(r"\b(SELECT|INSERT|UPDATE|DELETE)\b", file.read_text()):
            continue
        name = ".".join(("mnemo", *file.relative_to(root).with_suffix("").parts))
        if name.startswith(_OTHER_ENGINE) or "adapters" in name or "cli" in name:
            continue
        module = import_module(name)
        texts = [text for value in vars(module).values() for text in _texts(value)]
        texts += [
            node.value
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        found = [text for text in dict.fromkeys(texts) if _STATEMENT.match(text)]
        for text in found:
            # What others begin with is no statement by itself.
            if not any(one != text and one.startswith(text.strip()) for one in found):
                yield name, text


def test_statements_in_the_code_name_their_repository(distributed):
    """All that are whole; what is put together from parts is met when it runs, below."""
    one, all = Checker(distributed), colocated(distributed)
    faults, looked_at = {}, 0
    for module, text in statements():
        if STAGED in text or "pg_" in text:
            continue
        try:
            found = (all if text in OF_ALL or module in _OF_CHECKS else one).look(spelled(text)[0])
        except (PgQueryError, KeyError, IndexError):
            continue
        looked_at += 1
        if found.faults:
            faults[module, text] = found.faults
    assert not faults, faults
    assert looked_at > 300


FAULTY = {
    "by a number alone": "SELECT id FROM nodes WHERE no = ?",
    "a join by numbers": "SELECT e.id FROM sessions s JOIN episodes e ON e.no = s.episode "
    "WHERE s.repo = ?",
    "a query within": "SELECT id FROM nodes n WHERE n.repo = ? AND EXISTS "
    "(SELECT 1 FROM edges e WHERE e.source = n.no)",
    "a change": "UPDATE nodes SET body = ? WHERE no = ?",
    "a move": "UPDATE nodes SET repo = ? WHERE repo = ?",
    "a deletion": "DELETE FROM edges WHERE source IN $numbers",
    "an insertion": "INSERT INTO edges (source, target, kind) VALUES (?, ?, ?)",
    "a conflict": "INSERT INTO moving (repo, key) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
    "what is put in": "INSERT INTO vectors (repo, key) SELECT ?, key FROM moving",
    "either": "SELECT id FROM nodes WHERE repo = ? OR no = ?",
    "unequal": "SELECT id FROM nodes WHERE repo > ?",
    "a union": "SELECT id FROM nodes WHERE repo = ? UNION SELECT id FROM episodes",
    "an outer join": "SELECT n.id FROM nodes n LEFT JOIN vectors v ON v.key = n.id "
    "WHERE n.repo = ?",
    "by its name": "SELECT no FROM sessions WHERE repo = (SELECT no FROM names WHERE id = ?)",
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_statement_that_does_not_name_its_repository_is_told(distributed, name):
    """Whatever kind it is of."""
    assert Checker(distributed).look(spelled(FAULTY[name])[0]).faults


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT e.id FROM sessions s JOIN episodes e ON e.repo = s.repo WHERE s.repo = ?",
        "SELECT id FROM nodes WHERE repo IN $numbers AND no = ?",
        "WITH x AS (SELECT no FROM nodes WHERE repo = ?) SELECT no FROM x",
        "SELECT (SELECT count(*) FROM edges e WHERE e.repo = n.repo) FROM nodes n WHERE n.repo = ?",
        "INSERT INTO edges (repo, source) VALUES (?, ?) ON CONFLICT DO NOTHING",
    ],
)
def test_a_statement_of_one_repository_is_let_through(distributed, statement):
    """Of one or of several that it names."""
    assert Checker(distributed).look(spelled(statement)[0]).faults == []


# ── Statements as they run ───────────────────────────────────────────────────────────


@dataclass
class Recorded:
    """Statements in their order, and which of them a check of the whole store has run."""

    statements: dict[str, None] = field(default_factory=dict)
    of_checks: set[str] = field(default_factory=set)
    is_checking: bool = False
    transactions: list[set[int]] = field(default_factory=list)
    """The repositories that each transaction of a writer named."""
    of_thread: threading.local = field(default_factory=threading.local)

    def note(self, checker: Checker, statement: str, given: Iterable[Any]) -> None:
        """Note one, run for each of *given*."""
        self.statements[statement] = None
        if self.is_checking:
            self.of_checks.add(statement)
            return
        text, names = spelled(statement)
        if STAGED in statement or not _STATEMENT.match(statement):
            return
        places = checker.look(text).places
        named_here: set[int] = getattr(self.of_thread, "named", set())
        for row in given:
            values = [row[name] for name in names] if isinstance(row, dict) else row
            named = [values[place - 1] for place in places]
            named_here.update(each for each in named if isinstance(each, int))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, distributed: dict[str, str]) -> Recorded:
    """What runs on PostgreSQL from now on."""
    found, checker = Recorded(), Checker(distributed)

    def run(tx: PostgresTx, statement: str, values: Any = (), plain=PostgresTx.run) -> Any:
        found.note(checker, statement, [values])
        return plain(tx, statement, values)

    def run_many(tx: PostgresTx, statement: str, rows: Any, plain=PostgresTx.run_many) -> int:
        found.note(checker, statement, given := list(rows))
        return plain(tx, statement, given)

    def insert(
        tx: PostgresTx, table: str, columns: Sequence[str], rows: Any, plain=PostgresTx.insert
    ) -> None:
        values = ", ".join("?" * len(columns))
        named = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"
        found.note(checker, named, given := list(rows))
        plain(tx, table, columns, given)

    def transact(writer: Writer, batch: Any, plain=Writer._transact) -> None:
        found.of_thread.named = set()
        found.transactions.append(found.of_thread.named)
        plain(writer, batch)

    for name, method in (("run", run), ("run_many", run_many), ("insert", insert)):
        monkeypatch.setattr(PostgresTx, name, method)
    monkeypatch.setattr(Writer, "_transact", transact)
    return found


@pytest.fixture(autouse=True)
def guarded_rows() -> None:
    """Nothing: to look for the owners of rows takes statements, too."""


@pytest.mark.postgres
@pytest.mark.slow
async def test_statements_that_run_name_their_repository(postgres_url, recorded, distributed):
    """From opening to closing, with a row in every table: reading, writing, erasing, archives."""
    async with opened(postgres_url, ManualClock(NOON)) as kit:
        await fill(kit)
        await kit.store.release(kit.owner)
    async with service(postgres_url) as memory:
        repo = await memory.open_repo("r")
        await repo.remember(["I sail to the pier.", "Ana has a boat."], wait=True)
        await memory.import_repo("another", await lines_of(memory))
        calls = (*reads(repo), *more_reads(repo), *writes(repo), *more_writes(repo))
        for _, call in (*calls, *reads(repo), *erasures(repo)):
            with suppress(UsageError):
                await call()
        await memory.repos()
        await memory.repos(ids=["r"], prefixes=["a"])
        await memory.scrub()
        recorded.is_checking = True
        await memory.check(repair=True)
        recorded.is_checking = False
        await memory.close_repo("r")
        await memory.reembed("r", embedder=HashingEmbedder(8))
        await memory.delete_repo("r")
    one, all, faults = Checker(distributed), colocated(distributed), {}
    for statement in recorded.statements:
        if STAGED in statement and not statement.lstrip().startswith("INSERT"):
            continue
        of_all = statement in OF_ALL or statement in recorded.of_checks
        if found := (all if of_all else one).look(spelled(statement)[0]).faults:
            faults[statement] = found
    assert faults == {}
    assert len(recorded.statements) > 400
    # Of what is cut off, and what is run with an end.
    unused = {job_rows._RELEASE, rows._DIGESTS, job_rows._BACKLOG}
    assert recorded.statements.keys() >= OF_ALL.keys() - unused


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("split", ["", "&split=repository"])
async def test_a_transaction_writes_one_repository_where_the_url_says_so(
    postgres_url, recorded, split
):
    """Else what several append to theirs at once is one transaction."""
    async with Mnemo(postgres_url + split, embedder=HashingEmbedder(8)) as memory:

        async def use(id: str) -> None:
            repo = await memory.open_repo(id)
            session = await repo.start_session("go on")
            for number in range(8):
                await session.append(f"the kettle {number} is in the kitchen", "looked")
                await repo.conversation("t").append({"role": "user", "content": f"and {number}"})
            await repo.forget(session_id=session.id)

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(use, f"r{number}")
    # Records of long calls, under -1, go with what they name: so says the guide's `postgres`.
    named = [len(one - {-1}) for one in recorded.transactions]
    assert sum(named) > 50
    assert (max(named) == 1) is bool(split)

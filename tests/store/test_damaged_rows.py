"""Rows that cannot be decoded: the check names them, and everything else goes on."""

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
from damaged_stores import (
    KINDS,
    ContractEmbedder,
    damage,
    erasures,
    make_store,
    reads,
    service,
    writes,
)
from world import NOON

from mnemo import Mnemo, MnemoError, Repository, StoreCorrupt
from mnemo.config import StoreConfig
from mnemo.store.check import JUDGES, check_rows
from mnemo.store.schema import COLUMNS
from mnemo.store.sqlite.connection import SqliteTx, connect_in_memory
from mnemo.store.sqlite.schema import migrate
from mnemo.values.changeset import Changeset
from mnemo.values.graph import Tag

WORKS_IN_SPITE = {
    *("append", "new session", "consolidate", "decay", "validate", "write note", "remember"),
    *("put checkpoint", "put child"),
}
"""Writes that touch no damaged row of somebody else."""


def columns() -> Iterator[tuple[str, str, str]]:
    """Table, name and declared type of every column of the schema."""
    with closing(connect_in_memory(StoreConfig())) as connection:
        migrate(connection, None)
        for table in COLUMNS:
            for name, type in connection.execute(
                "SELECT name, type FROM pragma_table_info(?) ORDER BY cid", (table,)
            ):
                yield table, name, type


def is_encoded(table: str, name: str) -> bool:
    """Whether not every text can stand there."""
    try:
        JUDGES.get((table, name), str)("seven")
    except Exception:
        return True
    return (table, name) in (("nodes", "body"), ("messages", "extra"))


def thinned(params: list[Any], *, by: int) -> Iterator[Any]:
    """*params*, of which the quick loop takes the first for each of the first *by* values."""
    seen = set()
    for param in params:
        marks = [pytest.mark.long] if param.values[:by] in seen else []
        seen.add(param.values[:by])
        yield pytest.param(*param.values, id=param.id, marks=marks)


PLAIN = ("blob", "no UTF-8", "text")
"""Kinds of damage that show in texts and bytes that nothing is encoded in."""
DAMAGES = [
    pytest.param(table, name, value, id=f"{table}.{name}: {kind}")
    for table, name, type in columns()
    for kind, value in KINDS[type].items()
    # Any text is as good as any other where nothing is encoded in it.
    if is_encoded(table, name) or type in ("INTEGER", "REAL", "FLOAT") or kind in PLAIN
    if kind != "cut"
]
ENCODED_COLUMNS = [
    pytest.param(table, name, list(KINDS[type].values())[-2], id=f"{table}.{name}")
    for table, name, type in columns()
    if is_encoded(table, name)
]


PLAIN_COLUMNS = [
    pytest.param(table, name, next(iter(KINDS[type].values())), id=f"{table}.{name}: plain")
    for table, name, type in columns()
    # All that a repository does reads its row.
    if not is_encoded(table, name) and table != "repos"
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with a row in every table."""
    path = tmp_path_factory.mktemp("filled") / "mnemo.db"
    anyio.run(make_store, path)
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    """A copy of its own, to be damaged."""
    return Path(shutil.copy(filled, tmp_path / "mnemo.db"))


@pytest_asyncio.fixture
async def memory(path: Path) -> AsyncIterator[Mnemo]:
    """A service on the file, opened by ``opened``."""
    memory = service(path)
    yield memory
    await memory.aclose()


async def opened(memory: Mnemo) -> Repository:
    await memory.open()
    return await memory.open_repo("r")


def execute(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement, values).rowcount > 0
        connection.commit()


# ── The check ────────────────────────────────────────────────────────────────────────


def test_an_intact_store_has_no_damaged_row(path: Path) -> None:
    """The check of rows is silent on a store with a row in every table."""
    assert found_in(path) == []


@pytest.mark.parametrize(("table", "column", "value"), [*thinned(DAMAGES, by=2)])
def test_the_check_names_every_damaged_column(
    path: Path, table: str, column: str, value: str
) -> None:
    """A damaged value of any column is found, and its table is named; others are not."""
    if not damage(path, table, column, value):
        pytest.skip("SQLite refuses this value here, or the column is empty")
    problems = found_in(path)
    assert [problem.split()[2] for problem in problems] == [table]


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, column in JUDGES if column == "vector"],
)
async def test_the_check_finds_vectors_of_a_wrong_length(
    path: Path, memory: Mnemo, table: str, column: str
) -> None:
    """Half a vector is whole numbers still, but not of the embedding space."""
    assert damage(path, table, column, KINDS["BLOB"]["cut"])
    await opened(memory)
    problems = (await memory.check()).problems
    assert [problem for problem in problems if "wrong length" in problem]


def found_in(path: Path) -> list[str]:
    with closing(connect_in_memory(StoreConfig())) as connection:
        with closing(sqlite3.connect(path)) as file:
            file.backup(connection)
        return list(check_rows(SqliteTx(connection)))


# ── Everything else ──────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "column", "value"), [*thinned(ENCODED_COLUMNS + PLAIN_COLUMNS, by=1)]
)
async def test_no_public_call_meets_a_raw_error(
    path: Path, memory: Mnemo, table: str, column: str, value: str
) -> None:
    """
    With one damaged value every call gives a result or ``StoreCorrupt``.

    Export, erasure, maintenance and other sessions go on; another repository is as ever.
    """
    if not damage(path, table, column, value):
        pytest.skip("SQLite refuses this value here, or the column is empty")
    repo = await opened(memory)
    other = await memory.open_repo("q")
    for _, work in reads(repo):
        await tolerant(work)
    for name, work in writes(repo):
        await (work() if name in WORKS_IN_SPITE else tolerant(work))
    for name in ("r", "q"):
        assert await exported(memory, name)
    for _, work in erasures(repo):
        await work()
    assert [node.id for node in await other.get_nodes(["semantic"])] == ["f-q"]
    assert (await other.forget(session_id="other-q")).unreadable == ()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *thinned(
            [
                pytest.param(name, value, id=f"{name}: {kind}")
                for table, name, type in columns()
                if table == "jobs" and name != "repo"
                for kind, value in KINDS[type].items()
            ],
            by=1,
        )
    ],
)
async def test_damaged_jobs_stop_their_own_threads_alone(
    path: Path, memory: Mnemo, column: str, value: str
) -> None:
    """Jobs in every state are damaged: others are worked off, and all are counted or passed by."""
    if not damage(path, "jobs", column, value, every=column not in ("kind", "subject")):
        pytest.skip("SQLite refuses this value here")
    repo = await opened(memory)
    await (await memory.open_repo("q")).remember("I sail.", wait=True)
    assert (await repo.remember("I sail.", thread_id="fresh", wait=True)).node_ids
    for thread in ("t", "T", "far", "past"):
        await tolerant(lambda thread=thread: repo.remember("I swim.", thread_id=thread))
    await repo.statistics()
    for thread in ("t", "T", "far", "past"):
        await repo.forget(thread_id=thread)
    assert await exported(memory, "r")


@pytest.mark.parametrize("value", ["'seven'", "x'00'"])
async def test_damaged_counts_of_texts_stop_searches_of_that_repository_alone(
    path: Path, memory: Mnemo, value: str
) -> None:
    """Until something is said there, the search names the row; others find what they have."""
    repo = await opened(memory)
    execute(path, f"UPDATE repos SET text_count = {value} WHERE id = 'r'")
    with pytest.raises(StoreCorrupt, match="the row 'r' of repos"):
        await repo.search("ferry")
    assert await exported(memory, "r")
    third = await memory.open_repo("third")
    session = await third.start_session("plan the journey")
    await session.append("The ferry leaves at noon.", "")
    assert len(await third.search("ferry")) == 1
    assert any("not counted right, e.g. r" in found for found in (await memory.check()).problems)


@pytest.mark.parametrize("value", ["'seven'", "x'00'"])
async def test_a_damaged_row_of_a_repository_stops_that_one_alone(
    path: Path, memory: Mnemo, value: str
) -> None:
    """Its calls give a result or ``StoreCorrupt`` naming the row; others read and write on."""
    execute(path, f"UPDATE repos SET revision = {value} WHERE id = 'r'")
    await memory.open()
    with pytest.raises(StoreCorrupt, match="the row 'r' of repos"):
        await used(memory)
    with pytest.raises(StoreCorrupt, match="the row 'r' of repos"):
        await exported(memory, "r")
    other = await memory.open_repo("q")
    assert (await other.forget(session_id="other-q")).steps == 1
    third = await memory.open_repo("third")
    session = await third.start_session("plan the journey")
    await session.append("The ferry leaves at noon.", "")
    assert len(await third.search("ferry")) == 1
    assert await third.search("harbour") == []


async def used(memory: Mnemo) -> None:
    """Open repository ``r``, call all that it has, and forget a session in it."""
    repo = await memory.open_repo("r")
    for _, work in (*reads(repo), *writes(repo)):
        await tolerant(work)
    await repo.forget(session_id="other-r")


async def tolerant(work: Any) -> None:
    """Do *work*; its refusal must be one of ours."""
    with suppress(MnemoError):
        await work()


async def exported(memory: Mnemo, repo_id: str) -> list[dict[str, Any]]:
    async with memory.export_repo(repo_id) as lines:
        return [json.loads(line) async for line in lines]


# ── Reading ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("table", "key", "statement"),
    [
        ("nodes", "f1", "UPDATE nodes SET body = '{' WHERE id = 'f1'"),
        ("nodes", "f1", "UPDATE nodes SET body = '[]' WHERE id = 'f1'"),
        ("nodes", "f1", "UPDATE nodes SET body = '{\"proposition\": 5}' WHERE id = 'f1'"),
        ("nodes", "f1", "UPDATE nodes SET body = CAST(x'ff' AS TEXT) WHERE id = 'f1'"),
    ],
)
async def test_a_damaged_node_is_named(
    path: Path, memory: Mnemo, table: str, key: str, statement: str
) -> None:
    """``get_node`` and ``get_nodes`` say which row of which table it is."""
    execute(path, statement)
    repo = await opened(memory)
    for work in (repo.get_node("f1"), repo.get_nodes(["semantic"])):
        with pytest.raises(StoreCorrupt, match="nodes") as caught:
            await work
        assert (caught.value.table, caught.value.key) == (table, key)
    assert await repo.get_node("f2")


async def test_a_damaged_staged_changeset_fails_its_own_session(path: Path, memory: Mnemo) -> None:
    """``resume_session`` names it; the other unfinished sessions are resumed."""
    execute(path, "UPDATE episodes SET changeset = x'0102' WHERE id = 'u-1'")
    repo = await opened(memory)
    with pytest.raises(StoreCorrupt) as caught:
        await repo.resume_session("u")
    assert (caught.value.table, caught.value.key) == ("episodes", "u-1")
    session = await repo.resume_session("t")
    await session.aclose()


async def test_recall_goes_on_around_a_damaged_node(
    path: Path, memory: Mnemo, caplog: pytest.LogCaptureFixture
) -> None:
    """The index leaves it out and logs its table and key."""
    execute(path, "UPDATE nodes SET body = 'x' WHERE id = 'f1'")
    repo = await opened(memory)
    result = await repo.recall("Who loves tea?")
    assert "f2" in [candidate.node.id for candidate in result.candidates]
    assert "the row 'f1' of nodes" in caplog.text


async def test_maintenance_passes_by_a_damaged_node(path: Path, memory: Mnemo) -> None:
    """Consolidation, decay and validation do the rest, and name it in their reports."""
    execute(path, "UPDATE nodes SET body = 'x' WHERE id = 'f1'")
    repo = await opened(memory)
    validated, consolidated = await repo.validate(), await repo.consolidate()
    assert (validated.checked, consolidated.checked) == (3, 2)
    for report in (validated, consolidated, await repo.decay()):
        assert report.damaged == ("nodes f1",)


async def test_maintenance_of_an_intact_store_names_no_row(memory: Mnemo) -> None:
    """Nothing is damaged, nothing is named."""
    repo = await opened(memory)
    for report in (await repo.validate(), await repo.consolidate(), await repo.decay()):
        assert report.damaged == ()


async def test_maintenance_names_rows_that_only_it_reads(path: Path, memory: Mnemo) -> None:
    """Counts and times of a node are not read by the index: decay and validation meet them."""
    execute(path, "UPDATE nodes SET created_at = 'x' WHERE id = 'f1'")
    repo = await opened(memory)
    for report in (await repo.validate(), await repo.decay()):
        assert report.damaged == ("nodes f1",)


async def test_a_damaged_row_that_was_deleted_is_named_no_more(path: Path, memory: Mnemo) -> None:
    """The index forgets it with the deletion."""
    execute(path, "UPDATE nodes SET body = 'x' WHERE id = 'f1'")
    repo = await opened(memory)
    await repo.validate()
    assert await repo.delete_nodes(["f1"]) == 1
    assert (await repo.validate()).damaged == ()


async def test_a_failed_read_does_not_hold_an_older_revision(path: Path, memory: Mnemo) -> None:
    """Reads after one that met a damaged row see what was written since, the error still alive."""
    execute(path, "UPDATE nodes SET body = 'x' WHERE id = 'f1'")
    repo = await opened(memory)
    errors = []
    for n in range(3):
        with pytest.raises(StoreCorrupt) as caught:
            await repo.get_nodes(["semantic"])
        errors.append(caught.value)
        before = (await repo.statistics()).revision
        await repo.apply(Changeset(nodes=(Tag(f"tag {n}", id=f"tag-{n}"),)))
        assert (await repo.statistics()).revision == before + 1
        assert await repo.get_node(f"tag-{n}")


# ── Erasing ──────────────────────────────────────────────────────────────────────────


async def test_forgetting_another_session_is_not_stopped(path: Path, memory: Mnemo) -> None:
    """A damaged node that shares nothing with the erased is of no concern."""
    execute(path, "UPDATE nodes SET body = 'x' WHERE id = 'f1'")
    repo = await opened(memory)
    report = await repo.forget(session_id="other-r")
    assert (report.steps, report.nodes, report.unreadable) == (1, 2, ())
    assert report.scrubbed


async def test_a_damaged_fact_of_the_erased_alone_goes(path: Path, memory: Mnemo) -> None:
    """Its provenance is in columns, so nothing of it has to be read."""
    execute(path, "UPDATE nodes SET body = 'hidden word' WHERE id IN ('f-r', 'e-r')")
    repo = await opened(memory)
    report = await repo.forget(session_id="other-r")
    assert (report.nodes, report.unreadable, report.scrubbed) == (2, (), True)
    assert await repo.get_node("f-r") is None
    await memory.aclose()
    assert b"hidden word" not in path.read_bytes()


@pytest.mark.parametrize("damaged", ["f-r", "n1"])
async def test_what_cannot_be_judged_is_named(path: Path, memory: Mnemo, damaged: str) -> None:
    """A fact that others support too, damaged itself or in its evidence, stays and is told."""
    link = "SELECT a.repo, a.no, b.no, 'provenance' FROM nodes a, nodes b WHERE a.id = 'f-r'"
    execute(path, f"INSERT INTO edges {link} AND b.id = 'n1'")
    execute(path, "UPDATE nodes SET body = 'x' WHERE id = ?", damaged)
    repo = await opened(memory)
    report = await repo.forget(session_id="other-r")
    assert (report.steps, report.unreadable) == (1, (f"nodes {damaged}",))
    assert not report.scrubbed
    assert "f-r" in await repo.get_metadata(["f-r"])


async def test_a_step_without_a_readable_time_is_named(path: Path, memory: Mnemo) -> None:
    """``before`` cannot judge it; naming its session can."""
    execute(path, "UPDATE steps SET at = 'noon' WHERE observation = 'the harbour light'")
    repo = await opened(memory)
    report = await repo.forget(before=NOON)
    assert [name.split()[0] for name in report.unreadable] == ["steps"]
    assert (await repo.forget(session_id="other-r")).steps == 1


@pytest.mark.parametrize("end", ["start", "end"])
async def test_a_summary_of_an_unknown_range_goes(path: Path, memory: Mnemo, end: str) -> None:
    """Nobody can tell whether it holds what is erased, or read it."""
    side = {"start": "from", "end": "to"}[end]
    execute(path, f"UPDATE compactions SET {end}_seq = 'seven' WHERE id = 'c2'")
    execute(path, f"UPDATE snapshots SET {side}_seq = 'seven' WHERE id = 's2'")
    repo = await opened(memory)
    report = await repo.forget(message_ids=["m5"], thread_id="t")
    assert (report.messages, report.compactions, report.snapshots) == (1, 1, 1)
    assert report.scrubbed


@pytest.mark.parametrize("table", ["compactions", "snapshots", "pins", "messages"])
async def test_what_tells_of_a_message_goes_whatever_its_epoch(
    path: Path, memory: Mnemo, table: str
) -> None:
    """A seq is given once in all epochs, so what tells of it is found without one."""
    execute(path, "UPDATE snapshots SET to_seq = 5 WHERE id = 's2'")
    execute(path, f"UPDATE {table} SET epoch = 'seven' WHERE thread = (SELECT thread FROM pins)")
    repo = await opened(memory)
    report = await repo.forget(message_ids=["m5"], thread_id="t")
    assert (report.messages, report.compactions, report.snapshots, report.pins) == (1, 1, 1, 1)


async def test_a_pin_goes_with_its_message_wherever_it_says_that_is(
    path: Path, memory: Mnemo
) -> None:
    """By either of its two names: its excerpt is what was said."""
    execute(path, "UPDATE pins SET seq = 'seven'")
    repo = await opened(memory)
    assert (await repo.forget(message_ids=["m5"], thread_id="t")).pins == 1


async def test_a_summary_goes_with_a_message_of_an_unknown_epoch(path: Path, memory: Mnemo) -> None:
    """It is looked for in all epochs then."""
    of_thread = "thread = (SELECT no FROM threads WHERE id = 'T')"
    execute(path, f"UPDATE messages SET epoch = 'seven' WHERE seq = 2 AND {of_thread}")
    repo = await opened(memory)
    report = await repo.forget(message_ids=["m2"], thread_id="T")
    assert (report.messages, report.compactions) == (1, 1)


async def test_a_replaced_fact_holds_again_beyond_a_damaged_one(path: Path, memory: Mnemo) -> None:
    """What replaced what stands in a column: a chain is followed through a damaged fact."""
    execute(path, "UPDATE nodes SET superseded_by = 'f2', body = 'x' WHERE id = 'f-r'")
    body = '{"proposition":"old","confidence":0.8,"superseded_by":"f-r"}'
    execute(path, "UPDATE nodes SET superseded_by = 'f-r', body = ? WHERE id = 'f1'", body)
    repo = await opened(memory)
    await repo.forget(session_id="other-r")
    fact = await repo.get_node("f1")
    assert getattr(fact, "superseded_by", None) == "f2"


# ── Archives ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("node", "UPDATE nodes SET body = 'x' WHERE id = 'n1'"),
        ("step", "UPDATE steps SET at = 'x' WHERE node_id = 'n1'"),
        ("step", "UPDATE steps SET metadata = '[' WHERE episode IN (SELECT no FROM episodes "
         "WHERE id = 's-2')"),
        ("episode", "UPDATE episodes SET changeset = x'00' WHERE id = 'u-1'"),
        ("session", "UPDATE sessions SET updated_at = 'x' WHERE id = 's'"),
        ("message", "UPDATE messages SET recorded_at = 'x' WHERE seq = 1"),
        ("thread", "UPDATE threads SET next_seq = 'x' WHERE id = 't'"),
        ("note", "UPDATE notes SET updated_at = 'x' WHERE topic = 'trips'"),
        ("note_version", "UPDATE note_versions SET message_ids = '{}' WHERE version = 2"),
        ("vector", "UPDATE vectors SET vector = x'00' WHERE key = 'f1'"),
    ],
)  # fmt: skip
async def test_an_export_marks_what_it_left_out(
    path: Path, memory: Mnemo, kind: str, statement: str
) -> None:
    """The line says so, and the archive can be imported without what hangs on it."""
    execute(path, statement)
    await opened(memory)
    lines = await exported(memory, "r")
    marked = [line for line in lines if "damaged" in line]
    assert {line["kind"] for line in marked} == {kind}
    async with Mnemo("memory:", embedder=ContractEmbedder()) as elsewhere:
        await elsewhere.import_repo("copy", (json.dumps(line) for line in lines))
        assert (await elsewhere.check()).problems == ()
        copied = await exported(elsewhere, "copy")
        assert not [line for line in copied if "damaged" in line]
        # What was said stays where its node is left out.
        assert kind != "node" or "n1" in {line.get("node_id") for line in copied}

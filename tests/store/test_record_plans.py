"""How records are read: in the order of the full text, and no more of them than are taken."""

import sqlite3
from pathlib import Path

import pytest
from contracts.talk import said
from world import opened

from mnemo.graph.apply import _NUMBERS
from mnemo.log.record_rows import _AFTER, _BEFORE, _STEPS_BESIDE, _STREAMS, Scope
from mnemo.log.text_search import _RANKED
from mnemo.store.sqlite import dialect
from mnemo.store.sqlite.dialect import spelled
from mnemo.values.records import Hidden


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A store's file, with a text in it."""
    async with opened(tmp_path / "m.db") as kit:
        await kit.store.transcript("r").writing(lambda tx: tx.add([said(0, "tea 東京都")]))
    return tmp_path / "m.db"


def _plan(file: Path, statement: str, *, nested: bool = True) -> list[str]:
    """How SQLite would run it, whatever the values; with what it asks per row, or without."""
    statement = spelled(statement)
    values = ["tea"] * statement.count("?")
    connection = sqlite3.connect(file)
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    finally:
        connection.close()
    return [detail for _, parent, _, detail in rows if nested or not parent]


@pytest.mark.parametrize("index", ["words", "triples"])
def test_records_are_looked_up_for_the_best_alone(file, index):
    """What matches is ranked by the full text itself; the rest is looked up by number."""
    hidden = Hidden(stream="t", message_seq=1, last_steps=5, ids=frozenset(["x"]))
    scope = Scope.of(1, stream="t", hidden=hidden)
    found, _ = dialect.found(index, 1, [["tea"]], bare=False)
    statement = _RANKED.format(
        shown="TRUE",
        read=scope.condition,
        score="n0",
        length="f.length",
        counts="1 AS n0",
        found=found,
        match="n0 > 0",
    )
    plan = _plan(file, statement)
    assert any("SCAN text_words VIRTUAL TABLE" in step for step in plan)
    scans = [step for step in plan if step.startswith("SCAN") and "VIRTUAL" not in step]
    assert set(scans) <= {"SCAN i", "SCAN f", "SCAN c", "SCAN l"}  # which are queries
    assert "SEARCH f USING INTEGER PRIMARY KEY (rowid=?)" in plan
    assert "SEARCH text_tail USING PRIMARY KEY (repo=?)" in plan


@pytest.mark.parametrize(
    "statement",
    [_BEFORE, _AFTER, _STEPS_BESIDE.format("<", "DESC", "DESC"), _STREAMS],
)
def test_looking_around_goes_by_indexes(file, statement):
    """Neighbours come in the order of an index, however long the stream is."""
    plan = _plan(file, statement)
    assert plan
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN") for step in plan)


def test_nodes_are_found_by_their_ids(file):
    """However many others the repository has: a commit holds the writer meanwhile."""
    assert any("idx_nodes_repo_id (repo=? AND id=?)" in step for step in _plan(file, _NUMBERS))

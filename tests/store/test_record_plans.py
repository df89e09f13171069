"""How records are read: in the order of the full text, and no more of them than are taken."""

import sqlite3
from pathlib import Path

import pytest
from contracts.talk import said
from world import opened

from mnemo.graph.apply import _NUMBERS
from mnemo.log.record_rows import _AFTER, _BEFORE, _STEPS_BESIDE, _STREAMS, Scope
from mnemo.store.sqlite.dialect import _BY_RELEVANCE, spelled
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


@pytest.mark.parametrize("table", ["words_1", "grams_1"])
def test_what_matches_is_not_sorted_again(file, table):
    """Rows come by relevance from the full text itself; the rest is looked up by number."""
    hidden = Hidden(stream="t", message_seq=1, last_steps=5, ids=frozenset(["x"]))
    scope = Scope.of(1, stream="t", hidden=hidden)
    statement = _BY_RELEVANCE.format(table=table, condition=scope.condition)
    first, *rest = _plan(file, statement, nested=False)
    assert first.startswith("SCAN f VIRTUAL TABLE")
    assert len(rest) >= 5
    assert not any("ORDER BY" in step or step.startswith("SCAN") for step in rest)


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

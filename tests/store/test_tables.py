"""Table descriptors: columns, statements and judges of a dataclass that names its fields once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Literal

import pytest

from mnemo.errors import StoreCorrupt
from mnemo.store.sqlite.connection import SqliteTx
from mnemo.store.table import Table
from mnemo.store.tables import CHANGESETS
from mnemo.store.tx import Tx
from mnemo.values.archive import ChangesetRow
from mnemo.values.fields import Entity

NOON = datetime(2024, 3, 1, 12, tzinfo=timezone(timedelta(hours=9)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What is kept here."""

    garden_id: str
    id: str
    at: datetime
    weather: Literal["sun", "rain"]
    beds: tuple[int, ...]
    quiet: bool
    hours: float | None = None
    report: str = ""


VISIT = Entity(Visit, owners=("garden_id",), key=("id",), order=("at", "id"))
VISITS = Table("visits", VISIT, owners=("garden",), columns={"report": "text"}, last=("report",))
ONE = Visit(garden_id="g", id="a", at=NOON, weather="sun", beds=(1, 2), quiet=True, hours=0.5)
TWO = replace(ONE, id="b", at=NOON + timedelta(hours=1), hours=None, report="wet")


@pytest.fixture
def db() -> Iterator[Tx]:
    """A database with the table."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(VISITS.ddl)
        yield SqliteTx(connection)


def visits(db: Tx) -> list[Visit]:
    """The visits to the first garden, in their order."""
    rows = db.run(f"{VISITS.select} ORDER BY {', '.join(VISITS.order)}", (1, 1))
    return VISITS.rows.all(("g", *row) for row in rows)


def test_values_come_back_in_their_order(db: Tx) -> None:
    """Times with their zones, tuples, flags and what is not there; of one owner alone."""
    for garden, visit in ((1, TWO), (1, ONE), (2, ONE)):
        VISITS.put(db, 1, visit, garden)
    found = visits(db)
    assert found == [ONE, TWO]
    assert found[0].at.utcoffset() == timedelta(hours=9)


def test_a_value_with_the_same_key_is_replaced(db: Tx) -> None:
    """The key is told apart within an owner."""
    VISITS.put(db, 1, ONE, 1)
    VISITS.put(db, 1, replace(ONE, weather="rain", hours=None), 1)
    assert visits(db) == [replace(ONE, weather="rain", hours=None)]
    VISITS.drop(db, 1, ONE, 2)
    assert len(visits(db)) == 1
    VISITS.drop(db, 1, ONE, 1)
    assert visits(db) == []


def test_a_value_is_got_by_its_key(db: Tx) -> None:
    """Of its own parent alone; a damaged row is named."""
    db.run(CHANGESETS.ddl)
    applied = ChangesetRow(id="c", revision=3, node_ids=("n",), edge_count=1)
    CHANGESETS.add(db, 1, applied)
    assert CHANGESETS.get(db, 1, "c") == applied
    assert CHANGESETS.get(db, 2, "c") is None
    assert CHANGESETS.get(db, 1, "d") is None
    db.run("UPDATE changesets SET node_ids = '{}'")
    with pytest.raises(StoreCorrupt, match="changesets"):
        CHANGESETS.get(db, 1, "c")


def test_a_damaged_row_is_named_by_owner_and_key(db: Tx) -> None:
    """Its column holds what was never stored there."""
    VISITS.put(db, 1, ONE, 1)
    db.run("UPDATE visits SET beds = '{}'")
    with pytest.raises(StoreCorrupt) as caught:
        visits(db)
    assert (caught.value.table, caught.value.key) == ("visits", "g/a")


def test_long_fields_stand_behind_the_others() -> None:
    """What is filtered by is read without them."""
    assert VISITS.columns == ("id", "at", "weather", "beds", "quiet", "hours", "text")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", ""),
        ("id", "x" * 513),
        ("id", "a\0"),
        ("at", "2024-03-01T12:00:00"),
        ("at", "yesterday"),
        ("weather", "snow"),
        ("beds", "[1,true"),
        ("beds", "[-1]"),
        ("quiet", 2),
        ("hours", -0.5),
        ("hours", float("inf")),
        ("text", "half \ud800"),
    ],
)
def test_a_value_that_no_column_holds_is_refused(column: str, value: object) -> None:
    """Each is judged by the annotation of its field; what was stored is not refused."""
    named = dict(zip(VISITS.columns, VISITS.values(ONE), strict=True))
    judge = VISITS.judges[column]
    judge(named[column])
    with pytest.raises(ValueError, match=r"."):
        judge(value)

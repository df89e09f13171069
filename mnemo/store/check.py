"""Check a store: its file, its rows, and how they agree by the rules of the rooms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from mnemo.errors import StoreCorrupt
from mnemo.runtime.progress import reached
from mnemo.store import tables
from mnemo.store.rows import Rows
from mnemo.store.schema import COLUMNS, Column
from mnemo.store.tx import Tx
from mnemo.values.codec import checked_node, decode_time, decode_vector

_COUNTED = (
    *("repos", "sessions", "episodes", "steps", "nodes", "edges", "vectors", "threads"),
    *("messages", "compactions", "snapshots", "goals", "pins", "texts"),
    *("notes", "note_versions", "checkpoints", "items", "item_vectors"),
)
_SHOWN_PER_TABLE = 20

Rule: TypeAlias = tuple[str, str, str]
"""What must not be there, the column of an example, and the rows where it is."""


OF_REPO = "v JOIN repos r ON r.no = v.repo"
"""Behind a table with vectors *v*: their repository *r*."""


def absent(table: str, condition: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {table} WHERE {condition})"


def misshapen(what: str, example: str, rows: str, dimensions: str) -> Rule:
    """That the vectors *v* of *rows* have so many dimensions."""
    of_other_length = f"{rows} WHERE length(v.vector) <> 4 * {dimensions}"
    return f"{what} of a wrong length", example, of_other_length


def check_store(
    tx: Tx, rules: Iterable[Rule], more: Iterable[Callable[[Tx], Iterator[str]]]
) -> tuple[list[str], dict[str, int]]:
    """
    The problems found (none is healthy), and how many rows there are of each kind.

    *rules* and *more* are what the rooms say of how their rows agree.
    """
    problems = [f"damaged file: {damage}" for damage in tx.dialect.damage(tx)]
    rules = [*rules]
    steps = len(COLUMNS) + len(rules)
    problems += check_rows(tx, steps)
    for done, (what, example, rows) in enumerate(rules, len(COLUMNS)):
        reached(done, steps)
        count, found = tx.run(f"SELECT count(*), min({example}) FROM {rows}").fetchone()
        if count:
            problems.append(f"{count} {what}, e.g. {found}")
    for check in more:
        problems += check(tx)
    counts = {
        table: int(tx.run(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in _COUNTED
    }
    return problems, counts


# ── Rows ─────────────────────────────────────────────────────────────────────────────

_NAMED_BY = {
    **dict.fromkeys(("nodes", "sessions", "episodes", "repos", "threads"), ("id",)),
    **dict.fromkeys(("compactions", "snapshots"), ("id",)),
    "steps": ("node_id",),
    "vectors": ("key",),
    "messages": ("thread", "id"),
    "notes": ("topic",),
    "items": ("namespace", "key"),
}
"""The columns that a row is named by, where that is not its primary key."""


JUDGES: Mapping[tuple[str, str], Callable[[Any], object]] = {
    **{
        (table.name, column): judge
        for table in (*tables.TABLES.values(), tables.ANNOTATIONS)
        for column, judge in table.judges.items()
    },
    # What is not a field of an entity.
    ("steps", "recorded_at"): decode_time,
    **{(table, "vector"): decode_vector for table in ("moving", "note_vectors", "item_vectors")},
}
"""What raises for a value that its column cannot hold, beside the bodies of nodes."""


def check_rows(tx: Tx, steps: int = len(COLUMNS)) -> Iterator[str]:
    """The damaged rows, by table and key, as the first of so many *steps*."""
    for done, (table, columns) in enumerate(COLUMNS.items()):
        reached(done, steps)
        yield from _check_table(tx, table, columns)


def _check_table(tx: Tx, table: str, columns: Sequence[Column]) -> Iterator[str]:
    names = [column.name for column in columns]
    keys = _NAMED_BY.get(table) or [column.name for column in columns if column.is_key]
    types = [c.letter + ("" if c.is_required else "?") for c in columns]
    decode = partial(_decode, table, names)
    read = Rows(table, " ".join(types), decode, key=[names.index(key) for key in keys])
    passed: list[StoreCorrupt] = []
    read.all(tx.run(f"SELECT {', '.join(names)} FROM {table}"), passed)
    for damage in passed[:_SHOWN_PER_TABLE]:
        yield f"damaged row: {table} {damage.key!r}"
    if len(passed) > _SHOWN_PER_TABLE:
        yield f"damaged rows: {len(passed) - _SHOWN_PER_TABLE} more of {table}"


def _decode(table: str, names: Sequence[str], row: Sequence[Any]) -> None:
    values = dict(zip(names, row, strict=True))
    for name, value in values.items():
        judge = JUDGES.get((table, name))
        if judge is not None and value is not None:
            judge(value)
    if table == "nodes":
        columns = tables.NODES.columns
        checked_node(tables.NODES.read([values[column] for column in columns]))

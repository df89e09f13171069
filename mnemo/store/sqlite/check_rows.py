"""Whether every row of every table can be decoded, column by column."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from mnemo.episode.archive import EpisodeStatus
from mnemo.episode.journal import SessionState
from mnemo.errors import StoreCorrupt
from mnemo.graph.edges import EdgeKind
from mnemo.graph.nodes import NODE_TYPES
from mnemo.runtime.clock import Breather
from mnemo.store.sqlite.codec import (
    decode_changeset,
    decode_list,
    decode_object,
    decode_vector,
    stored_time,
)
from mnemo.store.sqlite.damage import Rows
from mnemo.store.sqlite.rows import NODES
from mnemo.store.tables import decode_shown
from mnemo.transcript.message import Kind, Role

__all__ = ["ENCODED", "TIMES", "check_rows", "tables_of"]

# The full text has its own check, and its shadow tables are not ours to read.
_TABLES = """
SELECT t.name FROM pragma_table_list t
WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name
"""
_COLUMNS = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid'
_LETTERS = {"INTEGER": "i", "REAL": "f", "FLOAT": "f", "TEXT": "s", "BLOB": "b"}
_SHOWN_PER_TABLE = 20

_NAMED_BY = {
    "nodes": ("id",),
    "steps": ("node_id",),
    "sessions": ("id",),
    "episodes": ("id",),
    "repos": ("id",),
    "vectors": ("key",),
    "threads": ("id",),
    "messages": ("thread", "id"),
    "compactions": ("id",),
    "snapshots": ("id",),
    "notes": ("topic",),
}
"""The columns that a row is named by, where that is not its primary key."""

TIMES = frozenset(
    {
        *("at", "goal_at", "updated_at", "recorded_at", "created_at", "last_accessed_at"),
        *("said_from", "said_to", "completed_at", "ended_at", "last_read_at"),
    }
)
"""The columns, of whatever table, that hold a time."""


def _one_of(allowed: Sequence[str], value: str) -> None:
    if value not in allowed:
        raise ValueError(f"not one of {len(allowed)} words")


ENCODED: Mapping[tuple[str, str], Callable[[Any], object]] = {
    ("sessions", "state"): SessionState,
    ("episodes", "status"): partial(_one_of, get_args(EpisodeStatus)),
    ("episodes", "changeset"): decode_changeset,
    ("episodes", "changeset_steps"): partial(decode_list, kind=int),
    ("episodes", "receipt_nodes"): partial(decode_list, kind=str),
    ("staged", "changeset"): decode_changeset,
    ("staged", "steps"): partial(decode_list, kind=int),
    ("steps", "metadata"): decode_object,
    ("steps", "subgoal_vector"): decode_vector,
    ("nodes", "type"): partial(_one_of, tuple(NODE_TYPES)),
    ("edges", "kind"): EdgeKind,
    ("vectors", "vector"): decode_vector,
    ("moving", "vector"): decode_vector,
    ("changesets", "node_ids"): partial(decode_list, kind=str),
    ("messages", "role"): partial(_one_of, get_args(Role)),
    ("messages", "kind"): partial(_one_of, get_args(Kind)),
    ("messages", "blocks"): partial(decode_list, kind=dict),
    ("messages", "tool_calls"): partial(decode_list, kind=list),
    ("messages", "metadata"): decode_object,
    ("message_vectors", "vector"): decode_vector,
    ("pins", "goal_ids"): partial(decode_list, kind=int),
    ("surfaced", "shown"): decode_shown,
    ("surfaced", "hits"): partial(decode_list, kind=dict),
    ("note_versions", "message_ids"): partial(decode_list, kind=str),
    ("note_vectors", "vector"): decode_vector,
}
"""What is encoded in a column beside times and the bodies of nodes, and what decodes it."""


def check_rows(connection: sqlite3.Connection) -> Iterator[str]:
    """The damaged rows, by table and key."""
    for table in tables_of(connection):
        yield from _check(connection, table)


def tables_of(connection: sqlite3.Connection) -> list[str]:
    """The tables that the schema makes, full text aside."""
    return [name for (name,) in connection.execute(_TABLES)]


def _check(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    columns = connection.execute(_COLUMNS, (table,)).fetchall()
    names = [name for name, *_ in columns]
    keys = _NAMED_BY.get(table) or [name for name, _, _, pk in columns if pk]
    types = " ".join(_word(*column) for column in columns)
    read = Rows(table, types, partial(_decode, table, names), key=[names.index(k) for k in keys])
    found, breather = 0, Breather()
    for row in connection.execute(f"SELECT {', '.join(names)} FROM {table}"):
        breather.breathe()
        try:
            read.one(row)
        except StoreCorrupt as damage:
            found += 1
            if found <= _SHOWN_PER_TABLE:
                yield f"damaged row: {table} {damage.key!r}"
    if found > _SHOWN_PER_TABLE:
        yield f"damaged rows: {found - _SHOWN_PER_TABLE} more of {table}"


def _word(name: str, type: str, required: int, key: int) -> str:
    return _LETTERS[type] + ("" if required or key else "?")


def _decode(table: str, names: Sequence[str], row: Sequence[Any]) -> None:
    values = dict(zip(names, row, strict=True))
    for name, value in values.items():
        decode = stored_time if name in TIMES else ENCODED.get((table, name))
        if decode is not None and value is not None:
            decode(value)
    if table == "nodes":
        NODES.one((values["id"], values["type"], values["body"]))

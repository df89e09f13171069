"""The graph's rows: statements shared by reading and writing a repository's nodes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import TypeVar

from mnemo.graph.edges import Edge, EdgeKind
from mnemo.store.sqlite.codec import decode_node
from mnemo.store.sqlite.damage import Rows
from mnemo.store.tables import NODE_COUNTS

__all__ = [
    "EDGES",
    "METADATA",
    "METADATA_COLUMNS",
    "NODES",
    "SET_COLUMNS",
    "chunks",
    "holes",
    "repo_row",
]

T = TypeVar("T")

# Bound parameters per statement; SQLite takes 32,766, and few sizes keep statements cached.
_CHUNK = 500

_REPO = "SELECT no, revision, space_name, space_dimensions FROM repos WHERE id = ?"


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """*items* in pieces that fit one statement."""
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def holes(items: Sequence[object]) -> str:
    """``?,?,?`` for as many."""
    return ",".join("?" * len(items))


def repo_row(
    connection: sqlite3.Connection, repo_id: str
) -> tuple[int, int, str | None, int | None]:
    """
    Number, revision, and the name and dimensions of the embedding space.

    A repository that was never written has number 0, which no row refers to.
    """
    row = connection.execute(_REPO, (repo_id,)).fetchone()
    return row if row is not None else (0, 0, None, None)


METADATA_COLUMNS = f"id, {', '.join(NODE_COUNTS.columns)}"
"""What ``METADATA`` expects, of ``nodes``."""
METADATA = Rows("nodes", f"s {NODE_COUNTS.words}", lambda row: (row[0], NODE_COUNTS.read(row[1:])))
"""Id and counts of a node."""
SET_COLUMNS = "session_id = ?, episode_id = ?, superseded_by = ?, at = ?, body = ?"
"""Sets what ``node_columns`` gives."""
NODES = Rows("nodes", "s s s b?", lambda row: decode_node(*row[:4]))
"""Nodes of rows (id, type, body, vector)."""
EDGES = Rows("edges", "s s s", lambda row: Edge(row[0], row[1], EdgeKind(row[2])), key=(0, 1, 2))
"""Edges of rows (id of the source, id of the target, kind)."""

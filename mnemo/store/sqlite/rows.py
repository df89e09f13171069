"""The graph's rows: statements shared by reading and writing a repository's nodes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from mnemo._clock import Breather
from mnemo.graph.nodes import Node
from mnemo.store.sqlite.codec import decode_node

__all__ = ["chunks", "holes", "read_nodes", "repo_row"]

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


def read_nodes(rows: Iterable[tuple[str, str, str, bytes | None]]) -> list[Node]:
    """Nodes of rows (id, type, body, vector); for a worker thread."""
    breather = Breather()
    nodes = []
    for id, type, body, vector in rows:
        nodes.append(decode_node(id, type, body, vector))  # type: ignore[arg-type]
        breather.breathe()
    return nodes

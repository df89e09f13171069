"""Many rows by few statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["insert_rows"]

# Rows per statement. SQLite lets go of the interpreter lock once per statement run: in
# big bites the event loop and the writer get in each other's way 64 times less often.
_BITES = (64, 16, 4, 1)


def insert_rows(connection: sqlite3.Connection, head: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert *rows*, all of one width, by *head*, which ends with ``VALUES``."""
    for bite in _bites(rows):
        places = "(" + ",".join("?" * len(bite[0])) + ")"
        statement = head + ",".join([places] * len(bite))
        connection.execute(statement, [value for row in bite for value in row])


def _bites(rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    start = 0
    for size in _BITES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size

"""Whether the open files of a store are still those that its path names."""

from __future__ import annotations

import os
import sqlite3

from mnemo.errors import StoreError

__all__ = ["Identity"]

_NAME = "SELECT file FROM pragma_database_list WHERE name = 'main'"
# Any read opens the write-ahead log, and creates it where there is none.
_READ = "SELECT count(*) FROM sqlite_master"


class Identity:
    """
    Device and inode of a database file and of its write-ahead log, as a connection opened them.

    SQLite keeps both open: after they are unlinked or replaced, commits succeed and
    are lost. A checkpoint truncates the log and ``VACUUM`` rewrites the database in
    place, so neither changes while the connection lasts. A database in memory has no
    files, and nothing is compared.

    Args:
        connection: Already in WAL mode.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        (self._path,) = connection.execute(_NAME).fetchone()
        connection.execute(_READ).fetchone()
        self._opened = _look(self._path)

    def check(self) -> None:
        """
        Compare with what the path names now: two calls of ``os.stat``.

        Raises:
            StoreError: Another file is there, or none.
        """
        if self._path and _look(self._path) != self._opened:
            raise StoreError(
                f"the files of the store {self._path!r} were deleted or replaced while it was "
                "open, so nothing can be written: close the service and restore the files"
            )


def _look(path: str) -> tuple[tuple[int, int] | None, ...]:
    return tuple(map(_inode, (path, f"{path}-wal"))) if path else ()


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

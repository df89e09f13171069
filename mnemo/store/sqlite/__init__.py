"""The SQLite engine and its dialect."""

from mnemo.store.sqlite.engine import SqliteStore

__all__ = ["SqliteStore"]

"""The embedded store: one SQLite file, one writer thread, group commit."""

from mnemo.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

"""
The schema in a SQLite file: how it is made and migrated.

``application_id`` says that it is ours, ``user_version`` which; both change with the transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from mnemo.errors import SchemaTooNew, StoreCorrupt, StoreError
from mnemo.store import schema
from mnemo.store.sqlite.connection import SqliteTx
from mnemo.store.sqlite.dialect import TEXTS, spelled

APPLICATION_ID = 0x6D6E6D74
"""The letters "mnmt"; development versions and previews had others."""
_DEVELOPMENT_ID, _PREVIEW_IDS = 0x6D6E656D, (0x6D6E6D6F, 0x6D6E6D72)
_NAMES = "CREATE UNIQUE INDEX idx_repos_id ON repos (id)"

ON_FILE: dict[int, Callable[[Any], None]] = {}
"""Schema version → what it takes on SQLite alone, given a ``sqlite_utils.Database``."""

# One statement, so one moment: another process may be creating the tables just now.
_IDENTITY = """
SELECT (SELECT application_id FROM pragma_application_id),
       (SELECT user_version FROM pragma_user_version),
       (SELECT count(*) FROM sqlite_master)
"""


def stored_version(connection: sqlite3.Connection) -> int:
    """The schema version; 0: empty. *Raises* ``StoreCorrupt``, ``SchemaTooNew``, ``StoreError``."""
    application, version, tables = connection.execute(_IDENTITY).fetchone()
    if application == _DEVELOPMENT_ID:
        raise schema.of_development(version)
    if application in _PREVIEW_IDS:
        raise schema.of_preview()
    if application != APPLICATION_ID and (tables or version or application):
        raise StoreCorrupt("the file is a SQLite database, but no mnemo store: name another file")
    if version < 0:
        raise StoreCorrupt(f"the store's schema version is {version}: restore a backup")
    if version > schema.VERSION:
        raise SchemaTooNew(version, schema.VERSION)
    return int(version)


def migrate(connection: sqlite3.Connection, backed_up: Path | None) -> None:
    """
    Make the tables of a new database, or bring an older one to ``schema.VERSION``.

    Every step is one transaction and looks at the version inside it, so two processes may try at
    once. *backed_up* is the file, which is copied beside itself first if it is of an older version.

    *Raises* ``StoreError``: which step failed; the versions before it are in force.
    """
    found = stored_version(connection)
    if found == schema.VERSION:
        return
    if found and backed_up is not None:
        _copy(connection, backed_up, found)
    for number in range(found + 1, schema.VERSION + 1) if found else (schema.VERSION,):
        _step(connection, number)


def _copy(connection: sqlite3.Connection, path: Path, version: int) -> None:
    beside = path.with_name(f"{path.name}.v{version}.bak")
    with closing(sqlite3.connect(beside)) as copy:
        try:
            connection.backup(copy)
        except BaseException:
            beside.unlink()
            raise


def _step(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = stored_version(connection)
        if found < number:
            _make(connection, found, number)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error | AssertionError | ValueError):
            raise StoreError(f"migrating the store to schema {number} failed: {error}") from error
        raise


def _make(connection: sqlite3.Connection, found: int, number: int) -> None:
    if not found:
        for statement in (*schema.CREATE, _NAMES, *TEXTS):
            connection.execute(spelled(statement))
        return
    schema.MIGRATIONS[found - 1](SqliteTx(connection))
    if number in ON_FILE:
        from sqlite_utils import Database

        ON_FILE[number](Database(connection, execute_plugins=False))

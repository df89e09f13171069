"""
The schema in a SQLite file: how it is made and migrated, and the migrations before version 10.

``application_id`` says that a file is ours, ``user_version`` is the schema version;
both live in the file's header and change with the transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mnemo.errors import SchemaTooNew, StoreCorrupt, StoreError
from mnemo.store import schema
from mnemo.store.sqlite.connection import SqliteTx
from mnemo.store.sqlite.dialect import spelled
from mnemo.store.tx import Tx

APPLICATION_ID = 0x6D6E656D
"""The letters "mnem"."""
_FIRST_VERSION = 5

# Its words are folded and stemmed before they come here, as those of a query are.
_NOTE_WORDS = "CREATE VIRTUAL TABLE note_words USING fts5(terms, tokenize = 'unicode61')"

# One statement, so one moment: another process may be creating the tables just now.
_IDENTITY = """
SELECT (SELECT application_id FROM pragma_application_id),
       (SELECT user_version FROM pragma_user_version),
       (SELECT count(*) FROM sqlite_master)
"""


def _add_roles(db: Any) -> None:
    """Version 6: steps know the role of their message, those written before do not."""
    db["steps"].add_column("role", str)


def _add_jobs(db: Any) -> None:
    """Version 7: jobs, and how far threads are extracted by them."""
    for statement in (
        *schema.JOBS,
        "ALTER TABLE threads ADD COLUMN extracted_seq INTEGER",
        "ALTER TABLE sessions ADD COLUMN thread_id TEXT",
        schema.SESSIONS_OF_THREADS,
        "DROP INDEX steps_thread",
        schema.STEPS_OF_MESSAGES,
    ):
        db.execute(spelled(statement))


def _add_checkpoints(db: Any) -> None:
    """Version 8: checkpoints of graphs."""
    for statement in schema.CHECKPOINTS:
        db.execute(spelled(statement))


def _add_items(db: Any) -> None:
    """Version 9: keyed items."""
    for statement in schema.ITEMS:
        db.execute(spelled(statement))


def _order_nodes(db: Any) -> None:
    """Version 10: nodes of a type are read in the order in which they were made."""
    db.execute("DROP INDEX idx_nodes_repo_type")
    db.execute(schema.NODES_BY_AGE)


def _on_file(migration: Callable[[Tx], None]) -> Callable[[Any], None]:
    return lambda db: migration(SqliteTx(db.conn))


# Each makes the next version: the first one version 6. It is given a ``sqlite_utils.Database``.
_MIGRATIONS: tuple[Callable[[Any], None], ...] = (
    *(_add_roles, _add_jobs, _add_checkpoints, _add_items, _order_nodes),
    *(_on_file(migration) for migration in schema.MIGRATIONS),
)
VERSION = schema.VERSION
"""The newest schema version, which this code reads and writes."""


def stored_version(connection: sqlite3.Connection) -> int:
    """
    The file's schema version; 0 for an empty file. Writes nothing.

    Raises:
        StoreCorrupt: It is somebody else's database, or its version is damaged.
        SchemaTooNew: It was written by a newer mnemo.
        StoreError: It is of a version before the first one that is migrated.
    """
    application, version, tables = connection.execute(_IDENTITY).fetchone()
    if application != APPLICATION_ID and (tables or version or application):
        raise StoreCorrupt("the file is a SQLite database, but no mnemo store: name another file")
    if version < 0:
        raise StoreCorrupt(f"the store's schema version is {version}: restore a backup")
    if version > VERSION:
        raise SchemaTooNew(version, VERSION)
    if 0 < version < _FIRST_VERSION:
        raise schema.too_old(version, _FIRST_VERSION)
    return int(version)


def migrate(connection: sqlite3.Connection, backed_up: Path | None) -> None:
    """
    Make the tables of a new database, or bring an older one to ``VERSION``.

    Every step is one transaction and looks at the version inside it, so two
    processes may try at once.

    Args:
        backed_up: The file, which is copied beside itself first if it is of an older
            version; ``None``: no copy is made.

    Raises:
        StoreError: Which step failed; the versions before it are in force.
    """
    found = stored_version(connection)
    if found == VERSION:
        return
    if found and backed_up is not None:
        _copy(connection, backed_up, found)
    for number in range(found + 1, VERSION + 1) if found else (VERSION,):
        _step(connection, number)


def _copy(connection: sqlite3.Connection, path: Path, version: int) -> None:
    beside = path.with_name(f"{path.name}.v{version}.bak")
    copy = sqlite3.connect(beside)
    try:
        connection.backup(copy)
    except BaseException:
        beside.unlink()
        raise
    finally:
        copy.close()


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
        for statement in (*schema.CREATE, _NOTE_WORDS):
            connection.execute(spelled(statement))
        return
    from sqlite_utils import Database

    migration = _MIGRATIONS[found - _FIRST_VERSION]
    migration(Database(connection, execute_plugins=False))

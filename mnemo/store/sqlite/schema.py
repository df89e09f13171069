"""
The schema: numbered migrations, each one transaction with its version.

``application_id`` says that a file is ours, ``user_version`` is the schema version;
both live in the file's header and change with the transaction. A released migration
is never edited; a change is a new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mnemo.errors import SchemaTooNew, StoreCorrupt, StoreError
from mnemo.store.sqlite.schema_fifth import fifth
from mnemo.store.sqlite.schema_fourth import fourth
from mnemo.store.sqlite.schema_third import third

__all__ = ["APPLICATION_ID", "VERSION", "migrate", "stored_version"]

APPLICATION_ID = 0x6D6E656D
"""The letters "mnem"."""

# Words are stemmed and folded the same way in every query.
_RECORDS_FTS = """
CREATE VIRTUAL TABLE records_fts
USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')
"""

# AUTOINCREMENT: a number that a reader of the feed has seen is never given again.
_STEPS = """
CREATE TABLE steps (
    ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
    repo INTEGER NOT NULL,
    session INTEGER NOT NULL,
    episode INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    observation TEXT NOT NULL,
    action TEXT NOT NULL,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    key TEXT,
    metadata TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    committed INTEGER NOT NULL DEFAULT 0,
    gone INTEGER NOT NULL DEFAULT 0,
    state TEXT,
    subgoal TEXT,
    reward REAL,
    trajectory_id TEXT,
    boundary INTEGER,
    embedded INTEGER,
    subgoal_vector BLOB
)
"""
_STEPS_INDEXES = (
    "CREATE UNIQUE INDEX steps_place ON steps (episode, idx)",
    "CREATE UNIQUE INDEX steps_key ON steps (session, key) WHERE key IS NOT NULL",
    "CREATE UNIQUE INDEX steps_node ON steps (repo, node_id)",
)
_VECTORS = """
CREATE TABLE vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    repo INTEGER NOT NULL,
    key TEXT NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (repo, key)
)
"""
_REMOVALS = """
CREATE TABLE removals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    repo INTEGER NOT NULL,
    node_id TEXT NOT NULL
)
"""
_EDGES = """
CREATE TABLE edges (
    source INTEGER NOT NULL,
    target INTEGER NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (source, target, kind)
) WITHOUT ROWID
"""
_NODE_KEYS = """
CREATE TABLE node_keys (
    repo INTEGER NOT NULL,
    key TEXT NOT NULL,
    node INTEGER NOT NULL,
    PRIMARY KEY (repo, key, node)
) WITHOUT ROWID
"""


# One statement, so one moment: another process may be creating the tables just now.
_IDENTITY = """
SELECT (SELECT application_id FROM pragma_application_id),
       (SELECT user_version FROM pragma_user_version),
       (SELECT count(*) FROM sqlite_master)
"""


def _first(db: Any) -> None:
    _create_registers(db)
    _create_journal(db)
    _create_graph(db)


def _create_registers(db: Any) -> None:
    db["owners"].create(
        {"token": str, "host": str, "pid": int, "started": int, "lease_until": float}, pk="token"
    )
    db["repos"].create(
        {"no": int, "id": str, "revision": int, "space_name": str, "space_dimensions": int},
        pk="no",
        not_null={"id", "revision"},
        defaults={"revision": 0},
    )
    db["repos"].create_index(["id"], unique=True)


def _create_journal(db: Any) -> None:
    session = {"no": int, "id": str, "repo": int, "state": str, "episode": int}
    session |= {"owner": str, "updated_at": str, "error": str, "error_trajectory": str}
    db["sessions"].create(session, pk="no", not_null={"id", "repo", "state", "updated_at"})
    db["sessions"].create_index(["id"], unique=True)
    db["sessions"].create_index(["repo", "state"])
    db["sessions"].create_index(["owner"])
    episode = {"no": int, "id": str, "session": int, "goal": str, "goal_at": str, "status": str}
    episode |= {"changeset": bytes, "changeset_steps": str, "receipt_nodes": str}
    db["episodes"].create(episode, pk="no", not_null={"id", "session", "goal", "status"})
    db["episodes"].create_index(["id"], unique=True)
    db["episodes"].create_index(["session"])
    staged = {"episode": int, "key": str, "trajectory_id": str, "steps": str, "changeset": bytes}
    db["staged"].create(staged, pk=("episode", "key"))
    for statement in (_STEPS, *_STEPS_INDEXES, _RECORDS_FTS):
        db.execute(statement)


def _create_graph(db: Any) -> None:
    node = {"no": int, "repo": int, "id": str, "type": str, "created_at": str, "at": str}
    node |= {"body": str, "revision": int, "last_accessed_at": str, "access_count": int}
    node |= {"cumulative_reward": float, "reward_count": int, "support_count": int}
    counts = {"access_count": 0, "cumulative_reward": 0.0, "reward_count": 0, "support_count": 0}
    db["nodes"].create(
        node | {"penalty": float},
        pk="no",
        not_null={"repo", "id", "type", "created_at", "body", "revision", *counts, "penalty"},
        defaults={**counts, "penalty": 0.0},
    )
    db["nodes"].create_index(["repo", "id"], unique=True)
    db["nodes"].create_index(["repo", "type"])
    db["nodes"].create_index(["repo", "revision"])
    changeset = {"repo": int, "id": str, "revision": int, "node_ids": str, "edge_count": int}
    db["changesets"].create(changeset, pk=("repo", "id"))
    db["changesets"].create_index(["repo", "revision"])
    for statement in (_EDGES, _NODE_KEYS, _VECTORS, _REMOVALS):
        db.execute(statement)
    db["edges"].create_index(["target"])
    db["node_keys"].create_index(["node"])
    db["removals"].create_index(["repo", "seq"])
    db["vectors"].create_index(["repo", "seq"])


# What outlives an erasure: salted digests of ids, never a word of what was said.
_ERASED = "CREATE TABLE erased (digest BLOB PRIMARY KEY) WITHOUT ROWID"
# Vectors of another space, waiting for a repository's switch to it.
_MOVING = """
CREATE TABLE moving (
    repo INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (repo, key)
)
"""


def _second(db: Any) -> None:
    db["meta"].create({"name": str, "value": str}, pk="name", not_null={"value"})
    for statement in (_ERASED, _MOVING):
        db.execute(statement)
    db["episodes"].add_column("erased", int, not_null_default=0)
    db["repos"].add_column("next_space_name", str)
    db["repos"].add_column("next_space_dimensions", int)
    if not db["repos"].count:
        # Nothing was ever deleted from this file without being overwritten.
        db["meta"].insert({"name": "overwritten", "value": "always"})


_MIGRATIONS: tuple[Callable[[Any], None], ...] = (_first, _second, third, fourth, fifth)
VERSION = len(_MIGRATIONS)
"""The newest schema version, which this code reads and writes."""


def stored_version(connection: sqlite3.Connection) -> int:
    """
    The file's schema version; 0 for an empty file. Writes nothing.

    Raises:
        StoreCorrupt: It is somebody else's database, or its version is damaged.
        SchemaTooNew: It was written by a newer mnemo.
    """
    application, version, tables = connection.execute(_IDENTITY).fetchone()
    if application != APPLICATION_ID and (tables or version or application):
        raise StoreCorrupt("the file is a SQLite database, but no mnemo store: name another file")
    if version < 0:
        raise StoreCorrupt(f"the store's schema version is {version}: restore a backup")
    if version > VERSION:
        raise SchemaTooNew(version, VERSION)
    return int(version)


def migrate(connection: sqlite3.Connection, backed_up: Path | None) -> None:
    """
    Bring the database to ``VERSION``; does nothing if it is there.

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
    for number in range(found + 1, VERSION + 1):
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
    from sqlite_utils import Database

    connection.execute("BEGIN IMMEDIATE")
    try:
        if stored_version(connection) < number:
            _MIGRATIONS[number - 1](Database(connection, execute_plugins=False))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error | AssertionError | ValueError):
            raise StoreError(f"migrating the store to schema {number} failed: {error}") from error
        raise

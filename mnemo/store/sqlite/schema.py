"""
The schema: every table and index of a store, and the numbered migrations of later versions.

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
from mnemo.store import tables
from mnemo.store.sqlite.dialect import spelled

__all__ = ["APPLICATION_ID", "VERSION", "migrate", "stored_version"]

APPLICATION_ID = 0x6D6E656D
"""The letters "mnem"."""
_FIRST_VERSION = 5

_REGISTERS = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """
    CREATE TABLE owners (
        token TEXT PRIMARY KEY,
        host TEXT,
        pid INTEGER,
        started INTEGER,
        lease_until REAL
    )
    """,
    # texts: number of the repository's word table, NULL until its first text.
    # grams: whether some texts are in the table of character triples as well.
    """
    CREATE TABLE repos (
        no $number,
        id TEXT NOT NULL,
        revision INTEGER NOT NULL DEFAULT 0,
        space_name TEXT,
        space_dimensions INTEGER,
        next_space_name TEXT,
        next_space_dimensions INTEGER,
        texts INTEGER,
        grams INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE UNIQUE INDEX idx_repos_id ON repos (id)",
    # Salted digests of erased ids, kept after an erasure.
    "CREATE TABLE erased (digest BLOB PRIMARY KEY) $clustered",
)
_JOBS = (
    tables.JOBS.ddl,
    "CREATE INDEX jobs_pending ON jobs (repo, state, due_at) WHERE state <> 'done'",
)
_SESSIONS_OF_THREADS = """
CREATE INDEX sessions_thread ON sessions (repo, thread_id) WHERE thread_id IS NOT NULL
"""
_STEPS_OF_MESSAGES = """
CREATE INDEX steps_message ON steps (repo, thread, message) WHERE thread IS NOT NULL
"""
_JOURNAL = (
    tables.SESSIONS.ddl,
    "CREATE UNIQUE INDEX idx_sessions_id ON sessions (id)",
    "CREATE INDEX idx_sessions_repo_state ON sessions (repo, state)",
    "CREATE INDEX idx_sessions_owner ON sessions (owner)",
    _SESSIONS_OF_THREADS,
    tables.EPISODES.ddl,
    "CREATE UNIQUE INDEX idx_episodes_id ON episodes (id)",
    "CREATE INDEX idx_episodes_session ON episodes (session)",
    tables.STAGED.ddl,
    tables.STEPS.ddl,
    "CREATE UNIQUE INDEX steps_place ON steps (episode, idx)",
    "CREATE UNIQUE INDEX steps_key ON steps (session, key) WHERE key IS NOT NULL",
    "CREATE UNIQUE INDEX steps_node ON steps (repo, node_id)",
    _STEPS_OF_MESSAGES,
)
_NODES_BY_AGE = "CREATE INDEX nodes_by_age ON nodes (repo, type, created_at, id)"
_GRAPH = (
    tables.NODES.ddl,
    "CREATE UNIQUE INDEX idx_nodes_repo_id ON nodes (repo, id)",
    _NODES_BY_AGE,
    "CREATE INDEX idx_nodes_repo_revision ON nodes (repo, revision)",
    """CREATE INDEX nodes_superseded ON nodes (repo, superseded_by)
       WHERE superseded_by IS NOT NULL""",
    tables.EDGES.ddl,
    "CREATE INDEX idx_edges_target ON edges (target)",
    """
    CREATE TABLE node_keys (
        repo INTEGER NOT NULL,
        key TEXT NOT NULL,
        node INTEGER NOT NULL,
        PRIMARY KEY (repo, key, node)
    ) $clustered
    """,
    "CREATE INDEX idx_node_keys_node ON node_keys (node)",
    tables.VECTORS.ddl,
    "CREATE INDEX idx_vectors_repo_seq ON vectors (repo, seq)",
    # Vectors of another space, waiting for a repository's switch to it.
    """
    CREATE TABLE moving (
        repo INTEGER NOT NULL,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (repo, key)
    )
    """,
    tables.REMOVALS.ddl,
    "CREATE INDEX idx_removals_repo_seq ON removals (repo, seq)",
    tables.CHANGESETS.ddl,
    "CREATE INDEX idx_changesets_repo_revision ON changesets (repo, revision)",
)
_CONVERSATIONS = (
    tables.THREADS.ddl,
    tables.MESSAGES.ddl,
    "CREATE UNIQUE INDEX messages_place ON messages (thread, seq)",
    "CREATE UNIQUE INDEX messages_id ON messages (thread, id)",
    "CREATE INDEX messages_system ON messages (thread, seq) WHERE role = 'system'",
    "CREATE INDEX messages_user ON messages (thread, seq) WHERE role = 'user'",
    """CREATE INDEX messages_answers ON messages (thread, tool_call_id)
       WHERE tool_call_id IS NOT NULL""",
    "CREATE INDEX messages_owed ON messages (repo, no) WHERE owed = 1",
    "CREATE INDEX messages_owed_in ON messages (thread, no) WHERE owed = 1",
    # Which message makes a call; who answers it is in the messages themselves.
    """
    CREATE TABLE message_calls (
        thread INTEGER NOT NULL,
        call_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (thread, call_id, seq)
    ) $clustered
    """,
    tables.MESSAGE_VECTORS.ddl,
    tables.COMPACTIONS.ddl,
    "CREATE INDEX compactions_range ON compactions (thread, epoch, start_seq, end_seq, id)",
    """CREATE INDEX compactions_live ON compactions (thread, epoch, start_seq, end_seq, id)
       WHERE superseded_by IS NULL""",
    tables.SNAPSHOTS.ddl,
    "CREATE INDEX snapshots_id ON snapshots (id)",
    "CREATE INDEX snapshots_range ON snapshots (thread, epoch, from_seq, to_seq, id)",
    """CREATE INDEX snapshots_live ON snapshots (thread, epoch, from_seq, to_seq, id)
       WHERE covered_by IS NULL""",
    tables.OUTCOMES.ddl,
    tables.GOALS.ddl,
    "CREATE INDEX goals_active ON goals (thread, epoch, id) WHERE status = 'active'",
    tables.PINS.ddl,
    tables.SURFACED.ddl,
    # Where a record was shown, so that what showed it can go with it.
    """
    CREATE TABLE surfaced_records (
        repo INTEGER NOT NULL,
        stream TEXT NOT NULL,
        record TEXT NOT NULL,
        thread INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (repo, stream, record, thread, epoch, seq)
    ) $clustered
    """,
)
_NOTES = (
    tables.NOTES.ddl,
    tables.NOTE_VERSIONS.ddl,
    tables.NOTE_CHANGES.ddl,
    "CREATE INDEX note_journal_update ON note_journal (repo, update_id)",
    # Of the version and the embedding space that it names; any other is owed.
    """
    CREATE TABLE note_vectors (
        note $number,
        version INTEGER NOT NULL,
        space TEXT NOT NULL,
        dimensions INTEGER NOT NULL,
        vector BLOB NOT NULL
    )
    """,
    # Its words are folded and stemmed before they come here, as those of a query are.
    "CREATE VIRTUAL TABLE note_words USING fts5(terms, tokenize = 'unicode61')",
    tables.NOTE_MARKS.ddl,
    tables.NOTE_REQUESTS.ddl,
    tables.NOTE_TASKS.ddl,
    tables.NOTE_CONVERSATIONS.ddl,
    tables.NOTE_USAGE.ddl,
    "CREATE INDEX note_usage_update ON note_usage (repo, update_id)",
)

_ITEMS = (
    tables.ITEMS.ddl,
    "CREATE INDEX items_expiry ON items (repo, expires_at) WHERE expires_at IS NOT NULL",
    # A vector per text of an item; NULL: it is owed. A new one has a new number: indexes follow.
    """
    CREATE TABLE item_vectors (
        seq $lasting,
        repo INTEGER NOT NULL,
        item INTEGER NOT NULL,
        field TEXT NOT NULL,
        vector BLOB
    )
    """,
    "CREATE UNIQUE INDEX item_vectors_field ON item_vectors (item, field)",
    "CREATE INDEX item_vectors_repo ON item_vectors (repo, seq)",
    "CREATE INDEX item_vectors_owed ON item_vectors (repo, seq) WHERE vector IS NULL",
)

# One statement, so one moment: another process may be creating the tables just now.
_IDENTITY = """
SELECT (SELECT application_id FROM pragma_application_id),
       (SELECT user_version FROM pragma_user_version),
       (SELECT count(*) FROM sqlite_master)
"""
_CHECKPOINTS = (
    tables.CHECKPOINTS.ddl,
    "CREATE INDEX checkpoints_run ON checkpoints (repo, run_id) WHERE run_id IS NOT NULL",
    tables.CHANNEL_VALUES.ddl,
    tables.CHECKPOINT_WRITES.ddl,
)

_CREATE = (
    *(*_REGISTERS, *_JOBS, *_JOURNAL, *_GRAPH, *_CONVERSATIONS, *_NOTES, *_CHECKPOINTS),
    *_ITEMS,
)


def _add_roles(db: Any) -> None:
    """Version 6: steps know the role of their message, those written before do not."""
    db["steps"].add_column("role", str)


def _add_jobs(db: Any) -> None:
    """Version 7: jobs, and how far threads are extracted by them."""
    for statement in (
        *_JOBS,
        "ALTER TABLE threads ADD COLUMN extracted_seq INTEGER",
        "ALTER TABLE sessions ADD COLUMN thread_id TEXT",
        _SESSIONS_OF_THREADS,
        "DROP INDEX steps_thread",
        _STEPS_OF_MESSAGES,
    ):
        db.execute(spelled(statement))


def _add_checkpoints(db: Any) -> None:
    """Version 8: checkpoints of graphs."""
    for statement in _CHECKPOINTS:
        db.execute(spelled(statement))


def _add_items(db: Any) -> None:
    """Version 9: keyed items."""
    for statement in _ITEMS:
        db.execute(spelled(statement))


def _order_nodes(db: Any) -> None:
    """Version 10: nodes of a type are read in the order in which they were made."""
    db.execute("DROP INDEX idx_nodes_repo_type")
    db.execute(_NODES_BY_AGE)


# Each makes the next version: the first one version 6. It is given a ``sqlite_utils.Database``.
_MIGRATIONS: tuple[Callable[[Any], None], ...] = (
    *(_add_roles, _add_jobs, _add_checkpoints),
    *(_add_items, _order_nodes),
)
VERSION = _FIRST_VERSION + len(_MIGRATIONS)
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
        raise StoreError(
            f"the store has schema version {version}, this mnemo reads {_FIRST_VERSION} and later: "
            "export its repositories with the mnemo that wrote it, and import them into a new store"
        )
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
        for statement in _CREATE:
            connection.execute(spelled(statement))
        return
    from sqlite_utils import Database

    migration = _MIGRATIONS[found - _FIRST_VERSION]
    migration(Database(connection, execute_plugins=False))

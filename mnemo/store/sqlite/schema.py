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

__all__ = ["APPLICATION_ID", "VERSION", "migrate", "stored_version"]

APPLICATION_ID = 0x6D6E656D
"""The letters "mnem"."""
_FIRST_VERSION = 5

_REGISTERS = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # Everything that is deleted from a file of this version is overwritten (secure_delete).
    "INSERT INTO meta (name, value) VALUES ('overwritten', 'always')",
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
        no INTEGER PRIMARY KEY,
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
    "CREATE TABLE erased (digest BLOB PRIMARY KEY) WITHOUT ROWID",
)
_JOURNAL = (
    """
    CREATE TABLE sessions (
        no INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        repo INTEGER NOT NULL,
        state TEXT NOT NULL,
        episode INTEGER,
        owner TEXT,
        updated_at TEXT NOT NULL,
        error TEXT,
        error_trajectory TEXT
    )
    """,
    "CREATE UNIQUE INDEX idx_sessions_id ON sessions (id)",
    "CREATE INDEX idx_sessions_repo_state ON sessions (repo, state)",
    "CREATE INDEX idx_sessions_owner ON sessions (owner)",
    """
    CREATE TABLE episodes (
        no INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        session INTEGER NOT NULL,
        goal TEXT NOT NULL,
        goal_at TEXT,
        status TEXT NOT NULL,
        changeset BLOB,
        changeset_steps TEXT,
        receipt_nodes TEXT,
        erased INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE UNIQUE INDEX idx_episodes_id ON episodes (id)",
    "CREATE INDEX idx_episodes_session ON episodes (session)",
    """
    CREATE TABLE staged (
        episode INTEGER,
        key TEXT,
        trajectory_id TEXT,
        steps TEXT,
        changeset BLOB,
        PRIMARY KEY (episode, key)
    )
    """,
    # AUTOINCREMENT: a number that a reader of the feed has seen is never given again.
    # thread, message: of a step that was made from a message, the thread's id and its own.
    """
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
        subgoal_vector BLOB,
        thread TEXT,
        message TEXT
    )
    """,
    "CREATE UNIQUE INDEX steps_place ON steps (episode, idx)",
    "CREATE UNIQUE INDEX steps_key ON steps (session, key) WHERE key IS NOT NULL",
    "CREATE UNIQUE INDEX steps_node ON steps (repo, node_id)",
    "CREATE INDEX steps_thread ON steps (repo, thread) WHERE thread IS NOT NULL",
)
_GRAPH = (
    # session_id, episode_id, superseded_by: what an erasure judges a node by, beside its body.
    """
    CREATE TABLE nodes (
        no INTEGER PRIMARY KEY,
        repo INTEGER NOT NULL,
        id TEXT NOT NULL,
        type TEXT NOT NULL,
        created_at TEXT NOT NULL,
        at TEXT,
        body TEXT NOT NULL,
        revision INTEGER NOT NULL,
        last_accessed_at TEXT,
        access_count INTEGER NOT NULL DEFAULT 0,
        cumulative_reward REAL NOT NULL DEFAULT 0.0,
        reward_count INTEGER NOT NULL DEFAULT 0,
        support_count INTEGER NOT NULL DEFAULT 0,
        penalty REAL NOT NULL DEFAULT 0.0,
        session_id TEXT,
        episode_id TEXT,
        superseded_by TEXT
    )
    """,
    "CREATE UNIQUE INDEX idx_nodes_repo_id ON nodes (repo, id)",
    "CREATE INDEX idx_nodes_repo_type ON nodes (repo, type)",
    "CREATE INDEX idx_nodes_repo_revision ON nodes (repo, revision)",
    """CREATE INDEX nodes_superseded ON nodes (repo, superseded_by)
       WHERE superseded_by IS NOT NULL""",
    """
    CREATE TABLE edges (
        source INTEGER NOT NULL,
        target INTEGER NOT NULL,
        kind TEXT NOT NULL,
        PRIMARY KEY (source, target, kind)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX idx_edges_target ON edges (target)",
    """
    CREATE TABLE node_keys (
        repo INTEGER NOT NULL,
        key TEXT NOT NULL,
        node INTEGER NOT NULL,
        PRIMARY KEY (repo, key, node)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX idx_node_keys_node ON node_keys (node)",
    """
    CREATE TABLE vectors (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        repo INTEGER NOT NULL,
        key TEXT NOT NULL,
        vector BLOB NOT NULL,
        UNIQUE (repo, key)
    )
    """,
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
    """
    CREATE TABLE removals (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        repo INTEGER NOT NULL,
        node_id TEXT NOT NULL
    )
    """,
    "CREATE INDEX idx_removals_repo_seq ON removals (repo, seq)",
    """
    CREATE TABLE changesets (
        repo INTEGER,
        id TEXT,
        revision INTEGER,
        node_ids TEXT,
        edge_count INTEGER,
        PRIMARY KEY (repo, id)
    )
    """,
    "CREATE INDEX idx_changesets_repo_revision ON changesets (repo, revision)",
)
# ``thread`` in all the other tables is this ``no``, which is never another thread's. Seqs
# are missing where messages were erased, and ``erased`` counts them.
_THREADS = """
CREATE TABLE threads (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    repo INTEGER NOT NULL,
    id TEXT NOT NULL,
    next_seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    epoch_start INTEGER NOT NULL,
    boundary INTEGER NOT NULL,
    budget_tokens INTEGER,
    ttl_s REAL,
    next_goal INTEGER NOT NULL,
    declined_to INTEGER NOT NULL,
    erased INTEGER NOT NULL DEFAULT 0,
    UNIQUE (repo, id)
)
"""
# What is counted and filtered by stands before what can be long, so that it is read
# without the pages that the rest overflows to. Text content is in ``content``, blocks
# are JSON in ``blocks``; of content that is None both are NULL.
_MESSAGES = """
CREATE TABLE messages (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    repo INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    role TEXT NOT NULL,
    kind TEXT NOT NULL,
    tokens INTEGER,
    owed INTEGER NOT NULL,
    recorded_at TEXT NOT NULL,
    at TEXT,
    is_error INTEGER NOT NULL,
    tool_call_id TEXT,
    name TEXT,
    actor TEXT,
    content TEXT,
    blocks TEXT,
    tool_calls TEXT,
    metadata TEXT
)
"""
_MESSAGES_INDEXES = (
    "CREATE UNIQUE INDEX messages_place ON messages (thread, seq)",
    "CREATE UNIQUE INDEX messages_id ON messages (thread, id)",
    "CREATE INDEX messages_system ON messages (thread, seq) WHERE role = 'system'",
    "CREATE INDEX messages_user ON messages (thread, seq) WHERE role = 'user'",
    """CREATE INDEX messages_answers ON messages (thread, tool_call_id)
       WHERE tool_call_id IS NOT NULL""",
    "CREATE INDEX messages_owed ON messages (repo, no) WHERE owed = 1",
    "CREATE INDEX messages_owed_in ON messages (thread, no) WHERE owed = 1",
)
_OF_MESSAGES = (
    # Which message makes a call; who answers it is in the messages themselves.
    """
    CREATE TABLE message_calls (
        thread INTEGER NOT NULL,
        call_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (thread, call_id, seq)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE message_vectors (
        thread INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (thread, seq)
    )
    """,
)
_SUMMARIES = (
    """
    CREATE TABLE compactions (
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        thread INTEGER NOT NULL,
        id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        start_seq INTEGER NOT NULL,
        end_seq INTEGER NOT NULL,
        level INTEGER NOT NULL,
        origin TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        superseded_by TEXT,
        at TEXT NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (thread, id)
    )
    """,
    "CREATE INDEX compactions_range ON compactions (thread, epoch, start_seq, end_seq, id)",
    """CREATE INDEX compactions_live ON compactions (thread, epoch, start_seq, end_seq, id)
       WHERE superseded_by IS NULL""",
    """
    CREATE TABLE snapshots (
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        thread INTEGER NOT NULL,
        id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        level INTEGER NOT NULL,
        from_seq INTEGER NOT NULL,
        to_seq INTEGER NOT NULL,
        origin TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        covered_by TEXT,
        at TEXT NOT NULL,
        said_from TEXT NOT NULL,
        said_to TEXT NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (thread, id)
    )
    """,
    "CREATE INDEX snapshots_id ON snapshots (id)",
    "CREATE INDEX snapshots_range ON snapshots (thread, epoch, from_seq, to_seq, id)",
    """CREATE INDEX snapshots_live ON snapshots (thread, epoch, from_seq, to_seq, id)
       WHERE covered_by IS NULL""",
)
_WINDOW = (
    """
    CREATE TABLE outcomes (
        thread INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        from_seq INTEGER NOT NULL,
        to_seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        snapshot_id TEXT,
        attempts INTEGER NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (thread, epoch, from_seq)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE goals (
        thread INTEGER NOT NULL,
        id INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        parent_id INTEGER,
        status TEXT NOT NULL,
        created_at TEXT NOT NULL,
        completed_at TEXT,
        description TEXT NOT NULL,
        PRIMARY KEY (thread, epoch, id)
    )
    """,
    "CREATE INDEX goals_active ON goals (thread, epoch, id) WHERE status = 'active'",
    """
    CREATE TABLE pins (
        thread INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        message_id TEXT NOT NULL,
        goal_ids TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        excerpt TEXT NOT NULL,
        PRIMARY KEY (thread, epoch, seq)
    )
    """,
    """
    CREATE TABLE surfaced (
        thread INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at TEXT NOT NULL,
        shown TEXT NOT NULL,
        hits TEXT NOT NULL,
        PRIMARY KEY (thread, epoch, seq)
    )
    """,
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
    ) WITHOUT ROWID
    """,
)
# A deleted note keeps its row without texts, so that its versions go on counting.
_NOTES = """
CREATE TABLE notes (
    no INTEGER PRIMARY KEY,
    repo INTEGER NOT NULL,
    topic TEXT NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    last_read_at TEXT,
    trust TEXT NOT NULL,
    deleted_by TEXT,
    UNIQUE (repo, topic)
)
"""
_VERSIONS = """
CREATE TABLE note_versions (
    note INTEGER NOT NULL,
    version INTEGER NOT NULL,
    action TEXT NOT NULL,
    body TEXT NOT NULL,
    description TEXT NOT NULL,
    at TEXT NOT NULL,
    by TEXT NOT NULL,
    update_id TEXT,
    task_id TEXT,
    session_id TEXT,
    thread_id TEXT,
    message_ids TEXT NOT NULL,
    evidence TEXT NOT NULL,
    trust TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (note, version)
) WITHOUT ROWID
"""
# Outlives versions that are dropped: it says what an update did, not what it wrote.
_NOTE_JOURNAL = """
CREATE TABLE note_journal (
    seq INTEGER PRIMARY KEY,
    repo INTEGER NOT NULL,
    update_id TEXT,
    note INTEGER NOT NULL,
    action TEXT NOT NULL,
    version INTEGER NOT NULL,
    by TEXT NOT NULL
)
"""
# Of the version and the embedding space that it names; any other is owed.
_NOTE_VECTORS = """
CREATE TABLE note_vectors (
    note INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    space TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    vector BLOB NOT NULL
)
"""
# Its words are folded and stemmed before they come here, as those of a query are.
_NOTE_WORDS = "CREATE VIRTUAL TABLE note_words USING fts5(terms, tokenize = 'unicode61')"
_MARKS = """
CREATE TABLE note_marks (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    repo INTEGER NOT NULL,
    key TEXT NOT NULL,
    UNIQUE (repo, key)
)
"""
_COVERED = """
CREATE TABLE note_requests (
    repo INTEGER NOT NULL,
    digest TEXT NOT NULL,
    topic TEXT,
    refused TEXT,
    PRIMARY KEY (repo, digest)
) WITHOUT ROWID
"""
_DONE = """
CREATE TABLE note_tasks (
    repo INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    PRIMARY KEY (repo, task_id)
) WITHOUT ROWID
"""
_CONVERSATIONS = """
CREATE TABLE note_conversations (
    repo INTEGER NOT NULL,
    key TEXT NOT NULL,
    ended_at TEXT,
    part TEXT NOT NULL,
    failures INTEGER NOT NULL,
    PRIMARY KEY (repo, key)
) WITHOUT ROWID
"""
_USAGE = """
CREATE TABLE note_usage (
    seq INTEGER PRIMARY KEY,
    repo INTEGER NOT NULL,
    update_id TEXT NOT NULL,
    task_id TEXT,
    session_id TEXT,
    purpose TEXT NOT NULL,
    at TEXT NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cost_usd REAL
)
"""
_NOTE_INDEXES = (
    "CREATE INDEX note_journal_update ON note_journal (repo, update_id)",
    "CREATE INDEX note_usage_update ON note_usage (repo, update_id)",
)

# One statement, so one moment: another process may be creating the tables just now.
_IDENTITY = """
SELECT (SELECT application_id FROM pragma_application_id),
       (SELECT user_version FROM pragma_user_version),
       (SELECT count(*) FROM sqlite_master)
"""

_CREATE = (
    *(*_REGISTERS, *_JOURNAL, *_GRAPH),
    *(_THREADS, _MESSAGES, *_MESSAGES_INDEXES, *_OF_MESSAGES, *_SUMMARIES, *_WINDOW),
    *(_NOTES, _VERSIONS, _NOTE_JOURNAL, _NOTE_VECTORS, _NOTE_WORDS),
    *(_MARKS, _COVERED, _DONE, _CONVERSATIONS, _USAGE, *_NOTE_INDEXES),
)
# Each makes the next version: the first one version 6. It is given a ``sqlite_utils.Database``.
_MIGRATIONS: tuple[Callable[[Any], None], ...] = ()
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
    for number in range(max(found + 1, _FIRST_VERSION), VERSION + 1):
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
        if stored_version(connection) < number:
            _make(connection, number)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error | AssertionError | ValueError):
            raise StoreError(f"migrating the store to schema {number} failed: {error}") from error
        raise


def _make(connection: sqlite3.Connection, number: int) -> None:
    if number == _FIRST_VERSION:
        for statement in _CREATE:
            connection.execute(statement)
        return
    from sqlite_utils import Database

    migration = _MIGRATIONS[number - _FIRST_VERSION - 1]
    migration(Database(connection, execute_plugins=False))

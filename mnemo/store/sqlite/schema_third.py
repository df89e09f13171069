"""
Schema 3: a full text for each repository, and the conversations.

What was in the one full text of all repositories is moved to theirs; nothing else of an
older file is touched.
"""

from __future__ import annotations

import sqlite3
from itertools import groupby
from typing import Any

from mnemo.store.sqlite.texts import put_texts, step_row

__all__ = ["third"]

_COLUMNS = (
    # The number of the repository's word table; NULL until its first text.
    "ALTER TABLE repos ADD COLUMN texts INTEGER",
    # Whether some of its texts are in the table of its character triples as well.
    "ALTER TABLE repos ADD COLUMN grams INTEGER NOT NULL DEFAULT 0",
    # Of a step that was made from a message: the thread's id and the message's.
    "ALTER TABLE steps ADD COLUMN thread TEXT",
    "ALTER TABLE steps ADD COLUMN message TEXT",
    "CREATE INDEX steps_thread ON steps (repo, thread) WHERE thread IS NOT NULL",
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

# Steps per bite: their texts wait in memory, whatever the size of the file.
_BITE = 1_000
_HALVES = "SELECT repo, ordinal, observation, action FROM steps ORDER BY ordinal"


def third(db: Any) -> None:
    """Make the tables, and move the full text of steps."""
    for statement in (*_COLUMNS, _THREADS, _MESSAGES, *_MESSAGES_INDEXES):
        db.execute(statement)
    for statement in (*_OF_MESSAGES, *_SUMMARIES, *_WINDOW):
        db.execute(statement)
    _move_texts(db.conn)
    db.execute("DROP TABLE records_fts")


def _move_texts(connection: sqlite3.Connection) -> None:
    """Of the steps themselves, since those are what it was made from."""
    rows = connection.execute(_HALVES)
    while bite := rows.fetchmany(_BITE):
        # Sorted by the repository alone, which keeps the order of the ordinals.
        for repo, steps in groupby(sorted(bite, key=lambda row: row[0]), key=lambda row: row[0]):
            texts = [
                (step_row(ordinal, side), text)
                for _, ordinal, *halves in steps
                for side, text in enumerate(halves)
            ]
            put_texts(connection, repo, texts)

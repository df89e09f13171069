"""Schema 4: notes, their versions and journal, and what is remembered of updates."""

from __future__ import annotations

from typing import Any

__all__ = ["fourth"]

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
_JOURNAL = """
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
_VECTORS = """
CREATE TABLE note_vectors (
    note INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    space TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    vector BLOB NOT NULL
)
"""
# Its words are folded and stemmed before they come here, as those of a query are.
_WORDS = "CREATE VIRTUAL TABLE note_words USING fts5(terms, tokenize = 'unicode61')"
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
_INDEXES = (
    "CREATE INDEX note_journal_update ON note_journal (repo, update_id)",
    "CREATE INDEX note_usage_update ON note_usage (repo, update_id)",
)


def fourth(db: Any) -> None:
    """Make the tables; there is nothing to move."""
    tables = (_NOTES, _VERSIONS, _JOURNAL, _VECTORS, _WORDS)
    remembered = (_MARKS, _COVERED, _DONE, _CONVERSATIONS, _USAGE)
    for statement in (*tables, *remembered, *_INDEXES):
        db.execute(statement)

"""The schema: every table and index of a store, and the numbered migrations of later versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from mnemo.errors import StoreError
from mnemo.store import tables
from mnemo.store.table import LETTERS
from mnemo.store.tx import Tx

CREATE = (
    *(table.ddl for table in tables.TABLES.values()),
    # ── Registers ──
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE owners (
       token TEXT PRIMARY KEY, host TEXT, pid INTEGER, started INTEGER, lease_until REAL)""",
    # What BM25 counts of the repository's texts, and of those in scripts without blanks;
    # text_puts: how many there ever were.
    # turn: the changeset that is written next, until a time.
    # forgotten: the last removal of the last erasure.
    """CREATE TABLE repos (
       no $repo, id TEXT NOT NULL, revision INTEGER NOT NULL DEFAULT 0,
       space_name TEXT, space_dimensions INTEGER,
       next_space_name TEXT, next_space_dimensions INTEGER,
       text_count INTEGER NOT NULL DEFAULT 0, text_words INTEGER NOT NULL DEFAULT 0,
       text_puts INTEGER NOT NULL DEFAULT 0,
       unspaced_count INTEGER NOT NULL DEFAULT 0, unspaced_triples INTEGER NOT NULL DEFAULT 0,
       turn TEXT, turn_until REAL, forgotten INTEGER NOT NULL DEFAULT 0)""",
    # Salted digests of erased ids, kept after an erasure.
    "CREATE TABLE erased (digest BLOB PRIMARY KEY) $clustered",
    # ── Jobs ──
    "CREATE INDEX jobs_pending ON jobs (repo, state, due_at) WHERE state <> 'done'",
    # Of all repositories: the one look of a service, and of a worker.
    "CREATE INDEX jobs_due ON jobs (state, due_at) WHERE state <> 'done'",
    # ── Journal ──
    "CREATE UNIQUE INDEX idx_sessions_id ON sessions (repo, id)",
    "CREATE INDEX idx_sessions_repo_state ON sessions (repo, state)",
    "CREATE INDEX idx_sessions_owner ON sessions (owner)",
    "CREATE INDEX sessions_thread ON sessions (repo, thread_id) WHERE thread_id IS NOT NULL",
    "CREATE UNIQUE INDEX idx_episodes_id ON episodes (repo, id)",
    "CREATE INDEX idx_episodes_session ON episodes (repo, session)",
    "CREATE UNIQUE INDEX steps_place ON steps (repo, episode, idx)",
    "CREATE UNIQUE INDEX steps_key ON steps (repo, session, key) WHERE key IS NOT NULL",
    "CREATE UNIQUE INDEX steps_node ON steps (repo, node_id)",
    "CREATE INDEX steps_followed ON steps (repo, ordinal)",
    "CREATE INDEX steps_message ON steps (repo, thread, message) WHERE thread IS NOT NULL",
    # ── Graph ──
    "CREATE UNIQUE INDEX idx_nodes_repo_id ON nodes (repo, id)",
    "CREATE INDEX nodes_by_age ON nodes (repo, type, created_at, id)",
    "CREATE INDEX idx_nodes_repo_revision ON nodes (repo, revision)",
    """CREATE INDEX nodes_superseded ON nodes (repo, superseded_by)
       WHERE superseded_by IS NOT NULL""",
    "CREATE INDEX idx_edges_target ON edges (repo, target)",
    """CREATE TABLE node_keys (
       repo INTEGER NOT NULL, key TEXT NOT NULL, node INTEGER NOT NULL,
       PRIMARY KEY (repo, key, node)) $clustered""",
    "CREATE INDEX idx_node_keys_node ON node_keys (repo, node)",
    "CREATE INDEX idx_vectors_repo_seq ON vectors (repo, seq)",
    # Vectors of another space, waiting for a repository's switch to it.
    """CREATE TABLE moving (
       repo INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL,
       PRIMARY KEY (repo, key))""",
    "CREATE INDEX idx_removals_repo_seq ON removals (repo, seq)",
    # What was read as columns, which can be made anew: see ``index``.
    """CREATE TABLE segments (
       repo INTEGER NOT NULL, chain TEXT NOT NULL, no INTEGER NOT NULL, part INTEGER NOT NULL,
       documents INTEGER NOT NULL, until TEXT NOT NULL, named BLOB NOT NULL, digest TEXT,
       bytes BLOB NOT NULL,
       PRIMARY KEY (repo, chain, no, part))""",
    "CREATE INDEX segments_waiting ON segments (repo) WHERE chain = 'expired'",
    "CREATE INDEX segments_files ON segments (digest) WHERE digest IS NOT NULL",
    "CREATE INDEX idx_changesets_repo_revision ON changesets (repo, revision)",
    # ── Conversations ──
    "CREATE UNIQUE INDEX messages_place ON messages (repo, thread, seq)",
    "CREATE UNIQUE INDEX messages_id ON messages (repo, thread, id)",
    "CREATE INDEX messages_followed ON messages (repo, no)",
    "CREATE INDEX messages_system ON messages (repo, thread, seq) WHERE role = 'system'",
    "CREATE INDEX messages_user ON messages (repo, thread, seq) WHERE role = 'user'",
    """CREATE INDEX messages_answers ON messages (repo, thread, tool_call_id)
       WHERE tool_call_id IS NOT NULL""",
    # Which message makes a call; who answers it is in the messages themselves.
    """CREATE TABLE message_calls (
       repo INTEGER NOT NULL, thread INTEGER NOT NULL, call_id TEXT NOT NULL,
       seq INTEGER NOT NULL, PRIMARY KEY (repo, thread, call_id, seq)) $clustered""",
    "CREATE INDEX compactions_range ON compactions (repo, thread, epoch, start_seq, end_seq, id)",
    """CREATE INDEX compactions_live ON compactions (repo, thread, epoch, start_seq, end_seq, id)
       WHERE superseded_by IS NULL""",
    "CREATE INDEX snapshots_id ON snapshots (repo, id)",
    "CREATE INDEX snapshots_range ON snapshots (repo, thread, epoch, from_seq, to_seq, id)",
    """CREATE INDEX snapshots_live ON snapshots (repo, thread, epoch, from_seq, to_seq, id)
       WHERE covered_by IS NULL""",
    "CREATE INDEX goals_active ON goals (repo, thread, epoch, id) WHERE status = 'active'",
    # Where a record was shown, so that what showed it can go with it.
    """CREATE TABLE surfaced_records (
       repo INTEGER NOT NULL, stream TEXT NOT NULL, record TEXT NOT NULL,
       thread INTEGER NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
       PRIMARY KEY (repo, stream, record, thread, epoch, seq)) $clustered""",
    # ── Notes ──
    "CREATE INDEX note_journal_update ON note_journal (repo, update_id)",
    # Folded and stemmed, each between blanks, of the notes that are there.
    """CREATE TABLE note_words (
       repo INTEGER NOT NULL, note INTEGER NOT NULL, words TEXT NOT NULL,
       PRIMARY KEY (repo, note))""",
    # Of the version and the embedding space that it names; any other is owed.
    """CREATE TABLE note_vectors (
       repo INTEGER NOT NULL, note INTEGER NOT NULL, version INTEGER NOT NULL,
       space TEXT NOT NULL, dimensions INTEGER NOT NULL, vector BLOB NOT NULL,
       PRIMARY KEY (repo, note))""",
    "CREATE INDEX note_usage_update ON note_usage (repo, update_id)",
    # ── Checkpoints ──
    "CREATE INDEX checkpoints_run ON checkpoints (repo, run_id) WHERE run_id IS NOT NULL",
    # ── Items ──
    "CREATE INDEX items_expiry ON items (repo, expires_at) WHERE expires_at IS NOT NULL",
    # A vector per text of an item; NULL: it is owed. A new one has a new number: indexes follow.
    """CREATE TABLE item_vectors (
       seq $followed, repo INTEGER NOT NULL, item INTEGER NOT NULL, field TEXT NOT NULL,
       vector BLOB $keyed(seq))""",
    "CREATE UNIQUE INDEX item_vectors_field ON item_vectors (repo, item, field)",
    "CREATE INDEX item_vectors_repo ON item_vectors (repo, seq)",
    "CREATE INDEX item_vectors_owed ON item_vectors (repo, seq) WHERE vector IS NULL",
    # ── Recalls ──
    "CREATE INDEX recalls_newest ON recalls (repo, no)",
)


class Column(NamedTuple):
    """A column of a table; *letter* is its type as ``Rows`` takes it."""

    name: str
    letter: str
    is_required: bool
    is_key: bool


def _columns(definition: str) -> list[Column]:
    said = definition.partition("(")[2].rpartition(")")[0].replace("$keyed(", ", PRIMARY KEY (")
    keys = ", ".join(re.findall(r"PRIMARY KEY \((.*?)\)", said)).split(", ")
    found = []
    for part in re.split(r",\s*(?![^(]*\))", said):
        name, type = part.split()[:2]
        if name not in ("PRIMARY", "UNIQUE"):
            is_key = "PRIMARY KEY" in part or name in keys
            is_required = is_key or "NOT NULL" in part or type.startswith("$")
            found.append(Column(name, LETTERS.get(type, "i"), is_required, is_key))
    return found


COLUMNS = {
    statement.split()[2]: _columns(statement)
    for statement in CREATE
    if statement.startswith("CREATE TABLE")
}
"""The columns of every table of ``CREATE``."""

MIGRATIONS: tuple[Callable[[Tx], None], ...] = ()
"""
Each makes the next version, on every engine: the first one version 2.

A released migration is never edited; a change is a new one, and ``CREATE`` has it too. Until the
first release there is none: ``CREATE`` is edited in place.
"""
VERSION = 1 + len(MIGRATIONS)
"""The newest schema version, which this code reads and writes."""


def of_development(found: object) -> StoreError:
    """The refusal of a store that a mnemo from before the first release made."""
    return StoreError(
        f"a development version of mnemo made the store (its schema {found}), and no release reads "
        "it: with the mnemo that wrote it run `mnemo export REPO.jsonl --repo REPO --store OLD` "
        "for each of `mnemo repos --store OLD`, then `scripts/convert_archive.py REPO.jsonl "
        "NEW.jsonl`, and with this one `mnemo import NEW.jsonl --repo REPO --store NEW`; it was "
        "not touched"
    )


def of_preview() -> StoreError:
    """The refusal of a store whose rows a preview of the first release laid out otherwise."""
    return StoreError(
        "a preview of mnemo made the store, and had other tables: with the mnemo "
        "that wrote it run `mnemo export REPO.jsonl --repo REPO --store OLD` for each of "
        "`mnemo repos --store OLD`, and with this one `mnemo import REPO.jsonl --repo REPO "
        "--store NEW` (an archive does not say what was forgotten: the new store does not keep "
        "that from coming again); it was not touched"
    )

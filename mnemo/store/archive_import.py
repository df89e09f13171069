"""
Import: records of an archive are staged, checked, and moved over in one transaction.

They are staged in tables of their own, so that writers wait for the last move only, and a
broken archive leaves nothing in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from mnemo.errors import UsageError
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import terms
from mnemo.store import tables
from mnemo.store.archive_export import OWNED, OWNERS
from mnemo.store.codec import decode_time, encode_vector, stored_node, utc_text
from mnemo.store.rows import message_row, repo_number, repo_row, snapshot_row, step_row
from mnemo.store.table import Table
from mnemo.store.tombstones import refuse_erased
from mnemo.store.tx import Tx
from mnemo.values.archive import (
    ArchivedMessage,
    ArchivedNode,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    ArchiveHead,
    LeftOut,
    NumberedRecord,
    Record,
)
from mnemo.values.graph import Edge
from mnemo.values.items import Item
from mnemo.values.lookup import lookup_keys
from mnemo.values.messages import searchable_text
from mnemo.values.notes import NoteRow
from mnemo.values.vectors import owner_of_vector

Batch = list[tuple[str, list[tuple[Any, ...]]]]
"""Staged tables, each with rows of it."""

_STAGED_MORE = {
    "messages": {"text": "TEXT"},
    "notes": {"terms": "TEXT"},
    "steps": {"committed": "INTEGER", "gone": "INTEGER"},
    "nodes": {"revision": "INTEGER"},
    "vectors": {"owner": "TEXT", "is_side": "INTEGER"},
}
"""Columns beside those of the table: what a record is found by, and how it stands."""


def _names(table: Table[Any]) -> str:
    return ", ".join(table.columns)


def _typed(table: Table[Any]) -> dict[str, str]:
    types = (type.removesuffix(" NOT NULL") for type in table.types)
    return dict(zip(table.columns, types, strict=True))


def _staged(table: Table[Any], *owners: str) -> dict[str, str]:
    """Its columns with their types; *owners* if there are others than its parent."""
    ids = dict.fromkeys(owners or owner_column(table), "TEXT")
    return {**ids, **_typed(table), **_STAGED_MORE.get(table.name, {})}


def owner_column(table: Table[Any]) -> tuple[str, ...]:
    """The staged column with the id of the owner."""
    return () if table.parent == "repo" else (table.parent,)


# ``n`` counts up from 1 in each table: the places that numbers of the store follow.
_TABLES = {
    "staged": _staged(tables.STAGED),
    "steps": _staged(tables.STEPS, "session", "episode") | _typed(tables.ANNOTATIONS),
    "nodes": _staged(tables.NODES),
    "edges": _staged(tables.EDGES, "source", "target"),
    "vectors": _staged(tables.VECTORS),
    **{table.name: _staged(table) for table in OWNED.values()},
}
TABLES = tuple(_TABLES)
"""The tables that records are staged in."""
_PARTS = {
    "keys": ("node", "key"),
    "calls": ("message", "call_id"),
    "fields": ("item", "field"),
}
"""Lookup keys of nodes, calls of messages and fields of items: staged tables and columns."""
STAGING = {
    **{table: f"{of} INTEGER, {value} TEXT" for table, (of, value) in _PARTS.items()},
    **{
        table: "n $number, line INTEGER, "
        + ", ".join(f"{column} {type}" for column, type in columns.items())
        for table, columns in _TABLES.items()
    },
}
"""The definitions of their columns, and of those of their parts."""
_COLUMNS = _PARTS | {table: ("n", "line", *columns) for table, columns in _TABLES.items()}


def put(tx: Tx, batch: Batch) -> None:
    """Stage rows."""
    for table, rows in batch:
        tx.insert(f"staging.{table}", _COLUMNS[table], rows)


class StagedRows:
    """Makes the rows of records, page by page; for a worker thread."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(_TABLES, 0)
        self.left_out = 0
        """Records that were damaged in the store that the archive was made of."""

    def batch(self, records: Sequence[NumberedRecord]) -> Batch:
        """The rows of *records*."""
        breather, batch = Breather(), []
        for kind, run in groupby(records, key=lambda numbered: type(numbered[1])):
            if kind is LeftOut:
                self.left_out += len(list(run))
                continue
            table = _TABLE_OF[kind]
            rows: list[tuple[Any, ...]] = []
            parts: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _PARTS}
            for line, record in run:
                self._last[table] += 1
                place = self._last[table]
                rows.append((place, line, *_row(record)))
                for name, values in _parts(record).items():
                    parts[name] += [(place, value) for value in values]
                breather.breathe()
            batch += [(table, rows), *parts.items()]
        return batch


_TABLE_OF: dict[type[Record], str] = {
    ArchivedTrajectory: "staged",
    ArchivedStep: "steps",
    ArchivedNode: "nodes",
    Edge: "edges",
    ArchivedVector: "vectors",
    ArchivedMessage: "messages",
    **{table.entity.kind: table.name for table in OWNED.values()},
}
_OWNED_OF: dict[type[Record], Table[Any]] = {t.entity.kind: t for t in OWNED.values()}


def _row(record: Record) -> tuple[Any, ...]:
    match record:
        case ArchivedStep():
            return _step(record)
        case ArchivedNode():
            return (
                *tables.NODES.values(stored_node(record.node, record.metadata)),
                record.revision,
            )
        case Edge():
            return tables.EDGES.owned(record)
        case ArchivedVector(key=key, vector=vector):
            return (key, encode_vector(vector), *owner_of_vector(key))
        case ArchivedTrajectory(episode_id=episode, staged=staged):
            return (episode, *tables.STAGED.values(staged))
        case ArchivedMessage(message=message, searched=searched):
            text = searchable_text(message, tools=True) if searched else ""
            return (*tables.MESSAGES.owned(message), text)
        case NoteRow():
            return (*tables.NOTES.values(record), " ".join(terms(record.text)))
        case _:
            return _OWNED_OF[type(record)].owned(record)


def _parts(record: Record) -> dict[str, Iterable[str]]:
    """The rows of ``_PARTS`` that a record has."""
    match record:
        case ArchivedNode(node=node):
            return {"keys": lookup_keys(node)}
        case ArchivedMessage(message=message):
            return {"calls": [call.id for call in message.tool_calls]}
        case Item(texts=texts):
            return {"fields": [field for field, _ in texts]}
        case _:
            return {}


def _step(record: ArchivedStep) -> tuple[Any, ...]:
    found = record.step.annotation
    columns = tables.ANNOTATIONS
    annotation = (None,) * len(columns.columns) if found is None else columns.values(found)
    return (*tables.STEPS.owned(record.step), record.committed, record.gone, *annotation)


# ── Moving ───────────────────────────────────────────────────────────────────────────

_FILLED = """
SELECT EXISTS (SELECT 1 FROM repos WHERE no = :repo AND revision > 0)
    OR EXISTS (SELECT 1 FROM sessions WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM nodes WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM changesets WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM threads WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM notes WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM note_marks WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM note_requests WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM note_tasks WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM checkpoints WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM checkpoint_writes WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM items WHERE repo = :repo)
"""
_IDS = """
SELECT id FROM staging.sessions UNION ALL SELECT id FROM staging.episodes
UNION ALL SELECT node_id FROM staging.steps
"""
_NUMBERED = (
    "sessions",
    "episodes",
    "nodes",
    "notes",
    "items",
    "steps",
    "vectors",
    "threads",
    "messages",
    "snapshots",
)
"""Tables whose rows have numbers of their own."""
_STAMP = """
UPDATE repos SET revision = ?, space_name = ?, space_dimensions = ? WHERE no = ?
"""
_MOVED_MORE = {
    "sessions": {
        "episode": ":episodes + (SELECT max(e.n) FROM staging.episodes e WHERE e.session = a.id)"
    },
    # Gaps are where steps were forgotten; their number is all that is kept of that.
    "episodes": {
        "erased": "coalesce((SELECT max(t.idx) + 1 - count(*) "
        "FROM staging.steps t WHERE t.episode = a.id), 0)"
    },
}
"""Columns that no staged one holds, and their values."""


def _move(table: Table[Any]) -> str:
    """The statement that moves an owned table, with the numbers of this store."""
    name, found = table.name, {column: f"a.{column}" for column in table.columns}
    if name in _NUMBERED:
        found["no"] = f":{name} + a.n"
    found |= _MOVED_MORE.get(name, {})
    if table.of_repo:
        found["repo"] = ":repo"
    source = f"staging.{name} a"
    if table.parent != "repo":
        owner = OWNERS[table.parent]
        found[table.parent] = f":{owner.name} + p.n"
        source += f" $join staging.{owner.name} p ON p.{owner.key[0]} = a.{table.parent}"
    return (
        f"INSERT INTO {name} ({', '.join(found)}) "
        f"SELECT {', '.join(found.values())} FROM {source} ORDER BY a.n"
    )


_MOVES = (
    f"""
    INSERT INTO staged (episode, {_names(tables.STAGED)})
    SELECT :episodes + e.n, {tables.STAGED.of("a")}
    FROM staging.staged a $join staging.episodes e ON e.id = a.episode ORDER BY a.n
    """,
    f"""
    INSERT INTO steps (ordinal, repo, session, episode, recorded_at, committed, gone,
                       {_names(tables.STEPS)}, {_names(tables.ANNOTATIONS)})
    SELECT :steps + a.n, :repo, :sessions + s.n, :episodes + e.n, s.updated_at, a.committed,
           a.gone, {tables.STEPS.of("a")}, {tables.ANNOTATIONS.of("a")}
    FROM staging.steps a $join staging.sessions s ON s.id = a.session
    $join staging.episodes e ON e.id = a.episode ORDER BY a.n
    """,
    f"""
    INSERT INTO nodes (no, repo, revision, {_names(tables.NODES)})
    SELECT :nodes + n, :repo, revision, {_names(tables.NODES)} FROM staging.nodes ORDER BY n
    """,
    """
    INSERT INTO node_keys (repo, key, node)
    SELECT DISTINCT :repo, key, :nodes + node FROM staging.keys ORDER BY 2, 3
    """,
    f"""
    INSERT INTO edges (source, target, {_names(tables.EDGES)})
    SELECT :nodes + s.n, :nodes + t.n, {tables.EDGES.of("a")} FROM staging.edges a
    $join staging.nodes s ON s.id = a.source $join staging.nodes t ON t.id = a.target
    ORDER BY a.n
    """,
    f"""
    INSERT INTO vectors (seq, repo, {_names(tables.VECTORS)})
    SELECT :vectors + n, :repo, {_names(tables.VECTORS)} FROM staging.vectors ORDER BY n
    """,
    *(_move(table) for table in OWNED.values()),
    """
    INSERT INTO message_calls (thread, call_id, seq)
    SELECT :threads + t.n, c.call_id, a.seq FROM staging.calls c
    $join staging.messages a ON a.n = c.message $join staging.threads t ON t.id = a.thread
    """,
    """
    UPDATE threads SET erased = next_seq -
        (SELECT count(*) FROM messages WHERE messages.thread = threads.no)
    WHERE repo = :repo
    """,
    """
    INSERT INTO item_vectors (repo, item, field)
    SELECT :repo, :items + item, field FROM staging.fields ORDER BY item
    """,
    # An archive has no jobs: what is left to extract is due at once.
    f"""
    INSERT INTO jobs (repo, kind, subject, due_at, state, tries, token)
    SELECT :repo, 'extract', id, '{utc_text(datetime(1970, 1, 1, tzinfo=UTC))}', 'waiting', 0, 0
    FROM threads WHERE repo = :repo AND extracted_seq < next_seq
    """,
)
_HALVES = "SELECT n, at, observation, action FROM staging.steps ORDER BY n"
_TEXTS = "SELECT n, text, at FROM staging.{} WHERE text <> '' ORDER BY n"
_NOTE_WORDS = "SELECT n, terms FROM staging.notes WHERE deleted_by IS NULL ORDER BY n"
# Records whose texts are written at once.
_BATCH = 1_000


def refuse_filled(tx: Tx, repo_id: str) -> None:
    """*Raises* ``UsageError`` if there is anything in the repository."""
    repo = repo_row(tx, repo_id)[0]
    (filled,) = tx.run(_FILLED, {"repo": repo}).fetchone()
    if filled:
        raise UsageError(f"repository {repo_id!r} is not empty: import into another one")


def move(tx: Tx, repo_id: str, head: ArchiveHead) -> None:
    """
    Put everything where it belongs.

    Raises:
        UsageError: The repository is not empty.
        Conflict: A session, episode or step was forgotten in the repository.
    """
    refuse_filled(tx, repo_id)
    refuse_erased(tx, repo_id, (id for (id,) in tx.run(_IDS)))
    repo = repo_number(tx, repo_id)
    space = (head.space.name, head.space.dimensions) if head.space else (None, None)
    tx.run(_STAMP, (head.revision, *space, repo))
    bases = {name: _base(tx, name, repo) for name in _NUMBERED}
    for statement in _MOVES:
        tx.run(statement, bases | {"repo": repo})
    _index_steps(tx, repo, bases["steps"])
    for table, row_of in (("messages", message_row), ("snapshots", snapshot_row)):
        rows = tx.run(_TEXTS.format(table))
        while batch := rows.fetchmany(_BATCH):
            texts = [(row_of(bases[table] + n), text, decode_time(at)) for n, text, at in batch]
            tx.dialect.put_texts(tx, repo, texts)
    words = tx.run(_NOTE_WORDS).fetchall()
    tx.dialect.put_note_words(tx, [(bases["notes"] + n, terms) for n, terms in words])


def _base(tx: Tx, table: str, repo: int) -> int:
    (count,) = tx.run(f"SELECT count(*) FROM staging.{table}").fetchone()
    return tx.dialect.reserve(tx, table, count, [repo])


def _index_steps(tx: Tx, repo: int, base: int) -> None:
    rows = tx.run(_HALVES)
    while batch := rows.fetchmany(_BATCH):
        texts = [
            (step_row(base + n, side), text, decode_time(at))
            for n, at, *halves in batch
            for side, text in enumerate(halves)
        ]
        tx.dialect.put_texts(tx, repo, texts)

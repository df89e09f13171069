"""
Check a store: the file is sound, every row can be decoded, and rows agree with each other.

Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from mnemo.errors import StoreCorrupt
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import composed, has_unspaced
from mnemo.store import tables
from mnemo.store.codec import decode_vector, stored_time
from mnemo.store.damage import Rows
from mnemo.store.messages import COLUMNS, MESSAGES
from mnemo.store.rows import NODES
from mnemo.store.sqlite.texts import TextTables, all_text_tables, count_texts, damaged_texts
from mnemo.store.table import Table
from mnemo.store.tx import Tx
from mnemo.values.archive import EpisodeStatus
from mnemo.values.graph import NODE_TYPES, EdgeKind
from mnemo.values.messages import SAID, Kind, Role, searchable_text

__all__ = ["ENCODED", "check_full_text", "check_rows", "check_store", "tables_of"]

_COUNTED = (
    *("repos", "sessions", "episodes", "steps", "nodes", "edges", "vectors", "threads"),
    *("messages", "message_vectors", "compactions", "snapshots", "goals", "pins"),
    *("notes", "note_versions"),
)
_SHOWN_PER_TABLE = 20


def check_store(tx: Tx) -> tuple[list[str], dict[str, int]]:
    """The problems found (none is healthy), and how many rows there are of each kind."""
    found = tx.run("PRAGMA integrity_check(20)").fetchall()
    problems = [f"damaged file: {damage}" for (damage,) in found if damage != "ok"]
    problems += [*check_rows(tx), *_disagreements(tx), *_check_texts(tx)]
    counts = {
        table: int(tx.run(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in _COUNTED
    }
    return problems, counts | {"texts": count_texts(tx)}


def check_full_text(tx: Tx) -> list[str]:
    """What FTS5 says of its own structure; for the writer, since it is asked by an ``INSERT``."""
    return damaged_texts(tx)


# ── Rows ─────────────────────────────────────────────────────────────────────────────

# The full text has its own check, and its shadow tables are not ours to read.
_TABLES = """
SELECT t.name FROM pragma_table_list t
WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name
"""
_COLUMNS = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid'
_LETTERS = {"INTEGER": "i", "REAL": "f", "FLOAT": "f", "TEXT": "s", "BLOB": "b"}

_NAMED_BY = {
    **dict.fromkeys(("nodes", "sessions", "episodes", "repos", "threads"), ("id",)),
    **dict.fromkeys(("compactions", "snapshots"), ("id",)),
    "steps": ("node_id",),
    "vectors": ("key",),
    "messages": ("thread", "id"),
    "notes": ("topic",),
}
"""The columns that a row is named by, where that is not its primary key."""


def _one_of(allowed: Sequence[str], value: str) -> None:
    if value not in allowed:
        raise ValueError(f"not one of {len(allowed)} words")


ENCODED: Mapping[tuple[str, str], Callable[[Any], object]] = {
    **{
        (table.name, column): decode
        for table in vars(tables).values()
        if isinstance(table, Table)
        for column, decode in table.decoders.items()
    },
    # What is not a field of an entity, or checked more strictly than it is read.
    ("episodes", "status"): partial(_one_of, get_args(EpisodeStatus)),
    ("messages", "role"): partial(_one_of, get_args(Role)),
    ("messages", "kind"): partial(_one_of, get_args(Kind)),
    ("steps", "recorded_at"): stored_time,
    ("nodes", "type"): partial(_one_of, tuple(NODE_TYPES)),
    **{("nodes", name): stored_time for name in ("at", "created_at", "last_accessed_at")},
    ("edges", "kind"): EdgeKind,
    **{(table, "vector"): decode_vector for table in ("vectors", "moving", "note_vectors")},
}
"""What is encoded in a column beside the bodies of nodes, and what decodes it."""


def check_rows(tx: Tx) -> Iterator[str]:
    """The damaged rows, by table and key."""
    for table in tables_of(tx):
        yield from _check_table(tx, table)


def tables_of(tx: Tx) -> list[str]:
    """The tables that the schema makes, full text aside."""
    return [name for (name,) in tx.run(_TABLES)]


def _check_table(tx: Tx, table: str) -> Iterator[str]:
    columns = tx.run(_COLUMNS, (table,)).fetchall()
    names = [name for name, *_ in columns]
    keys = _NAMED_BY.get(table) or [name for name, _, _, pk in columns if pk]
    types = [_LETTERS[type] + ("" if required or pk else "?") for _, type, required, pk in columns]
    decode = partial(_decode, table, names)
    read = Rows(table, " ".join(types), decode, key=[names.index(key) for key in keys])
    passed: list[StoreCorrupt] = []
    read.all(tx.run(f"SELECT {', '.join(names)} FROM {table}"), passed)
    for damage in passed[:_SHOWN_PER_TABLE]:
        yield f"damaged row: {table} {damage.key!r}"
    if len(passed) > _SHOWN_PER_TABLE:
        yield f"damaged rows: {len(passed) - _SHOWN_PER_TABLE} more of {table}"


def _decode(table: str, names: Sequence[str], row: Sequence[Any]) -> None:
    values = dict(zip(names, row, strict=True))
    for name, value in values.items():
        decode = ENCODED.get((table, name))
        if decode is not None and value is not None:
            decode(value)
    if table == "nodes":
        NODES.one((values["id"], values["type"], values["body"]))


# ── Agreement ────────────────────────────────────────────────────────────────────────


def _no(table: str, condition: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {table} WHERE {condition})"


_OF_THREADS = (
    *("messages", "message_calls", "message_vectors", "compactions", "snapshots", "outcomes"),
    *("goals", "pins", "surfaced"),
)
_OF_MESSAGES = ("message_calls", "message_vectors", "pins")
_OWNER = """
CASE WHEN v.key LIKE '%/observation' THEN substr(v.key, 1, length(v.key) - 12)
     WHEN v.key LIKE '%/action' THEN substr(v.key, 1, length(v.key) - 7) ELSE v.key END
"""
_NUMBER = f"CASE WHEN v.key LIKE 'message-%' THEN CAST(substr({_OWNER}, 9) AS INTEGER) END"
_UNREPLACED = """
SELECT c.id FROM {0} c WHERE c.{1} IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM {0} o WHERE o.thread = c.thread AND o.id = c.{1})
"""

_CHECKS: tuple[tuple[str, str, str], ...] = (
    (
        "vectors whose node, step or message is gone",
        "v.key",
        f"""vectors v WHERE {_no("nodes n", f"n.repo = v.repo AND n.id IN (v.key, {_OWNER})")}
        AND {_no("steps t", f"t.repo = v.repo AND t.node_id = {_OWNER} AND t.gone = 0")}
        AND {_no("messages m", f"m.repo = v.repo AND m.no = {_NUMBER}")}""",
    ),
    (
        "vectors of a wrong length",
        "v.key",
        """vectors v JOIN repos r ON r.no = v.repo
        WHERE length(v.vector) <> 4 * r.space_dimensions""",
    ),
    (
        "staged vectors of a wrong length",
        "v.key",
        """moving v JOIN repos r ON r.no = v.repo
        WHERE length(v.vector) <> 4 * r.next_space_dimensions""",
    ),
    (
        "vectors of notes of a wrong length",
        "n.topic",
        """note_vectors v JOIN notes n ON n.no = v.note
        WHERE length(v.vector) <> 4 * v.dimensions""",
    ),
    (
        "vectors of messages of a wrong length",
        "v.seq",
        """message_vectors v JOIN threads t ON t.no = v.thread JOIN repos r ON r.no = t.repo
        WHERE length(v.vector) <> 4 * r.space_dimensions""",
    ),
    (
        "edges whose end is gone",
        "e.kind",
        f"edges e WHERE {_no('nodes', 'no = e.source')} OR {_no('nodes', 'no = e.target')}",
    ),
    (
        "committed steps without their node",
        "t.node_id",
        f"""steps t WHERE t.committed = 1 AND t.gone = 0
        AND {_no("nodes n", "n.repo = t.repo AND n.id = t.node_id")}""",
    ),
    (
        "sessions that are ready without a staged changeset",
        "s.id",
        """sessions s JOIN episodes e ON e.no = s.episode
        WHERE s.state = 'ready' AND e.changeset IS NULL""",
    ),
    (
        "sessions whose episode does not fit their state",
        "s.id",
        """sessions s LEFT JOIN episodes e ON e.no = s.episode WHERE e.no IS NULL
        OR (s.state = 'idle') <> (e.status IN ('committed', 'discarded'))
        OR (s.state = 'collecting') <> (e.status = 'open')""",
    ),
    (
        "staged results of episodes that are over",
        "g.key",
        """staged g LEFT JOIN episodes e ON e.no = g.episode
        WHERE e.no IS NULL OR e.status IN ('committed', 'discarded')""",
    ),
    (
        "episodes with a gap in their steps",
        "episode",
        """(SELECT episode FROM steps GROUP BY episode HAVING max(idx) + 1 <> count(*))
        WHERE episode NOT IN (SELECT no FROM episodes WHERE erased)""",
    ),
    *(
        (f"{table} of no thread", "x.thread", f"{table} x WHERE {_no('threads', 'no = x.thread')}")
        for table in _OF_THREADS
    ),
    *(
        (
            f"{table} without their message",
            "x.seq",
            f"{table} x WHERE {_no('messages m', 'm.thread = x.thread AND m.seq = x.seq')}",
        )
        for table in _OF_MESSAGES
    ),
    (
        "threads with a gap in their seqs",
        "t.id",
        """threads t WHERE t.next_seq <>
        t.erased + (SELECT count(*) FROM messages m WHERE m.thread = t.no)
        OR EXISTS (SELECT 1 FROM messages m WHERE m.thread = t.no
                   AND (m.seq < 0 OR m.seq >= t.next_seq))""",
    ),
    (
        "threads whose boundary is not in their epoch",
        "id",
        "threads WHERE boundary < epoch_start OR boundary > next_seq OR epoch_start < 0",
    ),
    (
        "messages of another repository than their thread",
        "m.id",
        "messages m JOIN threads t ON t.no = m.thread WHERE m.repo <> t.repo",
    ),
    (
        "messages that are owed a vector and have one",
        "m.id",
        """messages m JOIN message_vectors v ON v.thread = m.thread AND v.seq = m.seq
        WHERE m.owed = 1""",
    ),
    (
        "messages whose calls are not known by their ids",
        "m.id",
        f"""messages m WHERE m.tool_calls IS NOT NULL AND EXISTS
        (SELECT 1 FROM json_each(iif(json_valid(m.tool_calls), m.tool_calls, '[]')) c
         WHERE c.type = 'array' AND {
            _no(
                "message_calls k",
                "k.thread = m.thread AND k.call_id = c.value ->> '$[0]' AND k.seq = m.seq",
            )
        })""",
    ),
    (
        "outcomes that do not follow each other",
        "id",
        """(SELECT t.id, o.from_seq, o.to_seq,
                lag(o.to_seq) OVER (PARTITION BY o.thread, o.epoch ORDER BY o.from_seq) AS before
         FROM outcomes o JOIN threads t ON t.no = o.thread)
        WHERE to_seq < from_seq OR before + 1 <> from_seq""",
    ),
    (
        "outcomes whose snapshot is gone",
        "o.snapshot_id",
        f"""outcomes o WHERE o.snapshot_id IS NOT NULL
        AND {_no("snapshots s", "s.thread = o.thread AND s.id = o.snapshot_id")}""",
    ),
    (
        "summaries whose replacement is gone",
        "id",
        f"""({_UNREPLACED.format("compactions", "superseded_by")}
        UNION ALL {_UNREPLACED.format("snapshots", "covered_by")})""",
    ),
    (
        "goals whose root is gone",
        "g.id",
        f"""goals g WHERE g.parent_id IS NOT NULL
        AND {_no("goals r", "r.thread = g.thread AND r.id = g.parent_id")}""",
    ),
    (
        "records that came to mind in no turn",
        "x.record",
        "surfaced_records x WHERE "
        + _no("surfaced s", "s.thread = x.thread AND s.epoch = x.epoch AND s.seq = x.seq"),
    ),
)
"""What must not be there, the column of an example, and the rows where it is."""


def _disagreements(tx: Tx) -> Iterator[str]:
    for what, example, rows in _CHECKS:
        query = f"SELECT count(*), min({example}) FROM {rows}"
        count, found = tx.run(query).fetchone()
        if count:
            yield f"{count} {what}, e.g. {found}"


# ── Full text ────────────────────────────────────────────────────────────────────────

_UNINDEXED = """
SELECT count(*), min(t.node_id) FROM steps t JOIN repos r ON r.no = t.repo
WHERE r.texts IS NULL AND (t.observation <> '' OR t.action <> '')
"""
_STEPS_INDEXED = """
SELECT count(*), min(t.node_id) FROM repos r CROSS JOIN steps t ON t.repo = r.no
WHERE r.texts = ? AND
((t.observation <> '' AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE f.rowid = 4 * t.ordinal AND f.text = t.observation))
OR (t.action <> '' AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE f.rowid = 4 * t.ordinal + 1 AND f.text = t.action)))
"""
_SNAPSHOTS = """
SELECT count(*), min(s.id) FROM repos r CROSS JOIN threads t ON t.repo = r.no
CROSS JOIN snapshots s ON s.thread = t.no WHERE r.texts = ? AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE f.rowid = 4 * s.no + 3 AND f.text = s.text)
"""
# A CASE, so that each row is looked for in one table.
_LOST = """
SELECT count(*), min(f.rowid) FROM {words} f WHERE NOT EXISTS
(SELECT 1 FROM repos r WHERE r.texts = ? AND r.no = CASE f.rowid % 4
    WHEN 2 THEN (SELECT repo FROM messages WHERE no = f.rowid / 4)
    WHEN 3 THEN (SELECT t.repo FROM snapshots s CROSS JOIN threads t ON t.no = s.thread
                 WHERE s.no = f.rowid / 4)
    ELSE (SELECT repo FROM steps WHERE ordinal = f.rowid / 4) END)
"""
_MESSAGES = f"""
SELECT {COLUMNS}, f.text FROM repos r CROSS JOIN messages m ON m.repo = r.no
CROSS JOIN threads t ON t.no = m.thread LEFT JOIN {{words}} f ON f.rowid = 4 * m.no + 2
WHERE r.texts = ?
"""
_TRIPLES = """
SELECT f.rowid, f.text, g.text FROM {words} f LEFT JOIN {grams} g ON g.rowid = f.rowid
"""
_ONLY_WORDS = "SELECT f.rowid, f.text, NULL FROM {words} f"
_LOST_TRIPLES = """
SELECT count(*), min(g.rowid) FROM {grams} g
WHERE NOT EXISTS (SELECT 1 FROM {words} f WHERE f.rowid = g.rowid)
"""


def _check_texts(tx: Tx) -> Iterator[str]:
    """Whether every repository's full text is that of its records."""
    yield from _told("steps without their full-text row", tx.run(_UNINDEXED))
    for pair in all_text_tables(tx):
        yield from _check_pair(tx, pair)


def _check_pair(tx: Tx, pair: TextTables) -> Iterator[str]:
    words, grams = pair.words, pair.grams
    number = str(words).rpartition("_")[2]

    def rows(query: str) -> Iterable[tuple[Any, ...]]:
        values = (int(number),) if "?" in query else ()
        return tx.run(query.format(words=words, grams=grams), values)

    yield from _told("steps without their full-text row", rows(_STEPS_INDEXED))
    yield from _told("snapshots without their full-text row", rows(_SNAPSHOTS))
    yield from _told("full-text rows without their record", rows(_LOST))
    yield from _counted("messages whose full-text row does not fit", rows(_MESSAGES), _misfit)
    triples = rows(_TRIPLES if grams else _ONLY_WORDS)
    yield from _counted("texts whose triples do not fit", triples, _untold)
    if grams:
        yield from _told("triples without their text", rows(_LOST_TRIPLES))


def _told(what: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    for count, example in rows:
        if count:
            yield f"{count} {what}, e.g. {example}"


def _counted(
    what: str,
    rows: Iterable[tuple[Any, ...]],
    wrong: Callable[[tuple[Any, ...]], str | int | None],
) -> Iterator[str]:
    breather, found = Breather(), []
    for row in rows:
        breather.breathe()
        if (example := wrong(row)) is not None:
            found.append(example)
    if found:
        yield f"{len(found)} {what}, e.g. {found[0]}"


def _misfit(row: tuple[Any, ...]) -> str | None:
    """The id of a message that is not searched by what it should be."""
    try:
        message, indexed = MESSAGES.one(row), row[-1]
    except StoreCorrupt:
        return None  # the check of rows names it
    told = message.kind in SAID
    text = searchable_text(message, tools=True)
    fits = indexed == (text or None)
    return None if fits or (not told and indexed is None) else message.id


def _untold(row: tuple[Any, ...]) -> int | None:
    """The number of a row that has no triples and needs them, or other ones than its own."""
    number, text, triples = row
    return None if triples == (composed(text) if has_unspaced(text) else None) else number

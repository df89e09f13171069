"""Check a store: file, rows and their agreement; a repair mends what other rows contradict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from mnemo.errors import StoreCorrupt
from mnemo.store import tables
from mnemo.store.codec import checked_node, decode_time, decode_vector, utc_text
from mnemo.store.rows import Rows
from mnemo.store.tables import CALLING, CALLS
from mnemo.store.text_check import check_texts
from mnemo.store.tx import Column, Tx

_COUNTED = (
    *("repos", "sessions", "episodes", "steps", "nodes", "edges", "vectors", "threads"),
    *("messages", "compactions", "snapshots", "goals", "pins", "texts"),
    *("notes", "note_versions", "checkpoints", "items", "item_vectors"),
)
_SHOWN_PER_TABLE = 20


def check_store(tx: Tx) -> tuple[list[str], dict[str, int]]:
    """The problems found (none is healthy), and how many rows there are of each kind."""
    dialect = tx.dialect
    problems = [f"damaged file: {damage}" for damage in dialect.damage(tx)]
    problems += [*check_rows(tx), *_disagreements(tx), *check_texts(tx)]
    counts = {
        table: int(tx.run(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in _COUNTED
    }
    return problems, counts


# ── Rows ─────────────────────────────────────────────────────────────────────────────

_NAMED_BY = {
    **dict.fromkeys(("nodes", "sessions", "episodes", "repos", "threads"), ("id",)),
    **dict.fromkeys(("compactions", "snapshots"), ("id",)),
    "steps": ("node_id",),
    "vectors": ("key",),
    "messages": ("thread", "id"),
    "notes": ("topic",),
    "items": ("namespace", "key"),
}
"""The columns that a row is named by, where that is not its primary key."""


JUDGES: Mapping[tuple[str, str], Callable[[Any], object]] = {
    **{
        (table.name, column): judge
        for table in (*tables.TABLES.values(), tables.ANNOTATIONS)
        for column, judge in table.judges.items()
    },
    # What is not a field of an entity.
    ("steps", "recorded_at"): decode_time,
    **{(table, "vector"): decode_vector for table in ("moving", "note_vectors", "item_vectors")},
}
"""What raises for a value that its column cannot hold, beside the bodies of nodes."""


def check_rows(tx: Tx) -> Iterator[str]:
    """The damaged rows, by table and key."""
    for table, columns in tx.dialect.columns(tx).items():
        yield from _check_table(tx, table, columns)


def _check_table(tx: Tx, table: str, columns: Sequence[Column]) -> Iterator[str]:
    names = [column.name for column in columns]
    keys = _NAMED_BY.get(table) or [column.name for column in columns if column.is_key]
    types = [c.letter + ("" if c.is_required or c.is_key else "?") for c in columns]
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
        judge = JUDGES.get((table, name))
        if judge is not None and value is not None:
            judge(value)
    if table == "nodes":
        columns = tables.NODES.columns
        checked_node(tables.NODES.read([values[column] for column in columns]))


# ── Agreement ────────────────────────────────────────────────────────────────────────


def _no(table: str, condition: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {table} WHERE {condition})"


_OF_THREADS = (
    "message_calls",
    *(table.name for table in tables.TABLES.values() if "thread" in table.parents),
)
_OF_MESSAGES = ("message_calls", "pins")
_DOCUMENT = "CASE WHEN v.key LIKE '%#_' THEN substr(v.key, 1, length(v.key) - 2) ELSE v.key END"
_OWNER = f"""
CASE WHEN {_DOCUMENT} LIKE '%/observation' THEN substr(v.key, 1, length({_DOCUMENT}) - 12)
     WHEN {_DOCUMENT} LIKE '%/action' THEN substr(v.key, 1, length({_DOCUMENT}) - 7)
     ELSE {_DOCUMENT} END
"""
_NUMBER = f"CASE WHEN v.key LIKE 'message-%' THEN CAST(substr({_OWNER}, 9) AS BIGINT) END"
DANGLING_VECTORS = f"""
v WHERE {_no("nodes n", f"n.repo = v.repo AND n.id IN (v.key, {_OWNER})")}
AND {_no("steps t", f"t.repo = v.repo AND t.node_id = {_OWNER} AND t.gone = 0")}
AND {_no("messages m", f"m.repo = v.repo AND m.no = {_NUMBER}")}
"""
"""Which vectors have no owner any more, behind their table."""
_REPO = "v JOIN repos r ON r.no = v.repo"
_THREAD = "no = x.thread AND $also repo = x.repo"
_MESSAGE = "m.repo = x.repo AND m.thread = x.thread AND m.seq = x.seq"
_SNAPSHOT = "s.repo = o.repo AND s.thread = o.thread AND s.id = o.snapshot_id"
_END = "no = e.{} AND $also repo = e.repo"
_NOTE = "v JOIN notes n ON n.no = v.note AND $also n.repo = v.repo"
_UNREPLACED = """
SELECT c.id FROM {0} c WHERE c.{1} IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM {0} o WHERE o.repo = c.repo AND o.thread = c.thread AND o.id = c.{1})
"""

_CHECKS: tuple[tuple[str, str, str], ...] = (
    ("vectors whose node, step or message is gone", "v.key", f"vectors AS {DANGLING_VECTORS}"),
    *(
        (f"{what} of a wrong length", example, f"{rows} WHERE length(v.vector) <> 4 * {dimensions}")
        for what, example, rows, dimensions in (
            ("vectors", "v.key", f"vectors {_REPO}", "r.space_dimensions"),
            ("staged vectors", "v.key", f"moving {_REPO}", "r.next_space_dimensions"),
            ("vectors of items", "v.field", f"item_vectors {_REPO}", "r.space_dimensions"),
            ("vectors of notes", "n.topic", f"note_vectors {_NOTE}", "v.dimensions"),
        )
    ),
    (
        "vectors whose item or its text is gone",
        "v.field",
        "item_vectors v WHERE "
        + _no("items i", "i.no = v.item AND $also i.repo = v.repo AND v.field IN $firsts(i.texts)"),
    ),
    (
        "edges whose end is gone",
        "e.kind",
        "edges e WHERE "
        + " OR ".join(_no("nodes", _END.format(end)) for end in ("source", "target")),
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
        """sessions s JOIN episodes e ON e.no = s.episode AND $also e.repo = s.repo
        WHERE s.state = 'ready' AND e.changeset IS NULL""",
    ),
    (
        "sessions whose episode does not fit their state",
        "s.id",
        """sessions s LEFT JOIN episodes e ON e.no = s.episode AND $also e.repo = s.repo
        WHERE e.no IS NULL
        OR (s.state = 'idle') <> (e.status IN ('committed', 'discarded'))
        OR (s.state = 'collecting') <> (e.status = 'open')""",
    ),
    (
        "episodes of another repository than their session",
        "e.id",
        f"episodes e WHERE {_no('sessions', 'no = e.session AND $also repo = e.repo')}",
    ),
    (
        "staged results of episodes that are over",
        "g.key",
        """staged g LEFT JOIN episodes e ON e.no = g.episode AND $also e.repo = g.repo
        WHERE e.no IS NULL OR e.status IN ('committed', 'discarded')""",
    ),
    (
        "episodes with a gap in their steps",
        "episode",
        """(SELECT t.episode FROM steps t
            LEFT JOIN episodes e ON e.no = t.episode AND $also e.repo = t.repo
            WHERE coalesce(e.erased, 0) = 0 GROUP BY t.repo, t.episode
            HAVING max(t.idx) + 1 <> count(*)) x""",
    ),
    *(
        (f"{table} of no thread", "x.thread", f"{table} x WHERE {_no('threads', _THREAD)}")
        for table in _OF_THREADS
    ),
    *(
        (
            f"{table} without their message",
            "x.seq",
            f"{table} x WHERE {_no('messages m', _MESSAGE)}",
        )
        for table in _OF_MESSAGES
    ),
    (
        "threads with a gap in their seqs",
        "t.id",
        """threads t WHERE t.next_seq <>
        t.erased + (SELECT count(*) FROM messages m WHERE m.repo = t.repo AND m.thread = t.no)
        OR EXISTS (SELECT 1 FROM messages m WHERE m.repo = t.repo AND m.thread = t.no
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
        f"messages m WHERE {_no('threads', 'no = m.thread AND $also repo = m.repo')}",
    ),
    (
        "snapshots of another repository than their thread",
        "n.id",
        f"snapshots n WHERE {_no('threads', 'no = n.thread AND $also repo = n.repo')}",
    ),
    (
        "outcomes that do not follow each other",
        "id",
        """(SELECT t.id, o.from_seq, o.to_seq,
                lag(o.to_seq)
                OVER (PARTITION BY o.repo, o.thread, o.epoch ORDER BY o.from_seq) AS before
         FROM outcomes o JOIN threads t ON t.no = o.thread AND $also t.repo = o.repo) x
        WHERE to_seq < from_seq OR before + 1 <> from_seq""",
    ),
    (
        "outcomes whose snapshot is gone",
        "o.snapshot_id",
        f"""outcomes o WHERE o.snapshot_id IS NOT NULL
        AND {_no("snapshots s", _SNAPSHOT)}""",
    ),
    (
        "summaries whose replacement is gone",
        "id",
        f"""({_UNREPLACED.format("compactions", "superseded_by")}
        UNION ALL {_UNREPLACED.format("snapshots", "covered_by")}) x""",
    ),
    (
        "goals whose root is gone",
        "g.id",
        f"""goals g WHERE g.parent_id IS NOT NULL
        AND {_no("goals r", "r.repo = g.repo AND r.thread = g.thread AND r.id = g.parent_id")}""",
    ),
    (
        "checkpoints without the value of a channel",
        "c.id",
        f"""checkpoints c WHERE EXISTS (SELECT 1 FROM
        $entries(c.versions) j WHERE {
            _no(
                "checkpoint_values v",
                "v.repo = c.repo AND v.thread_id = c.thread_id AND v.namespace = c.namespace "
                "AND v.channel = j.key AND v.version = j.value",
            )
        })""",
    ),
    (
        "records that came to mind in no turn",
        "x.record",
        "surfaced_records x WHERE "
        + _no(
            "surfaced s",
            "s.repo = x.repo AND s.thread = x.thread AND s.epoch = x.epoch AND s.seq = x.seq",
        ),
    ),
)
"""What must not be there, the column of an example, and the rows where it is."""


def _disagreements(tx: Tx) -> Iterator[str]:
    for what, example, rows in _CHECKS:
        query = f"SELECT count(*), min({example}) FROM {rows}"
        count, found = tx.run(query).fetchone()
        if count:
            yield f"{count} {what}, e.g. {found}"
    known = set(tx.run("SELECT repo, thread, call_id, seq FROM message_calls"))
    calls = CALLS.all(tx.run(CALLING.format("tool_calls IS NOT NULL")), [])
    unknown = [call for made in calls for call in made if call not in known]
    if unknown:
        what = "messages whose calls are not known by their ids"
        yield f"{len(unknown)} {what}, e.g. {unknown[0][2]}"


# Where messages were erased, those that are left may end before the thread does.
_NEXT = """
$greatest(
    erased + (SELECT count(*) FROM messages m
              WHERE m.repo = threads.repo AND m.thread = threads.no),
    (SELECT coalesce(max(m.seq) + 1, 0) FROM messages m
     WHERE m.repo = threads.repo AND m.thread = threads.no)
)
"""
_ADVANCE = f"""
UPDATE threads SET next_seq = {_NEXT} WHERE next_seq < {_NEXT} RETURNING repo, id
"""
_OWE_REST = """
UPDATE jobs SET state = 'waiting', due_at = ?
WHERE repo = ? AND subject = ? AND kind = 'extract' AND state = 'done' AND EXISTS
    (SELECT 1 FROM threads t
     WHERE t.repo = jobs.repo AND t.id = jobs.subject AND t.extracted_seq < t.next_seq)
"""
_DROP_DANGLING = f"DELETE FROM vectors AS {DANGLING_VECTORS}"


def repair_store(tx: Tx, now: datetime) -> list[str]:
    """
    Repair threads and vectors of all repositories; give what was done.

    In earlier versions a commit could undo what another process wrote to the thread at the same
    time: ``next_seq`` went back, and the job that was left for the later messages was done.
    """
    done = []
    if threads := tx.run(_ADVANCE).fetchall():
        tx.run_many(_OWE_REST, [(utc_text(now), *thread) for thread in threads])
        first = min(id for _, id in threads)
        done.append(f"{len(threads)} threads whose next seq was behind, e.g. {first}")
    if vectors := tx.run(_DROP_DANGLING).rowcount:
        done.append(f"{vectors} vectors whose node, step or message is gone")
    return done

"""What the rows of a log agree on in a store, and what a repair mends of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from mnemo.log.erase_messages import CALLING, CALLS
from mnemo.store.check import Rule, absent
from mnemo.store.tables import TABLES
from mnemo.store.tx import Tx
from mnemo.values.codec import utc_text

_OF_THREADS = (
    "message_calls",
    *(table.name for table in TABLES.values() if "thread" in table.parents),
)
_OF_MESSAGES = ("message_calls", "pins")
_THREAD = "no = x.thread AND $also repo = x.repo"
_MESSAGE = "m.repo = x.repo AND m.thread = x.thread AND m.seq = x.seq"
_ROOT = "r.repo = g.repo AND r.thread = g.thread AND r.id = g.parent_id"
_SNAPSHOT = "s.repo = o.repo AND s.thread = o.thread AND s.id = o.snapshot_id"
_UNREPLACED = """
SELECT c.id FROM {0} c WHERE c.{1} IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM {0} o WHERE o.repo = c.repo AND o.thread = c.thread AND o.id = c.{1})
"""


RULES: tuple[Rule, ...] = (
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
        f"episodes e WHERE {absent('sessions', 'no = e.session AND $also repo = e.repo')}",
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
        (f"{table} of no thread", "x.thread", f"{table} x WHERE {absent('threads', _THREAD)}")
        for table in _OF_THREADS
    ),
    *(
        (
            f"{table} without their message",
            "x.seq",
            f"{table} x WHERE {absent('messages m', _MESSAGE)}",
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
        f"messages m WHERE {absent('threads', 'no = m.thread AND $also repo = m.repo')}",
    ),
    (
        "snapshots of another repository than their thread",
        "n.id",
        f"snapshots n WHERE {absent('threads', 'no = n.thread AND $also repo = n.repo')}",
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
        AND {absent("snapshots s", _SNAPSHOT)}""",
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
        AND {absent("goals r", _ROOT)}""",
    ),
    (
        "records that came to mind in no turn",
        "x.record",
        "surfaced_records x WHERE "
        + absent(
            "surfaced s",
            "s.repo = x.repo AND s.thread = x.thread AND s.epoch = x.epoch AND s.seq = x.seq",
        ),
    ),
)


def unknown_calls(tx: Tx) -> Iterator[str]:
    """Messages whose calls are not among ``message_calls``."""
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


def advance_threads(tx: Tx, now: datetime) -> list[str]:
    """
    Repair threads of all repositories; give what was done.

    In earlier versions a commit could undo what another process wrote to the thread at the same
    time: ``next_seq`` went back, and the job that was left for the later messages was done.
    """
    threads = tx.run(_ADVANCE).fetchall()
    if not threads:
        return []
    tx.run_many(_OWE_REST, [(utc_text(now), *thread) for thread in threads])
    return [f"{len(threads)} threads whose next seq was behind, e.g. {min(t[1] for t in threads)}"]

"""What the rows of a log agree on: in a store, and as records of an archive that are staged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from mnemo.log.erase_messages import CALLING, CALLS
from mnemo.store.archive_checks import StagedRule, twice
from mnemo.store.check import Rule, absent
from mnemo.store.tables import ANNOTATIONS, TABLES
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


# ── Staged records of an archive ─────────────────────────────────────────────────────

_THREAD_ENDS = {
    "messages": "a.seq >= t.next_seq",
    "compactions": "a.end_seq >= t.next_seq",
    "snapshots": "a.to_seq >= t.next_seq",
    "outcomes": "a.to_seq >= t.next_seq",
    "goals": "a.id >= t.next_goal",
    "pins": "a.seq >= t.next_seq",
}
_PAST_END = """
SELECT a.line FROM staging.{} a JOIN staging.threads t ON t.id = a.thread
WHERE a.epoch > t.epoch OR {} ORDER BY a.n
"""

_LAST = "SELECT max(n) FROM staging.episodes WHERE session = s.id"
_FITTING = """
CASE s.state WHEN 'idle' THEN e.status IN ('committed', 'discarded')
             WHEN 'collecting' THEN e.status = 'open' ELSE e.status = 'closed' END
"""

_PARTLY = " OR ".join(
    f"({column} IS NULL) <> (subgoal IS NULL)"
    if type.endswith("NOT NULL")
    else f"({column} IS NOT NULL AND subgoal IS NULL)"
    for column, type in ANNOTATIONS.types.items()
)

STAGED: tuple[StagedRule, ...] = (
    (
        "its key is there twice in its session",
        twice("steps", ("session", "key"), "key IS NOT NULL"),
    ),
    (
        "its episode is of another session",
        """SELECT t.line FROM staging.steps t WHERE NOT EXISTS (SELECT 1 FROM staging.episodes e
           WHERE e.id = t.episode AND e.session = t.session) ORDER BY t.n""",
    ),
    ("its annotation is not whole", f"SELECT line FROM staging.steps WHERE {_PARTLY} ORDER BY n"),
    (
        "its episode is over",
        """SELECT g.line FROM staging.staged g WHERE NOT EXISTS
           (SELECT 1 FROM staging.episodes e WHERE e.id = g.episode
            AND e.status IN ('open', 'closed')) ORDER BY g.n""",
    ),
    (
        "the state of the session does not fit its last episode",
        f"""SELECT s.line FROM staging.sessions s WHERE NOT EXISTS
            (SELECT 1 FROM staging.episodes e WHERE e.n = ({_LAST}) AND {_FITTING}
             AND (s.state <> 'ready' OR e.changeset IS NOT NULL)) ORDER BY s.n""",
    ),
    (
        "an episode that is not over must be the last of its session",
        f"""SELECT e.line FROM staging.episodes e JOIN staging.sessions s ON s.id = e.session
            WHERE e.status IN ('open', 'closed') AND e.n <> ({_LAST}) ORDER BY e.n""",
    ),
    (
        "its index does not follow that of the step before it",
        """SELECT line FROM
           (SELECT t.n, t.line, t.idx, e.status IN ('open', 'closed') AS unfinished,
                   coalesce(lag(t.idx) OVER (PARTITION BY t.episode ORDER BY t.n), -1) AS before
            FROM staging.steps t JOIN staging.episodes e ON e.id = t.episode) x
           WHERE idx <= before OR (unfinished AND idx <> before + 1) ORDER BY n""",
    ),
    *(
        ("it is past the end of its thread", _PAST_END.format(table, end))
        for table, end in _THREAD_ENDS.items()
    ),
    (
        "the message that it pins is not in the archive",
        """SELECT p.line FROM staging.pins p WHERE NOT EXISTS
           (SELECT 1 FROM staging.messages m WHERE m.thread = p.thread AND m.seq = p.seq
            AND m.id = p.message_id) ORDER BY p.n""",
    ),
    *(
        (
            "the summary that it names is not in the archive",
            f"""SELECT a.line FROM staging.{table} a WHERE a.{column} IS NOT NULL AND NOT EXISTS
                (SELECT 1 FROM staging.{named} b WHERE b.thread = a.thread AND b.id = a.{column})
                ORDER BY a.n""",
        )
        for table, column, named in (
            ("compactions", "superseded_by", "compactions"),
            ("snapshots", "covered_by", "snapshots"),
            ("outcomes", "snapshot_id", "snapshots"),
        )
    ),
)
_UNFINISHED_WITH_GAP = """
SELECT e.id FROM staging.episodes e WHERE e.status IN ('open', 'closed') AND
(SELECT max(t.idx) + 1 - count(*) FROM staging.steps t WHERE t.episode = e.id) > 0
"""
SETTLE = (
    # A raw step whose node was left out stays as one that was not committed.
    """UPDATE staging.steps SET committed = 0 WHERE committed = 1 AND gone = 0
       AND NOT EXISTS (SELECT 1 FROM staging.nodes n WHERE n.id = steps.node_id)""",
    # An episode that lacks a step cannot go on: it ends, and its session rests.
    f"""UPDATE staging.steps SET gone = 1
        WHERE committed = 0 AND episode IN ({_UNFINISHED_WITH_GAP})""",
    f"DELETE FROM staging.staged WHERE episode IN ({_UNFINISHED_WITH_GAP})",
    f"""UPDATE staging.sessions SET state = 'idle', error = NULL, error_trajectory = NULL
        WHERE id IN (SELECT session FROM staging.episodes WHERE id IN ({_UNFINISHED_WITH_GAP}))""",
    f"""UPDATE staging.episodes SET status = 'discarded', changeset = NULL, changeset_steps = NULL
        WHERE id IN ({_UNFINISHED_WITH_GAP})""",
)
"""How what lacks records that were left out becomes whole, before *STAGED* are looked for."""
MOVES = (
    """
    INSERT INTO message_calls (repo, thread, call_id, seq)
    SELECT :repo, :threads + t.n, c.call_id, a.seq FROM staging.calls c
    $join staging.messages a ON a.n = c.message $join staging.threads t ON t.id = a.thread
    """,
    """
    UPDATE threads SET erased = next_seq -
        (SELECT count(*) FROM messages m WHERE m.repo = threads.repo AND m.thread = threads.no)
    WHERE repo = :repo
    """,
    # An archive has no jobs: what is left to extract is due at once.
    f"""
    INSERT INTO jobs (repo, kind, subject, due_at, state, tries, token)
    SELECT :repo, 'extract', id, '{utc_text(datetime(1970, 1, 1, tzinfo=UTC))}', 'waiting', 0, 0
    FROM threads WHERE repo = :repo AND extracted_seq < next_seq
    """,
)

"""Jobs as rows, and what their sessions have made of messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from mnemo.errors import StoreCorrupt
from mnemo.jobs.owners import still_owns
from mnemo.store.codec import decode_list, utc_text
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.rows import chunks, holes, messages_among
from mnemo.store.tables import JOBS
from mnemo.store.tx import Tx
from mnemo.values.jobs import Job, JobState
from mnemo.values.journal import Owner

# ``$by``: thousands of jobs that are done must not be looked at.
_OF_STATE = f"""
SELECT {", ".join(JOBS.columns)} FROM jobs $by(jobs_pending)
WHERE repo = ? AND state = ? AND state <> 'done'
"""
_COUNTS = """
SELECT state, count(*) FROM jobs $by(jobs_pending)
WHERE repo = ? AND state <> 'done' GROUP BY state
"""
_OWING = """
SELECT r.id, j.owner, j.kind, min(j.due_at) AS first FROM jobs j JOIN repos r ON r.no = j.repo
WHERE j.state = 'running' OR (j.state = 'waiting' AND j.due_at <= ?)
GROUP BY r.id, j.owner, j.kind, j.state ORDER BY first, r.id
"""
_CLAIMS = Rows("jobs", "s s? s", lambda row: (row[0], row[1], row[2]))
_LEVELS = Rows("jobs", "s i", lambda row: (JobState(row[0]), int(row[1])))
_EXTRACTING = """
SELECT id FROM sessions WHERE repo = ? AND thread_id = ? AND state <> 'idle' ORDER BY no
"""
_OF_MESSAGES = """
FROM steps t JOIN sessions s ON s.no = t.session
WHERE t.repo = ? AND t.thread IN ({}) AND t.message IN ({})
"""
_STEPPED = {
    by_job: f"SELECT DISTINCT t.thread, t.message {_OF_MESSAGES} AND s.thread_id IS {null}"
    for by_job, null in ((False, "NULL"), (True, "NOT NULL"))
}
_MADE = f"""
SELECT DISTINCT e.id, e.receipt_nodes, e.no
{_OF_MESSAGES.replace("WHERE", "JOIN episodes e ON e.no = t.episode WHERE")}
AND s.thread_id = ? ORDER BY e.no
"""
_RECEIPTS = Rows("episodes", "s s i", lambda row: decode_list(row[1], str))


def find_jobs(
    tx: Tx, repo: int, state: JobState, *, due: datetime | None, limit: int | None
) -> list[Job]:
    """Jobs in *state* by the time when they are due; damaged ones are passed by."""
    query, values = _OF_STATE, [repo, str(state)]
    if due is not None:
        query, values = query + " AND due_at <= ?", [*values, utc_text(due)]
    query += " ORDER BY due_at, subject"
    if limit is not None:
        query, values = query + " LIMIT ?", [*values, limit]
    passed: Passed = []
    found = JOBS.rows.all(tx.run(query, values), passed)
    log_passed(passed)
    return found


def owing(tx: Tx, me: Owner, *, kinds: Collection[str] | None, now: datetime) -> list[str]:
    """
    Ids of the repositories with a job that *me* could claim now, the longest due first.

    Args:
        kinds: Of jobs; ``None``: all.
    """
    passed: Passed = []
    held: dict[str | None, bool] = {None: False, me.token: False}
    found: dict[str, None] = {}
    for id, owner, kind in _CLAIMS.all(tx.run(_OWING, (utc_text(now),)).fetchall(), passed):
        if owner not in held:
            held[owner] = is_held_by(tx, owner, me=me, now=now)
        if not held[owner] and (kinds is None or kind in kinds):
            found[id] = None
    log_passed(passed)
    return list(found)


def is_held_by(tx: Tx, token: str, *, me: Owner, now: datetime) -> bool:
    """
    Whether the service *token* keeps its claims from *me*.

    One whose row is damaged does not: the job's token refuses what it may still write.
    """
    try:
        return still_owns(tx, token, me=me, now=now)
    except StoreCorrupt as damage:
        log_passed([damage])
        return False


def job_counts(tx: Tx, repo: int) -> dict[JobState, int]:
    """How many jobs there are in each state, those that are done and damaged ones aside."""
    passed: Passed = []
    found = _LEVELS.all(tx.run(_COUNTS, (repo,)), passed)
    log_passed(passed)
    return dict(found)


def extracting(tx: Tx, repo: int, thread_id: str) -> list[str]:
    """Ids of the sessions of the thread's job that are not idle."""
    return [id for (id,) in tx.run(_EXTRACTING, (repo, thread_id))]


def stepped_messages(
    tx: Tx, repo: int, messages: Iterable[tuple[str, str]], *, by_job: bool
) -> set[tuple[str, str]]:
    """Those of *messages*, by thread and id, that are steps of a session by hand, or of a job's."""
    return messages_among(tx, _STEPPED[by_job], repo, messages)


def made_of(tx: Tx, repo: int, thread_id: str, ids: Sequence[str]) -> list[str]:
    """Ids of the nodes that the job's commits of these messages left."""
    found: dict[str, None] = {}
    for chunk in chunks(list(dict.fromkeys(ids))):
        rows = tx.run(_MADE.format("?", holes(chunk)), (repo, thread_id, *chunk, thread_id))
        for receipt in _RECEIPTS.all(rows):
            found.update(dict.fromkeys(receipt))
    return list(found)

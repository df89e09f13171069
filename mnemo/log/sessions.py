"""The journal of a repository's sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from mnemo.errors import NotFound, SessionBusy
from mnemo.jobs.job_rows import LeaseTime, holder_named, still_owns
from mnemo.log.acts import create_session, encode_staged, write_act
from mnemo.log.steps import Handed
from mnemo.store.codec import (
    decode_changeset,
    decode_list,
    decode_time,
)
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.engine import Bulk, Engine, compute, session_lock
from mnemo.store.table import ARRIVAL
from mnemo.store.tables import STAGED, STEP_COLUMNS, STEPS
from mnemo.store.tx import Tx
from mnemo.values.journal import (
    Act,
    ChangesetStaged,
    EpisodeDiscarded,
    Journal,
    Owner,
    SessionRecord,
    SessionState,
    TrajectoryStaged,
)
from mnemo.values.steps import Step, StepDraft

_RECORDS = """
SELECT s.id, r.id, e.goal, s.state, e.id, s.no, e.no,
       (SELECT count(*) FROM steps WHERE episode = e.no),
       $greatest(s.updated_at, coalesce((SELECT recorded_at FROM steps WHERE episode = e.no
                                   ORDER BY idx DESC LIMIT 1), '')), s.thread_id
FROM sessions s JOIN repos r ON r.no = s.repo JOIN episodes e ON e.no = s.episode
"""
_ONE_RECORD = _RECORDS + "WHERE r.id = ? AND s.id = ?"
_REPO_RECORDS = _RECORDS + "WHERE r.id = ? ORDER BY 9 DESC, s.no DESC"
# What the jobs of threads left behind is theirs.
_UNFINISHED_RECORDS = (
    _RECORDS
    + "WHERE r.id = ? AND s.state <> 'idle' AND s.thread_id IS NULL ORDER BY 9 DESC, s.no DESC"
)
_REST = """
SELECT e.id, s.error, s.error_trajectory, e.changeset, e.changeset_steps, e.receipt_nodes
FROM sessions s JOIN episodes e ON e.no = s.episode WHERE s.no = ?
"""
_STEPS = f"""
SELECT {STEP_COLUMNS}, t.committed FROM steps t
JOIN episodes e ON e.no = t.episode JOIN sessions s ON s.no = t.session
WHERE t.episode = ? ORDER BY t.idx
"""
_KEYED = f"""
SELECT {STEP_COLUMNS} FROM steps t
JOIN episodes e ON e.no = t.episode JOIN sessions s ON s.no = t.session
WHERE t.session = ? AND t.key IS NOT NULL ORDER BY t.ordinal
"""
_STAGED = f"{STAGED.select} ORDER BY {ARRIVAL}"
_THIS = "repo = (SELECT no FROM repos WHERE id = ?) AND id = ?"
_HOLDER = f"SELECT no, owner FROM sessions WHERE {_THIS}"
_CLAIM = "UPDATE sessions SET owner = ? WHERE no = ?"
_RELEASE = f"UPDATE sessions SET owner = NULL WHERE {_THIS} AND owner = ?"


class StoredSessions:
    """
    The journal of one repository's sessions. Every method is one transaction.

    Args:
        append_steps: Writes what is handed over; one for all repositories of the store.
    """

    def __init__(
        self, repo_id: str, engine: Engine, append_steps: Bulk, lease_time: LeaseTime
    ) -> None:
        self._repo_id = repo_id
        self._engine = engine
        self._append_steps = append_steps
        self._lease_time = lease_time

    async def create(self, record: SessionRecord, *, goal_at: datetime, owner: Owner) -> None:
        """
        Record a new session with its open episode.

        Raises:
            Conflict: The repository ever had a session of this id. *Cancellation*: completes.
        """
        if record.episode_id is None:
            raise ValueError("a new session needs the id of its episode")
        await self._engine.writing(
            lambda tx: create_session(tx, record, goal_at, owner.token),
            locks=[self._lock(record.id)],
        )

    def append(
        self,
        session_id: str,
        episode_id: str,
        draft: StepDraft,
        owner: Owner,
        done: Callable[[Step | BaseException], None],
    ) -> None:
        """
        Hand a step to the writer, in this turn of the loop; a plain call.

        *done* is called once, on the event loop, after the step is durable (with the
        ``Step``, its index given in the order of these calls, without gaps) or was
        refused alone (with a ``StoreError``, or ``Conflict`` if *owner* is not the
        owner any more). Nothing can take back a step that was handed over.

        Always enters, also beyond ``max_queued_writes``: the session's own backlog is
        what bounds it.
        """
        handed = Handed(self._repo_id, session_id, episode_id, draft, owner.token)
        locks = [self._lock(session_id)]
        if draft.thread_id is not None:
            locks.append(("thread", f"{self._repo_id}\0{draft.thread_id}"))
        self._engine.post(self._append_steps, handed, done, locks=locks)

    async def record(self, act: Act, owner: Owner) -> None:
        """Write one act. *Raises* ``Conflict`` for a lost owner. *Cancellation*: completes."""
        encoded: tuple[Any, ...] = ()
        locks = [self._lock(act.session_id)]
        if isinstance(act, EpisodeDiscarded):
            locks.append(("graph", self._repo_id))  # vectors of its steps go
        if isinstance(act, TrajectoryStaged | ChangesetStaged):
            encoded = await compute(partial(encode_staged, act))
        await self._engine.writing(
            lambda tx: write_act(tx, self._repo_id, act, owner.token, encoded), locks=locks
        )

    async def load(self, session_id: str) -> Journal | None:
        """
        The session as its last durable act left it; ``None`` if unknown.

        Raises:
            StoreCorrupt: A row of it is damaged. *Cancellation*: safe.
        """
        return await self._engine.reading(
            partial(_load, repo_id=self._repo_id, session_id=session_id)
        )

    async def records(self, *, unfinished: bool) -> list[SessionRecord]:
        """
        The sessions, or only those that are not idle, newest act first.

        A damaged one is passed by, so that the others can be resumed; ``load`` names it.
        """
        query = _UNFINISHED_RECORDS if unfinished else _REPO_RECORDS

        def read(tx: Tx) -> list[SessionRecord]:
            passed: Passed = []
            found = _SESSIONS.all(tx.run(query, (self._repo_id,)), passed)
            log_passed(passed)
            return found

        return await self._engine.reading(read)

    async def claim(self, session_id: str, owner: Owner, *, left_by: str | None = None) -> None:
        """
        Become the owner, if there is none, or it is dead, or out of reach for its lease.

        Args:
            left_by: Token of the owner that has left the session to the worker of a job.

        Raises:
            SessionBusy: ``owned_elsewhere``. *Cancellation*: completes.
            NotFound: There is no such session.
        """
        time, session = self._lease_time, (self._repo_id, session_id)
        await self._engine.writing(
            lambda tx: _claim(tx, session, owner, time(tx), left_by),
            locks=[self._lock(session_id)],
        )

    async def release(self, owner: Owner, session_id: str) -> None:
        """Give up a session; an unknown one is no error. *Cancellation*: completes."""
        await self._engine.writing(
            lambda tx: tx.run(_RELEASE, (self._repo_id, session_id, owner.token)).close(),
            locks=[self._lock(session_id)],
        )

    def _lock(self, session_id: str) -> tuple[str, str]:
        return session_lock(self._repo_id, session_id)


def _claim(tx: Tx, session: tuple[str, str], me: Owner, now: datetime, left_by: str | None) -> None:
    row = tx.run(_HOLDER, session).fetchone()
    if row is None:
        raise NotFound("session", session[1])
    number, holder = row
    is_free = holder in (None, me.token, left_by)
    if not is_free and still_owns(tx, holder, me=me, now=now):
        raise SessionBusy(
            "owned_elsewhere",
            operation="resume",
            message=f"session {session[1]!r} is owned (owned_elsewhere) by "
            + holder_named(tx, holder, me),
        )
    tx.run(_CLAIM, (me.token, number))


def _record(row: Sequence[Any]) -> SessionRecord:
    id, repo_id, goal, state, episode_id, _, _, steps, updated_at, thread_id = row[:10]
    return SessionRecord(
        id=id,
        repo_id=repo_id,
        goal=goal,
        state=SessionState(state),
        steps=steps,
        updated_at=decode_time(updated_at),
        episode_id=None if state == SessionState.IDLE else episode_id,
        thread_id=thread_id,
    )


def _load(tx: Tx, repo_id: str, session_id: str) -> Journal | None:
    row = tx.run(_ONE_RECORD, (repo_id, session_id)).fetchone()
    if row is None:
        return None
    record, session, episode = _SESSIONS.one(row), row[5], row[6]
    keyed = STEPS.rows.all(tx.run(_KEYED, (session,)))
    keys = {step.key: step for step in keyed if step.key is not None}
    if record.state is SessionState.IDLE:
        return Journal(record=record, steps=(), keys=keys)
    rest = _EPISODES.one(tx.run(_REST, (session,)).fetchone())
    rows = tx.run(_STEPS, (episode,)).fetchall()
    return Journal(
        record=record,
        steps=tuple(STEPS.rows.all(rows)),
        committed=frozenset(row[2] for row in rows if row[-1]),
        staged={one.key: one for one in STAGED.rows.all(tx.run(_STAGED, (episode,)))},
        keys=keys,
        **rest,
    )


def _rest(row: Sequence[Any]) -> dict[str, Any]:
    _, error, trajectory, changeset, steps, receipt = row
    return {
        "error": error,
        "error_trajectory": trajectory,
        "changeset": decode_changeset(changeset) if changeset else None,
        "changeset_steps": tuple(decode_list(steps, int)) if changeset else (),
        "receipt_nodes": tuple(decode_list(receipt, str)),
    }


_SESSIONS = Rows("sessions", "s s s s s i i i s s?", _record)
_EPISODES = Rows("episodes", "s s? s? b? s? s", _rest)

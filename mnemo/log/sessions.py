"""The journal of a repository's sessions, and what each act of a session writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from mnemo.errors import Conflict, NotFound, SessionBusy
from mnemo.jobs.job_rows import LeaseTime, holder_named, still_owns
from mnemo.log.feed import hide_uncommitted
from mnemo.log.steps import Handed, annotate
from mnemo.store.codec import (
    decode_changeset,
    decode_list,
    decode_time,
    encode_changeset,
    encode_json,
    utc_text,
)
from mnemo.store.engine import Bulk, Engine, compute, session_lock, thread_lock
from mnemo.store.rows import Rows, repo_number
from mnemo.store.table import ARRIVAL
from mnemo.store.tables import EPISODES, SESSIONS, STAGED, STEP_COLUMNS, STEPS
from mnemo.store.tombstones import refuse_erased
from mnemo.store.tx import Tx
from mnemo.values.archive import EpisodeRow, SessionRow
from mnemo.values.journal import (
    Act,
    ChangesetStaged,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeStarted,
    ExtractionAbandoned,
    ExtractionRetried,
    Journal,
    Owner,
    SessionRecord,
    SessionState,
    Settlement,
    StepsAnnotated,
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
            locks=[session_lock(self._repo_id, record.id)],
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
        locks = [session_lock(self._repo_id, session_id)]
        if draft.thread_id is not None:
            locks.append(thread_lock(self._repo_id, draft.thread_id))
        self._engine.post(self._append_steps, handed, done, locks=locks)

    async def record(self, act: Act, owner: Owner) -> None:
        """Write one act. *Raises* ``Conflict`` for a lost owner. *Cancellation*: completes."""
        encoded: tuple[Any, ...] = ()
        locks = [session_lock(self._repo_id, act.session_id)]
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
            return _SESSIONS.intact(tx.run(query, (self._repo_id,)))

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
            locks=[session_lock(self._repo_id, session_id)],
        )

    async def release(self, owner: Owner, session_id: str) -> None:
        """Give up a session; an unknown one is no error. *Cancellation*: completes."""
        await self._engine.writing(
            lambda tx: tx.run(_RELEASE, (self._repo_id, session_id, owner.token)).close(),
            locks=[session_lock(self._repo_id, session_id)],
        )


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


# ── Acts ─────────────────────────────────────────────────────────────────────────────


_ADD_SESSION = f"{SESSIONS.insert_with('owner')} RETURNING no"
_UNENDED = "SELECT 1 FROM episodes WHERE session = ? AND status IN ('open', 'closed') LIMIT 1"
_ADD_EPISODE = f"{EPISODES.insert_with('repo')} RETURNING no"
_FIND_PLACE = """
SELECT s.no, s.repo, s.owner, e.no, e.status, e.receipt_nodes
FROM sessions s LEFT JOIN episodes e ON e.repo = s.repo AND e.session = s.no AND e.id = ?
WHERE s.repo = (SELECT no FROM repos WHERE id = ?) AND s.id = ?
"""
_SET_EPISODE = "UPDATE sessions SET episode = ? WHERE no = ?"
_SET_STATE = """
UPDATE sessions SET state = ?, error = ?, error_trajectory = ?, updated_at = ? WHERE no = ?
"""
_TOUCH = "UPDATE sessions SET updated_at = ? WHERE no = ?"
_SET_STATUS = "UPDATE episodes SET status = ? WHERE no = ?"
_END_EPISODE = "UPDATE episodes SET status = ?, changeset = NULL WHERE no = ?"
_STAGE_CHANGESET = "UPDATE episodes SET changeset = ?, changeset_steps = ? WHERE no = ?"
_DROP_STAGED = "DELETE FROM staged WHERE episode = ?"
_DROP_STAGED_KEY = "DELETE FROM staged WHERE episode = ? AND key = ?"
_COMMIT_STEP = "UPDATE steps SET committed = 1 WHERE episode = ? AND idx = ?"
_SET_RECEIPT = "UPDATE episodes SET receipt_nodes = ? WHERE no = ?"


@dataclass(frozen=True, slots=True)
class _Place:
    """Row numbers of an act's session and episode."""

    session: int
    repo: int
    episode: int
    status: str
    receipt: str


_RECEIPTS = Rows("episodes", "s s", lambda row: decode_list(row[1], str))


def create_session(tx: Tx, record: SessionRecord, goal_at: datetime, token: str) -> None:
    """Enter a session with its open episode. *Raises* ``Conflict`` if the repository had an id."""
    repo = repo_number(tx, record.repo_id)
    refuse_erased(tx, record.repo_id, [record.id])
    session = SessionRow(
        id=record.id,
        state=record.state,
        updated_at=record.updated_at,
        thread_id=record.thread_id,
    )
    values = (repo, *SESSIONS.values(session), token)
    with tx.refusing(Conflict(f"session id {record.id!r} was used before")):
        ((number,),) = tx.run(_ADD_SESSION, values).fetchall()
    assert record.episode_id is not None
    episode = EpisodeRow(
        id=record.episode_id, session_id=record.id, goal=record.goal, goal_at=goal_at, status="open"
    )
    _open_episode(tx, record.repo_id, repo, number, episode)


def _open_episode(tx: Tx, repo_id: str, repo: int, session: int, episode: EpisodeRow) -> None:
    refuse_erased(tx, repo_id, [episode.id])
    with tx.refusing(Conflict(f"episode id {episode.id!r} was used before")):
        ((no,),) = tx.run(_ADD_EPISODE, (session, *EPISODES.values(episode), repo)).fetchall()
    tx.run(_SET_EPISODE, (no, session))


def write_act(tx: Tx, repo_id: str, act: Act, token: str, encoded: tuple[Any, ...] = ()) -> None:
    """
    Write *act* for the owner *token*.

    Args:
        encoded: As ``encode_staged`` gave it.

    Raises:
        NotFound: There is no such session or episode.
        Conflict: Another owner has the session, or the episode is over.
    """
    if isinstance(act, EpisodeStarted):
        _start(tx, repo_id, act, token)
        return
    place = _place(tx, repo_id, act.session_id, act.episode_id, token)
    if place.status in ("committed", "discarded"):
        raise Conflict(f"episode {act.episode_id!r} is over")
    match act:
        case StepsAnnotated():
            annotate(tx, place.episode, act.annotations)
            _touch(tx, place, act.at)
        case EpisodeClosed():
            tx.run(_SET_STATUS, ("closed", place.episode))
            _enter(tx, place, SessionState.EXTRACTING, act.at)
        case TrajectoryStaged():
            tx.run(STAGED.upsert, (place.episode, *encoded))
            _touch(tx, place, act.at)
        case ExtractionAbandoned():
            error = (act.error, act.trajectory_id)
            _enter(tx, place, SessionState.FAILED, act.at, error)
        case ExtractionRetried():
            _enter(tx, place, SessionState.EXTRACTING, act.at)
        case ChangesetStaged():
            tx.run(_STAGE_CHANGESET, (*encoded, place.episode))
            tx.run(_DROP_STAGED, (place.episode,))
            _enter(tx, place, SessionState.READY, act.at)
        case EpisodeDiscarded():
            hide_uncommitted(tx, place.repo, [place.episode])
            tx.run(_DROP_STAGED, (place.episode,))
            tx.run(_END_EPISODE, ("discarded", place.episode))
            _enter(tx, place, SessionState.IDLE, act.at)


def encode_staged(act: Act) -> tuple[Any, ...]:
    """The columns that an act stages, if it does; for a worker thread."""
    match act:
        case TrajectoryStaged(staged=staged):
            return STAGED.values(staged)
        case ChangesetStaged(changeset=changeset, steps=steps):
            return (encode_changeset(changeset), encode_json(steps))
        case _:
            return ()


def _place(tx: Tx, repo_id: str, session_id: str, episode_id: str, token: str) -> _Place:
    row = tx.run(_FIND_PLACE, (episode_id, repo_id, session_id)).fetchone()
    if row is None:
        refuse_erased(tx, repo_id, [session_id, episode_id])
        raise NotFound("session", session_id)
    session, repo, owner, episode, status, receipt = row
    if owner != token:
        raise Conflict(f"session {session_id!r} belongs to another service by now")
    if episode is None:
        refuse_erased(tx, repo_id, [episode_id])
        raise NotFound("episode", episode_id)
    return _Place(session, repo, episode, status, receipt)


def _start(tx: Tx, repo_id: str, act: EpisodeStarted, token: str) -> None:
    row = tx.run(_FIND_PLACE, (act.episode_id, repo_id, act.session_id)).fetchone()
    if row is None:
        raise NotFound("session", act.session_id)
    session, repo, owner, *_ = row
    if owner != token:
        raise Conflict(f"session {act.session_id!r} belongs to another service by now")
    if tx.run(_UNENDED, (session,)).fetchone() is not None:
        raise Conflict(f"session {act.session_id!r} has an episode that is not over")
    episode = EpisodeRow(
        id=act.episode_id, session_id=act.session_id, goal=act.goal, goal_at=act.at, status="open"
    )
    _open_episode(tx, repo_id, repo, session, episode)
    values = (SessionState.COLLECTING, None, None, utc_text(act.at), session)
    tx.run(_SET_STATE, values)


def _enter(
    tx: Tx,
    place: _Place,
    state: SessionState,
    at: datetime,
    error: tuple[str | None, str | None] = (None, None),
) -> None:
    tx.run(_SET_STATE, (state, *error, utc_text(at), place.session))


def _touch(tx: Tx, place: _Place, at: datetime) -> None:
    tx.run(_TOUCH, (utc_text(at), place.session))


def settle(
    tx: Tx,
    repo_id: str,
    settlement: Settlement,
    token: str,
    node_ids: tuple[str, ...],
    *,
    again: bool,
) -> None:
    """
    Do what a commit does to its session; harmless where it is done already.

    Args:
        node_ids: What the commit's receipt names; the episode's are accumulated.
        again: Whether the changeset had been applied before: then an episode that is
            over is left as it is.

    Raises:
        Conflict: Another owner has the session, or the episode was discarded.
    """
    place = _place(tx, repo_id, settlement.session_id, settlement.episode_id, token)
    if place.status in ("committed", "discarded"):
        if again:
            return
        raise Conflict(f"episode {settlement.episode_id!r} is over")
    marks = [(place.episode, index) for index in settlement.steps]
    tx.run_many(_COMMIT_STEP, marks)
    earlier = _RECEIPTS.one((settlement.episode_id, place.receipt))
    receipt = list(dict.fromkeys([*earlier, *node_ids]))
    tx.run(_SET_RECEIPT, (json.dumps(receipt), place.episode))
    if settlement.ends:
        tx.run(_DROP_STAGED, (place.episode,))
        tx.run(_END_EPISODE, ("committed", place.episode))
        _enter(tx, place, SessionState.IDLE, settlement.at)
    else:
        tx.run_many(_DROP_STAGED_KEY, [(place.episode, key) for key in settlement.staged])
        _touch(tx, place, settlement.at)

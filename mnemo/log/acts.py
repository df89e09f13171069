"""What each act of a session writes. Runs in the writer; every act is one transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mnemo.errors import Conflict, NotFound
from mnemo.log.feed import hide_uncommitted
from mnemo.log.steps import annotate
from mnemo.store.codec import decode_list, encode_changeset, encode_json, utc_text
from mnemo.store.damage import Rows
from mnemo.store.rows import repo_number
from mnemo.store.tables import EPISODES, SESSIONS, STAGED
from mnemo.store.tombstones import refuse_erased
from mnemo.store.tx import Tx
from mnemo.values.archive import ArchivedEpisode, ArchivedSession
from mnemo.values.journal import (
    Act,
    ChangesetStaged,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeStarted,
    ExtractionAbandoned,
    ExtractionRetried,
    SessionRecord,
    SessionState,
    Settlement,
    StepsAnnotated,
    TrajectoryStaged,
)

_ADD_SESSION = f"{SESSIONS.insert_with('owner')} RETURNING no"
_UNENDED = "SELECT 1 FROM episodes WHERE session = ? AND status IN ('open', 'closed') LIMIT 1"
_ADD_EPISODE = f"{EPISODES.insert_with('repo')} RETURNING no"
_FIND_PLACE = """
SELECT s.no, s.repo, s.owner, s.episode, e.no, e.status, e.receipt_nodes
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
    present: int | None
    episode: int
    status: str
    receipt: str


_RECEIPTS = Rows("episodes", "s s", lambda row: decode_list(row[1], str))


def create_session(tx: Tx, record: SessionRecord, goal_at: datetime, token: str) -> None:
    """Enter a session with its open episode. *Raises* ``Conflict`` if the repository had an id."""
    repo = repo_number(tx, record.repo_id)
    refuse_erased(tx, record.repo_id, [record.id])
    session = ArchivedSession(
        id=record.id,
        state=record.state,
        updated_at=record.updated_at,
        thread_id=record.thread_id,
    )
    values = (repo, *SESSIONS.values(session), token)
    with tx.refusing(Conflict(f"session id {record.id!r} was used before")):
        ((number,),) = tx.run(_ADD_SESSION, values).fetchall()
    assert record.episode_id is not None
    episode = ArchivedEpisode(
        id=record.episode_id, session_id=record.id, goal=record.goal, goal_at=goal_at, status="open"
    )
    _open_episode(tx, record.repo_id, repo, number, episode)


def _open_episode(tx: Tx, repo_id: str, repo: int, session: int, episode: ArchivedEpisode) -> None:
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
    _write_in_episode(tx, act, place, encoded)


def encode_staged(act: Act) -> tuple[Any, ...]:
    """The columns that an act stages, if it does; for a worker thread."""
    match act:
        case TrajectoryStaged(staged=staged):
            return STAGED.values(staged)
        case ChangesetStaged(changeset=changeset, steps=steps):
            return (encode_changeset(changeset), encode_json(steps))
        case _:
            return ()


def _write_in_episode(tx: Tx, act: Act, place: _Place, encoded: tuple[Any, ...]) -> None:
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
            _discard(tx, place, act)


def _place(tx: Tx, repo_id: str, session_id: str, episode_id: str, token: str) -> _Place:
    row = tx.run(_FIND_PLACE, (episode_id, repo_id, session_id)).fetchone()
    if row is None:
        refuse_erased(tx, repo_id, [session_id, episode_id])
        raise NotFound("session", session_id)
    session, repo, owner, present, episode, status, receipt = row
    if owner != token:
        raise Conflict(f"session {session_id!r} belongs to another service by now")
    if episode is None:
        refuse_erased(tx, repo_id, [episode_id])
        raise NotFound("episode", episode_id)
    return _Place(session, repo, present, episode, status, receipt)


def _start(tx: Tx, repo_id: str, act: EpisodeStarted, token: str) -> None:
    row = tx.run(_FIND_PLACE, (act.episode_id, repo_id, act.session_id)).fetchone()
    if row is None:
        raise NotFound("session", act.session_id)
    session, repo, owner, *_ = row
    if owner != token:
        raise Conflict(f"session {act.session_id!r} belongs to another service by now")
    if tx.run(_UNENDED, (session,)).fetchone() is not None:
        raise Conflict(f"session {act.session_id!r} has an episode that is not over")
    episode = ArchivedEpisode(
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


def _discard(tx: Tx, place: _Place, act: EpisodeDiscarded) -> None:
    hide_uncommitted(tx, place.repo, [place.episode])
    tx.run(_DROP_STAGED, (place.episode,))
    tx.run(_END_EPISODE, ("discarded", place.episode))
    _enter(tx, place, SessionState.IDLE, act.at)


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
    consumed = [(place.episode, key) for key in settlement.staged]
    tx.run_many(_DROP_STAGED_KEY, consumed)
    earlier = _RECEIPTS.one((settlement.episode_id, place.receipt))
    receipt = list(dict.fromkeys([*earlier, *node_ids]))
    tx.run(_SET_RECEIPT, (json.dumps(receipt), place.episode))
    _touch(tx, place, settlement.at)
    if settlement.ends:
        tx.run(_DROP_STAGED, (place.episode,))
        tx.run(_END_EPISODE, ("committed", place.episode))
        _enter(tx, place, SessionState.IDLE, settlement.at)

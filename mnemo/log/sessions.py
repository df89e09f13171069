"""The journal of a repository's sessions: acts, appended steps, and reading them back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from mnemo.errors import Conflict, NotFound, NotToFeed, SessionBusy, UsageError
from mnemo.jobs.job_rows import LeaseTime, holder_named, still_owns
from mnemo.log.feed import STEP_COLUMNS, hide_uncommitted
from mnemo.log.record_rows import step_row
from mnemo.log.tombstones import refuse_erased, was_erased
from mnemo.protocols import Clock
from mnemo.store.engine import Bulk, Engine, compute, session_lock, thread_lock
from mnemo.store.rows import Rows, found_repo, listed, repo_number
from mnemo.store.table import ARRIVAL
from mnemo.store.tables import ANNOTATIONS, EPISODES, SESSIONS, STAGED, STEPS
from mnemo.store.texts import put_texts
from mnemo.store.tx import Text, Tx
from mnemo.values import codec
from mnemo.values.archive import EpisodeRow, SessionRow
from mnemo.values.journal import (
    Act,
    ChangesetStaged,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeStarted,
    ExtractionAbandoned,
    Journal,
    Owner,
    SessionRecord,
    SessionState,
    Settlement,
    StepsAnnotated,
    TrajectoryStaged,
)
from mnemo.values.steps import Annotation, Step, StepDraft

_RECORDS = """
SELECT s.id, r.id, e.goal, s.state, e.id, s.no, e.no,
       (SELECT count(*) FROM steps WHERE repo = e.repo AND episode = e.no),
       $greatest(s.updated_at, coalesce((SELECT recorded_at FROM steps
           WHERE repo = e.repo AND episode = e.no ORDER BY idx DESC LIMIT 1), '')), s.thread_id
FROM sessions s JOIN repos r ON r.no = s.repo
JOIN episodes e ON e.no = s.episode AND $also e.repo = s.repo WHERE s.repo = ?
"""
_ONE_RECORD = _RECORDS + "AND s.id = ?"
_REPO_RECORDS = _RECORDS + "ORDER BY 9 DESC, s.no DESC"
# What the jobs of threads left behind is theirs.
_UNFINISHED_RECORDS = (
    _RECORDS + "AND s.state <> 'idle' AND s.thread_id IS NULL ORDER BY 9 DESC, s.no DESC"
)
_REST = """
SELECT e.id, s.error, s.error_trajectory, e.changeset, e.changeset_steps, e.receipt_nodes
FROM sessions s JOIN episodes e ON e.no = s.episode AND $also e.repo = s.repo
WHERE s.no = ? AND $also s.repo = ?
"""
_OF_STEPS = """
FROM steps t {} JOIN episodes e ON e.no = t.episode AND $also e.repo = t.repo
JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
"""
_STEPS = f"""
SELECT {STEP_COLUMNS}, t.committed {_OF_STEPS.format("$by(steps_place)")}
WHERE t.repo = ? AND t.episode = ? ORDER BY t.idx
"""
_KEYED = f"""
SELECT {STEP_COLUMNS} {_OF_STEPS.format("$by(steps_key)")}
WHERE t.repo = ? AND t.session = ? AND t.key IS NOT NULL ORDER BY t.ordinal
"""
_STAGED = f"{STAGED.select} ORDER BY {ARRIVAL}"
_HOLDER = "SELECT no, owner FROM sessions WHERE repo = ? AND id = ?"
_CLAIM = "UPDATE sessions SET owner = ? WHERE no = ? AND $also repo = ?"
_RELEASE = "UPDATE sessions SET owner = NULL WHERE repo = ? AND id = ? AND owner = ?"


class StoredSessions:
    """
    The journal of one repository's sessions. Every method is one transaction.

    *append_steps*: Writes what is handed over; one for all repositories of the store.
    """

    def __init__(
        self, repo_id: str, engine: Engine, append_steps: Bulk, lease_time: LeaseTime
    ) -> None:
        self._repo_id = repo_id
        self._engine = engine
        self._append_steps = append_steps
        self._lease_time = lease_time
        self._repo = 0
        """The repository's number, once a session is owned here; no other ever has it."""

    async def create(self, record: SessionRecord, *, goal_at: datetime, owner: Owner) -> None:
        """
        Record a session with its open episode. *Cancellation*: completes.

        *Raises* ``Conflict``: the repository ever had this id.
        """
        if record.episode_id is None:
            raise ValueError("a new session needs the id of its episode")
        self._repo = await self._engine.writing(
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

        *done* is called once, on the event loop, with the ``Step`` once that is durable, its index
        given in the order of these calls, without gaps; or with the error why it was refused alone:
        ``Conflict`` if *owner* is not the owner any more. Nothing can take a step back.

        Always enters, also beyond ``max_queued_writes``: the session's own backlog bounds it.
        """
        handed = Handed(self._repo_id, session_id, owner.token, episode_id, draft, self._repo)
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
        """The last durable state, or ``None``. *Raises* ``StoreCorrupt``. *Cancellation*: safe."""
        return await self._engine.reading(
            partial(_load, repo_id=self._repo_id, session_id=session_id)
        )

    async def records(self, *, unfinished: bool) -> list[SessionRecord]:
        """Sessions, or those not idle, newest act first; ``load`` names damaged ones."""
        query = _UNFINISHED_RECORDS if unfinished else _REPO_RECORDS
        return await self._engine.reading(
            lambda tx: _SESSIONS.intact(tx.run(query, (found_repo(tx, self._repo_id),)))
        )

    async def claim(self, session_id: str, owner: Owner, *, left_by: str | None = None) -> None:
        """
        Become the owner, if there is none, or it is dead, or out of reach for its lease.

        *left_by*: Token of the owner that has left the session to the worker of a job. *Raises*
        ``SessionBusy``: ``owned_elsewhere``; ``NotFound``: there is no such session.
        *Cancellation*: completes.
        """
        time, session = self._lease_time, (self._repo_id, session_id)
        self._repo = await self._engine.writing(
            lambda tx: _claim(tx, session, owner, time(tx), left_by),
            locks=[session_lock(self._repo_id, session_id)],
        )

    async def release(self, owner: Owner, session_id: str) -> None:
        """Give up a session; an unknown one is no error. *Cancellation*: completes."""
        await self._engine.writing(
            lambda tx: tx.run(
                _RELEASE, (found_repo(tx, self._repo_id), session_id, owner.token)
            ).close(),
            locks=[session_lock(self._repo_id, session_id)],
        )


def _claim(tx: Tx, session: tuple[str, str], me: Owner, now: datetime, left_by: str | None) -> int:
    repo = found_repo(tx, session[0])
    row = tx.run(_HOLDER, (repo, session[1])).fetchone()
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
    tx.run(_CLAIM, (me.token, number, repo))
    return repo


def _record(row: Sequence[Any]) -> SessionRecord:
    id, repo_id, goal, state, episode_id, _, _, steps, updated_at, thread_id = row[:10]
    return SessionRecord(
        id=id,
        repo_id=repo_id,
        goal=goal,
        state=SessionState(state),
        steps=steps,
        updated_at=codec.decode_time(updated_at),
        episode_id=None if state == SessionState.IDLE else episode_id,
        thread_id=thread_id,
    )


def _load(tx: Tx, repo_id: str, session_id: str) -> Journal | None:
    repo = found_repo(tx, repo_id)
    row = tx.run(_ONE_RECORD, (repo, session_id)).fetchone()
    if row is None:
        return None
    record, session, episode = _SESSIONS.one(row), row[5], row[6]
    keyed = STEPS.rows.all(tx.run(_KEYED, (repo, session)))
    keys = {step.key: step for step in keyed if step.key is not None}
    if record.state is SessionState.IDLE:
        return Journal(record=record, steps=(), keys=keys)
    rest = _EPISODES.one(tx.run(_REST, (session, repo)).fetchone())
    rows = tx.run(_STEPS, (repo, episode)).fetchall()
    return Journal(
        record=record,
        steps=tuple(STEPS.rows.all(rows)),
        committed=frozenset(row[2] for row in rows if row[-1]),
        staged={one.key: one for one in STAGED.rows.all(tx.run(_STAGED, (repo, episode)))},
        keys=keys,
        **rest,
    )


def _rest(row: Sequence[Any]) -> dict[str, Any]:
    _, error, trajectory, changeset, steps, receipt = row
    return {
        "error": error,
        "error_trajectory": trajectory,
        "changeset": codec.decode_changeset(changeset) if changeset else None,
        "changeset_steps": tuple(codec.decode_list(steps, int)) if changeset else (),
        "receipt_nodes": tuple(codec.decode_list(receipt, str)),
    }


_SESSIONS = Rows("sessions", "s s s s s i i i s s?", _record)
_EPISODES = Rows("episodes", "s s? s? b? s? s", _rest)


# ── Acts ─────────────────────────────────────────────────────────────────────────────


_ADD_SESSION = f"{SESSIONS.insert_with('owner')} RETURNING no"
_UNENDED = """
SELECT 1 FROM episodes WHERE repo = ? AND session = ? AND status IN ('open', 'closed') LIMIT 1
"""
_ADD_EPISODE = f"{EPISODES.insert} RETURNING no"
_FIND_PLACE = """
SELECT s.no, s.repo, s.owner, e.no, e.status, e.receipt_nodes
FROM sessions s LEFT JOIN episodes e ON e.repo = s.repo AND e.session = s.no AND e.id = ?
WHERE s.repo = ? AND s.id = ?
"""
_SET_EPISODE = "UPDATE sessions SET episode = ? WHERE no = ? AND $also repo = ?"
_SET_STATE = """
UPDATE sessions SET state = ?, error = ?, error_trajectory = ?, updated_at = ?
WHERE no = ? AND $also repo = ?
"""
_TOUCH = "UPDATE sessions SET updated_at = ? WHERE no = ? AND $also repo = ?"
_SET_STATUS = "UPDATE episodes SET status = ? WHERE no = ? AND $also repo = ?"
_END_EPISODE = "UPDATE episodes SET status = ?, changeset = NULL WHERE no = ? AND $also repo = ?"
_STAGE_CHANGESET = """
UPDATE episodes SET changeset = ?, changeset_steps = ? WHERE no = ? AND $also repo = ?
"""
_DROP_STAGED = "DELETE FROM staged WHERE repo = ? AND episode = ?"
_DROP_STAGED_KEY = "DELETE FROM staged WHERE repo = ? AND episode = ? AND key = ?"
_COMMIT_STEP = "UPDATE steps SET committed = 1 WHERE repo = ? AND episode = ? AND idx = ?"
_SET_RECEIPT = "UPDATE episodes SET receipt_nodes = ? WHERE no = ? AND $also repo = ?"


@dataclass(frozen=True, slots=True)
class _Place:
    """Row numbers of an act's session and episode."""

    session: int
    repo: int
    episode: int
    status: str
    receipt: str


_RECEIPTS = Rows("episodes", "s s", lambda row: codec.decode_list(row[1], str))


def create_session(tx: Tx, record: SessionRecord, goal_at: datetime, token: str) -> int:
    """
    Enter a session with its open episode; give the repository's number. *Raises* ``Conflict`` if
    the repository had an id.
    """
    repo = repo_number(tx, record.repo_id)
    refuse_erased(tx, record.repo_id, [record.id, record.episode_id])
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
    _open_episode(tx, repo, number, episode)
    return repo


def _open_episode(tx: Tx, repo: int, session: int, episode: EpisodeRow) -> None:
    with tx.refusing(Conflict(f"episode id {episode.id!r} was used before")):
        ((no,),) = tx.run(_ADD_EPISODE, (repo, session, *EPISODES.values(episode))).fetchall()
    tx.run(_SET_EPISODE, (no, session, repo))


def write_act(tx: Tx, repo_id: str, act: Act, token: str, encoded: tuple[Any, ...] = ()) -> None:
    """
    Write *act* for the owner *token*.

    *encoded*: As ``encode_staged`` gave it. *Raises* ``NotFound``: there is no such session or
    episode; ``Conflict``: another owner has the session, or the episode is over.
    """
    place = _place(tx, repo_id, act, token)
    if place.status in ("committed", "discarded"):
        raise Conflict(f"episode {act.episode_id!r} is over")
    error: tuple[str | None, str | None] = (None, None)
    match act:
        case EpisodeStarted():
            _start(tx, repo_id, place, act)
        case StepsAnnotated():
            annotate(tx, place.repo, place.episode, act.annotations)
        case EpisodeClosed():
            tx.run(_SET_STATUS, ("closed", place.episode, place.repo))
        case TrajectoryStaged():
            tx.run(STAGED.upsert, (place.repo, place.episode, *encoded))
        case ExtractionAbandoned():
            error = (act.error, act.trajectory_id)
        case ChangesetStaged():
            tx.run(_STAGE_CHANGESET, (*encoded, place.episode, place.repo))
            tx.run(_DROP_STAGED, (place.repo, place.episode))
        case EpisodeDiscarded():
            hide_uncommitted(tx, place.repo, [place.episode])
            tx.run(_DROP_STAGED, (place.repo, place.episode))
            tx.run(_END_EPISODE, ("discarded", place.episode, place.repo))
    if act.leads_to is None:
        tx.run(_TOUCH, (codec.utc_text(act.at), place.session, place.repo))
    else:
        at = codec.utc_text(act.at)
        tx.run(_SET_STATE, (act.leads_to, *error, at, place.session, place.repo))


def encode_staged(act: Act) -> tuple[Any, ...]:
    """The columns that an act stages, if it does; for a worker thread."""
    match act:
        case TrajectoryStaged(staged=staged):
            return STAGED.values(staged)
        case ChangesetStaged(changeset=changeset, steps=steps):
            return (codec.encode_changeset(changeset), codec.encode_json(steps))
        case _:
            return ()


def _place(tx: Tx, repo_id: str, of: Act | Settlement, token: str) -> _Place:
    """Where *of* is written; an episode that it starts has none yet."""
    found = (of.episode_id, found_repo(tx, repo_id), of.session_id)
    row = tx.run(_FIND_PLACE, found).fetchone()
    if row is None:
        refuse_erased(tx, repo_id, [of.session_id, of.episode_id])
        raise NotFound("session", of.session_id)
    session, repo, owner, episode, status, receipt = row
    if owner != token:
        raise _lost(of.session_id)
    if isinstance(of, EpisodeStarted):
        status = ""
    elif episode is None:
        refuse_erased(tx, repo_id, [of.episode_id])
        raise NotFound("episode", of.episode_id)
    return _Place(session, repo, episode, status, receipt)


def _lost(session_id: str) -> Conflict:
    return Conflict(f"session {session_id!r} belongs to another service by now")


def _start(tx: Tx, repo_id: str, place: _Place, act: EpisodeStarted) -> None:
    if tx.run(_UNENDED, (place.repo, place.session)).fetchone() is not None:
        raise Conflict(f"session {act.session_id!r} has an episode that is not over")
    episode = EpisodeRow(
        id=act.episode_id, session_id=act.session_id, goal=act.goal, goal_at=act.at, status="open"
    )
    refuse_erased(tx, repo_id, [act.episode_id])
    _open_episode(tx, place.repo, place.session, episode)


def write_settlement(
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

    *node_ids*: What the commit's receipt names; the episode's are accumulated. *again*: Whether the
    changeset was applied before: an episode that is over is left alone. *Raises* ``Conflict``:
    another owner has the session, or the episode was discarded.
    """
    place = _place(tx, repo_id, settlement, token)
    if place.status in ("committed", "discarded"):
        if again:
            return
        raise Conflict(f"episode {settlement.episode_id!r} is over")
    marks = [(place.repo, place.episode, index) for index in settlement.steps]
    tx.run_many(_COMMIT_STEP, marks)
    earlier = _RECEIPTS.one((settlement.episode_id, place.receipt))
    receipt = list(dict.fromkeys([*earlier, *node_ids]))
    tx.run(_SET_RECEIPT, (json.dumps(receipt), place.episode, place.repo))
    if settlement.ends:
        tx.run(_DROP_STAGED, (place.repo, place.episode))
        tx.run(_END_EPISODE, ("committed", place.episode, place.repo))
        at = codec.utc_text(settlement.at)
        tx.run(_SET_STATE, (SessionState.IDLE, None, None, at, place.session, place.repo))
    else:
        staged = [(place.repo, place.episode, key) for key in settlement.staged]
        tx.run_many(_DROP_STAGED_KEY, staged)
        tx.run(_TOUCH, (codec.utc_text(settlement.at), place.session, place.repo))


# ── The append lane ──────────────────────────────────────────────────────────────────


_LANES = """
SELECT s.id, e.id, s.owner, s.no, s.repo, s.thread_id, e.no, e.status,
       (SELECT max(idx) + 1 FROM steps WHERE repo = e.repo AND episode = e.no)
FROM sessions s LEFT JOIN episodes e ON e.repo = s.repo AND e.session = s.no AND e.id IN $texts
WHERE s.repo = ? AND s.id IN $texts
"""
# Nothing of it has to be decoded or compared; where it finds no row, ``_LANES`` tells why.
_OPEN_LANE = """
SELECT s.no, s.repo, e.no, (SELECT max(idx) + 1 FROM steps WHERE repo = e.repo AND episode = e.no)
FROM sessions s JOIN episodes e ON e.repo = s.repo AND e.session = s.no
WHERE s.repo = ? AND s.id = ? AND s.owner = ?
AND e.id = ? AND e.status = 'open'
"""
_INSERTED = ("ordinal", "repo", "session", "episode", "recorded_at", *STEPS.columns)
_ANNOTATE = f"""
UPDATE steps SET {", ".join(f"{column} = ?" for column in ANNOTATIONS.columns)}
WHERE repo = ? AND episode = ? AND idx = ?
"""
# What messages are: still held by their thread, and steps by hand or of a job.
_KNOWN = """
SELECT t.thread, t.message, CASE WHEN s.thread_id IS NULL THEN 'by hand' ELSE 'by job' END
FROM steps t JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
WHERE t.repo = ? AND t.thread IN $texts AND t.message IN $texts
UNION SELECT t.id, m.id, 'held' FROM threads t
$join messages m $by(messages_id) ON m.repo = t.repo AND m.thread = t.no
WHERE t.repo = ? AND t.id IN $texts AND m.id IN $texts
"""
_INDEXES = "SELECT idx FROM steps WHERE repo = ? AND episode = ?"


class Handed(NamedTuple):
    """
    A step on its way to the writer; the first four say where. *repo*: The repository's number, as
    far as it is known; of one that was deleted meanwhile it finds nothing.
    """

    repo_id: str
    session_id: str
    token: str
    episode_id: str
    draft: StepDraft
    repo: int = 0


_Found: TypeAlias = dict[tuple[str, str, str | None], tuple[Any, ...]]
"""
Owner, numbers of session and repository, the thread whose job the session does, and number,
status and next index of an episode.
"""


@dataclass(slots=True)
class _Lane:
    """Where the next step of an open episode goes."""

    session: int
    repo: int
    episode: int
    next_index: int


def append_steps(tx: Tx, handed: Sequence[Handed], *, clock: Clock) -> list[Step | UsageError]:
    """
    Write steps with their full text, in order; a refused one leaves no gap.

    A message that a job has made a step is refused of sessions by hand, and the other way round:
    whichever writes first keeps the message. Of a feed and of a job one is refused that was erased
    since.

    *Raises* ``Conflict``: a key or node id is in use (only then nothing at all is written).
    """
    recorded_at = codec.utc_text(clock.now())
    lanes, unfit = _found(tx, handed)
    counts: dict[int, int] = defaultdict(int)
    for lane in lanes:
        if isinstance(lane, _Lane):
            counts[lane.repo] += 1
    ordinals = tx.dialect.reserve(tx, "steps", counts)
    results: list[Step | UsageError] = []
    rows: list[tuple[Any, ...]] = []
    texts: dict[int, list[Text]] = {}
    for one, lane in zip(handed, lanes, strict=True):
        if isinstance(lane, UsageError):
            results.append(lane)
            continue
        if one.draft.node_id in unfit:
            what = f"message {one.draft.message_id!r} was erased, or is a step already"
            results.append(NotToFeed(what))
            continue
        ordinals[lane.repo] = ordinal = ordinals[lane.repo] + 1
        step = one.draft.step(
            session_id=one.session_id,
            episode_id=one.episode_id,
            index=lane.next_index,
            ordinal=ordinal,
        )
        place = (ordinal, lane.repo, lane.session, lane.episode, recorded_at)
        rows.append((*place, *STEPS.values(step)))
        texts.setdefault(lane.repo, []).extend(_texts(step))
        results.append(step)
        lane.next_index += 1
    with tx.refusing(Conflict("the step's key or node id is in use already")):
        tx.insert("steps", _INSERTED, rows)
    for repo, its_texts in texts.items():
        put_texts(tx, repo, its_texts)
    return results


def _found(
    tx: Tx, handed: Sequence[Handed]
) -> tuple[Sequence[_Lane | UsageError], Collection[str]]:
    """The lane of each, and the node ids to refuse; steps of one episode take one look."""
    place = handed[0][:4]
    if all(one[:4] == place and not one.draft.message_id for one in handed):
        row = tx.run(_OPEN_LANE, (handed[0].repo, *place[1:])).fetchone()
        if row is not None:
            session, repo, episode, next_index = row
            return [_Lane(session, repo, episode, next_index or 0)] * len(handed), ()
    found = _find_lanes(tx, handed)
    lanes = {place: _lane(tx, found, one) for place, one in {h[:4]: h for h in handed}.items()}
    return [lanes[one[:4]] for one in handed], _not_to_feed(tx, found, handed)


def _find_lanes(tx: Tx, handed: Sequence[Handed]) -> _Found:
    """The sessions of *handed* by repository and id, and their episodes by their id, too."""
    found: _Found = {}
    by_repo: dict[str, list[Handed]] = {}
    for one in handed:
        by_repo.setdefault(one.repo_id, []).append(one)
    for repo_id, its in by_repo.items():
        sessions, episodes = (
            listed({h.session_id for h in its}),
            listed({h.episode_id for h in its}),
        )
        for id, episode, *lane in tx.run(_LANES, (episodes, found_repo(tx, repo_id), sessions)):
            found[repo_id, id, None] = found[repo_id, id, episode] = tuple(lane)
    return found


def _not_to_feed(tx: Tx, found: _Found, handed: Sequence[Handed]) -> set[str]:
    """Node ids of the drafts to refuse: see ``append_steps``."""
    by_repo: dict[int, list[tuple[StepDraft, bool]]] = {}
    for one in handed:
        row, draft = found.get((one.repo_id, one.session_id, None)), one.draft
        if row is not None and draft.thread_id and draft.message_id:
            by_repo.setdefault(row[2], []).append((draft, row[3] is not None))
    unfit: set[str] = set()
    for repo, drafts in by_repo.items():
        threads = listed({str(draft.thread_id) for draft, _ in drafts})
        ids = listed({str(draft.message_id) for draft, _ in drafts})
        known = set(tx.run(_KNOWN, (repo, threads, ids) * 2))
        for draft, by_job in drafts:
            message = (draft.thread_id, draft.message_id)
            is_erased = (by_job or draft.is_fed) and (*message, "held") not in known
            if is_erased or (*message, "by hand" if by_job else "by job") in known:
                unfit.add(draft.node_id)
    return unfit


def _lane(tx: Tx, found: _Found, one: Handed) -> _Lane | UsageError:
    row = found.get((one.repo_id, one.session_id, None))
    if row is None and was_erased(tx, one.repo_id, one.session_id):
        return Conflict(f"session {one.session_id!r} was forgotten")
    if row is None:
        return NotFound("session", one.session_id)
    if row[0] != one.token:
        return _lost(one.session_id)
    row = found.get((one.repo_id, one.session_id, one.episode_id))
    if row is None and was_erased(tx, one.repo_id, one.episode_id):
        return Conflict(f"episode {one.episode_id!r} was forgotten")
    if row is None:
        return NotFound("episode", one.episode_id)
    _, session, repo, _, episode, status, next_index = row
    if status != "open":
        return Conflict(f"episode {one.episode_id!r} takes no more steps")
    return _Lane(session, repo, episode, next_index or 0)


def _texts(step: Step) -> list[Text]:
    """Those of the full text, one for each side."""
    return [
        (step_row(step.ordinal, 0), step.observation, step.at),
        (step_row(step.ordinal, 1), step.action, step.at),
    ]


def annotate(tx: Tx, repo: int, episode: int, annotations: Iterable[Annotation]) -> None:
    """Write annotations, each in place of an earlier one. *Raises* ``NotFound``: no such step."""
    rows = [(*ANNOTATIONS.values(one), repo, episode, one.index) for one in annotations]
    if tx.run_many(_ANNOTATE, rows) != len(rows):
        known = {index for (index,) in tx.run(_INDEXES, (repo, episode))}
        raise NotFound("step", str(next(row[-1] for row in rows if row[-1] not in known)))

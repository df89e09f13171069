"""The journal of all sessions, in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.archive import EpisodeStatus
from mnemo.episode.journal import (
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
from mnemo.episode.step import Step, StepDraft
from mnemo.errors import Conflict, MnemoError, NotFound, SessionBusy
from mnemo.protocols import Clock
from mnemo.store.memory.state import EpisodeState, Kept, SessionData, StepState

__all__ = ["MemorySessions", "settle", "settled_place"]


class MemorySessions:
    """``SessionStore`` in memory; made by ``MemoryStore``."""

    def __init__(self, kept: Callable[[], Kept], clock: Clock) -> None:
        self._kept = kept
        self._clock = clock

    async def create(self, record: SessionRecord, *, goal_at: datetime, owner: Owner) -> None:
        """Record a new session with its open episode. *Raises* ``Conflict`` for a used id."""
        kept = self._kept()
        if record.episode_id is None:
            raise ValueError("a new session needs the id of its episode")
        kept.refuse_erased([record.id])
        if record.id in kept.sessions:
            raise Conflict(f"session id {record.id!r} was used before")
        episode = _new_episode(kept, record.episode_id, record.goal, goal_at)
        kept.repo(record.repo_id)
        kept.sessions[record.id] = SessionData(
            record.id, record.repo_id, record.state, owner.token, record.updated_at, [episode]
        )
        await cancel_shielded_checkpoint()

    def append(
        self,
        session_id: str,
        episode_id: str,
        draft: StepDraft,
        owner: Owner,
        done: Callable[[Step | BaseException], None],
    ) -> None:
        """Write a step; *done* gets it, or why it was refused, in the loop's next turn."""
        try:
            result: Step | BaseException = self._append(session_id, episode_id, draft, owner)
        except (MnemoError, ValueError) as error:
            result = error
        asyncio.get_running_loop().call_soon(done, result)

    def _append(self, session_id: str, episode_id: str, draft: StepDraft, owner: Owner) -> Step:
        kept = self._kept()
        session, episode = _place(kept, session_id, episode_id, owner.token)
        repo = kept.repo(session.repo_id)
        if episode.status != "open":
            raise Conflict(f"episode {episode_id!r} takes no more steps")
        if draft.key in session.keys or draft.node_id in repo.step_of:
            raise Conflict("the step's key or node id is in use")
        state = StepState(_step(session_id, episode, draft, kept.ordinal + 1))
        kept.ordinal += 1
        episode.steps.append(state)
        repo.steps.append(state)
        repo.step_of[draft.node_id] = state
        if draft.key is not None:
            session.keys[draft.key] = state
        session.updated_at = self._clock.now()
        return state.step

    async def record(self, act: Act, owner: Owner) -> None:
        """Write one act. *Raises* ``Conflict`` for a lost owner."""
        kept = self._kept()
        if isinstance(act, EpisodeStarted):
            _start(kept, act, owner.token)
        else:
            session, episode = _place(kept, act.session_id, act.episode_id, owner.token)
            if episode.is_over:
                raise Conflict(f"episode {act.episode_id!r} is over")
            _write(kept, session, episode, act)
            session.updated_at = act.at
        await cancel_shielded_checkpoint()

    async def load(self, session_id: str) -> Journal | None:
        """The session as its last act left it; ``None`` if unknown."""
        session = self._kept().sessions.get(session_id)
        await cancel_shielded_checkpoint()
        return None if session is None else _journal(session)

    async def records(self, repo_id: str, *, unfinished: bool) -> list[SessionRecord]:
        """Its sessions, or only those that are not idle, newest act first."""
        of_repo = [s for s in self._kept().sessions.values() if s.repo_id == repo_id]
        wanted = [s for s in of_repo if not unfinished or s.state is not SessionState.IDLE]
        await cancel_shielded_checkpoint()
        wanted.reverse()
        return [_record(s) for s in sorted(wanted, key=_age, reverse=True)]

    async def claim(self, session_id: str, owner: Owner) -> None:
        """Become the owner. *Raises* ``SessionBusy`` (``owned_elsewhere``), ``NotFound``."""
        kept = self._kept()
        session = _session(kept, session_id)
        holder = kept.leases.get(session.owner or "")
        held = holder is not None and holder[0].token != owner.token
        if held and holder is not None and self._clock.now().timestamp() < holder[1]:
            raise SessionBusy(
                "owned_elsewhere",
                operation="resume",
                message=f"session {session_id!r} is owned by another live service",
            )
        session.owner = owner.token
        await cancel_shielded_checkpoint()

    async def release(self, owner: Owner, session_id: str | None = None) -> None:
        """Give up one session, or all and the ownership itself."""
        kept = self._kept()
        for session in kept.sessions.values():
            if session.owner == owner.token and session_id in (None, session.id):
                session.owner = None
        if session_id is None:
            kept.leases.pop(owner.token, None)
        await cancel_shielded_checkpoint()


def _age(session: SessionData) -> datetime:
    return session.updated_at


def _new_episode(kept: Kept, id: str, goal: str, goal_at: datetime) -> EpisodeState:
    if id in kept.episode_ids:
        raise Conflict(f"episode id {id!r} was used before")
    kept.episode_ids.add(id)
    return EpisodeState(id, goal, goal_at)


def _step(session_id: str, episode: EpisodeState, draft: StepDraft, ordinal: int) -> Step:
    return Step(
        session_id=session_id,
        episode_id=episode.id,
        index=len(episode.steps),
        observation=draft.observation,
        action=draft.action,
        at=draft.at,
        actor=draft.actor,
        node_id=draft.node_id,
        key=draft.key,
        metadata=_as_json(draft.metadata),
        thread_id=draft.thread_id,
        message_id=draft.message_id,
        ordinal=ordinal,
    )


def _as_json(metadata: Mapping[str, Any]) -> Any:
    """A copy, made of what a file would give back. *Raises* ``ValueError``."""
    try:
        return json.loads(json.dumps(dict(metadata), allow_nan=False))
    except TypeError as error:
        raise ValueError(f"not storable as JSON: {error}") from error


def _session(kept: Kept, session_id: str) -> SessionData:
    session = kept.sessions.get(session_id)
    if session is None:
        raise NotFound("session", session_id)
    return session


def _place(
    kept: Kept, session_id: str, episode_id: str, token: str
) -> tuple[SessionData, EpisodeState]:
    kept.refuse_erased([session_id])
    session = _session(kept, session_id)
    if session.owner != token:
        raise Conflict(f"session {session_id!r} belongs to another service by now")
    for episode in reversed(session.episodes):
        if episode.id == episode_id:
            return session, episode
    kept.refuse_erased([episode_id])
    raise NotFound("episode", episode_id)


def _start(kept: Kept, act: EpisodeStarted, token: str) -> None:
    session = _session(kept, act.session_id)
    if session.owner != token:
        raise Conflict(f"session {act.session_id!r} belongs to another service by now")
    if any(not episode.is_over for episode in session.episodes):
        raise Conflict(f"session {act.session_id!r} has an episode that is not over")
    session.episodes.append(_new_episode(kept, act.episode_id, act.goal, act.at))
    session.updated_at = act.at
    _enter(session, SessionState.COLLECTING)


def _enter(
    session: SessionData,
    state: SessionState,
    error: str | None = None,
    error_trajectory: str | None = None,
) -> None:
    session.state = state
    session.error = error
    session.error_trajectory = error_trajectory


def _write(kept: Kept, session: SessionData, episode: EpisodeState, act: Act) -> None:
    match act:
        case StepsAnnotated():
            _annotate(episode, act)
        case EpisodeClosed():
            episode.status = "closed"
            _enter(session, SessionState.EXTRACTING)
        case TrajectoryStaged(staged=staged):
            episode.staged[staged.key] = staged
        case ExtractionAbandoned():
            _enter(session, SessionState.FAILED, act.error, act.trajectory_id)
        case ExtractionRetried():
            _enter(session, SessionState.EXTRACTING)
        case ChangesetStaged():
            episode.changeset, episode.changeset_steps = act.changeset, act.steps
            episode.staged.clear()
            _enter(session, SessionState.READY)
        case EpisodeDiscarded():
            _discard(kept, session, episode)


def _annotate(episode: EpisodeState, act: StepsAnnotated) -> None:
    unknown = [a.index for a in act.annotations if not 0 <= a.index < len(episode.steps)]
    if unknown:
        raise NotFound("step", str(unknown[0]))
    for annotation in act.annotations:
        state = episode.steps[annotation.index]
        state.step = state.step.annotated(annotation)


def _discard(kept: Kept, session: SessionData, episode: EpisodeState) -> None:
    repo = kept.repo(session.repo_id)
    for state in episode.steps:
        if not state.committed and not state.gone:
            state.gone = True
            repo.remove(state.step.node_id)
    _end(session, episode, "discarded")


def _end(session: SessionData, episode: EpisodeState, status: EpisodeStatus) -> None:
    episode.status = status
    episode.staged.clear()
    episode.changeset, episode.changeset_steps = None, ()
    _enter(session, SessionState.IDLE)


def settled_place(
    kept: Kept, settlement: Settlement, token: str, *, again: bool
) -> tuple[SessionData, EpisodeState]:
    """Where a settlement goes. *Raises* ``Conflict``: lost owner, episode that is over."""
    session, episode = _place(kept, settlement.session_id, settlement.episode_id, token)
    if episode.is_over and not again:
        raise Conflict(f"episode {settlement.episode_id!r} is over")
    return session, episode


def settle(
    place: tuple[SessionData, EpisodeState], settlement: Settlement, node_ids: tuple[str, ...]
) -> None:
    """Do what a commit does to its session; nothing where its episode is over."""
    session, episode = place
    if episode.is_over:
        return
    for index in settlement.steps:
        if 0 <= index < len(episode.steps):
            episode.steps[index].committed = True
    for key in settlement.staged:
        episode.staged.pop(key, None)
    episode.receipt_nodes = tuple(dict.fromkeys(episode.receipt_nodes + node_ids))
    session.updated_at = settlement.at
    if settlement.ends:
        _end(session, episode, "committed")


def _record(session: SessionData) -> SessionRecord:
    episode = session.episodes[-1]
    return SessionRecord(
        id=session.id,
        repo_id=session.repo_id,
        goal=episode.goal,
        state=session.state,
        steps=len(episode.steps),
        updated_at=session.updated_at,
        episode_id=None if session.state is SessionState.IDLE else episode.id,
    )


def _journal(session: SessionData) -> Journal:
    keys = MappingProxyType({key: state.step for key, state in session.keys.items()})
    idle = Journal(record=_record(session), steps=(), keys=keys)
    if session.state is SessionState.IDLE:
        return idle
    episode = session.episodes[-1]
    return replace(
        idle,
        steps=tuple(state.step for state in episode.steps),
        committed=frozenset(s.step.index for s in episode.steps if s.committed),
        staged=MappingProxyType(dict(episode.staged)),
        changeset=episode.changeset,
        changeset_steps=episode.changeset_steps,
        error=session.error,
        error_trajectory=session.error_trajectory,
        receipt_nodes=episode.receipt_nodes,
    )

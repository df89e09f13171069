"""The sessions of one repository: starts, resumes, builds and ends them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial

import anyio

from mnemo.commit.lane import CommitLane
from mnemo.config import Config
from mnemo.errors import (
    EmbeddingSpaceMismatch,
    ExtractionFailed,
    NotFound,
    SessionBusy,
    SessionClosed,
    StoreError,
)
from mnemo.log.job_rules import demand_session
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import Applied, ChatModel, Embedder, EmbeddingSpace
from mnemo.recall.request import RecallContext
from mnemo.repository.jobs import Jobs, carried_of
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.clock import new_id
from mnemo.runtime.spans import Spans, find_spans
from mnemo.runtime.tasks import Places
from mnemo.runtime.transactions import confirmed
from mnemo.runtime.validation import exact_id, known_id, whole_number
from mnemo.session.parts import Extraction, SessionParts
from mnemo.session.session import Session, checked_goal
from mnemo.values.changeset import Changeset
from mnemo.values.jobs import Intake, JobState
from mnemo.values.journal import Journal, SessionRecord, SessionState, Settlement
from mnemo.values.steps import Step

RECALL_CONTEXT_STEPS = 3
"""Last steps of a session that augment the query of ``recall_in_context``."""
MOST_IN_DOUBT = 100
"""Starts whose outcome is unknown; with so many, the next has the store say the oldest's (S)."""
NO_AUTO_COMMIT = Config(session={"auto_commit": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTask:
    """What the job of a thread opens a session for, and what was said before its steps."""

    intake: Intake
    preceding: tuple[Step, ...]


@dataclass(eq=False)
class RepositorySessions:
    """
    Starts, resumes and ends sessions; ``Repository`` documents the promises. A service without
    places for jobs has workers extract its closed episodes, but under auto-commit and for sessions
    with models of their own.
    """

    parts: RepositoryParts
    lane: CommitLane
    jobs: Jobs
    check_usable: Callable[[], None]
    closed_above: Callable[[], str | None]
    _opening: Places = field(default_factory=Places)
    _in_doubt: dict[str, SessionRecord] = field(default_factory=dict)
    _moves: int = 0
    _meter: UsageMeter = field(default_factory=UsageMeter)

    # ── In ───────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        goal: str,
        *,
        session_id: str | None = None,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
        task: SessionTask | None = None,
    ) -> Session:
        """Start a session with an open episode; durable when it returns."""
        goal = checked_goal(goal)
        if session_id is not None:
            exact_id("session_id", session_id)
        effective = self._effective(config)
        embedder = self.parts.checked_models(chat_model, embedder)
        if embedder is not None:
            self.check_space(embedder, await self.parts.feed.space())
        now = self.parts.clock.now()
        record = SessionRecord(
            id=session_id or new_id("session"),
            repo_id=self.parts.repo_id,
            goal=goal,
            state=SessionState.COLLECTING,
            steps=0,
            updated_at=now,
            episode_id=new_id("episode"),
            thread_id=task.intake.thread_id if task else None,
        )
        # Nobody may resume it by its id before it is open here.
        async with self._opening if session_id else nullcontext():
            journal = await self._created(record, may_come_again=session_id is not None)
            return self._opened(journal, effective, chat_model, embedder, task)

    async def _created(self, record: SessionRecord, *, may_come_again: bool) -> Journal:
        """Write *record*, or find that it, or the one of a failed call like this, is written."""
        doubted = self._in_doubt
        earlier = doubted.get(record.id)
        if earlier is not None and earlier.goal == record.goal and await self._is_written(earlier):
            journal = await self._claimed(record.id, None)  # another may have gone on with it
            del doubted[record.id]
            return journal
        if may_come_again and len(doubted) >= MOST_IN_DOUBT:
            oldest = next(iter(doubted))
            await self._is_written(doubted[oldest])
            del doubted[oldest]  # the store can say it: made, it is resumed; else it is started

        async def create() -> bool:
            now, owner = record.updated_at, self.parts.owner
            await self.parts.sessions.create(record, goal_at=now, owner=owner)
            return True

        def doubt() -> None:
            if may_come_again:
                doubted[record.id] = record

        await confirmed(create, partial(self._is_written, record), doubt)
        doubted.pop(record.id, None)
        return Journal(record=record, steps=())

    async def _is_written(self, record: SessionRecord) -> bool:
        journal = await self.parts.sessions.load(record.id)
        return journal is not None and journal.record.episode_id == record.episode_id

    async def resume(
        self,
        session_id: str,
        *,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
        task: SessionTask | None = None,
        left_by: str | None = None,
    ) -> Session:
        """Open a session as its last durable act left it, or give the one that is open."""
        session_id = known_id("session_id", session_id)
        effective = self._effective(config)
        embedder = self.parts.checked_models(chat_model, embedder)
        async with self._opening:
            open_here = self.parts.open_sessions.get(session_id)
            if open_here is not None:
                if not open_here._ending:
                    return open_here
                await open_here.aclose()
            journal = await self._claimed(session_id, left_by)
            self._in_doubt.pop(session_id, None)
            return self._opened(journal, effective, chat_model, embedder, task)

    async def _claimed(self, session_id: str, left_by: str | None) -> Journal:
        sessions, owner = self.parts.sessions, self.parts.owner
        await sessions.claim(session_id, owner, left_by=left_by)
        try:
            journal = await sessions.load(session_id)
        except StoreError:
            await sessions.release(owner, session_id)
            raise
        if journal is None:
            raise NotFound("session", session_id)
        return journal

    def _effective(self, config: Config | None) -> Config:
        """The repository's config under the session's, refused before anything is written."""
        effective = self.parts.config.overlaid(config)
        resolve_profile(effective.extraction.profile)
        return effective

    def check_space(self, embedder: Embedder, stored: EmbeddingSpace | None) -> None:
        """Refuse an embedder of another space than that of the stored vectors."""
        offered = embedder.space
        if stored is not None and not offered.is_like(stored):
            raise EmbeddingSpaceMismatch(
                self.parts.repo_id,
                str(stored),
                str(offered),
                stored_space=(stored.name, stored.dimensions),
                way=self.parts.way_to(stored),
            )

    # ── Building ─────────────────────────────────────────────────────────────────────

    def _opened(
        self,
        journal: Journal,
        config: Config,
        chat_model: ChatModel | None,
        embedder: Embedder | None,
        task: SessionTask | None,
    ) -> Session:
        self.check_usable()
        if task is not None:
            config = config.overlaid(NO_AUTO_COMMIT)
        id, wanted, parts = journal.record.id, config.telemetry, self.parts
        spans = parts.spans
        if wanted != parts.config.telemetry:
            spans = find_spans(enabled=wanted.enabled, capture_content=wanted.capture_content)
        meter = UsageMeter(config.session, whole=self._meter)
        own_work = task or chat_model or embedder or config.session.auto_commit
        model = chat_model or parts.chat_model
        traced = parts.traced(embedder, spans) if embedder else parts.embedder
        moves, merge_intent = self._moves, None
        if model is not None:
            from mnemo.extraction.by_model import build_intent_merger

            merge_intent = build_intent_merger(model, config, meter, spans)

        async def commit(changeset: Changeset, settlement: Settlement) -> Applied:
            if self._moves != moves:
                changeset = changeset.without_vectors()
            if task is not None:
                settlement = replace(settlement, intake=task.intake)
            return await self.lane.commit(
                changeset,
                settlement=settlement,
                config=config.commit,
                merge_intent=merge_intent,
                spans=spans,
            )

        elsewhere = partial(self._extracted_elsewhere, id, config)
        of_session = SessionParts(
            repo_id=parts.repo_id,
            session_id=id,
            store=parts.sessions,
            owner=parts.owner,
            clock=parts.clock,
            config=config,
            commit=commit,
            extraction=cache(
                lambda use_model: _extraction(
                    parts, config, model if use_model else None, traced, meter, spans
                )
            ),
            meter=meter,
            bus=parts.bus,
            spawn=partial(spans.spawn_apart, parts.root.spawn),
            root=parts.root,
            written=partial(parts.index.poke, by_job=task is not None),
            ended=partial(parts.open_sessions.pop, id, None),
            closed_above=self.closed_above,
            spans=spans,
            extracted_elsewhere=None if parts.slots.most != 0 or own_work else elsewhere,
            preceding=task.preceding if task else (),
        )
        session = parts.open_sessions[id] = Session(of_session, journal)
        session._begin()
        return session

    # ── A closed episode that a worker extracts ──────────────────────────────────────

    async def _extracted_elsewhere(self, session_id: str, config: Config) -> Journal:
        """Have the closed episode be extracted; see ``SessionParts``."""
        transcript, jobs = self.parts.transcript, self.jobs
        needs = jobs.needs({**carried_of(config), "home": self.parts.owner.token})
        await transcript.writing(partial(demand_session, session_id=session_id, needs=needs))
        while True:
            changed = jobs.watch()
            job = await transcript.reading(lambda tx: tx.job("session", session_id))
            if job is None or job.state in (JobState.DONE, JobState.DEAD):
                break
            await changed()
        await self._claim_back(session_id)
        journal = await self.parts.sessions.load(session_id)
        if journal is None or journal.record.state is SessionState.EXTRACTING:
            why = (job.error if job else None) or "its job was cancelled"
            raise ExtractionFailed(f"no worker could extract the episode: {why}")
        return journal

    async def _claim_back(self, session_id: str) -> None:
        """Claim the session, which a worker may hold until its lease is over."""
        parts = self.parts
        until = parts.clock.monotonic() + parts.config.session.lease_s
        while True:
            changed = self.jobs.watch()
            try:
                return await parts.sessions.claim(session_id, parts.owner)
            except SessionBusy as error:
                if parts.clock.monotonic() >= until:
                    raise SessionClosed(
                        "another process has gone on with the session", operation="close"
                    ) from error
            await changed()

    def leave_space(self) -> None:
        """The repository changes its space: what its open sessions embedded is of the old one."""
        self._moves += 1

    # ── Out ──────────────────────────────────────────────────────────────────────────

    async def records(self, *, unfinished: bool, limit: int | None) -> list[SessionRecord]:
        """See ``Repository.sessions``."""
        if limit is not None:
            whole_number("limit", limit, 1)
        return (await self.parts.sessions.records(unfinished=unfinished))[:limit]

    def levels(self) -> dict[str, int]:
        """What of ``RepositoryStatistics`` the open sessions and those that were say."""
        busy = sum(session.busy for session in self.open_here)
        return {"busy_sessions": busy, "left_out": self._meter.left_out}

    @property
    def open_here(self) -> list[Session]:
        """Its open sessions."""
        return list(self.parts.open_sessions.values())

    def context(self, session: Session | str) -> RecallContext | None:
        """The goal and last 3 steps of *session*; ``None`` if it is unknown here, or idle."""
        if not isinstance(session, str | Session):
            raise ValueError(f"session must be a Session or an id, not {type(session).__name__}")
        if isinstance(session, Session) and session.repo_id != self.parts.repo_id:
            return None  # one of the same id may be open here
        known = self.parts.open_sessions.get(session if isinstance(session, str) else session.id)
        if known is None or known.episode_id is None:
            return None
        return RecallContext(goal=known.goal, steps=known.recent_steps(RECALL_CONTEXT_STEPS))

    async def end(self, ids: Collection[str]) -> None:
        """End those of *ids* that are open here. *Cancellation*: completes."""
        for session in self.open_here:
            if session.id in ids:
                await session.aclose()

    async def aclose(self, grace_s: float) -> None:
        """End all of them, resumable; their work in flight gets *grace_s* seconds."""
        sessions = self.open_here
        for session in sessions:
            session._stop_starting()
        with anyio.move_on_after(grace_s):
            for session in sessions:
                await session._settle_down()
        for session in sessions:
            await session.aclose()


def _extraction(
    parts: RepositoryParts,
    config: Config,
    model: ChatModel | None,
    embedder: Embedder,
    meter: UsageMeter,
    spans: Spans,
) -> Extraction:
    """Build a session's stages, which imports a great deal."""
    from mnemo.extraction.by_model import StoredFacts
    from mnemo.extraction.pipeline import build_extraction

    return build_extraction(
        chat_model=model,
        embedder=embedder,
        config=config,
        meter=meter,
        nearby=StoredFacts(graph=parts.graph, index=parts.index, embedder=embedder),
        spans=spans,
    )

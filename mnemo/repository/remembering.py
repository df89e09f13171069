"""
Remembering: makes messages of what is given, and works off the jobs of threads and sessions.

The job takes in what its thread has new through a session of its own, whose commit says how far the
thread is extracted. A worker that dies leaves a session that the next one takes up. A closed
episode can be handed over: a worker claims its session and extracts it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio

from mnemo.config import Config
from mnemo.conversation.scope import ThreadScope
from mnemo.errors import Conflict, ExtractionFailed, MnemoError, SessionClosed
from mnemo.log.job_rules import finish_embedding, finish_extraction, finish_job, held_job
from mnemo.log.record_rows import LAST_SEQ
from mnemo.log.transcript import TranscriptReader
from mnemo.repository.jobs import Jobs, Work, config_of
from mnemo.repository.parts import RepositoryParts
from mnemo.repository.sessions import NO_AUTO_COMMIT, RepositorySessions, SessionTask
from mnemo.runtime.clock import elapsed
from mnemo.runtime.text import counted, is_blank, shown
from mnemo.runtime.validation import exact_id, portions, stored_time
from mnemo.session.episode import step_drafts
from mnemo.session.session import Session
from mnemo.values.erasure import Selection
from mnemo.values.feed import FeedCursor
from mnemo.values.jobs import Intake, Job, JobKind, JobState
from mnemo.values.journal import SessionState
from mnemo.values.messages import Message, Role, StoredMessage
from mnemo.values.steps import Step, StepDraft
from mnemo.values.units import clean_cuts
from mnemo.wire import Format, Given, listed, messages_of

# ── The next messages of a thread that its job takes, up to a clean cut ───────────


MOST_MESSAGES = 64
"""Messages of one portion, unless one tool group has more (S)."""
LONGEST_GROUP = 4_096
"""Seqs among which the end of a long tool group is looked for; a longer one is cut (S)."""
FENCE_S = 1.0
"""Seconds until a job that embeds sees that others have taken it over (S)."""
CONTEXT_MESSAGES = 3
"""Messages before a portion that are shown for understanding only (S)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """
    Messages to extract, without those of a session by hand, and the last ones before them.

    Attributes:
        to_seq: Where the next portion begins.
        due_at: When there will be one, as a call still waits for its result; ``None``: now.
    """

    messages: tuple[StoredMessage, ...]
    context: tuple[StoredMessage, ...]
    to_seq: int
    due_at: datetime | None = None

    @property
    def ids(self) -> list[str]:
        """The ids of its messages."""
        return [message.stored_id for message in self.messages]

    def up_to(self, message_id: str) -> Portion:
        """The part of it that ends with this message."""
        place = self.ids.index(message_id) + 1
        part = self.messages[:place]
        return replace(self, messages=part, to_seq=part[-1].seq + 1)


def next_portion(tx: TranscriptReader, thread_id: str, config: Config) -> Portion:
    """Read the portion that begins with the thread's ``extracted_seq``."""
    scope = ThreadScope.stored(tx, thread_id, config)
    start = scope.thread.extracted_seq or 0
    messages, end, wait_s = _up_to_cut(tx, scope, start, config.conversation.tool_deadline_s)
    fed = tx.fed(thread_id, [message.stored_id for message in messages])
    before: list[StoredMessage] = []
    if start:
        before = scope.messages(tx, to_seq=start - 1, newest=CONTEXT_MESSAGES)
    return Portion(
        messages=tuple(message for message in messages if message.id not in fed),
        context=tuple(before),
        to_seq=end,
        due_at=tx.lease_now + timedelta(seconds=wait_s) if wait_s else None,
    )


def _up_to_cut(
    tx: TranscriptReader, scope: ThreadScope, start: int, deadline_s: float
) -> tuple[list[StoredMessage], int, float]:
    """Whole groups from *start* and the seq behind; or none, and seconds till abandonment."""
    thread = scope.thread
    for most in (MOST_MESSAGES, LONGEST_GROUP):
        end = min(thread.next_seq, start + most)
        window = scope.messages(tx, from_seq=start, to_seq=end - 1)
        if not window:
            return [], end, 0
        units = scope.units(tx, window, ((start, LAST_SEQ),))
        clean = clean_cuts(units, now=tx.now, deadline_s=deadline_s)
        cuts = [cut for cut in clean if start < cut <= end]
        if cuts:
            cut = cuts[-1] if most == MOST_MESSAGES else cuts[0]
            return [message for message in window if message.seq < cut], cut, 0
        if end == thread.next_seq:
            left = (unit.open_for(tx.now, deadline_s) for unit in units)
            return [], start, next(filter(None, left), deadline_s)
    return window, end, 0


# ── Remembering ───────────────────────────────────────────────────────────────────


Content = str | Given | Sequence[str | Given]
"""What ``remember`` takes: a text, a message, or several."""
GOAL = "Remember what was said."
"""The goal of a job's session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """
    What ``Repository.remember`` stored.

    Attributes:
        messages: As they are stored, one per message that was given, but for *left_out*.
        node_ids: What extraction made of them and of what was extracted with them; empty if
            the call did not wait for it.
        left_out: Keys or ids of those that were not stored: a message of this thread had the
            same one, and was erased or has expired. Under a new key they are stored.
    """

    messages: tuple[StoredMessage, ...]
    thread_id: str
    node_ids: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        said = counted(len(self.messages), "message")
        made = counted(len(self.node_ids), "node")
        less = f", {len(self.left_out)} left out" if self.left_out else ""
        return f"<Remembered {said} in {shown(self.thread_id)!r}, {made}{less}>"


@dataclass(eq=False)
class Remembering:
    """The work of the ``extract`` and ``session`` jobs of one repository."""

    parts: RepositoryParts
    jobs: Jobs
    sessions: RepositorySessions
    forget: Callable[[Selection], Awaitable[object]]
    check_usable: Callable[[], None]

    def __post_init__(self) -> None:
        self.work: dict[JobKind, Work] = {
            "extract": self._extract,
            "session": self._work_off_session,
            "embed": self._embed,
        }

    async def extracted(self, thread_id: str, messages: Sequence[StoredMessage]) -> tuple[str, ...]:
        """Wait until *messages* are extracted; the ids of the nodes that came of that."""
        last = max(message.seq for message in messages)
        ids = [message.stored_id for message in messages]
        while True:
            changed = self.jobs.watch()
            seq, job = await self.parts.transcript.reading(partial(_progress, thread_id))
            if seq > last:
                made = await self.parts.transcript.reading(lambda tx: tx.made_of(thread_id, ids))
                return tuple(made)
            if job is not None and job.error is not None and job.state is not JobState.RUNNING:
                raise ExtractionFailed(
                    f"stored, but thread {thread_id!r} is not extracted yet: {job.error}",
                    operation="remember",
                )
            self.check_usable()
            await changed()

    # ── The jobs ─────────────────────────────────────────────────────────────────────

    async def _work_off_session(self, job: Job) -> datetime | None:
        """Extract the closed episode of the session that *job* is about; see ``Work``."""
        journal = await self.parts.sessions.load(job.subject)
        if journal is not None and journal.record.state is SessionState.EXTRACTING:
            config = config_of(job.needs, self.parts.config).overlaid(NO_AUTO_COMMIT)
            session = await self.sessions.resume(
                job.subject, config=config, left_by=job.needs.get("home")
            )
            try:
                await session.wait_for(SessionState.READY, SessionState.FAILED)
            except SessionClosed:
                return job.due_at  # this repository closes, or the session was forgotten
            finally:
                await session.aclose()
        await self.parts.transcript.writing(partial(finish_job, job=job))
        return None

    async def _embed(self, job: Job) -> datetime | None:
        """Make the vectors that are owed; see ``Work``. A failure is no try: texts stay owed."""
        index, parts = self.parts.index, self.parts
        since, lost = FeedCursor(*job.needs.get("until", ())), anyio.Event()

        async def look() -> None:
            while not lost.is_set():
                await anyio.sleep(FENCE_S)
                with suppress(MnemoError):
                    if await parts.transcript.reading(partial(held_job, job=job)) is None:
                        lost.set()

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            until = await index.work_off(
                since, goes_on=lambda: not (self.jobs.stopped or lost.is_set())
            )
            group.cancel_scope.cancel()
        if until is None:
            return parts.clock.now() + timedelta(seconds=index.patience_s)
        await parts.transcript.writing(partial(finish_embedding, job=job, until=until))
        return None

    async def _extract(self, job: Job) -> datetime | None:
        """Take in the next portion of the thread that *job* is about; see ``Work``."""
        config, store = self.parts.config, self.parts.transcript
        portion = await store.reading(partial(next_portion, thread_id=job.subject, config=config))
        if portion.due_at is not None:
            return portion.due_at
        read = (*portion.context, *portion.messages)
        self.jobs.running[job.key] = [message.stored_id for message in read]
        for session_id in await store.reading(lambda tx: tx.extracting(job.subject)):
            part = await self._fitting(session_id, portion)
            if part is not None:
                return await self._carry_out(job, part, session_id)
            await self._drop(session_id)
        if not self._said(portion.messages):
            await store.writing(partial(finish_extraction, done=_done(job, portion, config)))
            return None
        return await self._carry_out(job, portion, None)

    def _said(self, messages: Sequence[StoredMessage]) -> list[str]:
        """Ids of those of *messages* that become steps."""
        return [str(draft.message_id) for draft in self._drafts(messages)]

    def _drafts(self, messages: Sequence[StoredMessage]) -> list[StepDraft]:
        now, actor = self.parts.clock.now(), self.parts.config.extraction.default_actor
        return step_drafts(messages, now=now, default_actor=actor)

    async def _fitting(self, session_id: str, portion: Portion) -> Portion | None:
        """The part of *portion* that a session left behind is about; ``None``: of another one."""
        journal = await self.parts.sessions.load(session_id)
        held = [step.message_id for step in journal.steps] if journal is not None else []
        if journal is None or held != self._said(portion.messages)[: len(held)]:
            return None
        if journal.record.state is SessionState.COLLECTING:
            return portion
        return portion.up_to(str(held[-1])) if held else None

    async def _carry_out(
        self, job: Job, portion: Portion, session_id: str | None
    ) -> datetime | None:
        """Extract and commit *portion*, through the session left behind or a new one."""
        config = config_of(job.needs, self.parts.config)
        preceding = _preceding(self._drafts(portion.context))
        task = SessionTask(intake=_done(job, portion, self.parts.config), preceding=preceding)
        if session_id is None:
            session = await self.sessions.start(GOAL, config=config, task=task)
        else:
            session = await self.sessions.resume(session_id, config=config, task=task)
        try:
            began = elapsed()
            await self._take_in(session, portion)
            self.jobs.took(len(portion.messages), began)
            return None
        except SessionClosed:
            return job.due_at  # the repository closes, or what it held was forgotten
        except Conflict:
            await session.aclose()
            if await self.parts.transcript.reading(partial(held_job, job=job)):
                # What was erased meanwhile must not come back by the steps made of it.
                await self._drop(session.id)
            return job.due_at
        finally:
            await session.aclose()

    async def _drop(self, session_id: str) -> None:
        """Erase a session with all that came of it."""
        await self.forget(Selection(session_id=session_id))

    async def _take_in(self, session: Session, portion: Portion) -> None:
        if session.state is SessionState.COLLECTING:
            for some in portions(portion.messages):
                await session._take_fed(some)
            await self._require_all(session, portion)
            await session.close()
        elif session.state is SessionState.FAILED:
            await session.commit()
        state = await session.wait_for(SessionState.READY, SessionState.FAILED)
        if state is SessionState.FAILED:
            raise session.error or ExtractionFailed("extraction failed")
        await session.commit()

    async def _require_all(self, session: Session, portion: Portion) -> None:
        """Raise ``Conflict`` if a message of *portion* was refused: it is gone, or was fed."""
        threads = {message.thread_id for message in portion.messages}
        held = {id for thread in threads for id in session.held_messages(thread)}
        if not held.issuperset(self._said(portion.messages)):
            raise Conflict("messages of the thread were erased or fed meanwhile")


def said_messages(
    content: Content,
    *,
    role: Role,
    key: str | None,
    format: Format | None,
    actor: str | None,
    at: datetime | str | None,
    metadata: Mapping[str, Any] | None,
) -> list[Message]:
    """Make messages of *content*; what the call says stands where a message says nothing."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ValueError(f"metadata must be a JSON object, not {type(metadata).__name__}")
    said_at = stored_time("at", at) if at is not None else None
    batch = [content] if isinstance(content, str) else listed(content)
    if not batch:
        raise ValueError("content is empty: give a text, a message, or several")
    given = [_spoken(one, role) if isinstance(one, str) else one for one in batch]
    made = list(messages_of(given, format))
    if key is not None:
        exact_id("key", key)
    keys = [key] if key is None or len(made) == 1 else [f"{key}:{n}" for n in range(len(made))]
    keys *= 1 if key is not None else len(made)
    return [
        replace(
            message,
            id=message.id or own_key,
            actor=message.actor or actor,
            at=message.at or said_at,
            metadata={**(metadata or {}), **message.metadata},
        )
        for message, own_key in zip(made, keys, strict=True)
    ]


def _spoken(text: str, role: Role) -> Message:
    if is_blank(text):
        raise ValueError("content cannot be blank")
    return Message(role=role, content=text)


def _done(job: Job, portion: Portion, config: Config) -> Intake:
    # What was erased meanwhile must not come back by what was made in its sight.
    return Intake(
        thread_id=job.subject,
        token=job.token,
        to_seq=portion.to_seq,
        message_ids=portion.ids,
        shown={message.stored_id: message.recorded_at for message in portion.context},
        ttl_s=config.conversation.ttl_s,
    )


def _preceding(drafts: Sequence[StepDraft]) -> tuple[Step, ...]:
    """Steps as they would stand before those of an episode."""
    return tuple(
        draft.step(session_id="", episode_id="", index=place - len(drafts))
        for place, draft in enumerate(drafts)
    )


def _progress(thread_id: str, tx: TranscriptReader) -> tuple[int, Job | None]:
    return tx.thread(thread_id).extracted_seq or 0, tx.job("extract", thread_id)

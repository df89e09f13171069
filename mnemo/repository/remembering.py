"""
Remembering: stores messages with the job of their thread, and works that job off.

The job takes in what its thread has new through a session of its own, whose commit says how
far the thread is extracted. A worker that dies leaves a session that the next one takes up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from mnemo.conversation.log import MessageLog
from mnemo.conversation.portion import Portion, next_portion
from mnemo.errors import Conflict, ExtractionFailed, SessionClosed
from mnemo.log.job_rules import demand_extraction, finish_extraction
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.repository.conversation import RepositoryConversations
from mnemo.repository.handing_over import HandingOver, config_of, needs_of, satisfies
from mnemo.repository.jobs import Jobs
from mnemo.repository.parts import RepositoryParts
from mnemo.repository.sessions import RepositorySessions, SessionTask
from mnemo.runtime.tasks import Branch, computed, on_clock
from mnemo.runtime.text import counted, is_blank, shown
from mnemo.runtime.validation import portions, seconds, stored_time
from mnemo.session.appends import drafts_of
from mnemo.session.session import Session
from mnemo.values.erasure import Selection
from mnemo.values.jobs import Extraction, Job, JobState
from mnemo.values.journal import SessionState
from mnemo.values.messages import Message, Role, StoredMessage
from mnemo.values.steps import Step, StepDraft
from mnemo.wire import Format, Given, listed, messages_of

Content = str | Given | Sequence[str | Given]
"""What ``remember`` takes: a text, a message, or several."""
GOAL = "Remember what was said."
"""The goal of a job's session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """
    What ``Repository.remember`` stored.

    Attributes:
        messages: As they are stored, one per message that was given; what was erased or has
            expired is left out.
        node_ids: What extraction made of them and of what was extracted with them; empty if
            the call did not wait for it.
    """

    messages: tuple[StoredMessage, ...]
    thread_id: str
    node_ids: tuple[str, ...] = ()

    def __repr__(self) -> str:
        said = counted(len(self.messages), "message")
        made = counted(len(self.node_ids), "node")
        return f"<Remembered {said} in {shown(self.thread_id)!r}, {made}>"


class Remembering:
    """
    ``remember`` of one repository, and the work of its ``extract`` jobs.

    Args:
        forget: Erases what is selected.
        tasks: Where jobs run.
        check_usable: Raises ``UsageError`` where the repository is closed.
    """

    def __init__(
        self,
        parts: RepositoryParts,
        conversations: RepositoryConversations,
        sessions: RepositorySessions,
        *,
        forget: Callable[[Selection], Awaitable[object]],
        tasks: Branch,
        check_usable: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._conversations = conversations
        self._sessions = sessions
        self._forget = forget
        self._check_usable = check_usable
        self.jobs = Jobs(
            store=parts.transcript,
            owner=parts.owner,
            clock=parts.clock,
            config=parts.config,
            tasks=tasks,
            work={"extract": self._extract, "session": self._work_off_session},
            slots=parts.slots,
            repo_id=parts.repo_id,
            spans=parts.spans,
            space=lambda: parts.embedder.space,
            able=lambda job: satisfies(job.needs, parts.config, parts.embedder.space),
        )
        self._needs = needs_of(parts.config, parts.embedder.space)
        self._handing_over = HandingOver(parts, self.jobs.watch, sessions.taken_over)
        conversations.remembered = self.append
        if parts.slots.most == 0:
            sessions.extracted_elsewhere = self._handing_over.extracted

    async def remember(
        self,
        content: Content,
        *,
        thread_id: str,
        role: Role,
        actor: str | None,
        at: datetime | str | None,
        key: str | None,
        metadata: Mapping[str, Any] | None,
        wait: bool,
        timeout_s: float | None,
        format: Format | None,
    ) -> Remembered:
        """Store *content* with its thread's job; see ``Repository.remember``."""
        if timeout_s is not None:
            seconds("timeout_s", timeout_s)
        make = partial(
            _messages, content, role=role, actor=actor, at=at, key=key, metadata=metadata,
            format=format,
        )  # fmt: skip
        messages = await computed(make, content)
        handle = self._conversations.handle(thread_id)
        stored = await self.append(handle, messages, wait=wait)
        node_ids: tuple[str, ...] = ()
        if wait and stored:
            extracted = partial(self._extracted, thread_id, stored)
            node_ids = await on_clock(self._parts.clock.sleep, timeout_s, extracted)
        return Remembered(messages=tuple(stored), thread_id=thread_id, node_ids=node_ids)

    async def append(
        self,
        handle: MessageLog,
        batch: Sequence[Given],
        *,
        wait: bool = False,
        expected_seq: int | None = None,
        format: Format | None = None,
    ) -> list[StoredMessage]:
        """Append *batch* to the thread of *handle*, and its job in the same transaction."""
        config = self._parts.config.jobs
        needs = {**self._needs, "space": str(self._parts.embedder.space)}
        is_due: list[bool] = []

        def demand(tx: TranscriptWriter, stored: Sequence[StoredMessage]) -> None:
            if stored:
                due = demand_extraction(
                    tx,
                    stored,
                    quiet_s=config.quiet_s,
                    most_waiting=config.most_waiting,
                    at_once=wait,
                    needs=needs,
                )
                is_due[:] = [due]

        stored = await handle.append_with(batch, demand, expected_seq=expected_seq, format=format)
        if any(is_due):
            self.jobs.poke()
        return stored

    async def _extracted(
        self, thread_id: str, messages: Sequence[StoredMessage]
    ) -> tuple[str, ...]:
        """Wait until *messages* are extracted; the ids of the nodes that came of that."""
        last = max(message.seq for message in messages)
        ids = [message.stored_id for message in messages]
        while True:
            changed = self.jobs.watch()
            seq, job = await self._parts.transcript.reading(partial(_progress, thread_id))
            if seq > last:
                made = await self._parts.transcript.reading(lambda tx: tx.made_of(thread_id, ids))
                return tuple(made)
            if job is not None and job.error is not None and job.state is not JobState.RUNNING:
                raise ExtractionFailed(
                    f"extraction of thread {thread_id!r} failed: {job.error}", operation="remember"
                )
            self._check_usable()
            await changed()

    # ── The job ──────────────────────────────────────────────────────────────────────

    async def _work_off_session(self, job: Job) -> datetime | None:
        return await self._handing_over.work(job)

    async def _extract(self, job: Job) -> datetime | None:
        """Take in the next portion of the thread that *job* is about; see ``Work``."""
        config, store = self._parts.config, self._parts.transcript
        portion = await store.reading(partial(next_portion, thread_id=job.subject, config=config))
        if portion.waits:
            deadline = timedelta(seconds=config.conversation.tool_deadline_s)
            return self._parts.clock.now() + deadline
        for session_id in await store.reading(lambda tx: tx.extracting(job.subject)):
            part = await self._fitting(session_id, portion)
            if part is not None:
                return await self._carry_out(job, part, partial(self._resume, session_id, job))
            await self._drop(session_id)
        if not self._said(portion.messages):
            await store.writing(partial(finish_extraction, done=_done(job, portion)))
            return None
        return await self._carry_out(job, portion, partial(self._start, job))

    def _said(self, messages: Sequence[StoredMessage]) -> list[str]:
        """Ids of those of *messages* that become steps."""
        return [str(draft.message_id) for draft in self._drafts(messages)]

    def _drafts(self, messages: Sequence[StoredMessage]) -> list[StepDraft]:
        now, actor = self._parts.clock.now(), self._parts.config.extraction.default_actor
        return drafts_of(messages, now=now, default_actor=actor)

    async def _fitting(self, session_id: str, portion: Portion) -> Portion | None:
        """The part of *portion* that a session left behind is about; ``None``: of another one."""
        journal = await self._parts.sessions.load(session_id)
        held = [step.message_id for step in journal.steps] if journal is not None else []
        if journal is None or held != self._said(portion.messages)[: len(held)]:
            return None
        if journal.record.state is SessionState.COLLECTING:
            return portion
        return portion.up_to(str(held[-1])) if held else None

    async def _start(self, job: Job, task: SessionTask) -> Session:
        config = config_of(job.needs, self._parts.config)
        return await self._sessions.start(
            GOAL, session_id=None, config=config, chat_model=None, embedder=None, task=task
        )

    async def _resume(self, session_id: str, job: Job, task: SessionTask) -> Session:
        config = config_of(job.needs, self._parts.config)
        return await self._sessions.resume(
            session_id, config=config, chat_model=None, embedder=None, task=task
        )

    async def _carry_out(
        self, job: Job, portion: Portion, open: Callable[[SessionTask], Awaitable[Session]]
    ) -> datetime | None:
        """Extract and commit *portion* through the session that *open* gives."""
        preceding = _preceding(self._drafts(portion.context))
        session = await open(SessionTask(extraction=_done(job, portion), preceding=preceding))
        try:
            await self._take_in(session, portion)
            return None
        except SessionClosed:
            return job.due_at  # the repository closes, or what it held was forgotten
        except Conflict:
            await session.aclose()
            if await self._parts.transcript.reading(partial(_is_held, job)):
                # What was erased meanwhile must not come back by the steps made of it.
                await self._drop(session.id)
            return job.due_at
        finally:
            await session.aclose()

    async def _drop(self, session_id: str) -> None:
        """Erase a session with all that came of it."""
        await self._forget(Selection(session_id=session_id))

    async def _take_in(self, session: Session, portion: Portion) -> None:
        if session.state is SessionState.COLLECTING:
            for some in portions(portion.messages):
                await session.append_messages(some)
            await self._require_all(portion)
            await session.close()
        elif session.state is SessionState.FAILED:
            await session.commit()
        state = await session.wait_for(SessionState.READY, SessionState.FAILED)
        if state is SessionState.FAILED:
            raise session.error or ExtractionFailed("extraction failed")
        await session.commit()

    async def _require_all(self, portion: Portion) -> None:
        """Raise ``Conflict`` if a step of *portion* must go: its message is gone, or was fed."""
        if not portion.messages:
            return
        thread_id, ids = portion.messages[0].thread_id, portion.ids

        def look(tx: TranscriptReader) -> tuple[int, frozenset[str]]:
            return len(tx.by_id(thread_id, ids)), tx.fed(thread_id, ids)

        found, fed = await self._parts.transcript.reading(look)
        if found < len(ids) or fed:
            raise Conflict(f"messages of thread {thread_id!r} were erased or fed meanwhile")


def _messages(
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


def _done(job: Job, portion: Portion) -> Extraction:
    return Extraction(
        thread_id=job.subject,
        token=job.token,
        to_seq=portion.to_seq,
        message_ids=tuple(portion.ids),
    )


def _preceding(drafts: Sequence[StepDraft]) -> tuple[Step, ...]:
    """Steps as they would stand before those of an episode."""
    return tuple(
        draft.step(session_id="", episode_id="", index=place - len(drafts))
        for place, draft in enumerate(drafts)
    )


def _progress(thread_id: str, tx: TranscriptReader) -> tuple[int, Job | None]:
    return tx.thread(thread_id).extracted_seq or 0, tx.job("extract", thread_id)


def _is_held(job: Job, tx: TranscriptReader) -> bool:
    present = tx.job(job.kind, job.subject)
    return present is not None and present.is_held(job.token)

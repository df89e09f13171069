"""Finding: the recalls and searches of a repository, and what its recall log has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import anyio

from mnemo.recall.keyword import SearchHit, search
from mnemo.recall.pipeline import Recall
from mnemo.recall.recall_log import RecallLog
from mnemo.recall.request import checked_query
from mnemo.recall.result import RecallResult
from mnemo.recall.view import MessageView
from mnemo.repository.memories import Page
from mnemo.repository.parts import RepositoryParts
from mnemo.repository.sessions import RepositorySessions
from mnemo.runtime.spans import memory_attributes
from mnemo.runtime.validation import every
from mnemo.session.session import Session
from mnemo.values.recalls import RecallRecord

MOST_QUESTIONS = 64
"""Of one ``recall_many``, at most."""


class RecallCalls:
    """What a repository finds."""

    _parts: RepositoryParts
    _recall: Recall
    _recall_log: RecallLog
    _sessions: RepositorySessions
    _check_usable: Callable[..., None]

    async def recall(
        self,
        query: str,
        *,
        k: int = 10,
        mode: str | None = None,
        max_hops: int = 2,
        reason: bool | None = None,
        use_model: bool | None = None,
        where: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        actor: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        types: Sequence[str] | None = None,
        min_score: float = 0.0,
        min_confidence: float = 0.0,
        explain: bool = False,
        notes: bool = False,
        expect: str | None = None,
    ) -> RecallResult:
        """
        Find what the memory knows about *query*, always with its sources.

        A question that is no language, as random letters are none, and of which no word is
        stored finds nothing; every other one finds what is nearest.

        Args:
            query: Words, never syntax.
            k: Candidates, at most; ≥ 1.
            mode: ``semantic``, ``procedural``, ``episodic`` or ``mixed``; ``None`` decides.
            max_hops: Expansions over the graph; 0 is none.
            reason: Put the result into words too, with the chat model or without one.
            use_model: Have the chat model plan and refine; ``None``: ``config.recall.use_model``.
                Either without a chat model is an error.
            where: Conditions on the metadata of the evidence (of messages and steps; what was
                extracted matches if one of its sources does): key → a value, a list of which
                one must be there, or operators ``gt gte lt lte ne exists``. A key descends at
                its dots, a list in the data matches if a member does, an absent key matches
                ``{"exists": False}`` alone, values of different kinds never match.
            session_id: Evidence of this session or thread; *thread_id* of this thread only.
            actor: Evidence by this speaker, case and accents aside.
            since: Inclusive, looks at the evidence; *until* likewise. A
                ``datetime`` or ISO 8601 text; no zone means UTC.
            types: Exactly these node types. A fact and the step that it restates are one
                candidate, the better one, with the other among its sources, unless both
                types are named. ``item`` finds keyed items by their texts: *where* looks at
                their value, *since* and *until* at their last put; of no session, thread or
                speaker; expiries stay as they are.
            min_score: Only candidates of this relevance, 0 to 1.
            min_confidence: Nothing, unless the answer is among the candidates with this
                confidence, 0 to 1 (``RecallResult.confidence``).
            explain: Have every candidate say why it came (``Candidate.why``).
            notes: Look for notes as well, as ``repo.notes.recall`` does, whatever *since*,
                *until* and *types* say; if that fails, the trace says so.
            expect: Id of a node, step or message: ``RecallResult.expected`` says where it stands,
                and what left it out.

        Raises:
            ValueError: Blank query or an argument out of range.
            ConfigError: A chat model is to plan, and there is none.
            RecallFailed: The store failed, or with ``reason=True`` the chat model, for every type.
            UsageError: The repository is closed, or was meanwhile. *Cancellation*: safe.
        """
        self._check_usable()
        return await self._recall.recall(
            query, k=k, mode=mode, max_hops=max_hops, reason=reason,
            use_model=use_model, where=where, session_id=session_id, thread_id=thread_id,
            actor=actor, since=since, until=until, types=types, explain=explain, notes=notes,
            min_score=min_score, min_confidence=min_confidence, expect=expect,
        )  # fmt: skip

    async def recall_in_context(
        self,
        session: Session | str,
        query: str,
        *,
        k: int = 10,
        mode: str | None = None,
        max_hops: int = 2,
        reason: bool | None = None,
        use_model: bool | None = None,
        where: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        actor: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        types: Sequence[str] | None = None,
        min_score: float = 0.0,
        min_confidence: float = 0.0,
        explain: bool = False,
        notes: bool = False,
        expect: str | None = None,
    ) -> RecallResult:
        """
        ``recall`` with the query augmented by the goal and the last 3 steps of *session*.

        Those steps are not returned. An unknown or idle session is plain ``recall``.

        Args:
            session: The session, or its id; the others as of ``recall``.

        Raises:
            ValueError: Blank query or an argument out of range.
            ConfigError: A chat model is to plan, and there is none.
            RecallFailed: As ``recall``. *Cancellation*: safe.
        """
        self._check_usable()
        return await self._recall.recall(
            query, k=k, mode=mode, max_hops=max_hops, reason=reason,
            use_model=use_model, where=where, session_id=session_id, thread_id=thread_id,
            actor=actor, since=since, until=until, types=types, explain=explain, notes=notes,
            min_score=min_score, min_confidence=min_confidence, expect=expect,
            context=self._sessions.context(session),
        )  # fmt: skip

    async def recall_many(
        self,
        queries: Sequence[str],
        *,
        k: int = 10,
        mode: str | None = None,
        max_hops: int = 2,
        reason: bool | None = None,
        use_model: bool | None = None,
        where: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        actor: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        types: Sequence[str] | None = None,
        min_score: float = 0.0,
        min_confidence: float = 0.0,
        explain: bool = False,
        notes: bool = False,
        expect: str | None = None,
    ) -> list[RecallResult]:
        """
        ``recall`` of several questions, in their order; those that ask a model do so side by side.

        Args:
            queries: At most 64 questions; the others as of ``recall``.

        Raises:
            ValueError: A blank query, more than 64, or an argument out of range; none is answered.
            ConfigError: A chat model is to plan, and there is none.
            RecallFailed: As ``recall``, for one of them. *Cancellation*: safe.
        """
        self._check_usable()
        asked = [*map(checked_query, every("queries", queries, MOST_QUESTIONS))]
        found: dict[int, RecallResult] = {}

        async def answer(number: int, query: str) -> None:
            found[number] = await self._recall.recall(
                query, k=k, mode=mode, max_hops=max_hops, reason=reason,
                use_model=use_model, where=where, session_id=session_id, thread_id=thread_id,
                actor=actor, since=since, until=until, types=types, explain=explain, notes=notes,
                min_score=min_score, min_confidence=min_confidence, expect=expect,
            )  # fmt: skip

        try:
            async with anyio.create_task_group() as tasks:
                for number, query in enumerate(asked):
                    tasks.start_soon(answer, number, query)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [found[number] for number in range(len(asked))]

    async def recalls(self, *, limit: int = 100, after: str | None = None) -> Page[RecallRecord]:
        """
        List the last recalls, newest first, a page at a time.

        They are kept while ``config.recall.keep_last`` says how many, and go with what is erased:
        each that names an erased memory, step, message or session, or shares a content word with
        what was erased. A copy of one repository (``Mnemo.export_repo``) has none; a backup of the
        store has them.

        Args:
            limit: 1 to 1,000.
            after: ``Page.next`` of the page before.

        Raises:
            ValueError: *limit* is out of range, or *after* of no listing. *Cancellation*: safe.
        """
        self._check_usable()
        return Page(*await self._recall_log.page(limit, after))

    async def search(
        self,
        query: str,
        *,
        where: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        actor: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        types: Sequence[str] | None = None,
        limit: int = 5,
        not_visible_in: str | None = None,
    ) -> list[SearchHit]:
        """
        Find words in everything ever said or observed; all of them must occur.

        A message and the step that a fed session made of it are one record: the hit is the
        message while it is stored, the step afterwards.

        Args:
            query: Words, ``"quoted phrases"``, ``OR`` and ``NOT`` in upper case.
            where: As of ``recall``; likewise *thread_id*, *actor*, *since* and *until*.
            session_id: Only this session or thread, whichever the record was made in.
            types: Only records of these kinds, as ``SearchHit.kind`` has them.
            limit: 1 to 100.
            not_visible_in: Without what the agent of this thread or session sees now.

        Raises:
            ValueError: Blank query, or a limit out of range. *Cancellation*: safe.
        """
        from mnemo.context.rendering import hidden_in

        self._check_usable()
        parts = self._parts
        named = memory_attributes("search_memory", parts.repo_id)
        with parts.spans.span("search_memory", attributes=named) as span:
            span.set_content("gen_ai.memory.query.text", lambda: query)
            hidden = await hidden_in(parts.transcript, not_visible_in, parts.config)
            found = await search(
                parts.records, query, clock=parts.clock, config=parts.config,
                session_id=session_id, limit=limit, hidden=hidden, types=types, where=where,
                thread_id=thread_id, actor=actor, since=since, until=until,
            )  # fmt: skip
            span.set("gen_ai.memory.record.count", len(found))
            return found

    async def view(
        self,
        message_id: str,
        *,
        session_id: str | None = None,
        before: int = 10,
        after: int = 10,
        budget_tokens: int | None = None,
    ) -> MessageView:
        """
        Open what lies around a message, a half of a step, or a snapshot.

        Args:
            message_id: As a hit of ``search`` has it; *session_id* likewise, needed where
                the id is used in several threads.
            before: Neighbours ahead of it, 0 to 100; *after* likewise.
            budget_tokens: Of the view's text, at least 100; default
                ``config.recall.view_budget_tokens``.

        Raises:
            NotFound: There is no such record: unknown, erased or expired.
            Conflict: Several threads have one; the message names them.
            ValueError: A number is out of range. *Cancellation*: safe.
        """
        from mnemo.recall.view import view

        self._check_usable()
        return await view(
            self._parts.records, message_id, config=self._parts.config, session_id=session_id,
            before=before, after=after, budget_tokens=budget_tokens,
        )  # fmt: skip

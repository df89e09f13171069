"""Asking a repository: recall, keyword search, and looking around a hit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from mnemo.recall.keyword import SearchHit, search, stream_id
from mnemo.recall.request import RecallContext, RecallRequest
from mnemo.recall.result import RecallResult
from mnemo.repository.queries import GraphQueries
from mnemo.session.session import Session

if TYPE_CHECKING:  # a name in an annotation need not cost every import its time
    from mnemo.recall.agent_tools import AgentTool
    from mnemo.recall.pipeline import Recall
    from mnemo.recall.view import MessageView

__all__ = ["RepositoryAnswers"]

CONTEXT_STEPS = 3
"""Last steps of a session that augment the query of ``recall_in_context``."""


class RepositoryAnswers(GraphQueries):
    """What a ``Repository`` answers with what it knows; nothing is written but access counts."""

    _recall: Recall

    async def recall(
        self,
        query: str,
        *,
        k: int = 10,
        mode: str | None = None,
        max_hops: int = 2,
        reason: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        types: Sequence[str] | None = None,
        explain: bool = False,
        notes: bool = False,
    ) -> RecallResult:
        """
        Find what the memory knows about *query*, always with its sources.

        Args:
            query: Words, never syntax.
            k: Candidates, at most; ≥ 1.
            mode: ``semantic``, ``procedural``, ``episodic`` or ``mixed``; ``None`` decides.
            max_hops: Expansions over the graph; 0 is none.
            reason: Put the result into words too; ``None``: when a chat model is configured.
            since: Inclusive, looks at the evidence; *until* likewise. No zone means UTC.
            types: Exactly these node types.
            explain: Have every candidate say why it came (``Candidate.why``).
            notes: Look for notes as well, as ``repo.notes.recall`` does, whatever *since*,
                *until* and *types* say; if that fails, the trace says so.

        Raises:
            ValueError: Blank query or an argument out of range.
            RecallFailed: The store failed; with ``reason=True`` the chat model did, for
                every type of candidate.
            UsageError: The repository is closed, or was while it answered.
                *Cancellation*: safe.
        """
        self._check_usable()
        make_request = partial(
            RecallRequest.checked, query, k=k, mode=mode, max_hops=max_hops, reason=reason,
            since=since, until=until, types=types, explain=explain, notes=notes,
        )  # fmt: skip
        return await self._recall.recall(query, make_request)

    async def recall_in_context(
        self,
        session: Session | str,
        query: str,
        *,
        k: int = 10,
        mode: str | None = None,
        max_hops: int = 2,
        reason: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        types: Sequence[str] | None = None,
        explain: bool = False,
        notes: bool = False,
    ) -> RecallResult:
        """
        ``recall`` for whoever works in *session*: its goal and last 3 steps weigh in.

        Those steps themselves are not returned. An unknown or idle session is plain
        ``recall``. Arguments and errors are those of ``recall``.
        """
        self._check_usable()
        make_request = partial(
            RecallRequest.checked, query, k=k, mode=mode, max_hops=max_hops, reason=reason,
            since=since, until=until, types=types, explain=explain, notes=notes,
            context=self._context(session),
        )  # fmt: skip
        return await self._recall.recall(query, make_request)

    def _context(self, session: Session | str) -> RecallContext | None:
        if not isinstance(session, str | Session):
            raise ValueError(f"session must be a Session or an id, not {type(session).__name__}")
        id = session if isinstance(session, str) else session.id
        known = self._parts.open_sessions.get(id)
        if known is None or known.repo_id != self._parts.repo_id or known.episode_id is None:
            return None
        return RecallContext(goal=known.goal, steps=known.recent_steps(CONTEXT_STEPS))

    async def search(
        self,
        query: str,
        *,
        session_id: str | None = None,
        limit: int = 5,
        not_visible_in: str | None = None,
    ) -> list[SearchHit]:
        """
        Find words in everything ever said or observed; all of them must occur.

        A message and the step that a fed session made of it are one record: the hit is the
        message while it is stored, the step afterwards.

        Args:
            query: Words, ``"quoted phrases"``, ``OR`` and ``NOT`` in upper case.
            session_id: Only this session or thread, whichever the record was made in.
            limit: 1 to 100.
            not_visible_in: Without what the agent of this thread or session sees now.

        Raises:
            ValueError: Blank query, or a limit out of range. *Cancellation*: safe.
        """
        self._check_usable()
        hidden, seen_in = None, stream_id("not_visible_in", not_visible_in)
        if seen_in is not None:
            from mnemo.context.visible import seen_by

            hidden = await self._parts.transcript.reading(
                partial(seen_by, stream=seen_in, config=self._parts.config)
            )
        return await search(
            self._parts.records,
            query,
            clock=self._parts.clock,
            config=self._parts.config,
            session_id=session_id,
            limit=limit,
            hidden=hidden,
        )

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
            self._parts.records,
            message_id,
            config=self._parts.config,
            session_id=session_id,
            before=before,
            after=after,
            budget_tokens=budget_tokens,
        )

    def tools(self, thread_id: str | None = None) -> list[AgentTool]:
        """
        ``search_messages`` and ``view_messages`` for an agent; a plain call.

        Args:
            thread_id: The agent's own thread or session: what is visible there is left out
                of its searches.
        """
        from mnemo.recall.agent_tools import search_tool, view_tool

        self._check_usable()
        searching = partial(self.search, not_visible_in=thread_id)
        return [search_tool(searching), view_tool(self.view)]

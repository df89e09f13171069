"""
A repository: one isolated memory. Sessions go in, recall comes out.

It owns what its sessions share: the graph, the index that follows it, and the lane in
which commits are reconciled one after the other.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from mnemo._spans import Span, memory_attributes
from mnemo._tasks import completed, running_loop
from mnemo.config import Config
from mnemo.episode.erasure import ErasureReport, Selection
from mnemo.episode.journal import SessionRecord
from mnemo.errors import MnemoError, UsageError
from mnemo.graph.changeset import Changeset, Revision
from mnemo.graph.upkeep import MaintenanceReport
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import (
    ChatModel,
    Embedder,
)
from mnemo.recall.access import AccessLog
from mnemo.recall.candidate import Candidate
from mnemo.recall.keyword import SearchHit, search
from mnemo.recall.question import RecallContext
from mnemo.recall.result import RecallResult
from mnemo.repository.parts import RepositoryParts, RepositoryStatistics
from mnemo.repository.queries import GraphQueries
from mnemo.session.session import Session

__all__ = ["Repository"]

log = logging.getLogger("mnemo")

CONTEXT_STEPS = 3
"""Last steps of a session that augment the query of ``recall_in_context``."""


class Repository(GraphQueries):
    """One isolated memory; made by ``Mnemo.open_repo``."""

    def __init__(self, parts: RepositoryParts) -> None:
        # Here: importing mnemo need not load what only an open repository runs.
        from mnemo.commit.announced import AnnouncedWrites
        from mnemo.commit.lane import CommitLane
        from mnemo.maintenance.runner import Maintenance
        from mnemo.recall.pipeline import Recall
        from mnemo.repository.sessions import RepositorySessions

        self._loop = asyncio.get_running_loop()
        self._parts = parts
        self._closed = False
        self._following = anyio.CancelScope()
        self._background: TaskGroup
        self._recalls: set[anyio.CancelScope] = set()
        self._access = AccessLog(parts.graph, parts.clock)
        self._usage = UsageMeter()
        lane = CommitLane(
            graph=parts.graph,
            index=parts.index,
            embedder=parts.embedder,
            owner=parts.owner,
            clock=parts.clock,
            config=parts.config.commit,
        )
        self._writes = AnnouncedWrites(
            repo_id=parts.repo_id,
            lane=lane,
            graph=parts.graph,
            clock=parts.clock,
            publish=parts.publish,
            written=parts.index.poke,
            spans=parts.spans,
        )
        self._sessions = RepositorySessions(parts, self._writes, check_usable=self._check_usable)
        self._recall = Recall(
            repo_id=parts.repo_id,
            graph=parts.graph,
            feed=parts.feed,
            index=parts.index,
            embedder=parts.embedder,
            clock=parts.clock,
            config=_profiled(parts.config),
            notify=parts.publish,
            chat_model=parts.chat_model,
            usage=self._usage,
            spans=parts.spans,
        )
        self._maintenance = Maintenance(
            repo_id=parts.repo_id,
            lane=lane,
            graph=parts.graph,
            index=parts.index,
            embedder=parts.embedder,
            clock=parts.clock,
            config=_profiled(parts.config),
            root=parts.root,
            publish=parts.publish,
            written=parts.index.poke,
            settle=self._access.try_to_flush,
            check_usable=self._check_usable,
        )
        self._turn = lane.turn

    async def open(self) -> None:
        """
        Check the embedding space and start what follows the store.

        Raises:
            EmbeddingSpaceMismatch: The repository's vectors are of another space.
        """
        await self._sessions.check_space(self._parts.embedder)
        with self._parts.spans.at(None):
            self._parts.root.spawn(self._follow)
        self._parts.index.poke()

    async def _follow(self) -> None:
        with self._following:
            async with anyio.create_task_group() as self._background:
                self._background.start_soon(self._parts.index.run)
                self._background.start_soon(self._access.run)

    @property
    def id(self) -> str:
        """Its id in the service."""
        return self._parts.repo_id

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError(f"repository {self.id!r} is closed; open it again with open_repo")
        if running_loop() is not self._loop:
            raise UsageError(f"repository {self.id!r} belongs to another event loop")

    # ── Sessions ─────────────────────────────────────────────────────────────────────

    async def start_session(
        self,
        goal: str,
        *,
        session_id: str | None = None,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | None = None,
    ) -> Session:
        """
        Start a session that collects for *goal*; durable when it returns.

        Args:
            session_id: Unique in the store for ever; given if left out.
            config: Overrides the repository's, field by field.
            embedder: Must be of the repository's space.

        Raises:
            ValueError: Blank goal or id.
            Conflict: The id was used before.
                *Cancellation*: safe; at worst it is listed by ``unfinished_sessions``.
        """
        self._check_usable()
        return await self._sessions.start(
            goal, session_id=session_id, config=config, chat_model=chat_model, embedder=embedder
        )

    async def resume_session(
        self,
        session_id: str,
        *,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | None = None,
    ) -> Session:
        """
        Open a session as its last durable act left it; if it is open here, that same one.

        Raises:
            NotFound: There is no such session in this repository.
            SessionBusy: ``owned_elsewhere``: another live process has it open.
                *Cancellation*: safe.
        """
        self._check_usable()
        return await self._sessions.resume(
            session_id, config=config, chat_model=chat_model, embedder=embedder
        )

    async def unfinished_sessions(self) -> list[SessionRecord]:
        """Its sessions that are not idle, newest act first. *Cancellation*: safe."""
        self._check_usable()
        return await self._parts.sessions.records(self.id, unfinished=True)

    async def sessions(self) -> list[SessionRecord]:
        """All its sessions, newest act first. *Cancellation*: safe."""
        self._check_usable()
        return await self._parts.sessions.records(self.id, unfinished=False)

    # ── Recall ───────────────────────────────────────────────────────────────────────

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

        Raises:
            ValueError: Blank query or an argument out of range.
            RecallFailed: The store failed; with ``reason=True`` the chat model did, for
                every type of candidate.
            UsageError: The repository is closed, or was while it answered.
                *Cancellation*: safe.
        """
        return await self._recalled(
            query, None, k=k, mode=mode, max_hops=max_hops, reason=reason,
            since=since, until=until, types=types, explain=explain,
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
        since: datetime | None = None,
        until: datetime | None = None,
        types: Sequence[str] | None = None,
        explain: bool = False,
    ) -> RecallResult:
        """
        ``recall`` for whoever works in *session*: its goal and last 3 steps weigh in.

        Those steps themselves are not returned. An unknown or idle session is plain
        ``recall``. Arguments and errors are those of ``recall``.
        """
        return await self._recalled(
            query, self._context(session), k=k, mode=mode, max_hops=max_hops, reason=reason,
            since=since, until=until, types=types, explain=explain,
        )  # fmt: skip

    async def _recalled(
        self, query: str, context: RecallContext | None, **arguments: Any
    ) -> RecallResult:
        self._check_usable()
        named = memory_attributes("search_memory", self.id)
        spans = self._parts.spans
        with anyio.CancelScope() as scope, spans.span("search_memory", attributes=named) as span:
            span.set_content("gen_ai.memory.query.text", lambda: query)
            self._recalls.add(scope)
            try:
                result = await self._recall.recall(query, context=context, **arguments)
            finally:
                self._recalls.discard(scope)
            _say_found(span, result)
            if self._parts.config.recall.record_access:
                self._access.note([candidate.node.id for candidate in result.candidates])
            return result
        raise UsageError(f"repository {self.id!r} was closed while it answered")

    def _context(self, session: Session | str) -> RecallContext | None:
        id = session if isinstance(session, str) else session.id
        known = self._parts.open_sessions.get(id)
        if known is None or known.repo_id != self.id or known.context() is None:
            return None
        return RecallContext(goal=known.goal, steps=known.recent_steps(CONTEXT_STEPS))

    async def search(
        self, query: str, *, session_id: str | None = None, limit: int = 5
    ) -> list[SearchHit]:
        """
        Find words in everything ever said or observed; all of them must occur.

        Args:
            query: Words, ``"quoted phrases"``, ``OR`` and ``NOT`` in upper case.
            session_id: Only this session's steps.
            limit: 1 to 100.

        Raises:
            ValueError: Blank query, or a limit out of range. *Cancellation*: safe.
        """
        self._check_usable()
        return await search(
            self._parts.feed, query, clock=self._parts.clock, session_id=session_id, limit=limit
        )

    # ── The graph ────────────────────────────────────────────────────────────────────

    async def apply(self, changeset: Changeset) -> Revision:
        """
        Reconcile *changeset* with the graph and write it in one transaction.

        The same changeset (by id) again writes nothing and gives the first revision.

        Raises:
            ValueError: It does not validate; nothing was written.
            CommitFailed: Nothing was written. *Cancellation*: completes.
        """
        self._check_usable()
        applied = await completed(self._parts.root.own(partial(self._writes.commit, changeset)))
        return applied.revision

    async def delete_nodes(self, ids: Sequence[str]) -> int:
        """
        Delete exactly these nodes and their edges; unknown ids are skipped.

        Returns:
            How many existed. *Cancellation*: completes.

        Raises:
            ValueError: *ids* is one text, whose letters would be taken for ids.
        """
        self._check_usable()
        if isinstance(ids, str):
            raise ValueError(f"ids must be a list of ids, not one text: give [{ids!r}]")
        return await completed(self._parts.root.own(partial(self._writes.delete, tuple(ids))))

    async def statistics(self) -> RepositoryStatistics:
        """Nodes and edges by type, revision, queue depths, index state. *Cancellation*: safe."""
        self._check_usable()
        counts = await self._parts.feed.counts()
        revision = await self._parts.graph.revision()
        space = await self._parts.feed.space()
        open_here = [session.statistics() for session in self._sessions.open_here]
        return RepositoryStatistics(
            revision=revision,
            nodes=_below(counts, "nodes:"),
            edges=_below(counts, "edges:"),
            steps=counts.get("steps", 0),
            vectors=counts.get("vectors", 0),
            open_sessions=len(open_here),
            pending_operations=sum(s.pending_operations for s in open_here),
            append_backlog=sum(s.append_backlog for s in open_here),
            index=self._parts.index.statistics(),
            embedding_space=str(space) if space else None,
            recall_usage=self._usage.by_purpose,
        )

    # ── Maintenance ──────────────────────────────────────────────────────────────────

    async def consolidate(self, *, threshold: float = 0.85) -> MaintenanceReport:
        """
        Merge facts that say the same, wherever they are in the graph.

        A second operation waits for the first. What is committed meanwhile is kept; a
        node that changed meanwhile is left for the next run.

        Args:
            threshold: Cosine that two facts must exceed, in [-1, 1].

        Raises:
            ValueError: *threshold* is out of range.
            CommitFailed: Nothing was changed. *Cancellation*: safe; once it has begun,
                the transaction completes.
        """
        self._check_usable()
        return await self._maintenance.consolidate(threshold=threshold)

    async def decay(
        self, *, threshold: float = 0.1, types: Sequence[str] = ("semantic", "procedural")
    ) -> MaintenanceReport:
        """
        Delete what is old, unused and unrewarded; raw steps stay.

        Args:
            threshold: Score, at least 0, below which a node goes.
            types: Of ``semantic``, ``procedural``, ``subgoal``, ``tag``, ``intent``.

        Raises:
            ValueError: *threshold* is out of range, or *types* names another type.
            CommitFailed: Nothing was changed. *Cancellation*: as of ``consolidate``.
        """
        self._check_usable()
        return await self._maintenance.decay(threshold=threshold, types=types)

    async def validate(self) -> MaintenanceReport:
        """
        Penalize facts and instructions whose evidence does not say what they say.

        Raises:
            CommitFailed: Nothing was changed. *Cancellation*: as of ``consolidate``.
        """
        self._check_usable()
        return await self._maintenance.validate()

    async def forget(
        self,
        *,
        session_id: str | None = None,
        thread_id: str | None = None,
        before: datetime | None = None,
    ) -> ErasureReport:
        """
        Erase raw steps, and all that was derived from them alone, for good.

        What is given must hold of each step. Open sessions that lose steps are ended
        (``SessionClosed``). Knowledge that other steps support stays without the erased
        part, if it is worded from what remains; what it had replaced holds again.

        Args:
            session_id: Of this session; alone: the session with its goals, too.
            thread_id: Of this conversation thread.
            before: What happened before this time, exclusive; no zone means UTC.

        Returns:
            The counts; all 0 if there was nothing. ``scrubbed`` says whether the bytes
            are gone from the store's files, too.

        Raises:
            ValueError: Nothing was given, or no text or time.
            StoreError: Nothing was erased. *Cancellation*: completes.
        """
        self._check_usable()
        selection = Selection.of(session_id=session_id, thread_id=thread_id, before=before)
        return await completed(self._parts.root.own(partial(self._forget, selection)))

    async def _forget(self, selection: Selection) -> ErasureReport:
        from mnemo.maintenance.erase import Forgetting

        forgetting = Forgetting(
            repo_id=self.id,
            overhaul=self._parts.overhaul,
            turn=self._turn,
            end_sessions=self._sessions.end,
            erased=self._drop_erased,
            clock=self._parts.clock,
            publish=self._parts.publish,
        )
        named = memory_attributes("delete_memory", self.id)
        with self._parts.spans.span("delete_memory", attributes=named) as span:
            if selection.session_id is not None:
                span.set("mnemo.session.id", selection.session_id)
            report = await forgetting.forget(selection)
            span.set("gen_ai.memory.record.count", report.nodes)
            span.set("mnemo.step.count", report.steps)
            return report

    @property
    def config(self) -> Config:
        """Its effective settings."""
        return self._parts.config

    async def leave_space(self, hold: Callable[[], None]) -> None:
        """
        Let running commits end, then *hold* its embedder: what comes has no old vectors.

        For the service; see ``Mnemo.reembed``.
        """
        async with self._turn:
            hold()
            self._sessions.leave_space()

    async def enter_space(self) -> None:
        """Search what the store holds now, in the embedder's present space."""
        await self._parts.index.renew()

    async def _drop_erased(self) -> None:
        """Nothing erased is found from now on; soon nothing of it is in memory."""
        await self._parts.index.catch_up()
        if not self._closed:
            self._background.start_soon(self._renew_index)

    async def _renew_index(self) -> None:
        try:
            await self._parts.index.renew()
        except MnemoError as error:
            # Nothing of what was erased can be found; it only takes up room.
            log.info("the index could not be read anew: %s", error)

    # ── The end ──────────────────────────────────────────────────────────────────────

    async def aclose(self, grace_s: float) -> None:
        """
        End its sessions (resumable) and what follows the store. Idempotent.

        For the service; to close a repository, call ``memory.close_repo(repo_id)``.

        Args:
            grace_s: Seconds that extraction and background commits may still take.
        """
        self._closed = True
        await self._sessions.aclose(grace_s)
        for recall in tuple(self._recalls):
            recall.cancel()
        self._following.cancel()
        await self._access.try_to_flush()


def _say_found(span: Span, result: RecallResult) -> None:
    span.set("gen_ai.memory.record.count", len(result.candidates))
    span.set("mnemo.recall.mode", result.mode)
    if result.trace.degraded:
        span.set("mnemo.recall.degraded", result.trace.degraded)
    span.set_content("gen_ai.memory.records", lambda: _as_json(result.candidates))


def _as_json(candidates: Iterable[Candidate]) -> str:
    """*candidates* as memory records in the conventions' shape."""
    found = [{"id": c.node.id, "content": c.node.text, "score": c.score} for c in candidates]
    return json.dumps(found, ensure_ascii=False)


def _profiled(config: Config) -> Config:
    """*config* with its profile's scoring in force: a profile beats ``config.scoring``."""
    profile = resolve_profile(config.extraction.profile)
    if profile is None:
        return config
    return config.model_copy(update={"scoring": profile.scoring(config.scoring)})


def _below(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {k.removeprefix(prefix): n for k, n in counts.items() if k.startswith(prefix)}

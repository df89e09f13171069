"""
A repository: one isolated memory. Sessions go in, recall comes out.

It owns what its sessions share: the graph, the index that follows it, and the lane in
which commits are reconciled one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from mnemo.config import Config
from mnemo.episode.erasure import ErasureReport
from mnemo.episode.journal import SessionRecord
from mnemo.errors import MnemoError, UsageError
from mnemo.graph.changeset import Changeset, Revision
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import (
    ChatModel,
    Embedder,
)
from mnemo.recall.access import AccessLog
from mnemo.repository.asking import RepositoryAnswers
from mnemo.repository.parts import RepositoryParts, RepositoryStatistics, ThreadRecord
from mnemo.repository.queries import known_ids
from mnemo.repository.upkeep import RepositoryUpkeep
from mnemo.runtime.tasks import Branch, Home, completed
from mnemo.session.session import Session
from mnemo.transcript.strategies import OMITTED, Compression, Retrieval

if TYPE_CHECKING:  # a name in an annotation need not cost every import its time
    from mnemo.notes.notes import Notes
    from mnemo.repository.conversation import Conversation

__all__ = ["Repository"]

log = logging.getLogger("mnemo")


class Repository(RepositoryAnswers, RepositoryUpkeep):
    """One isolated memory; made by ``Mnemo.open_repo``."""

    def __init__(self, parts: RepositoryParts) -> None:
        # Here: importing mnemo need not load what only an open repository runs.
        from mnemo.repository import building
        from mnemo.repository.conversations import RepositoryConversations
        from mnemo.repository.sessions import RepositorySessions

        self._home = Home(f"repository {parts.repo_id!r}")
        self._parts = parts
        self._closed = False
        self._ended = False
        self._tasks = Branch(parts.root.spawn)
        self._access = AccessLog(parts.graph, parts.clock)
        self._usage = UsageMeter()
        lane = building.commit_lane(parts)
        self._turn = lane.turn
        self._writes = building.announced_writes(parts, lane)
        self._sessions = RepositorySessions(parts, self._writes, check_usable=self._check_usable)
        self._maintenance = building.maintenance(
            parts, lane, settle=self._access.try_to_flush, check_usable=self._check_usable
        )
        self._erase = building.erasing(
            parts, lane, end_sessions=self._sessions.end, erased=self._drop_erased
        )
        self._notes = building.notes(
            parts, closing=lambda: self._closed, check_usable=self._check_not_ended
        )
        self._recall = building.recalling(parts, self._access, self._notes, self._usage)
        self._conversations = RepositoryConversations(
            parts,
            tasks=self._tasks,
            forget=self._forget_thread,
            overview=building.overview_of(self._notes),
            check_usable=self._check_usable,
        )

    async def open(self) -> None:
        """
        Check the embedding space and start what follows the store.

        Raises:
            EmbeddingSpaceMismatch: The repository's vectors are of another space.
        """
        await self._sessions.check_space(self._parts.embedder)
        with self._parts.spans.at(None):
            self._tasks.spawn(self._parts.index.run)
            self._tasks.spawn(self._access.run)
            self._conversations.open()
        self._parts.index.poke()

    @property
    def id(self) -> str:
        """Its id in the service."""
        return self._parts.repo_id

    def _check_usable(self) -> None:
        self._check(closed=self._closed)

    def _check_not_ended(self) -> None:
        """As ``_check_usable``, but what is under way may go on until closing has ended."""
        self._check(closed=self._ended)

    def _check(self, *, closed: bool) -> None:
        if closed:
            raise UsageError(f"repository {self.id!r} is closed; open it again with open_repo")
        self._home.check()

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

    # ── Conversations ────────────────────────────────────────────────────────────────

    def conversation(
        self,
        thread_id: str,
        *,
        retrieval: Retrieval = OMITTED,
        compression: Compression | Sequence[Compression] | None = OMITTED,
        ttl_s: float | None = OMITTED,
    ) -> Conversation:
        """
        A handle of one thread of messages; a plain call that touches nothing.

        Args:
            thread_id: Any text that is not blank, compared exactly.
            retrieval: ``Recent``, ``Nearest`` or ``Composite``: what ``load`` chooses.
            compression: ``Summary``, ``ToolOutputPruner``, several in order, or ``None``.
            ttl_s: Seconds after which messages expire; ``None``: never. What is omitted is
                as ``config.conversation`` says.

        Raises:
            ValueError: The id is blank, or a keyword is of no use.
        """
        self._check_usable()
        return self._conversations.handle(
            thread_id, retrieval=retrieval, compression=compression, ttl_s=ttl_s
        )

    async def threads(self) -> list[ThreadRecord]:
        """Its conversations, by id; a purged one stays, without messages. *Cancellation*: safe."""
        self._check_usable()
        return await self._conversations.threads()

    async def _forget_thread(self, thread_id: str) -> ErasureReport:
        return await self.forget(thread_id=thread_id)

    @property
    def notes(self) -> Notes:
        """Its notes: long-term topic files, written at the end of a task."""
        self._check_usable()
        return self._notes

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
        changeset.check_storable()
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
        known = tuple(known_ids(ids))
        return await completed(self._parts.root.own(partial(self._writes.delete, known)))

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
            messages=counts.get("messages", 0),
            conversations=await self._conversations.statistics(),
            notes=await self._notes.statistics(),
        )

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
        self._conversations.follow()

    async def _drop_erased(self) -> None:
        """Nothing erased is found from now on; soon nothing of it is in memory."""
        await self._parts.index.catch_up()
        if not self._closed:
            self._tasks.spawn(self._renew_index)

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
        async with anyio.create_task_group() as group:
            group.start_soon(self._sessions.aclose, grace_s)
            group.start_soon(self._notes.aclose, grace_s)
        self._ended = True
        self._recall.stop()
        self._tasks.cancel()
        await self._access.try_to_flush()


def _below(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {k.removeprefix(prefix): n for k, n in counts.items() if k.startswith(prefix)}

"""The repository: one isolated memory, its sessions, conversations, graph and recall."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import anyio

from mnemo.commit.lane import CommitLane
from mnemo.config import Config
from mnemo.erasure.erase import Forgetting
from mnemo.errors import MnemoError
from mnemo.items.items import Items
from mnemo.maintenance.plan import Sources
from mnemo.maintenance.runner import Maintenance
from mnemo.notes.notes import Notes
from mnemo.notes.shelf import NotesParts
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Embedder, EmbeddingSpace
from mnemo.recall.pipeline import AccessLog, Recall
from mnemo.recall.recall_log import RecallLog
from mnemo.repository.agent_tools import AgentTool
from mnemo.repository.checkpoints import Checkpoints
from mnemo.repository.conversation import Conversation, RepositoryConversations
from mnemo.repository.inspection import Inspection
from mnemo.repository.jobs import Jobs
from mnemo.repository.memories import MemoryCalls
from mnemo.repository.names import NameIndex
from mnemo.repository.parts import RepositoryParts, RepositoryStatistics, ThreadRecord, settled
from mnemo.repository.recalling import RecallCalls
from mnemo.repository.remembering import Content, Remembered, Remembering, said_messages
from mnemo.repository.sessions import RepositorySessions
from mnemo.runtime.flights import Errand
from mnemo.runtime.tasks import Branch, Home, Places, Threads, completed, computed, on_clock
from mnemo.runtime.transactions import guarded
from mnemo.runtime.validation import (
    instance_of,
    known_id,
    known_ids,
    page_of_ids,
    seconds,
    whole_number,
)
from mnemo.session.session import Session
from mnemo.values.changeset import Changeset, MaintenanceReport, Revision
from mnemo.values.erasure import Erased, ErasureReport, Selection
from mnemo.values.graph import Edge, EdgeKind, Node, NodeMetadata, known_types, neighbours
from mnemo.values.journal import Opening, SessionRecord
from mnemo.values.messages import Role
from mnemo.values.steps import Step
from mnemo.values.strategies import OMITTED, Compression, Retrieval
from mnemo.wire import Format

log: logging.Logger = logging.getLogger("mnemo")


class Repository(RecallCalls, MemoryCalls):
    """One isolated memory; made by ``Mnemo.open_repo``."""

    def __init__(self, parts: RepositoryParts) -> None:
        self._home = Home(f"repository {parts.repo_id!r}")
        self._check_usable = usable = self._home.check
        self._ending = Home(f"repository {parts.repo_id!r}")
        self._parts = parts
        self._tasks = Branch(parts.root.spawn)
        self._spawn_apart = partial(parts.spans.spawn_apart, self._tasks.spawn)
        self._access = AccessLog(parts.graph, parts.clock, self._spawn_apart)
        keep_last = parts.config.recall.keep_last
        self._recall_log = RecallLog(parts.recalls, keep_last, parts.clock.sleep, self._spawn_apart)
        self._usage = UsageMeter()
        self._correcting = Places()
        self._names = NameIndex(parts)
        self._lane = lane = CommitLane(
            repo_id=parts.repo_id, graph=parts.graph, index=parts.index, embedder=parts.embedder,
            owner=parts.owner, clock=parts.clock, config=parts.config.commit,
            publish=parts.bus.publish, spans=parts.spans,
        )  # fmt: skip
        self._jobs = Jobs(parts, self._tasks, self._follow_space)
        self._sessions = RepositorySessions(
            parts, lane, self._jobs, check_usable=usable, closed_above=lambda: self._home.closed
        )
        self._items = Items(
            parts.items, parts.embedder, clock=parts.clock, spawn=self._tasks.spawn,
            check_usable=usable, budget=parts.index.budget, follow=self._moved,
        )  # fmt: skip
        self._forgetting = Forgetting(
            rows=parts.overhaul, lane=lane, end_sessions=self._sessions.end, drop=self._drop_erased
        )
        self._notes = Notes(
            NotesParts(
                repo_id=parts.repo_id, store=guarded(parts.notes, self._ending.check),
                embedder=parts.embedder, chat_model=parts.chat_model, clock=parts.clock,
                config=parts.config.notes, publish=parts.bus.publish, spawn=parts.root.spawn,
                meter=UsageMeter(), scrub=parts.scrub, session_meter=self._meter_of,
                closing=lambda: self._home.closed is not None, check_usable=self._ending.check,
                count=parts.config.conversation.count, spans=parts.spans,
            )
        )  # fmt: skip
        self._recall = Recall(
            repo_id=parts.repo_id, graph=parts.graph, feed=parts.feed, index=parts.index,
            embedder=parts.embedder, clock=parts.clock, config=parts.profiled,
            notify=parts.bus.publish, access=self._access, find_notes=self._notes.recall,
            log=self._recall_log if keep_last else None,
            find_items=self._items.search, chat_model=parts.chat_model, usage=self._usage,
            spans=parts.spans,
        )  # fmt: skip
        self._remembering = Remembering(
            parts, self._jobs, self._sessions, forget=self._forget, check_usable=usable
        )

    # Made at first use: most repositories of a service with many are open and idle.

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(guarded(self._parts.checkpoints, self._check_usable), self._parts.scrub)

    @cached_property
    def _conversations(self) -> RepositoryConversations:
        return RepositoryConversations(
            self._parts, self._jobs, tasks=self._tasks, forget=self._forget,
            overview=self._overview, check_usable=self._check_usable,
        )  # fmt: skip

    @cached_property
    def _maintenance(self) -> Maintenance:
        parts = self._parts
        sources = Sources(
            graph=parts.graph, index=parts.index, embedder=parts.embedder, clock=parts.clock,
            config=parts.profiled, threads=Threads(),
        )  # fmt: skip
        return Maintenance(
            lane=self._lane, sources=sources, root=parts.root, settle=self._access.flush,
            sweep=self._conversations.sweep, check_usable=self._check_usable,
        )  # fmt: skip

    def _meter_of(self, session_id: str) -> UsageMeter | None:
        session = self._parts.open_sessions.get(session_id)
        return session._meter if session else None

    async def _overview(self, budget_tokens: int) -> str:
        """An overview of the notes; ``""`` where there are none."""
        there = (await self._notes.statistics()).notes
        return await self._notes.overview(budget_tokens) if there else ""

    async def _drop_erased(self) -> None:
        """Have nothing erased found from now on; a task then drops it from memory."""
        self._items._renew()
        await self._parts.index.catch_up()
        if not self._tasks.ended:
            self._tasks.spawn(self._renew_index)

    async def _renew_index(self) -> None:
        try:
            await self._parts.index.renew()
        except MnemoError as error:
            # Nothing of what was erased can be found; it only takes up room.
            log.info("the index could not be read anew: %s", error)

    def _open(self, found: Opening) -> None:
        """Begin what was *found* due. *Raises* ``EmbeddingSpaceMismatch``: of another space."""
        index, config, owe = self._parts.index, self._parts.config, self._jobs.embed
        self._sessions.check_space(self._parts.embedder, found.space)
        with self._parts.spans.at(None):
            if found.tends_threads or config.conversation.ttl_s:
                self._conversations.open()
            if found.expires_items:
                self._items._begin()
            index.owe = owe if config.jobs.background else None
            index.moved = self._moved
            index.wake = Errand(self._spawn_apart, index.run if index.owe else owe).poke
            if found.owes_vectors:
                index.wake()
            if config.jobs.background:
                self._jobs.begin(self._remembering.work, now=found.has_jobs)

    @property
    def id(self) -> str:
        """Its id in the service."""
        return self._parts.repo_id

    def __repr__(self) -> str:
        return f"<Repository {self.id!r} {'closed' if self._home.closed else 'open'}>"

    # ── Sessions ─────────────────────────────────────────────────────────────────────────

    async def start_session(
        self,
        goal: str,
        *,
        session_id: str | None = None,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
    ) -> Session:
        """
        Start a session that collects for *goal*; durable when it returns.

        Args:
            session_id: Unique in the repository for ever; given if left out.
            config: Overrides the repository's, field by field.
            embedder: As of ``Mnemo``; must be of the repository's space.

        Raises:
            ValueError: Blank goal or id.
            ConfigError: There is no embedder of that name.
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
        embedder: Embedder | str | None = None,
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
        """List its sessions that are not idle, newest act first. *Cancellation*: safe."""
        return await self.sessions(unfinished=True)

    async def sessions(
        self, *, unfinished: bool = False, limit: int | None = None
    ) -> list[SessionRecord]:
        """
        List its sessions, newest act first.

        Args:
            unfinished: Only those that are not idle.
            limit: So many, at most; ``None``: all.

        Raises:
            ValueError: *limit* is no whole number from 1. *Cancellation*: safe.
        """
        self._check_usable()
        return await self._sessions.records(unfinished=unfinished, limit=limit)

    # ── Remembering ──────────────────────────────────────────────────────────────────────

    async def remember(
        self,
        content: Content,
        *,
        thread_id: str = "default",
        role: Role = "user",
        actor: str | None = None,
        at: datetime | str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = False,
        timeout_s: float | None = None,
        format: Format | None = None,
    ) -> Remembered:
        """
        Remember a text or messages: found at once, and later known as facts.

        Appended to the conversation *thread_id* and durable once it returns. What a thread has
        new is extracted in the background, by whatever process has the store open: after
        ``config.jobs.quiet_s`` seconds of quiet, or when ``most_waiting`` messages wait.

        Args:
            content: A text, a message or several, as ``Conversation.append`` takes them; texts
                may stand among them.
            role: Of texts.
            actor, at, metadata: Of the messages that do not say; metadata are merged.
            key: Idempotency key of a single message; several have ``key:0``, ``key:1``, …: the
                same again adds nothing, also of what was erased since (``Remembered.left_out``). An
                id of the message itself goes before.
            wait: Extract now, and return when that is committed. A call whose result is not
                there, and an item that leads another, wait ``tool_deadline_s`` for it.
            timeout_s: Seconds of the clock to wait.
            format: As of ``Conversation.append``.

        Raises:
            ValueError: Nothing, a blank text, something that is no message, or more than 1,000
                of them; nothing was stored.
            Conflict: A key or id stands for another message already; nothing was stored.
            ExtractionFailed: With *wait*: a try failed; the messages stay, others follow.
            TimeoutError: With *wait*: it goes on. *Cancellation*: all messages are stored, with
                their job, or none; calling again with the same key is safe.
        """
        self._check_usable()
        if timeout_s is not None:
            seconds("timeout_s", timeout_s)
        make = partial(
            said_messages, content, role=role, actor=actor, at=at, key=key, metadata=metadata,
            format=format,
        )  # fmt: skip
        messages = await computed(make, content)
        thread = self._conversations.handle(thread_id, remember=True)
        stored = await thread._append(messages, at_once=wait)
        node_ids: tuple[str, ...] = ()
        if wait and stored:
            extracted = partial(self._remembering.extracted, thread_id, stored)
            node_ids = await on_clock(self._parts.clock.sleep, timeout_s, extracted)
        known = {message.id for message in stored}
        left_out = tuple(one.id for one in messages if one.id and one.id not in known)
        return Remembered(
            messages=tuple(stored), thread_id=thread_id, node_ids=node_ids, left_out=left_out
        )

    async def settle(self, timeout_s: float | None = None) -> None:
        """
        Wait until nothing is on its way: annotated, extracted, committed, embedded, indexed,
        summarised.

        What waits for quiet is extracted now. What is dead, or waits for a call of its user
        (a session that collects or is ready), is not on its way.

        Args:
            timeout_s: Seconds of the clock; ``None`` is without limit.

        Raises:
            ValueError: *timeout_s* is negative or no finite number.
            TimeoutError: It names what is not settled; the work goes on.
            UsageError: The repository was closed. *Cancellation*: safe; only the wait ends.
        """
        self._check_usable()
        try:
            await on_clock(self._parts.clock.sleep, timeout_s, self._settled)
        except TimeoutError:
            if left := (await self.statistics()).on_its_way:
                told = ", ".join(f"{number} {what}" for what, number in left.items())
                raise TimeoutError(f"not settled within {timeout_s} s: {told}") from None

    async def is_idle(self) -> bool:
        """
        Whether closing it now would interrupt nothing and leave nothing owed.

        That is: no session is open in it, nothing is on its way (see ``settle``), and no update of
        notes runs or waits.

        Raises:
            UsageError: The repository was closed. *Cancellation*: safe.
        """
        return not (await self._on_its_way() or self._notes._is_busy or self._sessions.open_here)

    async def _settled(self) -> None:
        await self._jobs.hasten()
        await settled(self._on_its_way)

    async def _on_its_way(self) -> bool:
        self._check_usable()
        # Before all that a store holds is counted, which takes the longer the more that is.
        if (await self._jobs.levels()).owed:
            return True
        await self._parts.index.catch_up()
        return bool((await self.statistics()).on_its_way)

    async def retry_jobs(self, thread_ids: Sequence[str] | None = None) -> tuple[str, ...]:
        """
        Have background extraction that failed or waits be tried now, with all its tries again.

        It is done in the embedding space of this repository's embedder.

        Args:
            thread_ids: Whose; ``None``: of all threads where it was given up (is dead).

        Returns:
            The threads whose job is due now; one that runs, or has nothing to do, is left out.

        Raises:
            ValueError: One text is given for a list of ids, an id is no text, or there are more
                than 1,000.
            NotFound: A thread never had a job; nothing was changed.
            StoreError: Nothing was changed. *Cancellation*: completes.
        """
        self._check_usable()
        return await self._jobs.retry(thread_ids)

    async def cancel_jobs(self, thread_ids: Sequence[str]) -> tuple[str, ...]:
        """
        Give up the background extraction of threads: what they hold by now is not extracted.

        The messages stay, and search and recall find them; later ones are extracted as ever. A
        job that runs writes nothing any more.

        Returns:
            The threads that had a job to do.

        Raises:
            ValueError: One text is given for a list of ids, an id is no text, or there are more
                than 1,000.
            NotFound: A thread never had a job; nothing was changed.
            StoreError: Nothing was changed. *Cancellation*: completes.
        """
        self._check_usable()
        return await self._jobs.cancel(thread_ids)

    # ── Conversations ────────────────────────────────────────────────────────────────────

    def conversation(
        self,
        thread_id: str,
        *,
        retrieval: Retrieval = OMITTED,
        compression: Compression | Sequence[Compression] | None = OMITTED,
        ttl_s: float | None = OMITTED,
        remember: bool = False,
    ) -> Conversation:
        """
        Make a handle of one thread of messages; a plain call that touches nothing.

        Args:
            thread_id: Any text that is not blank, compared exactly.
            retrieval: ``Recent``, ``Nearest`` or ``Composite``: what ``load`` chooses.
            compression: ``Summary``, ``ToolOutputPruner``, several in order, or ``None``.
            ttl_s: Seconds after which messages expire; ``None``: never. What is omitted is
                as ``config.conversation`` says.
            remember: Have facts extracted in the background from what this handle appends, and
                from what others append behind that, as ``Repository.remember`` does. A message
                is extracted once: by a session that has it as a step before, or by this.

        Raises:
            ValueError: The id is blank, or a keyword is of no use.
        """
        self._check_usable()
        return self._conversations.handle(
            thread_id, retrieval=retrieval, compression=compression, ttl_s=ttl_s, remember=remember
        )

    async def threads(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[ThreadRecord]:
        """
        List its conversations by id; of a purged one, no messages.

        Args:
            limit: Conversations, 1 to 1,000; ``None``: all. Fewer than that are the last ones.
            after: Only those behind this id, such as the last one that was read.

        Raises:
            ValueError: *limit* is out of range, or *after* can be no id. *Cancellation*: safe.
        """
        self._check_usable()
        return await self._conversations.threads(**page_of_ids(limit, after))

    @property
    def notes(self) -> Notes:
        """Its notes: long-term topic files, written at the end of a task."""
        self._check_usable()
        return self._notes

    @property
    def inspection(self) -> Inspection:
        """What was written since a cursor, and sessions without opening them."""
        return Inspection(self._parts, self._check_usable, self._names)

    @property
    def checkpoints(self) -> Checkpoints:
        """Its checkpoints: the states of graphs, for the savers of frameworks."""
        self._check_usable()
        return self._checkpoints

    @property
    def items(self) -> Items:
        """Its keyed items: JSON objects under a namespace and a key."""
        self._check_usable()
        return self._items

    def tools(
        self, thread_id: str | None = None, *, names: Sequence[str] | None = None
    ) -> list[AgentTool]:
        """
        Tools for an agent; a plain call. Name, description and schema are the same everywhere.

        Args:
            thread_id: The agent's own thread or session: what is visible there is left out of
                its searches, and ``remember`` appends to it (``None``: to ``"default"``).
            names: Of ``search_messages``, ``view_messages`` (``None``: these two), ``remember``,
                ``recall``, ``list_memories``, ``list_notes``, ``read_note``, ``write_note``,
                ``delete_note``, ``update_memory`` and ``forget``. The note tools of one call are
                one toolbox.

        Raises:
            ValueError: A name that no tool has.
        """
        from mnemo.repository.tools import tools_of

        self._check_usable()
        return tools_of(self, thread_id, names)

    # ── The graph ────────────────────────────────────────────────────────────────────────

    async def apply(self, changeset: Changeset) -> Revision:
        """
        Reconcile *changeset* with the graph and write it in one transaction.

        The same changeset (by id) again writes nothing and gives the first revision.

        Raises:
            ValueError: It does not validate; nothing was written.
            CommitFailed: Nothing was written. *Cancellation*: completes.
        """
        self._check_usable()
        instance_of("changeset", changeset, Changeset).check_storable()
        applied = await completed(self._parts.root.own(partial(self._lane.commit, changeset)))
        return applied.revision

    async def delete_nodes(self, ids: Sequence[str]) -> int:
        """
        Delete exactly these nodes and their edges; unknown ids are skipped.

        Returns:
            How many existed. *Cancellation*: completes.

        Raises:
            ValueError: *ids* is one text, whose letters would be taken for ids, or more than
                1,000.
        """
        self._check_usable()
        known = tuple(known_ids(ids))
        return await completed(self._parts.root.own(partial(self._lane.delete, known)))

    async def get_node(self, id: str) -> Node | None:
        """Return the node, superseded or not; ``None``: there is none. *Cancellation*: safe."""
        self._check_usable()
        return next(iter(await self._parts.graph.nodes([known_id("id", id)])), None)

    async def get_nodes(self, types: Sequence[str]) -> list[Node]:
        """List nodes of *types*, oldest first. *Raises* ``ValueError`` for an unknown type."""
        self._check_usable()
        return await self._parts.graph.nodes(types=known_types(types))

    async def get_metadata(self, ids: Sequence[str]) -> dict[str, NodeMetadata]:
        """
        Return the metadata of the ids that exist.

        Raises:
            ValueError: *ids* is one text, or more than 1,000. *Cancellation*: safe.
        """
        self._check_usable()
        return await self._parts.graph.metadata(known_ids(ids))

    async def get_edges(
        self, ids: Sequence[str], *, edge_type: EdgeKind | str | None = None
    ) -> list[Edge]:
        """
        List the edges of *edge_type* (``None``: all) with an end among *ids*.

        Raises:
            ValueError: Unknown edge type, or more than 1,000 ids. *Cancellation*: safe.
        """
        self._check_usable()
        kind = EdgeKind(edge_type) if edge_type is not None else None
        return await self._parts.graph.edges(known_ids(ids), kind=kind)

    async def get_linked_nodes(
        self, ids: Sequence[str], *, edge_type: EdgeKind | str | None = None
    ) -> list[Node]:
        """
        List the neighbours of *ids* over edges of *edge_type* (``None``: all), each once.

        Both directions; a node of *ids* appears only if it neighbours another of them.

        Raises:
            ValueError: Unknown edge type, or more than 1,000 ids. *Cancellation*: safe.
        """
        self._check_usable()
        known = known_ids(ids)
        found = neighbours(known, await self.get_edges(known, edge_type=edge_type))
        return await self._parts.graph.nodes(found)

    async def latest(
        self, top_k: int = 10, *, types: Sequence[str] = ("semantic", "procedural")
    ) -> list[tuple[Node, NodeMetadata]]:
        """
        List the newest nodes of *types* with their metadata, newest first, ties by id.

        Raises:
            ValueError: *top_k* is no whole number from 1, or an unknown type. *Cancellation*: safe.
        """
        self._check_usable()
        whole_number("top_k", top_k, 1)
        nodes = await self._parts.graph.nodes(types=known_types(types), newest=top_k)
        metadata = await self._parts.graph.metadata([node.id for node in nodes])
        return [(node, metadata[node.id]) for node in nodes if node.id in metadata]

    # ── Maintenance ──────────────────────────────────────────────────────────────────────

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
        memory_ids: Sequence[str] = (),
        message_ids: Sequence[str] = (),
        steps: Sequence[Step | str] = (),
        session_id: str | None = None,
        thread_id: str | None = None,
        before: datetime | str | None = None,
        sources: bool = True,
        dry_run: bool = False,
    ) -> ErasureReport:
        """
        Erase what was said, and all that was derived from it alone, for good.

        Without ids, what is given must hold of each step and message. Ids name what goes:
        a memory goes with its history, the raw steps and messages that it rests on and what
        came of those alone; a step with the message that it was made of, a message with its
        steps and the rest of its tool group. Open sessions that lose steps are ended
        (``SessionClosed``). Knowledge that other steps support stays without the erased
        part, if it is worded from what remains; what it had replaced holds again.

        Args:
            memory_ids: Facts and instructions; *message_ids* and *steps* (or ids of their
                nodes) go beside them.
            session_id: Of this session; alone: the session with its goals, too.
            thread_id: Of this conversation thread; with *message_ids*: where they are.
            before: What happened before this time, exclusive; no zone means UTC. Alone it also
                erases keyed items that were put last before it.
            sources: False: the memories go alone, and the same wording, or one that they had
                before, is not extracted again, until it is added by hand.
            dry_run: Report what would go; nothing is erased and no session ends.

        Returns:
            The counts; all 0 if there was nothing. ``scrubbed`` says whether the bytes
            are gone from the store's files, too.

        Raises:
            ValueError: Nothing was given, what does not go together, no text or time, or more
                than 1,000 ids of one kind.
            NotFound: An id is not known in this repository; nothing was erased.
            Conflict: Several threads have a message of that id; nothing was erased.
            StoreError: Nothing was erased. *Cancellation*: completes.
        """
        self._check_usable()
        selection = Selection.of(
            session_id=session_id, thread_id=thread_id, before=before, memory_ids=memory_ids,
            message_ids=message_ids, steps=steps, sources=sources, dry_run=dry_run,
        )  # fmt: skip
        return (await self._forget(selection)).report

    async def _forget(self, selection: Selection) -> Erased:
        async def forget() -> Erased:
            # What is not written yet could not be looked through.
            await self._recall_log.flush()
            return await self._forgetting.forget(selection)

        return await completed(self._parts.root.own(forget))

    async def statistics(self) -> RepositoryStatistics:
        """Count nodes, edges, queue depths and index state. *Cancellation*: safe."""
        self._check_usable()
        jobs = await self._jobs.levels()  # first: what they do comes to the others
        space, counts = await self._parts.feed.space(), await self._parts.feed.counts()
        index = self._parts.index.statistics()
        return RepositoryStatistics.of(
            counts,
            [session.statistics() for session in self._sessions.open_here],
            **self._sessions.levels(),
            revision=await self._parts.graph.revision(),
            index=replace(index, bytes=index.bytes + self._items._vectors.bytes),
            embedding_space=str(space) if space else None,
            recall_usage=self._usage.by_purpose,
            conversations=self._conversations.statistics(),
            jobs=jobs,
            notes=await self._notes.statistics(),
        )

    @property
    def config(self) -> Config:
        """Its effective settings."""
        return self._parts.config

    @property
    def has_model(self) -> bool:
        """Whether a chat model can be asked."""
        return self._parts.chat_model is not None

    async def _leave_space(self, hold: Callable[[], None]) -> None:
        """Let running commits end, then *hold* its embedder; for ``Mnemo.reembed``."""
        async with self._lane.turn:
            hold()
            self._sessions.leave_space()

    async def _enter_space(self) -> None:
        """Read the index anew in the embedder's present space; for ``Mnemo.reembed``."""
        self._jobs.renew()
        await self._parts.index.renew()
        self._items._renew()

    async def _follow_space(self) -> None:
        """Take up the space of the store. *Raises* ``EmbeddingSpaceMismatch``: none is at hand."""
        self._moved(await self._parts.feed.space())

    def _moved(self, space: EmbeddingSpace | None) -> bool:
        """As ``_follow_space``; False: it is there already, or this process is moving it."""
        if not self._parts.follow(space, partial(self._sessions.check_space, stored=space)):
            return False
        self._sessions.leave_space()
        self._jobs.renew()
        self._items._renew()
        return True

    # ── The end ──────────────────────────────────────────────────────────────────────────

    async def _aclose(self, grace_s: float, why: str | None = None) -> None:
        """End sessions and followers within *grace_s*; calls are told *why*. Idempotent."""
        closed = f"repository {self.id!r} is closed; open it again with open_repo"
        self._home.closed = self._home.closed or why or closed
        grace_s = await self._jobs.end(grace_s)
        async with anyio.create_task_group() as group:
            if self._sessions.open_here:  # most have none, and a task takes long
                group.start_soon(self._sessions.aclose, grace_s)
            await self._notes._aclose(grace_s)
        self._ending.closed = self._home.closed
        self._recall.stop()
        self._tasks.cancel()
        self._items._vectors.close()
        self._parts.index.close()
        await self._access.flush()
        await self._recall_log.flush()

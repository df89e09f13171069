"""The seams of a repository, and what it says of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import anyio

from mnemo.config import Config
from mnemo.events import Event
from mnemo.graph.graph import StoredGraph
from mnemo.index.follower import RepositoryIndex
from mnemo.items.item_rows import StoredItems
from mnemo.jobs.slots import JobSlots
from mnemo.log.feed import StoredFeed
from mnemo.log.records import StoredRecords
from mnemo.log.sessions import StoredSessions
from mnemo.log.transcript import StoredTranscript
from mnemo.maintenance.reembed import StoredOverhaul
from mnemo.notes.note_rows import StoredNotes
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import ModelUsage
from mnemo.protocols import ChatModel, Clock, Embedder, EmbeddingSpace, Purpose
from mnemo.recall.recall_log import StoredRecalls
from mnemo.runtime.bus import EventBus
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.tasks import TaskRoot
from mnemo.session.parts import SessionStatistics
from mnemo.session.session import Session
from mnemo.values.changeset import Revision
from mnemo.values.jobs import JobLevels
from mnemo.values.journal import Owner

LOOK_S = 0.005
"""Seconds between two looks of ``settle``, doubled each time: other processes tell nothing (S)."""
LONGEST_LOOK_S = 0.1
"""Seconds beyond which that pause does not grow (S)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRecord:
    """
    A conversation's line in a list.

    Attributes:
        messages: That are kept and have not expired, of all epochs; *tokens* of them.
        next_seq: What the next message gets.
        epoch: How often the thread was cleared or purged.
        last_at: When its last message was said; ``None``: it has none.
        budget_tokens: Of the viewport that watches it; ``None``: none does.
    """

    thread_id: str
    messages: int
    tokens: int
    next_seq: int
    epoch: int
    last_at: datetime | None
    budget_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationStatistics:
    """
    Levels of the background tasks of a repository's conversations.

    Attributes:
        compressing: Threads whose history is being summarised, or waits for its turn.
        evicting: Threads that Mneme looks at, or that wait for their turn.
        evictions: Ranges that left a window since the repository was opened.
        eviction_failures: Runs that brought no outcome since then.
        usage: Purpose → what the calls of models cost since then.
    """

    compressing: int = 0
    evicting: int = 0
    evictions: int = 0
    eviction_failures: int = 0
    usage: Mapping[Purpose, ModelUsage] = field(default_factory=dict)


_COUNTED = ("steps", "vectors", "messages", "messages_in_sessions", "checkpoints", "items")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryStatistics:
    """
    Counts of what a repository holds, and levels of its bounded parts.

    Attributes:
        nodes: Node type → how many are stored; *edges* likewise by kind.
        steps: Raw steps, committed or not.
        pending_operations: Queued in all open sessions.
        append_backlog: Steps of open sessions that wait for annotation.
        index: With ``revision`` (reflected), ``documents``, ``waiting`` (for vectors),
            ``bytes`` (estimated, held in memory with the vectors of keyed items) and
            ``advice``, where the embedder does not know the language that is spoken.
        embedding_space: What the vectors were made by; ``None`` before the first.
        recall_usage: Purpose → what the calls of recalls cost since it was opened.
        messages: Stored messages, of all threads and epochs.
        messages_in_sessions: Messages that a session has as steps; no others are extracted.
        notes: A ``NotesStatistics``: notes and versions, updates running, waiting and held.
        jobs: Work that is owed, by whatever process, and why what is dead has failed.
        busy_sessions: Open sessions that extract or commit.
        checkpoints: Stored states of graphs, of all threads and namespaces.
        items: Keyed items, those that have expired and are not swept yet among them.
        left_out: Facts that ``config.extraction.max_facts`` left out here since it was opened.
    """

    revision: Revision
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    steps: int
    vectors: int
    open_sessions: int
    pending_operations: int
    append_backlog: int
    index: Any
    embedding_space: str | None = None
    recall_usage: Mapping[Purpose, ModelUsage] = field(default_factory=dict)
    messages: int = 0
    messages_in_sessions: int = 0
    conversations: ConversationStatistics = ConversationStatistics()
    notes: Any = None
    jobs: JobLevels = field(default_factory=JobLevels)
    busy_sessions: int = 0
    checkpoints: int = 0
    items: int = 0
    left_out: int = 0

    @property
    def on_its_way(self) -> dict[str, int]:
        """What is not settled yet, with its number: what ``Repository.settle`` waits for."""
        conversations = self.conversations
        levels = {
            "jobs to run": self.jobs.owed,
            "steps to annotate": self.append_backlog,
            "sessions that extract or commit": self.busy_sessions,
            "texts to embed": self.index.waiting,
            "histories to summarise": conversations.compressing + conversations.evicting,
        }
        return {what: number for what, number in levels.items() if number}

    @classmethod
    def of(
        cls, counts: Mapping[str, int], sessions: Sequence[SessionStatistics], **others: Any
    ) -> RepositoryStatistics:
        """Add up the store's *counts* and the open *sessions*; *others* are given as they are."""
        others.update((name, counts.get(name, 0)) for name in _COUNTED)
        return cls(
            nodes=_below(counts, "nodes:"),
            edges=_below(counts, "edges:"),
            open_sessions=len(sessions),
            pending_operations=sum(session.pending_operations for session in sessions),
            append_backlog=sum(session.append_backlog for session in sessions),
            **others,
        )


async def settled(on_its_way: Callable[[], Awaitable[bool]]) -> None:
    """Wait until *on_its_way* has said no twice: work that ends may leave texts not read yet."""
    quiet, pause_s = 0, LOOK_S
    while quiet < 2:
        quiet = 0 if await on_its_way() else quiet + 1
        if not quiet:
            await anyio.sleep(pause_s)
            pause_s = min(LONGEST_LOOK_S, 2 * pause_s)


def _below(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {k.removeprefix(prefix): n for k, n in counts.items() if k.startswith(prefix)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryParts:
    """
    The seams of one repository, given by the service.

    Attributes:
        slots: The service's places for jobs.
        checked_models: Gives the embedder, or that of a name; raises ``ConfigError``.
        way_to: Says how to come by an embedder of a space.
        traced: Gives an embedder's calls their spans, where it asks somebody outside.
        follow: Moves the embedder to another space, if what is given takes the one of that.
    """

    repo_id: str
    sessions: StoredSessions
    graph: StoredGraph
    feed: StoredFeed
    records: StoredRecords
    transcript: StoredTranscript
    notes: StoredNotes
    checkpoints: Any
    items: StoredItems
    recalls: StoredRecalls
    scrub: Callable[[], Awaitable[bool]]
    overhaul: StoredOverhaul
    index: RepositoryIndex
    embedder: Embedder
    chat_model: ChatModel | None
    owner: Owner
    clock: Clock
    config: Config
    root: TaskRoot
    bus: EventBus[Event]
    slots: JobSlots
    checked_models: Callable[[ChatModel | None, Embedder | str | None], Embedder | None]
    way_to: Callable[[EmbeddingSpace], str]
    traced: Callable[[Embedder, Spans], Embedder]
    follow: Callable[[EmbeddingSpace | None, Callable[[Embedder], None]], bool]
    spans: Spans = NO_SPANS
    open_sessions: dict[str, Session] = field(default_factory=dict)

    def difference(
        self, config: Config, chat_model: ChatModel | None, embedder: Embedder | None
    ) -> str | None:
        """Name what is otherwise than is asked for; ``None``: nothing."""
        if config != self.config:
            return "config"
        if chat_model not in (None, self.chat_model):
            return "chat model"
        if embedder is not None and embedder.space != self.embedder.space:
            return "embedder"
        return None

    @property
    def profiled(self) -> Config:
        """Its config with its profile's scoring, which overrides ``config.scoring``."""
        profile = resolve_profile(self.config.extraction.profile)
        if profile is None:
            return self.config
        return self.config.model_copy(update={"scoring": profile.scoring(self.config.scoring)})

"""
mnemo without asyncio: the same calls, blocking, over a private event loop in a thread.

Made by ``scripts/make_sync`` from the asynchronous classes, whose docstrings say more.
Usable from several threads. Observers and callbacks run on the private loop's thread.
"""

from __future__ import annotations

import builtins
from collections.abc import (
    AsyncIterable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from mnemo.config import Config
from mnemo.context.compressed import CompressedViewport
from mnemo.context.goals import Goals as _Goals
from mnemo.context.pins import Pins as _Pins
from mnemo.context.rendering import RenderedViewport, WindowLook
from mnemo.context.snapshots import Snapshots as _Snapshots
from mnemo.context.viewport import Viewport as _Viewport
from mnemo.conversation.mirror import Feed as _Feed
from mnemo.errors import UsageError
from mnemo.events import Event
from mnemo.items.items import Items as _Items
from mnemo.maintenance.copying import RepositoryCopy
from mnemo.maintenance.reembed import ReembeddingProgress, ReembeddingReport
from mnemo.notes.folder import FolderReport
from mnemo.notes.notes import Notes as _Notes
from mnemo.notes.notes import NotesStatistics
from mnemo.notes.progress import OnProgress
from mnemo.notes.recall import NoteRecall
from mnemo.notes.tools import Answer
from mnemo.notes.tools import NoteToolbox as _NoteToolbox
from mnemo.notes.update import NoteUpdate
from mnemo.protocols import ChatModel, Clock, Embedder, Store, StoreReport
from mnemo.recall.keyword import SearchHit
from mnemo.recall.result import RecallResult
from mnemo.recall.view import MessageView
from mnemo.repository.agent_tools import AgentTool as _AgentTool
from mnemo.repository.agent_tools import ToolAnswer
from mnemo.repository.changes import Change
from mnemo.repository.checkpoints import Checkpoints as _Checkpoints
from mnemo.repository.conversation import Conversation as _Conversation
from mnemo.repository.inspection import Changes, SessionLook
from mnemo.repository.inspection import Inspection as _Inspection
from mnemo.repository.memories import Memory, MemoryVersion, Order, Page
from mnemo.repository.parts import RepositoryStatistics, ThreadRecord
from mnemo.repository.remembering import Content, Remembered
from mnemo.repository.repository import Repository as _Repository
from mnemo.runtime.bus import Subscription as _Subscription
from mnemo.runtime.operations import Outcome
from mnemo.runtime.operations import PendingOperation as _PendingOperation
from mnemo.runtime.portal import Blocking, Portal
from mnemo.service import Mnemo as _Mnemo
from mnemo.session.pending import Callback
from mnemo.session.session import Session as _Session
from mnemo.session.views import CommitReceipt, SessionContext, SessionStatistics
from mnemo.values.archive import ArchiveHead
from mnemo.values.changeset import Changeset, Revision
from mnemo.values.checkpoints import (
    Blob,
    ChannelHistory,
    Checkpoint,
    CheckpointHead,
    CheckpointWrite,
)
from mnemo.values.derived import Compaction, EvictionOutcome, Goal, GoalCompletion, Pin, Snapshot
from mnemo.values.erasure import ErasureReport
from mnemo.values.graph import Edge, EdgeKind, Node, NodeMetadata
from mnemo.values.items import Item, ItemOperation
from mnemo.values.jobs import Job, JobKind, WorkerStatistics
from mnemo.values.journal import RepositoryRecord, SessionRecord, SessionState
from mnemo.values.messages import Message, Role, StoredMessage, ToolCall
from mnemo.values.notes import Note, NoteChange, NoteInfo, NoteVersion
from mnemo.values.steps import Step
from mnemo.values.strategies import OMITTED, Compression, Retrieval
from mnemo.values.transaction import TranscriptWriter
from mnemo.values.upkeep import MaintenanceReport
from mnemo.wire import Format, Given

__all__ = [
    "AgentTool",
    "Checkpoints",
    "Conversation",
    "Feed",
    "Goals",
    "Inspection",
    "Items",
    "Mnemo",
    "NoteToolbox",
    "Notes",
    "PendingOperation",
    "Pins",
    "Repository",
    "Session",
    "Snapshots",
    "Subscription",
    "Viewport",
]


class NoteToolbox(Blocking[_NoteToolbox]):
    """

    The note tools, for an update or for the host's own agent.

    Blocking; see ``mnemo.notes.tools.NoteToolbox``.

    """

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The tools, for ``ChatRequest.tools``; the same in every process."""
        return self._portal.call(lambda: self._inner.specs)

    def run(self, call: Mapping[str, Any] | ToolCall) -> dict[str, Any]:
        """Carry out one call, ``{"id", "name", "arguments"}``, and give its answer."""
        return self._portal.run(lambda: self._inner.run(call))

    def carry_out(self, name: str, arguments: Mapping[str, Any] | None) -> Answer:
        """``run``, of a call whose parts are known."""
        return self._portal.run(lambda: self._inner.carry_out(name, arguments))


class Feed(Blocking[_Feed]):
    """

    The mirroring of one thread to one session; made by ``Conversation.feed``.

    Blocking; see ``mnemo.conversation.mirror.Feed``.

    """

    @property
    def thread_id(self) -> str:
        return self._inner.thread_id

    @property
    def session_id(self) -> object:
        return self._inner.session_id

    @property
    def error(self) -> Exception | None:
        return self._inner.error

    @property
    def active(self) -> bool:
        """Whether it goes on."""
        return self._portal.call(lambda: self._inner.active)

    def poke(self) -> None:
        """The thread may have grown; a plain call."""
        self._portal.call(lambda: self._inner.poke())

    def cancel(self) -> None:
        """End it; what is being written may still be. Idempotent, a plain call."""
        self._portal.call(lambda: self._inner.cancel())

    def caught_up(self) -> None:
        """
        Wait until everything that is stored in the thread at this moment is in the session.
        """
        self._portal.run(lambda: self._inner.caught_up())

    def run(self) -> None:
        """Feed until the end."""
        self._portal.run(lambda: self._inner.run())


class Viewport(Blocking[_Viewport]):
    """

    The part of a thread that fits a token budget (``conversation.viewport``).

    Blocking; see ``mnemo.context.viewport.Viewport``.

    """

    @property
    def budget_tokens(self) -> int:
        """Tokens of the whole rendering, at most."""
        return self._portal.call(lambda: self._inner.budget_tokens)

    def messages(self) -> list[Message]:
        """
        The window: every live message from the boundary on, whole, with complete tool groups.
        """
        return self._portal.run(lambda: self._inner.messages())

    def render(self, *, recall: bool = True) -> RenderedViewport:
        """Memory, window and state as a request's messages, within the budget."""
        return self._portal.run(lambda: self._inner.render(recall=recall))

    def compressed(self) -> CompressedViewport:
        """The whole window in three zones, as Mneme sees it; writes nothing."""
        return self._portal.run(lambda: self._inner.compressed())

    def recalled(self) -> list[SearchHit]:
        """Recall memories for the present turn; mostly none."""
        return self._portal.run(lambda: self._inner.recalled())

    def evict(self) -> EvictionOutcome | None:
        """Have Mneme make room now if it is due, or join the run that does."""
        return self._portal.run(lambda: self._inner.evict())


class Snapshots(Blocking[_Snapshots]):
    """

    The snapshots of one thread's epoch (``conversation.snapshots``).

    Blocking; see ``mnemo.context.snapshots.Snapshots``.

    """

    def outcomes(self) -> list[EvictionOutcome]:
        """The verdicts of the thread's epoch, ascending."""
        return self._portal.run(lambda: self._inner.outcomes())

    def list(self, *, level: Literal[1, 2] | None = None, current: bool = False) -> list[Snapshot]:
        """Ascending by range; without those whose range holds an expired message."""
        return self._portal.run(lambda: self._inner.list(level=level, current=current))


class Pins(Blocking[_Pins]):
    """

    The pins of one thread (``conversation.pins``).

    Blocking; see ``mnemo.context.pins.Pins``.

    """

    def attach(self, seqs: Sequence[int], goal_ids: Sequence[int]) -> int:
        """Pin every message to every goal; all of it or nothing, and idempotent."""
        return self._portal.run(lambda: self._inner.attach(seqs, goal_ids))

    def list(self) -> list[Pin]:
        """All of them, by seq."""
        return self._portal.run(lambda: self._inner.list())


class Goals(Blocking[_Goals]):
    """

    The goals of one thread (``conversation.goals``).

    Blocking; see ``mnemo.context.goals.Goals``.

    """

    def add(self, description: str, *, parent_id: int | None = None) -> Goal:
        """Begin a goal; ids count from 1 per thread and are never used twice."""
        return self._portal.run(lambda: self._inner.add(description, parent_id=parent_id))

    def update(self, goal_id: int, description: str) -> Goal:
        """Put a goal into other words."""
        return self._portal.run(lambda: self._inner.update(goal_id, description))

    def complete(self, goal_id: int) -> GoalCompletion:
        """
        Complete a goal, its active sub-goals with it; pins that no active goal holds go.
        """
        return self._portal.run(lambda: self._inner.complete(goal_id))

    def list(self, *, active_only: bool = False) -> list[Goal]:
        """Roots by creation, each followed by its sub-goals."""
        return self._portal.run(lambda: self._inner.list(active_only=active_only))


class PendingOperation(Blocking[_PendingOperation]):
    """

    An accepted operation.

    Blocking; see ``mnemo.runtime.operations.PendingOperation``.

    """

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def outcome(self) -> Outcome | None:
        return self._inner.outcome

    @property
    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        return self._portal.call(lambda: self._inner.done)

    def cancel(self) -> bool:
        """Withdraw it while it waits."""
        return self._portal.call(lambda: self._inner.cancel())

    def result(self) -> Any:
        """Wait for the operation to end; gives its value or raises its error."""

        async def waited() -> Any:
            return await self._inner

        return self._portal.run(waited)


class AgentTool(Blocking[_AgentTool]):
    """

    A tool for an agent.

    Blocking; see ``mnemo.repository.agent_tools.AgentTool``.

    """

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def description(self) -> str:
        return self._inner.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self._inner.parameters

    @property
    def missing(self) -> str:
        return self._inner.missing

    @property
    def spec(self) -> dict[str, Any]:
        """
        The tool in the form of ``ChatRequest.tools``, which agent frameworks register, too.
        """
        return self._portal.call(lambda: self._inner.spec)

    def call(self, arguments: Any) -> str:
        """Answer a call; what the model sent wrong is answered with ``Error: …``."""
        return self._portal.run(lambda: self._inner.call(self._unwrapped(arguments)))

    def answer(self, arguments: Any) -> ToolAnswer:
        """``call``, with a code for programs where it was not carried out."""
        return self._portal.run(lambda: self._inner.answer(self._unwrapped(arguments)))


class Items(Blocking[_Items]):
    """

    Keyed items: JSON objects under a namespace and a key; ``Repository.items``.

    Blocking; see ``mnemo.items.items.Items``.

    """

    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, Any],
        *,
        texts: Mapping[str, str] | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """Store *value* in the place of what is there; durable when it returns."""
        self._portal.run(lambda: self._inner.put(namespace, key, value, texts=texts, ttl_s=ttl_s))

    def get(self, namespace: Sequence[str], key: str, *, refresh: bool = True) -> Item | None:
        """Read one item; ``None``: there is none, or it has expired."""
        return self._portal.run(lambda: self._inner.get(namespace, key, refresh=refresh))

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Delete one item; give whether it was there. Its bytes go with the next scrub."""
        return self._portal.run(lambda: self._inner.delete(namespace, key))

    def search(
        self,
        prefix: Sequence[str] = (),
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = True,
    ) -> list[Item]:
        """List items whose namespace begins with *prefix*; ``()``: all."""
        return self._portal.run(
            lambda: self._inner.search(
                prefix, query=query, filter=filter, limit=limit, offset=offset, refresh=refresh
            )
        )

    def list_namespaces(
        self,
        *,
        prefix: Sequence[str | None] = (),
        suffix: Sequence[str | None] = (),
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """List the namespaces that hold items, sorted; see ``ListNamespaces``."""
        return self._portal.run(
            lambda: self._inner.list_namespaces(
                prefix=prefix, suffix=suffix, max_depth=max_depth, limit=limit, offset=offset
            )
        )

    def batch(self, operations: Sequence[ItemOperation]) -> list[Any]:
        """
        Do *operations* in order, in one transaction; each sees what those before it wrote.
        """
        return self._portal.run(lambda: self._inner.batch(operations))

    def sweep(self) -> int:
        """Delete what has expired; give how many items. It is hidden, swept or not."""
        return self._portal.run(lambda: self._inner.sweep())

    def embed_owed(self) -> int:
        """
        Make the vectors that an import or another embedding space left owed; give how many.
        """
        return self._portal.run(lambda: self._inner.embed_owed())


class Checkpoints(Blocking[_Checkpoints]):
    """

    The checkpoints of one repository; made by ``Repository.checkpoints``.

    Blocking; see ``mnemo.repository.checkpoints.Checkpoints``.

    """

    def put(self, head: CheckpointHead, values: Mapping[str, Blob]) -> frozenset[str]:
        """Write a checkpoint, or replace the one of the same thread, namespace and id."""
        return self._portal.run(lambda: self._inner.put(head, values))

    def put_writes(self, writes: Sequence[CheckpointWrite]) -> None:
        """Keep what tasks have written on top of a checkpoint, all or nothing."""
        self._portal.run(lambda: self._inner.put_writes(writes))

    def get(self, thread_id: str, namespace: str = "", id: str | None = None) -> Checkpoint | None:
        """Return the checkpoint of this id, or the newest; ``None``: there is none."""
        return self._portal.run(lambda: self._inner.get(thread_id, namespace, id))

    def list(
        self,
        *,
        thread_id: str | None = None,
        namespace: str | None = None,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        before: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[Checkpoint]:
        """List checkpoints by falling id; what is left out does not narrow it."""
        return self._portal.run(
            lambda: self._inner.list(
                thread_id=thread_id,
                namespace=namespace,
                id=id,
                metadata=metadata,
                before=before,
                limit=limit,
                after=after,
            )
        )

    def history(
        self,
        thread_id: str,
        namespace: str = "",
        id: str | None = None,
        *,
        channels: Collection[str],
    ) -> dict[str, ChannelHistory]:
        """Return what each channel's state at a checkpoint (or the newest) is made of."""
        return self._portal.run(
            lambda: self._inner.history(thread_id, namespace, id, channels=channels)
        )

    def delete(self, thread_ids: Sequence[str]) -> int:
        """
        Erase threads with all checkpoints, values and writes, and the bytes as ``forget`` does.
        """
        return self._portal.run(lambda: self._inner.delete(thread_ids))

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """
        Delete the checkpoints of runs with their writes, and the values that no other names.
        """
        return self._portal.run(lambda: self._inner.delete_runs(run_ids))

    def prune(self, thread_ids: Sequence[str]) -> int:
        """Delete all but the newest checkpoint of each namespace of these threads."""
        return self._portal.run(lambda: self._inner.prune(thread_ids))

    def copy(self, source: str, target: str) -> int:
        """Copy a thread with all checkpoints, values and writes."""
        return self._portal.run(lambda: self._inner.copy(source, target))


class Inspection(Blocking[_Inspection]):
    """

    Looks into one repository; made by ``Repository.inspection``. Nothing here writes.

    Blocking; see ``mnemo.repository.inspection.Inspection``.

    """

    def changes(self, after: str | None = None, *, limit: int = 1000) -> Changes:
        """List what was written since a cursor, in the order in which it was."""
        return self._portal.run(lambda: self._inner.changes(after, limit=limit))

    def session(self, session_id: str) -> SessionLook:
        """Look at a session, open or not, also one that another process has open."""
        return self._portal.run(lambda: self._inner.session(session_id))

    def jobs(self, *, limit: int = 100) -> list[Job]:
        """List the background work that is owed: what was given up, what runs, what waits."""
        return self._portal.run(lambda: self._inner.jobs(limit=limit))


class Notes(Blocking[_Notes]):
    """

    The notes of one repository; safe to use from many tasks.

    Blocking; see ``mnemo.notes.notes.Notes``.

    """

    def update_after_task(
        self,
        history: Sequence[Message | Mapping[str, Any]],
        *,
        iterations: int,
        task_id: str | None = None,
        on_progress: OnProgress | None = None,
        outcome: str = "completed",
        tools: Sequence[Mapping[str, Any]] = (),
        session: Any = None,
        thread_id: str | None = None,
    ) -> NoteUpdate:
        """
        Let the model look back over a task's conversation once, and keep what will matter.
        """
        return self._portal.run(
            lambda: self._inner.update_after_task(
                history,
                iterations=iterations,
                task_id=task_id,
                on_progress=on_progress,
                outcome=outcome,
                tools=tools,
                session=self._unwrapped(session),
                thread_id=thread_id,
            )
        )

    def update_after_task_async(
        self,
        history: Sequence[Message | Mapping[str, Any]],
        *,
        iterations: int,
        task_id: str | None = None,
        on_progress: OnProgress | None = None,
        outcome: str = "completed",
        tools: Sequence[Mapping[str, Any]] = (),
        session: Any = None,
        thread_id: str | None = None,
        callback: Callable[[Outcome], Any] | None = None,
    ) -> PendingOperation:
        """The same in the background; a plain call that never raises."""
        return PendingOperation(
            self._portal,
            self._portal.call(
                lambda: self._inner.update_after_task_async(
                    history,
                    iterations=iterations,
                    task_id=task_id,
                    on_progress=on_progress,
                    outcome=outcome,
                    tools=tools,
                    session=self._unwrapped(session),
                    thread_id=thread_id,
                    callback=callback,
                )
            ),
        )

    def list(
        self, *, query: str | None = None, limit: int | None = None
    ) -> builtins.list[NoteInfo]:
        """All notes: latest use first, or best for *query* first."""
        return self._portal.run(lambda: self._inner.list(query=query, limit=limit))

    def read(self, topic: str) -> Note:
        """The note. *Raises* ``NotFound``: it is not there."""
        return self._portal.run(lambda: self._inner.read(topic))

    def write(
        self, topic: str, body: str, description: str, *, expected_version: int | None = None
    ) -> Note:
        """Create or replace a note; the same text again makes no new version."""
        return self._portal.run(
            lambda: self._inner.write(topic, body, description, expected_version=expected_version)
        )

    def delete(self, topic: str, *, expected_version: int | None = None) -> None:
        """Retire a note: it leaves lists, recall and exports, and can be restored."""
        self._portal.run(lambda: self._inner.delete(topic, expected_version=expected_version))

    def history(self, topic: str) -> builtins.list[NoteVersion]:
        """Every kept version of a note, oldest first, deletions included."""
        return self._portal.run(lambda: self._inner.history(topic))

    def restore(self, topic: str, version: int) -> Note:
        """Write an old version as a new one; it also revives a deleted note."""
        return self._portal.run(lambda: self._inner.restore(topic, version))

    def undo(self, update_id: str) -> builtins.list[NoteChange]:
        """Take back all that an update did, in one transaction; that can be undone itself."""
        return self._portal.run(lambda: self._inner.undo(update_id))

    def purge(self, topic: str) -> ErasureReport:
        """Erase a note with all its versions and index rows; nothing brings it back."""
        return self._portal.run(lambda: self._inner.purge(topic))

    def recall(self, query: str, *, k: int = 5) -> NoteRecall:
        """
        The notes that share a content word with *query* or mean much the same, best first.
        """
        return self._portal.run(lambda: self._inner.recall(query, k=k))

    def overview(self, budget_tokens: int = 1000) -> str:
        """One line per note, latest change first: the same text until a note changes."""
        return self._portal.run(lambda: self._inner.overview(budget_tokens))

    def toolbox(
        self, *, history: Sequence[Message | Mapping[str, Any]] | None = None, limited: bool = True
    ) -> NoteToolbox:
        """The four note tools for the host's own agent; one toolbox for one task."""
        return NoteToolbox(
            self._portal,
            self._portal.call(lambda: self._inner.toolbox(history=history, limited=limited)),
        )

    def export_folder(self, path: str | PathLike[str]) -> FolderReport:
        """Write one Markdown file per note into a folder, each at once or not at all."""
        return self._portal.run(lambda: self._inner.export_folder(path))

    def import_folder(self, path: str | PathLike[str]) -> FolderReport:
        """
        Take in a folder of Markdown files: a merge, no overwriting; what differs is reported.
        """
        return self._portal.run(lambda: self._inner.import_folder(path))

    def statistics(self) -> NotesStatistics:
        """How many notes and versions there are, and what updates are doing."""
        return self._portal.run(lambda: self._inner.statistics())


class Conversation(Blocking[_Conversation]):
    """

    One thread of messages, append-only; made by ``Repository.conversation``.

    Blocking; see ``mnemo.repository.conversation.Conversation``.

    """

    @property
    def goals(self) -> Goals:
        """The goals of the thread; kept in view until they are completed."""
        return Goals(self._portal, self._portal.call(lambda: self._inner.goals))

    @property
    def pins(self) -> Pins:
        """Messages that goals hold on to."""
        return Pins(self._portal, self._portal.call(lambda: self._inner.pins))

    @property
    def snapshots(self) -> Snapshots:
        """Summaries of what has left the window, and the verdicts it left by."""
        return Snapshots(self._portal, self._portal.call(lambda: self._inner.snapshots))

    def viewport(self, budget_tokens: int | None = None, *, notes: bool = False) -> Viewport:
        """Make the viewport of the thread: what fits a token budget; a plain call."""
        return Viewport(
            self._portal,
            self._portal.call(lambda: self._inner.viewport(budget_tokens, notes=notes)),
        )

    def look(self, budget_tokens: int | None = None) -> WindowLook:
        """Describe the window in numbers and zones; nothing is written or watched."""
        return self._portal.run(lambda: self._inner.look(budget_tokens))

    def compress(self) -> Compaction | None:
        """Summarise old messages now if that is due, or join the run in flight."""
        return self._portal.run(lambda: self._inner.compress())

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait until no compression, indexing or eviction of the thread runs or is due."""
        self._portal.run(lambda: self._inner.settle(timeout_s))

    def feed(self, session: Session, *, from_seq: int | None = None) -> Feed:
        """Have every message become a step of *session*, as the conversation grows."""
        return Feed(
            self._portal,
            self._portal.run(lambda: self._inner.feed(self._unwrapped(session), from_seq=from_seq)),
        )

    @property
    def thread_id(self) -> str:
        """The thread's id, as given."""
        return self._portal.call(lambda: self._inner.thread_id)

    def append(
        self,
        messages: Given | Iterable[Given],
        *,
        expected_seq: int | None = None,
        format: Format | None = None,
    ) -> list[StoredMessage]:
        """
        Store one message, or several in one transaction, and give them as they are stored.
        """
        return self._portal.run(
            lambda: self._inner.append(messages, expected_seq=expected_seq, format=format)
        )

    def append_with(
        self,
        batch: Sequence[Given],
        also: Callable[[TranscriptWriter, Sequence[StoredMessage]], None],
        *,
        expected_seq: int | None = None,
        format: Format | None = None,
    ) -> list[StoredMessage]:
        """
        Append as ``append`` does; *also* is done in the same transaction, with its result.
        """
        return self._portal.run(
            lambda: self._inner.append_with(batch, also, expected_seq=expected_seq, format=format)
        )

    def history(self, *, from_seq: int = 0, to_seq: int | None = None) -> list[StoredMessage]:
        """
        The originals of a range, ascending, of all epochs; expired and purged ones are absent.
        """
        return self._portal.run(lambda: self._inner.history(from_seq=from_seq, to_seq=to_seq))

    def recent(self, count: int | None = None) -> list[StoredMessage]:
        """The newest originals of the present epoch, ascending, without summaries."""
        return self._portal.run(lambda: self._inner.recent(count))

    def load(self, *, query: str | None = None, budget_tokens: int | None = None) -> list[Message]:
        """
        What the agent is to read, ascending: summaries in place of what was compacted, system
        messages, and what the retrieval strategy chooses, tool groups whole and complete.
        """
        return self._portal.run(lambda: self._inner.load(query=query, budget_tokens=budget_tokens))

    def compactions(self, *, include_superseded: bool = False) -> list[Compaction]:
        """The records of the present epoch, ascending by range."""
        return self._portal.run(
            lambda: self._inner.compactions(include_superseded=include_superseded)
        )

    def compact(self, start_seq: int, end_seq: int, summary_text: str) -> Compaction:
        """Have a summary stand for a range of messages, both ends inclusive; they stay."""
        return self._portal.run(lambda: self._inner.compact(start_seq, end_seq, summary_text))

    def clear(self) -> None:
        """Begin the thread anew: nothing from before is loaded; ``history`` is kept whole."""
        self._portal.run(lambda: self._inner.clear())

    def next_seq(self) -> int:
        """The seq that the next stored message gets."""
        return self._portal.run(lambda: self._inner.next_seq())

    def withdraw(self, count: int = 1) -> list[StoredMessage]:
        """
        Take back the newest messages of the present epoch, as if they had not been said.
        """
        return self._portal.run(lambda: self._inner.withdraw(count))

    def purge(self, *, scrub: bool = True) -> ErasureReport:
        """Erase the thread and all that was derived from it alone; its seqs go on."""
        return self._portal.run(lambda: self._inner.purge(scrub=scrub))


class Subscription(Blocking[_Subscription]):
    """

    A subscription to events; ``cancel`` ends it.

    Blocking; see ``mnemo.runtime.bus.Subscription``.

    """

    def cancel(self) -> None:
        """Stop observing; idempotent. After it no further call starts."""
        self._portal.call(lambda: self._inner.cancel())


class Session(Blocking[_Session]):
    """

    Collects one episode at a time and turns it into memory; made by ``Repository``.

    Blocking; see ``mnemo.session.session.Session``.

    """

    @property
    def id(self) -> str:
        """Unique in the service."""
        return self._portal.call(lambda: self._inner.id)

    @property
    def repo_id(self) -> str:
        """The repository it writes."""
        return self._portal.call(lambda: self._inner.repo_id)

    @property
    def goal(self) -> str:
        """The goal of the present, or else the last, episode."""
        return self._portal.call(lambda: self._inner.goal)

    @property
    def state(self) -> SessionState:
        """The state that the last durable act led to; kept when the session has ended."""
        return self._portal.call(lambda: self._inner.state)

    @property
    def busy(self) -> bool:
        """Whether an extraction, background trajectory work or a commit is in flight."""
        return self._portal.call(lambda: self._inner.busy)

    @property
    def episode_id(self) -> str | None:
        """The open episode's; ``None`` when idle."""
        return self._portal.call(lambda: self._inner.episode_id)

    @property
    def error(self) -> Exception | None:
        """The last failure; cleared by the next success, discard or new episode."""
        return self._portal.call(lambda: self._inner.error)

    def context(self) -> SessionContext | None:
        """The goal and the last five durable steps; ``None`` when idle."""
        return self._portal.call(lambda: self._inner.context())

    def recent_steps(self, count: int) -> tuple[Step, ...]:
        """The last *count* durable steps of the present episode, ascending."""
        return self._portal.call(lambda: self._inner.recent_steps(count))

    def statistics(self) -> SessionStatistics:
        """Levels of every bounded thing, and what models have cost."""
        return self._portal.call(lambda: self._inner.statistics())

    def start_episode(self, goal: str) -> None:
        """Collect for a new goal; legal in ``idle``."""
        self._portal.run(lambda: self._inner.start_episode(goal))

    def append(
        self,
        observation: str,
        action: str,
        *,
        at: datetime | str | None = None,
        actor: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Step:
        """Add a step; returns once it is durable. No model stands in between."""
        return self._portal.run(
            lambda: self._inner.append(
                observation, action, at=at, actor=actor, key=key, metadata=metadata
            )
        )

    def append_messages(self, messages: Given | Iterable[Given]) -> list[Step]:
        """
        Add chat messages as steps, in order; each is durable before the next is written.
        """
        return self._portal.run(lambda: self._inner.append_messages(messages))

    def held_messages(self, thread_id: str) -> list[str]:
        """
        Ids of a conversation thread's messages that it has steps of, the last step first.
        """
        return self._portal.call(lambda: self._inner.held_messages(thread_id))

    def close(self) -> None:
        """End the episode; returns once that is durable and extraction has been started."""
        self._portal.run(lambda: self._inner.close())

    def commit(self) -> CommitReceipt:
        """Write the staged changeset in one transaction; in ``failed``, start the retry."""
        return self._portal.run(lambda: self._inner.commit())

    def discard(self) -> None:
        """End the episode without committing; its steps leave recall, not the record."""
        self._portal.run(lambda: self._inner.discard())

    def close_and_commit(
        self, *, max_retries: int = 2, timeout_s: float | None = None
    ) -> CommitReceipt:
        """Close, wait for extraction (retrying it if it fails) and commit."""
        return self._portal.run(
            lambda: self._inner.close_and_commit(max_retries=max_retries, timeout_s=timeout_s)
        )

    def wait_for(self, *states: SessionState | str, timeout_s: float | None = None) -> SessionState:
        """Wait until the session is in one of *states*, without polling."""
        return self._portal.run(lambda: self._inner.wait_for(*states, timeout_s=timeout_s))

    def append_async(
        self,
        observation: str,
        action: str,
        callback: Callback | None = None,
        *,
        at: datetime | str | None = None,
        actor: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> PendingOperation:
        """Queue an ``append``; ends with ``"appended"``."""
        return PendingOperation(
            self._portal,
            self._portal.call(
                lambda: self._inner.append_async(
                    observation, action, callback, at=at, actor=actor, key=key, metadata=metadata
                )
            ),
        )

    def close_async(self, callback: Callback | None = None) -> PendingOperation:
        """
        Queue a ``close``; ends with ``"closed"`` once it is durable. *Raises* as the others.
        """
        return PendingOperation(
            self._portal, self._portal.call(lambda: self._inner.close_async(callback))
        )

    def commit_async(self, callback: Callback | None = None) -> PendingOperation:
        """Queue a ``commit``; ends with ``"committed"`` once everything is written."""
        return PendingOperation(
            self._portal, self._portal.call(lambda: self._inner.commit_async(callback))
        )

    def discard_async(self, callback: Callback | None = None) -> PendingOperation:
        """Queue a ``discard``; ends with ``"discarded"``. *Raises* as the others."""
        return PendingOperation(
            self._portal, self._portal.call(lambda: self._inner.discard_async(callback))
        )

    def start_episode_async(self, goal: str, callback: Callback | None = None) -> PendingOperation:
        """Queue a ``start_episode``; ends with ``"started"``. *Raises* as the others."""
        return PendingOperation(
            self._portal, self._portal.call(lambda: self._inner.start_episode_async(goal, callback))
        )

    def aclose(self) -> None:
        """
        End the session; its durable work stays resumable. Idempotent, never raises for a state.
        """
        self._portal.run(lambda: self._inner.aclose())


class Repository(Blocking[_Repository]):
    """

    One isolated memory; made by ``Mnemo.open_repo``.

    Blocking; see ``mnemo.repository.repository.Repository``.

    """

    @property
    def id(self) -> str:
        """Its id in the service."""
        return self._portal.call(lambda: self._inner.id)

    def start_session(
        self,
        goal: str,
        *,
        session_id: str | None = None,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
    ) -> Session:
        """Start a session that collects for *goal*; durable when it returns."""
        return Session(
            self._portal,
            self._portal.run(
                lambda: self._inner.start_session(
                    goal,
                    session_id=session_id,
                    config=config,
                    chat_model=chat_model,
                    embedder=embedder,
                )
            ),
        )

    def resume_session(
        self,
        session_id: str,
        *,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
    ) -> Session:
        """
        Open a session as its last durable act left it; if it is open here, that same one.
        """
        return Session(
            self._portal,
            self._portal.run(
                lambda: self._inner.resume_session(
                    session_id, config=config, chat_model=chat_model, embedder=embedder
                )
            ),
        )

    def unfinished_sessions(self) -> list[SessionRecord]:
        """List its sessions that are not idle, newest act first."""
        return self._portal.run(lambda: self._inner.unfinished_sessions())

    def sessions(self) -> list[SessionRecord]:
        """List all its sessions, newest act first."""
        return self._portal.run(lambda: self._inner.sessions())

    def remember(
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
        """Remember a text or messages: found at once, and later known as facts."""
        return self._portal.run(
            lambda: self._inner.remember(
                content,
                thread_id=thread_id,
                role=role,
                actor=actor,
                at=at,
                key=key,
                metadata=metadata,
                wait=wait,
                timeout_s=timeout_s,
                format=format,
            )
        )

    def settle(self, timeout_s: float | None = None) -> None:
        """
        Wait until nothing is on its way: annotated, extracted, committed, embedded, indexed,
        summarised.
        """
        self._portal.run(lambda: self._inner.settle(timeout_s))

    def retry_jobs(self, thread_ids: Sequence[str] | None = None) -> tuple[str, ...]:
        """
        Have background extraction that failed or waits be tried now, with all its tries again.
        """
        return self._portal.run(lambda: self._inner.retry_jobs(thread_ids))

    def cancel_jobs(self, thread_ids: Sequence[str]) -> tuple[str, ...]:
        """
        Give up the background extraction of threads: what they hold by now is not extracted.
        """
        return self._portal.run(lambda: self._inner.cancel_jobs(thread_ids))

    def conversation(
        self,
        thread_id: str,
        *,
        retrieval: Retrieval = OMITTED,
        compression: Compression | Sequence[Compression] | None = OMITTED,
        ttl_s: float | None = OMITTED,
        remember: bool = False,
    ) -> Conversation:
        """Make a handle of one thread of messages; a plain call that touches nothing."""
        return Conversation(
            self._portal,
            self._portal.call(
                lambda: self._inner.conversation(
                    thread_id,
                    retrieval=retrieval,
                    compression=compression,
                    ttl_s=ttl_s,
                    remember=remember,
                )
            ),
        )

    def threads(self) -> list[ThreadRecord]:
        """List its conversations by id; of a purged one, no messages."""
        return self._portal.run(lambda: self._inner.threads())

    @property
    def notes(self) -> Notes:
        """Its notes: long-term topic files, written at the end of a task."""
        return Notes(self._portal, self._portal.call(lambda: self._inner.notes))

    @property
    def inspection(self) -> Inspection:
        """What was written since a cursor, and sessions without opening them."""
        return Inspection(self._portal, self._portal.call(lambda: self._inner.inspection))

    @property
    def checkpoints(self) -> Checkpoints:
        """Its checkpoints: the states of graphs, for the savers of frameworks."""
        return Checkpoints(self._portal, self._portal.call(lambda: self._inner.checkpoints))

    @property
    def items(self) -> Items:
        """Its keyed items: JSON objects under a namespace and a key."""
        return Items(self._portal, self._portal.call(lambda: self._inner.items))

    def recall(
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
    ) -> RecallResult:
        """Find what the memory knows about *query*, always with its sources."""
        return self._portal.run(
            lambda: self._inner.recall(
                query,
                k=k,
                mode=mode,
                max_hops=max_hops,
                reason=reason,
                use_model=use_model,
                where=where,
                session_id=session_id,
                thread_id=thread_id,
                actor=actor,
                since=since,
                until=until,
                types=types,
                min_score=min_score,
                min_confidence=min_confidence,
                explain=explain,
                notes=notes,
            )
        )

    def recall_in_context(
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
    ) -> RecallResult:
        """
        ``recall`` with the query augmented by the goal and the last 3 steps of *session*.
        """
        return self._portal.run(
            lambda: self._inner.recall_in_context(
                self._unwrapped(session),
                query,
                k=k,
                mode=mode,
                max_hops=max_hops,
                reason=reason,
                use_model=use_model,
                where=where,
                session_id=session_id,
                thread_id=thread_id,
                actor=actor,
                since=since,
                until=until,
                types=types,
                min_score=min_score,
                min_confidence=min_confidence,
                explain=explain,
                notes=notes,
            )
        )

    def search(
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
        """Find words in everything ever said or observed; all of them must occur."""
        return self._portal.run(
            lambda: self._inner.search(
                query,
                where=where,
                session_id=session_id,
                thread_id=thread_id,
                actor=actor,
                since=since,
                until=until,
                types=types,
                limit=limit,
                not_visible_in=not_visible_in,
            )
        )

    def view(
        self,
        message_id: str,
        *,
        session_id: str | None = None,
        before: int = 10,
        after: int = 10,
        budget_tokens: int | None = None,
    ) -> MessageView:
        """Open what lies around a message, a half of a step, or a snapshot."""
        return self._portal.run(
            lambda: self._inner.view(
                message_id,
                session_id=session_id,
                before=before,
                after=after,
                budget_tokens=budget_tokens,
            )
        )

    def tools(
        self, thread_id: str | None = None, *, names: Sequence[str] | None = None
    ) -> list[AgentTool]:
        """
        Tools for an agent; a plain call. Name, description and schema are the same everywhere.
        """
        return [
            AgentTool(self._portal, one)
            for one in self._portal.call(lambda: self._inner.tools(thread_id, names=names))
        ]

    def memories(
        self,
        *,
        types: Sequence[str] = ("semantic", "procedural"),
        superseded: bool = False,
        order: Order = "newest",
        limit: int = 100,
        after: str | None = None,
        where: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        actor: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Page[Memory]:
        """List facts and instructions, a page at a time."""
        return self._portal.run(
            lambda: self._inner.memories(
                types=types,
                superseded=superseded,
                order=order,
                limit=limit,
                after=after,
                where=where,
                session_id=session_id,
                thread_id=thread_id,
                actor=actor,
                since=since,
                until=until,
            )
        )

    def memory(self, id: str) -> Memory:
        """Give one fact or instruction, superseded or not."""
        return self._portal.run(lambda: self._inner.memory(id))

    def add_memory(
        self,
        text: str,
        *,
        type: Literal["semantic", "procedural"] = "semantic",
        tags: Sequence[str] = (),
        at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Add a fact or instruction by hand; its source is the hand."""
        return self._portal.run(
            lambda: self._inner.add_memory(text, type=type, tags=tags, at=at, metadata=metadata)
        )

    def update_memory(
        self, id: str, text: str, *, reason: str | None = None, expected_version: int | None = None
    ) -> Memory:
        """Correct what a fact or instruction says, from now on, with a new vector."""
        return self._portal.run(
            lambda: self._inner.update_memory(
                id, text, reason=reason, expected_version=expected_version
            )
        )

    def history(self, id: str) -> list[MemoryVersion]:
        """
        List the wordings of a memory, of those that it superseded and that superseded it.
        """
        return self._portal.run(lambda: self._inner.history(id))

    def apply(self, changeset: Changeset) -> Revision:
        """Reconcile *changeset* with the graph and write it in one transaction."""
        return self._portal.run(lambda: self._inner.apply(changeset))

    def delete_nodes(self, ids: Sequence[str]) -> int:
        """Delete exactly these nodes and their edges; unknown ids are skipped."""
        return self._portal.run(lambda: self._inner.delete_nodes(ids))

    def get_node(self, id: str) -> Node | None:
        """Return the node, superseded or not; ``None``: there is none."""
        return self._portal.run(lambda: self._inner.get_node(id))

    def get_nodes(self, types: Sequence[str]) -> list[Node]:
        """
        List nodes of *types*, oldest first. *Raises* ``ValueError`` for an unknown type.
        """
        return self._portal.run(lambda: self._inner.get_nodes(types))

    def get_metadata(self, ids: Sequence[str]) -> dict[str, NodeMetadata]:
        """Return the metadata of the ids that exist."""
        return self._portal.run(lambda: self._inner.get_metadata(ids))

    def get_edges(
        self, ids: Sequence[str], *, edge_type: EdgeKind | str | None = None
    ) -> list[Edge]:
        """List the edges of *edge_type* (``None``: all) with an end among *ids*."""
        return self._portal.run(lambda: self._inner.get_edges(ids, edge_type=edge_type))

    def get_linked_nodes(
        self, ids: Sequence[str], *, edge_type: EdgeKind | str | None = None
    ) -> list[Node]:
        """
        List the neighbours of *ids* over edges of *edge_type* (``None``: all), each once.
        """
        return self._portal.run(lambda: self._inner.get_linked_nodes(ids, edge_type=edge_type))

    def latest(
        self, top_k: int = 10, *, types: Sequence[str] = ("semantic", "procedural")
    ) -> list[tuple[Node, NodeMetadata]]:
        """List the newest nodes of *types* with their metadata, newest first, ties by id."""
        return self._portal.run(lambda: self._inner.latest(top_k, types=types))

    def consolidate(self, *, threshold: float = 0.85) -> MaintenanceReport:
        """Merge facts that say the same, wherever they are in the graph."""
        return self._portal.run(lambda: self._inner.consolidate(threshold=threshold))

    def decay(
        self, *, threshold: float = 0.1, types: Sequence[str] = ("semantic", "procedural")
    ) -> MaintenanceReport:
        """Delete what is old, unused and unrewarded; raw steps stay."""
        return self._portal.run(lambda: self._inner.decay(threshold=threshold, types=types))

    def validate(self) -> MaintenanceReport:
        """Penalize facts and instructions whose evidence does not say what they say."""
        return self._portal.run(lambda: self._inner.validate())

    def forget(
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
        """Erase what was said, and all that was derived from it alone, for good."""
        return self._portal.run(
            lambda: self._inner.forget(
                memory_ids=memory_ids,
                message_ids=message_ids,
                steps=steps,
                session_id=session_id,
                thread_id=thread_id,
                before=before,
                sources=sources,
                dry_run=dry_run,
            )
        )

    def statistics(self) -> RepositoryStatistics:
        """Count nodes, edges, queue depths and index state."""
        return self._portal.run(lambda: self._inner.statistics())

    @property
    def config(self) -> Config:
        """Its effective settings."""
        return self._portal.call(lambda: self._inner.config)

    def changes(
        self,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        subject: str | None = None,
        order: Order = "newest",
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Change]:
        """List what held and holds no longer, with what took its place, a page at a time."""
        return self._portal.run(
            lambda: self._inner.changes(
                since=since, until=until, subject=subject, order=order, limit=limit, after=after
            )
        )


class Mnemo(Blocking[_Mnemo]):
    """

    A memory service over one store.

    Blocking; see ``mnemo.service.Mnemo``.

    """

    def __init__(
        self,
        store: str | Path | Store = "mnemo.db",
        *,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
        clock: Clock | None = None,
        workers: int | None = None,
    ) -> None:
        super().__init__(
            Portal(),
            _Mnemo(
                store,
                config=config,
                chat_model=chat_model,
                embedder=embedder,
                clock=clock,
                workers=workers,
            ),
        )

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A forked process that leaves the block has nothing to close; its parent has.
        if not self._portal.is_forked:
            self.aclose()

    async def __aenter__(self) -> NoReturn:
        raise UsageError(
            "write `with mnemo.sync.Mnemo(…)`, or in a coroutine `async with mnemo.Mnemo(…)`"
        )

    __aexit__ = __aenter__  # ``async with`` looks for both first

    def open(self) -> None:
        """
        Start the private loop and open the store.

        Whoever forgets to close it has it closed at the interpreter's exit.
        """
        self._portal.open(
            self._inner.open, self._inner.aclose, self._inner._config.shutdown_grace_s
        )

    def aclose(self) -> None:
        """Close everything in order, then end the private loop; idempotent."""
        self._portal.close()

    close = aclose

    def open_repo(
        self,
        repo_id: str = "default",
        *,
        exist_ok: bool = False,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
    ) -> Repository:
        """Open one isolated memory, making it if it is new."""
        return Repository(
            self._portal,
            self._portal.run(
                lambda: self._inner.open_repo(
                    repo_id,
                    exist_ok=exist_ok,
                    config=config,
                    chat_model=chat_model,
                    embedder=embedder,
                )
            ),
        )

    def repo(self, repo_id: str) -> Repository:
        """The open repository. *Raises* ``NotFound`` if it is not open."""
        return Repository(self._portal, self._portal.call(lambda: self._inner.repo(repo_id)))

    def session(self, session_id: str, *, repo_id: str | None = None) -> Session:
        """The open session of this id."""
        return Session(
            self._portal,
            self._portal.call(lambda: self._inner.session(session_id, repo_id=repo_id)),
        )

    def list_repos(self) -> list[str]:
        """Ids of the open repositories, sorted."""
        return self._portal.call(lambda: self._inner.list_repos())

    def close_repo(self, repo_id: str) -> None:
        """
        Close a repository; its sessions stay resumable, other repositories do not notice.
        """
        self._portal.run(lambda: self._inner.close_repo(repo_id))

    def work(
        self,
        repos: str = "*",
        *,
        kinds: Sequence[JobKind] | None = None,
        on_look: Callable[[WorkerStatistics], Any] | None = None,
    ) -> None:
        """Work off the jobs of all stored repositories, until it is cancelled."""
        self._portal.run(lambda: self._inner.work(repos, kinds=kinds, on_look=on_look))

    def reembed(
        self,
        repo_id: str,
        *,
        embedder: Embedder | str | None = None,
        on_progress: Callable[[ReembeddingProgress], Any] | None = None,
    ) -> ReembeddingReport:
        """Move a repository to the space of another embedder, from the stored texts."""
        return self._portal.run(
            lambda: self._inner.reembed(repo_id, embedder=embedder, on_progress=on_progress)
        )

    def export_repo(self, repo_id: str) -> AbstractContextManager[Iterator[str]]:
        """Everything of a repository, open or not, as lines of JSON (each with its end)."""
        return self._portal.entered(lambda: self._inner.export_repo(repo_id))

    def import_repo(self, repo_id: str, lines: AsyncIterable[str] | Iterable[str]) -> ArchiveHead:
        """
        Make *repo_id* what another repository was when *lines* were exported; all or nothing.
        """
        return self._portal.run(lambda: self._inner.import_repo(repo_id, lines))

    def copy_to(
        self,
        target: str | Path | Store,
        *,
        repos: str = "*",
        skip_damaged: bool = False,
        on_copied: Callable[[RepositoryCopy], Any] | None = None,
    ) -> list[RepositoryCopy]:
        """Copy repositories into another store, each as of one moment, under the same id."""
        return self._portal.run(
            lambda: self._inner.copy_to(
                target, repos=repos, skip_damaged=skip_damaged, on_copied=on_copied
            )
        )

    def repos(self) -> list[RepositoryRecord]:
        """
        List all stored repositories by id, open or not; one never written to is in no store.
        """
        return self._portal.run(lambda: self._inner.repos())

    def delete_repo(self, repo_id: str) -> ErasureReport:
        """Delete a repository with everything in it, for good."""
        return self._portal.run(lambda: self._inner.delete_repo(repo_id))

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the whole store to a new file, while it is used."""
        self._portal.run(lambda: self._inner.backup(path))

    def scrub(self) -> bool:
        """
        Rewrite the file now if erased bytes may be left in it (``ErasureReport.scrubbed``).
        """
        return self._portal.run(lambda: self._inner.scrub())

    def check(self, *, repair: bool = False) -> StoreReport:
        """Check the whole store: file, rows, full text, vectors."""
        return self._portal.run(lambda: self._inner.check(repair=repair))

    def subscribe(self, observer: Callable[[Event], Any]) -> Subscription:
        """Call *observer* with every event from now on, in order."""
        return Subscription(
            self._portal, self._portal.call(lambda: self._inner.subscribe(observer))
        )

    def events(self, *, buffer: int = 1024) -> AbstractContextManager[Iterator[Event]]:
        """A stream of events: ``with memory.events() as events: for event in events``."""
        return self._portal.entered(lambda: self._inner.events(buffer=buffer))

"""Durable memory for agents: sessions in, recall out, nothing lost."""

from typing import TYPE_CHECKING, Any

from mnemo.errors import (
    BudgetExceeded,
    CommitFailed,
    ConfigError,
    Conflict,
    EmbeddingSpaceMismatch,
    ExtractionFailed,
    InvalidArchive,
    InvalidNote,
    InvalidOperation,
    InvalidReply,
    MnemoError,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    NotFound,
    PendingQueueFull,
    PrecedingOperationFailed,
    RateLimited,
    RecallFailed,
    RepositoryAlreadyOpen,
    SchemaTooNew,
    SessionBusy,
    SessionClosed,
    SessionError,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    Unreachable,
    UsageError,
)

__version__ = "0.1.0"

if TYPE_CHECKING:  # each is loaded when it is first asked for
    from mnemo.config import Config
    from mnemo.context.rendering import RenderedViewport, WindowLook
    from mnemo.context.viewport import Viewport
    from mnemo.context.zones import CompressedViewport
    from mnemo.conversation.mirror import Feed
    from mnemo.items.items import Items
    from mnemo.maintenance.copying import RepositoryCopy
    from mnemo.maintenance.reembed import ReembeddingProgress, ReembeddingReport
    from mnemo.notes.folder import FolderReport
    from mnemo.notes.notes import Notes
    from mnemo.notes.shelf import NoteRecall
    from mnemo.notes.tools import NoteToolbox
    from mnemo.notes.update import NoteUpdate, Progress
    from mnemo.prompts.profiles import Profile
    from mnemo.recall.keyword import SearchHit
    from mnemo.recall.result import Candidate, Explanation, ReasonedMemory, RecallResult, SourceRef
    from mnemo.recall.view import MessageView
    from mnemo.repository import (
        Change,
        Changes,
        ConversationStatistics,
        Inspection,
        Memory,
        MemoryVersion,
        Page,
        Repository,
        RepositoryStatistics,
        SessionLook,
        ThreadRecord,
    )
    from mnemo.repository.agent_tools import AgentTool, ToolAnswer
    from mnemo.repository.checkpoints import Checkpoints
    from mnemo.repository.conversation import Conversation
    from mnemo.repository.remembering import Remembered
    from mnemo.runtime.bus import Subscription
    from mnemo.runtime.operations import Outcome, PendingOperation
    from mnemo.service import Mnemo
    from mnemo.session.parts import CommitReceipt, SessionContext, SessionStatistics
    from mnemo.session.session import Session
    from mnemo.values.archive import ArchiveHead
    from mnemo.values.changeset import Changeset, MaintenanceReport, NodeChange, Revision
    from mnemo.values.checkpoints import ChannelHistory, Checkpoint, CheckpointHead, CheckpointWrite
    from mnemo.values.derived import (
        Compaction,
        EvictionOutcome,
        Goal,
        GoalCompletion,
        Pin,
        Snapshot,
    )
    from mnemo.values.erasure import ErasureReport
    from mnemo.values.graph import (
        Edge,
        EdgeKind,
        Edit,
        Episodic,
        Intent,
        KeyedItem,
        MetadataDelta,
        Node,
        NodeMetadata,
        Procedural,
        Semantic,
        Source,
        Subgoal,
        Tag,
    )
    from mnemo.values.items import (
        DeleteItem,
        GetItem,
        Item,
        ItemOperation,
        ListNamespaces,
        PutItem,
        SearchItems,
    )
    from mnemo.values.jobs import Job, JobLevels, JobState, WorkerStatistics
    from mnemo.values.journal import RepositoryRecord, SessionRecord, SessionState
    from mnemo.values.messages import Message, StoredMessage, ToolCall
    from mnemo.values.notes import Note, NoteChange, NoteInfo, NoteVersion
    from mnemo.values.steps import Step
    from mnemo.values.strategies import Composite, Nearest, Recent, Summary, ToolOutputPruner

__all__ = [
    "AgentTool",
    "ArchiveHead",
    "BudgetExceeded",
    "Candidate",
    "Change",
    "Changes",
    "Changeset",
    "ChannelHistory",
    "Checkpoint",
    "CheckpointHead",
    "CheckpointWrite",
    "Checkpoints",
    "CommitFailed",
    "CommitReceipt",
    "Compaction",
    "Composite",
    "CompressedViewport",
    "Config",
    "ConfigError",
    "Conflict",
    "Conversation",
    "ConversationStatistics",
    "DeleteItem",
    "Edge",
    "EdgeKind",
    "Edit",
    "EmbeddingSpaceMismatch",
    "Episodic",
    "ErasureReport",
    "EvictionOutcome",
    "Explanation",
    "ExtractionFailed",
    "Feed",
    "FolderReport",
    "GetItem",
    "Goal",
    "GoalCompletion",
    "Inspection",
    "Intent",
    "InvalidArchive",
    "InvalidNote",
    "InvalidOperation",
    "InvalidReply",
    "Item",
    "ItemOperation",
    "Items",
    "Job",
    "JobLevels",
    "JobState",
    "KeyedItem",
    "ListNamespaces",
    "MaintenanceReport",
    "Memory",
    "MemoryVersion",
    "Message",
    "MessageView",
    "MetadataDelta",
    "Mnemo",
    "MnemoError",
    "ModelError",
    "ModelTimeout",
    "ModelUnavailable",
    "Nearest",
    "Node",
    "NodeChange",
    "NodeMetadata",
    "NotFound",
    "Note",
    "NoteChange",
    "NoteInfo",
    "NoteRecall",
    "NoteToolbox",
    "NoteUpdate",
    "NoteVersion",
    "Notes",
    "Outcome",
    "Page",
    "PendingOperation",
    "PendingQueueFull",
    "Pin",
    "PrecedingOperationFailed",
    "Procedural",
    "Profile",
    "Progress",
    "PutItem",
    "RateLimited",
    "ReasonedMemory",
    "RecallFailed",
    "RecallResult",
    "Recent",
    "ReembeddingProgress",
    "ReembeddingReport",
    "Remembered",
    "RenderedViewport",
    "Repository",
    "RepositoryAlreadyOpen",
    "RepositoryCopy",
    "RepositoryRecord",
    "RepositoryStatistics",
    "Revision",
    "SchemaTooNew",
    "SearchHit",
    "SearchItems",
    "Semantic",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SessionContext",
    "SessionError",
    "SessionLook",
    "SessionRecord",
    "SessionState",
    "SessionStatistics",
    "Snapshot",
    "Source",
    "SourceRef",
    "Step",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoredMessage",
    "Subgoal",
    "Subscription",
    "Summary",
    "Tag",
    "ThreadRecord",
    "ToolAnswer",
    "ToolCall",
    "ToolOutputPruner",
    "Unreachable",
    "UsageError",
    "Viewport",
    "WindowLook",
    "WorkerStatistics",
    "__version__",
]

_NAMES = {
    "config": "Config",
    "context.rendering": "RenderedViewport WindowLook",
    "context.viewport": "Viewport",
    "context.zones": "CompressedViewport",
    "conversation.mirror": "Feed",
    "items.items": "Items",
    "maintenance.copying": "RepositoryCopy",
    "maintenance.reembed": "ReembeddingProgress ReembeddingReport",
    "notes.folder": "FolderReport",
    "notes.notes": "Notes",
    "notes.shelf": "NoteRecall",
    "notes.tools": "NoteToolbox",
    "notes.update": "NoteUpdate Progress",
    "prompts.profiles": "Profile",
    "recall.keyword": "SearchHit",
    "recall.result": "Candidate Explanation ReasonedMemory RecallResult SourceRef",
    "recall.view": "MessageView",
    "repository": (
        "Change Changes ConversationStatistics Inspection Memory MemoryVersion Page Repository "
        "RepositoryStatistics SessionLook ThreadRecord"
    ),
    "repository.agent_tools": "AgentTool ToolAnswer",
    "repository.checkpoints": "Checkpoints",
    "repository.conversation": "Conversation",
    "repository.remembering": "Remembered",
    "runtime.bus": "Subscription",
    "runtime.operations": "Outcome PendingOperation",
    "service": "Mnemo",
    "session.parts": "CommitReceipt SessionContext SessionStatistics",
    "session.session": "Session",
    "values.archive": "ArchiveHead",
    "values.changeset": "Changeset MaintenanceReport NodeChange Revision",
    "values.checkpoints": "ChannelHistory Checkpoint CheckpointHead CheckpointWrite",
    "values.derived": "Compaction EvictionOutcome Goal GoalCompletion Pin Snapshot",
    "values.erasure": "ErasureReport",
    "values.graph": (
        "Edge EdgeKind Edit Episodic Intent KeyedItem MetadataDelta Node NodeMetadata Procedural "
        "Semantic Source Subgoal Tag"
    ),
    "values.items": "DeleteItem GetItem Item ItemOperation ListNamespaces PutItem SearchItems",
    "values.jobs": "Job JobLevels JobState WorkerStatistics",
    "values.journal": "RepositoryRecord SessionRecord SessionState",
    "values.messages": "Message StoredMessage ToolCall",
    "values.notes": "Note NoteChange NoteInfo NoteVersion",
    "values.steps": "Step",
    "values.strategies": "Composite Nearest Recent Summary ToolOutputPruner",
}
_LATER = {name: f"mnemo.{module}" for module, names in _NAMES.items() for name in names.split()}
"""Where each name is that is loaded when it is first asked for; with its module's own imports."""
_MODULES = ("config", "events", "protocols")
"""Modules that are reached without an import of their own."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"mnemo.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'mnemo' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

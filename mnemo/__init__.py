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

_LATER = {
    "AgentTool": "mnemo.repository.agent_tools",
    "ArchiveHead": "mnemo.values.archive",
    "Candidate": "mnemo.recall.result",
    "Change": "mnemo.repository",
    "Changes": "mnemo.repository",
    "Changeset": "mnemo.values.changeset",
    "ChannelHistory": "mnemo.values.checkpoints",
    "Checkpoint": "mnemo.values.checkpoints",
    "CheckpointHead": "mnemo.values.checkpoints",
    "CheckpointWrite": "mnemo.values.checkpoints",
    "Checkpoints": "mnemo.repository.checkpoints",
    "CommitReceipt": "mnemo.session.parts",
    "Compaction": "mnemo.values.derived",
    "Composite": "mnemo.values.strategies",
    "CompressedViewport": "mnemo.context.zones",
    "Config": "mnemo.config",
    "Conversation": "mnemo.repository.conversation",
    "ConversationStatistics": "mnemo.repository",
    "DeleteItem": "mnemo.values.items",
    "Edge": "mnemo.values.graph",
    "EdgeKind": "mnemo.values.graph",
    "Edit": "mnemo.values.graph",
    "Episodic": "mnemo.values.graph",
    "ErasureReport": "mnemo.values.erasure",
    "EvictionOutcome": "mnemo.values.derived",
    "Explanation": "mnemo.recall.result",
    "Feed": "mnemo.conversation.mirror",
    "FolderReport": "mnemo.notes.folder",
    "GetItem": "mnemo.values.items",
    "Goal": "mnemo.values.derived",
    "GoalCompletion": "mnemo.values.derived",
    "Inspection": "mnemo.repository",
    "Intent": "mnemo.values.graph",
    "Item": "mnemo.values.items",
    "ItemOperation": "mnemo.values.items",
    "Items": "mnemo.items.items",
    "Job": "mnemo.values.jobs",
    "JobLevels": "mnemo.values.jobs",
    "JobState": "mnemo.values.jobs",
    "KeyedItem": "mnemo.values.graph",
    "ListNamespaces": "mnemo.values.items",
    "MaintenanceReport": "mnemo.values.changeset",
    "Memory": "mnemo.repository",
    "MemoryVersion": "mnemo.repository",
    "Message": "mnemo.values.messages",
    "MessageView": "mnemo.recall.view",
    "MetadataDelta": "mnemo.values.graph",
    "Mnemo": "mnemo.service",
    "Nearest": "mnemo.values.strategies",
    "Node": "mnemo.values.graph",
    "NodeChange": "mnemo.values.changeset",
    "NodeMetadata": "mnemo.values.graph",
    "Note": "mnemo.values.notes",
    "NoteChange": "mnemo.values.notes",
    "NoteInfo": "mnemo.values.notes",
    "NoteRecall": "mnemo.notes.shelf",
    "NoteToolbox": "mnemo.notes.tools",
    "NoteUpdate": "mnemo.notes.update",
    "NoteVersion": "mnemo.values.notes",
    "Notes": "mnemo.notes.notes",
    "Outcome": "mnemo.runtime.operations",
    "Page": "mnemo.repository",
    "PendingOperation": "mnemo.runtime.operations",
    "Pin": "mnemo.values.derived",
    "Procedural": "mnemo.values.graph",
    "Profile": "mnemo.prompts.profiles",
    "Progress": "mnemo.notes.update",
    "PutItem": "mnemo.values.items",
    "ReasonedMemory": "mnemo.recall.result",
    "RecallResult": "mnemo.recall.result",
    "Recent": "mnemo.values.strategies",
    "ReembeddingProgress": "mnemo.maintenance.reembed",
    "ReembeddingReport": "mnemo.maintenance.reembed",
    "Remembered": "mnemo.repository.remembering",
    "RenderedViewport": "mnemo.context.rendering",
    "Repository": "mnemo.repository",
    "RepositoryCopy": "mnemo.maintenance.copying",
    "RepositoryRecord": "mnemo.values.journal",
    "RepositoryStatistics": "mnemo.repository",
    "Revision": "mnemo.values.changeset",
    "SearchHit": "mnemo.recall.keyword",
    "SearchItems": "mnemo.values.items",
    "Semantic": "mnemo.values.graph",
    "Session": "mnemo.session.session",
    "SessionContext": "mnemo.session.parts",
    "SessionLook": "mnemo.repository",
    "SessionRecord": "mnemo.values.journal",
    "SessionState": "mnemo.values.journal",
    "SessionStatistics": "mnemo.session.parts",
    "Snapshot": "mnemo.values.derived",
    "Source": "mnemo.values.graph",
    "SourceRef": "mnemo.recall.result",
    "Step": "mnemo.values.steps",
    "StoredMessage": "mnemo.values.messages",
    "Subgoal": "mnemo.values.graph",
    "Subscription": "mnemo.runtime.bus",
    "Summary": "mnemo.values.strategies",
    "Tag": "mnemo.values.graph",
    "ThreadRecord": "mnemo.repository",
    "ToolAnswer": "mnemo.repository.agent_tools",
    "ToolCall": "mnemo.values.messages",
    "ToolOutputPruner": "mnemo.values.strategies",
    "Viewport": "mnemo.context.viewport",
    "WindowLook": "mnemo.context.rendering",
    "WorkerStatistics": "mnemo.values.jobs",
}
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

"""Durable memory for agents: sessions in, recall out, nothing lost."""

from typing import TYPE_CHECKING, Any

from mnemo.config import Config
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
from mnemo.maintenance.copying import RepositoryCopy
from mnemo.maintenance.reembed import ReembeddingProgress, ReembeddingReport
from mnemo.prompts.profiles import Profile
from mnemo.recall.candidate import Candidate, Explanation, SourceRef
from mnemo.recall.keyword import SearchHit
from mnemo.recall.result import ReasonedMemory, RecallResult
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
from mnemo.runtime.bus import Subscription
from mnemo.service import Mnemo
from mnemo.session.pending import Outcome, PendingOperation
from mnemo.session.session import Session
from mnemo.session.views import CommitReceipt, SessionContext, SessionStatistics
from mnemo.values.archive import ArchiveHead
from mnemo.values.changeset import Changeset, NodeChange, Revision
from mnemo.values.checkpoints import (
    ChannelHistory,
    Checkpoint,
    CheckpointHead,
    CheckpointWrite,
)
from mnemo.values.derived import Compaction, EvictionOutcome, Goal, GoalCompletion, Pin, Snapshot
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
from mnemo.values.upkeep import MaintenanceReport

__version__ = "0.1.0"

if TYPE_CHECKING:  # what an open repository hands out is loaded when it is asked for
    from mnemo.context.compressed import CompressedViewport
    from mnemo.context.rendering import RenderedViewport, WindowLook
    from mnemo.context.viewport import Viewport
    from mnemo.conversation.mirror import Feed
    from mnemo.items.items import Items
    from mnemo.notes.folder import FolderReport
    from mnemo.notes.notes import Notes
    from mnemo.notes.progress import Progress
    from mnemo.notes.recall import NoteRecall
    from mnemo.notes.tools import NoteToolbox
    from mnemo.notes.update import NoteUpdate
    from mnemo.recall.agent_tools import AgentTool, ToolAnswer
    from mnemo.recall.view import MessageView
    from mnemo.repository.checkpoints import Checkpoints
    from mnemo.repository.conversation import Conversation
    from mnemo.repository.remembering import Remembered

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
    "AgentTool": "mnemo.recall.agent_tools",
    "Checkpoints": "mnemo.repository.checkpoints",
    "CompressedViewport": "mnemo.context.compressed",
    "Conversation": "mnemo.repository.conversation",
    "Feed": "mnemo.conversation.mirror",
    "FolderReport": "mnemo.notes.folder",
    "Items": "mnemo.items.items",
    "MessageView": "mnemo.recall.view",
    "NoteRecall": "mnemo.notes.recall",
    "NoteToolbox": "mnemo.notes.tools",
    "NoteUpdate": "mnemo.notes.update",
    "Notes": "mnemo.notes.notes",
    "Progress": "mnemo.notes.progress",
    "Remembered": "mnemo.repository.remembering",
    "RenderedViewport": "mnemo.context.rendering",
    "ToolAnswer": "mnemo.recall.agent_tools",
    "Viewport": "mnemo.context.viewport",
    "WindowLook": "mnemo.context.rendering",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'mnemo' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)

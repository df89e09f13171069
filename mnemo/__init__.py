"""Durable memory for agents: sessions in, recall out, nothing lost."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # each is loaded when it is first asked for
    from mnemo.config import Config as Config
    from mnemo.context.rendering import RenderedViewport as RenderedViewport
    from mnemo.context.rendering import WindowLook as WindowLook
    from mnemo.context.viewport import Viewport as Viewport
    from mnemo.context.zones import CompressedViewport as CompressedViewport
    from mnemo.conversation.mirror import Feed as Feed
    from mnemo.errors import BudgetExceeded as BudgetExceeded
    from mnemo.errors import CommitFailed as CommitFailed
    from mnemo.errors import ConfigError as ConfigError
    from mnemo.errors import Conflict as Conflict
    from mnemo.errors import EmbeddingSpaceMismatch as EmbeddingSpaceMismatch
    from mnemo.errors import ExtractionFailed as ExtractionFailed
    from mnemo.errors import InvalidArchive as InvalidArchive
    from mnemo.errors import InvalidNote as InvalidNote
    from mnemo.errors import InvalidOperation as InvalidOperation
    from mnemo.errors import InvalidReply as InvalidReply
    from mnemo.errors import MnemoError as MnemoError
    from mnemo.errors import ModelError as ModelError
    from mnemo.errors import ModelTimeout as ModelTimeout
    from mnemo.errors import ModelUnavailable as ModelUnavailable
    from mnemo.errors import NotFound as NotFound
    from mnemo.errors import PendingQueueFull as PendingQueueFull
    from mnemo.errors import PrecedingOperationFailed as PrecedingOperationFailed
    from mnemo.errors import RateLimited as RateLimited
    from mnemo.errors import RecallFailed as RecallFailed
    from mnemo.errors import RepositoryAlreadyOpen as RepositoryAlreadyOpen
    from mnemo.errors import SchemaTooNew as SchemaTooNew
    from mnemo.errors import SessionBusy as SessionBusy
    from mnemo.errors import SessionClosed as SessionClosed
    from mnemo.errors import SessionError as SessionError
    from mnemo.errors import StoreCorrupt as StoreCorrupt
    from mnemo.errors import StoreError as StoreError
    from mnemo.errors import StoreLocked as StoreLocked
    from mnemo.errors import StoreReadOnly as StoreReadOnly
    from mnemo.errors import StoreUnavailable as StoreUnavailable
    from mnemo.errors import Unreachable as Unreachable
    from mnemo.errors import UsageError as UsageError
    from mnemo.items.items import Items as Items
    from mnemo.maintenance.copying import RepositoryCopy as RepositoryCopy
    from mnemo.maintenance.reembed import ReembeddingProgress as ReembeddingProgress
    from mnemo.maintenance.reembed import ReembeddingReport as ReembeddingReport
    from mnemo.notes.folder import FolderReport as FolderReport
    from mnemo.notes.notes import Notes as Notes
    from mnemo.notes.shelf import NoteRecall as NoteRecall
    from mnemo.notes.tools import NoteToolbox as NoteToolbox
    from mnemo.notes.update import NoteUpdate as NoteUpdate
    from mnemo.notes.update import Progress as Progress
    from mnemo.prompts.profiles import Profile as Profile
    from mnemo.recall.keyword import SearchHit as SearchHit
    from mnemo.recall.result import Candidate as Candidate
    from mnemo.recall.result import Expected as Expected
    from mnemo.recall.result import Explanation as Explanation
    from mnemo.recall.result import ReasonedMemory as ReasonedMemory
    from mnemo.recall.result import RecallResult as RecallResult
    from mnemo.recall.result import SourceRef as SourceRef
    from mnemo.recall.view import MessageView as MessageView
    from mnemo.repository.agent_tools import AgentTool as AgentTool
    from mnemo.repository.agent_tools import ToolAnswer as ToolAnswer
    from mnemo.repository.checkpoints import Checkpoints as Checkpoints
    from mnemo.repository.conversation import Conversation as Conversation
    from mnemo.repository.inspection import Changes as Changes
    from mnemo.repository.inspection import Inspection as Inspection
    from mnemo.repository.inspection import SessionLook as SessionLook
    from mnemo.repository.memories import Change as Change
    from mnemo.repository.memories import Memory as Memory
    from mnemo.repository.memories import MemoryVersion as MemoryVersion
    from mnemo.repository.memories import Page as Page
    from mnemo.repository.names import Name as Name
    from mnemo.repository.names import Named as Named
    from mnemo.repository.names import NamedFact as NamedFact
    from mnemo.repository.names import Names as Names
    from mnemo.repository.parts import ConversationStatistics as ConversationStatistics
    from mnemo.repository.parts import RepositoryStatistics as RepositoryStatistics
    from mnemo.repository.parts import ThreadRecord as ThreadRecord
    from mnemo.repository.remembering import Remembered as Remembered
    from mnemo.repository.repository import Repository as Repository
    from mnemo.runtime.bus import Subscription as Subscription
    from mnemo.runtime.operations import Outcome as Outcome
    from mnemo.runtime.operations import PendingOperation as PendingOperation
    from mnemo.service import Mnemo as Mnemo
    from mnemo.session.parts import CommitReceipt as CommitReceipt
    from mnemo.session.parts import SessionContext as SessionContext
    from mnemo.session.parts import SessionStatistics as SessionStatistics
    from mnemo.session.session import Session as Session
    from mnemo.values.archive import ArchiveHead as ArchiveHead
    from mnemo.values.changeset import Changeset as Changeset
    from mnemo.values.changeset import MaintenanceReport as MaintenanceReport
    from mnemo.values.changeset import NodeChange as NodeChange
    from mnemo.values.changeset import Revision as Revision
    from mnemo.values.checkpoints import ChannelHistory as ChannelHistory
    from mnemo.values.checkpoints import Checkpoint as Checkpoint
    from mnemo.values.checkpoints import CheckpointHead as CheckpointHead
    from mnemo.values.checkpoints import CheckpointWrite as CheckpointWrite
    from mnemo.values.derived import Compaction as Compaction
    from mnemo.values.derived import EvictionOutcome as EvictionOutcome
    from mnemo.values.derived import Goal as Goal
    from mnemo.values.derived import GoalCompletion as GoalCompletion
    from mnemo.values.derived import Pin as Pin
    from mnemo.values.derived import Snapshot as Snapshot
    from mnemo.values.erasure import ErasureReport as ErasureReport
    from mnemo.values.graph import Edge as Edge
    from mnemo.values.graph import EdgeKind as EdgeKind
    from mnemo.values.graph import Edit as Edit
    from mnemo.values.graph import Episodic as Episodic
    from mnemo.values.graph import Intent as Intent
    from mnemo.values.graph import KeyedItem as KeyedItem
    from mnemo.values.graph import MetadataDelta as MetadataDelta
    from mnemo.values.graph import Node as Node
    from mnemo.values.graph import NodeMetadata as NodeMetadata
    from mnemo.values.graph import Procedural as Procedural
    from mnemo.values.graph import Semantic as Semantic
    from mnemo.values.graph import Source as Source
    from mnemo.values.graph import Subgoal as Subgoal
    from mnemo.values.graph import Tag as Tag
    from mnemo.values.items import DeleteItem as DeleteItem
    from mnemo.values.items import GetItem as GetItem
    from mnemo.values.items import Item as Item
    from mnemo.values.items import ItemOperation as ItemOperation
    from mnemo.values.items import ListNamespaces as ListNamespaces
    from mnemo.values.items import PutItem as PutItem
    from mnemo.values.items import SearchItems as SearchItems
    from mnemo.values.jobs import Job as Job
    from mnemo.values.jobs import JobLevels as JobLevels
    from mnemo.values.jobs import JobState as JobState
    from mnemo.values.jobs import WorkerStatistics as WorkerStatistics
    from mnemo.values.journal import RepositoryRecord as RepositoryRecord
    from mnemo.values.journal import SessionRecord as SessionRecord
    from mnemo.values.journal import SessionState as SessionState
    from mnemo.values.messages import Message as Message
    from mnemo.values.messages import StoredMessage as StoredMessage
    from mnemo.values.messages import ToolCall as ToolCall
    from mnemo.values.notes import Note as Note
    from mnemo.values.notes import NoteChange as NoteChange
    from mnemo.values.notes import NoteInfo as NoteInfo
    from mnemo.values.notes import NoteVersion as NoteVersion
    from mnemo.values.recalls import RecallRecord as RecallRecord
    from mnemo.values.steps import Step as Step
    from mnemo.values.strategies import Composite as Composite
    from mnemo.values.strategies import Nearest as Nearest
    from mnemo.values.strategies import Recent as Recent
    from mnemo.values.strategies import Summary as Summary
    from mnemo.values.strategies import ToolOutputPruner as ToolOutputPruner

_NAMES = {
    "config": "Config",
    "context.rendering": "RenderedViewport WindowLook",
    "context.viewport": "Viewport",
    "context.zones": "CompressedViewport",
    "conversation.mirror": "Feed",
    "errors": (
        "BudgetExceeded CommitFailed ConfigError Conflict EmbeddingSpaceMismatch ExtractionFailed "
        "InvalidArchive InvalidNote InvalidOperation InvalidReply MnemoError ModelError "
        "ModelTimeout ModelUnavailable NotFound PendingQueueFull PrecedingOperationFailed "
        "RateLimited RecallFailed RepositoryAlreadyOpen SchemaTooNew SessionBusy SessionClosed "
        "SessionError StoreCorrupt StoreError StoreLocked StoreReadOnly StoreUnavailable "
        "Unreachable UsageError"
    ),
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
    "recall.result": "Candidate Expected Explanation ReasonedMemory RecallResult SourceRef",
    "recall.view": "MessageView",
    "repository.agent_tools": "AgentTool ToolAnswer",
    "repository.checkpoints": "Checkpoints",
    "repository.conversation": "Conversation",
    "repository.inspection": "Changes Inspection SessionLook",
    "repository.memories": "Change Memory MemoryVersion Page",
    "repository.names": "Name Named NamedFact Names",
    "repository.parts": "ConversationStatistics RepositoryStatistics ThreadRecord",
    "repository.remembering": "Remembered",
    "repository.repository": "Repository",
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
    "values.recalls": "RecallRecord",
    "values.steps": "Step",
    "values.strategies": "Composite Nearest Recent Summary ToolOutputPruner",
}
_LATER = {name: f"mnemo.{module}" for module, names in _NAMES.items() for name in names.split()}
"""Where each name is that is loaded when it is first asked for; with its module's own imports."""
__all__ = sorted(("__version__", *_LATER))
_MODULES = ("config", "errors", "events", "protocols")
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

"""Durable memory for agents: sessions in, recall out, nothing lost."""

from mnemo._bus import Subscription
from mnemo.config import Config
from mnemo.episode.archive import ArchiveHead
from mnemo.episode.erasure import ErasureReport
from mnemo.episode.journal import SessionRecord, SessionState
from mnemo.episode.step import Step
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
    UsageError,
)
from mnemo.graph.changeset import Changeset, NodeChange, Revision
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import MetadataDelta, NodeMetadata
from mnemo.graph.nodes import (
    Episodic,
    Intent,
    Node,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
)
from mnemo.graph.upkeep import MaintenanceReport
from mnemo.maintenance.reembed import ReembeddingReport
from mnemo.prompts.profiles import Profile
from mnemo.recall.candidate import Candidate, Explanation, SourceRef
from mnemo.recall.keyword import SearchHit
from mnemo.recall.result import ReasonedMemory, RecallResult
from mnemo.repository import Repository, RepositoryStatistics
from mnemo.service import Mnemo
from mnemo.session.pending import Outcome, PendingOperation
from mnemo.session.session import Session
from mnemo.session.views import CommitReceipt, SessionContext, SessionStatistics

__all__ = [
    "ArchiveHead",
    "BudgetExceeded",
    "Candidate",
    "Changeset",
    "CommitFailed",
    "CommitReceipt",
    "Config",
    "ConfigError",
    "Conflict",
    "Edge",
    "EdgeKind",
    "EmbeddingSpaceMismatch",
    "Episodic",
    "ErasureReport",
    "Explanation",
    "ExtractionFailed",
    "Intent",
    "InvalidArchive",
    "InvalidNote",
    "InvalidOperation",
    "InvalidReply",
    "MaintenanceReport",
    "MetadataDelta",
    "Mnemo",
    "MnemoError",
    "ModelError",
    "ModelTimeout",
    "ModelUnavailable",
    "Node",
    "NodeChange",
    "NodeMetadata",
    "NotFound",
    "Outcome",
    "PendingOperation",
    "PendingQueueFull",
    "PrecedingOperationFailed",
    "Procedural",
    "Profile",
    "RateLimited",
    "ReasonedMemory",
    "RecallFailed",
    "RecallResult",
    "ReembeddingReport",
    "Repository",
    "RepositoryAlreadyOpen",
    "RepositoryStatistics",
    "Revision",
    "SchemaTooNew",
    "SearchHit",
    "Semantic",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SessionContext",
    "SessionError",
    "SessionRecord",
    "SessionState",
    "SessionStatistics",
    "Source",
    "SourceRef",
    "Step",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "Subgoal",
    "Subscription",
    "Tag",
    "UsageError",
]

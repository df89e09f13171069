"""A repository: one isolated memory, with its sessions, graph and recall."""

from mnemo.repository.inspection import Changes, Inspection, SessionLook
from mnemo.repository.memories import Change, Memory, MemoryVersion, Page
from mnemo.repository.parts import (
    ConversationStatistics,
    RepositoryParts,
    RepositoryStatistics,
    ThreadRecord,
)
from mnemo.repository.repository import Repository

__all__ = [
    "Change",
    "Changes",
    "ConversationStatistics",
    "Inspection",
    "Memory",
    "MemoryVersion",
    "Page",
    "Repository",
    "RepositoryParts",
    "RepositoryStatistics",
    "SessionLook",
    "ThreadRecord",
]

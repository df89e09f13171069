"""One isolated memory: its sessions, its graph, its recall."""

from mnemo.repository.parts import (
    ConversationStatistics,
    RepositoryParts,
    RepositoryStatistics,
    ThreadRecord,
)
from mnemo.repository.repository import Repository

__all__ = [
    "ConversationStatistics",
    "Repository",
    "RepositoryParts",
    "RepositoryStatistics",
    "ThreadRecord",
]

"""A client of the HTTP service: the everyday calls of a repository, with the same types."""

from mnemo.client.service import (
    RemoteConversation,
    RemoteEvent,
    RemoteMnemo,
    RemoteNotes,
    RemoteRepository,
)
from mnemo.client.session import RemoteSession

__all__ = [
    "RemoteConversation",
    "RemoteEvent",
    "RemoteMnemo",
    "RemoteNotes",
    "RemoteRepository",
    "RemoteSession",
]

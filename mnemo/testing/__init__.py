"""Fakes of every seam; part of the product."""

from mnemo.models.hashing import HashingEmbedder
from mnemo.testing.clock import ManualClock
from mnemo.testing.faults import FailingStore
from mnemo.testing.models import ScriptedChatModel, block_rows, block_titles, tool_call
from mnemo.testing.observer import RecordingObserver

__all__ = [
    "FailingStore",
    "HashingEmbedder",
    "ManualClock",
    "RecordingObserver",
    "ScriptedChatModel",
    "block_rows",
    "block_titles",
    "tool_call",
]

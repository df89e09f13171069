"""Fakes of every seam; part of the product."""

from mnemo.testing.clock import ManualClock, RecordingObserver
from mnemo.testing.faults import FailingStore
from mnemo.testing.models import (
    HashingEmbedder,
    ScriptedChatModel,
    block_rows,
    block_titles,
    tool_call,
)

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

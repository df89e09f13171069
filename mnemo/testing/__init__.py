"""Fakes of every seam and the contracts of the stores; part of the product."""

from mnemo.models.hashing import HashingEmbedder
from mnemo.testing.clock import ManualClock
from mnemo.testing.models import ScriptedChatModel, tool_call
from mnemo.testing.observer import RecordingObserver

__all__ = [
    "HashingEmbedder",
    "ManualClock",
    "RecordingObserver",
    "ScriptedChatModel",
    "tool_call",
]

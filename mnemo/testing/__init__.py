"""Fakes of every seam and the contracts of the stores; part of the product."""

from mnemo.models.hashing import HashingEmbedder
from mnemo.testing.models import ScriptedChatModel

__all__ = ["HashingEmbedder", "ScriptedChatModel"]

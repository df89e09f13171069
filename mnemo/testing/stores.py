"""Stores for tests."""

from __future__ import annotations

from mnemo.config import StoreConfig
from mnemo.protocols import Clock
from mnemo.stores import SqliteStore
from mnemo.testing.clock import ManualClock


def in_memory_store(clock: Clock | None = None) -> SqliteStore:
    """
    A store in memory that is not open yet; what ``Mnemo("memory:")`` makes for itself.

    Args:
        clock: ``None`` is a ``ManualClock`` of its own.
    """
    return SqliteStore(None, config=StoreConfig(), clock=clock or ManualClock(), lease_s=30)

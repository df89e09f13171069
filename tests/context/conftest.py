"""Fixtures of the window's tests: conversations of one repository on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from window_kit import START, Threads

from mnemo.store.memory import MemoryStore
from mnemo.testing import ManualClock


@pytest.fixture(params=["memory"])
async def threads() -> AsyncIterator[Threads]:
    """The conversations of one repository, without a model and without anybody who watches."""
    clock = ManualClock(START)
    store = MemoryStore(clock=clock, lease_s=30)
    await store.open()
    yield Threads(store, clock)
    await store.aclose()

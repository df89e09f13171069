"""Fixtures of the window's tests: conversations of one repository."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from talk_kit import make_store
from window_kit import START, Threads

from mnemo.testing import ManualClock


@pytest.fixture
async def threads(tmp_path: Path) -> AsyncIterator[Threads]:
    """The conversations of one repository, without a model and without anybody who watches."""
    clock = ManualClock(START)
    store = make_store(tmp_path, clock)
    await store.open()
    yield Threads(store, clock)
    await store.aclose()

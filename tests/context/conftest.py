"""Fixtures of the window's tests: conversations of one repository."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from mneme_kit import Watched, watched
from talk_kit import make_store
from window_kit import START, Threads

from mnemo.testing import ManualClock


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Watched]]:
    """Opens a thread that Mneme watches, over a file."""
    return lambda script=None, **rest: watched(tmp_path, script=script, **rest)


@pytest.fixture
async def threads(tmp_path: Path) -> AsyncIterator[Threads]:
    """The conversations of one repository, without a model and without anybody who watches."""
    clock = ManualClock(START)
    store = make_store(tmp_path, clock)
    await store.open()
    yield Threads(store, clock)
    await store.aclose()

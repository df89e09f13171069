"""Fixtures of the window's tests: conversations of one repository."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from mneme_kit import Watched, watched
from window_kit import Threads, open_threads


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Watched]]:
    """Opens a thread that Mneme watches, over a file."""
    return lambda script=None, **rest: watched(tmp_path, script=script, **rest)


@pytest.fixture
async def threads(tmp_path: Path) -> AsyncIterator[Threads]:
    """The conversations of one repository, without a model and without anybody who watches."""
    async with open_threads(tmp_path / "talk.db") as threads:
        yield threads

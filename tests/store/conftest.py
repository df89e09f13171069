"""An embedded store in a file of its own, in which each row is written under its lock."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from guarded_rows import guarded_rows
from world import Kit, opened, store_at

from mnemo.runtime.clock import SystemClock
from mnemo.stores import SqliteStore

__all__ = ["MakeSqlite", "guarded_rows"]

MakeSqlite = Callable[..., SqliteStore]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of the test is."""
    return tmp_path / "mnemo.db"


@pytest.fixture
def make(path: Path) -> MakeSqlite:
    """Stores over one file; keywords are those of ``StoreConfig``."""

    def make_store(clock: object = None, **config: object) -> SqliteStore:
        return store_at(path, clock or SystemClock(), **config)

    return make_store


@pytest_asyncio.fixture
async def kit(make: MakeSqlite) -> AsyncIterator[Kit]:
    """An opened store that does not wait long for locks."""
    async with opened(make=partial(make, busy_timeout_s=0.05)) as kit:
        yield kit

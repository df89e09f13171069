"""An embedded store in a file of its own, in which each row is written under its lock."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from contracts.kit import Kit
from guarded_rows import guarded_rows

from mnemo.config import StoreConfig
from mnemo.runtime.clock import SystemClock
from mnemo.stores import SqliteStore
from mnemo.testing.clock import ManualClock

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
        return SqliteStore(
            path, config=StoreConfig(**config), clock=clock or SystemClock(), lease_s=30
        )

    return make_store


@pytest_asyncio.fixture
async def kit(make: MakeSqlite) -> AsyncIterator[Kit]:
    """An opened store that does not wait long for locks."""
    clock = ManualClock()

    def impatient(clock: object) -> SqliteStore:
        return make(clock, busy_timeout_s=0.05)

    store = impatient(clock)
    kit = Kit(impatient, clock, store, await store.open())
    yield kit
    for other in (*kit.others, kit.store):
        await other.aclose()

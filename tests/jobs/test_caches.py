"""Machines that share a PostgreSQL store drop what was erased from folders of their own."""

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import pytest_asyncio
from index.killed_writer import GOOD

from mnemo import Mnemo
from mnemo.index.files import SegmentFolder, digest_of
from mnemo.jobs import caches
from mnemo.jobs.caches import CONFIRM_S, CacheLease
from mnemo.runtime.clock import SystemClock
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

NAME = digest_of(GOOD)
_MACHINES = "SELECT machine FROM caches ORDER BY machine"
KEPT = ["kept"]
"""The digests that the store holds."""


class Folder:
    """Files of one machine, which it may be unable to delete."""

    def __init__(self, path: Path, names: Collection[str] = ("kept", "erased")) -> None:
        self.path, self.is_busy = path, False
        path.mkdir()
        for name in names:
            (path / name).touch()

    @property
    def files(self) -> list[str]:
        return sorted(file.name for file in self.path.iterdir())

    def sweep(self, keep: Collection[str]) -> bool:
        for name in () if self.is_busy else self.files:
            if name not in keep:
                (self.path / name).unlink()
        return not self.is_busy


class Machine:
    """A service with a folder; *lease* says whether it may serve."""

    def __init__(self, name: str, memory: Mnemo, folder: Folder, lease_s: float) -> None:
        assert memory._store is not None
        self.memory, self.store = memory, memory._store
        self.folder: Any = folder
        self.lease = self.of(name, lease_s)

    def of(self, name: str, lease_s: float) -> CacheLease:
        lease = CacheLease(
            self.store.engine,
            SystemClock(),
            identity=lambda: f"folder of {name}",
            sweep=self.folder.sweep,
            listed=lambda tx: KEPT,
            machine=name,
            lease_s=lease_s,
        )
        lease.begun = partial(self.memory._slots.pace, 0.05)
        return lease

    async def forget(self) -> tuple[str, ...]:
        """Say something and forget it; which machines may hold it still."""
        repo = await self.memory.open_repo("r", exist_ok=True)
        await repo.conversation("t").append({"role": "user", "content": "I own a boat."})
        report = await repo.forget(thread_id="t")
        assert report.messages == 1
        return report.unconfirmed


class Shared:
    """Starts machines that share a store."""

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack) -> None:
        self._url, self._folder, self._stack = url, folder, stack

    async def machine(self, name: str, lease_s: float = 30.0, *, looks: bool = True) -> Machine:
        """Its lease is taken, and it has files; unless it *looks*, it is as if it hung."""
        memory = Mnemo(self._url, embedder=HashingEmbedder(), workers=0)
        await self._stack.enter_async_context(memory)
        machine = Machine(name, memory, Folder(self._folder / name, ()), lease_s)
        if looks:
            machine.store.cache = machine.lease
        assert await machine.lease.ready()
        for file in ("kept", "erased"):
            (machine.folder.path / file).touch()
        return machine


@pytest_asyncio.fixture
async def shared(postgres_url: str, tmp_path: Path) -> AsyncIterator[Shared]:
    async with AsyncExitStack() as stack:
        yield Shared(postgres_url, tmp_path, stack)


@asynccontextmanager
async def sooner_than(seconds: float) -> AsyncIterator[None]:
    """Check how long the block takes."""
    began = anyio.current_time()
    yield
    assert anyio.current_time() - began < seconds


async def test_an_erasure_waits_until_all_machines_have_dropped_it(shared):
    """Of both folders what the store does not hold is gone when it returns, and nothing else."""
    one, other = await shared.machine("one"), await shared.machine("other")
    with anyio.fail_after(60):
        assert await one.forget() == ()
    assert one.folder.files == other.folder.files == KEPT
    (other.folder.path / "erased").touch()
    await one.memory.close_repo("r")
    assert (await one.memory.delete_repo("r")).unconfirmed == ()
    assert other.folder.files == KEPT


async def test_where_no_machine_keeps_copies_nothing_is_waited_for(shared):
    """Nor asked for."""
    alone = await shared.machine("alone")
    await alone.store.engine.writing(lambda tx: tx.run("DELETE FROM caches"))
    async with sooner_than(CONFIRM_S):
        assert await alone.forget() == ()
    assert alone.folder.files == ["erased", "kept"]


async def test_a_machine_that_cannot_drop_it_is_named_until_it_has(shared, monkeypatch):
    """It tries again at each look; a scrub is not done before."""
    monkeypatch.setattr(caches, "CONFIRM_S", 0.5)
    one, other = await shared.machine("one"), await shared.machine("other")
    other.folder.is_busy = True
    assert await one.forget() == ("other",)
    assert not await one.memory.scrub()
    assert (one.folder.files, other.folder.files) == (KEPT, ["erased", "kept"])
    other.folder.is_busy = False
    monkeypatch.setattr(caches, "CONFIRM_S", 60.0)
    assert await one.memory.scrub()
    assert other.folder.files == KEPT


async def test_a_machine_that_hangs_is_named_and_deletes_all_before_it_serves(shared):
    """Once its lease is over nobody waits for it; until it was, it is waited for."""
    one, hung = await shared.machine("one"), await shared.machine("hung", 1.0, looks=False)
    await anyio.sleep(1.1)
    assert not hung.lease.is_held
    async with sooner_than(CONFIRM_S):
        assert await one.forget() == ("hung",)
    assert hung.folder.files == ["erased", "kept"]
    hung.folder.is_busy = True
    assert not await hung.lease.ready()
    hung.folder.is_busy = False
    assert await hung.lease.ready()
    assert hung.folder.files == []
    assert await one.forget() == () or not hung.lease.is_held


async def test_a_lease_that_is_renewed_deletes_nothing(shared):
    """One that was never taken is not, and one of a lost row is taken anew."""
    one = await shared.machine("one", 2.0, looks=False)
    for _ in range(4):
        await anyio.sleep(0.7)
        await one.lease.renew()
    assert one.lease.is_held
    assert one.folder.files == ["erased", "kept"]
    other = one.of("other", 30.0)
    await other.renew()
    assert not other.is_held
    await one.store.engine.writing(lambda tx: tx.run("DELETE FROM caches"))
    await one.lease.renew()
    assert (one.lease.is_held, one.folder.files) == (True, [])


async def test_who_enters_late_does_not_confirm_for_another_process(shared):
    """One of the same machine entered, served, and was asked, while this one deleted all."""
    one = await shared.machine("one", looks=False)
    engine, late = one.store.engine, one.of("one", 30.0)
    await engine.writing(lambda tx: tx.run("UPDATE caches SET lease_until = 0"))
    sweep = one.folder.sweep

    async def others() -> None:
        late.sweep = sweep
        await one.lease.renew()
        await engine.writing(lambda tx: tx.run("UPDATE caches SET asked = asked + 1"))

    def swept_meanwhile(keep: Collection[str]) -> bool:
        sweep(keep)
        anyio.from_thread.run(others)
        return True

    late.sweep = swept_meanwhile
    assert await late.ready()
    assert await engine.reading(late.asked) == 1
    await late.confirm(1)
    assert await engine.reading(late.asked) is None


async def test_a_folder_of_segments_serves_while_its_lease_runs(shared, tmp_path):
    """Two services of a machine are one cache; of what is over, nothing is mapped again."""
    one, other = await shared.machine("one"), await shared.machine("other")
    made = list[bytes]()

    def make() -> bytes:
        made.append(GOOD)
        return GOOD

    async def mapped(machine: Machine) -> bytes:
        return bytes(await anyio.to_thread.run_sync(machine.folder.mapped, NAME, make))

    for machine in (one, other):
        machine.folder = folder = SegmentFolder(tmp_path / "segments")
        machine.lease = machine.store.cache = machine.of("both", 30.0)
        folder.may_serve = partial(anyio.from_thread.run, machine.lease.ready)
        machine.lease.identity = folder.identity
    assert [await mapped(one), await mapped(other), len(made)] == [GOOD, GOOD, 1]
    machines = await one.store.engine.reading(lambda tx: tx.run(_MACHINES).fetchall())
    assert [*machines] == [("both",), ("one",), ("other",)]
    await one.store.engine.writing(lambda tx: tx.run("UPDATE caches SET lease_until = 0"))
    await other.lease.renew()
    assert not (other.folder.path / NAME).exists()
    assert [await mapped(other), len(made)] == [GOOD, 2]


async def test_a_cache_of_long_ago_is_not_named_any_more(shared):
    """A day after its lease."""
    one, gone = await shared.machine("one"), await shared.machine("gone", looks=False)
    ago = "UPDATE caches SET lease_until = lease_until - 3600 * ? WHERE machine = 'gone'"
    await gone.store.engine.writing(lambda tx: tx.run(ago, (23,)))
    assert await one.forget() == ("gone",)
    await gone.store.engine.writing(lambda tx: tx.run(ago, (2,)))
    assert await one.forget() == ()

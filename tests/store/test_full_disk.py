"""A disk without any room: what is stored can still be read."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from helpers import repository

from mnemo import Mnemo
from mnemo.errors import StoreError, StoreReadOnly
from mnemo.testing import ManualClock

ROOM = 4 * 1024 * 1024
SIDE_FILES = 36 * 1024
"""Room for the index of the write-ahead log (32 KiB), not for a commit in the log."""

WITHOUT_ROOM = """
import anyio, resource, sys
from mnemo import Mnemo, StoreReadOnly

async def main():
    # From now on no byte can be added to any file, as with a full quota.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    async with Mnemo(sys.argv[1], embedder="static") as memory:
        repo = await memory.open_repo("r")
        hits = await repo.search("kyoto")
        try:
            await repo.start_session("plan")
        except StoreReadOnly:
            print(len(hits))

anyio.run(main)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, *, but: int = 0) -> None:
    """Leave *but* bytes of room."""
    state = os.statvfs(folder)
    (folder / "ballast").write_bytes(bytes(state.f_bavail * state.f_frsize - but))


async def remember(path: Path) -> None:
    async with repository(str(path), "r", clock=ManualClock(), embedder="static") as repo:
        session = await repo.start_session("plan the journey")
        await session.append("we take the train to kyoto", "book it")
        talk = repo.conversation("t", ttl_s=60)
        await talk.append({"role": "user", "content": "this expires"})


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, SIDE_FILES])
async def test_a_full_disk_is_opened_for_reading(small_disk, room, caplog):
    """Search works, writing calls raise ``StoreReadOnly``, and one warning says why.

    Messages have expired since, which are deleted when the store can be written again.
    """
    path = small_disk / "mnemo.db"
    await remember(path)
    fill(small_disk, but=room)
    async with Mnemo(str(path), embedder="static") as memory:
        repo = await memory.open_repo("r")
        assert len(await repo.search("kyoto")) == 1
        with pytest.raises(StoreReadOnly, match="cannot be written"):
            await repo.start_session("again")
        assert (await memory.check()).problems == ()
    assert [r.levelno for r in caplog.records if r.levelno >= logging.WARNING] == [logging.WARNING]
    assert "the disk" in caplog.text


@pytest.mark.slow
async def test_a_full_disk_is_read_with_what_is_in_the_log(small_disk, tmp_path):
    """Without room for the index of the log, its steps are found; nothing of them is lost."""
    path = small_disk / "mnemo.db"
    async with Mnemo(str(tmp_path / "elsewhere.db"), embedder="static") as memory:
        session = await (await memory.open_repo("r")).start_session("plan the journey")
        await session.append("we take the train to kyoto", "book it")
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"elsewhere.db{end}", f"{path}{end}")
    fill(small_disk)
    async with Mnemo(str(path), embedder="static") as memory:
        repo = await memory.open_repo("r")
        assert len(await repo.search("kyoto")) == 1
        assert (await memory.check()).problems == ()
        with pytest.raises(StoreReadOnly, match="cannot be written"):
            await repo.start_session("again")
    (small_disk / "ballast").unlink()
    async with Mnemo(str(path), embedder="static") as memory:
        assert len(await (await memory.open_repo("r")).search("kyoto")) == 1
        assert (await memory.check()).problems == ()
    await remember(path)


@pytest.mark.slow
async def test_a_full_disk_is_written_to_once_there_is_room(small_disk, make):
    """Opening again after some space was freed is an ordinary opening."""
    path = small_disk / "mnemo.db"
    await remember(path)
    fill(small_disk)
    async with Mnemo(str(path), embedder="static") as memory:
        await memory.open_repo("r")
    (small_disk / "ballast").unlink()
    await remember(path)


@pytest.mark.slow
async def test_a_file_that_cannot_grow_is_opened_for_reading(path):
    """Where no byte can be added to a file, as with a full quota, reading goes on."""
    await remember(path)
    result = await anyio.run_process(
        [sys.executable, "-c", WITHOUT_ROOM, str(path)], stderr=subprocess.STDOUT, check=False
    )
    assert result.stdout.decode().split()[-1:] == ["1"]
    assert "Traceback" not in result.stdout.decode()


async def test_a_new_store_on_a_full_disk_is_refused(small_disk):
    """There is nothing to read; the error says that the disk is full."""
    fill(small_disk)
    with pytest.raises(Exception, match="the disk"):
        await Mnemo(str(small_disk / "mnemo.db"), embedder="static").open()


@pytest.mark.slow
async def test_a_backup_onto_a_full_disk_leaves_nothing_there(small_disk, tmp_path):
    """The error says so, the disk holds what it held, and the store goes on."""
    path = tmp_path / "elsewhere.db"
    await remember(path)
    fill(small_disk, but=64 * 1024)
    async with Mnemo(str(path), embedder="static") as memory:
        with pytest.raises(StoreError, match="the disk is full"):
            await memory.backup(small_disk / "copy.db")
        assert [left.name for left in small_disk.iterdir()] == ["ballast"]
        repo = await memory.open_repo("r")
        assert len(await repo.search("kyoto")) == 1
        await repo.start_session("again")

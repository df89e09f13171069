"""A store file that is unlinked or replaced while the service runs."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from helpers import repository
from world import NOON, Kit

from mnemo.errors import StoreError
from mnemo.store.sqlite.engine import Identity
from mnemo.stores import SqliteStore
from mnemo.values.graph import Semantic

FACT = Semantic("Ana lives in Porto", id="fact", created_at=NOON)
LOST = "deleted or replaced"


def unlink(path: Path) -> None:
    path.unlink()


def unlink_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def replace_log(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    shutil.copy(log, log.with_suffix(".copy"))
    os.replace(log.with_suffix(".copy"), log)


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    sqlite3.connect(other).close()
    shutil.copy(path, other)
    os.replace(other, path)


def rename(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a folder that a test may delete."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "mnemo.db"


@pytest.mark.parametrize("lose", [unlink, unlink_log, replace, replace_log, rename, remove_folder])
async def test_nothing_is_acknowledged_once_the_files_are_gone(
    kit: Kit, path: Path, lose: Callable[[Path], None]
) -> None:
    """The whole batch that meets the loss fails, and so does every later write."""
    await kit.start()
    await kit.append("before")
    lose(path)
    results = await kit.append_all([("one", ""), ("two", "")])
    assert [type(result) for result in results] == [StoreError, StoreError]
    with pytest.raises(StoreError, match=LOST):
        await kit.apply(FACT)
    with pytest.raises(StoreError, match=LOST):
        await kit.store.release(kit.owner)


async def test_a_file_that_comes_back_is_not_written_to_again(kit: Kit, path: Path) -> None:
    """A loss is final for the open store: what it refused meanwhile may be in the file."""
    await kit.start()
    path.rename(path.with_name("moved.db"))
    with pytest.raises(StoreError, match=LOST):
        await kit.append("while away")
    path.with_name("moved.db").rename(path)
    with pytest.raises(StoreError, match=LOST):
        await kit.append("afterwards")


async def test_a_new_reader_does_not_open_the_replacement(kit: Kit, path: Path) -> None:
    """What another file says at the same path is not read as the store's."""
    await kit.start()
    replace(path)
    with pytest.raises(StoreError, match=LOST):
        await kit.store.graph("r").revision()


async def test_checkpoints_and_a_rewritten_file_are_no_loss(kit: Kit) -> None:
    """Truncating the log, ``VACUUM`` and another process's closing leave the files themselves."""
    await kit.start()
    store = kit.store
    assert isinstance(store, SqliteStore)
    for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA optimize"):
        await store.engine._writer().run_outside(
            lambda tx, s=statement: tx.run(s).fetchall() and None
        )
        await kit.append(statement)
    other, _ = await kit.another()
    await other.aclose()
    assert (await kit.append("last")).index == 3


async def test_a_service_whose_file_was_deleted_says_so_and_closes(path: Path) -> None:
    """Appends and commits through the public API raise ``StoreError``; closing does not hang."""
    async with repository(str(path), "r", embedder="static") as repo:
        session = await repo.start_session("plan the journey")
        await session.append("we go to Kyoto", "")
        path.unlink()
        with pytest.raises(StoreError, match=LOST):
            await session.append("by train", "")
        with pytest.raises(StoreError, match=LOST):
            await session.close()


def test_files_that_are_gone_as_soon_as_they_are_open_are_missed(path: Path) -> None:
    """Nothing to compare with is no proof that all is as it was."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        unlink_log(path)
        with pytest.raises(StoreError, match=LOST):
            Identity(connection).check()

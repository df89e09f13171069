"""
Scrubbing: what was erased leaves the database file, its log and its free pages, and the copies
of segments beside it.

The erasing transaction notes that a scrub is due (``note_erased``), so that a process that dies
in between leaves it to the next one that opens the store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Never

import anyio
import anyio.to_thread

from mnemo.errors import StoreError
from mnemo.protocols import Clock
from mnemo.store.engine import GroupWriter, pay_off
from mnemo.store.sqlite.dialect import merge_words
from mnemo.store.tx import Tx

log = logging.getLogger("mnemo")

REWRITTEN_AT_ONCE_BYTES = 64 * 1024 * 1024
"""Files up to this size are rewritten before the erasing call returns (1 s)."""
IDLE_S = 5.0
"""Seconds without a write after which a larger file is rewritten."""
MOST_IDLE_S = 300.0
"""Bound of the seconds to wait, doubled by each attempt that somebody else's reader defeats."""
# How often, and how long each time, readers are waited for; the writer goes on in between.
_TRIES = 10
_PATIENCE_MS = 100
_PAUSE_S = 0.2

_NOTED = "SELECT value FROM meta WHERE name = 'scrub'"
_MERGED = "expired, merged"
# It is still to be rewritten by whoever asks for that.
_NOTE_MERGED = f"""
UPDATE meta SET value = '{_MERGED} ' || random() WHERE name = 'scrub' AND value = ?
"""
_DONE = "DELETE FROM meta WHERE name = 'scrub' AND value = ?"


@dataclass(eq=False)
class Scrubber:
    """
    Scrubs the files of one store, which is idle while *written*, of all its processes, stays the
    same; *unswept* removes copies of segments that nothing lists, and names who holds some that are
    left.
    """

    path: Path | None
    writer: Callable[[], GroupWriter]
    written: Callable[[], Awaitable[object]]
    clock: Clock
    unswept: Callable[[], Awaitable[Sequence[str]]]

    def __post_init__(self) -> None:
        self._left = anyio.Event()

    @property
    def is_held_up(self) -> bool:
        """Whether the last attempt of this process left something to do."""
        return self._left.is_set()

    async def scrub(self, *, at_once: bool = False) -> bool:
        """
        Do what is noted; give whether nothing is left to do, a large file left to ``run`` aside.

        *Cancellation*: safe; what is left stays noted.
        """
        try:
            done = await self._scrub(self.writer(), at_once)
        except StoreError as error:
            # Nothing can be read through mnemo; only the bytes are still there.
            log.warning("erased bytes are still in the files, to be tried again: %s", error)
            done = False
        if not done:
            self._left.set()
        return done

    async def run(self) -> Never:
        """Finish what ``scrub`` left, whenever the store is idle. *Cancellation*: safe."""
        idle_s = IDLE_S
        while True:
            await self._left.wait()
            try:
                await self._until_idle(idle_s)
            except StoreError as error:
                log.warning("whether the store is idle is looked at again: %s", error)
                await self.clock.sleep(idle_s)
                continue
            self._left = anyio.Event()
            done = await self.scrub(at_once=True)
            idle_s = IDLE_S if done else min(2 * idle_s, MOST_IDLE_S)

    async def _until_idle(self, seconds: float) -> None:
        seen = None
        while seen != (seen := await self.written()):
            await self.clock.sleep(seconds)

    async def _scrub(self, writer: GroupWriter, at_once: bool) -> bool:
        noted = await writer.run(_noted)
        if noted is None:
            return True
        await pay_off(writer.run)
        left = await self.unswept()
        if self.path is None:
            await writer.run(merge_words)
        else:
            await anyio.to_thread.run_sync(_drop_copies, self.path)
            size = (await anyio.Path(self.path).stat()).st_size
            if not at_once and size > REWRITTEN_AT_ONCE_BYTES:
                return await _merged(writer, noted) and not left
            await writer.run(merge_words)
            if not await _log_is_cut(writer):
                return False
            await writer.run_outside(_rewrite)
            if not await _log_is_cut(writer):
                return False
        if not left:
            await writer.run(lambda tx: tx.run(_DONE, (noted,)).rowcount)
        return not left


async def _merged(writer: GroupWriter, noted: str) -> bool:
    """Of a large file: what expired leaves index and log; for all else it is to be rewritten."""
    if noted.startswith(_MERGED):
        return True
    is_expired = noted.startswith("expired")
    if is_expired:
        await writer.run(partial(merge_words, compare=False))
    if await _log_is_cut(writer) and is_expired:
        await writer.run(lambda tx: tx.run(_NOTE_MERGED, (noted,)).rowcount)
    return is_expired


def _noted(tx: Tx) -> str | None:
    """What is noted, if anything is."""
    row = tx.run(_NOTED).fetchone()
    return None if row is None else str(row[0])


def _drop_copies(path: Path) -> None:
    """Remove the copies that migrations made: they hold what was erased, too."""
    for copy in path.parent.glob("*.bak"):
        if copy.name.startswith(f"{path.name}.v"):
            log.info("%s is removed, for what it holds was forgotten", copy.name)
            copy.unlink(missing_ok=True)


async def _log_is_cut(writer: GroupWriter) -> bool:
    """Cut the log, our own readers waited for; ``False`` if somebody else's goes on reading."""
    for _ in range(_TRIES):
        if await writer.run_outside(_truncate_log):
            return True
        await anyio.sleep(_PAUSE_S)
    return False


def _truncate_log(tx: Tx) -> bool:
    """Move the log into the file and cut it to nothing; ``False`` if a reader holds it."""
    (patience,) = tx.run("PRAGMA busy_timeout").fetchone()
    tx.run(f"PRAGMA busy_timeout = {min(patience, _PATIENCE_MS)}")
    try:
        (busy, _, _) = tx.run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        tx.run(f"PRAGMA busy_timeout = {patience}")
    return not busy


def _rewrite(tx: Tx) -> None:
    tx.run("VACUUM")

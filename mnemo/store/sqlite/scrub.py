"""
Making sure that erased bytes are gone from the files: log, free space, copies.

What is still to be done is noted in the erasing transaction itself, so that a process
that dies in between leaves it to the next one that opens the store.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import anyio
import anyio.to_thread

from mnemo.errors import StoreError
from mnemo.store.sqlite.texts import merge_texts
from mnemo.store.sqlite.traces import Traces
from mnemo.store.sqlite.writer import Writer

__all__ = ["ALWAYS_REWRITTEN_BYTES", "Scrubber", "note_expired", "note_pending"]

logger = logging.getLogger(__name__)

# How often, and how long each time, readers are waited for; the writer goes on in between.
_TRIES = 10
_PATIENCE_MS = 100
_PAUSE_S = 0.2
# Up to this size a file is rewritten without looking (0.3 s): that leaves no doubt at all.
ALWAYS_REWRITTEN_BYTES = 32 * 1024 * 1024

_NOTE = "INSERT OR REPLACE INTO meta (name, value) VALUES ('scrub', 'pending')"
_NOTE_EXPIRED = "INSERT OR IGNORE INTO meta (name, value) VALUES ('scrub', 'expired')"
_NOTE_UNMERGED = "INSERT OR IGNORE INTO meta (name, value) VALUES ('unmerged ' || ?1, ?1)"
_UNMERGED = "SELECT value FROM meta WHERE name LIKE 'unmerged %'"
_MERGED = "DELETE FROM meta WHERE name LIKE 'unmerged %'"
_PENDING = "SELECT value FROM meta WHERE name = 'scrub'"
_OVERWRITTEN = "SELECT 1 FROM meta WHERE name = 'overwritten'"
_DONE = (
    "DELETE FROM meta WHERE name = 'scrub'",
    "INSERT OR REPLACE INTO meta (name, value) VALUES ('overwritten', 'always')",
)


def note_pending(connection: sqlite3.Connection) -> None:
    """Note, in the transaction that erases, that the files have to be looked at."""
    connection.execute(_NOTE)


def note_expired(connection: sqlite3.Connection, repo: int) -> None:
    """
    Note that messages of the repository were deleted because of their age.

    That happens at any append, and merging a full text takes as long as it is large: it
    is left for the next scrubbing. Nor is it worth the rewriting of a large file.
    """
    connection.execute(_NOTE_EXPIRED)
    connection.execute(_NOTE_UNMERGED, (repo,))


def _pending(connection: sqlite3.Connection) -> str | None:
    """``pending`` or ``expired``: what may still be in the files; ``None``: nothing."""
    row = connection.execute(_PENDING).fetchone()
    return None if row is None else str(row[0])


def _merge_noted(connection: sqlite3.Connection) -> None:
    for (repo,) in connection.execute(_UNMERGED).fetchall():
        merge_texts(connection, int(repo))
    connection.execute(_MERGED)


class Scrubber:
    """
    Rids the files of one store of what was erased.

    Args:
        path: The store's file; ``None`` for a database in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.held_up = False
        """Whether the last attempt of this process left something to do."""

    async def scrub(self, writer: Writer, traces: Traces | None) -> bool:
        """
        Do what is pending; give whether nothing is any more.

        Args:
            traces: Of what was erased; ``None`` if nobody knows: then the file is rewritten.

        *Cancellation*: safe; what is left is pending still.
        """
        try:
            pending = await writer.run(_pending)
            self.held_up = bool(pending) and not await self._scrub(writer, traces, pending)
        except StoreError as error:
            # Nothing can be read through mnemo; only the bytes are still there.
            logger.warning("forgotten bytes are still in the files, to be tried again: %s", error)
            self.held_up = True
        return not self.held_up

    async def _scrub(self, writer: Writer, traces: Traces | None, pending: str | None) -> bool:
        await writer.run(_merge_noted)
        if self._path is not None and not await self._rid(self._path, writer, traces, pending):
            return False
        await writer.run(_finish)
        return True

    async def _rid(
        self, path: Path, writer: Writer, traces: Traces | None, pending: str | None
    ) -> bool:
        if not await _log_is_cut(writer):
            return False
        if await _must_rewrite(path, writer, traces, pending):
            await writer.alone(_rewrite)
            if not await _log_is_cut(writer):
                return False
        await anyio.to_thread.run_sync(_drop_copies, path)
        return True


async def _must_rewrite(
    path: Path, writer: Writer, traces: Traces | None, pending: str | None
) -> bool:
    if (await anyio.Path(path).stat()).st_size <= ALWAYS_REWRITTEN_BYTES:
        return True
    if pending == "expired" and await writer.run(_always_overwritten):
        return False
    if traces is None or traces.too_many or not await writer.run(_always_overwritten):
        return True
    return await anyio.to_thread.run_sync(traces.are_in, path)


def _drop_copies(path: Path) -> None:
    """Remove the copies that migrations made: they hold what was erased, too."""
    for copy in path.parent.glob("*.bak"):
        if copy.name.startswith(f"{path.name}.v"):
            logger.info("%s is removed, for what it holds was forgotten", copy.name)
            copy.unlink(missing_ok=True)


async def _log_is_cut(writer: Writer) -> bool:
    """Cut the log, our own readers waited for; ``False`` if somebody else's goes on reading."""
    for _ in range(_TRIES):
        if await writer.alone(_truncate_log):
            return True
        await anyio.sleep(_PAUSE_S)
    return False


def _truncate_log(connection: sqlite3.Connection) -> bool:
    """Move the log into the file and cut it to nothing; ``False`` if a reader holds it."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {min(patience, _PATIENCE_MS)}")
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return not busy


def _rewrite(connection: sqlite3.Connection) -> None:
    connection.execute("VACUUM")


def _always_overwritten(connection: sqlite3.Connection) -> bool:
    """Whether all that was ever deleted from the file was overwritten then."""
    return connection.execute(_OVERWRITTEN).fetchone() is not None


def _finish(connection: sqlite3.Connection) -> None:
    for statement in _DONE:
        connection.execute(statement)

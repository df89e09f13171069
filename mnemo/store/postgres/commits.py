"""Commits in doubt: a writer counts its transactions, to look up one whose answer is lost."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from contextlib import closing

import psycopg

from mnemo.errors import StoreError, StoreUnavailable
from mnemo.store.postgres.connection import Connection

log = logging.getLogger("mnemo")

# A server that restarts refuses connections for some seconds.
_IN_DOUBT_S = 30.0
_BETWEEN_LOOKS_S = 0.2
_COUNT = (
    "INSERT INTO commits (writer, batch, at) VALUES ('{0}', {1}, now()) "
    "ON CONFLICT (writer) DO UPDATE SET batch = {1}, at = now()"
)
# Waits for the transaction of the lost connection, where the server has not ended it yet.
_LAST = "SELECT batch FROM commits WHERE writer = %s FOR UPDATE"
_SWEEP = "DELETE FROM commits WHERE at < now() - interval '1 day'"


class CommitInDoubt(Exception):
    """The connection was lost while a transaction committed."""


class Commits:
    """
    Counts the transactions of one writer in the table ``commits``.

    Args:
        connect: Opens a connection to look on.
        begin: The statement that begins a transaction in the schema.
    """

    def __init__(self, connect: Callable[[], Connection], begin: str) -> None:
        self.connect = connect
        self._begin = begin
        self._id = secrets.token_hex(8)
        self._number = 0

    def enter(self, connection: Connection) -> None:
        """Store the row that transactions count in: a look-up waits for its lock."""
        noted = _COUNT.format(self._id, self._number)
        connection.execute(f"{self._begin}; {_SWEEP}; {noted}; COMMIT")

    def next(self) -> str:
        """The statement by which the next transaction counts itself."""
        self._number += 1
        return _COUNT.format(self._id, self._number)

    def commit(self, connection: Connection) -> None:
        """Commit. *Raises* ``CommitInDoubt``, or what the server says against it."""
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if connection.closed:
                raise CommitInDoubt from error
            raise

    def looked_up(self) -> Exception | None:
        """What became of the last transaction; ``None``: it is committed."""
        stop = time.monotonic() + _IN_DOUBT_S
        while time.monotonic() < stop:
            try:
                last = self._last_committed()
            except psycopg.Error as error:
                log.info("the outcome of a commit cannot be looked up yet: %s", error)
                time.sleep(_BETWEEN_LOOKS_S)
                continue
            if last is None:
                break
            if last < self._number:
                return StoreUnavailable("the server ended while it wrote; nothing was written")
            return None
        return StoreError("the server ended while it committed: read again what is stored")

    def _last_committed(self) -> int | None:
        """The last one that was committed; ``None``: its row was swept, a day after it."""
        with closing(self.connect()) as connection:
            connection.execute(self._begin)
            row = connection.execute(_LAST, (self._id,)).fetchone()
            connection.execute("ROLLBACK")
        return None if row is None else int(row[0])

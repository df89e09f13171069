"""Wake-ups: a service hears of jobs that others have written, by ``LISTEN``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import anyio.to_thread

from mnemo.store.postgres.connection import Connection, closed_on_error, translated


async def listen(
    connect: Callable[[], Connection],
    channel: str,
    is_own: Callable[[int], bool],
    woken: Callable[[], None],
) -> None:
    """
    Call *woken* for what others write, until the connection is lost.

    Args:
        is_own: Whether a server process, by its id, is that of this service's writer.

    Raises:
        StoreError: The connection could not be opened, or is lost. *Cancellation*: safe.
    """
    connection = await anyio.to_thread.run_sync(partial(_listening, connect, channel))
    try:
        woken()  # Something may have been written before.
        while True:
            await anyio.wait_readable(connection.fileno())
            with translated("listening for jobs"):
                connection.pgconn.consume_input()
            if not all(is_own(pid) for pid in _heard(connection)):
                woken()
    finally:
        connection.close()


def _listening(connect: Callable[[], Connection], channel: str) -> Connection:
    with translated("listening for jobs"):
        with closed_on_error(connect()) as connection:
            connection.execute(f'LISTEN "{channel}"')
        return connection


def _heard(connection: Connection) -> list[int]:
    """The server processes whose notifications have arrived."""
    heard: list[int] = []
    while (notice := connection.pgconn.notifies()) is not None:
        heard.append(notice.be_pid)
    return heard

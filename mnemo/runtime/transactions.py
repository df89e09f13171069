"""Transactions whose answer may be lost: find out whether one that failed was made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mnemo.errors import StoreError

__all__ = ["transacted"]

T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W")


async def transacted(
    writing: Callable[[Callable[[W], T]], Awaitable[T]],
    reading: Callable[[Callable[[R], bool]], Awaitable[bool]],
    work: Callable[[W], T],
    made: Callable[[R, T], bool],
) -> T:
    """
    The result of *work* in one transaction, also if the store made it and failed then.

    Args:
        writing, reading: Of one store; see ``protocols.Transactions``.
        made: Looks whether the store holds a result of *work*.

    Raises:
        StoreError: Nothing was written, or it could not be looked whether it was.
            *Cancellation*: as that of *writing*.
    """
    results: list[T] = []

    def noting(tx: W) -> T:
        results[:] = [work(tx)]
        return results[0]

    try:
        return await writing(noting)
    except StoreError:
        if not results or not await reading(lambda tx: made(tx, results[0])):
            raise
        return results[0]

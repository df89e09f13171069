"""
Guard transactions, and confirm those whose answer may be lost by asking the store.

A store may make a transaction and fail to say so. One rule for all of them: a write that fails is
looked for once, at once. Found, it counts as made. Not found, its error is raised. If the store
cannot be asked either, the write is in doubt: its error is raised, and whoever wrote remembers to
ask again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from mnemo.errors import StoreError

log: logging.Logger = logging.getLogger("mnemo")

T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W")


def _ignore() -> None:
    pass


async def confirmed(
    write: Callable[[], Awaitable[T]],
    find: Callable[[], Awaitable[T | None]],
    in_doubt: Callable[[], None] = _ignore,
) -> T:
    """
    The result of *write*, also where the store made it and failed to say so.

    *find*: Looks in the store for what *write* made; ``None`` or ``False``: nothing. A write that
    may be made twice is its own *find*. *in_doubt*: Called when the store cannot be asked; the
    error of *write* is raised then. *Cancellation*: as that of *write*.
    """
    try:
        return await write()
    except StoreError:
        if found := await found_written(find, in_doubt):
            return found
        raise


async def found_written(
    find: Callable[[], Awaitable[T | None]], in_doubt: Callable[[], None] = _ignore
) -> T | None:
    """What *find* gives of a write that failed; ``None`` where the store cannot be asked."""
    try:
        return await find()
    except StoreError as error:
        log.warning("the store does not say whether a failed write was made: %s", error)
        in_doubt()
        return None


async def transacted(
    writing: Callable[[Callable[[W], T]], Awaitable[T]],
    reading: Callable[[Callable[[R], bool]], Awaitable[bool]],
    work: Callable[[W], T],
    made: Callable[[R, T], bool],
    then: Callable[[T], object] = lambda result: None,
) -> T:
    """
    The result of *work* in one transaction, also if the store made it and failed then.

    Args:
        writing, reading: Of one store, such as ``StoredNotes.writing``.
        made: Looks whether the store holds a result of *work*.
        then: Called with the result, also if the caller is cancelled.
    """
    results: list[T] = []

    def noting(tx: W) -> T:
        results[:] = [work(tx)]
        return results[0]

    async def find() -> bool:
        return bool(results) and await reading(lambda tx: made(tx, results[0]))

    try:
        try:
            await writing(noting)
        except StoreError:
            if not await found_written(find):
                raise
    except Exception:
        raise
    except BaseException:  # cancelled, which does not undo a transaction
        for result in results:
            then(result)
        raise
    then(results[0])
    return results[0]


class _Guarded:
    """The transactions of *store*, each after *check_usable*."""

    def __init__(self, store: Any, check_usable: Callable[[], None]) -> None:
        self._store = store
        self._check_usable = check_usable

    async def reading(self, work: Callable[[Any], T]) -> T:
        self._check_usable()
        result: T = await self._store.reading(work)
        return result

    async def writing(self, work: Callable[[Any], T], **named: Any) -> T:
        self._check_usable()
        result: T = await self._store.writing(work, **named)
        return result


def guarded(store: T, check_usable: Callable[[], None]) -> T:
    """The transactions of *store*, each after *check_usable*, which may raise ``UsageError``."""
    return cast(T, _Guarded(store, check_usable))

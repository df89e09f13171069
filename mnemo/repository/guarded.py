"""Transactions that are refused where their repository cannot be used any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mnemo.protocols import Transactions

__all__ = ["Guarded"]

R = TypeVar("R")
W = TypeVar("W")
T = TypeVar("T")


class Guarded(Generic[R, W]):
    """
    The transactions of *store*, each after a check.

    Args:
        check_usable: Raises ``UsageError`` in another event loop, and once all has ended.
    """

    def __init__(self, store: Transactions[R, W], check_usable: Callable[[], None]) -> None:
        self._store = store
        self._check_usable = check_usable

    async def reading(self, work: Callable[[R], T]) -> T:
        """As the store. *Raises* ``UsageError``."""
        self._check_usable()
        return await self._store.reading(work)

    async def writing(self, work: Callable[[W], T]) -> T:
        """As the store. *Raises* ``UsageError``."""
        self._check_usable()
        return await self._store.writing(work)

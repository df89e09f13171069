"""The one door through which stored rows become values, and damaged ones become known."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from mnemo.errors import StoreCorrupt
from mnemo.runtime.clock import Breather

log = logging.getLogger("mnemo")

T = TypeVar("T")

Passed: TypeAlias = list[StoreCorrupt]
"""Rows that could not be decoded and were passed by."""

# What decoding raises where a value is not what was encoded.
_UNDECODABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RecursionError, MemoryError, EOFError, zlib.error),
)
_KINDS: dict[str, set[type]] = {"i": {int}, "f": {float, int}, "s": {str}, "b": {bytes}}


class Rows(Generic[T]):
    """
    Decodes the rows of a query, and says which row of which table is damaged.

    Args:
        table: Where the rows are.
        columns: A word per column: ``i`` integer, ``f`` number, ``s`` text, ``b`` bytes, with
            ``?`` where it may be NULL. Further columns are not looked at.
        read: The value of a row.
        key: The columns that name a row.
    """

    def __init__(
        self,
        table: str,
        columns: str,
        read: Callable[[Sequence[Any]], T],
        *,
        key: Sequence[int] = (0,),
    ) -> None:
        self._table = table
        self._types = [_types(word) for word in columns.split()]
        self._read = read
        self._key = key
        self._seen: set[tuple[type, ...]] = set()

    def all(self, rows: Iterable[Sequence[Any]], passed: Passed | None = None) -> list[T]:
        """
        The values of *rows*; for a worker thread.

        Args:
            passed: Gets the damaged rows, which are left out then.

        Raises:
            StoreCorrupt: A row is damaged, and there is no *passed*.
        """
        breather, found = Breather(), []
        for row in rows:
            try:
                found.append(self.one(row))
            except StoreCorrupt as damage:
                if passed is None:
                    _close(rows)
                    raise
                passed.append(damage)
            breather.breathe()
        return found

    def one(self, row: Sequence[Any]) -> T:
        """The value of *row*. *Raises* ``StoreCorrupt``: it is damaged."""
        try:
            shape = tuple(map(type, row))
            if shape not in self._seen:
                self._check(shape)
            return self._read(row)
        except _UNDECODABLE as error:
            key = "/".join(_shown(row[place]) for place in self._key)
            raise StoreCorrupt(
                f"the row {key!r} of {self._table} cannot be decoded ({type(error).__name__}): "
                "restore it from a backup, or erase it",
                table=self._table,
                key=key,
            ) from error

    def _check(self, shape: tuple[type, ...]) -> None:
        for found, types in zip(shape, self._types, strict=False):
            if found not in types:
                raise TypeError(f"a column holds {found.__name__}")
        self._seen.add(shape)


def _types(word: str) -> set[type]:
    return _KINDS[word[0]] | ({type(None)} if word.endswith("?") else set())


def _close(rows: Iterable[Any]) -> None:
    """End a cursor, or the generator that reads it: it would hold the revision it reads."""
    if not isinstance(rows, Sequence) and hasattr(rows, "close"):
        rows.close()


def _shown(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def log_passed(passed: Passed) -> None:
    """Say which rows were passed by."""
    for damage in passed:
        log.warning("passed by: %s", damage)

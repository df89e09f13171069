"""Rows: the one door through which they become values, and statements that modules share."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from mnemo.errors import StoreCorrupt
from mnemo.runtime.clock import Breather
from mnemo.store.tx import Tx

log = logging.getLogger("mnemo")

T = TypeVar("T")

Passed: TypeAlias = list[StoreCorrupt]
"""Rows that could not be decoded and were passed by."""

# What decoding raises where a value is not what was encoded.
UNDECODABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RecursionError, MemoryError, EOFError, zlib.error),
)
_KINDS: dict[str, set[type]] = {"i": {int}, "f": {float, int}, "s": {str}, "b": {bytes}}


class Rows(Generic[T]):
    """
    Decodes the rows of a query, and says by *key* which row of which *table* is damaged.

    *columns*: A word per column: ``i`` integer, ``f`` number, ``s`` text, ``b`` bytes, with ``?``
    where it may be NULL; further columns are not looked at. *read*: Makes the value of a row.
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
        self.key = key
        self._seen: set[tuple[type, ...]] = set()

    def all(self, rows: Iterable[Sequence[Any]], passed: Passed | None = None) -> list[T]:
        """The values of *rows*; damaged ones go to *passed*, or else are raised."""
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

    def intact(self, rows: Iterable[Sequence[Any]]) -> list[T]:
        """The values of those *rows* that are not damaged; the others are logged."""
        passed: Passed = []
        found = self.all(rows, passed)
        log_passed(passed)
        return found

    def one(self, row: Sequence[Any]) -> T:
        """The value of *row*. *Raises* ``StoreCorrupt``: it is damaged."""
        try:
            shape = tuple(map(type, row))
            if shape not in self._seen:
                self._check(shape)
            return self._read(row)
        except UNDECODABLE as error:
            key = "/".join(_shown(row[place]) for place in self.key)
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
    for damage in passed:
        log.warning("passed by: %s", damage)


# Bound parameters per statement; SQLite takes 32,766, and few sizes keep statements cached.
_CHUNK = 500

_DIGESTS = "SELECT DISTINCT digest FROM segments WHERE digest IS NOT NULL"

_REPO = "SELECT id, no, revision, space_name, space_dimensions FROM repos WHERE no = ?"
_REPOS: Rows[Any] = Rows("repos", "s i i s? i?", tuple)
_ADD_NAME = "INSERT INTO $names (id) VALUES (?) ON CONFLICT (id) DO NOTHING"
_ADD_REPO = "INSERT INTO repos (no, id) VALUES (?, ?) ON CONFLICT DO NOTHING"
_FIND_REPO = "SELECT no FROM $names WHERE id = ?"


def chunks(items: Sequence[T], size: int = _CHUNK) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def holes(items: Sequence[object]) -> str:
    """``?,?,?`` for as many."""
    return ",".join("?" * len(items))


def listed(values: Iterable[int | str]) -> str:
    """*values* for ``$numbers`` or ``$texts``; damaged text, which is bytes, names nothing else."""
    return json.dumps([value for value in values if not isinstance(value, bytes)])


def found_repo(tx: Tx, repo_id: str) -> int:
    """The repository's number; 0: it was never written."""
    row = tx.run(_FIND_REPO, (repo_id,)).fetchone()
    return 0 if row is None else int(row[0])


def repo_row(tx: Tx, repo_id: str) -> tuple[int, int, str | None, int | None]:
    """Number (0: never written), revision, and the embedding space's name and dimensions."""
    number = found_repo(tx, repo_id)
    row = tx.run(_REPO, (number,)).fetchone() if number else None
    return _REPOS.one(row)[1:] if row is not None else (0, 0, None, None)


def repo_number(tx: Tx, repo_id: str) -> int:
    """The repository's row number, entered at its first write."""
    number = found_repo(tx, repo_id)
    if not number:
        tx.run(_ADD_NAME, (repo_id,))
        number = found_repo(tx, repo_id)
        tx.run(_ADD_REPO, (number, repo_id))
    return number


def digests(tx: Tx) -> frozenset[str]:
    """Of the segments of all repositories that machines may keep as files."""
    return frozenset(digest for (digest,) in tx.run(_DIGESTS).fetchall())

"""
Transactions: what the rules of the store are written over.

A rule is a function over one ``Tx``. It sees rows and statements in SQL that SQLite and
PostgreSQL 15 both read, never a driver. An engine expands in each statement, once:

* ``?`` and ``:name``: parameters;
* ``$numbers``, ``$texts``: a relation with one column ``value``, of a JSON list that is one
  parameter (``rows.listed``): ``id IN $texts``, ``FROM $numbers x``;
* ``$pairs``: a relation of texts ``key`` and ``value``, of a JSON object that is one parameter;
* ``$entries(body)``: the same of the JSON object in a column; none of damaged JSON;
* ``$firsts(body)``: a relation of one column, behind ``IN``, of the first text of each array in
  the JSON array in a column; none of damaged JSON;
* ``$join``: ``JOIN`` that is read in the order in which it is written;
* ``$by(index)`` behind a table: read by this index, where an engine can be told to;
* ``$greatest``, ``$least``: of several values, none of which is NULL;
* ``$field(body, name)``: a text in the JSON object of the column *body*; NULL for damaged JSON;
* ``$position(text, part)``: where the part is in the text, from 1; 0: nowhere;
* ``$also repo = ?``: a condition that finds the shard of a row, which an engine that has none looks
  up by its number, and by no index of the repository;
* ``$names``: the table with the ``no`` and ``id`` of each repository;
* in definitions of tables, where ``INTEGER`` and ``REAL`` have 64 bits: ``$number``, the key
  that counts up; ``$lasting``, one that is never given twice; ``$followed``, likewise, which
  ``reserve`` gives; ``$keyed(no)`` behind the columns of a table with such a key; ``$place``, that
  of a temporary table; ``$repo``, the number that ``$names`` gives; ``$clustered``, behind the
  columns: stored in the order of the key; ``table.ARRIVAL`` orders what has no number.

What is not a matter of spelling is in its ``Dialect``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from mnemo.errors import MnemoError

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""What a statement is given: by place (``?``) or by name (``:name``)."""
Text: TypeAlias = tuple[int, str, datetime]
"""Of the full text: its number, what is searched, and when it was said."""


class Result(Protocol):
    """The rows of a statement, read as they are asked for."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> Any:
        """The next row; ``None`` after the last one."""

    def fetchall(self) -> list[Any]:
        """All further rows."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """At most *size* further rows."""

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None:
        """Read no further."""


Analysed: TypeAlias = tuple[int, int, float, list[str], str | None]
"""
Of a text its number, repository, time (Unix seconds), words in order, and in scripts without blanks
all of it, composed and in lower case.
"""


class Dialect(Protocol):
    """What differs by engine beside the spelling of a statement."""

    @property
    def text_columns(self) -> Sequence[str]:
        """The columns of ``texts``."""

    def text_rows(self, texts: Sequence[Analysed]) -> list[tuple[Any, ...]]:
        """The rows of ``texts``."""

    def index_texts(self, tx: Tx, repo: int) -> None:
        """Index what was put since the last time; called now and then."""

    def occurrences(self, words: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
        """How often a text *f* holds *words* behind each other, in SQL, with its values."""

    def found(
        self, index: str, repo: int, groups: Sequence[Sequence[str]], *, bare: bool
    ) -> tuple[str, tuple[Any, ...]]:
        """
        What stands behind ``FROM`` for texts *f* that hold all of a group of *words* or *triples*,
        with its values: these, or where that is looked at again, more. *bare*: Only the numbers of
        those that hold one word are needed, exactly.
        """

    def reserve(self, tx: Tx, table: str, counts: Mapping[int, int]) -> dict[int, int]:
        """
        By repository the number before the next ones of *table*, as many as *counts* says, which
        are this transaction's. Whoever follows a repository by number sees them in ascending order
        of commits.
        """

    def last_number(self, tx: Tx, table: str, repo: int) -> int:
        """
        The number up to which a follower of *repo* has seen everything of *table*; a later one is
        not less, but of an older copy.
        """

    def note_erased(self, tx: Tx) -> None:
        """Note, in the transaction that erases, that the storage has to be scrubbed."""

    def note_expired(self, tx: Tx) -> None:
        """
        Note that something was deleted because of its age. That happens at any append, and is not
        worth what a scrub of an erasure takes.
        """

    def damage(self, tx: Tx) -> list[str]:
        """What the database finds wrong with its own storage."""

    def text_damage(self, tx: Tx) -> list[str]:
        """What the full text finds wrong with its own structure; may write."""


class Tx(Protocol):
    """One transaction of an engine; used by one thread at a time, and not kept beyond its unit."""

    @property
    def dialect(self) -> Dialect:
        """What differs by engine."""

    def run(self, statement: str, values: Values = ..., /) -> Result:
        """Run one statement."""

    def refusing(self, refusal: MnemoError) -> AbstractContextManager[None]:
        """Raise *refusal* where the block meets a unique value that is in use already."""

    def run_many(self, statement: str, rows: Iterable[Values], /) -> int:
        """Run *statement* once for each of *rows*; give how many rows were changed."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], /) -> None:
        """Insert *rows* of *columns*, faster than ``run_many`` does."""

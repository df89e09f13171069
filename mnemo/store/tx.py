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
* ``$row``: the number of a text or note, of a row *f* of its full text;
* in definitions of tables, where ``INTEGER`` and ``REAL`` have 64 bits: ``$number``, the key
  that counts up; ``$lasting``, one that is never given twice; ``$clustered``, behind the
  columns: stored in the order of the key; a table with *arrival* has ``table.ARRIVAL``.

What is not a matter of spelling is in its ``Dialect``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from mnemo.errors import MnemoError
from mnemo.values.records import Query, Ranking

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


class Column(NamedTuple):
    """A column as the database declares it; *letter* is its type as ``Rows`` takes it."""

    name: str
    letter: str
    is_required: bool
    is_key: bool


class Texts(Protocol):
    """
    The full text of one repository. A condition is one on ``text_rows.BASE``, and rows are of
    number, relevance and ``text_rows.LEAN``. Texts of scripts without blanks are found by every
    part of them, *unspaced*; others by their words.
    """

    is_ranked: ClassVar[bool]
    """Whether ``matching`` gives rows by falling score, age included; else by relevance."""

    def matching(
        self,
        query: Query,
        condition: str,
        values: Sequence[Any],
        ranking: Ranking,
        *,
        unspaced: bool,
    ) -> Iterator[Sequence[Any]]:
        """
        Rows that match, best first, read as they are asked for; see ``is_ranked``. *Raises*
        ``ValueError``: the query is refused.
        """

    def newest(self, limit: int, condition: str, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Of steps, messages and snapshots the newest *limit* each, of those *unspaced*."""

    def candidates(
        self,
        weights: Sequence[tuple[str, float]],
        least: int,
        condition: str,
        values: Sequence[Any],
    ) -> Iterator[Sequence[Any]]:
        """
        Rows that hold *least* of the terms, by the falling sum of their weights. Behind ``LEAN`` is
        the sum of ``1 << place`` of the terms that the row holds.
        """

    def count(self, term: str | None = None) -> int:
        """How many texts hold *term*; how many there are."""

    def holds(self, row: int, term: str) -> bool:
        """Whether the text of this number holds *term*."""


class Dialect(Protocol):
    """What differs by engine beside the spelling of a statement."""

    def put_texts(self, tx: Tx, repo: int, rows: Sequence[Text]) -> None:
        """Insert texts; empty ones have no row."""

    def drop_texts(self, tx: Tx, repo: int, rowids: Sequence[int]) -> int:
        """Delete texts; give how many there were."""

    def merge_texts(self, tx: Tx, repo: int) -> None:
        """Write the repository's full text anew, so that nothing deleted is left in it."""

    def texts(self, tx: Tx, repo: int) -> Texts:
        """The full text of the repository of this number."""

    def has_text(self, tx: Tx, repo: int, row: str) -> str:
        """The condition that there is a text of the number that *row* is."""

    def count_texts(self, tx: Tx) -> int:
        """How many texts there are of all repositories."""

    def put_note_words(self, tx: Tx, rows: Sequence[tuple[int, str]]) -> None:
        """Insert the words of notes, folded and stemmed, by the notes' numbers; see ``$row``."""

    def merge_note_words(self, tx: Tx) -> None:
        """Leave nothing of deleted words in the index."""

    def notes_with(self, tx: Tx, repo: int, term: str) -> list[Sequence[Any]]:
        """Rows with the topics of the notes that hold *term*."""

    def contains(self, lowered: str) -> str:
        """The condition that the text of ``f``, case aside, has a part ``?``: *lowered*."""

    def reserve(self, tx: Tx, table: str, count: int, repos: Sequence[int]) -> int:
        """
        The number before the next *count* numbers of *table*, which are this transaction's. Whoever
        follows one of *repos* by number sees them in ascending order of commits.
        """

    def last_number(self, tx: Tx, table: str, repo: int) -> int:
        """
        The number up to which a follower of *repo* has seen everything of *table*. Where several
        write at once, another repository's number may be greater than one that is not committed
        yet.
        """

    def note_erased(self, tx: Tx) -> None:
        """Note, in the transaction that erases, that the storage has to be scrubbed."""

    def note_expired(self, tx: Tx, repo: int) -> None:
        """
        Note that messages of the repository were deleted because of their age. That happens at any
        append, and is not worth what a scrub of an erasure takes.
        """

    def make_scratch(self, tx: Tx, table: str, columns: str) -> None:
        """
        Make an empty table that this transaction alone sees; *seq* counts its rows. Whoever uses it
        empties it again.
        """

    def columns(self, tx: Tx) -> dict[str, list[Column]]:
        """The columns of the tables that the schema makes, full text aside."""

    def damage(self, tx: Tx) -> list[str]:
        """What the database finds wrong with its own storage."""

    def check_texts(self, tx: Tx) -> list[str]:
        """Where the full text does not agree with what it is the text of."""

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

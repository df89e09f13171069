"""Queries of the full text: FTS5's ``MATCH`` and rank, over the tables of one repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mnemo.runtime.text import has_unspaced
from mnemo.store.sqlite.texts import TextTables, refusing_expression, text_tables
from mnemo.store.text_rows import BASE, LEAN
from mnemo.store.tx import Tx
from mnemo.values.records import Group, Query, Ranking

# Ordered by the full text itself, so that the rest is read only of rows that are taken.
_BY_RELEVANCE = f"""
SELECT f.rowid, -f.rank, {LEAN} FROM {{table}} f {BASE}
WHERE {{table}} MATCH ? AND {{condition}} ORDER BY f.rank
"""
_SCAN = f"""
SELECT f.rowid, 1.0, {LEAN}
FROM (SELECT rowid, text FROM {{table}} WHERE {{sort}} ORDER BY rowid DESC LIMIT ?) f {BASE}
WHERE {{condition}}
"""
# One small row per text; to count the full text itself reads all of it.
_COUNT = "SELECT count(*) FROM {table}_docsize"
_ALL_SORTS = ("1",)
_EACH_SORT = ("rowid & 3 < 2", "rowid & 3 = 2", "rowid & 3 = 3")
_HOLDING = "SELECT count(*) FROM {table} WHERE {table} MATCH ?"
# Of the table that many small repositories share only one's own rows count.
_SHARED = "words_0"
_OWN = f" f {BASE} WHERE coalesce(p.repo, t.repo) = ?"
_OWN_HOLDING = f"SELECT count(*) FROM {{table}}{_OWN} AND {{table}} MATCH ?"
_OWN_RECORDS = f"SELECT count(*) FROM {{table}}{_OWN}"
_OF_TERM = "SELECT rowid AS row, ? AS weight, ? AS bit FROM {table} WHERE {table} MATCH ?"
_CANDIDATES = f"""
SELECT f.rowid, f.weight, {LEAN}, f.bits
FROM (SELECT row AS rowid, sum(weight) AS weight, sum(bit) AS bits FROM ({{terms}})
      GROUP BY row HAVING count(*) >= ?) f {BASE}
WHERE {{condition}} ORDER BY f.weight DESC, f.rowid DESC
"""
_HOLDS = "SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"
_NOTES = """
SELECT n.topic FROM note_words w JOIN notes n ON n.no = w.rowid
WHERE note_words MATCH ? AND n.repo = ?
"""


@dataclass(frozen=True, slots=True)
class SqliteTexts:
    """``Texts`` over a repository's tables of words and of triples."""

    tx: Tx
    repo: int
    tables: TextTables

    is_ranked: ClassVar[bool] = False

    def matching(
        self,
        query: Query,
        condition: str,
        values: Sequence[Any],
        ranking: Ranking,
        *,
        unspaced: bool,
    ) -> Iterator[Sequence[Any]]:
        """Rows that match, in the order of FTS5's rank; see ``Texts``."""
        table = self.tables.grams if unspaced else self.tables.words
        if table is None:
            return
        statement = _BY_RELEVANCE.format(table=table, condition=condition)
        with refusing_expression(query.expression):
            yield from self.tx.run(statement, (query.expression, *values))

    def newest(self, limit: int, condition: str, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """The newest texts of each kind, if they are not all looked at; see ``Texts``."""
        table = self.tables.grams
        if table is None:
            return
        (count,) = self.tx.run(_COUNT.format(table=table)).fetchone()
        for sort in _ALL_SORTS if count <= limit else _EACH_SORT:
            statement = _SCAN.format(table=table, sort=sort, condition=condition)
            yield from self.tx.run(statement, (limit, *values))

    def candidates(
        self,
        weights: Sequence[tuple[str, float]],
        least: int,
        condition: str,
        values: Sequence[Any],
    ) -> Iterator[Sequence[Any]]:
        """Rows that hold *least* of the terms; see ``Texts``."""
        each = [_OF_TERM.format(table=self._table(term)) for term, _ in weights]
        statement = _CANDIDATES.format(terms=" UNION ALL ".join(each), condition=condition)
        terms = [v for at, (t, weight) in enumerate(weights) for v in (weight, 1 << at, _quoted(t))]
        yield from self.tx.run(statement, (*terms, least, *values))

    def count(self, term: str | None = None) -> int:
        """How many texts hold *term*; how many there are."""
        if term is None:
            return self._counted(_COUNT, _OWN_RECORDS, self.tables.words)
        return self._counted(_HOLDING, _OWN_HOLDING, self._table(term), _quoted(term))

    def _counted(self, all_: str, own: str, table: str | None, *values: str) -> int:
        if table is None:
            return 0
        shared = self.tables.words == _SHARED
        given = (self.repo, *values) if shared else values
        statement = (own if shared else all_).format(table=table)
        return int(self.tx.run(statement, given).fetchone()[0])

    def holds(self, row: int, term: str) -> bool:
        """Whether the text of this number holds *term*."""
        statement = _HOLDS.format(table=self._table(term))
        return self.tx.run(statement, (_quoted(term), row)).fetchone() is not None

    def _table(self, term: str) -> str | None:
        return self.tables.grams if has_unspaced(term) else self.tables.words


def _quoted(term: str) -> str:
    return Group((term,)).expression


def texts(tx: Tx, repo: int) -> SqliteTexts:
    """The full text of the repository of this number."""
    return SqliteTexts(tx, repo, text_tables(tx, repo))


def notes_with(tx: Tx, repo: int, term: str) -> list[Sequence[Any]]:
    """Rows with the topics of the notes that hold *term*."""
    quoted = '"' + term.replace('"', '""') + '"'
    return tx.run(_NOTES, (quoted, repo)).fetchall()


def contains(lowered: str) -> str:
    """
    The condition that a text, case aside, has a part ``?``, which is *lowered*.

    SQLite itself knows the case of ASCII alone.
    """
    ascii = lowered.isascii() or not any(c.upper() != c for c in lowered if not c.isascii())
    return f"instr({'lower' if ascii else 'mnemo_lower'}(f.text), ?)"

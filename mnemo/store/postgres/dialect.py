"""
The dialect of PostgreSQL: this module itself implements ``Dialect``, without extensions.

Words of the library's own analyser are found by GIN and weighed by BM25 as in FTS5, in SQL.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from mnemo.runtime.clock import as_utc
from mnemo.runtime.text import composed, has_unspaced, index_words, lower_each
from mnemo.store.codec import decode_time
from mnemo.store.text_rows import BASE, LEAN, counted, misfits, scanned, told
from mnemo.store.tx import Column, Text, Tx
from mnemo.values.records import DAYS_OF_A_YEAR, Group, Query, Ranking

_LONGEST_WORD = 500
"""Characters of a word; an entry of a GIN index has at most 2,700 bytes."""
_KEPT_OF_LONGER = 64


def stems(text: str) -> list[str]:
    """The words of *text*, folded and stemmed, in order."""
    return [_entry(word) for word, _, _ in index_words(text)]


def tokens(text: str) -> list[str]:
    """The words of *text* as they stand, in order."""
    return [_entry(text[start:end]) for _, start, end in index_words(text)]


def _entry(word: str) -> str:
    """*word*, or for a longer one its beginning and digest, joined by what no word holds."""
    if len(word) <= _LONGEST_WORD:
        return word
    digest = hashlib.sha256(word.encode()).hexdigest()
    return f"{word[:_KEPT_OF_LONGER]}…{digest}"


def triples(lowered: str) -> list[str]:
    """Every three characters, once."""
    # Not sorted: that would hold the interpreter for as long as it takes.
    return list(dict.fromkeys(lowered[at : at + 3] for at in range(len(lowered) - 2)))


def put_texts(tx: Tx, repo: int, rows: Sequence[Text]) -> None:
    made = [(*_row(repo, no, text), as_utc(at).timestamp()) for no, text, at in rows if text]
    if not made:
        return
    tx.insert("texts", _TEXT_COLUMNS, made)
    words = sum(length for *_, length, _, _, _ in made)
    parts = [max(len(lowered) - 2, 0) for *_, lowered, _, _ in made if lowered is not None]
    tx.run(_ADD.format("+"), (len(made), words, len(parts), sum(parts), repo))


def _row(repo: int, number: int, text: str) -> tuple[Any, ...]:
    words = stems(text)
    if not has_unspaced(text):
        return (number, repo, text, words, len(words), None, None)
    lowered = lower_each(composed(text))
    return (number, repo, text, words, len(words), lowered, triples(lowered))


def drop_texts(tx: Tx, repo: int, rowids: Sequence[int]) -> int:
    sums = tx.run(_DROP, (repo, list(rowids))).fetchone()
    if sums[0]:
        tx.run(_ADD.format("-"), (*sums, repo))
    return int(sums[0])


def merge_texts(tx: Tx, repo: int) -> None:
    """Nothing: no deleted text is found, and bytes go with ``VACUUM``."""


def has_text(tx: Tx, repo: int, row: str) -> str:
    return f"EXISTS (SELECT 1 FROM texts WHERE rowid = {row})"


def count_texts(tx: Tx) -> int:
    return int(tx.run("SELECT count(*) FROM texts").fetchone()[0])


def check_texts(tx: Tx) -> list[str]:
    return [
        *misfits(tx, "texts", "TRUE", "r.no = f.repo"),
        *counted("texts whose words or triples do not fit", tx.run(_ALL), _misfit),
        *counted("texts of another time than their record", tx.run(_TIMES), _mistimed),
        *told("repositories whose texts are not counted right", tx.run(_MISCOUNTED)),
    ]


def _misfit(row: Sequence[Any]) -> int | None:
    repo, number, text, *derived, its_triples = row
    *expected, wanted = _row(repo, number, text)
    fits = [number, repo, text, *derived] == expected
    fits = fits and set(its_triples or ()) == set(wanted or ())
    return None if fits else int(number)


def _mistimed(row: Sequence[Any]) -> int | None:
    number, at, said_at = row
    try:
        return None if decode_time(said_at).timestamp() == at else int(number)
    except ValueError:
        return None  # the check of rows names it


_TEXT_COLUMNS = ("rowid", "repo", "text", "words", "length", "lowered", "triples", "at")
# Who inserts a text holds the repository's row already, which has these.
_SUMS = ("text_count", "text_words", "unspaced_count", "unspaced_triples")
_SUMMED = """
count(*), coalesce(sum(length), 0),
count(lowered), coalesce(sum(greatest(length(lowered) - 2, 0)), 0)
"""
_SUMS_OF = f"(SELECT {_SUMMED} FROM texts f WHERE f.repo = r.no)"
_DROP = f"""
WITH dropped AS (DELETE FROM texts WHERE repo = ? AND rowid = ANY (?) RETURNING length, lowered)
SELECT {_SUMMED} FROM dropped
"""
_ADD = f"UPDATE repos SET {', '.join(f'{name} = {name} {{0}} ?' for name in _SUMS)} WHERE no = ?"
_SAID_AT = "coalesce(p.at, m.at, m.recorded_at, n.at)"
_ALL = "SELECT repo, rowid, text, words, length, lowered, triples FROM texts"
_TIMES = f"SELECT f.rowid, f.at, {_SAID_AT} FROM texts f {BASE} WHERE {_SAID_AT} IS NOT NULL"
_MISCOUNTED = f"""
SELECT count(*), min(r.id) FROM repos r CROSS JOIN LATERAL {_SUMS_OF} s({", ".join(_SUMS)})
WHERE ({", ".join(f"r.{name}" for name in _SUMS)}) <> ({", ".join(f"s.{name}" for name in _SUMS)})
"""


# BM25's usual constants, and the least weight of a term, as FTS5 has them.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6
_DAY_S = 86_400
_PAGE = 256
"""Rows whose records are looked up first; mostly the best are among them."""


def contains(lowered: str) -> str:
    return "strpos(f.lowered, ?) > 0"


# How often each operand is in a text is counted once, and without looking at its record.
_RANKED = f"""
SELECT f.rowid, c.score, {LEAN}, {{condition}} FROM (
    SELECT rowid, score, score / ({{aging}}) AS aged FROM (
        SELECT rowid, at, {{score}} AS score FROM (
            SELECT f.rowid, f.at, {{length}}::float8 AS length, {{counts}}
            FROM texts f WHERE f.repo = ? AND ({{found}}) OFFSET 0) f
        WHERE {{match}}) f
    ORDER BY aged DESC, rowid {{page}}) c
JOIN texts f ON f.rowid = c.rowid {BASE} ORDER BY c.aged DESC, f.rowid
"""
_PAGES = (f"LIMIT {_PAGE}", f"OFFSET {_PAGE}")
_PART = "{idf} * {n} * {more} / ({n} + {least} + {each} * length)"
_AGING = "1::float8 + {decay} * greatest(0::float8, {now} - at)"
# Of what is a group of its own, every text that holds it is among those that match.
_IDF = f"greatest(ln(({{count}} - {{holding}} + 0.5) / ({{holding}} + 0.5)), {_LEAST_IDF})"
_HOLDING_IT = "(count(*) FILTER (WHERE {n} > 0) OVER ())::float8"
_SCAN = f"""
SELECT f.rowid, 1.0::float8, {LEAN} FROM (
    SELECT rowid, text, lowered FROM texts f WHERE repo = ? AND lowered IS NOT NULL AND {{sort}}
    ORDER BY rowid DESC LIMIT ?) f {BASE}
WHERE {{condition}}
"""
_COUNTED = {
    "words": "SELECT text_count, text_words FROM repos WHERE no = ?",
    "triples": "SELECT unspaced_count, unspaced_triples FROM repos WHERE no = ?",
}
_HOLDING = "SELECT count(*) FROM texts f WHERE f.repo = ? AND {condition}"
_OF_TERM = """
SELECT f.rowid AS row, ?::float8 AS weight, ?::bigint AS bit FROM texts f
WHERE f.repo = ? AND {condition}
"""
_CANDIDATES = f"""
SELECT f.rowid, f.weight, {LEAN}, f.bits
FROM (SELECT row AS rowid, sum(weight) AS weight, sum(bit) AS bits FROM ({{terms}}) of_terms
      GROUP BY row HAVING count(*) >= ?) f {BASE}
WHERE {{condition}} ORDER BY f.weight DESC, f.rowid DESC
"""
_HOLDS = "SELECT 1 FROM texts f WHERE f.rowid = ? AND {condition}"


@dataclass(frozen=True, slots=True)
class _Operand:
    """
    What a text may hold. *found*: The condition on ``texts f`` that looks it up, with values
    *given*.

    *count*: How often the text holds it, an expression with values *counted*. *is_sure*: Whatever
    is looked up holds it, so that nothing is checked again.
    """

    found: str
    given: tuple[Any, ...]
    count: str
    counted: tuple[Any, ...]
    is_sure: bool = False

    @property
    def condition(self) -> str:
        """The condition that a text holds it."""
        return self.found if self.is_sure else f"({self.found} AND {self.count} > 0)"

    @property
    def values(self) -> tuple[Any, ...]:
        """Those of ``condition``."""
        return self.given if self.is_sure else (*self.given, *self.counted)


def _words_operand(operand: str) -> _Operand | None:
    """``None``: nothing in it is a word, so nothing holds it."""
    phrase = stems(operand)
    if not phrase:
        return None
    found = "f.words @> ?::text[]"
    if len(phrase) == 1:
        count = "cardinality(array_positions(f.words, ?))"
        return _Operand(found, (phrase,), count, (phrase[0],), is_sure=True)
    if any(phrase[:size] == phrase[-size:] for size in range(1, len(phrase))):
        # It may begin within itself.
        return _Operand(found, (phrase,), "occurrences(f.words, ?::text[])", (phrase,))
    parted = "string_to_array(' ' || array_to_string(f.words, '  ') || ' ', ?::text)"
    return _Operand(found, (phrase,), f"(cardinality({parted}) - 1)", (f" {'  '.join(phrase)} ",))


def _triples_operand(operand: str) -> _Operand | None:
    lowered = lower_each(composed(operand))
    count = "(length(f.lowered) - length(replace(f.lowered, ?, ''))) / length(?::text)"
    found = "f.triples @> ?::text[]"
    return _Operand(found, (triples(lowered),), f"({count})", (lowered, lowered))


_OPERANDS = {"words": _words_operand, "triples": _triples_operand}
_LENGTHS = {"words": "f.length", "triples": "greatest(length(f.lowered) - 2, 0)"}


@dataclass(frozen=True, slots=True)
class PostgresTexts:
    """``Texts`` over the rows of a repository in ``texts``."""

    tx: Tx
    repo: int

    is_ranked: ClassVar[bool] = True

    def matching(
        self,
        query: Query,
        condition: str,
        values: Sequence[Any],
        ranking: Ranking,
        *,
        unspaced: bool,
    ) -> Iterator[Sequence[Any]]:
        index = "triples" if unspaced else "words"
        made = {
            text: _OPERANDS[index](text) for g in query.groups for text in g.wanted + g.unwanted
        }
        operands = {text: operand for text, operand in made.items() if operand is not None}
        groups = [group for group in query.groups if operands.keys() >= {*group.wanted}]
        if not groups:
            return
        found = [operands[text] for group in groups for text in group.wanted]
        given = (
            *(value for operand in operands.values() for value in operand.counted),
            self.repo,
            *(value for operand in found for value in operand.given),
        )
        columns = {text: f"n{place}" for place, text in enumerate(operands)}
        statement = _RANKED.format(
            condition=condition,
            # See ``Ranking.score``.
            aging=_AGING.format(
                decay=_real(ranking.decay / (DAYS_OF_A_YEAR * _DAY_S)),
                now=_real(ranking.now.timestamp()),
            ),
            score=self._score(groups, operands, columns, index),
            length=_LENGTHS[index],
            counts=", ".join(f"({operands[t].count})::float8 AS {n}" for t, n in columns.items()),
            found=" OR ".join(
                " AND ".join(operands[text].found for text in group.wanted) for group in groups
            ),
            match=" OR ".join(f"({_group(group, columns)})" for group in groups),
            page="{page}",
        )
        for page in _PAGES:
            rows = self.tx.run(statement.format(page=page), (*values, *given)).fetchall()
            yield from (row for row in rows if row[-1])
            if len(rows) < _PAGE:
                break

    def _score(
        self,
        groups: Sequence[Group],
        operands: Mapping[str, _Operand],
        columns: Mapping[str, str],
        index: str,
    ) -> str:
        """BM25, on the counts of the operands of those groups that match, as FTS5 has it."""
        count, total = self._counted(index)
        average = total / count if total else 1.0
        alone = {g.wanted[0] for g in groups if len(g.wanted) == 1 and not g.unwanted}
        parts: dict[str, str] = {}
        for text in dict.fromkeys(text for group in groups for text in group.wanted):
            n = columns[text]
            if text in alone:
                idf = _IDF.format(count=_real(count), holding=_HOLDING_IT.format(n=n))
            else:
                idf = _real(_idf(count, self._holding(operands[text])))
            more, least, each = map(_real, (_K1 + 1, _K1 * (1 - _B), _K1 * _B / average))
            parts[text] = _PART.format(idf=idf, n=n, more=more, least=least, each=each)
        return " + ".join(
            f"CASE WHEN {_group(group, columns)} THEN {' + '.join(parts[t] for t in group.wanted)} "
            "ELSE 0 END"
            for group in groups
        )

    def _counted(self, index: str) -> tuple[int, int]:
        """How many texts there are, and how many words or triples in them."""
        row = self.tx.run(_COUNTED[index], (self.repo,)).fetchone()
        return row or (0, 0)

    def _holding(self, operand: _Operand) -> int:
        statement = _HOLDING.format(condition=operand.condition)
        return int(self.tx.run(statement, (self.repo, *operand.values)).fetchone()[0])

    def newest(self, limit: int, condition: str, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        count, _ = self._counted("triples")
        for sort in scanned(count, limit):
            statement = _SCAN.format(sort=sort, condition=condition)
            yield from self.tx.run(statement, (self.repo, limit, *values))

    def candidates(
        self,
        weights: Sequence[tuple[str, float]],
        least: int,
        condition: str,
        values: Sequence[Any],
    ) -> Iterator[Sequence[Any]]:
        parts: list[str] = []
        given: list[Any] = []
        for place, (term, weight) in enumerate(weights):
            operand = _operand(term)
            if operand is not None:
                parts.append(_OF_TERM.format(condition=operand.condition))
                given += (weight, 1 << place, self.repo, *operand.values)
        if parts:
            statement = _CANDIDATES.format(terms=" UNION ALL ".join(parts), condition=condition)
            yield from self.tx.run(statement, (*given, least, *values))

    def count(self, term: str | None = None) -> int:
        if term is None:
            return self._counted("words")[0]
        operand = _operand(term)
        return 0 if operand is None else self._holding(operand)

    def holds(self, row: int, term: str) -> bool:
        operand = _operand(term)
        if operand is None:
            return False
        statement = _HOLDS.format(condition=operand.condition)
        return self.tx.run(statement, (row, *operand.values)).fetchone() is not None


texts = PostgresTexts


def _operand(term: str) -> _Operand | None:
    return _OPERANDS["triples" if has_unspaced(term) else "words"](term)


def _group(group: Group, columns: Mapping[str, str]) -> str:
    """The condition that a text matches the group, on the counts of its operands."""
    held = [f"{columns[text]} > 0" for text in group.wanted]
    barred = [f"{columns[text]} = 0" for text in group.unwanted if text in columns]
    return " AND ".join([*held, *barred])


def _idf(count: int, holding: int) -> float:
    return max(math.log((count - holding + 0.5) / (holding + 0.5)), _LEAST_IDF)


def _real(value: float) -> str:
    return f"'{float(value)!r}'::float8"


_IDENTITIES = {"steps": "ordinal", "vectors": "seq"}
_FOLLOWED = ("steps", "messages", "vectors", "snapshots")
"""Tables whose numbers followers read by."""
_LAST = "SELECT coalesce(max({}), 0) FROM {} WHERE repo = ?"
# How many numbers are taken depends on the rows held, so that they are held first.
_TAKE = """
WITH held AS MATERIALIZED (
    SELECT no FROM repos WHERE no = ANY (?::bigint[]) ORDER BY no FOR NO KEY UPDATE
)
SELECT min(n), max(n) FROM (
    SELECT nextval('{}_{}_seq') AS n
    FROM generate_series(1, ?::bigint + 0 * (SELECT count(*) FROM held))
) t
"""
_PUT_WORDS = "INSERT INTO note_words (rowid, words) VALUES (?, ?)"
_NOTES = """
SELECT n.topic FROM note_words w JOIN notes n ON n.no = w.rowid
WHERE w.words @> ?::text[] AND occurrences(w.words, ?::text[]) > 0 AND n.repo = ?
"""
_COLUMNS = """
SELECT c.table_name, c.column_name, c.data_type, c.is_nullable = 'NO',
       EXISTS (SELECT 1 FROM pg_index i
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
               WHERE i.indisprimary AND a.attname = c.column_name
               AND i.indrelid = format('%I.%I', c.table_schema, c.table_name)::regclass)
FROM information_schema.columns c
WHERE c.table_schema = current_schema() AND c.table_name <> ALL (?::text[])
ORDER BY c.table_name, c.ordinal_position
"""
_ENGINES = ["texts", "note_words", "locks", "commits"]
_LETTERS = {"bigint": "i", "double precision": "f", "text": "s", "bytea": "b"}


def reserve(tx: Tx, table: str, count: int, repos: Sequence[int]) -> int:
    """Take numbers while holding the rows of *repos*, which others then wait for."""
    if not count:
        return 0
    held = sorted(set(repos)) if table in _FOLLOWED else []
    statement = _TAKE.format(table, _IDENTITIES.get(table, "no"))
    while True:
        first, last = tx.run(statement, (held, count)).fetchone()
        # Others took some in between; theirs and these would not be apart.
        if last - first + 1 == count:
            return int(first) - 1


def last_number(tx: Tx, table: str, repo: int) -> int:
    statement = _LAST.format(_IDENTITIES.get(table, "no"), table)
    return int(tx.run(statement, (repo,)).fetchone()[0])


def put_note_words(tx: Tx, rows: Sequence[tuple[int, str]]) -> None:
    tx.run_many(_PUT_WORDS, [(note, tokens(words)) for note, words in rows])


def merge_note_words(tx: Tx) -> None:
    """Nothing, as for texts."""


def notes_with(tx: Tx, repo: int, term: str) -> list[Sequence[Any]]:
    phrase = tokens(term)
    return list(tx.run(_NOTES, (phrase, phrase, repo)).fetchall()) if phrase else []


def note_erased(tx: Tx) -> None:
    tx.run("INSERT INTO meta (name, value) VALUES ('scrub', '1') ON CONFLICT DO NOTHING")


def note_expired(tx: Tx, repo: int) -> None:
    """Note it as an erasure: a scrub is made at the operator's call alone."""
    note_erased(tx)


def make_scratch(tx: Tx, table: str, columns: str) -> None:
    tx.run(f"CREATE TABLE pg_temp.{table} (seq $number, {columns}) ON COMMIT DROP")


def columns(tx: Tx) -> dict[str, list[Column]]:
    found: dict[str, list[Column]] = {}
    for table, name, type, required, key in tx.run(_COLUMNS, (_ENGINES,)):
        # Others' tables may have been put beside ours, of any type.
        if type in _LETTERS:
            column = Column(name, _LETTERS[type], bool(required), bool(key))
            found.setdefault(table, []).append(column)
    return found


def damage(tx: Tx) -> list[str]:
    """Nothing: the server looks after its own storage (``amcheck`` is the operator's)."""
    return []


def text_damage(tx: Tx) -> list[str]:
    return []


# ── Spelling ─────────────────────────────────────────────────────────────────────────

_SPELLINGS = {
    "numbers": "(SELECT json_array_elements_text({next}::json)::bigint AS value)",
    "texts": '(SELECT json_array_elements_text({next}::json) COLLATE "C" AS value)',
    # As an array it is looked up in an index, also where no rows have been counted yet.
    "IN numbers": "= ANY (ARRAY(SELECT json_array_elements_text({next}::json)::bigint))",
    "IN texts": '= ANY (ARRAY(SELECT json_array_elements_text({next}::json) COLLATE "C"))',
    "pairs": "json_each_text({next}::json)",
    "entries": """json_each_text(CASE json_typeof(json_of({0}))
        WHEN 'object' THEN json_of({0}) ELSE '{{}}' END)""",
    "firsts": """(SELECT e ->> 0 FROM json_array_elements(CASE json_typeof(json_of({0}))
        WHEN 'array' THEN json_of({0}) ELSE '[]' END) e)""",
    "join": "JOIN",
    "by": "",
    "greatest": "greatest",
    "least": "least",
    "field": "(json_of({0}) ->> '{1}')",
    "row": "f.rowid",
    "number": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "lasting": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "clustered": "",
}
"""What the words of ``store.tx`` are in PostgreSQL."""
_TYPES = {
    "INTEGER": "BIGINT",
    "BLOB": "BYTEA",
    "REAL": "DOUBLE PRECISION",
    "TEXT": 'TEXT COLLATE "C"',
}
_TOKENS = re.compile(
    r"""
    (?P<text>'(?:[^']|'')*')
    | \$(?P<call>by|entries|firsts|field)\((?P<of>[\w.]+)(?:,\ (?P<also>\w+))?\)
    | (?P<among>\bIN\ (?=\$(?:numbers|texts)\b))?\$(?P<word>[a-z]+)
    | (?P<place>\?)
    | (?<![:\w]):(?P<name>[a-z_]+)
    | CREATE\ INDEX\ staging\.(?P<index>\w+)\s+ON\ (?P<staged>\w+)
    | (?P<staging>\bstaging\.)
    """,
    re.VERBOSE,
)
_TYPE = re.compile(r"\b(?:INTEGER|BLOB|REAL|TEXT)\b")


@lru_cache(maxsize=1_024)
def spelled(statement: str) -> tuple[str, tuple[str, ...]]:
    """The statement with ``$1``, ``$2``, …, and the names of the values that are given by name."""
    names: list[str] = []
    count = 0

    def spell(match: re.Match[str]) -> str:
        nonlocal count
        word = match["call"] or match["word"]
        if match["among"]:
            word = f"IN {word}"
        if match["place"] or (word and "{next}" in _SPELLINGS[word]):
            count += 1
        if word:
            place = f"${count}::text" if count else ""
            return _SPELLINGS[word].format(match["of"], match["also"], next=place)
        if match["index"]:
            return f"CREATE INDEX {match['index']} ON pg_temp.{match['staged']}"
        if match["place"]:
            return f"${count}"
        if name := match["name"]:
            if name not in names:
                names.append(name)
            return f"${names.index(name) + 1}"
        return "pg_temp." if match["staging"] else match.group()

    made = _TOKENS.sub(spell, statement)
    if statement.lstrip().startswith(("CREATE TABLE", "ALTER TABLE")):
        made = _TYPE.sub(lambda found: _TYPES[found.group()], made)
    return made, tuple(names)

"""
The dialect of PostgreSQL: this module itself implements ``Dialect``, without extensions.

Words of the library's own analyser are found by GIN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mnemo.store.texts import triples
from mnemo.store.tx import Analysed, Tx

text_columns = ("no", "repo", "at", "length", "words", "lowered", "triples")


def text_rows(texts: Sequence[Analysed]) -> list[tuple[Any, ...]]:
    return [
        (no, repo, at, len(words), words, lowered, None if lowered is None else triples(lowered))
        for no, repo, at, words, lowered in texts
    ]


def index_texts(tx: Tx, repo: int) -> None:
    """Nothing: the server gathers what is new by itself."""


def occurrences(words: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
    if len(words) == 1:
        return "cardinality(array_positions(f.words, ?))", (words[0],)
    if any(words[:size] == words[-size:] for size in range(1, len(words))):
        # It may begin within itself.
        return "occurrences(f.words, ?::text[])", (list(words),)
    parted = "string_to_array(' ' || array_to_string(f.words, '  ') || ' ', ?::text)"
    return f"(cardinality({parted}) - 1)", (f" {'  '.join(words)} ",)


def found(
    index: str, repo: int, groups: Sequence[Sequence[str]], *, bare: bool
) -> tuple[str, tuple[Any, ...]]:
    each = " OR ".join(f"f.{index} @> ?::text[]" for _ in groups)
    return f"texts f WHERE f.repo = ? AND ({each})", (repo, *map(list, groups))


_IDENTITIES = {"steps": "ordinal", "vectors": "seq"}
FOLLOWED = ("steps", "messages", "vectors", "removals", "item_vectors")
"""Tables whose numbers followers read by; each repository counts its own, in its own row."""
_LAST = "SELECT coalesce(max({}), 0) FROM {} WHERE repo = ?"
_COUNT_ON = "UPDATE repos SET {0}_no = {0}_no + ? WHERE no = ? RETURNING {0}_no - ?"
_TAKE = """
SELECT min(n), max(n) FROM (
    SELECT nextval('{}_no_seq') AS n FROM generate_series(1, ?::bigint)) t
"""
# By a name of its own: the second of two erasures would wait for the first one's row.
_NOTE = """
INSERT INTO meta (name, value) SELECT 'scrub ' || pg_current_xact_id(), '1'
WHERE NOT EXISTS (SELECT 1 FROM meta WHERE name LIKE 'scrub %') ON CONFLICT DO NOTHING
"""


def reserve(tx: Tx, table: str, counts: Mapping[int, int]) -> dict[int, int]:
    """Count on in the rows of followed repositories, in turn, which others then wait for."""
    taken = dict.fromkeys(counts, 0)
    for repo, count in counts.items():
        if count and table in FOLLOWED:
            (taken[repo],) = tx.run(_COUNT_ON.format(table), (count, repo, count)).fetchone()
        elif count:
            taken[repo] = _numbers_in_turn(tx, table, count)
    return taken


def _numbers_in_turn(tx: Tx, table: str, count: int) -> int:
    while True:
        first, last = tx.run(_TAKE.format(table), (count,)).fetchone()
        # Others took some in between; theirs and these would not be apart.
        if last - first + 1 == count:
            return int(first) - 1


def last_number(tx: Tx, table: str, repo: int) -> int:
    statement = _LAST.format(_IDENTITIES.get(table, "no"), table)
    return int(tx.run(statement, (repo,)).fetchone()[0])


def note_erased(tx: Tx) -> None:
    tx.run(_NOTE)


def note_expired(tx: Tx) -> None:
    """Note it as an erasure: a scrub is made at the operator's call alone."""
    note_erased(tx)


def make_scratch(tx: Tx, table: str, columns: str) -> None:
    tx.run(f"CREATE TABLE pg_temp.{table} (seq $place, {columns}) ON COMMIT DROP")


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
    "position": "strpos",
    # No identity: before PostgreSQL 17 a table in partitions has none.
    "number": "BIGSERIAL",
    "lasting": "BIGSERIAL",
    "followed": "BIGINT NOT NULL",
    "place": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "repo": "BIGINT PRIMARY KEY",
    "keyed": ", PRIMARY KEY (repo, {0})",
    "clustered": "",
    "also": "",
    "names": "names",
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
    | \$(?P<call>by|entries|firsts|field|keyed)\((?P<of>[\w.]+)(?:,\ (?P<also>\w+))?\)
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

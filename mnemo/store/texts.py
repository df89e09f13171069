"""
The full text of repositories, by words of the library's own analyser.

Of scripts written without blanks, every three characters are found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import itemgetter

from mnemo.runtime.clock import as_utc
from mnemo.runtime.text import composed, has_unspaced, index_stems, lower_each, slices
from mnemo.store.rows import listed
from mnemo.store.tx import Analysed, Text, Tx

_LONGEST_WORD = 500
"""Characters of a word; an entry of a GIN index has at most 2,700 bytes."""
_KEPT_OF_LONGER = 64

_SUMS = ("text_count", "text_words", "unspaced_count", "unspaced_triples")
_ADD = f"UPDATE repos SET {', '.join(f'{name} = {name} {{0}} ?' for name in _SUMS)}"
_PUT = f"{_ADD.format('+')}, text_puts = text_puts + ? WHERE no = ? RETURNING text_puts"
WORDS, _LOWERED = itemgetter(3), itemgetter(4)
_DROPPED = f"{_ADD.format('-')} WHERE no = ?"
_DROP = """
DELETE FROM texts WHERE repo = ? AND no IN $numbers RETURNING length, length(lowered)
"""
_AT_ONCE = 256
"""
Texts of a repository that SQLite looks through: so many, at most, are not in the index yet. To
index them together takes a third of the time.
"""
_LONG = 3_000, 20_000
"""Words, or triples, of texts that are indexed at once with all before: looking through is slow."""


def stems(text: str) -> list[str]:
    """The words of *text*, folded and stemmed, in order."""
    return [entry(word) for part in slices(composed(text)) for word in index_stems(part)]


def entry(word: str) -> str:
    """*word*, or for a longer one its beginning and digest, joined by what no word holds."""
    if len(word) <= _LONGEST_WORD:
        return word
    digest = hashlib.sha256(word.encode()).hexdigest()
    return f"{word[:_KEPT_OF_LONGER]}…{digest}"


def triples(lowered: str) -> list[str]:
    """Every three characters, once."""
    # Not sorted: that would hold the interpreter for as long as it takes.
    return list(dict.fromkeys(lowered[at : at + 3] for at in range(len(lowered) - 2)))


def analysed(repo: int, text: Text) -> Analysed:
    no, said, at = text
    ascii, lowered = said.isascii(), None
    if not ascii:
        said = composed(said)
        if has_unspaced(said):
            lowered = lower_each(said)
    words = stems(said) if said[_LONGEST_WORD:] else index_stems(said, ascii=ascii)
    return no, repo, (at if at.tzinfo else as_utc(at)).timestamp(), words, lowered


def put_texts(tx: Tx, repo: int, texts: Sequence[Text]) -> None:
    """Insert texts; empty ones have no row."""
    made = [analysed(repo, text) for text in texts if text[1]]
    if not made:
        return
    tx.insert("texts", tx.dialect.text_columns, tx.dialect.text_rows(made))
    count, words = len(made), sum(map(len, map(WORDS, made)))
    unspaced = [*map(len, filter(None, map(_LOWERED, made)))]
    sums = (0, 0)
    if unspaced:
        sums = len(unspaced), sum(max(length - 2, 0) for length in unspaced)
    values = (count, words, *sums, count, repo)
    for (puts,) in tx.run(_PUT, values):
        if words > _LONG[0] or sums[1] > _LONG[1] or puts % _AT_ONCE < count:
            tx.dialect.index_texts(tx, repo)


def drop_texts(tx: Tx, repo: int, rows: Sequence[int]) -> int:
    """Delete texts; give how many there were. Words are gone from the files after a scrub."""
    gone = tx.run(_DROP, (repo, listed(rows))).fetchall()
    if gone:
        parts = [max(length - 2, 0) for _, length in gone if length is not None]
        words = sum(length for length, _ in gone)
        tx.run(_DROPPED, (len(gone), words, len(parts), sum(parts), repo))
    return len(gone)

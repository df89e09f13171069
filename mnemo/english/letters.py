"""
Tell random letters from language, by pairs of letters.

``letters.json`` has, for each family of languages in Latin script, how much likelier a pair
of neighbouring letters is in the family than among random letters, and the common words of
all. ``scripts/fit_letters`` makes it from ``scripts/letters.txt``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mnemo.runtime.text import fold

LETTERS = " abcdefghijklmnopqrstuvwxyz"
"""The blank stands for both ends of a word."""
NEUTRAL = "M"
"""What stands in a table for 0 bits: as likely as among random letters; N, O, … are more."""
STEPS_PER_BIT = 2

_LONGEST_READ = 2_000
_LONGEST_ACRONYM = 5
_SHORTEST_JUDGED = 4
_FEWEST_LETTERS = 8
# One or two words may be a name or a term as odd as "Kyrgyzstan" and "strncpy".
_FEWEST_BITS = {1: -8.0, 2: -4.0}
_FEWEST_BITS_PER_LETTER, _BITS_ENOUGH = 0.7, 14.0
_PUNCTUATION = ".,;:!?\"'“”„«»‘’…()[]¿¡"
_PLAIN = re.compile("[a-z]+(?:['-][a-z]+)*")


class _Model(NamedTuple):
    families: tuple[bytes, ...]
    known: frozenset[str]


@lru_cache(maxsize=1)
def _model() -> _Model:
    read = json.loads(Path(__file__).with_name("letters.json").read_text("utf-8"))
    families = tuple("".join(rows).encode() for rows in read["families"].values())
    return _Model(families, frozenset(" ".join(read["known"]).split()))


def is_gibberish(text: str) -> bool:
    """
    Whether *text* is surely no language at all, as "qxvrt kzwpgh lmbnq?" is.

    ``False`` wherever there is doubt: one common word of any of the languages; a word in
    another script, or with digits or signs inside (code, options, numbers); a capital but at
    the beginning (a name); fewer than eight letters in words of at least four; more than 2,000
    characters. One or two random words may pass as names; of three with five to nine letters
    each, 1 in 20,000 does.
    """
    words = plain_words(text) if len(text) <= _LONGEST_READ else None
    if words is None or not _model().known.isdisjoint(words):
        return False
    # A shorter one may be an abbreviation: "src", "dvd", "hbu".
    judged = [word for word in words if len(word) >= _SHORTEST_JUDGED]
    letters = sum(map(len, judged))
    wanted = min(_FEWEST_BITS_PER_LETTER * letters, _BITS_ENOUGH)
    return letters >= _FEWEST_LETTERS and _bits(judged) < _FEWEST_BITS.get(len(judged), wanted)


def plain_words(text: str) -> list[str] | None:
    """The words of *text*, folded, short acronyms left out; ``None``: one is code or a name."""
    found: list[str] = []
    for token in text.split():
        word = token.strip(_PUNCTUATION)
        if not any(map(str.isalnum, word)) or (word.isupper() and len(word) <= _LONGEST_ACRONYM):
            continue
        uncapitalised = word if found else word[1:]
        folded = fold(word)
        if uncapitalised != uncapitalised.lower() or not _PLAIN.fullmatch(folded):
            return None
        found += folded.replace("'", "").split("-")
    return found


def letter_pairs(words: Iterable[str]) -> Iterator[int]:
    """The place in a table of each pair of neighbouring letters, ends of words included."""
    places = [LETTERS.index(letter) for letter in f" {' '.join(words)} "]
    return (first * len(LETTERS) + second for first, second in pairwise(places))


def _bits(words: list[str]) -> float:
    """How much likelier *words* are in the nearest family than among random letters, log2."""
    pairs = list(letter_pairs(words))
    neutral = len(pairs) * ord(NEUTRAL)
    best = max(sum(map(table.__getitem__, pairs)) for table in _model().families)
    return (best - neutral) / STEPS_PER_BIT

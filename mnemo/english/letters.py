"""
Tell random letters from language, by pairs of letters.

``letters.json`` has, for each family of languages in Latin script, how much likelier a pair is
there than among random letters; ``scripts/fit_letters`` makes it from ``scripts/letters.txt``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from mnemo.english.words import word_set
from mnemo.runtime.text import STOP_WORDS, fold, words

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


@lru_cache(maxsize=1)
def _model() -> tuple[tuple[bytes, ...], frozenset[str]]:
    """The table of each family, and the known words."""
    read = json.loads(Path(__file__).with_name("letters.json").read_text("utf-8"))
    families = tuple("".join(rows).encode() for rows in read["families"].values())
    return families, frozenset(" ".join(read["known"]).split())


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
    if words is None or not _model()[1].isdisjoint(words):
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
    best = max(sum(map(table.__getitem__, pairs)) for table in _model()[0])
    return (best - neutral) / STEPS_PER_BIT


# ── Other languages than English ────────────────────────────────────────────────────────


SHORTEST = 4
"""Words of a Latin script below which nothing is said."""
MOST_READ = 600
"""Characters of a text that are read."""

_ENGLISH = STOP_WORDS | word_set("also even get got may much now one really still two well yes")
# The commonest words of German, Dutch, Spanish, Portuguese, French, Italian, Polish, Turkish,
# Swedish and Danish, without those of one letter.
_FOREIGN = word_set(
    """
    aber auch auf aus bei bin das dass dem den der des die du ein eine einen einer er es für habe
    hat ich ihr ist kann mein meine mich mir mit nach nicht noch nur oder schon sehr sich sie sind
    und uns vom von vor wenn werden wie wir wird wo zu zum zur
    aan als bij dat deze een en geen het hij ik je maar met mijn naar niet ook op te van voor wij ze
    zijn
    al como con cuando de del el ella en es está esta este fue ha hay la las le lo los más mi muy
    nos para pero por porque que se ser sin sobre su sus también tengo un una unos ya
    ao com da das dos ele em eu foi isso meu minha mas mais muito na nas nem no nos não os ou pela
    pelo quando seu sua são também tem um uma você
    au aux avec ce cette ces dans des du elle est et il ils j'ai je les leur lui ma mais mes mon ne
    nous ont par pas plus pour qu'il qui sa ses son sont sur très une vous été être
    che chi ci così della delle dello di gli ho il io loro mia mio nella nel non perché più sono
    un'altra
    ale bardzo być co czy dla do jak jest już mam mi na nie od po się tak tego to tylko ze że
    ama ben bir bu çok da daha de değil evet gibi için ile kadar ki ne ve var
    att av de det där ett från för han har hon inte jag med men mig min mycket om på sig ska som
    till var vi är
    af at du ej er hvad hvis ikke jeg kan min og også på skal
    """
).difference(_ENGLISH)


def is_foreign(text: str) -> bool | None:
    """Whether *text* is in another language than English; ``None``: too little of it is known."""
    text = text[:MOST_READ]
    letters = [character for character in text if character.isalpha()]
    other = sum(not _is_latin(character) for character in letters)
    if other * 2 > len(letters):
        return True
    said = words(text)
    if len(said) < SHORTEST:
        return None
    english = sum(word in _ENGLISH for word in said)
    foreign = sum(
        (word in _FOREIGN and word not in _ENGLISH) or not word.isascii() for word in said
    )
    if max(english, foreign) * 10 < len(said):
        return None
    return foreign > english


def _is_latin(character: str) -> bool:
    return character.isascii() or unicodedata.name(character, "").startswith("LATIN")

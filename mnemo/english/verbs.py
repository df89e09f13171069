"""
Where the finite verb of an English clause stands, by the order and the endings of its words.

No list of verbs decides: after "I" a word that belongs to no closed class is a verb,
whatever it is, and so is "kindles" before "the". Only where order and ending leave a
noun possible ("my dog barks at night", "my travel plans for May") common verbs count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from mnemo.english.forms import (
    ADVERBS,
    AUXILIARIES,
    BASE_VERBS,
    DESCRIPTIONS,
    MODALS,
    NUMBER_WORDS,
    PREPOSITIONS,
    is_adverb,
    is_past,
    with_s,
    word_set,
)

__all__ = ["DETERMINERS", "FINITE", "THIRD_FORMS", "finite_verb", "is_gerund", "tokens_of"]

_TOKEN = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*|\d[\w.,:%]*|[^\w\s]")

FINITE = AUXILIARIES - word_set("been be")
"""Auxiliaries that are finite by themselves."""
# Plurals far more often than verbs.
_PLURALS = word_set(
    "books plants tests plans visits dreams drinks changes answers reports records studies hikes"
)
THIRD_FORMS = (frozenset(map(with_s, BASE_VERBS)) - _PLURALS) | {"has", "is", "does"}
"""Third persons of common verbs that are no common plurals."""
_CONTRACTED = word_set("it's that's there's he's she's what's who's here's everything's one's")
_TAILS = ("'m", "'re", "'ve", "'ll", "n't", "'d")

_SUBJECTS = word_set("i we he she they you")
_SINGULAR_SUBJECTS = word_set(
    """
    it that this everyone everybody someone somebody nobody everything nothing something anyone
    """
)
_PLURAL_SUBJECTS = word_set(
    """
    people folks kids children men women police both all most many some others few these those
    """
)
DETERMINERS = word_set(
    """
    the a an my our your his her their its this that these those some any every each no another
    whose both all several many
    """
)
_OBJECTS = word_set(
    """
    me you him her us them it myself yourself himself herself itself ourselves themselves each
    everyone everything something nothing anything someone
    """
)
_CONJUNCTIONS = word_set("and or but nor so because if although unless whether either neither")
_CLOSED = (
    DETERMINERS | _OBJECTS | _CONJUNCTIONS | _SUBJECTS | (PREPOSITIONS - {"like"})
    | word_set("i not mine ours yours theirs hers much more most such other there here yes no ok")
)  # fmt: skip
_RELATIVE = word_set("that which whom who what")
# Nouns that count occasions and spans: "three times a week", "last summer I …".
_TIMES = word_set(
    """
    time times day days night nights week weeks weekend weekends month months year years hour hours
    minute minutes second seconds morning mornings evening evenings afternoon afternoons today
    yesterday tomorrow tonight summer summers winter winters spring autumn fall life monday
    tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays
    saturdays sundays january february march april may june july august september october november
    december christmas easter semester season moment
    """
)
_COUNTS = (
    frozenset(NUMBER_WORDS)
    | word_set("many few several some all most other last next first dozen hundred various")
) - {"a", "an"}
_NO_THIRD = ("ss", "us", "is", "as", "os", "ics", "ings", "ments", "tions", "nesses", "'s")
_VOWEL = re.compile(r"[aeiouy]")


@lru_cache(maxsize=4_096)
def tokens_of(text: str) -> tuple[str, ...]:
    """The words and marks of *text*, apostrophes straight."""
    return tuple(_TOKEN.findall(text.replace("’", "'")))


def finite_verb(words: Sequence[str], *, sure: bool = True) -> int | None:
    """
    Find the first finite verb in *words*, which ``tokens_of`` gave.

    Args:
        sure: Whether a word that may as well be a plural ("my dog barks at night") is none.

    Returns:
        Its index, or ``None``: a fragment, an order, or a sentence too short to tell.
    """
    lower = [word.lower() for word in words]
    before: int | None = None
    for at, word in enumerate(lower):
        if word[0].isalpha():
            if _is_finite(words, lower, at, before, sure):
                return at
            if not _may_stand_between(lower, at):
                before = at
        elif word[0].isdigit():
            before = at
    return None


def _may_stand_between(lower: Sequence[str], at: int) -> bool:
    """Whether a word may stand between a subject and its verb: "no longer", "kind of"."""
    word, following = lower[at], lower[at + 1] if at + 1 < len(lower) else ""
    if word == "no":
        return following == "longer"
    if word == "of":
        return at > 0 and lower[at - 1] in ("kind", "sort")
    if word in ("kind", "sort"):
        return following == "of"
    return word in ("longer", "not", "myself", "ourselves") or (is_adverb(word) and word != "all")


def _is_finite(
    words: Sequence[str], lower: Sequence[str], at: int, before: int | None, sure: bool
) -> bool:
    word = lower[at]
    if word in FINITE or word in MODALS or word in _CONTRACTED or word.endswith(_TAILS):
        return True
    if before is None or word in _CLOSED or word in ADVERBS:
        return False
    if lower[before] in _SUBJECTS:
        return not is_gerund(word) and not _is_relative(lower, before)
    if lower[before] in _SINGULAR_SUBJECTS and (before == 0 or lower[before] not in _RELATIVE):
        return is_past(word) or _is_third(words, at)
    return _follows_noun(words, lower, at, before, sure)


def _follows_noun(
    words: Sequence[str], lower: Sequence[str], at: int, before: int, sure: bool
) -> bool:
    word, previous = lower[at], lower[before]
    if previous in _CLOSED and previous not in _PLURAL_SUBJECTS:
        return False
    if word in THIRD_FORMS or (is_past(word) and word not in DESCRIPTIONS):
        return True
    plural = _is_plural(previous) or _is_joined(lower, before)
    if plural and word in BASE_VERBS:
        return True
    if previous[0].isdigit() or previous in _COUNTS or word in _TIMES:
        return False
    following = lower[at + 1] if at + 1 < len(lower) else ""
    # Before "the" and behind "never" no noun stands.
    verbal = following in DETERMINERS or following in _OBJECTS or _may_stand_between(lower, at - 1)
    if _is_third(words, at):
        return verbal or _is_open(following) or not sure
    return verbal and plural and _is_open(word) and words[at] == word and not is_gerund(word)


def is_gerund(word: str) -> bool:
    """Whether *word* (lower case) has the ending "-ing": "running", but not "bring"."""
    return word.endswith("ing") and _VOWEL.search(word[:-3]) is not None


def _is_third(words: Sequence[str], at: int) -> bool:
    word = words[at]
    if len(word) < 4 or not word.endswith("s") or word.endswith(_NO_THIRD):
        return False
    return word.islower() and word not in _PLURALS and word not in _TIMES


def _is_open(word: str) -> bool:
    return word[:1].isalpha() and word not in _CLOSED and not is_adverb(word) and word != "like"


def _is_plural(word: str) -> bool:
    if word in _PLURAL_SUBJECTS:
        return True
    return len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "'s"))


def _is_joined(lower: Sequence[str], at: int) -> bool:
    """Whether the noun at *at* is the second of two: "Ada and Bo", "my wife and my son"."""
    start = at - 1
    while start > 0 and lower[start] in DETERMINERS:
        start -= 1
    return start > 0 and lower[start] == "and"


def _is_relative(lower: Sequence[str], at: int) -> bool:
    """Whether the pronoun at *at* begins a relative clause: "the cake I baked"."""
    if at == 0:
        return False
    noun = lower[at - 1]
    if noun in _RELATIVE:
        return at > 1 and _is_open(lower[at - 2])
    if noun in _TIMES or not _is_open(noun):
        return False
    return lower[0] in DETERMINERS or (at == 1 and _is_plural(noun))

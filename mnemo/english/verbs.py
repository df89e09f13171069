"""Find the finite verb of an English clause by order and endings of words; no list decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mnemo.english.words import (
    ADVERBS,
    AUXILIARIES,
    BASE_VERBS,
    DESCRIPTIONS,
    MODALS,
    MONTHS,
    NUMBER_WORDS,
    PREPOSITIONS,
    WEEKDAYS,
    is_adverb,
    is_past,
    with_s,
    word_set,
)

_TOKEN = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*|\d[\w.,:%]*|[^\w\s]")

_FINITE = AUXILIARIES - word_set("been be")
# Plurals far more often than verbs.
_PLURALS = word_set(
    "books plants tests plans visits dreams drinks changes answers reports records studies hikes"
)
_THIRD_FORMS = (frozenset(map(with_s, BASE_VERBS)) - _PLURALS) | {"has", "is", "does"}
_BE = word_set("is are was were am isn't aren't")
_ASKS = word_set("who whom whose which why where how when what")
_ASKS_WHICH = word_set("whose which how what")
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
    whose both all several many most
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
    DETERMINERS
    | _OBJECTS
    | _CONJUNCTIONS
    | _SUBJECTS
    | (PREPOSITIONS - {"like"})
    | word_set(
        """
        i not mine ours yours theirs hers much more most such half quite other there here
        everywhere somewhere anywhere nowhere yes no ok
        """
    )
)
# Closed words that may stand last before a verb: "a friend of mine", "the one over there".
_CLOSERS = word_set(
    "mine ours yours theirs hers here there around up down out off in on and or but"
)
_OPENERS = _CONJUNCTIONS | word_set("that when while since what how why where as who which")
# Before these a word in "-s" is a verb: "delves into", "goes back".
_VERB_STANDS_BEFORE = DETERMINERS | _OBJECTS | word_set("into onto away back")
# What tells where, when or how.
_ADVERBIAL = word_set(
    "in at on by near under behind when while every all after before during until"
)
_LONGEST_SUBJECT = 5
_RELATIVE = word_set("that which whom who what")
# Nouns that count occasions and spans: "three times a week", "last summer I …".
_TIMES = word_set(
    """
    time times day days night nights week weeks weekend weekends month months year years hour hours
    minute minutes second seconds morning mornings evening evenings afternoon afternoons today
    yesterday tomorrow tonight summer summers winter winters spring autumn fall life christmas
    easter semester season moment
    """
).union(MONTHS, WEEKDAYS, (f"{day}s" for day in WEEKDAYS))
_COUNTS = (
    frozenset(NUMBER_WORDS)
    | word_set("many few several some all most other last next first dozen hundred various")
) - {"a", "an"}
_NO_THIRD = ("ss", "us", "is", "as", "os", "ics", "'s")
_VOWEL = re.compile(r"[aeiouy]")


@lru_cache(maxsize=256)
def tokens_of(text: str) -> tuple[str, ...]:
    """The words and marks of *text*, apostrophes straight."""
    return tuple(_TOKEN.findall(text.replace("’", "'")))


@lru_cache(maxsize=256)
def finite_verb(words: tuple[str, ...], *, sure: bool = True) -> int | None:
    """
    Find the index of the first finite verb in *words*, which ``tokens_of`` gave. ``None``: a
    fragment, an order, or too short to tell. Unless *sure*, a word that may as well be a plural
    counts: "my dog barks at night".
    """
    clause = _Clause(words, [word.lower() for word in words], sure)
    before: int | None = None
    for at, word in enumerate(clause.lower):
        if word[0].isalpha():
            if _is_finite(clause, at, before):
                return at
            # At the beginning "Emily" is as likely as "honestly".
            if at == 0 or not _may_stand_between(clause.lower, at):
                before = at
        elif word[0].isdigit():
            before = at
    return None


def may_have_verb(words: tuple[str, ...]) -> bool:
    """Whether *words* may have a verb that looks like a plural: "my dog barks at night"."""
    verb = finite_verb(words, sure=False)
    if verb is None or verb > _LONGEST_SUBJECT or verb + 1 >= len(words):
        return False
    subject = [word.lower() for word in words[:verb]]
    return (
        subject[0] in DETERMINERS
        and not any(word in _CLOSED - DETERMINERS - {"of"} for word in subject[1:])
        and words[verb + 1].lower() in _ADVERBIAL
    )


def is_order(words: Sequence[str]) -> bool:
    """Whether *words* begin with the base form of a verb: "varnish the table"."""
    if len(words) < 2:
        return False
    first, second = words[0].lower(), words[1].lower()
    if first in BASE_VERBS:
        return second not in _CONJUNCTIONS
    based = _is_open(first) and not (is_past(first) or is_gerund(first) or _is_plural(first))
    return based and second != "no" and (second in DETERMINERS or second in _OBJECTS)


def is_question(words: Sequence[str]) -> bool:
    """Whether *words* ask, by their order: "does Ada mend it", "who is Eve"."""
    if len(words) < 2:
        return False
    first, second = words[0].lower(), words[1].lower()
    if first in _ASKS:
        third = words[2].lower() if first in _ASKS_WHICH and len(words) > 2 else ""
        return second in _FINITE or second in MODALS or third in _BE
    if first not in AUXILIARIES or first in ("may", "been", "be"):
        return False
    if second in _SUBJECTS or second in _SINGULAR_SUBJECTS or second == "there":
        return True
    if second in DETERMINERS:
        return first in _BE or first in MODALS or first == "has"
    if first in ("do", "does", "did") and _is_plural(second):
        return len(words) > 2 and _is_open(words[2].lower())
    return words[1][0].isupper() and first not in ("have", "had")


# ── Is this word the verb? ───────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause as written and in lower case; *sure*: what may as well be a plural is no verb."""

    words: tuple[str, ...]
    lower: list[str]
    sure: bool

    def after(self, at: int) -> str:
        """The word or mark behind *at*, in lower case; empty at the end."""
        return self.lower[at + 1] if at + 1 < len(self.lower) else ""


def _is_finite(clause: _Clause, at: int, before: int | None) -> bool:
    """Whether the word *at* is a finite verb, given its last word *before*, adverbs aside."""
    lower, word = clause.lower, clause.lower[at]
    if word in _FINITE or word in MODALS or word in _CONTRACTED or word.endswith(_TAILS):
        return not (word in ("do", "have") and at > 0 and lower[at - 1] == "to")
    if before is None or word in _CLOSED or word in ADVERBS or _may_stand_between(lower, at):
        return False
    previous = lower[before]
    if previous in _SUBJECTS:
        return not is_gerund(word) and _is_subject(lower, before)
    if previous in _SINGULAR_SUBJECTS and (before == 0 or previous not in _RELATIVE):
        return is_past(word) or _is_third(clause.words[at])
    if previous in _CLOSED and not _ends_subject(lower, before):
        return False
    return _is_common(lower, at, before) or _is_by_place(clause, at, before)


def _is_common(lower: Sequence[str], at: int, before: int) -> bool:
    """Whether a common verb stands behind what may be its subject."""
    word = lower[at]
    if word in _THIRD_FORMS or (is_past(word) and word not in DESCRIPTIONS):
        return True
    return word in BASE_VERBS and _is_many(lower, before)


def _is_by_place(clause: _Clause, at: int, before: int) -> bool:
    """Whether the word *at* behind a noun is a verb because no noun would stand there."""
    word, previous, following = clause.lower[at], clause.lower[before], clause.after(at)
    if previous[0].isdigit() or previous in _COUNTS or word in _TIMES:
        return False
    # Before "the" or a name and behind "never" no noun stands.
    named = clause.words[at + 1 : at + 2] != () and clause.words[at + 1][0].isupper()
    verbal = following in _VERB_STANDS_BEFORE or _may_stand_between(clause.lower, at - 1)
    verbal = verbal or (named and following not in _TIMES)
    if _is_third(clause.words[at]):
        return verbal or (previous not in _CLOSERS and _is_rather_third(clause, word, following))
    if is_past(word):
        return verbal
    many = _is_many(clause.lower, before) and previous not in _CLOSERS
    based = many and clause.words[at] == word and not is_gerund(word)
    return based and (verbal or not clause.sure or clause.lower[:2] == ["me", "and"])


def _is_rather_third(clause: _Clause, word: str, following: str) -> bool:
    if not clause.sure:
        return True
    if word in _PLURALS or word.endswith(("ings", "ments", "tions", "nesses")):
        return False
    return _is_open(following) and not is_gerund(following)


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


# ── What may be the subject ──────────────────────────────────────────────────────────


def _is_subject(lower: Sequence[str], at: int) -> bool:
    """Whether the pronoun at *at* is the subject of the main clause: not "the cake I baked"."""
    if at == 0:
        return True
    noun = lower[at - 1]
    if lower[at] == "you" and noun not in _OPENERS:
        return False
    if noun in _RELATIVE:
        return at == 1 or not _is_open(lower[at - 2])
    if noun in _TIMES or not _is_open(noun):
        return True
    return lower[0] not in DETERMINERS and not (at == 1 and _is_plural(noun))


def _ends_subject(lower: Sequence[str], at: int) -> bool:
    """Whether the closed word at *at* may stand last before a verb."""
    word = lower[at]
    governed = at > 0 and lower[at - 1] in PREPOSITIONS
    return word in _PLURAL_SUBJECTS or word in _CLOSERS or (governed and word in _OBJECTS)


def _is_many(lower: Sequence[str], at: int) -> bool:
    """Whether the noun at *at* takes the base form: a plural, or the second of two."""
    if _is_plural(lower[at]):
        return True
    start = at - 1
    while start > 0 and lower[start] in DETERMINERS:
        start -= 1
    return start > 0 and lower[start] == "and" and not is_gerund(lower[at])


# ── Forms ────────────────────────────────────────────────────────────────────────────


def is_gerund(word: str) -> bool:
    """Whether *word* (lower case) has the ending "-ing": "running", but not "bring"."""
    return word.endswith("ing") and _VOWEL.search(word[:-3]) is not None


def _is_third(word: str) -> bool:
    """Whether *word*, as written, has the form of a third person; so have most plurals."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(_NO_THIRD):
        return False
    return word.islower() and word not in _TIMES


def _is_open(word: str) -> bool:
    """Whether *word* belongs to no closed class; "like" does to one too many."""
    return word[:1].isalpha() and word not in _CLOSED and not is_adverb(word) and word != "like"


def _is_plural(word: str) -> bool:
    if word in _PLURAL_SUBJECTS:
        return True
    return len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "'s"))

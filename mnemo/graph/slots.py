"""
What a fact claims about a slot: an attribute that has one value at a time.

A sentence that no row of the table fits, that hedges, asks or quotes, claims
nothing; so what is not understood cannot contradict anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mnemo.graph.slot_table import (
    ATTRIBUTES,
    CHANGED,
    COPULA,
    ENDED,
    HEDGES,
    HOLDS,
    SPELLINGS,
    UNOWNED,
    WHOSE,
)
from mnemo.graph.wording import BRACKETS, LEADING, UNITS, said_number, tokens
from mnemo.runtime.text import STOP_WORDS, fold, stem

__all__ = ["Claim", "claim_keys", "claims", "clash", "rival_keys"]


@dataclass(frozen=True, slots=True)
class Claim:
    """
    One thing that a text says of a slot.

    Attributes:
        slot: Subject and attribute, e.g. ``"bo travel budget"``; of an activity the
            subject and its verb, e.g. ``"ana drink"``.
        value: Terms of the value; of an activity, of what it is done with.
        holds: Whether the value is said to hold, or to have ended; an ended claim
            without a value ends whatever held.
        activity: Whether it is something done, of which several go together.
    """

    slot: str
    value: frozenset[str]
    holds: bool = True
    activity: bool = False


# ── Reading a sentence ───────────────────────────────────────────────────────────────

_SUBJECT = r"(?P<s>[^\s,;:\"“]+(?: [^\s,;:\"“]+){0,5}?) "
_FINAL = re.compile(r"[.!\s]+$")
_WORD = re.compile(r"[€$£¥%]|[^\W_]+(?:['’.,:/@-][^\W_]+)*")
_DIGIT = re.compile(r"\d")
# Behind a statement these say that it holds, which the present tense does too.
_LASTING = re.compile(
    r",? (?:now|nowadays|these days|currently|at present|at the moment|right now|for now"
    r"|from now on|as of (?:now|today))$"
)
_PRESENT = re.compile(r"^(?:(?:new|current|present|latest|updated|actual) )+")
_VAGUE_TIME = re.compile(r"\b(?:in (?:19|20)\d\d|years ago|as a (?:child|kid|student)|back in)\b")
_FILLERS = frozenset(
    ("around", "roughly", "approximately", "circa", "nearly", "almost", "exactly", "now")
)
_TIMED = re.compile(r"(?:deadline|date|birthday|appointment)$")
_NEGATED = re.compile(r"^(?:no longer|not) ")
_CUT = re.compile(
    r"(?: (?:since|because|after|when|while|as of|instead|rather than|but|which|so)"
    r"|, (?:he|she|it|they|and|so|who|which|where|that))\b.*"
)
_LONGEST_VALUE = 10
_LONGEST_TEXT = 600
_ASKS_OR_QUOTES = frozenset('?"“”？')
_AS_SAID = " said: "
"""Stands before a statement that is kept in its speaker's words."""


def _row(attribute: str, pattern: str) -> tuple[str, re.Pattern[str]]:
    return attribute, re.compile(_SUBJECT + pattern)


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[str, re.Pattern[str], bool], ...]:
    """Attribute, pattern of a sentence from its beginning, and whether the value holds."""
    said = [(*_row(*row), True) for row in HOLDS] + [(*_row(*row), False) for row in ENDED]
    return tuple(said)


@lru_cache(maxsize=1)
def _attribute_rows() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    """Pattern of a sentence about a named attribute, and what its value must look like."""
    return tuple(
        (re.compile(pattern), re.compile(shape))
        for shape, names in ATTRIBUTES
        for pattern in _attribute_patterns(names)
    )


def _attribute_patterns(names: str) -> Iterator[str]:
    a = rf"(?P<a>(?:[\w-]+ ){{0,3}}?(?:{names}))"
    yield rf"(?P<s>.+?)(?:['’]s|(?<=s)['’]) {a} {COPULA}(?P<v>.+)"
    yield rf"(?:The|the|Our|our) {a} (?:of|for) (?P<s>.+?) {COPULA}(?P<v>.+)"
    yield rf"(?:The|the) (?P<s>(?:[\w-]+ ){{0,3}}?)(?P<a>{names}) {COPULA}(?P<v>.+)"
    yield rf"{_SUBJECT}(?:has|have) an? {a} of (?P<v>.+)"
    yield rf"{_SUBJECT}(?:(?:has|have) )?{CHANGED} {WHOSE}{a} (?:from .+? )?to (?P<v>.+)"


_ADVERB = r"(?:(?:now|currently|still|also|really|often|usually|always) )*"
_NAMED = r"(?P<s>(?:The |the )?[^\W\d_a-z][\w.-]*(?: [^\W\d_a-z][\w.-]*){0,3}(?:['’]s [\w-]+)?)"
_ACTIVITIES: tuple[tuple[re.Pattern[str], bool], ...] = (
    (
        re.compile(
            rf"{_NAMED} (?:is|are) (?:not|no longer) (?P<v>\w+ing\b.*?)"
            r"(?: any ?(?:more|longer))?$"
        ),
        False,
    ),
    (re.compile(rf"{_NAMED} (?:has |have |is |are )?no longer (?P<v>\w.*)"), False),
    (
        re.compile(
            rf"{_NAMED} (?:(?:has|have) )?(?:recently |just |finally )?"
            r"(?:stopped|quit|given up|gave up|ceased) (?P<v>\w+ing\b.*)"
        ),
        False,
    ),
    (
        re.compile(
            rf"{_NAMED} (?:does not|doesn['’]t|do not|don['’]t|(?:has |have )?never)"
            r" (?P<v>\w.*?)(?: any ?(?:more|longer))?$"
        ),
        False,
    ),
    (re.compile(rf"{_NAMED} used to (?P<v>\w.*)"), False),
    (re.compile(rf"{_NAMED} {_ADVERB}(?:is|are|has been|have been) (?P<v>\w+ing\b.*)"), True),
    (re.compile(rf"{_NAMED} {_ADVERB}(?:has |have )?(?:started|begun) (?P<v>\w+ing\b.*)"), True),
    (re.compile(rf"{_NAMED} {_ADVERB}(?P<v>[a-z]+s\b.*)"), True),
)
"""How an activity is said to go on, or to have ended."""
_IS_NO_LONGER = re.compile(r" (?:is|are) no longer (?!\w+ing\b)")
_BASES = {"has": "have", "does": "do", "goes": "go"}


@lru_cache(maxsize=2_048)
def claims(text: str) -> tuple[Claim, ...]:
    """What *text* claims, each once; nothing if it hedges, asks, quotes, or tells a story."""
    if len(text) > _LONGEST_TEXT or _AS_SAID in text or not _ASKS_OR_QUOTES.isdisjoint(text):
        return ()
    if not HEDGES.isdisjoint(_lower_words(text)):
        return ()
    bracketed = " ".join(BRACKETS.findall(text))
    bare = re.sub(r"\s+", " ", BRACKETS.sub(" ", text)).replace(" ,", ",")
    bare = _LASTING.sub("", LEADING.sub("", _FINAL.sub("", bare.strip())))
    said = (*_slot_claims(bare), *_attribute_claims(bare, bracketed))
    return tuple(dict.fromkeys((*said, *_activity_claims(bare))))


def _lower_words(text: str) -> set[str]:
    """Words written in lower case: the month of May is no hedge."""
    return {word for word in re.findall(r"[^\W\d_]+", text) if word.islower()}


def _slot_claims(text: str) -> Iterator[Claim]:
    for attribute, pattern, holds in _rows():
        found = pattern.match(text)
        if found is None or (_VAGUE_TIME.search(text) and attribute == "residence"):
            continue
        if subject := _subject(found["s"]):
            yield Claim(f"{subject} {attribute}", _terms(found["v"] or ""), holds)


def _attribute_claims(text: str, bracketed: str) -> Iterator[Claim]:
    for pattern, shape in _attribute_rows():
        found = pattern.match(text)
        if found is None or not (subject := _owner(found["s"], found["a"])):
            continue
        holds = _NEGATED.match(found["v"]) is None
        said = _CUT.sub("", _NEGATED.sub("", found["v"]))
        if not shape.search(said) or len(said.split()) > _LONGEST_VALUE:
            continue
        attribute = _attribute(found["a"])
        timed = bool(bracketed and _TIMED.search(attribute))
        yield Claim(f"{subject} {attribute}", _terms(bracketed if timed else said), holds)


def _activity_claims(text: str) -> Iterator[Claim]:
    for pattern, holds in _ACTIVITIES:
        found = pattern.match(text)
        subject = _subject(found["s"]) if found else ""
        if found is None or not subject:
            continue
        verb, *others = tokens(_CUT.sub("", found["v"]))
        if _IS_NO_LONGER.search(text):
            verb, others = "is", [verb, *others]
        what = _terms(" ".join(others))
        yield Claim(f"{subject} {stem(_BASES.get(verb, verb))}", what, holds, activity=True)
        return


def _owner(said: str, attribute: str) -> str:
    """Whose *attribute* it is; ``"the"``: a text that names no owner speaks of the only one."""
    words = _PRESENT.sub("", f"{fold(said)} ".lstrip()).strip()
    return _subject(words) if words else ("the" if attribute in UNOWNED else "")


def _attribute(said: str) -> str:
    words = _PRESENT.sub("", fold(said))
    for spelling, kept in SPELLINGS.items():
        words = re.sub(
            rf"\b{re.escape(spelling)}$" if " " in spelling else rf"\b{spelling}\b", kept, words
        )
    return words


def _subject(said: str) -> str:
    """The words of a subject; empty if it is none, or nobody could tell whose it is."""
    words = [word.removesuffix("'s") for word in fold(said).strip().split()]
    words = words[1:] if words[:1] in (["the"], ["a"], ["an"]) else words
    if not words or any(word in _NO_SUBJECT for word in words):
        return ""
    return " ".join(words)


_NO_SUBJECT = frozenset(
    """
    he she it they this that these those his her their its i we you who which what there
    somebody someone everybody everyone nobody nothing not than as to from in at
    is are was were am be been has have had does do did will would can could may might must
    should lives works likes loves hates prefers wants needs uses moved lived worked joined
    left owns plays speaks studies visited adopted bought started stopped quit said asked
    told thinks planned plans enjoys drinks eats runs got made took went bakes teaches
    returned failed passed created fixed changed became turned costs contains supports
    no never now also still just recently currently actually
    """.split()  # noqa: SIM905
)


def _terms(said: str) -> frozenset[str]:
    words = (fold(word).strip(".,:/") for word in _WORD.findall(said))
    return frozenset(
        _term(word) for word in words if word not in STOP_WORDS and word not in _FILLERS
    )


def _term(word: str) -> str:
    if _DIGIT.search(word):
        return said_number(word.replace(",", ""))
    return UNITS.get(word) or stem(word)


# ── Comparing ────────────────────────────────────────────────────────────────────────


def clash(a: Claim, b: Claim) -> bool:
    """Whether two claims cannot both hold; in doubt they can."""
    if a.slot != b.slot or a.activity != b.activity or not (a.holds or b.holds):
        return False
    if a.activity:
        return a.holds != b.holds and _has_ended(*((a, b) if b.holds else (b, a)))
    if a.holds and b.holds:
        return _differ(a.value, b.value)
    ended, other = (a, b) if b.holds else (b, a)
    return not ended.value or ended.value <= other.value or other.value <= ended.value


def _has_ended(ended: Claim, other: Claim) -> bool:
    """Whether what ended is what *other* is about: smoking, but not all drinking with tea."""
    return ended.value <= other.value if ended.value else not other.value


def _differ(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether two values exclude each other: neither is a part of the other, both are of a kind."""
    if a <= b or b <= a:
        return False
    return any(map(_DIGIT.search, a)) == any(map(_DIGIT.search, b))


# ── Keys ─────────────────────────────────────────────────────────────────────────────


def claim_keys(text: str) -> tuple[str, ...]:
    """The keys under which facts that claim something about a slot are found."""
    return tuple(dict.fromkeys(_key(claim, claim.holds) for claim in claims(text)))


def rival_keys(text: str) -> tuple[str, ...]:
    """The ``claim_keys`` of texts that may contradict *text*."""
    return tuple(dict.fromkeys(_key(claim, not claim.holds) for claim in claims(text)))


def _key(claim: Claim, holds: bool) -> str:
    """Activities are many: only an end looks for what goes on, and the other way round."""
    if not claim.activity:
        return f"?{claim.slot}"
    return f"{'~' if holds else '!'}{claim.slot}"

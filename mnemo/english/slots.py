"""Slots: attributes with one value at a time. A sentence that is not understood claims nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from mnemo.english.canonical import Clause, Said, said_in
from mnemo.english.endings import ending_keys, ends, standing_keys
from mnemo.english.entities import tokens
from mnemo.english.slot_table import (
    ATTRIBUTES,
    CHANGED,
    COPULA,
    DIGIT,
    ENDED,
    EVENTS,
    HOLDS,
    OWN,
    SPELLINGS,
    SYNONYMS,
    TOLD_BY,
    UNOWNED,
    WHOSE,
    SlotClaim,
    filled_slots,
    terms_of_value,
)
from mnemo.english.words import word_set
from mnemo.runtime.text import fold, stem

# ── Reading a sentence ───────────────────────────────────────────────────────────────

_SUBJECT = r"(?P<s>[^\s,;:\"“]+(?: [^\s,;:\"“]+){0,5}?) "
_PRESENT = re.compile(r"^(?:(?:new|current|present|latest|updated|actual) )+")
_VAGUE_TIME = re.compile(r"\b(?:in (?:19|20)\d\d|years ago|as a (?:child|kid|student)|back in)\b")
_TIMED = re.compile(r"(?:deadline|date|birthday|appointment)$")
_NEGATED = re.compile(r"^(?:no longer|not) ")
_CUT = re.compile(
    r"(?: (?:since|because|after|when|while|as of|instead|rather than|but|which|so)"
    r"|, (?:he|she|it|they|and|so|who|which|where|that))\b.*"
)
_LONGEST_VALUE = 10


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[tuple[str, ...], re.Pattern[str], bool, bool], ...]:
    """Attributes, pattern of a whole sentence, whether the value holds, whether it is an event."""
    told: list[tuple[tuple[str, ...], str, bool, bool]] = [
        ((attribute,), pattern, holds, False)
        for rows, holds in ((HOLDS, True), (ENDED, False))
        for attribute, patterns in rows.items()
        for pattern in patterns
    ]
    told += ((attributes, f"(?:{pattern})", False, True) for attributes, pattern in EVENTS)
    return tuple((of, re.compile(_SUBJECT + said), holds, ev) for of, said, holds, ev in told)


@lru_cache(maxsize=1)
def _attribute_rows() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    """Pattern of a sentence about a named attribute, and what its value must look like."""
    return tuple(
        (re.compile(pattern), re.compile(shape))
        for shape, names in ATTRIBUTES
        for pattern in _attribute_patterns(names)
    )


@lru_cache(maxsize=1)
def _any_attribute() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(names for _, names in ATTRIBUTES)})")


def _attribute_patterns(names: str) -> Iterator[str]:
    a = rf"(?P<a>(?:[\w-]+ ){{0,3}}?(?:{names}))"
    yield rf"(?P<s>.+?)(?:['’]s|(?<=s)['’]) {a} {COPULA}(?P<v>.+)"
    yield rf"(?:The|the|Our|our|.+?['’]s) {a} (?:of|for) (?P<s>.+?) {COPULA}(?P<v>.+)"
    yield rf".+? {CHANGED} {WHOSE}{a} (?:of|for) (?P<s>.+?) (?:from .+? )?to (?P<v>.+)"
    yield rf"(?:The|the) (?P<s>(?:[\w-]+ ){{0,3}}?)(?P<a>{names}) {COPULA}(?P<v>.+)"
    yield rf"{_SUBJECT}(?:has|have) an? {a} of (?P<v>.+)"
    yield rf"{_SUBJECT}(?:(?:has|have) )?{CHANGED} {WHOSE}{a} (?:from .+? )?to (?P<v>.+)"


_ADVERB = r"(?:(?:now|currently|still|also|really|often|usually|always) )*"
_NAMED = r"(?P<s>(?:The |the )?[^\W\d_a-z][\w.-]*(?: [^\W\d_a-z][\w.-]*){0,3}(?:['’]s [\w-]+)?)"
_ACTIVITIES = [
    (re.compile(rf"{_NAMED} {said}"), holds)
    for said, holds in (
        (r"(?:is|are) (?:not|no longer) (?P<v>\w+ing\b.*?)(?: any ?(?:more|longer))?$", False),
        (r"(?:has |have |is |are )?no longer (?P<v>\w.*)", False),
        (
            r"(?:(?:has|have) )?(?:recently |just |finally )?"
            r"(?:stopped|quit|given up|gave up|ceased) (?P<v>\w+ing\b.*)",
            False,
        ),
        (
            r"(?:does not|doesn['’]t|do not|don['’]t|(?:has |have )?never)"
            r" (?P<v>\w.*?)(?: any ?(?:more|longer))?$",
            False,
        ),
        (r"used to (?P<v>\w.*)", False),
        (rf"{_ADVERB}(?:is|are|has been|have been) (?P<v>\w+ing\b.*)", True),
        (rf"{_ADVERB}(?:has |have )?(?:started|begun) (?P<v>\w+ing\b.*)", True),
        (rf"{_ADVERB}(?!has (?:all |both |just )?\w+(?:ed|en|wn)\b)(?P<v>[a-z]+s\b.*)", True),
    )
]
"""How an activity is said to go on, or to have ended."""
_HABIT = re.compile(
    rf"(?P<s>(?:the |The )?[^\s,;:]+(?: [^\s,;:]+){{0,4}}?) {_ADVERB}(?P<verb>is|are|[a-z]+s)"
    r" (?:(?:now|back|again|only|still) )*(?!an? )"
    r"(?:(?P<prep>in|on|at|with|by|from|for|to|every|via)\b )?"
    r"(?P<v>[^,;]+)$"
)
_HABITS = word_set(
    "is are takes goes drives rides commutes runs starts begins opens closes ends works uses"
    " deploys meets sits parks sleeps stays banks shops swims trains cycles walks travels"
)
"""Verbs of which there is one way at a time, where one says "now"."""
_STATE_VERBS = (" is", " have")
_LONGEST_HABIT = 3
_LONGEST_STATE = 2
_OF_A_THING = re.compile(r"^the |['’]s ", re.IGNORECASE)
_IS_NO_LONGER = re.compile(r" (?:is|are) no longer (?!\w+ing\b)")
_BASES = {"has": "have", "does": "do", "goes": "go"}


@lru_cache(maxsize=1_024)
def claims(text: str) -> tuple[SlotClaim, ...]:
    """Extract the claims of *text*, each once; none of what hedges, asks, quotes, or is long."""
    return tuple(dict.fromkeys(_claims(said_in(text))))


def _claims(whole: Said) -> Iterator[SlotClaim]:
    for clause in whole.clauses:
        if not clause.is_sure:
            continue
        found = (
            *_slot_claims(clause.text),
            *_attribute_claims(clause, whole.speaker),
            *filled_slots(clause.text, whole.speaker),
            *_activity_claims(clause.text),
        )
        yield from _habit_claims(clause)
        yield from (replace(claim, is_change=clause.is_change) for claim in found)


def _slot_claims(text: str) -> Iterator[SlotClaim]:
    words = set(text.split())
    for attributes, pattern, holds, is_event in _rows():
        told_by = TOLD_BY.get(attributes[0])
        if told_by is not None and words.isdisjoint(told_by):
            continue
        found = pattern.match(text)
        if found is None or (attributes == ("residence",) and _VAGUE_TIME.search(text)):
            continue
        if subject := _subject(found["s"]):
            value = terms_of_value("" if is_event else found["v"] or "")
            # Who teaches biology is a teacher.
            value |= {"teacher"} if "teach" in value else frozenset()
            for attribute in attributes:
                yield SlotClaim(f"{subject} {attribute}", value, holds, is_event=is_event)


def _attribute_claims(clause: Clause, speaker: str) -> Iterator[SlotClaim]:
    if not _any_attribute().search(clause.text):
        return
    for pattern, shape in _attribute_rows():
        found = pattern.match(clause.text)
        if found is None:
            continue
        attribute = _attribute(found["a"])
        subject = _owner(found["s"], attribute, speaker)
        holds = _NEGATED.match(found["v"]) is None
        value = _CUT.sub("", _NEGATED.sub("", found["v"]))
        if not subject or not shape.search(value) or len(value.split()) > _LONGEST_VALUE:
            continue
        timed = bool(clause.dates and _TIMED.search(attribute))
        yield SlotClaim(
            f"{subject} {attribute}", terms_of_value(clause.dates if timed else value), holds
        )


def _activity_claims(text: str) -> Iterator[SlotClaim]:
    for pattern, holds in _ACTIVITIES:
        found = pattern.match(text)
        subject = _subject(found["s"]) if found else ""
        if found is None or not subject:
            continue
        verb, *others = tokens(_CUT.sub("", found["v"]))
        if _IS_NO_LONGER.search(text):
            verb, others = "is", [verb, *others]
        what = terms_of_value(" ".join(others))
        yield SlotClaim(f"{subject} {stem(_BASES.get(verb, verb))}", what, holds, activity=True)
        return


def _habit_claims(clause: Clause) -> Iterator[SlotClaim]:
    """How things are, and how they are done: another way replaces it where one says "now"."""
    found = _HABIT.match(clause.text)
    if found is None or not (subject := _subject(found["s"])):
        return
    verb, prep = found["verb"], found["prep"] or ""
    value = terms_of_value(_CUT.sub("", found["v"]))
    is_state = verb in ("is", "are")
    longest = _LONGEST_STATE if is_state else _LONGEST_HABIT
    if verb not in _HABITS or not 0 < len(value) <= longest:
        return
    if is_state and not _OF_A_THING.search(found["s"]):
        return
    slot = f"{subject} {stem(_BASES.get(verb, verb))} {prep}".rstrip()
    yield SlotClaim(slot, value, is_loose=True, is_change=clause.is_new_state, habit=True)


def _owner(said: str, attribute: str, speaker: str) -> str:
    """Whose *attribute* it is; ``"the"``: a text that names no owner speaks of the only one."""
    words = _PRESENT.sub("", f"{fold(said)} ".lstrip()).strip()
    if words not in ("", "the"):
        return _subject(words)
    return "the" if attribute in UNOWNED else speaker if attribute in OWN else ""


def _attribute(said: str) -> str:
    words = _PRESENT.sub("", fold(said))
    if words in SYNONYMS:
        return SYNONYMS[words]
    for spelling, kept in SPELLINGS.items():
        words = re.sub(
            rf"\b{re.escape(spelling)}$" if " " in spelling else rf"\b{spelling}\b", kept, words
        )
    return words


def _subject(said: str) -> str:
    """The words of a subject; empty if it is none, or a pronoun."""
    words = [word.removesuffix("'s") for word in fold(said).strip().split()]
    words = words[1:] if words[:1] in (["the"], ["a"], ["an"]) else words
    if not words or any(word in _NO_SUBJECT for word in words):
        return ""
    return " ".join(words)


_NO_SUBJECT = word_set(
    """
    he she it they this that these those his her their its i we you who which what there somebody
    someone everybody everyone nobody nothing not than as to from in at is are was were am be been
    has have had does do did will would can could may might must should lives works likes loves
    hates prefers wants needs uses moved lived worked joined left owns plays speaks studies visited
    adopted bought started stopped quit said asked told thinks planned plans enjoys drinks eats runs
    got made took went bakes teaches returned failed passed created fixed changed became turned
    costs contains supports no never now also still just recently currently actually
    """
)


# ── Comparing ────────────────────────────────────────────────────────────────────────


def clash(a: SlotClaim, b: SlotClaim) -> bool:
    """Whether two claims cannot both hold; in doubt they can."""
    if (a.slot, a.activity, a.habit) != (b.slot, b.activity, b.habit):
        return False
    if a.is_event or b.is_event or not (a.holds or b.holds):
        return False
    if not _is_of_one(a, b) or (a.is_loose and not (a.is_change or b.is_change)):
        return False
    if a.activity:
        return a.holds != b.holds and _has_ended(*((a, b) if b.holds else (b, a)))
    if a.holds and b.holds:
        return _differ(a.value, b.value)
    ended, other = (a, b) if b.holds else (b, a)
    return not ended.value or ended.value <= other.value or other.value <= ended.value


def outdates(newer: str, older: str) -> bool:
    """Whether *older* holds no longer by *newer*: another value, or its end; in doubt it holds."""
    mine, theirs = claims(newer), claims(older)
    ended = {claim.slot for claim in mine if claim.is_event}
    return (
        any(clash(a, b) for a in mine for b in theirs)
        or any(claim.holds and claim.slot in ended for claim in theirs)
        or ends(newer, older)
    )


def only_ends(newer: str, older: str) -> bool:
    """Whether *newer*, which closed *older*, says of an end, and nothing that holds instead."""
    holding = (
        claim.holds and not claim.slot.endswith(_STATE_VERBS)
        for claim in claims(newer)
        if not claim.habit
    )
    # A model may have told of it what the rules do not see.
    ended = bool(ending_keys(newer)) or outdates(newer, older)
    return ended and not any(holding)


def _is_of_one(a: SlotClaim, b: SlotClaim) -> bool:
    """Whether both are about one thing; who tells a change may say less of which it is."""
    less, more = sorted((a, b), key=lambda claim: len(claim.about))
    return less.about == more.about or (less.is_change and less.about < more.about)


def _has_ended(ended: SlotClaim, other: SlotClaim) -> bool:
    """Whether what ended is what *other* is about: smoking, but not all drinking with tea."""
    return ended.value <= other.value if ended.value else not other.value


def _differ(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether two values exclude each other: neither is a part of the other, both are of a kind."""
    if a <= b or b <= a:
        return False
    return any(map(DIGIT.search, a)) == any(map(DIGIT.search, b))


# ── Keys ─────────────────────────────────────────────────────────────────────────────


def claim_keys(text: str) -> tuple[str, ...]:
    """The keys under which facts are found that claim something about a slot, or end something."""
    keys = [key for claim in claims(text) for key in _keys(claim, claim.holds, claim.is_change)]
    keys += [f"@{thing}" for thing in standing_keys(text)]
    keys += [f"-{thing}" for thing in ending_keys(text)]
    return tuple(dict.fromkeys(keys))


def rival_keys(text: str) -> tuple[str, ...]:
    """The ``claim_keys`` of texts that may contradict *text*, end it, or be ended by it."""
    keys = [key for claim in claims(text) for key in _keys(claim, not claim.holds, True)]
    keys += [_keys(claim, True, False)[0] for claim in claims(text) if claim.is_change]
    keys += [f"-{thing}" for thing in standing_keys(text)]
    keys += [f"@{thing}" for thing in ending_keys(text)]
    return tuple(dict.fromkeys(keys))


def _keys(claim: SlotClaim, holds: bool, is_change: bool) -> tuple[str, ...]:
    """Only an end looks for activities, and they for ends; likewise habits and told changes."""
    if claim.habit:
        return (f"{'>' if is_change else '%'}{claim.slot}",)
    return (f"{'~' if holds else '!'}{claim.slot}" if claim.activity else f"?{claim.slot}",)

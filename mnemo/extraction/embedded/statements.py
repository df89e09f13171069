"""Turns of speech and the statements made in them; a correction replaces what it corrects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from mnemo.english.persons import Voice
from mnemo.english.topics import topics
from mnemo.extraction.embedded.scene import Scene
from mnemo.runtime.text import fold, one_line

__all__ = [
    "FINAL",
    "PLAIN",
    "SpeechTurn",
    "Statement",
    "confidence_of",
    "corrected",
    "finished",
    "folded_key",
]

PLAIN, HEARSAY, HEDGED = 0.8, 0.6, 0.5
"""Confidence of a plain statement, of hearsay, of a guess; the specification's numbers."""

_GOING = re.compile(r"\bgonna\b")
_POINTED = re.compile(r"[.!?][\"”]$")
FINAL = re.compile(r"[\s.!…,;:]+$")


@dataclass(frozen=True, slots=True)
class SpeechTurn:
    """
    One turn of speech.

    Attributes:
        text: Excerpt, secrets hidden.
        asked: The question that this may answer, as a quotation or ``Asked …``'s object.
        asker_step: Index of the step of the question.
    """

    text: str
    speaker: str
    voice: Voice
    at: datetime
    step: int
    scene: Scene
    asked: str | None = None
    asker_step: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """
    A fact before its concepts are known.

    Attributes:
        corrects: Whether it takes back what was said of the same slot before.
    """

    text: str
    confidence: float
    steps: tuple[int, ...]
    speaker: str
    corrects: bool = False


_HEDGE = re.compile(
    r"\b(?:maybe|might|perhaps|probably|possibly|i think|i guess|i believe|i suppose|not sure"
    r"|i assume|i feel like|kind of want|sounds like|seems like|i doubt|presumably)\b",
    re.IGNORECASE,
)
_HEARSAY = re.compile(
    r"\b(?:(?:he|she|they|someone|somebody|people|everyone|mom|dad|doctor|boss) (?:\w+ )?"
    r"(?:said|says|say|told|tells|claims?|claimed|mentioned|thinks?)|i(?:['’]ve| have)? heard"
    r"|apparently"
    r"|(?<!\bI )(?<!\bwe )(?:said|says|claimed|claims|mentioned)"
    r"|allegedly|supposedly|rumou?r|told me|i(?:['’]ve| have) been told|i was told)\b",
    re.IGNORECASE,
)


def confidence_of(clause: str) -> float:
    """How sure *clause* sounds: a guess, hearsay, or a plain statement."""
    if _HEDGE.search(clause):
        return HEDGED
    return HEARSAY if _HEARSAY.search(clause) else PLAIN


def finished(text: str) -> str:
    """Finish *text* as a sentence: a capital in front, a point behind."""
    text = _GOING.sub("going to", FINAL.sub("", one_line(text)))
    if text[:1].islower() and not re.match(r"\S*[A-Z0-9._/]", text):
        text = text[0].upper() + text[1:]
    return text if _POINTED.search(text) else text + "."


def folded_key(text: str) -> str:
    """What two facts share that say the same: case, blanks and the final point aside."""
    return fold(FINAL.sub("", one_line(text)))


# ── Corrections: "Actually, it is Tuesday" ──────────────────────────────────────────────

_LOOK_BACK = 8  # facts
_ALIKE = 0.5  # share of topical stems, of the shorter statement, that make it the same slot
_SUBJECT = re.compile(
    r"^(?P<slot>.{3,80}?\s(?:is|was|are|were|has|will be|costs?|lives? in|works? (?:at|for|in))\s)"
)


def corrected(facts: Iterable[Statement]) -> list[Statement]:
    """Drop facts whose slot a later correction of the same speaker fills."""
    kept: list[Statement] = []
    for fact in facts:
        if fact.corrects and (old := _corrected_by(fact, kept)) is not None:
            kept.remove(old)
            fact = replace(fact, steps=tuple(sorted({*fact.steps})))
        kept.append(fact)
    return kept


def _corrected_by(fact: Statement, kept: list[Statement]) -> Statement | None:
    for old in reversed(kept[-_LOOK_BACK:]):
        if old.speaker == fact.speaker and _same_slot(old.text, fact.text):
            return old
    return None


def _same_slot(old: str, new: str) -> bool:
    mine, theirs = _SUBJECT.match(new), _SUBJECT.match(old)
    if mine and theirs and mine["slot"].lower() == theirs["slot"].lower():
        return True
    a, b = topics(old), topics(new)
    shared = len(a & b)
    return shared >= 2 and shared >= _ALIKE * min(len(a), len(b))

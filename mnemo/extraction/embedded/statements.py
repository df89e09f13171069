"""Turns of speech, the statements made in them, and how sure they sound."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from mnemo.extraction.embedded.scene import Scene
from mnemo.runtime.text import one_line

PLAIN, HEARSAY, HEDGED = 0.8, 0.6, 0.5
"""Confidence of a plain statement, of hearsay, of a guess; the specification's numbers."""

_POINTED = re.compile(r"[.!?][\"”]$")
FINAL = re.compile(r"[\s.!…,;:]+$")


@dataclass(frozen=True, slots=True)
class SpeechTurn:
    """
    One turn of speech.

    Attributes:
        text: Excerpt, secrets hidden.
        asked: The question that this may answer.
        asker: Who asked it, and the index of the step.
    """

    text: str
    speaker: str
    at: datetime
    step: int
    scene: Scene
    asked: str | None = None
    asker: tuple[str, int] | None = None

    def answered(self) -> SpeechTurn:
        """The rest of the turn: its question is answered."""
        return replace(self, asked=None, asker=None)


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact before its concepts are known."""

    text: str
    confidence: float
    steps: tuple[int, ...]
    speaker: str


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
    """Finish *text* as a sentence: one line, a point behind."""
    text = FINAL.sub("", one_line(text))
    return text if _POINTED.search(text) else text + "."

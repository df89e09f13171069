"""Statements that take back an earlier one: "Actually, it is Tuesday"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mnemo.english.topics import topics
from mnemo.extraction.embedded.said import Said

__all__ = ["corrected"]

_LOOK_BACK = 8  # facts
_ALIKE = 0.5  # share of topical stems, of the shorter statement, that make it the same slot
_SUBJECT = re.compile(
    r"^(?P<slot>.{3,80}?\s(?:is|was|are|were|has|will be|costs?|lives? in|works? (?:at|for|in))\s)"
)


def corrected(facts: Iterable[Said]) -> list[Said]:
    """*facts* without those whose slot a later correction of the same speaker fills anew."""
    kept: list[Said] = []
    for fact in facts:
        if fact.corrects and (old := _corrected_by(fact, kept)) is not None:
            kept.remove(old)
            fact = replace(fact, steps=tuple(sorted({*fact.steps})))
        kept.append(fact)
    return kept


def _corrected_by(fact: Said, kept: list[Said]) -> Said | None:
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

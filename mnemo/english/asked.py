"""
Read which attribute of whom a question asks for: "What does she do for a living?", her job.

English only; a question that no row fits asks for none, and is answered by its meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mnemo.english.slot_table import ATTRIBUTES, SPELLINGS, SYNONYMS
from mnemo.english.slots import claims
from mnemo.runtime.text import fold, stem, words

__all__ = ["Asked", "asked_in"]

_WAYS: tuple[tuple[str, str], ...] = (
    (
        r"\b(?:job|occupation|profession|career|work(?:s|ing)? as"
        r"|(?:do|does|did) (?:\w+ ){1,3}(?:do )?(?:for a living|for work|professionally)"
        r"|earns? (?:\w+ ){1,2}(?:living|money)|line of work)\b",
        "job employer",
    ),
    (r"\b(?:where|which company|what company|who) (?:\w+ ){0,4}work(?:s|ing)?\b", "employer job"),
    (r"\b(?:employer|workplace|employed by|works? (?:for|at))\b", "employer job"),
    (
        r"\b(?:where|which (?:city|town|country|place)|what (?:city|town|country|place)) "
        r"(?:\w+ ){0,4}(?:live[sd]?|living|reside[sd]?|based|home)\b"
        r"|\b(?:home town|hometown|place of residence|home address)\b",
        "residence address",
    ),
    (r"\b(?:boss|manager|supervisor|superior|reports? to|in charge of (?:her|him|them))\b", "boss"),
    (
        r"\b(?:rent|(?:pays?|paying|cost|costs?) (?:\w+ ){0,4}(?:flat|apartment|house|room|home)"
        r"|(?:flat|apartment|house|room) (?:\w+ ){0,3}costs?)\b",
        "rent",
    ),
    (r"\b(?:how old|age)\b", "age"),
    (
        r"\b(?:married|single|engaged|relationship|dating|partner|spouse|wife|husband)\b",
        "relationship",
    ),
    (r"\b(?:phone|mobile|telephone|cell) ?(?:number)?\b|\bcall (?:her|him|them)\b", "phone_number"),
)
"""How a question asks, and the attributes that answer it."""
_NAMED = re.compile(rf"\b(?:{'|'.join(said for _, said in ATTRIBUTES)})\b")
_OWNER = re.compile(r"\b([^\W\d_]+)['’]s?\b(?! (?:\w+ing|not|been)\b)")
_NOBODY = frozenset(
    ("user", "what", "who", "where", "when", "how", "it", "that", "he", "she", "there", "let")
)


@dataclass(frozen=True, slots=True)
class Asked:
    """
    What a question asks for.

    Attributes:
        attributes: Names of slots' attributes, any of which answers.
        owners: Stems of whom it names as their owner; empty: the speaker, or whom it names.
        said: Stems of all its words.
    """

    attributes: frozenset[str]
    owners: frozenset[str]
    said: frozenset[str]

    def is_told_by(self, text: str, speaker: str | None) -> bool:
        """Whether *text*, said by *speaker*, gives a value of what is asked."""
        if not self.attributes:
            return False
        of_speaker = speaker is None or fold(text).startswith(fold(speaker))
        told = text if of_speaker else f"{speaker}: {text}"
        return any(claim.holds and self._is_meant(claim.slot, speaker) for claim in claims(told))

    def _is_meant(self, slot: str, speaker: str | None) -> bool:
        found = next((a for a in self.attributes if slot == a or slot.endswith(f" {a}")), None)
        if found is None:
            return False
        subject = set(slot.removesuffix(found).split())
        if self.owners:
            return bool(subject & self.owners)
        speaking = set(map(stem, words(fold(speaker or ""))))
        return subject <= self.said | speaking


@lru_cache(maxsize=256)
def asked_in(question: str) -> Asked:
    """Read *question*."""
    asked = fold(question)
    found = {a for way, names in _WAYS if re.search(way, asked) for a in names.split()}
    found = {name.replace("_", " ") for name in found}
    found |= {_kept(name) for name in _NAMED.findall(asked)}
    stems = frozenset(map(stem, words(asked)))
    owners = frozenset(map(stem, set(_OWNER.findall(asked)) - _NOBODY))
    return Asked(frozenset(found), owners, stems)


def _kept(name: str) -> str:
    name = SPELLINGS.get(name, name)
    return SYNONYMS.get(name, name)

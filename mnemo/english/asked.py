"""
Read what a question asks for: an attribute of whom, a kind of value, the person itself.

"What does she do for a living?" asks for her job, "How much is the flat?" for an amount.
English, the kinds of value with a few words of German, Spanish and Chinese; a question that no
row fits asks for nothing of this, and is answered by its meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mnemo.english.change import values_of
from mnemo.english.entities import names
from mnemo.english.slot_table import ATTRIBUTES, SPELLINGS, SYNONYMS
from mnemo.english.slots import claims
from mnemo.runtime.text import fold, stem, words

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
_KINDS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = tuple(
    (re.compile(way), frozenset(kinds.split()))
    for way, kinds in (
        (
            r"\bhow (?:much|expensive)\b|\b(?:cost|price|salary|wage|budget|earn|rent|fee)s?\b"
            r"|\bwhat (?:\w+ ){1,5}pa(?:y|ys|id)\b|\bwie (?:viel|teuer|hoch)\b|\bwas kostet\b"
            r"|\bcuanto (?:cuesta|paga|vale|gana|cobra)\b|多少钱|价格|工资|房租",
            "money number",
        ),
        (
            r"\bhow (?:many|old|far|long|big|large|tall|heavy|fast|high)\b"
            r"|\bwie (?:viele|alt|weit|lange|gross|schwer)\b|\bcuant[oa]s?\b|\bque edad\b"
            r"|多少|几|多大|多久|多远",
            "number time day",
        ),
        (
            r"\bwhen\b|\b(?:what|which) (?:date|day|time|year|month|weekday)\b|\bhow soon\b"
            r"|\bdeadline\b|\bdue\b|\bwann\b|\bwie spat\b|\bcuando\b|\bque dia\b|\ba que hora\b"
            r"|什么时候|何时|哪天|几点",
            "day time",
        ),
        (r"\bwho(?:m|se)?\b|\bnames?\b|\bcalled\b", "name"),
    )
)
"""How a question asks, and the kinds of value of which its answer has one; the first row counts."""
_RELATION = (
    r"(?:(?:step|half)?(?:sister|brother|mother|father|son|daughter)|siblings?|mum|mom|dad|parents?"
    r"|grand(?:ma|mother|pa|father|parents|son|daughter)|husband|wife|partner|spouse|girlfriend"
    r"|boyfriend|fianc[eé]e?|ex|aunt|uncle|cousin|niece|nephew|kids?|child(?:ren)?|baby|in-laws"
    r"|family|relatives?|friends?|mate|flatmate|roommate|housemate|neighbou?r|landlord|landlady"
    r"|boss|manager|supervisor|colleague|coworker|teacher|tutor|coach)"
)
_OF_ANOTHER = re.compile(rf"\W*(?:my|our) (?:\w+ ){{0,2}}?{_RELATION}\b")
_ASKS_OF_ANOTHER = re.compile(rf"\b{_RELATION}s?\b|\bwho(?:m|se)?\b|\bnames?\b|\bcalled\b")
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
        kinds: Of value, of which its answer has one; of ``change.VALUES``, or ``"name"``.
        of_another: Whether it asks for somebody beside the speaker, or about such a person.
    """

    attributes: frozenset[str]
    owners: frozenset[str]
    said: frozenset[str]
    kinds: frozenset[str] = frozenset()
    of_another: bool = False

    def is_told_by(self, text: str, speaker: str | None) -> bool:
        """Whether *text*, said by *speaker*, gives a value of what is asked."""
        if not self.attributes:
            return False
        told = claims(told_by(text, speaker))
        return any(claim.holds and self._is_meant(claim.slot, speaker) for claim in told)

    def is_of_a_kind(self, text: str) -> bool:
        """Whether *text* has a value of a kind that is asked for."""
        if "name" in self.kinds:
            # The capital at the beginning is none of a name.
            return bool(names(text.partition(" ")[2]))
        values = values_of(text) if self.kinds else {}
        return any(values[kind] for kind in self.kinds)

    def is_past_by(self, text: str) -> bool:
        """Whether *text* begins with another person of the speaker, who is not asked about."""
        return not self.of_another and _OF_ANOTHER.match(fold(text)) is not None

    def _is_meant(self, slot: str, speaker: str | None) -> bool:
        found = next((a for a in self.attributes if slot == a or slot.endswith(f" {a}")), None)
        if found is None:
            return False
        subject = set(slot.removesuffix(found).split())
        if self.owners:
            return bool(subject & self.owners)
        speaking = set(map(stem, words(fold(speaker or ""))))
        return subject <= self.said | speaking


def told_by(text: str, speaker: str | None) -> str:
    """*text* with its speaker before it, as ``slots`` read it."""
    of_speaker = speaker is None or fold(text).startswith(fold(speaker))
    return text if of_speaker else f"{speaker}: {text}"


def asked_in(question: str) -> Asked:
    """Read *question*."""
    asked = fold(question)
    found = {a for way, names in _WAYS if re.search(way, asked) for a in names.split()}
    found = {name.replace("_", " ") for name in found}
    found |= {_kept(name) for name in _NAMED.findall(asked)}
    stems = frozenset(map(stem, words(asked)))
    owners = frozenset(map(stem, set(_OWNER.findall(asked)) - _NOBODY))
    kinds = next((kinds for way, kinds in _KINDS if way.search(asked)), frozenset())
    return Asked(frozenset(found), owners, stems, kinds, _ASKS_OF_ANOTHER.search(asked) is not None)


def _kept(name: str) -> str:
    name = SPELLINGS.get(name, name)
    return SYNONYMS.get(name, name)

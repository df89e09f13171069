"""
Resolve a leading pronoun: replace it by a person, or join it to the sentence that explains it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnemo.english.topics import phrases
from mnemo.english.words import MONTHS, WEEKDAYS
from mnemo.runtime.text import fold

__all__ = ["begins_with_pronoun", "hangs", "is_expletive", "joined_to", "with_person"]

_PRONOUN = re.compile(
    r"^(?P<word>he|she|it|they|this|that|these|those|his|her|hers|him|their|theirs|them|its)"
    r"(?P<tail>['’](?:s|re|ve|ll|d|m))?(?=$|[\s,.!])",
    re.IGNORECASE,
)
# "It is important to Ana that …": the pronoun stands for what follows, not for what came before.
_EXPLETIVE = re.compile(
    r"^it(?:['’]s| is| was| will be|['’]ll be| has been|['’]d be| would be| feels| felt| took"
    r"| takes)"
    r"(?: (?!(?:a|an|the|my|our|one)\b)[\w'’]+){1,3}? (?:to|that|when|how|for (?:\w+ ){1,4}to|if"
    r"|seeing|being|having"
    r"|knowing|since)\b",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?<![.!?] )(?<!^)(?<!\bin )(?<!\bat )(?<!from )(?<!near )\b[A-Z][a-z]+(?: [A-Z][a-z]+)?\b"
    r"|^[A-Z][a-z]+(?= (?:is|was|has|said|told"
    r"|and|will|can|works|lives|loves|likes|went|came|got|had)\b)"
)
_PERSON_NOUN = re.compile(
    r"\b(?P<np>(?:my|[A-Z]\w+['’]s) (?:[a-z]+ ){0,2}?(?P<head>mom|mum|mother|dad|father|sister"
    r"|brother|son|daughter"
    r"|wife|husband|friend|boss|doctor|teacher|partner|boyfriend|girlfriend|cousin|uncle|aunt"
    r"|grandma"
    r"|grandmother|grandpa|grandfather|neighbor|neighbour|colleague|coworker|coach|therapist"
    r"|roommate|niece"
    r"|nephew|mentor))(?:\s(?P<name>[A-Z][a-z]+))?\b"
)
_NO_NAMES = frozenset((*MONTHS, *WEEKDAYS, "i"))
_INNER = re.compile(
    r"(?<=\s)(?:it|them|they|(?:this|these|those)(?=\s(?:for|to|in|on|at|and|but|is|was|so|now"
    r"|as|by|with)\b))\b"
    r"|(?<=\s)(?:this|these|those|that)(?=[.!,]|$)",
    re.IGNORECASE,
)
_POINTS_ON = re.compile(
    r"\b(?:for|like|with|about|of|to|on|do|in) (?:this|these|those|that)[.!:]?$", re.I
)
_EXPLETIVE_INSIDE = re.compile(
    r"it(?:['’]s| is| was| takes| took| feels| rains?)\b|it (?:comes"
    r"|turns) ",
    re.I,
)
_LONGEST_PAIR = 60  # words of two joined sentences
_POSSESSIVE = {"his", "her", "its", "their"}


def begins_with_pronoun(text: str) -> bool:
    """Whether *text* begins with a pronoun that only an earlier sentence explains."""
    match = _PRONOUN.match(text)
    return match is not None and not _EXPLETIVE.match(text)


def hangs(clause: str) -> bool:
    """Whether *clause* has an "it" or "them" inside that nothing before it in *clause* names."""
    if _POINTS_ON.search(clause):
        return True
    inner = _INNER.search(clause)
    if inner is None or _EXPLETIVE_INSIDE.match(clause, inner.start()):
        return False
    return all(phrase.endswith("ing") for phrase in phrases(clause[: inner.start()]))


def is_expletive(text: str) -> bool:
    """Whether *text* begins with an "it" that stands for what follows: "it's good to …"."""
    return _EXPLETIVE.match(text) is not None


def with_person(text: str, before: Sequence[str], parties: frozenset[str]) -> str | None:
    """
    Replace a leading "he" or "she" of *text* by the only possible antecedent.

    Args:
        text: Begins with a pronoun.
        before: What was said before, the last sentence last; two are looked at.
        parties: Folded names of those who talk: they are "I" and "you", never "she".
    """
    match = _PRONOUN.match(text)
    if match is None or match["word"].lower() not in ("he", "she", "his", "her"):
        return None
    person = _only_person(before[-2:], parties)
    return _replaced(text, match, person) if person else None


def joined_to(previous: str, text: str) -> str | None:
    """
    Join two sentences to one fact: the first is the antecedent of the second's pronoun.

    ``None`` if the first needs explaining itself, or both are too long to be read as one.
    """
    if begins_with_pronoun(previous):
        return None
    if len(previous.split()) + len(text.split()) > _LONGEST_PAIR:
        return None
    return f"{previous.rstrip()} {text[0].upper()}{text[1:]}"


def _replaced(text: str, match: re.Match[str], person: str) -> str:
    word, tail = match["word"].lower(), match["tail"]
    if word in _POSSESSIVE:
        return f"{person}'s{text[match.end() :]}"
    return f"{person}{tail or ''}{text[match.end() :]}"


def _only_person(texts: Sequence[str], parties: frozenset[str]) -> str | None:
    people: dict[str, str] = {}
    for text in texts:
        for match in _PERSON_NOUN.finditer(text):
            people.setdefault(match["name"] or match["head"], match.group())
        bare = _PERSON_NOUN.sub(" ", text)
        for name in _NAME.findall(bare):
            if not {*fold(name).split()} & (parties | _NO_NAMES):
                people.setdefault(name, name)
    return next(iter(people.values())) if len(people) == 1 else None

"""References: words of a clause that only something outside it explains ("it", "she", "there")."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnemo.english.topics import has_noun
from mnemo.english.verbs import finite_verb, is_gerund, tokens_of
from mnemo.english.words import AUXILIARIES, MONTHS, PREPOSITIONS, WEEKDAYS, word_set

# "It is important to Ana that …": the pronoun stands for what follows, not for what came before.
_EXPLETIVE = re.compile(
    r"\bit(?:['’]s| is| was| will be|['’]ll be| has been|['’]d be| would be| feels| felt| took"
    r"| takes| turns| comes)"
    r"(?: (?!(?:a|an|the|my|our|one)\b)[\w'’]+){1,3}? (?:to|that|when|how|for (?:\w+ ){1,4}to|if"
    r"|seeing|being|having|knowing|since|out)\b"
    r"|\bit (?:rains|rained|snows|snowed|turns out|takes|took)\b|\bit(?:['’]s| is) (?:raining"
    r"|snowing)\b",
    re.IGNORECASE,
)
_SOMEBODY = word_set("he she him her his hers himself herself")
_SEVERAL = word_set("they them their theirs themselves")
_THING = word_set("it its itself")
_POINTING = word_set("this that these those")
_PEOPLE = word_set(
    """
    mom mum mother dad father parent parents sister sisters brother brothers son sons daughter
    daughters wife husband partner spouse friend friends boyfriend girlfriend fiance cousin cousins
    uncle aunt grandma grandpa grandmother grandfather niece nephew child children kid kids baby
    boss doctor nurse guy guys girl girls boy boys man men woman women person people lady client
    patient student students colleague colleagues family team band dog cat puppy buddy pal everyone
    somebody someone one who
    """
)
_OF_PEOPLE = ("er", "or", "ist", "ian", "mate", "mates", "ers", "ors")
_OBJECTS = word_set("it them")
_BREAKS = word_set(
    ", ; : . - – — ( and but because so that when while if since as where who which after"
)
_TIMES = word_set(
    """
    week weekend month year morning afternoon evening night summer winter spring fall autumn
    season semester term time coming past
    """
).union(MONTHS, WEEKDAYS)
_BE = word_set("is are was were 's will has have can could may might would should")
_TAIL = re.compile(r"'(?:s|re|ve|ll|d|m)$")


def refers_outside(clause: str) -> bool:
    """
    Whether *clause* has a reference that nothing before it in *clause* explains.

    "My sister said she is ill" explains its "she", "I told her" does not. Whether the noun
    before is what is meant is not decided.
    """
    spelled = tokens_of(_EXPLETIVE.sub(" ", clause))
    words = [_TAIL.sub("", word.lower()) for word in spelled]
    return any(
        _points(words, at) and not _explained(words[at], spelled[:at], words[:at])
        for at in range(len(words))
    )


def _explained(word: str, spelled: Sequence[str], before: Sequence[str]) -> bool:
    """Whether something *before* the pointing *word* may be what it means."""
    if word in _POINTING and before and before[-1][0].isalnum():
        return False  # "In this trip", "take this as a prize"
    if word in _OBJECTS:
        # What a verb is done with is not who does it, nor what else is done: "Bo knows it".
        joints = [at for at, other in enumerate(before) if other in _BREAKS]
        # "And" joins nouns, too: "Bo and Ana know it".
        breaks = [at for at in joints if before[at] != "and" or _has_verb(spelled[:at])]
        spelled, before = spelled[: breaks[-1]] if breaks else (), before[: (breaks or [0])[-1]]
    names = [at for at, other in enumerate(spelled) if at and other[0].isupper() and other != "I"]
    if spelled and spelled[0][0].isupper() and _is_noun(before[0]):
        names.insert(0, 0)
    if word in _SOMEBODY:
        # Those who write "anika dropped out" name in lower case.
        written = bool(before) and spelled[0][0].islower() and _is_noun(before[0])
        return bool(names) or written or any(_is_person(w) and not _is_many(w) for w in before)
    nouns = list(filter(_is_noun, before))
    if word in _SEVERAL:
        return bool(names) or any(_is_person(w) or w.endswith("s") for w in nouns)
    if word in ("there", "here"):
        return bool(names) or bool({"in", "at", "to"}.intersection(before) and nouns)
    # "I moved and my dog loves it": what was done is meant.
    return bool(names or nouns) or (word == "it" and len(before) > 1)


def _has_verb(words: Sequence[str]) -> bool:
    return finite_verb(tuple(words)) is not None


def _is_noun(word: str) -> bool:
    return word not in ("yes", "no") and not is_gerund(word) and has_noun(word)


def _is_many(word: str) -> bool:
    return word.endswith("s") or word in ("people", "children", "men", "women")


def _is_person(word: str) -> bool:
    return word in _PEOPLE or (len(word) > 4 and word.endswith(_OF_PEOPLE))


def _points(words: Sequence[str], at: int) -> bool:
    """Whether the word *at* means something that is named elsewhere."""
    word, following = words[at], words[at + 1] if at + 1 < len(words) else "."
    ends = not following[0].isalnum()
    if word in _SOMEBODY or word in _SEVERAL or word in _THING:
        return True
    if word in _POINTING:
        if following in _TIMES or (word == "those" and following == "who"):
            return False
        # "That" inside a clause mostly opens another one.
        governed = at > 0 and words[at - 1] in PREPOSITIONS
        asks = at == 1 and words[0] in AUXILIARIES
        return word != "that" or at == 0 or asks or ends or governed or following in _BE
    if word in ("there", "here"):
        # "Jun here, from Utrecht" says who speaks.
        return following not in _BE and following not in ("in", "at") and at > 2 * (word == "here")
    if word == "such":
        return at > 0 and following not in ("a", "an", "as")
    return word in ("one", "ones") and at > 0 and (ends or following in PREPOSITIONS - {"of"})

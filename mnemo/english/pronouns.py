"""References: words of a clause that only something outside it explains ("it", "she", "there")."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnemo.english.topics import has_noun
from mnemo.english.verbs import is_gerund, tokens_of
from mnemo.english.words import MONTHS, PREPOSITIONS, WEEKDAYS, word_set

__all__ = ["refers_outside"]

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
_PERSONAL = word_set(
    "he she him her his hers himself herself they them their theirs themselves it its itself"
)
_POINTING = word_set("this that these those")
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
    named = False
    for at in range(len(words)):
        if (not named or _picks(words, at)) and _points(words, at):
            return True
        named = named or _names(spelled, at)
    return False


def _names(spelled: Sequence[str], at: int) -> bool:
    """Whether the word *at* may be what a later pronoun means."""
    word = spelled[at]
    if at and word[0].isupper() and word != "I":
        return True
    return not is_gerund(word.lower()) and has_noun(word)


def _picks(words: Sequence[str], at: int) -> bool:
    """Whether the word *at* points at a thing that it names itself: "those topics"."""
    return words[at] in _POINTING - {"that"} and has_noun(" ".join(words[at + 1 : at + 2]))


def _points(words: Sequence[str], at: int) -> bool:
    word, following = words[at], words[at + 1] if at + 1 < len(words) else "."
    ends = not following[0].isalnum()
    if word in _PERSONAL:
        return True
    if word in _POINTING:
        if following in _TIMES or (word == "those" and following == "who"):
            return False
        # "That" inside a clause mostly opens another one.
        governed = at > 0 and words[at - 1] in PREPOSITIONS
        return word != "that" or at == 0 or ends or governed or following in _BE
    if word == "there":
        return following not in _BE and at > 0
    return word in ("one", "ones") and at > 0 and (ends or following in PREPOSITIONS - {"of"})

"""Sentences cleaned of what says nothing, and split into clauses that stand alone."""

from __future__ import annotations

import re

from mnemo.extraction.embedded.lexicon import AUXILIARIES, BASE_VERBS, MODALS
from mnemo.extraction.embedded.persons import is_past, with_s

__all__ = ["bare", "has_verb", "split_clauses", "without_vocatives"]

_LEAD = re.compile(
    r"^(?:(?:wow|oh|ah|aw+|ooh|oof|ugh|hey|hi|hello|yeah|yep|yup|yes|yay|nah|well|so|and|but|or"
    r"|also"
    r"|plus|anyway|anyways|honestly|btw|by the way|ok|okay|alright|right|sure|absolutely|definitely"
    r"|totally|exactly|of course|thanks|thank you|congrats|congratulations|cool|nice|great|awesome"
    r"|lol|haha+|hmm+|um+|uh+|man|dude|omg|whoa|woah|you know|i mean|to be honest|tbh|in fact"
    r"|as you know|no worries|no problem|good news|then|fyi)"
    r"(?:\s+(?:so much|a lot|again|everyone|guys|there))?"
    r"(?:\s*[,!:;…—–-]+\s*|\s*\.{2,}\s*|\s*$))+",
    re.IGNORECASE,
)
# The same words without a comma behind them: only those that can never begin a clause.
_LEAD_BARE = re.compile(
    r"^(?:so|and|but|well|oh|plus|also|yeah|yep|anyway|wow|hey|btw)\s+"
    r"(?=(?:i|i['’]\w+|we|we['’]\w+|my|our|the|it|it['’]s|they|he|she|that|this|there)\b)",
    re.IGNORECASE,
)
_LEAD_NAME = re.compile(r"^([A-Z][\w'’]*)\s*[,!]\s+")
_TAIL_NAME = re.compile(r",\s+([A-Z][\w'’]*)\s*([.!…]*)$")
_TAIL_FILLER = re.compile(
    r",?\s+(?:lol|haha+|right|you know|though|tho|too|as well|xd|btw|by the way|thanks|thank you"
    r"|please|man"
    r"|dude|guys)(?=[.!…]*$)",
    re.IGNORECASE,
)
_DROPPED_TAIL = frozenset(("too", "as well", "though"))


def bare(sentence: str) -> str:
    """*sentence* without leading interjections and connectives."""
    return _LEAD_BARE.sub("", _LEAD.sub("", sentence, count=1), count=1).strip()


def without_vocatives(sentence: str, is_name: object) -> str:
    """*sentence* without a party's name at its start or end ("Wow, Mel!")."""
    assert callable(is_name)
    lead = _LEAD_NAME.match(sentence)
    if lead and is_name(lead.group(1).lower()):
        sentence = sentence[lead.end() :]
    tail = _TAIL_NAME.search(sentence)
    if tail and is_name(tail.group(1).lower()):
        sentence = sentence[: tail.start()] + tail.group(2)
    return sentence


_JOINT = re.compile(
    r"\s*;\s+"
    r"|(?:,\s*|\s+)(?P<and>and|but|so|plus)\s+(?=(?P<head>(?:I|i|I['’]\w+|i['’]\w+|we|we['’]\w+"
    r"|my|our|the|there['’]?s?|[A-Z][\w'’]+)\s))"
    r"|\s+[-–—]+\s+(?=(?:I|we|my|our|I['’]\w+|we['’]\w+|can|could|would|will)\s)"
    r"|,\s*(?:and|so|but)?\s*(?=(?:can|could|would|will) (?:you|u)\b)"
    r"|,\s*(?=(?:what|how|where|when|why|which|who)\b[^,]{3,}\?$)"
    r"|(?<=[a-z0-9]),\s+(?=(?:I|I['’](?:m|ve|ll|d))\s)"
)
_SUBORDINATE = re.compile(
    r"^(?:if|when|whenever|because|although|though|since|while|as|after|before|until|unless|once"
    r"|whether|even|either|both|not only|by|given)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:it|its|they|them|their|he|she|him|her|his|this|that|these|those)\b", re.I
)
_WORD = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")
_FINITE = AUXILIARIES | {
    "i'm",
    "i've",
    "it's",
    "we're",
    "we've",
    "i'll",
    "i'd",
    "there's",
    "that's",
}
_THIRD_FORMS = frozenset(with_s(verb) for verb in BASE_VERBS)


def has_verb(clause: str) -> bool:
    """Whether *clause* has a word that can be its finite verb."""
    return any(_is_verb(word.lower().replace("’", "'")) for word in _WORD.findall(clause))


def _is_verb(word: str) -> bool:
    return (
        word in _FINITE
        or word in MODALS
        or word in BASE_VERBS
        or word in _THIRD_FORMS
        or is_past(word)
        or word.endswith(("'m", "'re", "'ve", "'ll", "n't", "'d", "'s"))
    )


def split_clauses(sentence: str) -> list[str]:
    """
    Split at ";" and where two clauses with their own subject and verb are joined.

    A part that would not stand alone (no verb, fewer than three words, a pronoun that
    only the other part explains) stays where it is.
    """
    clauses = [""]
    at = 0
    for joint in _JOINT.finditer(sentence):
        left, right = clauses[-1] + sentence[at : joint.start()], sentence[joint.end() :]
        if _stands(left) and _stands_after(right, joint):
            clauses[-1] = left.strip()
            clauses.append("")
        else:
            clauses[-1] += sentence[at : joint.end()]
        at = joint.end()
    clauses[-1] = (clauses[-1] + sentence[at:]).strip()
    return [clause for clause in clauses if clause]


def _stands(left: str) -> bool:
    return (
        left.count('"') % 2 == 0
        and left.count("(") == left.count(")")
        and len(left.split()) >= 3
        and has_verb(left)
        and not _SUBORDINATE.match(left)
    )


def _stands_after(right: str, joint: re.Match[str]) -> bool:
    if ";" in joint.group() or right.lower().startswith(("can ", "could ", "would ", "will ")):
        return True
    words = right.split(None, 12)
    if right.endswith("?"):
        return len(words) >= 3
    return len(words) >= 3 and has_verb(" ".join(words[1:])) and not _UNSURE.search(right)

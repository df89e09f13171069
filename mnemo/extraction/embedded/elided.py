"""Sentences that left out their "I": "Started a new job" is "I started a new job"."""

from __future__ import annotations

import re

from mnemo.english.forms import ADVERBS, PARTICIPLES, is_past, word_set
from mnemo.extraction.embedded.lexicon import NOT_ACTS

__all__ = ["with_subject"]

_WORD = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")
_PREFIXES = {
    "gonna": "I'm ",
    "gotta": "I ",
    "wanna": "I ",
    "can't": "I ",
    "couldn't": "I ",
    "didn't": "I ",
    "haven't": "I ",
    "need": "I ",
    "feel": "I ",
    "want": "I ",
    "hate": "I ",
    "prefer": "I ",
    "am": "I ",
}
_DOING = word_set(
    """
    hoping looking planning thinking working trying heading getting taking feeling going
    considering saving training learning moving researching living
    """
)
# "Been busy" may be said of oneself or of the week; "been running" only of oneself.
_BEEN = re.compile(r"\s+(?:(?:\w+ly|really|super|just|so)\s+)?(?:\w{2,}(?:ing|ed)\b|to\b)", re.I)
# "No longer working at the harbour" tells of its speaker, whatever the verb.
_STILL_DOING = re.compile(r"^(?:no longer|not|still|now|currently) \w{2,}ing\b", re.IGNORECASE)
_CLAUSE = re.compile(r",|;|\s(?:but|so|because|[-–—])\s")
_FINITE_LATER = re.compile(
    r"\b[a-z]{3,}s (?:me|us|my)\b|\b(?:is|are|was|were|can|will|would|makes?|has|helps?|brings?"
    r"|gives?|takes?|keeps?)\b"
    r"|['’]s\b",
    re.I,
)


def with_subject(clause: str) -> str:
    """*clause*, with "I" (and its auxiliary) in front if it begins with the speaker's own act."""
    if _STILL_DOING.match(clause):
        return f"I'm {clause[0].lower()}{clause[1:]}"
    words = _WORD.finditer(clause)
    first = next(words, None)
    if first is None or first.start() != 0:
        return clause
    leading = first.group().lower().replace("’", "'")
    verb, at = leading, 0
    if leading in ADVERBS or (leading.endswith("ly") and len(leading) > 4):
        second = next(words, None)
        if second is None or clause[first.end() : second.start()] != " ":
            return clause
        verb, at = second.group().lower(), second.start()
    prefix = _prefix(verb, clause[at + len(verb) :])
    if not prefix:
        return clause
    adverb = clause[0].lower() + clause[1:at] if at else ""
    return f"{prefix}{adverb}{verb}{clause[at + len(verb) :]}"


def _prefix(verb: str, rest: str) -> str:
    if verb == "been":
        return "I've " if _BEEN.match(rest) else ""
    if verb in _PREFIXES:
        return _PREFIXES[verb]
    if verb in _DOING:
        return "" if _FINITE_LATER.search(_CLAUSE.split(rest, maxsplit=1)[0]) else "I'm "
    if verb in NOT_ACTS or verb in PARTICIPLES or not is_past(verb) or not rest.startswith(" "):
        return ""
    return "" if verb in ("were", "had", "did", "was") and not rest[1:2].islower() else "I "

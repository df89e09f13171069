"""What the agent's side of a dialogue states as done, decided or found; nothing else of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mnemo.english.clauses import bare, with_subject
from mnemo.english.dates import with_dates
from mnemo.english.persons import third_person
from mnemo.english.sentences import sentences
from mnemo.english.topics import content_count
from mnemo.english.words import is_past, word_set
from mnemo.extraction.embedded.said import PLAIN, Said, Turn, confidence_of, finished

__all__ = ["facts_of_agent"]

_SHORT = 3  # sentences; only a short action may leave out its "I"
_MOST_SENTENCES = 200
_OWN_ACT = re.compile(
    r"^(?:I|We)(?:['’]ve| have)?(?: just| now| also| already| successfully| then"
    r"| finally)*\s+(?P<verb>[a-z]+)\b"
)
# Acts of talking, and states of mind: about the conversation, not about the world.
_TALK = word_set(
    """
    asked replied said told answered greeted thanked offered acknowledged responded explained
    mentioned had was were understood thought felt heard saw knew meant hoped wanted tried
    needed appreciated noticed provided shared outlined listed included described been assumed
    apologized confirmed read
    """
)


# "I noted that you like jazz": what it supposes of the other party is no act.
_OF_OTHER = re.compile(
    r"^\s*(?:(?:that|how|why|whether|if)\b.*\b(?:you|your|he|she|they)\b"
    r"|you['’](?:re|ve|d|ll)\b"
    r"|you (?:are|were|have|had|do|did|will|would|can|could|must|should|may|might|like|love|want"
    r"|need|live|work|prefer|hate|enjoy|own|know)\b"
    r"|your [\w' -]{1,40}? (?:is|are|was|were|has|have|will)\b)",
    re.IGNORECASE,
)


# "I updated your profile: you live in Rome": the act, and a guess behind it.
_GUESS_BEHIND = re.compile(
    r"\s*(?:[,;:]|\s[-–—])\s+(?:so |and |but |because |since |that )?(?:you|your|the user)\b.*",
    re.IGNORECASE | re.DOTALL,
)


def facts_of_agent(turn: Turn, breathe: Callable[[], None]) -> Iterator[Said]:
    """
    The acts that *turn*, the agent's words, states as done.

    What it guesses, or says of the other party, is no fact.
    """
    said = [s for s in sentences(turn.text)[:_MOST_SENTENCES] if not s.endswith("?")]
    for sentence in said:
        breathe()
        clause = bare(sentence)
        if len(said) <= _SHORT:
            clause = with_subject(clause)
        clause = _GUESS_BEHIND.sub("", clause)
        act = _OWN_ACT.match(clause)
        if act is None or act["verb"] in _TALK or not is_past(act["verb"]):
            continue
        if len(clause) > 300 or content_count(clause) < 2:
            continue
        if _OF_OTHER.match(clause[act.end() :]) or confidence_of(clause) < PLAIN:
            continue
        text = finished(with_dates(third_person(clause, turn.voice), turn.at))
        yield Said(text, PLAIN, (turn.step,), turn.speaker)

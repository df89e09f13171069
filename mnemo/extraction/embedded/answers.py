"""Short answers, kept behind the question that gives them their meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnemo.english.canonical import said_by, speaks_of_other
from mnemo.english.clauses import bare, has_verb, without_lead, without_vocatives
from mnemo.english.dates import with_dates
from mnemo.english.pronouns import refers_outside
from mnemo.english.sentences import ends_as_question
from mnemo.english.speech_acts import is_small_talk
from mnemo.english.words import LIGHT
from mnemo.extraction.embedded.statements import (
    FINAL,
    SpeechTurn,
    Statement,
    confidence_of,
    finished,
)
from mnemo.runtime.text import STOP_WORDS, one_line, words

_FEW = 4  # content words below which a reply is an answer, not a statement
_LONGEST_QUESTION = 160  # characters; a longer one explains no short answer
_SHORT_QUESTION = 10  # words; among people a longer one is rather talk
# A question that "yes" answers; one that offers a choice is answered by what is chosen.
_YES_NO_QUESTION = re.compile(
    r"^(?:so |and |but )?(?:is|are|was|were|do|does|did|have|has|had|can|could|will|would|should"
    r"|may|you(?:r|['’]re|['’]ve)?)"
    r"\b(?!.* or )|.*,? (?:right|correct|(?:is|do|are|have|did|was|would|can)n['’]t \w+)\?*$",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"^(?:yes|yeah|yea|yep|yup|no(?! (?:worries|problem|idea|doubt|clue))|nope|nah"
    r"|not (?:yet|really|at all|any ?more|often|since)|sure|never(?! mind)|sometimes|rarely"
    r"|of course|absolutely|definitely|certainly|correct"
    r"|(?:i|we) (?:do|am|are|have|did|was|were|can|could|will|would)(?:n['’]?t| not)?(?=\W*$)"
    r"|i['’]?m not(?=\W*$))\b",
    re.IGNORECASE,
)
_DODGES = re.compile(
    r"^(?:\w{1,3},? )?(?:never ?mind|not sure|who knows|maybe|perhaps|hm+\b"
    r"|no (?:idea|clue)|dunno|good question|let me|one (?:moment|second)"
    r"|i (?:don['’]?t|do not) know|(?:it )?depends|why\b|skip|pass$|whatever)",
    re.IGNORECASE,
)
_HAPPENED = re.compile(r"^did you\b(?! ever)", re.I)
_GREETS = re.compile(
    r"^(?:how(?:['’]s|['’]ve| is| are| was| were| have| did)|what(?:['’]s| is) (?:up|new))\b", re.I
)
_BARE = re.compile(r"^(?:yes|yeah|yea|yep|yup|no|nope|nah)\W*$", re.I)
_ANY = re.compile(r"\bany\b", re.I)
_NO = re.compile(r"^(?:no|nope|nah|not|never|i ?['’]?m not|(?:i|we) \w+(?:n['’]?t| not))\b", re.I)
_OF_YOU = re.compile(r"\b(?:you|your)\b", re.I)


def answer_in(turn: SpeechTurn, said: Sequence[str]) -> Statement | None:
    """
    The fact of a short answer: ``Bo: Do you smoke? Ana: No.``

    Args:
        said: The sentences of *turn* from the one that may answer.
    """
    if turn.asked is None or turn.asker is None or len(turn.asked) > _LONGEST_QUESTION:
        return None
    if ends_as_question(said[0]) or '"' in said[0] or _DODGES.match(bare(said[0])):
        return None
    answer = FINAL.sub("", without_vocatives(_with_detail(said), turn.scene.is_name))
    content = [w for w in words(_YES_NO.sub("", answer)) if w not in STOP_WORDS]
    if len(content) > 2 * _FEW or _states(answer):
        return None
    if (
        speaks_of_other(answer)
        or is_small_talk(answer)
        or (content and is_small_talk(bare(without_lead(answer))))
    ):
        return None
    return _quoted(turn, answer) if _tells(turn, answer, content) else None


def _judges(answer: str) -> bool:
    return any(word in LIGHT for word in words(_YES_NO.sub("", answer)))


def _states(answer: str) -> bool:
    """Whether *answer* has a verb besides that of its yes or no: "no I don't", "yes she is"."""
    detail = _YES_NO.sub("", _YES_NO.sub("", answer, count=1).lstrip(" ,"), count=1)
    short = detail != answer and len(detail.split()) <= 2
    return not short and has_verb(detail)


def _with_detail(said: Sequence[str]) -> str:
    """The answer, with the fragment behind a bare "Yes.": "Yes. Peanuts"."""
    behind = said[1] if len(said) > 1 and _BARE.match(said[0]) else ""
    if not behind or has_verb(behind) or len(behind.split()) > _FEW:
        return said[0]
    return f"{said[0]} {behind}"


def _quoted(turn: SpeechTurn, answer: str) -> Statement:
    asker, step = turn.asker or ("", turn.step)
    told = with_dates(said_by(turn.speaker, one_line(answer)), turn.at)
    asked = FINAL.sub("", one_line(turn.asked or ""))
    text = said_by(asker, f"{asked if asked.endswith('?') else f'{asked}?'} {told}")
    steps = tuple(sorted({step, turn.step}))
    return Statement(finished(text), confidence_of(answer), steps, turn.speaker)


def _tells(turn: SpeechTurn, answer: str, content: Sequence[str]) -> bool:
    """Whether question and answer together say something."""
    telling = [w for w in content if w not in LIGHT and not turn.scene.is_name(w)]
    asked = [w for w in words(turn.asked or "") if w not in STOP_WORDS and w not in LIGHT]
    question = without_lead(turn.asked or "")
    yes_no = _YES_NO_QUESTION.match(question) is not None
    of_you = _OF_YOU.search(question) is not None
    if refers_outside(question) or _GREETS.match(question):
        return False
    if turn.scene.is_talk and _HAPPENED.match(question):
        return False
    if turn.scene.is_talk and (len(question.split()) > _SHORT_QUESTION or _judges(answer)):
        return False
    if _YES_NO.match(answer):
        plain = bool(telling) or len(answer.split()) <= _FEW - 1
        # "Do you have any hobbies?" is not answered by a mere yes.
        which = not telling and _ANY.search(question) and not _NO.match(answer)
        return plain and yes_no and not which and len(asked) >= (1 if of_you else 2)
    if refers_outside(answer) or (yes_no and not (of_you and asked and telling)):
        return False
    return bool(telling) and bool(asked or of_you)

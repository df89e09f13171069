"""Join a short answer to its question, so that the fact stands alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnemo.english.clauses import bare, has_verb, without_lead, without_vocatives
from mnemo.english.dates import with_dates
from mnemo.english.persons import speaks_of_other
from mnemo.english.pronouns import begins_with_pronoun
from mnemo.english.sentences import ends_as_question
from mnemo.english.speech_acts import is_small_talk
from mnemo.english.words import LIGHT
from mnemo.extraction.embedded.statements import FINAL, SpeechTurn, Statement, confidence_of
from mnemo.runtime.text import STOP_WORDS, one_line, words

__all__ = ["answer_in", "is_greeting", "quoted", "with_detail"]

_FEW = 4  # content words below which a reply is an answer, not a statement
_LONGEST_QUESTION = 160  # characters; a longer one explains no short answer
_ASKED = re.compile(
    r"^asked (?:\w+ )?(?:for|about|whether|if|when|where|what|how|who|which)\b", re.I
)
# A question that "yes" answers; one that offers a choice is answered by what is chosen.
_YES_NO_QUESTION = re.compile(
    r"^(?:so |and |but )?(?:is|are|was|were|do|does|did|have|has|had|can|could|will|would|should"
    r"|may|any|you(?:r|['’]re|['’]ve)?)"
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
_BARE = re.compile(r"^(?:yes|yeah|yea|yep|yup|no|nope|nah)\W*$", re.I)
_OF_YOU = re.compile(r"\b(?:you|your)\b", re.I)


def with_detail(said: Sequence[str]) -> Sequence[str]:
    """Join a bare "Yes." and the fragment behind it: "Yes, peanuts"."""
    if (
        len(said) < 2
        or not _BARE.match(said[0])
        or has_verb(said[1])
        or len(said[1].split()) > _FEW
    ):
        return said
    return [f"{FINAL.sub('', said[0])}, {said[1]}", *said[2:]]


def is_greeting(turn: SpeechTurn, sentence: str) -> bool:
    """Whether *sentence*, before an answer, says nothing itself."""
    said = without_vocatives(sentence, turn.scene.is_name)
    if _YES_NO.match(said) and _YES_NO_QUESTION.match(without_lead(turn.asked or "")):
        return False
    clause = bare(without_vocatives(without_lead(sentence), turn.scene.is_name))
    content = [w for w in words(clause) if w not in STOP_WORDS and not turn.scene.is_name(w)]
    return not content or (is_small_talk(clause) and len(content) < 2 * _FEW)


def answer_in(turn: SpeechTurn, sentence: str) -> Statement | None:
    """The fact that a short answer makes together with its question."""
    if turn.asked is None or ends_as_question(sentence) or '"' in sentence:
        return None
    if _DODGES.match(bare(sentence)):
        return None
    answer = FINAL.sub("", without_vocatives(sentence, turn.scene.is_name))
    content = [w for w in words(_YES_NO.sub("", answer)) if w not in STOP_WORDS]
    if len(content) > 3 * _FEW or (len(content) >= _FEW and has_verb(answer)):
        return None
    if speaks_of_other(answer) or not _tells(turn, answer, content):
        return None
    return quoted(turn, answer)


def quoted(turn: SpeechTurn, answer: str) -> Statement:
    """Word *answer* and its question as one fact, supported by the steps of both."""
    asked = turn.asked or ""
    question = asked if _ASKED.match(asked) else f'Asked "{asked}"'
    answer = with_dates(FINAL.sub("", one_line(answer)), turn.at)
    text = f'{question[:1].upper()}{question[1:]}, {turn.speaker} answered "{answer}".'
    steps = (turn.step,) if turn.asker_step is None else (turn.asker_step, turn.step)
    return Statement(text, confidence_of(answer), steps, turn.speaker)


def _tells(turn: SpeechTurn, answer: str, content: Sequence[str]) -> bool:
    """Whether question and answer together say something."""
    telling = [w for w in content if w not in LIGHT and not turn.scene.is_name(w)]
    asked = [w for w in words(turn.asked or "") if w not in STOP_WORDS and w not in LIGHT]
    if len(turn.asked or "") > _LONGEST_QUESTION:
        return False
    yes_no = _YES_NO_QUESTION.match(without_lead(turn.asked or "")) is not None
    of_you = _OF_YOU.search(turn.asked or "") is not None
    if _YES_NO.match(answer):
        plain = bool(telling) or len(answer.split()) <= _FEW - 1
        return plain and yes_no and len(asked) >= (1 if of_you else 2)
    if begins_with_pronoun(answer) or (yes_no and not (of_you and asked and telling)):
        return False
    return bool(telling) and (bool(asked) or len(telling) >= 2 or len(content) < _FEW)

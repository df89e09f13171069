"""Short answers, joined to the question that gives them their meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnemo._text import STOP_WORDS, one_line, words
from mnemo.extraction.embedded.clauses import bare, has_verb, without_lead, without_vocatives
from mnemo.extraction.embedded.dates import with_dates
from mnemo.extraction.embedded.lexicon import LIGHT
from mnemo.extraction.embedded.persons import speaks_of_other
from mnemo.extraction.embedded.pronouns import begins_with_pronoun
from mnemo.extraction.embedded.said import FINAL, Said, Turn, confidence_of
from mnemo.extraction.embedded.smalltalk import is_small_talk

__all__ = ["answer_in", "is_greeting", "quoted"]

_FEW = 4  # content words below which a reply is an answer, not a statement
_LONGEST_QUESTION = 160  # characters; a longer one explains no short answer
_ASKED = re.compile(
    r"^asked (?:\w+ )?(?:for|about|whether|if|when|where|what|how|who|which)\b", re.I
)
_QUESTION_END = re.compile(r"\?[\"'”’)\]!?]*$")
# A question that "yes" answers; one that offers a choice is answered by what is chosen.
_YES_NO_QUESTION = re.compile(
    r"^(?:so |and |but )?(?:is|are|was|were|do|does|did|have|has|had|can|could|will|would|should"
    r"|may)"
    r"\b(?!.* or )",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"^(?:yes|yeah|yep|no|nope|not (?:yet|really)|sure|never|of course|absolutely)\b", re.I
)


def is_greeting(turn: Turn, sentence: str) -> bool:
    """Whether *sentence*, before an answer, says nothing itself."""
    clause = bare(without_vocatives(without_lead(sentence), turn.scene.is_name))
    content = [w for w in words(clause) if w not in STOP_WORDS and not turn.scene.is_name(w)]
    return not content or (is_small_talk(clause) and len(content) < 2 * _FEW)


def answer_in(turn: Turn, sentence: str) -> Said | None:
    """The fact that a short answer makes together with its question."""
    if turn.asked is None or _QUESTION_END.search(sentence) or '"' in sentence:
        return None
    answer = FINAL.sub("", without_vocatives(sentence, turn.scene.is_name))
    content = [w for w in words(answer) if w not in STOP_WORDS]
    if len(content) > 3 * _FEW or (len(content) >= _FEW and has_verb(answer)):
        return None
    if speaks_of_other(answer) or not _tells(turn, answer, content):
        return None
    return quoted(turn, answer)


def quoted(turn: Turn, answer: str) -> Said:
    """*answer* and the question of *turn* as one fact, resting on the steps of both."""
    asked = turn.asked or ""
    question = asked if _ASKED.match(asked) else f'Asked "{asked}"'
    answer = with_dates(FINAL.sub("", one_line(answer)), turn.at)
    text = f'{question[:1].upper()}{question[1:]}, {turn.speaker} answered "{answer}".'
    steps = (turn.step,) if turn.asker_step is None else (turn.asker_step, turn.step)
    return Said(text, confidence_of(answer), steps, turn.speaker)


def _tells(turn: Turn, answer: str, content: Sequence[str]) -> bool:
    """Whether question and answer together say something."""
    telling = [w for w in content if w not in LIGHT and not turn.scene.is_name(w)]
    asked = [w for w in words(turn.asked or "") if w not in STOP_WORDS and w not in LIGHT]
    if len(turn.asked or "") > _LONGEST_QUESTION:
        return False
    if _YES_NO.match(answer):
        plain = bool(telling) or len(answer.split()) <= _FEW - 1
        return plain and len(asked) >= 2 and _YES_NO_QUESTION.match(turn.asked or "") is not None
    if _YES_NO_QUESTION.match(turn.asked or "") or begins_with_pronoun(answer):
        return False
    return bool(telling) and (bool(asked) or len(telling) >= 2 or len(content) < _FEW)

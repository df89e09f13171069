"""Notes as in minutes: "Decision: …", "Deadline: March 10", "Chen to update the runbook"."""

from __future__ import annotations

import re

from mnemo.english.clauses import has_verb
from mnemo.english.speech_acts import is_small_talk
from mnemo.english.topics import content_count
from mnemo.english.words import BASE_VERBS, LIGHT, word_set
from mnemo.runtime.text import STOP_WORDS, fold

_LABEL = re.compile(
    r"^(?:(?:final|key|team|our|my|the|new|next|open|main|action) ){0,2}"
    r"(?:decisions?|decided|agreed|agreements?|resolutions?|resolved"
    r"|actions?(?: (?:items?|points?))?|to-?dos?|tasks?|next steps?|follow-?ups?|notes?|updates?"
    r"|outcomes?|results?|conclusions?"
    r"|plans?|reminders?|important|fyi|blockers?|risks?|requirements?|preferences?|rules?|policy)"
    r"(?:\s*:\s+|\s+[-–—]\s+)(?P<rest>\S.{3,})$",
    re.IGNORECASE,
)
_VALUE = re.compile(r"^(?P<label>[#\w][\w'’&#.-]*(?: [\w'’&#.-]+){0,5}): (?P<rest>\S.{0,199})$")
_TELLING = re.compile(r"\d|(?:^|\s)[A-Z][\w-]*[a-z]")
_ASSIGNED = re.compile(
    r"^@?[A-Z][\w'’-]*(?:(?: |, | and | & )[A-Z][\w'’-]*)* to (?P<verb>[a-z]+) (?P<what>\S.+)$"
)
_OBJECT = re.compile(r"^(?:the|a|an|my|our|his|her|their|all|every|each|both|\d+|[A-Z])")
# What else stands before "to" and a verb: no name.
_NO_NAME = word_set(
    """
    able afraid attempt chance decision effort free glad happy idea invitation keen option order
    plan ready reason reminder request sorry welcome willing
    """
)


def is_note(clause: str) -> bool:
    """Whether *clause* is a labelled note, a labelled value, or a task given to somebody."""
    if clause.rstrip().endswith("?"):
        return False
    if labelled := _LABEL.match(clause):
        return content_count(labelled["rest"]) >= 2 and not is_small_talk(labelled["rest"])
    return _is_value(clause) or _is_task(clause)


def _is_value(clause: str) -> bool:
    found = _VALUE.match(clause)
    if found is None or not _TELLING.search(clause[1:]) or is_small_talk(found["rest"]):
        return False
    label = fold(found["label"]).split()
    if label[0] in ("my", "our", "the"):
        label = label[1:]
    talk = all(word in LIGHT or word in STOP_WORDS for word in label)
    return not talk and not has_verb(found["label"])


def _is_task(clause: str) -> bool:
    found = _ASSIGNED.match(clause)
    if found is None or content_count(found["what"]) < 1:
        return False
    if found["verb"] not in BASE_VERBS and not _OBJECT.match(found["what"]):
        return False
    first = fold(clause.lstrip("@").split(None, 1)[0])
    everyday = first in STOP_WORDS or first in LIGHT or first in BASE_VERBS or first in _NO_NAME
    return not (everyday or first.endswith(("ing", "ed", "ly")))

"""Meeting notes as facts: "Decision: …", "Deadline: March 10", "Chen to update the runbook"."""

from __future__ import annotations

import re
from collections.abc import Callable

from mnemo.english.clauses import has_verb
from mnemo.english.speech_acts import is_small_talk
from mnemo.english.topics import content_count
from mnemo.english.words import ADVERBS, BASE_VERBS, LIGHT, word_set
from mnemo.runtime.text import STOP_WORDS, fold

__all__ = ["noted"]

_LABEL = re.compile(
    r"^(?P<label>(?:(?:final|key|team|our|my|the|new|next|open|main|action) ){0,2}"
    r"(?:decisions?|decided|agreed|agreements?|resolutions?|resolved"
    r"|actions?(?: (?:items?|points?))?|to-?dos?|tasks?|next steps?|follow-?ups?|notes?|updates?"
    r"|outcomes?|results?|conclusions?"
    r"|plans?|reminders?|important|fyi|blockers?|risks?|requirements?|preferences?|rules?|policy))"
    r"(?:\s*:\s+|\s+[-–—]\s+)(?P<rest>\S.{3,})$",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"^(?P<owner>(?:(?i:my|our|the|his|her|their)|[A-Z][a-z]+['’]s) )?"
    r"(?P<label>[A-Za-z][a-z-]+(?: [a-z-]+){0,2}): (?P<rest>\S.{0,79})$"
)
_TELLING = re.compile(r"\d|(?:^|\s)[A-Z][\w-]*[a-z]")
_ASSIGNED = re.compile(
    r"^@?(?P<who>[^\W\d_][\w'’-]*(?: [A-Z][\w'’-]*)?"
    r"(?:(?:, | and | & )[A-Z][\w'’-]*(?: [A-Z][\w'’-]*)?)*"
    r"|(?:[Tt]he |[Oo]ur )?[\w-]+ (?:team|group|department))"
    r" to (?P<verb>[a-z]+)(?: (?:up|out|on|off|down|back|over))? (?P<what>\S.+)$"
)
# What else stands before "to" and a verb: no name.
_NO_ASSIGNEE = word_set(
    """
    able ability afraid anything approach attempt bound careful chance decision difficult due
    eager easy effort failure free glad hard hesitant honoured how idea impossible inclined
    intention invitation keen learning likely method motivation nothing offer ok okay opportunity
    option order permission place plan pleased possible prepared privilege promise proposal proud
    quick ready reason reluctant reminder request right simple slow somebody someone something sorry
    supposed sure tempted tendency time unable unlikely used way welcome where whether willing wish
    """
)


_OBJECT = re.compile(r"^(?:the|a|an|my|our|his|her|their|all|every|each|both|\d+|[A-Z]|[a-z]+s\b)")


def noted(clause: str, is_name: Callable[[str], bool]) -> str | None:
    """
    *clause* as a statement, if it is a labelled note or a task given to somebody.

    Its words stay; ``Deadline: March 10`` becomes ``The deadline is March 10``. Empty: a
    label with nothing behind it; ``None``: no note.
    """
    if clause.rstrip().endswith("?"):
        return None
    labelled = _LABEL.match(clause)
    if labelled:
        return _labelled(labelled["label"], labelled["rest"])
    return _valued(clause, is_name) or (clause if _is_task(clause, is_name) else None)


def _labelled(label: str, rest: str) -> str:
    if content_count(rest) < 2 or is_small_talk(rest):
        return ""
    return f"{label[0].upper()}{label[1:]}: {rest}"


def _valued(clause: str, is_name: Callable[[str], bool]) -> str | None:
    found = _VALUE.match(clause)
    if found is None or not _TELLING.search(found["rest"]) or has_verb(f"it {found['rest']}"):
        return None
    label = found["label"]
    if any(w in STOP_WORDS or is_name(w) or w in BASE_VERBS for w in fold(label).split()):
        return None
    if has_verb(f"it {label}"):
        return None
    verb = "are" if label.endswith("s") and not label.endswith("ss") else "is"
    lowered = label[0].lower() + label[1:]
    return f"{found['owner'] or 'The '}{lowered} {verb} {found['rest']}"


def _is_task(clause: str, is_name: Callable[[str], bool]) -> bool:
    found = _ASSIGNED.match(clause)
    if found is None or found["verb"] in STOP_WORDS or content_count(found["what"]) < 1:
        return False
    if found["verb"] not in BASE_VERBS and not _OBJECT.match(found["what"]):
        return False
    who = fold(found["who"]).split()
    if who[-1] in ("team", "group", "department") and len(who) > 1:
        return True
    first = who[0]
    if not (clause[0] == "@" or found["who"][0].isupper() or is_name(first)):
        return False
    everyday = first in STOP_WORDS or first in LIGHT or first in ADVERBS or first in BASE_VERBS
    return not (everyday or first in _NO_ASSIGNEE or first.endswith(("ing", "ed", "ly")))

"""Word a new subgoal by what was asked for, the call, the action, or key phrases."""

from __future__ import annotations

import re

from mnemo.english.clauses import bare, split_clauses
from mnemo.english.sentences import sentences
from mnemo.english.speech_acts import wanted_in
from mnemo.english.topics import content_count, key_phrases
from mnemo.extraction.embedded.text_kinds import Kind, call_name, kind_of, without_code
from mnemo.runtime.text import fold, is_blank, one_line

_LONGEST = 200
_COMPARED, _FIRST = 2_000, 4  # characters and sentences in which a request is looked for
_SHORT_ACTION = 24  # words; a longer one is an answer, not the name of what is done
_CLAUSE_END = re.compile(r"[.!?;\n]|,\s(?:and|but|so|which|because)\b|\s[-–—]\s")
# A wish for all time is not what is wanted now.
_STANDING = re.compile(r"\W*(?:and |but |please )?(?:always|never|from now on|don['’]t)\b", re.I)
_ARGUMENTS = re.compile(r"\(\s*(.*?)\s*\)\s*;?\s*$", re.DOTALL)
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,60})[\"']")
_SMALL_TALK = re.compile(
    r"^\W*(?:(?:thanks|thank you|sure|ok|okay|certainly|of course|great|hi|hello|hey|absolutely|yes"
    r"|no problem|you['’]re welcome)\b[^.!?]{0,30}[.!?,]\s*)+",
    re.IGNORECASE,
)


def shortened(text: str, limit: int) -> str:
    """*text*, cut at a word to at most *limit* characters, with a mark where it was cut."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    head, blank, _ = cut.rpartition(" ")
    return (head if blank and len(head) > limit // 2 else cut).rstrip(" ,;:") + "…"


def new_subgoal(
    observation: str, action: str, actor: str, goal: str, *, is_output: bool = False
) -> str:
    """
    Why the action was taken, in its own words.

    What was asked for, else the call's name and first argument, else the action's first
    clause if it is short, else the key phrases of what was said, else the goal. At most
    200 characters.

    Args:
        observation: Excerpt, secrets hidden; so is *action*.
        actor: Whose name is no topic.
        is_output: Whether a tool gave the observation: then it asks for nothing.
    """
    observation, action = without_code(observation), without_code(action)
    subgoal = (
        ("" if is_output else _of_request(observation))
        or _of_call(action)
        or _of_clause(action)
        or _of_phrases(observation, action, actor)
    )
    return shortened(subgoal or goal or "go on", _LONGEST)


def _of_request(observation: str) -> str:
    for sentence in sentences(observation[:_COMPARED])[:_FIRST]:
        for clause in split_clauses(sentence):
            wanted = None if _STANDING.match(clause) else wanted_in(bare(clause))
            if wanted and 1 < content_count(wanted) <= _SHORT_ACTION:
                return one_line(wanted).rstrip(".!? ")
    return ""


def _of_call(action: str) -> str:
    name = call_name(action)
    if name is None:
        return ""
    if " " in name or "(" not in action:
        return name
    arguments = _ARGUMENTS.search(action[:2_000])
    quoted = _QUOTED.search(arguments.group(1)) if arguments else None
    words = name.replace("_", " ").replace(".", " ")
    return f"{words} {quoted.group(1)}" if quoted else words


def _of_clause(action: str) -> str:
    if is_blank(action) or kind_of(action) is Kind.TOOL:
        return ""
    bare = _SMALL_TALK.sub("", action)
    clause = one_line(_CLAUSE_END.split(bare, maxsplit=1)[0])
    if len(action.split(None, _SHORT_ACTION + 1)) > _SHORT_ACTION or content_count(clause) < 2:
        return ""
    return clause.rstrip(" ,:")


def _of_phrases(observation: str, action: str, actor: str) -> str:
    mine = fold(actor)
    found = [p for p in key_phrases([observation[:_COMPARED]], 6) if fold(p) != mine]
    if len(found) < 2:
        found += [p for p in key_phrases([action[:_COMPARED]], 4) if fold(p) != mine]
    return ", ".join(dict.fromkeys(found[:4]))

"""Outcome in a person's reply: only clauses that are about the action before it count."""

from __future__ import annotations

import re

from mnemo.english.clauses import bare, split_clauses
from mnemo.english.sentences import sentences, with_apostrophes
from mnemo.english.topics import topics
from mnemo.extraction.embedded.outcomes import OutcomeVerdict, may_have_signs, verdict
from mnemo.extraction.embedded.text_kinds import calls_in
from mnemo.runtime.text import is_blank

_SOFTWARE = (
    r"\w*error|\w*exception|traceback|exit(?:ed)?(?: with)?[ _](?:code|status)|exitcode"
    r"|returncode|http/\d|npm err|no such file|timeout|timed out|command not found|build|suite"
    r"|pipeline|ci|deploy(?:ment)?|migration|script|server|login|merge|commit|install(?:ation)?"
    r"|import|export|upload|download|command|container|database|query|api|endpoint"
)
_STRICT = re.compile(rf"\b(?:{_SOFTWARE}|(?:unit |my |our )tests)s?\b", re.IGNORECASE)
_TECHNICAL = re.compile(
    rf"\b(?:{_SOFTWARE}|tests?|checks?|app|site|page|code|branch|job|service|function|file|status"
    r"|\d+ passed|\d+ failed)s?\b",
    re.IGNORECASE,
)
_OWN = re.compile(r"^(?:i|i['’]\w+|we|we['’]\w+|my|our)\b", re.IGNORECASE)
# Of people and what is theirs, not of what the agent did.
_PERSONAL = re.compile(
    r"^(?:(?:yesterday|today|last \w+|this morning|then|so|and|but|unfortunately|sadly),? )*"
    r"(?:i|i['’]\w+|we|we['’]\w+|he|she|they|my|our|his|her|their|one of"
    r"|(?!it|that|what|there|here|everything|nothing)(?-i:[A-Z])[a-z]+['’]s)\b",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"^(?:(?:and|but|so|no|yes|ok|okay|sorry|now|great|well|hmm|it looks like|looks like)[, ]+)*"
    r"(?:it|it['’]s|that|that['’]s|this|these|those|you|you['’]ve|everything|nothing|all|still|now"
    r"|not|already|works?|worked|working|fixed|done|solved|resolved|perfect|wrong|broken|failed"
    r"|success|completed?|passed|does(?:n['’]t| not)|did(?:n['’]t| not)|same)\b",
    re.IGNORECASE,
)


# Behind a question "it" is what was asked about: "How did it go?", "It went wrong".
_WORKS = re.compile(r"\b(?:work(?:s|ed|ing)?|fixed|solved|resolved)\b", re.IGNORECASE)


def verdict_of_reply(reply: str, action: str) -> OutcomeVerdict:
    """
    Read the signs in *reply*, a person's words, that speak of *action*.

    Thanks always do. Other signs do where the clause points back ("it works"), is about
    software, or shares a topic with *action*; behind a call also any clause that is not
    about people and what is theirs.

    Args:
        action: The words or the call before the reply; blank: there was none.
    """
    if not may_have_signs(reply):
        return OutcomeVerdict()
    reply = with_apostrophes(reply)
    whole = verdict(reply)
    if not (whole.good or whole.bad):
        return whole
    told = _signs(reply, action)
    good = [found for found in told if found.good]
    return OutcomeVerdict(
        good=bool(good),
        bad=any(found.bad for found in told),
        polite=bool(good) and all(found.polite for found in good),
    )


def _signs(reply: str, action: str) -> list[OutcomeVerdict]:
    any_counts = is_blank(action) or bool(calls_in(action))
    asks = action.rstrip().endswith("?")
    about = topics(action)
    clauses = [bare(c) or c for sentence in sentences(reply) for c in split_clauses(sentence)]
    found = [(clause, verdict(clause)) for clause in clauses]
    return [
        sign
        for clause, sign in found
        if sign.polite
        or (any_counts and not _PERSONAL.match(clause))
        or _speaks_of(clause, about, asked=asks)
    ]


def _speaks_of(clause: str, about: frozenset[str], *, asked: bool) -> bool:
    if _PERSONAL.match(clause):
        return _OWN.match(clause) is not None and _STRICT.search(clause) is not None
    if _TECHNICAL.search(clause):
        return True
    if _POINTS_BACK.match(clause) and not (asked and _WORKS.search(clause) is None):
        return True
    return not about.isdisjoint(topics(clause))

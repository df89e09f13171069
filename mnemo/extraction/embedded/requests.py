"""Wishes and requests: "Can you find me a vegan place?" says what its speaker asked for."""

from __future__ import annotations

import re

from mnemo.extraction.embedded.clauses import is_imperative
from mnemo.extraction.embedded.persons import Voice, third_person
from mnemo.extraction.embedded.topics import content_count, topics

__all__ = ["asked_to", "is_report", "request_of", "wanted_in"]

_REQUEST = re.compile(
    r"^(?:(?:so|and|but|also|hey|hi|ok|okay|now|then|hmm)[,\s]+)?(?:please\s+)?"
    r"(?:(?:can|could|would|will) (?:you|u|ya)(?: guys)?(?: please| kindly| also| maybe"
    r"| possibly| just)*"
    r"|(?:i (?:need|want|would like)|i['’]d like|i would love|i['’]d love) (?:you|u) to(?: please)?"
    r"|would you mind|please(?: also| just)?"
    r"|(?:is it possible|would it be possible) (?:for you )?to)\s+"
    r"(?P<what>[a-z][^?]{2,}?)(?:,?\s+(?:please|for me|thanks|thank you))*\s*[?!.]*$",
    re.IGNORECASE,
)
_ME = re.compile(
    r"^(?P<verb>[a-z]+)\s+(?:me|us)\s+(?!(?:to|with|about|for|how|when|if|what|where)\b)", re.I
)
_TALK = re.compile(
    r"^(?:tell|share|show|explain|elaborate|believe|imagine|see|say|remind|send me|describe"
    r"|clarify|talk"
    r"|give me (?:more|some|an? (?:example|idea))|let me know|be |feel free|keep|don['’]t worry"
    r"|do (?:it|that)\b)",
    re.IGNORECASE,
)
# "Would you like some tea?" offers.
_OFFER = re.compile(r"^(?:like|prefer|rather|care for)\b", re.IGNORECASE)
# "Review this code": without the text that "this" points at, only a long wish says enough.
_VAGUE = re.compile(r"\b(?:this|that|these|those|it|them)\b", re.IGNORECASE)
# Stems that say how to help, not with what.
_HELPING = frozenset(("figur", "review", "check", "fix", "understand", "improv", "code", "explain"))
_PLEASE = re.compile(r"^(?:please|just)\s+", re.IGNORECASE)


# "Deploy to staging done" tells; "Get the deploy to staging done" asks.
_RESULT = re.compile(
    r"\b(?:done|finished|completed?|failed|succeeded|successful(?:ly)?|passed|aborted|cancell?ed"
    r"|pending|running|in progress|underway|ok|okay)\W*$",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"\b(?:is|are|be|been|get|gets|getting|got|have|has|make|keep|mark|marked|leave|until|till|when"
    r"|if|once|as|that|which|what)\b",
    re.IGNORECASE,
)


def is_report(clause: str) -> bool:
    """Whether *clause*, which begins like an order, names a deed and its result."""
    return _RESULT.search(clause) is not None and not _LINKED.search(clause)


def request_of(sentence: str, voice: Voice, *, to_agent: bool) -> str | None:
    """
    What *sentence* asks for, as a fact about who asked; ``None`` if it asks for nothing.

    Between two people, asking to be told something is talk, not a wish.
    """
    asked = _REQUEST.match(sentence)
    if asked is None:
        return None
    what = asked["what"].strip()
    if _OFFER.match(what) or (not to_agent and _TALK.match(what)):
        return None
    return asked_to(what, voice)


def wanted_in(sentence: str) -> str | None:
    """What *sentence* asks an agent to do, in its own words; ``None`` if it asks for nothing."""
    if asked := _REQUEST.match(sentence):
        what = asked["what"].strip()
    elif is_imperative(sentence) and not is_report(sentence):
        what = _PLEASE.sub("", sentence)
    else:
        return None
    return _ME.sub(lambda match: f"{match['verb']} ", what)


def asked_to(what: str, voice: Voice) -> str | None:
    """*what*, an imperative, as a fact about who said it; ``None`` if it says too little."""
    what = _ME.sub(lambda match: f"{match['verb']} ", _PLEASE.sub("", what))
    least = 4 if _VAGUE.search(what) else 2
    if content_count(what) < least or not topics(what) - _HELPING:
        return None
    return f"{voice.me} asked to {third_person(what[0].lower() + what[1:], voice)}"

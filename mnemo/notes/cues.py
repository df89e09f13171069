"""Cues of what a user wants kept, by fixed English rules and configured ones; with their places."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from mnemo.config import NotesConfig

CueKind: TypeAlias = Literal["request", "correction", "preference"]
MAX_CLAUSE = 1_000
"""Characters of a request's clause, at most."""
MAX_REQUESTS = 100
"""Requests of one message, at most: what is pasted may hold any number."""
MAX_COURTESIES = 6
"""Courtesies before an order, at most."""
MAX_SPAN = 500
"""Characters of what a bare "remember this" means, at most."""


@dataclass(frozen=True, slots=True)
class Request:
    """
    An explicit request in a message.

    Attributes:
        text: What to keep, word for word; ``""``: the request is bare and nothing stands
            before it in the message.
        forgets: Whether it is an order to forget instead.
    """

    text: str
    forgets: bool = False


_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(
    r"`[^`\n]+`|^[ \t]*>[^\n]*|\"[^\"\n]{1,2000}\"|“[^”\n]{1,2000}”|«[^»\n]{1,2000}»"
    r"|(?<![\w'’])['‘](?=\w)[^'’\n]{1,2000}['’](?!\w)",
    re.MULTILINE,
)
_MASK = "\ufffc"

_APOSTROPHE = "['’]?"
_OPENING = re.compile(
    r"\A|[.!?;:,)—–\n]+[ \t\n]*|(?<=[ \t])-+[ \t]+|^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+", re.M
)
_COURTESY = re.compile(
    r"(?:(?:please|pls|plz|kindly|also|and|but|so|now|then|ok|okay|hey|hi|hello|oh|well|yes|no"
    r"|great|perfect|good|nice|cool|awesome|excellent|fine|sure|right|alright|yeah|do|try to"
    r"|thanks|thank you|by the way|btw|one more thing|just|again|important|finally|lastly|first"
    r"|next|in addition|(?:can|could|would|will) (?:you|u)(?: please)?|would you mind"
    r"|you (?:should|must|need to|have to)|let['’]?s|for the record"
    r"|i(?:['’]d| would)? (?:want|like|need|ask|beg) (?:you|u) to"
    r"|(?:please )?(?:make|be) sure(?: that)?(?: you| to)?(?: always)?"
    r"|it(?:['’]s| is) important (?:to|that you))[ \t,]+)",
    re.IGNORECASE,
)
_COURTESIES = re.compile(f"(?:{_COURTESY.pattern})+", re.IGNORECASE)
_INNER = re.compile(
    r"\b(?:and|but|so|then)[ \t]+(?:please[ \t]+)?(?=(?:remember|do(?:n['’]?t| not) forget"
    r"|keep in mind|bear in mind|note|make a note)[ \t]+(?:that|this|to|my|our|i|we)\b)",
    re.IGNORECASE,
)
_PLEASE = re.compile(r"\bplease[ \t]+", re.IGNORECASE)
_SUBJECT = re.compile(r"\s*(?:i|we|you|he|she|they|who|people|nobody|everyone)\b", re.IGNORECASE)
_KEEP = (
    rf"(?:always )?remember\b(?!\s*\?)"
    r"(?!\s+(?:me|when|what|where|who(?:m|se)?|which|why|how|if|whether)\b)"
    rf"|(?:do not|don{_APOSTROPHE}t|never)(?: ever)? forget\b"
    r"|(?:keep|bear) (?:it |this |that )?in mind\b|note that\b|note:|note to self\b"
    r"|(?:please )?take note\b|(?:write|jot) (?:this|that) down\b"
    r"|(?:make|take|keep|leave) (?:yourself )?(?:a|some) (?:mental )?notes?\b"
    r"|save this\b(?=\s*(?:[.!?:,;]|$|that\b|for (?:later|next|future)|to (?:your )?memory"
    r"|(?:in|to) (?:your |the )?(?:notes?|memory)))"
    r"|(?:save|store|put|add) (?:it |that |this )?(?:to|in|into) (?:your )?(?:memory|notes)\b"
    r"|for (?:your )?future reference\b"
)
_DROP = (
    r"forget (?!it\b|me\b|not\b)(?:\w|[\"“'‘])|stop remembering\b"
    r"|(?:delete|remove|erase|drop) .{0,60}\b(?:from )?(?:your|the) (?:memory|notes?)\b"
)
_TAIL = re.compile(
    r"[ \t]*(?:(?:for (?:later|next time|future reference|the future)|to (?:your )?memory"
    r"|(?:in|to) (?:your |the )?(?:notes?|memory))\b[ \t]*)?"
)
_LEAD = re.compile(
    r"[ \t]*(?:[,:–—-][ \t]*)?(?:(?:that|to|of|about)\b[ \t]*)?[,]?[ \t]*", re.IGNORECASE
)
_BARE = re.compile(
    r"[ \t]*(?:(?:this|that|it|these|those|all (?:of )?this|everything|of (?:this|that|it)|please"
    r"|for me|too|as well|for (?:later|next time|the future)|from now on)\b[ \t,]*)*"
    r"(?=[.!?;)]|\n|$)",
    re.IGNORECASE,
)
_COLON = re.compile(
    r"[ \t]*(?:(?:this|that|the following|these|down)\b)?[ \t]*:[ \t]*", re.IGNORECASE
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|approx|ca|inc|jr|sr)|\b[A-Z])\Z", re.I
)
_STOP = re.compile(r"[.!?]+(?=[\"”’)]*(?:\s|$))|\n")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_ANY_BLANKS = re.compile(r"\s*")
_JOINED = re.compile(r"(?:\b(?:so|and|please|ok)|[,;:–—-])\s*\Z", re.IGNORECASE)
# A line that only wraps goes on in lower case.
_WRAP = re.compile(r"(?<!\n)\n(?![ \t]*(?:\n|[-*•>]|\d{1,2}[.)]|[A-Z]|\Z))")

_CORRECTION = (
    rf"that(?:{_APOSTROPHE}s| is| was) (?:wrong|incorrect|not (?:right|correct|true|it"
    r"|what i (?:meant|said|wanted|asked)))\b|that isn['’]?t (?:right|correct|true|what i)\b"
    r"|(?:you(?:['’]re| are)|this is|it(?:['’]s| is)) (?:wrong|mistaken|incorrect)\b"
    r"|not what i (?:meant|said|asked|wanted)\b|you misunderst"
    r"|(?:i|we)(?:['’]ve| have)? (?:already |just )?(?:told|said to) you\b|as i (?:said|told you)\b"
    r"|i (?:already )?said (?:so|that) (?:before|already)\b|\bi (?:said|meant) \w"
    r"|(?:\w['’]s|\bis|\bare|\bwas|\bwere) [^.!?\n]{1,80}, not \w|\bnot [^.!?,\n]{1,60}, but \w"
    r"|stop (?:doing|using|saying|adding|making|asking|calling|writing|putting|\w+ing)\b"
    rf"|(?:do not|don{_APOSTROPHE}t|never) (?:do|say|use|write) (?:that|this|it)(?: ever)? again\b"
)
_HEAD_CORRECTION = r"(?:actually|correction)\b|(?:wrong|incorrect)\b(?=\s*(?:[.!,:;–—-]|$))"
_PREFERENCE = (
    r"\bi(?:['’]d| would)? (?:really |much |always |generally |strongly )?prefer\b"
    r"|\bi(?:['’]d| would) (?:much )?rather\b|\b(?:my|our) prefer(?:red|ence)\b|\bwe prefer\b"
    r"|\bfrom now on\b|\bgoing forward\b|\bplease (?:always|never)\b"
    r"|\bcall me (?!back\b|when\b|if\b|at\b|on\b|tomorrow\b|later\b|in\b)\w"
)
_HEAD_PREFERENCE = rf"(?:always|never|(?:do not|don{_APOSTROPHE}t) ever)\b(?! mind\b| forget\b)"


@lru_cache(maxsize=64)
def _compiled(built_in: str, added: tuple[str, ...] = ()) -> re.Pattern[str]:
    """Any of them; every blank of *built_in* matches a run of blanks."""
    spaced = built_in.replace(" ", r"\s{1,4}")
    return re.compile("|".join((spaced, *(f"(?:{one})" for one in added))), re.IGNORECASE)


def _visible(text: str) -> str:
    """Mask code and quotations in *text*; offsets stay."""
    for pattern in (_FENCED, _HIDDEN):
        text = pattern.sub(lambda found: _MASK * len(found.group()), text)
    return _WRAP.sub(" ", text)


def _heads(text: str) -> Mapping[int, int]:
    """Offsets of clauses behind their courtesies → offsets with them, ascending."""
    starts = {found.end() for found in _OPENING.finditer(text)}
    starts |= {found.end() for found in _PLEASE.finditer(text)}
    known = sorted(starts)
    for found in _INNER.finditer(text):
        before = known[max(0, bisect_right(known, found.start()) - 1)]
        if not _SUBJECT.match(text, before):
            starts.add(found.end())
    heads: dict[int, int] = {}
    for start in sorted(starts):
        at = start
        heads.setdefault(at, start)
        for _ in range(MAX_COURTESIES):
            if not (courtesy := _COURTESY.match(text, at)):
                break
            at = courtesy.end()
            heads.setdefault(at, start)
    return dict(sorted(heads.items()))


def prefers(text: str, config: NotesConfig) -> bool:
    """Whether *text* states a preference."""
    return _has(text, _compiled(_PREFERENCE, config.preference_phrases), _HEAD_PREFERENCE)


def corrects(text: str, config: NotesConfig) -> bool:
    """Whether *text*, said after an assistant's message, corrects something."""
    return _has(text, _compiled(_CORRECTION, config.correction_phrases), _HEAD_CORRECTION)


def _has(text: str, cue: re.Pattern[str], at_head: str) -> bool:
    """Whether *text* has a cue, or a clause of it begins with one of *at_head*."""
    visible, head = _visible(text), _compiled(at_head)
    return bool(cue.search(visible)) or any(head.match(visible, at) for at in _heads(visible))


def requests_in(text: str, config: NotesConfig) -> list[Request]:
    """The explicit requests in *text*, in order; none inside of another."""
    visible = _visible(text)
    keep = _compiled(_KEEP, config.request_phrases)
    drop = _compiled(_DROP)
    found: list[Request] = []
    taken = 0
    for at, opening in _heads(visible).items():
        if at < taken:
            continue
        if len(found) == MAX_REQUESTS:
            break
        if verb := keep.match(visible, at):
            clause, taken = _kept(text, visible, opening, verb.end())
            found.append(Request(clause))
        elif drop.match(visible, at):
            end = _sentence_end(visible, at)
            found.append(Request(text[at:end].strip(), forgets=True))
            taken = end
    return found


def _kept(text: str, visible: str, head: int, verb_end: int) -> tuple[str, int]:
    """What the request says whose verb ends there, and where the search goes on."""
    at = _matched(_TAIL, visible, verb_end)
    if bare := _BARE.match(visible, at):
        return _before(text, visible, head), bare.end()
    if colon := _COLON.match(visible, at):
        start = _matched(_ANY_BLANKS, visible, colon.end())
        end = min(len(text), start + MAX_CLAUSE)
        if blank := _BLANK_LINE.search(visible, start, end):
            end = blank.start()
    else:
        start = _matched(_LEAD, visible, at)
        end = _sentence_end(visible, start)
    end = min(end, start + MAX_CLAUSE)
    return text[start:end].rstrip(), max(end, verb_end)


def _before(text: str, visible: str, head: int) -> str:
    """What a bare request at *head* means: the sentence before it that is no mere courtesy."""
    for _ in range(MAX_COURTESIES):
        sentence, head = _sentence_before(text, visible, head)
        if not _COURTESIES.fullmatch(f"{sentence.rstrip('.!?')} "):
            return sentence
    return ""


def _sentence_before(text: str, visible: str, head: int) -> tuple[str, int]:
    """With where it begins."""
    window = max(0, head - 2 * MAX_SPAN)
    before = visible[window:head].rstrip()
    while before and (joined := _JOINED.search(before)):
        before = before[: joined.start()].rstrip()
    body = before.rstrip('.!?"”’) \t\n')
    start = 0
    for stop in _STOP.finditer(body):
        if not _is_abbreviation(body, stop):
            start = stop.end()
    start = max(_matched(_ANY_BLANKS, body, start), len(before) - MAX_SPAN) + window
    return text[start : window + len(before)].strip(), start


def _matched(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _sentence_end(text: str, start: int) -> int:
    end = min(len(text), start + MAX_CLAUSE)
    for stop in _STOP.finditer(text, start, min(len(text), end + 1)):
        if not _is_abbreviation(text, stop):
            return stop.start()
    return end


def _is_abbreviation(text: str, stop: re.Match[str]) -> bool:
    return (
        stop.group() == "."
        and _ABBREVIATED.search(text[max(0, stop.start() - 12) : stop.start()]) is not None
    )

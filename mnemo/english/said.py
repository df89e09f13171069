"""What a fact says, clause by clause and as plainly as comparing needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mnemo.english.canonical import canonical_clauses, speaker_of
from mnemo.english.entities import BRACKETS, LEADING
from mnemo.english.verbs import finite_verb, tokens_of
from mnemo.english.words import word_set
from mnemo.runtime.text import fold


@dataclass(frozen=True, slots=True)
class Clause:
    """
    One clause in the third person.

    Attributes:
        text: Without what stands in brackets, and without words that only introduce it or say
            that it holds now.
        dates: What stood in brackets.
        is_change: Whether it says that something is otherwise than before: "new", "went up".
        is_new_state: Whether it says that of how things are and are done: "now", "instead".
        is_sure: Whether it says so without a hedge.
    """

    text: str
    dates: str
    is_change: bool
    is_new_state: bool
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Said:
    """
    The *clauses* of a fact, and its *speaker*.

    Attributes:
        speaker: Folded; empty if the fact is in nobody's words.
    """

    speaker: str
    clauses: tuple[Clause, ...]


_LONGEST = 600
_ASKS_OR_QUOTES = frozenset('?"“”？')
_HEDGES = word_set(
    "might may maybe perhaps probably possibly would could unless if wants want hopes hope planning"
    " considering thinks thought believes wonders wondering guess supposedly"
)
"""Words by which a clause claims nothing for certain."""
_PLANS = re.compile(r"\bplans? (?:to|on|for)\b")
_FINAL = re.compile(r"[.!\s]+$")
# Behind a statement these say that it holds, which the present tense does too.
_LASTING = re.compile(
    r",? (?:now|nowadays|these days|currently|at present|at the moment|right now|for now"
    r"|from now on|as of (?:now|today)|again|instead|already|any ?more|though|too"
    r"|since (?:yesterday|last \w+|this \w+|(?:mon|tues|wednes|thurs|fri|satur|sun)day))$"
)
_OPENING = re.compile(
    r"^(?:(?:actually|sadly|unfortunately|luckily|finally|officially|correction|update"
    r"|(?:good|bad|big|sad|great) news|news|by the way|btw|fyi|so|well|ok|okay|and|but|also"
    r"|meanwhile|in the end|from now on|as of (?:now|today))"
    r"(?:[,:;!]+ ?|\.+ | [–—-]+ ?| (?=[A-Z])))+",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\b(?:now|new|again|any ?more|no longer|instead|chang(?:ed|es)|went|gone|goes|ris(?:en|es)"
    r"|rose|raised|increased|lowered|reduced|cut|dropped|fell|fallen|became|become|turned|moved"
    r"|switched|took over|taken over|takes over|another|only|left|already|back|up to|down to|since"
    r"|from now on|updated|extended|postponed|promoted|instead|third|fourth|fifth|born|actually)\b",
    re.IGNORECASE,
)
_NOW = re.compile(
    r"\b(?:now|nowadays|these days|again|instead|from now on|since (?:yesterday|last \w+|this \w+"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day))\b",
    re.IGNORECASE,
)
_ALSO = re.compile(r"\b(?:also|too|as well|another|both|besides|in addition)\b", re.IGNORECASE)
_OTHERS = re.compile(r" and others(?:(?P<owner>['’])|(?= ))")


@lru_cache(maxsize=256)
def said_in(text: str) -> Said:
    """Read *text*; a clause that asks or quotes is left out, and so is a long text."""
    if len(text) > _LONGEST:
        return Said("", ())
    speaker = speaker_of(text)
    clauses = _joined(canonical_clauses(text))
    plain = (made for clause in clauses for made in _plain(clause))
    return Said(fold(speaker or ""), tuple(dict.fromkeys(plain)))


def _plain(clause: str) -> Iterator[Clause]:
    if not _ASKS_OR_QUOTES.isdisjoint(clause):
        return
    dates = " ".join(BRACKETS.findall(clause))
    bare = re.sub(r"\s+", " ", BRACKETS.sub(" ", clause)).replace(" ,", ",")
    bare = _OTHERS.sub(_speaker_alone, LEADING.sub("", _OPENING.sub("", bare.strip())))
    is_change = _CHANGE.search(bare) is not None
    for part in _parts(_FINAL.sub("", bare)):
        is_sure = _HEDGES.isdisjoint(_lower_words(part)) and _PLANS.search(part) is None
        is_new = _NOW.search(part) is not None and _ALSO.search(part) is None
        for text in _said_plainly(_LASTING.sub("", _LASTING.sub("", part))):
            yield Clause(text, dates, is_change, is_new, is_sure)


def _speaker_alone(others: re.Match[str]) -> str:
    """ "Ana and others" is what Ana calls "we": what holds for them holds for her."""
    return "'s" if others["owner"] else ""


def _lower_words(text: str) -> set[str]:
    """Words written in lower case: the month of May is no hedge."""
    return {word for word in re.findall(r"[^\W\d_]+", text) if word.islower()}


# ── Two clauses behind a comma ───────────────────────────────────────────────────────

_JOINT = re.compile(r"(?:,|;| [–—-]|,? (?:and|but|so))+ (?=(?:[A-Z][\w'’]+|the|he|she) )")


def _parts(clause: str) -> Iterator[str]:
    """*clause*, cut where behind a comma another with a subject and a verb begins."""
    at = 0
    for joint in _JOINT.finditer(clause):
        left, right = clause[at : joint.start()], clause[joint.end() :]
        verb = finite_verb(tokens_of(right))
        if verb is not None and 1 <= verb <= 3 and finite_verb(tokens_of(left)) is not None:
            yield left
            at = joint.end()
    yield clause[at:]


# ── "It has changed, it is …" ────────────────────────────────────────────────────────

_CHANGED_TO = re.compile(
    r"^(?P<what>.+?) (?:(?:has|have|had|is|was|been|just|now|recently) )*(?:changed|updated)"
    r"(?: \w+)?(?:[,;:.–—-]| and)* (?:it|that|this|the new one|they)(?: is|['’]s| are)"
    r" (?:now )?(?P<v>.+)$",
    re.IGNORECASE,
)
_GOT_NEW = re.compile(
    r"^(?P<who>[^\s,;:]+(?: [^\s,;:]+){0,3}?) (?:(?:has|have|got|gotten|just|now) )+an? new"
    r" (?P<what>[\w-]+(?: [\w-]+){0,2}?)(?:[,;:–—-]| and| which is| of)+ (?:it(?: is|['’]s) )?"
    r"(?P<v>.+)$"
)
_REFERS = re.compile(r"^(?:it|that|this|the new one)(?: is|['’]s) (?:now )?", re.IGNORECASE)
_IS_CHANGED = re.compile(r"\b(?:changed|updated|a new \w+(?: \w+)?)[.!]?$")


def _joined(clauses: tuple[str, ...]) -> Iterator[str]:
    """*clauses*, with one that begins with "it is" joined to the change that it explains."""
    before = ""
    for clause in clauses:
        if before and _IS_CHANGED.search(before) and _REFERS.match(clause):
            clause = f"{_FINAL.sub('', before)}, {clause}"
        elif before:
            yield before
        before = clause
    if before:
        yield before


# ── The same in another order ────────────────────────────────────────────────────────

_PERSONS = (
    r"(?:boss|manager|supervisor|team ?lead|line manager|wife|husband|partner|girlfriend|boyfriend"
    r"|fianc[ée]e?|landlord|landlady|doctor|dentist|therapist|coach|teacher|tutor|mentor|assistant"
    r"|accountant|lawyer|flatmate|roommate|neighbour|neighbor)"
)
_CAPITAL = r"[^\W\d_a-z][\w'’.-]*"
_NAMED = rf"{_CAPITAL}(?: {_CAPITAL}){{0,2}}"
_OWNER = rf"(?P<s>{_CAPITAL}(?: [\w-]+){{0,2}})['’]s"
_ORDERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (_CHANGED_TO, r"\g<what> is \g<v>"),
    (_GOT_NEW, r"\g<who>'s \g<what> is \g<v>"),
    (
        re.compile(
            rf"^(?P<v>{_NAMED}) (?:is|became|has become) (?:now )?{_OWNER} "
            rf"(?:(?:new|current|present) )*(?P<a>{_PERSONS})$"
        ),
        r"\g<s>'s \g<a> is \g<v>",
    ),
    (
        re.compile(rf"^{_OWNER} (?P<a>(?:new )?{_PERSONS}),? (?P<v>{_NAMED}),? [a-z].*$"),
        r"\g<s>'s \g<a> is \g<v>",
    ),
    (
        re.compile(
            rf"^(?P<v>[^,;]{{1,40}}?) (?:is|are) (?:now )?{_OWNER} (?P<a>(?:(?:new|current) )*"
            r"favou?rite [\w-]+(?: [\w-]+)?)$"
        ),
        r"\g<s>'s \g<a> is \g<v>",
    ),
    (
        re.compile(
            rf"^.*\b(?:reach|call|text|phone|ring) (?P<s>{_NAMED}) (?:now )?(?:on|at|under)"
            r" (?P<v>[\d+][\d ()/.-]+)$"
        ),
        r"\g<s>'s phone number is \g<v>",
    ),
    (
        re.compile(rf"^(?P<s>{_NAMED}) (?:now )?reports to (?P<v>{_NAMED})$"),
        r"\g<s>'s boss is \g<v>",
    ),
    (re.compile(r"^(?P<s>.+?) (?:is|are) (?:called|named) (?P<v>.+)$"), r"\g<s> is \g<v>"),
    (
        re.compile(
            rf"^(?P<a>{_CAPITAL}) and (?P<b>{_CAPITAL}) (?:have |has |just )*"
            r"(?P<v>broke|broken|split|separated)(?: up)?\b.*$"
        ),
        r"\g<a> broke up with \g<b>",
    ),
)
_BOTH_WAYS = re.compile(rf"^(?P<a>{_CAPITAL}) broke up with (?P<b>{_CAPITAL})$")


def _said_plainly(text: str) -> Iterator[str]:
    """*text*, and what it says in the order in which others say it."""
    yield text
    for pattern, order in _ORDERS:
        if found := pattern.match(text):
            plain = found.expand(order)
            yield plain
            if both := _BOTH_WAYS.match(plain):
                yield f"{both['b']} broke up with {both['a']}"

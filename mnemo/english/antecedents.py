"""Whom "he" or "she" at the beginning of a message means: who is named in the one before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mnemo.english.asked import RELATION, kinds_of
from mnemo.english.entities import names
from mnemo.runtime.text import fold, words

_PRONOUN = re.compile(r"\W*(?:(?:now|but|and|so|meanwhile),? )?(?P<said>he|she)\b(?! and\b)", re.I)
_WOMAN = re.compile(
    r"(?:grand|step|half)?(?:mother|mum|mom|ma|sister|daughter)|aunt|niece|wife|girl|girlfriend"
    r"|landlady|mrs|ms"
)
_MAN = re.compile(
    r"(?:grand|step|half)?(?:father|dad|pa|brother|son)|uncle|nephew|husband|boy|boyfriend"
    r"|landlord|mr"
)
_NOT = {"he": _WOMAN, "she": _MAN}
_RELATIVE = re.compile(rf"\b{RELATION}s?\b")
_PLACES = r"(?:in|at|to|from|near|on|of|for|around|by)"
_NAME = r"(?!(?:My|Our|His|Her|Their|The)\b)[^\W\d_a-z][\w-]+(?:\.? [^\W\d_a-z][\w-]*)*"
_PERSON = re.compile(
    rf"(?P<at>\b{_PLACES} (?:the )?)?(?P<who>\b(?:[Mm]y|[Oo]ur) (?:"
    rf"(?:[a-z\d][\w-]* ){{0,3}}?{RELATION}(?:-in-law)?\b(?: {_NAME})?"
    rf"|(?!{_PLACES}\b)[a-z][\w-]* {_NAME})"
    rf"|(?<![\w'’-]){_NAME}|\b(?P<whose>{RELATION})s?\b)(?P<owner>['’]s\b)?"
)
_SOMEBODY, _PLACE = "", "?"


def tells_change_of_one(text: str) -> bool:
    """Whether *text* begins with "he" or "she" and tells a change or an end."""
    return _PRONOUN.match(text) is not None and not kinds_of(text).isdisjoint(("change", "end"))


def with_antecedent(text: str, before: Sequence[str], asked: str) -> str:
    """
    *text* with the person of whom *before* tells in place of the pronoun that it begins with.

    Only where one alone can be meant; else *text* as it is. A word at the beginning is a name if
    the question *asked* has it: "Rain" and "Ines" look alike.

    Args:
        before: What was said before it, the latest first.
    """
    found = _PRONOUN.match(text)
    for said in before if found else ():
        people = {*_people(said, names(text), names(asked))}
        if people and found:
            who, *others = people - {_PLACE} or {_SOMEBODY}
            other = _NOT[found["said"].lower()]
            if others or who == _SOMEBODY or any(map(other.fullmatch, words(fold(who)))):
                break
            return text[: found.start("said")] + who + text[found.end("said") :]
    return text


def _people(said: str, apart: frozenset[str], asked: frozenset[str]) -> Iterator[str]:
    """Whom *said* names, but for the names *apart*; ``_SOMEBODY``, or what may be a ``_PLACE``."""
    for found in _PERSON.finditer(said):
        who, called = found["who"], names(f"- {found['who']}")
        if called - apart or (not called and _RELATIVE.search(fold(who))):
            is_name = found.start() > 0 or " " in who or bool(called & asked)
            is_sure = is_name and not (found["owner"] or found["whose"])
            yield _PLACE if found["at"] else who if is_sure else _SOMEBODY

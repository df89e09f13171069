"""Whether two texts may make the same claim; a cosine near 1 cannot tell. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from mnemo.english.canonical import canonical_clauses, speaker_of
from mnemo.english.entities import (
    dates,
    is_measure,
    measures,
    names,
    numbers,
    same_order,
    subject,
    tokens,
    units,
)
from mnemo.runtime.text import plain, stem, terms

SHARED_WORDS = 0.5
"""Share of the longer text's content words that two wordings of one fact have in common (S)."""

_CONTRACTED_NOT = re.compile(r"\b(\w+)n['’]t\b")
_NEGATIONS = frozenset(
    ("not", "no", "never", "without", "nobody", "nothing", "none", "neither", "nowhere")
)
_ENDINGS = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|any longer|stopped|quit|quits|ceased|gave up"
    r"|given up|used to|former|formerly|ex)\b"
)
# What stands on two sides of one question: texts that take different sides differ.
_OPPOSITES = """
like love enjoy prefer adore : dislike hate detest avoid; enable activate : disable deactivate;
open reopen : close shut; pass succeed success : fail failure; before : after; more : less fewer;
accept approve confirm : reject refuse decline deny cancel; start begin : stop end finish;
increase raise grow : decrease lower reduce shrink; always : never rarely seldom;
buy purchase : sell; arrive : depart leave; win : lose; add install : remove uninstall delete;
allow permit : forbid block prohibit; online : offline; left : right; true : false; first : last;
morning : afternoon evening night; minimum : maximum; married : divorced single; gain : drop;
from : to; lend : borrow; give send : receive get; teach : learn; for : against; up : down
"""


def equal_text(a: str, b: str) -> bool:
    """Whether *a* and *b* are the same text, case, blanks and the final point aside."""
    return a == b or plain(a) == plain(b)


# ── The guard ────────────────────────────────────────────────────────────────────────


def same_claim_guard(a: str, b: str) -> bool:
    """
    Decide whether *a* and *b* may be the same fact, however near their vectors are.

    ``False`` as soon as numbers, dates, negation, the subject or the order of the parties differ,
    if each names somebody or something that the other does not, or if they have few words in
    common. ``True`` is no proof. What two people say is never the same.
    """
    if equal_text(a, b):
        return True
    told = {speaker.casefold() for text in (a, b) if (speaker := speaker_of(text))}
    if len(told) > 1:
        return False
    a, b = " ".join(canonical_clauses(a)), " ".join(canonical_clauses(b))
    return (
        numbers(a) == numbers(b)
        and _share_a_side(units(a), units(b))
        and dates(a) == dates(b)
        and _polarity_agrees(a, b)
        and _subjects_agree(a, b)
        and _share_a_side(names(a), names(b))
        and _words_agree(a, b)
        # Word vectors cannot see who did it to whom.
        and same_order(a, b, leave_out=measures())
    )


def _polarity_agrees(a: str, b: str) -> bool:
    if _negations(a) != _negations(b) or _ends(a) != _ends(b):
        return False
    mine, theirs = _sides(a), _sides(b)
    return all(mine[axis] & theirs[axis] for axis in mine.keys() & theirs.keys())


def _subjects_agree(a: str, b: str) -> bool:
    mine, theirs = subject(a), subject(b)
    # What "and" joins is a set; whether more was moved than that, the order of parties tells.
    if sorted(mine) == sorted(theirs) or not (mine and theirs):
        return sorted(mine) == sorted(theirs)
    # "Ana" and "Ana Silva" may be one person; "Ana's dog", "Ana and Bo" are somebody else.
    short, long = sorted((mine, theirs), key=len)
    return set(short) <= set(long) and not {"'s", "and", "the"} & set(long)


def _words_agree(a: str, b: str) -> bool:
    """Whether they share enough words beside what is compared above; names make vectors near."""
    about = {stem(word) for word in (*subject(a), *subject(b))}
    mine, theirs = _content(a) - about, _content(b) - about
    if not mine or not theirs:
        return True
    return len(mine & theirs) >= SHARED_WORDS * max(len(mine), len(theirs))


@lru_cache(maxsize=256)
def _content(text: str) -> frozenset[str]:
    said = (term.removesuffix("'s") for term in terms(text))
    return frozenset(term for term in said if not is_measure(term))


def _share_a_side(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether one of two sets holds nothing but what is in the other."""
    return a <= b or b <= a


def _negations(text: str) -> int:
    spelled = _CONTRACTED_NOT.sub(r"\1 not", text.lower().replace("cannot", "can not"))
    spelled = spelled.replace("no longer", "ended")
    return sum(word in _NEGATIONS for word in tokens(spelled))


def _ends(text: str) -> bool:
    return _ENDINGS.search(text.lower()) is not None


@lru_cache(maxsize=1)
def _axes() -> dict[str, tuple[int, int]]:
    """Stem → (which question, which side of it)."""
    return {
        stem(word): (axis, side)
        for axis, sides in enumerate(_OPPOSITES.split(";"))
        for side, words in enumerate(sides.split(":"))
        for word in words.split()
    }


def _sides(text: str) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for word in tokens(text):
        if place := _axes().get(stem(word)):
            found.setdefault(place[0], set()).add(place[1])
    return found

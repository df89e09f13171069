"""
Order of agent and patient: compare in which order two sentences name their parties.

The passive is turned round ("Eve was hired by Bo" has the order of "Bo hired Eve"), and
what "and" joins is a set: its members stand in alphabetical order.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mnemo.english.verbs import DETERMINERS, finite_verb, is_gerund, tokens_of
from mnemo.english.words import PARTICIPLES, PREPOSITIONS, is_adverb, is_past, word_set
from mnemo.runtime.text import STOP_WORDS, fold, stem

_BE = word_set("is are was were be been being am gets got")
_JOINS = frozenset(("and", "or", "&"))


class Place(NamedTuple):
    """
    Where a word stands.

    Attributes:
        rank: Counted from 0 in the active voice.
        group: Number of the "and" that joins it to others; 0 if none does.
    """

    rank: int
    group: int


def same_order(a: str, b: str, *, leave_out: frozenset[str] = frozenset()) -> bool:
    """
    Whether the words that *a* and *b* share have one order in both.

    Args:
        leave_out: Stems that may stand anywhere.
    """
    mine, theirs = order(a), order(b)
    shared = sorted((key for key in mine.keys() & theirs.keys() if key[0] not in leave_out),
                    key=lambda key: mine[key].rank)  # fmt: skip
    return all(
        theirs[first].rank < theirs[second].rank
        and _joined(mine, first, second) == _joined(theirs, first, second)
        for first, second in itertools.pairwise(shared)
    )


Key = tuple[str, int]
"""A stem, and for which time it occurs."""


def _joined(places: Mapping[Key, Place], first: Key, second: Key) -> bool:
    return places[first].group == places[second].group != 0


@lru_cache(maxsize=256)
def order(text: str) -> Mapping[Key, Place]:
    """Place of each content word of *text* in the active voice; adverbs have none."""
    words = active(text)
    verb = finite_verb(words, sure=False)
    found: dict[Key, Place] = {}
    seen: Counter[str] = Counter()
    for at, group in _grouped(words, len(words) if verb is None else verb):
        word = fold(words[at])
        if not word[:1].isalpha() or word in STOP_WORDS or is_adverb(word):
            continue
        term = stem(word.removesuffix("'s"))
        seen[term] += 1
        found[term, seen[term]] = Place(len(found), group)
    return found


# ── What "and" joins ─────────────────────────────────────────────────────────────────


def _grouped(words: Sequence[str], verb: int) -> Iterator[tuple[int, int]]:
    """The indexes of all words, those of each group sorted by its members, with its number."""
    done, group = 0, 0
    joins = _JOINS.intersection(words)
    for at, word in enumerate(words if joins else ()):
        if at < done or word not in joins:
            continue
        members = [*_before(words, at, done, verb), _after(words, at + 1, verb)]
        start = members[0].start
        yield from ((i, 0) for i in range(done, start))
        group += 1
        members.sort(key=lambda member: [words[i].lower() for i in member])
        yield from ((i, group) for member in members for i in member)
        done = max(member.stop for member in members)
    yield from ((i, 0) for i in range(done, len(words)))


def _before(words: Sequence[str], join: int, least: int, verb: int) -> list[range]:
    """The members of a list that ends before the "and" at *join*: "A, B and"."""
    members: list[range] = []
    stop = join - 1 if words[join - 1 : join] == [","] else join
    while stop > least:
        start = _start_of(words, stop, max(least, verb + 1 if verb < stop else least))
        members.insert(0, range(start, stop))
        if start <= least or words[start - 1] != ",":
            break
        stop = start - 1
    return members or [range(join, join)]


def _start_of(words: Sequence[str], stop: int, least: int) -> int:
    """Where the name or the noun with its article begins that ends before *stop*."""
    start = stop - 1
    if words[start][:1].isupper():
        while start > least and words[start - 1][:1].isupper():
            start -= 1
        return start
    for at in range(start, max(least, stop - 4) - 1, -1):
        if words[at].lower() in DETERMINERS:
            return at
    return start


def _after(words: Sequence[str], start: int, verb: int) -> range:
    """The member that begins at *start*: to the verb, a preposition or a mark."""
    at = start
    while at < len(words) and at != verb and not _ends_member(words, start, at):
        at += 1
    return range(start, at)


def _ends_member(words: Sequence[str], start: int, at: int) -> bool:
    word = words[at].lower()
    if not word[0].isalnum() or word in PREPOSITIONS or word in _JOINS:
        return True
    return at > start and words[start][:1].isupper() and not words[at][:1].isupper()


# ── The active voice ─────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def active(text: str) -> tuple[str, ...]:
    """Turn a passive *text* into the active voice: the words and marks, the agent first."""
    words = tokens_of(text)
    if "by" not in words:
        return words
    lower = [word.lower() for word in words]
    done, by = _passive(lower), lower.index("by")
    if not 0 < done < by:
        return words
    end = _after(words, by + 1, len(words)).stop
    doer = words[by + 1 : end]
    if not doer or is_gerund(lower[by + 1]) or not lower[by + 1][0].isalpha():
        return words
    be = max(i for i in range(done) if lower[i] in _BE)
    return (*doer, words[done], *words[:be], *words[done + 1 : by], *words[end:])


def _passive(lower: Sequence[str]) -> int:
    """The index of the participle behind a form of "be"; 0 if there is none."""
    for at, word in enumerate(lower[1:], 1):
        if (is_past(word) or word in PARTICIPLES) and word not in _BE:
            before = at - 1
            while before > 0 and is_adverb(lower[before]):
                before -= 1
            if lower[before] in _BE:
                return at
    return 0

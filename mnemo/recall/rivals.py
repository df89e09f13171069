"""
Rivals: of two statements that give different answers to a question, the newer holds.

Pairs of the best candidates are judged by a logistic over numbers of the pair; its weights are a
table that ``scripts/fit_rivals`` fits and ``rivals.json`` holds. From one probability on the newer
is placed before the older, from another the older is marked. Nothing else makes a statement better
for being recent.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.english.asked import (
    KINDS,
    VALUES,
    asked_in,
    asks_of_one,
    asks_of_the_user,
    differ_in_person,
    kinds_of,
    tell_of_two,
    tells_change,
    values_of,
)
from mnemo.english.dates import spans_of
from mnemo.english.endings import ending_keys
from mnemo.english.entities import names
from mnemo.english.forms import PLACE, form_of
from mnemo.english.sentences import sentences
from mnemo.english.words import index_terms
from mnemo.recall.score import WHERE
from mnemo.recall.search import READ
from mnemo.runtime.text import STOP_WORDS, fold, words

BEST = 20
"""Candidates, by score, of which each two are judged: 190 pairs."""
ORDER = 0.2
"""
Probability from which the newer of two is placed before the older.

Source: each file left out of the fit (``scripts/fit_rivals``, ten files), 6 of 199 questions
about what has not changed lost their first place, 8 of 200 where texts are embedded with
their day; at 0.15 it is 9 and 10, of at most 5 % that are wanted.
"""
MARK = 0.4
"""
Probability in [0, 1] from which the older is marked.

Source: as above; 46 of 52 marks among the first five were on what is outdated for a
question of that person and does not answer this one, of texts embedded with their day 55 of 64.
"""
NEAR = 0.15
"""Cosine below which two are no rivals; also where one has no vector."""
LEAST = 0.25
"""Share of the older's score that the newer has at least."""
LOST = 0.6
"""Share, by rarity, of the question's words in the older that a newer without them outdates not."""
NAMED = 0.8
"""
Share of the older's cosine with the question that a newer has which the question's name ties to it.

Source: twelve pairs of our own, seen while it was chosen, with MiniLM: the five newer that answer
had .81 and more, five of the others .76 at most. Two had more than 1 beside an older of three
sentences: they end another thing that it tells.
"""
MANY = 3
"""
Of so many words of the question in the older, a newer that tells a change has one at least, or a
name of the older.
"""


@dataclass(frozen=True, slots=True)
class Rivals:
    """
    Candidates of one question, best first.

    Attributes:
        times: When each was said, in Unix seconds.
        numbers: What orders those of one time: of the later the greater.
        speakers: Who said it; ``None`` where unknown, which counts as one speaker.
        scores: The ranking's, higher is better, in units in which 1 is much.
        near: Cosines of any two, shape ``(n, n)``, of vectors as stored (not centred);
            NaN where one has no vector.
        cosines: Of each with the question, shape ``(n,)``, likewise.
    """

    texts: Sequence[str]
    times: Sequence[float]
    numbers: Sequence[int]
    speakers: Sequence[str | None]
    scores: Sequence[float]
    near: NDArray[np.floating]
    cosines: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Indices of the candidates, best first; and of the newer one that outdates each, if any."""

    order: list[int]
    outdated_by: list[int | None]


def outdated(
    question: str,
    given: Rivals,
    *,
    known: Mapping[tuple[int, int], float] = MappingProxyType({}),
    table: Mapping[str, float] | None = None,
    order_from: float = ORDER,
    mark_from: float = MARK,
) -> Ranking:
    """
    Place among the first ``BEST`` candidates the newer before the older it replaces, and mark that.

    A question about the past is answered by what held then, and nothing is marked.

    Args:
        known: Pairs of an older and the newer that replaced it, of which the store is sure →
            the probability from which the question asks for them.
        table: As ``weights()``, which it replaces.
    """
    moment = asked_moment(question, given.times)
    table, least = table or weights(), min(order_from, mark_from)
    near = [*dict.fromkeys((*_near_pairs(given), *(pair for pair in known if max(pair) < BEST)))]
    # What costs least first: of the pairs that cannot reach a place no text is read.
    beside = _numbers_beside(question, given, near)
    most = np.broadcast_to(_odds(table, beside, _OF_TEXTS), len(near)).tolist()
    rows = dict[tuple[int, int], dict[str, float]]()
    for at, pair in enumerate(near):
        if pair in known or _chance(most[at]) >= least:
            row = _row(beside, at) | _numbers_of_terms(*_on_topic_of(question, given, pair))
            if pair in known or (
                _chance(_odds(table, row, _OF_WORDING)) >= least and _are_of_one(given, *pair)
            ):
                rows[pair] = row
    judged = []
    asking = _Asking(question, given, rows)
    for pair in {*(pair for pair in rows if asking.is_of(*pair)), *(known.keys() & rows)}:
        row = rows[pair] | _numbers_of_wording(*_on_topic_of(question, given, pair))
        chance = _chance(_odds(table, row))
        judged.append((1.0 if chance >= known.get(pair, math.inf) else chance, pair))
    # What has most likely replaced another gives its place to what is as likely alone.
    sure = {newer for chance, (_, newer) in judged if chance >= mark_from}
    told = [(c, pair) for c, pair in judged if c >= (mark_from if pair[0] in sure else order_from)]
    order = _order(given, moment, told)
    marks: list[int | None] = [None] * len(given.texts)
    if moment == math.inf:
        for _, (older, newer) in sorted(found for found in judged if found[0] >= mark_from):
            marks[older] = newer
    return Ranking(order, marks)


def _odds(
    table: Mapping[str, float], numbers: Mapping[str, Any], unread: Iterable[str] = ()
) -> Any:
    """The log odds by *numbers*, or columns of them; at most, if those in [0, 1] are *unread*."""
    of_unread = (max(table.get(name, 0.0), 0.0) for name in unread)
    of_read = sum(table.get(name, 0.0) * value for name, value in numbers.items())
    return table[""] + of_read + sum(of_unread, _ROUNDED if unread else 0.0)


def _chance(odds: float) -> float:
    """The probability of log *odds*."""
    return 1 / (1 + math.exp(-odds))


def candidate_pairs(given: Rivals) -> list[tuple[int, int]]:
    """
    Older and newer of each two of one speaker, or naming one name, that are near each other. The
    newer is not far from the question: beyond that the weights were not fitted. What is said again
    has replaced nothing.
    """
    return [pair for pair in _near_pairs(given) if _are_of_one(given, *pair)]


def _near_pairs(given: Rivals) -> list[tuple[int, int]]:
    said, near = list(zip(given.times, given.numbers, strict=True)), given.near.tolist()
    best = sorted(range(min(BEST, len(given.texts))), key=said.__getitem__)
    return [
        (older, newer)
        for older, newer in combinations(best, 2)
        if said[older] < said[newer]
        and given.texts[older] != given.texts[newer]
        and near[older][newer] >= NEAR
        and given.scores[newer] >= LEAST * given.scores[older]
        and given.cosines[newer] > 0
    ]


def _are_of_one(given: Rivals, older: int, newer: int) -> bool:
    """Whether one speaker said both, or both name one name."""
    if given.speakers[older] == given.speakers[newer]:
        return True
    return not _named(given.texts[older]).isdisjoint(_named(given.texts[newer]))


# A place without a name of its own.
_SOMEWHERE = re.compile(
    r"\b(?:home|abroad|indoors|outside|upstairs|downstairs"
    r"|(?:in|at|to|from|near|on|under|behind|by|with) (?:an?|the|my|our|his|her|their) \w+)\b"
)


class _Asking:
    """
    What a *question* asks of *pairs* of an older and a newer, and of whom.

    Whom it names is the speaker where that is the user, else one of its own names.
    """

    def __init__(self, question: str, given: Rivals, pairs: Iterable[tuple[int, int]]) -> None:
        self._question, self._given = question, given
        self._texts = {one: given.texts[one][:READ] for pair in pairs for one in pair}
        self._said = {one: names(text) for one, text in self._texts.items()}
        asked, self._sought, self._called = asked_in(question), _terms(question), names(question)
        self._people = self._called if asked.owners else None
        self._is_of_somebody = bool(asked.owners) or asks_of_the_user(question)
        self._of_names = _terms(" ".join(self._called)) if asked.owners else frozenset()
        self._things = self._sought | _terms(" ".join(asked.attributes))
        self._gives = {one: asked.is_of_a_kind(text) for one, text in self._texts.items()}
        place = PLACE if WHERE.search(fold(question)) else 0
        self._is_at = {one: form_of(text) & place for one, text in self._texts.items()}
        self._rare = _idf(tuple(_terms(text[:READ]) for text in given.texts[:BEST]))

    def is_of(self, older: int, newer: int) -> bool:
        """Whether the newer tells a change of what is asked, or of most of what the older names."""
        return not (
            self._is_of_another(older, newer)
            or self._gives_nothing(older, newer)
            or self._is_tied_by_name_alone(older, newer)
        ) and self._keeps_words(older, newer)

    def _is_of_another(self, older: int, newer: int) -> bool:
        """Whether the newer is of somebody or something else than the older, which is asked for."""
        texts, said = self._texts, self._said
        if self._called & said[older] - said[newer] and _named(texts[newer]) - said[older]:
            return True
        both = _on_topic_of(self._question, self._given, (older, newer))
        if tell_of_two(*both) or asks_of_one(self._question[:READ], *both):
            return True
        own = ((texts[one], self._given.speakers[one]) for one in (older, newer))
        return self._is_of_somebody and differ_in_person(self._people, *own)

    def _gives_nothing(self, older: int, newer: int) -> bool:
        """Whether the older has a value, or a place, as is asked for, and the newer has not."""
        kinds = kinds_of(self._texts[newer])
        if self._gives[older] and not self._gives[newer] and "end" not in kinds:
            return True
        if not self._is_at[older] or self._is_at[newer] or _SOMEWHERE.search(self._texts[newer]):
            return False
        return kinds.isdisjoint(("change", "end", "begin"))

    def _is_tied_by_name_alone(self, older: int, newer: int) -> bool:
        """
        Whether the question's own name ties them, which makes any two of one person near, and the
        newer is not as near to the question, or ends something else of what the older tells.
        """
        both = [*map(_terms, _on_topic_of(self._question, self._given, (older, newer)))]
        tied = both[0] & both[1]
        if not tied or not tied <= self._of_names:
            return False
        ended = _terms(self._texts[older]).intersection(ending_keys(self._texts[newer]))
        return self._given.cosines[newer] < NAMED * self._given.cosines[older] or (
            bool(ended) and ended.isdisjoint(self._things | both[0])
        )

    def _keeps_words(self, older: int, newer: int) -> bool:
        """
        Whether the newer says enough of what the question and the older do: the less, the more it
        tells a change. That both name whom the question names says that they are of one person.
        """
        kinds, texts = kinds_of(self._texts[newer]), self._texts
        both_name = self._of_names & _terms(texts[older]) & _terms(texts[newer])
        told, tells = (_terms(texts[one]) - both_name for one in (older, newer))
        held, lost = self._sought & told, (self._sought & told) - tells
        if both_name and not held:
            return not kinds.isdisjoint(("change", "end")) or not told.isdisjoint(tells)
        if not kinds.isdisjoint(("change", "end", "begin")):
            rest = self._said[older] & self._said[newer] - (self._called if both_name else set())
            return len(held) + bool(both_name) < MANY or lost != held or bool(rest)
        return sum(self._rare[t] for t in lost) <= LOST * sum(self._rare[t] for t in held)


def _order(
    given: Rivals, moment: float, judged: Iterable[tuple[float, tuple[int, int]]]
) -> list[int]:
    """What held at *moment* takes the place of its rivals if theirs is better; likeliest first."""
    signs = [1 if at > moment else -1 for at in given.times]
    said = zip(signs, given.times, given.numbers, strict=True)
    held = [(sign > 0, sign * at, sign * number) for sign, at, number in said]
    age = {i: place for place, i in enumerate(sorted(range(len(held)), key=held.__getitem__))}
    told = []
    for chance, pair in judged:
        front, back = sorted(pair, key=age.__getitem__)
        told.append((-age[back], chance, -age[front], front, back))
    scores, given_on = list(given.scores), dict[int, float]()
    # From what held least: along a chain each hands its place on.
    for _, _, _, front, back in sorted(told):
        given_on[back] = math.nextafter(given_on.get(back, scores[back]), math.inf)
        scores[front] = max(scores[front], given_on[back])
    return sorted(range(len(scores)), key=lambda i: -scores[i])


# ── Numbers of a pair ────────────────────────────────────────────────────────────────

_NOW = re.compile(
    r"\b(?:still|now|nowadays|current(?:ly)?|latest|today|these days|any ?more|yet|at the moment"
    r"|in the end|at present|noch|jetzt|aktuell|derzeit|ahora|todavia|actual\w*|sigue)\b"
    r"|现在|还|目前"
)
_PAST_TENSE = re.compile(r"\b(?:did|was|were|had)\b")


@cache
def _stops() -> frozenset[str]:
    return frozenset(index_terms(" ".join(STOP_WORDS)))


@lru_cache(maxsize=1_024)
def _terms(text: str) -> frozenset[str]:
    return frozenset(index_terms(text)) - _stops()


_RATE = re.compile(r"\b(?:an?|per|each|every) (?:hour|day|night|week|month|year)\b", re.IGNORECASE)


def _compared(text: str) -> frozenset[str]:
    """The terms of *text* but for "a month" and the like: two rates are not of one thing."""
    return _terms(_RATE.sub(" ", text))


def _are_linked(older: str, newer: str) -> bool:
    """Whether both say a word of one topic: that both things "moved" tells of no such."""
    both = _compared(older) & _compared(newer)
    return bool(both and both - _terms(" ".join(filter(tells_change, words(fold(newer))))))


@lru_cache(maxsize=256)
def _named(text: str) -> frozenset[str]:
    """Names in *text*, the capital at the beginning of a sentence aside."""
    rest = (sentence.partition(" ")[2] for sentence in sentences(text[:READ]))
    return frozenset(name for part in rest for name in names(part))


def _on_topic_of(question: str, given: Rivals, pair: tuple[int, int]) -> tuple[str, str]:
    older, newer = (_on_topic(given.texts[one][:READ], question) for one in pair)
    return older, newer


@lru_cache(maxsize=32)
def _on_topic(text: str, question: str) -> str:
    """The sentences of *text* that share most words with *question*; all, if none shares any."""
    found = sentences(text)
    asked = _terms(question)
    shares = [len(_terms(sentence) & asked) for sentence in found]
    best = max(shares, default=0)
    return " ".join(s for s, n in zip(found, shares, strict=True) if n == best) if best else text


def pair_numbers(older: str, newer: str, cosine: float) -> dict[str, float]:
    """The numbers of a pair of statements without a question; *cosine* is that of the two."""
    of_texts = _numbers_of_terms(older, newer) | _numbers_of_wording(older, newer)
    return {"cosine": cosine} | of_texts


def _numbers_of_terms(older: str, newer: str) -> dict[str, float]:
    a, b = _compared(older), _compared(newer)
    return {
        "linked": float(_are_linked(older, newer)),
        "shared": len(a & b) / max(1, min(len(a), len(b))),
    }


def _numbers_of_wording(older: str, newer: str) -> dict[str, float]:
    said, say = values_of(older), values_of(newer)
    kinds = kinds_of(newer)
    return {
        **{kind: float(kind in kinds) for kind in KINDS},
        "value": float(any(said[t] and say[t] and not said[t] & say[t] for t in VALUES)),
        "equal": float(any(said[t] & say[t] for t in VALUES)),
    }


_OF_WORDING = (*KINDS, "value", "equal")
"""Numbers for which the texts are read, each in [0, 1]; of the others for terms alone."""
_OF_TEXTS = ("linked", "shared", *_OF_WORDING)
_ROUNDED = 1e-9


def question_numbers(
    question: str, given: Rivals, pairs: Sequence[tuple[int, int]]
) -> list[dict[str, float]]:
    """All numbers of each of *pairs*, (older, newer), of the candidates of *question*."""
    beside = _numbers_beside(question, given, pairs)
    rows = ((pair, _row(beside, at)) for at, pair in enumerate(pairs))
    return [
        pair_numbers(*_on_topic_of(question, given, pair), row["cosine"]) | row
        for pair, row in rows
    ]


def _row(columns: Mapping[str, NDArray[np.float64]], at: int) -> dict[str, float]:
    return {name: column.item(at) for name, column in columns.items()}


def _numbers_beside(
    question: str, given: Rivals, pairs: Sequence[tuple[int, int]]
) -> dict[str, NDArray[np.float64]]:
    """The numbers of each of *pairs* but for ``_OF_TEXTS``, as columns."""
    terms = tuple(_compared(text[:READ]) for text in given.texts[:BEST])
    idf = _idf(terms)
    place, rarity = {term: at for at, term in enumerate(idf)}, np.array([*idf.values()])
    holds = np.zeros((len(terms), len(idf)))
    for row, found in zip(holds, terms, strict=True):
        row[[place[term] for term in found]] = 1
    both = np.einsum("ij,kj->ik", holds * rarity, holds)
    alone = holds[:, rarity == idf[""]]
    mass = np.where(both.diagonal() > 0, both.diagonal(), 1.0)
    asked = fold(question)
    tense = _PAST_TENSE.search(asked) is not None and not asks_the_past(question)
    scores, own = np.array(given.scores, float), np.asarray(given.cosines, float)
    older, newer = np.array(pairs, int).reshape(-1, 2).T
    behind = scores.max(initial=0.0) - scores
    return {
        "cosine": given.near[older, newer].astype(float),
        "rare": both[older, newer] / np.sqrt(mass[older] * mass[newer]),
        "alone": np.minimum(2, np.einsum("ij,ij->i", alone[older], alone[newer])),
        "older_cosine": own[older],
        "newer_cosine": own[newer],
        "least_cosine": np.minimum(own[older], own[newer]),
        "older_behind": behind[older],
        "newer_behind": behind[newer],
        "rank": np.log1p(np.maximum(older, newer)),
        "past_tense": np.full(len(older), float(tense)),
        "now": np.full(len(older), float(_NOW.search(asked) is not None)),
    }


@lru_cache(maxsize=8)
def _idf(terms: tuple[frozenset[str], ...]) -> Mapping[str, float]:
    """Of each term among the candidates alone; under "" that of a term which two of them share."""
    count = Counter(chain.from_iterable(terms)) | Counter({"": 2})
    rarity = {n: math.log1p((len(terms) - n + 0.5) / (n + 0.5)) for n in {*count.values()}}
    return {term: rarity[n] for term, n in count.items()}


@cache
def weights() -> Mapping[str, float]:
    """The fitted weight of each number, in log odds per unit; under "" the constant."""
    table = json.loads(Path(__file__).with_name("rivals.json").read_text("utf-8"))
    return {"": table["constant"], **table["weights"]}


# ── Questions about the past ─────────────────────────────────────────────────────────

_THEN = re.compile(
    r"\b(?:previous(?:ly)?|used to|former(?:ly)?|original(?:ly)?|initial(?:ly)?|at first"
    r"|at the (?:beginning|start|outset)|in the (?:beginning|past)|back (?:then|in)|fruher"
    r"|vorher|damals|zuerst|ursprunglich|ehemalig\w*|antes|anterior(?:mente)?|al principio"
    r"|solia)\b|以前|之前|原来|最初|曾经"
)
# Of the past only beside a verb in the past: "before breakfast", "how old", "first thing".
_EARLIER = re.compile(r"\b(?:before|first|earlier|once|(?<!how )old)\b")


def asks_the_past(question: str) -> bool:
    """Whether words of *question* ask for what held before: "used to", "before", "the first"."""
    asked = fold(question)
    return _THEN.search(asked) is not None or (
        _EARLIER.search(asked) is not None and _PAST_TENSE.search(asked) is not None
    )


def asked_moment(question: str, times: Sequence[float]) -> float:
    """
    The moment for which *question* wants the answer, in Unix seconds; infinite: now.

    The end of the latest span it names, if that is over when the last candidate was said, at
    one of *times*; minus infinity if it asks for what held before, without a date.
    """
    if times:
        spans = spans_of(question, min(times), max(times))
        if spans and (end := max(end for _, end in spans)) <= max(times):
            return end
    return -math.inf if asks_the_past(question) else math.inf

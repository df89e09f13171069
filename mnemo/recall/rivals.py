"""
Rivals: of two statements that give different answers to a question, the newer holds.

Pairs of the best candidates are judged by a logistic over numbers of the pair; its
weights are a table that ``scripts/fit_rivals`` fits and ``rivals.json`` holds. From one
probability on the newer is placed before the older, from another the older is marked.
Nothing else makes a statement better for being recent. NumPy only, no await.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from mnemo.english.change import KINDS, VALUES, kinds_of, values_of
from mnemo.english.dates import spans_of
from mnemo.english.entities import names
from mnemo.english.sentences import sentences
from mnemo.english.words import index_terms
from mnemo.runtime.text import STOP_WORDS, fold

Floats = NDArray[np.float64]

BEST = 20
"""Candidates, by score, of which each two are judged: 190 pairs."""
ORDER = 0.2
"""
Probability in [0, 1] from which the newer of two is placed before the older.

Source: the lowest at which at most 5 % of the questions about what has not changed lost
their first place, each file left out of the fit (``scripts/fit_rivals``): 6 of 145, and 9 of
146 where texts are embedded with their day.
"""
MARK = 0.4
"""
Probability in [0, 1] from which the older is marked.

Source: as above; 44 of 49 marks among the first five were on what is outdated for a
question of that person and does not answer this one, of texts embedded with their day 52 of 60.
"""
NEAR = 0.15
"""Cosine below which two are no rivals; also where one has no vector."""
LEAST = 0.25
"""Share of the older's score that the newer has at least."""
LOST = 0.6
"""Share, by rarity, of the question's words in the older that a newer without them outdates not."""
MANY = 3
"""Of so many words of the question in the older, a newer that tells a change has one at least."""
READ = 2_000
"""Characters of a statement that are read: bounds the work on one of many pages."""


@dataclass(frozen=True, slots=True)
class Rivals:
    """
    Candidates of one question, best first.

    Attributes:
        texts: What each says.
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

    def said(self, i: int) -> tuple[float, int]:
        """What the order in which they were said goes by."""
        return self.times[i], self.numbers[i]


@dataclass(frozen=True, slots=True)
class Ranking:
    """
    What holds first.

    Attributes:
        order: Indices of the candidates, best first.
        outdated_by: For each candidate, in the order given, the index of the newer one that
            replaces or ends it, or ``None``.
    """

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
        order_from, mark_from: Probabilities in [0, 1].
    """
    moment = asked_moment(question, given.times)
    asked = _still_asked(question, given, candidate_pairs(given))
    pairs = [*dict.fromkeys((*asked, *(pair for pair in known if max(pair) < BEST)))]
    rows = question_numbers(question, given, pairs)
    judged = list(zip(_chances(rows, table or weights()), pairs, strict=True))
    judged = [(1.0 if c >= known.get(pair, math.inf) else c, pair) for c, pair in judged]
    order = _order(given, moment, [pair for chance, pair in judged if chance >= order_from])
    marks: list[int | None] = [None] * len(given.texts)
    if moment == math.inf:
        for _, (older, newer) in sorted(found for found in judged if found[0] >= mark_from):
            marks[older] = newer
    return Ranking(order, marks)


def candidate_pairs(given: Rivals) -> list[tuple[int, int]]:
    """
    Older and newer of each two that may be rivals: of one speaker, or naming one name.

    Near each other, and the newer not far from the question: beyond what the weights were
    fitted on they tell nothing.
    """
    best = sorted(range(min(BEST, len(given.texts))), key=given.said)
    return [
        (older, newer)
        for older, newer in combinations(best, 2)
        if given.said(older) < given.said(newer)
        and given.near[older, newer] >= NEAR
        and given.scores[newer] >= LEAST * given.scores[older]
        and _of_one(given, older, newer)
    ]


def _of_one(given: Rivals, a: int, b: int) -> bool:
    return given.speakers[a] == given.speakers[b] or bool(
        _named(given.texts[a][:READ]) & _named(given.texts[b][:READ])
    )


def _still_asked(
    question: str, given: Rivals, pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """
    The *pairs* whose newer has most of what the question names and the older has.

    "Who bakes in Faro?" is not answered anew by somebody who bakes in Evora, unless a change
    is told.
    """
    best = given.texts[:BEST]
    terms = [_terms(text[:READ]) for text in best]
    changes = [bool(kinds_of(text[:READ]) & {"change", "end", "begin"}) for text in best]
    rare, sought = _idf(terms), _terms(question)

    def weight(found: frozenset[str]) -> float:
        return sum(map(rare.__getitem__, found))

    def is_asked(older: int, newer: int) -> bool:
        held = sought & terms[older]
        lost = held - terms[newer]
        if changes[newer]:
            return len(held) < MANY or lost != held
        return weight(lost) <= LOST * weight(held)

    return [pair for pair in pairs if is_asked(*pair)]


def _order(given: Rivals, moment: float, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """What held at *moment* takes the place of its rivals, if theirs is better."""

    def held(i: int) -> tuple[bool, float, int]:
        (at, number), sign = given.said(i), 1 if given.times[i] > moment else -1
        return sign > 0, sign * at, sign * number

    scores = list(given.scores)
    told = [tuple(sorted(pair, key=held)) for pair in pairs]
    fronts = {front for front, _ in told}
    # From what held least: along a chain each hands its place on.
    for front, back in sorted(told, key=lambda pair: held(pair[1]), reverse=True):
        scores[front] = max(scores[front], math.nextafter(scores[back], math.inf))

    def place(i: int) -> tuple[float, tuple[bool, float, int], int]:
        return -scores[i], held(i) if i in fronts else (False, 0.0, 0), i

    return sorted(range(len(scores)), key=place)


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


@lru_cache(maxsize=256)
def _named(text: str) -> frozenset[str]:
    """Names in *text*, the capital at the beginning of a sentence aside."""
    rest = (sentence.partition(" ")[2] for sentence in sentences(text))
    return frozenset(name for part in rest for name in names(part))


def _on_topic(text: str, question: str) -> str:
    """The sentences of *text* that share most words with *question*; all, if none shares any."""
    found = sentences(text)
    asked = _terms(question)
    shares = [len(_terms(sentence) & asked) for sentence in found]
    best = max(shares, default=0)
    return " ".join(s for s, n in zip(found, shares, strict=True) if n == best) if best else text


def pair_numbers(older: str, newer: str, cosine: float) -> dict[str, float]:
    """The numbers of a pair of statements without a question; *cosine* is that of the two."""
    a, b = _terms(older), _terms(newer)
    said, say = values_of(older), values_of(newer)
    kinds = kinds_of(newer)
    return {
        "cosine": cosine,
        "linked": float(bool(a & b)),
        "shared": len(a & b) / max(1, min(len(a), len(b))),
        **{kind: float(kind in kinds) for kind in KINDS},
        "value": float(any(said[t] and say[t] and not said[t] & say[t] for t in VALUES)),
        "equal": float(any(said[t] & say[t] for t in VALUES)),
    }


def question_numbers(
    question: str, given: Rivals, pairs: Sequence[tuple[int, int]]
) -> list[dict[str, float]]:
    """All numbers of each of *pairs*, (older, newer), of the candidates of *question*."""
    best = range(min(BEST, len(given.texts)))
    parts = [_on_topic(given.texts[i][:READ], question) for i in best]
    terms = [_terms(given.texts[i][:READ]) for i in best]
    idf = _idf(terms)
    mass = [sum(map(idf.__getitem__, found)) or 1.0 for found in terms]
    asked = fold(question)
    tense = float(_PAST_TENSE.search(asked) is not None and not asks_the_past(question))
    now = float(_NOW.search(asked) is not None)
    top = max(given.scores, default=0.0)
    rows = []
    for older, newer in pairs:
        both = terms[older] & terms[newer]
        cosines = float(given.cosines[older]), float(given.cosines[newer])
        rows.append(
            pair_numbers(parts[older], parts[newer], float(given.near[older, newer]))
            | {
                "rare": sum(map(idf.__getitem__, both)) / math.sqrt(mass[older] * mass[newer]),
                "alone": float(min(2, sum(idf[term] == idf[""] for term in both))),
                "older_cosine": cosines[0],
                "newer_cosine": cosines[1],
                "least_cosine": min(cosines),
                "older_behind": top - given.scores[older],
                "newer_behind": top - given.scores[newer],
                "rank": math.log1p(max(older, newer)),
                "past_tense": tense,
                "now": now,
            }
        )
    return rows


def _idf(terms: Sequence[frozenset[str]]) -> dict[str, float]:
    """Of each term among the candidates alone; under "" that of a term which two of them share."""
    count = Counter(term for found in terms for term in found) | Counter({"": 2})
    return {t: math.log1p((len(terms) - n + 0.5) / (n + 0.5)) for t, n in count.items()}


def _chances(rows: Sequence[Mapping[str, float]], table: Mapping[str, float]) -> list[float]:
    sums = (table[""] + sum(table[name] * value for name, value in row.items()) for row in rows)
    return [1 / (1 + math.exp(-total)) for total in sums]


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

    The end of the latest span it names, if that is over when the last candidate was said;
    minus infinity if it asks for what held before, without a date.

    Args:
        times: Of the candidates.
    """
    if times:
        spans = spans_of(question, min(times), max(times))
        if spans and (end := max(end for _, end in spans)) <= max(times):
            return end
    return -math.inf if asks_the_past(question) else math.inf

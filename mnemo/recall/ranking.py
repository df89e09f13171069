"""
What is added to a step's score: who speaks, the form of what was said, the answer's type.

The weights are a table that ``scripts/fit_ranking`` fits and ``ranking.json`` holds; 1 is
one deviation of the score among the eligible steps. NumPy only, no await.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.english.words import index_terms_of
from mnemo.recall.bm25 import Chain, highest
from mnemo.recall.question import RecallQuestion
from mnemo.runtime.text import fold
from mnemo.values.corpus import StepsView
from mnemo.values.form import DATE, FIRST, FORMS, NUMBER, PLACE
from mnemo.values.postings import idf

__all__ = ["SIGNALS", "Signal", "SignalInput", "added_to", "fitted_weights", "table"]

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

BEST = 200
"""Steps, by score, of which the signals are computed that cost a vector each."""
SAMPLED = 1_000
"""Vectors, evenly spread, whose mean stands for that of all."""

_WHERE = (
    r"\bwhere\b|\b(?:what|which) (?:\w+ )?"
    r"(?:place|city|citie|country|countrie|state|town|location|area)s?\b"
)
_HOW_LONG = r"\bhow long\b|\bhow many (?:days|weeks|months|years|hours|minutes)\b"


@dataclass(frozen=True)
class SignalInput:
    """
    One question over the eligible steps, as the signals see it.

    Attributes:
        ok: Which documents are eligible.
        agent: Which documents are the agent's side.
        scores: The score that is added to, in its own deviations.
    """

    view: StepsView
    question: RecallQuestion
    ok: Mask
    chain: Chain
    agent: Mask
    scores: Floats

    @cached_property
    def everyone(self) -> bool:
        """Whether all documents are eligible."""
        return self.population == len(self.ok)

    @cached_property
    def population(self) -> int:
        """How many documents are eligible."""
        return int(np.count_nonzero(self.ok))

    @cached_property
    def query(self) -> str:
        """The folded query."""
        return fold(self.question.query)

    @cached_property
    def topic(self) -> tuple[Floats, Floats] | None:
        """
        Cosine of the query's rare words with each step, and with it and both its neighbours.

        Of the ``BEST`` steps only, the others have 0. All vectors are centred.
        """
        vector = self._rare_words()
        if vector is None:
            return None
        view, chain = self.view, self.chain
        # A row beyond the view's vectors belongs to one that came after the view.
        known = self.ok & (view.rows >= 0) & (view.rows < len(view.vectors))
        best = highest(self.scores, known & np.isfinite(self.scores), BEST)
        eligible = view.rows[known]
        if not len(eligible):
            return None
        mean = view.vectors[eligible[:: max(1, len(eligible) // SAMPLED)]].mean(axis=0)
        vector = _unit(vector - mean)
        rows = np.stack((best, chain.previous[best], chain.next[best]))
        there = np.stack((known[best], chain.has_previous[best], chain.has_next[best]))
        there &= known[rows]
        vectors = view.vectors[np.where(there, view.rows[rows], 0)]
        near = _unit(vectors - mean) * there[..., np.newaxis]
        own, around = np.zeros((2, view.count), np.float32)
        own[best] = near[0] @ vector
        around[best] = _unit(near.sum(axis=0)) @ vector
        return own, around

    def _rare_words(self) -> Floats | None:
        """The mean vector of the query's words, each weighted by how rare it is."""
        vectors = self.question.word_vectors
        if vectors is None or not len(vectors) or vectors.shape[1] != self.view.vectors.shape[1]:
            return None
        if not len(self.view.vectors):
            return None
        held = [self._held(word) for word in self.question.words]
        rarity = np.asarray([idf(self.population, count) for count in held], np.float32)
        return _unit(rarity @ vectors)

    def _held(self, word: str) -> int:
        """How many eligible documents hold the rarest term of *word*."""
        found = (self.view.postings.read(t, self.view.count) for t in index_terms_of((word,)))
        counts = [int(np.count_nonzero(self.ok[posting[0]])) for posting in found if posting]
        return min(filter(None, counts), default=self.population // 20)

    @cached_property
    def named(self) -> Mask:
        """Whether the question names the actor, for each of ``view.actors``."""
        named = self.question.named
        return np.asarray([not named.isdisjoint(a.split()) for a in self.view.actors], np.bool_)


Values = Callable[[SignalInput], NDArray[Any] | None]


@dataclass(frozen=True, slots=True)
class Signal:
    """
    A property of a step that may tell the one that answers.

    Attributes:
        group: What it is about; groups are left out together by the bench.
        values: One number per document, ``None`` where the question has no use for it;
            higher ones should speak for the document.
    """

    group: str
    values: Values


@dataclass(frozen=True)
class FormSignal:
    """
    Whether a step has one of *bits*, where the question matches *asks*.

    It depends on the step's form alone: all such signals are added up per form.
    """

    bits: int
    asks: re.Pattern[str] | None = None

    def __call__(self, asked: SignalInput) -> NDArray[Any] | None:
        """One number per document."""
        held = self.of_forms(asked)
        return None if held is None else held[asked.view.form]

    def of_forms(self, asked: SignalInput) -> Mask | None:
        """One number per form."""
        if self.asks is not None and not self.asks.search(asked.query):
            return None
        return (np.arange(FORMS) & self.bits) > 0


def _answer(asks: str, bits: int) -> FormSignal:
    return FormSignal(bits, re.compile(asks))


def _speaker(asked: SignalInput) -> Mask | None:
    return asked.named[asked.view.actor] if asked.named.any() else None


def _reply(asked: SignalInput) -> Floats:
    after = asked.chain.after(np.maximum(asked.scores, 0))
    return after * (~asked.agent & asked.agent[asked.chain.next])


def _topic(asked: SignalInput) -> Floats | None:
    return None if asked.topic is None else asked.topic[0]


def _topic_around(asked: SignalInput) -> Floats | None:
    return None if asked.topic is None else asked.topic[1]


def _unit(rows: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("...i,...i->...", rows, rows))[..., np.newaxis]
    return np.asarray(rows / np.maximum(lengths, 1e-6), np.float32)


SIGNALS: Mapping[str, Signal] = {
    "topic": Signal("topic", _topic),
    "topic around": Signal("topic", _topic_around),
    "speaker": Signal("who", _speaker),
    "first person": Signal("form", FormSignal(FIRST)),
    "date": Signal("form", FormSignal(DATE)),
    "where: place": Signal("answer", _answer(_WHERE, PLACE)),
    "how long: number": Signal("answer", _answer(_HOW_LONG, NUMBER | DATE)),
    "agent's reply": Signal("roles", _reply),
}
"""Every signal, by its name in the table of weights."""


@cache
def table() -> dict[str, Any]:
    """The shipped table: weights for short and long documents, and how they were fitted."""
    read: dict[str, Any] = json.loads(Path(__file__).with_name("ranking.json").read_text("utf-8"))
    return read


def fitted_weights(length: str) -> Mapping[str, float]:
    """Signal → weight for ``"short"`` or ``"long"`` documents."""
    weights: Mapping[str, float] = table()["weights"][length]
    return weights


def added_to(
    asked: SignalInput, weights: Mapping[str, float], *, explain: bool = False
) -> dict[str, Floats]:
    """
    What signals add, in deviations, with mean 0 over the eligible documents.

    Args:
        explain: Whether to name each signal; else those of the form alone are one, ``form``.
    """
    added: dict[str, Floats] = {}
    forms = np.zeros(FORMS, np.float32)
    for name, weight in weights.items():
        values = SIGNALS[name].values
        if isinstance(values, FormSignal) and not explain:
            held = values.of_forms(asked)
            forms += 0 if held is None else np.float32(weight) * held
        elif (each := values(asked)) is not None:
            added[name] = _centred(np.float32(weight) * each, asked)
    if forms.any():
        added["form"] = _centred(forms[asked.view.form], asked)
    return added


def _centred(values: Floats, asked: SignalInput) -> Floats:
    eligible = values if asked.everyone else values[asked.ok]
    return np.asarray(values - eligible.mean(), np.float32)

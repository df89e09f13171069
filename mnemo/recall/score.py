"""
Score every document that takes part against a question, and value the candidates.

In absolute units; NumPy only, no await.

A score is a weighted sum of cosines, shares of words and a few facts about a turn. Which
weights hold is decided by what kind of text a document is: a note, a turn of a chat, or a
long message. Nothing is measured against the other documents of the store, so that stores of
20 and of 2 million documents mean the same.

Source of the weights: chosen in round steps on four development sets, of messages of single
people, of chats and of long messages; ``scripts/bench_questions``
measure them, ``--ablate`` each of them, and the guide's page ``recall`` has the figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from mnemo.config import ScoringConfig, TypeScoring
from mnemo.english.asked import in_own_words, without_scaffolding
from mnemo.english.forms import DATE, FIRST, NUMBER, PLACE
from mnemo.english.words import index_terms
from mnemo.index.columns import Floats, Ints, Mask
from mnemo.index.corpus import ROLES, CorpusView, DocumentsView, StepsView, thread_chain
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE, Pieces
from mnemo.protocols import ValueFunction
from mnemo.recall.request import MAX_QUERY_CHARACTERS, RecallContext
from mnemo.recall.result import GROUPS, Explanation
from mnemo.recall.shares import Whole, held, of_pieces, shares, with_previous
from mnemo.runtime.text import clean, fold, words
from mnemo.runtime.user_code import call
from mnemo.values.filters import Filters
from mnemo.values.graph import Node, NodeMetadata, NodeType

# ── The question ────────────────────────────────────────────────────────────────────────


TAG_WEIGHT = 0.9
"""What a tag's cosine counts beside the query's."""
CONTEXT_VECTOR_WEIGHT = 0.5
CONTEXT_TERM_WEIGHT = 0.3

_OF_THE_AGENT = re.compile(
    r"\b(?:did|have|had|were|was) you\b|\byour (?:advice|answers?|suggestions?|recommendations?)\b"
    r"|\byou (?:said|told|mentioned|suggested|recommended|advised|explained|proposed|wrote)\b"
)
_OF_THE_ASKER = re.compile(r"\b(?:i|i'm|i've|my|mine|me|we|our|us)\b")


@dataclass(frozen=True, slots=True)
class RecallQuestion:
    """
    The query as it is scored.

    Attributes:
        terms: Index term → weight in BM25; 1 for the query's own.
        named: Folded words of the query; an actor among them is named by it.
        texts: To be embedded: the topic in the user's own words, the tags that say more than it
            does, and last the context.
        about: Whose words are asked for: what did *you* suggest; *I*, *my*.
        vectors: Unit rows of the query and these tags; ``None`` without an embedder.
    """

    query: str
    terms: dict[str, float]
    named: frozenset[str]
    texts: tuple[str, ...]
    about: Literal["agent", "asker"] | None = None
    has_context: bool = False
    vectors: Floats | None = field(default=None, compare=False, repr=False)

    def embedded(self, rows: Floats) -> RecallQuestion:
        """This question with the vectors of its ``texts``."""
        if self.has_context:
            leading = rows[0] + np.float32(CONTEXT_VECTOR_WEIGHT) * rows[-1]
            rows = np.vstack((leading / max(float(np.linalg.norm(leading)), 1e-9), rows[1:-1]))
        return replace(self, vectors=rows.astype(np.float32, copy=False))


def ask(
    query: str, tags: Sequence[str] = (), context: RecallContext | None = None
) -> RecallQuestion:
    """Read *query*; every sign in it is text, whatever a search engine would make of it."""
    query = clean(query[:MAX_QUERY_CHARACTERS])
    topic, folded = without_scaffolding(query), fold(query)
    own = dict.fromkeys(index_terms(topic), 1.0)
    weighted = dict.fromkeys(index_terms(context.text), CONTEXT_TERM_WEIGHT) if context else {}
    telling = (tag for tag in tags if not own.keys() >= {*index_terms(tag)})
    about: Literal["agent", "asker"] | None = "asker" if _OF_THE_ASKER.search(folded) else None
    return RecallQuestion(
        terms=weighted | own,
        named=frozenset(word.removesuffix("'s") for word in words(query)),
        query=query,
        texts=(in_own_words(topic), *telling, *([context.text] if context else [])),
        about="agent" if _OF_THE_AGENT.search(folded) else about,
        has_context=context is not None,
    )


# ── Documents ───────────────────────────────────────────────────────────────────────────


WEIGHTS: dict[str, dict[int, float]] = {
    "cosine": {NOTE: 3.0, CHAT: 0.3, DOCUMENT: 1.0},
    "window": {CHAT: 0.5},
    "words": {NOTE: 0.5, CHAT: 0.3, DOCUMENT: 0.6},
    "joined": {CHAT: 0.6},
    "session": {CHAT: 0.3},
    "speaker": {CHAT: 0.45},
    "not the agent": {DOCUMENT: 0.3},
    "where: place": {CHAT: 0.2},
    "how long: number": {CHAT: 0.4},
    "asks": {CHAT: -0.1},
    "length": {CHAT: 0.06},
    "first person": {CHAT: 0.05},
    "date": {CHAT: 0.05},
    "restated": {NOTE: 0.5, CHAT: 1.0, DOCUMENT: 1.0},
}
"""
Signal → kind of text → weight; the bench leaves signals out to see what they give.

``restated`` is the share of what a fact matches better than its step. Of notes half: there all
facts begin alike ("User …"), and a question that does so too would raise them all.
"""
ANSWERS: dict[str, float] = {"attribute": 0.6, "value": 0.4, "name": 0.2, "another": -0.4}
"""
What a text of a form that the question asks for gets beside its kind's signals.

It gives a value of the attribute asked for; or, of a note alone, has a value of the kind asked
for, has a name where somebody is asked for, or tells of another person than asked about.
"""
SCALE = 3.0
"""Score at which a document is as relevant as can be: about all cosine and all words."""
EXPECTED = 0.3
"""
Cosine that a document without a vector is taken to have where it has all words of the question,
and so much less as it has fewer. Where one with a vector is nearer, its cosine takes this place:
where all texts are alike, or with another embedder, cosines are larger.

Of the pairs of a question and a text that share words, this is the slope of the cosine over the
share: .29 in chats and .32 in notes with MiniLM, where those with all words have .26 and .31 (S).
"""
WINDOWED = 250
"""Turns, best by everything else, whose window of neighbours is looked at."""
_TYPICAL_LOG_WORDS = 3.0

WHERE = re.compile(
    r"\bwhere\b|\b(?:what|which) (?:\w+ )?"
    r"(?:place|city|citie|country|countrie|state|town|location|area)s?\b"
)
_HOW_LONG = re.compile(r"\bhow long\b|\bhow many (?:days|weeks|months|years|hours|minutes)\b")


@dataclass(frozen=True, slots=True)
class Hits:
    """
    The documents of one type, scored.

    Attributes:
        scores: Of every document; minus infinity where it is not eligible.
        match: How well each matches by itself, as a note would.
        cosines: Best with the query or a tag, as the embedder gives it; 0 without a vector.
        near: As *cosines*, less what all documents have in common; what confidence looks at.
        parts: Signal → what it adds to the score of every document.
    """

    view: DocumentsView
    scores: Floats
    match: Floats
    cosines: Floats
    near: Floats
    words: Floats
    is_note: Mask
    parts: Mapping[str, Floats]

    def best(self, values: Floats, id: str) -> float:
        """The best of *values*, of which each document has one, for node *id*; 0 without any."""
        return max((float(values[d]) for d in self.view.of(id)), default=0.0)

    def relevance(self, id: str) -> float:
        return relevance_of(self.best(self.scores, id))

    def vector(self, id: str) -> Floats | None:
        """The first vector of node *id*, as the embedder gave it."""
        rows = (int(self.view.rows[d]) for d in self.view.of(id))
        return next((self.view.vectors[row] for row in rows if row >= 0), None)

    def parts_of(self, id: str) -> dict[str, float]:
        """Signal → what it adds to the score of node *id*; only what is not 0."""
        best = max(self.view.of(id), key=lambda d: float(self.scores[d]), default=None)
        if best is None:
            return {}
        return {name: float(values[best]) for name, values in self.parts.items() if values[best]}

    def are_notes(self, id: str) -> bool:
        return all(self.is_note[d] for d in self.view.of(id))

    def has(self, id: str) -> bool:
        """Whether *id* is here and passes the filters."""
        return any(np.isfinite(self.scores[d]) for d in self.view.of(id))

    def passes(self, id: str, threshold: float) -> bool:
        """Whether *id* reaches *threshold* by cosine, or shares a word with the question."""
        return any(self.words[d] > 0 or self.cosines[d] >= threshold for d in self.view.of(id))


def relevance_of(score: float) -> float:
    """How relevant a document of this *score* is, in [0, 1]."""
    return min(max(score / SCALE, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Scorer:
    """
    Scores documents against one question.

    Attributes:
        agents: Folded names of those who are the agent's side, beside every action.
        dense_weight: Of the embedding space: what its cosines count.
    """

    question: RecallQuestion
    rarity: Mapping[str, float]
    steps: StepsView
    whole: Whole
    agents: frozenset[str]
    dense_weight: float

    @property
    def pieces(self) -> Pieces:
        """What belongs together among the steps."""
        return self.whole.pieces

    def of_nodes(self, kind: NodeType, view: DocumentsView, ok: Mask) -> Hits:
        """Score nodes as notes; *ok* are the eligible ones."""
        words = shares(held(view, self.rarity, view.alive), self.whole.totals.means[kind])
        near = Nearness.of(view, self.question, self.steps.centre, words, ok)
        parts = self._of_note(near, words)
        return self._hits(view, ok, parts, near, words, np.ones(view.count, np.bool_))

    def _of_note(self, near: Nearness, words: Floats) -> dict[str, Floats]:
        meaning = np.float32(WEIGHTS["cosine"][NOTE] * self.dense_weight) * near.best
        return {"cosine": meaning, "words": np.float32(WEIGHTS["words"][NOTE]) * words}

    def of_steps(self, ok: Mask) -> Hits:
        """Score the sides of steps, each by the weights of its kind; *ok* are the eligible ones."""
        view, pieces, means = self.steps, self.pieces, self.whole.totals.means
        own = held(view, self.rarity, pieces.exists)
        words = shares(own, means["episodic"])
        near = Nearness.of(view, self.question, view.centre, words, ok)
        signals = {
            "cosine": np.where(pieces.kind == DOCUMENT, near.first, near.best),
            "words": words,
            **self._facts_about_turns(),
        }
        if (pieces.kind == CHAT).any():
            # A long turn stands for itself.
            session = self.whole.session
            if session is None:
                session = shares(of_pieces(own, pieces), means["piece"])
                session = session[np.maximum(pieces.piece, 0)]
            joined = shares(with_previous(own, pieces), means["joined"])
            signals["joined"] = np.where(pieces.long, words, joined)
            signals["session"] = np.where(pieces.long, words, session)
        parts = {name: self._weighted(name, values) for name, values in signals.items()}
        others = np.where(ok, sum(parts.values()), np.float32(-np.inf))
        parts["window"] = self._weighted("window", _window(view, near, pieces, others))
        return self._hits(view, ok, parts, near, words, pieces.kind == NOTE)

    def _hits(
        self,
        view: DocumentsView,
        ok: Mask,
        parts: Mapping[str, Floats],
        near: Nearness,
        words: Floats,
        is_note: Mask,
    ) -> Hits:
        total, match = _total(parts), _total(self._of_note(near, words))
        scores = np.where(ok, total, np.float32(-np.inf))
        return Hits(view, scores, match, near.plain, near.best, words, is_note, parts)

    def _weighted(self, name: str, values: Floats) -> Floats:
        scale = self.dense_weight if name in GROUPS["meaning"] else 1.0
        weights = [scale * WEIGHTS[name].get(k, 0.0) for k in (NOTE, CHAT, DOCUMENT)]
        return np.asarray(np.asarray(weights, np.float32)[self.pieces.kind] * values, np.float32)

    def with_steps(self, nodes: Hits, steps: Hits, pairs: Ints) -> tuple[Hits, Floats]:
        """
        Score nodes as the steps behind them, and by what they say better; what each gains. A fact
        says what a turn means by "it" or "tomorrow": of what its cosine or its words are better, a
        share counts. Fact and step are one candidate.
        """
        node, step = pairs[:, 0], pairs[:, 1]
        kind = self.pieces.kind[step]
        gain = np.zeros(len(pairs), np.float32)
        # What is expected of a fact says nothing that its step does not.
        said = np.where(nodes.view.embedded, nodes.near, np.float32(-np.inf))
        for name, scale, own, theirs in (
            ("cosine", self.dense_weight, said, steps.near),
            ("words", 1.0, nodes.words, steps.words),
        ):
            share = WEIGHTS["restated"]
            by_kind = [share[k] * scale * WEIGHTS[name][k] for k in (NOTE, CHAT, DOCUMENT)]
            weight = np.asarray(by_kind, np.float32)[kind]
            gain += weight * np.maximum(own[node] - theirs[step], 0)
        eligible = np.isfinite(nodes.scores)[node] & np.isfinite(steps.scores)[step]
        node, step, gain = node[eligible], step[eligible], gain[eligible]
        scores = np.full(len(nodes.scores), -np.inf, np.float32)
        np.maximum.at(scores, node, steps.scores[step] + gain)
        alone = ~np.isfinite(scores)
        is_note = alone.copy()
        is_note[node[steps.is_note[step]]] = True
        gained = np.zeros(len(steps.scores), np.float32)
        np.maximum.at(gained, step, gain)
        scores = np.where(alone, nodes.scores, scores)
        return replace(nodes, scores=scores, is_note=is_note), gained

    def _facts_about_turns(self) -> dict[str, Floats]:
        view, query, about = self.steps, fold(self.question.query), self.question.about
        agents = [name in self.agents for name in view.actors]
        agent = view.acted | np.asarray(agents, np.bool_)[view.actor]
        both = self.whole.totals.both(self.agents)
        named = self.question.named - ROLES
        speakers = [not named.isdisjoint(name.split()) for name in view.actors]
        spoken = np.asarray(speakers, np.bool_)[view.actor]
        if both and about is not None:
            spoken = spoken | (agent if about == "agent" else ~agent)
        facts = {
            "speaker": spoken,
            "not the agent": ~agent & (both and about != "agent"),
            "where: place": (view.form & (PLACE if WHERE.search(query) else 0)) > 0,
            "how long: number": (view.form & (NUMBER | DATE if _HOW_LONG.search(query) else 0)) > 0,
            "asks": view.asks,
            "first person": (view.form & FIRST) > 0,
            "date": (view.form & DATE) > 0,
            "length": view.log_words - np.float32(_TYPICAL_LOG_WORDS),
        }
        return {name: np.asarray(values, np.float32) for name, values in facts.items()}


def _total(parts: Mapping[str, Floats]) -> Floats:
    return np.asarray(np.sum(list(parts.values()), axis=0, dtype=np.float32))


# ── Vectors ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Nearness:
    """
    How near documents are to the question, by their vectors less the centre.

    Attributes:
        first, best: The best cosine with the query or a tag: of a document's first vector, and of
            any. Of one that has no vector yet, what ``EXPECTED`` makes of its *words*.
        plain: As *best*, with the vectors as they are; 0 without a vector.
        asked: The query's vector less the centre, of unit length; ``None`` without vectors.
    """

    first: Floats
    best: Floats
    plain: Floats
    asked: Floats | None

    @classmethod
    def of(
        cls, view: DocumentsView, question: RecallQuestion, centre: Floats, words: Floats, ok: Mask
    ) -> Nearness:
        """
        Compare the documents of *view*; *words*: the share of the question's that each has; *ok*:
        those that may be found.
        """
        vectors, asked = view.vectors, question.vectors
        # Of another width: asked in another space, while that changes.
        if asked is None or vectors.shape[1] != asked.shape[1]:
            none = np.zeros(view.count, np.float32)
            return cls(none, none, none, None)
        plain, along = view.products(asked, centre)
        rows, bare = cosines(plain, asked, centre, along)
        first, best = view.first_of(rows), view.best_of(rows)
        # Else what was said a moment ago would stand behind all that is near in any way.
        nearest = best.max(initial=EXPECTED, where=view.embedded & ok)
        expected = np.where(view.embedded, np.float32(0), nearest * words)
        return cls(first + expected, best + expected, view.best_of(bare), _unit(asked[0] - centre))


def cosines(plain: Floats, asked: Floats, centre: Floats, along: Floats) -> tuple[Floats, Floats]:
    """
    The best cosine of each of some vectors with a row of *asked*: all less *centre*, and as is;
    *plain*: Their products with each row, shape ``(vectors, rows)``; *along*: with *centre*.
    """
    counted = np.full(len(asked), TAG_WEIGHT, np.float32)
    counted[:1] = 1.0
    off = along[:, np.newaxis]
    whole = centre @ centre
    lengths = np.sqrt(np.maximum(1 - 2 * off + whole, 1e-6))
    about = asked - centre
    shifted = (plain - off - asked @ centre + whole) / (lengths * _lengths(about))
    return (shifted * counted).max(axis=1), (plain * counted).max(axis=1)


def _window(view: StepsView, near: Nearness, pieces: Pieces, others: Floats) -> Floats:
    """Cosine with half of each neighbour, of the ``WINDOWED`` best short chat turns; else own."""
    window = near.best.copy()
    known = view.rows >= 0
    turns = np.flatnonzero((pieces.kind == CHAT) & ~pieces.long & known & np.isfinite(others))
    if near.asked is None or not len(turns):
        return window
    if len(turns) > WINDOWED:
        turns = turns[np.argpartition(-others[turns], WINDOWED)[:WINDOWED]]
    total = np.zeros((len(turns), len(view.centre)), np.float32)
    for around, share in ((turns, 1.0), (pieces.previous[turns], 0.5), (pieces.next[turns], 0.5)):
        there = (around >= 0) & known[around]
        rows = view.vectors[np.where(there, view.rows[around], 0)]
        total += np.float32(share) * there[:, None] * _unit(rows - view.centre)
    window[turns] = _unit(total) @ near.asked
    return window


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / _lengths(rows)[..., np.newaxis], np.float32)


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.maximum(np.sqrt(np.einsum("...i,...i->...", rows, rows)), 1e-6))


# ── Filters ──────────────────────────────────────────────────────────────────────────


HAND = "hand"
"""The actor of what was written by hand."""
_NOWHERE = -2
"""The number of a session or thread that no document has."""


def eligible_steps(view: StepsView, filters: Filters) -> Mask:
    """Return the mask of the living steps that match the filters."""
    ok = in_time(view, filters)
    if filters.actor is not None:
        actor = view.actor_numbers.get(filters.actor, -1)
        ok = ok & ((view.actor == actor) | (view.told_by == actor))
    if filters.thread_id is not None:
        ok = ok & (view.thread == view.chains.get(thread_chain(filters.thread_id), _NOWHERE))
    if filters.session_id is not None:
        # What a session or a thread of this id holds; of a fed session also as messages.
        id = filters.session_id
        session, thread = (view.chains.get(chain, _NOWHERE) for chain in (id, thread_chain(id)))
        found = (view.session == session) | (view.thread == thread)
        documents = view.joined[view.joined[:, 0] == session, 1]
        found[documents[documents < view.count]] = True
        ok = ok & found
    if filters.where.conditions:
        ok = ok & view.facets.holding(filters.where)[view.metadata]
    return np.asarray(ok)


def eligible_nodes(corpus: CorpusView, kind: NodeType, filters: Filters, steps: Mask) -> Mask:
    """
    Return the mask of the living nodes of one type that match the filters.

    A fact or an instruction matches if one of its sources among *steps*, the eligible ones, does,
    or by itself if it stands for itself. Of other types, which lead there, only time counts.
    """
    view = corpus.nodes[kind]
    ok = in_time(view, filters)
    pairs = corpus.behind.get(kind)
    if filters.is_open or pairs is None:
        return ok
    matching = by_itself(view, filters, corpus.resting(kind))
    matching[pairs[steps[pairs[:, 1]], 0]] = True
    return ok & matching


def by_itself(view: DocumentsView, filters: Filters, rests: Mask) -> Mask:
    """Which facts or instructions match, whatever they rest on; *rests*: those on something."""
    if filters.session_id or filters.thread_id or filters.actor not in (None, HAND):
        return np.zeros(view.count, np.bool_)
    matching = view.by_hand if filters.actor else view.by_hand | ~rests
    if filters.where.conditions:
        return matching & view.facets.holding(filters.where)[view.metadata]
    return np.array(matching)


def in_time(view: DocumentsView, filters: Filters) -> Mask:
    """Documents that are alive, may have evidence of the time, and held at its end."""
    ok = view.alive
    if filters.since is not None:
        ok = ok & (view.last >= filters.since.timestamp())
    if filters.until is None:
        return ok & np.isinf(view.valid_to)
    end = filters.until.timestamp()
    return ok & (view.first <= end) & (view.valid_to > end)


# ── The value of a candidate ────────────────────────────────────────────────────────────


def parameters_of(scoring: ScoringConfig, type: NodeType) -> TypeScoring:
    """Return the parameters of *type*; those of facts where it has none."""
    row: TypeScoring = getattr(scoring, type, scoring.semantic)
    return row


class Nudges(NamedTuple):
    """What its metadata make of a node's relevance; reward is 1 where none is known."""

    recency: float
    frequency: float
    reward: float
    penalty: float


def nudges(
    node: Node,
    metadata: NodeMetadata | None,
    parameters: TypeScoring,
    now: datetime,
    floor: float = 0.0,
) -> Nudges:
    """Return the nudges of *node*; its recency is at least *floor*."""
    known = metadata or NodeMetadata(created_at=node.created_at or now)
    since = known.last_accessed_at or known.created_at
    hours = max((now - since).total_seconds() / 3600, 0.0)
    accesses, mean, least = known.access_count, known.mean_reward, parameters.base_floor
    return Nudges(
        recency=max(floor, math.exp(-parameters.lambda_per_hour * hours)),
        frequency=least + (1 - least) * accesses / (accesses + parameters.k),
        reward=1.0 if mean is None else 2 / (1 + math.exp(-parameters.beta * (mean - 0.5))),
        penalty=known.penalty,
    )


def decay_score(
    node: Node, metadata: NodeMetadata | None, parameters: TypeScoring, now: datetime
) -> float:
    """
    Return the score that keeps a node: the product of its factors, less the penalty, no floor.

    Never accessed and never rewarded, under the defaults: 0.29 after a day, 0.1 after 46.
    """
    by = nudges(node, metadata, parameters, now)
    return by.recency * by.frequency * by.reward * (1 - by.penalty)


def nudged_relevance(
    scoring: ScoringConfig,
    relevance: float,
    node: Node,
    metadata: NodeMetadata | None,
    parameters: TypeScoring,
    now: datetime,
) -> float:
    """
    ``relevance · R^a · F^b · W^c · (1 - penalty)`` with a, b, c of *scoring*. Under the defaults
    the three factors together lie between 0.98 and 1.01.
    """
    by = nudges(node, metadata, parameters, now, scoring.recency_floor)
    factors = (
        math.pow(by.recency, scoring.recency_weight)
        * math.pow(by.frequency, scoring.frequency_weight)
        * math.pow(by.reward, scoring.reward_weight)
    )
    return relevance * factors * (1 - by.penalty)


def explained(
    scoring: ScoringConfig, node: Node, metadata: NodeMetadata | None, now: datetime, **given: Any
) -> Explanation:
    """What made its relevance, as *given*, and with what the value function nudged that."""
    by = nudges(node, metadata, parameters_of(scoring, node.type), now, scoring.recency_floor)
    return Explanation(**by._asdict(), **given)


def value_function(scoring: ScoringConfig) -> ValueFunction:
    """Return the value function of *scoring*, or the default one."""
    given: ValueFunction | None = scoring.value_function
    return partial(call, given) if given else partial(nudged_relevance, scoring)

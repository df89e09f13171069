"""Hop 0: filter the documents, score those that pass, and take the best of each type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mnemo.config import Config, TypeScoring
from mnemo.recall.candidate import Phase
from mnemo.recall.question import RecallQuestion
from mnemo.recall.signals import FEW, Hits, StepWeights, node_hits, restated_scores, step_hits
from mnemo.recall.value import parameters_of
from mnemo.runtime.text import fold
from mnemo.values.corpus import CorpusView, DocumentsView, StepsView, thread_chain
from mnemo.values.filters import Filters, Window
from mnemo.values.graph import NodeType

__all__ = [
    "HAND",
    "Found",
    "HopZero",
    "eligible_nodes",
    "eligible_steps",
    "hop_zero",
    "step_weights",
]

HAND = "hand"
"""The actor of what was written by hand."""
FAR_OUT = 3.0
"""Deviations from which the best document of a query is as relevant as can be."""

_ROUTING: tuple[NodeType, ...] = ("tag", "intent")

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Found:
    """
    A candidate before its node is read.

    Attributes:
        id: Of the node; for a ``source`` node that of its step's episodic node.
        floor: Value that it gets in any case.
        via: The node that led to it, where the question itself did not.
    """

    id: str
    type: NodeType
    relevance: float
    phase: Phase = "initial"
    hop: int | None = 0
    floor: float = 0.0
    via: str | None = None


@dataclass(frozen=True, slots=True)
class HopZero:
    """
    The scores and the best documents of the query, before any hop.

    Attributes:
        hits: Type → its scored documents; types with nothing eligible are absent.
        eligible: Type → which of its documents pass the filters.
        scales: Type → deviations that count as relevance 1.
        found: The best of each searched type, best first.
        rejected: How many a threshold turned away.
        weights: Of the steps' signals, for the trace.
        abstained: Whether the question has nothing to do with what is stored.
    """

    hits: Mapping[NodeType, Hits]
    eligible: Mapping[NodeType, Mask]
    scales: Mapping[NodeType, float]
    found: tuple[Found, ...] = ()
    rejected: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)
    abstained: bool = False

    def relevance(self, type: NodeType, id: str) -> float:
        """The own relevance of node *id*, in [0, 1]."""
        hits = self.hits.get(type)
        return hits.relevance(hits.view.of(id), self.scales[type]) if hits else 0.0

    def cosine(self, type: NodeType, id: str) -> float:
        """The best cosine of node *id* with the query or a tag."""
        hits = self.hits.get(type)
        return max((float(hits.cosines[d]) for d in hits.view.of(id)), default=0.0) if hits else 0.0

    def parts(self, type: NodeType, id: str) -> dict[str, float]:
        """Signal → what it added to node *id*; empty where that was not kept."""
        hits = self.hits.get(type)
        return hits.parts_of(hits.view.of(id)) if hits else {}

    def is_eligible(self, type: NodeType, id: str) -> bool:
        """Whether *id* is a node of *type* that passes the filters."""
        hits = self.hits.get(type)
        return hits is not None and any(self.eligible[type][d] for d in hits.view.of(id))

    def text(self, type: NodeType, id: str) -> str:
        """What node *id* of *type* says; ``""`` if it is not here."""
        hits = self.hits.get(type)
        nodes = [hits.view.nodes[d] for d in hits.view.of(id)] if hits else []
        return nodes[-1].text if nodes and nodes[-1] is not None else ""

    def spread(self, words: Iterable[str], type: NodeType) -> int:
        """How many documents of *type* hold the rarest of *words*; at least 1."""
        hits = self.hits.get(type)
        if hits is None:
            return 1
        view = hits.view
        found = (view.postings.read(term, view.count) for term in words)
        return max(min((len(p[0]) if p else 0 for p in found), default=1), 1)

    def passes(self, type: NodeType, id: str, threshold: float) -> bool:
        """Whether *id* reaches *threshold* by cosine, or shares a word with the question."""
        hits = self.hits.get(type)
        if hits is None:
            return False
        documents = hits.view.of(id)
        return any(hits.shares[d] or hits.cosines[d] >= threshold for d in documents)


def hop_zero(
    corpus: CorpusView,
    question: RecallQuestion,
    *,
    searched: Iterable[NodeType],
    routes: Iterable[NodeType],
    filters: Filters,
    unwanted: frozenset[str],
    config: Config,
    dense_weight: float,
    abstain_cosine: float = 0.0,
    explain: bool = False,
) -> HopZero:
    """
    Score every document of the *searched* types and of the *routes*.

    Args:
        routes: Types that hops go over; scored, but never found.
        unwanted: Node ids that are not to be found.
        abstain_cosine: See ``EmbeddingSpace``.
        explain: Whether to keep what each signal adds to each document.
    """
    if is_foreign(corpus, question, abstain_cosine):
        return HopZero({}, {}, {}, abstained=True)
    hits: dict[NodeType, Hits] = {}
    eligible: dict[NodeType, Mask] = {}
    weights = step_weights(corpus.steps, config, dense_weight)
    steps = eligible_steps(corpus.steps, filters)
    # Facts before steps: what a fact matches, it hands to the steps that it says again.
    for kind in dict.fromkeys(("semantic", *searched, *routes)):
        view = corpus.nodes.get(kind)
        if view is not None and view.count:
            eligible[kind] = eligible_nodes(corpus, kind, filters, steps)
            asked = question if kind in _ROUTING else question.for_evidence
            hits[kind] = node_hits(view, asked, eligible[kind], dense_weight, explain=explain)
    if corpus.steps.count:
        facts = hits.get("semantic")
        eligible["episodic"] = eligible["source"] = steps
        hits["episodic"] = hits["source"] = step_hits(
            corpus.steps,
            question,
            steps,
            weights,
            _agents(config),
            dense_weight,
            restated_scores(facts, corpus.restated, corpus.steps.count) if facts else None,
            explain=explain,
        )
    scored = {kind: hits[kind] for kind in hits if kind in (*searched, *routes, "episodic")}
    base = HopZero(hits, eligible, _scales(scored))
    unwanted = frozenset(map(corpus.steps.canonical, unwanted))
    return _with_best(base, searched, unwanted, config, weights)


def is_foreign(corpus: CorpusView, question: RecallQuestion, abstain_cosine: float) -> bool:
    """
    Whether *question* has nothing to do with what is stored, whatever the filters.

    No document has one of its words, and none a cosine of *abstain_cosine* with it; that of
    tags is not looked at, for random letters may come near to a single word.
    Relevance cannot tell: it is measured against the best of the same question. Of few
    documents the best cosine tells nothing: the one that answers may be far from it.
    """
    views = (corpus.steps, *corpus.nodes.values())
    stored = sum(np.count_nonzero(view.alive) for view in views)
    if question.vectors is None or not abstain_cosine or stored < FEW:
        return False
    if any(_holds(view, term) for view in views for term in question.shared | set(question.terms)):
        return False
    asked = question.vectors[:1]
    telling = (corpus.steps, *(view for kind, view in corpus.nodes.items() if kind != "tag"))
    best = (view.cosines(asked)[0][0][view.alive].max(initial=-1.0) for view in telling)
    return float(max(best)) < abstain_cosine


def _holds(view: DocumentsView, term: str) -> bool:
    found = view.postings.read(term, view.count)
    return found is not None and bool(view.alive[found[0]].any())


def _scales(hits: Mapping[NodeType, Hits]) -> dict[NodeType, float]:
    """
    One scale for what may be returned: the best S of the query.

    A scale per type would make the best fact as relevant as the best step, however
    little it stands out (recall@10 of steps fell by three points). Routing nodes are
    measured apart: a label that is one word of the query stands out by itself.
    """
    best = max((h.best for kind, h in hits.items() if kind not in _ROUTING), default=0.0)
    return {kind: max(h.best if kind in _ROUTING else best, FAR_OUT) for kind, h in hits.items()}


def step_weights(steps: StepsView, config: Config, dense_weight: float) -> StepWeights:
    """By the median length of the repository's step documents, once for all of them."""
    if steps.median_words < config.recall.short_document_words:
        return StepWeights.for_short(dense_weight)
    return StepWeights.for_long(dense_weight, config.recall.observation_prior)


def _agents(config: Config) -> frozenset[str]:
    return frozenset(map(fold, (*config.recall.agent_actors, config.extraction.agent_name)))


def _with_best(
    base: HopZero,
    searched: Iterable[NodeType],
    unwanted: frozenset[str],
    config: Config,
    weights: StepWeights,
) -> HopZero:
    found: list[Found] = []
    rejected = 0
    for kind in searched:
        if kind in base.hits:
            best, below = _best(base, kind, parameters_of(config.scoring, kind), unwanted)
            found += best
            rejected += below
    found.sort(key=lambda f: (-f.relevance, f.id))
    steps = base.hits.get("episodic")
    shown = {} if steps is None or steps.absolute else weights.shown()
    return HopZero(base.hits, base.eligible, base.scales, tuple(found), rejected, shown)


def _best(
    base: HopZero, kind: NodeType, parameters: TypeScoring, unwanted: frozenset[str]
) -> tuple[list[Found], int]:
    hits = base.hits[kind]
    positive = hits.reachable & (hits.scores > 0)
    above = positive & (hits.shares | (hits.cosines >= parameters.threshold))
    rejected = int(np.count_nonzero(positive)) - int(np.count_nonzero(above))
    chosen: dict[str, Found] = {}
    for document in _descending(hits.scores, np.flatnonzero(above)):
        id = hits.view.ids[document]
        if id not in chosen and id not in unwanted:
            chosen[id] = Found(id, kind, hits.relevance((document,), base.scales[kind]))
        if len(chosen) == parameters.top_k:
            break
    return list(chosen.values()), rejected


def _descending(scores: NDArray[np.float32], documents: NDArray[np.intp]) -> Iterable[int]:
    """Yield *documents* by falling score; the first thousand are sorted apart: mostly enough."""
    first = 1_000
    if len(documents) > first:
        cut = np.argpartition(-scores[documents], first)
        heads, tails = documents[cut[:first]], documents[cut[first:]]
    else:
        heads, tails = documents, documents[:0]
    for part in (heads, tails):
        yield from part[np.argsort(-scores[part], kind="stable")].tolist()


# ── Filters ──────────────────────────────────────────────────────────────────────────


def eligible_steps(view: StepsView, filters: Filters) -> Mask:
    """Return the mask of the living steps that match the filters."""
    ok = _in_time(view, filters.window)
    if filters.actor is not None:
        actor = view.actor_numbers.get(filters.actor, -1)
        ok = ok & ((view.actor == actor) | (view.told_by == actor))
    if filters.thread_id is not None:
        ok = ok & (view.thread == _number(view, thread_chain(filters.thread_id)))
    if filters.session_id is not None:
        ok = ok & _of_session(view, filters.session_id)
    return ok & _holding(view, filters) if filters.where.conditions else ok


def _number(view: StepsView, chain: str) -> int:
    """The number of a session or thread; -2, which no document has, for an unknown one."""
    return view.chains.get(chain, -2)


def _of_session(view: StepsView, id: str) -> Mask:
    """What a session or a thread of this id holds; of a fed session also as messages."""
    session, thread = _number(view, id), _number(view, thread_chain(id))
    found = (view.session == session) | (view.thread == thread)
    documents = view.joined[view.joined[:, 0] == session, 1]
    found[documents[documents < view.count]] = True
    return np.asarray(found)


def _holding(view: DocumentsView, filters: Filters) -> Mask:
    return view.facets.holding(filters.where)[view.metadata]


def eligible_nodes(corpus: CorpusView, kind: NodeType, filters: Filters, steps: Mask) -> Mask:
    """
    Return the mask of the living nodes of one type that match the filters.

    A fact or an instruction matches if one of its sources does, or by itself if it stands
    for itself. Of other types only time is looked at: they lead to what matches.

    Args:
        steps: What ``eligible_steps`` gave.
    """
    view = corpus.nodes[kind]
    ok = _in_time(view, filters.window)
    pairs = corpus.behind.get(kind)
    if filters.is_open or pairs is None:
        return ok
    matching = _by_itself(view, filters, pairs)
    matching[pairs[steps[pairs[:, 1]], 0]] = True
    return ok & matching


def _by_itself(view: DocumentsView, filters: Filters, pairs: NDArray[np.int32]) -> Mask:
    """What has no step behind it, or was worded by hand, and matches as such."""
    of_step = filters.session_id is not None or filters.thread_id is not None
    if of_step or filters.actor not in (None, HAND):
        return np.zeros(view.count, np.bool_)
    found = view.by_hand.copy()
    if filters.actor is None:
        bare = np.ones(view.count, np.bool_)
        bare[pairs[:, 0]] = False
        found |= bare
    return found & _holding(view, filters) if filters.where.conditions else found


def _in_time(view: DocumentsView, window: Window) -> Mask:
    """Documents that are alive, may have evidence inside *window*, and held at its end."""
    ok = view.alive
    if window.since is not None:
        ok = ok & (view.last >= window.since.timestamp())
    if window.until is None:
        return ok & np.isinf(view.valid_to)
    end = window.until.timestamp()
    return ok & (view.first <= end) & (view.valid_to > end)

"""Hop 0: filter the documents, score those that pass, take the best, and say how sure they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.english.letters import is_gibberish
from mnemo.index.corpus import CorpusView, DocumentsView, StepsView, thread_chain
from mnemo.recall.request import ROUTES, RecallRun
from mnemo.recall.result import Phase
from mnemo.recall.score import Hits, Rarity, RecallQuestion, Scorer, parameters_of, relevance_of
from mnemo.runtime.text import fold
from mnemo.values.filters import Filters, Window
from mnemo.values.graph import NodeType

HAND = "hand"
"""The actor of what was written by hand."""
_NOWHERE = -2
"""The number of a session or thread that no document has."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Found:
    """
    A candidate before its node is read.

    Attributes:
        id: Of the node; for a ``source`` node that of its step's episodic node.
        match: How well its own words match, which sets the order of equals.
        via: The text of what led to it, where the question itself did not.
    """

    id: str
    type: NodeType
    relevance: float
    match: float = 0.0
    phase: Phase = "initial"
    hop: int | None = 0
    via: str | None = None


@dataclass(frozen=True, slots=True)
class HopZero:
    """
    The scores and the best documents of the query, before any hop.

    Attributes:
        hits: Type → its scored documents; types with nothing eligible are absent.
        found: The best of each searched type, best first.
        evidence: What tells how sure the answer is; see ``evidence``.
        abstained: Whether the question is no language, and nothing stored has a word of it.
    """

    hits: Mapping[NodeType, Hits]
    found: tuple[Found, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)
    abstained: bool = False


def hop_zero(
    corpus: CorpusView, question: RecallQuestion, run: RecallRun, config: Config
) -> HopZero:
    """
    Score every document of the types that *run* searches, and of those that its hops go over.

    Filters decide what is found, and change the score of nothing that is: words are counted
    over all that exists at ``until``. Of each type at least *k* are found, if there are as many.
    """
    filters, searched = run.request.filters, tuple(run.weights)
    until = filters.window.until
    end = until.timestamp() if until else None
    pieces = corpus.steps.pieces_until(end)
    claims = (corpus.nodes["semantic"], corpus.nodes["procedural"])
    stored = ((v, v.alive if end is None else v.alive & (v.first <= end)) for v in claims)
    rarity = Rarity.of(question, ((corpus.steps, pieces.exists), *stored))
    if not rarity.weights and is_gibberish(question.query):
        return HopZero({}, abstained=True)
    steps = eligible_steps(corpus.steps, filters)
    agents = frozenset(map(fold, (*config.recall.agent_actors, config.extraction.agent_name)))
    scorer = Scorer(question, rarity, corpus.steps, pieces, agents, run.dense_weight)
    said = scorer.of_steps(steps) if corpus.steps.count else None
    hits: dict[NodeType, Hits] = {}
    gains = []
    for kind in dict.fromkeys((*searched, *ROUTES[run.mode])):
        view = corpus.nodes.get(kind)
        if view is not None and view.count:
            hits[kind] = scorer.of_nodes(view, eligible_nodes(corpus, kind, filters, steps))
            if said is not None and (pairs := corpus.behind.get(kind)) is not None:
                hits[kind], gain = scorer.with_steps(hits[kind], said, pairs)
                gains.append(gain)
    if said is not None:
        said = said.raised(np.max(gains, axis=0)) if gains else said
        hits["episodic"] = hits["source"] = said
    unwanted = frozenset(map(corpus.steps.canonical, run.request.unwanted))
    found = [
        f
        for kind in searched
        if kind in hits
        for f in _best(hits[kind], kind, config, unwanted, run.request.k)
    ]
    found.sort(key=lambda f: (-f.relevance, -f.match, f.id))
    return HopZero(hits, tuple(found), evidence(hits, searched))


def _best(
    hits: Hits, kind: NodeType, config: Config, unwanted: frozenset[str], least: int
) -> list[Found]:
    most = max(parameters_of(config.scoring, kind).top_k, least)
    chosen: dict[str, Found] = {}
    for document in _descending(hits.scores, hits.match):
        id = hits.view.ids[document]
        if id not in chosen and id not in unwanted:
            score, match = float(hits.scores[document]), float(hits.match[document])
            chosen[id] = Found(id, kind, relevance_of(score), match)
        if len(chosen) == most:
            break
    return list(chosen.values())


def _descending(scores: NDArray[np.float32], match: NDArray[np.float32]) -> Iterable[int]:
    """Yield the eligible documents by falling score; the first thousand are sorted apart."""
    first = 1_000
    documents = np.flatnonzero(np.isfinite(scores))
    heads, tails = documents, documents[:0]
    if len(documents) > first:
        cut = np.argpartition(-scores[documents], first)
        heads, tails = documents[cut[:first]], documents[cut[first:]]
    for part in (heads, tails):
        yield from part[np.lexsort((-match[part], -scores[part]))].tolist()


# ── Filters ──────────────────────────────────────────────────────────────────────────


def eligible_steps(view: StepsView, filters: Filters) -> Mask:
    """Return the mask of the living steps that match the filters."""
    ok = _in_time(view, filters.window)
    if filters.actor is not None:
        actor = view.actor_numbers.get(filters.actor, -1)
        ok = ok & ((view.actor == actor) | (view.told_by == actor))
    if filters.thread_id is not None:
        ok = ok & (view.thread == view.chains.get(thread_chain(filters.thread_id), _NOWHERE))
    if filters.session_id is not None:
        ok = ok & _of_session(view, filters.session_id)
    return ok & _holding(view, filters) if filters.where.conditions else ok


def _of_session(view: StepsView, id: str) -> Mask:
    """What a session or a thread of this id holds; of a fed session also as messages."""
    session, thread = (view.chains.get(chain, _NOWHERE) for chain in (id, thread_chain(id)))
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


# ── Confidence ──────────────────────────────────────────────────────────────────────────


EVIDENCE: Mapping[str, float] = {"cosine": 4.1, "margin": 7.3, "size": -0.45}
CONSTANT = -0.9
_TENTH = 10


def evidence(scored: Mapping[NodeType, Hits], searched: Iterable[NodeType]) -> dict[str, float]:
    """
    Return what tells whether a question is answered.

    Of the eligible steps, which all else restates; where there are none, of the first of the
    *searched* types that has any.

    Returns:
        ``cosine``, the best, less what all have in common; ``margin``, by which it stands above
        the tenth; ``size``, the decimal logarithm of what is stored; ``words``, the best share
        of the question's words. Without vectors the last two alone.
    """
    for kind in ("episodic", *searched):
        hits = scored.get(kind)
        if hits is None or not (ok := np.isfinite(hits.scores)).any():
            continue
        size = math.log10(np.count_nonzero(hits.view.alive))
        found = {"size": size, "words": float(hits.words[ok].max())}
        if hits.near.any():
            best = np.sort(hits.near[ok])[::-1][:_TENTH]
            found |= {"cosine": float(best[0]), "margin": float(best[0] - best[-1])}
        return found
    return {}


def confidence(found: Mapping[str, float]) -> float:
    """
    Return the confidence in [0, 1] for what ``evidence`` found.

    Without vectors it is the share of words: nothing else is known.
    """
    if "cosine" not in found:
        return min(max(found["words"], 0.0), 1.0)
    score = CONSTANT + sum(weight * found[name] for name, weight in EVIDENCE.items())
    return 1 / (1 + math.exp(-score))

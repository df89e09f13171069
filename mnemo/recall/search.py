"""Search: collect and score candidates hop by hop, refine at a plateau, name their sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mnemo.config import Config, RecallConfig
from mnemo.english.asked import asked_in
from mnemo.prompts.data import AskedQuestion
from mnemo.prompts.plan import Mode
from mnemo.prompts.profiles import Profile
from mnemo.prompts.refine import refine_question
from mnemo.protocols import DocumentFeed, GraphStore
from mnemo.recall.candidate import Candidate, Explanation, SourceRef
from mnemo.recall.hop_zero import HAND, Found, HopZero
from mnemo.recall.hops import (
    SEEDS,
    CandidateEdges,
    routes_from,
    targets_of,
)
from mnemo.recall.plan import MODE_WEIGHTS, ROUTES
from mnemo.recall.request import Adviser, RecallProgress, RecallRequest
from mnemo.recall.rivals import BEST, Rivals, outdated
from mnemo.recall.score import SCALE
from mnemo.recall.value import frequency, parameters_of, recency, reward, value_function
from mnemo.runtime.clock import of_timestamp
from mnemo.runtime.tasks import computed
from mnemo.values.corpus import CorpusView
from mnemo.values.derived import Thread
from mnemo.values.feed import FoundMessage
from mnemo.values.graph import Claim, Node, NodeMetadata, NodeType, Semantic
from mnemo.values.message_steps import document_number, step_of
from mnemo.values.steps import Step, episodic_node

__all__ = ["ScoredCandidate", "Search", "SearchScope", "SecondLook", "expand"]

TOLD = 0.6
"""Score that a fact gets for giving a value of the attribute that is asked for (S)."""
RIVAL_SCALE = 2.5
"""Value → score of a note as it was when the weights of rivals were fitted."""
KEPT = 5
"""Candidates that ``cut`` leaves in any case: behind the fifth it costs no answer (S)."""
MAX_SOURCES = 50
"""Steps named behind one candidate, those that match the query best."""
REFINED_WEIGHT = 0.5
"""
What a relevance for refined tags counts beside one for the query, whose words lead.

Measured with tags that know nothing (the most frequent words of what was found) and with
tags out of the evidence. At 0.9 recall@10 of steps on short dialogues fell by 2.8 points
with the first and rose by 8.4 with the second; at 0.5 it fell by 0.4 and rose by 3.2 (S).
"""
_LEADING: tuple[NodeType, ...] = ("tag", "intent", "semantic", "procedural", "subgoal")
"""Types of node that lead to others."""
_UNITED: tuple[NodeType, ...] = ("semantic", "procedural", "episodic")
"""Types of which those of one step take one place."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SearchScope:
    """
    The types, time and mode that a recall searches.

    Attributes:
        mode: Of the plan; the request may leave it open.
        now: The present time, for recency.
    """

    request: RecallRequest
    mode: Mode
    now: datetime

    @property
    def weights(self) -> dict[NodeType, float]:
        """Type → weight of its candidates; 1 for the types that the request names."""
        types = self.request.types
        return MODE_WEIGHTS[self.mode] if types is None else dict.fromkeys(types, 1.0)

    @property
    def routes(self) -> tuple[NodeType, ...]:
        """The types that hops go over."""
        return ROUTES[self.mode]


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """
    A candidate with its value.

    Attributes:
        support: Node ids of the steps behind it that lie inside the window.
        latest: Time of its latest evidence.
    """

    found: Found
    node: Node
    metadata: NodeMetadata | None
    value: float
    support: tuple[str, ...]
    latest: datetime

    @property
    def order(self) -> tuple[float, float, float, str]:
        """Best value first, then the better match, then later evidence, then id."""
        age = -(self.latest - _LONG_AGO).total_seconds()
        return (-self.value, -self.found.match, age, self.found.id)


@dataclass(slots=True)
class Place:
    """
    One place of the answer: a candidate, and what was made of the same step.

    Attributes:
        step: The step that all of them rest on; ``None``: it shares its place with nothing.
        newer: What replaced or ended it.
        until: When it ceased to hold.
    """

    scored: ScoredCandidate
    step: str | None
    others: list[ScoredCandidate] = field(default_factory=list)
    newer: ScoredCandidate | None = None
    until: datetime | None = None

    def add(self, scored: ScoredCandidate) -> None:
        """Add what shares the place; what was worded by hand takes it."""
        if _by_hand(scored.node) and not _by_hand(self.scored.node):
            self.scored, scored = scored, self.scored
        self.others.append(scored)


class Search:
    """
    The candidates of one recall: added hop by hop, scored, and read in few large reads.

    Args:
        zero: What the question itself found.
    """

    def __init__(
        self,
        *,
        corpus: CorpusView,
        zero: HopZero,
        scope: SearchScope,
        graph: GraphStore,
        feed: DocumentFeed,
        config: Config,
    ) -> None:
        self._corpus = corpus
        self._zero = zero
        self._scope = scope
        self._request = scope.request
        self._unwanted = frozenset(map(corpus.steps.canonical, scope.request.unwanted))
        self._graph = graph
        self._feed = feed
        self._config = config
        self._value_of = value_function(config.scoring)
        self._asked = asked_in(self._request.query)
        self._neighbours = CandidateEdges(graph, corpus)
        self._steps: dict[str, Step] = {}
        self._scored: dict[tuple[NodeType, str], ScoredCandidate] = {}
        self.found_by: Counter[str] = Counter()

    @property
    def ranked(self) -> list[ScoredCandidate]:
        """All candidates, best first."""
        return sorted(self._scored.values(), key=lambda scored: scored.order)

    # ── Stages ───────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Score what hop 0 found."""
        self.found_by["initial"] += len(self._zero.found)
        await self._take(self._zero.found)

    async def hop(self, hop: int) -> float:
        """Add candidates over tags and intents; return the best new relevance, 0 without any."""
        seeds = [scored.found for scored in self.ranked[:SEEDS]]
        routes = routes_from(
            seeds,
            self._neighbours,
            self._zero,
            over=self._scope.routes,
            scoring=self._config.scoring,
        )
        if not routes:
            return 0.0
        await self._neighbours.load(route.id for route in routes)
        targets = targets_of(
            routes,
            self._neighbours,
            self._zero,
            hop=hop,
            known=[id for _, id in self._scored],
            searched=self._scope.weights,
        )
        self.found_by[f"multi_hop {hop}"] += len(targets)
        await self._take(targets[: self._config.recall.max_candidates])
        return targets[0].relevance if targets else 0.0

    async def refine(self, zero: HopZero, hop: int) -> float:
        """
        Add the hits of refined tags after *hop*; return the best relevance among new ones.

        A candidate has the greater of its own relevance and half of that for the tags.
        """
        found = [
            replace(
                f,
                relevance=max(self._zero.relevance(f.type, f.id), REFINED_WEIGHT * f.relevance),
                phase="refinement",
                hop=hop,
            )
            for f in zero.found
            if (f.type, f.id) not in self._scored
        ]
        self.found_by[f"refinement {hop}"] += len(found)
        await self._take(found)
        return max((f.relevance for f in found), default=0.0)

    async def finish(self) -> list[Candidate]:
        """Return the best candidates with their sources, what holds now before what held."""
        places = self._places(max(self._request.k, BEST))
        shown = [one for place in places for one in (place.scored, *place.others)]
        await self._read_steps(id for one in shown for id in self._named(one))
        texts = [text for step in self._steps.values() for text in (step.observation, step.action)]
        return await computed(
            lambda: [self._candidate(place) for place in self._cut(self._current_first(places))],
            texts,
        )

    def _places(self, most: int) -> list[Place]:
        """
        Return the best *most*, each with what was made of the same step and shares its place.

        What was worded by hand takes the step's place: the step says what was corrected.
        """
        places: list[Place] = []
        of_step: dict[str, Place] = {}
        for scored in self.ranked:
            step = self._shared_step(scored)
            place = of_step.get(step) if step is not None else None
            if place is not None:
                place.add(scored)
            elif len(places) < most and scored.found.relevance >= self._request.min_score:
                places.append(Place(scored, step))
                if step is not None:
                    of_step[step] = places[-1]
        return places

    def _current_first(self, places: Sequence[Place]) -> Sequence[Place]:
        """Place what holds now before what it replaced, and say of this until when it held."""
        if not places:
            return places
        known = []
        by_step = {place.step: number for number, place in enumerate(places) if place.step}
        for number, place in enumerate(places):
            for fact in self._ended(place):
                place.until = fact.valid_to
                closers = self._steps_behind(fact.superseded_by or "")
                newer = max((by_step.get(step, -1) for step in closers), default=-1)
                if newer >= 0 and places[newer].scored.latest > place.scored.latest:
                    known.append((number, newer))
        ranking = outdated(self._request.query, self._rivals(places), known=known)
        for place, by in zip(places, ranking.outdated_by, strict=True):
            if by is not None:
                place.newer = places[by].scored
                place.until = place.until or place.newer.latest
        return [places[number] for number in ranking.order]

    def _ended(self, place: Place) -> list[Semantic]:
        """The fact of the place's step that answers best, if it holds no longer."""
        facts = self._zero.hits.get("semantic")
        if facts is None or place.step is None:
            return []
        pairs = self._corpus.restated
        of_step = np.isin(pairs[:, 1], self._corpus.steps.of(place.step))
        documents = [d for d in pairs[of_step, 0].tolist() if facts.view.alive[d]]
        best = max(documents, key=lambda d: float(facts.match[d]), default=None)
        node = facts.view.nodes[best] if best is not None else None
        if not isinstance(node, Semantic) or node.valid_to is None:
            return []
        return [node] if node.valid_to <= self._scope.now else []

    def _steps_behind(self, fact: str) -> list[str]:
        pairs, steps = self._corpus.restated, self._corpus.steps
        of_fact = np.isin(pairs[:, 0], self._corpus.nodes["semantic"].of(fact))
        return [steps.ids[d] for d in pairs[of_fact, 1].tolist()]

    def _rivals(self, places: Sequence[Place]) -> Rivals:
        said = [self._steps.get(place.step or "") for place in places]
        kinds = [self._spoken(place) for place in places]
        vectors = [self._zero.vector(type, id) for type, id in kinds]
        width = next((len(v) for v in vectors if v is not None), 1)
        rows = np.stack([np.full(width, np.nan) if v is None else v for v in vectors])
        return Rivals(
            texts=[s.text if s else p.scored.node.text for s, p in zip(said, places, strict=True)],
            times=[place.scored.latest.timestamp() for place in places],
            speakers=[step.actor if step else None for step in said],
            scores=[RIVAL_SCALE * place.scored.value for place in places],
            near=rows @ rows.T,
            cosines=np.asarray([self._zero.cosine(type, id) for type, id in kinds]),
        )

    def _spoken(self, place: Place) -> tuple[NodeType, str]:
        found = place.scored.found
        return ("episodic", place.step) if place.step else (found.type, found.id)

    def _cut(self, places: Sequence[Place]) -> list[Place]:
        """Leave out what is far below the best; of turns, whose scores lie closer, less."""
        best = max(places, key=lambda place: place.scored.value, default=None)
        kept: list[Place] = []
        for place in places:
            cut = self._config.recall.cut
            cut = cut if self._is_note(place) and best and self._is_note(best) else cut**2
            if best and (len(kept) < KEPT or place.scored.value >= cut * best.scored.value):
                kept.append(place)
        return kept[: self._request.k]

    def _is_note(self, place: Place) -> bool:
        return self._zero.is_note(*self._spoken(place))

    def _shared_step(self, scored: ScoredCandidate) -> str | None:
        """The step that the candidate is, or was made of; ``None``: it has a place of its own."""
        if not self._request.unites or scored.found.type not in _UNITED:
            return None
        return next(iter(self._named(scored)), None)

    # ── Reading and scoring ──────────────────────────────────────────────────────────

    async def _take(self, found: Sequence[Found]) -> None:
        if not found:
            return
        await self._neighbours.load(f.id for f in found if f.type not in ("episodic", "source"))
        await self._read_steps(f.id for f in found if f.type in ("episodic", "source"))
        nodes = await self._nodes(found)
        metadata = await self._graph.metadata([node.id for node in nodes.values()], intact=True)
        for f in found:
            node = nodes.get((f.type, f.id))
            scored = self._score(f, node, metadata.get(node.id)) if node else None
            if scored is not None:
                self._scored[f.type, f.id] = scored
        kept = self.ranked[: self._config.recall.max_candidates]
        self._scored = {(s.found.type, s.found.id): s for s in kept}

    async def _read_steps(self, ids: Iterable[str]) -> None:
        """Read the steps of *ids*; for ids without a step, the messages."""
        missing = [id for id in dict.fromkeys(ids) if id not in self._steps]
        made = {id: self._corpus.steps.made_of(id) for id in missing}
        found = await self._feed.steps(list(made.values())) if missing else {}
        self._steps |= {id: found[step] for id, step in made.items() if step in found}
        left = [id for id in missing if id not in self._steps and document_number(id) is not None]
        for id, one in (await self._feed.messages(left) if left else {}).items():
            if self._lives(one):
                actor = self._config.extraction.default_actor
                self._steps[id] = step_of(id, one.message, default_actor=actor)

    def _lives(self, found: FoundMessage) -> bool:
        """Whether the message has not expired; an expired one may not be swept yet."""
        thread = Thread(id=found.message.thread_id, ttl_s=found.ttl_s)
        since = thread.alive_since(self._scope.now, self._config.conversation.ttl_s)
        return since is None or found.message.recorded_at >= since

    async def _nodes(self, found: Sequence[Found]) -> dict[tuple[NodeType, str], Node]:
        nodes: dict[tuple[NodeType, str], Node] = {}
        for f in found:
            if f.type == "episodic" and f.id in self._steps:
                nodes[f.type, f.id] = episodic_node(self._steps[f.id])
            elif (view := self._corpus.nodes.get(f.type)) and (documents := view.of(f.id)):
                node = view.nodes[documents[-1]]
                if node is not None:
                    nodes[f.type, f.id] = node
        known = [f.id for f in found if f.type == "source" and f.id in self._steps]
        sought = {self._steps[id].node_id: id for id in known}
        return nodes | (await self._source_nodes(sought) if sought else {})

    async def _source_nodes(self, sought: Mapping[str, str]) -> dict[tuple[NodeType, str], Node]:
        """The ``source`` nodes of steps, by the ids that these are found under."""
        edges = [e for e in await self._graph.edges([*sought], intact=True) if e.source in sought]
        targets = await self._graph.nodes([e.target for e in edges], types=("source",), intact=True)
        nodes = {node.id: node for node in targets}
        return {("source", sought[e.source]): nodes[e.target] for e in edges if e.target in nodes}

    def _score(
        self, found: Found, node: Node, metadata: NodeMetadata | None
    ) -> ScoredCandidate | None:
        support = self._support(found)
        if not self._is_inside(found, node, support):
            return None
        parameters = parameters_of(self._config.scoring, found.type)
        if self._tells(node, support):
            found = replace(found, relevance=min(found.relevance + TOLD / SCALE, 1.0))
        value = self._value_of(found.relevance, node, metadata, parameters, self._scope.now)
        weighted = value * self._scope.weights[found.type]
        return ScoredCandidate(
            found, node, metadata, weighted, support, self._latest(node, support)
        )

    def _tells(self, node: Node, support: Sequence[str]) -> bool:
        """Whether a fact gives a value of the attribute that is asked for."""
        if not isinstance(node, Semantic) or not self._asked.attributes:
            return False
        step = next((self._steps[id] for id in support if id in self._steps), None)
        return self._asked.is_told_by(node.proposition, step.actor if step else None)

    def _support(self, found: Found) -> tuple[str, ...]:
        if found.type in ("episodic", "source"):
            return (found.id,)
        steps = self._neighbours.support(found.id)
        return tuple(id for id in steps if self._zero.is_eligible("episodic", id))

    def _is_inside(self, found: Found, node: Node, support: tuple[str, ...]) -> bool:
        """Whether one of its sources matches, or the node itself where it is its own source."""
        by_hand = _by_hand(node)
        if support or (self._neighbours.support(found.id) and not by_hand):
            return bool(support)
        return self._request.filters.holds(
            at=(node.worded_at if isinstance(node, Claim) else None) or node.created_at,
            actors=(HAND,) if by_hand else (),
            session_ids=(),
            thread_id=None,
            metadata=(node.metadata if isinstance(node, Claim) else None) or {},
        )

    def _latest(self, node: Node, support: tuple[str, ...]) -> datetime:
        steps = self._corpus.steps
        seconds = [float(steps.last[d]) for id in support for d in steps.of(id)]
        if seconds:
            return of_timestamp(max(seconds))
        return node.created_at or _LONG_AGO

    # ── Sources ──────────────────────────────────────────────────────────────────────

    def _named(self, scored: ScoredCandidate) -> list[str]:
        """The steps behind a candidate, best match first, then the later."""
        relevance = self._zero.relevance
        steps = self._corpus.steps

        def order(id: str) -> tuple[float, float, str]:
            latest = max((float(steps.last[d]) for d in steps.of(id)), default=0.0)
            return (-relevance("episodic", id), -latest, id)

        return sorted(scored.support, key=order)[:MAX_SOURCES]

    def _candidate(self, place: Place) -> Candidate:
        scored = place.scored
        steps = (self._steps.get(id) for id in self._named(scored))
        sources = [SourceRef.of(step) for step in steps if step is not None]
        # Of the same step, so that it counts once among the sources of the result.
        wordings = dict.fromkeys(one.node.text for one in place.others)
        said = {source.text for source in sources}
        sources += [
            replace(sources[0], text=text) for text in wordings if sources and text not in said
        ]
        held = scored.node.valid_to if isinstance(scored.node, Semantic) else None
        return Candidate(
            node=scored.node,
            score=scored.value,
            relevance=scored.found.relevance,
            phase=scored.found.phase,
            hop=scored.found.hop,
            sources=sources or [self._own_words(scored)],
            metadata=scored.metadata,
            outdated_by=place.newer.node.id if place.newer else None,
            valid_to=held or place.until,
            why=self._why(scored) if self._request.explain else None,
        )

    def _why(self, scored: ScoredCandidate) -> Explanation:
        found, zero = scored.found, self._zero
        parameters = parameters_of(self._config.scoring, found.type)
        now = self._scope.now
        floor = self._config.scoring.recency_floor
        return Explanation(
            signals=self._parts(scored),
            cosine=zero.cosine(found.type, found.id),
            via=self._words_of(found.via) if found.via else None,
            recency=recency(scored.node, scored.metadata, parameters, now, floor),
            frequency=frequency(scored.metadata, parameters),
            reward=reward(scored.metadata, parameters),
            penalty=scored.metadata.penalty if scored.metadata else 0.0,
            mode_weight=self._scope.weights[found.type],
        )

    def _parts(self, scored: ScoredCandidate) -> dict[str, float]:
        """What adds up to its score: of what was made of a step, to that of the step."""
        step = next(iter(self._named(scored)), None)
        parts = self._zero.parts("episodic", step) if step is not None else {}
        return parts or self._zero.parts(scored.found.type, scored.found.id)

    def _words_of(self, id: str) -> str:
        """Return the text of node *id*, which led to another."""
        texts = (self._zero.text(type, id) for type in _LEADING)
        return next((text for text in texts if text), id)

    def _own_words(self, scored: ScoredCandidate) -> SourceRef:
        """Make the source of a node without steps: its changeset and its own text."""
        node, view = scored.node, self._corpus.nodes.get(scored.found.type)
        origins = [view.origins.get(d) for d in view.of(node.id)] if view else []
        key = origins[-1] if origins else None
        return SourceRef.of_node(node, key)


def _by_hand(node: Node) -> bool:
    return isinstance(node, Claim) and node.worded_at is not None


# ── Expansion ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """
    The model that suggests further tags, and the search for them.

    Attributes:
        find: Runs tags through hop 0.
    """

    adviser: Adviser
    asked: AskedQuestion
    profile: Profile | None
    find: Callable[[Sequence[str]], Awaitable[HopZero]]


async def expand(
    search: Search,
    look: SecondLook | None,
    *,
    max_hops: int,
    config: RecallConfig,
    progress: RecallProgress,
) -> tuple[dict[str, Any], ...]:
    """
    Expand *max_hops* times, or until a hop adds nothing and no refinement is left.

    A hop whose best new candidate does not exceed the best before by ``plateau_delta``
    is followed by a refinement, as long as the budget lasts.

    Returns:
        The refinements: ``hop``, ``tags``, and the best relevance on the way, of hops and
        refinements, ``best_before`` and ``best_after``.
    """
    refinements = _Refinements(search, look, min(config.refinement_budget, max_hops), progress)
    best = config.refinement_threshold
    for hop in range(1, max_hops + 1):
        with progress.phase("expand"):
            reached = await search.hop(hop)
        gain, best = reached - best, max(best, reached)
        if gain < config.plateau_delta and refinements.possible:
            with progress.phase("refine"):
                best = await refinements.after(hop, best)
        elif not reached:
            break
    return tuple(refinements.made)


class _Refinements:
    """
    The refinements of one recall.

    A refinement without tags does not count against the budget; a model that returns none
    is asked at most once more per refinement of the budget.
    """

    def __init__(
        self, search: Search, look: SecondLook | None, budget: int, progress: RecallProgress
    ) -> None:
        self._search = search
        self._look = look
        self._budget = budget
        self._in_vain = 0
        self._progress = progress
        self.made: list[dict[str, Any]] = []

    @property
    def possible(self) -> bool:
        """Whether a model can be asked and the budget allows it."""
        if self._look is None or self._look.adviser.hangs:
            return False
        return len(self.made) < self._budget and self._in_vain <= self._budget

    async def after(self, hop: int, best: float) -> float:
        """Refine after *hop*; gives the *best* relevance on the way from then on."""
        assert self._look is not None
        look = self._look
        texts = [scored.node.text for scored in self._search.ranked]
        tags = await look.adviser.ask(refine_question(look.asked, texts, look.profile), ())
        if not tags:
            self._in_vain += 1
            return best
        reached = await self._search.refine(await look.find(tags), hop)
        after = max(best, reached)
        self.made.append({"hop": hop, "tags": tags, "best_before": best, "best_after": after})
        return after

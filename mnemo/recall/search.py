"""Search: collect and score candidates hop by hop, refine at a plateau, name their sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

import anyio

from mnemo.config import Config, RecallConfig
from mnemo.english.asked import asked_in
from mnemo.graph.graph import StoredGraph
from mnemo.index.corpus import CorpusView
from mnemo.log.feed import StoredFeed
from mnemo.prompts.plan import refine_question
from mnemo.protocols import Embedder
from mnemo.recall.hop_zero import HAND, Found, HopZero, hop_zero
from mnemo.recall.request import ROUTES, RecallRun
from mnemo.recall.result import Candidate, Explanation, SourceRef
from mnemo.recall.rivals import (
    BEST,
    LONG_AGO,
    Place,
    ScoredCandidate,
    current_first,
    is_by_hand,
    worth_reading,
)
from mnemo.recall.score import (
    ANSWERS,
    SCALE,
    RecallQuestion,
    ask,
    explained,
    parameters_of,
    value_function,
)
from mnemo.runtime.clock import of_timestamp
from mnemo.runtime.tasks import Threads
from mnemo.values.derived import Thread
from mnemo.values.feed import FoundMessage, document_number, step_of
from mnemo.values.graph import Claim, EdgeKind, Node, NodeMetadata, NodeType, Semantic
from mnemo.values.steps import Step, episodic_node
from mnemo.values.vectors import unit_rows

READ_AT_ONCE = 10
"""Best steps without a fact among the found that are read for an attribute: .5 ms each (S)."""
MAX_SOURCES = 50
"""Steps named behind one candidate, those that match the query best."""
REFINED_WEIGHT = 0.5
"""
What a relevance for refined tags counts beside one for the query, whose words lead.

Measured with tags that know nothing (the most frequent words of what was found) and with
tags out of the evidence. At 0.9 recall@10 of steps on short dialogues fell by 2.8 points
with the first and rose by 8.4 with the second; at 0.5 it fell by 0.4 and rose by 3.2 (S).
"""
SEEDS = 20
"""Best candidates that a hop starts from."""
MAX_BEHIND = 200
"""Nodes behind one routing node that a hop takes, best cosine first."""
HOP_DECAY = 0.5
"""Share of relevance that one more hop leaves."""
BEHIND: dict[NodeType, NodeType] = {"tag": "semantic", "intent": "procedural"}
"""Type of routing node → type of what stands behind it."""
_ROUTES: dict[EdgeKind, NodeType] = {EdgeKind.MEMBERSHIP: "tag", EdgeKind.HIERARCHICAL: "intent"}
_UNITED: tuple[NodeType, ...] = ("semantic", "procedural", "episodic")
"""Types of which those of one step take one place."""


@dataclass(eq=False)
class Search:
    """The candidates of one recall: found and scored hop by hop, and read in few large reads."""

    run: RecallRun
    corpus: CorpusView
    graph: StoredGraph
    feed: StoredFeed
    embedder: Embedder
    config: Config
    threads: Threads

    def __post_init__(self) -> None:
        self._request = self.run.request
        self._asked = asked_in(self._request.query)
        self._value_of = value_function(self.config.scoring)
        self._edges = CandidateEdges(self.graph, self.corpus)
        self._zero = HopZero({})
        self._steps: dict[str, Step] = {}
        self._unread: frozenset[str] = frozenset()
        self._scored: dict[tuple[NodeType, str], ScoredCandidate] = {}

    @property
    def ranked(self) -> list[ScoredCandidate]:
        """All candidates, best first."""
        return sorted(self._scored.values(), key=lambda scored: scored.order)

    # ── Stages ───────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Find and score what the question itself finds."""
        run, request = self.run, self._request
        with run.phase("embed"):
            question = await self._embedded(ask(request.query, self.run.tags, request.context))
        with run.phase("score"):
            self._zero = zero = await self._hop_zero(question)
        run.evidence, run.abstained = zero.evidence, zero.abstained
        if not zero.abstained:
            run.found["initial"] += len(zero.found)
            with run.phase("load"):
                await self._take(zero.found)

    async def _embedded(self, question: RecallQuestion) -> RecallQuestion:
        """Embed the question; without vectors if the embedder fails or hangs."""
        try:
            with anyio.fail_after(self.config.recall.timeout_s):
                space = self.embedder.space
                reply = await self.embedder.embed(question.texts, kind="query")
            rows = unit_rows(reply, rows=len(question.texts), dimensions=space.dimensions)
        except Exception as error:
            # An embedder is foreign code; whatever it raises, keywords still answer.
            self.run.does_without("embedder", error)
            return question
        return question.embedded(rows)

    async def _hop_zero(self, question: RecallQuestion) -> HopZero:
        return await self.threads.run(hop_zero, self.corpus, question, self.run, self.config)

    async def hop(self, hop: int) -> float:
        """Add candidates over tags and intents; return the best new relevance, 0 without any."""
        routes = self._routes()
        if not routes:
            return 0.0
        await self._edges.load(route.id for route in routes)
        targets = self._targets(routes, hop)
        self.run.found[f"multi_hop {hop}"] += len(targets)
        await self._take(targets[: self.config.recall.max_candidates])
        return targets[0].relevance if targets else 0.0

    def _routes(self) -> list[Found]:
        """
        The best routing nodes above the best candidates, if they pass their threshold.

        As relevant as the best seed of each times itself.
        """
        seeds = [scored.found for scored in self.ranked[:SEEDS]]
        routes: list[Found] = []
        for type in ROUTES[self.run.mode]:
            if (hits := self._zero.hits.get(type)) is None:
                continue
            parameters = parameters_of(self.config.scoring, type)
            best: dict[str, float] = {}
            for seed in seeds:
                for id in self._edges.above.get((seed.id, type), ()):
                    if hits.passes(id, parameters.threshold):
                        best[id] = max(best.get(id, 0.0), seed.relevance * hits.relevance(id))
            reached = sorted(best.items(), key=lambda found: (-found[1], found[0]))
            routes += [Found(id, type, given) for id, given in reached[: parameters.top_k]]
        return routes

    def _targets(self, routes: Iterable[Found], hop: int) -> list[Found]:
        """List what stands behind *routes* and is no candidate yet, most relevant first."""
        known = {id for _, id in self._scored}
        best: dict[str, Found] = {}
        for route in routes:
            type = BEHIND[route.type]
            hits = self._zero.hits.get(type)
            if type not in self.run.weights or hits is None:
                continue
            handed = HOP_DECAY**hop * route.relevance
            via = self._zero.hits[route.type].text(route.id)
            below = self._edges.below.get(route.id, ())
            fresh = [(-hits.cosine(id), id) for id in below if id not in known and hits.has(id)]
            for _, id in sorted(fresh)[:MAX_BEHIND]:
                relevance = max(hits.relevance(id), handed)
                if id not in best or best[id].relevance < relevance:
                    match = hits.best_match(id)
                    best[id] = Found(id, type, relevance, match, "multi_hop", hop, via)
        found = [f for f in best.values() if f.relevance > 0]
        return sorted(found, key=lambda f: (-f.relevance, f.id))

    async def refine(self, tags: Sequence[str], hop: int) -> float:
        """
        Add what refined *tags* find after *hop*; return the best relevance among new ones.

        A candidate has the greater of its own relevance and half of that for the tags.
        """
        zero = await self._hop_zero(await self._embedded(ask(", ".join(tags), tags)))
        fresh = [f for f in zero.found if (f.type, f.id) not in self._scored]
        found = []
        for f in fresh:
            own, share = self._zero.hits[f.type].relevance(f.id), REFINED_WEIGHT * f.relevance
            found.append(replace(f, relevance=max(own, share), phase="refinement", hop=hop))
        self.run.found[f"refinement {hop}"] += len(found)
        await self._take(found)
        return max((f.relevance for f in found), default=0.0)

    async def finish(self) -> list[Candidate]:
        """Return the best candidates with their sources, what holds now before what held."""
        places, named = await self.threads.run(self._shown)
        await self._read_steps(named)
        return await self.threads.run(self._answered, places)

    def _shown(self) -> tuple[list[Place], list[str]]:
        """The best places, and the steps that their candidates name."""
        places = self._places(max(self._request.k, BEST))
        shown = [one for place in places for one in (place.scored, *place.others)]
        return places, [id for one in shown for id in self._named(one)]

    def _answered(self, places: Sequence[Place]) -> list[Candidate]:
        asked, now = self._request.query, self.run.now
        best = current_first(places, asked, self._zero, self.corpus, self._steps, self._unread, now)
        best = worth_reading(best, self._zero, self.config.recall.cut, self._request.k)
        return [self._candidate(place) for place in best]

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

    def _shared_step(self, scored: ScoredCandidate) -> str | None:
        """The step that the candidate is, or was made of; ``None``: it has a place of its own."""
        if not self._request.unites or scored.found.type not in _UNITED:
            return None
        return next(iter(self._named(scored)), None)

    # ── Reading and scoring ──────────────────────────────────────────────────────────

    async def _take(self, found: Sequence[Found]) -> None:
        if not found:
            return
        await self._edges.load(f.id for f in found if f.type not in ("episodic", "source"))
        await self._read_steps(f.id for f in found if f.type in ("episodic", "source"))
        nodes = await self._nodes(found)
        metadata = await self.graph.metadata([node.id for node in nodes.values()], intact=True)
        if self._asked.attributes:
            # The best steps that are to be read themselves: no fact that was found tells them.
            facts = (f.id for f in found if f.type == "semantic")
            told = {step for id in facts for step in self._edges.support.get(id, ())}
            steps = (f.id for f in found if f.type == "episodic" and f.id not in told)
            self._unread |= {*islice(steps, READ_AT_ONCE)}
        self._scored = await self.threads.run(self._with, found, nodes, metadata)

    def _with(
        self,
        found: Sequence[Found],
        nodes: Mapping[tuple[NodeType, str], Node],
        metadata: Mapping[str, NodeMetadata],
    ) -> dict[tuple[NodeType, str], ScoredCandidate]:
        """The best of all candidates so far and of *found*; for a worker thread."""
        all_scored = dict(self._scored)
        for f in found:
            node = nodes.get((f.type, f.id))
            scored = self._score(f, node, metadata.get(node.id)) if node else None
            if scored is not None:
                all_scored[f.type, f.id] = scored
        ranked = sorted(all_scored.values(), key=lambda scored: scored.order)
        kept = ranked[: self.config.recall.max_candidates]
        return {(s.found.type, s.found.id): s for s in kept}

    async def _read_steps(self, ids: Iterable[str]) -> None:
        """Read the steps of *ids*; for ids without a step, the messages."""
        missing = [id for id in dict.fromkeys(ids) if id not in self._steps]
        made = {id: self.corpus.steps.made_of(id) for id in missing}
        found = await self.feed.steps(list(made.values())) if missing else {}
        self._steps |= {id: found[step] for id, step in made.items() if step in found}
        left = [id for id in missing if id not in self._steps and document_number(id) is not None]
        for id, one in (await self.feed.messages(left) if left else {}).items():
            if self._lives(one):
                actor = self.config.extraction.default_actor
                self._steps[id] = step_of(id, one.message, default_actor=actor)

    def _lives(self, found: FoundMessage) -> bool:
        """Whether the message has not expired; an expired one may not be swept yet."""
        thread = Thread(id=found.message.thread_id, ttl_s=found.ttl_s)
        since = thread.alive_since(self.run.now, self.config.conversation.ttl_s)
        return since is None or found.message.recorded_at >= since

    async def _nodes(self, found: Sequence[Found]) -> dict[tuple[NodeType, str], Node]:
        nodes: dict[tuple[NodeType, str], Node] = {}
        for f in found:
            if f.type == "episodic" and f.id in self._steps:
                nodes[f.type, f.id] = episodic_node(self._steps[f.id])
            elif (view := self.corpus.nodes.get(f.type)) and (documents := view.of(f.id)):
                node = view.nodes[documents[-1]]
                if node is not None:
                    nodes[f.type, f.id] = node
        known = [f.id for f in found if f.type == "source" and f.id in self._steps]
        sought = {self._steps[id].node_id: id for id in known}
        return nodes | (await self._source_nodes(sought) if sought else {})

    async def _source_nodes(self, sought: Mapping[str, str]) -> dict[tuple[NodeType, str], Node]:
        """The ``source`` nodes of steps, by the ids that these are found under."""
        edges = [e for e in await self.graph.edges([*sought], intact=True) if e.source in sought]
        targets = await self.graph.nodes([e.target for e in edges], types=("source",), intact=True)
        nodes = {node.id: node for node in targets}
        return {("source", sought[e.source]): nodes[e.target] for e in edges if e.target in nodes}

    def _score(
        self, found: Found, node: Node, metadata: NodeMetadata | None
    ) -> ScoredCandidate | None:
        support = self._support(found)
        if not self._is_inside(found, node, support):
            return None
        parameters = parameters_of(self.config.scoring, found.type)
        answers = self._answers(found, node, support)
        relevance = found.relevance + sum(answers.values()) / SCALE
        found = replace(found, relevance=min(max(relevance, 0.0), 1.0))
        value = self._value_of(found.relevance, node, metadata, parameters, self.run.now)
        weighted = value * self.run.weights[found.type]
        latest = self._latest(node, support)
        return ScoredCandidate(found, node, metadata, weighted, support, latest, answers)

    def _answers(self, found: Found, node: Node, support: Sequence[str]) -> dict[str, float]:
        """The ``score.ANSWERS`` that a candidate gets."""
        asked, forms = self._asked, []
        read = [self._steps[id] for id in support if id in self._steps]
        # A fact, or a step that none was made of yet, may give the attribute asked for.
        if isinstance(node, Semantic) or found.id in self._unread:
            text = node.proposition if isinstance(node, Semantic) else node.text
            if asked.is_told_by(text, read[0].actor if read else None):
                forms.append("attribute")
        if self._zero.hits[found.type].are_notes(found.id):
            said = " ".join(step.text for step in read) or node.text
            if asked.is_of_a_kind(said):
                forms.append("name" if "name" in asked.kinds else "value")
            if asked.is_past_by(said):
                forms.append("another")
        return {form: ANSWERS[form] for form in forms}

    def _support(self, found: Found) -> tuple[str, ...]:
        if found.type in ("episodic", "source"):
            return (found.id,)
        steps = self._edges.support.get(found.id, ())
        return tuple(id for id in steps if self._zero.hits["episodic"].has(id))

    def _is_inside(self, found: Found, node: Node, support: tuple[str, ...]) -> bool:
        """Whether one of its sources matches, or the node itself where it is its own source."""
        by_hand = is_by_hand(node)
        if support or (self._edges.support.get(found.id, ()) and not by_hand):
            return bool(support)
        return self._request.filters.holds(
            at=(node.worded_at if isinstance(node, Claim) else None) or node.created_at,
            actors=(HAND,) if by_hand else (),
            metadata=(node.metadata if isinstance(node, Claim) else None) or {},
        )

    def _latest(self, node: Node, support: tuple[str, ...]) -> datetime:
        steps = self.corpus.steps
        seconds = [float(steps.last[d]) for id in support for d in steps.of(id)]
        if seconds:
            return of_timestamp(max(seconds))
        return node.created_at or LONG_AGO

    # ── Sources ──────────────────────────────────────────────────────────────────────

    def _named(self, scored: ScoredCandidate) -> list[str]:
        """The steps behind a candidate, best match first, then the later."""
        steps = self.corpus.steps

        def order(id: str) -> tuple[float, float, str]:
            latest = max((float(steps.last[d]) for d in steps.of(id)), default=0.0)
            return (-self._zero.hits["episodic"].relevance(id), -latest, id)

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
            sources=sources or [SourceRef.of_node(scored.node, self._origin(scored))],
            metadata=scored.metadata,
            outdated_by=place.newer.node.id if place.newer else None,
            valid_to=held or place.until,
            why=self._why(scored) if self._request.explain else None,
        )

    def _origin(self, scored: ScoredCandidate) -> str | None:
        """The changeset of a node without steps."""
        view = self.corpus.nodes.get(scored.found.type)
        origins = [view.origins.get(d) for d in view.of(scored.node.id)] if view else []
        return origins[-1] if origins else None

    def _why(self, scored: ScoredCandidate) -> Explanation:
        """What adds up to its score: of what was made of a step, to that of the step."""
        found, named = scored.found, self._named(scored)[:1]
        hits = self._zero.hits[found.type]
        parts = self._zero.hits["episodic"].parts_of(named[0]) if named else {}
        return explained(
            self.config.scoring,
            scored.node,
            scored.metadata,
            self.run.now,
            signals={**(parts or hits.parts_of(found.id)), **scored.answers},
            cosine=hits.cosine(found.id),
            via=found.via,
            mode_weight=self.run.weights[found.type],
        )


# ── Expansion ────────────────────────────────────────────────────────────────────────


class CandidateEdges:
    """
    The edges around a recall's candidates.

    Edges to what the corpus does not hold (it is of one revision, the store may have
    moved on) are left out.

    Attributes:
        support: Node → the steps behind it, by the ids that they are found under.
        above: Node and ``tag`` or ``intent`` → its tags or intents.
        below: Tag → its facts; intent → its instructions.
    """

    def __init__(self, graph: StoredGraph, corpus: CorpusView) -> None:
        self._graph = graph
        self._corpus = corpus
        self._read: set[str] = set()
        self.support: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.above: defaultdict[tuple[str, NodeType], dict[str, None]] = defaultdict(dict)
        self.below: defaultdict[str, dict[str, None]] = defaultdict(dict)

    async def load(self, ids: Iterable[str]) -> None:
        """Read the edges of *ids*, unless they were read before."""
        missing = [id for id in dict.fromkeys(ids) if id not in self._read]
        steps, nodes = self._corpus.steps, self._corpus.nodes
        if not missing or not any(view.count for view in nodes.values()):
            return
        self._read.update(missing)
        for edge in await self._graph.edges(missing, intact=True):
            route = _ROUTES.get(edge.kind)
            if route and nodes[route].of(edge.source):
                self.above[edge.target, route][edge.source] = None
                self.below[edge.source][edge.target] = None
            elif steps.of(edge.target):
                self.support[edge.source][steps.canonical(edge.target)] = None


async def expand(search: Search, run: RecallRun, config: RecallConfig) -> None:
    """
    Expand ``max_hops`` times, or until a hop adds nothing and no refinement is left.

    A hop whose best new candidate does not exceed the best before by ``plateau_delta`` is
    followed by a refinement, as long as the budget lasts. One without tags does not count
    against it; a model that returns none is asked at most once more per refinement.
    """
    made, in_vain = run.refinements, 0
    budget = min(config.refinement_budget, run.request.max_hops)
    best = config.refinement_threshold
    for hop in range(1, run.request.max_hops + 1):
        with run.phase("expand"):
            reached = await search.hop(hop)
        gain, best = reached - best, max(best, reached)
        can_ask = run.plans and not run.hangs
        if gain < config.plateau_delta and can_ask and len(made) < budget >= in_vain:
            with run.phase("refine"):
                texts = [scored.node.text for scored in search.ranked]
                tags = await run.ask(refine_question(run.asked, texts, run.profile), ())
                if tags:
                    after = max(best, await search.refine(tags, hop))
                    told = {"hop": hop, "tags": tags, "best_before": best, "best_after": after}
                    made.append(told)
                    best = after
                else:
                    in_vain += 1
        elif not reached:
            break

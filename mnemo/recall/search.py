"""
Search: score all documents, read the best, expand hop by hop, refine at a plateau, name sources.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice

import anyio
import numpy as np

from mnemo.config import Config, RecallConfig
from mnemo.english.antecedents import tells_change_of_one, with_antecedent
from mnemo.english.asked import about_the_user, asked_in, gives_name
from mnemo.english.canonical import speaker_of, words_of
from mnemo.english.entities import names
from mnemo.english.letters import is_gibberish
from mnemo.graph.graph import StoredGraph
from mnemo.index.corpus import CorpusView
from mnemo.index.large import LargeView
from mnemo.index.segments import DamagedSegment
from mnemo.log.feed import StoredFeed
from mnemo.prompts.plan import refine_question
from mnemo.protocols import Embedder
from mnemo.recall import score
from mnemo.recall.gather import GatheredView, gathered
from mnemo.recall.request import ROUTES, RecallRun
from mnemo.recall.result import Phase
from mnemo.recall.score import Hits
from mnemo.recall.shares import Whole, rarity_of
from mnemo.runtime.clock import of_timestamp
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import fold
from mnemo.values.derived import alive_since
from mnemo.values.feed import document_number, step_of
from mnemo.values.graph import Claim, EdgeKind, Node, NodeMetadata, NodeType, Semantic
from mnemo.values.steps import Step, episodic_node
from mnemo.values.vectors import unit_rows

READ_AT_ONCE = 10
"""Best steps without a fact among the found that are read for an attribute: .5 ms each (S)."""
READ = 2_000
"""Characters of a statement that are read: bounds the work on one of many pages."""
MAX_SOURCES = 50
"""Steps named behind one candidate, those that match the query best."""
REFINED_WEIGHT = 0.5
"""
What a relevance for refined tags counts beside one for the query, whose words lead.

With the most frequent words of what was found as tags recall@10 on short dialogues fell by 2.8
at 0.9 and by 0.4 at 0.5; with tags out of the evidence it rose by 8.4 and by 3.2 (S).
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
_SPOKEN: tuple[NodeType, ...] = ("episodic", "source")
"""Types that are found as the steps that they are of."""
_SORTED_APART = 1_000
"""Documents, the best, that are sorted before the others."""


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Found:
    """
    A candidate: found by its documents, then read and valued, then placed in the answer.

    Attributes:
        id: Of the node; for a ``source`` node that of its step's episodic node.
        match: How well its own words match, which sets the order of equals.
        via: The text of what led to it, where the question itself did not.
        value: Its relevance, nudged by its metadata, with its type's weight in the mode.
        support: Node ids of the steps behind it that lie inside the window, at most 50: best match
            first, then the later.
        latest: Time of its latest evidence.
        answers: What it got for a form that the question asks for, of ``ANSWERS``.
        step: The step whose place it has; *others* were made of it too, and share the place.
        newer: What replaced or ended it; *until* is when it ceased to hold.
    """

    id: str
    type: NodeType
    relevance: float
    match: float = 0.0
    phase: Phase = "initial"
    hop: int | None = 0
    via: str | None = None
    node: Node = field(init=False, compare=False)
    metadata: NodeMetadata | None = None
    value: float = 0.0
    support: tuple[str, ...] = ()
    latest: datetime = _LONG_AGO
    answers: Mapping[str, float] = field(default_factory=dict)
    step: str | None = None
    others: list[Found] = field(default_factory=list)
    newer: Found | None = None
    until: datetime | None = None

    @property
    def is_by_hand(self) -> bool:
        """Whether somebody gave the node its wording by hand."""
        return isinstance(self.node, Claim) and self.node.worded_at is not None

    @property
    def spoken(self) -> tuple[NodeType, str]:
        """Type and id of what was said: the step, or the node that rests on none."""
        return ("episodic", self.step) if self.step else (self.type, self.id)


# ── Hop 0 ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class HopZero:
    """
    The scores of the query before any hop, and its best documents, best first.

    Attributes:
        hits: Type → its scored documents; types with nothing eligible are absent.
        evidence, abstained: As of ``RecallTrace``.
    """

    hits: Mapping[NodeType, Hits]
    found: tuple[Found, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)
    abstained: bool = False


def hop_zero(
    corpus: CorpusView, question: score.RecallQuestion, run: RecallRun, config: Config
) -> HopZero:
    """
    Score every document of *run*'s types; of each at least *k* are found, if there are.
    Filters decide what is found, and change the score of nothing that is.
    """
    filters, searched = run.request.filters, tuple(run.weights)
    end = math.inf if filters.until is None else filters.until.timestamp()
    if isinstance(corpus, GatheredView):
        whole, steps = corpus.scored_with[(*question.terms,)], corpus.eligible
    else:
        whole = Whole.of(corpus, question.terms, end)
        steps = score.eligible_steps(corpus.steps, filters)
    rarity = rarity_of(question.terms, whole.totals)
    if not rarity and is_gibberish(question.query):
        return HopZero({}, abstained=True)
    agents = frozenset(map(fold, (*config.recall.agent_actors, config.extraction.agent_name)))
    scorer = score.Scorer(question, rarity, corpus.steps, whole, agents, run.dense_weight)
    said = scorer.of_steps(steps) if corpus.steps.count else None
    hits: dict[NodeType, Hits] = {}
    gains = []
    for kind in dict.fromkeys((*searched, *ROUTES[run.trace.mode])):
        view = corpus.nodes.get(kind)
        if view is not None and view.count:
            ok = score.eligible_nodes(corpus, kind, filters, steps)
            hits[kind] = scorer.of_nodes(kind, view, ok)
            if said is not None and (pairs := corpus.behind.get(kind)) is not None:
                hits[kind], gain = scorer.with_steps(hits[kind], said, pairs)
                gains.append(gain)
    if said is not None:
        if gains:
            gained = np.max(gains, axis=0)
            parts = {**said.parts, "restated": gained}
            said = replace(said, scores=said.scores + gained, parts=parts)
        hits["episodic"] = hits["source"] = said
    known = run.request.context.steps if run.request.context else ()
    unwanted = {corpus.steps.aliases.get(step.node_id, step.node_id) for step in known}
    found: list[Found] = []
    for kind in searched:
        if kind in hits:
            most = max(score.parameters_of(config.scoring, kind).top_k, run.request.k)
            found += _best(hits[kind], kind, unwanted, most)
    found.sort(key=lambda f: (-f.relevance, -f.match, f.id))
    return HopZero(hits, tuple(found), evidence(hits, searched, whole.totals.living))


def _best(hits: Hits, kind: NodeType, unwanted: Collection[str], most: int) -> list[Found]:
    chosen: dict[str, Found] = {}
    documents = np.flatnonzero(np.isfinite(hits.scores))
    if len(documents) > _SORTED_APART:
        documents = documents[np.argpartition(-hits.scores[documents], _SORTED_APART)]
    for part in (documents[:_SORTED_APART], documents[_SORTED_APART:]):
        ordered = part[np.lexsort((-hits.match[part], -hits.scores[part]))]
        for at in range(0, len(ordered), most):
            some = ordered[at : at + most]
            for document, id in zip(some.tolist(), hits.view.named(some), strict=True):
                if id not in chosen and id not in unwanted:
                    relevance = score.relevance_of(float(hits.scores[document]))
                    chosen[id] = Found(id, kind, relevance, float(hits.match[document]))
                if len(chosen) == most:
                    return list(chosen.values())
    return list(chosen.values())


# ── Confidence ──────────────────────────────────────────────────────────────────────────


EVIDENCE: Mapping[str, float] = {"cosine": 4.1, "margin": 7.3, "size": -0.45}
CONSTANT = -0.9
_TENTH = 10


def evidence(
    scored: Mapping[NodeType, Hits], searched: Iterable[NodeType], living: Mapping[str, int]
) -> dict[str, float]:
    """What tells whether a question is answered, as of ``RecallTrace``, of eligible steps first."""
    for kind in ("episodic", *searched):
        hits = scored.get(kind)
        if hits is None or not (ok := np.isfinite(hits.scores)).any():
            continue
        size = math.log10(living[kind])
        found = {"size": size, "words": float(hits.words[ok].max())}
        if hits.cosines.any():
            best = np.sort(hits.near[ok])[::-1][:_TENTH]
            found |= {"cosine": float(best[0]), "margin": float(best[0] - best[-1])}
        return found
    return {}


def confidence(found: Mapping[str, float]) -> float:
    """Return the confidence in [0, 1] for what ``evidence`` found; without vectors by words."""
    if "cosine" not in found:
        return min(max(found["words"], 0.0), 1.0)
    logit = CONSTANT + sum(weight * found[name] for name, weight in EVIDENCE.items())
    return 1 / (1 + math.exp(-logit))


# ── While it runs ────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class Search:
    """
    The candidates of one recall: found and valued hop by hop, and read in few large reads.

    Attributes:
        ranked: All candidates, best first.
        steps: What was read of them, by the ids that they are found under.
        mended: Gives the corpus anew where a part of it turned out to be damaged.
        before: Steps that tell a change of "him" → those before them, the latest first.
        unread: Those of which no fact was made yet: what they end is not known to the store.
    """

    run: RecallRun
    corpus: CorpusView
    graph: StoredGraph
    feed: StoredFeed
    embedder: Embedder
    config: Config
    threads: Threads
    mended: Callable[[], Awaitable[CorpusView]]
    ranked: list[Found] = field(default_factory=list, init=False)
    hits: Mapping[NodeType, Hits] = field(default_factory=dict, init=False)
    steps: dict[str, Step] = field(default_factory=dict, init=False)
    unread: frozenset[str] = field(default=frozenset(), init=False)
    before: Mapping[str, Sequence[str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._ask(self.run.request.query)
        self._stored = self.corpus
        self._questions: list[score.RecallQuestion] = []
        self._more = set[str]()
        self._value_of = score.value_function(self.config.scoring)
        # Edges are read once. Those to what the corpus does not hold are left out: it is of one
        # revision, the store may have moved on.
        self._known_edges_of: set[str] = set()
        self._behind: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._above: defaultdict[tuple[str, NodeType], dict[str, None]] = defaultdict(dict)
        self._below: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def _ask(self, query: str) -> None:
        self.query = query
        self._asked = asked_in(query)

    async def begin(self) -> None:
        """Find and value what the question itself finds; who speaks is not sought by name."""
        await self._begin()
        called = sorted(names(self.query))
        if called and (own := await self.threads.run(self._own_name, called)):
            self._ask(about_the_user(self.query, own))
            self.ranked, self._questions = [], []
            await self._begin()

    def _own_name(self, called: Iterable[str]) -> str:
        """By which of the names *called* the speaker goes; "" by none."""
        speaker = self.config.extraction.default_actor
        said = [*self._said_by(speaker)]
        of_speaker = (n for n in called if any(gives_name(text, n, speaker) for text in said))
        return next(of_speaker, "")

    def _said_by(self, speaker: str) -> Iterator[str]:
        """What was found that *speaker* said, or that a fact says of this one."""
        for f in self.ranked:
            if isinstance(f.node, Semantic):
                if speaker_of(f.node.proposition) in (speaker, None):
                    yield words_of(f.node.proposition)[:READ]
            elif (step := self.steps.get(f.id)) is not None and step.actor == speaker:
                yield step.text[:READ]

    async def _begin(self) -> None:
        run, request = self.run, self.run.request
        with run.phase("embed"):
            question = await self._embedded(score.ask(self.query, run.trace.tags, request.context))
        with run.phase("score"):
            zero = await self._scored(question)
        self.hits = zero.hits
        run.trace.evidence, run.trace.abstained = zero.evidence, zero.abstained
        if not zero.abstained:
            run.trace.found["initial"] = len(zero.found)
            with run.phase("load"):
                await self._take(zero.found)

    async def _scored(self, question: score.RecallQuestion) -> HopZero:
        """Score what is stored; of a large repository what is gathered for *question*, too."""
        self._questions.append(question)
        return await self._brought(question)

    async def bring(self, more: Iterable[str] = ()) -> None:
        """Gather, of a large repository, what the questions are answered from, and *more* ids."""
        if not isinstance(self._stored, LargeView):
            return
        self._more.update(more)
        self.hits = (await self._brought(self._questions[0])).hits

    async def _brought(self, question: score.RecallQuestion) -> HopZero:
        """What *question* finds in what is gathered for all questions."""
        try:
            return await self.threads.run(self._gathered, question)
        except DamagedSegment:
            self._stored = await self.mended()
            return await self.threads.run(self._gathered, question)

    def _gathered(self, question: score.RecallQuestion) -> HopZero:
        given = self.run, self.config
        self.corpus = corpus = self._stored
        if isinstance(corpus, LargeView):
            filters, first = self.run.request.filters, self._questions[0]
            self.corpus = gathered(corpus, self._questions, filters, self._more)
            # Those to steps that were not here were left out.
            self._known_edges_of.clear()
            if self.hits and question is not first:
                self.hits = hop_zero(self.corpus, first, *given).hits
        return hop_zero(self.corpus, question, *given)

    async def _embedded(self, question: score.RecallQuestion) -> score.RecallQuestion:
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

    async def hop(self, hop: int) -> float:
        """Add candidates over tags and intents; return the best new relevance, 0 without any."""
        routes = self._routes()
        if not routes:
            return 0.0
        await self._load_edges(route.id for route in routes)
        await self._gather_behind(routes)
        nodes = await self.read_nodes((route.type, route.id) for route in routes)
        targets = self._targets(routes, hop, nodes)
        self.run.trace.found[f"multi_hop {hop}"] = len(targets)
        reached = targets[0].relevance if targets else 0.0
        await self._take(targets[: self.config.recall.max_candidates])
        return reached

    async def _gather_behind(self, routes: Iterable[Found]) -> None:
        """Gather what stands behind *routes*."""
        if not isinstance(self._stored, LargeView):
            return
        below = {id for route in routes for id in self._below.get(route.id, ())}
        if more := below - self._more:
            await self.bring(more)
            await self._load_edges(route.id for route in routes)

    def _routes(self) -> list[Found]:
        """The best routing nodes above the best seeds, as relevant as these times themselves."""
        routes: list[Found] = []
        for type in ROUTES[self.run.trace.mode]:
            if (hits := self.hits.get(type)) is None:
                continue
            parameters = score.parameters_of(self.config.scoring, type)
            best: dict[str, float] = {}
            for seed in self.ranked[:SEEDS]:
                for id in self._above.get((seed.id, type), ()):
                    if hits.passes(id, parameters.threshold):
                        best[id] = max(best.get(id, 0.0), seed.relevance * hits.relevance(id))
            reached = sorted(best.items(), key=lambda found: (-found[1], found[0]))
            routes += [Found(id, type, given) for id, given in reached[: parameters.top_k]]
        return routes

    def _targets(self, routes: Iterable[Found], hop: int, nodes: Mapping[str, Node]) -> list[Found]:
        """List what stands behind *routes* and is no candidate yet, most relevant first."""
        known = {f.id for f in self.ranked}
        best: dict[str, Found] = {}
        for route in routes:
            type = BEHIND[route.type]
            hits = self.hits.get(type)
            if type not in self.run.weights or hits is None:
                continue
            handed = HOP_DECAY**hop * route.relevance
            below = [id for id in self._below.get(route.id, ()) if id not in known and hits.has(id)]
            below.sort(key=lambda id: (-hits.best(hits.cosines, id), id))
            for id in below[:MAX_BEHIND]:
                relevance = max(hits.relevance(id), handed)
                if id not in best or best[id].relevance < relevance:
                    match = hits.best(hits.match, id)
                    via = nodes[route.id].text if route.id in nodes else ""
                    best[id] = Found(id, type, relevance, match, "multi_hop", hop, via)
        found = [f for f in best.values() if f.relevance > 0]
        return sorted(found, key=lambda f: (-f.relevance, f.id))

    async def refine(self, tags: Sequence[str], hop: int) -> float:
        """
        Add what refined *tags* find after *hop*; return the best relevance among new ones.

        A candidate has the greater of its own relevance and half of that for the tags.
        """
        question = await self._embedded(score.ask(", ".join(tags), tags))
        zero = await self._scored(question)
        known = {(f.type, f.id) for f in self.ranked}
        found = [f for f in zero.found if (f.type, f.id) not in known]
        for f in found:
            own = self.hits[f.type].relevance(f.id)
            f.relevance = max(own, REFINED_WEIGHT * f.relevance)
            f.phase, f.hop = "refinement", hop
        self.run.trace.found[f"refinement {hop}"] = len(found)
        reached = max((f.relevance for f in found), default=0.0)
        await self._take(found)
        return reached

    # ── Reading and valuing ──────────────────────────────────────────────────────────

    async def _take(self, found: Sequence[Found]) -> None:
        """Read *found* and what is around them, and rank them among the candidates."""
        if not found:
            return
        await self._load_edges(f.id for f in found if f.type not in _SPOKEN)
        await self.read_steps(f.id for f in found if f.type in _SPOKEN)
        read = await self._with_nodes(found)
        metadata = await self.graph.metadata([f.node.id for f in read], intact=True)
        if self._asked.attributes:
            # The best steps that are to be read themselves: no fact that was found tells them.
            facts = (f.id for f in found if f.type == "semantic")
            told = {step for id in facts for step in self._behind.get(id, ())}
            steps = (f.id for f in found if f.type == "episodic" and f.id not in told)
            self.unread |= {*islice(steps, READ_AT_ONCE)}
        self.ranked = await self.threads.run(self._ranked_with, read, metadata)

    async def _load_edges(self, ids: Iterable[str]) -> None:
        """Read the edges of *ids*, unless they were read before."""
        missing = [id for id in dict.fromkeys(ids) if id not in self._known_edges_of]
        steps, nodes = self.corpus.steps, self.corpus.nodes
        if not missing or not any(view.count for view in nodes.values()):
            return
        self._known_edges_of.update(missing)
        for edge in await self.graph.edges(missing, intact=True):
            route = _ROUTES.get(edge.kind)
            if route and nodes[route].of(edge.source):
                self._above[edge.target, route][edge.source] = None
                self._below[edge.source][edge.target] = None
            elif steps.of(edge.target):
                self._behind[edge.source][steps.aliases.get(edge.target, edge.target)] = None

    async def read_steps(self, ids: Iterable[str]) -> None:
        """Read the steps of *ids*; for ids without a step, the messages that have not expired."""
        missing = [id for id in dict.fromkeys(ids) if id not in self.steps]
        repeats = self.corpus.steps.repeats
        made = {id: next(iter(repeats.get(id, ())), id) for id in missing}
        named = [step for step in made.values() if document_number(step) is None]
        found = await self.feed.steps(named) if named else {}
        self.steps |= {id: found[step] for id, step in made.items() if step in found}
        left = [id for id in missing if id not in self.steps and document_number(id) is not None]
        for id, (message, ttl_s) in (await self.feed.messages(left) if left else {}).items():
            since = alive_since(ttl_s, self.config.conversation.ttl_s, self.run.now)
            if since is None or message.recorded_at >= since:
                actor = self.config.extraction.default_actor
                self.steps[id] = step_of(id, message, default_actor=actor)

    async def read_before(self, ids: Iterable[str]) -> None:
        """Read the two messages before each of *ids* that tells a change of "him" or "her"."""
        said = ((id, self.steps[id].text[:READ]) for id in ids if id in self.steps)
        self.before = await self.feed.before([id for id, text in said if tells_change_of_one(text)])
        await self.read_steps(chain.from_iterable(self.before.values()))

    def said(self, id: str | None) -> str:
        """What step *id* says, with whom it means by "he" or "she"; "" if it was not read."""
        known = (self.steps.get(one) for one in self.before.get(id or "", ()))
        before = [step.text[:READ] for step in known if step is not None]
        step = self.steps.get(id or "")
        if step is None or not before:
            return step.text if step else ""
        return with_antecedent(step.text[:READ], before, self.query)

    async def _with_nodes(self, found: Sequence[Found]) -> list[Found]:
        """Those of *found* whose node there is, with it."""
        known = [f.id for f in found if f.type == "source" and f.id in self.steps]
        sources = await self._sources(known) if known else {}
        nodes = await self.read_nodes((f.type, f.id) for f in found)
        read = []
        for f in found:
            node = (sources if f.type == "source" else nodes).get(f.id)
            if f.type == "episodic" and f.id in self.steps:
                node = episodic_node(self.steps[f.id])
            if node is not None:
                f.node = node
                read.append(f)
        return read

    async def read_nodes(self, found: Iterable[tuple[NodeType, str]]) -> dict[str, Node]:
        """The nodes of types and ids that are here, by id; those not in memory at once."""
        views = ((self.corpus.nodes.get(type), id) for type, id in found)
        here = {id: (view, view.of(id)) for view, id in views if view is not None}
        nodes = {id: view.nodes[of_id[-1]] for id, (view, of_id) in here.items() if of_id}
        if missing := [id for id, node in nodes.items() if node is None]:
            read = await self.graph.nodes(missing, intact=True)
            nodes |= {node.id: replace(node, vector=None) for node in read}
        return {id: node for id, node in nodes.items() if node is not None}

    async def _sources(self, ids: Iterable[str]) -> dict[str, Node]:
        """The ``source`` nodes of steps, by the ids that these are found under."""
        steps = {self.steps[id].node_id: id for id in ids}
        edges = [e for e in await self.graph.edges([*steps], intact=True) if e.source in steps]
        targets = await self.graph.nodes([e.target for e in edges], intact=True)
        nodes = {node.id: node for node in targets}
        return {steps[e.source]: nodes[e.target] for e in edges if e.target in nodes}

    def _ranked_with(
        self, read: Iterable[Found], metadata: Mapping[str, NodeMetadata]
    ) -> list[Found]:
        """The best of all candidates so far and of *read*; for a worker thread."""
        ranked, read = list(self.ranked), list(read)
        for f in read:
            f.metadata = metadata.get(f.node.id)
            if self._is_inside(f):
                self._value(f)
                ranked.append(f)
        # The better match first, then the later evidence.
        ranked.sort(key=lambda f: (-f.value, -f.match, -f.latest.timestamp(), f.id))
        return ranked[: self.config.recall.max_candidates]

    def _is_inside(self, f: Found) -> bool:
        """Note its sources that match; is there one, or does it match where it is its own?"""
        if f.type in _SPOKEN:
            f.support = (f.id,)
            return True
        behind, node, by_hand = self._behind.get(f.id, ()), f.node, f.is_by_hand
        f.support = tuple(id for id in behind if self.hits["episodic"].has(id))
        if f.support or (behind and not by_hand):
            return bool(f.support)
        return self.run.request.filters.holds(
            at=(node.worded_at if isinstance(node, Claim) else None) or node.created_at,
            actors=(score.HAND,) if by_hand else (),
            metadata=(node.metadata if isinstance(node, Claim) else None) or {},
        )

    def _value(self, f: Found) -> None:
        """What a candidate is worth, from when it is, and which of its sources are its best."""
        f.answers, steps = self._answers(f), self.corpus.steps
        f.relevance = min(max(f.relevance + sum(f.answers.values()) / score.SCALE, 0.0), 1.0)
        parameters = score.parameters_of(self.config.scoring, f.type)
        value = self._value_of(f.relevance, f.node, f.metadata, parameters, self.run.now)
        f.value = value * self.run.weights[f.type]
        # A step that was forgotten meanwhile has no documents any more.
        last = {
            id: max((float(steps.last[d]) for d in steps.of(id)), default=-math.inf)
            for id in f.support
        }
        latest = max(last.values(), default=-math.inf)
        known = math.isfinite(latest)
        f.latest = of_timestamp(latest) if known else f.node.created_at or _LONG_AGO
        if len(last) > 1:
            relevance = self.hits["episodic"].relevance
            best = sorted(last, key=lambda id: (-relevance(id), -last[id], id))
            f.support = tuple(best[:MAX_SOURCES])

    def _answers(self, f: Found) -> dict[str, float]:
        """The ``score.ANSWERS`` that a candidate gets."""
        asked, node, forms = self._asked, f.node, []
        read = [self.steps[id] for id in f.support if id in self.steps]
        # A fact, or a step that none was made of yet, may give the attribute asked for.
        if isinstance(node, Semantic) or f.id in self.unread:
            text = node.proposition if isinstance(node, Semantic) else node.text
            if asked.is_told_by(text, read[0].actor if read else None):
                forms.append("attribute")
        if self.hits[f.type].are_notes(f.id):
            said = " ".join(step.text for step in read) or node.text
            if asked.is_of_a_kind(said):
                forms.append("name" if "name" in asked.kinds else "value")
            if asked.is_past_by(said):
                forms.append("another")
        return {form: score.ANSWERS[form] for form in forms}


async def expand(search: Search, run: RecallRun, config: RecallConfig) -> None:
    """
    Expand ``max_hops`` times, or until a hop adds nothing and no refinement is left.

    A hop that gains less than ``plateau_delta`` is followed by a refinement, as long as the budget
    lasts. One without tags does not count against it; a model that returns none is asked at most
    once more per refinement.
    """
    trace, in_vain = run.trace, 0
    budget = min(config.refinement_budget, run.request.max_hops)
    best = config.refinement_threshold
    for hop in range(1, run.request.max_hops + 1):
        with run.phase("expand"):
            reached = await search.hop(hop)
        gain, best = reached - best, max(best, reached)
        if gain < config.plateau_delta and run.plans and len(trace.refinements) < budget >= in_vain:
            with run.phase("refine"):
                texts = [scored.node.text for scored in search.ranked]
                tags = await run.ask(refine_question(run.asked, texts, run.profile), ())
                if tags:
                    after = max(best, await search.refine(tags, hop))
                    told = {"hop": hop, "tags": tags, "best_before": best, "best_after": after}
                    trace.refinements += (told,)
                    best = after
                else:
                    in_vain += 1
        elif not reached:
            break

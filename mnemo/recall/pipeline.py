"""The recall pipeline: plan, score, expand, trace, reason; goes on when a chat model fails."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias

import anyio

from mnemo.config import Config, ScoringConfig
from mnemo.english.words import index_terms
from mnemo.errors import ConfigError, MnemoError, ModelError, RecallFailed, UsageError
from mnemo.events import Event, RecallExecuted
from mnemo.events import RecallFailed as RecallFailedEvent
from mnemo.graph.graph import StoredGraph
from mnemo.index.follower import RepositoryIndex
from mnemo.log.feed import StoredFeed
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.reason import REASONING, ReasonPurpose, Recalled, fitting, reason_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Clock, Embedder
from mnemo.recall import score
from mnemo.recall.candidates import answered
from mnemo.recall.expected import look_for
from mnemo.recall.recall_log import MERGE_S, RecallLog
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.result import (
    Candidate,
    Expected,
    FoundNotes,
    ReasonedMemory,
    RecallResult,
    SourceRef,
    condition_text,
    each_once,
    line_tokens,
)
from mnemo.recall.search import Search, confidence, expand
from mnemo.runtime.clock import elapsed
from mnemo.runtime.flights import Errand
from mnemo.runtime.spans import NO_SPANS, Spans, memory_attributes
from mnemo.runtime.tasks import Places, Threads
from mnemo.runtime.text import count_tokens, one_line, terms
from mnemo.values.counting import Count
from mnemo.values.graph import NODE_TYPES, Episodic, KeyedItem, NodeType, Procedural
from mnemo.values.items import Item

log: logging.Logger = logging.getLogger("mnemo")


@dataclass(kw_only=True, eq=False)
class Recall:
    """
    Answers recalls of one repository; they run side by side where they wait for a model.

    Attributes:
        notify: Called with ``RecallExecuted`` or ``RecallFailed``.
        access: Counts which nodes were returned.
        log: Keeps the questions, if that is switched on.
        find_notes, find_items: Called for requests that want them.
        usage: Counts what the chat model is asked.
    """

    repo_id: str
    graph: StoredGraph
    feed: StoredFeed
    index: RepositoryIndex
    embedder: Embedder
    clock: Clock
    config: Config
    notify: Callable[[Event], Any]
    access: AccessLog | None = None
    log: RecallLog | None = None
    find_notes: Callable[[str], Awaitable[FoundNotes]] | None = None
    find_items: FindItems | None = None
    chat_model: ChatModel | None = None
    usage: UsageMeter = field(default_factory=UsageMeter)
    spans: Spans = NO_SPANS
    _threads: Threads = field(default_factory=Threads, init=False)
    _turn: Places = field(default_factory=Places, init=False)
    _running: set[anyio.CancelScope] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._count = self.config.conversation.count

    async def recall(self, query: str, **given: Any) -> RecallResult:
        """
        Answer *query* from one revision, with what was appended a moment ago.

        Args:
            given: As of ``RecallRequest.checked``; an invalid one is seen in the recall's span.

        Raises:
            ValueError: As ``RecallRequest.checked``.
            ConfigError: A chat model is wanted, and there is none.
            RecallFailed: The store could not be read, or what the user plugged in failed; or,
                with ``reason=True``, a chat model answered none of the questions.
            UsageError: ``stop`` was called. *Cancellation*: safe; calls of the model are
                dropped.
        """
        named = memory_attributes("search_memory", self.repo_id)
        with (
            anyio.CancelScope() as scope,
            self.spans.span("search_memory", attributes=named) as span,
        ):
            span.set_content("gen_ai.memory.query.text", lambda: query)
            run, began = self._begun(RecallRequest.checked(query, **given)), elapsed()
            self._running.add(scope)
            try:
                result = await self._answer(run)
            except Exception as error:
                why, at = f"{type(error).__name__}: {error}", self.clock.now()
                self.notify(RecallFailedEvent(repo_id=self.repo_id, at=at, query=query, error=why))
                raise RecallFailed(f"recall could not answer: {error}") from error
            finally:
                self._running.discard(scope)
            told = ("seconds", "degraded", "stages", "model_calls")
            spent = run.meter.total.input_tokens + run.meter.total.output_tokens
            self.notify(
                RecallExecuted(
                    repo_id=self.repo_id,
                    at=self.clock.now(),
                    trace={name: getattr(result.trace, name) for name in told}
                    | {"model_tokens": spent},
                    query=query,
                    mode=result.mode,
                    result_count=len(result.candidates),
                    duration_s=elapsed() - began,
                )
            )
            span.set("gen_ai.memory.record.count", len(result.candidates))
            span.set("mnemo.recall.mode", result.mode)
            if result.trace.degraded:
                span.set("mnemo.recall.degraded", result.trace.degraded)
            span.set_content("gen_ai.memory.records", lambda: _as_json(result.candidates))
            if self.access is not None and self.config.recall.record_access:
                self.access.note(c.node.id for c in result.candidates if c.node.type in NODE_TYPES)
            if self.log is not None:
                self.log.note(run, given, result, elapsed() - began)
            return result
        raise UsageError(f"repository {self.repo_id!r} was closed while it answered")

    def stop(self) -> None:
        """Cancel the recalls that run."""
        for scope in tuple(self._running):
            scope.cancel()

    def _begun(self, request: RecallRequest) -> RecallRun:
        """Begin to answer *request*. *Raises* ``ConfigError``: there is no model to plan."""
        recall, space = self.config.recall, self.embedder.space
        weight = space.dense_weight if recall.dense_weight is None else recall.dense_weight
        run = RecallRun(request, self.clock.now(), weight)
        run.plans = recall.use_model if request.use_model is None else request.use_model
        if self.chat_model is not None and (run.plans or request.reason):
            run.profile = resolve_profile(self.config.extraction.profile)
            run.advised_by(self.chat_model, self.usage, recall.timeout_s, self.spans)
        elif run.plans:
            who = "config.recall.use_model" if request.use_model is None else "use_model=True"
            raise ConfigError(
                f"{who} needs a chat model, and there is none: give Mnemo or open_repo one, "
                "chat_model=OpenAIChatModel(base_url, name)"
            )
        return run

    # ── Stages ───────────────────────────────────────────────────────────────────────

    async def _answer(self, run: RecallRun) -> RecallResult:
        """Search, add items, put into words, add notes."""
        request, trace, notes = run.request, run.trace, None
        candidates, search = await self._searched(run)
        sure = confidence(trace.evidence) if candidates else 0.0
        if request.items and self.find_items is not None:
            candidates = await self._with_items(run, candidates, self.find_items)
        expected = await self._expected(request, candidates, search)
        if sure < request.min_confidence:
            candidates = []
            if expected is not None and expected.rank is not None:
                told = f"{sure:.2f} of {request.min_confidence}"
                expected = replace(expected, rank=None, left_out_by="min_confidence", detail=told)
        answer = None
        with run.phase("reason"):
            if candidates and request.reason and self.chat_model is not None:
                answer = await reason_by_model(run, candidates)
            elif candidates and request.reason:
                trace.stages |= dict.fromkeys(purposes_of(candidates), "embedded")
                answer = reason_embedded(candidates, self._count)
        goals = await self._goals(candidates)
        if request.notes and self.find_notes is not None:
            try:
                notes = await self.find_notes(request.query)
            except Exception as error:
                # Notes come on top: whatever their store or embedder does, the answer stands.
                run.does_without("notes", error)
        if request.explain:
            trace.tokens = await self._threads.run(line_tokens, candidates, self._count)
        trace.model_calls = run.meter.total.calls
        return RecallResult(
            mode=trace.mode,
            tags=trace.tags,
            candidates=candidates,
            answer=answer,
            trace=trace,
            goals=goals,
            group_min_hits=self.config.recall.group_min_hits,
            confidence=sure,
            # Items are not judged: of them alone nothing is said.
            warn_below=self.config.recall.warn_below if trace.evidence else 0.0,
            notes=notes,
            expected=expected,
            count=self._count,
        )

    async def _expected(
        self, request: RecallRequest, candidates: Sequence[Candidate], search: Search | None
    ) -> Expected | None:
        """Where the memory stands that is expected, if one is."""
        if (id := request.expect) is None:
            return None
        numbered = enumerate(candidates, 1)
        # A keyed item was not searched: it is found, or it is not.
        item = next((n for n, one in numbered if one.node.id == id and one.node.type == "item"), 0)
        if item:
            value = candidates[item - 1]
            found = Expected(id=id, type="item", rank=item, relevance=value.relevance)
            return replace(found, score=value.score)
        if search is None:
            return Expected(id=id, left_out_by="unknown", detail="nothing was searched")
        return await look_for(search, id, candidates)

    async def _searched(self, run: RecallRun) -> tuple[list[Candidate], Search | None]:
        """Read what is stored, plan, and find the steps and nodes that answer."""
        request, trace, candidates = run.request, run.trace, list[Candidate]()
        search: Search | None = None
        read = partial(self.index.corpus, embedded=True, query=request.query)
        # Recalls that wait for no model go one after the other: two that compute at once take
        # the interpreter from each other and need longer for it. A static embedder computes
        # here, within a millisecond; others may ask a server.
        waits = run.plans or not self.embedder.space.static
        async with nullcontext() if waits else self._turn:
            with run.phase("read"):
                corpus = await read()
            if self.log is not None:
                # Before anything else runs: what is removed from here on may be in the answer.
                run.removal = self.index.statistics().cursor.removal
            is_searched = not corpus.is_empty and request.types != ()
            if is_searched and run.plans:
                with run.phase("plan"):
                    await run.plan()
                with run.phase("read"):
                    # Things were said while the model was thinking.
                    corpus = await read()
                is_searched = not corpus.is_empty
            elif is_searched:
                stages = ("plan",) if trace.mode_chosen_by == "caller" else ("mode", "plan")
                trace.stages |= dict.fromkeys(stages, "embedded")
            if is_searched:
                known = self.graph, self.feed, self.embedder, self.config, self._threads
                search = Search(run, corpus, *known, self.index.mended)
                await search.begin()
                if not trace.abstained:
                    await expand(search, run, self.config.recall)
                    with run.phase("sources"):
                        candidates = await answered(search)
            trace.revision, trace.owed = corpus.revision, corpus.owed
        return candidates, search

    async def _with_items(
        self, run: RecallRun, candidates: list[Candidate], find: FindItems
    ) -> list[Candidate]:
        """Merge the keyed items that answer into *candidates*, by value, before the cut to k."""
        items: list[Candidate] = []
        try:
            with run.phase("items"), anyio.fail_after(self.config.recall.timeout_s):
                items = await items_found(run, self.config, find)
        except (ModelError, TimeoutError) as error:
            # Items are found by their vectors alone; whatever else is stored still answers.
            run.does_without("items", error)
        run.trace.found["items"] = len(items)
        run.trace.abstained = run.trace.abstained and not items
        merged = sorted([*candidates, *items], key=lambda found: -found.score)
        return merged[: run.request.k]

    async def _goals(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Read the goals of sessions that are printed together."""
        first = [candidate.sources[0] for candidate in candidates]
        hits = Counter(source.session_id for source in first)
        least = self.config.recall.group_min_hits
        episodes = {
            source.session_id: source.episode_id
            for source in reversed(first)
            if source.session_id and source.episode_id and hits[source.session_id] >= least
        }
        if not episodes:
            return {}
        goals = await self.feed.goals(list(episodes.values()))
        return {session: goals.get(episode, "") for session, episode in episodes.items()}


def _as_json(candidates: Iterable[Candidate]) -> str:
    """Render *candidates* as memory records in the shape of OpenTelemetry's conventions."""
    found = [{"id": c.node.id, "content": c.node.text, "score": c.score} for c in candidates]
    return json.dumps(found, ensure_ascii=False)


# ── Keyed items ────────────────────────────────────────────────────────────────────────


LEAST_PAGE = 32
"""Items that are read at first, at least; twice as many each time after that (S)."""


FindItems: TypeAlias = Callable[..., Awaitable[Sequence[Item]]]
"""
Searches the items of all namespaces, as ``Items.search`` does, with the keywords ``query``,
``limit``, ``offset`` and ``refresh``: best first by cosine; those without a score last.
"""


async def items_found(run: RecallRun, config: Config, find: FindItems) -> list[Candidate]:
    """
    List the best *k* of the nearest items that match the filters, best first; none lives longer. An
    item's relevance is absolute: the share of the question's words that its texts hold and its
    cosine, weighted as the embedding space says.
    """
    request = run.request
    terms = frozenset(index_terms(request.query))
    enough = page = max(LEAST_PAGE, 2 * request.k)
    offset, found = 0, list[Candidate]()
    while len(found) < enough:
        items = await find(query=request.query, limit=page, offset=offset, refresh=False)
        for item in items:
            # An item's value is its metadata, and nobody said it.
            passes = request.filters.holds(at=item.updated_at, metadata=item.value)
            if item.score is not None and passes:
                made = _candidate(item, terms, run, config.scoring)
                found += [made] if made is not None and made.score > 0 else []
        if len(items) < page or items[-1].score is None:
            break
        # Each search ranks all items anew: the pages grow, so that there are few of them.
        offset, page = offset + page, 2 * page
    return sorted(found, key=lambda candidate: -candidate.score)[: request.k]


def _candidate(
    item: Item, terms: frozenset[str], run: RecallRun, scoring: ScoringConfig
) -> Candidate | None:
    """Make its candidate; ``None`` where it is below a threshold."""
    place = json.dumps([*item.namespace, item.key]).encode()
    node = KeyedItem(
        id=f"item-{sha256(place).hexdigest()[:32]}",
        created_at=item.updated_at,
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        texts=item.texts,
    )
    parameters = score.parameters_of(scoring, node.type)
    cosine, shared = item.score or 0.0, terms.intersection(index_terms(node.text))
    whole = 1 + run.dense_weight
    signals = {
        "words": len(shared) / max(len(terms), 1) / whole,
        "cosine": run.dense_weight * max(cosine, 0.0) / whole,
    }
    relevance = min(sum(signals.values()), 1.0)
    near = bool(shared) or cosine >= parameters.threshold
    if not near or relevance < run.request.min_score:
        return None
    value = score.value_function(scoring)(relevance, node, None, parameters, run.now)
    why = score.explained(scoring, node, None, run.now, signals=signals, cosine=cosine)
    return Candidate(
        node=node,
        score=value,
        relevance=relevance,
        phase="initial",
        hop=0,
        sources=[replace(SourceRef.of_node(node, node.key), namespace=node.namespace)],
        why=why if run.request.explain else None,
    )


# ── In words ───────────────────────────────────────────────────────────────────────────


BUDGET_TOKENS = 512
"""Of each type's text, by the service's count."""
REPETITION = 0.8
"""Share of common terms from which one text repeats another."""


def reason_embedded(candidates: Sequence[Candidate], count: Count = count_tokens) -> ReasonedMemory:
    """The best *candidates* of each type, own texts, by time, without repeats, 512 tokens."""
    facts = sorted(_chosen(candidates, "semantic", count), key=_date)
    instructions = _chosen(candidates, "procedural", count)
    episodes = sorted(_chosen(candidates, "episodic", count), key=_date)
    return ReasonedMemory(
        semantic=_words(facts),
        procedural=_words(instructions),
        episodic=_words(episodes),
        sources=tuple(c.sources[0] for c in (*facts, *instructions, *episodes)),
    )


def _words(chosen: Iterable[Candidate]) -> str | None:
    return "\n".join(map(_line, chosen)) or None


def _chosen(candidates: Iterable[Candidate], type: NodeType, count: Count) -> list[Candidate]:
    chosen: list[Candidate] = []
    said: list[frozenset[str]] = []
    left = BUDGET_TOKENS
    for candidate in (c for c in candidates if c.node.type == type):
        words = frozenset(terms(candidate.node.text))
        cost = count(_line(candidate) + "\n")
        alike = (len(words & other) / len(words | other) for other in said if words)
        if cost <= left and all(share < REPETITION for share in alike):
            left -= cost
            chosen.append(candidate)
            said.append(words)
    return chosen


def _line(candidate: Candidate) -> str:
    node = candidate.node
    if isinstance(node, Episodic):
        # Each side keeps its line: together they would be a sentence that nobody said.
        sides = (one_line(node.observation), one_line(node.action))
        return "\n".join(side for side in sides if side)
    if not isinstance(node, Procedural):
        return one_line(node.text)
    parts = (("do", node.instruction), ("expect", node.expected_outcome))
    told = (condition_text(node.condition), *(f"{word} {text}" for word, text in parts if text))
    return one_line(" ".join(told))


def _date(candidate: Candidate) -> tuple[float, int]:
    source = candidate.sources[0]
    return (source.at.timestamp() if source.at else 0.0, source.step_index or 0)


# ── By a chat model ──────────────────────────────────────────────────────────────────


def purposes_of(candidates: Iterable[Candidate]) -> list[ReasonPurpose]:
    """List the purposes that *candidates* need: one for each of the three types."""
    types = {candidate.node.type for candidate in candidates}
    return [purpose for purpose, type in REASONING.items() if type in types]


async def reason_by_model(run: RecallRun, candidates: Sequence[Candidate]) -> ReasonedMemory:
    """Put *candidates* into words; ``ModelError``: all types failed. *Cancellation*: safe."""
    wanted = {purpose: _shown(candidates, purpose) for purpose in purposes_of(candidates)}
    words: dict[ReasonPurpose, str | None] = {}

    async def ask(purpose: ReasonPurpose, shown: Iterable[Candidate]) -> None:
        recalled = [_recalled(candidate) for candidate in shown]
        words[purpose] = await run.ask(
            reason_question(purpose, run.asked, recalled, run.profile), None
        )

    async with anyio.create_task_group() as group:
        for purpose, shown in wanted.items():
            group.start_soon(ask, purpose, shown)
    if wanted and run.failures.keys() >= wanted.keys():
        raise run.failures[next(iter(wanted))]
    put = (c for purpose, shown in wanted.items() if words[purpose] for c in shown)
    return ReasonedMemory(
        words.get("reason_semantic"),
        words.get("reason_procedural"),
        words.get("reason_episodic"),
        # A step's own words come before those of facts that restate it.
        sources=tuple(each_once(source for candidate in put for source in candidate.sources)),
    )


def _shown(candidates: Sequence[Candidate], purpose: ReasonPurpose) -> list[Candidate]:
    """Choose the candidates of the purpose's type to show; episodes in order of time."""
    best = [c for c in candidates if c.node.type == REASONING[purpose]]
    best = best[: fitting([_recalled(candidate) for candidate in best])]
    return sorted(best, key=_date) if purpose == "reason_episodic" else best


def _recalled(candidate: Candidate) -> Recalled:
    source = candidate.sources[0]
    return Recalled(candidate.node, source.at, source.actor)


# ── Access counts ────────────────────────────────────────────────────────────────────


class AccessLog:
    """Gathers which nodes recalls returned, and adds it to their counts in the store."""

    def __init__(self, graph: StoredGraph, clock: Clock, spawn: Callable[..., object]) -> None:
        self._graph = graph
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._writing = Errand(spawn, self._write)

    def note(self, ids: Iterable[str]) -> None:
        """Count one access of each of *ids*; a plain call."""
        self._counts.update(ids)
        self._writing.poke()

    async def _write(self) -> None:
        await self._clock.sleep(MERGE_S)
        await self.flush()

    async def flush(self) -> None:
        """Write what was noted, or keep it. *Cancellation*: it is counted twice at worst."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            await self._graph.touch(counts, self._clock.now())
        except BaseException as error:
            self._counts.update(counts)
            if not isinstance(error, MnemoError):
                raise
            # Counts nudge, nothing depends on them.
            log.info("access counts could not be written: %s", error)

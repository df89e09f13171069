"""
Recall: from a question to evidence.

Raw steps are first-class evidence, the graph adds to them, metadata nudges, and every
candidate says where it comes from. Nothing here needs a chat model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, get_args

import anyio.to_thread
from anyio import CapacityLimiter

from mnemo._clock import elapsed
from mnemo._text import is_blank
from mnemo.config import Config
from mnemo.errors import RecallFailed
from mnemo.events import Event, RecallExecuted
from mnemo.events import RecallFailed as RecallFailedEvent
from mnemo.graph.corpus import CorpusView
from mnemo.graph.nodes import NodeType
from mnemo.graph.vectors import unit_rows
from mnemo.protocols import Clock, DocumentFeed, Embedder, GraphStore, VectorIndex
from mnemo.recall.candidate import Candidate
from mnemo.recall.candidates import HopZero, Window, hop_zero
from mnemo.recall.plan import MODES, Mode, Plan, choose_mode, find_tags
from mnemo.recall.question import MAX_QUERY_CHARACTERS, Question, RecallContext, ask
from mnemo.recall.reasoning import reason_embedded
from mnemo.recall.result import RecallResult, RecallTrace
from mnemo.recall.search import Search, Terms

__all__ = ["Recall", "RecallContext"]

_TYPES: tuple[NodeType, ...] = get_args(NodeType)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A recall's arguments, checked."""

    query: str
    k: int
    mode: Mode | None
    max_hops: int
    reason: bool
    window: Window
    types: tuple[NodeType, ...] | None
    context: RecallContext | None


@dataclass(slots=True)
class _Progress:
    """What the trace will say."""

    seconds: dict[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = elapsed()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed() - began


class Recall:
    """
    Answers questions about one repository; recalls run side by side.

    Args:
        feed: Gives the steps behind candidates.
        index: Every searchable text in memory; caught up before each answer.
        notify: Called with ``RecallExecuted`` or ``RecallFailed``.
    """

    def __init__(
        self,
        *,
        repo_id: str,
        graph: GraphStore,
        feed: DocumentFeed,
        index: VectorIndex,
        embedder: Embedder,
        clock: Clock,
        config: Config,
        notify: Callable[[Event], Any],
    ) -> None:
        self._repo_id = repo_id
        self._graph = graph
        self._feed = feed
        self._index = index
        self._embedder = embedder
        self._clock = clock
        self._config = config
        self._notify = notify
        self._limiter = CapacityLimiter(2)

    async def recall(
        self,
        query: str,
        *,
        k: int = 10,
        mode: str | None = None,
        max_hops: int = 2,
        reason: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        types: Sequence[str] | None = None,
        context: RecallContext | None = None,
    ) -> RecallResult:
        """
        Find what answers *query*, of one revision, with what was appended a moment ago.

        Args:
            query: Words, never syntax; the first 8,192 characters are read.
            k: Candidates to return, at least 1.
            mode: ``semantic``, ``procedural``, ``episodic`` or ``mixed``; ``None``
                lets the question decide.
            max_hops: Hops over tags and intents, at least 0.
            reason: Whether to put the candidates into words; ``None``: only where a
                chat model is configured.
            since, until: Inclusive bounds of the evidence's time; no zone means UTC.
            types: Exactly these types of node; ``None``: those of the mode.
            context: Where the question is asked from.

        Raises:
            ValueError: A blank query or an argument out of range.
            RecallFailed: The store could not be read. *Cancellation*: safe.
        """
        request = _Request(
            query=_checked_query(query),
            k=_at_least(1, k, "k"),
            mode=_checked_mode(mode),
            max_hops=_at_least(0, max_hops, "max_hops"),
            reason=bool(reason),
            window=Window.checked(since, until),
            types=_checked_types(types),
            context=context,
        )
        began = elapsed()
        try:
            result = await self._answer(request)
        except Exception as error:
            self._tell_failure(query, error)
            raise RecallFailed(f"recall could not answer: {error}") from error
        self._tell_success(query, result, elapsed() - began)
        return result

    # ── Stages ───────────────────────────────────────────────────────────────────────

    async def _answer(self, request: _Request) -> RecallResult:
        progress = _Progress()
        with progress.phase("read"):
            corpus = await self._index.corpus()
        plan = _plan(request)
        if corpus.is_empty:
            return _empty(plan, corpus, progress)
        question = ask(request.query, plan.tags, request.context)
        with progress.phase("embed"):
            question = await self._embedded(question, progress)
        terms = self._terms(request, plan)
        with progress.phase("score"):
            zero = await self._hop_zero(corpus, question, terms)
        search = Search(
            corpus=corpus,
            zero=zero,
            terms=terms,
            graph=self._graph,
            feed=self._feed,
            config=self._config,
        )
        candidates = await self._candidates(search, request, progress)
        result = RecallResult(
            mode=plan.mode,
            tags=plan.tags,
            candidates=candidates,
            answer=None,
            trace=_trace(plan, corpus, zero, search, progress),
            goals=await self._goals(candidates),
            group_min_hits=self._config.recall.group_min_hits,
        )
        return _reasoned(result) if request.reason and candidates else result

    def _terms(self, request: _Request, plan: Plan) -> Terms:
        return Terms(
            mode=plan.mode,
            k=request.k,
            types=request.types,
            window=request.window,
            unwanted=request.context.node_ids if request.context else frozenset(),
            now=self._clock.now(),
        )

    async def _embedded(self, question: Question, progress: _Progress) -> Question:
        """The question with its vectors; without any if the embedder fails."""
        try:
            reply = await self._embedder.embed(question.texts, kind="query")
            dimensions = self._embedder.space.dimensions
            rows = unit_rows(reply, rows=len(question.texts), dimensions=dimensions)
        except Exception as error:
            # An embedder is foreign code; whatever it raises, keywords still answer.
            progress.degraded.append(f"embedder: {error.__class__.__name__}")
            return question
        return question.embedded(rows)

    async def _hop_zero(self, corpus: CorpusView, question: Question, terms: Terms) -> HopZero:
        dense_weight = self._config.recall.dense_weight
        if dense_weight is None:
            dense_weight = self._embedder.space.dense_weight
        score = partial(
            hop_zero,
            corpus,
            question,
            searched=tuple(terms.weights),
            routes=terms.routes,
            window=terms.window,
            unwanted=terms.unwanted,
            config=self._config,
            dense_weight=dense_weight,
        )
        return await anyio.to_thread.run_sync(score, limiter=self._limiter)

    async def _candidates(
        self, search: Search, request: _Request, progress: _Progress
    ) -> list[Candidate]:
        with progress.phase("load"):
            await search.begin()
        with progress.phase("expand"):
            await search.expand(request.max_hops)
        with progress.phase("provenance"):
            await search.trace_back()
        with progress.phase("sources"):
            return await search.finish()

    async def _goals(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """The goals of sessions that are printed together."""
        first = [candidate.sources[0] for candidate in candidates]
        hits = Counter(source.session_id for source in first if source.session_id)
        episodes = {
            source.session_id: source.episode_id
            for source in reversed(first)
            if source.session_id
            and source.episode_id
            and hits[source.session_id] >= self._config.recall.group_min_hits
        }
        if not episodes:
            return {}
        goals = await self._feed.goals(list(episodes.values()))
        return {session: goals.get(episode, "") for session, episode in episodes.items()}

    # ── Events ───────────────────────────────────────────────────────────────────────

    def _tell_success(self, query: str, result: RecallResult, duration_s: float) -> None:
        self._notify(
            RecallExecuted(
                repo_id=self._repo_id,
                at=self._clock.now(),
                trace={"seconds": result.trace.seconds, "degraded": result.trace.degraded},
                query=query,
                mode=result.mode,
                result_count=len(result.candidates),
                duration_s=duration_s,
            )
        )

    def _tell_failure(self, query: str, error: Exception) -> None:
        described = f"{error.__class__.__name__}: {error}"
        self._notify(
            RecallFailedEvent(
                repo_id=self._repo_id, at=self._clock.now(), query=query, error=described
            )
        )


# ── Arguments ────────────────────────────────────────────────────────────────────────


def _checked_query(query: str) -> str:
    if query is not None and not isinstance(query, str):
        raise ValueError(f"query must be text, not {type(query).__name__}")
    if is_blank(query):
        raise ValueError("Query cannot be blank")
    return query[:MAX_QUERY_CHARACTERS]


def _checked_mode(mode: str | None) -> Mode | None:
    for known in MODES:
        if mode == known:
            return known
    if mode is not None:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    return None


def _checked_types(types: Sequence[str] | None) -> tuple[NodeType, ...] | None:
    if types is None:
        return None
    chosen = tuple(known for known in _TYPES if known in types)
    unknown = [type for type in types if type not in _TYPES]
    if isinstance(types, str) or unknown or not chosen:
        raise ValueError(f"types must be some of {', '.join(_TYPES)}, not {types!r}")
    return chosen


def _at_least(least: int, value: int, name: str) -> int:
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value


# ── Parts of the result ──────────────────────────────────────────────────────────────


def _plan(request: _Request) -> Plan:
    if request.mode is not None:
        return Plan(request.mode, find_tags(request.query), "caller")
    return Plan(choose_mode(request.query), find_tags(request.query), "embedded")


def _empty(plan: Plan, corpus: CorpusView, progress: _Progress) -> RecallResult:
    trace = RecallTrace(
        plan.mode, plan.chosen_by, plan.tags, corpus.revision, seconds=progress.seconds
    )
    return RecallResult(plan.mode, plan.tags, [], None, trace)


def _trace(
    plan: Plan, corpus: CorpusView, zero: HopZero, search: Search, progress: _Progress
) -> RecallTrace:
    return RecallTrace(
        mode=plan.mode,
        mode_chosen_by=plan.chosen_by,
        tags=plan.tags,
        revision=corpus.revision,
        weights=zero.weights,
        found=dict(search.found_by),
        rejected=zero.rejected,
        seconds=progress.seconds,
        degraded=tuple(progress.degraded),
    )


def _reasoned(result: RecallResult) -> RecallResult:
    return replace(result, answer=reason_embedded(result.candidates))

"""
Recall: from a question to evidence.

Raw steps are first-class evidence, the graph adds to them, metadata nudges, and every
candidate says where it comes from. A chat model makes the plan and the words better;
what it fails to say is done without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from mnemo.config import Config
from mnemo.errors import RecallFailed
from mnemo.events import Event, RecallExecuted
from mnemo.events import RecallFailed as RecallFailedEvent
from mnemo.graph.corpus import CorpusView
from mnemo.graph.vectors import unit_rows
from mnemo.prompts.asked import Asked
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import How, UsageMeter
from mnemo.protocols import ChatModel, Clock, DocumentFeed, Embedder, GraphStore, VectorIndex
from mnemo.recall.adviser import Adviser
from mnemo.recall.candidate import Candidate
from mnemo.recall.candidates import HopZero, hop_zero
from mnemo.recall.plan import Plan, plan_embedded
from mnemo.recall.plan_by_model import plan_by_model
from mnemo.recall.progress import Progress
from mnemo.recall.question import Question, RecallContext, ask
from mnemo.recall.reasoning import reason_embedded
from mnemo.recall.reasoning_by_model import purposes_of, reason_by_model
from mnemo.recall.refinement import SecondLook, expand
from mnemo.recall.request import Request
from mnemo.recall.result import ReasonedMemory, RecallResult, RecallTrace
from mnemo.recall.search import Search, Terms
from mnemo.runtime.clock import elapsed
from mnemo.runtime.spans import NO_SPANS, Spans

__all__ = ["Recall", "RecallContext"]


@dataclass(frozen=True, slots=True)
class _Run:
    """
    One recall on its way.

    Attributes:
        adviser: The chat model, if there is one; *planner* likewise, if it may plan.
    """

    request: Request
    asked: Asked
    progress: Progress
    adviser: Adviser | None
    planner: Adviser | None


class Recall:
    """
    Answers questions about one repository; recalls run side by side.

    Args:
        feed: Gives the steps behind candidates.
        index: Every searchable text in memory; caught up before each answer.
        notify: Called with ``RecallExecuted`` or ``RecallFailed``.
        chat_model: Asked for plans and words; ``None`` does without.
        usage: Counts what it is asked.
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
        chat_model: ChatModel | None = None,
        usage: UsageMeter | None = None,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._repo_id = repo_id
        self._graph = graph
        self._feed = feed
        self._index = index
        self._embedder = embedder
        self._clock = clock
        self._config = config
        self._notify = notify
        self._chat_model = chat_model
        self._usage = usage or UsageMeter()
        self._spans = spans
        self._profile = resolve_profile(config.extraction.profile)
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
        explain: bool = False,
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
            explain: Whether every candidate says why it came (``Candidate.why``).

        Raises:
            ValueError: A blank query or an argument out of range.
            RecallFailed: The store could not be read; or, with ``reason=True``, a chat
                model answered none of the questions. *Cancellation*: safe; calls of the
                model are dropped.
        """
        request = Request.checked(
            query, k=k, mode=mode, max_hops=max_hops, reason=reason,
            since=since, until=until, types=types, context=context, explain=explain,
        )  # fmt: skip
        began = elapsed()
        try:
            result = await self._answer(request)
        except Exception as error:
            self._tell_failure(query, error)
            raise RecallFailed(f"recall could not answer: {error}") from error
        self._tell_success(query, result, elapsed() - began)
        return result

    # ── Stages ───────────────────────────────────────────────────────────────────────

    async def _answer(self, request: Request) -> RecallResult:
        run = self._run(request)
        with run.progress.phase("read"):
            corpus = await self._index.corpus()
        plan = plan_embedded(request.query, request.mode)
        if corpus.is_empty:
            return _empty(plan, corpus, run)
        if run.planner is None:
            run.progress.stages |= _planned_without_model(plan)
        else:
            with run.progress.phase("plan"):
                plan = await plan_by_model(run.planner, run.asked, plan, self._profile)
            with run.progress.phase("read"):
                # Things were said while the model was thinking.
                corpus = await self._index.corpus()
        result = await self._found(run, plan, corpus)
        with run.progress.phase("reason"):
            answer = await self._reasoned(run, result.candidates)
        return replace(result, answer=answer, trace=_finished(result.trace, run))

    def _run(self, request: Request) -> _Run:
        progress, asked = Progress(), request.asked(self._clock.now())
        if self._chat_model is None:
            return _Run(request, asked, progress, None, None)
        adviser = Adviser(
            self._chat_model,
            usage=self._usage,
            timeout_s=self._config.recall.timeout_s,
            progress=progress,
            spans=self._spans,
        )
        planner = adviser if self._config.recall.use_model else None
        return _Run(request, asked, progress, adviser, planner)

    async def _found(self, run: _Run, plan: Plan, corpus: CorpusView) -> RecallResult:
        """The candidates, without an answer in words yet."""
        question = ask(run.request.query, plan.tags, run.request.context)
        with run.progress.phase("embed"):
            question = await self._embedded(question, run.progress)
        terms = self._terms(run.request, plan)
        with run.progress.phase("score"):
            zero = await self._hop_zero(corpus, question, terms)
        search = Search(
            corpus=corpus,
            zero=zero,
            terms=terms,
            graph=self._graph,
            feed=self._feed,
            config=self._config,
        )
        look = self._second_look(run, partial(self._found_by, corpus, terms, run.progress))
        refinements, candidates = await self._candidates(search, look, run)
        return RecallResult(
            mode=plan.mode,
            tags=plan.tags,
            candidates=candidates,
            answer=None,
            trace=_trace(plan, corpus, zero, search, refinements),
            goals=await self._goals(candidates),
            group_min_hits=self._config.recall.group_min_hits,
            count=self._config.conversation.count,
        )

    def _second_look(
        self, run: _Run, find: Callable[[Sequence[str]], Awaitable[HopZero]]
    ) -> SecondLook | None:
        if run.planner is None:
            return None
        return SecondLook(adviser=run.planner, asked=run.asked, profile=self._profile, find=find)

    async def _reasoned(self, run: _Run, candidates: Sequence[Candidate]) -> ReasonedMemory | None:
        """
        The candidates in words, where they are wanted.

        Raises:
            ModelError: Of a model that failed altogether, where words were asked for.
        """
        wanted = run.request.reason
        if not candidates or wanted is False or (wanted is None and run.adviser is None):
            return None
        if run.adviser is None:
            run.progress.stages |= dict.fromkeys(purposes_of(candidates), "embedded")
            return reason_embedded(candidates, self._config.conversation.count)
        answer = await reason_by_model(run.adviser, run.asked, candidates, self._profile)
        if answer is None and wanted:
            raise run.adviser.failures[purposes_of(candidates)[0]]
        return answer

    def _terms(self, request: Request, plan: Plan) -> Terms:
        return Terms(
            mode=plan.mode,
            k=request.k,
            types=request.types,
            window=request.window,
            unwanted=request.context.node_ids if request.context else frozenset(),
            now=self._clock.now(),
            explain=request.explain,
        )

    async def _embedded(self, question: Question, progress: Progress) -> Question:
        """The question with its vectors; without any if the embedder fails or hangs."""
        try:
            with anyio.fail_after(self._config.recall.timeout_s):
                space = self._embedder.space
                texts = (*question.texts, *(question.words if space.static else ()))
                reply = await self._embedder.embed(texts, kind="query")
            rows = unit_rows(reply, rows=len(texts), dimensions=space.dimensions)
        except Exception as error:
            # An embedder is foreign code; whatever it raises, keywords still answer.
            progress.does_without("embedder", error)
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
            explain=terms.explain,
        )
        return await anyio.to_thread.run_sync(score, limiter=self._limiter)

    async def _found_by(
        self, corpus: CorpusView, terms: Terms, progress: Progress, tags: Sequence[str]
    ) -> HopZero:
        """What *tags* find at hop 0, in place of the query."""
        question = await self._embedded(ask(", ".join(tags), tags), progress)
        return await self._hop_zero(corpus, question, terms)

    async def _candidates(
        self, search: Search, look: SecondLook | None, run: _Run
    ) -> tuple[tuple[dict[str, Any], ...], list[Candidate]]:
        with run.progress.phase("load"):
            await search.begin()
        refinements = await expand(
            search,
            look,
            max_hops=run.request.max_hops,
            config=self._config.recall,
            progress=run.progress,
        )
        with run.progress.phase("provenance"):
            await search.trace_back()
        with run.progress.phase("sources"):
            return refinements, await search.finish()

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
                trace={
                    "seconds": result.trace.seconds,
                    "degraded": result.trace.degraded,
                    "stages": result.trace.stages,
                    "model_calls": result.trace.model_calls,
                },
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


# ── Parts of the result ──────────────────────────────────────────────────────────────


def _planned_without_model(plan: Plan) -> dict[str, How]:
    stages: dict[str, How] = {"plan": "embedded"}
    return stages if plan.chosen_by == "caller" else {"mode": "embedded", **stages}


def _empty(plan: Plan, corpus: CorpusView, run: _Run) -> RecallResult:
    seconds = run.progress.seconds
    trace = RecallTrace(plan.mode, plan.chosen_by, plan.tags, corpus.revision, seconds=seconds)
    return RecallResult(plan.mode, plan.tags, [], None, trace)


def _trace(
    plan: Plan,
    corpus: CorpusView,
    zero: HopZero,
    search: Search,
    refinements: tuple[dict[str, Any], ...],
) -> RecallTrace:
    return RecallTrace(
        mode=plan.mode,
        mode_chosen_by=plan.chosen_by,
        tags=plan.tags,
        revision=corpus.revision,
        weights=zero.weights,
        found=dict(search.found_by),
        rejected=zero.rejected,
        refinements=refinements,
    )


def _finished(trace: RecallTrace, run: _Run) -> RecallTrace:
    return replace(
        trace,
        seconds=run.progress.seconds,
        degraded=tuple(run.progress.degraded),
        stages=run.progress.stages,
        model_calls=run.adviser.calls if run.adviser else 0,
    )

"""
The recall pipeline: plan, score, expand, trace back to sources, reason.

Raw steps are first-class evidence, the graph adds candidates, metadata nudges their
order. A chat model improves plan and answer; recall goes on without it when it fails.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from mnemo.config import Config
from mnemo.errors import ConfigError, MnemoError, ModelError, RecallFailed, UsageError
from mnemo.events import Event, RecallExecuted
from mnemo.events import RecallFailed as RecallFailedEvent
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import How, UsageMeter
from mnemo.protocols import ChatModel, Clock, DocumentFeed, Embedder, GraphStore, VectorIndex
from mnemo.recall.candidate import Candidate
from mnemo.recall.candidate_text import line_tokens
from mnemo.recall.confidence import confidence
from mnemo.recall.hop_zero import HopZero, hop_zero
from mnemo.recall.keyed_items import FindItems, ItemRecall
from mnemo.recall.plan import RecallPlan, plan_by_model, plan_embedded
from mnemo.recall.question import RecallQuestion, ask
from mnemo.recall.reasoning import purposes_of, reason_by_model, reason_embedded
from mnemo.recall.request import Adviser, RecallProgress, RecallRequest, RecallRun
from mnemo.recall.result import FoundNotes, ReasonedMemory, RecallResult, RecallTrace
from mnemo.recall.search import Search, SearchScope, SecondLook, expand
from mnemo.runtime.clock import elapsed
from mnemo.runtime.spans import NO_SPANS, Span, Spans, memory_attributes
from mnemo.runtime.threads import Threads
from mnemo.values.corpus import CorpusView
from mnemo.values.graph import NODE_TYPES
from mnemo.values.vectors import unit_rows

__all__ = ["AccessLog", "Recall"]

log = logging.getLogger("mnemo")

MERGE_S = 1.0
"""Seconds over which accesses are gathered into one write."""


class Recall:
    """
    Answers recalls of one repository; they run side by side.

    Args:
        feed: Gives the steps behind candidates.
        index: Every searchable text in memory; caught up before each answer.
        notify: Called with ``RecallExecuted`` or ``RecallFailed``.
        access: Counts which nodes were returned; ``None`` counts none.
        find_notes: Recalls notes; called for requests that want them.
        find_items: Searches keyed items; called likewise.
        chat_model: Asked for plans and answers; ``None`` does without.
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
        access: AccessLog | None = None,
        find_notes: Callable[[str], Awaitable[FoundNotes]] | None = None,
        find_items: FindItems | None = None,
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
        self._access = access
        self._find_notes = find_notes
        self._find_items = find_items
        self._chat_model = chat_model
        self._usage = usage or UsageMeter()
        self._spans = spans
        self._profile = resolve_profile(config.extraction.profile)
        self._threads = Threads()
        self._turn = anyio.Lock()
        self._running: set[anyio.CancelScope] = set()

    async def recall(self, query: str, make_request: Callable[[], RecallRequest]) -> RecallResult:
        """
        Answer *query* from one revision, with what was appended a moment ago.

        Args:
            make_request: Checks the caller's arguments; called within the recall's span, so
                that an invalid argument is seen there.

        Raises:
            ValueError: As *make_request*.
            ConfigError: A chat model is wanted, and there is none.
            RecallFailed: The store could not be read; or, with ``reason=True``, a chat
                model answered none of the questions.
            UsageError: ``stop`` was called. *Cancellation*: safe; calls of the model are
                dropped.
        """
        named = memory_attributes("search_memory", self._repo_id)
        with (
            anyio.CancelScope() as scope,
            self._spans.span("search_memory", attributes=named) as span,
        ):
            span.set_content("gen_ai.memory.query.text", lambda: query)
            self._running.add(scope)
            try:
                request = make_request()
                self._plans(request)
                result = await self._reported(query, request)
                if request.notes and self._find_notes is not None:
                    result = await _with_notes(result, self._find_notes(query))
            finally:
                self._running.discard(scope)
            _set_found(span, result)
            if self._access is not None and self._config.recall.record_access:
                stored = (c.node for c in result.candidates if c.node.type in NODE_TYPES)
                self._access.note(node.id for node in stored)
            return result
        raise UsageError(f"repository {self._repo_id!r} was closed while it answered")

    def stop(self) -> None:
        """Cancel the recalls that run."""
        for scope in tuple(self._running):
            scope.cancel()

    async def _reported(self, query: str, request: RecallRequest) -> RecallResult:
        """Answer *request*, and publish the event of success or failure."""
        began = elapsed()
        try:
            result = await self._answer(request)
        except Exception as error:
            self._tell_failure(query, error)
            raise RecallFailed(f"recall could not answer: {error}") from error
        self._tell_success(query, result, elapsed() - began)
        return result

    # ── Stages ───────────────────────────────────────────────────────────────────────

    async def _answer(self, request: RecallRequest) -> RecallResult:
        run = self._run(request)
        async with self._turn_of(run):
            result = await self._remembered(run)
        if request.items and self._find_items is not None:
            result = await self._with_items(self._find_items, result, run)
        result = result.if_confident(request.min_confidence)
        with run.progress.phase("reason"):
            answer = await self._reasoned(run, result.candidates)
        trace = replace(_finished(result.trace, run), tokens=await self._tokens(run, result))
        return replace(result, answer=answer, trace=trace)

    def _turn_of(self, run: RecallRun) -> AbstractAsyncContextManager[Any]:
        """
        Have recalls that wait for no model go one after the other.

        Two that compute at once take the interpreter from each other and need longer for it.
        A static embedder computes here, within a millisecond; others may ask a server.
        """
        waits = run.planner is not None or not self._embedder.space.static
        return nullcontext() if waits else self._turn

    async def _tokens(self, run: RecallRun, result: RecallResult) -> tuple[int, ...]:
        """What each candidate costs in a prompt, where the request asks for explanations."""
        if not run.request.explain:
            return ()
        count = self._config.conversation.count
        return await self._threads.run(partial(line_tokens, result.candidates, count))

    async def _remembered(self, run: RecallRun) -> RecallResult:
        """Find the steps and nodes that answer; the result has no answer in words yet."""
        request = run.request
        with run.progress.phase("read"):
            corpus = await self._index.corpus(embedded=True, query=request.query)
        plan = plan_embedded(request.query, request.mode)
        if corpus.is_empty or request.types == ():
            return _empty(plan, corpus, run)
        if run.planner is None:
            run.progress.stages |= _planned_without_model(plan)
        else:
            with run.progress.phase("plan"):
                plan = await plan_by_model(run.planner, run.asked, plan, self._profile)
            with run.progress.phase("read"):
                # Things were said while the model was thinking.
                corpus = await self._index.corpus(embedded=True, query=request.query)
        return await self._found(run, plan, corpus)

    async def _with_items(
        self, find: FindItems, result: RecallResult, run: RecallRun
    ) -> RecallResult:
        """Merge the keyed items that answer into *result*, by value, before the cut to k."""
        recalled = ItemRecall(run.request, self._config, self._dense_weight, self._clock.now())
        with run.progress.phase("items"):
            items = await self._items(recalled, find, run.progress)
        merged = sorted([*result.candidates, *items], key=lambda found: -found.score)
        trace = replace(
            result.trace,
            found={**result.trace.found, "items": len(items)},
            abstained=result.trace.abstained and not items,
        )
        count = self._config.conversation.count
        return replace(result, candidates=merged[: run.request.k], trace=trace, count=count)

    async def _items(
        self, recalled: ItemRecall, find: FindItems, progress: RecallProgress
    ) -> list[Candidate]:
        try:
            with anyio.fail_after(self._config.recall.timeout_s):
                return await recalled.candidates(find)
        except (ModelError, TimeoutError) as error:
            # Items are found by their vectors alone; whatever else is stored still answers.
            progress.does_without("items", error)
            return []

    def _run(self, request: RecallRequest) -> RecallRun:
        progress, asked = RecallProgress(), request.asked(self._clock.now())
        plans = self._plans(request)
        if self._chat_model is None or not (plans or request.reason):
            return RecallRun(request, asked, progress, None, None)
        adviser = Adviser(
            self._chat_model,
            usage=self._usage,
            timeout_s=self._config.recall.timeout_s,
            progress=progress,
            spans=self._spans,
        )
        return RecallRun(request, asked, progress, adviser, adviser if plans else None)

    def _plans(self, request: RecallRequest) -> bool:
        """Whether the chat model plans. *Raises* ``ConfigError``: it should, and there is none."""
        plans = self._config.recall.use_model if request.use_model is None else request.use_model
        if plans and self._chat_model is None:
            who = "config.recall.use_model" if request.use_model is None else "use_model=True"
            raise ConfigError(
                f"{who} needs a chat model, and there is none: give Mnemo or open_repo one, "
                "chat_model=OpenAIChatModel(base_url, name)"
            )
        return plans

    async def _found(self, run: RecallRun, plan: RecallPlan, corpus: CorpusView) -> RecallResult:
        """Find and score candidates."""
        question = ask(run.request.query, plan.tags, run.request.context)
        with run.progress.phase("embed"):
            question = await self._embedded(question, run.progress)
        scope = SearchScope(run.request, plan.mode, self._clock.now())
        with run.progress.phase("score"):
            zero = await self._hop_zero(corpus, question, scope)
        if zero.abstained:
            return _empty(plan, corpus, run, abstained=True)
        search = Search(
            corpus=corpus,
            zero=zero,
            scope=scope,
            graph=self._graph,
            feed=self._feed,
            config=self._config,
        )
        look = self._second_look(run, partial(self._found_by, corpus, scope, run.progress))
        refinements, candidates = await self._candidates(search, look, run)
        return RecallResult(
            mode=plan.mode,
            tags=plan.tags,
            candidates=candidates,
            answer=None,
            trace=_trace(plan, corpus, search, refinements, zero),
            confidence=confidence(zero.evidence) if candidates else 0.0,
            goals=await self._goals(candidates),
            group_min_hits=self._config.recall.group_min_hits,
            warn_below=self._config.recall.warn_below,
            count=self._config.conversation.count,
        )

    def _second_look(
        self, run: RecallRun, find: Callable[[Sequence[str]], Awaitable[HopZero]]
    ) -> SecondLook | None:
        if run.planner is None:
            return None
        return SecondLook(adviser=run.planner, asked=run.asked, profile=self._profile, find=find)

    async def _reasoned(
        self, run: RecallRun, candidates: Sequence[Candidate]
    ) -> ReasonedMemory | None:
        """
        Return the answer in words, where the request asks for one.

        Raises:
            ModelError: Of a model that failed altogether, where words were asked for.
        """
        if not candidates or not run.request.reason:
            return None
        if run.adviser is None:
            run.progress.stages |= dict.fromkeys(purposes_of(candidates), "embedded")
            return reason_embedded(candidates, self._config.conversation.count)
        answer = await reason_by_model(run.adviser, run.asked, candidates, self._profile)
        if answer is None:
            raise run.adviser.failures[purposes_of(candidates)[0]]
        return answer

    async def _embedded(self, question: RecallQuestion, progress: RecallProgress) -> RecallQuestion:
        """Embed the question; without vectors if the embedder fails or hangs."""
        try:
            with anyio.fail_after(self._config.recall.timeout_s):
                space = self._embedder.space
                reply = await self._embedder.embed(question.texts, kind="query")
            rows = unit_rows(reply, rows=len(question.texts), dimensions=space.dimensions)
        except Exception as error:
            # An embedder is foreign code; whatever it raises, keywords still answer.
            progress.does_without("embedder", error)
            return question
        return question.embedded(rows)

    async def _hop_zero(
        self, corpus: CorpusView, question: RecallQuestion, scope: SearchScope
    ) -> HopZero:
        score = partial(
            hop_zero,
            corpus,
            question,
            searched=tuple(scope.weights),
            routes=scope.routes,
            filters=scope.request.filters,
            unwanted=scope.request.unwanted,
            config=self._config,
            least=scope.request.k,
            dense_weight=self._dense_weight,
        )
        return await self._threads.run(score)

    @property
    def _dense_weight(self) -> float:
        weight = self._config.recall.dense_weight
        return self._embedder.space.dense_weight if weight is None else weight

    async def _found_by(
        self, corpus: CorpusView, scope: SearchScope, progress: RecallProgress, tags: Sequence[str]
    ) -> HopZero:
        """Score hop 0 for *tags* in place of the query."""
        question = await self._embedded(ask(", ".join(tags), tags), progress)
        return await self._hop_zero(corpus, question, scope)

    async def _candidates(
        self, search: Search, look: SecondLook | None, run: RecallRun
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
        with run.progress.phase("sources"):
            return refinements, await search.finish()

    async def _goals(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Read the goals of sessions that are printed together."""
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


def _planned_without_model(plan: RecallPlan) -> dict[str, How]:
    stages: dict[str, How] = {"plan": "embedded"}
    return stages if plan.chosen_by == "caller" else {"mode": "embedded", **stages}


def _empty(
    plan: RecallPlan, corpus: CorpusView, run: RecallRun, *, abstained: bool = False
) -> RecallResult:
    trace = RecallTrace(
        plan.mode,
        plan.chosen_by,
        plan.tags,
        corpus.revision,
        seconds=run.progress.seconds,
        owed=corpus.owed,
        abstained=abstained,
    )
    return RecallResult(plan.mode, plan.tags, [], None, trace, confidence=0.0)


def _trace(
    plan: RecallPlan,
    corpus: CorpusView,
    search: Search,
    refinements: tuple[dict[str, Any], ...],
    zero: HopZero,
) -> RecallTrace:
    return RecallTrace(
        mode=plan.mode,
        mode_chosen_by=plan.chosen_by,
        tags=plan.tags,
        revision=corpus.revision,
        found=dict(search.found_by),
        evidence=zero.evidence,
        refinements=refinements,
        owed=corpus.owed,
    )


def _finished(trace: RecallTrace, run: RecallRun) -> RecallTrace:
    return replace(
        trace,
        seconds=run.progress.seconds,
        degraded=tuple(run.progress.degraded),
        stages=run.progress.stages,
        model_calls=run.adviser.calls if run.adviser else 0,
    )


async def _with_notes(result: RecallResult, notes: Awaitable[FoundNotes]) -> RecallResult:
    try:
        return replace(result, notes=await notes)
    except Exception as error:
        # Notes come on top: whatever their store or the embedder does, the answer stands.
        log.warning("recall goes on without notes: %s", error)
        degraded = (*result.trace.degraded, f"notes: {type(error).__name__}")
        return replace(result, trace=replace(result.trace, degraded=degraded))


def _set_found(span: Span, result: RecallResult) -> None:
    span.set("gen_ai.memory.record.count", len(result.candidates))
    span.set("mnemo.recall.mode", result.mode)
    if result.trace.degraded:
        span.set("mnemo.recall.degraded", result.trace.degraded)
    span.set_content("gen_ai.memory.records", lambda: _as_json(result.candidates))


def _as_json(candidates: Iterable[Candidate]) -> str:
    """Render *candidates* as memory records in the shape of OpenTelemetry's conventions."""
    found = [{"id": c.node.id, "content": c.node.text, "score": c.score} for c in candidates]
    return json.dumps(found, ensure_ascii=False)


# ── Access counts ────────────────────────────────────────────────────────────────────


class AccessLog:
    """
    Gathers which nodes recalls returned, and adds it to their counts in the store.

    What was noted is durable after ``flush``. The number of entries is bounded by that
    of the repository's nodes.
    """

    def __init__(self, graph: GraphStore, clock: Clock) -> None:
        self._graph = graph
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._noted = anyio.Event()

    @property
    def waiting(self) -> int:
        """Nodes whose counts are not written yet."""
        return len(self._counts)

    def note(self, ids: Iterable[str]) -> None:
        """Count one access of each of *ids*; a plain call."""
        self._counts.update(ids)
        self._noted.set()

    async def run(self) -> None:
        """
        Write what was noted, at most once a second, until cancelled.

        *Cancellation*: safe; what is not written is still there for ``flush``.
        """
        while True:
            await self._noted.wait()
            await self._clock.sleep(MERGE_S)
            await self.try_to_flush()

    async def try_to_flush(self) -> None:
        """``flush`` where the store lets it; a failure is logged. *Cancellation*: as there."""
        try:
            await self.flush()
        except MnemoError as error:
            # Counts nudge, nothing depends on them; they are tried again with the next.
            log.info("access counts could not be written: %s", error)

    async def flush(self) -> None:
        """
        Write what was noted.

        Raises:
            StoreError: Nothing was written; the counts are kept. *Cancellation*: the
                counts are written or kept, and counted twice at worst.
        """
        counts, self._counts = self._counts, Counter()
        self._noted = anyio.Event()
        if not counts:
            return
        try:
            await self._graph.touch(counts, self._clock.now())
        except BaseException:
            self._counts.update(counts)
            raise

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
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from mnemo.config import Config
from mnemo.errors import ConfigError, MnemoError, ModelError, RecallFailed, UsageError
from mnemo.events import Event, RecallExecuted
from mnemo.events import RecallFailed as RecallFailedEvent
from mnemo.graph.graph import StoredGraph
from mnemo.index.corpus import CorpusView
from mnemo.index.follower import RepositoryIndex
from mnemo.log.feed import StoredFeed
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Clock, Embedder
from mnemo.recall.keyed_items import FindItems, items_found
from mnemo.recall.reasoning import purposes_of, reason_by_model, reason_embedded
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.result import (
    Candidate,
    FoundNotes,
    RecallResult,
    RecallTrace,
    line_tokens,
)
from mnemo.recall.search import Search, confidence, expand
from mnemo.runtime.clock import elapsed
from mnemo.runtime.spans import NO_SPANS, Spans, memory_attributes
from mnemo.runtime.tasks import Threads
from mnemo.values.graph import NODE_TYPES

log = logging.getLogger("mnemo")

MERGE_S = 1.0
"""Seconds over which accesses are gathered into one write."""


@dataclass(kw_only=True, eq=False)
class Recall:
    """
    Answers recalls of one repository; they run side by side.

    Attributes:
        feed: Gives the steps behind candidates.
        index: Every searchable text in memory; caught up before each answer.
        notify: Called with ``RecallExecuted`` or ``RecallFailed``.
        access: Counts which nodes were returned; ``None`` counts none.
        find_notes: Recalls notes; called for requests that want them.
        find_items: Searches keyed items; called likewise.
        chat_model: Asked for plans and answers; ``None`` does without.
        usage: Counts what it is asked.
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
    find_notes: Callable[[str], Awaitable[FoundNotes]] | None = None
    find_items: FindItems | None = None
    chat_model: ChatModel | None = None
    usage: UsageMeter = field(default_factory=UsageMeter)
    spans: Spans = NO_SPANS
    _threads: Threads = field(default_factory=Threads, init=False)
    _turn: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _running: set[anyio.CancelScope] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._count = self.config.conversation.count

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
        named = memory_attributes("search_memory", self.repo_id)
        with (
            anyio.CancelScope() as scope,
            self.spans.span("search_memory", attributes=named) as span,
        ):
            span.set_content("gen_ai.memory.query.text", lambda: query)
            run, began = self._begun(make_request()), elapsed()
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
            self.notify(
                RecallExecuted(
                    repo_id=self.repo_id,
                    at=self.clock.now(),
                    trace={name: getattr(result.trace, name) for name in told},
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
            return result
        raise UsageError(f"repository {self.repo_id!r} was closed while it answered")

    def stop(self) -> None:
        """Cancel the recalls that run."""
        for scope in tuple(self._running):
            scope.cancel()

    def _begun(self, request: RecallRequest) -> RecallRun:
        """
        Begin to answer *request*.

        Raises:
            ConfigError: The chat model should plan, and there is none.
        """
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
        request, notes = run.request, None
        corpus, candidates = await self._searched(run)
        sure = confidence(run.evidence) if candidates else 0.0
        if request.items and self.find_items is not None:
            candidates = await self._with_items(run, candidates, self.find_items)
        if sure < request.min_confidence:
            candidates = []
        answer = None
        with run.phase("reason"):
            if candidates and request.reason and self.chat_model is not None:
                answer = await reason_by_model(run, candidates)
            elif candidates and request.reason:
                run.stages |= dict.fromkeys(purposes_of(candidates), "embedded")
                answer = reason_embedded(candidates, self._count)
        goals = await self._goals(candidates)
        if request.notes and self.find_notes is not None:
            try:
                notes = await self.find_notes(request.query)
            except Exception as error:
                # Notes come on top: whatever their store or embedder does, the answer stands.
                run.does_without("notes", error)
        tokens: tuple[int, ...] = ()
        if request.explain:
            tokens = await self._threads.run(line_tokens, candidates, self._count)
        return RecallResult(
            mode=run.mode,
            tags=run.tags,
            candidates=candidates,
            answer=answer,
            trace=RecallTrace(
                run.mode,
                run.chosen_by,
                run.tags,
                corpus.revision,
                found=dict(run.found),
                evidence=run.evidence,
                refinements=tuple(run.refinements),
                seconds=run.seconds,
                degraded=tuple(run.degraded),
                stages=run.stages,
                model_calls=run.calls,
                tokens=tokens,
                owed=corpus.owed,
                abstained=run.abstained,
            ),
            goals=goals,
            group_min_hits=self.config.recall.group_min_hits,
            confidence=sure,
            # Items are not judged: of them alone nothing is said.
            warn_below=self.config.recall.warn_below if run.evidence else 0.0,
            notes=notes,
            count=self._count,
        )

    async def _searched(self, run: RecallRun) -> tuple[CorpusView, list[Candidate]]:
        """Read what is stored, plan, and find the steps and nodes that answer."""
        request, candidates = run.request, list[Candidate]()
        read = partial(self.index.corpus, embedded=True, query=request.query)
        # Recalls that wait for no model go one after the other: two that compute at once take
        # the interpreter from each other and need longer for it. A static embedder computes
        # here, within a millisecond; others may ask a server.
        waits = run.plans or not self.embedder.space.static
        async with nullcontext() if waits else self._turn:
            with run.phase("read"):
                corpus = await read()
            is_searched = not corpus.is_empty and request.types != ()
            if is_searched and run.plans:
                with run.phase("plan"):
                    await run.plan()
                with run.phase("read"):
                    # Things were said while the model was thinking.
                    corpus = await read()
                is_searched = not corpus.is_empty
            elif is_searched:
                stages = ("plan",) if run.chosen_by == "caller" else ("mode", "plan")
                run.stages |= dict.fromkeys(stages, "embedded")
            if is_searched:
                search = Search(
                    run, corpus, self.graph, self.feed, self.embedder, self.config, self._threads
                )
                await search.begin()
                if not run.abstained:
                    await expand(search, run, self.config.recall)
                    with run.phase("sources"):
                        candidates = await search.finish()
        return corpus, candidates

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
        run.found["items"] = len(items)
        run.abstained = run.abstained and not items
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


# ── Access counts ────────────────────────────────────────────────────────────────────


class AccessLog:
    """
    Gathers which nodes recalls returned, and adds it to their counts in the store.

    What was noted is durable after ``flush``. The number of entries is bounded by that
    of the repository's nodes.
    """

    def __init__(self, graph: StoredGraph, clock: Clock) -> None:
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

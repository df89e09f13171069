"""
Mneme: the background agent that evicts from the windows of a repository's threads.

Per thread at most one run; what is due is read from the store each time, so nothing is lost with
the process. A run asks a model what to keep; where it brings no verdict the range is tried again,
and then leaves with a text by rule. Whoever appends or reads never waits for any of it, and never
hears of its failures but by events and counts.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import anyio.lowlevel

from mnemo.context import eviction
from mnemo.context.eviction import Committed, DueEviction, DueFold, EvictionVerdict, Links, Offer
from mnemo.context.goals import Refusal, check_pins
from mnemo.context.zones import Zone
from mnemo.conversation.scope import ConversationParts, ThreadScope, ThreadSettings
from mnemo.conversation.summary import RangeSummary, summarise
from mnemo.errors import ModelError, UsageError
from mnemo.events import EvictionFailed
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.prompts.calling import Caller
from mnemo.prompts.mneme import (
    ATTACH,
    EVERYTHING_OK,
    SAVE_SNAPSHOT,
    eviction_messages,
    fold_messages,
    tools,
)
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.tool_loop import Answered, ToolUse, Why, run_loop
from mnemo.protocols import ChatMessage, ChatModel
from mnemo.runtime.flights import Backoff, Flights
from mnemo.runtime.tasks import Threads, on_clock
from mnemo.runtime.text import clean, is_blank, one_line
from mnemo.values.derived import EvictionOutcome, Origin, Snapshot, Thread

log: logging.Logger = logging.getLogger("mnemo")

MOST_KNOWN = 10_000
"""Refusals, and threads without a viewport or with notes, that are remembered at most (S)."""
UNWATCHED_S = 60.0
"""Seconds for which a thread that has no viewport is not looked at again (S)."""


Made = TypeVar("Made")
_Verdict: TypeAlias = tuple[Zone, EvictionVerdict]
_Text: TypeAlias = tuple[str | None, Origin]
"""Of a fold, with who wrote it; ``None``: the snapshots stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MnemeStatistics:
    """
    Levels of Mneme's work.

    Attributes:
        running: Threads that it looks at, or that wait for their turn.
        waiting: Ranges and levels that wait for their next attempt.
        evictions: Ranges that it let leave a window since it was made.
        failures: Runs without an outcome since then, of whatever reason.
    """

    running: int
    waiting: int
    evictions: int
    failures: int


class Mneme:
    """Background eviction and snapshot folding; without a chat model every text is by rule."""

    def __init__(self, parts: ConversationParts) -> None:
        self._parts = parts
        self._config = parts.config.viewport
        self._runs = Runs(parts, parts.chat_model) if parts.chat_model is not None else None
        self._flights: Flights[str, EvictionOutcome | None] = Flights(
            self._fly, spawn=parts.spawn, limit=self._config.max_parallel_runs
        )
        self._backoff = Backoff(
            parts.clock.sleep, parts.spawn, backoff_s=self._config.retry_backoff_s
        )
        self._refused: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._levels: set[str] = set()
        self._budgets: dict[str, int] = {}
        self._unwatched: dict[str, float] = {}
        self._noted: set[str] = set()
        self._evictions = 0
        self._failures = 0

    # ── Called by others ─────────────────────────────────────────────────────────────

    def watch(self, thread_id: str, budget_tokens: int, *, notes: bool = False) -> None:
        """
        Watch a thread with this budget from now on; a plain call, the latest one wins.

        *notes*: Whether its viewport shows notes. That is not stored: until there is such a
        viewport again, the window counts as larger by their share.
        """
        self._budgets[thread_id] = budget_tokens
        self._unwatched.pop(thread_id, None)
        self._noted.discard(thread_id)
        if notes:
            if len(self._noted) >= MOST_KNOWN:
                self._noted.clear()
            self._noted.add(thread_id)

    def to_keep(self, thread_id: str) -> int | None:
        """The budget that is to be stored; ``None`` where the thread has the latest one."""
        return self._budgets.get(thread_id)

    def kept(self, thread_id: str, budget_tokens: int) -> None:
        """That budget is stored; a plain call."""
        if self._budgets.get(thread_id) == budget_tokens:
            del self._budgets[thread_id]

    def appended(self, settings: ThreadSettings) -> None:
        """Check after an append whether the thread is due; a plain call."""
        if not self._config.auto_evict:
            return
        thread_id = settings.thread_id
        found_at = self._unwatched.get(thread_id)
        if found_at is not None and self._parts.clock.monotonic() - found_at < UNWATCHED_S:
            return
        if not self._backoff.holds(_eviction(thread_id)):
            self._flights.poke(thread_id)

    def poke(self, thread_id: str) -> None:
        """Check whether a thread is due, also one found unwatched lately; a plain call."""
        if not self._config.auto_evict:
            return
        self._unwatched.pop(thread_id, None)
        self._levels.add(thread_id)
        self._flights.poke(thread_id)

    async def evict(self, thread_id: str) -> EvictionOutcome | None:
        """
        Run if the thread is due, or join the run; give the last outcome, if any.

        *Raises* ``UsageError``: the repository was closed. *Cancellation*: only the wait ends.
        """
        self._unwatched.pop(thread_id, None)
        self._backoff.end(_eviction(thread_id))
        self._levels.add(thread_id)
        return await self._flights.join(thread_id)

    async def settled(self, thread_id: str) -> None:
        """Wait until nothing of the thread runs, is due or is retried. *Cancellation*: safe."""
        await self._flights.settled(thread_id)
        if thread_id not in self._unwatched and not self._backoff.holds(_eviction(thread_id)):
            self.poke(thread_id)
        keys = (_eviction(thread_id), _folding(thread_id))
        while True:
            await self._flights.settled(thread_id)
            waiting = [key for key in keys if self._backoff.holds(key)]
            if not waiting:
                return
            await self._backoff.over(waiting[0])

    async def resume(self) -> None:
        """Check every watched thread. *Raises* ``StoreError``. *Cancellation*: safe."""
        if not self._config.auto_evict:
            return
        watched = await self._parts.store.reading(lambda tx: tx.threads(watched=True))
        self._parts.spawn(self._look_at, [thread.id for thread in watched])

    def statistics(self) -> MnemeStatistics:
        """Return the present counts of its work."""
        return MnemeStatistics(
            running=self._flights.under_way,
            waiting=self._backoff.pending,
            evictions=self._evictions,
            failures=self._failures,
        )

    async def _look_at(self, thread_ids: Iterable[str]) -> None:
        for thread_id in thread_ids:
            self.poke(thread_id)
            await anyio.lowlevel.checkpoint()

    # ── One flight ───────────────────────────────────────────────────────────────────

    async def _fly(self, thread_id: str) -> EvictionOutcome | None:
        try:
            return await self._make_room(thread_id)
        except UsageError:  # the repository closes, which is no failure of an eviction
            raise
        except Exception as error:
            # The store failed: who appends or reads is told by their own calls.
            self._failed(thread_id, error)
            return None

    async def _make_room(self, thread_id: str) -> EvictionOutcome | None:
        """Evict as long as the thread is due; then fold its snapshots."""
        await self._keep_budget(thread_id)
        last: EvictionOutcome | None = None
        unwatched: list[bool] = []
        while committed := await self._summarise(self._eviction(thread_id, unwatched)):
            last = committed.outcome
            self._levels.add(thread_id)
            if last.kind != "fallback" and self._runs is not None:
                await self._summarise(self._rewording(thread_id, self._runs), max_attempts=1)
        if any(unwatched):
            self._found_unwatched(thread_id)
        if thread_id in self._levels:
            self._levels.discard(thread_id)
            while await self._summarise(self._folding(thread_id)):
                pass
        return last

    async def _summarise(
        self, kind: RangeSummary[Any, Any, Made], *, max_attempts: int | None = None
    ) -> Made | None:
        return await summarise(
            kind,
            self._parts.store,
            self._backoff,
            max_attempts=max_attempts or self._config.max_attempts,
        )

    def _eviction(
        self, thread_id: str, unwatched: list[bool]
    ) -> RangeSummary[DueEviction, _Verdict, Committed]:
        """What leaves the window becomes a snapshot, or nothing; *unwatched* is told."""
        config, runs, notes = self._parts.config, self._runs, thread_id in self._noted

        def due(tx: TranscriptReader) -> DueEviction | None:
            unwatched[:] = [tx.thread(thread_id).budget_tokens is None]
            return eviction.due_eviction(tx, thread_id, config, notes=notes)

        async def ask(due: DueEviction, failed: int) -> _Verdict:
            return await runs.evict(due, attempt=failed + 1) if runs else by_rule(due, 0)

        def by_rule(due: DueEviction, failed: int) -> _Verdict:
            zone = due.zone()
            assert zone is not None, "a thread is due only if something can leave its window"
            return zone, EvictionVerdict(kind="fallback", attempts=failed)

        def keep(tx: TranscriptWriter, due: DueEviction, text: _Verdict) -> Committed | None:
            return eviction.commit(tx, due.thread, *text, config)

        def told(due: DueEviction, text: _Verdict, made: Committed) -> None:
            self._parts.meter.ran("snapshot", "embedded" if text[1].kind == "fallback" else "model")
            self._evictions += made.moved
            eviction.tell_of(self._parts, made)

        return self._kind(
            thread_id,
            _eviction(thread_id),
            due=due,
            about=lambda due: (due.thread.epoch, due.thread.boundary),
            ask=ask,
            keep=keep,
            told=told,
            by_rule=by_rule,
        )

    def _rewording(self, thread_id: str, runs: Runs) -> RangeSummary[Offer, _Verdict, Snapshot]:
        """The newest fallback's text becomes a model's; a failure is only published."""
        config = self._parts.config

        def due(tx: TranscriptReader) -> Offer | None:
            declined = frozenset(ids[0] for ids in self._refused if len(ids) == 1)
            return eviction.offered(tx, thread_id, config, declined=declined)

        async def ask(due: Offer, failed: int) -> _Verdict:
            zone, verdict = await runs.evict(due.due, attempt=1)
            if verdict.kind != "snapshot" or zone.to_seq != due.snapshot.to_seq:
                self._refuse((due.snapshot.id,))
            return zone, verdict

        def keep(tx: TranscriptWriter, due: Offer, text: _Verdict) -> Snapshot | None:
            refused = (due.snapshot.id,) in self._refused
            return None if refused else eviction.commit_offer(tx, due, text[1], config)

        return self._kind(
            thread_id,
            ("rewording", thread_id),
            due=due,
            about=lambda due: due.snapshot.id,
            ask=ask,
            keep=keep,
            told=lambda due, text, made: eviction.tell_of_snapshot(self._parts, made),
        )

    def _folding(self, thread_id: str) -> RangeSummary[DueFold, _Text, Snapshot]:
        """Snapshots become one of level 2, or stay where a model says so."""
        config, runs = self._parts.config, self._runs

        def due(tx: TranscriptReader) -> DueFold | None:
            fold = eviction.due_fold(tx, thread_id, config)
            return None if fold is None or fold.key in self._refused else fold

        async def ask(due: DueFold, failed: int) -> _Text:
            if runs is None:
                return by_rule(due, 0)
            text = await runs.fold(due.snapshots)
            if text is None:
                self._refuse(due.key)
            return text, "model"

        def by_rule(due: DueFold, failed: int) -> _Text:
            return eviction.first_paragraphs(
                due.snapshots, self._config.snapshot_max_chars
            ), "fallback"

        def keep(tx: TranscriptWriter, due: DueFold, text: _Text) -> Snapshot | None:
            if text[0] is None:
                eviction.decline(tx, due, config)
                return None
            return eviction.commit_fold(tx, due, text[0], text[1], config)

        def told(due: DueFold, text: _Text, made: Snapshot) -> None:
            self._parts.meter.ran("snapshot", "model" if text[1] == "model" else "embedded")
            eviction.tell_of_snapshot(self._parts, made)

        return self._kind(
            thread_id,
            _folding(thread_id),
            due=due,
            about=lambda due: due.key,
            ask=ask,
            keep=keep,
            told=told,
            by_rule=by_rule,
        )

    def _kind(self, thread_id: str, key: Hashable, **kind: Any) -> RangeSummary[Any, Any, Any]:
        return RangeSummary(
            key=key,
            failed=partial(self._failed, thread_id),
            again=partial(self.poke, thread_id),
            is_final=lambda error: isinstance(error, NoOutcome) and not error.retryable,
            **kind,
        )

    def _refuse(self, ids: tuple[str, ...]) -> None:
        self._refused[ids] = None
        while len(self._refused) > MOST_KNOWN:
            self._refused.popitem(last=False)

    async def _keep_budget(self, thread_id: str) -> None:
        """Store the budget that the thread is to be watched with, once the thread exists."""
        budget = self.to_keep(thread_id)
        if budget is None:
            return

        def work(tx: TranscriptWriter) -> bool:
            thread = tx.thread(thread_id)
            if thread == Thread(id=thread_id):
                return False
            if thread.budget_tokens != budget:
                tx.keep(replace(thread, budget_tokens=budget))
            return True

        if await self._parts.store.writing(work):
            self.kept(thread_id, budget)

    def _found_unwatched(self, thread_id: str) -> None:
        if len(self._unwatched) >= MOST_KNOWN:
            self._unwatched.clear()
        if thread_id not in self._budgets:
            self._unwatched[thread_id] = self._parts.clock.monotonic()

    # ── Events ─────────────────────────────────────────────────────────────────

    def _failed(self, thread_id: str, error: Exception) -> None:
        self._failures += 1
        self._parts.meter.ran("snapshot", "failed")
        if not isinstance(error, NoOutcome):
            log.warning("making room in thread %r failed", thread_id, exc_info=error)
        what = f"{type(error).__name__}: {error}"
        self._parts.tell(EvictionFailed, thread_id=thread_id, error=what)


def _eviction(thread_id: str) -> tuple[str, str]:
    """The key under which a thread's attempts at eviction are counted."""
    return ("eviction", thread_id)


def _folding(thread_id: str) -> tuple[str, str]:
    return ("levels", thread_id)


# ── One question to a chat model, and the tools by which it answers ──────────────────────


LEAST_SHOWN = 200
"""Characters of a snapshot's text that are shown for folding however many there are (S)."""
CHARACTERS_PER_TOKEN = 4

_WHY: dict[Why, str] = {
    "no_calls": "the model called no tool",
    "truncated": "the model's reply was cut off at the output limit",
    "max_rounds": "the model used up its requests without a verdict",
}


class NoOutcome(Exception):
    """A run brought no verdict; what it staged is dropped. *retryable*: another may do better."""

    def __init__(self, why: str, *, retryable: bool = True) -> None:
        self.retryable = retryable
        super().__init__(why)


class Runs:
    """Asks one repository's chat model what to keep."""

    def __init__(self, parts: ConversationParts, model: ChatModel) -> None:
        self._parts = parts
        self._config = parts.config.viewport
        self._profile = resolve_profile(parts.config.extraction.profile)
        self._caller = Caller(
            model, meter=parts.meter, timeout_s=self._config.run_timeout_s, spans=parts.spans
        )
        self._threads = Threads()

    async def evict(self, due: DueEviction, *, attempt: int) -> tuple[Zone, EvictionVerdict]:
        """Give *due*'s verdict and zone, or raise ``NoOutcome``. *Cancellation*: safe; no write."""
        view = await self._threads.run(lambda: due.view(self._parts.config))
        if view.zone is None:
            raise NoOutcome("nothing of the window can leave it", retryable=False)
        check = self._check(due.thread) if due.goals else None
        range = view.zone.from_seq, view.zone.to_seq
        desk = Desk(range, self._config.snapshot_max_chars, check_links=check)
        messages = eviction_messages(view.text, due.goals, due.pins, self._profile)
        await self._at_work(desk, messages)
        verdict = EvictionVerdict(
            kind="ok" if desk.text is None else "snapshot",
            attempts=attempt,
            text=desk.text or "",
            links=tuple(desk.links),
        )
        return view.zone, verdict

    async def fold(self, snapshots: Sequence[Snapshot]) -> str | None:
        """One text for snapshots; ``None``: they stay. *Raises* and *Cancellation* as ``evict``."""
        desk = Desk((snapshots[0].from_seq, snapshots[-1].to_seq), self._config.snapshot_max_chars)
        room = self._config.max_input_tokens * CHARACTERS_PER_TOKEN // len(snapshots)
        longest = max(LEAST_SHOWN, room)
        await self._at_work(desk, fold_messages(snapshots, longest=longest, profile=self._profile))
        return desk.text

    def _check(self, read: Thread) -> CheckLinks:
        async def check(seqs: Sequence[int], goal_ids: Sequence[int]) -> Refusal:
            def work(tx: TranscriptReader) -> Refusal:
                scope = ThreadScope.stored(tx, read.id, self._parts.config)
                if scope.thread.epoch != read.epoch:
                    return Refusal(missing_messages=tuple(seqs))
                return check_pins(tx, scope, seqs, goal_ids)

            return await self._parts.store.reading(work)

        return check

    async def _at_work(self, desk: Desk, messages: Sequence[ChatMessage]) -> None:
        loop = partial(
            run_loop,
            self._caller.call,
            purpose="summarize",
            messages=messages,
            tools=desk.tools,
            carry_out=desk.carry_out,
            max_rounds=self._config.max_rounds,
            max_output_tokens=self._config.max_output_tokens,
        )
        timeout_s = self._config.run_timeout_s
        try:
            why = await on_clock(self._parts.clock.sleep, timeout_s, loop)
        except TimeoutError:
            raise NoOutcome(f"no verdict within {timeout_s:g} s") from None
        except ModelError as error:
            again = error.retryable or error.foreign
            raise NoOutcome(clean(str(error)), retryable=again) from error
        if why != "terminal":
            raise NoOutcome(_WHY.get(why, why))


# ── The tools ────────────────────────────────────────────────────────────────────────────


CheckLinks = Callable[[Sequence[int], Sequence[int]], Awaitable[Refusal]]
"""Says what forbids to pin messages (by seq) to goals, as the store is now."""


@dataclass
class Desk:
    """
    Carries out a model's tool calls on a *range*; *text*: the last valid snapshot.

    Without *check_links* there is no tool to link goals. *max_chars*: Of a snapshot's text.
    """

    range: tuple[int, int]
    max_chars: int
    check_links: CheckLinks | None = None
    text: str | None = None
    links: list[Links] = field(default_factory=list)

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The tools that the model is offered."""
        return tools(self.max_chars, goals=self.check_links is not None)

    async def carry_out(self, use: ToolUse) -> Answered:
        """Do one call; whatever is wrong with it is told in the answer."""
        if use.name == EVERYTHING_OK:
            return Answered("Acknowledged: nothing to summarise", terminal=True)
        known = use.name == SAVE_SNAPSHOT or (use.name == ATTACH and self.check_links is not None)
        if not known:
            names = ", ".join(tool["name"] for tool in self.tools)
            return _error(f"Unknown tool {one_line(use.name)[:100]!r}; there are {names}")
        if use.arguments is None:
            return _error(f"The arguments of {use.name} must be a JSON object")
        if use.name == SAVE_SNAPSHOT:
            return self._save(use.arguments)
        return await self._attach(use.arguments)

    def _save(self, arguments: Mapping[str, Any]) -> Answered:
        text = arguments.get("text", "")
        if not isinstance(text, str):
            return _error(f"text must be a string, not {_kind(text)}")
        text = clean(text)
        if is_blank(text):
            return _error("Summary text cannot be blank")
        if len(text) > self.max_chars:
            return _error(
                f"Summary text has {len(text)} characters, at most {self.max_chars} are allowed"
            )
        self.text = text
        first, last = self.range
        return Answered(f"Snapshot saved (messages {first}..{last})", terminal=True)

    async def _attach(self, arguments: Mapping[str, Any]) -> Answered:
        assert self.check_links is not None
        given = {name: arguments.get(name, []) for name in ("message_ids", "goal_ids")}
        numbers = {name: _integers(value) for name, value in given.items()}
        wrong = [name for name, ids in numbers.items() if ids is None]
        if wrong:
            return _error("; ".join(f"{name} must be an array of integers" for name in wrong))
        seqs, goal_ids = (tuple(sorted(set(ids or ()))) for ids in numbers.values())
        if refusal := await self.check_links(seqs, goal_ids):
            return _error(str(refusal))
        self.links.append(Links(seqs, goal_ids))
        return Answered(f"Pinned {len(seqs) * len(goal_ids)} message-goal links")


def _error(what: str) -> Answered:
    return Answered(f"Error: {what}")


def _integers(value: Any) -> list[int] | None:
    """Return *value* as whole numbers; ``None``: it is no list of them."""
    if not isinstance(value, list | tuple):
        return None
    numbers = [_integer(each) for each in value]
    return None if None in numbers else [n for n in numbers if n is not None]


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    # JSON does not tell 12.0 from 12.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

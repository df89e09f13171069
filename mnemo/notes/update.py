"""Run a due update in its budget: model, rule, marks; requests share the task's prompt prefix."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from mnemo.config import NotesConfig
from mnemo.errors import BudgetExceeded, InvalidNote, InvalidReply, ModelError
from mnemo.events import MemoryUpdateFinished
from mnemo.notes.material import PURPOSE, Material, asks_elsewhere, prefix, redacted, tokens_of
from mnemo.notes.note_rows import NoteReader, NoteWriter
from mnemo.notes.shelf import NotesParts, Shelf
from mnemo.notes.tools import BAD_ARGUMENTS, NoteToolbox, with_note_tools
from mnemo.notes.trigger import (
    Ask,
    DueUpdate,
    NoteRequest,
    SkipReason,
    TriggeredBy,
    keep_by_rule,
    outcomes,
    settle_said,
)
from mnemo.notes.writing import NoteSource, check_redacted, redact, said_of
from mnemo.prompts.calling import Caller
from mnemo.prompts.tool_loop import Answered, ToolUse, run_loop
from mnemo.prompts.update_notes import instruction
from mnemo.protocols import ChatMessage, ChatModel, ChatReply, ChatRequest, Clock, Usage
from mnemo.runtime.tasks import on_clock
from mnemo.runtime.text import clean, count_tokens, one_line
from mnemo.runtime.user_code import called
from mnemo.values.notes import Author, NoteChange, UsageRow, is_topic
from mnemo.values.untrusted import json_line

# ── Progress ──────────────────────────────────────────────────────────────────────


log: logging.Logger = logging.getLogger("mnemo")

PATIENCE_S = 1.0
"""Seconds that a callback may take."""

OnProgress: TypeAlias = Callable[["Progress"], Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """
    How far an update is.

    Attributes:
        phase: ``started``, ``turn``, ``tool`` or ``finished``.
        turn: The call of the model that is meant, from 1; 0: none yet.
        topic: The note that a tool is at work on, if it names one.
    """

    phase: Literal["started", "turn", "tool", "finished"]
    label: str
    turn: int = 0
    topic: str | None = None


class ProgressReporter:
    """Call *on_progress*; ``finished`` follows ``started``, and only once."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._callback = on_progress
        self._started = False
        self.turn: int = 0

    async def start(self) -> None:
        """Report the start. *Cancellation*: safe."""
        self._started = True
        await self._tell(Progress("started", "Looking back over the conversation"))

    async def next_turn(self, turn: int) -> None:
        """Report a call of the model."""
        self.turn = turn
        await self._tell(Progress("turn", f"Asking the model, turn {turn}", turn))

    async def tool(self, name: str, topic: object) -> None:
        """Report a tool call."""
        of = _shown(topic)
        label = one_line(redact(clean(f"{name} {of}" if of else name)))
        await self._tell(Progress("tool", label[:100], self.turn, of))

    async def finish(self, label: str) -> None:
        """Report the end; *Cancellation*: completes."""
        if self._started:
            self._started = False
            with anyio.CancelScope(shield=True):
                await self._tell(Progress("finished", label, self.turn))

    async def _tell(self, progress: Progress) -> None:
        if self._callback is None:
            return
        try:
            with anyio.move_on_after(PATIENCE_S) as scope:
                await called(self._callback, progress)
            if scope.cancelled_caught:
                log.warning("on_progress took longer than %g s; it was cut off", PATIENCE_S)
        except Exception:
            log.exception("on_progress failed")


def _shown(topic: object) -> str | None:
    """*topic*, if it is valid and holds no secret: a model may name anything."""
    try:
        check_redacted(str(topic), "")
    except InvalidNote:
        return None
    return str(topic) if is_topic(topic) else None


# ── The update ────────────────────────────────────────────────────────────────────


_NOTHING = Usage(cost_usd=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteUpdate:
    """
    Result of ``update_after_task``.

    Attributes:
        ran: Whether the rules said yes and the work began.
        wrote: Whether the store's journal holds a change of this update.
        notes: One per changed topic, in order of first change.
        usage: Of all calls of the model that answered, failed updates included.
        skipped_because: Why it did not run; ``None``: it ran, or failed before it could.
        error: What ended it; may be set although it wrote.
        id: Names the update, for ``undo``.
        triggered_by: The strongest cue, or ``iterations``.
        requests: Every explicit request found, and what became of it.
    """

    ran: bool = False
    wrote: bool = False
    notes: tuple[NoteChange, ...] = ()
    usage: Usage = _NOTHING
    skipped_because: SkipReason | None = None
    error: BaseException | None = None
    id: str = ""
    triggered_by: TriggeredBy | None = None
    requests: tuple[NoteRequest, ...] = ()


def _one_per_topic(changes: list[NoteChange]) -> tuple[NoteChange, ...]:
    """Merge changes by topic: the first action, the last version."""
    merged: dict[str, NoteChange] = {}
    for change in changes:
        first = merged.get(change.topic)
        action = change.action
        if first is not None and action == "updated" and first.action in ("created", "merged"):
            action = first.action
        by, version = change.by, change.version
        merged[change.topic] = NoteChange(topic=change.topic, action=action, version=version, by=by)
    return tuple(merged.values())


MARKS = 10_000
"""Marks that are kept, the latest ones."""
QUERY_CHARACTERS = 2_000
"""Characters of the new part by which the notes are ranked (S)."""


class UpdateRun:
    """Runs one update that is due: *ask* is what it was called with, *due* why and over what."""

    def __init__(
        self, id: str, shelf: Shelf, ask: Ask, due: DueUpdate, progress: ProgressReporter
    ) -> None:
        self.id = id
        self._parts = shelf.parts
        self._config = shelf.config
        self._shelf = shelf
        self._ask = ask
        self._due = due
        self._progress = progress
        self._budget = UpdateBudget(self._config, self._parts.clock)
        self._prefix_reused = False
        self._gave_up = False
        self._malformed: list[bool] = []

    async def work(self) -> None:
        """
        Ask the model, if there is one; then keep by rule what was asked for and is not kept.
        *Raises* whatever ended the model's part, after the rule's. *Cancellation*: safe.
        """
        await self._progress.start()
        failure: Exception | None = None
        if self._parts.chat_model is not None:
            try:
                await self._consult(self._parts.chat_model)
            except Exception as error:
                failure = error
        await keep_by_rule(self._shelf, self._due.material.asked, self._source("rule"))
        if failure is not None:
            raise failure

    def _source(self, by: Author) -> NoteSource:
        return NoteSource(
            by=by,
            trust="unquoted",
            update_id=self.id,
            task_id=self._ask.task_id,
            session_id=self._ask.session_id,
            thread_id=self._ask.thread_id,
        )

    # ── The model's part ─────────────────────────────────────────────────────────────

    async def _consult(self, model: ChatModel) -> None:
        tools = with_note_tools(self._ask.tools, self._config)
        material, question = await self._question(model)
        self._toolbox = NoteToolbox(
            self._shelf, source=self._source("model"), material=material, touching=False
        )
        begin, reused = prefix(
            material.history, fresh_from=material.start, instruction=question, config=self._config
        )
        self._prefix_reused = reused and not asks_elsewhere(model)
        caller = Caller(
            model,
            meter=self._parts.meter,
            timeout_s=self._config.max_wall_s,
            spans=self._parts.spans,
        )
        why = await run_loop(
            partial(self._call, caller),
            purpose=PURPOSE,
            messages=(*begin, ChatMessage("user", question)),
            tools=tools,
            carry_out=self._carry_out,
            max_rounds=self._config.max_turns,
            after_reply=self._look_at,
        )
        self._check_malformed()
        if why == "max_rounds":
            raise _exceeded("turns", self._config.max_turns, self._budget.turns)
        if why == "truncated":
            spent = summed(self._budget.used).output_tokens
            raise _exceeded("tokens", self._config.max_output_tokens, spent)

    async def _question(self, model: ChatModel) -> tuple[Material, str]:
        material = self._due.material
        if asks_elsewhere(model):
            history = await anyio.to_thread.run_sync(redacted, material.history)
            keys, start = material.keys, material.start
            material = Material(history, self._config, keys=keys, start=start)
        told = "\n".join(m.text for m in material.fresh if m.role == "user")
        rows = await self._shelf.ranked(told[-QUERY_CHARACTERS:] or None)
        listed = [
            {
                "topic": row.topic,
                "about": one_line(row.description),
                "written": row.updated_at.date().isoformat(),
            }
            for row in rows
        ]
        return material, instruction(
            now=self._parts.clock.now(),
            first_words=redact(material.first_words),
            notes=listed,
            requests=[redact(one.text) for one in self._due.open if one.text],
            body_chars=self._config.body_max_chars,
        )

    async def _call(self, caller: Caller, request: ChatRequest) -> ChatReply:
        """One turn, with one retry of a retryable error."""
        self._check_malformed()
        try:
            return await self._turn(caller, request)
        except ModelError as error:
            if not error.retryable:
                raise
            said = said_of(error)
            log.info("the model failed in an update of notes and is asked again: %s", said)
        return await self._turn(caller, request)

    async def _turn(self, caller: Caller, request: ChatRequest) -> ChatReply:
        admitted = self._budget.admit(request)
        await self._progress.next_turn(self._budget.turns)
        return await self._budget.within(partial(self._answer, caller, admitted))

    async def _answer(self, caller: Caller, request: ChatRequest) -> ChatReply:
        """Call the model; the cost is recorded before cancellation can interrupt."""
        try:
            reply = await caller.call(request)
        except ModelError as error:
            usage = getattr(error, "usage", None) or getattr(error.__cause__, "usage", None)
            if isinstance(usage, Usage):
                self._parts.meter.answered(PURPOSE, usage)
                await self._count(usage)
            raise
        await self._count(reply.usage)
        return reply

    async def _count(self, usage: Usage) -> None:
        """Record the cost of a call; *Cancellation*: completes."""
        self._budget.used.append(usage)
        session_id = self._ask.session_id
        meter = self._parts.session_meter(session_id) if session_id is not None else None
        if meter is not None:
            meter.add(PURPOSE, usage)
        row = UsageRow(
            update_id=self.id,
            task_id=self._ask.task_id,
            session_id=session_id,
            at=self._parts.clock.now(),
            usage=usage,
        )
        with anyio.CancelScope(shield=True):
            await self._parts.store.writing(lambda tx: tx.add_usage(row))

    def _look_at(self, reply: ChatReply, number: int) -> bool:
        self._malformed.append(bool(reply.tool_calls))
        if not reply.tool_calls and not reply.text.strip() and not reply.truncated:
            raise InvalidReply("the reply has neither text nor tool calls", purpose=PURPOSE)
        return True

    async def _carry_out(self, use: ToolUse) -> Answered:
        topic = (use.arguments or {}).get("topic")
        await self._progress.tool(use.name, topic)
        answer = await self._toolbox.carry_out(use.name, use.arguments)
        if answer.get("code") != BAD_ARGUMENTS:
            self._malformed[-1] = False
        return Answered(json_line(answer))

    def _check_malformed(self) -> None:
        """*Raises* ``InvalidReply``: the last two turns held calls, and none fits its schema."""
        if len(self._malformed) >= 2 and all(self._malformed[-2:]):
            message = "two turns in a row held nothing but calls that do not fit their schemas"
            raise InvalidReply(message, purpose=PURPOSE)

    # ── The end ──────────────────────────────────────────────────────────────────────

    async def end(self, error: BaseException | None, *, cancelled: bool = False) -> NoteUpdate:
        """Set the marks, publish the event, report the end. *Cancellation*: completes."""
        with anyio.CancelScope(shield=True):
            changes, requests, failure = await self._settled(error, cancelled=cancelled)
            error = error or failure
            update = NoteUpdate(
                ran=True,
                wrote=bool(changes),
                notes=_one_per_topic(changes),
                usage=summed(self._budget.used),
                error=error,
                id=self.id,
                triggered_by=self._due.triggered_by,
                requests=requests,
            )
            publish_end(
                self._parts,
                update,
                self._ask.task_id,
                trace={"requests": len(update.requests)},
                turns=self._budget.turns,
                prefix_reused=self._prefix_reused,
                gave_up=self._gave_up,
                cancelled=cancelled,
            )
            await self._progress.finish(_label(update, cancelled=cancelled))
        return update

    async def _settled(
        self, error: BaseException | None, *, cancelled: bool
    ) -> tuple[list[NoteChange], tuple[NoteRequest, ...], Exception | None]:
        """Set the marks and read the changes; with the error, if that failed."""
        failure = None
        if not cancelled:
            try:
                return *await self._parts.store.writing(partial(self._settle, error)), None
            except Exception as caught:
                log.error("an update of notes could not be brought to its end: %s", said_of(caught))
                failure = caught
        try:
            return *await self._parts.store.reading(self._told), failure
        except Exception as caught:
            log.error("what an update of notes wrote could not be read: %s", said_of(caught))
            return [], (), failure or caught

    def _settle(
        self, error: BaseException | None, tx: NoteWriter
    ) -> tuple[list[NoteChange], tuple[NoteRequest, ...]]:
        settle_said(tx, self._due.material.asked)
        if self._parts.chat_model is not None:
            self._move_on(tx, error)
        return self._told(tx)

    def _told(self, tx: NoteReader) -> tuple[list[NoteChange], tuple[NoteRequest, ...]]:
        return tx.changes(self.id), outcomes(tx, self._due.material.asked)

    def _move_on(self, tx: NoteWriter, error: BaseException | None) -> None:
        row = tx.conversation(self._ask.conversation)
        failures = 0
        if error is not None:
            failures = (row.failures if row.part == self._due.part else 0) + 1
            self._gave_up = failures >= self._config.max_failures
            failures = 0 if self._gave_up else failures
        elif self._ask.task_id is not None:
            tx.finish(self._ask.task_id)
        if error is None or self._gave_up:
            for mark in self._ask.marks:
                tx.mark(mark, keep=2 * MARKS)
        tx.keep_conversation(replace(row, ended_at=tx.now, part=self._due.part, failures=failures))


def publish_end(
    parts: NotesParts,
    update: NoteUpdate,
    task_id: str | None,
    *,
    turns: int = 0,
    prefix_reused: bool = False,
    **more: Any,
) -> None:
    """Publish the event of *update*, with what only a run knows; never raises."""
    try:
        event = MemoryUpdateFinished(
            repo_id=parts.repo_id,
            at=parts.clock.now(),
            update_id=update.id,
            task_id=task_id,
            ran=update.ran,
            wrote=update.wrote,
            notes=update.notes,
            triggered_by=update.triggered_by,
            turns=turns,
            usage=update.usage,
            prefix_reused=prefix_reused,
            error=said_of(update.error),
            **more,
        )
        parts.publish(event)
    except Exception:
        log.exception("the end of an update of notes could not be published")


def _label(update: NoteUpdate, *, cancelled: bool) -> str:
    if cancelled:
        return "Cancelled"
    if update.wrote:
        return "Memory updated: " + ", ".join(change.topic for change in update.notes)
    return "Failed" if update.error is not None else "Nothing to note"


# ── The budget: turns, tokens, cost and time ──────────────────────────────────────────


@dataclass(slots=True)
class UpdateBudget:
    """Of one update, from construction on: *turns* begun, and what those *used* that answered."""

    config: NotesConfig
    clock: Clock
    turns: int = 0
    used: list[Usage] = field(default_factory=list)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()

    def admit(self, request: ChatRequest) -> ChatRequest:
        """Admit *request* as a turn, bounded by the tokens left. *Raises* ``BudgetExceeded``."""
        config, total = self.config, summed(self.used)
        tokens = total.input_tokens + total.output_tokens
        estimate = tokens + sum(map(tokens_of, request.messages))
        estimate += count_tokens(json.dumps(list(request.tools), default=str))
        left = config.max_output_tokens - total.output_tokens
        self._check("turns", config.max_turns, self.turns)
        self._check("wall", config.max_wall_s, self.clock.monotonic() - self.began)
        self._check("cost", config.max_cost_usd, total.cost_usd or 0.0)
        self._check("tokens", config.max_output_tokens, total.output_tokens)
        self._check("tokens", config.max_total_tokens, estimate)
        self.turns += 1
        return replace(request, max_output_tokens=left)

    def _check(self, which: str, limit: float, spent: float) -> None:
        if spent >= limit:
            raise _exceeded(which, limit, spent)

    async def within(self, work: Callable[[], Awaitable[ChatReply]]) -> ChatReply:
        """Run *work* in the time that is left, else cancel it. *Raises* ``BudgetExceeded``."""
        most = self.config.max_wall_s
        left = most - (self.clock.monotonic() - self.began)
        try:
            reply = await on_clock(self.clock.sleep, max(0.0, left), work)
        except TimeoutError as error:
            raise _exceeded("wall", most, self.clock.monotonic() - self.began) from error
        if (spent := self.clock.monotonic() - self.began) > most:
            raise _exceeded("wall", most, spent)
        return reply


def _exceeded(which: str, limit: float, spent: float) -> BudgetExceeded:
    return BudgetExceeded(limit, spent, which=which, purpose=PURPOSE)


def summed(used: list[Usage]) -> Usage:
    """Add up *used*; an unknown cost counts 0."""
    return Usage(
        model=next((usage.model for usage in reversed(used) if usage.model), ""),
        input_tokens=sum(usage.input_tokens for usage in used),
        output_tokens=sum(usage.output_tokens for usage in used),
        cached_tokens=sum(usage.cached_tokens for usage in used),
        cost_usd=math.fsum(usage.cost_usd or 0.0 for usage in used),
    )

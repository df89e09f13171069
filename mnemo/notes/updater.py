"""
Schedule updates: one at a time per conversation, a few at once, held while debounced.

An exception becomes an update's ``error``, a log line and an event; only cancellation leaves it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel

from mnemo.errors import UsageError
from mnemo.notes.shelf import Shelf
from mnemo.notes.trigger import UPDATING, Ask, DueUpdate, Skip, judge
from mnemo.notes.update import NoteUpdate, ProgressReporter, UpdateRun, publish_end
from mnemo.notes.writing import said_of
from mnemo.runtime.clock import new_id
from mnemo.runtime.operations import CallbackRunner, Outcome, PendingOperation
from mnemo.runtime.tasks import CancelHandle, Places, completed, on_clock, owned
from mnemo.runtime.text import is_blank

log: logging.Logger = logging.getLogger("mnemo")

Arguments = dict[str, Any]


@dataclass(eq=False, slots=True)
class _Call:
    """
    One call of an update under way.

    Attributes:
        background: Whether it may wait for the end of a window.
        accepted: Whether a shutdown lets it run all the same.
        result: Of the call, also if it was cancelled.
    """

    arguments: Arguments
    ask: Ask
    background: bool
    accepted: bool = False
    handle: CancelHandle = field(default_factory=CancelHandle)
    released: anyio.Event = field(default_factory=anyio.Event)
    superseded: bool = False
    result: NoteUpdate = field(default_factory=NoteUpdate)


class Updater:
    """The updates of one repository."""

    def __init__(self, shelf: Shelf) -> None:
        self._parts = shelf.parts
        self._shelf = shelf
        self._places = Places(shelf.config.max_concurrent)
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._calls: set[_Call] = set()
        self._held: dict[str, _Call] = {}
        self._running = 0
        self._idle: anyio.Event | None = None
        self._closed = False

    @cached_property
    def _callbacks(self) -> CallbackRunner:
        return CallbackRunner(self._parts.spawn)

    @property
    def counts(self) -> dict[str, int]:
        """What ``NotesStatistics`` says of updates."""
        running, held = self._running, len(self._held)
        waiting = len(self._calls) - running - held
        return {"updates_running": running, "updates_waiting": waiting, "updates_held": held}

    @property
    def is_busy(self) -> bool:
        """Whether an update runs, waits or is held."""
        return bool(self._calls)

    @property
    def _closing(self) -> bool:
        return self._closed or self._parts.closing()

    # ── Calls ──────────────────────────────────────────────────────────────

    async def update(self, **arguments: Any) -> NoteUpdate:
        """See ``Notes.update_after_task``."""
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            return elsewhere
        try:
            call = self._accepted(arguments)
            return await self._carried_out(call) if isinstance(call, _Call) else call
        except Exception as error:
            return self._failed(error, arguments)

    def begin(
        self, callback: Callable[[Outcome], Any] | None, **arguments: Any
    ) -> PendingOperation:
        """See ``Notes.update_after_task_async``."""
        told = callback if callable(callback) else None
        operation = PendingOperation("update_notes", _callback=told)
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            operation._end(value=elsewhere)
            return operation
        try:
            if callback is not None and told is None:
                raise ValueError(f"callback must be a function, not {type(callback).__name__}")
            call = self._accepted(arguments, background=True)
            if isinstance(call, _Call):
                self._parts.spawn(self._in_background, call, operation)
                self._calls.add(call)
                operation._withdraw = lambda _: self._cancel(call)
            else:
                self._end(operation, call)
        except Exception as error:
            self._end(operation, self._failed(error, arguments))
        return operation

    def _cancel(self, call: _Call) -> bool:
        call.handle.cancel()
        return call in self._calls

    def _end(self, operation: PendingOperation, update: NoteUpdate) -> None:
        outcome = operation._end(value=update)
        if operation._callback is not None:
            try:
                self._callbacks.add(operation._callback, outcome)
            except Exception:
                log.exception("nobody is there to run the callback of an update of notes")

    async def _in_background(self, call: _Call, operation: PendingOperation) -> None:
        try:
            call.result = await self._carried_out(call)
        except Exception as error:
            call.result = self._failed(error, call.arguments)
        except BaseException:
            self._calls.discard(call)
            self._end(operation, call.result)
            raise
        self._end(operation, call.result)

    def _elsewhere(self) -> NoteUpdate | None:
        """Refuse a call from another event loop."""
        try:
            if not self._closing:
                self._parts.check_usable()
        except UsageError as error:
            return NoteUpdate(error=error, id=new_id("update"))
        return None

    def _accepted(self, arguments: Arguments, *, background: bool = False) -> _Call | NoteUpdate:
        """Apply the rules that need no store, and copy the history."""
        if self._closing:
            return NoteUpdate(skipped_because="closing")
        if not self._parts.config.enabled:
            return NoteUpdate(skipped_because="disabled")
        if UPDATING.get():
            return NoteUpdate(skipped_because="nested")
        on_progress = arguments["on_progress"]
        ask = Ask.of(**{name: given for name, given in arguments.items() if name != "on_progress"})
        if on_progress is not None and not callable(on_progress):
            raise ValueError(f"on_progress must be a function, not {type(on_progress).__name__}")
        if refused := ask.refused:
            return NoteUpdate(skipped_because=refused)
        return _Call(arguments, ask, background)

    def _failed(self, error: Exception, arguments: Arguments) -> NoteUpdate:
        """Result of an update that failed before it ran."""
        log.error("an update of notes failed before it could run: %s", said_of(error))
        update = NoteUpdate(error=error, id=new_id("update"))
        task_id = arguments.get("task_id")
        named = task_id if isinstance(task_id, str) and not is_blank(task_id) else None
        publish_end(self._parts, update, named)
        return update

    # ── Scheduling ──────────────────────────────────────────────────────────────────────

    async def _carried_out(self, call: _Call) -> NoteUpdate:
        """Run the call in its turn; a shutdown cancels it with its partial result."""
        self._calls.add(call)
        guard = UPDATING.set(True)
        try:
            with call.handle:
                call.result = await self._in_turn(call)
            if call.handle.cancelled_caught and not call.result.ran:
                error = UsageError("the update of notes was cancelled")
                call.result = NoteUpdate(error=error, id=new_id("update"))
        finally:
            UPDATING.reset(guard)
            self._calls.discard(call)
            if not self._calls and self._idle is not None:
                self._idle.set()
                self._idle = None
        return call.result

    async def _in_turn(self, call: _Call) -> NoteUpdate:
        while True:
            # One at a time per conversation, in order of arrival.
            async with self._turns.setdefault(call.ask.conversation, anyio.Lock()):
                found = await self._judged(call)
                if isinstance(found, DueUpdate):
                    async with self._places:
                        return await self._run(call, found)
            if found.until is None or not call.background:
                return NoteUpdate(skipped_because=found.reason)
            if not await self._hold(call, found.until):
                return NoteUpdate(skipped_because="superseded")

    async def _judged(self, call: _Call) -> DueUpdate | Skip:
        if self._closing and not call.accepted:
            return Skip("closing")
        config, has_model = self._parts.config, self._parts.chat_model is not None
        # The service is closing: what was held for its window runs now.
        debounced = not call.accepted
        return await self._parts.store.reading(
            lambda tx: judge(tx, call.ask, config, has_model=has_model, debounced=debounced)
        )

    async def _hold(self, call: _Call, until: datetime) -> bool:
        """Wait for the end of the debounce window; whether the call is still to run."""
        if self._closing:
            call.accepted = True
            return True
        conversation = call.ask.conversation
        older = self._held.get(conversation)
        if older is not None:
            older.superseded = True
            older.released.set()
        self._held[conversation] = call
        left = (until - self._parts.clock.now()).total_seconds()
        try:
            with suppress(TimeoutError):
                sleep = self._parts.clock.sleep
                await on_clock(sleep, max(0.0, left), call.released.wait)
        finally:
            if self._held.get(conversation) is call:
                del self._held[conversation]
        call.released = anyio.Event()
        return not call.superseded

    async def _run(self, call: _Call, due: DueUpdate) -> NoteUpdate:
        progress = ProgressReporter(call.arguments["on_progress"])
        run = UpdateRun(new_id("update"), self._shelf, call.ask, due, progress)
        self._running += 1
        try:
            try:
                await run.work()
            except Exception as error:
                log.error("an update of notes failed: %s", said_of(error))
                return await self._ended(call, run, error)
            except BaseException:
                stopped = UsageError("the update of notes was cancelled")
                await self._ended(call, run, stopped, cancelled=True)
                raise
            return await self._ended(call, run, None)
        finally:
            self._running -= 1

    async def _ended(
        self, call: _Call, run: UpdateRun, error: BaseException | None, *, cancelled: bool = False
    ) -> NoteUpdate:
        """End *run* in a task of its own, which cancellation of the caller does not interrupt."""

        async def end() -> None:
            call.result = await run.end(error, cancelled=cancelled)

        with anyio.CancelScope(shield=True):
            await completed(owned(self._parts.spawn, end))
        return call.result

    # ── Shutdown ──────────────────────────────────────────────────────────────────────

    async def aclose(self, grace_s: float) -> None:
        """
        Refuse new updates, run held ones at once, give all *grace_s* seconds, then stop them.

        Idempotent. *Cancellation*: completes.
        """
        self._closed = True
        with anyio.CancelScope(shield=True):
            for call in self._held.values():
                call.accepted = True
                call.released.set()
            with anyio.move_on_after(grace_s):
                await self._until_idle()
                await self._callbacks.drained()
            for call in self._calls:
                call.handle.cancel()
            await self._until_idle()

    async def _until_idle(self) -> None:
        """Wait for the end of all calls except the current one."""
        while self._calls and not UPDATING.get():
            self._idle = self._idle or anyio.Event()
            await self._idle.wait()

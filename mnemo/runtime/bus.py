"""
The event bus: publishing to observers and streams without waiting for them.

Synchronous observers are called at once. Each asynchronous observer and each stream has a bounded
queue of its own, which drops its oldest events and reports how many.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, Self, TypeAlias, TypeVar

import anyio

from mnemo.runtime.user_code import call, called

log: logging.Logger = logging.getLogger("mnemo")

E = TypeVar("E")

DropReport: TypeAlias = Callable[[E, int], E]
"""Makes the event that reports lost events, from the first kept one and their number."""

OBSERVER_BUFFER = 1_024
"""Events that an asynchronous observer may lag behind before it loses the oldest."""


class Inbox(Generic[E]):
    """A bounded queue, which drops and counts its oldest; *context*: the last publisher's."""

    def __init__(self, size: int, drop_report: DropReport[E]) -> None:
        self._events: deque[tuple[E, Context]] = deque()
        self._drop_report = drop_report
        self.context: Context = copy_context()
        self._size = size
        self._dropped = 0
        self._arrived = anyio.Event()
        self._ended = False

    def put(self, event: E) -> None:
        """Add an event, dropping the oldest if there is no room."""
        if len(self._events) == self._size:
            self._events.popleft()
            self._dropped += 1
        self._events.append((event, copy_context()))
        self._arrived.set()

    def end(self) -> None:
        """Accept no more events; buffered ones can still be read."""
        self._ended = True
        self._arrived.set()

    def clear(self) -> None:
        """Drop all buffered events."""
        self._events.clear()
        self._dropped = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        """Wait for the next event, a report of lost ones first."""
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        if self._dropped:
            count, self._dropped = self._dropped, 0
            return self._drop_report(self._events[0][0], count)
        event, self.context = self._events.popleft()
        return event


class Subscription:
    """A subscription to events; ``cancel`` ends it."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def __repr__(self) -> str:
        return "<Subscription>"

    def cancel(self) -> None:
        """Stop observing; idempotent. After it no further call starts."""
        self._cancel()


class EventBus(Generic[E]):
    """Delivers each event to every observer and stream."""

    def __init__(self, spawn: Callable[..., object], drop_report: DropReport[E]) -> None:
        self._spawn = spawn
        self._drop_report = drop_report
        self.listeners: dict[object, Callable[[E], None]] = {}
        """What delivers to each; where there is none, a hot path skips making an event."""
        self._pumps: set[anyio.Event] = set()

    def publish(self, event: E) -> None:
        """Deliver *event* to all; never waits, and never raises what an observer raises."""
        for listener, deliver in list(self.listeners.items()):
            if listener in self.listeners:
                deliver(event)

    def subscribe(self, observer: Callable[[E], Any]) -> Subscription:
        """See ``Mnemo.subscribe``."""
        if _is_async(observer):
            return self._subscribe_async(observer)
        subscription = Subscription(lambda: self.listeners.pop(subscription, None) and None)
        self.listeners[subscription] = partial(_call, observer)
        return subscription

    def _subscribe_async(self, observer: Callable[[E], Awaitable[Any]]) -> Subscription:
        inbox = Inbox(OBSERVER_BUFFER, self._drop_report)
        self.listeners[inbox] = inbox.put

        def cancel() -> None:
            self.listeners.pop(inbox, None)
            inbox.clear()
            inbox.end()

        self._spawn(self._pump, inbox, observer)
        return Subscription(cancel)

    async def _pump(self, inbox: Inbox[E], observer: Callable[[E], Awaitable[Any]]) -> None:
        done = anyio.Event()
        self._pumps.add(done)
        try:
            async for event in inbox:
                # Observers run in the publisher's context variables, its spans included.
                told = anyio.Event()
                inbox.context.run(self._spawn, _tell, observer, event, told)
                await told.wait()
        finally:
            self._pumps.discard(done)
            done.set()

    @asynccontextmanager
    async def stream(self, buffer: int) -> AsyncIterator[AsyncIterator[E]]:
        """See ``Mnemo.events``."""
        if buffer < 1:
            raise ValueError("buffer must be at least 1")
        inbox = Inbox(buffer, self._drop_report)
        self.listeners[inbox] = inbox.put
        try:
            yield inbox
        finally:
            self.listeners.pop(inbox, None)
            inbox.end()

    async def aclose(self, grace_s: float) -> None:
        """Deliver buffered events for at most *grace_s* seconds, then end every stream."""
        for listener in list(self.listeners):
            if isinstance(listener, Inbox):
                listener.end()
            else:
                del self.listeners[listener]
        with anyio.move_on_after(grace_s):
            for pump in list(self._pumps):
                await pump.wait()


def _is_async(observer: Callable[[E], Any]) -> bool:
    called = getattr(observer, "__call__", None)  # noqa: B004 - an object's own coroutine method
    return inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(called)


async def _tell(observer: Callable[[E], Awaitable[Any]], event: E, told: anyio.Event) -> None:
    try:
        await called(observer, event)
    except Exception:
        log.exception("an observer failed on %s", type(event).__name__)
    finally:
        told.set()


def _call(observer: Callable[[E], Any], event: E) -> None:
    try:
        call(observer, event)
    except Exception:
        log.exception("an observer failed on %s", type(event).__name__)

"""
Who hears of events.

Publishing never waits: synchronous observers are called at once, each of the others
(and each reader of the stream) has a bounded queue of its own that drops its oldest
events and says how many.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import Any

import anyio

from mnemo._foreign import call, called
from mnemo.events import Event, EventsDropped

__all__ = ["EventBus", "Subscription"]

log = logging.getLogger("mnemo")

OBSERVER_BUFFER = 1_024
"""Events that an asynchronous observer may lag behind before it loses the oldest."""


class Inbox:
    """
    A bounded queue that drops its oldest events and remembers how many.

    Attributes:
        context: What the publisher of the event that was got last was in.
    """

    def __init__(self, size: int) -> None:
        self._events: deque[tuple[Event, Context]] = deque()
        self.context = copy_context()
        self._size = size
        self._dropped = 0
        self._arrived = anyio.Event()
        self._ended = False

    def put(self, event: Event) -> None:
        """Add an event, dropping the oldest if there is no room."""
        if len(self._events) == self._size:
            self._events.popleft()
            self._dropped += 1
        self._events.append((event, copy_context()))
        self._arrived.set()

    def end(self) -> None:
        """No more will come; what is buffered can still be read."""
        self._ended = True
        self._arrived.set()

    def clear(self) -> None:
        """Forget what is buffered."""
        self._events.clear()
        self._dropped = 0

    async def get(self) -> Event | None:
        """The next event, an ``EventsDropped`` first if some were lost; ``None`` at the end."""
        while not self._events:
            if self._ended:
                return None
            self._arrived = anyio.Event()
            await self._arrived.wait()
        if self._dropped:
            count, self._dropped = self._dropped, 0
            first, _ = self._events[0]
            return EventsDropped(repo_id=first.repo_id, at=first.at, count=count)
        event, self.context = self._events.popleft()
        return event


class Subscription:
    """What ``subscribe`` gives: the way to stop."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        """Stop observing; idempotent. After it no further call starts."""
        self._cancel()


class EventBus:
    """
    Hands each event to every observer and reader.

    Args:
        spawn: Starts a task that outlives the call.
    """

    def __init__(self, spawn: Callable[..., object]) -> None:
        self._spawn = spawn
        self._observers: dict[Subscription, Callable[[Event], Any]] = {}
        self._inboxes: list[Inbox] = []
        self._pumps: set[anyio.Event] = set()

    @property
    def active(self) -> bool:
        """Whether anybody listens; lets a hot path skip making an event."""
        return bool(self._observers or self._inboxes)

    def publish(self, event: Event) -> None:
        """Hand *event* to all; never waits, never raises for what an observer does."""
        for subscription, observer in list(self._observers.items()):
            if subscription in self._observers:
                _call(observer, event)
        for inbox in self._inboxes:
            inbox.put(event)

    def subscribe(self, observer: Callable[[Event], Any]) -> Subscription:
        """See ``Mnemo.subscribe``."""
        if _is_async(observer):
            return self._subscribe_async(observer)
        subscription = Subscription(lambda: self._observers.pop(subscription, None) and None)
        self._observers[subscription] = observer
        return subscription

    def _subscribe_async(self, observer: Callable[[Event], Awaitable[Any]]) -> Subscription:
        inbox = Inbox(OBSERVER_BUFFER)
        self._inboxes.append(inbox)

        def cancel() -> None:
            if inbox in self._inboxes:
                self._inboxes.remove(inbox)
            inbox.clear()
            inbox.end()

        self._spawn(self._pump, inbox, observer)
        return Subscription(cancel)

    async def _pump(self, inbox: Inbox, observer: Callable[[Event], Awaitable[Any]]) -> None:
        done = anyio.Event()
        self._pumps.add(done)
        try:
            while (event := await inbox.get()) is not None:
                # What the publisher was in the midst of, its observers are in as well.
                told = anyio.Event()
                inbox.context.run(self._spawn, _tell, observer, event, told)
                await told.wait()
        finally:
            self._pumps.discard(done)
            done.set()

    @asynccontextmanager
    async def stream(self, buffer: int) -> AsyncIterator[AsyncIterator[Event]]:
        """See ``Mnemo.events``."""
        if buffer < 1:
            raise ValueError("buffer must be at least 1")
        inbox = Inbox(buffer)
        self._inboxes.append(inbox)
        try:
            yield _iterate(inbox)
        finally:
            if inbox in self._inboxes:
                self._inboxes.remove(inbox)

    async def aclose(self, grace_s: float) -> None:
        """Deliver what is due, for at most *grace_s* seconds, and end every reader."""
        self._observers.clear()
        for inbox in self._inboxes:
            inbox.end()
        with anyio.move_on_after(grace_s):
            for pump in list(self._pumps):
                await pump.wait()


def _is_async(observer: Callable[[Event], Any]) -> bool:
    called = getattr(observer, "__call__", None)  # noqa: B004 - an object's own coroutine method
    return inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(called)


async def _tell(
    observer: Callable[[Event], Awaitable[Any]], event: Event, told: anyio.Event
) -> None:
    try:
        await called(observer, event)
    except Exception:
        log.exception("an observer failed on %s", type(event).__name__)
    finally:
        told.set()


def _call(observer: Callable[[Event], Any], event: Event) -> None:
    try:
        call(observer, event)
    except Exception:
        log.exception("an observer failed on %s", type(event).__name__)


async def _iterate(inbox: Inbox) -> AsyncIterator[Event]:
    while (event := await inbox.get()) is not None:
        yield event

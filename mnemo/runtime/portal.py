"""Run coroutines of a private event loop from plain threads, and wait for them."""

from __future__ import annotations

import asyncio
import builtins
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Any, Generic, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from mnemo.errors import UsageError

__all__ = ["Blocking", "Portal"]

T = TypeVar("T")
Inner = TypeVar("Inner")


class Portal:
    """
    A private event loop in a thread of its own; its calls may come from any other thread.

    An interrupted call (Ctrl-C) cancels the work and waits until it has ended, so that it has
    happened or left no trace, as the *Cancellation* clause of the coroutine says.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack: ExitStack | None = None
        self._inner: BlockingPortal | None = None
        self._thread: int | None = None
        self._warned = False

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._inner is not None

    def start(self) -> None:
        """Start the loop and its thread; idempotent. *Raises* ``UsageError``: see ``run``."""
        self.check()
        with self._lock:
            if self._inner is None:
                self._stack = ExitStack()
                self._inner = self._stack.enter_context(start_blocking_portal(name="mnemo"))
                self._thread = self._inner.call(threading.get_ident)

    def stop(self) -> None:
        """End the loop and its thread; idempotent. *Raises* ``UsageError``: see ``run``."""
        self.check()
        with self._lock:
            stack, self._stack, self._inner = self._stack, None, None
        if stack is not None:
            stack.close()

    def check(self) -> None:
        """
        Let a call pass that may block its thread.

        Raises:
            UsageError: The thread runs an event loop, the private one or another; a notebook's
                loop is let through with one ``RuntimeWarning``.
        """
        if threading.get_ident() == self._thread:
            raise UsageError(
                "a callback of mnemo.sync runs on its private event loop and cannot wait for it; "
                "do it in another thread, or use the asynchronous mnemo.Mnemo"
            )
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if not hasattr(builtins, "get_ipython"):
            raise UsageError(
                "mnemo.sync would block the event loop that runs in this thread; "
                "use the asynchronous mnemo.Mnemo here"
            )
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            "mnemo.sync blocks the notebook's event loop during each call; "
            "mnemo.Mnemo with await does not",
            RuntimeWarning,
            stacklevel=5,
        )

    def run(self, begin: Callable[[], Awaitable[T]]) -> T:
        """
        Await what *begin* gives, on the loop.

        Raises:
            UsageError: The thread runs an event loop, or the service is not open.
        """
        return self._waited(begin)

    def call(self, function: Callable[[], T]) -> T:
        """Call *function* on the loop. *Raises* ``UsageError``: as of ``run``."""

        async def begun() -> T:
            return function()

        return self._waited(begun)

    def _waited(self, begin: Callable[[], Awaitable[T]]) -> T:
        self.check()
        inner = self._inner
        if inner is None:
            raise UsageError("the service is not open; use `with mnemo.sync.Mnemo(…) as memory`")
        begun, ended = threading.Event(), threading.Event()

        async def work() -> T:
            begun.set()
            try:
                return await begin()
            finally:
                ended.set()

        future: Future[T] | None = None
        try:
            future = inner.start_task_soon(work)
            return future.result()
        except BaseException:
            if future is not None and not future.done():
                future.cancel()
                inner.call(threading.get_ident)  # by now the work has begun, or never will
                if begun.is_set():
                    ended.wait()
            raise

    @contextmanager
    def entered(
        self, make: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]
    ) -> Iterator[Iterator[T]]:
        """Enter an asynchronous context on the loop; gives what it gives as a plain iterator."""
        self.check()
        if self._inner is None:
            raise UsageError("the service is not open; use `with mnemo.sync.Mnemo(…) as memory`")
        with self._inner.wrap_async_context_manager(self.call(make)) as stream:
            yield self._iterated(stream)

    def _iterated(self, stream: AsyncIterator[T]) -> Iterator[T]:
        while True:
            try:
                value = self.run(stream.__anext__)
            except StopAsyncIteration:
                return
            yield value


class Blocking(Generic[Inner]):
    """
    Base of the blocking handles: what they stand for, and the loop that it belongs to.

    Two handles of one object are equal.
    """

    def __init__(self, portal: Portal, inner: Inner) -> None:
        self._portal = portal
        self._inner = inner

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocking) and self._inner is other._inner

    def __hash__(self) -> int:
        return id(self._inner)

    @staticmethod
    def _unwrapped(value: Any) -> Any:
        """What a handle stands for; anything else as it is."""
        return value._inner if isinstance(value, Blocking) else value

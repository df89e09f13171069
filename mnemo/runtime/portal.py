"""Run coroutines of a private event loop from plain threads, and wait for them."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from typing import Any, ClassVar, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from mnemo.errors import UsageError
from mnemo.runtime.twins import members, summary

log: logging.Logger = logging.getLogger("mnemo")

STOPPING_S = 5.0
"""Seconds beyond ``shutdown_grace_s`` that closing may take at the interpreter's exit (S)."""
NOT_OPEN = "the service is not open; use `with mnemo.sync.Mnemo(…) as memory`"
CLOSED = "the service is closed; make a new Mnemo"

T = TypeVar("T")


class _LoopThread(threading.Thread):
    """
    A thread with an event loop, which ends once ``leave`` was called and all is closed. A daemon,
    and so are the worker threads that its loop starts: a process that ends waits for it in
    ``Portal`` alone, where that is bounded.
    """

    def __init__(self) -> None:
        super().__init__(name="mnemo", daemon=True)
        self.process = os.getpid()
        self.begun: Future[BlockingPortal] = Future()
        self.ended = threading.Event()
        self.close: Callable[[], Awaitable[None]] | None = None
        self.error: Exception | None = None
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def leave(self) -> None:
        """Close what was opened, and end; waits for nothing, so that a blocked loop is no harm."""
        self._told = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._leaving.set)

    def run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:
            if self.begun.done():
                raise
            self.begun.set_exception(error)
        finally:
            self.ended.set()

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._leaving = anyio.Event()
            self._loop = asyncio.get_running_loop()
            self.begun.set_result(portal)
            if not self._told:
                await self._leaving.wait()
            if self.close is not None:
                try:
                    await self.close()
                except Exception as error:
                    self.error = error
            await portal.stop(cancel_remaining=True)  # a stream that nobody leaves ends so


class Portal:
    """
    A private event loop in a thread of its own; its calls may come from any other thread.

    An interrupted call (Ctrl-C) cancels the work and waits until it has ended, so that it has
    happened or left no trace, as the *Cancellation* clause of the coroutine says; also while
    another thread closes. Of two threads that close, both wait.
    """

    def __init__(self) -> None:
        self._thread: _LoopThread | None = None
        self._grace_s = 0.0
        self._warned = False
        self._closed = False

    @property
    def is_forked(self) -> bool:
        """Whether the running process is a fork of the one that opened it."""
        return self._thread is not None and self._thread.process != os.getpid()

    def open(
        self,
        begin: Callable[[], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        grace_s: float,
    ) -> None:
        """
        Start the loop and its thread, and await *begin* there.

        *close*: Awaited by ``close``, or at the interpreter's exit, if *begin* has succeeded.
        *grace_s*: Seconds after which *close* stops what still runs, ``[0, ∞)``. *Raises*
        ``UsageError``: it is open, or as ``run``. What *begin* raises: the loop has ended then.
        """
        self.check()
        if self._thread is not None:
            raise UsageError("this service is open; make a new Mnemo")
        thread = self._thread = _LoopThread()
        self._grace_s = grace_s

        async def begun() -> None:
            await begin()
            thread.close = close

        atexit.register(self._at_exit)
        try:
            thread.start()
            thread.begun.result()
            self.run(begun)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """
        Close what was opened, end the loop and its thread; idempotent.

        An interrupted wait (Ctrl-C) stops nothing: everything is closed all the same, and the
        interpreter's exit waits for it.

        *Raises* ``UsageError``: see ``run``. What closing raises.
        """
        self.check()
        thread = self._thread
        if thread is None:
            return
        thread.leave()
        if thread.ident is not None:
            thread.ended.wait()
        self._thread, self._closed = None, thread.close is not None
        atexit.unregister(self._at_exit)
        if thread.error is not None:
            raise thread.error

    def _at_exit(self) -> None:
        """Close as ``close`` does, but in bounded time: nobody could end the process else."""
        thread = self._thread
        if thread is None or self.is_forked:
            return
        thread.leave()
        if not thread.ended.wait(self._grace_s + STOPPING_S):
            log.warning(
                "a mnemo.sync service was not closed within shutdown_grace_s (%g s) and %g s more; "
                "given up: what was acknowledged is kept, the next start finds unfinished work",
                self._grace_s,
                STOPPING_S,
            )
        elif thread.error is not None:
            log.error("a mnemo.sync service could not be closed: %s", thread.error)

    def check(self) -> None:
        """Raise ``UsageError`` in a loop's thread (a notebook's: warn once) or a forked process."""
        if self.is_forked:
            raise UsageError("the service belongs to the process that forked; open one per process")
        if threading.current_thread() is self._thread:
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
        """Await what *begin* gives, on the loop. *Raises* ``UsageError``: see ``check``; closed."""
        return self._waited(begin)

    def call(self, function: Callable[[], T]) -> T:
        """Call *function* on the loop. *Raises* ``UsageError``: as of ``run``."""

        async def begun() -> T:
            return function()

        return self._waited(begun)

    def _waited(self, begin: Callable[[], Awaitable[T]]) -> T:
        self.check()
        thread = self._running()
        inner = thread.begun.result()
        begun, ended = threading.Event(), threading.Event()

        async def work() -> T:
            begun.set()
            try:
                return await begin()
            finally:
                ended.set()

        future: Future[T] | None = None
        try:
            try:
                future = inner.start_task_soon(work)
            except RuntimeError as error:  # the loop ends in this moment
                raise UsageError(CLOSED) from error
            return future.result()
        except CancelledError as error:
            raise UsageError("the service was closed before this was done") from error
        except BaseException:
            if future is not None and not future.done():
                future.cancel()
                try:
                    inner.call(threading.get_ident)  # by now the work has begun, or never will
                except RuntimeError:  # another thread closes: the loop ends with all that it runs
                    thread.ended.wait()
                if begun.is_set():
                    ended.wait()
            raise

    def _running(self) -> _LoopThread:
        thread = self._thread
        if thread is None or thread.ended.is_set() or not thread.begun.done():
            raise UsageError(CLOSED if self._closed else NOT_OPEN)
        return thread

    @contextmanager
    def entered(
        self, make: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]
    ) -> Iterator[Iterator[T]]:
        """Enter an asynchronous context on the loop; gives what it gives as a plain iterator."""
        self.check()
        thread = self._running()
        with ExitStack() as left:
            manager = thread.begun.result().wrap_async_context_manager(self.call(make))
            try:
                yield self._iterated(left.enter_context(manager))
            finally:
                if thread.ended.is_set():  # it was left when the loop ended
                    left.pop_all()

    def _iterated(self, stream: AsyncIterator[T]) -> Iterator[T]:
        while True:
            try:
                value = self.run(stream.__anext__)
            except StopAsyncIteration:
                return
            yield value


class Blocking:
    """
    Base of the blocking handles: what they stand for, and the loop that it belongs to.

    ``class Notes(Blocking, of=notes.Notes)`` has the public methods, properties and declared
    fields of ``notes.Notes``, but for those that it defines itself. Where one of them gives a
    ``notes.Notes``, the caller gets a ``Notes``. Two handles of one object are equal.
    """

    _handles: ClassVar[dict[type, type[Blocking]]] = {}

    def __init_subclass__(cls, of: type | None = None) -> None:
        super().__init_subclass__()
        if of is None:  # a subclass of a user
            return
        Blocking._handles[of] = cls
        cls.__doc__ = f"{summary(of.__doc__)}\n\nBlocking; see ``{of.__module__}.{of.__name__}``."
        own = set(vars(cls))
        for name, member in members(of, cls.__name__, vars(sys.modules[cls.__module__])):
            if name not in own:
                setattr(cls, name, member)

    def __init__(self, portal: Portal, inner: Any) -> None:
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

    def _shown(self, value: Any) -> Any:
        """A handle of *value*, or of each in a list; what needs none as it is."""
        if isinstance(value, list) and value and type(value[0]) in self._handles:
            return [self._shown(one) for one in value]
        handle = self._handles.get(type(value))
        return value if handle is None else handle(self._portal, value)

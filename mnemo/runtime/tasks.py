"""
Task roots and cancel handles: the only place where a task without a parent starts.

A service may be opened by one task and closed by another (a pytest fixture, a web framework's
lifespan hooks), which an anyio task group does not allow: it belongs to the task that entered it.
It also ends all its tasks when one of them fails. So the tasks of a service are plain tasks of the
event loop, each in a cancel scope of its own. They are started and cancelled by plain calls, which
loop callbacks make as well: nothing here needs a running task.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Self, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from mnemo.errors import SessionClosed, UsageError
from mnemo.runtime.validation import is_small, seconds

log: logging.Logger = logging.getLogger("mnemo")
T = TypeVar("T")


class Home:
    """
    The event loop, of one process, that something (*what*, to people) belongs to. *closed* is what
    calls are told that come too late; ``None``: it is open.
    """

    __slots__ = ("_loop", "_process", "_what", "closed")

    def __init__(self, what: str) -> None:
        self._what = what
        self.closed: str | None = None
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether the running process is a fork of it: it has none of the threads."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Let a call pass that comes from here, and in time; else raise ``UsageError``."""
        if self.closed is not None:
            raise UsageError(self.closed)
        if os.getpid() != self._process:
            raise UsageError(
                f"{self._what} belongs to the process that forked; open one per process"
            )
        if running_loop() is not self._loop:
            raise UsageError(f"{self._what} belongs to another event loop; open one per loop")


class CancelHandle:
    """
    Cancels the work inside its ``with`` block from outside; made anywhere. An ``anyio.CancelScope``
    cannot be made where no task runs, as in a loop callback. The block may be entered again after
    it was left, and is cancelled at once then if ``cancel`` was called at any time.
    """

    __slots__ = ("_called", "_scope")

    def __init__(self) -> None:
        self._called = False
        self._scope: anyio.CancelScope | None = None

    def cancel(self) -> None:
        """End the work at its next await that is not shielded; a plain call, idempotent."""
        self._called = True
        if self._scope is not None:
            self._scope.cancel()

    @property
    def cancelled_caught(self) -> bool:
        """Whether ``cancel`` has cut the work off."""
        return self._scope is not None and self._scope.cancelled_caught

    def __enter__(self) -> Self:
        self._scope = anyio.CancelScope()
        if self._called:
            self._scope.cancel()
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool:
        assert self._scope is not None
        return bool(self._scope.__exit__(*error))


class Branch:
    """Tasks that are cancelled together, before the others of their root."""

    def __init__(self, spawn: Callable[..., asyncio.Task[None]]) -> None:
        self._spawn = spawn
        self._handles: set[CancelHandle] = set()
        self.ended: bool = False

    def spawn(self, work: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start *work*; a plain call. *Raises* ``UsageError``: they were cancelled before."""
        if self.ended:
            raise UsageError("it is closed; open it again")
        handle = CancelHandle()
        task = self._spawn(work, *args, handle=handle)
        self._handles.add(handle)
        task.add_done_callback(lambda _: self._handles.discard(handle))

    def cancel(self) -> None:
        """Cancel all of them and take no more; waits for none. Idempotent."""
        self.ended = True
        for handle in tuple(self._handles):
            handle.cancel()


class TaskRoot:
    """Hosts the tasks of one service; a task that fails is logged and stops nobody else."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hosted: dict[asyncio.Task[None], CancelHandle] = {}
        self._closing = False

    def open(self) -> None:
        """Host tasks on the running event loop from now on."""
        self._loop = asyncio.get_running_loop()

    def spawn(
        self, work: Callable[..., Awaitable[Any]], *args: Any, handle: CancelHandle | None = None
    ) -> asyncio.Task[None]:
        """
        Start *work* as a task in the caller's context, which *handle* cancels; a plain call.
        *Raises* ``UsageError``: the root is not open on the running event loop.
        """
        if self._loop is None or running_loop() is not self._loop:
            raise UsageError("the service is not open, or belongs to another event loop")
        handle = handle or CancelHandle()
        if self._closing:
            handle.cancel()
        name = getattr(work, "__qualname__", repr(work))
        # Not by the loop's task factory: an eager one would run the work inside this call.
        task = asyncio.Task(_within(handle, work, args), loop=self._loop, name=name)
        self._hosted[task] = handle
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._hosted[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed: %s", task.get_name(), exc_info=error)

    @property
    def hosts_caller(self) -> bool:
        """Whether the running task is one of the root's, which cannot wait for the root's end."""
        return asyncio.current_task() in self._hosted

    def own(self, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Run *work* in a task of the root's: cancelling who awaits the future ends the wait."""
        return owned(self.spawn, work)

    async def aclose(self) -> None:
        """Cancel every task and wait until all have ended. Idempotent."""
        self._closing = True
        for handle in tuple(self._hosted.values()):
            handle.cancel()
        with anyio.CancelScope(shield=True):
            while self._hosted:
                await asyncio.wait(tuple(self._hosted))
        self._loop = None


async def _within(
    handle: CancelHandle, work: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
) -> None:
    with handle:
        await work(*args)


def detached(work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
    """Start *work* as a task of whoever holds it, to close the root, which cannot run inside."""
    return asyncio.get_running_loop().create_task(work(), name="mnemo")


def owned(
    spawn: Callable[..., asyncio.Task[None]], work: Callable[[], Awaitable[T]]
) -> asyncio.Future[T]:
    """Run *work* in a task that *spawn* starts, as ``TaskRoot.own`` does."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    # Also where the end of the loop cancels the task before its first step.
    spawn(_settle, work, future).add_done_callback(partial(_abandon, future))
    return future


async def _settle(work: Callable[[], Awaitable[T]], future: asyncio.Future[T]) -> None:
    try:
        result = await work()
    except Exception as error:
        if future.done():
            # A session that ends refuses what its callers no longer wait for: no news.
            level = logging.INFO if isinstance(error, SessionClosed) else logging.WARNING
            log.log(level, "an act failed after its caller had gone: %s", error)
        else:
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)


def _abandon(future: asyncio.Future[T], _: asyncio.Task[None]) -> None:
    if not future.done():
        future.set_exception(UsageError("the service was closed before this was done"))


async def completed(future: asyncio.Future[T]) -> T:
    """
    Wait for *future* to its end whatever happens to the caller.

    *Cancellation*: completes; a cancellation that arrived meanwhile is raised after
    the end, in place of the result. In a forked process, which has no end of it, at once.
    """
    process = os.getpid()
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as cancelled:
                if os.getpid() != process:
                    raise
                interrupted = cancelled
    if interrupted is not None:
        future.exception()
        raise interrupted
    try:
        await anyio.lowlevel.checkpoint_if_cancelled()
    except asyncio.CancelledError:
        future.exception()  # seen by nobody, which is no fault of the future's
        raise
    return future.result()


async def ended_within(future: asyncio.Future[Any], timeout_s: float) -> bool:
    """Wait for the end of *future*; whether it has ended. *Cancellation*: safe, it goes on."""
    return bool((await asyncio.wait([future], timeout=timeout_s))[0])


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that the caller runs in; ``None`` outside of one, such as in a plain thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def computed(work: Callable[[], T], *values: object) -> T:
    """
    *work*, in a thread if *values* are large. *Cancellation*: completes; the result is dropped.
    """
    return work() if is_small(values) else await anyio.to_thread.run_sync(work)


async def on_clock(
    sleep: Callable[[float], Awaitable[None]],
    timeout_s: float | None,
    work: Callable[[], Awaitable[T]],
) -> T:
    """
    Run *work* for at most *timeout_s* seconds of the clock that *sleep* is of.

    *Raises* ``TimeoutError``: *work* was cancelled; ``ValueError``: negative, or not finite.
    """
    if timeout_s is None:
        return await work()
    limit_s = seconds("timeout_s", timeout_s)
    results: list[T] = []
    errors: list[BaseException] = []

    async def alarm() -> None:
        await sleep(limit_s)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(alarm)
        try:
            results.append(await work())
        except Exception as error:
            errors.append(error)
        group.cancel_scope.cancel()
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"not finished within {timeout_s} s")
    return results[0]


class Places:
    """
    *limit* tasks at once are inside its ``async with`` blocks, by default one; the others wait in
    their order. Unused it takes 50 bytes, where ``anyio.CapacityLimiter`` has a kilobyte.
    """

    __slots__ = ("_callers", "_limit", "_limiter")

    def __init__(self, limit: int = 1) -> None:
        self._limit = limit
        self._limiter: CapacityLimiter | None = None
        self._callers = 0

    @property
    def taken(self) -> int:
        """Tasks inside."""
        return 0 if self._limiter is None else self._limiter.borrowed_tokens

    @property
    def waiting(self) -> int:
        """Tasks that wait for a place."""
        return 0 if self._limiter is None else self._limiter.statistics().tasks_waiting

    async def acquire(self) -> None:
        """Enter, as soon as there is a place. *Cancellation*: safe."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._limit)
        self._callers += 1
        try:
            await self._limiter.acquire()
        except BaseException:
            self._leave()
            raise

    def release(self) -> None:
        """Leave; a plain call."""
        assert self._limiter is not None
        self._limiter.release()
        self._leave()

    def _leave(self) -> None:
        # Not by what is borrowed: before anyio 4.15 who has been woken holds nothing yet.
        self._callers -= 1
        if not self._callers:
            self._limiter = None

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *error: object) -> None:
        self.release()


class Threads:
    """Runs functions in worker threads, *limit* at once; the callers beyond them wait."""

    __slots__ = ("_callers", "_limit", "_limiter")

    def __init__(self, limit: int = 1) -> None:
        self._limit = limit
        self._limiter: CapacityLimiter | None = None
        self._callers = 0

    async def run(self, work: Callable[..., T], *args: Any, abandon: bool = False) -> T:
        """The result of ``work(*args)``. *Cancellation*: met when it ended; *abandon*: at once."""
        limiter = self._limiter = self._limiter or CapacityLimiter(self._limit)
        self._callers += 1
        try:
            return await anyio.to_thread.run_sync(
                work, *args, limiter=limiter, abandon_on_cancel=abandon
            )
        finally:
            self._callers -= 1
            if not self._callers:
                self._limiter = None


def from_thread(call: Callable[..., Awaitable[T]], *args: Any) -> T:
    """
    The result of ``call(*args)`` in the event loop, for a function that ``Threads`` runs.
    *Cancellation* of who waits for the thread: completes; unshielded it would never end.
    """

    found = list[T]()

    async def shielded() -> None:
        with anyio.CancelScope(shield=True):
            found.append(await call(*args))

    anyio.from_thread.run(shielded)
    return found[0]


def spare_cores() -> int:
    """Processors of this process but one, at least 1: for work that others must not wait for."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return max(1, len(os.sched_getaffinity(0)) - 1)
    return max(1, (os.cpu_count() or 1) - 1)


def of_loop(variable: RunVar[T], make: Callable[[], T]) -> T:
    """The running event loop's value of *variable*, made at first use."""
    try:
        return variable.get()
    except LookupError:
        variable.set(made := make())
        return made


_SHARED: RunVar[dict[str, Threads]] = RunVar("mnemo.runtime.tasks")


def shared_threads(purpose: str) -> Threads:
    """The one thread that everything on the running event loop shares for *purpose*."""
    shared = of_loop(_SHARED, dict)
    if purpose not in shared:
        shared[purpose] = Threads()
    return shared[purpose]

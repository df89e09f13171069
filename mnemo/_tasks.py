"""
The only place where a task without a parent begins.

A service may be opened by one task and closed by another (a pytest fixture, a web
framework's lifespan hooks), which an anyio task group does not allow: it belongs to
the task that entered it. So one root task enters the group and hosts every other
task of the service. Nothing else in mnemo creates a task outside a task group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from mnemo.errors import SessionClosed, UsageError

__all__ = ["TaskRoot", "completed", "detached", "is_cancelled", "on_clock", "owned", "running_loop"]

log = logging.getLogger("mnemo")
T = TypeVar("T")


class TaskRoot:
    """Hosts the tasks of one service; a task that fails is logged and stops nobody else."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self._hosted: set[asyncio.Task[Any] | None] = set()

    async def open(self) -> None:
        """Start the root task on the running event loop."""
        started = anyio.Event()
        self._host = detached(lambda: self._run(started))
        await started.wait()

    async def _run(self, started: anyio.Event) -> None:
        async with anyio.create_task_group() as self._group:
            started.set()
            await anyio.sleep_forever()

    def spawn(self, work: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start *work* in the root's task group; a plain call."""
        if self._group is None:
            raise RuntimeError("the task root is not open")
        self._group.start_soon(self._guarded, work, args)

    @property
    def hosts_caller(self) -> bool:
        """Whether the running task is one of the root's, which cannot wait for the root's end."""
        return asyncio.current_task() in self._hosted

    async def _guarded(self, work: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        task = asyncio.current_task()
        self._hosted.add(task)
        try:
            await work(*args)
        except Exception:
            log.exception("a background task failed: %s", getattr(work, "__qualname__", work))
        finally:
            self._hosted.discard(task)

    def own(self, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """
        Run *work* in a task of the root's, so that it outlives its caller.

        Awaiting the future may be cancelled: only the wait ends.
        """
        return owned(self.spawn, work)

    async def aclose(self) -> None:
        """Cancel every task and wait until all have ended. Idempotent."""
        host, self._host = self._host, None
        if host is None:
            return
        host.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([host])
        self._group = None


def detached(work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
    """
    Start *work* as a task without a parent; whoever holds the result owns it.

    For the root itself, and for closing it: that cannot run inside what it closes.
    """
    return asyncio.get_running_loop().create_task(work(), name="mnemo")


def owned(spawn: Callable[..., None], work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
    """Run *work* in a task that *spawn* starts, as ``TaskRoot.own`` does."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    spawn(_settle, work, future)
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
    finally:
        if not future.done():
            future.set_exception(UsageError("the service was closed before this was done"))


async def completed(future: asyncio.Future[T]) -> T:
    """
    Wait for *future* to its end whatever happens to the caller.

    *Cancellation*: completes; a cancellation that arrived meanwhile is raised after
    the end, in place of the result.
    """
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as cancelled:
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


def is_cancelled() -> bool:
    """
    Whether somebody is cancelling the running task.

    Where not, a ``CancelledError`` comes from foreign code that was itself cancelled.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that the caller runs in; ``None`` outside of one, such as in a plain thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def on_clock(
    sleep: Callable[[float], Awaitable[None]],
    timeout_s: float | None,
    work: Callable[[], Awaitable[T]],
) -> T:
    """
    Run *work* for at most *timeout_s* seconds of a clock.

    Args:
        sleep: The clock's ``sleep``.
        timeout_s: ``None`` is without limit.

    Raises:
        ValueError: *timeout_s* is negative or no number.
        TimeoutError: The time is over; *work* was cancelled.
    """
    if timeout_s is None:
        return await work()
    if not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        raise ValueError(f"timeout_s must not be negative, but is {timeout_s!r}")
    results: list[T] = []
    errors: list[BaseException] = []

    async def alarm() -> None:
        await sleep(timeout_s)
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

"""The base of the adapters: a repository or service, given open or opened by the first call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from os import PathLike, fspath
from typing import Any, Self, TypeVar

import anyio.to_thread

from mnemo import ConfigError, Repository, UsageError
from mnemo import sync as blocking

__all__ = ["Adapter", "AnyRepository", "Handle", "LazyService", "wait_on"]

T = TypeVar("T")

AnyRepository = Repository | blocking.Repository
"""A repository of ``Mnemo``, or of ``mnemo.sync.Mnemo``."""


def wait_on(
    loop: asyncio.AbstractEventLoop, call: Callable[[], Coroutine[Any, Any, T]], adapter: object
) -> T:
    """
    Do *call* on the event loop of the repository of *adapter*, and give its result; blocks.

    *Raises* ``asyncio.InvalidStateError``: this is that loop, which would wait for itself.
    """
    with suppress(RuntimeError):
        if asyncio.get_running_loop() is loop:
            raise asyncio.InvalidStateError(
                f"a blocking call of {type(adapter).__name__} on its repository's event loop would "
                "wait for itself: await the asynchronous form (aget, aput, ainvoke, …), call it in "
                "another thread, or give a repository of mnemo.sync"
            )
    return asyncio.run_coroutine_threadsafe(call(), loop).result()


class Handle:
    """An object of mnemo, found anew for each call: in a worker thread if it *blocks*."""

    def __init__(self, find: Callable[[], Any], *, blocks: bool) -> None:
        self._find = find
        self._blocks = blocks

    @classmethod
    def of(cls, given: object, *kinds: type) -> Handle:
        """A handle of *given*, open or a ``LazyService``; ``ConfigError``: none of *kinds*."""
        if isinstance(given, LazyService):
            return cls(given.find, blocks=True)
        if not isinstance(given, kinds):
            kind = kinds[0].__name__
            raise ConfigError(
                f"give an open {kind} of mnemo or mnemo.sync, not {type(given).__name__}"
            )
        return cls(lambda: given, blocks=not isinstance(given, kinds[0]))

    async def run(self, work: Callable[[Any], Any]) -> Any:
        """Do *work*, one call; one that blocks is waited for. *Cancellation*: as of the call."""
        if self._blocks:
            return await anyio.to_thread.run_sync(self.wait, work)
        return await work(self._find())

    def wait(self, work: Callable[[Any], Any]) -> Any:
        """Do *work* in this thread, with an object whose calls block, and give its result."""
        return work(self._find())


class LazyService:
    """
    A service over one file, on a private event loop that the first use opens, whatever loop calls.

    ``find`` gives the repository *repo_id*, or the service if that is ``None``.
    """

    def __init__(self, path: str | PathLike[str], repo_id: str | None = None) -> None:
        self._memory = blocking.Mnemo(fspath(path))
        self._repo_id = repo_id
        self._lock = threading.Lock()
        self._is_open = False
        self._is_closed = False

    def find(self) -> blocking.Mnemo | blocking.Repository:
        """The open service or repository; blocks. *Raises* ``UsageError``: it was closed."""
        with self._lock:
            if self._is_closed:
                raise UsageError("it was closed: make a new one")
            if not self._is_open:
                self._memory.open()
                self._is_open = True
        if self._repo_id is None:
            return self._memory
        return self._memory.open_repo(self._repo_id, exist_ok=True)

    def close(self) -> None:
        """Close it for good; blocks. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._memory.aclose()


class Adapter:
    """Base of the adapters: what they call, and the end of what ``from_path`` opened."""

    _handle: Handle
    _service: LazyService | None

    def _attach(self, given: object, *kinds: type) -> None:
        """Call *given* from now on, see ``Handle.of``; close it at the end if it is lazy."""
        if isinstance(given, str | PathLike):
            raise ConfigError(
                f"give an open {kinds[0].__name__}, not a path; "
                f"{type(self).__name__}.from_path(…) opens a file"
            )
        self._handle = Handle.of(given, *kinds)
        self._service = given if isinstance(given, LazyService) else None

    def close(self) -> None:
        """Close what ``from_path`` opened; blocks, idempotent. What was given stays open."""
        if self._service is not None:
            self._service.close()

    async def aclose(self) -> None:
        """``close`` in a worker thread. *Cancellation*: completes."""
        await anyio.to_thread.run_sync(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

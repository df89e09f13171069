"""What adapters call: a repository, asynchronous or blocking, or a path opened at first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from os import PathLike, fspath
from typing import Any, TypeVar

import anyio.to_thread

from mnemo import ConfigError, Repository, UsageError
from mnemo import sync as blocking

__all__ = ["AnyRepository", "Handle", "LazyService", "missing_extra"]

T = TypeVar("T")

AnyRepository = Repository | blocking.Repository
"""A repository of ``Mnemo``, or of ``mnemo.sync.Mnemo``."""


def missing_extra(module: str, extra: str, error: ImportError) -> ImportError:
    """An error that names the extra to install for the adapter *module*."""
    return ImportError(
        f"{module} needs the extra [{extra}] ({error}): pip install 'mnemo-sessions[{extra}]'",
        name=error.name,
    )


class Handle:
    """
    What an adapter calls: an object of mnemo, found anew for each call.

    Args:
        find: Gives the object. It is called in a worker thread if *blocks*.
        blocks: Whether the object is one of ``mnemo.sync``, whose calls block.
    """

    def __init__(self, find: Callable[[], Any], *, blocks: bool) -> None:
        self._find = find
        self._blocks = blocks

    @classmethod
    def of(cls, given: object, *kinds: type) -> Handle:
        """
        A handle of what the caller gave.

        Args:
            kinds: The asynchronous class first, then its blocking one.

        Raises:
            ConfigError: It is none of *kinds*.
        """
        if not isinstance(given, kinds):
            names = " or ".join(
                f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in kinds
            )
            raise ConfigError(f"give an open {names}, not {type(given).__name__}")
        return cls(lambda: given, blocks=not isinstance(given, kinds[0]))

    async def run(self, work: Callable[[Any], Any]) -> Any:
        """
        Do *work*, which makes one call of the object, and give the call's result.

        *Cancellation*: as of the call; one that blocks is waited for.
        """
        if self._blocks:
            return await anyio.to_thread.run_sync(self.wait, work)
        return await work(self._find())

    def wait(self, work: Callable[[Any], Any]) -> Any:
        """Do *work* in this thread, with an object whose calls block, and give its result."""
        return work(self._find())


class LazyService:
    """
    A service over one file that is opened by its first use, from whatever event loop.

    It runs on a private event loop, so that its owner is bound to none.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._memory = blocking.Mnemo(fspath(path))
        self._lock = threading.Lock()
        self._is_open = False
        self._is_closed = False

    def memory(self) -> blocking.Mnemo:
        """The open service; blocks. *Raises* ``UsageError``: it was closed."""
        with self._lock:
            if self._is_closed:
                raise UsageError("it was closed: make a new one")
            if not self._is_open:
                self._memory.open()
                self._is_open = True
        return self._memory

    def repo(self, repo_id: str) -> blocking.Repository:
        """The open repository; blocks. *Raises* ``UsageError``: the service was closed."""
        return self.memory().open_repo(repo_id, exist_ok=True)

    def close(self) -> None:
        """Close it for good; blocks. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._memory.aclose()

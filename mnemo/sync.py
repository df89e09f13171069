"""
mnemo without asyncio: the same calls, blocking, over a private event loop in a thread.

The classes get their members from the asynchronous ones, whose docstrings say more. Usable
from several threads. Observers and callbacks run on the private loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self

import mnemo
from mnemo.errors import UsageError
from mnemo.maintenance.copying import RepositoryCopy
from mnemo.maintenance.reembed import ReembeddingProgress, ReembeddingReport
from mnemo.operations import OWNERS
from mnemo.runtime.portal import Blocking, Portal
from mnemo.runtime.twins import like
from mnemo.stores import EngineStore

_OF = [one for one in OWNERS.values() if one is not mnemo.Mnemo]
_OF += [mnemo.AgentTool, mnemo.Feed, mnemo.NoteToolbox, mnemo.Subscription, mnemo.Viewport]
__all__ = sorted(["Mnemo", "PendingOperation", *(one.__name__ for one in _OF)])
for _one in _OF:
    globals()[_one.__name__] = type(Blocking)(_one.__name__, (Blocking,), {}, of=_one)


class PendingOperation(Blocking, of=mnemo.PendingOperation):
    def result(self) -> Any:
        """Wait for the operation to end; gives its value or raises its error."""

        async def waited() -> Any:
            return await self._inner

        return self._portal.run(waited)


class Mnemo(Blocking, of=mnemo.Mnemo):
    def _make(self, *arguments: Any, **options: Any) -> None:
        super().__init__(Portal(), mnemo.Mnemo(*arguments, **options))

    __init__ = like(mnemo.Mnemo.__init__, "self._make({passed})", "Mnemo", globals())

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        # A forked process that leaves the block has nothing to close; its parent has.
        if not self._portal.is_forked:
            self.aclose()

    async def __aenter__(self) -> NoReturn:
        raise UsageError(
            "write `with mnemo.sync.Mnemo(…)`, or in a coroutine `async with mnemo.Mnemo(…)`"
        )

    __aexit__ = __aenter__  # ``async with`` looks for both first

    def open(self) -> None:
        """
        Start the private loop and open the store.

        Whoever forgets to close it has it closed at the interpreter's exit.
        """
        self._portal.open(
            self._inner.open, self._inner.aclose, self._inner._config.shutdown_grace_s
        )

    def aclose(self) -> None:
        """Close everything in order, then end the private loop; idempotent."""
        self._portal.close()

    close = aclose

"""
mnemo without asyncio: the same calls, blocking, over a private event loop in a thread.

The classes get their members from the asynchronous ones, whose docstrings say more. Usable
from several threads. Observers and callbacks run on the private loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self

import mnemo.context.eviction
import mnemo.context.goals
import mnemo.context.viewport
import mnemo.conversation.mirror
import mnemo.items.items
import mnemo.notes.notes
import mnemo.notes.tools
import mnemo.repository.agent_tools
import mnemo.repository.checkpoints
import mnemo.repository.conversation
import mnemo.repository.inspection
import mnemo.repository.repository
import mnemo.runtime.bus
import mnemo.runtime.operations
import mnemo.service
import mnemo.session.session
from mnemo.errors import UsageError
from mnemo.maintenance.copying import RepositoryCopy
from mnemo.maintenance.reembed import ReembeddingProgress, ReembeddingReport
from mnemo.runtime.portal import Blocking, Portal
from mnemo.runtime.twins import like
from mnemo.stores import EngineStore

__all__ = [
    "AgentTool",
    "Checkpoints",
    "Conversation",
    "Feed",
    "Goals",
    "Inspection",
    "Items",
    "Mnemo",
    "NoteToolbox",
    "Notes",
    "PendingOperation",
    "Pins",
    "Repository",
    "Session",
    "Snapshots",
    "Subscription",
    "Viewport",
]


class AgentTool(Blocking, of=mnemo.repository.agent_tools.AgentTool): ...


class Checkpoints(Blocking, of=mnemo.repository.checkpoints.Checkpoints): ...


class Conversation(Blocking, of=mnemo.repository.conversation.Conversation): ...


class Feed(Blocking, of=mnemo.conversation.mirror.Feed): ...


class Goals(Blocking, of=mnemo.context.goals.Goals): ...


class Inspection(Blocking, of=mnemo.repository.inspection.Inspection): ...


class Items(Blocking, of=mnemo.items.items.Items): ...


class NoteToolbox(Blocking, of=mnemo.notes.tools.NoteToolbox): ...


class Notes(Blocking, of=mnemo.notes.notes.Notes): ...


class Pins(Blocking, of=mnemo.context.goals.Pins): ...


class Repository(Blocking, of=mnemo.repository.repository.Repository): ...


class Session(Blocking, of=mnemo.session.session.Session): ...


class Snapshots(Blocking, of=mnemo.context.eviction.Snapshots): ...


class Subscription(Blocking, of=mnemo.runtime.bus.Subscription): ...


class Viewport(Blocking, of=mnemo.context.viewport.Viewport): ...


class PendingOperation(Blocking, of=mnemo.runtime.operations.PendingOperation):
    def result(self) -> Any:
        """Wait for the operation to end; gives its value or raises its error."""

        async def waited() -> Any:
            return await self._inner

        return self._portal.run(waited)


class Mnemo(Blocking, of=mnemo.service.Mnemo):
    def _make(self, *arguments: Any, **options: Any) -> None:
        super().__init__(Portal(), mnemo.service.Mnemo(*arguments, **options))

    __init__ = like(mnemo.service.Mnemo.__init__, "self._make({passed})", "Mnemo", globals())

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

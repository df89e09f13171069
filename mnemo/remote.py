"""
The calls of a remote repository, each a method made from the declaration of its operation.

``mnemo.client`` sends them. A stub that the build of the package writes has their types.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import mnemo.context.eviction
import mnemo.context.goals
import mnemo.items.items
import mnemo.notes.notes
import mnemo.repository.conversation
import mnemo.repository.inspection
import mnemo.repository.repository
import mnemo.service
import mnemo.session.session
from mnemo.operations import OPERATIONS, OWNERS, Operation


class Calls:
    """
    Base of the remote handles.

    ``class NotesCalls(Calls, of=notes.Notes)`` has a method of each operation of ``notes.Notes``
    that the HTTP service has a route of, but for those that it defines itself.
    """

    def __init_subclass__(cls, of: type | None = None) -> None:
        super().__init_subclass__()
        for one in OPERATIONS.values():
            if OWNERS[one.owner] is of and "client" in one.surfaces and not one.is_stream:
                setattr(cls, one.function.__name__, _method(one, cls.__name__))

    async def _carry_out(self, operation: Operation, given: dict[str, Any]) -> Any:
        """Send a call and give its result."""
        raise NotImplementedError


def _method(operation: Operation, owner: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A method with the name, parameters and docstring of the operation's."""

    async def call(self: Calls, *arguments: Any, **named: Any) -> Any:
        bound = operation.signature.bind(self, *arguments, **named)
        bound.apply_defaults()
        given = dict(bound.arguments)
        del given["self"]
        return await self._carry_out(operation, given)

    call.__name__, call.__doc__ = operation.function.__name__, operation.function.__doc__
    call.__qualname__ = f"{owner}.{call.__name__}"
    call.__signature__ = operation.signature  # type: ignore[attr-defined]
    return call


class ServiceCalls(Calls, of=mnemo.service.Mnemo): ...


class RepositoryCalls(Calls, of=mnemo.repository.repository.Repository): ...


class SessionCalls(Calls, of=mnemo.session.session.Session): ...


class ConversationCalls(Calls, of=mnemo.repository.conversation.Conversation): ...


class NotesCalls(Calls, of=mnemo.notes.notes.Notes): ...


class InspectionCalls(Calls, of=mnemo.repository.inspection.Inspection): ...


class GoalsCalls(Calls, of=mnemo.context.goals.Goals): ...


class PinsCalls(Calls, of=mnemo.context.goals.Pins): ...


class SnapshotsCalls(Calls, of=mnemo.context.eviction.Snapshots): ...


class ItemsCalls(Calls, of=mnemo.items.items.Items): ...

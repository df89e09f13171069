"""
The calls of a remote repository, each a method made from the declaration of its operation.

``mnemo.client`` sends them. A stub that the build of the package writes has their types.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from mnemo.operations import OPERATIONS, OWNERS, Operation


class Calls:
    """
    Base of the remote handles.

    ``NotesCalls``, as all that are made below, has a method of each operation of ``Notes`` that
    the HTTP service has a route of.
    """

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


for _owner, _cls in OWNERS.items():
    _name = f"{_cls.__name__}Calls"
    _offered = [
        one
        for one in OPERATIONS.values()
        if one.owner == _owner and "client" in one.surfaces and not one.is_stream
    ]
    globals()[_name] = type(
        _name, (Calls,), {one.function.__name__: _method(one, _name) for one in _offered}
    )

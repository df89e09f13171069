"""An observer that remembers."""

from __future__ import annotations

from typing import TypeVar

from mnemo.events import Event

E = TypeVar("E", bound=Event)


class RecordingObserver:
    """
    A synchronous observer for ``Mnemo.subscribe``.

    Attributes:
        events: Everything it was told, in order.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

"""Report the progress of an update to the host; a failing callback changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import anyio

from mnemo.errors import InvalidNote
from mnemo.notes.guards import check_redacted, redact
from mnemo.runtime.text import clean, one_line
from mnemo.runtime.user_code import called
from mnemo.values.note_rules import is_topic

log = logging.getLogger("mnemo")

PATIENCE_S = 1.0
"""Seconds that a callback may take."""

OnProgress: TypeAlias = Callable[["Progress"], Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """
    How far an update is.

    Attributes:
        phase: ``started``, ``turn``, ``tool`` or ``finished``.
        label: One line for a person.
        turn: The call of the model that is meant, from 1; 0: none yet.
        topic: The note that a tool is at work on, if it names one.
    """

    phase: Literal["started", "turn", "tool", "finished"]
    label: str
    turn: int = 0
    topic: str | None = None


class ProgressReporter:
    """Call *on_progress*; ``finished`` follows ``started``, and only once."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._callback = on_progress
        self._started = False
        self.turn = 0

    async def start(self) -> None:
        """Report the start. *Cancellation*: safe."""
        self._started = True
        await self._tell(Progress("started", "Looking back over the conversation"))

    async def next_turn(self, turn: int) -> None:
        """Report a call of the model."""
        self.turn = turn
        await self._tell(Progress("turn", f"Asking the model, turn {turn}", turn))

    async def tool(self, name: str, topic: object) -> None:
        """Report a tool call."""
        of = _shown(topic)
        label = one_line(redact(clean(f"{name} {of}" if of else name)))
        await self._tell(Progress("tool", label[:100], self.turn, of))

    async def finish(self, label: str) -> None:
        """Report the end; *Cancellation*: completes."""
        if self._started:
            self._started = False
            with anyio.CancelScope(shield=True):
                await self._tell(Progress("finished", label, self.turn))

    async def _tell(self, progress: Progress) -> None:
        if self._callback is None:
            return
        try:
            with anyio.move_on_after(PATIENCE_S) as scope:
                await called(self._callback, progress)
            if scope.cancelled_caught:
                log.warning("on_progress took longer than %g s; it was cut off", PATIENCE_S)
        except Exception:
            log.exception("on_progress failed")


def _shown(topic: object) -> str | None:
    """*topic*, if it is valid and holds no secret: a model may name anything."""
    try:
        check_redacted(str(topic), "")
    except InvalidNote:
        return None
    return str(topic) if is_topic(topic) else None

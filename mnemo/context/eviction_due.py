"""Due evictions: whether a thread has to make room, and what Mneme is shown of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mnemo.config import Config
from mnemo.context import goals, pins
from mnemo.context.budget import Budget
from mnemo.context.compressed import CompressedViewport, compress
from mnemo.context.zones import Zone, eviction_zone, is_due, reach
from mnemo.protocols import TranscriptReader
from mnemo.values.derived import Goal, Pin, Thread
from mnemo.values.units import Unit, units_of

__all__ = ["Due", "due"]

FAR = 2
"""Times its size from which on only the beginning of a window is read (S)."""
HEAD = 200
"""Messages of such a beginning, at least (S)."""


@dataclass(frozen=True, slots=True)
class Due:
    """
    A thread that has to make room, as it was read.

    Attributes:
        since: Messages recorded before it are expired.
        now: When it was read.
        units: Of the window.
        goals: The active ones, as they are listed.
        deadline_s: Seconds until an unanswered call counts as abandoned.
    """

    thread: Thread
    budget: Budget
    since: datetime | None
    now: datetime
    units: list[Unit]
    goals: list[Goal]
    pins: list[Pin]
    deadline_s: float

    def zone(self) -> Zone:
        """What is to leave."""
        zone = eviction_zone(
            self.units,
            self.budget,
            from_seq=self.thread.boundary,
            now=self.now,
            deadline_s=self.deadline_s,
        )
        assert zone is not None, "a thread is due only if something can leave its window"
        return zone

    def view(self, config: Config) -> CompressedViewport:
        """The window as Mneme sees it; takes milliseconds of computing."""
        return compress(
            self.units,
            self.budget,
            from_seq=self.thread.boundary,
            now=self.now,
            deadline_s=self.deadline_s,
            max_tokens=config.viewport.max_input_tokens,
            count=config.conversation.count,
        )


def due(tx: TranscriptReader, thread_id: str, config: Config, *, notes: bool = False) -> Due | None:
    """
    The thread if its window is above the trigger and something can leave it.

    What is not due costs the thread's row and one aggregate.

    Args:
        notes: Whether its viewport shows notes, which the window is smaller by.
    """
    thread = tx.thread(thread_id)
    if thread.budget_tokens is None:
        return None
    budget = Budget.of(thread.budget_tokens, config.viewport, notes=notes)
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    span = tx.span(thread_id, from_seq=thread.boundary, since=since)
    if span[1] <= budget.trigger:
        return None
    for units, deadline_s in _readings(tx, thread, since, span, budget, config):
        zone = eviction_zone(
            units, budget, from_seq=thread.boundary, now=tx.now, deadline_s=deadline_s
        )
        if is_due(span[1], len(units), budget) and zone is not None:
            active = goals.listed(tx, thread_id, active_only=True)
            held = pins.listed(tx, thread, since=since) if active else []
            return Due(thread, budget, since, tx.now, units, active, held, deadline_s)
    return None


def _readings(
    tx: TranscriptReader,
    thread: Thread,
    since: datetime | None,
    span: tuple[int, int],
    budget: Budget,
    config: Config,
) -> Iterator[tuple[list[Unit], float]]:
    """
    The units of the window, at first only of its beginning if it is far too long.

    Of a beginning it is not known which calls are answered behind it, so there an
    unanswered one counts as open for ever.
    """
    number, tokens = span
    wanted = HEAD
    while tokens > FAR * budget.window and wanted < number:
        last = thread.boundary + wanted - 1
        head = units_of(tx.messages(thread.id, from_seq=thread.boundary, to_seq=last, since=since))
        if sum(unit.tokens for unit in head[:-1]) > max(reach(budget), budget.window):
            yield head, math.inf
            break
        wanted *= 4
    whole = tx.messages(thread.id, from_seq=thread.boundary, since=since)
    yield units_of(whole), config.conversation.tool_deadline_s

"""Whether a thread has to make room, and everything that Mneme is shown if it has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mnemo.config import Config
from mnemo.context import goals, pins
from mnemo.context.budget import Budget
from mnemo.context.compressed import CompressedViewport, compress
from mnemo.context.zones import Zone, eviction_zone, is_due
from mnemo.conversation.counting import counter_of
from mnemo.protocols import TranscriptReader
from mnemo.transcript.derived import Goal, Pin, Thread
from mnemo.transcript.units import Unit, units_of

__all__ = ["Due", "due"]

READ_AT_ONCE = 5_000
"""Messages of a window that are read: one that is longer waits for its first reading (S)."""


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
            count=counter_of(config.conversation),
        )


def due(tx: TranscriptReader, thread_id: str, config: Config) -> Due | None:
    """
    The thread if its window is above the trigger and something can leave it.

    What is not due costs the thread's row and one aggregate.
    """
    thread = tx.thread(thread_id)
    if thread.budget_tokens is None:
        return None
    budget = Budget.of(thread.budget_tokens, config.viewport)
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    number, tokens = tx.span(thread_id, from_seq=thread.boundary, since=since)
    if tokens <= budget.trigger:
        return None
    for units, deadline_s in _readings(tx, thread, since, number, config):
        zone = eviction_zone(
            units, budget, from_seq=thread.boundary, now=tx.now, deadline_s=deadline_s
        )
        if is_due(tokens, len(units), budget) and zone is not None:
            active = goals.listed(tx, thread_id, active_only=True)
            held = pins.listed(tx, thread, since=since) if active else []
            return Due(thread, budget, since, tx.now, units, active, held, deadline_s)
    return None


def _readings(
    tx: TranscriptReader, thread: Thread, since: datetime | None, number: int, config: Config
) -> Iterator[tuple[list[Unit], float]]:
    """
    The units of the window, at first only of its beginning if it is very long.

    Of a beginning it is not known which calls are answered behind it, so there an
    unanswered one counts as open for ever.
    """
    first = thread.boundary
    if number > READ_AT_ONCE:
        last = first + READ_AT_ONCE - 1
        head = tx.messages(thread.id, from_seq=first, to_seq=last, since=since)
        yield units_of(head), math.inf
    whole = tx.messages(thread.id, from_seq=first, since=since)
    yield units_of(whole), config.conversation.tool_deadline_s

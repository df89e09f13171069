"""
Zones of the window: the range that leaves next, and how the rest is shown.

Nothing but cost and clean cuts decides: no clock but a call's deadline, no message count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from mnemo.context.budget import Budget
from mnemo.values.messages import StoredMessage
from mnemo.values.units import Unit, clean_cuts


@dataclass(frozen=True, slots=True)
class Zone:
    """
    A range that leaves the window at once.

    Attributes:
        messages: At least one, ascending, tool calls and results too.
        from_seq: The boundary, which may lie before the first message: zones leave no gap.
        to_seq: Of the last message; the boundary moves behind it.
        tokens: The stored counts of the messages together.
    """

    messages: tuple[StoredMessage, ...]
    from_seq: int
    to_seq: int
    tokens: int


def is_due(tokens: int, units: int, budget: Budget) -> bool:
    """Whether a window of so many tokens and units has to make room: above the trigger."""
    return tokens > budget.trigger and units >= 2


def eviction_zone(
    units: Sequence[Unit], budget: Budget, *, from_seq: int, now: datetime, deadline_s: float
) -> Zone | None:
    """
    Return what leaves the window first, due or not; ``None``: nothing can.

    It ends at the largest clean cut whose cost is at most the zone's size, or at the first
    one; never behind the newest unit. Units without speech that follow go along if
    something said comes after them and all of it stays within half of the window.

    Args:
        units: Of the whole window, as ``units_of`` gave them.
        from_seq: The boundary.
        deadline_s: Seconds until an unanswered call is abandoned; 0: at once.
    """
    near = list(_near(units, reach(budget)))
    cuts = inner_cuts(near, now=now, deadline_s=deadline_s)
    if not cuts:
        near = list(units)
        cuts = inner_cuts(near, now=now, deadline_s=deadline_s)[:1]
    if not cuts:
        return None
    cost = _costs(near)
    fitting = [cut for cut in cuts if cost[cut] <= budget.zone]
    cut = fitting[-1] if fitting else cuts[0]
    spoken = _next_spoken(near, cut)
    if spoken in cuts and 2 * cost[spoken] <= budget.window:
        cut = spoken
    return zone_up_to(near, cut, from_seq=from_seq)


def torn_zone(units: Sequence[Unit], *, from_seq: int) -> Zone | None:
    """
    Return what leaves a window that is too long without a clean cut; ``None``: one unit.

    The oldest group is cut: what of it lies before the next unit leaves, and what lies behind
    is shown as late results, or as a call without one.
    """
    return zone_up_to(units, units[1].first_seq, from_seq=from_seq) if len(units) > 1 else None


def reach(budget: Budget) -> int:
    """Tokens of a window's beginning that decide about its zone, if there is a cut in them."""
    return max(budget.zone, budget.window // 2)


def inner_cuts(units: Sequence[Unit], *, now: datetime, deadline_s: float) -> list[int]:
    """The clean cuts that leave the newest unit whole on their right, ascending."""
    newest = units[-1].first_seq if units else 0
    return [cut for cut in clean_cuts(units, now=now, deadline_s=deadline_s) if cut <= newest]


def zone_up_to(units: Iterable[Unit], cut: int, *, from_seq: int) -> Zone:
    """Return the zone before seq *cut*, of a window that begins at *from_seq*."""
    within = [message for unit in units for message in unit.messages if message.seq < cut]
    within.sort(key=lambda message: message.seq)
    tokens = sum(message.tokens for message in within)
    return Zone(tuple(within), from_seq, within[-1].seq, tokens)


def middle_and_recent(units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """
    Split what stays in the window by the place where a unit ends: in the first half of the
    cost it is in the middle, else recent. The newest unit is always recent.
    """
    ends = list(accumulate(unit.tokens for unit in units))
    middle = [unit for unit, end in zip(units[:-1], ends, strict=False) if 2 * end <= ends[-1]]
    return middle, list(units[len(middle) :])


def _near(units: Sequence[Unit], tokens: int) -> Iterator[Unit]:
    """The first units, until all but the last of them cost more than *tokens*."""
    for unit in units:
        yield unit
        if tokens < 0:
            return
        tokens -= unit.tokens


def _costs(units: Sequence[Unit]) -> dict[int, int]:
    """A unit's first seq → the tokens of all units before it."""
    before = accumulate((unit.tokens for unit in units), initial=0)
    return {unit.first_seq: tokens for unit, tokens in zip(units, before, strict=False)}


def _next_spoken(units: Sequence[Unit], cut: int) -> int | None:
    """The first seq of the first unit from *cut* on that speaks."""
    return next((u.first_seq for u in units if u.first_seq >= cut and u.spoken), None)

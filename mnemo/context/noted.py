"""
Notes ahead of memory: an overview, as the agent is told of it.

It follows from the notes that are stored, so it changes only when one of them does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mnemo.context.budget import Budget
from mnemo.transcript.units import Count
from mnemo.transcript.untrusted import untrusted

__all__ = ["Overview", "notes_text", "with_notes"]

Overview: TypeAlias = Callable[[int], Awaitable[str]]
"""
Tells of the notes, a line each, in about so many tokens: the same of the same notes.

``""``: there are none.
"""
HEADING = "## Notes"
GAP = "\n\n"
ATTEMPTS = 8
"""Times that the overview is made shorter, at most: escaping may have made it longer (S)."""


async def notes_text(overview: Overview, share: int, count: Count) -> str:
    """
    The overview under its heading, wrapped as data, with the gap behind it within *share* tokens.

    Returns:
        ``""`` if there are no notes, or the share is too small to say anything.

    Raises:
        StoreError: The notes could not be read. *Cancellation*: safe.
    """
    room = share
    for _ in range(ATTEMPTS):
        told = await overview(room) if room > 0 else ""
        if not told:
            break
        text = f"{HEADING}\n{untrusted('notes', told)}"
        taken = count(text + GAP)
        if taken <= share:
            return text
        room = min(room - 1, room * share // taken)
    return ""


def with_notes(notes: str, memory: str, budget: Budget, count: Count) -> str:
    """*notes* ahead of *memory*, which stays as it is; without them if both are too long."""
    if not notes or not memory:
        return notes or memory
    both = f"{notes}{GAP}{memory}"
    fits = count(both) <= budget.notes + budget.long_term + budget.recent
    return both if fits else memory

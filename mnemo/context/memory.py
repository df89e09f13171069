"""
The memory section of a rendering: snapshots of what has left the window, and notes.

Every byte follows from what is stored, so it changes only when a snapshot or a note does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from mnemo.context.budget import Budget
from mnemo.english.sentences import sentence_ends
from mnemo.values.counting import Count
from mnemo.values.derived import Snapshot
from mnemo.values.digest import dates
from mnemo.values.untrusted import untrusted

CUT = " […]"
"""Behind a text that was cut."""


def memory_text(snapshots: Sequence[Snapshot], budget: Budget, count: Count) -> str:
    """
    Render the current snapshots, long-term memory first, each level within its share.

    Args:
        snapshots: Those that nothing covers, in any order.
    """
    levels = (
        ("## Long-term memory", 2, budget.long_term),
        ("## Recent memory", 1, budget.recent),
    )
    told, room = "", 0
    for heading, level, share in levels:
        chosen = sorted((s for s in snapshots if s.level == level), key=lambda s: s.to_seq)
        before = f"{told}\n\n" if told else ""
        room += share
        level_text = _Level(heading, chosen, share, count, before, room).text()
        told = before + level_text if level_text else told
    return told


class _Level:
    """
    The snapshots of one level, oldest first, rendered within *share* tokens.

    Args:
        before: What is told ahead of it; both together keep within *room* tokens.
    """

    def __init__(
        self,
        heading: str,
        snapshots: Sequence[Snapshot],
        share: int,
        count: Count,
        before: str,
        room: int,
    ) -> None:
        self._heading = heading
        self._snapshots = snapshots
        self._share = share
        self._count = count
        self._before = before
        self._room = room

    def text(self) -> str:
        """Render as many of the newest as fit, with the number of the others; or nothing."""
        best = ""
        for shown in range(1, len(self._snapshots) + 1):
            text = self._framed([_entry(each) for each in self._snapshots[-shown:]])
            if not self._fits(text):
                break
            best = text
        return best or self._newest_cut()

    def _newest_cut(self) -> str:
        """Render the newest snapshot up to the last sentence that fits."""
        if not self._snapshots:
            return ""
        newest = self._snapshots[-1]
        ends = sentence_ends(newest.text)

        def cut(place: int) -> str:
            return self._framed([_entry(newest, newest.text[: ends[place]] + CUT)])

        fitting = bisect_left(range(len(ends)), True, key=lambda place: not self._fits(cut(place)))
        return cut(fitting - 1) if fitting else ""

    def _framed(self, entries: Sequence[str]) -> str:
        return "\n".join([self._heading, *_older(len(self._snapshots) - len(entries)), *entries])

    def _fits(self, text: str) -> bool:
        alone, together = self._count(text), self._count(self._before + text)
        return alone <= self._share and together <= self._room


def _older(count: int) -> list[str]:
    if count == 1:
        return ["(1 older memory not shown; search reaches it)"]
    return [f"({count} older memories not shown; search reaches them)"] if count else []


def _entry(snapshot: Snapshot, text: str | None = None) -> str:
    days = dates([snapshot.said_from, snapshot.said_to])
    head = f"[messages {snapshot.from_seq}..{snapshot.to_seq}, {days}]"
    return f"{head}\n{untrusted('memory', snapshot.text if text is None else text)}"


# ── Notes ahead of memory ────────────────────────────────────────────────────────────────


Overview: TypeAlias = Callable[[int], Awaitable[str]]
"""
Renders the notes, a line each, in about so many tokens; the same text for the same notes.

``""``: there are none.
"""
NOTES_HEADING = "## Notes"
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
        text = f"{NOTES_HEADING}\n{untrusted('notes', told)}"
        taken = count(text + GAP)
        if taken <= share:
            return text
        room = min(room - 1, room * share // taken)
    return ""


def with_notes(notes: str, memory: str, budget: Budget, count: Count) -> str:
    """Put *notes* ahead of *memory*; leave them out if both are too long."""
    if not notes or not memory:
        return notes or memory
    both = f"{notes}{GAP}{memory}"
    fits = count(both) <= budget.notes + budget.long_term + budget.recent
    return both if fits else memory

"""
The compressed viewport: the whole window in three zones, as shown to Mneme.

What was said stands there in full, one line per message; tool calls are only counted.
Lines after the first of a text are indented, so no message can forge a line of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from mnemo.context.budget import Budget
from mnemo.context.zones import Zone, eviction_zone, inner_cuts, middle_and_recent, zone_up_to
from mnemo.runtime.text import count_tokens, one_line
from mnemo.values.counting import Count
from mnemo.values.messages import SAID, THINKING_TOOL, Message, StoredMessage
from mnemo.values.units import Unit
from mnemo.values.untrusted import without_marks

INDENT = "    "
"""Before every line of a text but its first."""
LABELS = {"user": "User", "assistant": "Assistant", "system": "System", "thought": "Thought"}


@dataclass(frozen=True, slots=True)
class CompressedViewport:
    """
    The window in three zones.

    Attributes:
        eviction: What leaves next, ascending; so the others.
        middle, recent: What stays, by halves of its cost.
        text: The three zones in words; ``""`` for an empty window.
        zone: What *eviction* is, with its range; ``None`` if nothing can leave.
    """

    eviction: list[StoredMessage]
    middle: list[StoredMessage]
    recent: list[StoredMessage]
    text: str
    zone: Zone | None = None


def compress(
    units: Sequence[Unit],
    budget: Budget,
    *,
    from_seq: int,
    now: datetime,
    deadline_s: float,
    max_tokens: int,
    count: Count = count_tokens,
) -> CompressedViewport:
    """
    Show a window in three zones.

    What is too long is shortened where the middle meets the recent zone; if that is not
    enough, fewer units leave; if one is still too long, its texts show head and tail.

    Args:
        units: Of the whole window, as ``units_of`` gave them.
        from_seq: The boundary.
        deadline_s: Seconds until an unanswered call is abandoned.
        max_tokens: Of the text, at most, as *count* counts them.
    """
    zone = eviction_zone(units, budget, from_seq=from_seq, now=now, deadline_s=deadline_s)
    view = _Zones.of(units, zone)
    if view.fits(max_tokens, count):
        return view.shown(view.text())
    if zone is not None and not view.fits(max_tokens, count, left_out=view.remaining):
        cuts = [c for c in inner_cuts(units, now=now, deadline_s=deadline_s) if c <= zone.to_seq]
        view = _with_fewer_units(units, [*cuts, zone.to_seq + 1], from_seq, max_tokens, count)
    return view.shortened(max_tokens, count)


def _with_fewer_units(
    units: Sequence[Unit], cuts: Sequence[int], from_seq: int, max_tokens: int, count: Count
) -> _Zones:
    """The view with the largest zone that fits where all else is left out, or the smallest."""

    def at(place: int) -> _Zones:
        return _Zones.of(units, zone_up_to(units, cuts[place], from_seq=from_seq))

    def too_long(place: int) -> bool:
        view = at(place)
        return not view.fits(max_tokens, count, left_out=view.remaining)

    return at(max(bisect_left(range(len(cuts)), True, key=too_long) - 1, 0))


@dataclass(frozen=True, slots=True)
class _Zones:
    """The messages of the three zones; *calls*: seq → how many it makes, how many failed."""

    zone: Zone | None
    middle: list[StoredMessage]
    recent: list[StoredMessage]
    calls: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, units: Sequence[Unit], zone: Zone | None) -> _Zones:
        kept = [unit for unit in units if zone is None or unit.first_seq > zone.to_seq]
        middle, recent = middle_and_recent(kept)
        calls = {unit.seq: _calls(unit) for unit in units if unit.is_group}
        return cls(zone, _messages(middle), _messages(recent), calls)

    @property
    def remaining(self) -> int:
        return len(self.middle) + len(self.recent)

    def fits(
        self, max_tokens: int, count: Count, *, left_out: int = 0, most: int | None = None
    ) -> bool:
        return count(self.text(left_out, most)) <= max_tokens

    def shortened(self, max_tokens: int, count: Count) -> CompressedViewport:
        """Its view with as little left out as there must be."""
        fewest = range(self.remaining + 1)
        left_out = bisect_left(fewest, True, key=lambda n: self.fits(max_tokens, count, left_out=n))
        text = self.text(left_out) if left_out < len(fewest) else self._cut(max_tokens, count)
        return self.shown(text)

    def shown(self, text: str) -> CompressedViewport:
        """Its view with *text*."""
        eviction = list(self.zone.messages) if self.zone else []
        return CompressedViewport(eviction, self.middle, self.recent, text, self.zone)

    def _cut(self, max_tokens: int, count: Count) -> str:
        """Its eviction zone alone, every text of it shown by as much head and tail as fits."""
        longest = max((len(m.text) for m in self.zone.messages), default=0) if self.zone else 0
        most = bisect_left(
            range(longest + 1),
            True,
            key=lambda n: not self.fits(max_tokens, count, left_out=self.remaining, most=n),
        )
        return self.text(self.remaining, max(most - 1, 0))

    def text(self, left_out: int = 0, most: int | None = None) -> str:
        """
        The zones in words.

        Args:
            left_out: Messages not shown where the middle meets the recent zone.
            most: Characters of each text in the eviction zone; ``None``: all.
        """
        if self.zone is None and not self.remaining:
            return ""
        of_middle, of_recent = _shared(left_out, len(self.middle), len(self.recent))
        middle, recent = self.middle[: len(self.middle) - of_middle], self.recent[of_recent:]
        lines = [
            "── EVICTION ZONE ──",
            *self._lines(self.zone.messages if self.zone else (), most),
            "── MIDDLE ZONE ──",
            *self._lines(middle),
            *_note(of_middle),
            "── RECENT ZONE ──",
            *_note(of_recent),
            *self._lines(recent),
        ]
        return "\n".join(lines)

    def _lines(self, messages: Sequence[StoredMessage], most: int | None = None) -> Iterator[str]:
        calls = failed = 0
        for message in messages:
            for label, text in _spoken(message):
                yield from _counted(calls, failed)
                calls = failed = 0
                said = _line(f"message {message.seq} {label}:", _ends(text, most))
                yield without_marks(said)
            made, lost = self.calls.get(message.seq, (0, 0))
            calls, failed = calls + made, failed + lost
        yield from _counted(calls, failed)


def _messages(units: Sequence[Unit]) -> list[StoredMessage]:
    return sorted((m for unit in units for m in unit.messages), key=lambda message: message.seq)


def _calls(unit: Unit) -> tuple[int, int]:
    """Count the tool calls of a group, and the failed ones; a thought is no tool."""
    made = [c for c in unit.caller.tool_calls if c.name != THINKING_TOOL] if unit.caller else []
    answers = (unit.answers.get(call.id) for call in made)
    return len(made), sum(answer is not None and answer.is_error for answer in answers)


def _shared(left_out: int, middle: int, recent: int) -> tuple[int, int]:
    """Divide what is left out between both sides of the edge, evenly as far as they reach."""
    of_recent = min(left_out // 2, recent)
    of_middle = min(left_out - of_recent, middle)
    return of_middle, left_out - of_middle


def _note(left_out: int) -> list[str]:
    return [f"[{_number(left_out, 'message')} left out]"] if left_out else []


def _counted(calls: int, failed: int) -> list[str]:
    lost = f", {failed} failed" if failed else ""
    return [f"[{_number(calls, 'tool')} called{lost}]"] if calls else []


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _spoken(message: StoredMessage) -> Iterator[tuple[str, str]]:
    """Yield the speakers and texts of *message*, thoughts among its calls included."""
    if message.kind in SAID:
        named = f"Reply({one_line(message.name)})" if message.name else "Reply"
        yield LABELS.get(message.kind or "", named), message.text
    thoughts = [call for call in message.tool_calls if call.name == THINKING_TOOL]
    if thoughts:
        thought = Message(role="assistant", tool_calls=thoughts).text
        if thought != message.text:
            yield LABELS["thought"], thought


def _ends(text: str, most: int | None) -> str:
    """Shorten *text* to its head and tail, *most* characters together."""
    if most is None or len(text) <= most:
        return text
    tail = most // 2
    between = f"[… {len(text) - most} characters left out …]"
    return f"{text[: most - tail]}\n{between}\n{text[len(text) - tail :]}"


def _line(head: str, text: str) -> str:
    first, *others = text.splitlines() or [""]
    return "\n".join([f"{head} {first}".rstrip(), *(INDENT + line for line in others)])

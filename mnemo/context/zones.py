"""
The budget of a viewport, the zones of its window, and the window as shown to Mneme.

Nothing but cost and clean cuts decides what leaves next: no clock but a call's deadline, no message
count. In the compressed viewport what was said stands in full, one line per message; tool calls are
only counted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Self

from mnemo.config import ViewportConfig
from mnemo.runtime.text import count_tokens, one_line
from mnemo.values.counting import Count
from mnemo.values.messages import SAID, THINKING_TOOL, Message, StoredMessage
from mnemo.values.units import Unit, clean_cuts
from mnemo.values.untrusted import without_marks

MOST_TOKENS = 10**12
"""Of a budget; no window is as long (S)."""
DUST = 6
"""Decimals to which a share is rounded before it is rounded down: 699.9999999999999 is 700."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """
    The parts of a viewport, all in tokens.

    Attributes:
        total: Of the whole rendering; at least 1.
        long_term: For level-2 snapshots, at most.
        recent: For level-1 snapshots, at most.
        goals: For goals and pins, at most.
        recall: For what comes to mind, at most.
        notes: For the overview of notes, at most; 0 where it is not asked for.
        window: For the raw messages; it does not grow by what the others leave unused.
        trigger: Of the window, above which room is made.
        zone: Of the window, what leaves it at once.
    """

    total: int
    long_term: int
    recent: int
    goals: int
    recall: int
    window: int
    trigger: int
    zone: int
    notes: int = 0

    @classmethod
    def of(cls, budget_tokens: int, config: ViewportConfig, *, notes: bool = False) -> Self:
        """
        Divide *budget_tokens*; *notes* have their share, however many there are, or none.

        Raises:
            ConfigError: With notes the window would be too small.
            ValueError: It is below 1, above ``MOST_TOKENS``, or not a whole number.
        """
        if isinstance(budget_tokens, bool) or not isinstance(budget_tokens, int):
            raise ValueError(f"a budget is a whole number of tokens, not {budget_tokens!r}")
        if budget_tokens < 1:
            raise ValueError(f"a budget needs at least 1 token, not {budget_tokens}")
        if budget_tokens > MOST_TOKENS:
            raise ValueError(f"a budget has at most {MOST_TOKENS} tokens, not {budget_tokens}")
        shares = (
            config.l2_fraction,
            config.l1_fraction,
            config.goals_fraction,
            config.recall_fraction,
        )
        long_term, recent, goals, recall = (_share(budget_tokens, each) for each in shares)
        window = _share(budget_tokens, config.window_fraction(notes=notes))
        return cls(
            total=budget_tokens,
            long_term=long_term,
            recent=recent,
            goals=goals,
            recall=recall,
            window=window,
            trigger=_share(window, config.trigger_fraction),
            zone=_share(window, config.eviction_fraction),
            notes=_share(budget_tokens, config.notes_fraction) if notes else 0,
        )


def _share(whole: int, fraction: float) -> int:
    return math.floor(round(whole * fraction, DUST))


# ── Zones ─────────────────────────────────────────────────────────────────────────


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
    Return what leaves the window of *units* first, due or not; ``None``: nothing can.

    It ends at the largest clean cut whose cost is at most the zone's size, or at the first
    one; never behind the newest unit. Units without speech that follow go along if
    something said comes after them and all of it stays within half of the window.
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
    spoken = next((u.first_seq for u in near if u.first_seq >= cut and u.spoken), None)
    if spoken in cuts and 2 * cost[spoken] <= budget.window:
        cut = spoken
    return zone_up_to(near, cut, from_seq=from_seq)


def torn_zone(units: Sequence[Unit], *, from_seq: int) -> Zone | None:
    """
    Return what leaves a window that is too long without a clean cut; ``None``: one unit. The oldest
    group is cut: what of it lies before the next unit leaves, and what lies behind is shown as late
    results, or as a call without one.
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
    """Split what stays: units that end in the first half of its cost, and the others."""
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


# ── The compressed viewport ───────────────────────────────────────────────────────


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
    Show a window of *units* from *from_seq* on in three zones, in at most *max_tokens*. What is too
    long is shortened where the middle meets the recent zone; if that is not enough, fewer units
    leave; if one is still too long, its texts show head and tail.
    """
    zone = eviction_zone(units, budget, from_seq=from_seq, now=now, deadline_s=deadline_s)
    view = _Zones.of(units, zone)

    def fits(text: str) -> bool:
        return count(text) <= max_tokens

    whole = view.text()
    if fits(whole):
        return view.shown(whole)
    if zone is not None and not fits(view.text(view.remaining)):
        cuts = [c for c in inner_cuts(units, now=now, deadline_s=deadline_s) if c <= zone.to_seq]
        view = _with_fewer_units(units, [*cuts, zone.to_seq + 1], from_seq, fits)
    return view.shortened(fits)


def _with_fewer_units(
    units: Sequence[Unit], cuts: Sequence[int], from_seq: int, fits: Callable[[str], bool]
) -> _Zones:
    """The view with the largest zone that fits where all else is left out, or the smallest."""

    def at(place: int) -> _Zones:
        return _Zones.of(units, zone_up_to(units, cuts[place], from_seq=from_seq))

    def too_long(place: int) -> bool:
        view = at(place)
        return not fits(view.text(view.remaining))

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
        return cls(zone, _in_order(middle), _in_order(recent), calls)

    @property
    def remaining(self) -> int:
        return len(self.middle) + len(self.recent)

    def shortened(self, fits: Callable[[str], bool]) -> CompressedViewport:
        """Shorten as little as necessary; at last to head and tail of the texts that leave."""
        fewest = range(self.remaining + 1)
        left_out = bisect_left(fewest, True, key=lambda n: fits(self.text(n)))
        if left_out < len(fewest):
            return self.shown(self.text(left_out))
        longest = max((len(m.text) for m in self.zone.messages), default=0) if self.zone else 0
        most = bisect_left(
            range(longest + 1), True, key=lambda n: not fits(self.text(self.remaining, n))
        )
        return self.shown(self.text(self.remaining, max(most - 1, 0)))

    def shown(self, text: str) -> CompressedViewport:
        """Its view with *text*."""
        eviction = list(self.zone.messages) if self.zone else []
        return CompressedViewport(eviction, self.middle, self.recent, text, self.zone)

    def text(self, left_out: int = 0, most: int | None = None) -> str:
        """The zones without *left_out* messages at their edge; *most* characters of what leaves."""
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


def _in_order(units: Sequence[Unit]) -> list[StoredMessage]:
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

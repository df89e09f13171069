"""
Units: what may be shown, left out or cut off only as a whole.

A **group** is an assistant message with calls and every tool message that answers one of
them, wherever it lies; a **unit** is a group or a single other message, with the items before
it that mean nothing alone (reasoning, and what only a wire format knows). Everything here
looks at the given messages alone: a result whose call is not among them is a unit of its
own. Pure functions; nothing is read, and no time is asked for.

Which result answers which call, where an id is used more than once: a result answers the
nearest call of its id before it. One that has none before it was early: it answers the
first call after it, unless something else does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

from mnemo.runtime.text import count_tokens, is_blank
from mnemo.values.counting import Count, tokens_of
from mnemo.values.messages import (
    SAID,
    THINKING_TOOL,
    VIEW,
    Message,
    StoredMessage,
    ToolCall,
    answered_ids,
    compact_json,
)

NO_RESULT = "[no result recorded]"
"""Content of the message that answers a call which nothing answered."""


@dataclass(frozen=True)
class Unit:
    """
    A tool group, or a single message that belongs to none, behind the items that lead it.

    Attributes:
        messages: At least one, ascending by seq. In a group exactly one makes calls.
    """

    messages: tuple[StoredMessage, ...]

    @property
    def first_seq(self) -> int:
        """Its place among units."""
        return self.messages[0].seq

    @property
    def last_seq(self) -> int:
        """The seq of its last message; messages of other units may lie before it."""
        return self.messages[-1].seq

    @cached_property
    def tokens(self) -> int:
        """The stored token counts of its messages together."""
        return sum(message.tokens for message in self.messages)

    @property
    def is_group(self) -> bool:
        """Whether it holds calls, answered or not."""
        return self.caller is not None

    @cached_property
    def caller(self) -> StoredMessage | None:
        """The message that makes the calls."""
        return next((message for message in self.messages if message.tool_calls), None)

    @property
    def seq(self) -> int:
        """Where it stands when it is shown: the place of its call, or of the message."""
        return self.caller.seq if self.caller else self.first_seq

    @cached_property
    def answers(self) -> dict[str, StoredMessage]:
        """Call id → the first result of that call."""
        found: dict[str, StoredMessage] = {}
        for message in self.messages if self.caller else ():
            for id in answered_ids(message):
                found.setdefault(id, message)
        return found

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """Its calls without a result, in order."""
        calls = self.caller.tool_calls if self.caller else ()
        return tuple(call for call in calls if call.id not in self.answers)

    @property
    def spoken(self) -> bool:
        """Whether anything in it is speech: no mere calls and results."""
        return any(message.kind in SAID for message in self.messages)

    @property
    def is_pinned(self) -> bool:
        """Whether it is a system message, which no choice leaves out."""
        return self.messages[0].role == "system"

    def is_open(self, now: datetime, deadline_s: float) -> bool:
        """Whether something of it still waits; see ``open_for``."""
        return self.open_for(now, deadline_s) > 0

    def open_for(self, now: datetime, deadline_s: float) -> float:
        """
        Seconds that a call may still wait for its result, or an item for the message it leads.

        Args:
            deadline_s: Seconds from the ``recorded_at`` of the call or item after which it
                counts as abandoned; 0: at once, so that no unit is open.
        """
        last = self.messages[-1]
        waiting = self.caller if self.unanswered else last if leads(last) else None
        if waiting is None:
            return 0
        return max(0.0, deadline_s - (now - waiting.recorded_at).total_seconds())


def leads(message: Message) -> bool:
    """
    Whether *message* means nothing without the one behind it; reasoning must be sent with it. What
    the system says stands alone, and a result, such as an approval, belongs to its call.
    """
    if message.role in ("system", "tool"):
        return False
    return message.is_opaque or (message.kind == "thought" and message.extra is not None)


def units_of(messages: Iterable[StoredMessage]) -> list[Unit]:
    """Sort messages, in any order, each once, into units, ordered by the first seq of each."""
    ascending = sorted(messages, key=lambda message: message.seq)
    members: dict[int, list[StoredMessage]] = {}
    home = _callers_of_results(ascending)
    for message, following in reversed([*pairwise(ascending)]):
        if leads(message) and following.role != "system":
            home[message.seq] = home.get(following.seq, following.seq)
    for message in ascending:
        members.setdefault(home.get(message.seq, message.seq), []).append(message)
    units = (Unit(tuple(grouped)) for grouped in members.values())
    return sorted(units, key=lambda unit: unit.first_seq)


def _callers_of_results(ascending: Sequence[StoredMessage]) -> dict[int, int]:
    """Seq of a result → seq of the message that makes the call it answers."""
    newest: dict[str, int] = {}
    early: defaultdict[str, list[int]] = defaultdict(list)
    waiting: dict[tuple[int, str], list[int]] = {}
    home: dict[int, int] = {}
    for message in ascending:
        for call in message.tool_calls:
            newest[call.id] = message.seq
            if call.id in early:
                waiting[message.seq, call.id] = early.pop(call.id)
        for id in answered_ids(message):
            caller = newest.get(id)
            if caller is None:
                early[id].append(message.seq)
            else:
                home[message.seq] = caller
                waiting.pop((caller, id), None)
    for (caller, _), results in waiting.items():
        home.update(dict.fromkeys(results, caller))
    return home


def clean_cuts(units: Sequence[Unit], *, now: datetime, deadline_s: float) -> list[int]:
    """
    The seqs at which *units* may be cut in two, ascending.

    No group has members before a clean cut and from it on, and none lies behind the first
    message of an open group. The last one, if no group is open, lies behind the last message;
    there is none before the first. Of *deadline_s*, 0 makes every group count as abandoned.
    """
    cuts: list[int] = []
    reached = -1
    for unit in units:
        if 0 <= reached < unit.first_seq:
            cuts.append(unit.first_seq)
        reached = max(reached, unit.last_seq)
        if unit.is_open(now, deadline_s):
            return cuts
    return [*cuts, reached + 1] if units else []


def nearest_whole_ranges(
    units: Sequence[Unit], start_seq: int, end_seq: int
) -> list[tuple[int, int]]:
    """Whole ranges nearest to one: itself, or the widest inside and the narrowest around it."""
    inside = _shrunk(units, start_seq, end_seq)
    around = _grown(units, start_seq, end_seq)
    if around == (start_seq, end_seq):
        return [around]
    return [*([inside] if inside else []), around]


def _grown(units: Sequence[Unit], start: int, end: int) -> tuple[int, int]:
    while True:
        cut = [u for u in units if _cuts(u, start, end)]
        if not cut:
            return start, end
        start = min(start, *(unit.first_seq for unit in cut))
        end = max(end, *(unit.last_seq for unit in cut))


def _shrunk(units: Sequence[Unit], start: int, end: int) -> tuple[int, int] | None:
    while start <= end:
        cut = next((u for u in units if _cuts(u, start, end)), None)
        if cut is None:
            held = any(start <= m.seq <= end for unit in units for m in unit.messages)
            return (start, end) if held else None
        within = [m.seq for m in cut.messages if start <= m.seq <= end]
        if cut.first_seq < start:
            start = max(within) + 1
        else:
            end = min(within) - 1
    return None


def _cuts(unit: Unit, start: int, end: int) -> bool:
    within = sum(start <= message.seq <= end for message in unit.messages)
    return 0 < within < len(unit.messages)


def completed(
    units: Iterable[Unit], *, newest_open: bool, count: Count = count_tokens
) -> list[Message]:
    """
    What ``load`` and the viewport return of *units*: ascending, with every group complete.

    Results stand directly after their call, in the order of the calls. A call without a
    result is answered by ``[no result recorded]``, an error; that message is never stored.
    A result whose call is not among *units*, or that another result of the same call came
    before, is given as a user message ``[late result of <name or call id>] …`` under its
    own id, at its own place. So no bare tool message is ever returned, and none is lost.
    What was made here carries ``VIEW`` in its metadata.

    With *newest_open*, calls of the last unit without a result stay unanswered if nothing is
    shown behind it.
    """
    ordered = sorted(units, key=lambda unit: unit.first_seq)
    left_open = newest_open and bool(ordered) and stands_last(ordered[-1], ordered)
    shown: list[tuple[int, Message]] = []
    for unit in ordered:
        shown += placed(unit, left_open=left_open and unit is ordered[-1], count=count)
    shown.sort(key=lambda place: place[0])
    return [message for _, message in shown]


def placed(unit: Unit, *, left_open: bool, count: Count) -> list[tuple[int, Message]]:
    """What ``completed`` shows of one unit, each with its seq; *left_open*: no call is answered."""
    caller = unit.caller
    leading = [message for message in unit.messages if leads(message)]
    others = [message for message in unit.messages if not leads(message)]
    if caller is None:
        alone = (_late(m, count) if m.role == "tool" else m for m in others)
        return [(message.seq, message) for message in (*leading, *alone)]
    shown: list[tuple[int, Message]] = [(message.seq, message) for message in (*leading, caller)]
    answers: dict[int, Message] = {}
    for call in caller.tool_calls:
        answer = unit.answers.get(call.id)
        if answer is not None:
            answers[answer.seq] = answer
        elif not left_open:
            answers[-1 - len(answers)] = _missing(caller, call, count)
    shown += [(caller.seq, answer) for answer in answers.values()]
    first = {message.seq for message in unit.answers.values()}
    surplus = (m for m in others if m is not caller and m.seq not in first)
    return shown + [(message.seq, _late(message, count)) for message in surplus]


def stands_last(unit: Unit, units: Iterable[Unit]) -> bool:
    """Whether nothing of *units* is shown behind the call of *unit*; results may come first."""
    later = (one for one in units if one.last_seq > unit.seq)
    places = (seq for one in later for seq, _ in placed(one, left_open=True, count=len))
    return all(seq <= unit.seq for seq in places)


def _missing(caller: StoredMessage, call: ToolCall, count: Count) -> Message:
    return Message(
        role="tool",
        content=NO_RESULT,
        id=f"no-result:{caller.id}:{call.id}",
        tool_call_id=call.id,
        is_error=True,
        name=call.name,
        at=caller.at,
        token_count=count(NO_RESULT),
        metadata={VIEW: "no_result"},
    )


def _late(message: StoredMessage, count: Count) -> StoredMessage:
    content = f"[late result of {message.name or message.tool_call_id}] {message.text}"
    return viewed(
        message,
        "late_result",
        count,
        role="user",
        content=content,
        kind=None,
        tool_call_id=None,
        is_error=False,
    )


def viewed(message: StoredMessage, how: str, count: Count, **changes: Any) -> StoredMessage:
    """*message* as a view shows it, marked with ``VIEW`` and counted anew."""
    metadata = {**message.metadata, VIEW: how}
    if "content" in changes:
        changes |= {"extra": None}
    shown = replace(message, metadata=metadata, token_count=None, **changes)
    return replace(shown, token_count=tokens_of(shown, count))


def call_text(call: ToolCall) -> str:
    """*call* as one would write it, e.g. ``search(query="tea", limit=3)``."""
    arguments = call.arguments
    if isinstance(arguments, Mapping) and all(map(str.isidentifier, arguments)):
        return f"{call.name}({', '.join(f'{k}={compact_json(v)}' for k, v in arguments.items())})"
    return f"{call.name}({compact_json(arguments)})"


def told_text(message: Message) -> str:
    """What *message* says and does in words, calls a line each, failures too; ``""``: nothing."""
    said = message.text.strip()
    told = message.kind == "thought" and is_blank(message._own_text())
    calls = [
        call_text(call) for call in message.tool_calls if not (told and call.name == THINKING_TOOL)
    ]
    failed = "[failed]" if message.is_error else ""
    return "\n".join([" ".join(filter(None, (failed, said))), *calls]).strip()

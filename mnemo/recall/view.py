"""Drill-down: a record with its neighbours within a token budget; no text forges the frame."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import TypeAlias

from mnemo.config import Config
from mnemo.log.records import StoredRecords
from mnemo.recall.keyword import stream_id
from mnemo.runtime.text import count_tokens, counted, one_line
from mnemo.runtime.validation import known_id, whole_number
from mnemo.values.counting import Count, fitted
from mnemo.values.derived import Snapshot
from mnemo.values.messages import THINKING_TOOL, ToolCall
from mnemo.values.records import Record, Surroundings, ViewQuery
from mnemo.values.untrusted import without_marks

LEAST_BUDGET = 100
"""Smallest ``budget_tokens``."""
MOST_NEIGHBOURS = 100
"""Largest ``before`` and ``after``."""
SHORTENED = 200
"""Characters that a neighbour is shortened to before it goes."""
ARGUMENTS = 200
"""Characters of a call's arguments, beside the target."""
WHO = 24
"""Bytes of a speaker's or a tool's name."""
_INDENT = "\n    "


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView(Surroundings):
    """
    A record and what lies around it in its stream, ascending, whole.

    Attributes:
        before: The nearest records ahead of the target, of all kinds; *after* likewise.
        snapshots_before: Of what is further ahead, at most three; *snapshots_after* likewise.
        last_seq: Of a snapshot: where its range ends.
        budget_tokens: Of ``as_text``, unless it is told otherwise.
        count: What they are counted with.
    """

    budget_tokens: int = 4_000
    count: Count = field(default=count_tokens, repr=False, compare=False)

    def __repr__(self) -> str:
        around = f"{len(self.before)} before, {len(self.after)} after"
        return f"<MessageView {self.target.message_id!r}, {around}>"

    def as_text(self, budget_tokens: int | None = None) -> str:
        """
        Render the view as text; what does not fit is counted, from the edges inwards.

        Args:
            budget_tokens: At least 100. The text has no more, by the service's count, unless
                its frame alone has.

        Raises:
            ValueError: It is below.
        """
        budget = _budget(self.budget_tokens if budget_tokens is None else budget_tokens)
        return fitted(lambda size: _Page(self, size).text(), budget, self.count)


async def view(
    records: StoredRecords,
    message_id: str,
    *,
    config: Config,
    session_id: str | None = None,
    before: int = 10,
    after: int = 10,
    budget_tokens: int | None = None,
) -> MessageView:
    """Open what lies around the record of this id; see ``Repository.view``."""
    for name, count in (("before", before), ("after", after)):
        whole_number(name, count, 0, MOST_NEIGHBOURS)
    budget = _budget(config.recall.view_budget_tokens if budget_tokens is None else budget_tokens)
    found = await records.around(
        ViewQuery(
            message_id=known_id("message_id", message_id),
            session_id=stream_id("session_id", session_id),
            before=before,
            after=after,
            default_ttl_s=config.conversation.ttl_s,
        )
    )
    around = {one.name: getattr(found, one.name) for one in fields(found)}
    return MessageView(**around, budget_tokens=budget, count=config.conversation.count)


def _budget(tokens: int) -> int:
    return whole_number("budget_tokens", tokens, LEAST_BUDGET)


# ── Making it fit ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Piece:
    """A record or snapshot (*noun*) beside the target; its *forms*, the longest first."""

    noun: str
    first: int
    last: int
    forms: tuple[str, ...]


Lost: TypeAlias = Counter[_Piece]
"""Of each piece, how many of its forms are passed over."""
Sides: TypeAlias = tuple[list[_Piece], list[_Piece]]
"""What is ahead of the target and what is behind it, both from the nearest to the farthest."""


class _Page:
    """A view as a text of at most so many bytes."""

    def __init__(self, view: MessageView, bytes: int) -> None:
        self._view = view
        self._bytes = bytes
        ahead, behind = view.snapshots_before[::-1], view.snapshots_after
        self._messages = [*map(_neighbour, view.before[::-1])], [*map(_neighbour, view.after)]
        self._snapshots = [*map(_compressed, ahead)], [*map(_compressed, behind)]

    def text(self) -> str:
        """Everything, shrunk as far as it takes; at last the target loses its middle."""
        whole = told(self._view.target, None)
        # Pieces in the order in which each is to lose one form.
        snapshots, messages = _farthest_first(self._snapshots), _farthest_first(self._messages)
        short = (piece for piece in messages if len(piece.forms) > 1)
        order = [*snapshots, *short, *messages, *snapshots]

        def shrunk(steps: int) -> str:
            return self._written(Counter(order[:steps]), whole)

        steps = bisect_left(range(len(order)), True, key=lambda n: self._fits(shrunk(n)))
        text = shrunk(steps)
        return text if self._fits(text) else self._cut(Counter(order), whole)

    def _fits(self, text: str) -> bool:
        return size(text) <= self._bytes

    def _cut(self, lost: Lost, whole: str) -> str:
        """Leave out of the target's middle what is too much; its head and tail stay."""
        notes = self._fits(self._written(lost, _kept(whole, 0)))

        def with_kept(characters: int) -> str:
            return self._written(lost, _kept(whole, characters), notes=notes)

        lengths = range(1, len(whole) + 1)
        return with_kept(bisect_left(lengths, True, key=lambda n: not self._fits(with_kept(n))))

    def _written(self, lost: Lost, target: str, *, notes: bool = True) -> str:
        view = self._view

        def shown(pieces: Iterable[_Piece]) -> list[str]:
            return [p.forms[lost[p]] for p in pieces if lost[p] < len(p.forms)]

        earlier, later = self._messages
        ahead, behind = shown(reversed(self._snapshots[0])), shown(self._snapshots[1])
        seqs = [record.seq for record in (*view.before, view.target, *view.after)]
        last = max(*seqs, view.last_seq) if view.target.kind == "snapshot" else seqs[-1]
        lines = [
            f"── recalled from: {cut_bytes(view.target.session_id, max(24, self._bytes // 16))} ──",
            *(["── PREVIOUS CONTEXT (compressed) ──", *ahead] if ahead else ()),
            f"── FULL CONTEXT (messages {min(seqs)}..{last}) ──",
            *(_note("earlier", (*earlier, *self._snapshots[0]), lost) if notes else ()),
            *shown(reversed(earlier)),
            f"→ {line_of(view.target, indented(target), last_seq=view.last_seq)}",
            *shown(later),
            *(_note("later", (*later, *self._snapshots[1]), lost) if notes else ()),
            *(["── FOLLOWING CONTEXT (compressed) ──", *behind] if behind else ()),
        ]
        return "\n".join(lines)


def _note(side: str, pieces: Iterable[_Piece], lost: Lost) -> list[str]:
    """The line that says which of *pieces*, messages first, are missing, if any are."""
    gone = [piece for piece in pieces if lost[piece] == len(piece.forms)]
    if not gone:
        return []
    first, last = min(p.first for p in gone), max(p.last for p in gone)
    seqs = str(first) if first == last else f"{first}..{last}"
    nouns = Counter(piece.noun for piece in gone)
    missing = " and ".join(counted(n, f"{side} {noun}") for noun, n in nouns.items())
    return [f"… {missing} not shown ({seqs})"]


def _kept(whole: str, characters: int) -> str:
    """*whole* with so many of its characters, of its head and its tail."""
    head, left_out = (characters + 1) // 2, len(whole) - characters
    tail = whole[len(whole) - characters // 2 :]
    return f"{whole[:head]} … [{left_out} characters left out] … {tail}" if left_out else whole


def _neighbour(record: Record) -> _Piece:
    text = told(record)
    short = text if len(text) <= SHORTENED else text[: SHORTENED - 1].rstrip() + "…"
    forms = dict.fromkeys("  " + line_of(record, indented(form)) for form in (text, short))
    return _Piece("message", record.seq, record.seq, tuple(forms))


def _compressed(snapshot: Snapshot) -> _Piece:
    seqs, when = f"{snapshot.from_seq}..{snapshot.to_seq}", snapshot.said_from.date().isoformat()
    head = f"[L{snapshot.level} snapshot, messages {seqs}, {when}]"
    text = "\n".join("  " + line for line in without_marks(snapshot.text).splitlines())
    return _Piece("snapshot", snapshot.from_seq, snapshot.to_seq, (f"{head}\n{text}", head))


def _farthest_first(sides: Sides) -> list[_Piece]:
    """The pieces of both sides; at equal distance the earlier one first."""
    pairs = reversed([*zip_longest(*sides)])
    return [piece for pair in pairs for piece in pair if piece is not None]


# ── Lines ────────────────────────────────────────────────────────────────────────────


def size(text: str) -> int:
    """Bytes of UTF-8, by which tokens are estimated."""
    return len(text.encode("utf-8", "replace"))


def cut_bytes(text: str, most: int) -> str:
    """Cut *text* to one line of at most *most* bytes; ``…`` marks the cut."""
    text = without_marks(one_line(text))
    if size(text) <= most:
        return text
    kept = text.encode("utf-8", "replace")[: max(most - 3, 0)].decode("utf-8", "ignore")
    return kept.rstrip() + "…"


def indented(text: str) -> str:
    """Remove marks from *text* and indent every line after the first."""
    return _INDENT.join(without_marks(text).splitlines())


def line_of(target: Record, text: str, *, last_seq: int | None = None) -> str:
    """Render the line of a record: its head, then *text*."""
    when = target.at.isoformat(sep=" ", timespec="minutes")[:16]
    if target.kind == "snapshot":
        return f"snapshot of messages {target.seq}..{last_seq}, {when}: {text}"
    return f"message {target.seq}, {when}, {_speaker(target)}{text}"


def _speaker(record: Record) -> str:
    match record.kind:
        case "tool_call":
            return ""
        case "tool_result":
            return f"Result: {'error' if record.is_error else 'ok'}, "
        case "reply":
            return f"Reply({cut_bytes(record.name, WHO)}): " if record.name else "Reply: "
        case "observation" | "action":
            who = f" ({cut_bytes(record.actor, WHO)})" if record.actor else ""
            return f"{record.kind.capitalize()}{who if record.kind == 'observation' else ''}: "
    return f"{record.kind.capitalize()}: "


def told(record: Record, most: int | None = ARGUMENTS) -> str:
    """Render speech in full, of calls *most* characters of arguments; ``None``: all in full."""
    if record.kind == "tool_result":
        return f"{len(record.text)} characters" + (f": {record.text}" if most is None else "")
    if record.kind == "thought":
        return record.text
    is_call = record.kind == "tool_call"
    calls = (c for c in record.tool_calls if c.name != THINKING_TOOL or is_call)
    return "\n".join([*([] if is_call else [record.text]), *(_call(c, most) for c in calls)])


def _call(call: ToolCall, most: int | None) -> str:
    given = call.arguments
    if not isinstance(given, str):
        given = json.dumps(given, ensure_ascii=False, separators=(", ", ": "))
    if most is not None and len(given) > most:
        given = given[: most - 1] + "…"
    return f"Tool: {cut_bytes(call.name, WHO)}({given})"

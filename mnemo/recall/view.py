"""
Drill-down: a record with its neighbours, rendered within a token budget.

Neighbours are shortened and dropped from the edges towards the target, which always stays.
One line each; no text can forge the frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mnemo.config import Config
from mnemo.protocols import RecordStore
from mnemo.recall.keyword import stream_id
from mnemo.runtime.text import count_tokens, one_line
from mnemo.runtime.validation import known_id, whole_number
from mnemo.values.counting import Count, fitted
from mnemo.values.derived import Snapshot
from mnemo.values.messages import THINKING_TOOL, ToolCall
from mnemo.values.records import Record, ViewQuery
from mnemo.values.untrusted import without_marks

__all__ = ["MessageView", "view"]

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
_SPEAKERS = {
    "user": "User",
    "assistant": "Assistant",
    "system": "System",
    "thought": "Thought",
    "summary": "Summary",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """
    A record and what lies around it in its stream, ascending, whole.

    Attributes:
        before: The nearest records ahead of the target, of all kinds; *after* likewise.
        snapshots_before: Of what is further ahead, at most three; *snapshots_after* likewise.
        last_seq: Of a snapshot: where its range ends.
        budget_tokens: Of ``as_text``, unless it is told otherwise.
        count: What they are counted with.
    """

    target: Record
    before: tuple[Record, ...]
    after: tuple[Record, ...]
    snapshots_before: tuple[Snapshot, ...] = ()
    snapshots_after: tuple[Snapshot, ...] = ()
    last_seq: int = 0
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
        return fitted(lambda size: _Page.of(self, size).text(), budget, self.count)


async def view(
    records: RecordStore,
    message_id: str,
    *,
    config: Config,
    session_id: str | None = None,
    before: int = 10,
    after: int = 10,
    budget_tokens: int | None = None,
) -> MessageView:
    """
    Open what lies around the record of this id.

    Args:
        session_id: The stream, where the id is used in several threads.
        before: Neighbours ahead of it, 0 to 100; *after* likewise.
        budget_tokens: Of the view's text, at least 100; default
            ``config.recall.view_budget_tokens``.

    Raises:
        ValueError: A number is out of range, or the id is no text.
        NotFound: There is no such record: unknown, erased or expired.
        Conflict: Several threads have one; the message names them.
            *Cancellation*: safe.
    """
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
    return MessageView(
        target=found.target,
        before=found.before,
        after=found.after,
        snapshots_before=found.snapshots_before,
        snapshots_after=found.snapshots_after,
        last_seq=found.last_seq,
        budget_tokens=budget,
        count=config.conversation.count,
    )


def _budget(tokens: int) -> int:
    return whole_number("budget_tokens", tokens, LEAST_BUDGET)


# ── Making it fit ────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Piece:
    """
    The forms in which a record or a snapshot can be shown.

    Attributes:
        first, last: The seqs it stands for.
        forms: From the whole to the shortest; *form* is the one that is shown, and past
            the last one the piece is dropped.
        sizes: Bytes of each with its line break, and 0.
    """

    first: int
    last: int
    forms: tuple[str, ...]
    is_snapshot: bool = False
    form: int = 0
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = (*(size(form) + 1 for form in self.forms), 0)

    @property
    def is_dropped(self) -> bool:
        return self.form == len(self.forms)

    @property
    def size(self) -> int:
        return self.sizes[self.form]


@dataclass(slots=True)
class _Side:
    """One side of the target; *pieces* from the nearest to the farthest."""

    word: str
    messages: list[_Piece]
    snapshots: list[_Piece]

    @property
    def pieces(self) -> list[_Piece]:
        return [*self.messages, *self.snapshots]

    @property
    def note(self) -> str:
        """The note on what is missing on this side; empty: nothing."""
        gone = [piece for piece in self.pieces if piece.is_dropped]
        if not gone:
            return ""
        counts = _counted(self.word, gone)
        first, last = min(p.first for p in gone), max(p.last for p in gone)
        seqs = str(first) if first == last else f"{first}..{last}"
        return f"… {counts} not shown ({seqs})"


def _counted(word: str, gone: Sequence[_Piece]) -> str:
    snapshots = sum(piece.is_snapshot for piece in gone)
    counts = [(len(gone) - snapshots, "message"), (snapshots, "snapshot")]
    told = [f"{n} {word} {noun}{'' if n == 1 else 's'}" for n, noun in counts if n]
    return " and ".join(told)


@dataclass(slots=True)
class _Page:
    """A view on its way to its budget, in bytes."""

    view: MessageView
    bytes: int
    earlier: _Side
    later: _Side
    target: str = ""
    target_size: int = 0
    used: int = 0
    notes: bool = True

    @classmethod
    def of(cls, view: MessageView, bytes: int) -> _Page:
        """Everything whole."""
        before = [_neighbour(record) for record in reversed(view.before)]
        after = [_neighbour(record) for record in view.after]
        ahead = [_compressed(snapshot) for snapshot in reversed(view.snapshots_before)]
        behind = [_compressed(snapshot) for snapshot in view.snapshots_after]
        page = cls(
            view=view,
            bytes=bytes,
            earlier=_Side("earlier", before, ahead),
            later=_Side("later", after, behind),
        )
        page._show(told_whole(view.target))
        page.used = sum(piece.size for side in page.sides for piece in side.pieces)
        return page

    @property
    def sides(self) -> tuple[_Side, _Side]:
        return self.earlier, self.later

    def text(self) -> str:
        """The page, shrunk as far as it takes."""
        for piece in self._shrinking():
            if self._fits():
                break
            self.used -= piece.size
            piece.form += 1
            self.used += piece.size
        if not self._fits():
            self._cut_target()
        return self._written()

    def _shrinking(self) -> Iterator[_Piece]:
        """Pieces in the order in which each is to lose one form."""
        snapshots = list(_farthest_first(self.earlier.snapshots, self.later.snapshots))
        messages = list(_farthest_first(self.earlier.messages, self.later.messages))
        yield from snapshots
        yield from (piece for piece in messages if len(piece.forms) > 1)
        yield from messages
        yield from snapshots

    def _show(self, text: str) -> None:
        line = line_of(self.view.target, indented(text), last_seq=self.view.last_seq)
        self.target = f"→ {line}"
        self.target_size = size(self.target)

    def _fits(self) -> bool:
        frame = (self.target_size if line is None else size(line) for line in self._frame())
        return self.used + sum(length + 1 for length in frame) - 1 <= self.bytes

    def _frame(self) -> Iterator[str | None]:
        """Every line that is not a piece's; ``None`` stands for the target."""
        view = self.view
        yield f"── recalled from: {cut_bytes(view.target.session_id, max(24, self.bytes // 16))} ──"
        if any(not piece.is_dropped for piece in self.earlier.snapshots):
            yield "── PREVIOUS CONTEXT (compressed) ──"
        seqs = [record.seq for record in (*view.before, view.target, *view.after)]
        last = max(*seqs, view.last_seq) if view.target.kind == "snapshot" else seqs[-1]
        yield f"── FULL CONTEXT (messages {min(seqs)}..{last}) ──"
        if self.notes and self.earlier.note:
            yield self.earlier.note
        yield None
        if self.notes and self.later.note:
            yield self.later.note
        if any(not piece.is_dropped for piece in self.later.snapshots):
            yield "── FOLLOWING CONTEXT (compressed) ──"

    def _written(self) -> str:
        lines: list[str] = []
        for line in self._frame():
            if line is None:
                lines += _shown(reversed(self.earlier.messages))
                lines += [self.target, *_shown(self.later.messages)]
                continue
            lines.append(line)
            if line.startswith("── PREVIOUS"):
                lines += _shown(reversed(self.earlier.snapshots))
        return "\n".join([*lines, *_shown(self.later.snapshots)])

    def _cut_target(self) -> None:
        """Leave out of its middle what is too much; its head and tail stay."""
        whole = told_whole(self.view.target)
        low, high = 0, len(whole)
        self._keep(whole, 0)
        if not self._fits():
            self.notes = False
        while low < high:
            middle = (low + high + 1) // 2
            self._keep(whole, middle)
            low, high = (middle, high) if self._fits() else (low, middle - 1)
        self._keep(whole, low)

    def _keep(self, whole: str, characters: int) -> None:
        head, left_out = (characters + 1) // 2, len(whole) - characters
        tail = whole[len(whole) - characters // 2 :]
        text = f"{whole[:head]} … [{left_out} characters left out] … {tail}"
        self._show(text if left_out else whole)


def _neighbour(record: Record) -> _Piece:
    text = told(record)
    short = text if len(text) <= SHORTENED else text[: SHORTENED - 1].rstrip() + "…"
    forms = dict.fromkeys("  " + line_of(record, indented(form)) for form in (text, short))
    return _Piece(record.seq, record.seq, tuple(forms))


def _compressed(snapshot: Snapshot) -> _Piece:
    head = range_line(snapshot)
    text = "\n".join("  " + line for line in without_marks(snapshot.text).splitlines())
    return _Piece(snapshot.from_seq, snapshot.to_seq, (f"{head}\n{text}", head), is_snapshot=True)


def _farthest_first(earlier: Sequence[_Piece], later: Sequence[_Piece]) -> Iterator[_Piece]:
    """Both from the nearest on; at equal distance the earlier one first."""
    for distance in reversed(range(max(len(earlier), len(later)))):
        for side in (earlier, later):
            if distance < len(side):
                yield side[distance]


def _shown(pieces: Iterator[_Piece] | Sequence[_Piece]) -> list[str]:
    return [piece.forms[piece.form] for piece in pieces if not piece.is_dropped]


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
    return f"{_SPEAKERS.get(record.kind, record.kind)}: "


def told(record: Record) -> str:
    """Render a neighbour: speech in full, tool traffic in outline."""
    if record.kind == "tool_result":
        return f"{len(record.text)} characters"
    return "\n".join(_parts(record, ARGUMENTS))


def told_whole(record: Record) -> str:
    """Render the target in full."""
    if record.kind == "tool_result":
        return f"{len(record.text)} characters: {record.text}"
    return "\n".join(_parts(record, None))


def _parts(record: Record, arguments: int | None) -> Iterator[str]:
    if record.kind != "tool_call":
        yield record.text
    if record.kind == "thought":
        return
    for call in record.tool_calls:
        if call.name != THINKING_TOOL or record.kind == "tool_call":
            yield _call(call, arguments)


def _call(call: ToolCall, most: int | None) -> str:
    arguments = _written(call.arguments)
    if most is not None and len(arguments) > most:
        arguments = arguments[: most - 1] + "…"
    return f"Tool: {cut_bytes(call.name, WHO)}({arguments})"


def _written(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(", ", ": "))


def range_line(snapshot: Snapshot) -> str:
    """Render the head of a snapshot."""
    when = snapshot.said_from.date().isoformat()
    seqs = f"{snapshot.from_seq}..{snapshot.to_seq}"
    return f"[L{snapshot.level} snapshot, messages {seqs}, {when}]"

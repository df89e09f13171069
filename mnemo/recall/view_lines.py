"""How records and snapshots are written in a view: one line each, which no text can forge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mnemo.runtime.text import one_line
from mnemo.transcript.derived import Snapshot
from mnemo.transcript.message import THINKING_TOOL, ToolCall
from mnemo.transcript.records import Record
from mnemo.transcript.untrusted import without_marks

__all__ = ["cut_bytes", "indented", "line_of", "range_line", "size", "told", "told_whole"]

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


def size(text: str) -> int:
    """Bytes of UTF-8, by which tokens are estimated."""
    return len(text.encode("utf-8", "replace"))


def cut_bytes(text: str, most: int) -> str:
    """*text* on one line, of at most *most* bytes; ``…`` where it was cut."""
    text = without_marks(one_line(text))
    if size(text) <= most:
        return text
    kept = text.encode("utf-8", "replace")[: max(most - 3, 0)].decode("utf-8", "ignore")
    return kept.rstrip() + "…"


def indented(text: str) -> str:
    """*text*, without marks, with every line after the first indented, whatever ends its lines."""
    return _INDENT.join(without_marks(text).splitlines())


def line_of(target: Record, text: str, *, last_seq: int | None = None) -> str:
    """What a record is introduced by, before its *text*."""
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
    """What a neighbour is shown by: speech in full, tool traffic by its outline."""
    if record.kind == "tool_result":
        return f"{len(record.text)} characters"
    return "\n".join(_parts(record, ARGUMENTS))


def told_whole(record: Record) -> str:
    """What the target is shown by: everything."""
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
    """What a snapshot is introduced by."""
    when = snapshot.said_from.date().isoformat()
    seqs = f"{snapshot.from_seq}..{snapshot.to_seq}"
    return f"[L{snapshot.level} snapshot, messages {seqs}, {when}]"

"""What the tests of the window share: messages as they stand in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mnemo.transcript.message import Message, StoredMessage, ToolCall

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stored(message: Message, seq: int, thread_id: str = "t", **fields: Any) -> StoredMessage:
    """*message* as it stands at *seq*."""
    values = {name: getattr(message, name) for name in Message.__slots__}
    values["id"] = values["id"] or f"m{seq}"
    values["token_count"] = values["token_count"] or 100
    values["at"] = values["at"] or START
    kept = {"epoch": 0, "recorded_at": START, **fields}
    return StoredMessage(**values, thread_id=thread_id, seq=seq, **kept)


def said(text: str = "hello", *, tokens: int = 100, role: str = "user", **fields: Any) -> Message:
    """Something said, of *tokens* tokens."""
    return Message(role=role, content=text, token_count=tokens, **fields)


def called(*ids: str, tokens: int = 100, text: str | None = None, name: str = "look") -> Message:
    """A message that makes calls."""
    calls = [ToolCall(id, name, {"q": f"arguments of {id}"}) for id in ids]
    return Message(role="assistant", content=text, tool_calls=calls, token_count=tokens)


def answered(id: str, *, tokens: int = 100, text: str = "found it", **fields: Any) -> Message:
    """A result."""
    return Message(role="tool", content=text, tool_call_id=id, token_count=tokens, **fields)


def thread_of(messages: Sequence[Message], **fields: Any) -> list[StoredMessage]:
    """*messages* as they stand in a thread from seq 0 on."""
    return [stored(message, seq, **fields) for seq, message in enumerate(messages)]

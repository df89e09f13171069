"""Read what Claude writes: the account's ``conversations.json``, and Claude Code's transcripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mnemo import Message, ToolCall
from mnemo.cli.importing.records import (
    Broken,
    Item,
    Record,
    Skipped,
    list_of,
    mapping_of,
    named,
    optional_text,
    time_of,
)
from mnemo.runtime.text import is_blank

_LINE_TYPES = frozenset({"user", "assistant", "system", "summary"})


def is_claude(raw: Any) -> bool:
    """Whether *raw* looks like one conversation of the account's export."""
    return isinstance(raw, Mapping) and isinstance(raw.get("chat_messages"), list)


def claude(raw: Any, place: str) -> Iterator[Item]:
    """Read one conversation; attachments stand as text behind what was said with them."""
    conversation = mapping_of(raw)
    thread = f"claude/{named(conversation, 'uuid')}"
    title = optional_text(conversation, "name")
    metadata = {"title": title} if title else {}
    for number, given in enumerate(list_of(conversation, "chat_messages"), 1):
        where = f"{place}, message {number}"
        try:
            yield from _chat_message(mapping_of(given), thread, metadata, where)
        except ValueError as error:
            yield Broken(where, str(error))


def _chat_message(
    raw: Mapping[str, Any], thread: str, metadata: Mapping[str, Any], place: str
) -> Iterator[Item]:
    roles = {"human": "user", "user": "user", "assistant": "assistant"}
    role = roles.get(str(raw.get("sender")))
    if role is None:
        raise ValueError(f"has the sender {raw.get('sender')!r:.40}")
    blocks = list_of(raw, "content") or [{"type": "text", "text": raw.get("text") or ""}]
    turn = _Turn(role, named(raw, "uuid"), time_of(raw.get("created_at")), metadata)
    messages = turn.messages([*blocks, *_attachments(raw)])
    if not messages:
        yield Skipped(place, "empty")
    for message in messages:
        yield Record(thread, message, place)


def _attachments(raw: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was attached, as blocks of text; of files only the name is in the export."""
    for one in list_of(raw, "attachments"):
        name = optional_text(mapping_of(one), "file_name") or "without a name"
        text = optional_text(one, "extracted_content")
        yield {"type": "text", "text": f"[attachment {name}]" + (f"\n{text}" if text else "")}
    for one in list_of(raw, "files") + list_of(raw, "files_v2"):
        name = optional_text(mapping_of(one), "file_name") or "without a name"
        yield {"type": "text", "text": f"[file {name}]"}


# ── Claude Code ──────────────────────────────────────────────────────────────────────────


def is_claude_code(raw: Any) -> bool:
    """Whether *raw* looks like one line of a transcript."""
    if not isinstance(raw, Mapping) or "type" not in raw:
        return False
    return "sessionId" in raw or {"type", "leafUuid"} <= raw.keys()


def claude_code(raw: Any, place: str) -> Iterator[Item]:
    """Read one line; a subagent's lines go into a thread of their own."""
    line = mapping_of(raw)
    kind = line.get("type")
    if kind not in ("user", "assistant"):
        known = kind if isinstance(kind, str) else "no type"
        yield Skipped(place, f"bookkeeping ({known:.40})")
        return
    if line.get("isMeta") or line.get("isApiErrorMessage"):
        yield Skipped(place, "written by the program")
        return
    message = mapping_of(line.get("message"), 'has a "message" that is')
    thread = f"claude-code/{named(line, 'sessionId')}"
    if line.get("isSidechain"):
        thread += f"/agent-{optional_text(line, 'agentId') or 'unnamed'}"
    given = message.get("content")
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
    if not isinstance(blocks, list):
        raise ValueError('has a message whose "content" is neither text nor a list')
    kept = {"cwd": line.get("cwd"), "branch": line.get("gitBranch"), "model": message.get("model")}
    turn = _Turn(
        kind,
        named(line, "uuid"),
        time_of(line.get("timestamp")),
        {name: value for name, value in kept.items() if isinstance(value, str)},
    )
    messages = turn.messages(blocks)
    if not messages:
        yield Skipped(place, "empty, or reasoning alone")
    for one in messages:
        yield Record(thread, one, place)


# ── Blocks ───────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Turn:
    """
    The messages of one turn's blocks: words and calls together, each result on its own.

    Attributes:
        id: Of the first message; the others have it with a number.
    """

    role: str
    id: str
    at: datetime | None
    metadata: Mapping[str, Any]
    made: list[Message] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    called: list[str] = field(default_factory=list)

    def messages(self, blocks: list[Any]) -> list[Message]:
        """Read *blocks*; thinking is left out. *Raises* ``ValueError``: one is no block."""
        for block in map(mapping_of, blocks):
            kind = block.get("type")
            if kind == "text":
                self._text(optional_text(block, "text") or "")
            elif kind in ("tool_use", "server_tool_use"):
                self._call(block)
            elif kind == "tool_result" or str(kind).endswith("_tool_result"):
                self._result(block)
            elif kind not in ("thinking", "redacted_thinking", "token_budget", "flag"):
                self._text(f"[{kind}]")
        self._flush()
        return self.made

    def _text(self, text: str) -> None:
        if self.calls:
            self._flush()
        self.words.append(text)

    def _call(self, block: Mapping[str, Any]) -> None:
        place = len(self.called) + 1
        id = optional_text(block, "id") or f"{self.id}-call-{place}"
        name = optional_text(block, "name") or "unnamed"
        self.called.append(id)
        self.calls.append(ToolCall(id, name, block.get("input") or {}))

    def _result(self, block: Mapping[str, Any]) -> None:
        self._flush()
        answered = {message.tool_call_id for message in self.made}
        waiting = (id for id in self.called if id not in answered)
        id = optional_text(block, "tool_use_id") or next(waiting, f"{self.id}-call")
        self._add(
            "tool",
            _result_text(block.get("content")),
            tool_call_id=id,
            is_error=block.get("is_error") is True,
            name=optional_text(block, "name"),
        )

    def _flush(self) -> None:
        text = "\n\n".join(word for word in self.words if not is_blank(word))
        if text or self.calls:
            self._add(self.role, text or None, tool_calls=self.calls)
        self.words, self.calls = [], []

    def _add(self, role: str, content: str | None, **fields: Any) -> None:
        place = len(self.made)
        self.made.append(
            Message(
                role,  # type: ignore[arg-type]
                content,
                id=f"{self.id}#{place}" if place else self.id,
                at=self.at,
                metadata=self.metadata,
                **fields,
            )
        )


def _result_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False)
    parts = (one if isinstance(one, Mapping) else {"text": str(one)} for one in content)
    return "\n".join(optional_text(part, "text") or f"[{part.get('type')}]" for part in parts)

"""
The model's input in an update: a private copy of the conversation, then the question.

Requests begin with the very messages of the task, so that the provider's prompt cache is
used; the question comes in one message behind them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mnemo.config import NotesConfig
from mnemo.notes.guards import redact
from mnemo.prompts.update_notes import INSTRUCTION_MARK
from mnemo.protocols import ChatMessage, ChatModel, Purpose
from mnemo.runtime.text import count_tokens, is_blank
from mnemo.runtime.validation import every
from mnemo.values.messages import Message, ToolCall, answered_ids
from mnemo.wire import messages_of

PURPOSE: Purpose = "update_notes"
MOST_MESSAGES = 10_000
"""Messages of a history, at most: it is copied on the event loop (S)."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Leading messages of each request; *reused*: the task's own, unchanged and in order."""

    messages: tuple[ChatMessage, ...]
    reused: bool


def copied(history: Sequence[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """
    Deep copy of *history* as messages, without a trailing tool call that lacks answers.

    Raises:
        ValueError: It is no sequence of messages, or has more than ``MOST_MESSAGES``.
    """
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Sequence):
        raise ValueError(f"history must be a sequence of messages, not {type(history).__name__}")
    return _answered(tuple(map(_own, messages_of(every("history", history, MOST_MESSAGES)))))


def _own(message: Message) -> Message:
    """Copy *message* field by field: ``deepcopy`` would block the event loop."""
    copy = object.__new__(type(message))
    for name in message.__dataclass_fields__:
        object.__setattr__(copy, name, _unshared(getattr(message, name)))
    return copy


def _unshared(value: Any) -> Any:
    if value is None or isinstance(value, str | int | datetime):
        return value
    return deepcopy(value) if value else type(value)()


def _answered(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Drop a trailing tool call that lacks answers."""
    at = len(messages)
    while at and messages[at - 1].role == "tool":
        at -= 1
    if not at or not messages[at - 1].tool_calls:
        return messages
    answers = {id for message in messages[at:] for id in answered_ids(message)}
    if all(call.id in answers for call in messages[at - 1].tool_calls):
        return messages
    return messages[: at - 1]


def carries_instruction(messages: Sequence[Message]) -> bool:
    """Whether *messages* contain the question of an update."""
    return any(m.role == "user" and m.text.startswith(INSTRUCTION_MARK) for m in messages)


def asks_elsewhere(model: ChatModel) -> bool:
    """Whether *model* sends updates of notes to another model by an override."""
    model_for = getattr(model, "model_for", None)
    return callable(model_for) and model_for(PURPOSE) != getattr(model, "model", None)


def redacted(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Redact secrets in the texts and tool calls of *messages*."""
    return tuple(_without_secrets(message) for message in messages)


def _without_secrets(message: Message) -> Message:
    content = message.content
    if content is not None:
        content = redact(content) if isinstance(content, str) else _hidden(content)
    calls = tuple(ToolCall(c.id, c.name, _hidden(c.arguments)) for c in message.tool_calls)
    return replace(message, content=content, tool_calls=calls, extra=None)


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    return value


def prefix(
    messages: Sequence[Message], *, fresh_from: int, instruction: str, config: NotesConfig
) -> Prefix:
    """
    Choose the leading messages of an update's requests.

    All of *messages*, if they are estimated to fit the room of one turn. Otherwise the
    system message and the new part, less of its oldest groups until that fits.

    Args:
        fresh_from: Where the new part begins.
    """
    room = config.max_total_tokens // config.max_turns - count_tokens(instruction)
    whole = tuple(_chat(message) for message in messages)
    if _estimate(whole) <= room:
        return Prefix(whole, reused=True)
    system = [_chat(m) for m in messages[:1] if m.role == "system"]
    start = max(fresh_from, len(system))
    groups = _newest(_groups(messages[start:]), room - _estimate(system))
    return Prefix((*system, *_flat(groups)), reused=False)


def _newest(groups: list[list[ChatMessage]], room: int) -> list[list[ChatMessage]]:
    """The latest of *groups* that fit *room* together; the last one in any case."""
    first = len(groups)
    while first > 0:
        room -= _estimate(groups[first - 1])
        if room < 0 and first < len(groups):
            break
        first -= 1
    return groups[first:]


def _groups(messages: Sequence[Message]) -> list[list[ChatMessage]]:
    """Group messages: each tool call with its answers."""
    groups: list[list[ChatMessage]] = []
    for message in messages:
        if message.role == "tool":
            if groups:
                groups[-1].append(_chat(message))
        else:
            groups.append([_chat(message)])
    return groups


def _flat(groups: Sequence[Sequence[ChatMessage]]) -> list[ChatMessage]:
    return [message for group in groups for message in group]


def _estimate(messages: Sequence[ChatMessage]) -> int:
    return sum(tokens_of(message) for message in messages)


def tokens_of(message: ChatMessage) -> int:
    """Estimated input tokens of *message*."""
    tokens = count_tokens(message.content)
    if message.tool_calls:
        calls = [dict(call) for call in message.tool_calls]
        tokens += count_tokens(json.dumps(calls, default=str))
    return tokens


def _chat(message: Message) -> ChatMessage:
    content = message.content
    if not isinstance(content, str):
        texts = [b["text"] for b in content or () if isinstance(b.get("text"), str)]
        content = "\n".join(texts)
    if is_blank(content) and message.kind == "thought" and not message.tool_calls:
        content = message.text
    return ChatMessage(
        message.role,
        content,
        tool_calls=tuple(
            {"id": call.id, "name": call.name, "arguments": deepcopy(call.arguments)}
            for call in message.tool_calls
        ),
        tool_call_id=message.tool_call_id,
    )

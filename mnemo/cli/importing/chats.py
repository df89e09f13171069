"""
Read a file of a chat into messages, for ``import --thread`` and ``notes update``.

The formats of ``dialogues.py``, and besides: chat completions' messages with their tool
calls, lists of them, ``{"messages": […]}``, and what ``history --json`` prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from mnemo import Message, ToolCall
from mnemo.cli.importing.json_stream import BadLine, ImportFileError, stream_values
from mnemo.cli.importing.records import iso_time, optional_name

SIDES = {
    "agent": "assistant",
    "ai": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "developer": "system",
    "system": "system",
    "function": "tool",
    "tool": "tool",
}
"""Whose words they are → the role; everybody else is a user."""
OWN = frozenset(f.name for f in fields(Message)) - {"role", "content", "metadata", "at"}
OF_THE_STORE = frozenset({"thread_id", "seq", "epoch", "recorded_at"})
"""What a stored message has besides; given anew by who stores it."""


def stream_messages(file: Path) -> Iterator[Message]:
    """
    Read *file* up to its first mistake; a message without an id gets one by its place.

    Raises:
        ImportFileError: Behind what stands complete before the mistake.
    """
    with closing(stream_values(file, unwraps=False)) as values:
        for value in values:
            if isinstance(value, BadLine):
                raise value.on(file)
            try:
                messages = messages_of(value.raw, f"{file.stem}#{value.number}")
            except ValueError as error:
                raise value.mistake(str(error), file) from error
            yield from messages


def read_chat(file: Path) -> tuple[Message, ...]:
    """All messages of *file*. *Raises* ``ImportFileError``: there is a mistake anywhere in it."""
    try:
        return tuple(stream_messages(file))
    except ImportFileError as error:
        raise error.having_kept(0) from error


def messages_of(value: Any, place: str) -> list[Message]:
    """The messages of one value, all or none. *Raises* ``ValueError``."""
    if not isinstance(value, Mapping):
        raise ValueError("is no JSON object")
    for several in ("messages", "turns"):
        if isinstance(value.get(several), list):
            within = optional_name(value, "id") or place
            given = enumerate(value[several], 1)
            return [m for n, raw in given for m in _numbered(raw, n, f"{within}#{n}")]
    return list(_of_one(value, place))


def _numbered(raw: Any, number: int, place: str) -> list[Message]:
    try:
        if not isinstance(raw, Mapping):
            raise ValueError("is no JSON object")
        return list(_of_one(raw, place))
    except ValueError as error:
        raise ValueError(f"message {number}: {error}") from error


def _of_one(raw: Mapping[str, Any], place: str) -> Iterator[Message]:
    id = optional_name(raw, "id") or place
    if "observation" not in raw and "action" not in raw:
        yield _message(raw, id)
        return
    at = iso_time(raw.get("at"))
    if raw.get("observation"):
        actor = raw.get("actor")
        yield Message("user", raw["observation"], id=f"{id}/observation", actor=actor, at=at)
    if raw.get("action"):
        yield Message("assistant", raw["action"], id=f"{id}/action", at=at)


def _message(raw: Mapping[str, Any], id: str) -> Message:
    speaker = raw.get("role", raw.get("speaker"))
    if not isinstance(speaker, str):
        raise ValueError('has no "role" or "speaker"')
    if "content" not in raw and "text" not in raw and not raw.get("tool_calls"):
        raise ValueError('has no "text" or "content"')
    role = SIDES.get(speaker.casefold(), "user")
    known = {name: raw[name] for name in OWN & raw.keys() if raw[name] is not None}
    if speaker.casefold() not in {*SIDES, "user", "human"}:
        known.setdefault("actor", speaker)
    return Message(
        role=role,  # type: ignore[arg-type]
        content=raw.get("content", raw.get("text")),
        at=iso_time(raw.get("at")),
        metadata=_others(raw),
        **known | {"id": id, "tool_calls": _calls(raw.get("tool_calls"))},
    )


def _others(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a message has no place for, so that nothing is dropped."""
    taken = OWN | OF_THE_STORE | {"role", "speaker", "content", "text", "at", "metadata"}
    given = raw.get("metadata") or {}
    if not isinstance(given, Mapping):
        raise ValueError("metadata must be a JSON object")
    return {name: value for name, value in raw.items() if name not in taken} | dict(given)


def _calls(given: Any) -> list[Any]:
    """Calls as they are kept, whether or not they come as chat completions have them."""
    if given is not None and not isinstance(given, list):
        raise ValueError("tool_calls must be a list of calls")
    return [_call(one) for one in given or ()]


def _call(given: Any) -> Any:
    function = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping):
        return given
    return ToolCall(given.get("id", ""), function.get("name", ""), _arguments(function))


def _arguments(function: Mapping[str, Any]) -> Any:
    written = function.get("arguments") or {}
    if not isinstance(written, str):
        return written
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return written  # as the model wrote them

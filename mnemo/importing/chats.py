"""
Read chats into messages: of ``import --thread`` and ``notes update``, of ChatGPT and Claude.

The formats of ``dialogues.py``, and besides: chat completions' messages with their tool
calls, lists of them, ``{"messages": […]}``, and what ``history --json`` prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from mnemo import Message, ToolCall
from mnemo.importing.dialogues import required_text
from mnemo.importing.json_stream import ImportFileError, OnRead, sound_values
from mnemo.importing.records import (
    Item,
    LeftOut,
    Record,
    Skipped,
    iso_time,
    list_of,
    mapping_of,
    named,
    optional_name,
    optional_text,
    read_at,
    time_of,
)
from mnemo.runtime.text import is_blank

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


def stream_messages(file: Path, on_read: OnRead = lambda count: None) -> Iterator[Message]:
    """Read up to the first mistake (``ImportFileError``); places stand for ids that lack."""
    with closing(sound_values(file, on_read)) as values:
        for value in values:
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
    for several in ("messages", "turns"):
        if isinstance(mapping_of(value).get(several), list):
            within = optional_name(value, "id") or place
            given = enumerate(value[several], 1)
            return [m for n, raw in given for m in _numbered(raw, n, f"{within}#{n}")]
    return list(_of_one(value, place))


def _numbered(raw: Any, number: int, place: str) -> list[Message]:
    try:
        return list(_of_one(mapping_of(raw), place))
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
    speaker, calls = required_text(raw, "role", "speaker"), raw.get("tool_calls") or ()
    if "content" not in raw and "text" not in raw and not calls:
        raise ValueError('has no "text" or "content"')
    role = SIDES.get(speaker.casefold(), "user")
    calls = [*map(_call, calls)] if isinstance(calls, list) else calls
    known = {name: raw[name] for name in OWN & raw.keys() if raw[name] is not None}
    if speaker.casefold() not in {*SIDES, "user", "human"}:
        known.setdefault("actor", speaker)
    return Message(
        role=role,  # type: ignore[arg-type]
        content=raw.get("content", raw.get("text")),
        at=iso_time(raw.get("at")),
        metadata=_others(raw),
        **known | {"id": id, "tool_calls": calls},
    )


def _others(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a message has no place for, so that nothing is dropped."""
    taken = OWN | OF_THE_STORE | {"role", "speaker", "content", "text", "at", "metadata"}
    given = raw.get("metadata") or {}
    if not isinstance(given, Mapping):
        raise ValueError("metadata must be a JSON object")
    return {name: value for name, value in raw.items() if name not in taken} | dict(given)


def _call(given: Any) -> Any:
    """A call as it is kept, whether or not it comes as chat completions have it."""
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


# ── ChatGPT ─────────────────────────────────────────────────────────────────────────────


_HIDDEN = frozenset({"thoughts", "reasoning_recap", "model_editable_context", "system_error"})
"""Contents that nobody said: the model's reasoning and its own settings."""


def chatgpt(conversation: Mapping[str, Any], place: str) -> Iterator[Item]:
    """
    Read one conversation: the branch that ends at ``current_node``.

    An edited prompt and a regenerated answer are branches of their own; those that were left
    are skipped, and counted.
    """
    nodes = mapping_of(conversation.get("mapping"), 'has a "mapping" that is')
    branch = _branch(nodes, conversation.get("current_node"))
    thread = f"chatgpt/{named(conversation, 'conversation_id', 'id')}"
    title, calls = optional_text(conversation, "title"), list[str]()
    at = time_of(conversation.get("create_time"))
    for id in branch:
        raw, where = nodes[id].get("message"), f"{place}, message {id}"
        if raw is None:
            continue
        for item in read_at(where, _chatgpt_message, raw, thread, title, at, calls):
            at = item.message.at if isinstance(item, Record) else at
            yield item
    left = sum(1 for id, node in nodes.items() if id not in branch and _has_text(node))
    if left:
        yield Skipped(place, f"{left} messages on branches that were left (edits, regenerations)")


def _branch(nodes: Mapping[str, Any], leaf: Any) -> dict[str, None]:
    """The ids from the root to *leaf*; without one, to the last node that has no children."""
    if not isinstance(leaf, str) or leaf not in nodes:
        ends = [id for id, node in nodes.items() if not list_of(mapping_of(node), "children")]
        if not ends:
            raise ValueError('has no "current_node", and no last message either')
        leaf = ends[-1]
    found: dict[str, None] = {}
    while isinstance(leaf, str) and leaf in nodes:
        if leaf in found:
            raise ValueError(f"has messages that are each other's parents: {leaf!r:.60}")
        found[leaf] = None
        leaf = mapping_of(nodes[leaf], "has a message that is").get("parent")
    return dict.fromkeys(reversed(found))


def _chatgpt_message(
    raw: Mapping[str, Any],
    place: str,
    thread: str,
    title: str | None,
    before: datetime | None,
    calls: list[str],
) -> Iterator[Record]:
    """
    The message; without a time it is as old as the one *before* it.

    *calls* are ids of calls that wait for their results.
    """
    author = mapping_of(raw.get("author") or {}, "has an author that is")
    content = mapping_of(raw.get("content") or {}, "has a content that is")
    metadata = mapping_of(raw.get("metadata") or {}, "has metadata that are")
    if str(content.get("content_type")) in _HIDDEN or raw.get("channel") == "commentary":
        raise LeftOut("reasoning")
    if metadata.get("is_visually_hidden_from_conversation"):
        raise LeftOut("hidden")
    text = _text(content)
    if is_blank(text):
        raise LeftOut("empty")
    kept = {"title": title, "model": metadata.get("model_slug")}
    id, role, recipient = named(raw, "id"), str(author.get("role")), raw.get("recipient")
    said: dict[str, Any] = {
        "content": text,
        "id": id,
        "at": time_of(raw.get("create_time")) or before,
        "metadata": {name: value for name, value in kept.items() if value},
    }
    if role == "assistant" and isinstance(recipient, str) and recipient != "all":
        calls.append(id)
        said |= {"content": None, "tool_calls": [ToolCall(id, recipient, {"text": text})]}
    elif role == "tool":
        said["tool_call_id"] = calls.pop(0) if calls else f"{id}-call"
        said["name"] = author.get("name") or None
    elif role not in ("user", "assistant", "system"):
        raise ValueError(f"has an author of the role {role!r:.40}")
    yield Record(thread, Message(role, **said), place)  # type: ignore[arg-type]


def _has_text(node: Any) -> bool:
    raw = node.get("message") if isinstance(node, Mapping) else None
    content = raw.get("content") if isinstance(raw, Mapping) else None
    return isinstance(content, Mapping) and not is_blank(_text(content))


def _text(content: Mapping[str, Any]) -> str:
    """The words of a content of any type; an image or file stands as its name in brackets."""
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n".join(filter(None, map(_part, parts)))
    if content.get("content_type") == "user_editable_context":
        fields = (content.get("user_profile"), content.get("user_instructions"))
        return "\n".join(one for one in fields if isinstance(one, str))
    return optional_text(content, "text", "result") or ""


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    said = optional_text(part, "text")
    if said:
        return said
    kind = str(part.get("content_type", "attachment")).removesuffix("_asset_pointer")
    return f"[{kind} {part.get('asset_pointer') or part.get('name') or ''}".rstrip() + "]"


# ── Claude and Claude Code ──────────────────────────────────────────────────────────────


def claude(conversation: Mapping[str, Any], place: str) -> Iterator[Item]:
    """Read one conversation; attachments stand as text behind what was said with them."""
    thread = f"claude/{named(conversation, 'uuid')}"
    title = optional_text(conversation, "name")
    metadata = {"title": title} if title else {}
    for number, given in enumerate(list_of(conversation, "chat_messages"), 1):
        yield from read_at(f"{place}, message {number}", _chat_message, given, thread, metadata)


def _chat_message(
    raw: Mapping[str, Any], place: str, thread: str, metadata: Mapping[str, Any]
) -> Iterator[Record]:
    roles = {"human": "user", "user": "user", "assistant": "assistant"}
    role = roles.get(str(raw.get("sender")))
    if role is None:
        raise ValueError(f"has the sender {raw.get('sender')!r:.40}")
    blocks = list_of(raw, "content") or [{"type": "text", "text": raw.get("text") or ""}]
    id, at = named(raw, "uuid"), time_of(raw.get("created_at"))
    turn = _turn([*blocks, *_attachments(raw)], role, id, "empty", at=at, metadata=metadata)
    yield from [Record(thread, one, place) for one in turn]


def _attachments(raw: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was attached, as blocks of text; of files only the name is in the export."""
    files = list_of(raw, "files") + list_of(raw, "files_v2")
    for kind, several in (("attachment", list_of(raw, "attachments")), ("file", files)):
        for one in several:
            name = optional_text(mapping_of(one), "file_name") or "without a name"
            text = optional_text(one, "extracted_content")
            yield {"type": "text", "text": f"[{kind} {name}]" + (f"\n{text}" if text else "")}


# ── Claude Code ──────────────────────────────────────────────────────────────────────────


def claude_code(line: Mapping[str, Any], place: str) -> Iterator[Record]:
    """Read one line; a subagent's lines go into a thread of their own."""
    kind = line.get("type")
    if kind not in ("user", "assistant"):
        known = kind if isinstance(kind, str) else "no type"
        raise LeftOut(f"bookkeeping ({known:.40})")
    if line.get("isMeta") or line.get("isApiErrorMessage"):
        raise LeftOut("written by the program")
    message = mapping_of(line.get("message"), 'has a "message" that is')
    thread = f"claude-code/{named(line, 'sessionId')}"
    if line.get("isSidechain"):
        thread += f"/agent-{optional_text(line, 'agentId') or 'unnamed'}"
    given = message.get("content")
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
    if not isinstance(blocks, list):
        raise ValueError('has a message whose "content" is neither text nor a list')
    kept = {"cwd": line.get("cwd"), "branch": line.get("gitBranch"), "model": message.get("model")}
    metadata = {name: value for name, value in kept.items() if isinstance(value, str)}
    id, at = named(line, "uuid"), time_of(line.get("timestamp"))
    turn = _turn(blocks, kind, id, "empty, or reasoning alone", at=at, metadata=metadata)
    yield from [Record(thread, one, place) for one in turn]


# ── Blocks ───────────────────────────────────────────────────────────────────────────────


def _turn(blocks: list[Any], role: str, id: str, nothing: str, **common: Any) -> Iterator[Message]:
    """
    The messages of one turn: words and calls together, results apart; thinking is left out.

    *id* is the first one's. *Raises* ``ValueError``: one of *blocks* is no block; ``LeftOut``,
    with *nothing*: there is no message in them.
    """
    made, called = list[dict[str, Any]](), list[str]()
    said: dict[str, Any] | None = None  # the message that words and calls still go to
    for block in map(mapping_of, blocks):
        kind = str(block.get("type"))
        if kind.endswith("tool_result"):
            made.append(_result(block, made, called, f"{id}-call"))
            said = None
            continue
        if kind in ("thinking", "redacted_thinking", "token_budget", "flag"):
            continue
        is_call = kind in ("tool_use", "server_tool_use")
        if said is None or (said["tool_calls"] and not is_call):
            said = {"role": role, "content": [], "tool_calls": []}
            made.append(said)
        if is_call:
            called.append(optional_text(block, "id") or f"{id}-call-{len(called) + 1}")
            name = optional_text(block, "name") or "unnamed"
            said["tool_calls"].append(ToolCall(called[-1], name, block.get("input") or {}))
        else:
            word = optional_text(block, "text") if kind == "text" else f"[{kind}]"
            said["content"] += [word] if word else []
    place = 0
    for one in made:
        if one["role"] != "tool":
            one["content"] = "\n\n".join(one["content"]) or None
        if one["role"] == "tool" or one["content"] or one["tool_calls"]:
            yield Message(id=f"{id}#{place}" if place else id, **one, **common)
            place += 1
    if not place:
        raise LeftOut(nothing)


def _result(
    block: Mapping[str, Any], made: list[dict[str, Any]], called: list[str], other: str
) -> dict[str, Any]:
    """The message of a result: of the call that it names, or the first that waits, or *other*."""
    answered = {one.get("tool_call_id") for one in made}
    waiting = (call for call in called if call not in answered)
    return {
        "role": "tool",
        "content": _result_text(block.get("content")),
        "tool_call_id": optional_text(block, "tool_use_id") or next(waiting, other),
        "is_error": block.get("is_error") is True,
        "name": optional_text(block, "name"),
    }


def _result_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False)
    parts = (one if isinstance(one, Mapping) else {"text": str(one)} for one in content)
    return "\n".join(optional_text(part, "text") or f"[{part.get('type')}]" for part in parts)

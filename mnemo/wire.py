"""
Convert messages from and to the wire formats of OpenAI and Anthropic, without loss.

Three formats: ``openai`` (chat completions), ``responses`` (Responses API and Agents SDK) and
``anthropic`` (Messages API). One item is one ``Message``. Where the fields of a message do not
give the item back exactly, ``Message.extra`` keeps it, so ``to_x(from_x(items))`` equals *items*
as plain JSON. All functions are pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, get_args

from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import instance_of
from mnemo.values.messages import (
    ENVELOPE_FIELDS,
    ITEM_FIELDS,
    Given,
    Item,
    Message,
    Role,
    compact_json,
    listed,
    plain,
    several,
)

__all__ = [
    "Format",
    "Given",
    "from_anthropic",
    "from_openai",
    "from_responses",
    "listed",
    "messages_of",
    "to_anthropic",
    "to_openai",
    "to_responses",
]

Format: TypeAlias = Literal["openai", "responses", "anthropic"]


def from_openai(items: Given | Iterable[Given]) -> list[Message]:
    """
    Messages of chat completions as ``Message`` values, one each.

    Args:
        items: One item or several: mappings, or objects of the SDK.

    Raises:
        ValueError: An item is no JSON object (bytes, NaN, a file), or has no role.
    """
    return [message_of(_OPENAI, item) for item in map(plain, several(items))]


def to_openai(messages: Iterable[Message]) -> list[Item]:
    """
    *messages* as messages of chat completions; an opaque one of another format is left out.

    *Raises* ``ValueError``: one is no ``Message``.
    """
    return [item for message in messages for item in _items(_OPENAI, message)]


def from_responses(items: Given | Iterable[Given]) -> list[Message]:
    """
    Items of the Responses API as ``Message`` values, one each.

    An item without a role and without a call, such as an item reference, becomes an opaque
    message: no content, the item in ``extra``. Arguments and errors: as ``from_openai``.
    """
    return [message_of(_RESPONSES, item) for item in map(plain, several(items))]


def to_responses(messages: Iterable[Message]) -> list[Item]:
    """*messages* as input items of the Responses API; see ``to_openai``."""
    return [item for message in messages for item in _items(_RESPONSES, message)]


def from_anthropic(items: Given | Iterable[Given]) -> list[Message]:
    """
    Messages of Anthropic's Messages API as ``Message`` values, one each.

    A user message with tool results becomes a tool message. It keeps its blocks as content if
    it holds more than one result, and then answers all of them. Arguments and errors: as
    ``from_openai``.
    """
    return [message_of(_ANTHROPIC, item) for item in map(plain, several(items))]


def to_anthropic(messages: Iterable[Message]) -> list[Item]:
    """*messages* as messages of Anthropic's API, ``system`` ones in place; see ``to_openai``."""
    return [item for message in messages for item in _items(_ANTHROPIC, message)]


# --- the three formats ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WireFormat:
    """
    A format.

    Attributes:
        read: An item's fields of ``Message``. *Raises* ``ValueError``: it is no item at all.
        write: A message's items, from its fields alone.
    """

    name: Format
    read: Callable[[Item], dict[str, Any]]
    write: Callable[[Message], list[Item]]


def message_of(wire: WireFormat, item: Item) -> Message:
    """*item* as a message, with the item in ``extra`` if writing it back would change it."""
    message = _expressed(wire.read(item))
    if _is_same(wire.write(message), [item]):
        return message
    return replace(message, extra=json.dumps({"format": wire.name, "item": item}))


def _expressed(values: dict[str, Any]) -> Message:
    """
    The message that has *values*, or as many of them as a message accepts.

    Servers send, and SDKs allow, what our fields refuse: calls without an id, two of one id.
    """
    said = {name: value for name, value in values.items() if name in ("role", "content")}
    for accepted in (values, said):
        with suppress(ValueError):
            return Message(**accepted)
    return Message(role="assistant")


def _items(wire: WireFormat, message: Message) -> list[Item]:
    """*message* in a format: the item it was made from, unless it has changed since."""
    instance_of("a message", message, Message)
    if message.extra is not None:
        kept = json.loads(message.extra)
        if kept["format"] == wire.name and _is_made_of(wire, message, kept["item"]):
            return [kept["item"]]
    return wire.write(message)


def _is_made_of(wire: WireFormat, message: Message, item: Item) -> bool:
    made = message_of(wire, item)
    return all(getattr(made, name) == getattr(message, name) for name in ITEM_FIELDS)


# --- chat completions -------------------------------------------------------------------------


def _read_openai(item: Item) -> dict[str, Any]:
    role = _role(item, "user", "assistant", "system", "developer", "tool", "function")
    values: dict[str, Any] = {"role": _ROLES.get(role, role), "content": item.get("content")}
    if isinstance(item.get("name"), str) and not is_blank(item["name"]):
        values["name"] = item["name"]
    if values["role"] == "tool":
        values["tool_call_id"] = item.get("tool_call_id", item.get("name"))
    if role == "assistant":
        values["tool_calls"] = [*map(_openai_call, item.get("tool_calls") or ())]
        if isinstance(item.get("function_call"), dict):
            # The deprecated form has no id: the result names the function.
            called = item["function_call"]
            values["tool_calls"] += [_call(called.get("name"), called)]
        if isinstance(item.get("refusal"), str) and values["content"] is None:
            values["content"] = item["refusal"]
    return values


_ROLES = {"developer": "system", "function": "tool"}


def _openai_call(given: Any) -> Item:
    if not isinstance(given, dict):
        raise ValueError(f"a tool call is a JSON object, not {given!r:.40}")
    return _call(given.get("id"), given.get("function") or given.get("custom") or {})


def _write_openai(message: Message) -> list[Item]:
    content = _blocks(message.content, _openai_block)
    name = {} if message.name is None else {"name": message.name}
    if message.role == "tool":
        results: list[Item] = [
            {"role": "tool", "tool_call_id": id, "content": _blocks(result, _openai_block)}
            for id, result, _ in _results(message)
        ]
        return results + _said_beside(message, _openai_block)
    if message.role != "assistant":
        return [{"role": message.role, "content": "" if content is None else content, **name}]
    if message.is_opaque:
        return []
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": _written(call.arguments)},
        }
        for call in message.tool_calls
    ]
    return [
        {"role": "assistant", "content": content, **name} | ({"tool_calls": calls} if calls else {})
    ]


# --- Responses --------------------------------------------------------------------------------


def _read_responses(item: Item) -> dict[str, Any]:
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    if not isinstance(kind, str):
        raise ValueError(f"an item's type must be text, not {kind!r:.40}")
    if kind == "message":
        role = _role(item, "user", "assistant", "system", "developer")
        return {"role": _ROLES.get(role, role), "content": item.get("content")}
    if kind == "reasoning":
        return _read_reasoning(item)
    if kind in _RESULTS or kind.endswith("_output"):
        return _read_output(item)
    if kind in _CALLS or (kind.endswith("_call") and isinstance(item.get("call_id"), str)):
        call = _call(item.get("call_id", item.get("id")), {"name": kind} | item)
        return {"role": "assistant", "tool_calls": [call]}
    return {"role": "assistant"}


_CALLS = {"function_call", "custom_tool_call", "mcp_approval_request", "program"}
_RESULTS = {"mcp_approval_response"}


def _read_reasoning(item: Item) -> dict[str, Any]:
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    text = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    return {"role": "assistant"} | ({} if is_blank(text) else {"content": text, "kind": "thought"})


def _read_output(item: Item) -> dict[str, Any]:
    output = item.get("output")
    if isinstance(output, dict):
        output = [output]
    elif isinstance(output, list) and not all(isinstance(part, dict) for part in output):
        output = _written(output)
    names = (item.get(key) for key in ("call_id", "approval_request_id", "id"))
    asked = next((name for name in names if isinstance(name, str)), None)
    return {"role": "tool", "tool_call_id": asked, "content": output}


def _write_responses(message: Message) -> list[Item]:
    if message.role == "tool":
        results: list[Item] = [
            {"type": "function_call_output", "call_id": id, "output": _output(result)}
            for id, result, _ in _results(message)
        ]
        return results + _said_beside(message, _responses_block)
    said: list[Item] = []
    if message.content is not None and message.kind != "thought":
        content = _blocks(message.content, _responses_block)
        if message.role == "assistant" and isinstance(content, list):
            # Blocks of a reply need the id that the server gave it; a text needs none.
            content = "\n".join(part["text"] for part in content if "text" in part)
        said = [{"role": message.role, "content": content}]
    return said + [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": _written(call.arguments),
        }
        for call in message.tool_calls
    ]


def _output(result: Any) -> Any:
    return _blocks(result, _responses_block) or ""


# --- Anthropic --------------------------------------------------------------------------------


def _read_anthropic(item: Item) -> dict[str, Any]:
    role = _role(item, "user", "assistant", "system")
    content = item.get("content")
    if not isinstance(content, list):
        return {"role": role, "content": content}
    calls = [_call(b.get("id"), b) for b in content if type_of(b) == "tool_use"]
    if calls and role == "assistant":
        rest = [block for block in content if type_of(block) != "tool_use"]
        return {"role": role, "content": _simple(rest) or None, "tool_calls": calls}
    results = [block for block in content if type_of(block) == "tool_result"]
    if not results or role != "user":
        return {"role": role, "content": content}
    values = {"role": "tool", "tool_call_id": results[0].get("tool_use_id")}
    values["is_error"] = results[0].get("is_error") is True
    if len(content) == 1:
        return values | {"content": results[0].get("content")}
    said = any(type_of(block) == "text" for block in content)
    return values | {"content": content} | ({"kind": "reply"} if said else {})


def _simple(blocks: list[Any]) -> Any:
    """*blocks*, or the text if they are one plain text block."""
    if len(blocks) == 1 and isinstance(blocks[0], dict) and set(blocks[0]) == {"type", "text"}:
        return blocks[0]["text"]
    return blocks


def _write_anthropic(message: Message) -> list[Item]:
    if message.role == "tool" and _result_blocks(message):
        return [{"role": "user", "content": message.content}]
    if message.role == "tool":
        return [{"role": "user", "content": [_tool_result(*r)]} for r in _results(message)]
    if message.is_opaque or (message.kind == "thought" and not message.tool_calls):
        return []
    content = _blocks(message.content, _anthropic_block)
    if message.tool_calls:
        before = content if isinstance(content, list) else []
        if isinstance(content, str) and not is_blank(content):
            before = [{"type": "text", "text": content}]
        content = before + [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in message.tool_calls
        ]
    return [{"role": message.role, "content": "" if content is None else content}]


def _tool_result(id: str, result: Any, is_error: bool) -> Item:
    content = {} if result is None else {"content": _blocks(result, _anthropic_block)}
    error = {"is_error": True} if is_error else {}
    return {"type": "tool_result", "tool_use_id": id, **content, **error}


_OPENAI = WireFormat("openai", _read_openai, _write_openai)
_RESPONSES = WireFormat("responses", _read_responses, _write_responses)
_ANTHROPIC = WireFormat("anthropic", _read_anthropic, _write_anthropic)
WIRES = {wire.name: wire for wire in (_OPENAI, _RESPONSES, _ANTHROPIC)}


# --- calls, results and content blocks --------------------------------------------------------


def _role(item: Item, *known: str) -> str:
    role = item.get("role")
    if role not in known:
        raise ValueError(f"a message's role is one of {', '.join(known)}, not {role!r:.40}")
    return str(role)


def _call(id: Any, called: Mapping[str, Any]) -> Item:
    """The fields of a ``ToolCall``, from whichever key holds what is asked, parsed."""
    asked: Any = next((called[key] for key in _ARGUMENTS if called.get(key) is not None), {})
    return {"id": id, "name": called.get("name"), "arguments": _parsed(asked)}


_ARGUMENTS = ("arguments", "input", "action", "operation", "code")


def _parsed(arguments: Any) -> Any:
    """*arguments* as JSON; as they were written where they are none."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments, parse_constant=_refused)
    except (ValueError, RecursionError):
        return arguments


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _written(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return compact_json(arguments)


def _results(message: Message) -> Iterator[tuple[str, Any, bool]]:
    """What a tool message answers: call id, content, and whether the call failed."""
    blocks = _result_blocks(message)
    for block in blocks:
        yield block["tool_use_id"], block.get("content"), block.get("is_error") is True
    if not blocks and message.tool_call_id is not None:
        yield message.tool_call_id, message.content, message.is_error


def _result_blocks(message: Message) -> list[Item]:
    """The tool results among a tool message's blocks, as Anthropic's format has them."""
    blocks = message.content if isinstance(message.content, list) else []
    return [b for b in blocks if type_of(b) == "tool_result" and b.get("tool_use_id")]


def _said_beside(message: Message, convert: Callable[[Item], Item | None]) -> list[Item]:
    """What somebody said in the message that holds tool results, as a message of a user."""
    if not isinstance(message.content, list) or not _result_blocks(message):
        return []
    others = [block for block in message.content if type_of(block) != "tool_result"]
    return [{"role": "user", "content": _blocks(others, convert)}] if others else []


def _blocks(content: Any, convert: Callable[[Item], Item | None]) -> Any:
    """*content*, its blocks in another format; blocks that have no form there are left out."""
    if not isinstance(content, list):
        return content
    return [found for block in content if (found := convert(block)) is not None]


def _openai_block(block: Item) -> Item | None:
    if type_of(block) in _OPENAI_BLOCKS:
        return block
    return _foreign_block(
        block, "text", lambda url: {"type": "image_url", "image_url": {"url": url}}
    )


def _responses_block(block: Item) -> Item | None:
    if type_of(block) in _RESPONSES_BLOCKS:
        return block
    return _foreign_block(
        block, "input_text", lambda url: {"type": "input_image", "image_url": url, "detail": "auto"}
    )


def _anthropic_block(block: Item) -> Item | None:
    kind = type_of(block)
    if kind in ANTHROPIC_BLOCKS or kind.endswith("_tool_result"):
        return block
    return _foreign_block(block, "text", _anthropic_image)


def _anthropic_image(url: str) -> Item:
    head, comma, data = url.partition(";base64,")
    source = {"type": "url", "url": url}
    if comma and head.startswith("data:"):
        source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "image", "source": source}


def _foreign_block(block: Item, kind: str, image: Callable[[str], Item]) -> Item | None:
    """A block of another format: an *image*, else its text, or JSON; ``None``: hidden thinking."""
    if (url := _image_url(block)) is not None:
        return image(url)
    if type_of(block) in ("thinking", "redacted_thinking"):
        return None
    for key in ("text", "refusal"):
        if isinstance(block.get(key), str):
            return {"type": kind, "text": block[key]}
    return {"type": kind, "text": _written(block)}


def _image_url(block: Item) -> str | None:
    """The URL of an image of any format; a ``data:`` URL of one that is sent along."""
    given = block.get("image_url")
    if isinstance(given, dict):
        given = given.get("url")
    if isinstance(given, str):
        return given
    source = block.get("source")
    if type_of(block) != "image" or not isinstance(source, dict):
        return None
    if isinstance(source.get("data"), str):
        return f"data:{source.get('media_type', 'image/png')};base64,{source['data']}"
    return source["url"] if isinstance(source.get("url"), str) else None


def type_of(block: Any) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else ""


_OPENAI_BLOCKS = {"text", "image_url", "input_audio", "file", "refusal"}
_RESPONSES_BLOCKS = {"input_text", "input_image", "input_file", "output_text", "refusal"}
ANTHROPIC_BLOCKS = {
    "text",
    "image",
    "document",
    "search_result",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "server_tool_use",
    "container_upload",
}


def _is_same(one: Any, other: Any) -> bool:
    """Whether both are the same JSON: 1, 1.0 and True are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# --- which format it is -----------------------------------------------------------------------


def messages_of(given: Given | Iterable[Given], format: Format | None = None) -> Iterator[Message]:
    """
    One message or several, of any format, as ``Message`` values, each made as it is asked for.

    Args:
        given: A ``Message``, a mapping, an object of an SDK, or an iterable of these. Mappings
            with a message's own fields are taken, too. The fields ``id``, ``at``, ``actor``,
            ``metadata``, ``kind`` and ``token_count`` may stand beside the keys of
            ``openai`` and ``anthropic``.
        format: Of the mappings. ``None``: their keys decide for the whole batch; what no key
            decides is ``openai``.

    Raises:
        ValueError: An item is no message, keys of two formats are mixed, or a key is unknown.
    """
    named = format is not None
    raw = [i if isinstance(i, Message) else _bare(i, named=named) for i in several(given)]
    wire = _detected(raw) if format is None else _wire_of(format)
    for item in raw:
        if isinstance(item, Message):
            yield item
        else:
            yield _enveloped(wire, item, named=named)


_OWN_KEYS = frozenset(f.name for f in fields(Message))
_OPENAI_KEYS = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "refusal",
        "audio",
        "annotations",
    }
)
_KNOWN_KEYS = {
    "openai": _OPENAI_KEYS | ENVELOPE_FIELDS,
    "anthropic": frozenset({"role", "content"}) | ENVELOPE_FIELDS,
}


def _wire_of(format: Format) -> WireFormat:
    if format not in WIRES:
        raise ValueError(f"format must be one of {', '.join(WIRES)}, not {format!r}")
    return WIRES[format]


def _enveloped(wire: WireFormat, item: Item, *, named: bool) -> Message:
    """*item* as a message, with the fields of ours that stand beside it."""
    if not named and _is_own(item):
        return Message(**item)
    known = _KNOWN_KEYS.get(wire.name)
    if known is None:
        return message_of(wire, item)
    unknown = sorted(set(item) - known)
    if unknown and not named:
        told = ", ".join(map(repr, unknown))
        raise ValueError(
            f"a message of the format {wire.name!r} has no key {told}: put it into metadata, "
            f"or name the format (format={wire.name!r}) to keep it as it is"
        )
    ours = {key: item[key] for key in ENVELOPE_FIELDS & item.keys()}
    bare = {key: value for key, value in item.items() if key not in ours}
    return replace(message_of(wire, bare), **ours)


def _bare(item: Any, *, named: bool) -> Item:
    """*item* as a mapping of its own: with the fields of a ``Message``, or as plain JSON."""
    if not named and isinstance(item, Mapping) and _is_own(item):
        return dict(item)
    if isinstance(item, Mapping) and "at" in item:
        return plain({key: item[key] for key in item if key != "at"}) | {"at": item["at"]}
    return plain(item)


def _is_own(item: Mapping[str, Any]) -> bool:
    """Whether *item* has the fields of a ``Message`` and no key of another format."""
    ours = item.get("role") in get_args(Role) and set(item) <= _OWN_KEYS
    return ours and not any(_decided(item))


def _detected(items: Sequence[Message | Item]) -> WireFormat:
    """The format whose keys the items show. *Raises* ``ValueError``: keys of two, or of none."""
    found: dict[Format, str] = {}
    for item in items:
        if isinstance(item, Message):
            continue
        if "role" not in item and "type" not in item:
            shown = ", ".join(map(repr, sorted(item)[:8])) or "none"
            raise ValueError(f"a message has a role or a type; this mapping has the keys {shown}")
        for name, key in _decided(item):
            found.setdefault(name, key)
    if len(found) > 1:
        told = " and ".join(f"{key} of {name!r}" for name, key in found.items())
        raise ValueError(f"one batch mixes formats: {told}; name the format, or append apart")
    return WIRES[next(iter(found), "openai")]


def _decided(item: Mapping[str, Any]) -> Iterator[tuple[Format, str]]:
    """The keys of *item* that only one format has, each with that format."""
    if "role" not in item or "type" in item:
        yield "responses", "'type'" if "type" in item else "no 'role'"
    if item.get("role") == "function":
        yield "openai", "role 'function'"
    for key in ("function_call", "refusal", "audio"):
        if key in item:
            yield "openai", repr(key)
    calls = item.get("tool_calls")
    listed = calls if isinstance(calls, list | tuple) else ()
    if any(isinstance(call, Mapping) and {"function", "custom"} & set(call) for call in listed):
        yield "openai", "'function' of a tool call"
    content = item.get("content")
    for block in content if isinstance(content, list) else ():
        kind = type_of(block)
        for name, kinds in _DECIDING_BLOCKS.items():
            if kind in kinds or (name == "anthropic" and kind.endswith("_tool_result")):
                yield name, f"a block {kind!r}"


_DECIDING_BLOCKS: dict[Format, set[str]] = {
    "openai": {"image_url", "input_audio", "file"},
    "responses": {"input_text", "input_image", "input_file", "output_text"},
    "anthropic": ANTHROPIC_BLOCKS - {"text"},
}

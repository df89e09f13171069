"""
Convert messages from and to the wire formats of OpenAI and Anthropic, without loss.

The formats are in ``formats``; here messages of one, or told by the keys of mappings, are read and
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from mnemo.runtime.validation import every
from mnemo.values.messages import ENVELOPE_FIELDS, Message, Role
from mnemo.wire.formats import (
    ANTHROPIC_BLOCKS,
    WIRES,
    Format,
    Given,
    Item,
    WireFormat,
    items_of,
    message_of,
    plain,
    type_of,
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


def from_openai(items: Given | Iterable[Given]) -> list[Message]:
    """
    Messages of chat completions as ``Message`` values, one each.

    Args:
        items: One item or several: mappings, or objects of the SDK.

    Raises:
        ValueError: An item is no JSON object (bytes, NaN, a file), or has no role.
    """
    return _read("openai", items)


def to_openai(messages: Iterable[Message]) -> list[Item]:
    """*messages* as messages of chat completions; an opaque one of another format is left out."""
    return _written("openai", messages)


def from_responses(items: Given | Iterable[Given]) -> list[Message]:
    """
    Items of the Responses API as ``Message`` values, one each.

    An item without a role and without a call, such as an item reference, becomes an opaque
    message: no content, the item in ``extra``. Arguments and errors: as ``from_openai``.
    """
    return _read("responses", items)


def to_responses(messages: Iterable[Message]) -> list[Item]:
    """*messages* as input items of the Responses API; see ``to_openai``."""
    return _written("responses", messages)


def from_anthropic(items: Given | Iterable[Given]) -> list[Message]:
    """
    Messages of Anthropic's Messages API as ``Message`` values, one each.

    A user message with tool results becomes a tool message. It keeps its blocks as content if
    it holds more than one result, and then answers all of them. Arguments and errors: as
    ``from_openai``.
    """
    return _read("anthropic", items)


def to_anthropic(messages: Iterable[Message]) -> list[Item]:
    """*messages* as messages of Anthropic's API, ``system`` ones in place; see ``to_openai``."""
    return _written("anthropic", messages)


def _read(format: Format, items: Given | Iterable[Given]) -> list[Message]:
    return [message_of(WIRES[format], plain(item)) for item in several(items)]


def _written(format: Format, messages: Iterable[Message]) -> list[Item]:
    return [item for message in messages for item in items_of(WIRES[format], message)]


def listed(given: Any) -> list[Any]:
    """
    The messages of one call, which takes one or several, as a list.

    Raises:
        ValueError: *given* is neither, or has more than ``MOST_AT_ONCE``.
    """
    return every("messages", several(given))


def several(given: Any) -> Iterable[Any]:
    """*given*, one message or several. *Raises* ``ValueError``: it is neither."""
    if isinstance(given, Message | Mapping) or hasattr(given, "model_dump"):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        form = "such as {'role': 'user', 'content': 'Hello.'}"
        raise ValueError(f"give one message or several, {form}, not {type(given).__name__}")
    return given


# --- the format told by the keys ---------------------------------------------------------------


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
    calls = calls if isinstance(calls, list | tuple) else ()
    if any(isinstance(call, Mapping) and {"function", "custom"} & set(call) for call in calls):
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

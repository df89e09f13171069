"""
Convert messages from and to the wire formats of OpenAI and Anthropic, without loss.

The formats are in ``formats``; here it is told by the keys of mappings which of them they are of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from mnemo.values.messages import ENVELOPE_FIELDS, Message, Role
from mnemo.wire.formats import (
    ANTHROPIC_BLOCKS,
    WIRES,
    Format,
    Given,
    Item,
    WireFormat,
    from_anthropic,
    from_openai,
    from_responses,
    listed,
    message_of,
    plain,
    several,
    to_anthropic,
    to_openai,
    to_responses,
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

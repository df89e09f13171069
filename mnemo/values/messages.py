"""A message: what one side of a conversation said, saw or called; valid once it exists."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, get_args

from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import (
    every,
    flag,
    stored_id,
    stored_json,
    stored_object,
    stored_text,
    stored_time,
)

Role: TypeAlias = Literal["user", "assistant", "system", "tool"]
Kind: TypeAlias = Literal[
    "user", "assistant", "system", "tool_call", "tool_result", "thought", "reply", "summary"
]
THINKING_TOOL = "think"
"""A call of the tool of this name is a thought."""
SAID = frozenset({"user", "assistant", "system", "thought", "reply"})
"""Kinds that speak: what is searchable by default, and spelled out in the viewport."""
EMBEDDED = frozenset({"user", "assistant", "thought", "reply"})
"""Kinds that get a vector."""
VIEW = "mnemo:view"
"""
Metadata key of messages that a view made; ``append`` leaves out what carries it.

Its value says what was done: ``pruned``, ``late_result`` or ``no_result``. Summaries are
known by their kind.
"""
MOST_TOKENS = 10**9
"""Of one message; a thread's sum of them must stay a number that every store can hold (S)."""

Content: TypeAlias = str | list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """
    A call that an assistant made.

    Attributes:
        id: What its result names; unique in the message.
        arguments: Any JSON value; an object, mostly.
    """

    id: str
    name: str
    arguments: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "id", stored_id("tool call id", self.id))
        put(self, "name", _text("tool call name", self.name))
        put(self, "arguments", stored_json("tool call arguments", self.arguments))


_SAID = {"compared": True, "in_item": True}
_BESIDE = {"beside_item": True}


@dataclass(frozen=True, slots=True)
class Message:
    """
    One message, as the caller gives it; frozen, and valid once it exists.

    Attributes:
        role: ``user``, ``assistant``, ``system`` or ``tool``.
        content: Text, ``None`` (kept so), or content blocks (JSON objects, stored as given).
        id: Unique within the thread; ``None``: the store gives one.
        tool_calls: Of an assistant, in order.
        tool_call_id: Of a tool message: the call it answers.
        is_error: Of a tool message: whether the call failed.
        name: Of the tool or the speaker.
        actor: Whose words they are.
        kind: Derived, unless given as ``thought`` or ``reply``; ``summary`` is what ``load``
            makes of a compacted range.
        at: When it was said; no zone means UTC; ``None``: when it is recorded.
        token_count: A positive number is kept; otherwise it is estimated when stored.
        metadata: A JSON object, stored and returned, never interpreted.
        extra: The item of a wire format that the other fields do not give back exactly, as
            ASCII JSON; ``mnemo.wire`` writes and reads it.

    Raises:
        ValueError: A field is of the wrong shape, or does not fit the role.
    """

    role: Role = field(metadata=_SAID)
    content: Content = field(default=None, metadata=_SAID)
    id: str | None = field(default=None, metadata=_BESIDE)
    tool_calls: Sequence[ToolCall] = field(default=(), metadata=_SAID)
    tool_call_id: str | None = field(default=None, metadata=_SAID)
    is_error: bool = field(default=False, metadata={"in_item": True})
    name: str | None = None
    actor: str | None = field(default=None, metadata=_BESIDE)
    kind: Kind | None = field(default=None, metadata=_BESIDE)
    at: datetime | None = field(default=None, metadata=_BESIDE)
    token_count: int | None = field(default=None, metadata=_BESIDE)
    metadata: Mapping[str, Any] = field(default_factory=dict, metadata=_BESIDE)
    extra: str | None = field(default=None, metadata={"compared": True})

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.role not in get_args(Role):
            raise ValueError(f"role must be user, assistant, system or tool, not {self.role!r}")
        put(self, "content", _content(self.content))
        for name, checked in _NAMES.items():
            value = getattr(self, name)
            put(self, name, None if value is None else checked(name, value))
        put(self, "tool_calls", _calls(self.tool_calls))
        self._check_tools()
        put(self, "at", None if self.at is None else stored_time("at", self.at))
        put(self, "token_count", _count(self.token_count))
        put(self, "metadata", stored_object("metadata", self.metadata))
        put(self, "extra", None if self.extra is None else _item(self.extra))
        put(self, "kind", self._checked_kind())

    def _check_tools(self) -> None:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"only an assistant calls tools, not {self.role!r}")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("a tool message, and no other, needs the tool_call_id it answers")
        if flag("is_error", self.is_error) and self.role != "tool":
            raise ValueError(f"only a tool message can be an error, not {self.role!r}")

    def _checked_kind(self) -> Kind:
        derived = self._derived_kind()
        if self.kind is None or self.kind == derived:
            return derived
        if self.kind == "summary" and self.role == "system":
            return self.kind
        if self.kind == "thought" and self.role in ("assistant", "tool"):
            return self.kind
        if self.kind == "reply" and self.role == "tool":
            return self.kind
        raise ValueError(f"kind {self.kind!r} does not fit a message of {self.role!r}")

    def _derived_kind(self) -> Kind:
        if self.role == "tool":
            return "tool_result"
        if self.role == "assistant" and self.tool_calls and is_blank(self._own_text()):
            thinks = all(call.name == THINKING_TOOL for call in self.tool_calls)
            return "thought" if thinks else "tool_call"
        return self.role

    @property
    def is_opaque(self) -> bool:
        """Whether only a wire format's item tells what it is: no content and no call."""
        return self.extra is not None and self.content is None and not self.tool_calls

    def _own_text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(_texts_of(self.content))

    @property
    def text(self) -> str:
        """Its words: the content, its text blocks joined by a newline, or what it thought."""
        text = self._own_text()
        if is_blank(text) and self.kind == "thought":
            return "\n".join(filter(None, map(_thought_of, self.tool_calls)))
        return text


def _marked(mark: str) -> tuple[str, ...]:
    return tuple(declared.name for declared in fields(Message) if declared.metadata.get(mark))


COMPARED_FIELDS = _marked("compared")
"""Fields in which two messages of one id must agree; else the id stands for two messages."""
ITEM_FIELDS = _marked("in_item")
"""Fields that the items of the wire formats express."""
ENVELOPE_FIELDS = frozenset(_marked("beside_item"))
"""Fields that may stand beside the keys of a wire format, whose items have none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage(Message):
    """
    A message in its thread.

    Attributes:
        seq: Its 0-based place, given by the store, never twice.
        epoch: How often the thread had been cleared when it was stored.
        recorded_at: When it was stored, aware, by the service's clock.
    """

    thread_id: str
    seq: int
    epoch: int
    recorded_at: datetime

    @classmethod
    def restored(cls, **values: Any) -> StoredMessage:
        """One that was checked before it was stored, from every field it has; for stores."""
        message = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(message, name, value)
        return message

    @property
    def tokens(self) -> int:
        """Its token count, which every stored message has."""
        return self.token_count or 0

    @property
    def said_at(self) -> datetime:
        """When it was said, as far as that is known; else when it was stored."""
        return self.at or self.recorded_at

    @property
    def stored_id(self) -> str:
        """Its id, which every stored message has."""
        assert self.id is not None
        return self.id


def is_view_made(message: Message) -> bool:
    """Whether a view made *message*: it stands for what is stored, and is not stored itself."""
    return message.kind == "summary" or VIEW in message.metadata


def answered_ids(message: Message) -> tuple[str, ...]:
    """The ids of the calls that *message* answers; several by blocks of Anthropic's format."""
    if message.tool_call_id is None:
        return ()
    blocks = message.content if isinstance(message.content, list) else ()
    others = (b.get("tool_use_id") for b in blocks if b.get("type") == "tool_result")
    named = (id for id in others if isinstance(id, str))
    return tuple(dict.fromkeys((message.tool_call_id, *named)))


def measured_text(message: Message) -> str:
    """What its tokens are counted of: its text, and its calls as compact JSON."""
    calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
    return message._own_text() + (compact_json(calls) if calls else "")


def searchable_text(message: Message, *, tools: bool = False) -> str:
    """What keyword search knows it by; ``""``: not at all. *tools*: calls and results count too."""
    if message.kind in SAID:
        return message.text
    if not tools:
        return ""
    if message.kind == "tool_call":
        return "\n".join(f"{c.name} {compact_json(c.arguments)}" for c in message.tool_calls)
    return message.text


def _thought_of(call: ToolCall) -> str:
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        return "\n".join(value for value in arguments.values() if isinstance(value, str))
    return arguments if isinstance(arguments, str) else ""


def _texts_of(blocks: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    return (block["text"] for block in blocks if isinstance(block.get("text"), str))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or is_blank(value):
        raise ValueError(f"{name} must be text that is not blank")
    return stored_text(name, value)


_NAMES: dict[str, Callable[[str, object], str]] = {
    "id": stored_id,
    "tool_call_id": stored_id,
    "name": _text,
    "actor": _text,
}


def _content(content: object) -> Content:
    if content is None:
        return None
    if isinstance(content, str):
        return stored_text("content", content)
    if isinstance(content, list | tuple) and all(isinstance(b, Mapping) for b in content):
        blocks: list[dict[str, Any]] = stored_json("content", [dict(b) for b in content])
        return blocks
    raise ValueError("content must be text, None or a list of content blocks (JSON objects)")


def _calls(given: object) -> tuple[ToolCall, ...]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ValueError("tool_calls must be a list of calls")
    calls = tuple(_call(call) for call in given)
    if len({call.id for call in calls}) < len(calls):
        raise ValueError("two tool calls of one message have the same id")
    return calls


def _call(given: object) -> ToolCall:
    if isinstance(given, ToolCall):
        return given
    if not isinstance(given, Mapping) or set(given) - {"id", "name", "arguments"}:
        raise ValueError(
            "a tool call is a ToolCall, or has id, name and arguments (of chat completions' "
            "form: those of its function, the arguments parsed)"
        )
    if not {"id", "name"} <= set(given):
        raise ValueError("a tool call needs an id and a name")
    return ToolCall(**given)


def _item(extra: object) -> str:
    text = stored_text("extra", extra)
    try:
        kept = json.loads(text)
    except (ValueError, RecursionError):
        kept = None
    if not text.isascii() or not isinstance(kept, dict) or set(kept) != {"format", "item"}:
        raise ValueError("extra is ASCII JSON with a format and an item, as mnemo.wire writes it")
    return text


def _count(count: object) -> int | None:
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_TOKENS:
        raise ValueError(f"token_count must be a whole number of tokens, 0 to {MOST_TOKENS}")
    return count or None


def compact_json(value: Any) -> str:
    """*value* as JSON without blanks, every character as itself."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ── What a message may be given as ───────────────────────────────────────────────────────


class Dumpable(Protocol):
    """An object of an SDK: a pydantic model."""

    def model_dump(self, *, mode: str, exclude_unset: bool, by_alias: bool) -> dict[str, Any]:
        """The object as a JSON object."""


Given: TypeAlias = Message | Mapping[str, Any] | Dumpable
"""What one message may be given as."""
Item: TypeAlias = dict[str, Any]

MOST_DEPTH = 200
"""Levels of nesting that an item may have: below Python's own bound for JSON (S)."""


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


def plain(item: Any) -> Item:
    """*item* as a JSON object of its own. *Raises* ``ValueError``: it is none."""
    copy = _copied(item, MOST_DEPTH)
    if not isinstance(copy, dict):
        raise ValueError(f"a message is a Message or a mapping, not {type(item).__name__}")
    return copy


def _copied(value: Any, levels: int) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ValueError(f"{value} is no JSON number")
    if not levels:
        raise ValueError(f"an item may be nested {MOST_DEPTH} levels deep, no deeper")
    if hasattr(value, "model_dump"):
        # As the SDKs send their own objects: what was set, by the names of the wire.
        return _copied(value.model_dump(mode="json", exclude_unset=True, by_alias=True), levels)
    if isinstance(value, Mapping):
        return {_key(key): _copied(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, bytes | bytearray | memoryview) or not isinstance(value, Iterable):
        raise ValueError(f"{type(value).__name__} is no JSON: encode it as text first")
    if hasattr(value, "read"):
        raise ValueError("an open file is no JSON: read and encode it first")
    return [_copied(inner, levels - 1) for inner in value]


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key is text, not {type(key).__name__}")
    return key

"""What both chat protocols share: settings of a call, tools, and the parts of a reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mnemo.models.structured import Form, Learned, with_schema
from mnemo.protocols import ChatMessage, ChatRequest
from mnemo.runtime.text import clean, count_tokens

CUT_OFF = frozenset(("length", "max_tokens", "model_context_window_exceeded"))
"""What both protocols say of a reply that ended at a limit."""
MAX_PARTS = 1_000
"""Parts of a message, or tool calls, that are looked at."""
MAX_ARGUMENTS = 64 * 1024
"""Longest arguments of a tool call that are parsed, on the event loop."""


class WrongShape(ValueError):
    """An answer is JSON, but not what the protocol says; the message names what is wrong."""


@dataclass(frozen=True, slots=True)
class Call:
    """
    One request with overrides applied.

    Attributes:
        temperature: ``None`` is not sent.
        max_output_tokens: Likewise.
        timeout_s: Seconds of one try.
    """

    request: ChatRequest
    model: str
    temperature: float | None
    max_output_tokens: int | None
    timeout_s: float

    @property
    def purpose(self) -> str:
        """The question's purpose, which also names its schema."""
        return self.request.purpose

    @property
    def schema(self) -> dict[str, Any]:
        """The reply's schema; empty if there is none."""
        return dict(self.request.response_schema or {})

    @property
    def tools(self) -> list[Tool]:
        """The request's tools, in whatever form they were given."""
        return [Tool.read(tool) for tool in self.request.tools]

    @property
    def tokens(self) -> int:
        """Estimated input tokens."""
        texts = sum(count_tokens(message.content) for message in self.request.messages)
        calls = sum(
            count_tokens(str(call.get("name"))) + count_tokens(written(call.get("arguments")))
            for message in self.request.messages
            for call in message.tool_calls
        )
        offered = count_tokens(json.dumps([self.schema, *self.request.tools], default=str))
        return texts + calls + offered

    def parts(self, form: Form) -> tuple[str, list[ChatMessage]]:
        """The system text, with the schema if *form* needs it there, and the other messages."""
        messages = [replace(m, content=clean(m.content)) for m in self.request.messages]
        system = "\n\n".join(m.content for m in messages if m.role == "system")
        if self.request.response_schema is not None and form.in_prompt:
            system = with_schema(system, self.schema)
        return system, [m for m in messages if m.role != "system"]

    def cut_off(self, reason: object) -> bool:
        """
        Whether a reply in free text or with tool calls was cut off, by the protocol's *reason*.

        One with a schema is read as JSON, which shows by itself whether it is whole.
        """
        return self.request.response_schema is None and reason in CUT_OFF


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call; *schema* is of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Tool:
        """A tool in OpenAI's form, in Anthropic's, or with ``parameters`` beside its name."""
        inner = given.get("function", given)
        schema = inner.get("parameters") or inner.get("input_schema") or {"type": "object"}
        return cls(str(inner["name"]), str(inner.get("description") or ""), schema)


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What an answer holds; token counts as the protocol means them, the input whole."""

    text: str = ""
    parsed: Any = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    model: Any = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    truncated: bool = False


class Wire(Protocol):
    """One chat protocol."""

    forms: Sequence[Form]
    path: str

    def body(self, call: Call, form: Form, learned: Learned) -> dict[str, Any]:
        """The request's JSON."""
        ...

    def read(self, answer: Any, call: Call, form: Form) -> ParsedReply:
        """Read an answer. *Raises* ``WrongShape``."""
        ...


def arguments_of(value: Any) -> Any:
    """A tool call's arguments: the object they are; text that is not JSON, or long, as it is."""
    if not isinstance(value, str):
        return value if isinstance(value, Mapping) else {}
    if len(value) > MAX_ARGUMENTS:
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, dict) else value


def as_text(content: Any, what: str) -> str:
    """
    The text of a message's content: a text, nothing, or a list of parts.

    Raises:
        WrongShape: It is something else.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise WrongShape(f"{what} is neither a text nor a list of parts")
    few(content, what)
    parts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in parts if isinstance(text, str))


def few(parts: Sequence[Any], what: str) -> None:
    """Let a list of parts pass. *Raises* ``WrongShape``: it has more than anybody would send."""
    if len(parts) > MAX_PARTS:
        raise WrongShape(f"{what} has more than {MAX_PARTS:,} parts")


def forced(arguments: Any, text: str) -> tuple[Any, str]:
    """Arguments of a forced tool call: parsed, and as text."""
    if isinstance(arguments, Mapping):
        return arguments, text or written(arguments, otherwise="")
    return None, arguments or text


def written(arguments: Any, *, otherwise: str = "{}") -> str:
    """
    A call's arguments as JSON, every text in them storable.

    Args:
        otherwise: Instead of what cannot be written: no object, or nested too deeply.
    """
    if not isinstance(arguments, Mapping):
        return otherwise
    try:
        return clean(json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except (RecursionError, TypeError, ValueError):
        return otherwise

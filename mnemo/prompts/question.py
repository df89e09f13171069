"""A question to a model, and the parser of its JSON reply."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mnemo.protocols import ChatMessage, ChatReply, Purpose
from mnemo.runtime.text import clean

MAX_REPLY_CHARACTERS = 200_000
"""Longest reply that is searched for JSON; a real one has a twentieth of it (S)."""
MAX_ATTEMPTS = 500
"""Opening braces that are tried in a reply that is more than bare JSON (S)."""
MAX_SCANNED_CHARACTERS = 2_000_000
"""Characters that are read in vain from these braces on, together (S)."""
SHOWN_ERRORS = 5
"""Errors of a reply that its model is told (S)."""

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)

R = TypeVar("R", bound="Reply")
T = TypeVar("T")


class Reply(BaseModel):
    """The base of every reply's shape: unknown fields are ignored, NaN and infinity refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """
    One question, whoever answers it.

    Attributes:
        schema: JSON schema of the reply.
        read: Makes the answer of a reply's JSON value; ``ValueError`` says what is wrong.
    """

    purpose: Purpose
    system: str
    user: str
    schema: Mapping[str, Any]
    read: Callable[[Any], T]

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The standing instructions, then the data."""
        return ChatMessage("system", self.system), ChatMessage("user", self.user)


def schema_of(shape: type[Reply], **most: int) -> dict[str, Any]:
    """
    The JSON schema of *shape*, bare of titles and of its classes' docstrings.

    Those are for readers of the code; small models copy them into their replies.

    Args:
        most: Field → most items of its list. A server that holds its model to the schema
            ends the list there; a longer one is no mistake.
    """
    schema: dict[str, Any] = _bare(_generated(shape))  # a copy of the caller's own
    for name, items in most.items():
        schema["properties"][name]["maxItems"] = items
    return schema


@cache
def _generated(shape: type[Reply]) -> dict[str, Any]:
    """To generate one takes a millisecond of the event loop, for every question."""
    return shape.model_json_schema()


def _bare(part: Any) -> Any:
    if isinstance(part, list):
        return [_bare(item) for item in part]
    if not isinstance(part, dict):
        return part
    # Under these two the keys are names, whatever they are.
    return {
        key: {name: _bare(inner) for name, inner in value.items()}
        if key in ("properties", "$defs")
        else _bare(value)
        for key, value in part.items()
        if key not in ("title", "description")
    }


def json_of(reply: ChatReply) -> Any:
    """
    The JSON value of *reply*: ``parsed`` if there is one, else the last object of its text.

    Thinking blocks, code fences and prose around the object are passed over.

    Raises:
        ValueError: There is no complete JSON object, or it is a JSON schema.
    """
    value = reply.parsed if reply.parsed is not None else _last_object(reply.text)
    if isinstance(value, Mapping) and "properties" in value and "type" in value:
        raise ValueError("this is the schema itself, not a reply that follows it")
    try:
        return _cleaned(value)
    except RecursionError:
        raise ValueError("the reply is nested too deeply") from None


def is_short(reply: ChatReply, limit: int) -> bool:
    """Whether *reply* has at most *limit* characters, its parsed values counting a few each."""
    room = limit - len(reply.text)
    rest = [reply.parsed]
    while rest and room >= 0:
        value = rest.pop()
        inner = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, Sized):
            room -= len(value)
        if isinstance(value, Mapping | list | tuple) and room >= 0:
            rest.extend(inner)
        room -= 1
    return room >= 0


def raw_text(reply: ChatReply) -> str:
    """*reply* as it can be shown: its text, else what was parsed."""
    if reply.text or reply.parsed is None:
        return reply.text
    try:
        return json.dumps(reply.parsed, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return f"({type(reply.parsed).__name__})"


def what_is_wrong(error: ValueError) -> str:
    """*error* in words for a model, without repeating its own values."""
    if not isinstance(error, ValidationError):
        return str(error)
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    lines = (f"{'.'.join(map(str, e['loc'])) or 'reply'}: {e['msg']}" for e in errors)
    return "; ".join(islice(lines, SHOWN_ERRORS))


def _last_object(text: str) -> Any:
    text = text.strip()
    if not text:
        raise ValueError("the reply is blank")
    if len(text) > MAX_REPLY_CHARACTERS:
        raise ValueError(f"the reply is longer than {MAX_REPLY_CHARACTERS:,} characters")
    whole, end = _decoded(text, 0)
    if whole is not None and end == len(text):
        return whole
    bare = _THOUGHT_END.sub("", _THINKING.sub("", text))
    last = deque(_objects(bare), maxlen=1)
    if not last:
        raise ValueError("there is no complete JSON object in the reply")
    return last[0]


def _objects(text: str) -> Iterator[Any]:
    """The outermost complete objects of *text*, in order."""
    at = text.find("{")
    scanned = 0
    for _ in range(MAX_ATTEMPTS):
        if at < 0 or scanned > MAX_SCANNED_CHARACTERS:
            return
        found, end = _decoded(text, at)
        if found is not None:
            yield found
        else:
            scanned += end - at
        at = text.find("{", end if found is not None else at + 1)


def _decoded(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """The object that begins at *at*, if one does, and how far the text was read."""
    if not text.startswith("{", at):
        return None, at
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        return None, error.pos
    except (ValueError, RecursionError):
        return None, len(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _cleaned(value: Any) -> Any:
    """*value* with every text storable: a reply may hold lone surrogates and U+0000."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value

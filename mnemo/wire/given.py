"""What a message may be given as, and its copy as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from mnemo.values.messages import Message

__all__ = ["Given", "Item", "listed", "plain", "plain_items"]


class Dumpable(Protocol):
    """An object of an SDK: a pydantic model."""

    def model_dump(self, *, mode: str, exclude_unset: bool, by_alias: bool) -> dict[str, Any]:
        """The object as a JSON object."""
        ...


Given: TypeAlias = Message | Mapping[str, Any] | Dumpable
"""What one message may be given as."""
Item: TypeAlias = dict[str, Any]

MOST_DEPTH = 200
"""Levels of nesting that an item may have: below Python's own bound for JSON (S)."""


def listed(given: Any) -> list[Any]:
    """*given*, one message or several, as a list. *Raises* ``ValueError``: it is neither."""
    if isinstance(given, Message | Mapping) or hasattr(given, "model_dump"):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"give one message or several, not {type(given).__name__}")
    return list(given)


def plain_items(items: Any) -> list[Item]:
    return [plain(item) for item in listed(items)]


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

"""Entity descriptors: fields of stored values, for columns and archives, by dataclass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from mnemo.runtime import validation
from mnemo.values.graph import Edit, Vector, Wording

T = TypeVar("T")
Rule: TypeAlias = Callable[[Any], object]
"""Raises ``ValueError`` for a value that cannot be stored as it is."""

_UNIT_TOLERANCE = 1e-3

Type: TypeAlias = Literal[
    "text",
    "id",
    "whole",
    "number",
    "flag",
    "time",
    "instant",
    "vector",
    "bytes",
    "enum",
    "texts",
    "wholes",
    "objects",
    "object",
    "pairs",
    "content",
    "calls",
    "extras",
    "item",
    "changeset",
    "edits",
    "wordings",
]
"""What a field holds, as far as columns differ by it."""

_TYPES: dict[Any, Type] = {
    str: "text",
    int: "whole",
    float: "number",
    bool: "flag",
    datetime: "time",
    Vector: "vector",
    bytes: "bytes",
    tuple[str, ...]: "texts",
    tuple[int, ...]: "wholes",
    tuple[dict[str, Any], ...]: "objects",
    tuple[tuple[str, str], ...]: "pairs",
    tuple[Edit, ...]: "edits",
    tuple[Wording, ...]: "wordings",
    Mapping[str, Any]: "object",
}

# ── Rules ────────────────────────────────────────────────────────────────────────────


_INEXACT = "it cannot hold U+0000, half a surrogate pair, or bytes that are no UTF-8"


def exact_text(text: str) -> None:
    """A text that is stored as it is."""
    if text.isascii() and "\0" not in text and len(text) <= validation.MOST_ID_BYTES:
        return  # as most are
    if validation.stored_text("it", text) != text:
        raise ValueError(_INEXACT)


def exact_json(value: object) -> None:
    """JSON that is stored as it is."""
    if validation.stored_json("it", value) != value:
        raise ValueError(_INEXACT)


def key_of(size: int, text: str) -> None:
    """A text, empty or not, of at most *size* bytes."""
    exact_text(text)
    if 4 * len(text) > size and len(text.encode()) > size:
        raise ValueError(f"it has more than {size} bytes")


def within(least: float, most: float, value: float) -> None:
    """A number from *least* to *most*."""
    if not least <= value <= most:
        raise ValueError(f"it must be from {least} to {most}, not {value}")


def each(rule: Rule, values: Iterable[Any]) -> None:
    """Values that *rule* allows."""
    for value in values:
        rule(value)


def _pair(pair: tuple[str, str]) -> None:
    key(pair[0])
    exact_text(pair[1])


def _number(value: float) -> None:
    if not 0 <= value < inf or (isinstance(value, int) and value > validation.MOST_NUMBER):
        raise ValueError(f"it must be a finite number, not below 0, not {value}")


def _unit(vector: Vector) -> None:
    if not abs(float(np.linalg.norm(vector)) - 1.0) < _UNIT_TOLERANCE:
        raise ValueError("a vector must be of length 1")


def one_of(allowed: Collection[Any], value: Any) -> None:
    """One of *allowed*."""
    if value not in allowed:
        raise ValueError(f"not one of {len(allowed)} words")


key: Rule = partial(key_of, validation.MOST_ID_BYTES)
count: Rule = partial(within, 0, validation.MOST_NUMBER)
positive: Rule = partial(within, 1, validation.MOST_NUMBER)
share: Rule = partial(within, 0, 1)

_RULES: Mapping[Type, Rule] = {
    "text": exact_text,
    "id": partial(validation.exact_id, "an id"),
    "whole": count,
    "number": _number,
    "flag": share,
    "time": partial(validation.stored_time, "a time"),
    "instant": partial(validation.stored_time, "a time"),
    "vector": _unit,
    "texts": partial(each, key),
    "wholes": partial(each, count),
    "objects": partial(each, exact_json),
    "object": exact_json,
    "pairs": partial(each, _pair),
    "content": exact_text,
    "extras": exact_json,
    "item": exact_text,
}


# ── Fields ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """
    A field of a stored value.

    Attributes:
        path: How it is reached from the value, e.g. ``change.action``.
        hint: Its annotation, without ``None``; *optional*: it may be ``None``.
        default: That of the dataclass; ``MISSING``: there is none.
        rule: What it must be where it is not ``None``, beyond what decodes it.
    """

    name: str
    path: str
    type: Type
    hint: Any
    optional: bool
    default: Any
    rule: Rule | None


class Entity(Generic[T]):
    """
    How values of one dataclass are named and judged outside of Python.

    Args:
        key: The fields that tell it from the others of its owner; *order*: that order them.
        owners: The fields with the ids of what it belongs to; none: the repository.
        types, rules: Of fields for which the annotation does not tell them.
        required: Fields that are always there once it is stored, though not before.
        inline: Fields that are entities themselves, whose fields stand among the others.
        without: Fields that are not stored, or known from elsewhere.
        make: The value of all its fields; ``None``: the dataclass itself.
        checked: Gives a value that was read, or what it stands for. *Raises* ``ValueError``
            where its fields do not fit each other.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        key: Sequence[str] = (),
        order: Sequence[str] = (),
        owners: Sequence[str] = (),
        types: Mapping[str, Type] | None = None,
        rules: Mapping[str, Rule] | None = None,
        required: Iterable[str] = (),
        inline: Mapping[str, Entity[Any]] | None = None,
        without: Iterable[str] = (),
        make: Callable[..., T] | None = None,
        checked: Callable[[T], Any] | None = None,
    ) -> None:
        self.kind = kind
        self.key: tuple[str, ...] = tuple(key)
        self.order: tuple[str, ...] = tuple(order or key)
        self.owners: tuple[str, ...] = tuple(owners)
        self._types, self._rules = types or {}, rules or {}
        self._required, self._without = frozenset(required), frozenset(without)
        self._inline = inline or {}
        self.fields: tuple[Stored, ...] = tuple(self._fields())
        self.make: Callable[..., T] = make or (self._made if self._inline else kind)
        self.checked = checked

    def _fields(self) -> Iterator[Stored]:
        hints = get_type_hints(self.kind)
        assert is_dataclass(self.kind)
        for field in fields(self.kind):
            if field.name in self._inline:
                inner = self._inline[field.name].fields
                yield from (replace(f, path=f"{field.name}.{f.path}") for f in inner)
            elif field.name not in self._without:
                yield self._stored(field.name, hints[field.name], field.default)

    def _stored(self, name: str, annotation: Any, default: Any) -> Stored:
        hint, optional = _bare(annotation)
        optional &= name not in self._required
        type = self._types.get(name) or _type(name, hint)
        return Stored(
            name=name,
            path=name,
            type=type,
            hint=hint,
            optional=optional,
            default=default,
            rule=self._rules.get(name) or _rule(type, hint, optional),
        )

    def _made(self, **values: Any) -> T:
        for name, entity in self._inline.items():
            values[name] = entity.make(**{f.name: values.pop(f.name) for f in entity.fields})
        return self.kind(**values)


def getter(paths: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the attributes at *paths*, as a tuple whatever their number."""
    names = tuple(paths)
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda value: ()
    one = attrgetter(*names)
    return lambda value: (one(value),)


def _bare(hint: Any) -> tuple[Any, bool]:
    """*hint* without ``None``, and whether that was in it."""
    parts = get_args(hint)
    if type(None) not in parts:
        return hint, False
    left = [part for part in parts if part is not type(None)]
    return (left[0] if len(left) == 1 else hint), True


def _type(name: str, hint: Any) -> Type:
    if get_origin(hint) is Literal:
        return "whole" if isinstance(get_args(hint)[0], int) else "text"
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return "enum"
    found = _TYPES[hint]
    is_id = name in ("id", "key", "digest") or name.endswith(("_id", "ed_by"))
    return "id" if found == "text" and is_id else found


def _rule(type: Type, hint: Any, optional: bool) -> Rule | None:
    if get_origin(hint) is Literal:
        return partial(one_of, get_args(hint))
    # An id that may be missing may be empty as well.
    return key if type == "id" and optional else _RULES.get(type)

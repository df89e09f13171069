"""
Entity descriptors: the fields of a stored value, declared once, by its dataclass.

A store makes columns of them (``store.table``), an archive JSON lines. Lines are validated
against the same declaration with pydantic.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NotRequired,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from mnemo.runtime.clock import in_utc
from mnemo.runtime.validation import (
    MOST_ID_BYTES,
    MOST_NUMBER,
    exact_id,
    stored_json,
    stored_text,
    stored_time,
)
from mnemo.values.graph import Edit, Vector, Wording
from mnemo.values.wordings import plain_edits, plain_wordings, read_edits, read_wordings

T = TypeVar("T")

_UNIT_TOLERANCE = 1e-3
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""Exactly the fields that are declared, and nothing is converted."""


# ── Values of lines ──────────────────────────────────────────────────────────────────


def read_time(value: Any) -> datetime:
    """A time with its zone. *Raises* ``ValueError``: it is none."""
    if not isinstance(value, str):
        raise ValueError("a time must be text")
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError("a time must name its zone")
    return stored_time("a time", at)


def read_vector(value: Any) -> Vector:
    """A vector of length 1. *Raises* ``ValueError``: it is none."""
    if not isinstance(value, str):
        raise ValueError("a vector must be text: base64 of little-endian float32")
    try:
        raw = base64.b64decode(value, validate=True)
        vector = np.frombuffer(raw, dtype="<f4").astype(np.float32, copy=False)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is no base64 of little-endian float32: {error}") from None
    if not abs(float(np.linalg.norm(vector)) - 1.0) < _UNIT_TOLERANCE:
        raise ValueError("a vector must be of length 1")
    return vector


def packed(vector: Vector) -> str:
    """Little-endian float32 in base64."""
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


def read_bytes(value: Any) -> bytes:
    """Bytes in base64. *Raises* ``ValueError``: it is none."""
    if not isinstance(value, str):
        raise ValueError("bytes must be text: base64")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is no base64: {error}") from None


def instant_text(at: datetime) -> str:
    """The moment alone, in UTC."""
    return in_utc(at).isoformat(timespec="microseconds")


def _read_id(value: str) -> str:
    return exact_id("an id", value)


def at_most(size: int) -> AfterValidator:
    """Refuses texts of more than *size* bytes in UTF-8."""

    def check(value: str) -> str:
        if 4 * len(value) > size and len(value.encode()) > size:
            raise ValueError(f"an id or key has more than {size} bytes")
        return value

    return AfterValidator(check)


def _read_text(value: str) -> str:
    return stored_text("a text", value)


def _read_object(value: dict[str, Any]) -> Any:
    return stored_json("an object", value)


Id: TypeAlias = Annotated[str, AfterValidator(_read_id)]
Key: TypeAlias = Annotated[str, at_most(MOST_ID_BYTES)]
Text: TypeAlias = Annotated[str, AfterValidator(_read_text)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
Positive: TypeAlias = Annotated[int, Field(ge=1, le=MOST_NUMBER)]

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
    "nested",
]
"""What a field holds, as far as columns and lines differ by it."""

_NESTED: Type = "nested"

# A tuple is an array of JSON.
_SHAPES: dict[Type, Any] = {
    "text": Text,
    "id": Id,
    "whole": Count,
    "number": Annotated[float, Field(ge=0)],
    "flag": bool,
    "time": Annotated[Any, BeforeValidator(read_time)],
    "instant": Annotated[Any, BeforeValidator(read_time)],
    "vector": Annotated[Any, BeforeValidator(read_vector)],
    "bytes": Annotated[Any, BeforeValidator(read_bytes)],
    "texts": Annotated[tuple[Key, ...], Field(strict=False)],
    "wholes": Annotated[tuple[Count, ...], Field(strict=False)],
    "object": Annotated[dict[str, Any], AfterValidator(_read_object)],
    "extras": dict[str, Any],
    "item": Text,
    "edits": Annotated[Any, BeforeValidator(read_edits)],
    "wordings": Annotated[Any, BeforeValidator(read_wordings)],
}
_WRITES: dict[Type, Callable[[Any], Any]] = {
    "number": float,
    "time": datetime.isoformat,
    "instant": instant_text,
    "vector": packed,
    "bytes": lambda data: base64.b64encode(data).decode("ascii"),
    "enum": str,
    "object": dict,
    "extras": dict,
    "calls": lambda calls: [(call.id, call.name, call.arguments) for call in calls],
    "edits": plain_edits,
    "wordings": plain_wordings,
}
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


# ── Fields ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """
    A field of a stored value.

    Attributes:
        path: How it is reached from the value, e.g. ``change.action``.
        hint: Its annotation, without ``None``.
        optional: Whether it may be ``None``.
        default: What it is where a line leaves it out, as one of an archive from before it was
            added may; ``MISSING``: a line must say it.
        line: Its name in an archive's line.
        shape: What it must look like there, for pydantic.
        write: Makes JSON of it; ``None``: it is JSON.
    """

    name: str
    path: str
    type: Type
    hint: Any
    optional: bool
    default: Any
    line: str
    shape: Any
    write: Callable[[Any], Any] | None


class Entity(Generic[T]):
    """
    How values of one dataclass are named and written outside of Python.

    Args:
        kind: The dataclass; each of its fields is stored.
        key: The fields that tell it from the others of its owner.
        order: The fields that it is ordered by, among those of its owner.
        owners: The fields with the ids of what it belongs to; none: the repository.
        lines: Names in an archive's line, where they are not the fields'.
        types: Of fields for which the annotation does not tell the type.
        shapes: What a line must say, where the type does not tell it.
        writes: What makes JSON of a field, where the type does not tell it.
        required: Fields that a line must say, though the dataclass has a default for them.
        inline: Fields that are entities themselves, whose fields stand among the others.
        nested: Fields that are entities themselves, and objects in a line.
        without: Fields that are not stored, or known from elsewhere.
        sparse: Whether a line leaves out what stands at its default.
        make: The value of all its fields; ``None``: the dataclass itself.
        checked: The value of what a line says. *Raises* ``ValueError`` where that does not fit.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        key: Sequence[str] = (),
        order: Sequence[str] = (),
        owners: Sequence[str] = (),
        lines: Mapping[str, str] | None = None,
        types: Mapping[str, Type] | None = None,
        shapes: Mapping[str, Any] | None = None,
        required: Iterable[str] = (),
        inline: Mapping[str, Entity[Any]] | None = None,
        nested: Mapping[str, Entity[Any]] | None = None,
        writes: Mapping[str, Callable[[Any], Any]] | None = None,
        without: Iterable[str] = (),
        sparse: bool = False,
        make: Callable[..., T] | None = None,
        checked: Callable[..., T] | None = None,
    ) -> None:
        self.kind = kind
        self.key, self.order, self.owners = tuple(key), tuple(order or key), tuple(owners)
        objects = nested or {}
        self._lines, self._required = lines or {}, frozenset(required)
        self._types: dict[str, Type] = {**(types or {}), **dict.fromkeys(objects, _NESTED)}
        self._shapes = {**(shapes or {}), **{name: e.shape for name, e in objects.items()}}
        self._written_by = {**(writes or {}), **{name: e.line for name, e in objects.items()}}
        self._inline, self._without = inline or {}, frozenset(without)
        self._sparse = sparse
        self.fields = tuple(self._fields())
        self.make: Callable[..., T] = make or (self._made if self._inline else kind)
        self.checked = checked or (self._read if self._inline else self.make)
        self._get = getter(field.path for field in self.fields)
        self._names = tuple(field.line for field in self.fields)
        self._writes = [(n, f.write) for n, f in enumerate(self.fields) if f.write is not None]
        self._defaults = {f.name: f.default for f in self.fields if f.default is not MISSING}
        self._adapter: TypeAdapter[dict[str, Any]] | None = None

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
        hint, is_optional = _bare(annotation)
        # A sparse line says that there is none where the default is another.
        is_optional |= self._sparse and isinstance(default, str | float)
        optional = is_optional and name not in self._required
        type = self._types.get(name) or _type(name, hint)
        shape = self._shapes.get(name) or _shape(type, hint, optional)
        write = self._written_by.get(name) or _WRITES.get(type)
        # A required field is None until it is stored: what is given writes that, too.
        if optional or name not in self._written_by:
            write = _optional(write, is_optional)
        return Stored(
            name=name,
            path=name,
            type=type,
            hint=hint,
            optional=optional,
            default=default if self._sparse or (optional and default is None) else MISSING,
            line=self._lines.get(name, name),
            shape=(shape | None) if optional else shape,
            write=write,
        )

    def _made(self, **values: Any) -> T:
        return self._whole(values, {name: entity.make for name, entity in self._inline.items()})

    def _read(self, **values: Any) -> T:
        return self._whole(values, {name: e.checked for name, e in self._inline.items()})

    def _whole(self, values: dict[str, Any], make: Mapping[str, Callable[..., Any]]) -> T:
        for name, entity in self._inline.items():
            values[name] = make[name](**{f.name: values.pop(f.name) for f in entity.fields})
        return self.kind(**values)

    def line(self, value: T) -> dict[str, Any]:
        """What an archive's line says of *value*."""
        line = dict(zip(self._names, self.written(value), strict=True))
        if self._sparse:
            for field, one in zip(self.fields, self._get(value), strict=True):
                if one == field.default:
                    del line[field.line]
        return line

    def written(self, value: T) -> list[Any]:
        """Its ``fields`` as JSON has them."""
        said = list(self._get(value))
        for place, write in self._writes:
            said[place] = write(said[place])
        return said

    def read(self, raw: Mapping[str, Any]) -> T:
        """
        The value that a line says.

        Raises:
            pydantic.ValidationError: A field is missing, unknown or of another form.
            ValueError: The fields do not fit each other.
        """
        if self._adapter is None:
            self._adapter = TypeAdapter(self.shape)
        return self.checked(**self._defaults | self._adapter.validate_python(raw))

    @property
    def shape(self) -> Any:
        """What a line must say, for pydantic; gives the fields by name."""
        said: dict[str, Any] = {}
        for field in self.fields:
            shape: Any = Annotated[field.shape, Field(alias=field.line)]
            said[field.name] = shape if field.default is MISSING else NotRequired[shape]
        make: Any = TypedDict
        return with_config(STRICT)(make(self.kind.__name__, said))


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


def _shape(type: Type, hint: Any, optional: bool) -> Any:
    if get_origin(hint) is Literal:
        return hint
    if type == "enum":
        return Annotated[Literal[tuple(map(str, hint))], AfterValidator(hint)]
    # An id that may be missing may be empty as well.
    return Key if type == "id" and optional else _SHAPES.get(type)


def _optional(write: Callable[[Any], Any] | None, optional: bool) -> Callable[[Any], Any] | None:
    if write is None or not optional:
        return write
    return lambda value: None if value is None else write(value)

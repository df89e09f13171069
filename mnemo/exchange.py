"""
JSON shapes of the values that hold vectors or functions, for the HTTP service and its client.

Other values are described by their own dataclass. A shape is a pydantic model of the
dataclass's fields without those that JSON cannot hold; ``restored`` makes the value again.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated, Any, Literal, TypeAlias, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from mnemo import Candidate, RecallResult, Step
from mnemo.values.graph import NODE_TYPES, Node, Wording
from mnemo.values.steps import Annotation

__all__ = ["CandidateShape", "NodeShape", "RecallShape", "StepShape", "adapter", "restored"]

LEFT_OUT = frozenset({"vector", "count", "notes"})
"""Fields of no shape: vectors, token counters, and notes, which have calls of their own."""
_KINDS: dict[type[BaseModel], type] = {}


def _shape(kind: type, **replaced: Any) -> type[BaseModel]:
    """The model of the dataclass *kind*; *replaced* has types of fields, and further fields."""
    hints = typing.get_type_hints(kind, include_extras=True) | replaced
    declared = {f.name: f for f in dataclasses.fields(kind) if f.name not in LEFT_OUT}
    fields: dict[str, Any] = {name: (hints[name], _default(f)) for name, f in declared.items()}
    config = ConfigDict(from_attributes=True, title=kind.__name__)
    made: type[BaseModel] = create_model(f"{kind.__name__}Shape", __config__=config, **fields)
    _KINDS[made] = kind
    return made


def _default(declared: dataclasses.Field[Any]) -> Any:
    if declared.default_factory is not dataclasses.MISSING:
        return Field(default_factory=declared.default_factory)
    return ... if declared.default is dataclasses.MISSING else declared.default


def _node_shape(kind: type[Node]) -> type[BaseModel]:
    nested = {"wordings": tuple[_WORDING, ...]} if kind.type == "intent" else {}  # type: ignore[valid-type]
    plain = _shape(kind, **nested)
    tag: Any = (Literal[kind.type], kind.type)
    tagged = create_model(plain.__name__, __base__=plain, type=tag)
    _KINDS[tagged] = kind
    return tagged


_WORDING = _shape(Wording)
NodeShape: TypeAlias = Annotated[  # type: ignore[valid-type]
    Union[tuple(map(_node_shape, NODE_TYPES.values()))],  # noqa: UP007
    Field(discriminator="type"),
]
CandidateShape = _shape(Candidate, node=NodeShape)
RecallShape = _shape(RecallResult, candidates=list[CandidateShape])  # type: ignore[valid-type]
StepShape = _shape(Step, annotation=_shape(Annotation) | None)


def restored(value: Any) -> Any:
    """The value that a shape was made of, its parts too; vectors are ``None``."""
    if isinstance(value, BaseModel):
        names = {f.name for f in dataclasses.fields(_KINDS[type(value)])}
        parts = {name: restored(part) for name, part in value if name in names}
        return _KINDS[type(value)](**parts)
    if isinstance(value, list | tuple):
        return type(value)(map(restored, value))
    return value


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def adapter(kind: Any) -> TypeAdapter[Any]:
    """The adapter of *kind*, made once."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]

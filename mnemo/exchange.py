"""
JSON shapes of the values that hold vectors or functions, for the HTTP service and its client.

Other values are described by their own dataclass. A shape is a pydantic model of the
dataclass's fields without those that JSON cannot hold; ``restored`` makes the value again.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated, Any, Literal, TypeAlias, Union

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    create_model,
)

from mnemo import (
    Candidate,
    JobLevels,
    MessageView,
    NoteRecall,
    RecallResult,
    RepositoryStatistics,
    Step,
)
from mnemo.notes.notes import NotesStatistics
from mnemo.values.graph import NODE_TYPES, KeyedItem, Node, Wording
from mnemo.values.steps import Annotation

LEFT_OUT = frozenset({"vector", "count"})
"""Fields of no shape: vectors, and token counters, of which the default is restored."""
_KINDS: dict[type[BaseModel], type] = {}


def _shape(kind: type, **replaced: Any) -> type[BaseModel]:
    """The model of the dataclass *kind*; *replaced* has types of fields, and further fields."""
    hints = typing.get_type_hints(kind, include_extras=True) | replaced
    declared = {f.name: f for f in dataclasses.fields(kind) if f.name not in LEFT_OUT}
    fields: dict[str, Any] = {name: (hints[name], _default(f)) for name, f in declared.items()}
    fields |= {name: (type, "") for name, type in replaced.items() if name not in declared}
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
_STORED = tuple(map(_node_shape, NODE_TYPES.values()))
NodeShape: TypeAlias = Annotated[Union[_STORED], Field(discriminator="type")]  # type: ignore[valid-type]  # noqa: UP007
_FOUND: TypeAlias = Annotated[  # type: ignore[valid-type]
    Union[(*_STORED, _node_shape(KeyedItem))],
    Field(discriminator="type"),
]
RecallShape = _shape(
    RecallResult,
    candidates=list[_shape(Candidate, node=_FOUND)],  # type: ignore[misc]
    notes=_shape(NoteRecall) | None,
)
StepShape = _shape(Step, annotation=_shape(Annotation) | None)
ViewShape = _shape(MessageView, text=str)


@dataclasses.dataclass(frozen=True, slots=True)
class IndexLevels:
    """Where the index of a served repository stands."""

    revision: int
    documents: int
    waiting: int
    failing: str | None


def _rows(errors: Any) -> Any:
    return [[*key, error] for key, error in errors.items()]


def _errors(rows: Any) -> Any:
    return rows if isinstance(rows, dict) else {tuple(row[:-1]): row[-1] for row in rows}


_ERRORS = Annotated[
    dict[tuple[str, str], str],
    BeforeValidator(_errors, json_schema_input_type=list[list[str]]),
    PlainSerializer(_rows, return_type=list[list[str]]),
]
StatisticsShape = _shape(
    RepositoryStatistics,
    jobs=_shape(JobLevels, errors=_ERRORS),
    index=_shape(IndexLevels),
    notes=NotesStatistics,
)


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

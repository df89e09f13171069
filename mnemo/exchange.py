"""
What the HTTP service and its client send each other: shapes of values, errors, events.

Other values are described by their own dataclass. A shape is a pydantic model of the
dataclass's fields without those that JSON cannot hold; ``restored`` makes the value again.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial
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

import mnemo
from mnemo.notes.notes import NotesStatistics
from mnemo.store.archive import pages_of
from mnemo.values.graph import NODE_TYPES, KeyedItem, Node, Wording
from mnemo.values.steps import Annotation
from mnemo.wire import Format, listed, messages_of

LEFT_OUT = frozenset({"vector", "count", "owner", "token"})
"""Fields of no shape, whose defaults are restored: vectors, token counters, who holds a lease."""
_KINDS: dict[type[BaseModel], type] = {}


def _shape(kind: type, **replaced: Any) -> type[BaseModel]:
    """The model of the dataclass *kind*; *replaced* has types of fields, and further fields."""
    hints = typing.get_type_hints(kind, include_extras=True) | replaced
    declared = {f.name: f for f in dataclasses.fields(kind) if f.name not in LEFT_OUT}
    fields: dict[str, Any] = {name: (hints[name], _default(f)) for name, f in declared.items()}
    added = {name: type for name, type in replaced.items() if name not in declared}
    fields |= {name: (type, (typing.get_origin(type) or type)()) for name, type in added.items()}
    config = ConfigDict(from_attributes=True, title=kind.__name__)
    made: type[BaseModel] = create_model(
        kind.__name__, __config__=config, __doc__=kind.__doc__, **fields
    )
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
    Union[(*_STORED, _node_shape(KeyedItem))], Field(discriminator="type")
]
NoteRecallShape = _shape(mnemo.NoteRecall)
RecallShape = _shape(
    mnemo.RecallResult,
    candidates=list[_shape(mnemo.Candidate, node=_FOUND)],  # type: ignore[misc]
    notes=NoteRecallShape | None,
    text=str,
    citations=tuple[int, ...],
)
StepShape = _shape(mnemo.Step, annotation=_shape(Annotation) | None)
ViewShape = _shape(mnemo.MessageView, text=str)


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
    mnemo.RepositoryStatistics,
    jobs=_shape(mnemo.JobLevels, errors=_ERRORS),
    index=_shape(IndexLevels),
    notes=NotesStatistics,
)
SHAPES: dict[Any, Any] = {
    mnemo.RecallResult: RecallShape,
    mnemo.NoteRecall: NoteRecallShape,
    mnemo.NoteUpdate: _shape(
        mnemo.NoteUpdate,
        error=Annotated[str | None, BeforeValidator(lambda error: error and str(error))],
    ),
    mnemo.Step: StepShape,
    mnemo.Job: _shape(mnemo.Job),
    mnemo.MessageView: ViewShape,
    mnemo.RepositoryStatistics: StatisticsShape,
}
"""Types of results, and the shapes that stand for them."""


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


# ── What a client sends and reads ────────────────────────────────────────────────────────


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that say something; the service has the same defaults as the library."""
    return {name: value for name, value in arguments.items() if value is not None}


def messages_as_json(given: Any, format: Format | None) -> list[Any]:
    """One message or several of any format as JSON of mnemo's own fields; texts stay texts."""
    several = listed(given)
    made = iter(messages_of([one for one in several if not isinstance(one, str)], format))
    dump = partial(adapter(mnemo.Message).dump_python, mode="json", exclude_none=True)
    return [one if isinstance(one, str) else dump(next(made)) for one in several]


def plain(value: Any) -> Any:
    """What JSON has no form for. *Raises* ``ValueError``: it has none here either."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, mnemo.Step):
        return value.node_id
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise ValueError(f"{type(value).__name__} cannot be sent as JSON: {value!r:.80}")


def read_as(kind: Any, content: bytes) -> Any:
    """The value of an answer. *Raises* ``Unreachable``: it is no *kind*."""
    if kind is None:
        return None
    try:
        return restored(adapter(kind).validate_json(content))
    except ValueError as error:
        raise mnemo.Unreachable(f"the answer is not that of a mnemo service: {error}") from error


def error_of(status: int, content: bytes) -> Exception:
    """The exception that a problem document tells of, with its facts."""
    try:
        told = json.loads(content)
        detail, name = str(told["detail"]), told["error"]
    except (ValueError, KeyError, TypeError):
        return mnemo.Unreachable(f"the answer is not that of a mnemo service: {content[:200]!r}")
    if name in ("ValueError", "TimeoutError"):
        return {"ValueError": ValueError, "TimeoutError": TimeoutError}[name](detail)
    kind = getattr(mnemo, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, mnemo.MnemoError)):
        return mnemo.UsageError(f"{status}: {detail}")
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    for fact, value in {"reason": told["reason"], **told["facts"]}.items():
        setattr(error, fact, value)
    return error


async def encoded(lines: AsyncIterable[str] | Iterable[str]) -> AsyncIterator[bytes]:
    """*lines* as a body, each with its end; a plain iterable is read in a thread."""
    async with aclosing(pages_of(lines)) as pages:
        async for page in pages:
            yield "".join(line if line.endswith("\n") else line + "\n" for line in page).encode()


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class RemoteEvent:
    """
    A message of ``RemoteMnemo.events``.

    Attributes:
        name: ``ready``, ``changes``, or a class of ``mnemo.events``.
        data: Its fields as JSON has them; of ``changes`` those of ``Changes``.
        cursor: Of ``ready`` and ``changes``: give it as ``after=`` to go on behind it.
    """

    name: str
    data: Mapping[str, Any]
    cursor: str | None

    def __repr__(self) -> str:
        return f"<RemoteEvent {self.name}>"


async def read_events(lines: AsyncIterator[str]) -> AsyncIterator[RemoteEvent]:
    """The events of a stream of lines."""
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(":")
        if line and name:
            fields[name] = value.removeprefix(" ")
        elif not line and "data" in fields:
            name = fields.get("event", "message")
            yield RemoteEvent(name, json.loads(fields["data"]), fields.get("id"))
            fields = {}

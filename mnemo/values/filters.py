"""Filters of recall, search and listings: ``where=`` is read once into a ``Where``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import ge, gt, le, lt
from typing import Any, Literal, TypeAlias

from mnemo.runtime.clock import as_utc
from mnemo.runtime.text import fold, is_blank
from mnemo.runtime.validation import finite_number, known_id, known_time, quoted, stored_text

BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
"""Operator → whether a value stands so to its operand."""
OPERATORS = (*BOUNDS, "ne", "exists")
"""What a mapping under a key of ``where=`` may hold."""
MOST_CONDITIONS = 32
"""Keys of one ``where=``, at most."""
MOST_VALUES = 10_000
"""Values of which one must be there, of all keys of one ``where=`` together, at most (S)."""

_LISTS = (list, tuple, set, frozenset)

Scalar: TypeAlias = str | int | float | bool | None
ScalarKind: TypeAlias = Literal["text", "number", "boolean", "null"]


def kind_of(value: object) -> ScalarKind | None:
    """The kind of a JSON value; ``None``: no scalar. Kinds never compare: ``true`` is not 1."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "null" if value is None else None


def members(metadata: Mapping[str, Any], path: Sequence[str]) -> list[Any] | None:
    """What *metadata* holds at *path*, or a list's members; whole keys first; ``None``: absent."""
    whole = ".".join(path)
    if whole in metadata and not isinstance(metadata[whole], list | tuple):
        return [metadata[whole]]
    found = list(_at(metadata, tuple(path)))
    return [one for value in found for one in _flat(value)] if found else None


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _at(one, path) if isinstance(one, Mapping) else ()
    elif isinstance(value, Mapping):
        whole = ".".join(path)
        if whole in value:
            yield value[whole]
        elif path[0] in value and len(path) > 1:
            yield from _at(value[path[0]], path[1:])


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _flat(one)
    else:
        yield value


@dataclass(frozen=True, slots=True)
class Condition:
    """
    What must hold of one key.

    Attributes:
        any_of: One member must equal one of these; ``None``: no such test.
        bounds: Operator and operand; the same member must pass all of them.
        unequal: The operand of ``ne``, if any; a member must be of its kind, and none equal to it.
        exists: Whether the key must be there; ``None``: implied by the other tests.
    """

    path: tuple[str, ...]
    any_of: tuple[Scalar, ...] | None = None
    bounds: tuple[tuple[str, Scalar], ...] = ()
    unequal: tuple[Scalar, ...] = ()
    exists: bool | None = None
    _wanted: frozenset[tuple[ScalarKind | None, Scalar]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        wanted = frozenset((kind_of(one), one) for one in self.any_of or ())
        object.__setattr__(self, "_wanted", wanted)

    @property
    def tests_members(self) -> bool:
        """Whether one member has to pass ``any_of`` or ``bounds``."""
        return self.any_of is not None or bool(self.bounds)

    def accepts(self, member: Any) -> bool:
        """Whether one member passes ``any_of`` and ``bounds``."""
        kind = kind_of(member)
        if kind is None:
            return False
        if self.any_of is not None and (kind, member) not in self._wanted:
            return False
        return all(
            kind == kind_of(operand) and BOUNDS[operator](member, operand)
            for operator, operand in self.bounds
        )

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        """Whether it holds of *metadata*; of an absent key only ``exists: false`` does."""
        found = members(metadata, self.path)
        if found is None or self.exists is False:
            asks_more = self.tests_members or self.unequal
            return found is None and self.exists is False and not asks_more
        if self.tests_members and not any(map(self.accepts, found)):
            return False
        return all(
            any(kind_of(one) == kind_of(other) for one in found)
            and not any(_equal(one, other) for one in found)
            for other in self.unequal
        )


def _equal(one: Any, other: Any) -> bool:
    return kind_of(one) == kind_of(other) and bool(one == other)


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions on metadata that must all hold; none holds of everything."""

    conditions: tuple[Condition, ...] = ()

    @classmethod
    def checked(cls, where: Mapping[str, Any] | None) -> Where:
        """
        Read *where*: key → a value, a list of which one must be there, or operators.

        A key descends at its dots. A list in the data matches if a member does; an absent key
        matches ``exists: false`` alone; values of different kinds never match.

        *Raises* ``ValueError``: something in it is of no use, or there is too much of it.
        """
        if where is None:
            return cls()
        if not isinstance(where, Mapping):
            raise ValueError(f"where must map keys to conditions, not {type(where).__name__}")
        if len(where) > MOST_CONDITIONS:
            raise ValueError(f"where has {len(where)} keys; at most {MOST_CONDITIONS}")
        lists = [asked for asked in where.values() if isinstance(asked, _LISTS)]
        if sum(map(len, lists)) > MOST_VALUES:
            raise ValueError(f"where names more than {MOST_VALUES:,} values")
        return cls(tuple(_condition(key, asked) for key, asked in where.items()))

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        """Whether all conditions hold of *metadata*."""
        return all(condition.holds(metadata) for condition in self.conditions)


def _condition(key: object, asked: object) -> Condition:
    if not isinstance(key, str) or is_blank(key):
        raise ValueError(f"a key of where must be text that is not blank, not {quoted(key)}")
    path = tuple(stored_text("a key of where", key).split("."))
    if isinstance(asked, Mapping):
        return _operators(key, path, asked)
    if isinstance(asked, _LISTS):
        return Condition(path, any_of=tuple(_scalar(key, one) for one in asked))
    return Condition(path, any_of=(_scalar(key, asked),))


def _operators(key: str, path: tuple[str, ...], asked: Mapping[Any, Any]) -> Condition:
    known = ", ".join(OPERATORS)
    if not asked:
        raise ValueError(f"where[{key!r}] has no operator; known: {known}")
    for operator in asked:
        if operator not in OPERATORS:
            raise ValueError(
                f"where[{key!r}] has the unknown operator {quoted(operator)}; known: {known}"
            )
    exists = asked.get("exists")
    if "exists" in asked and not isinstance(exists, bool):
        raise ValueError(f"where[{key!r}]: exists takes True or False, not {quoted(exists)}")
    return Condition(
        path,
        bounds=tuple((name, _bound(key, name, asked[name])) for name in asked if name in BOUNDS),
        unequal=(_scalar(key, asked["ne"]),) if "ne" in asked else (),
        exists=exists,
    )


def _bound(key: str, operator: str, operand: object) -> Scalar:
    value = _scalar(key, operand)
    if kind_of(value) not in ("number", "text"):
        given = quoted(operand)
        raise ValueError(f"where[{key!r}]: {operator} takes a number or a text, not {given}")
    return value


def _scalar(key: str, value: object) -> Scalar:
    """Return *value* as metadata would hold it."""
    kind = kind_of(value)
    if kind is None:
        raise ValueError(
            f"where[{key!r}] compares with text, numbers, True, False or None, "
            f"not {type(value).__name__}"
        )
    if kind == "number":
        return finite_number(f"where[{key!r}]", value)
    return stored_text(f"where[{key!r}]", str(value)) if kind == "text" else value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """
    What evidence (a message or a step) must be like; what was extracted matches by its sources.

    Attributes:
        since, until: When it was said or done, both inclusive, aware.
        session_id: Of the session, or of the thread, that it was said in; *thread_id* likewise.
        actor: Whose words they are, folded; case and accents are no difference.
    """

    where: Where = field(default_factory=Where)
    since: datetime | None = None
    until: datetime | None = None
    session_id: str | None = None
    thread_id: str | None = None
    actor: str | None = None

    @classmethod
    def checked(
        cls,
        *,
        where: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        actor: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Filters:
        """Check the arguments that all filtered calls take. *Raises* ``ValueError``."""
        named = {"session_id": session_id, "thread_id": thread_id, "actor": actor}
        ids = {name: None if id is None else known_id(name, id) for name, id in named.items()}
        conditions = Where.checked(where)
        begin = None if since is None else known_time("since", since)
        end = None if until is None else known_time("until", until)
        if begin and end and begin > end:
            raise ValueError(f"since ({since}) lies after until ({until})")
        return cls(
            where=conditions,
            since=begin,
            until=end,
            session_id=ids["session_id"],
            thread_id=ids["thread_id"],
            actor=None if ids["actor"] is None else fold(ids["actor"]),
        )

    @property
    def is_open(self) -> bool:
        """Whether everything matches."""
        return self == _OPEN

    def in_time(self, at: datetime | None) -> bool:
        """Whether *at* lies inside; an unknown time only does where all do."""
        if at is None:
            return self.since is None and self.until is None
        early = self.since is not None and as_utc(at) < self.since
        late = self.until is not None and as_utc(at) > self.until
        return not (early or late)

    def holds(
        self,
        *,
        at: datetime | None,
        metadata: Mapping[str, Any],
        actors: Collection[str] = (),
        session_ids: Collection[str] = (),
        thread_id: str | None = None,
    ) -> bool:
        """Whether a piece of evidence matches; *actors* speak or act in it."""
        if self.actor is not None and self.actor not in map(fold, actors):
            return False
        if self.thread_id is not None and self.thread_id != thread_id:
            return False
        if self.session_id is not None and self.session_id not in (*session_ids, thread_id):
            return False
        return self.in_time(at) and self.where.holds(metadata)


_OPEN = Filters()

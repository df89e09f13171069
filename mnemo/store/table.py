"""Table descriptors: the columns, DDL, upsert and reads of an entity, from its declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, TypeVar

from mnemo.store.rows import Rows
from mnemo.store.tx import Tx
from mnemo.values import codec
from mnemo.values.fields import Entity, Rule, Stored, Type, getter
from mnemo.values.messages import ToolCall

T = TypeVar("T")
V = TypeVar("V")

_SQL: Mapping[Type, str] = {
    "whole": "INTEGER",
    "flag": "INTEGER",
    "number": "REAL",
    "vector": "BLOB",
    "bytes": "BLOB",
    "changeset": "BLOB",
}
"""Type of the column; text otherwise."""
_EMPTY = "{}"
_NULL_IF_EMPTY = frozenset({"content", "calls", "extras"})
ARRIVAL = "rowid"
"""Orders the rows of a table without a number as they were inserted (S)."""
LETTERS = {"INTEGER": "i", "REAL": "f", "TEXT": "s", "BLOB": "b"}


def decode_shown(text: str) -> tuple[tuple[str, str], ...]:
    """Stream and id of each record that surfaced. *Raises* ``ValueError`` for other JSON."""
    return tuple((str(one), str(other)) for one, other in codec.decode_list(text, list))


def _tuple_of(kind: type[Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(codec.decode_list(text, kind))


def _checked_item(text: str) -> str:
    codec.decode_object(text)
    return text


def _call(id: str, name: str, arguments: Any) -> ToolCall:
    """One that was checked before it was stored."""
    call = object.__new__(ToolCall)
    for field, value in (("id", id), ("name", name), ("arguments", arguments)):
        object.__setattr__(call, field, value)
    return call


_STORE: Mapping[Type, Callable[[Any], Any]] = {
    "flag": int,
    "time": codec.encode_time,
    "instant": codec.utc_text,
    "vector": codec.encode_vector,
    "enum": str,
    "object": lambda value: codec.encode_json(dict(value)) if value else _EMPTY,
    "changeset": codec.encode_changeset,
    "texts": codec.encode_json,
    "wholes": codec.encode_json,
    "objects": codec.encode_json,
    "pairs": lambda value: "[]" if value == () else codec.encode_json(value),
    "content": lambda value: value if isinstance(value, str) else None,
    "calls": lambda calls: (
        codec.encode_json([(c.id, c.name, c.arguments) for c in calls]) if calls else None
    ),
    "extras": lambda value: codec.encode_json(dict(value)) if value else None,
}
_ENUM: Callable[[Any], Any] = StrEnum
"""Stands for the enumeration of the field."""
_LOAD: Mapping[Type, Callable[[Any], Any]] = {
    "enum": _ENUM,
    "flag": bool,
    "time": codec.decode_time,
    "instant": codec.decode_time,
    "vector": codec.decode_vector,
    "object": lambda text: codec.decode_object(text) if text != _EMPTY else {},
    "changeset": codec.decode_changeset,
    "texts": _tuple_of(str),
    "wholes": _tuple_of(int),
    "objects": _tuple_of(dict),
    "pairs": decode_shown,
    "calls": lambda text: (
        tuple(_call(*call) for call in codec.decode_list(text, list)) if text else ()
    ),
    "extras": lambda text: codec.decode_object(text) if text else {},
    "item": _checked_item,
}


class Table(Generic[T]):
    """
    Where an entity is kept.

    Args:
        owners: The columns with the numbers of what it belongs to within its repository, which
            are part of its key.
        number: Its own number, as DDL: ``$number``, or another word of ``store.tx``.
        extra: Columns that the entity does not know, as DDL.
        columns: Names of columns, where they are not the fields'.
        last: Fields that may be long, behind all others: what is counted and filtered by is
            read without the pages that long values overflow to.
        without: Fields that a subclass keeps in its own way.
        nullable: Fields that may be NULL, though their values are never ``None``.
        keyed: Whether its key is with its parent; else an index of its own says so, if any.
        rowid: Whether rows are looked up in other ways than by their key.

    Attributes:
        parents: The repository's number, which every row names, and the *owners*.
        types: Every column of the entity's fields, but for the owners', as DDL.
        columns: Their names.
        rows: Reads the ids of its owners (if there are any) and those columns, in that order;
            *words* says what they hold, as ``Rows`` takes it.
        checked: As of ``Entity``; ``None``: its fields fit each other whatever they are.
        number: The column with its own number; "": there is none.
    """

    def __init__(
        self,
        name: str,
        entity: Entity[T],
        *,
        owners: Sequence[str] = (),
        number: str = "",
        extra: Sequence[str] = (),
        columns: Mapping[str, str] | None = None,
        last: Sequence[str] = (),
        without: Sequence[str] = (),
        nullable: Sequence[str] = (),
        keyed: bool = True,
        rowid: bool = True,
    ) -> None:
        self.name: str = name
        self.entity: Entity[T] = entity
        self.number: str = number.partition(" ")[0]
        self.parents: tuple[str, ...] = ("repo", *owners)
        named = columns or {}
        kept = [replace(f, optional=f.optional or f.name in nullable) for f in entity.fields]
        named_by = [f for f in kept if f.name in entity.owners]
        own = [f for f in kept if f.name not in (*entity.owners, *without)]
        fields = sorted(own, key=lambda f: last.index(f.name) + 1 if f.name in last else 0)
        self.types: dict[str, str] = {named.get(f.name, f.name): _sql(f) for f in fields}
        self.columns: tuple[str, ...] = tuple(self.types)
        self.key: tuple[str, ...] = tuple(named.get(field, field) for field in entity.key)
        self.order: tuple[str, ...] = tuple(named.get(field, field) for field in entity.order)
        self._get = getter(f.path for f in fields)
        self._stores = _converters(_STORE, fields)
        self._names = [f.name for f in (*named_by, *fields)]
        self._loads = dict(_converters(_LOAD, (*named_by, *fields)))
        self.judges: dict[str, Rule] = {
            column: judge
            for column, field in zip(self.columns, fields, strict=True)
            if (judge := _judge(field)) is not None
        }
        """What raises ``ValueError`` for a value, not NULL, that no column can hold."""
        self.checked: Callable[[T], Any] | None = entity.checked
        self.named: Callable[[Sequence[Any]], dict[str, Any]] = self._compiled(dict)
        """The fields of a row by name."""
        self.read: Callable[[Sequence[Any]], T] = self._compiled(entity.make)
        """The value of a row as ``rows`` expects it, unless it is damaged."""
        self._ddl = (number, extra, keyed, rowid)
        self.words: str = " ".join(_word(f) for f in (*named_by, *fields))
        first = len(named_by)
        key = [*range(first), *(self.columns.index(c) + first for c in self.key)]
        self.rows: Rows[T] = Rows(name, self.words, self.read, key=key or [0])

    # ── Values ───────────────────────────────────────────────────────────────────────

    def values(self, value: T) -> tuple[Any, ...]:
        found = list(self._get(value))
        for place, store in self._stores:
            found[place] = store(found[place])
        return tuple(found)

    def _compiled(self, make: Callable[..., V], **more: str) -> Callable[[Sequence[Any]], V]:
        """Compile ``make(id=row[0], …)``, twice as fast as a loop; *more* are expressions."""
        values = {
            name: f"load{place}(row[{place}])" if place in self._loads else f"row[{place}]"
            for place, name in enumerate(self._names)
        }
        arguments = ", ".join(f"{name}={value}" for name, value in (values | more).items())
        known = {f"load{place}": load for place, load in self._loads.items()}
        # As dataclasses make their methods; all names in it are those of our own fields.
        compiled: Callable[[Sequence[Any]], V] = eval(
            f"lambda row: make({arguments})", {"make": make, "table": self, **known}
        )
        return compiled

    # ── Statements ───────────────────────────────────────────────────────────────────

    @property
    def ddl(self) -> str:
        number, extra, keyed, rowid = self._ddl
        said = [number] if number else []
        said += [*(f"{parent} INTEGER NOT NULL" for parent in self.parents), *extra]
        said += [f"{column} {type}" for column, type in self.types.items()]
        if keyed:
            constraint = "UNIQUE" if number else "PRIMARY KEY"
            said.append(f"{constraint} ({', '.join((*self.parents, *self.key))})")
        counted = f"$keyed({self.number})" if number else ""
        clustered = "" if rowid else " $clustered"
        return f"CREATE TABLE {self.name} ({', '.join(said)}{counted}){clustered}"

    def of(self, alias: str) -> str:
        """``columns`` of the table called *alias* in a query."""
        return ", ".join(f"{alias}.{column}" for column in self.columns)

    @cached_property
    def select(self) -> str:
        """Select ``columns`` of what *parents* have; conditions and an order may follow."""
        found = " AND ".join(f"{parent} = ?" for parent in self.parents)
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {found}"

    @cached_property
    def insert(self) -> str:
        return self.insert_with()

    def insert_with(self, *more: str) -> str:
        """``insert`` that sets columns besides, behind the others."""
        names = (*self.parents, *self.columns, *more)
        return (
            f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})"
        )

    @cached_property
    def upsert(self) -> str:
        return self.upsert_of(1)

    def upsert_of(self, rows: int) -> str:
        """``upsert`` of so many rows with different keys."""
        changed = ", ".join(f"{c} = excluded.{c}" for c in self.columns if c not in self.key)
        key = ", ".join((*self.parents, *self.key))
        more = f", ({', '.join('?' for _ in (*self.parents, *self.columns))})" * (rows - 1)
        return f"{self.insert}{more} ON CONFLICT ({key}) DO UPDATE SET {changed}"

    # ── Rows ─────────────────────────────────────────────────────────────────────────

    def get(self, tx: Tx, repo: int, *key: object) -> T | None:
        """The value of this key, of an entity without owners. *Raises* ``StoreCorrupt``."""
        statement = self.select + "".join(f" AND {column} = ?" for column in self.key)
        row = tx.run(statement, (repo, *key)).fetchone()
        return None if row is None else self.rows.one(row)

    # *owners*: The numbers of what it belongs to.

    def add(self, tx: Tx, repo: int, value: T) -> None:
        tx.run(self.insert, (repo, *self.values(value)))

    def add_once(self, tx: Tx, repo: int, value: T) -> None:
        tx.run(f"{self.insert} ON CONFLICT DO NOTHING", (repo, *self.values(value)))

    def put(self, tx: Tx, repo: int, value: T, *owners: int) -> None:
        tx.run(self.upsert, (repo, *owners, *self.values(value)))

    def drop(self, tx: Tx, repo: int, value: T, *owners: int) -> None:
        named = dict(zip(self.columns, self.values(value), strict=True))
        found = " AND ".join(f"{column} = ?" for column in (*self.parents, *self.key))
        values = (repo, *owners, *(named[c] for c in self.key))
        tx.run(f"DELETE FROM {self.name} WHERE {found}", values)


def _converters(
    known: Mapping[Type, Callable[[Any], Any]], fields: Sequence[Stored]
) -> list[tuple[int, Callable[[Any], Any]]]:
    """What converts the values of *fields* that need it, by their places."""
    found = ((n, known.get(f.type), f) for n, f in enumerate(fields))
    return [
        (n, _maybe(f.hint if convert is _ENUM else convert, f))
        for n, convert, f in found
        if convert is not None
    ]


def _judge(field: Stored) -> Rule | None:
    """What decodes a value and judges it; a flag is a number until it is read."""
    load = None if field.type == "flag" else _LOAD.get(field.type)
    rule, decode = field.rule, field.hint if load is _ENUM else load
    if rule is None or decode is None:
        return rule or decode
    return lambda value: rule(decode(value))


def _maybe(convert: Callable[[Any], Any], field: Stored) -> Callable[[Any], Any]:
    if not field.optional or field.type in _NULL_IF_EMPTY:
        return convert
    nothing = () if field.type in ("texts", "wholes") else None
    return lambda value: nothing if value is None else convert(value)


def _sql(field: Stored) -> str:
    may_be_null = field.optional or field.type in _NULL_IF_EMPTY
    return _SQL.get(field.type, "TEXT") + ("" if may_be_null else " NOT NULL")


def _word(field: Stored) -> str:
    sql = _sql(field)
    return LETTERS[sql.split()[0]] + ("" if sql.endswith("NOT NULL") else "?")

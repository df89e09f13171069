"""
The kinds of record of an archive: rows of tables as lines, one JSON object each.

A line says the columns of its row; instead of the number of an owner it says the owner's id,
and in place of ``kind``, which every line has, a column of that name is called ``type``.

Within a kind: sessions as they were made, episodes and trajectories by those, steps as
they arrived, nodes as they were stored, edges by the places of their ends, vectors and
changesets as they were written; threads by their ids, messages as they arrived, what is
derived from them by thread and then by range, seq or goal id. Notes by topic, deleted ones
too; versions by topic and number; changes by update and then as they were made; marks as they
were set; requests and tasks by what they are known by. Checkpoints, values and writes by thread,
namespace and id; items by namespace and key, expired ones too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any

from mnemo.store import tables
from mnemo.store.rows import UNDECODABLE, Rows, repo_row
from mnemo.store.table import LETTERS, Table
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import ArchiveHead
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.fields import Rule, exact_text

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_WANTED = {
    "i": ((int,), "a whole number"),
    "f": ((float, int), "a number"),
    "s": ((str,), "text"),
    "b": ((bytes,), "base64"),
}
_OWNERS: Mapping[str, Table[Any]] = {
    "session": tables.SESSIONS,
    "episode": tables.EPISODES,
    "source": tables.NODES,
    "target": tables.NODES,
    "thread": tables.THREADS,
    "note": tables.NOTES,
}
"""Owners by the column that has their number."""


def line_of(said: Mapping[str, Any]) -> str:
    """A line in ASCII, so that no encoding, editor or splitter of lines can harm it."""
    return _ENCODER.encode(said) + "\n"


class Kind:
    """
    A kind of record, and the order that its rows have in an archive.

    Args:
        name: As lines have it.
        table: Where its rows, *d*, are.
        owners: The columns with numbers of owners, which *source* joins under these names.
        source: *d* and its owners; default: what each owner has, in the order of their ids.
        first: Whether the rows are read first, and their owners looked up by number.
        where: What else holds of the rows.
        by: The number whose order the rows have, of *d* or an owner; it comes with nothing sorted.
        order: Of the rows; default: that of the table.
        said: Of columns that are not said as they are stored, how they are said.
        more: Columns that the table's entity does not know: the type, and what judges them.
        fits: Raises ``ValueError`` for a row that does not fit the head.
        found_by: Columns beside these that staged rows have, as DDL; *find* gives them, of a row
            and its value.
        parts: What a record has several of: the table where these are staged, its two columns, and
            what gives those of a value.
        is_unique: Whether owners and key name one record.

    *types*: All columns that a line says, owners first, as DDL; *columns*: their names; *stored*:
    those of the table.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any],
        *,
        owners: Sequence[str] | None = None,
        source: str = "",
        first: bool = False,
        where: str = "",
        by: str = "",
        order: str = "",
        said: Mapping[str, str] | None = None,
        more: Mapping[str, tuple[str, Rule | None]] | None = None,
        fits: Callable[[Sequence[Any], ArchiveHead], None] = lambda row, head: None,
        found_by: dict[str, str] | None = None,
        find: Callable[[Sequence[Any], Any], tuple[Any, ...]] = lambda row, value: (),
        parts: tuple[str, str, str, Callable[[Any], Iterable[str]]] | None = None,
        is_unique: bool = True,
    ) -> None:
        self.name: str = name
        self.table: Table[Any] = table
        self.parts: tuple[str, str, str, Callable[[Any], Iterable[str]]] | None = parts
        self.is_unique: bool = is_unique
        self.found_by: dict[str, str] = found_by or {}
        self.find: Callable[[Sequence[Any], Any], tuple[Any, ...]] = find
        self._fits = fits
        more, said = more or {}, said or {}
        given = [c for c in table.parents if c in _OWNERS] if owners is None else owners
        self.owners: dict[str, Table[Any]] = {column: _OWNERS[column] for column in given}
        self.types: dict[str, str] = dict.fromkeys(self.owners, "TEXT NOT NULL") | table.types
        self.types |= {column: type for column, (type, _) in more.items()}
        self.columns: tuple[str, ...] = tuple(self.types)
        self.stored: list[str] = [c for c in self.columns if not (c in more and c in said)]
        rules = table.judges | {column: rule for column, (_, rule) in more.items() if rule}
        rules |= dict.fromkeys(self.owners, exact_text)
        self._judges = [(n, rules[c]) for n, c in enumerate(self.columns) if c in rules]
        self._blobs = [n for n, type in enumerate(self.types.values()) if type.startswith("BLOB")]
        self._names = tuple("type" if c == "kind" else c for c in self.columns)
        self._known = {"kind", *self._names}
        self._seen: set[tuple[type, ...]] = set()
        self._revision = self.columns.index("revision") if "revision" in self.columns else None
        further = len(self.owners) - len(table.entity.owners)
        self._key = (*range(further), *(further + place for place in table.rows.key))
        if first:
            owned, link = "", " $join {0} {1} ON {1}.no = d.{1} AND $also {1}.repo = d.repo"
        else:
            owned = "".join(f"{o.name} {c} $join " for c, o in self.owners.items())
            link = " ON d.repo = {1}.repo AND d.{1} = {1}.no"
        linked = "".join(link.format(o.name, c) for c, o in self.owners.items())
        self.source: str = source or f"{owned}{table.name} d{linked}"
        alias, _, number = by.partition(".")
        repo = alias or (given[0] if given and not first else "d")
        self.where: str = f"{repo}.repo = :repo {where}"
        found = self.where
        if by:
            numbered = _OWNERS.get(alias, table).name
            among = f"(SELECT {number} FROM {numbered} WHERE repo = :repo)"
            found = f"$also {alias}.repo = :repo AND {by} IN {among}"
        ids = {column: f"{column}.{owner.key[0]}" for column, owner in self.owners.items()}
        expressions = {c: f"d.{c}" for c in self.columns} | ids | dict(said)
        self.query = (
            f"SELECT {', '.join(expressions.values())} FROM {self.source} WHERE {found} ORDER BY "
            + (order or by or ", ".join((*ids.values(), *(f"d.{c}" for c in table.order))))
        )

    # ── Rows to lines ────────────────────────────────────────────────────────────────

    def rows(self, head: ArchiveHead) -> Rows[str]:
        """Reads ``columns`` as the line that says them, in an archive with *head*."""
        return Rows(self.table.name, "", partial(self._line, head), key=self._key)

    def _line(self, head: ArchiveHead, row: Sequence[Any]) -> str:
        self.value(row, head)
        said: dict[str, Any] = {"kind": self.name}
        said.update(zip(self._names, row, strict=True))
        for place in self._blobs:
            if row[place] is not None:
                said[self._names[place]] = base64.b64encode(row[place]).decode("ascii")
        return line_of(said)

    def left_out(self, key: str) -> str:
        """The line in the place of a row that is damaged in its store."""
        return line_of({"kind": self.name, "damaged": key})

    # ── Lines to rows ────────────────────────────────────────────────────────────────

    def row(self, said: Mapping[str, Any]) -> list[Any]:
        """
        The row of a line, not judged yet, NULL where it says nothing. *Raises* ``ValueError``.
        """
        if unknown := said.keys() - self._known:
            raise ValueError(f"{min(unknown)}: there is no such field")
        row: list[Any] = [said.get(name) for name in self._names]
        for place in self._blobs:
            if isinstance(row[place], str):
                try:
                    row[place] = base64.b64decode(row[place], validate=True)
                except ValueError as error:
                    raise ValueError(f"{self._names[place]}: no base64: {error}") from None
        return row

    def value(self, row: Sequence[Any], head: ArchiveHead) -> Any:
        """Judge a row; give its value, where columns have to fit. *Raises* ``ValueError``."""
        shape = tuple(map(type, row))
        if shape not in self._seen:
            self._check(shape)
        place = -1
        try:
            for place, judge in self._judges:
                if row[place] is not None:
                    judge(row[place])
            place = -1
            if self._revision is not None and row[self._revision] > head.revision:
                raise ValueError(f"its revision is past that of the head, {head.revision}")
            self._fits(row, head)
            checked = self.table.checked
            return None if checked is None else checked(self.table.read(row))
        except UNDECODABLE as error:
            where = "" if place < 0 else f"{self._names[place]}: "
            raise ValueError(f"{where}{error}") from None

    def _check(self, shape: Sequence[type]) -> None:
        for found, type, name in zip(shape, self.types.values(), self._names, strict=True):
            allowed, wanted = _WANTED[LETTERS[type.split()[0]]]
            required = type.endswith("NOT NULL")
            if found not in allowed and (required or found is not NoneType):
                raise ValueError(f"{name}: it must be {wanted}, not {found.__name__}")
        self._seen.add(tuple(shape))


# ── A repository ─────────────────────────────────────────────────────────────────────


def head_of(tx: Tx, repo_id: str, kinds: Collection[Kind]) -> tuple[int, ArchiveHead]:
    """The repository's row number, and what an archive of it says first."""
    repo, revision, name, dimensions = repo_row(tx, repo_id)
    space = EmbeddingSpace(name, dimensions) if name is not None and dimensions else None
    counting = " UNION ALL ".join(
        f"SELECT '{kind.name}', count(*) FROM {kind.source} WHERE {kind.where}" for kind in kinds
    )
    counts = dict(tx.run(counting, {"repo": repo}).fetchall())
    return repo, ArchiveHead(revision=revision, space=space, counts=counts)


def opened(kind: Kind, repo: int, tx: Tx) -> Result:
    return tx.run(kind.query, {"repo": repo})

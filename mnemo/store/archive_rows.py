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
from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any

from mnemo.store import tables
from mnemo.store.rows import UNDECODABLE, Rows, repo_row
from mnemo.store.table import ARRIVAL, LETTERS, Table
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import ArchiveHead
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.fields import Rule, count, exact_text, share

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

    *types*: All columns that a line says, owners first, as DDL; *columns*: their names.
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
    ) -> None:
        self.name, self.table, self.more = name, table, more or {}
        given = [c for c in table.parents if c in _OWNERS] if owners is None else owners
        self.owners = {column: _OWNERS[column] for column in given}
        self.types = dict.fromkeys(self.owners, "TEXT NOT NULL") | table.types
        self.types |= {column: type for column, (type, _) in self.more.items()}
        self.columns = tuple(self.types)
        rules = table.judges | {column: rule for column, (_, rule) in self.more.items() if rule}
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
        self.source = source or f"{owned}{table.name} d{linked}"
        alias, _, number = by.partition(".")
        repo = alias or (given[0] if given and not first else "d")
        self.where = f"{repo}.repo = :repo {where}"
        found = self.where
        if by:
            numbered = _OWNERS.get(alias, table).name
            among = f"(SELECT {number} FROM {numbered} WHERE repo = :repo)"
            found = f"$also {alias}.repo = :repo AND {by} IN {among}"
        ids = {column: f"{column}.{owner.key[0]}" for column, owner in self.owners.items()}
        expressions = {c: f"d.{c}" for c in self.columns} | ids | dict(said or {})
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
            self._check_head(row, head)
            checked = self.table.checked
            return None if checked is None else checked(self.table.read(row))
        except UNDECODABLE as error:
            where = "" if place < 0 else f"{self._names[place]}: "
            raise ValueError(f"{where}{error}") from None

    def _check_head(self, row: Sequence[Any], head: ArchiveHead) -> None:
        if self._revision is not None and row[self._revision] > head.revision:
            raise ValueError(f"its revision is past that of the head, {head.revision}")
        if self.table is tables.VECTORS:
            dimensions = head.space.dimensions if head.space else 0
            if len(row[1]) != 4 * dimensions:
                raise ValueError(f"the vector has {len(row[1]) // 4} dimensions, not {dimensions}")

    def _check(self, shape: Sequence[type]) -> None:
        for found, type, name in zip(shape, self.types.values(), self._names, strict=True):
            allowed, wanted = _WANTED[LETTERS[type.split()[0]]]
            required = type.endswith("NOT NULL")
            if found not in allowed and (required or found is not NoneType):
                raise ValueError(f"{name}: it must be {wanted}, not {found.__name__}")
        self._seen.add(tuple(shape))


# ── Kinds ────────────────────────────────────────────────────────────────────────────

_FLAG = ("INTEGER NOT NULL", share)
_ANNOTATION = {
    column: (type.split()[0], tables.ANNOTATIONS.judges.get(column))
    for column, type in tables.ANNOTATIONS.types.items()
}

_ALL = (
    Kind(
        "session",
        tables.SESSIONS,
        by="d.no",
        # It was last active when its last step was recorded, if that is later.
        said={
            "updated_at": "$greatest(d.updated_at, coalesce((SELECT recorded_at FROM steps "
            "WHERE repo = d.repo AND episode = d.episode ORDER BY idx DESC LIMIT 1), d.updated_at))"
        },
    ),
    Kind("episode", tables.EPISODES, by="session.no", order="session.no, d.no"),
    Kind(
        "trajectory",
        tables.STAGED,
        source="sessions session "
        "$join episodes episode ON episode.repo = session.repo AND episode.session = session.no "
        "$join staged d ON d.repo = episode.repo AND d.episode = episode.no",
        by="session.no",
        order=f"session.no, episode.no, d.{ARRIVAL}",
    ),
    Kind(
        "step",
        tables.STEPS,
        owners=("session", "episode"),
        first=True,
        order="d.ordinal",
        more={"committed": _FLAG, "gone": _FLAG, **_ANNOTATION},
    ),
    Kind("node", tables.NODES, by="d.no", more={"revision": ("INTEGER NOT NULL", count)}),
    Kind(
        "edge",
        tables.EDGES,
        source="nodes source $join edges d ON d.repo = source.repo AND d.source = source.no "
        "$join nodes target ON target.no = d.target AND $also target.repo = d.repo",
        by="source.no",
        order="source.no, d.target, d.kind",
    ),
    # Messages have other numbers where they are imported: recall embeds them anew.
    Kind("vector", tables.VECTORS, where="AND d.key NOT LIKE 'message-%'", order="d.seq"),
    Kind("changeset", tables.CHANGESETS, order=f"d.{ARRIVAL}"),
    Kind("thread", tables.THREADS),
    Kind(
        "message",
        tables.MESSAGES,
        first=True,
        order="d.no",
        said={
            "searched": "CASE WHEN EXISTS (SELECT 1 FROM texts x "
            "WHERE x.no = 4 * d.no + 2 AND $also x.repo = d.repo) THEN 1 ELSE 0 END"
        },
        more={"searched": _FLAG},
    ),
    Kind("compaction", tables.COMPACTIONS),
    Kind("snapshot", tables.SNAPSHOTS),
    Kind("outcome", tables.OUTCOMES),
    Kind("goal", tables.GOALS),
    Kind("pin", tables.PINS),
    Kind("note", tables.NOTES),
    Kind("note_version", tables.NOTE_VERSIONS),
    Kind("note_change", tables.NOTE_CHANGES, first=True, order="coalesce(d.update_id, ''), d.seq"),
    Kind("note_mark", tables.NOTE_MARKS, order="d.seq"),
    # The topic of a note that was purged would be a trace of it.
    Kind(
        "note_request",
        tables.NOTE_REQUESTS,
        source="note_requests d LEFT JOIN notes n ON n.repo = d.repo AND n.topic = d.topic",
        said={"topic": "n.topic"},
    ),
    Kind("note_task", tables.NOTE_TASKS),
    Kind("checkpoint", tables.CHECKPOINTS),
    Kind("channel_value", tables.CHANNEL_VALUES),
    Kind("checkpoint_write", tables.CHECKPOINT_WRITES),
    Kind("item", tables.ITEMS),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}
"""By their names, in the order of an archive."""
_COUNTS = " UNION ALL ".join(
    f"SELECT '{kind.name}', count(*) FROM {kind.source} WHERE {kind.where}" for kind in _ALL
)


def head_of(tx: Tx, repo_id: str) -> tuple[int, ArchiveHead]:
    """The repository's row number, and what an archive of it says first."""
    repo, revision, name, dimensions = repo_row(tx, repo_id)
    space = EmbeddingSpace(name, dimensions) if name is not None and dimensions else None
    counts = dict(tx.run(_COUNTS, {"repo": repo}).fetchall())
    return repo, ArchiveHead(revision=revision, space=space, counts=counts)


def opened(kind: Kind, repo: int, tx: Tx) -> Result:
    return tx.run(kind.query, {"repo": repo})

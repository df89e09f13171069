"""The rows of keyed items, and the transactions of one repository over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from mnemo.log.vectors import check_space, stamp
from mnemo.store.archive_rows import Kind
from mnemo.store.check import OF_REPO, Rule, absent, misshapen
from mnemo.store.engine import OfRepository
from mnemo.store.rows import Rows, chunks, holes, repo_number, repo_row
from mnemo.store.tables import ITEMS
from mnemo.store.tx import Tx
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.codec import (
    decode_list,
    decode_time,
    decode_vector,
    encode_json,
    encode_vector,
    utc_text,
)
from mnemo.values.erasure import ErasureReport, Selection
from mnemo.values.graph import Vector
from mnemo.values.items import Item, ItemVectorRows, Namespace, expiry

T = TypeVar("T")

_LIVE = "i.repo = ? AND (i.expires_at IS NULL OR i.expires_at > ?)"
# Encoded, a namespace that begins with another continues with a comma where that one ends
# with a bracket, which is behind the comma in the order of code points.
_UNDER = "i.namespace BETWEEN ? AND ?"
_GET = f"""
SELECT {ITEMS.of("i")} FROM items i WHERE {_LIVE} AND i.namespace = ? AND i.key = ?
"""
_NUMBERS = f"SELECT i.no FROM items i WHERE {_LIVE} {{}} ORDER BY i.updated_at DESC, i.no DESC"
_ITEMS = f"SELECT i.no, {ITEMS.of('i')} FROM items i WHERE $also i.repo = ? AND i.no IN ({{}})"
_NAMESPACES = f"SELECT DISTINCT i.namespace FROM items i WHERE {_LIVE}"
_PLACES = f"""
SELECT v.seq, v.item FROM items i $join item_vectors v ON v.repo = i.repo AND v.item = i.no
WHERE {_LIVE} {{}} AND v.vector IS NOT NULL ORDER BY v.seq
"""
_VECTORS = """
SELECT seq, vector FROM item_vectors
WHERE repo = ? AND seq > ? AND vector IS NOT NULL ORDER BY seq LIMIT ?
"""
_VECTORS_OF = """
SELECT seq, vector FROM item_vectors WHERE $also repo = ? AND seq IN ({}) ORDER BY seq
"""
_VECTOR_COUNT = "SELECT count(*) FROM item_vectors WHERE repo = ?"
_OWED = """
SELECT v.seq, v.field, i.texts FROM item_vectors v
$join items i ON i.no = v.item AND $also i.repo = v.repo
WHERE v.repo = ? AND v.vector IS NULL ORDER BY v.seq LIMIT ?
"""
# What has expired is not there: what is put in its place is new.
_PUT = f"""
INSERT INTO items (repo, {", ".join(ITEMS.columns)}) VALUES {{}}
ON CONFLICT (repo, namespace, key) DO UPDATE SET
created_at = CASE WHEN items.expires_at <= excluded.updated_at THEN excluded.created_at
             ELSE items.created_at END,
{", ".join(f"{c} = excluded.{c}" for c in ITEMS.columns if c not in (*ITEMS.key, "created_at"))}
RETURNING no, namespace, key
"""
_PUTS_AT_ONCE = 32
"""Few sizes of a statement stay prepared (S)."""
_PUT_VECTOR = "INSERT INTO item_vectors (seq, repo, item, field, vector) VALUES (?, ?, ?, ?, ?)"
_FIND = "SELECT no, expires_at FROM items WHERE repo = ? AND namespace = ? AND key = ?"
_REFRESH = """
UPDATE items SET expires_at = ?
WHERE repo = ? AND namespace = ? AND key = ? AND ttl_s = ? AND expires_at > ?
"""
_EXPIRED = "SELECT no FROM items WHERE repo = ? AND expires_at <= ? ORDER BY expires_at LIMIT ?"
EXPIRING = "SELECT 1 FROM items WHERE repo = ? AND expires_at IS NOT NULL LIMIT 1"
_NEXT_EXPIRY = "SELECT min(expires_at) FROM items WHERE repo = ? AND expires_at IS NOT NULL"
_BEFORE = "SELECT no FROM items WHERE repo = ? AND updated_at < ?"
_SETTLE = """
DELETE FROM item_vectors WHERE $also repo = ? AND seq = ? AND vector IS NULL RETURNING item, field
"""
_TEXTS = "SELECT no, texts FROM items WHERE repo = ?"

_NAMESPACE, _KEY = map(ITEMS.columns.index, ITEMS.key)
_NUMBERED = Rows("items", f"i {ITEMS.words}", lambda row: (row[0], ITEMS.read(row[1:])))
_NAMESPACE_ROWS = Rows("items", "s", lambda row: tuple(decode_list(row[0], str)))
_OWED_ROWS: Rows[tuple[int, str]] = Rows(
    "items", "i s s", lambda row: (row[0], dict(decode_list(row[2], list))[row[1]])
)


_FIELDS = Rows("items", "i s", lambda row: [(row[0], one[0]) for one in decode_list(row[1], list)])

_TEXT = "i.no = v.item AND $also i.repo = v.repo AND v.field IN $firsts(i.texts)"
RULES: tuple[Rule, ...] = (
    misshapen("vectors of items", "v.field", f"item_vectors {OF_REPO}", "r.space_dimensions"),
    (
        "vectors whose item or its text is gone",
        "v.field",
        f"item_vectors v WHERE {absent('items i', _TEXT)}",
    ),
)

KIND = Kind(
    "item", ITEMS, parts=("fields", "item", "field", lambda item: [name for name, _ in item.texts])
)
MOVE = """
INSERT INTO item_vectors (seq, repo, item, field)
SELECT :item_vectors + row_number() OVER (ORDER BY item), :repo, :items + item, field
FROM staging.fields
"""

_Handed: TypeAlias = "tuple[str, datetime, Callable[[ItemWriter], Any]]"
"""Work on its way to the writer, behind its repository and the store's time for it."""


class _Put(NamedTuple):
    """An item's row, and the vectors of its texts."""

    row: tuple[Any, ...]
    texts: Sequence[tuple[str, str]]
    vectors: Sequence[bytes]
    space: EmbeddingSpace


class StoredItems(OfRepository):
    """The keyed items of one repository, as transactions."""

    async def reading(self, work: Callable[[ItemReader], T]) -> T:
        """Run *work* on one revision of the store. *Cancellation*: safe."""
        now = self._clock.now()
        return await self._engine.reading(lambda tx: work(ItemReader(tx, self._repo_id, now)))

    async def writing(self, work: Callable[[ItemWriter], T]) -> T:
        """Run *work* in one transaction of the writer. *Cancellation*: completes."""
        handed = (self._repo_id, self._clock.now(), work)
        result: T = await self._engine.merging(_write, handed, locks=[("items", self._repo_id)])
        return result


class ItemReader:
    """Reads the items of a repository at *now*, the store's time, aware."""

    def __init__(self, tx: Tx, repo_id: str, now: datetime) -> None:
        self._given = tx
        self._repo_id = repo_id
        self._repo, _, _, self._dimensions = row = repo_row(tx, repo_id)
        self.space, self.now = stamp(row), now

    @property
    def _tx(self) -> Tx:
        return self._given

    @property
    def _live(self) -> tuple[int, str]:
        return self._repo, utc_text(self.now)

    def _under(self, query: str, prefix: Namespace) -> list[Any]:
        """The rows of *query* under *prefix*."""
        if not prefix:
            return self._tx.run(query.format(""), self._live).fetchall()
        whole = encode_json(prefix)
        bounds = (whole[:-1] + ",", whole)
        return self._tx.run(query.format("AND " + _UNDER), (*self._live, *bounds)).fetchall()

    def get(self, namespace: Namespace, key: str) -> Item | None:
        """The item. *Raises* ``StoreCorrupt``: its row is damaged."""
        row = self._tx.run(_GET, (*self._live, encode_json(namespace), key)).fetchone()
        return None if row is None else ITEMS.rows.one(row)

    def numbers(self, prefix: Namespace) -> list[int]:
        """Of the items whose namespace begins with *prefix*, what was put last first."""
        return [number for (number,) in self._under(_NUMBERS, prefix)]

    def items(self, numbers: Sequence[int]) -> dict[int, Item]:
        """Items by number; damaged ones are passed by."""
        found: dict[int, Item] = {}
        for some in chunks(numbers):
            found.update(
                _NUMBERED.intact(self._tx.run(_ITEMS.format(holes(some)), (self._repo, *some)))
            )
        return found

    def namespaces(self) -> list[Namespace]:
        """Those that hold items, each once, in no order."""
        return _NAMESPACE_ROWS.intact(self._tx.run(_NAMESPACES, self._live))

    def places(self, prefix: Namespace) -> list[tuple[int, int]]:
        """Number of the vector and of its item, ascending, of those under *prefix*."""
        return self._under(_PLACES, prefix)

    def vectors(self, after: int, *, limit: int) -> ItemVectorRows:
        """Vectors with a number above *after*, at most *limit*."""
        return self._decoded(self._tx.run(_VECTORS, (self._repo, after, limit)).fetchall())

    def vectors_of(self, numbers: Sequence[int]) -> ItemVectorRows:
        """Vectors by number; unknown and damaged ones are absent."""
        rows: list[Any] = []
        for some in chunks(sorted(numbers)):
            rows += self._tx.run(_VECTORS_OF.format(holes(some)), (self._repo, *some)).fetchall()
        return self._decoded(rows)

    def _decoded(self, rows: Sequence[Any]) -> ItemVectorRows:
        dimensions = self._dimensions or 0
        read: Rows[tuple[int, Vector]] = Rows(
            "item_vectors", "i b", lambda row: (row[0], decode_vector(row[1], dimensions))
        )
        found = read.intact(rows)
        matrix = np.empty((len(found), dimensions), dtype=np.float32)
        for place, (_, vector) in enumerate(found):
            matrix[place] = vector
        return [number for number, _ in found], matrix

    def vector_count(self) -> int:
        """How many vectors there are."""
        return int(self._tx.run(_VECTOR_COUNT, (self._repo,)).fetchone()[0])

    def next_expiry(self) -> datetime | None:
        """When the next item expires; ``None``: none does."""
        (at,) = self._tx.run(_NEXT_EXPIRY, (self._repo,)).fetchone()
        return decode_time(at) if at is not None else None

    def owed(self, limit: int) -> list[tuple[int, str]]:
        """Number and text of vectors that have to be made."""
        return _OWED_ROWS.intact(self._tx.run(_OWED, (self._repo, limit)))


class ItemWriter(ItemReader):
    """Writes items of several callers; puts are kept until ``flush``, which all else calls."""

    def __init__(self, tx: Tx, repo_id: str, now: datetime) -> None:
        super().__init__(tx, repo_id, now)
        self._puts: dict[tuple[str, str], _Put] = {}

    @property
    def _tx(self) -> Tx:
        self.flush()
        return self._given

    def put(self, item: Item, vectors: Sequence[Vector], space: EmbeddingSpace) -> None:
        """Keep an item in the place of what has its key. *Raises* ``EmbeddingSpaceMismatch``."""
        self._repo = self._repo or repo_number(self._given, self._repo_id)
        values = ITEMS.values(item)
        place = (values[_NAMESPACE], item.key)
        if place in self._puts:
            # One statement cannot change a row twice.
            self.flush()
        blobs = [encode_vector(vector) for vector in vectors]
        self._puts[place] = _Put((self._repo, *values), item.texts, blobs, space)

    def flush(self) -> None:
        """Write the puts. *Raises* ``EmbeddingSpaceMismatch``."""
        waiting, self._puts = list(self._puts.values()), {}
        for start in range(0, len(waiting), _PUTS_AT_ONCE):
            self._write(waiting[start : start + _PUTS_AT_ONCE])

    def _write(self, puts: Sequence[_Put]) -> None:
        tx = self._given
        rows = [put.row for put in puts]
        places = ",".join(f"({holes(row)})" for row in rows)
        values = [value for row in rows for value in row]
        written = tx.run(_PUT.format(places), values).fetchall()
        _drop_vectors(tx, self._repo, [no for no, _, _ in written])
        numbers = {(namespace, key): no for no, namespace, key in written}
        self._put_vectors(numbers, [put for put in puts if put.vectors])

    def _put_vectors(self, numbers: Mapping[tuple[str, str], int], puts: Sequence[_Put]) -> None:
        spaces: dict[EmbeddingSpace, list[bytes]] = {}
        for put in puts:
            spaces.setdefault(put.space, []).extend(put.vectors)
        for space, vectors in spaces.items():
            check_space(self._given, self._repo_id, space, vectors)
            self._dimensions = space.dimensions
        rows = [
            (numbers[put.row[1 + _NAMESPACE], put.row[1 + _KEY]], field, vector)
            for put in puts
            for (field, _), vector in zip(put.texts, put.vectors, strict=True)
        ]
        _add_vectors(self._given, self._repo, rows)

    def delete(self, namespace: Namespace, key: str) -> bool:
        """Delete an item; give whether it was there and had not expired."""
        row = self._tx.run(_FIND, (self._repo, encode_json(namespace), key)).fetchone()
        if row is None:
            return False
        _drop(self._tx, self._repo, [row[0]])
        self._tx.dialect.note_expired(self._tx)
        return row[1] is None or row[1] > utc_text(self.now)

    def refresh(self, names: Sequence[tuple[Namespace, str]]) -> None:
        """Move the expiry of items that have a TTL."""
        for namespace, key in names:
            item = self.get(namespace, key)
            until = expiry(self.now, item.ttl_s) if item is not None else None
            if item is not None and until is not None:
                place = (self._repo, encode_json(namespace), key)
                self._tx.run(_REFRESH, (utc_text(until), *place, item.ttl_s, utc_text(self.now)))

    def sweep(self, limit: int) -> int:
        """Delete at most *limit* expired items, those that expired first."""
        numbers = [no for (no,) in self._tx.run(_EXPIRED, (*self._live, limit)).fetchall()]
        if numbers:
            _drop(self._tx, self._repo, numbers)
            self._tx.dialect.note_expired(self._tx)
        return len(numbers)

    def save_vectors(self, space: EmbeddingSpace, vectors: Mapping[int, Vector]) -> None:
        """Keep by number those still owed. *Raises* ``EmbeddingSpaceMismatch``."""
        rows = [
            (*owner, encode_vector(vector))
            for number, vector in vectors.items()
            for owner in self._tx.run(_SETTLE, (self._repo, number)).fetchall()
        ]
        check_space(self._tx, self._repo_id, space, [row[-1] for row in rows])
        _add_vectors(self._tx, self._repo, rows)


def _write(tx: Tx, handed: Sequence[_Handed]) -> list[Any]:
    """Run what was handed over, in order; puts of several callers are written together."""
    writers: dict[str, ItemWriter] = {}
    results = []
    for repo_id, now, work in handed:
        if repo_id not in writers:
            writers[repo_id] = ItemWriter(tx, repo_id, now)
        writers[repo_id].now = now
        results.append(work(writers[repo_id]))
    for writer in writers.values():
        writer.flush()
    return results


def _add_vectors(tx: Tx, repo: int, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows of item, field and vector."""
    if not rows:
        return
    first = tx.dialect.reserve(tx, "item_vectors", {repo: len(rows)})[repo] + 1
    tx.run_many(_PUT_VECTOR, [(number, repo, *row) for number, row in enumerate(rows, first)])


def _drop(tx: Tx, repo: int, numbers: Sequence[int]) -> int:
    """Delete items by number, with their vectors; give how many vectors there were."""
    vectors = _drop_vectors(tx, repo, numbers)
    for some in chunks(numbers):
        statement = f"DELETE FROM items WHERE $also repo = ? AND no IN ({holes(some)})"
        tx.run(statement, (repo, *some))
    return vectors


def _drop_vectors(tx: Tx, repo: int, numbers: Sequence[int]) -> int:
    """Delete the vectors of items by number; give how many there were."""
    statement = "DELETE FROM item_vectors WHERE repo = ? AND item IN ({})"
    some = (tx.run(statement.format(holes(s)), (repo, *s)).rowcount for s in chunks(numbers))
    return sum(some)


def erase_items(tx: Tx, repo: int, selection: Selection) -> ErasureReport:
    """Erase what was put last before the time of *selection*, if that alone selects."""
    if (before := selection.all_before) is None:
        return ErasureReport()
    numbers = [no for (no,) in tx.run(_BEFORE, (repo, utc_text(before))).fetchall()]
    return ErasureReport(items=len(numbers), vectors=_drop(tx, repo, numbers))


def owe_items(tx: Tx, repo: int) -> None:
    """Delete the vectors of all items, to be made anew."""
    tx.run("DELETE FROM item_vectors WHERE repo = ?", (repo,))
    texts = _FIELDS.intact(tx.run(_TEXTS, (repo,)))
    _add_vectors(tx, repo, [(*field, None) for fields in texts for field in fields])

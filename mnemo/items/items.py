"""The keyed items of a repository: operations, and vectors in memory that follow the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from mnemo.errors import StoreReadOnly
from mnemo.items.item_rows import ItemReader, ItemWriter, StoredItems
from mnemo.protocols import Clock, Embedder, EmbeddingSpace
from mnemo.runtime.budget import MemoryBudget
from mnemo.runtime.flights import Flights
from mnemo.runtime.tasks import Places
from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import every, is_small, stored_json, stored_text
from mnemo.values.graph import Vector
from mnemo.values.items import (
    DeleteItem,
    GetItem,
    Item,
    ItemOperation,
    ItemVectorRows,
    ListNamespaces,
    Namespace,
    PutItem,
    SearchItems,
    checked_operation,
    expiry,
    filter_matches,
    namespace_matches,
)
from mnemo.values.vectors import unit_rows

# ── Vectors in memory ────────────────────────────────────────────────────────────────

PAGE = 5_000
"""Vectors that one transaction reads (S)."""
SMALLEST = 1_024
"""Rows below which nothing deleted is looked for (S)."""


class VectorView(NamedTuple):
    """Vectors as of one moment: their numbers, ascending, and the vectors as rows."""

    numbers: NDArray[np.int64]
    matrix: NDArray[np.float32]

    def cosines(
        self, reader: ItemReader, numbers: NDArray[np.int64], query: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Cosines of *numbers* to unit *query*, NaN if damaged; new ones come from *reader*."""
        found = np.full(len(numbers), np.nan, dtype=np.float32)
        if not len(numbers):
            return found
        places = np.searchsorted(self.numbers, numbers)
        known = places < len(self.numbers)
        known[known] = self.numbers[places[known]] == numbers[known]
        if known.any():
            found[known] = self._products(places[known], query)
        if not known.all():
            fresh, matrix = reader.vectors_of(numbers[~known].tolist())
            found[np.searchsorted(numbers, fresh)] = matrix @ query
        return found

    def _products(
        self, places: NDArray[np.intp], query: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Gathering single rows takes longer than multiplying all, if they are many."""
        if 2 * len(places) > len(self.matrix):
            products: NDArray[np.float32] = (self.matrix @ query)[places]
            return products
        return self.matrix[places] @ query


class ItemVectors:
    """Follows the vectors of a repository's items; deleted ones stay until they are half."""

    def __init__(self, store: StoredItems, budget: MemoryBudget) -> None:
        self._store = store
        self._budget = budget
        self._lock = Places()
        self.forget()

    @property
    def bytes(self) -> int:
        """Held in memory."""
        return self._numbers.nbytes + (0 if self._matrix is None else self._matrix.nbytes)

    def let_go(self) -> bool:
        """Forget, unless they are being read. A plain call."""
        if free := not self._lock.taken:
            self.forget()
        return free

    def close(self) -> None:
        """Hold nothing on the budget of others any more. A plain call."""
        self._budget.drop(self)
        self._budget = MemoryBudget()
        self.let_go()

    def forget(self) -> None:
        """Drop all vectors from memory; the next search reads them anew. A plain call."""
        self._budget.drop(self)
        self._numbers = np.empty(0, dtype=np.int64)
        self._matrix: NDArray[np.float32] | None = None
        self._count = 0
        self._last = 0
        self._look_at = SMALLEST

    async def view(self) -> VectorView:
        """Read what is new, of other processes, too, and give all. *Cancellation*: safe."""
        async with self._lock:
            await self._drop_deleted()
            while await self._read_on():
                pass
            self._budget.hold(self, self.bytes)
            self._budget.use(self)
            matrix = np.empty((0, 0), np.float32) if self._matrix is None else self._matrix
            return VectorView(self._numbers[: self._count], matrix[: self._count])

    async def _drop_deleted(self) -> None:
        if self._count < self._look_at:
            return
        stored = await self._store.reading(lambda reader: reader.vector_count())
        if 2 * stored < self._count:
            self.forget()
        else:
            self._look_at = 2 * self._count

    async def _read_on(self) -> bool:
        """Read a page; give whether more may follow."""
        last = self._last
        rows = await self._store.reading(lambda reader: reader.vectors(last, limit=PAGE))
        if last == self._last and rows[0]:
            await anyio.to_thread.run_sync(self._add, rows)
        return len(rows[0]) == PAGE

    def _add(self, rows: ItemVectorRows) -> None:
        numbers, vectors = rows
        if self._matrix is None or self._matrix.shape[1] != vectors.shape[1]:
            self._matrix = np.empty((0, vectors.shape[1]), dtype=np.float32)
            self._count = 0
        end = self._count + len(numbers)
        if end > len(self._matrix):
            self._grow(max(end, 2 * len(self._matrix)))
        # Rows behind the count are in no view.
        self._numbers[self._count : end] = numbers
        self._matrix[self._count : end] = vectors
        self._count, self._last = end, numbers[-1]

    def _grow(self, rows: int) -> None:
        assert self._matrix is not None
        numbers = np.empty(rows, dtype=np.int64)
        matrix = np.empty((rows, self._matrix.shape[1]), dtype=np.float32)
        numbers[: self._count] = self._numbers[: self._count]
        matrix[: self._count] = self._matrix[: self._count]
        self._numbers, self._matrix = numbers, matrix


# ── Searching ─────────────────────────────────────────────────────────────────────


PIECE = 64
"""Items that are read at once where a filter may refuse some (S)."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A query as a unit vector, and the vectors that it is compared with."""

    vector: NDArray[np.float32]
    view: VectorView


def search(reader: ItemReader, wanted: SearchItems, meant: Meant | None) -> list[Item]:
    """What *wanted* asks for; *meant* is of its query, and ``None`` if it has none."""
    ranked = _ranked(reader, wanted, meant)
    if not wanted.filter:
        ranked = islice(ranked, wanted.offset, wanted.offset + wanted.limit)
        return list(_read(reader, ranked))
    fitting = (item for item in _read(reader, ranked) if filter_matches(item.value, wanted.filter))
    return list(islice(fitting, wanted.offset, wanted.offset + wanted.limit))


def _ranked(
    reader: ItemReader, wanted: SearchItems, meant: Meant | None
) -> Iterator[tuple[int, float | None]]:
    """Numbers of all items under the prefix with their scores, best first."""
    prefix = tuple(wanted.prefix)
    scored = _scored(reader, prefix, meant) if meant is not None else {}
    yield from scored.items()
    for number in reader.numbers(prefix):
        if number not in scored:
            yield number, None


def _scored(reader: ItemReader, prefix: tuple[str, ...], meant: Meant) -> dict[int, float | None]:
    """Number of an item → cosine of its nearest text, by falling cosine."""
    places = reader.places(prefix)
    if not places:
        return {}
    numbers, items = np.array(places, dtype=np.int64).T
    cosines = meant.view.cosines(reader, numbers, meant.vector)
    intact = ~np.isnan(cosines)
    items, cosines = items[intact], cosines[intact]
    # Equal ones by falling number, as what was put last comes first elsewhere.
    order = np.lexsort((-items, -cosines))
    items, cosines = items[order], cosines[order]
    _, first = np.unique(items, return_index=True)
    first.sort()
    return dict(zip(items[first].tolist(), cosines[first].tolist(), strict=True))


def _read(reader: ItemReader, ranked: Iterator[tuple[int, float | None]]) -> Iterator[Item]:
    """The items of *ranked* in their order, read piece by piece; damaged ones are passed by."""
    while piece := list(islice(ranked, PIECE)):
        found = reader.items([number for number, _ in piece])
        for number, score in piece:
            if number in found:
                yield replace(found[number], score=score)


# ── Batches ──────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Batch:
    """
    Operations and what they need beside the store.

    Attributes:
        puts: Those of *operations* that store something.
        values: Copies of the values of ``puts``, in their order.
        vectors: Those of ``texts``, in their order.
        space: Of *vectors*.
        meant: Query of a search → what it is compared by.
    """

    operations: list[ItemOperation]
    puts: Sequence[PutItem] = field(init=False)
    values: Sequence[Mapping[str, Any]] = ()
    vectors: Sequence[Vector] = ()
    space: EmbeddingSpace = field(init=False)
    meant: Mapping[str, Meant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.puts = [one for one in self.operations if isinstance(one, PutItem)]

    @classmethod
    def checked(cls, operations: Sequence[ItemOperation]) -> Batch:
        """Check all of *operations*. *Raises* ``ValueError``."""
        return cls([_checked(one) for one in every("operations", operations)])

    @property
    def writes(self) -> bool:
        """Whether one of them stores or deletes."""
        return bool(self.puts) or any(isinstance(one, DeleteItem) for one in self.operations)

    @property
    def texts(self) -> list[str]:
        """The texts of all puts, one after the other."""
        return [text for put in self.puts for text in (put.texts or {}).values()]

    @property
    def queries(self) -> list[str]:
        """What is searched for, each once."""
        searches = (one for one in self.operations if isinstance(one, SearchItems))
        return list(dict.fromkeys(one.query for one in searches if one.query is not None))

    def copy_values(self) -> None:
        """Copy the values of puts; may take long. *Raises* ``ValueError``: one is not JSON."""
        self.values = [stored_json("value", put.value) for put in self.puts]

    def read(self, reader: ItemReader) -> tuple[list[Any], list[tuple[Namespace, str]]]:
        """Do operations that only read; the results, and the items whose expiry should move."""
        results = [self._found(reader, operation) for operation in self.operations]
        return results, self._stale(reader, results)

    def write(self, writer: ItemWriter) -> list[Any]:
        """Do all operations in order; the results."""
        values, vectors = iter(self.values), iter(self.vectors)
        results = [self._done(writer, operation, values, vectors) for operation in self.operations]
        if stale := self._stale(writer, results):
            writer.refresh(stale)
        return results

    def _done(
        self,
        writer: ItemWriter,
        operation: ItemOperation,
        values: Iterator[Mapping[str, Any]],
        vectors: Iterator[Vector],
    ) -> Any:
        match operation:
            case PutItem():
                item = _item(operation, next(values), writer)
                writer.put(item, [next(vectors) for _ in item.texts], self.space)
                return None
            case DeleteItem():
                return writer.delete(tuple(operation.namespace), operation.key)
            case _:
                return self._found(writer, operation)

    def _found(self, reader: ItemReader, operation: ItemOperation) -> Any:
        match operation:
            case GetItem():
                return reader.get(tuple(operation.namespace), operation.key)
            case SearchItems():
                return search(reader, operation, self.meant.get(operation.query or ""))
            case ListNamespaces():
                return _listed(reader, operation)
            case _:
                raise AssertionError(f"{type(operation).__name__} reads nothing")

    def _stale(self, reader: ItemReader, results: Sequence[Any]) -> list[tuple[Namespace, str]]:
        found: list[Item] = []
        for operation, result in zip(self.operations, results, strict=True):
            if isinstance(operation, GetItem | SearchItems) and operation.refresh and result:
                found += result if isinstance(result, list) else [result]
        return [(i.namespace, i.key) for i in found if i.needs_refresh(reader.now)]


def _checked(operation: ItemOperation) -> ItemOperation:
    """*operation*; a put with its texts as they are stored, those that are not blank."""
    checked = checked_operation(operation)
    if not isinstance(checked, PutItem) or checked.texts is None:
        return checked
    texts = {field: stored_text(field, text) for field, text in checked.texts.items()}
    kept = {field: text for field, text in texts.items() if not is_blank(text)}
    return replace(checked, texts=kept)


def _item(put: PutItem, value: Mapping[str, Any], writer: ItemWriter) -> Item:
    return Item(
        namespace=tuple(put.namespace),
        key=put.key,
        value=value,
        texts=tuple((put.texts or {}).items()),
        created_at=writer.now,
        updated_at=writer.now,
        ttl_s=None if put.ttl_s is None else float(put.ttl_s),
        expires_at=expiry(writer.now, put.ttl_s),
    )


def _listed(reader: ItemReader, wanted: ListNamespaces) -> list[Namespace]:
    fitting = {
        namespace[: wanted.max_depth]
        for namespace in reader.namespaces()
        if namespace_matches(namespace, wanted.prefix, wanted.suffix)
    }
    return sorted(fitting)[wanted.offset : wanted.offset + wanted.limit]


# ── Items ─────────────────────────────────────────────────────────────────────────


BATCH = 256
"""Texts per call of the embedder, at most."""
MAX_EMBEDDED_CHARACTERS = 32_768
"""Characters of a text that its vector is made of; more would say little (S)."""
BITE = 256
"""Expired items that one transaction deletes (S)."""
OWED_PAGE = 1_024
"""Vectors owed that are made in one go (S)."""


class Items:
    """
    Keyed items: JSON objects under a namespace and a key; ``Repository.items``.

    They are kept, erased, archived and copied with the repository, and are no memories:
    ``search`` of the repository does not find them, and ``recall`` only those with texts,
    where its ``types`` have ``item``. Several processes may
    write; the last put of a key holds.
    """

    def __init__(
        self,
        store: StoredItems,
        embedder: Embedder,
        *,
        clock: Clock,
        spawn: Callable[..., object],
        check_usable: Callable[[], None],
        budget: MemoryBudget,
        follow: Callable[[EmbeddingSpace | None], object],
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._follow = follow
        self._clock = clock
        self._check_usable = check_usable
        self._vectors = ItemVectors(store, budget)
        self._sweeps: Flights[str, int] = Flights(self._sweep, spawn=spawn, limit=1)
        self._next_expiry: datetime | None = None

    # ── Single operations ────────────────────────────────────────────────────────────

    async def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, Any],
        *,
        texts: Mapping[str, str] | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """
        Store *value* in the place of what is there; durable when it returns.

        Args:
            namespace: Any texts, compared exactly; at most 2,048 bytes together.
            key: Any text of at most 512 bytes.
            value: A JSON object of at most 64 MiB; it is copied.
            texts: Field name → text by which ``search`` finds the item; each gets a vector.
            ttl_s: Seconds until it expires, more than 0; a read moves that. ``None``: never.

        Raises:
            ValueError: *value* is not JSON, or a name is of no use; nothing was stored.
            ModelError: The texts could not be embedded; nothing was stored.
            StoreError: Nothing was stored. *Cancellation*: it was stored, or not at all.
        """
        await self.batch(
            [PutItem(namespace=namespace, key=key, value=value, texts=texts, ttl_s=ttl_s)]
        )

    async def get(self, namespace: Sequence[str], key: str, *, refresh: bool = True) -> Item | None:
        """
        Read one item; ``None``: there is none, or it has expired.

        Args:
            refresh: Move its expiry, once a tenth of its TTL has passed.

        Raises:
            ValueError: A name is of no use. *Cancellation*: safe.
        """
        found: Item | None
        (found,) = await self.batch([GetItem(namespace=namespace, key=key, refresh=refresh)])
        return found

    async def delete(self, namespace: Sequence[str], key: str) -> bool:
        """
        Delete one item; give whether it was there. Its bytes go with the next scrub.

        Raises:
            ValueError: A name is of no use. *Cancellation*: it was deleted, or not at all.
        """
        (deleted,) = await self.batch([DeleteItem(namespace=namespace, key=key)])
        return bool(deleted)

    async def search(
        self,
        prefix: Sequence[str] = (),
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = True,
    ) -> list[Item]:
        """
        List items whose namespace begins with *prefix*; ``()``: all.

        Args:
            query: Best first by the cosine of an item's nearest text (``Item.score``); items
                without texts come last. ``None``: what was put last comes first.
            filter: Key of the value → a value to be equal to, an object or a list to match
                part by part, or ``$eq $ne $gt $gte $lt $lte``. What cannot be compared does
                not match.
            limit: Items, at least 0; *offset*: how many to pass over, behind the filter.
            refresh: Move the expiry of what is found.

        Raises:
            ValueError: The query is blank, an operator is unknown, or a number is of no use.
            ModelError: The query could not be embedded. *Cancellation*: safe.
        """
        wanted = SearchItems(
            prefix=prefix, query=query, filter=filter, limit=limit, offset=offset, refresh=refresh
        )
        (found,) = await self.batch([wanted])
        return list(found)

    async def list_namespaces(
        self,
        *,
        prefix: Sequence[str | None] = (),
        suffix: Sequence[str | None] = (),
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """
        List the namespaces that hold items, sorted; see ``ListNamespaces``.

        Raises:
            ValueError: A part or number is of no use. *Cancellation*: safe.
        """
        wanted = ListNamespaces(
            prefix=prefix, suffix=suffix, max_depth=max_depth, limit=limit, offset=offset
        )
        (found,) = await self.batch([wanted])
        return list(found)

    # ── Batches ──────────────────────────────────────────────────────────────────────

    async def batch(self, operations: Sequence[ItemOperation]) -> list[Any]:
        """
        Do *operations* in order, in one transaction; each sees what those before it wrote.

        Returns:
            For each, what the call of its name gives.

        Raises:
            ValueError: One of them is of no use, or there are more than 1,000; nothing was stored.
            ModelError: A text could not be embedded; nothing was stored.
            StoreError: Nothing was stored. *Cancellation*: all was stored, or nothing.
        """
        self._check_usable()
        batch = Batch.checked(operations)
        await self._prepare(batch)
        if batch.writes:
            results = await self._store.writing(batch.write)
        else:
            results, stale = await self._store.reading(batch.read)
            await self._refresh(stale)
        self._put(batch.puts)
        return results

    async def _prepare(self, batch: Batch) -> None:
        """Copy the values of puts, and embed their texts and what is searched for."""
        values = [put.value for put in batch.puts]
        if is_small(values):
            batch.copy_values()
        else:
            await anyio.to_thread.run_sync(batch.copy_values)
        if texts := batch.texts:
            self._follow(await self._store.reading(lambda reader: reader.space))
        batch.space = self._embedder.space
        if texts:
            batch.vectors = await self._embed(texts, "document")
        if queries := batch.queries:
            await self.embed_owed()
            rows = await self._embed(queries, "query")
            view = await self._vectors.view()
            batch.meant = {
                query: Meant(row, view) for query, row in zip(queries, rows, strict=True)
            }

    async def _embed(
        self, texts: Sequence[str], kind: Literal["document", "query"]
    ) -> list[Vector]:
        dimensions, found = self._embedder.space.dimensions, list[Vector]()
        for start in range(0, len(texts), BATCH):
            some = [text[:MAX_EMBEDDED_CHARACTERS] for text in texts[start : start + BATCH]]
            reply = await self._embedder.embed(some, kind=kind)
            found += list(unit_rows(reply, rows=len(some), dimensions=dimensions))
        return found

    async def _refresh(self, stale: Sequence[tuple[Namespace, str]]) -> None:
        if stale:
            # A store that may only be read keeps its expiries.
            with suppress(StoreReadOnly):
                await self._store.writing(lambda writer: writer.refresh(stale))

    # ── Expiry, and vectors that are owed ────────────────────────────────────────────

    async def sweep(self) -> int:
        """
        Delete what has expired; give how many items. It is hidden, swept or not.

        Puts of items with a TTL sweep by themselves, and so does opening the repository.

        Raises:
            StoreError: What was deleted before stays so. *Cancellation*: safe; likewise.
        """
        self._check_usable()
        return await self._sweeps.join("all") or 0

    def _put(self, puts: Sequence[PutItem]) -> None:
        """Note when what was put expires, and sweep if something has by now."""
        expiring = [put.ttl_s for put in puts if put.ttl_s is not None]
        if expiring:
            first = expiry(self._clock.now(), min(expiring))
            if first is not None:
                self._next_expiry = min(first, self._next_expiry or first)
        if self._next_expiry is not None and self._next_expiry <= self._clock.now():
            self._sweeps.poke("all")

    async def _sweep(self, _: str) -> int:
        deleted = 0
        while True:
            due = await self._store.reading(lambda reader: reader.next_expiry())
            if due is None or due > self._clock.now():
                self._next_expiry = due
                return deleted
            deleted += await self._store.writing(lambda writer: writer.sweep(BITE))

    async def embed_owed(self) -> int:
        """
        Make the vectors that an import or another embedding space left owed; give how many.

        ``search`` does so before it compares.

        Raises:
            ModelError: A text could not be embedded; what was made before is kept.
            StoreError: Likewise. *Cancellation*: safe; likewise.
        """
        self._check_usable()
        made = 0
        while True:
            space, owed = await self._store.reading(
                lambda reader: (reader.space, reader.owed(OWED_PAGE))
            )
            self._follow(space)
            if not owed:
                return made
            rows = await self._embed([text for _, text in owed], "document")
            vectors = dict(zip([number for number, _ in owed], rows, strict=True))
            save = partial(ItemWriter.save_vectors, space=self._embedder.space, vectors=vectors)
            await self._store.writing(save)
            made += len(owed)

    def _begin(self) -> None:
        """Sweep what expired while the repository was closed; a plain call."""
        self._sweeps.poke("all")

    def _renew(self) -> None:
        """Drop the vectors from memory: some were erased, or all are of another space."""
        self._vectors.forget()

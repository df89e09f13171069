"""A batch of operations on items: checked first, prepared, then run within one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mnemo.items.item_rows import ItemReader, ItemWriter
from mnemo.items.search import Meant, search
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import every, stored_json, stored_text
from mnemo.values.graph import Vector
from mnemo.values.items import (
    DeleteItem,
    GetItem,
    Item,
    ItemOperation,
    ListNamespaces,
    Namespace,
    PutItem,
    SearchItems,
    checked_operation,
    expiry,
    namespace_matches,
)


@dataclass(slots=True)
class Batch:
    """
    Operations and what they need beside the store.

    Attributes:
        puts: Those of *operations* that store something.
        values: Copies of the values of ``puts``, in their order.
        space: Of *vectors*, which are those of ``texts``, in their order.
        meant: Query of a search → what it is compared by.
    """

    operations: list[ItemOperation]
    space: EmbeddingSpace
    puts: Sequence[PutItem] = field(init=False)
    values: Sequence[Mapping[str, Any]] = ()
    vectors: Sequence[Vector] = ()
    meant: Mapping[str, Meant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.puts = [one for one in self.operations if isinstance(one, PutItem)]

    @classmethod
    def checked(cls, operations: Sequence[ItemOperation], space: EmbeddingSpace) -> Batch:
        """Check all of *operations*. *Raises* ``ValueError``."""
        return cls([_checked(one) for one in every("operations", operations)], space)

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

"""Keyed items under any order of puts, reads, deletes, searches and time: as a dict has them."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import numpy as np
from engines import OverEngines, bare_transaction, on_postgres
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from world import NOON, SPACE

from mnemo.items.item_rows import ItemWriter
from mnemo.items.items import Batch, Meant, VectorView
from mnemo.values.items import (
    DeleteItem,
    GetItem,
    Item,
    ItemOperation,
    ListNamespaces,
    PutItem,
    SearchItems,
)

NAMESPACES = st.sampled_from([("a",), ("a", "b"), ("a", "b.c", ""), ("ab",), ('a"', "*"), ()])
KEYS, TTLS = st.sampled_from(["k", "", "é"]), st.sampled_from([None, 60.0, 600.0])
WORDS = ("boats", "trains", "apples")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=2)
VECTORS = {word: np.eye(4, dtype=np.float32)[place] for place, word in enumerate(WORDS)}
T = TypeVar("T")


@dataclass
class Known:
    """What the dict has under a namespace and a key."""

    number: int
    texts: list[str]
    created: datetime
    ttl_s: float | None
    expires: datetime | None


class ItemMachine(OverEngines):
    """One repository, and the dict that it must agree with."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.tx = self.stack.enter_context(bare_transaction(self.url))
        self.now = NOON
        self.known: dict[tuple[tuple[str, ...], str], Known] = {}
        self.count = 0

    def teardown(self) -> None:
        self.stack.close()

    def write(self, work: Callable[[ItemWriter], T]) -> T:
        writer = ItemWriter(self.tx, "r", self.now)
        result = work(writer)
        writer.flush()
        return result

    def do(self, operation: ItemOperation) -> Any:
        """The result of one operation, prepared as the facade does."""
        batch = Batch.checked([operation])
        batch.copy_values()
        batch.space = SPACE
        batch.vectors = [VECTORS[text] for text in batch.texts]
        # Nothing is in memory: all vectors are read within the transaction.
        view = VectorView(np.empty(0, np.int64), np.empty((0, 4), np.float32))
        batch.meant = {query: Meant(VECTORS[query], view) for query in batch.queries}
        (result,) = self.write(batch.write)
        return result

    def live(self) -> dict[tuple[tuple[str, ...], str], Known]:
        return {
            name: one
            for name, one in self.known.items()
            if one.expires is None or one.expires > self.now
        }

    def read(self, name: tuple[tuple[str, ...], str], *, refresh: bool) -> None:
        """Move the expiry of what was read, once a tenth of its TTL has passed."""
        one = self.known[name]
        if refresh and one.ttl_s is not None and one.expires is not None:
            left = (one.expires - self.now).total_seconds()
            if left < 0.9 * one.ttl_s:
                one.expires = self.now + timedelta(seconds=one.ttl_s)

    @rule(namespace=NAMESPACES, key=KEYS, texts=TEXTS, ttl_s=TTLS)
    def put(
        self, namespace: tuple[str, ...], key: str, texts: list[str], ttl_s: float | None
    ) -> None:
        """The value and all that goes with it is replaced."""
        self.count += 1
        fields = {f"field {place}": text for place, text in enumerate(texts)}
        self.do(
            PutItem(
                namespace=namespace, key=key, value={"n": self.count}, texts=fields, ttl_s=ttl_s
            )
        )
        before = self.live().get((namespace, key))
        expires = None if ttl_s is None else self.now + timedelta(seconds=ttl_s)
        created = self.now if before is None else before.created
        self.known[namespace, key] = Known(self.count, texts, created, ttl_s, expires)

    @rule(namespace=NAMESPACES, key=KEYS, refresh=st.booleans())
    def get(self, namespace: tuple[str, ...], key: str, refresh: bool) -> None:
        """What was put last, or nothing."""
        found: Item | None = self.do(GetItem(namespace=namespace, key=key, refresh=refresh))
        expected = self.live().get((namespace, key))
        if expected is None:
            assert found is None
            return
        assert found is not None
        assert (found.value, found.created_at) == ({"n": expected.number}, expected.created)
        assert found.expires_at == expected.expires
        self.read((namespace, key), refresh=refresh)

    @rule(namespace=NAMESPACES, key=KEYS)
    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Tells whether it was there."""
        was_there = (namespace, key) in self.live()
        assert self.do(DeleteItem(namespace=namespace, key=key)) is was_there
        self.known.pop((namespace, key), None)

    @rule(
        prefix=NAMESPACES,
        query=st.none() | st.sampled_from(WORDS),
        least=st.none() | st.integers(0, 20),
        refresh=st.booleans(),
    )
    def search(
        self, prefix: tuple[str, ...], query: str | None, least: int | None, refresh: bool
    ) -> None:
        """All that match, the best or the newest first, and pages of that."""
        filter = None if least is None else {"n": {"$gte": least}}
        wanted = {"prefix": prefix, "query": query, "filter": filter, "refresh": False}
        found = self.do(SearchItems(**wanted, limit=100))
        expected = {
            name: one
            for name, one in self.live().items()
            if name[0][: len(prefix)] == prefix and (least is None or one.number >= least)
        }
        assert {(item.namespace, item.key) for item in found} == set(expected)
        assert self.do(SearchItems(**wanted, limit=2, offset=1)) == found[1:3]
        if query is None:
            times = [item.updated_at for item in found]
            assert times == sorted(times, reverse=True)
        else:
            self.check_scores(found, expected, query)
        if refresh:
            self.do(SearchItems(**wanted | {"refresh": True}, limit=100))
            for name in expected:
                self.read(name, refresh=True)

    def check_scores(
        self, found: list[Item], expected: dict[tuple[tuple[str, ...], str], Known], query: str
    ) -> None:
        """1 with the word, 0 with others, none without texts; in that order."""
        scores = [item.score for item in found]
        assert scores == sorted(scores, key=lambda score: -1 if score is None else score)[::-1]
        for item in found:
            texts = expected[item.namespace, item.key].texts
            assert item.score == (float(query in texts) if texts else None)

    @rule(seconds=st.sampled_from([1, 59, 61, 599]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)

    @rule()
    def sweep(self) -> None:
        """What has expired is deleted, and counted."""
        expired = len(self.known) - len(self.live())
        assert self.write(lambda tx: tx.sweep(100)) == expired
        self.known = self.live()

    @invariant()
    def namespaces_are_those_of_live_items(self) -> None:
        assert self.do(ListNamespaces()) == sorted({namespace for namespace, _ in self.live()})

    @invariant()
    def vectors_are_those_of_texts(self) -> None:
        assert self.write(lambda tx: tx.vector_count()) == sum(
            len(one.texts) for one in self.known.values()
        )


TestItems = ItemMachine.TestCase
TestItemsOnPostgres = on_postgres(ItemMachine, tries=20, steps=20)

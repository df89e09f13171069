"""What a store of keyed items must do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.errors import EmbeddingSpaceMismatch
from mnemo.items.item_rows import ItemReader, ItemWriter, StoredItems
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.erasure import Selection
from mnemo.values.items import Item, Namespace, expiry

__all__ = ["ItemStoreContract"]

TODAY = NOON + timedelta(days=1)
"""What the clock of the kit says."""
EAST, WEST = unit_vector(1, 0, 0, 0), unit_vector(0, 1, 0, 0)


def item(*namespace: str, key: str = "k", ttl_s: float | None = None, **values: Any) -> Item:
    """An item of today without texts, unless told otherwise."""
    at = values.pop("at", TODAY)
    given = {"value": {"x": 1}, "created_at": at, "updated_at": at, "expires_at": expiry(at, ttl_s)}
    return Item(namespace=namespace, key=key, ttl_s=ttl_s, **given | values)


async def put(store: StoredItems, *items: Item, space: EmbeddingSpace = SPACE) -> None:
    """Write items in one transaction; each text's vector points east."""

    def work(tx: ItemWriter) -> None:
        for one in items:
            tx.put(one, [EAST for _ in one.texts], space)

    await store.writing(work)


def keys(tx: ItemReader, *prefix: str) -> list[str]:
    """The keys of the items under *prefix*, what was put last first."""
    numbers = tx.numbers(prefix)
    found = tx.items(numbers)
    return [found[number].key for number in numbers]


class ItemStoreContract(StoreContract):
    """``StoredItems``."""

    @pytest.fixture
    def items(self, kit: Kit) -> StoredItems:
        """The items of the repository ``"r"``."""
        return kit.store.items("r")

    async def test_a_put_item_is_read_as_it_was(self, kit: Kit, items: StoredItems) -> None:
        """Every field comes back, after reopening too; an unknown key is nothing."""
        odd: dict[str, Any] = {"text": 'é\n"\\', "none": None, "nested": [{"a": 1.5}, True], "": {}}
        written = item(
            "a.b", "", "*", '["', value=odd, ttl_s=60, texts=(("f", "boats"), ("g", "trains"))
        )
        await put(items, written)
        await kit.reopen()
        items = kit.store.items("r")
        assert await items.reading(lambda tx: tx.get(written.namespace, "k")) == written
        assert await items.reading(lambda tx: tx.get(written.namespace, "l")) is None
        assert await items.reading(lambda tx: tx.get(("a", "b"), "k")) is None

    async def test_a_second_put_keeps_when_it_was_created(self, items: StoredItems) -> None:
        """The value, the texts and the time of the change are new."""
        await put(items, item("a", texts=(("f", "boats"),)))
        later = item("a", value={"x": 2}, at=TODAY + timedelta(seconds=1))
        await put(items, later)
        found = await items.reading(lambda tx: tx.get(("a",), "k"))
        assert found is not None
        assert (found.created_at, found.updated_at) == (TODAY, later.updated_at)
        assert (found.value, found.texts) == ({"x": 2}, ())
        assert await items.reading(lambda tx: tx.vector_count()) == 0

    @pytest.mark.parametrize(
        ("prefix", "found"),
        [
            ((), "abcdef"),
            (("u",), "abe"),
            (("u", "1"), "b"),
            (("U",), "c"),
            (("u.1",), "d"),
            (("*",), ""),
            (("%",), ""),
            (("u", ""), "e"),
            (('u"',), "f"),
        ],
    )
    async def test_a_prefix_ends_between_two_parts(
        self, items: StoredItems, prefix: Namespace, found: str
    ) -> None:
        """Parts are compared whole and exactly; no character in them means anything."""
        places = [("u",), ("u", "1"), ("U",), ("u.1",), ("u", ""), ('u"', "x")]
        await put(
            items, *(item(*place, key=key) for place, key in zip(places, "abcdef", strict=True))
        )
        assert sorted(await items.reading(lambda tx: keys(tx, *prefix))) == list(found)

    async def test_what_was_put_last_comes_first(self, items: StoredItems) -> None:
        """Numbers come by falling time of the last put."""
        for place, key in enumerate("abc"):
            await put(items, item("n", key=key, at=TODAY + timedelta(seconds=place)))
        await put(items, item("n", key="a", at=TODAY + timedelta(seconds=9)))
        assert await items.reading(lambda tx: keys(tx, "n")) == ["a", "c", "b"]

    async def test_an_expired_item_is_nowhere(self, kit: Kit, items: StoredItems) -> None:
        """It is hidden before it is swept; the sweep takes its vectors, too."""
        await put(items, item("a", ttl_s=60, texts=(("f", "x"),)), item("b"))
        assert await items.reading(lambda tx: tx.next_expiry()) == TODAY + timedelta(seconds=60)
        kit.clock.advance(60)
        assert await items.reading(lambda tx: tx.get(("a",), "k")) is None
        assert await items.reading(lambda tx: (tx.namespaces(), tx.places(()))) == ([("b",)], [])
        assert await items.reading(lambda tx: keys(tx)) == ["k"]
        assert await items.writing(lambda tx: (tx.sweep(9), tx.sweep(9))) == (1, 0)
        assert await items.reading(lambda tx: (tx.vector_count(), tx.next_expiry())) == (0, None)

    async def test_a_put_over_an_expired_item_is_a_new_one(
        self, kit: Kit, items: StoredItems
    ) -> None:
        """Nothing of what has expired is left, not even when it was created."""
        await put(items, item("a", ttl_s=60))
        kit.clock.advance(61)
        await put(items, item("a", at=kit.clock.now()))
        found = await items.reading(lambda tx: tx.get(("a",), "k"))
        assert found is not None
        assert found.created_at == kit.clock.now()

    async def test_a_refresh_moves_the_expiry(self, kit: Kit, items: StoredItems) -> None:
        """By its own TTL from now on; what has expired or never does stays as it is."""
        await put(items, item("a", ttl_s=60), item("b", ttl_s=10), item("c"))
        kit.clock.advance(30)
        await items.writing(lambda tx: tx.refresh([((name,), "k") for name in "abcd"]))
        kit.clock.advance(59)
        assert await items.reading(lambda tx: sorted(tx.namespaces())) == [("a",), ("c",)]

    async def test_a_deleted_item_is_gone(self, items: StoredItems) -> None:
        """Once; its vectors go with it."""
        await put(items, item("a", texts=(("f", "boats"),)))
        assert await items.writing(lambda tx: tx.delete(("a",), "k"))
        assert not await items.writing(lambda tx: tx.delete(("a",), "k"))
        assert await items.reading(lambda tx: (tx.vector_count(), tx.namespaces())) == (0, [])

    async def test_vectors_are_followed_by_their_numbers(self, items: StoredItems) -> None:
        """A page ends at its limit; places name the vector and the item of each text."""
        await put(items, item("a", texts=(("f", "x"), ("g", "y"))), item("b", texts=(("f", "z"),)))
        numbers, matrix = await items.reading(lambda tx: tx.vectors(0, limit=2))
        rest, _ = await items.reading(lambda tx: tx.vectors(numbers[-1], limit=2))
        places = await items.reading(lambda tx: tx.places(()))
        assert [number for number, _ in places] == [*numbers, *rest]
        assert len({owner for _, owner in places[:2]}) == 1
        assert matrix.tolist() == [EAST.tolist()] * 2
        known, _ = await items.reading(lambda tx: tx.vectors_of([rest[0], 999]))
        assert known == rest
        assert await items.reading(lambda tx: tx.places(("b",))) == places[2:]

    async def test_vectors_of_another_space_are_refused(self, items: StoredItems) -> None:
        """Nothing of the item is written."""
        await put(items, item("a", texts=(("f", "x"),)))
        with pytest.raises(EmbeddingSpaceMismatch):
            await put(items, item("b", texts=(("f", "x"),)), space=EmbeddingSpace("other", 4))
        assert await items.reading(lambda tx: tx.namespaces()) == [("a",)]

    async def test_puts_at_once_are_each_for_themselves(self, items: StoredItems) -> None:
        """Of many callers, one whose vectors are refused fails alone; of one key, one holds."""
        await put(items, item("first", texts=(("f", "x"),)))
        refused = list[EmbeddingSpaceMismatch]()

        async def refuse() -> None:
            try:
                await put(items, item("b", texts=(("f", "x"),)), space=EmbeddingSpace("other", 4))
            except EmbeddingSpaceMismatch as error:
                refused.append(error)

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(put, items, item("a", key=f"{number % 38}", value={"n": number}))
            group.start_soon(refuse)
            group.start_soon(put, items, item("c", texts=(("f", "x"), ("g", "y"))))
        assert len(refused) == 1
        found = await items.reading(lambda tx: {n: len(keys(tx, n)) for (n,) in tx.namespaces()})
        assert found == {"first": 1, "a": 38, "c": 1}
        assert len(await items.reading(lambda tx: tx.places(("c",)))) == 2

    async def test_work_that_raises_writes_nothing(self, items: StoredItems) -> None:
        """An exception undoes all of a transaction, and reaches the caller."""

        def work(tx: ItemWriter) -> None:
            tx.put(item("a"), [], SPACE)
            raise LookupError("on purpose")

        with pytest.raises(LookupError, match="on purpose"):
            await items.writing(work)
        assert await items.reading(lambda tx: tx.namespaces()) == []

    async def test_repositories_do_not_share_items(self, kit: Kit, items: StoredItems) -> None:
        """What one repository holds is nowhere in another; deleting one leaves the other."""
        other = kit.store.items("other")
        await put(items, item("a", ttl_s=60, texts=(("f", "x"),)))
        assert await other.reading(lambda tx: (tx.namespaces(), tx.places(()))) == ([], [])
        await put(other, item("b"))
        report = await kit.store.delete_repository("r")
        assert (report.items, report.vectors) == (1, 1)
        assert await items.reading(lambda tx: (tx.namespaces(), tx.vector_count())) == ([], 0)
        assert await other.reading(lambda tx: tx.namespaces()) == [("b",)]

    async def test_forgetting_by_time_takes_items(self, kit: Kit, items: StoredItems) -> None:
        """What was put last before goes; a session or thread selects no items."""
        await put(items, item("old", texts=(("f", "x"),)))
        await put(items, item("new", at=TODAY + timedelta(seconds=5)))
        overhaul = kit.store.overhaul("r")
        before = TODAY + timedelta(seconds=1)
        narrowed = await overhaul.erase(Selection.of(before=before, thread_id="t"))
        rehearsed = await overhaul.erase(Selection.of(before=before, dry_run=True))
        assert (narrowed.report.items, rehearsed.report.items) == (0, 1)
        erased = (await overhaul.erase(Selection.of(before=before))).report
        assert (erased.items, erased.vectors) == (1, 1)
        assert await items.reading(lambda tx: (tx.namespaces(), tx.vector_count())) == (
            [("new",)],
            0,
        )

    async def test_another_space_leaves_vectors_owed(self, kit: Kit, items: StoredItems) -> None:
        """They are made anew from the texts, and get new numbers."""
        await put(items, item("a", texts=(("f", "boats"), ("g", "trains"))))
        (before, _) = await items.reading(lambda tx: tx.vectors(0, limit=9))
        space, overhaul = EmbeddingSpace("next", 4), kit.store.overhaul("r")
        await overhaul.begin_move(space)
        await overhaul.switch(space, (await kit.changes()).cursor)
        assert await items.reading(lambda tx: tx.places(())) == []
        owed = await items.reading(lambda tx: tx.owed(9))
        assert [text for _, text in owed] == ["boats", "trains"]
        made = {number: WEST for number, _ in owed}
        await items.writing(lambda tx: tx.save_vectors(space, made))
        await items.writing(lambda tx: tx.save_vectors(space, made))
        after, matrix = await items.reading(lambda tx: tx.vectors(before[-1], limit=9))
        assert len(after) == 2
        assert matrix.tolist() == [WEST.tolist()] * 2
        assert await items.reading(lambda tx: (tx.owed(9), tx.vector_count())) == ([], 2)

    async def test_an_archive_holds_items(self, kit: Kit, items: StoredItems) -> None:
        """They come back whole in another repository, with their vectors owed."""
        one = item("b", "c.d", ttl_s=60, texts=(("f", "boats"),), value={"é": [1, None]})
        await put(items, one, item("a"))
        async with kit.store.archive("r").read() as (head, lines):
            assert head.counts["item"] == 2
            await kit.store.archive("copy").write(lines)
        copy = kit.store.items("copy")
        assert await copy.reading(lambda tx: tx.get(("b", "c.d"), "k")) == one
        assert [text for _, text in await copy.reading(lambda tx: tx.owed(9))] == ["boats"]
        assert (await kit.store.check()).problems == ()

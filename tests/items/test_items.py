"""Keyed items through the repository: put, get, search, expiry, bad input."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest
from helpers import Kit, Moody, lines_of, repository

from mnemo import (
    DeleteItem,
    GetItem,
    Item,
    ListNamespaces,
    Mnemo,
    ModelError,
    PutItem,
    SearchItems,
    UsageError,
)
from mnemo.testing import HashingEmbedder

FRUIT = {"a": "apples and pears", "b": "boats that sail", "c": "apples in spring"}


@pytest.fixture
async def items(kit: Kit) -> Any:
    """The keyed items of a repository."""
    return kit.repo.items


async def test_what_was_put_is_found_by_its_name(items):
    """An item comes back whole; a second put replaces it; a delete takes it away."""
    await items.put(("users", "1"), "prefs", {"theme": "dark"})
    await items.put(["users", "1"], "prefs", {"theme": "light", "tags": ("a", "b")})
    found = await items.get(("users", "1"), "prefs")
    assert found is not None
    assert found.value == {"theme": "light", "tags": ["a", "b"]}
    assert await items.delete(("users", "1"), "prefs")
    assert await items.get(("users", "1"), "prefs") is None
    assert not await items.delete(("users", "1"), "prefs")


async def test_parts_of_a_namespace_are_texts_without_a_meaning(items):
    """Dots, asterisks, separators and empty parts make places of their own."""
    odd = [("a", "b"), ("a.b",), ("a/b",), ("a", "", "b"), ("",), (), ("*",), ("%",), ("a_b",)]
    for number, namespace in enumerate(odd):
        await items.put(namespace, "k", {"n": number})
    found = [(await items.get(namespace, "k")).value["n"] for namespace in odd]
    assert found == list(range(len(odd)))
    assert [item.namespace for item in await items.search(("*",))] == [("*",)]
    assert [item.namespace for item in await items.search(("a",))] == [("a", "", "b"), ("a", "b")]


async def test_a_value_is_copied(items):
    """What the caller changes later is not stored, and what is read is nobody else's."""
    value = {"list": [1]}
    await items.put(("n",), "k", value)
    value["list"].append(2)
    (await items.get(("n",), "k")).value["list"].append(3)
    assert (await items.get(("n",), "k")).value == {"list": [1]}


async def test_texts_that_change_during_a_put_stay_as_given(db):
    """A field that the caller adds while another put is embedded is not stored."""
    late: dict[str, str] = {}

    class Adding(HashingEmbedder):
        async def embed(self, *given: Any, **named: Any) -> Any:
            late["added"] = "pears"
            return await super().embed(*given, **named)

    async with Mnemo(db, embedder=Adding()) as memory:
        items = (await memory.open_repo("r")).items
        first = PutItem(namespace=("n",), key="a", value={}, texts={"t": "apples"})
        await items.batch([first, PutItem(namespace=("n",), key="b", value={}, texts=late)])
        assert (await items.get(("n",), "a")).texts == (("t", "apples"),)
        assert (await items.get(("n",), "b")).texts == ()


async def test_a_query_finds_the_nearest_text_of_each_item(items):
    """Each item once, by its best text; items without texts come last and have no score."""
    for key, text in FRUIT.items():
        await items.put(("n",), key, {"k": key}, texts={"main": text, "other": f"zzz {key}"})
    await items.put(("n",), "plain", {"k": "plain"})
    await items.put(("m",), "elsewhere", {}, texts={"main": "apples"})
    found = await items.search(("n",), query="apples and pears", limit=10)
    assert [item.key for item in found] == ["a", "c", "b", "plain"]
    scores = [item.score for item in found]
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert scores[-1] is None
    paged = await items.search(("n",), query="apples and pears", limit=2, offset=1)
    assert [item.key for item in paged] == ["c", "b"]
    everywhere = await items.search(query="apples", limit=1)
    assert [item.key for item in everywhere] == ["elsewhere"]


async def test_a_search_sees_what_its_batch_wrote(items):
    """Operations run in order in one transaction."""
    await items.put(("n",), "old", {}, texts={"t": "boats"})
    results = await items.batch(
        [
            PutItem(namespace=("n",), key="new", value={}, texts={"t": "apples"}),
            SearchItems(prefix=("n",), query="apples", limit=1),
            DeleteItem(namespace=("n",), key="new"),
            GetItem(namespace=("n",), key="new"),
            ListNamespaces(),
        ]
    )
    assert results[0] is None
    assert [item.key for item in results[1]] == ["new"]
    assert results[2:] == [True, None, [("n",)]]


async def test_new_and_replaced_texts_are_found_at_once(items):
    """The vectors in memory follow every put, delete and put again."""
    for text in ("apples", "boats", "trains"):
        await items.put(("n",), "k", {"t": text}, texts={"t": text})
        (found,) = await items.search(query=text)
        assert found.score == pytest.approx(1.0, abs=1e-5)
    await items.delete(("n",), "k")
    assert await items.search(query="trains") == []


@pytest.mark.parametrize(
    ("filter", "keys"),
    [
        ({}, "abcd"),
        ({"n": 2}, "b"),
        ({"n": {"$eq": 2}}, "b"),
        ({"n": {"$ne": 2}}, "acd"),
        ({"n": {"$gt": 1}}, "bc"),
        ({"n": {"$gte": 1, "$lt": 10}}, "ab"),
        ({"n": {"$lte": 2}}, "ab"),
        ({"n": None}, "d"),
        ({"absent": None}, "abcd"),
        ({"o": {"x": 1}}, "a"),
        ({"o": {"x": {"$gt": 1}}}, "b"),
        ({"l": [1, {"$gt": 1}]}, "a"),
        ({"l": [1]}, ""),
        ({"n": 2, "l": [1, 2]}, ""),
        ({"o": {"$gt": 1}}, ""),
        ({"l": {"$lt": 1}}, ""),
        ({"absent": {"$gte": 0}}, ""),
    ],
)
async def test_filters_hold_of_values(items, filter, keys):
    """Equality, parts of objects and lists, and operators; the incomparable never matches."""
    values = {
        "a": {"n": 1, "o": {"x": 1, "y": 2}, "l": [1, 2]},
        "b": {"n": 2, "o": {"x": 2}},
        "c": {"n": "10", "o": [1]},
        "d": {"l": "text"},
    }
    for key, value in values.items():
        await items.put(("n",), key, value)
    found = await items.search(("n",), filter=filter)
    assert sorted(item.key for item in found) == list(keys)


async def test_a_filter_applies_before_the_page(kit):
    """Pages are of what matches, in a stable order, newest first."""
    for number in range(200):
        await kit.repo.items.put(("n",), f"{number}", {"even": number % 2 == 0})
        kit.clock.advance(1)
    pages = [
        [item.key for item in await kit.repo.items.search(filter={"even": True}, offset=offset)]
        for offset in (0, 10, 95)
    ]
    assert pages[0] == [f"{n}" for n in range(198, 178, -2)]
    assert pages[1][0] == "178"
    assert pages[2] == ["8", "6", "4", "2", "0"]


async def test_namespaces_are_listed_by_both_ends_and_depth(items):
    """``None`` stands for any part; an asterisk is itself."""
    for namespace in [("a", "b", "c"), ("a", "*", "c"), ("a",), ("b", "c"), ()]:
        await items.put(namespace, "k", {})
    assert await items.list_namespaces() == [
        (),
        ("a",),
        ("a", "*", "c"),
        ("a", "b", "c"),
        ("b", "c"),
    ]
    assert await items.list_namespaces(prefix=("a", "*")) == [("a", "*", "c")]
    assert await items.list_namespaces(prefix=("a", None), suffix=("c",)) == [
        ("a", "*", "c"),
        ("a", "b", "c"),
    ]
    assert await items.list_namespaces(max_depth=1) == [(), ("a",), ("b",)]
    assert await items.list_namespaces(limit=2, offset=1) == [("a",), ("a", "*", "c")]


# ── Expiry ───────────────────────────────────────────────────────────────────────────


async def test_a_read_keeps_an_item_alive(kit):
    """A get or search moves the expiry, unless told not to."""
    items = kit.repo.items
    for key in "abc":
        await items.put(("n",), key, {"k": key}, ttl_s=60)
    kit.clock.advance(50)
    await items.get(("n",), "a")
    await items.search(("n",), filter={"k": "b"})
    await items.get(("n",), "c", refresh=False)
    await items.search(("n",), filter={"k": "c"}, refresh=False)
    kit.clock.advance(20)
    assert sorted(item.key for item in await items.search(("n",))) == ["a", "b"]


async def test_reads_within_a_tenth_of_the_ttl_write_nothing(kit):
    """The expiry moves lazily."""
    await kit.repo.items.put(("n",), "k", {}, ttl_s=100)
    kit.clock.advance(5)
    first = await kit.repo.items.get(("n",), "k")
    second = await kit.repo.items.get(("n",), "k")
    assert first.expires_at == second.expires_at == kit.clock.now() + timedelta(seconds=95)
    kit.clock.advance(10)
    await kit.repo.items.get(("n",), "k")
    third = await kit.repo.items.get(("n",), "k")
    assert third.expires_at == kit.clock.now() + timedelta(seconds=100)


async def test_expired_items_are_swept(kit):
    """By hand, by later puts, and when the repository is opened again."""
    items = kit.repo.items
    for key in "abc":
        await items.put(("n",), key, {}, ttl_s=1)
    kit.clock.advance(2)
    assert (await kit.repo.statistics()).items == 3
    assert await items.search(("n",)) == []
    assert await items.sweep() == 3
    assert (await kit.repo.statistics()).items == 0
    await items.put(("n",), "a", {}, ttl_s=1)
    kit.clock.advance(2)
    await items.put(("n",), "b", {})
    assert await items.sweep() in (0, 1)
    assert (await kit.repo.statistics()).items == 1


# ── Erasing, archives, other spaces ──────────────────────────────────────────────────


async def test_forgotten_items_leave_no_trace(db):
    """Neither in the file nor in the vectors in memory."""
    async with repository(db, "r") as repo:
        await repo.items.put(("n",), "k", {"t": "hunter2-secret"}, texts={"t": "hunter2-secret"})
        found = await repo.items.get(("n",), "k")
        report = await repo.forget(before=found.updated_at + timedelta(microseconds=1))
        assert (report.items, report.scrubbed) == (1, True)
        assert await repo.items.search(query="hunter2-secret") == []
        assert b"hunter2" not in db.read_bytes()


async def test_an_imported_item_is_found_by_its_text(db):
    """An archive carries items and their texts; the vectors are made at the first search."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        await repo.items.put(("a.b", ""), "k", {"é": 1}, texts={"t": "apples"}, ttl_s=1e6)
        before = await repo.items.get(("a.b", ""), "k")
        archive = await lines_of(memory, "r")
        await memory.import_repo("copy", archive)
        copy = await memory.open_repo("copy")
        assert await copy.items.get(("a.b", ""), "k") == before
        (found,) = await copy.items.search(query="apples")
        assert found.score == pytest.approx(1.0, abs=1e-5)
        assert (await memory.check()).problems == ()
    kinds = [json.loads(line).get("kind") for line in archive]
    assert kinds.count("item") == 1


async def test_items_are_no_memories(open_kit):
    """Neither recall nor search of the repository finds them."""
    kit = await open_kit(embedded=True)
    await kit.repo.items.put(("n",), "k", {"t": "apples"}, texts={"t": "Ada likes apples"})
    await kit.repo.settle()
    assert (await kit.repo.recall("What does Ada like?")).candidates == []
    assert await kit.repo.search("apples") == []


# ── Bad input ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        ({"value": {"x": object()}}, "value must be JSON"),
        ({"value": {"x": float("nan")}}, "value must be JSON"),
        ({"value": {"x": {1, 2}}}, "value must be JSON"),
        ({"value": {("a",): 1}}, "value must be JSON"),
        ({"value": ["list"]}, "value must be a JSON object"),
        ({"value": "text"}, "value must be a JSON object"),
        ({"value": None}, "value must be a JSON object"),
        ({"namespace": "users"}, "namespace must be a sequence of texts"),
        ({"namespace": ("a", 1)}, "a part of namespace must be text"),
        ({"namespace": ("a\0",)}, "cannot hold U\\+0000"),
        ({"namespace": ("x" * 600,)}, "more than 512 bytes"),
        ({"namespace": ("x" * 500,) * 9}, "more than 2,048 bytes"),
        ({"key": 1}, "key must be text"),
        ({"key": "\ud800"}, "half a surrogate pair"),
        ({"key": "é" * 300}, "more than 512 bytes"),
        ({"texts": "apples"}, "texts must map"),
        ({"texts": {"t": 1}}, "texts\\['t'\\] must be text"),
        ({"ttl_s": 0}, "ttl_s must be more than 0"),
        ({"ttl_s": "60"}, "ttl_s must be a finite number"),
    ],
)
async def test_a_put_that_is_refused_stores_nothing(items, operation, told):
    """The error says what is wrong, and nothing of the batch is stored."""
    given: dict[str, Any] = {"namespace": ("n",), "key": "k", "value": {}} | operation
    with pytest.raises(ValueError, match=told):
        await items.batch([PutItem(namespace=("n",), key="first", value={}), PutItem(**given)])
    assert await items.search() == []


@pytest.mark.parametrize(
    ("search", "told"),
    [
        ({"query": " "}, "query must be text that is not blank"),
        ({"query": 3}, "query must be text"),
        ({"filter": ["x"]}, "filter must map"),
        ({"filter": {"x": {"$in": [1]}}}, "unknown operator '\\$in'"),
        ({"filter": {"x": {"y": {"$gt": 1, "z": 1}}}}, "unknown operator 'z'"),
        ({"limit": -1}, "limit must be a whole number"),
        ({"offset": 1.5}, "offset must be a whole number"),
        ({"prefix": "n"}, "prefix must be a sequence"),
    ],
)
async def test_a_search_of_no_use_is_refused(items, search, told):
    """The error names what is wrong."""
    with pytest.raises(ValueError, match=told):
        await items.search(**search)


async def test_what_is_no_operation_is_refused(open_kit):
    """A batch takes operations on items only."""
    with pytest.raises(ValueError, match="str is no operation"):
        await (await open_kit()).repo.items.batch(["put"])


@pytest.mark.slow
@pytest.mark.long
async def test_a_value_of_ten_megabytes_is_kept(db):
    """It comes back whole, also in a list of many values."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        items = (await memory.open_repo("r")).items
        big = {"text": "é" * 5_000_000, "list": list(range(100_000))}
        await items.put(("n",), "big", big, texts={"t": big["text"]})
        assert (await items.get(("n",), "big")).value == big
        with pytest.raises(ValueError, match="more than 67,108,864 bytes"):
            await items.put(("n",), "big", {"text": "x" * (2**26 + 1)})
        assert (await items.get(("n",), "big")).value == big


async def test_a_failing_embedder_stores_nothing(open_kit):
    """The error reaches the caller; the item that was there stays."""
    async with Mnemo("memory:", embedder=Moody(ConnectionError("no model"))) as memory:
        items = (await memory.open_repo("r")).items
        await items.put(("n",), "k", {"v": 1})
        with pytest.raises((ModelError, ConnectionError)):
            await items.put(("n",), "k", {"v": 2}, texts={"t": "apples"})
        assert (await items.get(("n",), "k")).value == {"v": 1}


async def test_a_closed_repository_refuses(kit):
    """A handle that was kept says so."""
    items = kit.repo.items
    await kit.memory.close_repo("r")
    with pytest.raises(UsageError):
        await items.get(("n",), "k")


async def test_two_services_write_one_key(db):
    """Each put is whole, the last one holds, and both see it, with its vector."""
    async with (
        Mnemo(db, embedder=HashingEmbedder()) as one,
        Mnemo(db, embedder=HashingEmbedder()) as other,
    ):
        shelves: list[Any] = [(await memory.open_repo("r")).items for memory in (one, other)]

        async def write(who: int) -> None:
            for number in range(20):
                value = {"who": who, "number": number}
                await shelves[who].put(("n",), "k", value, texts={"t": f"{who} {number}"})

        async with anyio.create_task_group() as group:
            for who in (0, 1):
                group.start_soon(write, who)
        found: list[Item] = [(await shelf.search(query="0 19"))[0] for shelf in shelves]
        assert found[0] == found[1]
        assert found[0].value["number"] == 19
        assert found[0].texts == (("t", f"{found[0].value['who']} 19"),)

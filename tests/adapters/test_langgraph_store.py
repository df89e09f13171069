"""
``MnemoStore`` under LangGraph itself, over an asynchronous and a blocking repository.

The cases of LangGraph's store tests that say what a store does are among these. Of
checkpoint/tests/test_store.py: listing (basic, wildcards, pages, depth, no conditions, empty
store), empty namespaces, vectors (inserted, updated, filtered, paged, concurrent), paths of
store and operation, non-ASCII texts. Of checkpoint-sqlite/tests/test_store.py and
test_async_store.py: order of a batch, batches of one kind, large batches, basic operations,
no running loop, edge cases of queries, scores, boundaries and metacharacters of labels, case,
trailing newlines, empty prefix, filters with hostile keys and values, numbers, booleans, keys
with hyphens. Of test_ttl.py: default, own and no TTL, refresh by get and search (sweeping
is in tests/items). Of
checkpoint-postgres/tests/test_async_store.py: sorting among many, refresh of live items alone,
pages around expired items.

Not applicable: the batching task of ``AsyncBatchedBaseStore`` (resilience, deduplication, its
cancellation): mnemo's writer groups commits itself; ``get_text_at_path`` (LangGraph's own);
migrations, pools, SQL of conditions, distance types and vector types of the two databases;
``embed`` and ``dims`` (refused, see below); expired items shown with ``omit_expired`` off;
dotted keys of a filter that descend (``InMemoryStore`` takes them literally, as here);
the sweeper's task (mnemo sweeps by itself).
"""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import anyio
import anyio.to_thread
import numpy as np
import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import mnemo.sync
from mnemo import ConfigError, Mnemo
from mnemo.adapters.langgraph import MnemoStore
from mnemo.protocols import EmbeddingSpace
from mnemo.testing import ManualClock


class Letters:
    """Embeds a text by how often each letter is in it, so that cosines are known."""

    space = EmbeddingSpace("letters", 512)

    async def embed(self, texts: Sequence[str], *, kind: str = "document") -> Any:
        """A row per text."""
        rows = np.full((len(texts), 512), 1e-6, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter, count in Counter(text.encode()).items():
                row[letter] += count
            for one, other in zip(text.encode(), text.encode()[1:], strict=False):
                row[256 + (31 * one + other) % 256] += 0.5
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of every store."""
    return ManualClock()


@pytest.fixture(params=["asynchronous", "blocking"])
async def repo(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Any]:
    """An open repository of either kind."""
    if request.param == "asynchronous":
        async with Mnemo("memory:", embedder=Letters(), clock=clock) as memory:
            yield await memory.open_repo("r")
        return
    service = mnemo.sync.Mnemo("memory:", embedder=Letters(), clock=clock)
    await anyio.to_thread.run_sync(service.open)
    try:
        yield await anyio.to_thread.run_sync(service.open_repo, "r")
    finally:
        await anyio.to_thread.run_sync(service.aclose)


@pytest.fixture
async def store(repo: Any) -> MnemoStore:
    """A store that indexes the field ``text``."""
    return MnemoStore(repo, index={"fields": ["text"]})


async def fill(store: BaseStore, *namespaces: tuple[str, ...]) -> None:
    """Put an item in each of *namespaces*."""
    for namespace in namespaces:
        await store.aput(namespace, "k", {"v": 1})


# ── Basic operations ─────────────────────────────────────────────────────────────────────


async def test_an_item_is_put_read_replaced_and_deleted(store, clock):
    """It is LangGraph's own type, with both times; other namespaces have their own keys."""
    await store.aput(("test", "documents"), "doc1", {"title": "one", "n": {"x": [1, None]}})
    first = await store.aget(("test", "documents"), "doc1")
    assert type(first) is Item
    assert first.value == {"title": "one", "n": {"x": [1, None]}}
    assert (first.namespace, first.key) == (("test", "documents"), "doc1")
    clock.advance(5)
    await store.aput(("test", "documents"), "doc1", {"title": "two"})
    second = await store.aget(("test", "documents"), "doc1")
    assert second.value == {"title": "two"}
    assert (second.created_at, second.updated_at > first.updated_at) == (first.created_at, True)
    assert await store.aget(("test", "other"), "doc1") is None
    await store.adelete(("test", "documents"), "doc1")
    await store.adelete(("test", "documents"), "doc1")
    assert await store.aget(("test", "documents"), "doc1") is None


async def test_reads_of_a_batch_see_what_was_there_before(store):
    """Results come in the order of the operations; a put gives ``None``."""
    await store.aput(("test", "foo"), "key1", {"data": "value1"})
    await store.aput(("test", "bar"), "key2", {"data": "value2"})
    ops = [
        PutOp(("test", "foo"), "key1", {"data": "new"}),
        GetOp(("test", "foo"), "key1"),
        SearchOp(("test",), filter={"data": "value1"}),
        ListNamespacesOp((), None, 10, 0),
        GetOp(("test",), "key3"),
        PutOp(("test", "new"), "key", {"data": "other"}),
        PutOp(("test", "bar"), "key2", None),
    ]
    results = await store.abatch(ops)
    assert results[0] is results[4] is results[5] is results[6] is None
    assert results[1].value == {"data": "value1"}
    assert [item.key for item in results[2]] == ["key1"]
    assert results[3] == [("test", "bar"), ("test", "foo")]
    after = await store.abatch([GetOp(("test", "foo"), "key1"), GetOp(("test", "bar"), "key2")])
    assert after[0].value == {"data": "new"}
    assert after[1] is None


async def test_the_last_put_of_a_batch_holds(store):
    """Two puts of one key are done in their order."""
    puts = [PutOp(("n",), "k", {"v": number}) for number in range(3)]
    assert await store.abatch(puts) == [None] * 3
    assert (await store.aget(("n",), "k")).value == {"v": 2}


@pytest.mark.slow
async def test_a_batch_of_any_length_is_done_in_portions(store):
    """All reads still come first; a bad put leaves the thousands before it, in both forms."""
    puts = [PutOp(("m",), f"{i}", {"i": i}) for i in range(2_500)]
    bad = [*puts[:1_999], PutOp(("m",), "bad", {"i": object()}), *puts[1_999:]]
    with pytest.raises(ValueError, match="JSON"):
        await store.abatch(bad)
    assert len(await store.asearch(("m",), limit=3_000)) == 1_000
    reads = [GetOp(("m",), f"{i}") for i in range(2_500)]
    found = await store.abatch([*puts, *reads])
    assert [item and item.value["i"] for item in found[2_500:]] == [*range(1_000), *[None] * 1_500]
    found = await anyio.to_thread.run_sync(store.batch, reads)
    assert [item and item.value["i"] for item in found] == [*range(2_500)]


@pytest.mark.slow
@pytest.mark.long
async def test_a_large_batch_and_many_calls_at_once(store):
    """Everything is there in the end."""
    await asyncio.gather(
        *(store.aput(("n", str(i % 10)), f"{i}", {"i": i}) for i in range(100)),
        *(store.aget(("n", "0"), f"{i}") for i in range(100)),
        *(store.asearch(("n",), query="x") for _ in range(10)),
    )
    await store.abatch([PutOp(("m",), f"{i}", {"i": i}) for i in range(1000)])
    assert len(await store.asearch(("m",), limit=2000)) == 1000
    assert len(await store.asearch(("n",), limit=2000)) == 100


# ── Namespaces ───────────────────────────────────────────────────────────────────────────

LISTED = [
    ("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"),
    ("a", "c", "f"), ("b", "a", "f"), ("users", "123"), ("users", "456", "settings"),
    ("admin", "users", "789"),
]  # fmt: skip


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"prefix": ("a", "b")},
        {"suffix": ("f",)},
        {"prefix": ("a",), "suffix": ("f",)},
        {"prefix": ("a", "b"), "suffix": ("d", "i")},
        {"max_depth": 3},
        {"prefix": ("a", "b"), "max_depth": 3},
        {"prefix": ("a", "*", "f")},
        {"prefix": ("*", "*", "f")},
        {"suffix": ("*", "f")},
        {"suffix": ("users", "*")},
        {"limit": 3},
        {"limit": 3, "offset": 3},
        {"limit": 50, "offset": 8},
        {"limit": 50, "offset": 9},
        {"max_depth": 1},
        {"max_depth": 1, "limit": 2, "offset": 1},
        {"prefix": ("nowhere",)},
        {"prefix": ("a", "b", "c", "d", "e", "f")},
    ],
)
async def test_namespaces_are_listed_as_in_memory(store, wanted):
    """The same answer as ``InMemoryStore``, for every condition, depth and page."""
    memory = InMemoryStore()
    for one in (store, memory):
        await fill(one, *LISTED)
    found = await store.alist_namespaces(**wanted)
    assert found == await memory.alist_namespaces(**wanted)


async def test_an_empty_store_lists_nothing(store):
    """Neither before the first put nor after the last delete."""
    assert await store.alist_namespaces() == []
    await fill(store, ("a",))
    await store.adelete(("a",), "k")
    assert await store.alist_namespaces() == []


async def test_several_conditions_of_one_kind_must_all_hold(store):
    """Operations may say more than the methods do; contradictions list nothing."""
    await fill(store, ("a", "b"), ("a", "c"), ("b", "c"))

    async def listed(*conditions: tuple[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
        matches = tuple(MatchCondition(kind, path) for kind, path in conditions)
        (found,) = await store.abatch([ListNamespacesOp(matches, None, 10, 0)])
        return found

    assert await listed(("prefix", ("a", "*")), ("prefix", ("*", "c"))) == [("a", "c")]
    assert await listed(("suffix", ("c",)), ("suffix", ("b", "*"))) == [("b", "c")]
    assert await listed(("prefix", ("a",)), ("prefix", ("b",))) == []
    with pytest.raises(ValueError, match="unsupported match type"):
        await listed(("middle", ("a",)))


@pytest.mark.parametrize(
    "namespace", [(), ("a.b",), ("", "a"), ("a", ""), (1,), ("langgraph", "x")]
)
async def test_a_namespace_that_langgraph_refuses_is_refused(store, namespace):
    """By the framework's own error, and nothing of a batch is stored."""
    with pytest.raises(InvalidNamespaceError):
        await store.aput(namespace, "k", {})
    if namespace and namespace[0] != "langgraph":
        with pytest.raises(InvalidNamespaceError):
            await store.abatch([PutOp(("n",), "k", {}), PutOp(namespace, "k", {})])
        with pytest.raises(InvalidNamespaceError):
            await store.abatch([SearchOp(namespace)])
    assert await store.asearch(()) == []


# ── Filters ──────────────────────────────────────────────────────────────────────────────

DOCUMENTS: dict[str, dict[str, Any]] = {
    "doc1": {"text": "red apple", "color": "red", "score": 4.5, "on": True},
    "doc2": {"text": "red car", "color": "red", "score": 3.0, "on": False, "m": {"a": 1, "b": 2}},
    "doc3": {"text": "green apple", "color": "green", "score": 4.0, "tags": ["x", "y"]},
    "doc4": {"text": "blue car", "color": "blue", "score": 3.5, "access-level": "O'Brien", "1a": 1},
}


@pytest.mark.parametrize(
    "filter",
    [
        None, {}, {"color": "red"}, {"color": {"$eq": "red"}}, {"color": {"$ne": "red"}},
        {"score": {"$gt": 3.2}}, {"score": {"$gte": 4.0}, "color": "green"},
        {"score": {"$lt": 4.5, "$gt": 3.0}}, {"score": {"$lte": 3}}, {"score": 3},
        {"score": {"$gt": float("-inf")}}, {"score": {"$lt": 10**100}},
        {"score": {"$eq": float("nan")}}, {"on": True}, {"on": False}, {"on": None},
        {"m": {"a": 1}}, {"m": {"a": {"$gte": 1}, "b": 2}}, {"m": {"c": None}},
        {"tags": ["x", "y"]}, {"tags": ["y", "x"]}, {"tags": ["x"]}, {"tags": "x"},
        {"access-level": "O'Brien"}, {"1a": 1}, {"missing": None}, {"missing": "x"},
        {"color": "red' OR '1'='1"}, {"color": "red\x00' OR '1'='1"}, {"color": "''''"},
        {"color') = 'red' OR '1'='1' OR json_extract(value, '$.": "x"},
    ],
)  # fmt: skip
async def test_filters_select_as_in_memory(store, filter):
    """The same items as ``InMemoryStore``."""
    memory = InMemoryStore()
    for key, value in DOCUMENTS.items():
        await store.aput(("test",), key, value)
        await memory.aput(("test",), key, value)
    found = {item.key for item in await store.asearch(("test",), filter=filter)}
    assert found == {item.key for item in await memory.asearch(("test",), filter=filter)}


@pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
@pytest.mark.parametrize("key", ["color", "m", "tags", "missing"])
async def test_what_cannot_be_compared_does_not_match(store, key, operator):
    """No error: ``InMemoryStore`` raises for these."""
    for name, value in DOCUMENTS.items():
        await store.aput(("test",), name, value)
    assert await store.asearch(("test",), filter={key: {operator: 1}}) == []


async def test_an_unknown_operator_is_refused(store):
    """Even where nothing is stored."""
    with pytest.raises(ValueError, match="unknown operator"):
        await store.asearch(("test",), filter={"x": {"$regex": "a"}})


# ── Vectors ──────────────────────────────────────────────────────────────────────────────


async def test_items_are_found_by_their_texts(store):
    """Best first, each with its cosine; filters apply to them, too."""
    for key, value in DOCUMENTS.items():
        await store.aput(("test",), key, value)
    for query, filter, best, count in [
        ("apple", {"color": "red"}, "doc1", 2),
        ("car", {"color": "red"}, "doc2", 2),
        ("bbbbluuu", {"score": {"$gt": 3.2}}, "doc4", 3),
        ("apple", {"score": {"$gte": 4.0}, "color": "green"}, "doc3", 1),
    ]:
        found = await store.asearch(("test",), query=query, filter=filter)
        assert type(found[0]) is SearchItem
        assert (found[0].key, len(found)) == (best, count)
        scores = [item.score for item in found]
        assert scores == sorted(scores, reverse=True)


async def test_each_field_has_a_vector_of_its_own(repo):
    """The nearest of an item's texts counts; absent fields and others are passed by."""
    store = MnemoStore(repo, index={"fields": ["key0", "key1", "key3"]})
    await store.aput(("test",), "doc1", {"key1": "xxx", "key2": "yyy", "key3": "zzz"})
    values = {"key0": "uuu", "key1": "vvv", "key2": "www", "key3": "xxx"}
    await store.aput(("test",), "doc2", values)
    one, other = await store.asearch(("test",), query="xxx")
    assert one.score == pytest.approx(other.score, abs=1e-5)
    assert one.score == pytest.approx(1.0, abs=1e-3)
    first, second = await store.asearch(("test",), query="uuu")
    assert (first.key, first.score > second.score) == ("doc2", True)
    unindexed = await store.asearch(("test",), query="www")
    assert all(item.score < one.score for item in unindexed)


async def test_an_operation_names_its_own_fields(repo):
    """Instead of the store's; nested paths and lists of texts as LangGraph reads them."""
    store = MnemoStore(repo, index={"fields": ["key17"]})
    await store.aput(("t",), "doc3", {"key0": "aaa", "key1": "bbb"}, index=["key0", "key1"])
    await store.aput(("t",), "doc4", {"key1": "bbb", "key3": "ggg"}, index=["key1", "key3"])
    await store.aput(("t",), "doc5", {"key0": "hhh"}, index=False)
    nested = {"meta": {"names": ["mmm", "nnn"], "parts": [{"x": "ppp"}, {"x": "qqq"}]}}
    await store.aput(("t",), "doc6", nested, index=["meta.names[*]", "meta.parts[*].x"])
    for query, best in {"aaa": "doc3", "ggg": "doc4", "nnn": "doc6", "qqq": "doc6"}.items():
        found = await store.asearch(("t",), query=query)
        assert (found[0].key, round(found[0].score, 2)) == (best, 1.0)
        assert next(item.score for item in found if item.key == "doc5") is None
    assert sorted(item.key for item in (await store.asearch(("t",), query="bbb"))[:2]) == [
        "doc3",
        "doc4",
    ]


async def test_without_fields_the_whole_value_is_indexed(repo):
    """An empty index means everything; none means that queries are passed by."""
    whole = MnemoStore(repo, index={})
    for key, text in (("a", "short text"), ("b", "zzz qqq"), ("c", "some other words")):
        await whole.aput(("test",), key, {"deep": {"text": text}})
    assert (await whole.asearch(("test",), query="zzz qqq"))[0].key == "b"
    none = MnemoStore(repo)
    await none.aput(("plain",), "d", {"text": "zzz"})
    found = await none.asearch((), query="zzz qqq")
    assert [item.score for item in found] == [None] * 4


async def test_queries_of_many_kinds(store):
    """A blank query lists; long, odd and non-ASCII ones find."""
    texts = ["这是中文", "これは日本語です", "이건 한국어야", "Это русский", "यह रूसी है"]
    for number, text in enumerate(texts):
        await store.aput(("user_123", "memories"), str(number), {"text": text})
    for number, text in enumerate(texts):
        assert (await store.asearch(("user_123",), query=text))[0].key == str(number)
    assert len(await store.asearch((), query="")) == 5
    assert len(await store.asearch((), query=None)) == 5
    assert len(await store.asearch((), query="foo " * 100, limit=1)) == 1
    assert len(await store.asearch((), query="test!@#$%^&*()")) == 5


async def test_pages_of_a_query_do_not_overlap(store):
    """Through scored and unscored items."""
    for number in range(5):
        await store.aput(("test",), f"doc{number}", {"text": f"test document number {number}"})
    await store.aput(("test",), "plain", {"n": 1})
    pages = [await store.asearch(("test",), query="test", limit=2, offset=n) for n in (0, 2, 4)]
    keys = [item.key for page in pages for item in page]
    assert len(set(keys)) == 6
    assert keys[-1] == "plain"


async def test_the_best_of_many_is_first(store):
    """One match among two hundred others."""
    await store.aput(("test", "M"), "M", {"text": "mmm"})
    others = [
        PutOp(("test", name), f"{name}{n}", {"text": "no"}) for name in "AZ" for n in range(100)
    ]
    await store.abatch(others)
    found = await store.asearch(("test",), query="mmm", limit=10)
    assert len({item.key for item in found}) == 10
    assert found[0].key == "M"
    assert found[0].score > found[1].score


@pytest.mark.parametrize("query", ["aaa", "bbb", "ccc", "abcd", "poisson"])
async def test_a_score_is_the_cosine(store, query):
    """Of the embedder's unit vectors."""
    await store.aput(("test",), "doc", {"text": "aaa bbb"})
    (found,) = await store.asearch(("test",), query=query)
    one, other = await Letters().embed(["aaa bbb", query])
    assert found.score == pytest.approx(float(one @ other), abs=1e-5)


@pytest.mark.parametrize("index", [{"embed": str}, {"dims": 4}, {"other": 1}, {"fields": "text"}])
async def test_an_index_of_its_own_is_refused(repo, index):
    """The embedder is the repository's; the error says where to give another."""
    with pytest.raises(ConfigError, match="index"):
        MnemoStore(repo, index=index)


# ── Expiry ───────────────────────────────────────────────────────────────────────────────


async def test_minutes_of_the_default_and_of_a_put(repo, clock):
    """A put's own TTL goes before the store's; ``None`` is for ever."""
    store = MnemoStore(repo, ttl={"default_ttl": 10, "refresh_on_read": False})
    await store.aput(("n",), "default", {})
    await store.aput(("n",), "own", {}, ttl=1.5)
    await store.aput(("n",), "ever", {}, ttl=None)
    clock.advance(91)
    assert sorted(item.key for item in await store.asearch(("n",))) == ["default", "ever"]
    clock.advance(600)
    assert [item.key for item in await store.asearch(("n",))] == ["ever"]
    assert await store.aget(("n",), "default") is None
    await store.aput(("m",), "k", {}, ttl=1)
    clock.advance(61)
    assert await store.alist_namespaces() == [("n",)]


async def test_a_read_refreshes(repo, clock):
    """By get and by search, unless it says otherwise; what has expired does not come back."""
    store = MnemoStore(repo, ttl={"default_ttl": 1})
    for key in ("get", "search", "left"):
        await store.aput((key,), key, {})
    clock.advance(45)
    await store.aget(("get",), "get")
    await store.asearch(("search",), refresh_ttl=True)
    await store.aget(("left",), "left", refresh_ttl=False)
    await store.asearch(("left",), refresh_ttl=False)
    clock.advance(30)
    assert sorted(item.key for item in await store.asearch((), refresh_ttl=True)) == [
        "get",
        "search",
    ]
    assert await store.aget(("left",), "left", refresh_ttl=True) is None


async def test_expired_items_leave_no_gap_in_a_page(repo, clock):
    """A page is of live items."""
    store = MnemoStore(repo)
    for key, ttl in (("c", 9), ("b", 9), ("expired", 1), ("a", 9)):
        await store.aput(("page",), key, {}, ttl=ttl)
        clock.advance(1)
    clock.advance(60)
    pages = [await store.asearch(("page",), limit=2, offset=offset) for offset in (0, 2)]
    assert [[item.key for item in page] for page in pages] == [["a", "b"], ["c"]]


@pytest.mark.parametrize("ttl", [0, -1, float("nan")])
async def test_a_ttl_of_no_use_is_refused(store, ttl):
    """Nothing is stored."""
    with pytest.raises(ValueError, match="ttl_s"):
        await store.aput(("n",), "k", {}, ttl=ttl)
    assert await store.asearch(()) == []


# ── Bad input ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "value", [{"x": object()}, {"x": {1}}, {"x": float("inf")}, {"x": b"bytes"}, {(1, 2): 3}]
)
async def test_a_value_that_is_no_json_stores_nothing(store, value):
    """Neither it nor anything else of its batch, whether it is indexed or not."""
    whole = PutOp(("n",), "bad", value, index=["$"])
    for bad in (whole, PutOp(("n",), "bad", value)):
        with pytest.raises(ValueError, match="value must be JSON"):
            await store.abatch([PutOp(("n",), "good", {}), bad])
    assert await store.asearch(()) == []


async def test_a_bad_put_leaves_its_neighbours_alone(store):
    """Calls at one time are no batch: only the bad one fails."""
    results = await asyncio.gather(
        store.aput(("n",), "one", {}),
        store.aput(("n",), "bad", {"x": object()}),
        store.aput(("n",), "two", {}),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), ValueError, type(None)]
    assert sorted(item.key for item in await store.asearch(("n",))) == ["one", "two"]


async def test_what_is_no_operation_or_repository_is_refused(store):
    """The error says what was given."""
    with pytest.raises(ValueError, match="unknown operation"):
        await store.abatch(["get"])
    with pytest.raises(ConfigError, match="Repository"):
        MnemoStore("memory.db")


# ── Threads, loops, files ────────────────────────────────────────────────────────────────


async def test_a_blocking_call_on_the_repositorys_loop_is_refused():
    """As LangGraph's asynchronous stores do; in another thread it works."""
    async with Mnemo("memory:", embedder=Letters()) as memory:
        store = MnemoStore(await memory.open_repo("r"))
        for call in (
            lambda: store.put(("n",), "k", {}),
            lambda: store.get(("n",), "k"),
            lambda: store.search(("n",)),
            lambda: store.delete(("n",), "k"),
            lambda: store.list_namespaces(),
            lambda: store.batch([GetOp(("n",), "k")]),
        ):
            with pytest.raises(asyncio.InvalidStateError, match="event loop"):
                call()
        await anyio.to_thread.run_sync(lambda: store.put(("n",), "k", {"v": 1}))
        found = await anyio.to_thread.run_sync(lambda: store.get(("n",), "k"))
        assert found.value == {"v": 1}


def test_a_program_without_a_loop_uses_a_file(tmp_path):
    """Every blocking call; the file keeps what was put."""
    path = tmp_path / "memory.db"
    with MnemoStore.from_path(path) as store:
        store.put(("a", "b"), "k", {"v": 1})
        store.put(("a",), "l", {"v": 2}, ttl=5)
        assert store.get(("a", "b"), "k").value == {"v": 1}
        assert [item.key for item in store.search(("a",), filter={"v": 2})] == ["l"]
        assert store.list_namespaces() == [("a",), ("a", "b")]
        store.delete(("a",), "l")
    with MnemoStore.from_path(path, repo_id="other") as other:
        assert other.search(()) == []
    with MnemoStore.from_path(path) as again:
        assert [item.key for item in again.search(())] == ["k"]


# ── Graphs ───────────────────────────────────────────────────────────────────────────────


class State(TypedDict):
    """What the graph of the tests passes on."""

    user: str
    said: str
    known: list[str]


def counting_graph(store: BaseStore, *, blocking: bool = False) -> Any:
    """A graph that remembers what each user says, and lists it."""

    async def remember(state: State, *, store: BaseStore) -> dict[str, Any]:
        await store.aput(("users", state["user"]), state["said"], {"text": state["said"]})
        return {}

    async def look(state: State, *, store: BaseStore) -> dict[str, Any]:
        items = await store.asearch(("users", state["user"]), query=state["said"])
        return {"known": [item.key for item in items]}

    def remember_blocking(state: State, *, store: BaseStore) -> dict[str, Any]:
        store.put(("users", state["user"]), state["said"], {"text": state["said"]})
        return {}

    graph = StateGraph(State)
    graph.add_node("remember", remember_blocking if blocking else remember)
    graph.add_node("look", look)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", "look")
    graph.add_edge("look", END)
    return graph.compile(store=store)


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_graph_remembers_between_runs(store, blocking):
    """Its nodes get the store from LangGraph; users do not see each other."""
    graph = counting_graph(store, blocking=blocking)
    for user, said in (("ada", "likes apples"), ("bo", "likes boats"), ("ada", "lives in Bern")):
        state = await graph.ainvoke({"user": user, "said": said, "known": []})
    assert state["known"] == ["lives in Bern", "likes apples"]
    assert [item.key for item in await store.asearch(("users", "bo"))] == ["likes boats"]


# ── Processes ────────────────────────────────────────────────────────────────────────────

WRITER = """
import sys
from mnemo.adapters.langgraph import MnemoStore
with MnemoStore.from_path(sys.argv[1], index={"fields": ["text"]}) as store:
    for number in range(int(sys.argv[3])):
        key = f"{sys.argv[2]}-{number}"
        store.put(("n",), key, {"n": number, "text": f"apples {key}"})
        store.put(("n",), "shared", {"by": sys.argv[2], "n": number, "twice": number})
        print(key, flush=True)
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    """A process that puts so many items, and prints each key once it is put."""
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.long
def test_what_was_acknowledged_survives_a_kill(tmp_path):
    """A process is killed while it writes: every key it printed is there, with its vector."""
    path = tmp_path / "memory.db"
    with start_writer(path, "a", 100_000) as process:
        printed = [process.stdout.readline().strip() for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        printed += process.stdout.read().split()
    with MnemoStore.from_path(path, index={"fields": ["text"]}) as store:
        items = {item.key: item for item in store.search(("n",), query="apples", limit=10**6)}
    assert set(printed) - {""} <= set(items)
    scored = [item for key, item in items.items() if key != "shared"]
    assert all(item.score is not None for item in scored)


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_write_one_file(tmp_path):
    """Each put is whole: nothing is lost, and a shared key holds one of them."""
    path = tmp_path / "memory.db"
    processes = [start_writer(path, name, 40) for name in "ab"]
    for process in processes:
        with process:
            process.communicate()
        assert process.returncode == 0
    with MnemoStore.from_path(path, index={"fields": ["text"]}) as store:
        keys = {item.key for item in store.search(("n",), query="apples", limit=1000)}
        shared = store.get(("n",), "shared").value
    assert keys == {f"{name}-{number}" for name in "ab" for number in range(40)} | {"shared"}
    assert shared["n"] == shared["twice"] == 39

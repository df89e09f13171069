"""
``MnemoSaver`` under LangGraph itself: its conformance suite, its graphs, its delta channels.

Of the tests of ``checkpoint-sqlite`` (langgraph 1.2) these cases are among ours: of test_sqlite.py
and test_aiosqlite.py the combined metadata, both searches, limits, keys that look like SQL,
keys with hyphens and digits; all of test_get_delta_channel_history.py, and of
test_delta_channel_migration.py the asynchronous cases.

Not applicable: the wording of its SQL conditions; the refusal of asynchronous calls by its
blocking saver; ``delta_channel_history`` of test_conformance_delta.py, a capability that the
published conformance suite (0.0.2) does not know.
"""

import asyncio
import operator
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import pytest
import pytest_asyncio
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import (
    CheckpointTuple,
    create_checkpoint,
    empty_checkpoint,
)
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import checkpointer_test
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph

import mnemo.sync
from mnemo import CheckpointHead, ConfigError, Conflict, Mnemo, Repository, StoreCorrupt
from mnemo.adapters.langgraph_checkpoints import PAGE, MnemoSaver
from mnemo.testing import HashingEmbedder

WORD = "vqzkxwbrtd"
"""Occurs nowhere else."""


def config(thread: str = "t", **named: Any) -> Any:
    """A config that names a thread."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""} | named}


def checkpoint(**values: Any) -> Any:
    """A new checkpoint with all *values* at version 1."""
    made = empty_checkpoint()
    return made | {"channel_values": values, "channel_versions": dict.fromkeys(values, "1")}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "m.db"


@pytest_asyncio.fixture
async def repo() -> AsyncIterator[Repository]:
    """A repository in memory."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        yield await memory.open_repo()


@pytest_asyncio.fixture
async def saver(repo: Repository) -> MnemoSaver:
    """A saver of the running event loop."""
    return MnemoSaver(repo)


@pytest.fixture
def blocking() -> Iterator[MnemoSaver]:
    """A saver over a repository of ``mnemo.sync``."""
    with mnemo.sync.Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        yield MnemoSaver(memory.open_repo())


async def listed(saver: MnemoSaver, *arguments: Any, **named: Any) -> list[CheckpointTuple]:
    return [found async for found in saver.alist(*arguments, **named)]


# ── Conformance ──────────────────────────────────────────────────────────────────────


@checkpointer_test(name="MnemoSaver")
async def asynchronous() -> AsyncIterator[MnemoSaver]:
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        yield MnemoSaver(await memory.open_repo())


@checkpointer_test(name="MnemoSaver, blocking")
async def over_sync() -> AsyncIterator[MnemoSaver]:
    memory = mnemo.sync.Mnemo("memory:", embedder=HashingEmbedder())
    await anyio.to_thread.run_sync(memory.open)
    yield MnemoSaver(await anyio.to_thread.run_sync(memory.open_repo))
    await anyio.to_thread.run_sync(memory.aclose)


@pytest.mark.slow
@pytest.mark.parametrize("made", [asynchronous, over_sync], ids=lambda made: made.name)
async def test_the_conformance_suite_is_green_with_every_capability(made):
    """All that the published suite knows, detected and passed, whatever the repository."""
    report = await validate(made)
    assert {name: (r.passed, r.failures) for name, r in report.results.items()} == {
        capability.value: (True, []) for capability in Capability
    }


# ── Metadata and listings ────────────────────────────────────────────────────────────


async def test_metadata_is_joined_by_that_of_the_config(saver):
    """What the config says of a run is kept; private keys are not."""
    named = config("t", __private="x") | {"metadata": {"run_id": "run"}}
    metadata: Any = {"source": "loop", "step": 1, "writes": {"foo": "bar"}, "score": None}
    await saver.aput(named, empty_checkpoint(), metadata, {})
    found = await saver.aget_tuple(named)
    assert found is not None
    assert found.metadata == {**metadata, "run_id": "run"}


async def searchable(saver: MnemoSaver) -> None:
    """Three checkpoints in two threads and two namespaces."""
    first = empty_checkpoint()
    await saver.aput(config("1", checkpoint_id="0"), first, {"source": "input", "step": 2}, {})
    told: Any = {"source": "loop", "step": 1, "writes": {"foo": "bar"}, "score": None}
    await saver.aput(config("2"), create_checkpoint(first, {}, 1), told, {})
    await saver.aput(config("2", checkpoint_ns="inner"), empty_checkpoint(), {}, {})


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"source": "input"}, 1),
        ({"step": 1, "writes": {"foo": "bar"}}, 1),
        ({"writes.foo": "bar"}, 1),
        ({"score": None}, 3),
        ({}, 3),
        ({"source": "update", "step": 1}, 0),
        ({"x') OR '1'='1": "dummy"}, 0),
    ],
)
async def test_a_search_compares_metadata(saver, wanted, count):
    """Each key with an equal value; what looks like SQL is a key as any other."""
    await searchable(saver)
    assert len(await listed(saver, None, filter=wanted)) == count


async def test_a_search_is_narrowed_by_config_before_and_limit(saver):
    """A thread without a namespace means all of them."""
    await searchable(saver)
    of_two = await listed(saver, {"configurable": {"thread_id": "2"}})
    assert [t.config["configurable"]["checkpoint_ns"] for t in of_two] == ["inner", ""]
    (before,) = await listed(saver, None, before=of_two[1].config)
    assert before.config["configurable"]["thread_id"] == "1"
    for limit, count in ((0, 0), (1, 1), (None, 2)):
        found = await listed(saver, {"configurable": {"thread_id": "2"}}, limit=limit)
        assert found == of_two[:count]


@pytest.mark.parametrize("id", [{}, {"checkpoint_id": None}, {"checkpoint_id": ""}])
async def test_an_id_that_names_no_checkpoint_is_as_none_given(saver, id):
    """Missing, ``None`` or empty: the newest, all of them, and no parent, as in LangGraph's own."""
    for one in (saver, InMemorySaver()):
        first, second = empty_checkpoint(), empty_checkpoint()
        root = await one.aput(config(**id), first, {}, {})
        newest = await one.aput(root, second, {}, {})
        found = await one.aget_tuple(config(**id))
        assert found is not None
        assert found.config == newest
        assert found.parent_config == root
        before: Any = config(**id)
        shown = [t.checkpoint["id"] async for t in one.alist(config(**id), before=before)]
        assert shown == [second["id"], first["id"]]
        oldest = await one.aget_tuple(root)
        assert oldest is not None
        assert oldest.parent_config is None


async def test_keys_with_hyphens_and_digits_are_compared(saver):
    """At the top and below, where a dot leads down."""
    metadata: Any = {"access-level": 1, "user": {"access-level": 2, "1a": 3}, "1a": 4, "a.b": 5}
    await saver.aput(config(), empty_checkpoint(), metadata, {})
    for wanted in ({"access-level": 1}, {"user.access-level": 2}, {"user.1a": 3}, {"a.b": 5}):
        assert len(await listed(saver, None, filter=wanted)) == 1


async def test_a_long_listing_is_read_in_pages(saver):
    """Copies have the same ids in another thread; each is given once."""
    for _ in range(PAGE + 3):
        await saver.aput(config(), empty_checkpoint(), {}, {})
    await saver.acopy_thread("t", "u")
    places = [
        (t.config["configurable"]["thread_id"], t.checkpoint["id"])
        for t in await listed(saver, None)
    ]
    assert len(set(places)) == len(places) == 2 * (PAGE + 3)
    assert len(await listed(saver, None, limit=PAGE + 1)) == PAGE + 1


# ── Values ───────────────────────────────────────────────────────────────────────────


class Log(TypedDict):
    """A list that grows by each step, and a large value that does not change."""

    items: Annotated[list[str], operator.add]
    file: str


def logging(saver: Any, nodes: int = 3) -> Any:
    """A graph whose nodes add their names to the log, one after the other."""
    builder = StateGraph(Log)
    names = [f"n{number}" for number in range(nodes)]
    for name in names:
        builder.add_node(name, lambda state, name=name: {"items": [name]})
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


async def test_a_value_that_does_not_change_is_stored_once(db):
    """A large value in a long run takes its place once, not once per checkpoint."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        graph = logging(MnemoSaver(await memory.open_repo()), nodes=8)
        await graph.ainvoke({"items": [], "file": WORD}, config())
        states = [state async for state in graph.aget_state_history(config())]
    assert [len(s.values.get("items", [])) for s in states] == [8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert all(s.values["file"] == WORD for s in states[:-1])
    with closing(sqlite3.connect(db)) as connection:
        query = "SELECT count(*) FROM checkpoint_values WHERE instr(data, CAST(? AS BLOB))"
        # Once as the input of the run, and once as the channel's value.
        assert connection.execute(query, (WORD,)).fetchone() == (2,)


async def test_a_value_without_news_is_found_all_the_same(saver):
    """A checkpoint made by hand, with values that no ancestor has, is stored whole."""
    made = checkpoint(a=[1], b={"c": b"bytes"})
    made["channel_values"]["loose"] = 3
    stored = await saver.aput(config(), made, {}, {})
    found = await saver.aget_tuple(stored)
    assert found is not None
    assert found.checkpoint == made
    again = checkpoint(a=[2]) | {"id": made["id"]}
    await saver.aput(config(), again, {}, {})
    assert (await saver.aget(config())) == again


async def test_branches_of_one_version_keep_their_own_values(saver):
    """Two forks that come to the same version do not see each other's value."""
    root = await saver.aput(config(), checkpoint(a="root"), {}, {"a": "1"})
    forks = []
    for value in ("left", "right"):
        made = checkpoint(a=value) | {"channel_versions": {"a": "2"}}
        forks.append(await saver.aput(root, made, {}, {"a": "2"}))
    for fork, value in zip(forks, ("left", "right"), strict=True):
        child = checkpoint(a=value) | {"channel_versions": {"a": "2"}}
        for stored in (fork, await saver.aput(fork, child, {}, {})):
            found = await saver.aget(stored)
            assert found is not None
            assert found["channel_values"] == {"a": value}


def test_versions_rise_and_differ():
    """From nothing, from a number of another saver, and from one of its own."""
    saver = object.__new__(MnemoSaver)
    first = saver.get_next_version(None, None)
    assert first < saver.get_next_version(first, None) < saver.get_next_version(7, None)
    assert saver.get_next_version(first, None) != saver.get_next_version(first, None)


# ── Delta channels ───────────────────────────────────────────────────────────────────


def joined(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class Plain(TypedDict):
    items: Annotated[list[str], operator.add]


class Delta(TypedDict):
    items: Annotated[list[str], DeltaChannel(joined)]


def resting(state: type[Any], saver: Any) -> Any:
    """A graph with one node that does nothing."""
    builder = StateGraph(state).add_node("rest", lambda state: {})
    return builder.add_edge(START, "rest").add_edge("rest", END).compile(checkpointer=saver)


async def driven(graph: Any, times: int, tag: str = "v") -> None:
    for number in range(times):
        await graph.ainvoke({"items": [f"{tag}{number}"]}, config())


def told(history: Any) -> list[str]:
    """What its writes to ``items`` say, oldest first."""
    return [item for _, channel, value in history["items"]["writes"] for item in value]


async def test_no_channel_has_no_history(saver):
    """Nothing is read for it."""
    assert await saver.aget_delta_channel_history(config=config(), channels=[]) == {}
    found = await saver.aget_delta_channel_history(config=config("nowhere"), channels=["a"])
    assert found == {"a": {"writes": []}}


async def test_a_history_is_told_oldest_first(saver):
    """At each checkpoint it is what the framework's own walk finds."""
    await driven(resting(Delta, saver), 3)
    for found in await listed(saver, config()):
        given: Any = {"config": found.config, "channels": ["items"]}
        history = await saver.aget_delta_channel_history(**given)
        assert history == await super(MnemoSaver, saver).aget_delta_channel_history(**given)
        assert told(history) == [f"v{n}" for n in range(len(told(history)))]
        if found.parent_config is None:
            assert history == {"items": {"writes": []}}


async def test_a_snapshot_of_an_ancestor_is_the_seed(saver):
    """One that is put into a stored ancestor is found, and the rest of the chain goes on."""
    await driven(resting(Delta, saver), 2)
    newest, _, ancestor, *_ = await listed(saver, config())
    seed = _DeltaSnapshot(["seeded"])
    ancestor.checkpoint["channel_values"]["items"] = seed
    await saver.aput(ancestor.parent_config or config(), ancestor.checkpoint, ancestor.metadata, {})
    given: Any = {"config": newest.config, "channels": ["items"]}
    history = await saver.aget_delta_channel_history(**given)
    assert history["items"]["seed"].value == ["seeded"]
    expected = await super(MnemoSaver, saver).aget_delta_channel_history(**given)
    assert told(history) == told(expected)


async def test_a_thread_moves_from_a_plain_channel_to_a_delta(saver):
    """Every state of before reads the same; what comes after is added to it."""
    plain = resting(Plain, saver)
    await driven(plain, 3, "u")
    before = [s async for s in plain.aget_state_history(config()) if s.next == ("__start__",)]
    delta = resting(Delta, saver)
    for state in before:
        now = await delta.aget_state(state.config)
        assert list(now.values.get("items", [])) == list(state.values.get("items", []))
    await delta.ainvoke({"items": ["after"]}, before[0].config)
    now = await delta.aget_state(config())
    assert now.values["items"] == [*before[0].values["items"], "after"]


async def test_pruning_keeps_the_state_of_delta_channels(saver):
    """The newest state reads as before, and the thread goes on."""
    graph = resting(Delta, saver)
    await driven(graph, 3)
    await saver.aprune(["t"])
    assert (await graph.aget_state(config())).values == {"items": ["v0", "v1", "v2"]}
    await graph.ainvoke({"items": ["more"]}, config())
    assert (await graph.aget_state(config())).values["items"][-1] == "more"


async def test_pruning_keeps_one_checkpoint_of_plain_channels(saver):
    """Nothing but the newest is needed; an unknown strategy is refused."""
    graph = resting(Plain, saver)
    await driven(graph, 3)
    with pytest.raises(ValueError, match="keep_latest"):
        await saver.aprune(["t"], strategy="keep_all")
    await saver.aprune(["t"])
    assert len(await listed(saver, config())) == 1
    assert (await graph.aget_state(config())).values == {"items": ["v0", "v1", "v2"]}
    await saver.aprune(["t"], strategy="delete")
    assert await saver.aget_tuple(config()) is None


async def test_parallel_tasks_are_replayed_in_the_order_of_the_run(saver):
    """Writes of one step to one delta channel, whose task ids sort otherwise than their paths."""
    for made in (saver, InMemorySaver()):
        builder = StateGraph(Delta)
        for name in "fbdac":
            builder.add_node(name, lambda state, name=name: {"items": [name]})
            builder.add_edge(START, name)
        graph = builder.compile(checkpointer=made)
        result = await graph.ainvoke({"items": []}, config())
        assert (await graph.aget_state(config())).values["items"] == result["items"]
        assert result["items"] == [*"abcdf"]


# ── Blocking calls ───────────────────────────────────────────────────────────────────


def test_a_graph_runs_without_an_event_loop(blocking):
    """Plain, with delta channels, and through every blocking form."""
    graph = logging(blocking)
    assert graph.invoke({"items": [], "file": "f"}, config())["items"] == ["n0", "n1", "n2"]
    delta = resting(Delta, blocking)
    for text in ("a", "b"):
        delta.invoke({"items": [text]}, config("d"))
    found = blocking.get_tuple(config("d"))
    assert found is not None
    history = blocking.get_delta_channel_history(config=found.config, channels=["items"])
    assert told(history) == ["a", "b"]
    blocking.copy_thread("d", "e")
    blocking.prune(["e"])
    assert delta.get_state(config("e")).values == {"items": ["a", "b"]}
    blocking.put_writes(found.config, [("x", 1)], "task")
    blocking.delete_for_runs(["nowhere"])
    blocking.delete_thread("d")
    assert list(blocking.list(config("d"))) == []
    assert len(list(blocking.list(config(), limit=2))) == 2


async def test_blocking_calls_come_from_other_threads(saver):
    """On the repository's own loop each is refused; in a worker thread it is served."""
    made = checkpoint(a=1)
    calls = [
        lambda: saver.get_tuple(config()),
        lambda: next(saver.list(config())),
        lambda: saver.put(config(), made, {}, {}),
        lambda: saver.put_writes(config(checkpoint_id="1"), [("a", 1)], "task"),
        lambda: saver.delete_thread("t"),
        lambda: saver.get_delta_channel_history(config=config(), channels=["a"]),
    ]
    for call in calls:
        with pytest.raises(asyncio.InvalidStateError, match="would wait for itself"):
            call()
    await anyio.to_thread.run_sync(saver.put, config(), made, {}, {})
    assert await anyio.to_thread.run_sync(saver.get, config()) == made


def test_an_asynchronous_repository_needs_its_loop():
    """What is no repository is refused as well."""
    with pytest.raises(ConfigError, match="Repository"):
        MnemoSaver("m.db")  # type: ignore[arg-type]


@pytest.mark.slow
async def test_a_saver_opens_its_own_file(db):
    """At the first call, from either form; another one finds what the first has stored."""
    made = checkpoint(a=1)
    async with MnemoSaver.from_path(db) as saver:
        await saver.aput(config(), made, {}, {})

    def read() -> Any:
        with MnemoSaver.from_path(db) as saver:
            return saver.get(config())

    assert await anyio.to_thread.run_sync(read) == made


# ── Bad input ────────────────────────────────────────────────────────────────────────


async def test_what_cannot_be_serialized_leaves_nothing(repo):
    """A value, the checkpoint itself, metadata, one write of several: nothing is written."""
    saver = MnemoSaver(repo)
    lock = threading.Lock()
    for made, metadata in (
        (checkpoint(good=1, bad=lock), {}),
        (checkpoint(good=1) | {"versions_seen": {"a": lock}}, {}),
        (checkpoint(good=1), {"step": lock}),
    ):
        with pytest.raises((TypeError, ValueError)):
            await saver.aput(config(), made, metadata, {"good": "1"})
    with pytest.raises((TypeError, ValueError)):
        await saver.aput_writes(config(checkpoint_id="1"), [("a", 1), ("b", lock)], "task")
    assert await listed(saver, None) == []
    assert (await repo.statistics()).checkpoints == 0
    made = checkpoint(good=1) | {"id": "1"}
    await saver.aput(config(), made, {}, {})
    found = await saver.aget_tuple(config())
    assert found is not None
    assert found.pending_writes == []


async def test_pickles_are_refused_unless_the_serde_takes_them(repo):
    """What was stored as a pickle is read by a saver that allows it, by no other."""
    allowing = MnemoSaver(repo, serde=JsonPlusSerializer(pickle_fallback=True))
    form, data = JsonPlusSerializer().dumps_typed(checkpoint(a=1))
    head = CheckpointHead(thread_id="t", id="1", type=form, data=data, versions={"evil": "1"})
    await repo.checkpoints.put(head, {"evil": ("pickle", pickle.dumps({1, 2}))})
    with pytest.raises(NotImplementedError, match="pickle"):
        await MnemoSaver(repo).aget_tuple(config())
    found = await allowing.aget(config())
    assert found is not None
    assert found["channel_values"]["evil"] == {1, 2}


@pytest.mark.parametrize(
    "named",
    [{}, {"thread_id": ""}, {"thread_id": "a\0b"}, {"thread_id": "t", "checkpoint_ns": "\ud800"}],
)
async def test_a_thread_that_cannot_be_stored_is_refused(saver, named):
    """With a typed error, and nothing is written."""
    with pytest.raises(ValueError, match=r"thread_id|namespace"):
        await saver.aput({"configurable": named}, checkpoint(a=1), {}, {})
    with pytest.raises(ConfigError, match="checkpoint_id"):
        await saver.aput_writes(config(), [("a", 1)], "task")
    assert await listed(saver, None) == []


async def test_a_copy_onto_a_thread_in_use_is_refused(saver):
    """Neither thread changes."""
    for thread in ("t", "u"):
        await saver.aput(config(thread), checkpoint(a=thread), {}, {})
    with pytest.raises(Conflict):
        await saver.acopy_thread("t", "u")
    found = await saver.aget(config("u"))
    assert found is not None
    assert found["channel_values"] == {"a": "u"}


async def test_a_value_that_is_gone_is_named(db):
    """``StoreCorrupt``; a listing passes the checkpoint by, and the check names it."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        saver = MnemoSaver(await memory.open_repo())
        await saver.aput(config(), checkpoint(a=1), {}, {})
        await saver.aput(config("u"), checkpoint(a=1), {}, {})
        with closing(sqlite3.connect(db)) as connection:
            connection.execute("DELETE FROM checkpoint_values WHERE thread_id = 't'")
            connection.commit()
        with pytest.raises(StoreCorrupt, match="channel 'a'"):
            await saver.aget_tuple(config())
        assert len(await listed(saver, None)) == 1
        (problem,) = (await memory.check()).problems
        assert problem.startswith("1 checkpoints without the value of a channel")


# ── Out of reach ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_checkpoints_are_no_memories(repo):
    """Neither search nor recall finds them, and ``forget`` leaves them."""
    saver = MnemoSaver(repo)
    (message,) = await repo.conversation("t").append([{"role": "user", "content": "Lea sails."}])
    await saver.aput(config(), checkpoint(messages=f"{WORD} Lea sails."), {}, {})
    assert await repo.search(WORD) == []
    assert WORD not in (await repo.recall(WORD)).as_text()
    await repo.forget(message_ids=[message.id])
    await repo.forget(thread_id="t")
    assert (await repo.statistics()).checkpoints == 1
    assert await saver.aget_tuple(config()) is not None


async def test_a_task_may_write_more_than_a_list_holds(repo):
    """A step that fans out over 1,500 documents: all writes are kept, in their order."""
    saver = MnemoSaver(repo)
    stored = await saver.aput(config(), checkpoint(a=WORD), {}, {})
    await saver.aput_writes(stored, [("tasks", number) for number in range(1_500)], "task")
    found = await saver.aget_tuple(config())
    assert found is not None
    assert [value for _, _, value in found.pending_writes or ()] == list(range(1_500))


async def test_threads_runs_and_channels_may_be_more_than_a_list_holds(repo):
    """Those of a graph are taken together: which runs go decides what has to stay."""
    saver, many = MnemoSaver(repo), [f"x{number}" for number in range(2_500)]
    first = await saver.aput(config(), checkpoint(a=WORD), {"run_id": "old"}, {"a": "1"})
    await saver.aput(first, checkpoint(a=WORD), {"run_id": "new"}, {"a": "1"})
    found = await saver.aget_delta_channel_history(config=config(), channels=["a", *many])
    assert len(found) == 2_501
    await saver.adelete_for_runs([*many, "new"])
    assert [one.metadata["run_id"] for one in await listed(saver, config())] == ["old"]
    await saver.aprune([*many, "t"], strategy="delete")
    assert (await repo.statistics()).checkpoints == 0


async def test_a_deleted_thread_leaves_no_bytes(db):
    """Values and writes are gone from the store's files."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        saver = MnemoSaver(await memory.open_repo())
        stored = await saver.aput(config(), checkpoint(a=WORD), {}, {})
        await saver.aput_writes(stored, [("a", WORD)], "task")
        assert any(WORD.encode() in file.read_bytes() for file in db.parent.iterdir())
        await saver.adelete_thread("t")
        assert not any(WORD.encode() in file.read_bytes() for file in db.parent.iterdir())


def test_an_allowlist_makes_a_saver_of_the_same_repository(blocking):
    """Another serializer over the same checkpoints."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=[("a", "B")])
    saver = MnemoSaver(blocking._handle.wait(lambda repo: repo), serde=strict)
    derived = saver.with_allowlist([("some.module", "Thing")])
    assert derived is not saver
    assert derived.serde is not saver.serde
    saver.put(config(), checkpoint(a=1), {}, {})
    assert derived.get(config()) is not None


# ── Several writers ──────────────────────────────────────────────────────────────────


async def test_two_writers_on_one_thread_lose_nothing(db):
    """Two services that put and write side by side: all is there, each with its own values."""
    async with (
        Mnemo(db, embedder=HashingEmbedder()) as first,
        Mnemo(db, embedder=HashingEmbedder()) as second,
    ):
        savers = [MnemoSaver(await memory.open_repo()) for memory in (first, second)]

        async def work(saver: MnemoSaver, name: str) -> None:
            stored = config()
            for number in range(20):
                made = checkpoint(a=f"{name}{number}")
                made["channel_versions"] = {"a": number}
                stored = await saver.aput(stored, made, {"name": name}, {"a": number})
                await saver.aput_writes(stored, [("a", name)], f"task {name}")

        async with anyio.create_task_group() as group:
            for saver, name in zip(savers, "xy", strict=True):
                group.start_soon(work, saver, name)
        for name in "xy":
            found = await listed(savers[0], config(), filter={"name": name})
            assert [t.checkpoint["channel_values"]["a"] for t in found] == [
                f"{name}{number}" for number in reversed(range(20))
            ]
            assert all(t.pending_writes == [(f"task {name}", "a", name)] for t in found)


# ── Killed ───────────────────────────────────────────────────────────────────────────

_GRAPH = """
import asyncio, os, signal, sys
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from mnemo.adapters.langgraph import MnemoSaver

class State(TypedDict):
    answer: str
    done: list

def first(state):
    return {"done": ["first"]}

def ask(state):
    return {"answer": interrupt("sure?"), "done": [*state["done"], "ask"]}

def killed(state):
    if os.environ.get("KILLED"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"done": [*state["done"], "killed"]}

def last(state):
    return {"done": [*state["done"], "last"]}

def graph(saver):
    nodes = (first, ask, killed, last)
    builder = StateGraph(State)
    for node in nodes:
        builder.add_node(node.__name__, node)
    names = [node.__name__ for node in nodes]
    for before, after in zip([START, *names], [*names, END]):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)

CONFIG = {"configurable": {"thread_id": "t"}}
"""
_RUN = """
async def main():
    async with MnemoSaver.from_path(sys.argv[1]) as saver:
        given = {"answer": ""} if sys.argv[2] == "start" else Command(resume=sys.argv[2])
        print((await graph(saver).ainvoke(given, CONFIG, durability="sync")).keys())
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.long
async def test_a_graph_killed_between_two_steps_goes_on_in_another_process(db):
    """Interrupted in one process, answered and killed in a second, finished in a third."""

    async def run(argument: str, **environment: str) -> int:
        command = [sys.executable, "-c", _GRAPH + _RUN, str(db), argument]
        done = await anyio.run_process(command, check=False, env={**os.environ, **environment})
        return done.returncode

    assert await run("start") == 0
    assert await run("yes", KILLED="1") == -signal.SIGKILL
    made: dict[str, Any] = {}
    exec(_GRAPH, made)
    async with MnemoSaver.from_path(db) as saver:
        graph = made["graph"](saver)
        state = await graph.aget_state(config())
        assert (state.next, state.values["done"]) == (("killed",), ["first", "ask"])
        result = await graph.ainvoke(None, config())
    assert result == {"answer": "yes", "done": ["first", "ask", "killed", "last"]}


_PUTS = """
import asyncio, sys
from langgraph.checkpoint.base import empty_checkpoint
from mnemo.adapters.langgraph import MnemoSaver

async def main():
    async with MnemoSaver.from_path(sys.argv[1]) as saver:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for number in range(10_000):
            values = {"same": "x" * 5_000, "new": [number] * 2_000}
            versions = {"same": "1", "new": str(number)}
            made = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
            config = await saver.aput(config, made, {"step": number}, {"new": str(number)})
            await saver.aput_writes(config, [("a", number), ("b", number)], "task")
            print(number, flush=True)

asyncio.run(main())
"""


def killed_after(db: Path, puts: int) -> int:
    """Kill a process that puts once it has reported so many; give the last one reported."""
    command = [sys.executable, "-c", _PUTS, str(db)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(puts):
            reported = process.stdout.readline()
        process.kill()
        rest = process.stdout.read().split("\n")
    whole = [line for line in [reported.strip(), *rest[:-1]] if line]
    return int(whole[-1])


@pytest.mark.slow
@pytest.mark.parametrize("puts", [1, 17, 40])
@pytest.mark.long
async def test_a_put_that_is_killed_is_whole_or_not_there(db, puts):
    """All that was reported is there, in full, and the store has no problem."""
    reported = await anyio.to_thread.run_sync(killed_after, db, puts)
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        assert (await memory.check()).problems == ()
        saver = MnemoSaver(await memory.open_repo(exist_ok=True))
        found = await listed(saver, config())
        steps = [t.metadata["step"] for t in found]
        assert steps == list(range(len(steps)))[::-1]
        assert steps[0] >= reported
        for t in found:
            step = t.metadata["step"]
            values = {"same": "x" * 5_000, "new": [step] * 2_000}
            assert t.checkpoint["channel_values"] == values
            writes = [("task", "a", step), ("task", "b", step)]
            assert t.pending_writes == (writes if step <= reported else t.pending_writes)
            assert t.pending_writes in ([], writes)

"""The commit lane: atomic, idempotent, one after another, and robust against others."""

import logging
from typing import Any

import anyio
import numpy as np
import pytest

from mnemo.commit.lane import TRIES, TRIES_IN_A_RUSH
from mnemo.errors import CommitFailed, Conflict, StaleRevision, StoreLocked
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.graph import Edge, EdgeKind, Episodic, Intent, Procedural, Semantic, Source, Tag


class Meddling:
    """A graph store where somebody else acts just before, or instead of, each write."""

    def __init__(self, graph: Any, *errors: Exception, before: Any = None) -> None:
        self._graph = graph
        self._errors = list(errors)
        self._before = before
        self.applied = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def apply(self, write: Any, owner: Any) -> Any:
        self.applied += 1
        if self._before is not None:
            before, self._before = self._before, None
            await before()
        if self._errors:
            raise self._errors.pop(0)
        return await self._graph.apply(write, owner)


BAD = {
    "an edge to an unknown node": Changeset(
        nodes=(Tag("tea", id="t"),), edges=(Edge("t", "nowhere", EdgeKind.MEMBERSHIP),)
    ),
    "a kind that does not fit": Changeset(
        nodes=(Tag("tea", id="t"), Tag("milk", id="m")),
        edges=(Edge("t", "m", EdgeKind.MEMBERSHIP),),
    ),
    "a duplicate id": Changeset(nodes=(Tag("tea", id="t"), Tag("milk", id="t"))),
    "a self-link": Changeset(
        nodes=(Semantic("a", id="a"),), edges=(Edge("a", "a", EdgeKind.SIBLING),)
    ),
    "a vector of wrong length": Changeset(
        nodes=(Semantic("a", vector=np.ones(3, np.float32) / np.sqrt(3).astype(np.float32)),)
    ),
    "a vector that is not of unit length": Changeset(
        nodes=(Semantic("a", vector=np.ones(64, np.float32)),)
    ),
    "a change to an unknown node": Changeset(changes=(NodeChange("nowhere", {"reward": 1.0}),)),
    "a change of an unknown field": Changeset(
        nodes=(Tag("tea", id="t"),), changes=(NodeChange("t", {"colour": "red"}),)
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_cannot_be_stored_is_refused_whole(world, what):
    """Nothing is stored and the revision stays."""
    await world.commit(Changeset(nodes=(Semantic("Ana likes tea"),)))
    before = await world.graph.revision()
    with pytest.raises(ValueError, match=r"\w"):
        await world.commit(BAD[what])
    assert await world.graph.revision() == before
    assert await world.of(Tag) == []
    assert len(await world.of(Semantic)) == 1


async def test_an_id_that_is_taken_is_refused(world):
    """Two different facts cannot share an id."""
    await world.commit(Changeset(nodes=(Semantic("Ana likes tea", id="f"),)))
    with pytest.raises(ValueError, match="taken"):
        await world.commit(Changeset(nodes=(Semantic("Bo likes milk", id="f"),)))


async def test_a_commit_gives_revision_ids_and_edges(world, draft):
    """The receipt names what exists afterwards."""
    given = draft()
    fact = given.fact("Ana likes tea", tags=["tea"])
    applied = await world.commit(given.build())
    (tag,) = await world.of(Tag)
    assert applied.node_ids == (fact.id, tag.id)
    assert (applied.revision, applied.edge_count, applied.again) == (1, 1, False)


async def test_a_changeset_is_applied_once(world, draft):
    """The same id again writes nothing and gives the first answer."""
    given = draft()
    given.fact("Ana likes tea", tags=["tea"])
    changeset = given.build(id="changeset-1")
    first = await world.commit(changeset)
    await world.commit(Changeset(nodes=(Semantic("Bo likes milk"),)))
    again = await world.commit(changeset)
    assert again.again
    assert (again.revision, again.node_ids) == (first.revision, first.node_ids)
    assert await world.graph.revision() == 2


async def test_a_changeset_that_was_wholly_reinforcement_is_applied_once(world, draft):
    """Nothing of it is stored under its own ids, and still it is known."""
    await world.commit(Changeset(nodes=(Semantic("Ana likes tea", confidence=0.5),)))
    again = Changeset(nodes=(Semantic("Ana likes tea", confidence=0.5),), id="changeset-2")
    await world.commit(again)
    await world.commit(again)
    (fact,) = await world.of(Semantic)
    assert fact.confidence == 0.75
    assert (await world.graph.metadata([fact.id]))[fact.id].support_count == 2


async def test_concurrent_commits_of_one_tag_leave_one(world, draft):
    """Two sessions that commit one new tag at once leave one tag."""
    lane = world.lane()
    changesets = []
    for i in range(8):
        given = draft(f"e{i}")
        given.fact(f"Ana drinks tea number {i}", tags=["Tea"])
        changesets.append(given.build())
    async with anyio.create_task_group() as tasks:
        for changeset in changesets:
            tasks.start_soon(lane.commit, changeset)
    (tag,) = await world.of(Tag)
    assert len(await world.edges(tag.id)) == 8


async def test_a_write_in_between_is_reconciled_anew(world, draft):
    """Another lane that commits the tag first makes this one use it."""
    theirs, ours = draft("e1"), draft("e2")
    theirs.fact("Ana likes tea", tags=["Tea"])
    ours.fact("Bo likes tea", tags=["tea"])

    async def meddle() -> None:
        await world.commit(theirs.build())

    graph = Meddling(world.graph, before=meddle)
    await world.lane(graph).commit(ours.build())
    assert graph.applied == 2
    (tag,) = await world.of(Tag)
    assert tag.label == "Tea"
    assert len(await world.edges(tag.id)) == 2


async def test_models_are_asked_once_however_often_it_is_tried(world):
    """Retrying because others wrote costs neither embeddings nor merges."""
    world.embedder.place("ship it", 0.0)
    world.embedder.place("release it", 0.5)
    await world.commit(Changeset(nodes=(Intent("ship it"),)))
    world.embedder.asked.clear()
    merges = []

    async def merge(stored: str, new: str) -> str:
        merges.append((stored, new))
        return "publish it"

    graph = Meddling(world.graph, StaleRevision("1"), StaleRevision("2"))
    await world.lane(graph).commit(Changeset(nodes=(Intent("release it"),)), merge_intent=merge)
    assert graph.applied == 3
    assert merges == [("ship it", "release it")]
    assert world.embedder.asked == ["release it", "publish it", "ship it"]


async def test_giving_up_on_endless_contention_is_a_failed_commit(world):
    """Tries are bounded; then nothing was written."""
    graph = Meddling(world.graph, *[StaleRevision("again") for _ in range(1_000)])
    with pytest.raises(CommitFailed, match="others wrote first"):
        await world.lane(graph).commit(Changeset(nodes=(Semantic("Ana likes tea"),)))
    assert await world.graph.revision() == 0


async def test_a_commit_gets_its_turn_among_faster_ones(world):
    """Another lane writes again and again, and always before it; then it waits once."""

    class Slow(Meddling):
        async def nodes(self, *args: Any, **options: Any) -> Any:
            await anyio.sleep(0.03)
            return await self._graph.nodes(*args, **options)

    await world.commit(Changeset(nodes=(Semantic("Ana likes tea"),)))
    slow, others = Slow(world.graph), 0

    async def write_on() -> None:
        nonlocal others
        lane = world.lane(world.graph)
        while True:
            await lane.commit(Changeset(nodes=(Semantic(f"Bo has {others} cows"),)))
            others += 1

    async with anyio.create_task_group() as group:
        group.start_soon(write_on)
        await world.lane(slow).commit(Changeset(nodes=(Semantic("Cy likes milk"),)))
        before = others
        with anyio.fail_after(120):
            while others == before:  # noqa: ASYNC110 - the other lane goes on
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert TRIES_IN_A_RUSH < slow.applied < TRIES
    assert await world.graph.take_turn("anybody")


async def test_a_store_that_cannot_write_is_a_failed_commit(world):
    """Every failure of the store has one name for the session, and its cause."""
    graph = Meddling(world.graph, StoreLocked("somebody has it"))
    with pytest.raises(CommitFailed, match="somebody has it") as failure:
        await world.lane(graph).commit(Changeset(nodes=(Semantic("Ana likes tea"),)))
    assert isinstance(failure.value.__cause__, StoreLocked)


async def test_a_lost_ownership_passes_through(world):
    """Who lost the session must be told so, not that the store failed."""
    graph = Meddling(world.graph, Conflict("another process owns it"))
    with pytest.raises(Conflict, match="another process"):
        await world.lane(graph).commit(Changeset(nodes=(Semantic("Ana likes tea"),)))


async def test_a_failing_embedder_does_not_stop_a_commit(world, draft, caplog):
    """Without vectors it is committed, equal texts are still one, and it is logged."""
    world.embedder.failing = True
    for episode in ("e1", "e2"):
        given = draft(episode)
        given.fact("Ana likes tea", tags=["tea"])
        given.instruction("make tea", "if cold", "heat it")
        with caplog.at_level(logging.WARNING):
            await world.commit(given.build())
    assert len(await world.of(Semantic)) == len(await world.of(Procedural)) == 1
    assert len(await world.of(Intent)) == len(await world.of(Tag)) == 1
    assert "without vectors" in caplog.text


async def test_texts_are_embedded_in_one_call_and_steps_are_not(world, draft):
    """One call per commit; the index embeds what steps say."""
    given = draft()
    given.fact("Ana likes tea", tags=["Ana likes tea"])
    given.instruction("make tea", "if cold", "heat it")
    given.nodes += (Episodic("seen"), Source("seen"))
    await world.commit(given.build())
    assert world.embedder.asked == ["Ana likes tea", "if cold\nheat it", "make tea"]


async def test_an_empty_changeset_leaves_the_revision(world):
    """Nothing to write is nothing written."""
    applied = await world.commit(Changeset())
    assert (applied.revision, applied.node_ids) == (0, ())
    assert await world.graph.revision() == 0


async def test_a_cancelled_commit_leaves_nothing_and_the_lane_free(world):
    """Cancelled while a model thinks, nothing was written and the next commit goes on."""
    world.embedder.place("ship it", 0.0)
    world.embedder.place("release it", 0.5)
    lane = world.lane()
    await lane.commit(Changeset(nodes=(Intent("ship it"),)))
    thinking = anyio.Event()

    async def hang(stored: str, new: str) -> str:
        thinking.set()
        await anyio.sleep_forever()
        return new

    changeset = Changeset(nodes=(Intent("release it"), Semantic("Ana likes tea")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: lane.commit(changeset, merge_intent=hang))
        await thinking.wait()
        tasks.cancel_scope.cancel()
    assert await world.graph.revision() == 1
    assert await world.of(Semantic) == []
    await lane.commit(changeset)
    assert len(await world.of(Semantic)) == 1

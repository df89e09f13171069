"""The index follows its store, and embeds what has no vector behind the writers' backs."""

import gc
import logging
import math
import tracemalloc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from numpy.typing import NDArray
from segments_kit import learn, opened
from world import a_step

from mnemo.errors import InvalidReply, ModelTimeout, StoreError
from mnemo.index import embedding, owed
from mnemo.index.embedding import BATCH
from mnemo.index.follower import RepositoryIndex
from mnemo.protocols import EmbeddingSpace, FeedChanges, FeedCursor
from mnemo.runtime import traffic
from mnemo.runtime.flights import Errand
from mnemo.testing import HashingEmbedder
from mnemo.values.graph import Node, Semantic, Tag, Vector
from mnemo.values.steps import Step

NOON = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)


def step(number: int, text: str = "", *, session: str = "s1") -> Step:
    place = {"session_id": session, "episode_id": f"{session}-e1", "ordinal": number + 1}
    return a_step(number, text or f"bees number {number}", at=NOON, **place)


class Feed:
    """A feed in memory, cut into pages, that tells when vectors are saved."""

    def __init__(self, *, page: int = 5_000) -> None:
        self.said: list[Step] = []
        self.nodes: list[Node] = []
        self.removed: list[str] = []
        self.vectors: list[tuple[str, Vector]] = []
        self.page = page
        self.reads = 0
        self.read_again = 0
        self.failing = False
        self.saved = anyio.Event()

    async def changes(self, after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        """A page of everything after the cursor."""
        if self.failing:
            raise StoreError("the store is gone")
        self.reads += 1
        await anyio.lowlevel.checkpoint()
        lists: list[Any] = [self.said, self.nodes, self.removed, self.vectors]
        starts = [after.step, after.revision, after.removal, after.vector]
        parts = [items[at : at + self.page] for items, at in zip(lists, starts, strict=True)]
        ends = [at + len(part) for at, part in zip(starts, parts, strict=True)]
        steps, nodes, removed, vectors = parts
        return FeedChanges(
            cursor=FeedCursor(*ends),
            revision=len(self.nodes) + len(self.removed),
            steps=tuple(steps),
            nodes=tuple(nodes),
            removed=tuple(removed),
            vectors=dict(vectors),
            more=any(end < len(items) for end, items in zip(ends, lists, strict=True)),
        )

    async def steps(self, node_ids: Sequence[str]) -> dict[str, Step]:
        """The steps behind ids, as they are read again."""
        self.read_again += len(node_ids)
        return {step.node_id: step for step in self.said if step.node_id in node_ids}

    async def messages(self, ids: Sequence[str]) -> dict[str, Any]:
        """None."""
        return {}

    async def without_vectors(self, keys: Collection[str]) -> set[str]:
        """Those that have none."""
        return {*keys}.difference(key for key, _ in self.vectors)

    async def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[str, Vector], *, as_of: int
    ) -> None:
        """Keep them."""
        await anyio.lowlevel.checkpoint()
        self.vectors += vectors.items()
        self.saved.set()


class Flaky:
    """An embedder that fails, or answers nonsense, until it is mended."""

    def __init__(self, answer: NDArray[np.float32] | None = None) -> None:
        self.inner = HashingEmbedder(16)
        self.space = self.inner.space
        self.answer = answer
        self.broken = True
        self.asked = anyio.Event()

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Fail while broken."""
        self.asked.set()
        if not self.broken:
            return await self.inner.embed(texts, kind=kind)
        if self.answer is None:
            raise ModelTimeout("the embedder is down")
        return self.answer


def index_of(feed: Any, embedder: Any = None) -> RepositoryIndex:
    return RepositoryIndex(feed=feed, embedder=embedder or HashingEmbedder(16), agent_name="Agent")


def begin(index: RepositoryIndex, group: anyio.abc.TaskGroup) -> None:
    """Have *index* embed in the background, as a repository does that opens."""
    index.wake = Errand(group.start_soon, index.run).poke
    index.wake()


@pytest.fixture
def feed() -> Feed:
    """A feed that has nothing to say yet."""
    return Feed()


async def test_a_new_step_is_in_the_next_corpus(feed):
    """Reading catches up first; an earlier view stays as it was."""
    index = index_of(feed)
    feed.said.append(step(0))
    before = await index.corpus()
    feed.said.append(step(1, "hens"))
    after = await index.corpus()
    assert (before.steps.count, after.steps.count) == (1, 2)
    assert before.steps.postings.read("hen", before.steps.count) is None
    assert after.steps.postings.read("hen", after.steps.count) is not None
    assert after.steps.pieces.previous.tolist() == [-1, 0]
    assert after.steps.of("episodic-1") == (1,)
    assert before.steps.of("episodic-1") == ()


async def test_pages_are_read_to_the_end():
    """A feed cut into pages is followed until nothing is left, whatever comes first."""
    feed = Feed(page=2)
    embedder = HashingEmbedder(16)
    feed.said = [step(n) for n in range(7)]
    rows = await embedder.embed([f"bees number {n}" for n in range(7)])
    # The last steps' vectors come with the first page, before their steps.
    keys = [f"episodic-{n}/observation" for n in (6, 5, 4, 3, 2, 1, 0)]
    feed.vectors = list(zip(keys, rows, strict=True))
    index = index_of(feed, embedder)
    view = await index.corpus()
    assert view.steps.count == 7
    assert sorted(view.steps.vector_documents.tolist()) == list(range(7))
    assert index.statistics().waiting == 0


async def test_callers_at_one_moment_share_a_read(feed):
    """Twenty concurrent readers need two reads at most: one under way, one for the rest."""
    feed.said = [step(0)]
    index = index_of(feed)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(index.corpus)
    assert feed.reads <= 2


async def test_everything_gets_its_vector(feed):
    """Documents without vectors are embedded in batches, saved, and come back with the feed."""
    feed.said = [step(n) for n in range(BATCH + 3)]
    feed.nodes = [Semantic("Ana keeps bees."), Tag("bees")]
    index = index_of(feed)
    await index.catch_up()
    assert index.statistics().waiting == BATCH + 5
    await index.embed_waiting()
    found = index.statistics()
    assert (found.waiting, found.documents) == (0, BATCH + 5)
    assert len(feed.vectors) == BATCH + 5
    nearest = await index.nearest(
        np.stack([dict(feed.vectors)[feed.nodes[1].id]]), type="tag", threshold=0.9, limit=3
    )
    assert [id for id, _ in nearest[0]] == [feed.nodes[1].id]


async def test_a_poke_is_enough(feed):
    """The background task embeds a lone step soon after it was told of a write."""
    index = index_of(feed)
    async with anyio.create_task_group() as group:
        begin(index, group)
        feed.said.append(step(0))
        index.poke()
        with anyio.fail_after(120):
            await feed.saved.wait()
        group.cancel_scope.cancel()
    assert [key for key, _ in feed.vectors] == ["episodic-0/observation"]


async def test_a_failing_embedder_is_waited_out(caplog):
    """It is logged once per streak; the next write after it is mended embeds everything."""
    feed, embedder = Feed(), Flaky()
    index = index_of(feed, embedder)
    feed.said.append(step(0))
    with caplog.at_level(logging.WARNING, logger="mnemo"):
        async with anyio.create_task_group() as group:
            begin(index, group)
            for _ in range(2):
                embedder.asked = anyio.Event()
                index.poke()
                with anyio.fail_after(120):
                    await embedder.asked.wait()
            assert "ModelTimeout" in str(index.statistics().failing)
            assert (await index.corpus()).steps.count == 1
            embedder.broken = False
            index.poke()
            with anyio.fail_after(120):
                await feed.saved.wait()
            group.cancel_scope.cancel()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert len(feed.vectors) == 1


class Picky(Flaky):
    """Refuses every batch with a certain word in it."""

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Fail for the word."""
        if any("refused" in text for text in texts):
            raise InvalidReply("one of the texts is refused")
        return await self.inner.embed(texts, kind=kind)


@pytest.mark.parametrize(
    ("error", "traced"), [(ModelTimeout("the embedder is down"), False), (KeyError("rows"), True)]
)
async def test_a_failing_embedder_is_one_line_of_the_log(error, traced, caplog):
    """What says itself what to do comes without a traceback, a stranger's bug with its place."""

    class Broken(Flaky):
        async def embed(self, *texts: Any, **kind: Any) -> NDArray[np.float32]:
            self.asked.set()
            raise error

    feed, embedder = Feed(), Broken()
    feed.said.append(step(0))
    index = index_of(feed, embedder)
    async with anyio.create_task_group() as group:
        begin(index, group)
        with anyio.fail_after(120):
            await embedder.asked.wait()
            while index.statistics().failing is None:
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    (record,) = [r for r in caplog.records if "wait for their vectors" in r.getMessage()]
    assert bool(record.exc_info) is traced


async def test_a_text_that_is_always_refused_keeps_no_other_waiting(monkeypatch):
    """Batches shrink until it stands alone, and then the others have their turn."""
    monkeypatch.setattr(embedding, "RETRY_S", 0.0001)
    monkeypatch.setattr(embedding, "MAX_RETRY_S", 0.001)
    feed = Feed()
    feed.said = [step(n) for n in range(40)]
    feed.said[3] = step(3, "this one is refused")
    index = index_of(feed, Picky())
    async with anyio.create_task_group() as group:
        begin(index, group)
        with anyio.fail_after(120):
            while index.statistics().waiting > 1 or len(feed.vectors) < 39:  # noqa: ASYNC110
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    assert len(feed.vectors) == 39
    assert "InvalidReply" in str(index.statistics().failing)


async def test_steps_of_other_processes_are_traffic(monkeypatch):
    """Not those that were written here: by a caller, counted then, or by a job, to be let be."""
    loop = traffic.Traffic()
    monkeypatch.setattr(embedding, "traffic", lambda: loop)
    feed = Feed()
    index = index_of(feed, Flaky())
    feed.said = [step(n) for n in range(7)]
    for _ in range(3):
        index.poke()
    await index.catch_up()
    assert (loop.writes, loop.elsewhere) == (3, 4)
    feed.said += [step(n) for n in range(7, 9)]
    index.poke(by_job=True)
    await index.catch_up()
    assert (loop.writes, loop.elsewhere) == (3, 5)


async def test_appends_do_not_make_a_dead_embedder_work(monkeypatch):
    """Pauses between tries grow, whatever is written meanwhile."""
    monkeypatch.setattr(traffic, "QUIET_S", 0)
    feed, embedder = Feed(), Flaky()
    feed.said.append(step(0))
    index = index_of(feed, embedder)
    asked, began = 0, anyio.current_time()
    async with anyio.create_task_group() as group:
        begin(index, group)
        index.poke()
        await embedder.asked.wait()
        with anyio.move_on_after(0.5):
            while True:
                index.poke()
                asked += embedder.asked.is_set()
                embedder.asked = anyio.Event()
                await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    # At 0, 0.1 and 0.3 s; on a machine that was held up, at 0.7, 1.5, ... s too.
    assert 1 <= asked <= 2 + math.log2(1 + (anyio.current_time() - began) / 0.1)


@pytest.mark.parametrize(
    "answer",
    [
        np.ones((2, 16)),
        np.ones((1, 8)),
        np.zeros((1, 16)),
        np.full((1, 16), np.nan),
        np.full((1, 16), np.inf),
    ],
)
async def test_no_wrong_vector_is_ever_saved(answer, feed):
    """Wrong count, wrong width, zero, NaN and infinity are the embedder's ``InvalidReply``."""
    feed.said.append(step(0))
    with pytest.raises(InvalidReply):
        await index_of(feed, Flaky(answer)).embed_waiting()
    assert feed.vectors == []


async def test_vectors_are_of_length_one_when_saved(feed):
    """Rows are normalised on the way in."""
    feed.said.append(step(0))
    await index_of(feed, Flaky(np.full((1, 16), 3, np.float32))).embed_waiting()
    assert np.isclose(np.linalg.norm(feed.vectors[0][1]), 1)


async def test_a_changed_node_stands_once_with_its_vector(feed):
    """The same meaning keeps its vector; new words wait for a new one."""
    fact = Semantic("Ana keeps bees.", id="semantic-1")
    feed.nodes = [fact]
    index = index_of(feed)
    await index.embed_waiting()
    feed.nodes.append(Semantic("Ana keeps bees.", id="semantic-1", valid_to=NOON))
    view = (await index.corpus()).nodes["semantic"]
    assert (len(view.of("semantic-1")), index.statistics().waiting) == (1, 0)
    assert view.valid_to[view.of("semantic-1")[0]] == NOON.timestamp()
    feed.nodes.append(Semantic("Ana sold her bees.", id="semantic-1"))
    await index.corpus()
    assert (index.statistics().waiting, index.statistics().documents) == (1, 1)


async def test_a_removed_node_disappears(feed):
    """Neither keyword nor vector finds it, and it waits for nothing."""
    feed.nodes, feed.said = [Semantic("Ana keeps bees.", id="semantic-1")], [step(0)]
    index = index_of(feed)
    before = await index.corpus()
    feed.removed += ["semantic-1", "episodic-0", "unknown"]
    after = await index.corpus()
    assert before.steps.alive.tolist() == [True]
    assert after.steps.alive.tolist() == [False]
    assert after.nodes["semantic"].of("semantic-1") == ()
    assert (index.statistics().waiting, index.statistics().documents) == (0, 0)


async def test_an_index_ahead_of_its_store_begins_anew(feed):
    """A store that fell back (an older copy of the file) is read from its beginning."""
    feed.nodes = [Semantic("Ana keeps bees."), Semantic("Bo sells boats.")]
    index = index_of(feed)
    assert await index.catch_up() == 2
    del feed.nodes[1:]
    assert await index.catch_up() == 1
    assert index.statistics().documents == 1


async def test_a_failed_read_loses_nothing(feed):
    """The error reaches the reader; the next read goes on from where the last one ended."""
    feed.said.append(step(0))
    index = index_of(feed)
    await index.catch_up()
    feed.failing = True
    with pytest.raises(StoreError):
        await index.corpus()
    feed.failing = False
    feed.said.append(step(1))
    assert (await index.corpus()).steps.count == 2


async def test_sessions_are_chained_apart(feed):
    """Steps of two sessions that arrive in turns have neighbours of their own session only."""
    feed.said = [step(n, session=f"s{n % 2}") for n in range(4)]
    view = (await index_of(feed).corpus()).steps
    assert view.pieces.previous.tolist() == [-1, -1, 0, 1]
    assert view.pieces.next.tolist() == [2, 3, -1, -1]


async def test_nearest_of_nothing_is_nothing():
    """An empty index and a type without vectors answer with empty lists, one per row."""
    index = index_of(Feed())
    assert await index.nearest(np.ones((2, 16), np.float32), type="tag", threshold=0) == [[], []]


async def test_an_enormous_text_is_found_by_its_words(feed):
    """Ten megabytes in one step are read in pieces and found by their first million characters."""
    feed.said.append(step(0, "heron " + "reeds and water " * 650_000))
    index = index_of(feed)
    view = (await index.corpus()).steps
    assert view.postings.read("heron", 1) is not None
    await index.embed_waiting()
    assert len(feed.vectors) == 1


async def test_a_renewed_index_holds_nothing_of_what_was_removed(feed):
    """It is read anew beside the one that serves, then takes its place."""
    feed.said = [step(0, "honey"), step(1, "wax")]
    index = index_of(feed)
    await index.embed_waiting()
    feed.removed.append("episodic-0")
    feed.said = feed.said[1:]
    view = await index.corpus()
    assert "episodic-0" in view.steps.ids
    await index.renew()
    renewed = await index.corpus()
    assert "episodic-0" not in renewed.steps.ids
    assert renewed.steps.of("episodic-1")


async def test_what_others_remove_is_dropped_from_memory(monkeypatch):
    """An index that only follows holds what lives, and not for ever what does not."""
    monkeypatch.setattr(embedding, "MOST_REMOVED", 4)
    feed = Feed()
    index = index_of(feed)
    for number in range(20):
        # What is read anew holds of the removed as little as a store does.
        feed.said = [step(number)] * (number + 1)
        feed.removed.append(f"episodic-{number - 1}")
        await index.catch_up()
    assert len((await index.corpus()).steps.ids) == 20
    async with anyio.create_task_group() as tasks:
        begin(index, tasks)
        with anyio.fail_after(120):
            while len((await index.corpus()).steps.ids) > 1:  # noqa: ASYNC110 - in background
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_an_index_that_is_renewed_is_not_settled(monkeypatch, feed):
    """What is written meanwhile gets its vectors afterwards: until then something waits."""
    feed.said = [step(0)]
    index = index_of(feed)
    await index.embed_waiting()
    seen: list[int] = []
    read = feed.changes

    async def watched(after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        seen.append(index.statistics().waiting)
        return await read(after, limit=limit)

    monkeypatch.setattr(feed, "changes", watched)
    await index.renew()
    assert set(seen) == {1}
    assert index.statistics().waiting == 0


async def test_a_read_behind_a_renewal_sees_what_was_removed_before_it(feed):
    """What a renewal read before that is no answer to who asked later and shares a read."""
    feed.said = [step(0), step(1)]
    index = index_of(feed)
    await index.corpus()
    held = anyio.Event()
    found: list[tuple[int, ...]] = []

    async def look() -> None:
        found.append((await index.corpus()).steps.of("episodic-0"))

    async def reading_slowly(after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        feed.changes = changes  # type: ignore[method-assign]
        await held.wait()
        return await changes(after, limit=limit)

    changes = feed.changes
    feed.changes = reading_slowly  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(look)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(index.renew)
        await anyio.wait_all_tasks_blocked()
        feed.removed.append("episodic-0")
        tasks.start_soon(look)
        await anyio.wait_all_tasks_blocked()
        held.set()
    assert found == [(), (), ()]


async def test_a_renewal_that_fails_leaves_an_index_that_serves(feed):
    """What it passed over meanwhile is read again."""
    feed.said = [step(0, "honey")]
    index = index_of(feed)
    await index.embed_waiting()
    feed.failing = True
    with pytest.raises(StoreError):
        await index.renew()
    feed.failing = False
    feed.said.append(step(1, "wax"))
    await index.embed_waiting()
    assert index.statistics().waiting == 0
    assert (await index.corpus()).steps.of("episodic-1")


# ── What is let go ───────────────────────────────────────────────────────────────────


async def test_an_index_that_holds_nothing_costs_little(feed):
    """Before the first document, and after it was let go."""
    embedder, sizes = HashingEmbedder(384), list[float]()
    feed.said = [step(n) for n in range(50)]
    await index_of(feed, embedder).embed_waiting()
    nothing = Feed()

    def measure() -> None:
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0] / 20)

    tracemalloc.start()
    try:
        empty = [index_of(nothing, embedder) for _ in range(20)]
        for index in empty:
            await index.embed_waiting()
        measure()
        full = [index_of(feed, embedder) for _ in range(20)]
        for index in full:
            assert not (await index.corpus()).is_empty
        measure()
        assert all(index.let_go() for index in full)
        measure()
    finally:
        tracemalloc.stop()
    assert sizes[0] < 2_000
    assert sizes[1] > 100_000
    assert sizes[2] < 6_000


async def test_what_was_let_go_comes_back_the_same(feed):
    """An earlier view stays as it was; the next one finds what that found, and what is new."""
    feed.said, feed.nodes = [step(n) for n in range(9)], [Tag("bees")]
    index = index_of(feed)
    await index.embed_waiting()
    before, stood = await index.corpus(), index.statistics()
    assert index.let_go()
    assert stood.bytes > 40_000
    assert index.statistics() == replace(stood, bytes=0)
    assert before.steps.postings.read("bee", 9) is not None
    feed.said.append(step(9))
    after = await index.corpus()
    assert (before.steps.count, after.steps.count) == (9, 10)
    assert after.steps.ids[:9] == before.steps.ids
    assert np.array_equal(after.steps.vectors, before.steps.vectors)
    assert index.statistics().waiting == 1


async def test_what_is_not_new_is_not_read_again(feed):
    """Whoever asks how far it is gets an answer without the documents."""
    feed.said, feed.nodes = [step(0)], [Tag("bees")]
    index = index_of(feed)
    await index.embed_waiting()
    index.let_go()
    stood = index.statistics()
    assert await index.catch_up() == 1
    assert not await index.is_behind("t")
    await index.embed_waiting()
    assert (index.is_held, index.statistics()) == (False, stood)
    feed.nodes.append(Tag("hens"))
    assert await index.catch_up() == 2
    assert (index.is_held, index.statistics().documents) == (True, 3)


async def test_what_is_read_or_embedded_is_not_let_go(monkeypatch):
    """It can be as soon as nobody uses it; a recall then still has its view."""
    embedder = Counting(monkeypatch)
    feed = Feed()
    feed.said = [step(0)]
    index = index_of(feed, embedder)
    tries: list[bool] = []
    read, embed = feed.changes, embedder.embed

    async def reading(after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        tries.append(index.let_go())
        return await read(after, limit=limit)

    async def embedding(texts: Sequence[str], **kind: Any) -> NDArray[np.float32]:
        tries.append(index.let_go())
        return await embed(texts, **kind)

    monkeypatch.setattr(feed, "changes", reading)
    monkeypatch.setattr(embedder, "embed", embedding)
    assert (await index.corpus(embedded=True)).owed == 0
    feed.said.append(step(1))
    await index.embed_waiting()
    await index.renew()
    assert len(tries) > 6
    assert not any(tries)
    assert index.let_go()


async def test_what_is_owed_is_owed_by_an_index_that_was_let_go(feed):
    """It does not look settled, and the background reads it again to embed it."""
    feed.said = [step(n) for n in range(3)]
    index = index_of(feed)
    await index.catch_up()
    assert index.let_go()
    assert index.statistics().waiting == 3
    async with anyio.create_task_group() as group:
        group.start_soon(index.run)
        with anyio.fail_after(120):
            await feed.saved.wait()
        group.cancel_scope.cancel()
    assert len(feed.vectors) == 3
    assert not await index.is_behind("t")
    assert index.statistics().waiting == 0


async def test_what_a_failing_embedder_owes_outlives_letting_go(monkeypatch):
    """Nothing keeps it in memory until then; once it is mended, all get their vectors."""
    monkeypatch.setattr(embedding, "RETRY_S", 0.001)
    monkeypatch.setattr(embedding, "MAX_RETRY_S", 0.001)
    feed, embedder = Feed(), Flaky()
    feed.said = [step(n) for n in range(3)]
    index = index_of(feed, embedder)
    async with anyio.create_task_group() as group:
        group.start_soon(index.run)
        with anyio.fail_after(120):
            for _ in range(3):
                embedder.asked = anyio.Event()
                await embedder.asked.wait()
                while not index.let_go():
                    await anyio.lowlevel.checkpoint()
                found = index.statistics()
                assert (found.waiting, found.bytes) == (3, 0)
                assert "ModelTimeout" in str(found.failing)
            embedder.broken = False
            await feed.saved.wait()
    assert len(feed.vectors) == 3
    assert index.statistics().waiting == 0


async def test_the_near_are_found_in_what_was_let_go(feed):
    """Between catching up and looking, others may have needed the room."""
    feed.nodes = [Tag("bees")]
    index = index_of(feed)
    await index.embed_waiting()
    index.let_go()
    ((found,),) = await index.nearest(np.stack([feed.vectors[0][1]]), type="tag", threshold=0.9)
    assert found[0] == feed.nodes[0].id


async def test_what_was_let_go_is_renewed_when_it_is_read(monkeypatch):
    """It is read in the space that is in force then."""
    embedder = Counting(monkeypatch)
    feed = Feed()
    feed.said = [step(0)]
    index = index_of(feed, embedder)
    await index.embed_waiting()
    index.let_go()
    embedder.inner = HashingEmbedder(32)
    embedder.space = embedder.inner.space
    feed.vectors.clear()
    await index.renew()
    assert not index.is_held
    await index.embed_waiting()
    assert (await index.corpus()).steps.vectors.shape == (1, 32)


async def test_what_is_read_again_is_no_traffic(monkeypatch):
    """What others wrote since is."""
    loop = traffic.Traffic()
    monkeypatch.setattr(embedding, "traffic", lambda: loop)
    feed = Feed()
    feed.said = [step(n) for n in range(7)]
    index = index_of(feed)
    await index.catch_up()
    index.let_go()
    feed.said += [step(n) for n in range(7, 9)]
    index.poke()
    await index.catch_up()
    assert loop.elsewhere == 8


# ── What is owed ─────────────────────────────────────────────────────────────────────


class Counting:
    """An embedder of passages that notes every text, and takes its time by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ms: float = 0.0) -> None:
        self.inner = HashingEmbedder(16)
        self.space = replace(self.inner.space, passage_tokens=20)
        self.calls: list[list[str]] = []
        self.now, self.ms = 0.0, ms
        monkeypatch.setattr(embedding, "elapsed", lambda: self.now)

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """So many milliseconds for each text."""
        self.calls.append(list(texts))
        self.now += self.ms * len(texts) / 1_000
        return await self.inner.embed(texts, kind=kind)


def same_length(number: int) -> Step:
    return step(number, f"bees in hive number {number:04}")


async def test_an_answer_waits_for_as_many_vectors_as_fit(monkeypatch):
    """The newest and those that share words with the question by turns; the rest is told."""
    embedder = Counting(monkeypatch, ms=10)
    feed = Feed()
    feed.said = [same_length(n) for n in range(200)]
    feed.said[7] = step(7, "the linker is out of it now")
    index = index_of(feed, embedder)
    monkeypatch.setattr(embedding, "FIRST_S", 0.0)
    view = await index.corpus(embedded=True, query="What happened to the linker?")
    told = {text.partition("] ")[2] or text for text in embedder.texts}
    assert len(told) == 4  # the first call loads the model, which does not count
    assert any("linker" in text for text in told)
    assert any("0199" in text for text in told)
    assert (view.owed, len(view.steps.vectors)) == (196, 4)
    assert index.statistics().waiting == 196
    again = await index.corpus(embedded=True, query="linker")
    assert again.owed == 193
    assert (await index.corpus()).owed == 193


async def test_the_first_answer_has_the_vectors_of_a_short_script(monkeypatch):
    """What a new process remembers is found by its meaning at once, while the model loads."""
    embedder = Counting(monkeypatch, ms=9)
    feed = Feed()
    feed.said = [same_length(n) for n in range(30)]
    index = index_of(feed, embedder)
    assert (await index.corpus(embedded=True)).owed == 0
    feed.said += [same_length(n) for n in range(30, 60)]
    assert (await index.corpus(embedded=True)).owed > 20


async def test_who_allows_nothing_waits_for_nothing(monkeypatch):
    """With 0 milliseconds words alone answer, in a new process too."""
    embedder = Counting(monkeypatch, ms=9)
    feed = Feed()
    feed.said = [same_length(n) for n in range(30)]
    index = RepositoryIndex(feed=feed, embedder=embedder, agent_name="Agent", owed_s=0.0)
    assert (await index.corpus(embedded=True)).owed == 30
    assert not embedder.calls


async def test_a_fast_embedder_owes_nothing_to_an_answer(monkeypatch):
    """All that fits is all there is."""
    embedder = Counting(monkeypatch, ms=0.01)
    feed = Feed()
    feed.said = [same_length(n) for n in range(300)]
    assert (await index_of(feed, embedder).corpus(embedded=True)).owed == 0
    assert len(embedder.texts) == 300


async def test_a_slow_embedder_is_not_waited_for_twice(monkeypatch):
    """The first call may load it; after another one a question knows that nothing fits."""
    embedder = Counting(monkeypatch, ms=400)
    feed = Feed()
    feed.said = [same_length(n) for n in range(5)]
    index = index_of(feed, embedder)
    assert (await index.corpus(embedded=True)).owed == 3
    assert (await index.corpus(embedded=True)).owed == 3
    await index.embed_waiting()
    assert (await index.corpus(embedded=True)).owed == 0


async def test_however_slow_the_newest_and_the_best_get_their_vectors(monkeypatch):
    """On a machine so busy that no text fits; but not where a question would wait for long."""
    embedder = Counting(monkeypatch, ms=100)
    feed = Feed()
    feed.said = [same_length(n) for n in range(5)]
    index = index_of(feed, embedder)
    await index.embed_waiting()  # loads
    feed.said += [same_length(n) for n in range(5, 10)]
    await index.embed_waiting()  # its pace is known
    feed.said += [same_length(n) if n != 13 else step(n, "a new linker") for n in range(10, 20)]
    embedder.calls = []
    view = await index.corpus(embedded=True, query="What happened to the linker?")
    newest, best = embedder.texts
    assert ("0019" in newest, "linker" in best, view.owed) == (True, True, 8)
    embedder.ms = 300
    await index.corpus(embedded=True)
    owed = (await index.corpus(embedded=True)).owed
    assert (await index.corpus(embedded=True)).owed == owed


class Held(Counting):
    """Answers no call of *held* texts until it is let go."""

    held = 0

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Wait, and embed."""
        if len(texts) == self.held:
            self.asked.set()
            await self.let_go.wait()
        return await super().embed(texts, kind=kind)


@pytest.mark.parametrize(("more", "calls"), [(1, [1]), (20, [2, 20])])
async def test_an_answer_waits_for_the_one_new_text_and_not_for_a_batch(monkeypatch, more, calls):
    """What is being embedded is not embedded twice; beside a batch the newest texts are."""
    embedder = Held(monkeypatch, ms=12)
    feed = Feed()
    feed.said = [same_length(n) for n in range(5)]
    index = index_of(feed, embedder)
    await index.embed_waiting()  # loads
    feed.said += [same_length(n) for n in range(5, 10)]
    await index.embed_waiting()  # its pace is known
    feed.said += [same_length(10 + n) for n in range(more)]
    embedder.held, embedder.calls = more, []
    embedder.asked, embedder.let_go = anyio.Event(), anyio.Event()
    views = []

    async def answer() -> None:
        views.append(await index.corpus(embedded=True))

    async with anyio.create_task_group() as group:
        group.start_soon(index.embed_waiting)
        await embedder.asked.wait()
        group.start_soon(answer)
        await anyio.wait_all_tasks_blocked()
        assert bool(views) == (more > 1)
        embedder.let_go.set()
    assert [len(call) for call in embedder.calls] == calls
    assert views[0].owed == (18 if more > 1 else 0)


async def test_equal_texts_are_embedded_once(monkeypatch):
    """Within a batch, and when they are said again; after a removal nothing is remembered."""
    embedder = Counting(monkeypatch)
    feed = Feed()
    feed.said = [step(n, "thanks") for n in range(40)]
    index = index_of(feed, embedder)
    await index.embed_waiting()
    feed.said += [step(n, "thanks") for n in range(40, 50)]
    await index.embed_waiting()
    assert (len(embedder.texts), len(feed.vectors)) == (1, 50)
    feed.removed.append("episodic-0")
    feed.said.append(step(50, "thanks"))
    await index.embed_waiting()
    assert len(embedder.texts) == 2


async def test_in_another_space_a_text_is_embedded_anew(monkeypatch):
    """What is remembered of the space before fits no more."""
    embedder = Counting(monkeypatch)
    feed = Feed()
    feed.said = [step(0, "thanks")]
    index = index_of(feed, embedder)
    await index.embed_waiting()
    embedder.inner = HashingEmbedder(32)
    embedder.space = embedder.inner.space
    feed.vectors.clear()
    await index.renew()
    feed.said.append(step(1, "thanks"))
    await index.embed_waiting()
    assert {key: len(vector) for key, vector in feed.vectors} == {
        "episodic-0/observation": 32,
        "episodic-1/observation": 32,
    }


async def test_further_passages_come_last(monkeypatch):
    """First every document has its first one, in calls of texts of like length."""
    embedder = Counting(monkeypatch)
    monkeypatch.setattr(embedding, "WINDOW", 8)
    feed = Feed()
    feed.said = [step(n, f"hive {n} " + "of many bees " * (1 + 20 * (n % 2))) for n in range(16)]
    index = index_of(feed, embedder)
    await index.embed_waiting()
    keys = [key for key, _ in feed.vectors]
    numbers = [int(key.partition("#")[2] or 0) for key in keys]
    assert numbers[:16] == [0] * 16
    assert 0 not in numbers[16:]
    lengths = [len(text) for text in embedder.calls[0]]
    assert lengths == sorted(lengths)
    assert index.statistics().waiting == 0


async def test_texts_beyond_a_bound_are_read_again(monkeypatch):
    """In memory are keys; what is embedded is the same."""
    monkeypatch.setattr(owed, "MOST_CHARACTERS", 100)
    feed = Feed()
    feed.said = [same_length(n) for n in range(30)]
    feed.nodes = [Semantic("Ana keeps bees.", id="semantic-1")]
    index, embedder = index_of(feed), HashingEmbedder(16)
    await index.embed_waiting()
    assert 20 < feed.read_again < 30
    assert index.statistics().waiting == 0
    other = Feed()
    other.said, other.nodes = feed.said, feed.nodes
    monkeypatch.setattr(owed, "MOST_CHARACTERS", 4_000_000)
    await index_of(other, embedder).embed_waiting()
    mine, whole = dict(feed.vectors), dict(other.vectors)
    assert mine.keys() == whole.keys()
    assert all(np.array_equal(mine[key], whole[key]) for key in whole)


async def test_a_restart_finds_what_is_owed(monkeypatch):
    """What the store holds without a vector, further passages too."""
    embedder = Counting(monkeypatch, ms=400)
    feed = Feed()
    feed.said = [step(0, "bees and hives " * 10), same_length(1)]
    index = index_of(feed, embedder)
    before = (await index.corpus(embedded=True)).owed
    assert before > 0
    again = index_of(feed, embedder)
    await again.catch_up()
    assert again.statistics().waiting == before
    await again.embed_waiting()
    assert len({key for key, _ in feed.vectors}) == len(feed.vectors) > 2


async def test_however_it_came_the_vectors_are_the_same(monkeypatch):
    """Portions and recalls in between change which is made when, and nothing else."""
    whole, parted = Feed(), Feed(page=3)
    whole.said = [step(n, f"hive {n % 5} " + "of bees " * n) for n in range(40)]
    await index_of(whole, Counting(monkeypatch)).embed_waiting()
    embedder = Counting(monkeypatch, ms=10)
    index = index_of(parted, embedder)
    for n in range(0, 40, 7):
        parted.said += whole.said[n : n + 7]
        await index.corpus(embedded=True, query=f"hive {n}")
    await index.embed_waiting()
    mine, theirs = dict(parted.vectors), dict(whole.vectors)
    assert mine.keys() == theirs.keys()
    assert all(np.array_equal(mine[key], theirs[key]) for key in theirs)


GERMAN = "Ich habe heute mit meiner Schwester über die Bienen gesprochen"


@pytest.mark.parametrize(("german", "advised"), [(25, False), (26, True), (50, True)])
async def test_another_language_than_the_embedders_is_told_once(german, advised, caplog):
    """By the log, to whoever listens, and in the statistics; an embedder of more says nothing."""
    told: list[str] = []
    embedder = Flaky()
    embedder.space = replace(embedder.space, english_only=True)
    feed = Feed()
    index = RepositoryIndex(
        feed=feed,  # type: ignore[arg-type]
        embedder=embedder,
        agent_name="Agent",
        advise=told.append,
    )
    feed.said = [step(n, GERMAN if n < german else "I saw the bees today") for n in range(50)]
    await index.catch_up()
    feed.said.append(step(50, "I saw them, too" if german < 50 else GERMAN))
    await index.catch_up()
    assert len(told) == advised
    if advised:
        assert 'embedder="multilingual"' in told[0]
        assert "`mnemo reembed --embedder multilingual`" in told[0]
        assert told[0] in caplog.text
    embedder.space = replace(embedder.space, english_only=False)
    assert index.advice is None


async def test_the_vector_of_a_step_that_was_committed_meanwhile_is_kept(tmp_path):
    """Its node comes with the commit; what was said, and is embedded, does not change with it."""
    async with opened(tmp_path / "m.db") as (_, repo):
        await learn(repo, "bees")
        index = repo._parts.index
        node = (await repo.get_nodes(["episodic"]))[0]
        key = f"{node.id}/observation"
        assert not await index.feed.vectors([key])
        row = np.eye(index.embedder.space.dimensions, dtype=np.float32)[0]
        await index.feed.save_vectors(index.embedder.space, {key: row}, as_of=0)
        assert key in await index.feed.vectors([key])

"""``memory.reembed``: another space from the stored texts, whatever goes on meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import anyio
import numpy as np
import pytest
from helpers import committed

from mnemo import (
    Changeset,
    EmbeddingSpaceMismatch,
    InvalidReply,
    Mnemo,
    ModelUnavailable,
    NodeChange,
    RecallFailed,
    ReembeddingProgress,
    Repository,
    StoreError,
)
from mnemo.maintenance import reembed
from mnemo.models.named import MovableEmbedder
from mnemo.testing import HashingEmbedder

OLD, NEW = HashingEmbedder(64), HashingEmbedder(96)
ALL = ("episodic", "semantic", "procedural", "subgoal", "intent", "tag", "source")


class Gated:
    """An embedder of the new space that waits, fails or answers as a test wants."""

    def __init__(self, answer: Callable[[Any], Any] = lambda rows: rows) -> None:
        self.space = NEW.space
        self.texts: list[str] = []
        self.calls_left = 1_000
        self.arrived, self.go_on = anyio.Event(), anyio.Event()
        self.go_on.set()
        self._answer = answer

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> Any:
        """As the other one, if a call is left."""
        self.arrived.set()
        await self.go_on.wait()
        self.calls_left -= 1
        if self.calls_left < 0:
            raise ModelUnavailable("no call is left")
        self.texts += texts
        return self._answer(await NEW.embed(texts, kind=kind))


class Passages(HashingEmbedder):
    """An embedder that reads a few words at once."""

    def __init__(self) -> None:
        super().__init__(32)
        self._space = replace(self._space, passage_tokens=20)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several calls of the embedder, several reads of the feed."""
    monkeypatch.setattr(reembed, "BATCH", 4)
    monkeypatch.setattr(reembed, "PAGE", 5)


async def filled(memory: Mnemo, repo_id: str = "r") -> Repository:
    """An open repository of the old space with a committed session."""
    repo = await memory.open_repo(repo_id, embedder=OLD)
    session = await repo.start_session("small talk", session_id=f"s of {repo_id}")
    for city in ("Porto", "Lisbon", "Faro", "Braga", "Evora"):
        await session.append(f"My friend in {city} bakes bread.", f"Noted {city}")
    await session.close_and_commit()
    await caught_up(repo)
    return repo


async def caught_up(repo: Repository) -> None:
    """Every document has its vector."""
    await repo._parts.index.embed_waiting()  # type: ignore[attr-defined]
    assert (await repo.statistics()).index.waiting == 0


async def graph_of(repo: Repository) -> Any:
    """Everything about the graph but its vectors."""
    nodes = await repo.get_nodes(ALL)
    ids = [node.id for node in nodes]
    edges = {(e.source, e.target, e.kind) for e in await repo.get_edges(ids)}
    return nodes, edges, await repo.get_metadata(ids), (await repo.statistics()).revision


async def test_an_open_repository_is_moved_and_goes_on(db):
    """Every text has a vector of the new space; nodes, edges, metadata and revision stay."""
    async with Mnemo(db) as memory:
        repo = await filled(memory)
        before, count = await graph_of(repo), (await repo.statistics()).vectors
        report = await memory.reembed("r", embedder=NEW)
        assert (report.before, report.after) == (str(OLD.space), str(NEW.space))
        assert report.embedded == report.vectors == count
        assert await graph_of(repo) == before
        statistics = await repo.statistics()
        assert statistics.embedding_space == str(NEW.space)
        assert (statistics.vectors, statistics.index.waiting) == (count, 0)
        nodes = await repo.get_nodes(("semantic", "tag"))
        assert {len(node.vector) for node in nodes if node.vector is not None} == {96}
        found = await repo.recall("Who bakes in Faro?")
        assert not found.trace.degraded
        assert "Faro" in found.candidates[0].node.text


async def test_a_closed_repository_is_moved_with_the_services_embedder(db):
    """Refused before with the way out, opened after, and refused to the old one."""
    async with Mnemo(db) as memory:
        count = (await (await filled(memory)).statistics()).vectors
    async with Mnemo(db, embedder=NEW) as memory:
        with pytest.raises(EmbeddingSpaceMismatch, match=r"reembed\('r'\)"):
            await memory.open_repo("r")
        assert (await memory.reembed("r")).vectors == count
        repo = await memory.open_repo("r")
        assert "Faro" in (await repo.recall("Who bakes in Faro?")).candidates[0].node.text
        with pytest.raises(EmbeddingSpaceMismatch):
            await repo.start_session("g", embedder=OLD)
        assert (await memory.check()).problems == ()


async def test_a_repository_that_is_there_already_is_left_alone(db):
    """So is one without any vector; nothing is asked of the embedder."""
    async with Mnemo(db) as memory:
        await filled(memory)
        again = Gated()
        assert (await memory.reembed("r", embedder=OLD)).vectors == 0
        assert (await memory.reembed("nobody", embedder=again)).after is None
        assert again.texts == []
        with pytest.raises(ValueError, match="repo_id"):
            await memory.reembed(" ")


async def test_a_second_run_goes_on_where_the_first_one_failed(db):
    """Until the switch the old space is in force; no text is embedded twice."""
    async with Mnemo(db) as memory:
        repo = await filled(memory)
        count = (await repo.statistics()).vectors
        broken = Gated()
        broken.calls_left = 3
        with pytest.raises(ModelUnavailable):
            await memory.reembed("r", embedder=broken)
        assert (await repo.statistics()).embedding_space == str(OLD.space)
        assert not (await repo.recall("Who bakes in Faro?")).trace.degraded
        whole = Gated()
        report = await memory.reembed("r", embedder=whole)
        assert report.vectors == count
        told = broken.texts + whole.texts
        assert len(told) == len(set(told))


async def test_a_reworded_text_is_embedded_again(db):
    """What was staged for an earlier wording does not stand for the present one."""
    async with Mnemo(db) as memory:
        repo = await filled(memory)
        target = (await repo.get_nodes(["subgoal"]))[0]
        half = Gated()
        half.arrived, half.go_on = anyio.Event(), anyio.Event()

        async def reword() -> None:
            await half.arrived.wait()
            change = NodeChange(target.id, {"description": "something else altogether"})
            await repo.apply(Changeset(changes=(change,)))
            half.go_on.set()

        async with anyio.create_task_group() as group:
            group.start_soon(reword)
            await memory.reembed("r", embedder=half)
        await caught_up(repo)
        (node,) = await repo.get_nodes(["subgoal"])
        (expected,) = await NEW.embed(["something else altogether"])
        assert node.vector is not None
        assert np.allclose(node.vector, expected, atol=1e-6)


@pytest.mark.parametrize("spoil", ["few", "nan", "zero"])
async def test_a_bad_reply_stores_nothing(db, spoil):
    """Typed, the old space stays, recall works."""

    def spoiled(rows: Any) -> Any:
        if spoil == "few":
            return rows[:-1]
        rows = rows.copy()
        rows[0] = np.nan if spoil == "nan" else 0
        return rows

    async with Mnemo(db) as memory:
        repo = await filled(memory)
        with pytest.raises(InvalidReply):
            await memory.reembed("r", embedder=Gated(spoiled))
        assert (await repo.statistics()).embedding_space == str(OLD.space)
        assert (await repo.recall("Who bakes in Faro?")).candidates


async def test_what_is_written_meanwhile_is_not_lost(db):
    """Appends and commits during the work get their vectors; a staged changeset is committed."""
    async with Mnemo(db) as memory:
        repo = await filled(memory)
        ready = await repo.start_session("later", session_id="ready")
        await ready.append("Omar plays the violin.", "")
        await ready.close()
        await ready.wait_for("ready")
        collecting = await repo.start_session("now", session_id="open")
        gated = Gated()
        gated.go_on = anyio.Event()

        async def work() -> None:
            await gated.arrived.wait()
            await collecting.append("Mara plays the cello.", "")
            await committed(repo, "Zoe plays the harp.", "", goal="another", session_id="other")
            gated.go_on.set()

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await memory.reembed("r", embedder=gated)
        assert (await ready.commit()).status == "committed"
        await collecting.append("Every day.", "")
        assert (await collecting.close_and_commit()).status == "committed"
        await caught_up(repo)
        for word in ("violin", "cello", "harp"):
            found = await repo.recall(f"Who plays the {word}?")
            assert word in found.candidates[0].node.text
            assert not found.trace.degraded
        counts = await repo.statistics()
        assert counts.vectors == counts.index.documents
        assert (await memory.check()).problems == ()


async def test_an_unfinished_session_is_resumed_in_the_new_space(db):
    """Its staged changeset was embedded in the old one, and is embedded anew at its commit."""
    async with Mnemo(db) as memory:
        repo = await filled(memory)
        session = await repo.start_session("later", session_id="ready")
        await session.append("Omar plays the violin.", "")
        await session.close()
        await session.wait_for("ready")
    async with Mnemo(db, embedder=NEW) as memory:
        await memory.reembed("r")
        repo = await memory.open_repo("r")
        session = await repo.resume_session("ready")
        assert (await session.commit()).status == "committed"
        nodes = await repo.get_nodes(["semantic"])
        assert {len(n.vector) for n in nodes if n.vector is not None} == {96}


async def test_other_repositories_keep_their_space(db):
    """Vectors of one file may be of several spaces."""
    async with Mnemo(db) as memory:
        await filled(memory)
        other = await filled(memory, "other")
        before = (await other.statistics()).vectors
        await memory.reembed("r", embedder=NEW)
        statistics = await other.statistics()
        assert (statistics.embedding_space, statistics.vectors) == (str(OLD.space), before)
        assert not (await other.recall("Who bakes in Faro?")).trace.degraded


async def test_forgetting_reaches_what_is_staged(db):
    """An interrupted move keeps no vector of what was erased."""
    async with Mnemo(db) as memory:
        repo = await filled(memory)
        broken = Gated()
        broken.calls_left = 3
        with pytest.raises(ModelUnavailable):
            await memory.reembed("r", embedder=broken)
        await repo.forget(session_id="s of r")
        report = await memory.reembed("r", embedder=NEW)
        assert (report.embedded, report.vectors) == (0, 0)


async def test_a_failed_switch_leaves_the_old_space_in_force(db, monkeypatch):
    """Recall embeds its queries again, commits go on."""
    async with Mnemo(db) as memory:
        repo = await filled(memory)

        async def failing(space: object, cursor: object) -> int:
            raise StoreError("the disk is full")

        store = memory._store
        assert store is not None
        overhaul = store.overhaul("r")
        monkeypatch.setattr(overhaul, "switch", failing)
        monkeypatch.setattr(store, "overhaul", lambda repo_id: overhaul)
        with pytest.raises(StoreError, match="disk is full"):
            await memory.reembed("r", embedder=NEW)
        assert (await repo.statistics()).embedding_space == str(OLD.space)
        assert not (await repo.recall("Who bakes in Faro?")).trace.degraded


async def test_progress_is_told_and_a_stopped_move_goes_on(db):
    """What an earlier run embedded is done, not embedded again; a listener's fault is its own."""
    told: list[ReembeddingProgress] = []

    def heard(progress: ReembeddingProgress) -> None:
        told.append(progress)
        raise ValueError("the listener is broken")

    async with Mnemo(db) as memory:
        count = (await (await filled(memory)).statistics()).vectors
        half = Gated()
        half.calls_left = 2
        with pytest.raises(ModelUnavailable):
            await memory.reembed("r", embedder=half, on_progress=heard)
        first = told[-1]
        assert 0 < first.done == first.embedded < first.total == count
        report = await memory.reembed("r", embedder=NEW, on_progress=heard)
        assert told[-1].done == told[-1].total == count
        assert told[-1].embedded == report.embedded == count - first.done
        assert told[-1].texts_per_s > 0


async def test_long_texts_move_with_all_their_passages(db):
    """Of an embedder of passages into one without, and back; nothing is owed afterwards."""
    parts = Passages()
    async with Mnemo(db, embedder=parts) as memory:
        repo = await memory.open_repo("long")
        await repo.remember("Ana keeps bees. " * 40, thread_id="t")
        await repo.settle()
        several = (await repo.statistics()).vectors
        await memory.reembed("long", embedder=NEW)
        await repo.settle()
        single = (await repo.statistics()).vectors
        assert several > single
        report = await memory.reembed("long", embedder=parts)
        assert (report.vectors, report.embedded) == (several, several)
        assert not (await repo.statistics()).index.waiting
        await repo.forget(thread_id="t")
        assert (await repo.statistics()).vectors == 0


async def test_two_at_once_run_one_after_the_other(db):
    """The second finds the repository where it wanted it."""
    async with Mnemo(db) as memory:
        await filled(memory)
        reports = []

        async def move() -> None:
            reports.append(await memory.reembed("r", embedder=NEW))

        async with anyio.create_task_group() as group:
            group.start_soon(move)
            group.start_soon(move)
        assert [report.vectors > 0 for report in reports] == [True, False]


# ── The embedder that moves ──────────────────────────────────────────────────────────


async def test_a_query_is_refused_while_the_space_changes():
    """Recall then goes by keywords; documents wait and are embedded in the new space."""
    embedder = MovableEmbedder(OLD, lambda space: NEW)
    assert (await embedder.embed(["a"], kind="query")).shape == (1, 64)
    embedder.hold()
    with pytest.raises(ModelUnavailable):
        await embedder.embed(["a"], kind="query")
    rows: list[Any] = []

    async def document() -> None:
        rows.append(await embedder.embed(["a"]))

    async with anyio.create_task_group() as group:
        group.start_soon(document)
        await anyio.wait_all_tasks_blocked()
        assert rows == []
        embedder.move_to(NEW)
    assert rows[0].shape == (1, 96)
    with pytest.raises(ModelUnavailable):
        await embedder.embed(["a"], kind="query")
    embedder.release()
    assert (await embedder.embed(["a"], kind="query")).shape == (1, 96)


async def test_recall_goes_by_keywords_while_the_space_changes(open_kit):
    """§9: the words are searched meanwhile, and the trace says so."""
    kit = await open_kit(embedded=True)
    await kit.begun("Omar plays the violin.", "")
    await kit.repo.settle()
    embedder = kit.repo._parts.embedder
    embedder.hold()
    found = await kit.repo.recall("Who plays the violin?")
    embedder.release()
    assert found.candidates
    assert found.trace.degraded


# ── Another process moves it ─────────────────────────────────────────────────────────


async def test_another_service_follows_with_its_next_read(db):
    """It recalls by meaning, extracts, embeds and finds items with the other embedder then."""
    async with Mnemo(db, embedder=OLD) as here, Mnemo(db) as other:
        await filled(here)
        await here.repo("r").items.put(("n",), "k", {"text": "rye"}, texts={"text": "rye bread"})
        there = await other.open_repo("r", embedder=OLD)
        assert not (await there.recall("Who bakes in Faro?")).trace.degraded
        other._embedder = NEW
        await here.reembed("r", embedder=NEW)
        found = await there.recall("Who bakes in Faro?")
        assert not found.trace.degraded
        assert "Faro" in found.candidates[0].node.text
        await there.remember("Greta bakes rye bread in Sintra.", wait=True)
        await there.settle()
        statistics = await there.statistics()
        assert (statistics.index.waiting, statistics.index.failing) == (0, None)
        assert (await other.check()).problems == ()


async def test_another_service_follows_where_nobody_recalls(db):
    """Also keyed items, and jobs that the other one has left, are done in the new space."""
    async with Mnemo(db) as first:
        await filled(first)
    async with Mnemo(db, embedder=OLD, workers=0) as here, Mnemo(db, embedder=OLD) as other:
        await here.open_repo("r")
        there = await other.open_repo("r")
        other._embedder = NEW
        await here.reembed("r", embedder=NEW)
        await here.repo("r").remember("Greta bakes rye bread in Sintra.")
        await there.items.put(("n",), "k", {"text": "rye"}, texts={"text": "rye bread"})
        (item,) = await there.items.search(("n",), query="bread of rye")
        assert item.key == "k"
        with anyio.fail_after(60):
            await here.repo("r").settle()
        nodes = await there.get_nodes(("semantic",))
        assert any("Sintra" in node.text for node in nodes)


async def test_another_service_without_the_embedder_says_so(db):
    """Until it is opened with that; nothing is written in the old space."""
    async with Mnemo(db) as here, Mnemo(db, embedder=OLD) as other:
        await filled(here)
        there = await other.open_repo("r")
        await here.reembed("r", embedder=NEW)
        with pytest.raises(RecallFailed, match=r"reembed\('r'\)"):
            await there.recall("Who bakes in Faro?")
        with pytest.raises(EmbeddingSpaceMismatch, match="embedder"):
            await there.items.put(("n",), "k", {"text": "rye"}, texts={"text": "rye bread"})

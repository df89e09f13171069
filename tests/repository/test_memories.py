"""Listing, adding and correcting facts and instructions."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from helpers import Kit, OpenKit, Served, committed, lines_of, over_http, repository

from mnemo import (
    Changeset,
    Conflict,
    Edge,
    EdgeKind,
    Episodic,
    ModelUnavailable,
    NodeChange,
    NotFound,
    Procedural,
    Semantic,
    Tag,
)
from mnemo.graph import graph
from mnemo.testing import HashingEmbedder, ManualClock

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["local", pytest.param("served", marks=[pytest.mark.long])])
async def kit(request: Any, open_kit: OpenKit, db: Path) -> AsyncIterator[Kit]:
    """A repository without a chat model, at noon; here, and called over HTTP."""
    kit = await open_kit(store=db, embedded=True, clock=ManualClock(NOON))
    if request.param == "local":
        yield kit
        return
    async with over_http(kit.memory) as remote:
        yield replace(kit, repo=Served(remote.repo("r"), kit.repo))


async def say(kit: Kit, text: str, **values: Any) -> None:
    """Have *text* said in a session of its own, extracted and committed."""
    await kit.clock.advance(60)
    await committed(kit.repo, text, "", actor="Ada", **values, goal="talk")


async def texts(kit: Kit, **arguments: Any) -> list[str]:
    """What the memories of a listing say."""
    return [memory.text for memory in await kit.repo.memories(**arguments)]


async def fact_of(kit: Kit, word: str) -> Any:
    """The one fact that holds and has this word."""
    page = await kit.repo.memories(types=("semantic",))
    (found,) = [memory for memory in page if word in memory.text]
    return found


# ── Listing ──────────────────────────────────────────────────────────────────────────────


async def test_a_fact_is_listed_with_its_source(kit):
    """Text, times, confidence, the step with its session, the step's metadata, version 1."""
    await say(kit, "I live in Paris.", metadata={"project": "atlas"})
    memory = await fact_of(kit, "Paris")
    assert (memory.type, memory.version, memory.superseded_by) == ("semantic", 1, None)
    assert 0 < memory.confidence <= 1
    assert memory.valid_from == NOON + timedelta(seconds=60)
    (source,) = memory.sources
    assert (source.text, source.actor) == ("I live in Paris.", "Ada")
    assert memory.metadata == {"project": "atlas"}
    assert await kit.repo.memory(memory.id) == memory
    assert repr(memory) == f"<Memory {memory.id!r} v1: {memory.text!r}>"


async def test_pages_hold_every_memory_once_while_others_are_added(kit):
    """Both orders; what is added between two pages moves nothing from one to the other."""
    for number in range(7):
        await kit.clock.advance(number % 2)
        await kit.repo.apply(Changeset((Semantic(f"fact {number}", id=f"f{number}"),)))
    for order in ("newest", "oldest"):
        whole = [m.id for m in await kit.repo.memories(order=order)]
        seen, after = list[str](), None
        while True:
            page = await kit.repo.memories(order=order, limit=2, after=after)
            seen += [memory.id for memory in page]
            assert len(page) == len(page.items) <= 2
            if (after := page.next) is None:
                break
            if order == "newest":
                await kit.clock.advance(1)
                await kit.repo.apply(Changeset((Semantic(f"late {len(seen)}"),)))
        assert seen == whole


async def test_the_memory_that_a_page_ended_with_may_go(kit):
    """The next page begins behind its place all the same."""
    for number in range(4):
        await kit.clock.advance(1)
        await kit.repo.apply(Changeset((Semantic(f"fact {number}", id=f"f{number}"),)))
    page = await kit.repo.memories(limit=2)
    await kit.repo.delete_nodes(["f2"])
    assert [m.id for m in await kit.repo.memories(limit=2, after=page.next)] == ["f1", "f0"]
    assert (page[0], page[-1]) == (page.items[0], page.items[-1])


async def test_an_after_of_another_listing_is_refused(kit):
    """Other types, order, filters or no cursor at all; the limit may change."""
    for number in range(3):
        await kit.repo.apply(Changeset((Semantic(f"fact {number}"),)))
    cursor = (await kit.repo.memories(limit=1)).next
    assert len(await kit.repo.memories(limit=2, after=cursor)) == 2
    others: list[dict[str, Any]] = [
        {"types": ("semantic",)},
        {"superseded": True},
        {"order": "oldest"},
        {"where": {"project": "atlas"}},
        {"actor": "Ada"},
    ]
    for other in others:
        with pytest.raises(ValueError, match="of another listing"):
            await kit.repo.memories(after=cursor, **other)
    for nonsense in ("", "x", "bm8=", "WzEsMiwzXQ==", 7):
        told = r"Page\.next" if isinstance(nonsense, str) else r"\bafter\b"
        with pytest.raises(ValueError, match=told):
            await kit.repo.memories(after=nonsense)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [{"limit": 0}, {"limit": 1_001}, {"order": "best"}, {"types": ("episodic",)}, {"types": ()}],
)
async def test_a_listing_of_no_sense_is_refused(kit, arguments):
    """A limit out of range, an unknown order, and types that are no memories."""
    with pytest.raises(ValueError, match=r"limit|order|memories are"):
        await kit.repo.memories(**arguments)


async def test_superseded_facts_are_listed_if_asked_for(kit):
    """By default only what holds."""
    await say(kit, "I live in Paris.")
    await say(kit, "I live in London.")
    assert [t for t in await texts(kit, types=("semantic",)) if "Paris" in t] == []
    assert [t for t in await texts(kit, superseded=True) if "Paris" in t]


async def test_a_listing_is_filtered_by_what_memories_come_from(kit):
    """Metadata, actor and time of the step; metadata given by hand; pages are full."""
    await say(kit, "I live in Paris.", metadata={"project": "atlas"})
    await say(kit, "I play the violin.", metadata={"project": "borealis"})
    await kit.repo.add_memory("Bo bakes bread", metadata={"project": "atlas"})
    atlas = await texts(kit, where={"project": "atlas"}, types=("semantic",))
    assert {"bread" in text or "Paris" in text for text in atlas} == {True}
    assert len(atlas) == 2
    page = await kit.repo.memories(where={"project": "atlas"}, types=("semantic",), limit=1)
    rest = await kit.repo.memories(
        where={"project": "atlas"}, types=("semantic",), limit=1, after=page.next
    )
    assert [m.text for m in (*page, *rest)] == atlas
    assert rest.next is None
    assert await texts(kit, actor="hand") == ["Bo bakes bread"]
    assert await texts(kit, until=NOON) == []
    with pytest.raises(ValueError, match="unknown operator"):
        await kit.repo.memories(where={"a": {"like": 1}})


@pytest.mark.slow
async def test_what_the_store_leaves_out_is_what_no_evidence_matches(kit, monkeypatch):
    """Each filter lists the same as a check of every memory, whatever the batches and pages."""
    monkeypatch.setattr(graph, "_WALKED", 2)
    east = NOON.astimezone(timezone(timedelta(hours=14)))
    told = {"metadata": {"project": 'at"las', "tags": ["a", "b"]}, "at": east}
    await say(kit, "I live in Lund.", **told)
    await say(kit, "I am allergic to peanuts.", metadata={"project": "other"})
    await kit.repo.remember("I work at IKEA.", thread_id="t", metadata={"year": 7}, wait=True)
    await kit.repo.add_memory("Ben likes tea.", metadata={"project": 'at"las'})
    corrected = await fact_of(kit, "peanuts")
    await kit.repo.update_memory(corrected.id, "Ada is allergic to nuts.")
    sailed = Episodic("Cai sailed.", "", at=NOON, actor="Cai", session_id="elsewhere")
    fact = Semantic("Cai sails.")
    await kit.repo.apply(
        Changeset((sailed, fact), (Edge(fact.id, sailed.id, EdgeKind.PROVENANCE),))
    )
    everything = [*await kit.repo.memories()]
    (session, *_) = [one.id for one in await kit.repo.sessions()]
    asked: list[dict[str, Any]] = [
        {"where": {"project": ['at"las', "x"]}},
        {"where": {"tags": "b"}},
        {"where": {"year": {"gt": 6}}},
        {"where": {"project": {"exists": False}}},
        {"thread_id": "t"},
        {"session_id": "t"},
        {"session_id": session},
        {"session_id": "elsewhere"},
        {"session_id": session, "thread_id": "t"},
        {"session_id": "t", "thread_id": "t"},
        {"actor": "ada"},
        {"actor": "hand"},
        {"since": NOON, "until": NOON},
        {"until": NOON - timedelta(seconds=1)},
        {"since": NOON + timedelta(seconds=90)},
    ]
    kept: list[list[str]] = []
    for filters in asked:
        pages = await memory_pages(kit, **filters)
        with monkeypatch.context() as patched:
            patched.setattr(graph, "may_match", lambda tx, repo, claims, filters: list(claims))
            patched.setattr(graph, "resting_on", lambda tx, repo, filters: None)
            assert pages == await memory_pages(kit, **filters), filters
        kept.append(pages)
    assert len({tuple(ids) for ids in kept}) > 6
    assert set().union(*kept) == {memory.id for memory in everything}
    assert [] in kept


async def memory_pages(kit: Kit, **filters: Any) -> list[str]:
    """Ids of the memories of a listing, read one a page."""
    ids, after = [], None
    while True:
        page = await kit.repo.memories(limit=1, after=after, **filters)
        ids += [memory.id for memory in page]
        if (after := page.next) is None:
            return ids


# ── Adding ───────────────────────────────────────────────────────────────────────────────


async def test_a_fact_added_by_hand_is_recalled_with_the_hand_as_source(kit):
    """It holds from now, has its tags and metadata, and validation finds nothing to blame."""
    added = await kit.repo.add_memory(
        "Ada is allergic to peanuts", tags=["allergy"], metadata={"by": "doctor"}
    )
    assert (added.version, added.valid_from, added.metadata) == (1, NOON, {"by": "doctor"})
    (source,) = added.sources
    assert (source.actor, source.session_id, source.at) == ("hand", None, NOON)
    (first, *_) = (await kit.repo.recall("peanuts")).candidates
    assert (first.node.id, first.sources[0].actor) == (added.id, "hand")
    tags = await kit.repo.get_linked_nodes([added.id], edge_type="membership")
    assert [tag.text for tag in tags] == ["allergy"]
    report = await kit.repo.validate()
    assert (report.grounded, report.orphaned) == (1, 0)
    (version,) = await kit.repo.history(added.id)
    assert (version.by, version.version, version.until) == ("hand", 1, None)


async def test_an_instruction_is_added_by_hand(kit):
    """It has no confidence and no tags."""
    added = await kit.repo.add_memory("Answer in French", type="procedural")
    assert (added.type, added.text, added.confidence) == ("procedural", "Answer in French", None)
    with pytest.raises(ValueError, match="tags are of facts"):
        await kit.repo.add_memory("Answer briefly", type="procedural", tags=["style"])


async def test_an_added_fact_supersedes_what_it_contradicts(kit):
    """From the time that it is said to hold from."""
    await say(kit, "I live in Paris.")
    old = await fact_of(kit, "Paris")
    moved = kit.clock.now() + timedelta(hours=1)
    added = await kit.repo.add_memory("Ada lives in London", at=moved)
    after = await kit.repo.memory(old.id)
    assert (after.superseded_by, after.valid_to) == (added.id, moved)
    chain = await kit.repo.history(added.id)
    assert [(v.memory_id, v.superseded_by) for v in chain] == [
        (old.id, added.id),
        (added.id, None),
    ]
    assert await kit.repo.history(old.id) == chain


@pytest.mark.parametrize("type", ["semantic", "procedural"])
async def test_a_memory_that_is_there_is_given_back(kit, type):
    """One memory, with the metadata of both."""
    first = await kit.repo.add_memory("Bo bakes bread", type=type, metadata={"a": 1})
    again = await kit.repo.add_memory("bo bakes bread.", type=type, metadata={"b": 2})
    assert (again.id, again.text) == (first.id, first.text)
    assert again.metadata == {"a": 1, "b": 2}


async def test_a_near_fact_added_by_hand_keeps_its_words(open_kit):
    """Extraction unites what is near; what the hand writes is not swallowed by it."""
    kit = await open_kit(embedded=True)
    vector = await HashingEmbedder().embed(["tea"])
    await kit.repo.apply(Changeset((Semantic("Ana likes green tea", vector=vector[0]),)))
    added = await kit.repo.add_memory("Ana likes green tea very much")
    assert added.text == "Ana likes green tea very much"


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": " "},
        {"text": 7},
        {"text": "a", "type": "episodic"},
        {"text": "a", "tags": "peanuts"},
        {"text": "a", "tags": [""]},
        {"text": "a", "metadata": [1]},
        {"text": "a", "metadata": {"x": float("nan")}},
        {"text": "a", "at": "today"},
    ],
)
async def test_an_addition_of_no_sense_is_refused(kit, arguments):
    """Nothing is written."""
    with pytest.raises(ValueError, match=r"."):
        await kit.repo.add_memory(**arguments)
    assert not await kit.repo.memories()


# ── Correcting ───────────────────────────────────────────────────────────────────────────


async def test_a_correction_holds_from_now_on_and_is_found(kit):
    """New wording, new vector, the old version in the history; other words find it no more."""
    await say(kit, "I live in Paris.")
    old = await fact_of(kit, "Paris")
    await kit.clock.advance(60)
    new = await kit.repo.update_memory(old.id, "Ada lives in London", reason="she moved")
    now = kit.clock.now()
    assert (new.id, new.text, new.version) == (old.id, "Ada lives in London", 2)
    assert (new.valid_from, new.valid_to, new.superseded_by) == (now, None, None)
    assert [source.actor for source in new.sources] == ["hand", "Ada"]
    (before, after) = await kit.repo.history(old.id)
    assert (before.text, before.by, before.version, before.until) == (
        old.text, "extraction", 1, now,
    )  # fmt: skip
    assert (after.text, after.by, after.at, after.reason) == (new.text, "hand", now, "she moved")
    (best, *_) = (await kit.repo.recall("London", types=("semantic",))).candidates
    assert best.node.text == "Ada lives in London"
    graph = kit.repo._parts.graph
    (node,) = await graph.nodes([old.id])
    (vector,) = await HashingEmbedder().embed(["Ada lives in London"])
    assert node.vector == pytest.approx(vector, abs=1e-6)
    assert (await kit.memory.check()).problems == ()


async def test_a_correction_is_recalled_instead_of_the_step_that_it_corrects(kit):
    """Also by a question that the step's own words match better."""
    await say(kit, "I live in Paris.")
    old = await fact_of(kit, "Paris")
    await kit.repo.update_memory(old.id, "Ada moved to the far north")
    await kit.repo.settle()
    found = (await kit.repo.recall("Who did say: I live in Paris?")).candidates
    assert [one.node.text for one in found] == ["Ada moved to the far north"]


@pytest.mark.parametrize("again", ["I live in Paris.", "I live in Paris, in the centre of it."])
async def test_extraction_that_restates_the_old_wording_does_not_undo_it(kit, again):
    """The corrected one holds; the step that says otherwise is one of its sources."""
    await say(kit, "I live in Paris.")
    old = await fact_of(kit, "Paris")
    await kit.clock.advance(60)
    await kit.repo.update_memory(old.id, "Ada lives in London")
    await say(kit, again)
    after = await kit.repo.memory(old.id)
    assert (after.text, after.superseded_by, after.version) == ("Ada lives in London", None, 2)
    assert "Ada lives in London" in await texts(kit)
    if again == "I live in Paris.":
        assert not [text for text in await texts(kit, types=("semantic",)) if "Paris" in text]
        assert len(after.sources) == 3


async def test_what_is_said_later_of_another_place_supersedes_the_correction(kit):
    """A correction is a statement like others: what contradicts it later replaces it."""
    await say(kit, "I live in Paris.")
    old = await fact_of(kit, "Paris")
    await kit.clock.advance(60)
    await kit.repo.update_memory(old.id, "Ada lives in London")
    await say(kit, "I live in Berlin.")
    new = await fact_of(kit, "Berlin")
    assert (await kit.repo.memory(old.id)).superseded_by == new.id
    await say(kit, "I live in Paris.")
    assert (await kit.repo.memory(new.id)).superseded_by is not None
    assert await fact_of(kit, "Paris")


async def test_a_correction_supersedes_what_it_contradicts(kit):
    """From the moment of the correction."""
    await say(kit, "I live in Paris.")
    rival = await fact_of(kit, "Paris")
    await kit.clock.advance(60)
    wrong = await kit.repo.add_memory("Ada bakes bread")
    await kit.clock.advance(60)
    corrected = await kit.repo.update_memory(wrong.id, "Ada lives in London")
    after = await kit.repo.memory(rival.id)
    assert (after.superseded_by, after.valid_to) == (corrected.id, kit.clock.now())


async def test_a_superseded_fact_that_is_corrected_holds_again(kit):
    """And supersedes what had replaced it, where they contradict."""
    await say(kit, "I live in Paris.")
    old = await fact_of(kit, "Paris")
    await say(kit, "I live in London.")
    new = await fact_of(kit, "London")
    await kit.clock.advance(60)
    corrected = await kit.repo.update_memory(old.id, "Ada lives in Rome")
    assert (corrected.superseded_by, corrected.valid_to) == (None, None)
    assert (await kit.repo.memory(new.id)).superseded_by == old.id


async def test_an_instruction_keeps_its_condition_if_the_text_does(kit):
    """The first line is the condition as long as it is repeated."""
    rule = Procedural("Answer at length", condition="when asked", expected_outcome="a long answer")
    await kit.repo.apply(Changeset((rule,)))
    new = await kit.repo.update_memory(rule.id, "when asked\nAnswer briefly")
    node = await kit.repo.get_node(rule.id)
    assert isinstance(node, Procedural)
    assert (node.condition, node.instruction) == ("when asked", "Answer briefly")
    assert new.text == "when asked\nAnswer briefly"
    await kit.repo.update_memory(rule.id, "Never answer")
    node = await kit.repo.get_node(rule.id)
    assert isinstance(node, Procedural)
    assert (node.condition, node.instruction, node.expected_outcome) == ("", "Never answer", "")


async def test_an_instruction_that_is_extracted_again_does_not_undo_its_correction(
    kit,
):
    """The old wording from another step is one more source of the corrected one."""
    rule, step = Procedural("Answer at length", condition="when asked"), Episodic("seen")
    await kit.repo.apply(Changeset((rule, step), (Edge(rule.id, step.id, "provenance"),)))
    await kit.repo.update_memory(rule.id, "Answer briefly")
    again, other = Procedural("Answer at length", condition="when asked"), Episodic("seen again")
    await kit.repo.apply(Changeset((again, other), (Edge(again.id, other.id, "provenance"),)))
    assert await texts(kit) == ["Answer briefly"]
    assert len((await kit.repo.memory(rule.id)).sources) == 3


async def test_a_correction_of_another_version_is_a_conflict(kit):
    """Whatever it says; nothing is written; at the version of now the same words are no version."""
    added = await kit.repo.add_memory("Bo bakes bread")
    await kit.repo.update_memory(added.id, "Bo bakes cakes", expected_version=1)
    for text in ("Bo bakes pies", "Bo bakes cakes"):
        with pytest.raises(Conflict, match="has version 2, not 1"):
            await kit.repo.update_memory(added.id, text, expected_version=1)
    same = await kit.repo.update_memory(added.id, "Bo bakes cakes", expected_version=2)
    assert (same.text, same.version) == ("Bo bakes cakes", 2)


@pytest.mark.slow
async def test_a_correction_beside_another_service_is_a_conflict(kit, db):
    """What was changed between reading and writing is not overwritten."""
    added = await kit.repo.add_memory("Bo bakes bread")
    node = await kit.repo.get_node(added.id)
    async with repository(db, "r", clock=kit.clock) as other:
        await other.update_memory(added.id, "Bo bakes cakes")
    assert isinstance(node, Semantic)
    stale = NodeChange(added.id, {"proposition": "Bo bakes pies", "edits": (*node.edits[:-1],)})
    with pytest.raises(Conflict, match="was changed meanwhile"):
        await kit.repo.apply(Changeset(changes=(stale,)))
    assert (await kit.repo.memory(added.id)).text == "Bo bakes cakes"


async def test_many_corrections_at_once_are_versions_one_after_the_other(kit):
    """None is lost."""
    added = await kit.repo.add_memory("Bo bakes 0 cakes")
    async with anyio.create_task_group() as group:
        for number in range(1, 6):
            group.start_soon(kit.repo.update_memory, added.id, f"Bo bakes {number} cakes")
    versions = await kit.repo.history(added.id)
    assert [version.version for version in versions] == [1, 2, 3, 4, 5, 6]
    assert {version.text for version in versions} == {f"Bo bakes {n} cakes" for n in range(6)}


async def test_steps_and_tags_are_not_corrected(kit):
    """What was said stays as it was; an unknown id, or one of another repository, is not found."""
    step, tag, fact = Episodic("seen"), Tag("tea"), Semantic("Bo bakes bread")
    edges = (Edge(tag.id, fact.id, "membership"), Edge(fact.id, step.id, "provenance"))
    await kit.repo.apply(Changeset((step, tag, fact), edges))
    for id in (step.id, tag.id):
        with pytest.raises(ValueError, match="no fact or instruction"):
            await kit.repo.update_memory(id, "unseen")
        with pytest.raises(ValueError, match="no fact or instruction"):
            await kit.repo.memory(id)
    other = await kit.memory.open_repo("other")
    for repo, id in ((kit.repo, "nobody"), (other, fact.id)):
        with pytest.raises(NotFound):
            await repo.update_memory(id, "Bo bakes cakes")
        with pytest.raises(NotFound):
            await repo.memory(id)
        with pytest.raises(NotFound):
            await repo.history(id)
    for text in ("", "  ", 3):
        with pytest.raises(ValueError, match="text"):
            await kit.repo.update_memory(fact.id, text)  # type: ignore[arg-type]
    assert (await kit.repo.memory(fact.id)).text == "Bo bakes bread"


async def test_a_correction_survives_reopening_archive_and_consolidation(kit, db):
    """The history is part of the memory wherever that goes; a twin unites with it, not it."""
    added = await kit.repo.add_memory("Bo bakes bread", metadata={"a": [1]})
    await kit.repo.update_memory(added.id, "Bo bakes rye bread", reason="precise")
    history = await kit.repo.history(added.id)
    archive = await lines_of(kit.memory, "r")
    await kit.memory.import_repo("copy", archive)
    copy = await kit.memory.open_repo("copy")
    assert await copy.history(added.id) == history
    assert await copy.memory(added.id) == await kit.repo.memory(added.id)
    vector = (await kit.repo._parts.graph.nodes([added.id]))[0].vector
    twin = Semantic("Bo bakes much rye bread", vector=vector, created_at=NOON - timedelta(days=9))
    await kit.repo.apply(Changeset((at_an_angle(twin),)))
    await kit.memory.aclose()
    async with repository(db, "r", clock=kit.clock) as repo:
        await repo.consolidate(threshold=0.2)
        assert [m.id for m in await repo.memories()] == [added.id]
        assert await repo.history(added.id) == history


def at_an_angle(fact: Semantic) -> Semantic:
    """*fact* with a vector at a small angle to its own, so that commits do not unite it."""
    assert fact.vector is not None
    away = np.zeros_like(fact.vector)
    away[int(np.argmin(np.abs(fact.vector)))] = 1.0
    mixed = 0.9 * fact.vector + math.sqrt(1 - 0.81) * away
    return replace(fact, vector=(mixed / np.linalg.norm(mixed)).astype(np.float32))


async def test_a_correction_without_the_embedder_has_no_stale_vector(kit, monkeypatch):
    """The vector of the old wording goes; the new one follows when the embedder is back."""
    added = await kit.repo.add_memory("Bo bakes bread")
    embedder = kit.repo._parts.embedder

    async def down(*arguments: Any, **options: Any) -> Any:
        raise ModelUnavailable("down", purpose="embed")

    with monkeypatch.context() as patch:
        patch.setattr(embedder, "embed", down)
        await kit.repo.update_memory(added.id, "Ada plays the violin")
        (node,) = await kit.repo._parts.graph.nodes([added.id])
        assert node.vector is None
    wanted = (await HashingEmbedder().embed(["Ada plays the violin"]))[0]
    index = kit.repo._parts.index
    await index.catch_up()
    assert index.statistics().waiting == 1
    index.poke()
    await kit.until(lambda: index.statistics().waiting == 0)
    (node,) = await kit.repo._parts.graph.nodes([added.id])
    assert node.vector == pytest.approx(wanted, abs=1e-6)

"""Validation: facts and instructions are held against what was said."""

from typing import Any

import pytest
from maintenance_kit import DIMENSIONS, Memory, at_cosine

from mnemo import Changeset, Config, Edge, EdgeKind, Semantic
from mnemo.errors import ModelUnavailable
from mnemo.events import ValidationCompleted


def unlike_anything() -> Any:
    """A vector whose cosine to any text's is 0, or as good as."""
    vector = at_cosine(1.0)
    vector[0], vector[DIMENSIONS - 1] = 0.0, 1.0
    return vector


async def penalties(memory: Any, *ids: str) -> list[float]:
    entries = await memory.repo.get_metadata(ids)
    return [entries[id].penalty for id in ids]


async def three_findings(memory: Any) -> None:
    """A fact close to its evidence, one far from it, one without provenance."""
    await memory.step("s", "Ana said she likes green tea")
    await memory.fact("Ana likes green tea", "near", steps=["s"])
    await memory.fact("Bo repairs violins", "far", steps=["s"], vector=unlike_anything())
    await memory.fact("Cy collects stamps", "alone")


async def test_findings_are_counted_and_penalties_set(memory):
    """One of each; 0, 0.1 and 0.3."""
    await three_findings(memory)
    report = await memory.repo.validate()
    assert (report.grounded, report.penalized, report.orphaned) == (1, 1, 1)
    assert (report.operation, report.checked, report.deleted) == ("validate", 3, 0)
    assert await penalties(memory, "near", "far", "alone") == [0.0, 0.1, 0.3]
    (event,) = memory.kit.seen.of(ValidationCompleted)
    assert event.report == report


async def test_validating_twice_does_the_same_as_once(memory):
    """Equal penalties, equal rewards, and the second time no revision."""
    await three_findings(memory)
    first = await memory.repo.validate()
    before = await memory.repo.get_metadata(["near", "far", "alone"])
    again = await memory.repo.validate()
    assert await memory.repo.get_metadata(["near", "far", "alone"]) == before
    assert again.revision == first.revision
    assert (again.grounded, again.penalized, again.orphaned) == (1, 1, 1)


async def test_grown_evidence_gives_the_penalty_back(memory):
    """A fact that gets a step which says it is grounded again."""
    await three_findings(memory)
    await memory.repo.validate()
    await memory.step("t", "Cy collects old stamps")
    await memory.repo.apply(Changeset(edges=(Edge("alone", "t", EdgeKind.PROVENANCE),)))
    report = await memory.repo.validate()
    assert (report.grounded, report.orphaned) == (2, 0)
    assert await penalties(memory, "alone") == [0.0]


async def test_half_of_the_words_ground_a_fact(memory):
    """However far its vector is: two of four content words are enough, one is not."""
    await memory.step("s", "there were two violins")
    await memory.step("t", "two violins and Bo")
    for id, step in (("one", "s"), ("two", "t")):
        await memory.fact(
            "Bo repairs old violins" if id == "two" else "Bo repairs ancient violins",
            id,
            steps=[step],
            vector=unlike_anything() if id == "one" else -unlike_anything(),
        )
    report = await memory.repo.validate()
    assert (report.grounded, report.penalized) == (1, 1)
    assert await penalties(memory, "one", "two") == [0.1, 0.0]


async def test_the_evidence_is_all_steps_together(memory):
    """Words of several steps add up; of vectors the best counts."""
    await memory.step("s", "violins")
    await memory.step("t", "Bo was there")
    await memory.fact("Bo repairs old violins", "a", steps=["s", "t"], vector=unlike_anything())
    assert (await memory.repo.validate()).grounded == 1


async def test_the_speakers_name_is_part_of_the_evidence(open_kit):
    """What a session extracted from first-person speech is grounded in it."""
    kit = await open_kit(embedded=True)
    session = await kit.started("Talk")
    await session.append("I keep bees in Bern.", "Noted it", actor="Ada")
    await session.append("Always write the date first, please.", "Agreed", actor="Ada")
    await session.close_and_commit()
    report = await kit.repo.validate()
    assert report.checked == report.grounded > 0


async def test_a_node_without_a_vector_is_judged_by_its_words(memory):
    """The embedder was down as it was stored."""
    embedder = memory.repo._parts.embedder
    await memory.step("s", "Ana said she likes green tea")
    working = embedder.embed

    async def failing(*_: Any, **__: Any) -> Any:
        raise ModelUnavailable("down")

    embedder.embed = failing
    try:
        await memory.fact("Ana likes green tea", "near", steps=["s"])
        await memory.fact("Bo repairs violins", "far", steps=["s"])
        report = await memory.repo.validate()
    finally:
        embedder.embed = working
    assert (report.grounded, report.penalized) == (1, 1)


async def test_an_embedder_that_fails_leaves_words_alone(memory):
    """Steps whose vector is missing are compared by words; nothing is raised."""
    await three_findings(memory)

    async def failing(*_: Any, **__: Any) -> Any:
        raise ModelUnavailable("down")

    memory.repo._parts.embedder.embed = failing
    report = await memory.repo.validate()
    assert (report.grounded, report.penalized, report.orphaned) == (1, 1, 1)


async def test_a_step_that_only_means_the_same_grounds_a_fact(memory):
    """Vectors of steps that the index does not know are asked for."""
    await memory.step("s", "tea, and again tea, as ever")
    embedder = memory.repo._parts.embedder
    (vector,) = await embedder.embed(["tea, and again tea, as ever"])
    await memory.fact("Ana orders green leaves", "a", steps=["s"], vector=vector)
    assert (await memory.repo.validate()).grounded == 1


async def test_instructions_are_validated_too(memory):
    """An instruction without provenance is an orphan."""
    await memory.instruction("boil water", "p", "make tea")
    report = await memory.repo.validate()
    assert (report.checked, report.orphaned) == (1, 1)


async def test_superseded_facts_are_validated_too(memory):
    """They say what held."""
    now = memory.kit.clock.now()
    await memory.fact("Ana lives in Rome", "old", valid_to=now, superseded_by="new")
    assert (await memory.repo.validate()).checked == 1


async def test_a_fact_whose_steps_were_deleted_is_an_orphan(memory):
    """Only ``delete_nodes`` and forgetting take steps away."""
    await memory.step("s", "Ana likes green tea")
    await memory.fact("Ana likes green tea", "a", steps=["s"])
    await memory.repo.delete_nodes(["s"])
    assert (await memory.repo.validate()).orphaned == 1


async def test_settings_decide_threshold_and_penalties(open_kit):
    """``config.maintenance``."""
    settings = {"validation_threshold": -1.0, "orphan_penalty": 0.5}
    kit = await open_kit(config=Config(maintenance=settings))
    memory = Memory(kit)
    await three_findings(memory)
    report = await memory.repo.validate()
    assert (report.grounded, report.orphaned) == (2, 1)
    assert await penalties(memory, "alone") == [0.5]


async def test_a_penalty_lowers_what_recall_gives(open_kit, db):
    """By its share, at once and after reopening."""
    memory = Memory(await open_kit(config=Config(recall={"record_access": False}), store=db))
    await memory.step("s", "nothing of the kind")
    await memory.fact("Bo repairs violins", "a", steps=["s"], vector=unlike_anything())
    (before,) = (await memory.repo.recall("violins", types=["semantic"])).candidates
    await memory.repo.validate()
    (after,) = (await memory.repo.recall("violins", types=["semantic"])).candidates
    assert after.score == pytest.approx(0.9 * before.score, rel=1e-3)
    await memory.kit.memory.close_repo("r")
    again = await memory.kit.memory.open_repo("r")
    (reopened,) = (await again.recall("violins", types=["semantic"])).candidates
    assert reopened.metadata.penalty == 0.1


async def test_a_text_without_content_words_is_weak_unless_its_vector_agrees(memory):
    """No words, no half of them: nothing speaks for it but its vector."""
    await memory.step("s", "Ana likes green tea")
    await memory.repo.apply(
        Changeset(
            (Semantic("it is so", id="a", vector=unlike_anything()),),
            (Edge("a", "s", EdgeKind.PROVENANCE),),
        )
    )
    assert (await memory.repo.validate()).penalized == 1

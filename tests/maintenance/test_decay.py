"""Decay: what is old, unused and unrewarded goes; the evidence stays."""

from datetime import timedelta

import pytest
from helpers import committed

from mnemo import Config, Repository, Semantic, Subgoal
from mnemo.events import DecayCompleted
from mnemo.protocols import GraphWrite
from mnemo.recall.score import decay_score
from mnemo.testing import ManualClock
from mnemo.values.changeset import Changeset, Upkeep
from mnemo.values.graph import NodeMetadata


@pytest.mark.parametrize(("days", "score"), [(1, 0.29), (30, 0.15), (46, 0.10), (120, 0.02)])
def test_the_score_of_what_nobody_asked_for_falls(days, score):
    """The table of the page: never accessed, no reward, defaults."""
    created = ManualClock().now()
    entry = NodeMetadata(created_at=created)
    later = created + timedelta(days=days)
    found = decay_score(Semantic("x"), entry, Config().scoring.semantic, later)
    assert round(found, 2) == score


def test_the_penalty_lessens_the_score_by_its_share():
    """Validation makes what is not grounded fade sooner."""
    now = ManualClock().now()
    row = Config().scoring.semantic
    plain = decay_score(Semantic("x"), NodeMetadata(created_at=now), row, now)
    weak = decay_score(Semantic("x"), NodeMetadata(created_at=now, penalty=0.3), row, now)
    assert weak == pytest.approx(0.7 * plain)


async def test_an_old_unused_fact_goes_with_its_tag_and_counts(memory):
    """60 days old, never accessed; its step stays."""
    await memory.step("s", days=60)
    await memory.fact("Ana likes green tea", "a", days=60, tags=["tea"], steps=["s"])
    (tag,) = await memory.ids("tag")
    report = await memory.repo.decay()
    assert set(report.deleted_ids) == {"a", tag}
    assert (report.operation, report.checked, report.deleted) == ("decay", 1, 2)
    assert await memory.repo.get_metadata(["a", tag]) == {}
    assert await memory.edges("a", tag) == set()
    assert await memory.ids("episodic") == {"s"}
    (event,) = memory.kit.seen.of(DecayCompleted)
    assert event.report == report


async def test_a_decayed_fact_is_found_through_its_step_or_stored_anew(open_kit):
    """The evidence stays: recall finds the step, and saying it again stores the fact again."""
    kit = await open_kit(embedded=True)
    await committed(kit.repo, "I keep bees in Bern.", "", actor="Ada", goal="Talk")
    facts = await kit.repo.get_nodes(["semantic"])
    assert facts != []
    await kit.clock.advance(60 * 86_400)
    assert {fact.id for fact in facts} <= set((await kit.repo.decay()).deleted_ids)
    found = await kit.repo.recall("Who keeps bees?")
    assert [source.text for source in found.sources][:1] == ["I keep bees in Bern."]
    await committed(kit.repo, "I keep bees in Bern.", "", actor="Ada", goal="Talk again")
    assert {f.text for f in await kit.repo.get_nodes(["semantic"])} == {f.text for f in facts}


async def test_a_fact_that_is_asked_for_stays(memory):
    """60 days old, but accessed 50 times, last an hour ago."""
    await memory.fact("Ana likes green tea", "a", days=60)
    await memory.accessed("a", 50, hours=1)
    assert (await memory.repo.decay()).deleted == 0


async def test_recalls_that_are_not_written_yet_keep_a_fact(memory):
    """Their counts are written before scores are taken."""
    await memory.fact("Ana likes green tea", "a", days=60)
    memory.repo._access.note(["a"])
    assert (await memory.repo.decay()).deleted == 0
    assert (await memory.repo.get_metadata(["a"]))["a"].access_count == 1


async def test_a_tag_stays_while_one_of_its_facts_lives(memory):
    """One decayed, one alive."""
    await memory.fact("Ana likes green tea", "a", days=60, tags=["tea"])
    await memory.fact("Bo likes black tea", "b", tags=["tea"])
    report = await memory.repo.decay()
    assert report.deleted_ids == ("a",)
    assert {tag.text for tag in await memory.repo.get_nodes(["tag"])} == {"tea"}


async def test_an_instruction_takes_its_intent_along(memory):
    """Nothing else serves it."""
    await memory.instruction("boil water", "p", "make tea", days=60)
    await memory.instruction("wash up", "q", "clean the kitchen")
    (intent,) = [n.id for n in await memory.repo.get_nodes(["intent"]) if n.text == "make tea"]
    report = await memory.repo.decay()
    assert set(report.deleted_ids) == {"p", intent}


async def test_only_the_named_types_decay(memory):
    """With ``("semantic",)`` old instructions stay."""
    await memory.fact("Ana likes green tea", "a", days=60)
    await memory.instruction("boil water", "p", "make tea", days=60)
    report = await memory.repo.decay(types=("semantic",))
    assert (report.deleted_ids, report.checked) == (("a",), 1)


@pytest.mark.parametrize("types", [("episodic",), ("semantic", "source"), ("thing",), "semantic"])
async def test_types_that_may_not_decay_are_refused(memory, types):
    """Raw steps never do, whatever the arguments; nothing was deleted, no event sent."""
    await memory.step("s", days=600)
    with pytest.raises(ValueError, match=r"step|type"):
        await memory.repo.decay(types=types)
    assert await memory.ids("episodic") == {"s"}
    assert memory.kit.seen.of(DecayCompleted) == []


@pytest.mark.parametrize("threshold", [-0.1, float("nan"), float("inf")])
async def test_a_threshold_that_is_no_score_is_refused(memory, threshold):
    """An infinite one would delete everything."""
    with pytest.raises(ValueError, match="score"):
        await memory.repo.decay(threshold=threshold)


async def test_what_was_just_applied_stays(memory):
    """Without metadata of its own it counts as created now, whatever the threshold."""
    await memory.repo.apply(Changeset((Semantic("Ana likes green tea", id="a"),)))
    assert (await memory.repo.decay(threshold=1.0)).deleted == 0


async def test_the_grace_protects_the_young(open_kit):
    """A node younger than ``decay_grace_s`` stays; at that age it may go."""
    kit = await open_kit(config=Config(maintenance={"decay_grace_s": 100.0}))
    await kit.repo.apply(Changeset((Semantic("Ana likes green tea", id="a"),)))
    await kit.clock.advance(99.0)
    assert (await kit.repo.decay(threshold=1.0)).deleted == 0
    await kit.clock.advance(1.0)
    assert (await kit.repo.decay(threshold=1.0)).deleted_ids == ("a",)


async def test_superseded_facts_decay_and_do_not_come_back(memory):
    """If the fact that superseded another decays, the other stays closed."""
    now = memory.kit.clock.now()
    await memory.fact("Ana lives in Rome", "old", valid_to=now, superseded_by="new", days=60)
    await memory.accessed("old", 50, hours=1)
    await memory.fact("Bo bakes bread", "new", days=60)
    assert (await memory.repo.decay()).deleted_ids == ("new",)
    kept = await memory.repo.get_node("old")
    assert (kept.valid_to, kept.superseded_by) == (now, "new")
    await memory.kit.clock.advance(120 * 86_400)
    assert (await memory.repo.decay()).deleted_ids == ("old",)


async def test_rewards_and_penalties_weigh(memory):
    """A rewarded fact outlives a plain one, a penalized one goes first."""
    for id, text in (("good", "Ana likes tea"), ("plain", "Bo bakes bread"), ("weak", "Cy runs")):
        reward = (1.0, 1) if id == "good" else (0.0, 0)
        await memory.fact(text, id, days=43, reward=reward)
    revision = await memory.graph.revision()
    upkeep = Upkeep(penalties={"weak": 0.3})
    write = GraphWrite(changeset_id="p", expected_revision=revision, upkeep=upkeep)
    await memory.graph.apply(write, memory.repo._parts.owner)
    assert (await memory.repo.decay()).deleted_ids == ("weak",)
    await memory.kit.clock.advance(5 * 86_400)
    assert (await memory.repo.decay()).deleted_ids == ("plain",)


async def test_types_have_their_own_parameters(open_kit):
    """``config.scoring`` decides how fast a type fades."""
    kit = await open_kit(config=Config(scoring={"semantic": {"lambda_per_hour": 0.0}}))
    await kit.repo.apply(Changeset((Semantic("Ana likes green tea", id="a"),)))
    await kit.clock.advance(3_650 * 86_400)
    assert (await kit.repo.decay()).deleted == 0


async def test_routing_nodes_decay_if_they_are_named(memory):
    """Tags, intents and subgoals may be named; their members stay and lose them."""
    await memory.fact("Ana likes green tea", "a", days=60, tags=["tea"])
    await memory.accessed("a", 50)
    await memory.instruction("boil water", "p", "make tea", days=60)
    await memory.accessed("p", 50)
    subgoal = Subgoal("why", id="g", created_at=memory.ago(60))
    await memory.repo.apply(Changeset((subgoal,)))
    report = await memory.repo.decay(types=("tag", "intent", "subgoal"))
    assert (report.checked, report.deleted) == (3, 3)
    assert await memory.ids("semantic", "procedural") == {"a", "p"}
    assert await memory.edges("a", "p") == set()


async def test_the_index_forgets_what_decayed(memory):
    """Neither recall nor a later decay meets it again, now or after reopening."""
    await memory.step("s")
    await memory.fact("Ana likes gyokuro", "a", days=60, tags=["tea"], steps=["s"])
    await memory.repo.decay()
    found = await memory.repo.recall("gyokuro", types=["semantic", "tag"])
    assert found.candidates == []
    assert (await memory.repo.decay()).checked == 0
    await memory.kit.memory.close_repo("r")
    again: Repository = await memory.kit.memory.open_repo("r")
    assert (await again.recall("gyokuro", types=["semantic", "tag"])).candidates == []
    assert (await memory.kit.memory.check()).problems == ()

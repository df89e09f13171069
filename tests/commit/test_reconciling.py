"""What a changeset becomes as it meets the stored graph, over every store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from mnemo.commit.changes import questions
from mnemo.errors import ModelUnavailable
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.graph import (
    Edge,
    EdgeKind,
    Episodic,
    Intent,
    MetadataDelta,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
)

DAY_1, DAY_2, DAY_3, DAY_4 = (datetime(2024, 3, day, tzinfo=UTC) for day in (1, 2, 3, 4))


async def merged(stored: str, new: str) -> str:
    return "deploy a service"


# ── Tags ─────────────────────────────────────────────────────────────────────────────


async def test_spellings_of_a_label_are_one_tag(world, draft):
    """Two spellings in one batch and a third one later leave one tag with three facts."""
    first = draft()
    first.fact("Ana uses Postgres", tags=["Database"])
    first.fact("Bo uses SQLite", tags=[" database "])
    await world.commit(first.build())
    second = draft("e2")
    second.fact("Craig uses Redis", tags=["DATABASE"])
    await world.commit(second.build())
    (tag,) = await world.of(Tag)
    assert tag.label == "Database"
    linked = await world.edges(tag.id, kind=EdgeKind.MEMBERSHIP)
    assert {edge.target for edge in linked} == {fact.id for fact in await world.of(Semantic)}
    assert len(linked) == 3


async def test_near_labels_stay_apart(world, draft):
    """Tags are compared by their letters, never by similarity."""
    world.embedder.place("database", 0.0)
    world.embedder.place("databases", 0.01)
    given = draft()
    given.fact("Ana uses Postgres", tags=["database", "databases"])
    await world.commit(given.build())
    assert len(await world.of(Tag)) == 2


# ── Intents ──────────────────────────────────────────────────────────────────────────


async def two_intents(world: Any, draft: Any, cosine: float, **options: Any) -> Any:
    world.embedder.place("deploy the service", 0.0)
    world.embedder.place("release a service", float(np.arccos(cosine)))
    for episode, intent, text in (
        ("e1", "deploy the service", "run make deploy"),
        ("e2", "release a service", "press the green button"),
    ):
        given = draft(episode)
        given.instruction(intent, "tests passed", text)
        await world.commit(given.build(), **options)
    return await world.of(Intent)


async def test_intents_that_are_nearly_equal_are_one(world, draft):
    """A cosine of 0.97 leaves one intent with both instructions, and asks nobody."""

    async def refuse(stored: str, new: str) -> str:
        raise AssertionError("nobody may be asked")

    (intent,) = await two_intents(world, draft, 0.97, merge_intent=refuse)
    assert intent.description == "deploy the service"
    assert len(await world.edges(intent.id, kind=EdgeKind.HIERARCHICAL)) == 2


async def test_similar_intents_get_a_common_description(world, draft):
    """A cosine of 0.88 asks once; the old id says the new text, with its embedding."""
    world.embedder.place("deploy a service", 1.5)
    (intent,) = await two_intents(world, draft, 0.88, merge_intent=merged)
    assert intent.description == "deploy a service"
    assert len(await world.edges(intent.id, kind=EdgeKind.HIERARCHICAL)) == 2
    await world.index.catch_up()
    asked = world.embedder.placed["deploy a service"][None, :]
    ((found,),) = await world.index.nearest(asked, type="intent", threshold=0.99)
    assert found[0] == intent.id


async def test_a_failing_merge_uses_the_stored_intent(world, draft):
    """The commit succeeds, the stored intent is as it was, with both instructions."""

    async def fail(stored: str, new: str) -> str:
        raise ModelUnavailable("no model today")

    (intent,) = await two_intents(world, draft, 0.88, merge_intent=fail)
    assert intent.description == "deploy the service"
    assert len(await world.edges(intent.id, kind=EdgeKind.HIERARCHICAL)) == 2


async def test_without_a_model_the_stored_intent_is_used(world, draft):
    """No model is like a model that fails."""
    (intent,) = await two_intents(world, draft, 0.88)
    assert intent.description == "deploy the service"


async def test_unlike_intents_stay_apart(world, draft):
    """Below the merge threshold an intent is new."""
    assert len(await two_intents(world, draft, 0.79, merge_intent=merged)) == 2


async def test_intents_of_one_changeset_meet_each_other(world, draft):
    """What holds against the store holds within a changeset, also for three in a row."""
    for text, angle in (("ship it", 0.0), ("release it", 0.05), ("launch it", 0.1)):
        world.embedder.place(text, angle)
    given = draft()
    for text in ("ship it", "release it", "launch it"):
        given.instruction(text, "tests passed", f"do {text}")
    await world.commit(given.build())
    (intent,) = await world.of(Intent)
    assert intent.description == "ship it"
    assert len(await world.edges(intent.id, kind=EdgeKind.HIERARCHICAL)) == 3


# ── Facts said again ─────────────────────────────────────────────────────────────────


async def test_a_fact_of_two_episodes_is_stored_once(world, draft):
    """Support 2, provenance to steps of both, more confidence than either, all tags."""
    for episode, step, at, tag in (("e1", "a", DAY_1, "tea"), ("e2", "b", DAY_2, "drinks")):
        given = draft(episode)
        fact = given.fact("Ana likes tea.", given.step(step, at), tags=[tag], confidence=0.8)
        delta = MetadataDelta(support_count=1, cumulative_reward=0.5, reward_count=1)
        await world.commit(given.build(metadata={fact.id: delta}))
    (fact,) = await world.of(Semantic)
    counts = (await world.graph.metadata([fact.id]))[fact.id]
    assert (counts.support_count, counts.reward_count) == (2, 2)
    assert counts.cumulative_reward == 1.0
    assert fact.confidence == pytest.approx(0.96)
    assert fact.valid_from == DAY_1
    rests_on = await world.edges(fact.id, kind=EdgeKind.PROVENANCE)
    assert {edge.target for edge in rests_on} == {"a", "b"}
    assert len(await world.edges(fact.id, kind=EdgeKind.MEMBERSHIP)) == 2


async def test_confidence_never_reaches_certainty(world, draft):
    """Repetition makes confident, up to 0.99."""
    for episode in ("e1", "e2", "e3", "e4"):
        given = draft(episode)
        given.fact("Ana likes tea", confidence=0.9)
        await world.commit(given.build())
    (fact,) = await world.of(Semantic)
    assert fact.confidence == pytest.approx(0.99)


async def test_the_same_episode_does_not_support_twice(world, draft):
    """``support_count`` counts episodes; a later part of one restates for nothing."""
    for step, at in (("a", DAY_1), ("b", DAY_2)):
        given = draft("e1")
        given.fact("Ana likes tea", given.step(step, at))
        await world.commit(given.build())
    (fact,) = await world.of(Semantic)
    assert (await world.graph.metadata([fact.id]))[fact.id].support_count == 1
    assert len(await world.edges(fact.id, kind=EdgeKind.PROVENANCE)) == 2


@pytest.mark.parametrize(
    ("texts", "angle", "stored"),
    [
        (("Ana enjoys tea", "Ana likes tea"), 0.2, ["Ana enjoys tea"]),
        (("Ana has 2 cats", "Ana has 3 cats"), 0.01, ["Ana has 2 cats", "Ana has 3 cats"]),
    ],
)
async def test_another_wording_near_enough_is_the_same_fact(world, draft, texts, angle, stored):
    """Unless the guard keeps them apart, such as two numbers, however near their vectors are."""
    world.embedder.place(texts[0], 0.0)
    world.embedder.place(texts[1], angle)
    for episode, text in zip(("e1", "e2"), texts, strict=True):
        given = draft(episode)
        given.fact(text)
        await world.commit(given.build())
    assert [fact.proposition for fact in await world.of(Semantic)] == stored


async def test_repetition_within_a_changeset_is_united(world, draft):
    """Two trajectories that state a fact leave one, their edges without doubles or self-links."""
    given = draft("e1")
    one = given.fact("Ana likes tea", given.step("a", DAY_1), tags=["tea"])
    other = given.fact("Ana likes tea.", given.step("b", DAY_2), tags=["Tea"])
    given.edges.append(Edge(one.id, other.id, EdgeKind.SIBLING))
    applied = await world.commit(given.build())
    (fact,) = await world.of(Semantic)
    assert fact.id == one.id
    assert other.id not in applied.node_ids
    assert {e.kind for e in await world.edges(fact.id)} == {
        EdgeKind.MEMBERSHIP,
        EdgeKind.PROVENANCE,
    }
    assert (await world.graph.metadata([fact.id]))[fact.id].support_count == 1


class _Reads:
    """A graph store that notes the facts which were read from it."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.facts: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def nodes(self, *arguments: Any, **options: Any) -> Any:
        found = await self._graph.nodes(*arguments, **options)
        self.facts += [node.text for node in found if isinstance(node, Semantic)]
        return found


# ── Contradiction ────────────────────────────────────────────────────────────────────


async def say(world: Any, draft: Any, text: str, at: datetime, **settings: Any) -> Any:
    episode = f"e-{text}-{at:%d}"
    given = draft(episode)
    fact = given.fact(text, given.step(f"step-{episode}", at))
    await world.lane(**settings).commit(given.build())
    return fact


async def timeline(world: Any) -> dict[str, tuple[Any, Any]]:
    """Proposition → end and the proposition that closed it."""
    facts = {fact.id: fact for fact in await world.of(Semantic)}
    return {
        fact.proposition: (
            fact.valid_to,
            facts[fact.superseded_by].proposition if fact.superseded_by else None,
        )
        for fact in facts.values()
    }


BUDGETS = ["Bo's budget is 2000 euros", "Bo's budget is 3000 euros", "Bo's budget is 4000 euros"]
OPEN = (None, None)


async def test_a_later_value_closes_the_earlier_one(world, draft):
    """Two nodes; the first has its end and its successor, the second holds."""
    await say(world, draft, BUDGETS[0], DAY_1)
    await say(world, draft, BUDGETS[1], DAY_2)
    assert await timeline(world) == {BUDGETS[0]: (DAY_2, BUDGETS[1]), BUDGETS[1]: OPEN}


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
)
async def test_the_order_of_commits_does_not_matter(world, draft, order):
    """Whatever arrives first, every value is closed by the one said next."""
    days = (DAY_1, DAY_2, DAY_3)
    for i in order:
        await say(world, draft, BUDGETS[i], days[i])
    assert await timeline(world) == {
        BUDGETS[0]: (DAY_2, BUDGETS[1]),
        BUDGETS[1]: (DAY_3, BUDGETS[2]),
        BUDGETS[2]: OPEN,
    }


async def test_on_equal_times_the_later_step_id_holds(world, draft):
    """The clock cannot decide, so the ids of the steps do."""
    await say(world, draft, BUDGETS[0], DAY_1)
    await say(world, draft, BUDGETS[1], DAY_1)
    assert await timeline(world) == {BUDGETS[0]: (DAY_1, BUDGETS[1]), BUDGETS[1]: OPEN}


async def test_on_equal_times_within_an_episode_the_later_index_holds(world, draft):
    """The lines of one call have one time, and ids in which chance decides."""
    given = draft("e1")
    first, second = given.step("b", DAY_1, index=0), given.step("a", DAY_1, index=1)
    given.fact(BUDGETS[1], second)
    given.fact(BUDGETS[0], first)
    await world.commit(given.build())
    assert await timeline(world) == {BUDGETS[0]: (DAY_1, BUDGETS[1]), BUDGETS[1]: OPEN}


async def test_within_one_changeset_the_later_step_holds(world, draft):
    """A changed mind within one episode is a contradiction like any other."""
    given = draft("e1")
    later = given.step("b", DAY_2)
    given.fact(BUDGETS[1], later)
    given.fact(BUDGETS[0], given.step("a", DAY_1))
    await world.commit(given.build())
    assert await timeline(world) == {BUDGETS[0]: (DAY_2, BUDGETS[1]), BUDGETS[1]: OPEN}


async def test_without_supersession_both_hold(world, draft):
    """``supersede=False`` closes nothing."""
    await say(world, draft, BUDGETS[0], DAY_1, supersede=False)
    await say(world, draft, BUDGETS[1], DAY_2, supersede=False)
    assert await timeline(world) == {BUDGETS[0]: OPEN, BUDGETS[1]: OPEN}


async def test_a_value_that_comes_back_is_stored_anew(world, draft):
    """A closed fact is not reinforced by what is said after its end."""
    await say(world, draft, BUDGETS[0], DAY_1)
    await say(world, draft, BUDGETS[1], DAY_2)
    again = await say(world, draft, BUDGETS[0], DAY_3)
    holding = [fact for fact in await world.of(Semantic) if fact.valid_to is None]
    assert [fact.id for fact in holding] == [again.id]
    assert len(await world.of(Semantic)) == 3


async def test_a_late_statement_of_a_closed_fact_reinforces_it(world, draft):
    """What was said while it held supports it, whenever it is committed."""
    await say(world, draft, BUDGETS[0], DAY_1)
    await say(world, draft, BUDGETS[1], DAY_3)
    await say(world, draft, BUDGETS[0], DAY_2)
    assert await timeline(world) == {BUDGETS[0]: (DAY_3, BUDGETS[1]), BUDGETS[1]: OPEN}


async def test_an_end_closes_what_it_ends_and_nothing_else(world, draft):
    """ "No longer" closes the fact it denies; another person's stays."""
    await say(world, draft, "Ana works at Acme", DAY_1)
    await say(world, draft, "Bo works at Acme", DAY_1)
    await say(world, draft, "Ana no longer works at Acme", DAY_2)
    assert await timeline(world) == {
        "Ana works at Acme": (DAY_2, "Ana no longer works at Acme"),
        "Bo works at Acme": OPEN,
        "Ana no longer works at Acme": OPEN,
    }


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
)
async def test_a_sale_closes_what_was_owned_and_is_closed_by_nothing(world, draft, order):
    """An end without a new value: what it ends holds again when it is said again."""
    said = (("Ana has a boat", DAY_1), ("Ana sold the boat", DAY_2), ("Ana has a boat", DAY_3))
    for i in order:
        await say(world, draft, *said[i])
    facts = {fact.id: fact for fact in await world.of(Semantic)}
    sale = next(fact for fact in facts.values() if fact.proposition == "Ana sold the boat")
    boats = [fact for fact in facts.values() if fact.proposition == "Ana has a boat"]
    ends = {(fact.valid_from, fact.valid_to, fact.superseded_by) for fact in boats}
    assert ends == {(DAY_1, DAY_2, sale.id), (DAY_3, None, None)}
    assert (sale.valid_to, sale.superseded_by) == OPEN


async def test_a_new_job_closes_the_one_before_and_is_not_closed_by_what_is_said_of_it(
    world, draft
):
    """What somebody did ends every earlier value, without a value of its own."""
    await say(world, draft, "Ana works as a nurse", DAY_1)
    await say(world, draft, "Ana got the job at Acme", DAY_2)
    await say(world, draft, "Ana works as an engineer", DAY_3)
    assert await timeline(world) == {
        "Ana works as a nurse": (DAY_2, "Ana got the job at Acme"),
        "Ana got the job at Acme": OPEN,
        "Ana works as an engineer": OPEN,
    }


async def test_other_activities_of_one_person_are_not_looked_up(world, draft):
    """A commit reads what may restate or contradict its fact, not all that somebody keeps."""
    for number in range(12):
        given = draft(f"e{number}")
        given.fact(
            f"Ana keeps her coin {number} in drawer {number}", given.step(f"s{number}", DAY_1)
        )
        await world.commit(given.build())
    given = draft("later")
    given.fact("Ana keeps a parrot", given.step("later", DAY_2))
    reads = _Reads(world.graph)
    await world.lane(reads).commit(given.build())
    assert reads.facts == []


async def test_the_first_end_of_one_time_closes_an_activity(world, draft):
    """Of two ends said at one time the first closes it, whichever was committed first."""
    await say(world, draft, "Ana keeps a grey parrot", DAY_1)
    ends = ["Ana no longer keeps a parrot", "Ana no longer keeps a grey parrot"]
    for end in sorted(ends, reverse=True):
        await say(world, draft, end, DAY_2)
    assert (await timeline(world))["Ana keeps a grey parrot"] == (DAY_2, min(ends))


async def test_what_a_model_says_is_replaced_is_closed(world, draft):
    """``replaces`` counts as a contradiction; ids that nobody knows are ignored."""
    old = await say(world, draft, "The team meets in the kitchen", DAY_1)
    given = draft("e2")
    new = given.fact("The team gathers on the roof", given.step("n", DAY_2))
    given.replaces[new.id] = (old.id, "semantic-unknown", new.id)
    await world.commit(given.build())
    stored = {fact.id: fact for fact in await world.of(Semantic)}
    assert (stored[old.id].valid_to, stored[old.id].superseded_by) == (DAY_2, new.id)
    assert stored[new.id].valid_to is None


async def test_a_closed_fact_keeps_its_text_and_edges(world, draft):
    """Nothing is ever deleted by a contradiction."""
    old = await say(world, draft, BUDGETS[0], DAY_1)
    before = await world.edges(old.id)
    await say(world, draft, BUDGETS[1], DAY_2)
    (stored,) = await world.graph.nodes([old.id])
    assert stored.proposition == BUDGETS[0]
    assert await world.edges(old.id) == before


# ── Instructions ─────────────────────────────────────────────────────────────────────


async def instruct(world: Any, draft: Any, episode: str, intent: str, score: float) -> None:
    given = draft(episode)
    step = given.step(f"step-{episode}", DAY_1)
    node = given.instruction(intent, "If the build fails.", "clean the cache", step)
    delta = MetadataDelta(support_count=1, cumulative_reward=score, reward_count=1)
    await world.commit(given.build(metadata={node.id: delta}))


async def test_an_instruction_given_again_is_reinforced(world, draft):
    """Equal condition and text under one intent: one node, both returns, both steps."""
    await instruct(world, draft, "e1", "repair the build", 1.0)
    await instruct(world, draft, "e2", "repair the build", 0.5)
    (node,) = await world.of(Procedural)
    counts = (await world.graph.metadata([node.id]))[node.id]
    assert (counts.support_count, counts.reward_count, counts.mean_reward) == (2, 2, 0.75)
    assert len(await world.edges(node.id, kind=EdgeKind.PROVENANCE)) == 2


async def test_the_same_instruction_for_another_intent_is_another(world, draft):
    """An instruction belongs to what it serves."""
    world.embedder.place("repair the build", 0.0)
    world.embedder.place("save disk space", 1.5)
    await instruct(world, draft, "e1", "repair the build", 1.0)
    await instruct(world, draft, "e2", "save disk space", 1.0)
    assert len(await world.of(Procedural)) == 2


# ── Steps and subgoals ───────────────────────────────────────────────────────────────


def steps_of(subgoal: str) -> Changeset:
    nodes = (
        Subgoal(subgoal, id="subgoal-t", trajectory_id="t"),
        Episodic("seen", id="episodic-1", reward=0.5),
        Source("seen", id="source-1"),
    )
    edges = (
        Edge("subgoal-t", "episodic-1", EdgeKind.HIERARCHICAL),
        Edge("episodic-1", "source-1", EdgeKind.PROVENANCE),
    )
    delta = MetadataDelta(cumulative_reward=0.5, reward_count=1)
    return Changeset(nodes=nodes, edges=edges, metadata={"episodic-1": delta})


async def test_a_step_committed_twice_is_stored_once(world):
    """Ids of steps follow from the steps, so a second time adds nothing, not even counts."""
    await world.commit(steps_of("find a hotel"))
    before = (await world.graph.metadata(["episodic-1"]))["episodic-1"]
    await world.commit(steps_of("find a hotel"))
    assert len(await world.of(Episodic)) == len(await world.of(Source)) == 1
    assert (await world.graph.metadata(["episodic-1"]))["episodic-1"] == before
    assert len(await world.edges("episodic-1")) == 2


async def test_a_subgoal_met_again_says_its_latest_description(world):
    """A trajectory that goes on keeps its node, with new text and its embedding."""
    await world.commit(steps_of("find a hotel"))
    applied = await world.commit(steps_of("find a train"))
    (subgoal,) = await world.of(Subgoal)
    assert subgoal.description == "find a train"
    assert applied.node_ids == ("subgoal-t",)
    await world.index.catch_up()
    rows = await world.embedder.embed(["find a train"])
    ((found,),) = await world.index.nearest(rows, type="subgoal", threshold=0.99)
    assert found[0] == "subgoal-t"


async def test_parts_of_a_trajectory_in_one_changeset_share_their_subgoal(world):
    """Merged changesets may bring a subgoal twice; the later description stays."""
    await world.commit(steps_of("find a hotel").merge(steps_of("find a train")))
    (subgoal,) = await world.of(Subgoal)
    assert subgoal.description == "find a train"
    assert len(await world.of(Episodic)) == 1


async def test_a_late_reward_reaches_what_rests_on_the_step(world, draft):
    """A step scored after its commit pays its reward to its facts and instructions, once."""
    given = draft("e1")
    step = given.step("a", DAY_1)
    fact = given.fact("Ana likes tea", step)
    instruction = given.instruction("make tea", "if cold", "heat it", step)
    other = given.fact("Bo likes milk", given.step("b", DAY_1))
    await world.commit(given.build())
    late = Changeset(changes=(NodeChange("a", {"reward": 0.8}),))
    applied = await world.commit(late)
    await world.commit(late)
    counts = await world.graph.metadata([fact.id, instruction.id, other.id])
    assert {id: c.cumulative_reward for id, c in counts.items()} == {
        fact.id: 0.8,
        instruction.id: 0.8,
        other.id: 0.0,
    }
    assert counts[fact.id].reward_count == 1
    (node,) = await world.graph.nodes(["a"])
    assert node.reward == 0.8
    assert set(applied.node_ids) == {"a", fact.id, instruction.id}


async def test_a_reward_that_is_stored_already_asks_for_nothing(world, draft):
    """A resumed session names every reward that it knows: only new ones are looked into."""
    given = draft("e1")
    given.fact("Ana likes tea", given.step("a", DAY_1, reward=0.8), given.step("b", DAY_1))
    await world.commit(given.build())
    again = Changeset(changes=tuple(NodeChange(id, {"reward": 0.8}) for id in "ab"))
    stored = {node.id: node for node in await world.graph.nodes(["a", "b"])}
    assert set(questions(again, stored, {})[1].rewarded) == {"b"}


async def test_creation_time_is_the_clocks_unless_given(world):
    """A node's entry is made at its own time, else at the commit's."""
    own = datetime(2020, 1, 1, tzinfo=UTC)
    world.clock.advance(60)
    await world.commit(
        Changeset(nodes=(Semantic("a b", id="own", created_at=own), Semantic("c d", id="clock")))
    )
    counts = await world.graph.metadata(["own", "clock"])
    assert counts["own"].created_at == own
    assert counts["clock"].created_at == world.clock.now()
    assert world.clock.now() - own > timedelta(days=1)

"""What an erasure leaves of support and rewards is what a commit of the rest would have given."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from helpers import Kit, OpenKit

from mnemo import Changeset, Edge, Episodic, MetadataDelta, NodeChange, Procedural, Semantic

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
TEA = "Ana likes tea"


@pytest.fixture
async def kit(open_kit: OpenKit, tmp_path) -> Kit:
    """A service without a model."""
    return await open_kit(store=tmp_path / "m.db", embedded=True)


@dataclass(frozen=True)
class Said:
    """A step that states something: its place, its reward, and whether that is known late."""

    id: str
    episode: str | None = None
    trajectory: str | None = None
    reward: float | None = None
    session: str = "s"
    late: bool = False
    text: str = TEA

    def step(self, *, knows: bool) -> Episodic:
        return Episodic(
            TEA,
            id=self.id,
            at=NOON + timedelta(hours=ord(self.id)),
            session_id=self.session,
            episode_id=self.episode,
            trajectory_id=self.trajectory,
            reward=self.reward if knows else None,
        )


async def commit(kit: Kit, *said: Said, score: float | None = None) -> str:
    """Commit the statements of one changeset, as one fact, or instruction of that score."""
    steps = [one.step(knows=not one.late) for one in said]
    known = [score] if score is not None else [s.reward for s in steps if s.reward is not None]
    claim = Semantic(said[0].text) if score is None else Procedural(said[0].text, "if cold")
    mean = sum(known) / len(known) if known else 0.0
    delta = MetadataDelta(cumulative_reward=mean, reward_count=bool(known) + 0)
    edges = tuple(Edge(claim.id, step.id, "provenance") for step in steps)
    await kit.repo.apply(Changeset(nodes=(*steps, claim), edges=edges, metadata={claim.id: delta}))
    late = {one.id: one.reward for one in said if one.late}
    await kit.repo.apply(
        Changeset(changes=tuple(NodeChange(id, {"reward": r}) for id, r in late.items()))
    )
    return claim.id


async def counts(kit: Kit, text: str = TEA) -> list[tuple[int, int, float]]:
    """Support, number and sum of the rewards of each fact or instruction of that text."""
    nodes = await kit.repo.get_nodes(["semantic", "procedural"])
    ids = [
        node.id for node in nodes if text in (node.text, getattr(node, "instruction", node.text))
    ]
    found = (await kit.repo.get_metadata(ids)).values()
    return sorted(
        (one.support_count, one.reward_count, round(one.cumulative_reward, 9)) for one in found
    )


A, B, C = Said("a"), Said("b"), Said("c")
IN_E1 = replace(A, episode="e1")
STORIES: dict[str, tuple[Sequence[tuple[Said, ...]], tuple[int, int, float]]] = {
    "steps without an episode": ([(A,), (B,), (C,)], (2, 0, 0.0)),
    "some without an episode": ([(IN_E1,), (B,), (C,)], (2, 0, 0.0)),
    "two such steps in one changeset": ([(A, C)], (1, 0, 0.0)),
    "the episode stays": ([(IN_E1,), (replace(C, episode="e1"),)], (1, 0, 0.0)),
    "a late reward": (
        [(Said("a", "e1", "t", 1.0),), (Said("c", "e1", "t", 0.5, late=True),)],
        (1, 1, 1.0),
    ),
    "two late rewards of a trajectory": (
        [(Said("a", "e1", "t", 1.0, late=True),), (Said("c", "e1", "t", 0.5, late=True),)],
        (1, 1, 1.0),
    ),
    "steps without a trajectory": (
        [(Said("a", reward=1.0),), (Said("b", reward=0.5),), (Said("c", reward=0.0),)],
        (2, 2, 1.5),
    ),
    "a trajectory in two changesets": (
        [(Said("a", "e1", "t", 1.0),), (Said("b", "e1", "t", 0.5),), (Said("c", "e2", "u", 0.0),)],
        (1, 1, 0.75),
    ),
    "equal names in two sessions": (
        [(Said("a", "e1", "t", 1.0),), (Said("c", "e1", "t", 0.0, session="z"),)],
        (1, 1, 1.0),
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_forgetting_leaves_what_a_commit_of_the_rest_gives(kit, open_kit, tmp_path, story):
    """The statement of step c goes; beside it there is a repository that never had it."""
    changesets, expected = STORIES[story]
    for said in changesets:
        await commit(kit, *said)
    await kit.repo.forget(steps=["c"])
    assert await counts(kit) == [expected]
    other = await open_kit(store=tmp_path / "other.db", embedded=True)
    for said in changesets:
        if rest := [one for one in said if one.id != "c"]:
            await commit(other, *rest)
    assert await counts(other) == [expected]


async def test_a_statement_without_steps_is_not_forgotten_with_others(kit):
    """What the hand said counts beside what sessions said."""
    await kit.repo.apply(Changeset(nodes=(Semantic(TEA),)))
    await commit(kit, Said("a", "e1"))
    await commit(kit, Said("c", "e2"))
    assert await counts(kit) == [(3, 0, 0.0)]
    await kit.repo.forget(steps=["c"])
    assert await counts(kit) == [(2, 0, 0.0)]


async def test_an_instruction_keeps_its_mean_for_what_remains(kit):
    """Its rewards are scores, which are not those of its steps."""
    await commit(kit, Said("a", "e1", "t", 1.0), score=0.2)
    await commit(kit, Said("c", "e2", "u", 0.0), score=0.9)
    assert await counts(kit) == [(2, 2, 1.1)]
    await kit.repo.forget(steps=["c"])
    assert await counts(kit) == [(1, 1, 0.55)]


async def test_an_instruction_without_step_rewards_loses_the_score_of_what_goes(kit):
    """Its score counts once for each trajectory, whether its steps have rewards or not."""
    await commit(kit, Said("a", "e1", "t"), score=0.9)
    await commit(kit, Said("c", "e2", "u"), score=0.9)
    await kit.repo.forget(steps=["c"])
    assert await counts(kit) == [(1, 1, 0.9)]


PORTO, OSLO = "Ana lives in Porto", "Ana lives in Oslo"


@pytest.mark.parametrize("episodes", [("e1", "e2", "e3"), ("e1", None, None), (None, None, None)])
async def test_a_cut_shares_out_support_and_rewards(kit, episodes):
    """Porto three times, and late that it was Oslo after the first: 1 and 2, with their rewards."""
    for id, episode, reward in zip("acd", episodes, (1.0, 0.0, 0.0), strict=True):
        await commit(kit, Said(id, episode, reward=reward, text=PORTO))
    assert await counts(kit, PORTO) == [(3, 3, 1.0)]
    await commit(kit, Said("b", "e4", text=OSLO))
    assert await counts(kit, PORTO) == [(1, 1, 1.0), (2, 2, 0.0)]


async def test_a_new_fact_that_is_cut_shares_out_what_it_came_with(kit):
    """One changeset says Porto before and after Oslo, its reward the mean of a trajectory."""
    await commit(kit, Said("b", "e4", text=OSLO))
    early, late = (Said(id, "e1", "t", r, text=PORTO) for id, r in (("a", 1.0), ("c", 0.0)))
    await commit(kit, early, late)
    assert await counts(kit, PORTO) == [(1, 1, 0.0), (1, 1, 1.0)]


async def test_a_cut_fact_without_rewards_has_none_afterwards(kit):
    """Its steps have rewards, but it came without: no part has any, or goes below nothing."""
    for id in "ac":
        step, fact = Said(id, reward=1.0).step(knows=True), Semantic(PORTO)
        edge = Edge(fact.id, step.id, "provenance")
        await kit.repo.apply(Changeset(nodes=(step, fact), edges=(edge,)))
    await commit(kit, Said("b", text=OSLO))
    assert await counts(kit, PORTO) == [(1, 0, 0.0), (1, 0, 0.0)]


async def test_a_reward_that_was_applied_outlives_the_steps_of_others(kit):
    """It came from no step: an erasure takes what the erased step gave, and no more."""
    fact = await commit(kit, Said("a", "e1", "t", 1.0))
    await commit(kit, Said("c", "e2", "u", 0.5))
    praise = MetadataDelta(cumulative_reward=0.25, reward_count=1)
    await kit.repo.apply(Changeset(metadata={fact: praise}))
    assert await counts(kit) == [(2, 3, 1.75)]
    await kit.repo.forget(steps=["c"])
    assert await counts(kit) == [(1, 2, 1.25)]


async def test_a_late_reward_is_no_second_score_of_an_instruction(kit):
    """What its score has judged is not judged again by the reward of its step."""
    await commit(kit, Said("a", "e1", "t", 0.5, late=True), score=0.9)
    assert await counts(kit) == [(1, 1, 0.9)]


async def test_late_rewards_are_paid_up_to_one_for_each_trajectory(kit):
    """Of two trajectories one was scored: of two late rewards one counts, at their mean."""
    tea, scored = Procedural(TEA, "if cold"), MetadataDelta(cumulative_reward=0.9, reward_count=1)
    steps = [Said(id, f"e{id}", f"t{id}").step(knows=True) for id in "ac"]
    edges = tuple(Edge(tea.id, step.id, "provenance") for step in steps)
    given = Changeset(nodes=(*steps, tea), edges=edges, metadata={tea.id: scored})
    await kit.repo.apply(given)
    late = tuple(NodeChange(id, {"reward": r}) for id, r in (("a", 0.2), ("c", 0.6)))
    await kit.repo.apply(Changeset(changes=late))
    assert [one[1:] for one in await counts(kit)] == [(2, 1.3)]

"""The changeset of a trajectory: its nodes, edges and first rewards."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime

import numpy as np
import pytest

from mnemo.extraction.facts import KnownFact
from mnemo.extraction.pipeline import assemble, clean_instructions
from mnemo.values.changeset import Changeset
from mnemo.values.graph import (
    EdgeKind,
    Episodic,
    Intent,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
)
from mnemo.values.steps import Fact, Instruction, Step, Trajectory


def known(text: str, *steps: int, concepts: tuple[str, ...] = (), **more: float) -> KnownFact:
    fact = Fact(proposition=text, concepts=concepts, steps=steps or (0,), **more)  # type: ignore[arg-type]
    return KnownFact(fact, np.array([1.0, 0.0], dtype=np.float32))


def told(
    text: str, *, intent: str = "travel", score: float | None = None, steps: Sequence[int] = ()
) -> Instruction:
    return Instruction(
        intent=intent,
        condition="when away",
        instruction=text,
        expected_outcome="it works",
        return_score=score,
        steps=tuple(steps),
    )


def built(
    trajectory: Trajectory,
    facts: Sequence[KnownFact] = (),
    instructions: Sequence[Instruction] = (),
    window: int = 2,
) -> Changeset:
    changeset = assemble(trajectory, facts, instructions, sibling_window=window)
    changeset.validate(dimensions=2)
    return changeset


def ends(changeset: Changeset, kind: EdgeKind) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in changeset.edges if edge.kind is kind}


def test_every_step_has_its_episodic_and_source_node(make_trajectory):
    """N episodic and n source nodes, each episodic below its subgoal and above its source."""
    changeset = built(make_trajectory(5))
    kinds = Counter(node.type for node in changeset.nodes)
    assert kinds == {"episodic": 5, "source": 5, "subgoal": 1}
    assert ends(changeset, EdgeKind.PROVENANCE) == {
        (f"episodic-{i}", f"source-{i}") for i in range(5)
    }
    assert ends(changeset, EdgeKind.HIERARCHICAL) == {
        ("subgoal-episode-1/0", f"episodic-{i}") for i in range(5)
    }
    assert changeset.metadata == {}


def test_a_step_node_carries_all_of_its_step(make_annotated, make_trajectory):
    """Nothing that is known of a step is lost on the way to the graph."""
    step = make_annotated(0, "rain", "took a coat", reward=0.7)
    episodic, source = built(make_trajectory([step])).nodes[1:3]
    assert isinstance(episodic, Episodic)
    assert isinstance(source, Source)
    for node in (episodic, source):
        for field in {f.name for f in fields(node)} & {f.name for f in fields(step)}:
            assert getattr(node, field) == getattr(step, field)
        assert (node.step_index, node.created_at, node.vector) == (0, None, None)
    assert (episodic.state, episodic.subgoal, episodic.reward) == ("state 0", "find out", 0.7)
    assert source.plain_text == "rain\ntook a coat"


def test_parts_of_a_trajectory_share_its_subgoal(make_annotated, make_trajectory):
    """What is extracted in two parts meets in one subgoal id; its text is the last step's."""
    first = built(make_trajectory([make_annotated(0, subgoal="look")]))
    second = built(make_trajectory([make_annotated(1), make_annotated(2, subgoal="book")]))
    subgoals = [n for c in (first, second) for n in c.nodes if isinstance(n, Subgoal)]
    assert [node.id for node in subgoals] == ["subgoal-episode-1/0"] * 2
    assert [node.description for node in subgoals] == ["look", "book"]
    assert subgoals[0].parent_goal == "plan the trip"
    assert subgoals[0].trajectory_id == "episode-1/0"


def test_a_fact_rests_on_its_supporting_steps_only(make_trajectory):
    """Five steps and a fact on step 1 give one provenance edge, to the node of step 1."""
    changeset = built(make_trajectory(5), [known("Bo likes tea", 1)])
    (fact,) = [n for n in changeset.nodes if isinstance(n, Semantic)]
    targets = [t for s, t in ends(changeset, EdgeKind.PROVENANCE) if s == fact.id]
    assert targets == ["episodic-1"]


@pytest.mark.parametrize(("facts", "edges"), [(1, 0), (2, 1), (3, 3), (4, 5), (6, 9)])
def test_siblings_never_grow_quadratically(make_trajectory, facts, edges):
    """Each fact is linked to the next two."""
    changeset = built(make_trajectory(1), [known(f"fact {i}") for i in range(facts)])
    assert len(ends(changeset, EdgeKind.SIBLING)) == edges


def test_the_sibling_window_can_be_closed(make_trajectory):
    """A window of 0 links nothing."""
    changeset = built(make_trajectory(1), [known("a"), known("b")], window=0)
    assert not ends(changeset, EdgeKind.SIBLING)


def test_spellings_of_one_concept_are_one_tag(make_trajectory):
    """ "Database" and "DATABASE" are one tag, the first spelling stays."""
    facts = [
        known("Bo tunes a database", concepts=("Database", "Bo")),
        known("Ana sells a database", concepts=("DATABASE",)),
    ]
    changeset = built(make_trajectory(1), facts)
    tags = {n.label: n.id for n in changeset.nodes if isinstance(n, Tag)}
    assert list(tags) == ["Database", "Bo"]
    linked = [t for s, t in ends(changeset, EdgeKind.MEMBERSHIP) if s == tags["Database"]]
    assert len(linked) == 2


def test_a_fact_holds_from_its_earliest_step(make_trajectory):
    """Times may go backwards; the earliest counts, not the first."""
    trajectory = make_trajectory(3)
    later, _, earlier = trajectory.steps
    swapped = make_trajectory(
        [later, trajectory.steps[1], _at(earlier, later.at.replace(year=2020))]
    )
    (fact,) = [n for n in built(swapped, [known("a", 0, 2)]).nodes if isinstance(n, Semantic)]
    assert fact.valid_from is not None
    assert fact.valid_from.year == 2020


def _at(step: Step, at: datetime) -> Step:
    return replace(step, at=at)


def test_the_first_reward_of_a_fact_is_the_mean_of_the_known_ones(make_annotated, make_trajectory):
    """An unknown reward is left out, and with nothing known there is none."""
    rewards = [0.2, None, 0.6]
    trajectory = make_trajectory([make_annotated(i, reward=r) for i, r in enumerate(rewards)])
    changeset = built(trajectory, [known("a", 0, 1, 2), known("b", 1)])
    first, second = (changeset.metadata[n.id] for n in changeset.nodes if isinstance(n, Semantic))
    assert first.cumulative_reward == pytest.approx(0.4)
    assert (first.reward_count, first.support_count) == (1, 1)
    assert (second.cumulative_reward, second.reward_count, second.support_count) == (0.0, 0, 1)


def test_a_tag_starts_with_the_mean_of_its_members(make_annotated, make_trajectory):
    """Members whose reward is unknown are left out of it."""
    rewards = [0.2, 0.8, None]
    trajectory = make_trajectory([make_annotated(i, reward=r) for i, r in enumerate(rewards)])
    facts = [known(f"fact {i}", i, concepts=("tea",)) for i in range(3)]
    changeset = built(trajectory, facts)
    (tag,) = [n for n in changeset.nodes if isinstance(n, Tag)]
    assert changeset.metadata[tag.id].cumulative_reward == pytest.approx(0.5)
    assert changeset.metadata[tag.id].reward_count == 1


def test_an_instruction_starts_with_its_return(make_trajectory):
    """Its return is the first reward of the instruction and, as a mean, of the intent."""
    given = [
        told("pack", score=1.0, steps=[1]),
        told("book", score=0.5),
        told("wait", intent="Rest"),
    ]
    changeset = built(make_trajectory(4), instructions=given)
    nodes = [n for n in changeset.nodes if isinstance(n, Procedural)]
    first, _, third = (changeset.metadata[node.id] for node in nodes)
    assert (first.cumulative_reward, first.reward_count, first.support_count) == (1.0, 1, 1)
    assert (third.reward_count, nodes[2].return_score) == (0, None)
    travel, rest = [n for n in changeset.nodes if isinstance(n, Intent)]
    assert changeset.metadata[travel.id].cumulative_reward == pytest.approx(0.75)
    assert changeset.metadata[rest.id].reward_count == 0
    assert {t for s, t in ends(changeset, EdgeKind.HIERARCHICAL) if s == travel.id} == {
        nodes[0].id,
        nodes[1].id,
    }


def test_equal_intents_are_one(make_trajectory):
    """Case and the final point do not make a second intent."""
    given = [told("pack", intent="Travel"), told("book", intent="travel.")]
    changeset = built(make_trajectory(1), instructions=given)
    assert [n.description for n in changeset.nodes if isinstance(n, Intent)] == ["Travel"]


def support(changeset: Changeset) -> set[str]:
    (node,) = [n for n in changeset.nodes if isinstance(n, Procedural)]
    return {t for s, t in ends(changeset, EdgeKind.PROVENANCE) if s == node.id}


def test_an_instruction_without_steps_rests_on_the_actions_it_repeats(
    make_annotated, make_trajectory
):
    """Every content word of such an action is in the instruction."""
    actions = ["opened the valve", "called Bo", "", "closed the valve", "waited"]
    steps = [make_annotated(i, action=action) for i, action in enumerate(actions)]
    changeset = built(
        make_trajectory(steps), instructions=[told("Open the valve, close the valve")]
    )
    assert support(changeset) == {"episodic-0", "episodic-3"}


def test_an_instruction_that_repeats_nothing_rests_on_the_last_three_steps(
    make_trajectory,
):
    """Steps that are not of the trajectory count as none."""
    changeset = built(make_trajectory(5), instructions=[told("breathe", steps=[77])])
    assert support(changeset) == {"episodic-2", "episodic-3", "episodic-4"}


def test_what_a_fact_replaces_is_passed_on(make_trajectory):
    """The finding is kept under the new fact's id, for the commit to judge."""
    fact = KnownFact(
        Fact(proposition="a", steps=(0,), replaces=("semantic-old",)),
        np.array([1.0, 0.0], dtype=np.float32),
    )
    changeset = built(make_trajectory(1), [fact])
    (node,) = [n for n in changeset.nodes if isinstance(n, Semantic)]
    assert changeset.replaces == {node.id: ("semantic-old",)}


def test_an_instruction_with_a_blank_part_is_left_out():
    """None of the four texts may be blank, and the first ones are kept."""
    given = [told(" "), told("pack\ud800", score=1.4), told("go"), told("rest")]
    kept = clean_instructions(given, limit=2)
    assert [i.instruction for i in kept] == ["pack\ufffd", "go"]
    assert [i.return_score for i in kept] == [1.0, None]

"""Planning an erasure: what goes, what stays and how it changes, decided over rows alone."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world import NOON

from mnemo.erasure.plan import (
    AnnotatedStep,
    Deletions,
    Said,
    TouchedEpisode,
    plan_annotations,
    plan_graph,
    plan_sessions,
)
from mnemo.erasure.selecting import NodeRow
from mnemo.errors import StoreCorrupt
from mnemo.log.erase_messages import _held
from mnemo.values.graph import (
    EdgeKind,
    Episodic,
    Intent,
    Node,
    NodeMetadata,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
    Wording,
)

WORDS = ("porto", "harbour", "violin", "bread", "compiler", "osaka")
PROVENANCE, MEMBERSHIP = EdgeKind.PROVENANCE, EdgeKind.MEMBERSHIP
HIERARCHICAL = EdgeKind.HIERARCHICAL
ANY = settings(
    max_examples=examples(100),
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Rows:
    """A graph in lists; *damaged* nodes cannot be read."""

    nodes: list[Node]
    links: list[tuple[str, str, EdgeKind]] = field(default_factory=list)
    damaged: frozenset[str] = frozenset()

    def row(self, no: int) -> NodeRow:
        node: Any = self.nodes[no]
        episode, by = getattr(node, "episode_id", None), getattr(node, "superseded_by", None)
        return NodeRow(no, node.id, node.type, episode, by)

    def no(self, id: str) -> int:
        return next(no for no, node in enumerate(self.nodes) if node.id == id)

    def find(self, column: str, values: Collection[Any]) -> list[NodeRow]:
        rows = map(self.row, range(len(self.nodes)))
        return [row for row in rows if getattr(row, column) in values]

    def worded_by(self, step_ids: Collection[str]) -> list[NodeRow]:
        rows = map(self.row, range(len(self.nodes)))
        return [row for row in rows if self._sources(row.no) & {*step_ids}]

    def _sources(self, no: int) -> set[str]:
        node = self.nodes[no]
        wordings = node.wordings if isinstance(node, Intent) else ()
        return {source for one in wordings for source in one.sources}

    def edges(
        self, end: str, numbers: Collection[int], kinds: Sequence[EdgeKind] = tuple(EdgeKind)
    ) -> list[tuple[int, int]]:
        found = [(self.no(a), self.no(b)) for a, b, kind in self.links if kind in kinds]
        return [link for link in found if link[end == "target"] in numbers]

    def read(self, number: int) -> Node:
        node = self.nodes[number]
        if node.id in self.damaged:
            raise StoreCorrupt("damaged", table="nodes", key=node.id)
        return node

    def counts(self, number: int) -> NodeMetadata:
        return NodeMetadata(created_at=NOON, support_count=9, reward_count=1, cumulative_reward=0.5)

    def after(self, plan: Deletions) -> "Rows":
        """The rows once *plan* is carried out."""
        gone = {row.id for row in plan.gone.values()}
        nodes = [plan.changed.get(no, node) for no, node in enumerate(self.nodes)]
        links = [link for link in self.links if not gone & {*link[:2]}]
        return Rows([node for node in nodes if node.id not in gone], links, self.damaged)


def step(number: int, text: str) -> Episodic:
    """A step of an episode of its own."""
    return Episodic(
        text, id=f"step {number}", session_id="s", episode_id=f"episode {number}", at=NOON
    )


def said(rows: Rows, erased: Collection[str]) -> Said:
    """What the *erased* steps of *rows* say."""
    texts = {
        node.episode_id: node.observation
        for node in rows.nodes
        if isinstance(node, Episodic) and node.id in erased
    }
    return Said(lambda episode: [texts.get(episode)])


def planned(rows: Rows, *erased: str) -> Deletions:
    """The plan for erasing these steps."""
    return plan_graph(rows, erased, said(rows, erased))


def gone(plan: Deletions) -> set[str]:
    """The ids of what goes."""
    return {row.id for row in plan.gone.values()}


TWO = [step(0, "porto harbour"), step(1, "porto bread")]


# ── Single rules ─────────────────────────────────────────────────────────────────────


def test_a_source_goes_when_no_remaining_step_names_it():
    """A shared one stays."""
    own, shared = Source("a", id="own"), Source("b", id="shared")
    links = [("step 0", "own", PROVENANCE), ("step 0", "shared", PROVENANCE)]
    rows = Rows([*TWO, own, shared], [*links, ("step 1", "shared", PROVENANCE)])
    assert gone(planned(rows, "step 0")) == {"step 0", "own"}


def test_facts_that_replace_each_other_in_a_circle_hold_again():
    """Damage of another kind: it ends."""
    facts = [
        Semantic("bread", id="old", superseded_by="a", valid_to=NOON),
        Semantic("porto", id="a", superseded_by="b", valid_to=NOON),
        Semantic("porto", id="b", superseded_by="a", valid_to=NOON),
    ]
    links = [("a", "step 0", PROVENANCE), ("b", "step 0", PROVENANCE)]
    assert planned(Rows([*TWO, *facts], links), "step 0").facts_restored == 1


def test_a_tag_goes_with_its_last_member_or_its_last_word():
    """One that a remaining member is named by stays."""
    tags = [Tag("porto", id="last"), Tag("harbour", id="leaks"), Tag("bread", id="stays")]
    facts = [Semantic("harbour", id="f"), Semantic("bread", id="g")]
    links = [("f", "step 0", PROVENANCE), ("g", "step 1", PROVENANCE), ("last", "f", MEMBERSHIP)]
    links += [(tag, fact, MEMBERSHIP) for tag in ("leaks", "stays") for fact in ("f", "g")]
    rows = Rows([*TWO, *facts, *tags], links)
    assert gone(planned(rows, "step 0")) == {"step 0", "f", "last", "leaks"}


def test_an_intent_and_a_subgoal_are_reworded():
    """The intent by its first remaining member, the subgoal by its goal; vectors are stale."""
    nodes = [
        Intent("find the harbour", id="i"),
        Subgoal("see the harbour", id="g", parent_goal="travel"),
        Procedural("walk", id="p"),
        Procedural("bake bread", id="q"),
    ]
    links = [("p", "step 0", PROVENANCE), ("q", "step 1", PROVENANCE)]
    links += [("i", "p", HIERARCHICAL), ("i", "q", HIERARCHICAL)]
    links += [("g", "step 0", HIERARCHICAL), ("g", "step 1", HIERARCHICAL)]
    plan = planned(Rows([*TWO, *nodes], links), "step 0")
    assert [plan.changed[no].text for no in (2, 3)] == ["bake bread", "travel"]
    assert plan.reworded == {2, 3}


def test_an_intent_loses_the_wordings_of_erased_steps():
    """A wording of another step stays, and describes it from now on."""
    wordings = (Wording("harbour", ("step 0",)), Wording("bread", ("step 1",)))
    intent = Intent("harbour", id="i", wordings=wordings)
    plan = planned(Rows([*TWO, intent]), "step 0")
    after = plan.changed[2]
    assert isinstance(after, Intent)
    assert (after.description, after.wordings) == ("bread", wordings[1:])


def test_a_damaged_intent_of_damaged_members_does_not_stop_it():
    """Nothing readable names the intent: it goes; a damaged one is named and stays."""
    nodes = [
        Intent("harbour", id="i"),
        Tag("harbour", id="t"),
        Procedural("harbour", id="p"),
        Procedural("bread", id="q"),
    ]
    links = [("p", "step 0", PROVENANCE), ("q", "step 1", PROVENANCE)]
    links += [(r, m, HIERARCHICAL) for r in ("i", "t") for m in ("p", "q")]
    plan = planned(Rows([*TWO, *nodes], links, frozenset({"q", "t"})), "step 0")
    assert gone(plan) == {"step 0", "p", "i"}
    assert [one.row for one in plan.unreadable] == ["nodes t"]


def test_sessions_that_nothing_is_left_of_go():
    """One with an open, untouched episode lives on; one that is named goes whole."""

    def episode(no: int, session: int, status: str, steps: int, leaving: int) -> TouchedEpisode:
        values = {"status": status, "steps": steps, "leaving": leaving}
        return TouchedEpisode(no=no, id=f"e{no}", session=session, goal="", **values)

    episodes = [
        episode(1, 1, "committed", 2, 2),
        episode(2, 2, "committed", 2, 2),
        episode(3, 2, "open", 0, 0),
        episode(4, 3, "open", 3, 1),
        episode(5, 4, "open", 3, 1),
    ]
    plan = plan_sessions(episodes, {1, 2, 3, 4}, {4})
    assert (plan.gone, plan.shaken) == ([1, 4], [2, 3])
    assert [one.no for one in plan.gone_episodes] == [1, 2, 5]
    assert [one.no for one in plan.ended] == [4, 5]


def test_annotations_lose_what_only_erased_steps_said():
    """The goal stands for the subgoal; a step's own words may stay."""
    leaks = AnnotatedStep(1, "a", "bread", "at the harbour", "see the harbour")
    fine = AnnotatedStep(2, "b", "the harbour", "at the harbour", "see the harbour")
    after = plan_annotations([leaks, fine], "travel", frozenset({"harbour"}))
    assert after == [replace(leaks, state=None, subgoal="travel")]


@pytest.mark.slow
@ANY
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5))), st.sets(st.integers(0, 25)))
def test_a_range_goes_with_any_message_that_it_held(ends, seqs):
    """Both ends are inclusive."""
    rows = [(no, f"r{no}", first, first + n) for no, (first, n) in enumerate(ends)]
    held = [(no, id) for no, id, first, last in rows if seqs & {*range(first, last + 1)}]
    tx: Any = SimpleNamespace(run=lambda statement, values: rows)
    assert _held(tx, "compactions", 1, seqs) == held


# ── Any graph ────────────────────────────────────────────────────────────────────────

TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" ".join)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Rows, frozenset[str]]:
    """Steps, claims on them, routing nodes over all that; and the steps that are erased."""
    steps = [step(n, draw(TEXTS)) for n in range(draw(st.integers(1, 4)))]
    ids = [one.id for one in steps]
    nodes: list[Node] = [*steps]
    links: set[tuple[str, str, EdgeKind]] = set()
    for n in range(draw(st.integers(0, 5))):
        by = draw(st.none() | st.integers(0, 4).map("claim {}".format))
        times = {"superseded_by": by, "valid_to": NOON if by else None}
        fact = draw(st.booleans())
        text, id = draw(TEXTS), f"claim {n}"
        nodes.append(Semantic(text, id=id, **times) if fact else Procedural(text, id=id))
        links |= {(id, ground, PROVENANCE) for ground in draw(st.sets(st.sampled_from(ids)))}
    members = [node.id for node in nodes]
    for n in range(draw(st.integers(0, 4))):
        text, kind = draw(TEXTS), draw(st.sampled_from((Tag, Intent, Subgoal)))
        nodes.append(kind(text, id=f"routing {n}"))
        chosen = draw(st.sets(st.sampled_from(members), max_size=3))
        links |= {(f"routing {n}", member, MEMBERSHIP) for member in chosen}
    damaged = draw(st.sets(st.sampled_from([node.id for node in nodes]), max_size=2))
    erased = draw(st.sets(st.sampled_from(ids), min_size=1))
    return Rows(nodes, sorted(links), frozenset(damaged)), frozenset(erased)


@pytest.mark.slow
@ANY
@given(graphs())
def test_what_stays_rests_on_nothing_erased(given_):
    """Steps go exactly as asked; claims without a step left, and what names the gone, go."""
    rows, erased = given_
    plan = planned(rows, *erased)
    left = rows.after(plan)
    there = {node.id for node in left.nodes}
    assert {row.id for row in plan.gone.values() if row.type == "episodic"} == erased
    for node in left.nodes:
        grounds = {b for a, b, kind in rows.links if a == node.id and kind is PROVENANCE}
        assert not grounds or grounds - erased or node.id not in there
        members = {b for a, b, kind in rows.links if a == node.id and kind is MEMBERSHIP}
        assert not members or members & there
        if isinstance(node, Semantic) and node.id not in rows.damaged:
            assert node.superseded_by is None or node.superseded_by not in gone(plan)


@pytest.mark.slow
@ANY
@given(graphs())
def test_what_is_untouched_stays_as_it_is(given_):
    """Nothing goes or changes that no chain of links or replacements joins to an erased step."""
    rows, erased = given_
    plan = planned(rows, *erased)
    touched = set(erased)
    for _ in rows.nodes:
        touched |= {a for a, b, _ in rows.links if b in touched}
        touched |= {
            r.id for r in map(rows.row, range(len(rows.nodes))) if r.superseded_by in touched
        }
    assert gone(plan) <= touched
    assert {rows.nodes[no].id for no in plan.changed} <= touched
    assert {one.key for one in plan.unreadable} <= rows.damaged


@pytest.mark.slow
@ANY
@given(graphs())
def test_no_word_of_the_erased_alone_is_left(given_):
    """Claims that lost a step use the words of remaining ones."""
    rows, erased = given_
    plan = planned(rows, *erased)
    texts = {node.id: {*node.text.split()} for node in rows.nodes}
    for node in rows.after(plan).nodes:
        grounds = {b for a, b, kind in rows.links if a == node.id and kind is PROVENANCE}
        if not grounds & erased or rows.damaged & {node.id, *grounds}:
            continue
        known = set[str]().union(*(texts[ground] for ground in grounds - erased))
        lost = set[str]().union(*(texts[ground] for ground in grounds & erased))
        assert not {*node.text.split()} & lost - known


@pytest.mark.slow
@ANY
@given(graphs())
def test_a_second_erasure_finds_nothing(given_):
    """The plan is complete: what it leaves gives an empty plan."""
    rows, erased = given_
    left = rows.after(planned(rows, *erased))
    again = plan_graph(left, tuple(erased), said(left, erased))
    assert (again.gone, again.changed, again.unreadable) == ({}, {}, [])


@pytest.mark.slow
@ANY
@given(graphs())
def test_the_order_of_the_steps_does_not_matter(given_):
    """The same rows and the same steps give the same plan."""
    rows, erased = given_
    one, other = planned(rows, *sorted(erased)), planned(rows, *sorted(erased, reverse=True))
    assert (gone(one), one.changed, one.counts) == (gone(other), other.changed, other.counts)

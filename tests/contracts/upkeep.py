"""The contract of a graph write that carries upkeep."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.errors import CommitFailed, StaleRevision
from mnemo.values.changeset import Upkeep
from mnemo.values.graph import (
    Edge,
    EdgeKind,
    Episodic,
    Intent,
    MetadataDelta,
    Node,
    NodeMetadata,
    Procedural,
    Semantic,
    Subgoal,
    Tag,
)

LATER = NOON + timedelta(hours=1)


def fact(id: str, **fields: Any) -> Semantic:
    """A fact with a vector."""
    values: dict[str, Any] = {"created_at": NOON, "vector": unit_vector(1, 2, 3, 4)} | fields
    return Semantic(f"fact {id}", id=id, **values)


def step(id: str, episode: str | None = "e") -> Episodic:
    """A raw step of an episode."""
    return Episodic("seen", id=id, session_id="s", episode_id=episode, at=NOON, created_at=NOON)


def tag(id: str) -> Tag:
    """A tag with a vector."""
    return Tag(f"label {id}", id=id, created_at=NOON, vector=unit_vector(1, 0, 0, 0))


def joined(*ends: str, kind: EdgeKind) -> list[Edge]:
    """The edges ``source>target``."""
    pairs = (end.split(">") for end in ends)
    return [Edge(source, target, kind) for source, target in pairs]


class UpkeepContract(StoreContract):
    """Merging, removing, penalties and orphans: one transaction, like any other write."""

    async def _filled(self, kit: Kit) -> None:
        """Two facts with a tag, a step and a sibling each, and one tag in common."""
        nodes: list[Node] = [fact("a"), fact("b"), fact("c"), fact("d")]
        nodes += [tag("ta"), tag("tb"), tag("both"), step("sa", "1"), step("sb", "2")]
        edges = joined("ta>a", "tb>b", "both>a", "both>b", kind=EdgeKind.MEMBERSHIP)
        edges += joined("a>sa", "b>sb", "b>sa", kind=EdgeKind.PROVENANCE)
        edges += joined("a>b", "b>c", "d>b", kind=EdgeKind.SIBLING)
        edges += joined("ta>c", "ta>d", kind=EdgeKind.MEMBERSHIP)
        await kit.apply(*nodes, edges=edges, space=SPACE)

    async def _keep(self, kit: Kit, id: str = "u", **upkeep: Any) -> tuple[str, ...]:
        """What the upkeep removed."""
        return (await kit.apply(id=id, upkeep=Upkeep(**upkeep))).removed

    async def test_a_survivor_gets_every_edge_of_the_loser(self, kit):
        """Ends are replaced, doubles and self-links dropped."""
        await self._filled(kit)
        assert await self._keep(kit, merges={"b": "a"}) == ("b",)
        edges = set(await kit.store.graph("r").edges(["a"]))
        assert edges == {
            *joined("ta>a", "tb>a", "both>a", kind=EdgeKind.MEMBERSHIP),
            *joined("a>sa", "a>sb", kind=EdgeKind.PROVENANCE),
            *joined("a>c", "d>a", kind=EdgeKind.SIBLING),
        }
        assert await kit.store.graph("r").nodes(["b"]) == []
        assert await kit.store.graph("r").edges(["b"]) == []
        assert (await kit.store.check()).problems == ()

    async def test_edges_between_losers_join_their_survivors(self, kit):
        """An edge whose two ends are merged is replaced at both."""
        await self._filled(kit)
        removed = await self._keep(kit, merges={"b": "a", "c": "d"})
        assert sorted(removed) == ["b", "c"]
        siblings = await kit.store.graph("r").edges(["a", "d"], kind=EdgeKind.SIBLING)
        assert set(siblings) == set(joined("a>d", "d>a", kind=EdgeKind.SIBLING))

    async def test_a_survivor_gets_the_counts_of_the_losers(self, kit):
        """Sums, the earliest creation, the latest access, the smallest penalty."""
        await self._filled(kit)
        early = fact("e", created_at=NOON - timedelta(days=2))
        rewards = {
            "a": MetadataDelta(cumulative_reward=1.0, reward_count=2, support_count=1),
            "b": MetadataDelta(cumulative_reward=0.5, reward_count=1, support_count=1),
        }
        await kit.apply(early, id="more", metadata=rewards)
        graph = kit.store.graph("r")
        await graph.touch({"a": 3}, LATER)
        await graph.touch({"b": 4}, NOON)
        await self._keep(kit, id="p", penalties={"a": 0.3, "b": 0.1, "e": 0.3})
        await self._keep(kit, merges={"b": "a", "e": "a"})
        assert await graph.metadata(["a", "b", "e"]) == {
            "a": NodeMetadata(
                created_at=NOON - timedelta(days=2),
                last_accessed_at=LATER,
                access_count=7,
                cumulative_reward=1.5,
                reward_count=3,
                support_count=2,
                penalty=0.1,
            )
        }

    async def test_support_counts_an_episode_once(self, kit):
        """However many of its steps support the survivor."""
        nodes = [fact("a"), fact("b"), step("s", "1"), step("t", "1"), step("u", "2")]
        edges = joined("a>s", "b>t", "b>u", kind=EdgeKind.PROVENANCE)
        await kit.apply(*nodes, edges=edges, space=SPACE)
        await self._keep(kit, merges={"b": "a"})
        assert (await kit.store.graph("r").metadata(["a"]))["a"].support_count == 2

    @pytest.mark.parametrize("episode", [None, "1"])
    async def test_support_counts_each_step_without_an_episode(self, kit, episode):
        """Beside an episode or not: each is one of its own."""
        nodes = [fact("a"), fact("b"), step("s", episode), step("t", None)]
        support = {"a": MetadataDelta(support_count=1), "b": MetadataDelta(support_count=1)}
        edges = joined("a>s", "b>t", kind=EdgeKind.PROVENANCE)
        await kit.apply(*nodes, edges=edges, metadata=support, space=SPACE)
        await self._keep(kit, merges={"b": "a"})
        assert (await kit.store.graph("r").metadata(["a"]))["a"].support_count == 2

    @pytest.mark.parametrize("episode", [None, "1"])
    async def test_support_that_has_no_steps_stays(self, kit, episode):
        """What the hand said has none, and takes nothing away: the greatest there was stays."""
        nodes = [fact("a"), fact("b"), step("s", episode)]
        support = {"a": MetadataDelta(support_count=1), "b": MetadataDelta(support_count=3)}
        edges = joined("b>s", kind=EdgeKind.PROVENANCE)
        await kit.apply(*nodes, edges=edges, metadata=support, space=SPACE)
        await self._keep(kit, merges={"b": "a"})
        kept = (await kit.store.graph("r").metadata(["a"]))["a"]
        assert (kept.support_count, kept.last_accessed_at) == (3, None)

    async def test_a_changed_node_keeps_text_vector_and_counts(self, kit):
        """Other fields are replaced, and the feed shows the node again."""
        await self._filled(kit)
        before = (await kit.changes()).cursor
        await kit.store.graph("r").touch({"a": 1}, LATER)
        await self._keep(kit, changed=(replace(fact("a", vector=None), confidence=0.97),))
        (kept,) = await kit.store.graph("r").nodes(["a"])
        assert isinstance(kept, Semantic)
        assert kept.vector is not None
        assert (kept.confidence, kept.vector.tolist()) == (0.97, unit_vector(1, 2, 3, 4).tolist())
        assert (await kit.store.graph("r").metadata(["a"]))["a"].access_count == 1
        shown = await kit.changes(before)
        assert [node.id for node in shown.nodes] == ["a"]
        assert shown.vectors == {}

    async def test_the_feed_shows_survivors_and_takes_losers_away(self, kit):
        """A survivor's document has the tags of both; nothing else is shown anew."""
        await self._filled(kit)
        before = (await kit.changes()).cursor
        await self._keep(kit, merges={"b": "a"})
        shown = await kit.changes(before)
        assert shown.removed == ("b",)
        assert [node.id for node in shown.nodes] == ["a"]
        labels = {"label ta", "label tb", "label both"}
        assert set(shown.details["a"]["tags"]) == labels
        assert "b" not in (await kit.changes()).vectors

    async def test_removal_takes_everything_along(self, kit):
        """Edges, vectors, keys and metadata go; members of a removed tag are shown anew."""
        await self._filled(kit)
        before = (await kit.changes()).cursor
        assert await self._keep(kit, removals=("ta", "c")) == ("ta", "c")
        graph = kit.store.graph("r")
        assert await graph.metadata(["ta", "c"]) == {}
        assert await graph.edges(["ta", "c"]) == []
        assert await graph.nodes(types=("tag",), keys=["label ta"]) == []
        shown = await kit.changes(before)
        assert {node.id for node in shown.nodes} == {"a", "d"}
        assert set(shown.removed) == {"ta", "c"}
        assert {"ta", "c"} & (await kit.changes()).vectors.keys() == set()
        assert (await kit.store.check()).problems == ()

    async def test_what_was_accessed_since_stays(self, kit):
        """An access after the moment of the plan keeps a node; one at it does not."""
        await self._filled(kit)
        graph = kit.store.graph("r")
        await graph.touch({"a": 1}, NOON)
        await graph.touch({"b": 1}, LATER)
        removed = await self._keep(kit, removals=("a", "b", "c"), accessed_until=NOON)
        assert removed == ("a", "c")

    async def test_removals_that_all_stay_are_no_revision(self, kit):
        """Nothing was done, so nothing is counted or remembered."""
        await self._filled(kit)
        await kit.store.graph("r").touch({"a": 1}, LATER)
        for _ in range(2):
            applied = await kit.apply(
                id="u", upkeep=Upkeep(removals=("a",), accessed_until=NOON, sweeps=True)
            )
            assert (applied.revision, applied.removed, applied.again) == (1, (), False)

    async def test_a_sweep_removes_what_nothing_hangs_on(self, kit):
        """Routing nodes go with their last member, and not before."""
        nodes: list[Node] = [fact("a"), fact("b"), tag("one"), tag("two"), tag("lone")]
        nodes += [Procedural("do", id="p", created_at=NOON), step("s")]
        nodes += [Intent("goal", id="i", created_at=NOON), Subgoal("why", id="g", created_at=NOON)]
        nodes += [Subgoal("what for", id="h", created_at=NOON)]
        edges = joined("one>a", "two>a", "two>b", kind=EdgeKind.MEMBERSHIP)
        edges += joined("i>p", "g>s", kind=EdgeKind.HIERARCHICAL)
        await kit.apply(*nodes, edges=edges, space=SPACE)
        removed = await self._keep(kit, removals=("a", "p"), sweeps=True)
        assert removed[:2] == ("a", "p")
        assert set(removed[2:]) == {"one", "lone", "i", "h"}
        left = {node.id for node in await kit.store.graph("r").nodes()}
        assert left == {"b", "two", "s", "g"}

    async def test_without_a_sweep_orphans_stay(self, kit):
        """Only what is named goes."""
        await self._filled(kit)
        assert await self._keep(kit, removals=("b",)) == ("b",)
        assert len(await kit.store.graph("r").nodes(["tb"])) == 1

    async def test_a_sweep_without_orphans_is_no_revision(self, kit):
        """Nothing to do is not an error."""
        await self._filled(kit)
        applied = await kit.apply(id="u", upkeep=Upkeep(sweeps=True))
        assert (applied.revision, applied.removed) == (1, ())
        assert await kit.store.graph("r").revision() == 1

    async def test_a_sweep_leaves_other_repositories_alone(self, kit):
        """Repositories share nothing but the file."""
        await kit.apply(tag("x"), id="other", repo="q", space=SPACE)
        await kit.apply(tag("y"), space=SPACE)
        assert await self._keep(kit, sweeps=True) == ("y",)
        assert len(await kit.store.graph("q").nodes(["x"])) == 1

    async def test_penalties_are_set_and_stay(self, kit):
        """Set, not added; a revision, since recall weighs them."""
        await self._filled(kit)
        for id in ("u", "v"):
            await self._keep(kit, id=id, penalties={"a": 0.3})
        await kit.reopen()
        assert (await kit.store.graph("r").metadata(["a"]))["a"].penalty == 0.3
        assert await kit.store.graph("r").revision() == 3

    async def test_raw_steps_are_never_removed(self, kit):
        """A plan that would is refused whole."""
        await self._filled(kit)
        for upkeep in (Upkeep(removals=("a", "sa")), Upkeep(merges={"sa": "sb"})):
            with pytest.raises(CommitFailed, match="raw step"):
                await kit.apply(id="u", upkeep=upkeep)
        assert len(await kit.store.graph("r").nodes(["a", "sa"])) == 2
        assert await kit.store.graph("r").revision() == 1

    async def test_an_unknown_node_refuses_the_whole(self, kit):
        """Nothing of the upkeep, nor of the write that carries it, is there."""
        await self._filled(kit)
        upkeep = Upkeep(penalties={"a": 0.3}, removals=("nobody",))
        with pytest.raises(CommitFailed, match="nobody"):
            await kit.apply(tag("new"), id="u", upkeep=upkeep)
        assert (await kit.store.graph("r").metadata(["a"]))["a"].penalty == 0.0
        assert await kit.store.graph("r").nodes(["new"]) == []

    async def test_upkeep_against_another_revision_is_refused(self, kit):
        """Whoever planned it must look again."""
        await self._filled(kit)
        with pytest.raises(StaleRevision):
            await kit.apply(id="u", upkeep=Upkeep(removals=("a",)), expected_revision=0)
        assert len(await kit.store.graph("r").nodes(["a"])) == 1

    async def test_upkeep_that_was_done_is_not_done_again(self, kit):
        """Its id is remembered like a changeset's."""
        await self._filled(kit)
        first = await kit.apply(id="u", upkeep=Upkeep(penalties={"a": 0.2}))
        again = await kit.apply(id="u", upkeep=Upkeep(penalties={"a": 0.4}))
        assert (again.again, again.revision) == (True, first.revision)
        assert (await kit.store.graph("r").metadata(["a"]))["a"].penalty == 0.2

    async def test_a_removed_node_may_come_back(self, kit):
        """A reader that follows sees it go and come."""
        await self._filled(kit)
        before = (await kit.changes()).cursor
        await self._keep(kit, removals=("ta",))
        await kit.apply(tag("ta"), id="back", space=SPACE)
        shown = await kit.changes(before)
        assert shown.removed == ("ta",)
        assert "ta" in {node.id for node in shown.nodes}

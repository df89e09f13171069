"""The contract of the graph."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.errors import CommitFailed, Conflict, EmbeddingSpaceMismatch, StaleRevision
from mnemo.protocols import EmbeddingSpace
from mnemo.values.changeset import Changeset, NodeChange
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
    Source,
    Subgoal,
    Tag,
)
from mnemo.values.journal import ChangesetStaged, SessionState, StagedTrajectory, TrajectoryStaged
from mnemo.values.lookup import lookup_keys

FACT = Semantic("Ana lives in Porto", id="fact", created_at=NOON)
TAG = Tag("Porto", id="tag", created_at=NOON)
MEMBERSHIP = Edge("tag", "fact", EdgeKind.MEMBERSHIP)


class GraphStoreContract(StoreContract):
    """One transaction per write, whole or absent; revisions ascend by one."""

    # ── Writing ──────────────────────────────────────────────────────────────────────

    async def test_an_empty_repository_has_revision_0(self, kit):
        """Reading what nobody wrote gives nothing, not an error."""
        graph = kit.store.graph("r")
        assert await graph.revision() == 0
        assert await graph.nodes() == []
        assert await graph.metadata(["x"]) == {}
        assert await graph.edges(["x"]) == []
        assert await graph.delete(["x"]) == ()

    async def test_a_write_is_one_revision(self, kit):
        """Nodes, edges and metadata are there when apply returns."""
        applied = await kit.apply(FACT, TAG, edges=[MEMBERSHIP])
        graph = kit.store.graph("r")
        assert (applied.revision, applied.edge_count, applied.again) == (1, 1, False)
        assert applied.node_ids == ("fact", "tag")
        assert await graph.revision() == 1
        assert await graph.nodes(["fact", "tag"]) == [FACT, TAG]
        assert await graph.edges(["fact"]) == [MEMBERSHIP]
        assert (await graph.metadata(["fact"]))["fact"] == NodeMetadata(created_at=NOON)

    async def test_every_kind_of_node_comes_back_as_it_was(self, kit):
        """All fields of all seven kinds, set or None, survive the store."""
        at = NOON + timedelta(hours=3)
        place: dict[str, Any] = {
            "session_id": "s",
            "episode_id": "e",
            "step_index": 3,
            "at": at,
            "actor": "ana",
        }
        nodes: list[Node] = [
            Episodic("o", "a", "state", "goal", 0.25, "t-0", key="k", created_at=NOON, **place),
            Episodic("only", created_at=NOON),
            Semantic("p", 0.5, NOON, at, "other", created_at=NOON),
            Procedural("do", "when", "then", 0.125, created_at=NOON),
            Subgoal("why", "parent", "t-0", created_at=NOON),
            Intent("to do", created_at=NOON),
            Tag("label 東京", created_at=NOON),
            Source("said", key="k", created_at=NOON, **place),
        ]
        await kit.apply(*nodes)
        found = await kit.store.graph("r").nodes([node.id for node in nodes])
        assert found == nodes
        for mine, given in zip(found, nodes, strict=True):
            assert all(getattr(mine, f.name) == getattr(given, f.name) for f in fields(given))

    async def test_a_node_without_a_time_gets_the_clock(self, kit):
        """Its metadata and the node itself say the same time."""
        await kit.apply(replace(FACT, created_at=None))
        graph = kit.store.graph("r")
        (node,) = await graph.nodes(["fact"])
        assert node.created_at == kit.clock.now()
        assert (await graph.metadata(["fact"]))["fact"].created_at == kit.clock.now()

    async def test_a_changeset_is_applied_once(self, kit):
        """Met again it writes nothing, and says what it said the first time."""
        first = await kit.apply(FACT)
        await kit.apply(TAG, id="between")
        again = await kit.apply(replace(FACT, id="other"), id="c")
        assert again == replace(first, again=True)
        assert await kit.store.graph("r").revision() == 2
        assert await kit.store.graph("r").nodes(["other"]) == []

    async def test_a_stale_write_writes_nothing(self, kit):
        """A write reconciled against an older revision has to be reconciled again."""
        await kit.apply(FACT)
        with pytest.raises(StaleRevision):
            await kit.apply(TAG, id="stale", expected_revision=0)
        assert await kit.store.graph("r").nodes(["tag"]) == []
        assert (await kit.apply(TAG, id="stale", expected_revision=1)).revision == 2

    async def test_in_its_turn_a_changeset_meets_no_other(self, kit):
        """Until it is written, its turn is ended, or some seconds are over."""
        await kit.apply(FACT)
        graph = kit.store.graph("r")
        assert [await graph.take_turn(id) for id in ("a", "a", "b")] == [True, True, False]
        with pytest.raises(StaleRevision):
            await kit.apply(TAG, id="b")
        assert await graph.revision() == 1
        await kit.apply(TAG, id="a")
        await kit.apply(replace(FACT, id="second"), id="b")
        assert await graph.take_turn("c")
        await graph.end_turn("a")
        assert not await graph.take_turn("d")
        await graph.end_turn("c")
        assert await graph.take_turn("d")
        kit.clock.advance(5)
        await kit.apply(replace(FACT, id="third"), id="e")
        assert await graph.take_turn("f")
        assert await graph.delete(["third"]) == ("third",)

    async def test_an_empty_write_leaves_the_revision(self, kit):
        """A changeset without content is remembered all the same."""
        first = await kit.apply(id="empty")
        again = await kit.apply(id="empty")
        assert (first.revision, first.node_ids, first.again) == (0, (), False)
        assert again.again

    async def test_an_edge_to_nowhere_refuses_everything(self, kit):
        """Nothing is stored, the revision stays, the id is not used up."""
        edge = Edge("tag", "nowhere", EdgeKind.MEMBERSHIP)
        with pytest.raises(CommitFailed):
            await kit.apply(FACT, TAG, edges=[MEMBERSHIP, edge])
        graph = kit.store.graph("r")
        assert (await graph.revision(), await graph.nodes()) == (0, [])
        assert not (await kit.apply(FACT, TAG, edges=[MEMBERSHIP])).again

    async def test_a_used_node_id_refuses_everything(self, kit):
        """An insert of [new, duplicate] writes neither."""
        await kit.apply(FACT)
        with pytest.raises(CommitFailed):
            await kit.apply(TAG, replace(FACT, proposition="x"), id="d")
        graph = kit.store.graph("r")
        assert await graph.nodes() == [FACT]
        assert await graph.revision() == 1

    async def test_an_edge_is_there_once(self, kit):
        """An edge that exists is skipped and not counted."""
        await kit.apply(FACT, TAG, edges=[MEMBERSHIP])
        other = Edge("tag2", "fact", EdgeKind.MEMBERSHIP)
        second = Tag("living", id="tag2", created_at=NOON)
        applied = await kit.apply(second, id="d", edges=[MEMBERSHIP, other])
        assert applied.edge_count == 1
        assert await kit.store.graph("r").edges(["fact"]) == [MEMBERSHIP, other]

    async def test_metadata_is_added_never_overwritten(self, kit):
        """Differences add up; creation time and accesses stay."""
        delta = MetadataDelta(cumulative_reward=0.5, reward_count=1, support_count=1)
        await kit.apply(FACT, metadata={"fact": delta})
        await kit.apply(id="d", metadata={"fact": delta + delta})
        graph = kit.store.graph("r")
        assert (await graph.metadata(["fact", "nobody"])) == {
            "fact": NodeMetadata(
                created_at=NOON, cumulative_reward=1.5, reward_count=3, support_count=3
            )
        }

    async def test_rounding_leaves_no_reward_below_nothing(self, kit):
        """0.3 - 0.1 - 0.2 is a little less than 0 as floats are added."""
        await kit.apply(FACT, metadata={"fact": MetadataDelta(cumulative_reward=0.3)})
        for number, taken in enumerate((0.1, 0.2)):
            delta = MetadataDelta(cumulative_reward=-taken)
            await kit.apply(id=f"less {number}", metadata={"fact": delta})
        counts = (await kit.store.graph("r").metadata(["fact"]))["fact"]
        assert counts.cumulative_reward == 0.0

    async def test_stored_nodes_change_field_by_field(self, kit):
        """A change keeps the id and all other fields; lookup keys follow the text."""
        intent = Intent("book a flight", id="i", created_at=NOON)
        await kit.apply(FACT, intent)
        closed = NodeChange("fact", {"valid_to": NOON, "superseded_by": "i", "confidence": 0.9})
        reworded = NodeChange("i", {"description": "book travel"})
        await kit.apply(id="d", changes=[closed, reworded])
        graph = kit.store.graph("r")
        fact = replace(FACT, valid_to=NOON, superseded_by="i", confidence=0.9)
        after = replace(intent, description="book travel")
        assert await graph.nodes(["fact", "i"]) == [fact, after]
        assert await graph.nodes(keys=lookup_keys(intent), types=["intent"]) == []
        assert await graph.nodes(keys=lookup_keys(after), types=["intent"]) == [after]

    async def test_a_change_to_nowhere_refuses_everything(self, kit):
        """An unknown node cannot be changed, and what came with it is not stored."""
        with pytest.raises(CommitFailed):
            await kit.apply(FACT, changes=[NodeChange("nobody", {"reward": 1.0})])
        assert await kit.store.graph("r").nodes() == []

    # ── Vectors ──────────────────────────────────────────────────────────────────────

    async def test_vectors_are_written_with_their_nodes(self, kit):
        """A node's vector comes back with it, also after a change of it."""
        old, new = unit_vector(1, 2, 3, 4), unit_vector(4, 3, 2, 1)
        await kit.apply(replace(FACT, vector=old), TAG, space=SPACE)
        (before, bare) = await kit.store.graph("r").nodes(["fact", "tag"])
        await kit.apply(id="d", changes=[NodeChange("fact", {"vector": new})], space=SPACE)
        (after,) = await kit.store.graph("r").nodes(["fact"])
        assert np.array_equal(before.vector, old)  # type: ignore[arg-type]
        assert bare.vector is None
        assert np.array_equal(after.vector, new)  # type: ignore[arg-type]
        assert await kit.store.feed("r").space() == SPACE

    async def test_a_vector_of_another_space_refuses_everything(self, kit):
        """Another name or another length is a mismatch, and nothing is written."""
        fact = replace(FACT, vector=unit_vector(1, 0, 0, 0))
        tag = replace(TAG, vector=unit_vector(1, 0, 0))
        await kit.apply(fact, space=SPACE)
        other = replace(TAG, vector=unit_vector(1, 0, 0, 0))
        with pytest.raises(EmbeddingSpaceMismatch):
            await kit.apply(other, id="d", space=EmbeddingSpace("other", 4))
        with pytest.raises(EmbeddingSpaceMismatch):
            await kit.apply(tag, id="d")
        assert await kit.store.graph("r").nodes() == [fact]

    # ── Settling a session ───────────────────────────────────────────────────────────

    async def test_a_commit_settles_its_session(self, kit):
        """The session is idle and its steps committed in the transaction of the graph."""
        await _ready(kit)
        await kit.apply(FACT, settlement=kit.settlement(0, 1, ends=True))
        journal = await kit.load()
        assert (journal.record.state, journal.changeset) == (SessionState.IDLE, None)
        assert await kit.store.graph("r").nodes(["fact"]) == [FACT]

    async def test_a_refused_commit_leaves_its_session(self, kit):
        """After a failure the session is ready with its changeset, and can try again."""
        await _ready(kit)
        settlement = kit.settlement(0, 1, ends=True)
        with pytest.raises(CommitFailed):
            await kit.apply(FACT, FACT, settlement=settlement)
        journal = await kit.load()
        assert (journal.record.state, journal.committed) == (SessionState.READY, frozenset())
        assert journal.changeset == Changeset(id="c")
        await kit.apply(FACT, settlement=settlement)
        assert (await kit.load()).record.state is SessionState.IDLE

    async def test_a_stale_commit_leaves_its_session(self, kit):
        """A write that has to be reconciled again has settled nothing."""
        await _ready(kit)
        with pytest.raises(StaleRevision):
            await kit.apply(FACT, expected_revision=7, settlement=kit.settlement(0, 1, ends=True))
        assert (await kit.load()).record.state is SessionState.READY

    async def test_a_part_of_an_episode_is_settled_alone(self, kit):
        """Auto-commit: the session stays, some steps are committed, receipts add up."""
        await kit.start()
        await kit.append_all([("a", ""), ("b", ""), ("c", "")])
        for key, step in (("t-0:0", 0), ("t-1:1", 1)):
            part = StagedTrajectory(
                key=key, trajectory_id=key[:3], steps=(step,), changeset=Changeset()
            )
            await kit.record(TrajectoryStaged(staged=part, **kit.place()))
        await kit.apply(FACT, settlement=kit.settlement(0, staged=["t-0:0"]))
        await kit.apply(TAG, id="d", settlement=kit.settlement(2))
        journal = await kit.load()
        assert journal.record.state is SessionState.COLLECTING
        assert (set(journal.committed), set(journal.staged)) == ({0, 2}, {"t-1:1"})
        assert journal.receipt_nodes == ("fact", "tag")

    async def test_committing_again_leaves_the_next_episode(self, kit):
        """A commit whose answer was lost is repeated without touching what came after."""
        await _ready(kit)
        settlement = kit.settlement(0, 1, ends=True)
        await kit.apply(FACT, settlement=settlement)
        await kit.begin("s-2")
        again = await kit.apply(FACT, settlement=settlement)
        assert again.again
        assert (await kit.load()).record.state is SessionState.COLLECTING

    async def test_a_lost_session_cannot_be_committed(self, kit):
        """A worker that lost its ownership writes nothing."""
        await _ready(kit)
        _, stranger = await kit.another()
        with pytest.raises(Conflict):
            await kit.apply(FACT, settlement=kit.settlement(0, ends=True), owner=stranger)
        assert await kit.store.graph("r").nodes() == []
        assert (await kit.load()).record.state is SessionState.READY

    async def test_a_discarded_episode_cannot_be_committed(self, kit):
        """What was given up does not come back."""
        await _ready(kit)
        await kit.discard()
        with pytest.raises(Conflict):
            await kit.apply(FACT, settlement=kit.settlement(0, 1, ends=True))
        assert await kit.store.graph("r").nodes() == []

    # ── Deleting ─────────────────────────────────────────────────────────────────────

    async def test_deleting_takes_the_edges_along(self, kit):
        """Unknown ids are skipped, neighbours stay without the edge."""
        await kit.apply(replace(FACT, vector=unit_vector(1, 0, 0, 0)), TAG, edges=[MEMBERSHIP])
        graph = kit.store.graph("r")
        assert await graph.delete(["fact", "nobody", "fact"]) == ("fact",)
        await kit.reopen()
        graph = kit.store.graph("r")
        assert await graph.nodes() == [TAG]
        assert (await graph.edges(["tag"]), await graph.metadata(["fact"])) == ([], {})
        assert await graph.nodes(keys=lookup_keys(FACT)) == []
        assert (await kit.store.feed("r").counts())["vectors"] == 0
        assert await graph.revision() == 2

    async def test_deleting_nothing_is_no_revision(self, kit):
        """Ids that do not exist change nothing."""
        await kit.apply(FACT)
        assert await kit.store.graph("r").delete(["nobody"]) == ()
        assert await kit.store.graph("r").revision() == 1

    # ── Reading ──────────────────────────────────────────────────────────────────────

    async def test_nodes_come_in_the_order_asked_for(self, kit):
        """By id in the order of the ids, once each; by type the oldest first."""
        facts = [
            Semantic(f"fact {i}", id=f"f{i}", created_at=NOON - timedelta(seconds=i))
            for i in range(3)
        ]
        await kit.apply(*facts, TAG)
        graph = kit.store.graph("r")
        by_id = await graph.nodes(["f2", "nobody", "tag", "f0", "f2"])
        assert [node.id for node in by_id] == ["f2", "tag", "f0"]
        assert [n.id for n in await graph.nodes(types=["semantic"])] == ["f2", "f1", "f0"]
        assert [n.id for n in await graph.nodes(types=["tag", "intent"])] == ["tag"]
        assert len(await graph.nodes()) == 4

    async def test_nodes_are_found_by_their_lookup_keys(self, kit):
        """Other spellings of a label find the tag; keys of other types do not."""
        await kit.apply(TAG, FACT, Tag("Lisbon", created_at=NOON))
        graph = kit.store.graph("r")
        keys = [*lookup_keys(Tag("  PORTO ")), "unknown"]
        assert await graph.nodes(types=["tag"], keys=keys) == [TAG]
        assert await graph.nodes(types=["semantic"], keys=keys) == []
        assert await graph.nodes(types=["tag"], keys=[]) == []

    async def test_of_each_key_the_last_are_found(self, kit):
        """A bound counts by key: a long history of one value does not hide another's."""
        homes = [
            Semantic(f"Ana lives in city{i}", id=f"h{i}", created_at=NOON + timedelta(seconds=i))
            for i in range(5)
        ]
        await kit.apply(*homes, TAG)
        slot, *_ = sorted(set(lookup_keys(homes[0])) & set(lookup_keys(homes[1])))
        keys = [slot, *lookup_keys(TAG)]
        found = await kit.store.graph("r").nodes(keys=keys, newest=2)
        assert {node.id for node in found} == {"h3", "h4", "tag"}
        assert [node.id for node in found if node.id != "tag"] == ["h3", "h4"]

    async def test_edges_are_walked_both_ways(self, kit):
        """Each edge with an end among the ids comes once; a kind narrows."""
        step = Episodic("o", id="step", created_at=NOON)
        provenance = Edge("fact", "step", EdgeKind.PROVENANCE)
        await kit.apply(FACT, TAG, step, edges=[MEMBERSHIP, provenance])
        graph = kit.store.graph("r")
        assert set(await graph.edges(["fact"])) == {MEMBERSHIP, provenance}
        assert len(await graph.edges(["fact", "tag", "step"])) == 2
        assert await graph.edges(["step"]) == [provenance]
        assert await graph.edges(["fact"], kind=EdgeKind.MEMBERSHIP) == [MEMBERSHIP]

    async def test_accesses_are_counted_without_a_revision(self, kit):
        """Counts add up, the last access is the latest, unknown ids are skipped."""
        await kit.apply(FACT)
        graph = kit.store.graph("r")
        later = NOON + timedelta(hours=1)
        await graph.touch({"fact": 2, "nobody": 1}, later)
        await graph.touch({"fact": 1}, NOON)
        metadata = (await graph.metadata(["fact"]))["fact"]
        assert (metadata.access_count, metadata.last_accessed_at) == (3, later)
        assert await graph.revision() == 1

    async def test_repositories_share_nothing(self, kit):
        """Equal ids live side by side, whatever the repositories are called."""
        strange = "a%' --/"
        await kit.apply(FACT, repo="a")
        await kit.apply(replace(FACT, proposition="other"), TAG, edges=[MEMBERSHIP], repo=strange)
        a, other = kit.store.graph("a"), kit.store.graph(strange)
        assert await a.nodes() == [FACT]
        assert (await a.nodes(["tag"]), await a.edges(["fact"])) == ([], [])
        assert await a.delete(["tag"]) == ()
        await a.delete(["fact"])
        assert len(await other.nodes()) == 2
        assert (await a.revision(), await other.revision()) == (2, 1)

    async def test_another_service_sees_a_commit_at_its_next_call(self, kit):
        """What one wrote the other reads, and both cannot write the same revision."""
        store, owner = await kit.another()
        await kit.apply(FACT)
        graph = store.graph("r")
        assert await graph.nodes(["fact"]) == [FACT]
        with pytest.raises(StaleRevision):
            await kit.apply(TAG, id="d", owner=owner, expected_revision=0)


async def _ready(kit: Kit) -> None:
    """Session ``"s"`` with two steps and the staged changeset ``"c"``."""
    await kit.start()
    await kit.append_all([("a", ""), ("b", "")])
    await kit.close()
    staged = ChangesetStaged(changeset=Changeset(id="c"), steps=(0, 1), **kit.place())
    await kit.record(staged)

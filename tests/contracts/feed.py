"""The contract of the feed that the indexes follow."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from contracts.talk import call, result, said
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.errors import EmbeddingSpaceMismatch
from mnemo.protocols import EmbeddingSpace, FeedCursor
from mnemo.values.changeset import NodeChange
from mnemo.values.graph import (
    Edge,
    EdgeKind,
    Episodic,
    Intent,
    Node,
    Procedural,
    Semantic,
    Source,
    Tag,
)
from mnemo.values.journal import StepsAnnotated
from mnemo.values.messages import StoredMessage
from mnemo.values.steps import Annotation, Step

FACT = Semantic("Ana lives in Porto", id="fact", created_at=NOON)
TAG = Tag("Porto", id="tag", created_at=NOON)
MEMBERSHIP = Edge("tag", "fact", EdgeKind.MEMBERSHIP)
V = unit_vector(1, 2, 3, 4)


async def store(kit: Kit, *messages: StoredMessage) -> None:
    """Store *messages* in their threads."""
    await kit.store.transcript("r").writing(lambda tx: tx.add(messages))


class DocumentFeedContract(StoreContract):
    """A reader that follows the cursor sees every change, and none twice without need."""

    # ── Following ────────────────────────────────────────────────────────────────────

    async def test_an_empty_repository_has_nothing_to_say(self, kit):
        """The first read of an empty repository is empty and final."""
        changes = await kit.changes()
        assert (changes.steps, changes.nodes, changes.removed) == ((), (), ())
        assert (changes.revision, changes.more, dict(changes.vectors)) == (0, False, {})

    async def test_a_step_is_in_the_feed_once_it_is_durable(self, kit):
        """Steps come before any extraction, ascending, and not again."""
        await kit.start()
        first = await kit.append("one")
        before = await kit.changes()
        second = await kit.append("two")
        after = await kit.changes(before.cursor)
        assert (before.steps, after.steps) == ((first,), (second,))
        assert (await kit.changes(after.cursor)).steps == ()

    async def test_steps_come_without_their_annotations(self, kit):
        """What steps are found by does not hang on annotation; looked up, they have it."""
        await kit.start()
        step = await kit.append("one", "two", key="k")
        found = Annotation(index=0, state=None, subgoal="go", reward=None, trajectory_id="t")
        await kit.record(StepsAnnotated(annotations=(found,), **kit.place()))
        assert (await kit.changes()).steps == (step,)
        looked_up = await kit.store.feed("r").steps([step.node_id])
        assert looked_up[step.node_id].annotation == found

    async def test_a_message_is_in_the_feed_if_it_speaks(self, kit):
        """Once stored, under an id of its own; calls, results and prompts are not."""
        await store(kit, said(0, "hello"), call(1, "c"), result(2, "c"))
        await store(kit, said(3, "obey", role="system"), said(4, "hi", role="assistant"))
        changes = await kit.changes()
        assert [message.id for message in changes.messages.values()] == ["m0", "m4"]
        assert (await kit.changes(changes.cursor)).messages == {}
        pages = await kit.changes(limit=1)
        assert ([*pages.messages.values()], pages.more) == ([said(0, "hello")], True)
        found = await kit.store.feed("r").messages([*changes.messages, "message-999", "fact"])
        assert {id: message for id, (message, _) in found.items()} == changes.messages
        assert (await kit.changes(repo="other")).messages == {}

    async def test_the_two_before_a_message_are_found_in_its_thread(self, kit):
        """The latest first; only what speaks, and of one thread, whatever came in between."""
        await store(kit, said(0, "one"), said(0, "other", thread="u"), said(1, "two"))
        await store(kit, call(2, "c"), result(3, "c"), said(4, "three"), said(5, "four"))
        ids = {m.text: id for id, m in (await kit.changes()).messages.items()}
        assert await kit.store.feed("r").before([ids["two"], ids["three"], ids["other"]]) == {
            ids["two"]: [ids["one"]],
            ids["three"]: [],
            ids["other"]: [],
        }
        assert await kit.store.feed("r").before([ids["four"]]) == {ids["four"]: [ids["three"]]}
        assert await kit.store.feed("r").before(["fact"]) == {}

    async def test_a_step_names_the_message_that_it_repeats(self, kit):
        """Of a message that is stored and speaks; of any other the step stands for itself."""
        await store(kit, said(0, "hello"), said(1, "obey", role="system"))
        await kit.start()
        made = [
            await kit.append(f"o{seq}", thread_id="t", message_id=f"m{seq}") for seq in range(3)
        ]
        changes = await kit.changes()
        (document,) = changes.messages
        assert changes.repeats == {made[0].node_id: document}
        assert changes.steps == tuple(made)

    async def test_an_erased_message_leaves_with_its_vectors(self, kit):
        """Its document is removed, its vectors are gone, and no new ones are kept."""
        await store(kit, said(0), said(1))
        before = await kit.changes()
        first, second = before.messages
        keys = [f"{id}/observation" for id in (first, second)]
        feed = kit.store.feed("r")
        await feed.save_vectors(SPACE, dict.fromkeys(keys, V))
        assert (await kit.changes()).vectors.keys() == set(keys)
        await kit.store.transcript("r").writing(lambda tx: tx.erase("t", [0]))
        after = await kit.changes(before.cursor)
        assert after.removed == (first,)
        await feed.save_vectors(SPACE, dict.fromkeys(keys, V))
        assert (await kit.changes()).vectors.keys() == {keys[1]}
        problems = (await kit.store.check()).problems
        assert not [problem for problem in problems if "vectors" in problem]

    async def test_nodes_come_without_raw_steps(self, kit):
        """Episodic and source nodes are found as steps; all others are in the feed."""
        await kit.apply(FACT, TAG, Episodic("o", created_at=NOON), Source("o", created_at=NOON))
        changes = await kit.changes()
        assert changes.nodes == (FACT, TAG)
        assert (changes.revision, changes.cursor.revision) == (1, 1)
        assert (await kit.changes(changes.cursor)).nodes == ()

    async def test_a_fact_comes_with_tags_and_the_steps_behind_it(self, kit):
        """Details are the labels of its tags, its supporting steps, and the latest's time."""
        late = NOON.astimezone().replace(microsecond=5) + timedelta(days=1)
        steps = [
            Episodic("o", id=f"e{i}", at=at, created_at=NOON) for i, at in ((0, NOON), (1, late))
        ]
        support = [Edge("fact", step.id, EdgeKind.PROVENANCE) for step in steps]
        bare = Semantic("no evidence", id="bare", created_at=NOON)
        await kit.apply(FACT, TAG, bare, *steps, edges=[MEMBERSHIP, *support])
        details = (await kit.changes()).details
        behind = ("e0", "e1")
        assert details["fact"] == {"tags": ("Porto",), "latest_at": late, "steps": behind}
        assert details["bare"] == {"tags": (), "latest_at": None, "steps": ()}

    async def test_an_instruction_comes_with_its_intents(self, kit):
        """Details are the descriptions, also after the intent was worded anew."""
        do = Procedural("book it", id="do", created_at=NOON)
        intent = Intent("travel", id="i", created_at=NOON)
        await kit.apply(do, intent, edges=[Edge("i", "do", EdgeKind.HIERARCHICAL)])
        before = await kit.changes()
        await kit.apply(id="d", changes=[NodeChange("i", {"description": "travel by train"})])
        after = await kit.changes(before.cursor)
        assert before.details["do"] == {"intents": ("travel",), "steps": ()}
        assert {node.id for node in after.nodes} == {"do", "i"}
        assert after.details["do"] == {"intents": ("travel by train",), "steps": ()}

    async def test_a_new_edge_shows_its_fact_again(self, kit):
        """A fact with other tags or evidence has changed, though its own fields have not."""
        step = Episodic("o", id="e", at=NOON, created_at=NOON)
        await kit.apply(FACT, TAG, step)
        before = await kit.changes()
        await kit.apply(id="d", edges=[MEMBERSHIP])
        tagged = await kit.changes(before.cursor)
        await kit.apply(id="e", edges=[Edge("fact", "e", EdgeKind.PROVENANCE)])
        supported = await kit.changes(tagged.cursor)
        assert (tagged.nodes, tagged.details["fact"]["tags"]) == ((FACT,), ("Porto",))
        assert supported.details["fact"]["latest_at"] == NOON
        await kit.apply(id="f", dropped=(Edge("fact", "e", EdgeKind.PROVENANCE),))
        assert (await kit.changes(supported.cursor)).details["fact"]["latest_at"] is None

    async def test_a_changed_node_comes_again(self, kit):
        """A fact that ceased to hold is in the feed as it is now."""
        await kit.apply(FACT, TAG)
        before = await kit.changes()
        await kit.apply(id="d", changes=[NodeChange("fact", {"valid_to": NOON})])
        after = await kit.changes(before.cursor)
        assert after.nodes == (replace(FACT, valid_to=NOON),)

    async def test_deleted_nodes_are_removed(self, kit):
        """A reader that had the node is told; facts that lost a tag come again."""
        await kit.apply(FACT, TAG, edges=[MEMBERSHIP])
        before = await kit.changes()
        await kit.store.graph("r").delete(["tag"])
        after = await kit.changes(before.cursor)
        assert (after.removed, after.nodes) == (("tag",), (FACT,))
        assert after.details["fact"]["tags"] == ()
        assert (await kit.changes(after.cursor)).removed == ()

    async def test_a_discard_takes_its_steps_from_recall(self, kit):
        """Uncommitted steps leave the feed, for old readers and for new ones."""
        await kit.start()
        step = await kit.append("secret")
        before = await kit.changes()
        await kit.close()
        await kit.discard()
        assert (await kit.changes(before.cursor)).removed == (step.node_id,)
        anew = await kit.changes()
        assert (anew.steps, anew.removed) == ((), ())

    async def test_what_was_committed_before_a_discard_stays(self, kit):
        """Auto-commit's steps are in the graph, so they are not taken back."""
        await kit.start()
        kept = await kit.append("kept")
        gone = await kit.append("gone")
        await kit.apply(
            Episodic("kept", id=kept.node_id, created_at=NOON), settlement=kit.settlement(0)
        )
        before = await kit.changes()
        await kit.close()
        await kit.discard()
        assert (await kit.changes(before.cursor)).removed == (gone.node_id,)
        assert [step.node_id for step in (await kit.changes()).steps] == [kept.node_id]

    async def test_a_deleted_raw_step_leaves_recall(self, kit):
        """Deleting an episodic node takes its step from the feed as well."""
        await kit.start()
        step = await kit.append("o")
        await kit.apply(
            Episodic("o", id=step.node_id, created_at=NOON), settlement=kit.settlement(0)
        )
        before = await kit.changes()
        await kit.store.graph("r").delete([step.node_id])
        assert (await kit.changes(before.cursor)).removed == (step.node_id,)
        assert (await kit.changes()).steps == ()

    async def test_reading_in_pieces_loses_nothing(self, kit):
        """Whatever the limit, following the cursor gives every step, node and vector once."""
        await kit.start()
        await kit.append_all([(f"step {i}", "") for i in range(7)])
        for n in range(4):
            nodes = [Tag(f"{n}.{i}", created_at=NOON, vector=V) for i in range(3)]
            await kit.apply(*nodes, id=f"c{n}", space=SPACE)
        whole = await kit.changes()
        cursor, more = FeedCursor(), True
        steps: list[Step] = []
        nodes_seen: list[Node] = []
        vectors: list[str] = []
        while more:
            part = await kit.changes(cursor, limit=2)
            steps += part.steps
            nodes_seen += part.nodes
            vectors += part.vectors
            cursor, more = part.cursor, part.more
        assert tuple(steps) == whole.steps
        assert tuple(nodes_seen) == whole.nodes
        assert (sorted(vectors), len(vectors)) == (sorted(whole.vectors), 12)
        assert cursor == whole.cursor

    # ── Vectors ──────────────────────────────────────────────────────────────────────

    async def test_vectors_of_steps_and_nodes_are_kept(self, kit):
        """Saved under their keys they come with the feed, and again when saved again."""
        await kit.start()
        step = await kit.append("o", "a")
        await kit.apply(FACT)
        before = await kit.changes()
        keys = [f"{step.node_id}/observation", f"{step.node_id}/action", "fact"]
        feed = kit.store.feed("r")
        await feed.save_vectors(SPACE, dict.fromkeys(keys, V))
        saved = await kit.changes(before.cursor)
        other = unit_vector(4, 3, 2, 1)
        await feed.save_vectors(SPACE, {"fact": other})
        again = await kit.changes(saved.cursor)
        assert sorted(saved.vectors) == sorted(keys)
        assert all(np.array_equal(vector, V) for vector in saved.vectors.values())
        assert list(again.vectors) == ["fact"]
        assert np.array_equal(again.vectors["fact"], other)
        assert (await feed.counts())["vectors"] == 3

    async def test_further_passages_are_kept_while_their_document_is_there(self, kit):
        """Of steps and nodes, before or after the first; a new text of a node drops them."""
        await kit.start()
        step = await kit.append("o")
        await kit.apply(FACT, Tag("x", id="odd#1", created_at=NOON))
        feed, document = kit.store.feed("r"), f"{step.node_id}/observation"
        keys = [f"{document}#7", document, "fact#1", "fact", "odd#1", "odd#1#1"]
        await feed.save_vectors(SPACE, dict.fromkeys([*keys, "nobody#1"], V))
        assert sorted((await kit.changes()).vectors) == sorted(keys)
        assert (await kit.store.check()).problems == ()
        changed = NodeChange("fact", {"proposition": "Ana keeps hens", "vector": V})
        await kit.apply(changes=[changed], id="c-2", space=SPACE)
        assert sorted((await kit.changes()).vectors) == sorted({*keys} - {"fact#1"})
        await kit.close()
        await kit.discard()
        assert await kit.store.graph("r").delete(["odd#1"]) == ("odd#1",)
        assert (await feed.counts())["vectors"] == 1

    async def test_vectors_of_what_was_said_anew_since_are_skipped(self, kit):
        """Also of further passages; those of nodes that were left as they were are kept."""
        await kit.apply(FACT, Tag("x", id="tag", created_at=NOON))
        feed, as_of = kit.store.feed("r"), (await kit.changes()).revision
        changed = NodeChange("fact", {"proposition": "Ana keeps hens", "vector": None})
        await kit.apply(changes=[changed], id="c-2")
        keys = ["fact", "fact#1", "tag"]
        await feed.save_vectors(SPACE, dict.fromkeys(keys, V), as_of=as_of)
        assert [*(await kit.changes()).vectors] == ["tag"]
        await feed.save_vectors(SPACE, dict.fromkeys(keys, V), as_of=as_of + 1)
        assert sorted((await kit.changes()).vectors) == sorted(keys)

    async def test_vectors_of_what_is_gone_are_skipped(self, kit):
        """A vector that comes too late for its step or node is not kept, nor an error."""
        await kit.start()
        step = await kit.append("o")
        await kit.close()
        await kit.discard()
        feed = kit.store.feed("r")
        await feed.save_vectors(SPACE, {f"{step.node_id}/observation": V, "nobody": V})
        assert (await kit.changes()).vectors == {}
        assert await feed.space() is None

    async def test_vectors_bring_no_deleted_repository_back(self, kit):
        """Neither does the deletion of nodes that are gone with it."""
        await kit.apply(FACT)
        await kit.store.delete_repository("r")
        await kit.store.feed("r").save_vectors(SPACE, {"fact": V})
        assert await kit.store.graph("r").delete(["fact"]) == ()
        assert await kit.store.repositories() == []

    async def test_a_discard_drops_its_vectors(self, kit):
        """Nothing stays that a scan could still find."""
        await kit.start()
        step = await kit.append("o")
        feed = kit.store.feed("r")
        await feed.save_vectors(SPACE, {f"{step.node_id}/observation": V})
        await kit.close()
        await kit.discard()
        assert (await feed.counts())["vectors"] == 0

    async def test_the_first_vector_stamps_the_space(self, kit):
        """Another space is refused from then on, also of equal dimensions."""
        await kit.apply(FACT)
        feed = kit.store.feed("r")
        assert await feed.space() is None
        await feed.save_vectors(SPACE, {"fact": V})
        assert await feed.space() == SPACE
        for other in (EmbeddingSpace("other", 4), EmbeddingSpace(SPACE.name, 3)):
            with pytest.raises(EmbeddingSpaceMismatch) as refused:
                await feed.save_vectors(
                    other, {"fact": unit_vector(*range(1, other.dimensions + 1))}
                )
            assert SPACE.name in str(refused.value)
        assert np.array_equal((await kit.changes()).vectors["fact"], V)

    # ── Looking up ───────────────────────────────────────────────────────────────────

    async def test_steps_are_found_by_their_node(self, kit):
        """Annotated or not, committed or not; unknown ids are absent."""
        await kit.start()
        step = await kit.append("o", "a")
        found = Annotation(index=0, state=None, subgoal="why", reward=None, trajectory_id="t")
        await kit.record(StepsAnnotated(annotations=(found,), **kit.place()))
        steps = await kit.store.feed("r").steps([step.node_id, "nobody"])
        assert steps == {step.node_id: step.annotated(found)}
        assert await kit.store.feed("other").steps([step.node_id]) == {}

    async def test_goals_are_found_by_their_episode(self, kit):
        """Those of ended episodes too; unknown ids are absent."""
        await kit.start(goal="first")
        await kit.close()
        await kit.discard()
        await kit.begin("s-2", goal="second")
        goals = await kit.store.feed("r").goals(["s-1", "s-2", "nobody"])
        assert goals == {"s-1": "first", "s-2": "second"}
        assert await kit.store.feed("other").goals(["s-1"]) == {}

    async def test_everything_is_counted(self, kit):
        """Steps, vectors, nodes by type and edges by kind, of this repository only."""
        await kit.start()
        await kit.append("o")
        await kit.apply(FACT, TAG, edges=[MEMBERSHIP])
        await kit.apply(Tag("x", created_at=NOON), repo="other")
        assert await kit.store.feed("r").counts() == {
            "steps": 1,
            "messages": 0,
            "messages_in_sessions": 0,
            "checkpoints": 0,
            "items": 0,
            "vectors": 0,
            "nodes:semantic": 1,
            "nodes:tag": 1,
            "edges:membership": 1,
        }

    async def test_a_healthy_store_has_no_problems(self, kit):
        """The check of a store that did a bit of everything finds nothing."""
        await kit.start()
        step = await kit.append("o", "a")
        await kit.apply(
            Episodic("o", id=step.node_id, created_at=NOON),
            FACT,
            edges=[Edge("fact", step.node_id, EdgeKind.PROVENANCE)],
            settlement=kit.settlement(0),
        )
        keys = [f"{step.node_id}/observation", "fact"]
        await kit.store.feed("r").save_vectors(SPACE, dict.fromkeys(keys, V))
        await kit.append("more")
        await kit.close()
        await kit.discard()
        report = await kit.store.check()
        assert report.problems == ()
        assert report.counts["steps"] == 2

"""The contract of what is rarely done to a repository as a whole: erasing, moving its vectors."""

from dataclasses import replace
from datetime import timedelta

import pytest
from contracts.records import found
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.errors import Conflict, NotFound
from mnemo.values.changeset import NodeChange
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.erasure import Selection
from mnemo.values.graph import Edge, EdgeKind, Episodic, Semantic
from mnemo.values.steps import episodic_node

OTHER = EmbeddingSpace("other-space", 2)
ALL = Selection(session_id="s")


class OverhaulContract(StoreContract):
    """Erasing is complete and final; a move is one switch."""

    async def _filled(self, kit: Kit) -> None:
        """A committed session of two steps, an hour apart, with a fact on each and on both."""
        await kit.start()
        first = await kit.append("Ana keeps bees", node_id="episodic-1")
        at = NOON + timedelta(hours=1)
        second = await kit.append("Ana keeps bees in Porto", node_id="episodic-2", at=at)
        await kit.close()
        steps = [replace(episodic_node(step), created_at=NOON) for step in (first, second)]
        vector = unit_vector(1, 2, 3, 4)
        facts = [
            Semantic(text, id=id, created_at=NOON, vector=vector)
            for id, text in (("both", "Ana keeps bees"), ("late", "Ana lives in Porto"))
        ]
        pairs = (("both", "episodic-1"), ("both", "episodic-2"), ("late", "episodic-2"))
        edges = [Edge(fact, step, EdgeKind.PROVENANCE) for fact, step in pairs]
        settlement = kit.settlement(0, 1, ends=True)
        await kit.apply(*steps, *facts, edges=edges, settlement=settlement, space=SPACE)
        keys = ("episodic-1/observation", "episodic-2/observation", "episodic-2/observation#1")
        await kit.store.feed("r").save_vectors(SPACE, dict.fromkeys(keys, vector))

    async def _ids(self, kit: Kit) -> set[str]:
        return {node.id for node in await kit.store.graph("r").nodes()}

    async def test_a_session_goes_with_all_that_came_of_it(self, kit):
        """Counts, ids, journal, graph, vectors and search agree that it is gone."""
        await self._filled(kit)
        overhaul = kit.store.overhaul("r")
        assert await overhaul.touched(ALL) == ("s",)
        erased = await overhaul.erase(ALL)
        report = erased.report
        assert (report.steps, report.sessions, report.nodes, report.edges) == (2, 1, 4, 3)
        assert (report.vectors, report.fulltext_rows) == (5, 2)
        assert report.scrubbed or await kit.store.engine.scrub(at_once=True)
        assert set(erased.node_ids) == {"episodic-1", "episodic-2", "both", "late"}
        assert await kit.store.sessions("r").load("s") is None
        assert await self._ids(kit) == set()
        assert await found(kit.store, ["bees"]) == []
        assert (await overhaul.erase(ALL)).report.is_empty
        assert (await kit.store.check()).problems == ()

    async def test_what_remains_is_told_by_the_feed(self, kit):
        """A reader hears what is gone, and sees the shared fact again."""
        await self._filled(kit)
        cursor = (await kit.changes()).cursor
        end = NOON + timedelta(minutes=30)
        erased = await kit.store.overhaul("r").erase(Selection(before=end))
        assert erased.report.facts_changed == 1
        assert await self._ids(kit) == {"episodic-2", "both", "late"}
        changes = await kit.changes(cursor)
        assert "episodic-1" in changes.removed
        assert [node.id for node in changes.nodes] == ["both"]

    async def test_changesets_of_the_forgotten_go_and_stay_refused(self, kit):
        """Applied again it is refused for its steps; others are known to have been applied."""
        await self._filled(kit)
        await kit.apply(Semantic("Ben is a cook", id="by hand", created_at=NOON), id="by hand")
        await kit.store.overhaul("r").erase(ALL)
        with pytest.raises(Conflict, match="forgotten"):
            await kit.apply(Episodic("o", id="episodic-1", created_at=NOON))
        assert not (await kit.apply()).again
        assert (await kit.apply(id="by hand")).again

    async def test_other_repositories_and_sessions_are_untouched(self, kit):
        """The id of a session of another repository is unknown."""
        await self._filled(kit)
        assert await kit.store.overhaul("q").touched(ALL) == ()
        assert (await kit.store.overhaul("q").erase(ALL)).report.is_empty
        assert len(await self._ids(kit)) == 4

    async def test_what_is_gone_does_not_come_back(self, kit):
        """Ids of sessions, steps and episodes are refused from now on, also after reopening."""
        await self._filled(kit)
        steps = await kit.store.graph("r").nodes(["episodic-1"])
        await kit.store.overhaul("r").erase(ALL)
        await kit.reopen()
        with pytest.raises(Conflict):
            await kit.start()
        with pytest.raises(Conflict):
            await kit.apply(*steps, id="late")
        with pytest.raises(Conflict):
            await kit.discard()

    async def test_what_is_gone_is_free_in_other_repositories(self, kit):
        """Nothing there tells that an id was forgotten elsewhere, also by a deleted repository."""
        await self._filled(kit)
        steps = await kit.store.graph("r").nodes(["episodic-1"])
        await kit.store.overhaul("r").erase(ALL)
        await kit.start("s2", repo="gone")
        await kit.store.delete_repository("gone")
        await kit.start(repo="q")
        await kit.apply(*steps, id="late", repo="q")
        await kit.start("s2", repo="q")
        await kit.discard(repo="q")
        for repo, session in (("r", "s"), ("gone", "s2")):
            with pytest.raises(Conflict):
                await kit.start(session, repo=repo)
            (refused,) = await kit.append_all([("late", "")], session=session, repo=repo)
            assert type(refused) is Conflict
        (unknown,) = await kit.append_all([("late", "")], session="nobody")
        assert type(unknown) is NotFound

    async def test_a_switch_puts_the_staged_vectors_in_force(self, kit):
        """Before it nothing changes; after it the space is the other one, for every read."""
        await self._filled(kit)
        overhaul, feed = kit.store.overhaul("r"), kit.store.feed("r")
        await overhaul.begin_move(OTHER)
        keys = ("both", "late", "late#1", "episodic-1/observation", "episodic-1/observation#7")
        digests = {key: key.encode() for key in keys}
        assert await overhaul.unmoved(digests) == digests.keys()
        staged = {key: (digest, unit_vector(3, 4)) for key, digest in digests.items()}
        await overhaul.stage(OTHER, {**staged, "unknown": (b"4", unit_vector(1, 0))})
        assert await overhaul.unmoved({**digests, "both": b"new"}) == {"both"}
        assert await feed.space() == EmbeddingSpace(SPACE.name, SPACE.dimensions)
        cursor = (await kit.changes()).cursor
        change = NodeChange("late", {"proposition": "Ana lives in Faro"})
        await kit.apply(id="c2", changes=[change])
        assert await overhaul.switch(OTHER, cursor) == 3
        assert await feed.space() == OTHER
        changes = await kit.changes()
        assert changes.vectors.keys() == {key for key in keys if not key.startswith("late")}
        assert (await kit.store.check()).problems == ()

    async def test_a_move_to_elsewhere_takes_the_place_of_another(self, kit):
        """What was staged before is dropped; who still works on it meets a conflict."""
        await self._filled(kit)
        overhaul = kit.store.overhaul("r")
        await overhaul.begin_move(OTHER)
        await overhaul.stage(OTHER, {"both": (b"1", unit_vector(3, 4))})
        third = EmbeddingSpace("third-space", 2)
        await overhaul.begin_move(third)
        assert await overhaul.unmoved({"both": b"1"}) == {"both"}
        with pytest.raises(Conflict):
            await overhaul.stage(OTHER, {"both": (b"1", unit_vector(3, 4))})
        with pytest.raises(Conflict):
            await overhaul.switch(OTHER, (await kit.changes()).cursor)

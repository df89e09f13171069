"""The contract of archives: everything comes back, or nothing was written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from contracts.records import found
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.errors import Conflict, InvalidArchive, UsageError
from mnemo.store.archive import StoredArchive
from mnemo.stores import EngineStore
from mnemo.values.archive import ArchiveHead
from mnemo.values.changeset import Changeset, NodeChange, Upkeep
from mnemo.values.erasure import Selection
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
from mnemo.values.journal import (
    ChangesetStaged,
    ExtractionAbandoned,
    SessionState,
    StagedTrajectory,
    StepsAnnotated,
    TrajectoryStaged,
)
from mnemo.values.steps import Annotation

JAPAN = timezone(timedelta(hours=9))


async def filled(kit: Kit) -> None:
    """A repository with sessions in every state, all types of node, and what hangs on them."""
    await said(kit)
    await known(kit)
    for session in ("t", "u", "v", "w"):
        await kit.start(session, goal=f"goal of {session}")
        await kit.append(f"said in {session}", session=session, key="same key everywhere")
        if session != "w":
            await kit.close(session)
    staged = StagedTrajectory(key="p:0", trajectory_id="p", steps=(0,), changeset=waiting("t"))
    await kit.record(TrajectoryStaged(staged=staged, **kit.place("t")))
    await kit.record(ChangesetStaged(changeset=waiting("u"), steps=(0,), **kit.place("u")))
    await kit.record(ExtractionAbandoned(error="down", trajectory_id="p", **kit.place("v")))
    await kit.discard("w")


async def said(kit: Kit) -> None:
    """Session s: one episode that will be committed; a second one is added by ``known``."""
    await kit.start(goal="plan")
    await kit.append("I like tea \u2028 お茶", "Poured", key="k", metadata={"a": [1, 0.1, None]})
    await kit.append("", "Waited", node_id="n1", at=NOON.astimezone(JAPAN), actor="Ada")
    await kit.append("Deleted later", node_id="n2")
    found = Annotation(
        index=1, state="x", subgoal="y", reward=0.25, trajectory_id="p", boundary=True,
        vector=unit_vector(1, 2, 3, 4), embedded=True,
    )  # fmt: skip
    await kit.record(StepsAnnotated(annotations=(found,), **kit.place()))
    await kit.close()


async def known(kit: Kit) -> None:
    """What was committed of it, counted, changed, deleted; then another episode."""
    place: dict[str, Any] = {"session_id": "s", "episode_id": "s-1", "created_at": NOON}
    fact: dict[str, Any] = {
        "valid_from": NOON,
        "valid_to": NOON,
        "superseded_by": "f2",
        "created_at": NOON,
    }
    nodes = [
        Episodic("", "Waited", id="n1", at=NOON.astimezone(JAPAN), reward=0.25, **place),
        Episodic("Deleted later", id="n2", at=NOON, **place),
        Source("Waited", id="o", at=NOON, **place),
        Semantic("Tea is liked", id="f1", vector=unit_vector(1, 1, 0, 0), **fact),
        Semantic("Tea is loved", id="f2", confidence=0.9, created_at=NOON.astimezone(JAPAN)),
        Procedural("Pour", "if thirsty", "tea", 0.5, id="p", vector=unit_vector(0, 1, 0, 0)),
        Subgoal("Drink", "live", "p", id="g"),
        Intent("Serve", id="i"),
        Tag("tea", id="t", vector=unit_vector(0, 0, 1, 0)),
    ]
    edges = [
        *(Edge("t", fact, EdgeKind.MEMBERSHIP) for fact in ("f2", "f1")),
        Edge("f1", "n1", EdgeKind.PROVENANCE),
        Edge("n1", "o", EdgeKind.PROVENANCE),
        Edge("f1", "f2", EdgeKind.SIBLING),
        Edge("i", "p", EdgeKind.HIERARCHICAL),
        Edge("g", "n1", EdgeKind.HIERARCHICAL),
    ]
    rewards = {"p": MetadataDelta(cumulative_reward=0.1, reward_count=3, support_count=2)}
    ends = kit.settlement(1, 2, ends=True)
    await kit.apply(*nodes, id="first", edges=edges, metadata=rewards, settlement=ends, space=SPACE)
    feed, graph = kit.store.feed("r"), kit.store.graph("r")
    passages = ("n1/action", "n1/action#1", "f1#7")
    await feed.save_vectors(SPACE, dict.fromkeys(passages, unit_vector(4, 3, 2, 1)))
    await kit.apply(id="second", changes=[NodeChange("f2", {"confidence": 0.8})])
    await kit.apply(id="third", upkeep=Upkeep(penalties={"f1": 0.3}))
    await kit.apply(id="nothing")
    await graph.touch({"f1": 2}, NOON)
    await graph.delete(["n2"])
    kit.clock.advance(1)
    await kit.begin("s-2")
    await kit.append("More tea?", episode="s-2")


def waiting(name: str) -> Changeset:
    """A changeset that is staged."""
    fact = Semantic(f"fact of {name}", id=f"f-{name}", vector=unit_vector(1, 0, 0, 1))
    return Changeset(
        nodes=(fact, Tag("late", id=f"t-{name}", created_at=NOON)),
        edges=(Edge(f"t-{name}", f"f-{name}", EdgeKind.MEMBERSHIP),),
        metadata={f"f-{name}": MetadataDelta(cumulative_reward=0.5, reward_count=1)},
        id=f"c-{name}",
        changes=(NodeChange("f2", {"valid_to": NOON, "vector": unit_vector(2, 1, 1, 1)}),),
        replaces={f"f-{name}": ("f1",)},
        left_out=2,
    )


async def lines_of(archive: StoredArchive) -> list[str]:
    """All lines of it."""
    async with archive.read() as (_, lines):
        return [line async for line in lines]


async def put(archive: StoredArchive, lines: Sequence[str]) -> None:
    """Write them, two to a page; texts are indexed two at once."""
    one, other = "mnemo.store.archive._PAGE_LINES", "mnemo.log.staged._BATCH"
    with patch(one, 2), patch(other, 2):
        await archive.write(lines)


async def followed(lines: Sequence[str], then: Callable[[], Any]) -> AsyncIterator[str]:
    """*lines*, and then what *then* does."""
    for line in lines:
        yield line
    await then()


Change = Callable[[list[dict[str, Any]]], int]
"""Breaks an archive's lines; gives the index of the one that is wrong then."""


def of(rows: list[dict[str, Any]], kind: str, number: int = 0) -> int:
    """Where the line of *kind* with that *number* is; negative ones count from the last."""
    return [i for i, row in enumerate(rows) if row.get("kind") == kind][number]


def setting(kind: str, number: int = 0, **values: Any) -> Change:
    """Give fields of one line other values."""

    def change(rows: list[dict[str, Any]]) -> int:
        at = of(rows, kind, number)
        rows[at] = rows[at] | values
        return at

    return change


def doubling(kind: str) -> Change:
    """Say the last line of *kind* twice."""

    def change(rows: list[dict[str, Any]]) -> int:
        at = of(rows, kind, -1)
        rows.insert(at, rows[at])
        rows[0]["counts"][kind] += 1
        return at + 1

    return change


def dropping(kind: str, number: int, wrong: Callable[[list[dict[str, Any]]], int]) -> Change:
    """Leave a line out that another one needs."""

    def change(rows: list[dict[str, Any]]) -> int:
        del rows[of(rows, kind, number)]
        rows[0]["counts"][kind] -= 1
        return wrong(rows)

    return change


BROKEN: dict[str, Change] = {
    **{f"{kind} twice": doubling(kind) for kind in ("session", "episode", "trajectory", "step")},
    **{f"{kind} twice": doubling(kind) for kind in ("node", "edge", "vector", "changeset")},
    "an episode of nowhere": setting("episode", session="nowhere"),
    "a step of nowhere": setting("step", episode="nowhere"),
    "a step of another session": setting("step", session="u"),
    "a staged result of nowhere": setting("trajectory", episode="nowhere"),
    "a staged result of an episode that is over": setting("trajectory", episode="s-1"),
    "a key twice in a session": setting("step", 1, key="k"),
    "a gap before the first step": setting("step", 3, idx=7),
    "an index again": setting("step", 1, idx=0),
    "a state without its episode": setting("session", state="extracting"),
    "ready without a changeset": setting("episode", 3, changeset=None),
    "two episodes that are not over": setting("episode", 0, status="open"),
    "an edge to nowhere": setting("edge", target="nowhere"),
    "an edge from nowhere": setting("edge", source="nowhere"),
    "an edge of another type": setting("edge", type="hierarchical"),
    "a vector of nowhere": setting("vector", key="nowhere"),
    "a vector of a step that is gone": setting("vector", key="n2/observation"),
    "a passage of a step that is gone": setting("vector", key="n2/observation#1"),
    "a committed step without its node": setting("step", 0, committed=1),
    "no episode at all": dropping(
        "step", -1, dropping("episode", -1, lambda rows: of(rows, "session", -1))
    ),
}
SESSION_OF_WRONG_EPISODE = {
    "ready without a changeset": ("session", 2),
    "two episodes that are not over": ("episode", 0),
}


async def assert_refused_by_line(
    kit: Kit, elsewhere: Kit, change: Change, *, at: tuple[Any, ...] | None = None
) -> None:
    """
    The archive of *elsewhere* with *change* is refused by *kit*'s store, and nothing is written.

    Args:
        at: Kind and number of the line that is named; ``None``: the changed one.
    """
    rows = [json.loads(line) for line in await lines_of(elsewhere.store.archive("r"))]
    wrong = change(rows)
    if at is not None:
        wrong = of(rows, *at)
    with pytest.raises(InvalidArchive) as raised:
        await put(kit.store.archive("r"), list(map(json.dumps, rows)))
    assert raised.value.line == wrong + 1
    async with kit.store.archive("r").read() as (head, _):
        assert head.is_empty
    assert (await kit.store.check()).problems == ()


class ArchiveContract(StoreContract):
    """Out of one store and into another, whichever they are."""

    async def test_everything_comes_back_elsewhere(self, kit: Kit, elsewhere: Kit) -> None:
        """Out of this store and into another: the other one gives the same lines."""
        await filled(kit)
        lines = await lines_of(kit.store.archive("r"))
        await put(elsewhere.store.archive("copy"), lines)
        assert await lines_of(elsewhere.store.archive("copy")) == lines

    async def test_everything_arrives_from_elsewhere(self, kit: Kit, elsewhere: Kit) -> None:
        """Out of another store and into this one, also after reopening; the check finds nothing."""
        await filled(elsewhere)
        lines = await lines_of(elsewhere.store.archive("r"))
        await put(kit.store.archive("copy"), lines)
        assert await lines_of(kit.store.archive("copy")) == lines
        await kit.reopen()
        assert await lines_of(kit.store.archive("copy")) == lines
        assert (await kit.store.check()).problems == ()

    async def test_what_is_read_of_a_copy_is_what_is_read_of_the_first(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """Sessions, journals, graph, feed and full text answer as they did elsewhere."""
        await filled(elsewhere)
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        assert await answers(kit.store) == await answers(elsewhere.store)

    async def test_a_copy_fits_beside_the_first(self, kit: Kit) -> None:
        """Another repository of the same store; neither hears of the other afterwards."""
        await filled(kit)
        lines = await lines_of(kit.store.archive("r"))
        await put(kit.store.archive("copy"), lines)
        assert await lines_of(kit.store.archive("copy")) == lines
        assert (await kit.store.check()).problems == ()
        erased = await kit.store.overhaul("copy").erase(Selection(session_id="s"))
        assert erased.report.sessions == 1
        assert await kit.store.sessions("copy").load("s") is None
        assert await lines_of(kit.store.archive("r")) == lines

    async def test_a_reader_that_followed_the_empty_repository_sees_it_fill(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """The feed goes on from where it was."""
        await filled(elsewhere)
        before = await kit.changes()
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        since, whole = await kit.changes(before.cursor), await kit.changes()
        assert [step.node_id for step in since.steps] == [step.node_id for step in whole.steps]
        assert since.nodes == whole.nodes
        assert list(since.vectors) == list(whole.vectors)

    async def test_a_repository_that_is_not_empty_takes_nothing_in(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """UsageError, and everything as it was."""
        await filled(elsewhere)
        await kit.apply(Tag("mine", id="mine", created_at=NOON))
        before = await lines_of(kit.store.archive("r"))
        with pytest.raises(UsageError, match="not empty"):
            await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        assert await lines_of(kit.store.archive("r")) == before

    async def test_a_repository_that_fills_while_an_archive_is_read_takes_nothing_in(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """It was empty when the import began: UsageError, and what was written stays as it was."""
        await filled(elsewhere)
        before: list[str] = []

        async def write() -> None:
            await kit.apply(Tag("mine", id="mine", created_at=NOON))
            before.extend(await lines_of(kit.store.archive("r")))

        source = followed(await lines_of(elsewhere.store.archive("r")), write)
        with (
            patch("mnemo.store.archive._PAGE_LINES", 2),
            pytest.raises(UsageError, match="not empty"),
        ):
            await kit.store.archive("r").write(source)
        assert await lines_of(kit.store.archive("r")) == before

    async def test_what_was_forgotten_here_does_not_come_back(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """An archive from before is refused where its session was erased, and nowhere else."""
        await filled(elsewhere)
        lines = await lines_of(elsewhere.store.archive("r"))
        await kit.start("u")
        await kit.store.overhaul("r").erase(Selection(session_id="u"))
        await self._refused(kit, lines, Conflict)
        await put(kit.store.archive("another"), lines)
        assert await lines_of(kit.store.archive("another")) == lines

    async def _refused(
        self, kit: Kit, lines: Sequence[str], error: type[Exception]
    ) -> pytest.ExceptionInfo[Any]:
        with pytest.raises(error) as raised:
            await put(kit.store.archive("r"), lines)
        async with kit.store.archive("r").read() as (head, _):
            assert head.is_empty
            assert head.space is None
        assert (await kit.store.check()).problems == ()
        return raised

    @pytest.mark.parametrize("what", BROKEN)
    async def test_records_that_do_not_fit_each_other_are_refused_by_line(
        self, kit: Kit, elsewhere: Kit, what: str
    ) -> None:
        """The line is named, and nothing is written."""
        await filled(elsewhere)
        at = SESSION_OF_WRONG_EPISODE.get(what)
        await assert_refused_by_line(kit, elsewhere, BROKEN[what], at=at)

    async def test_a_source_that_fails_leaves_nothing(self, kit: Kit, elsewhere: Kit) -> None:
        """Whatever it raises comes out; the next import is not in its way."""
        await filled(elsewhere)
        lines = await lines_of(elsewhere.store.archive("r"))
        archive = kit.store.archive("r")

        async def fail() -> None:
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            await archive.write(followed(lines, fail))
        await put(archive, lines)
        assert await lines_of(archive) == lines

    async def test_a_cancelled_import_leaves_nothing(self, kit: Kit, elsewhere: Kit) -> None:
        """Cancelled while it waits for the next page; the next import is not in its way."""
        await filled(elsewhere)
        lines = await lines_of(elsewhere.store.archive("r"))
        archive = kit.store.archive("r")
        with anyio.CancelScope() as scope, patch("mnemo.store.archive._PAGE_LINES", 2):

            async def wait() -> None:
                scope.cancel()
                await anyio.sleep_forever()

            await archive.write(followed(lines[:6], wait))
        assert scope.cancelled_caught
        async with archive.read() as (found, _):
            assert found.is_empty
        await put(archive, lines)
        assert await lines_of(archive) == lines

    async def test_an_export_is_of_one_moment(self, kit: Kit) -> None:
        """What is written while it is read is not in it."""
        await filled(kit)
        before = await lines_of(kit.store.archive("r"))
        async with kit.store.archive("r").read() as (_, lines):
            await kit.append("Too late", episode="s-2")
            await kit.apply(Tag("late", id="late", created_at=NOON), id="late")
            await kit.store.graph("r").delete(["f1"])
            assert [line async for line in lines] == before
        assert await lines_of(kit.store.archive("r")) != before

    async def test_an_export_can_be_left_early(self, kit: Kit) -> None:
        """Nothing is held afterwards."""
        await filled(kit)
        async with kit.store.archive("r").read() as (_, lines):
            assert await anext(aiter(lines))
        await kit.append("More", episode="s-2")

    async def test_an_imported_session_goes_on(self, kit: Kit, elsewhere: Kit) -> None:
        """It has no owner; it takes steps, its changeset commits, what was applied is known."""
        await filled(elsewhere)
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        await kit.store.sessions("r").claim("s", kit.owner)
        added = await kit.append("And on", episode="s-2")
        assert added.index == 1
        again = await kit.apply(id="first", expected_revision=0)
        assert again.again
        await kit.store.sessions("r").claim("u", kit.owner)
        journal = await kit.load("u")
        assert journal.record.state is SessionState.READY
        assert journal.changeset is not None
        assert journal.changeset.nodes == waiting("u").nodes
        assert journal.changeset.left_out == 2
        settlement = replace(kit.settlement(0, ends=True), session_id="u", episode_id="u-1")
        node = Episodic("said in u", id=journal.steps[0].node_id, at=NOON)
        applied = await kit.apply(
            node, *journal.changeset.nodes, id="c-u", settlement=settlement, space=SPACE
        )
        assert not applied.again
        assert (await kit.load("u")).record.state is SessionState.IDLE
        assert (await kit.store.check()).problems == ()

    async def test_an_empty_repository_is_a_head_alone(self, kit: Kit) -> None:
        """Also one that nobody ever heard of."""
        async with kit.store.archive("r").read() as (head, lines):
            assert len([line async for line in lines]) == 1
        assert head == ArchiveHead(revision=0, counts=dict.fromkeys(head.counts, 0))
        assert head.is_empty


async def answers(store: EngineStore) -> Any:
    """What repository r says, numbers of the store's own aside."""
    graph, feed, sessions = store.graph("r"), store.feed("r"), store.sessions("r")
    nodes = await graph.nodes()
    ids = [node.id for node in nodes]
    return {
        "records": await sessions.records(unfinished=False),
        "journals": [await _journal(store, id) for id in "stuvw"],
        "nodes": nodes,
        "vectors": [node.vector is not None and node.vector.tolist() for node in nodes],
        "metadata": await graph.metadata(ids),
        "edges": sorted((e.source, e.target, e.kind) for e in await graph.edges(ids)),
        "keyed": await graph.nodes(types=["tag"], keys=["tea"]),
        "revision": await graph.revision(),
        "counts": await feed.counts(),
        "space": await feed.space(),
        "hits": await found(store, ["tea"], ["said"]),
        "goals": await feed.goals(["s-1", "t-1"]),
    }


async def _journal(store: EngineStore, id: str) -> Any:
    journal = await store.sessions("r").load(id)
    assert journal is not None
    # Staged changesets are compared as lines: their vectors do not compare.
    plain = replace(journal, steps=(), keys={}, changeset=None, staged={})
    return plain, _numberless(journal.steps), _numberless(journal.keys.values())


def _numberless(steps: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(replace(step, ordinal=0) for step in steps)

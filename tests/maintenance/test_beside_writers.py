"""Maintenance beside commits, cancelled, over failing stores: whole or not at all, nothing lost."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from helpers import child_environment
from maintenance_kit import Memory, at_cosine

from mnemo import (
    Changeset,
    CommitFailed,
    Edge,
    EdgeKind,
    MnemoError,
    Semantic,
    StoreError,
    UsageError,
)
from mnemo.events import ConsolidationCompleted, DecayCompleted, WriteFailed
from mnemo.protocols import GraphWrite

PROGRAM = Path(__file__).with_name("other_maintainer.py")


def lane_of(memory: Any) -> Any:
    return memory.repo._maintenance.lane


async def write_elsewhere(memory: Any, id: str, **write: Any) -> None:
    """Write as another process would: past the lane, against the present revision."""
    revision = await memory.graph.revision()
    whole = GraphWrite(changeset_id=id, expected_revision=revision, **write)
    await memory.graph.apply(whole, memory.repo._parts.owner)


async def between_plan_and_apply(
    memory: Any, run: Callable[[], Awaitable[Any]], meanwhile: Callable[[], Awaitable[Any]]
) -> Any:
    """Let something happen after *run* has planned and before it writes; give its report."""
    reports: list[Any] = []
    turn = lane_of(memory).turn

    async def running() -> None:
        reports.append(await run())

    async with anyio.create_task_group() as group:
        await turn.acquire()
        group.start_soon(running)
        await memory.kit.until(lambda: turn.waiting == 1)
        await meanwhile()
        turn.release()
    return reports[0]


# ── What is committed meanwhile ──────────────────────────────────────────────────────


async def test_a_node_that_changed_since_the_plan_is_left_for_the_next_run(memory):
    """A commit gives the loser another step: both stay, then both are merged with it."""
    await memory.step("s")
    await memory.twins()
    edge = Edge("b", "s", EdgeKind.PROVENANCE)
    report = await between_plan_and_apply(
        memory, memory.repo.consolidate, lambda: write_elsewhere(memory, "c", edges=(edge,))
    )
    assert (report.deleted, dict(report.merged)) == (0, {})
    assert await memory.edges("b") == {edge}
    again = await memory.repo.consolidate()
    assert dict(again.merged) == {"b": "a"}
    assert await memory.edges("a") == {Edge("a", "s", EdgeKind.PROVENANCE)}


async def test_what_was_committed_since_the_plan_is_kept(memory):
    """Other nodes come in between: the plan goes through beside them."""
    await memory.twins()
    new = Semantic("Bo bakes bread", id="n", created_at=memory.ago(0))
    report = await between_plan_and_apply(
        memory, memory.repo.consolidate, lambda: write_elsewhere(memory, "c", nodes=(new,))
    )
    assert dict(report.merged) == {"b": "a"}
    assert await memory.ids("semantic") == {"a", "n"}


async def test_a_sibling_that_came_since_the_plan_is_moved_along(memory):
    """An edge that changes nobody's document is not lost either."""
    await memory.twins()
    await memory.fact("Bo bakes bread", "c")
    edge = Edge("c", "b", EdgeKind.SIBLING)
    report = await between_plan_and_apply(
        memory, memory.repo.consolidate, lambda: write_elsewhere(memory, "w", edges=(edge,))
    )
    assert dict(report.merged) == {"b": "a"}
    assert await memory.edges("c") == {Edge("c", "a", EdgeKind.SIBLING)}


async def test_a_node_that_is_gone_since_the_plan_does_no_harm(memory):
    """Somebody deleted the survivor: the loser stays."""
    await memory.twins()
    report = await between_plan_and_apply(
        memory, memory.repo.consolidate, lambda: memory.repo.delete_nodes(["a"])
    )
    assert report.deleted == 0
    assert await memory.ids("semantic") == {"b"}


async def test_an_access_since_the_plan_keeps_a_node_from_decaying(memory):
    """Accesses make no revision, and count all the same."""
    await memory.fact("Ana likes green tea", "a", days=60)
    await memory.fact("Bo bakes bread", "b", days=60)

    async def accessed() -> None:
        await memory.kit.clock.advance(1)
        await memory.accessed("a", 1)

    report = await between_plan_and_apply(memory, memory.repo.decay, accessed)
    assert report.deleted_ids == ("b",)


async def test_a_recall_since_the_plan_keeps_a_node_from_decaying(memory):
    """Its count is still in memory as the turn comes, and is written first."""
    await memory.fact("Ana likes green tea", "a", days=60)

    async def recalled() -> None:
        await memory.kit.clock.advance(0.5)
        memory.repo._access.note(["a"])

    assert (await between_plan_and_apply(memory, memory.repo.decay, recalled)).deleted == 0


async def test_accesses_since_the_plan_are_added_as_well(memory):
    """The sums are made in the transaction, not in the plan."""
    await memory.twins()
    await between_plan_and_apply(memory, memory.repo.consolidate, lambda: memory.accessed("b", 5))
    assert (await memory.repo.get_metadata(["a"]))["a"].access_count == 5


async def test_a_fact_that_is_stated_again_since_the_plan_does_not_decay(memory):
    """The commit reinforced it: it changed, and is left for the next run."""
    await memory.step("s")
    await memory.fact("Ana likes green tea", "a", days=60)
    changeset = Changeset(
        (Semantic("Ana likes green tea", id="n"),), (Edge("n", "s", EdgeKind.PROVENANCE),)
    )
    turn = lane_of(memory).turn
    reports: list[Any] = []

    async def running() -> None:
        reports.append(await memory.repo.decay())

    async with anyio.create_task_group() as group:
        await turn.acquire()
        applying = memory.repo._parts.root.own(lambda: memory.repo._lane.commit(changeset))
        await memory.kit.until(lambda: turn.waiting == 1)
        group.start_soon(running)
        await memory.kit.until(lambda: turn.waiting == 2)
        turn.release()
        await applying
    assert reports[0].deleted == 0
    assert await memory.ids("semantic") == {"a"}


async def test_a_verdict_about_a_changed_fact_is_left_for_the_next_run(memory):
    """It is not counted either: its evidence has grown meanwhile."""
    await memory.step("s", "Cy collects stamps")
    await memory.fact("Cy collects stamps", "a")
    await memory.fact("Bo bakes bread", "b")
    edge = Edge("a", "s", EdgeKind.PROVENANCE)
    report = await between_plan_and_apply(
        memory, memory.repo.validate, lambda: write_elsewhere(memory, "c", edges=(edge,))
    )
    assert (report.checked, report.orphaned) == (1, 1)
    assert (await memory.repo.get_metadata(["a"]))["a"].penalty == 0.0
    assert (await memory.repo.validate()).grounded == 1


class Overtaken:
    """A graph where others write just before each of the next few writes."""

    def __init__(self, memory: Any, times: int) -> None:
        self._memory = memory
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory.graph, name)

    async def apply(self, write: Any, owner: Any) -> Any:
        if self._times:
            self._times -= 1
            new = Semantic(f"other {self._times}", id=f"o{self._times}")
            await write_elsewhere(self._memory, f"w{self._times}", nodes=(new,))
        return await self._memory.graph.apply(write, owner)


async def test_a_plan_that_is_overtaken_is_drawn_anew(memory):
    """Another process writes between the reading and the transaction, three times."""
    await memory.twins()
    lane = lane_of(memory)
    lane.graph = Overtaken(memory, 3)
    assert (await memory.repo.consolidate()).deleted == 1
    assert await memory.ids("semantic") == {"a", "o0", "o1", "o2"}


async def test_a_plan_that_is_always_overtaken_fails_whole(memory):
    """After 32 tries: nothing was changed, and it is said."""
    await memory.twins()
    lane = lane_of(memory)
    lane.graph = Overtaken(memory, 1_000)
    with pytest.raises(CommitFailed, match="32 times"):
        await memory.repo.consolidate()
    assert {"a", "b"} <= await memory.ids("semantic")
    assert [event.operation for event in memory.kit.seen.of(WriteFailed)] == ["consolidate"]
    assert memory.kit.seen.of(ConsolidationCompleted) == []


# ── Many at once ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_two_services_maintain_one_file_while_both_write(open_kit, db):
    """Every duplicate is merged by one of them, every new fact is there, nothing is half there."""
    one = Memory(await open_kit(store=db))
    other = Memory(await open_kit(store=db, clock=one.kit.clock))
    for number in range(12):
        vector = at_cosine(1.0)
        vector[[0, number + 2]] = 0.0, 1.0
        near = 0.9 * vector + 0.43589 * at_cosine(1.0)
        await one.fact(f"Guest{number} likes tea", f"a{number}", vector=vector)
        await one.fact(f"Guest{number} likes tea a lot", f"b{number}", vector=near)
    deleted: list[str] = []

    async def maintain(memory: Memory) -> None:
        for _ in range(4):
            deleted.extend((await memory.repo.consolidate()).deleted_ids)
            await memory.repo.validate()

    async def write(memory: Memory, name: str) -> None:
        for number in range(15):
            await memory.fact(f"{name} wrote number {number}", f"{name}{number}", tags=[name])

    async with anyio.create_task_group() as group:
        for memory, name in ((one, "Ana"), (other, "Bo")):
            group.start_soon(maintain, memory)
            group.start_soon(write, memory, name)
    left = await one.ids("semantic")
    assert {f"{name}{number}" for name in ("Ana", "Bo") for number in range(15)} <= left
    assert len(left) == 30 + 12
    assert len(deleted) == len(set(deleted)) == 12
    assert await other.ids("semantic") == left
    assert len(await one.ids("tag")) == 2
    assert (await one.kit.memory.check()).problems == ()


@pytest.mark.slow
async def test_sessions_commit_beside_every_operation(open_kit, db):
    """Appends and commits in five sessions, all three operations over and over: nothing is lost."""
    kit = await open_kit(store=db, embedded=True)
    working = 5

    async def work(name: str) -> None:
        nonlocal working
        for round in range(3):
            session = await kit.started(f"Talk {name} {round}")
            for number in range(4):
                text = f"I bought {number + 2} pears for {name} in round {round}."
                await session.append(text, "", actor="Ada")
            await session.close_and_commit()
        working -= 1

    async def maintain() -> None:
        while working:
            await kit.repo.validate()
            await kit.repo.consolidate(threshold=0.7)
            await kit.repo.decay(types=("semantic", "tag", "intent", "subgoal"))

    async with anyio.create_task_group() as group:
        group.start_soon(maintain)
        for name in ("Bo", "Cy", "Di", "Ed", "Flo"):
            group.start_soon(work, name)
    steps = await kit.repo.get_nodes(["episodic"])
    assert len({step.text for step in steps}) == 60
    assert (await kit.memory.check()).problems == ()
    known = await indexed(kit.repo)
    types = ("semantic", "procedural", "subgoal", "tag", "intent")
    assert known.keys() == {node.id for node in await kit.repo.get_nodes(types)}
    await kit.memory.close_repo("r")
    assert await indexed(await kit.memory.open_repo("r")) == known


async def indexed(repo: Any) -> dict[str, Any]:
    """What the index in memory holds: node, terms and times of each document."""
    view = await repo._parts.index.corpus()
    found = {}
    for documents in view.nodes.values():
        for number in np.flatnonzero(documents.alive).tolist():
            node = documents.nodes[number]
            assert documents.of(node.id) == (number,)
            times = (documents.first[number], documents.last[number], documents.valid_to[number])
            found[node.id] = (node, int(documents.lengths[number]), times)
    return found


@pytest.mark.slow
@pytest.mark.long
async def test_another_process_maintains_the_file_meanwhile(open_kit, db):
    """What is committed here stays, what is double is merged there, and both see it."""
    memory = Memory(await open_kit(store=db))
    await memory.twins()
    ended, written = anyio.Event(), 0
    told: list[Any] = []

    async def maintain() -> None:
        command = [sys.executable, str(PROGRAM), str(db)]
        ran = await anyio.run_process(command, env=child_environment())
        told.append(json.loads(ran.stdout))
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(maintain)
        while not ended.is_set():
            await memory.fact(f"Ana wrote number {written}", f"n{written}", tags=["writing"])
            written += 1
    assert [id for ids in told[0] for id in ids] == ["b"]
    assert await memory.ids("semantic") == {"a", *(f"n{number}" for number in range(written))}
    assert len(await memory.ids("tag")) == 1
    assert (await indexed(memory.repo)).keys() == await memory.ids("semantic", "tag")
    assert (await memory.kit.memory.check()).problems == ()


# ── Cancelled ────────────────────────────────────────────────────────────────────────

EACH_TURN_UP_TO, GROWTH = 10, 1.6
"""An operation that waits for a thread spends many turns in one and the same await."""


async def fill(memory: Any) -> None:
    """Something to do for each operation."""
    await memory.twins(days=60, tags=["tea"])
    await memory.fact("Bo bakes bread", "c", days=60)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["consolidate", "decay", "validate"])
@pytest.mark.parametrize("native", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("store", [pytest.param("memory:", marks=pytest.mark.long), "file"])
async def test_a_cancelled_operation_is_whole_or_nothing(
    open_kit, tmp_path, operation, native, store
):
    """After any number of turns, by a scope or by the task; and the next one goes on."""
    outcomes, turns, ended = set(), 0, False
    while not ended:
        path = store if store == "memory:" else tmp_path / f"{turns}.db"
        memory = Memory(await open_kit(store=path))
        await fill(memory)
        before = await state(memory)
        ended = await cancelled(getattr(memory.repo, operation), turns, native=native)
        after = await state(memory)
        told = [e for e in memory.kit.seen.events if type(e).__name__.endswith("Completed")]
        assert (after != before) == bool(told)
        outcomes.add(bool(told))
        await getattr(memory.repo, operation)()
        if told:
            assert await state(memory) == after
        assert (await memory.kit.memory.check()).problems == ()
        turns = turns + 1 if turns < EACH_TURN_UP_TO else int(turns * GROWTH)
    assert outcomes == {False, True}


async def state(memory: Any) -> Any:
    nodes = await memory.graph.nodes()
    ids = [node.id for node in nodes]
    edges = set(await memory.graph.edges(ids))
    return await memory.graph.revision(), nodes, edges, await memory.graph.metadata(ids)


async def cancelled(work: Callable[[], Awaitable[Any]], turns: int, *, native: bool) -> bool:
    """Cancel *work* after so many turns of the loop; give whether it had ended before."""
    scope, tasks = anyio.CancelScope(), list[asyncio.Task[Any]]()

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            with scope:
                await work()
        except asyncio.CancelledError:
            task.uncancel()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        for _ in range(turns + 1):
            await anyio.lowlevel.checkpoint()
        ended = tasks[0].done()
        if not native:
            scope.cancel()
        elif not ended:
            tasks[0].cancel()
    return ended


async def test_one_that_waits_for_another_can_be_cancelled(memory):
    """It has not begun; the first one is not disturbed."""
    await memory.twins()
    turn = lane_of(memory).turn
    reports: list[Any] = []

    async def running() -> None:
        reports.append(await memory.repo.consolidate())

    async with anyio.create_task_group() as group:
        await turn.acquire()
        group.start_soon(running)
        await memory.kit.until(lambda: turn.waiting == 1)
        with anyio.CancelScope() as scope:
            group.start_soon(_cancel_soon, scope)
            await memory.repo.decay()
        assert scope.cancelled_caught
        turn.release()
    assert [report.deleted for report in reports] == [1]
    assert memory.kit.seen.of(DecayCompleted) == []


async def _cancel_soon(scope: anyio.CancelScope) -> None:
    await anyio.lowlevel.checkpoint()
    scope.cancel()


# ── Failing ──────────────────────────────────────────────────────────────────────────


async def test_a_store_that_fails_leaves_everything_as_it_was(open_kit, failing_store):
    """CommitFailed and WriteFailed; the next run does it."""
    store = failing_store()
    memory = Memory(await open_kit(store=store))
    await fill(memory)
    before = await state(memory)
    for operation in ("consolidate", "validate", "decay"):
        store.fail("apply")
        with pytest.raises(CommitFailed, match="made to fail"):
            await getattr(memory.repo, operation)()
        assert await state(memory) == before
    failed = [event.operation for event in memory.kit.seen.of(WriteFailed)]
    assert failed == ["consolidate", "validate", "decay"]
    assert (await memory.repo.consolidate()).deleted == 1


async def test_an_answer_that_is_lost_is_found_again(open_kit, failing_store):
    """The transaction ended well: the report says what it did."""
    store = failing_store()
    memory = Memory(await open_kit(store=store))
    await memory.twins(days=60, tags=["tea"])
    store.fail("apply", before=False)
    merged = await memory.repo.consolidate()
    assert (merged.deleted_ids, dict(merged.merged)) == (("b",), {"b": "a"})
    (tag,) = await memory.ids("tag")
    store.fail("apply", before=False)
    decayed = await memory.repo.decay()
    assert set(decayed.deleted_ids) == {"a", tag}
    assert decayed.revision == await memory.graph.revision()
    assert memory.kit.seen.of(WriteFailed) == []


async def test_a_closed_repository_refuses(memory):
    """Before anything is read."""
    await memory.kit.memory.close_repo("r")
    for operation in ("consolidate", "decay", "validate"):
        with pytest.raises(UsageError, match="closed"):
            await getattr(memory.repo, operation)()


async def test_a_repository_that_is_closed_meanwhile_is_not_written_to(memory):
    """The plan was made, the turn came too late."""
    await memory.twins()
    errors: list[Exception] = []
    turn = lane_of(memory).turn

    async def running() -> None:
        try:
            await memory.repo.consolidate()
        except MnemoError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        await turn.acquire()
        group.start_soon(running)
        await memory.kit.until(lambda: turn.waiting == 1)
        await memory.kit.memory.close_repo("r")
        turn.release()
    assert [type(error) for error in errors] == [UsageError]
    again = await memory.kit.memory.open_repo("r")
    assert len(await again.get_nodes(["semantic"])) == 2


async def test_a_store_that_cannot_be_written_refuses(memory):
    """Maintenance is a writing call, also where it would find nothing to do."""
    lane = lane_of(memory)
    lane.graph = Unwritable(memory.graph)
    with pytest.raises(StoreError, match="read-only"):
        await memory.repo.consolidate()


class Unwritable:
    """A graph whose store may only be read."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def apply(self, write: Any, owner: Any) -> Any:
        raise StoreError("the store is read-only")


@pytest.mark.parametrize("operation", ["consolidate", "decay", "validate"])
async def test_maintenance_erases_what_has_expired(memory, operation):
    """A thread that nobody appends to is swept by a service that is never opened anew."""
    repo = memory.repo
    await repo.conversation("t", ttl_s=60).append({"role": "user", "content": "tea"})
    await repo._conversations._expiry._flights.settled("t")
    await memory.kit.clock.advance(61)
    await getattr(repo, operation)()
    assert await repo.conversation("t", ttl_s=None).history() == []

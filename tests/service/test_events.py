"""Events: who hears them, in what order, and what a slow listener loses."""

import dataclasses
import logging

import anyio
import pytest

import mnemo.events
from mnemo import Changeset, CommitFailed, RecallFailed, Semantic
from mnemo.errors import StoreError
from mnemo.events import (
    ChangesetApplied,
    Event,
    EventsDropped,
    NodesDeleted,
    RecallExecuted,
    SessionTransitioned,
    StepAppended,
    WriteFailed,
)
from mnemo.runtime.bus import OBSERVER_BUFFER
from mnemo.testing import RecordingObserver

OF_THE_PAGE = """
SessionTransitioned StepAppended StepAnnotated AnnotationFailed TrajectoryCommitted
TrajectoryFlushed TrajectoryExtractionFailed SessionExpired ChangesetApplied NodesDeleted
WriteFailed RecallExecuted RecallFailed ConsolidationCompleted DecayCompleted
ValidationCompleted EmbedderUnfit EventsDropped CompactionRecorded CompressionFailed SnapshotTaken
EvictionCompleted EvictionFailed MemoryUpdateFinished
""".split()  # noqa: SIM905
SECRET = "The password of the harbour is heron."


def by_hand(number: int) -> Changeset:
    """A changeset of one fact."""
    fact = Semantic(f"The pier number {number} is closed.", id=f"fact-{number}")
    return Changeset((fact,), id=f"by hand {number}")


def test_every_event_of_the_page_is_there():
    """Importable, frozen, with a repository, a time and room for a trace."""
    assert set(OF_THE_PAGE) | {"Event"} == set(mnemo.events.__all__)
    for name in OF_THE_PAGE:
        kind = getattr(mnemo.events, name)
        assert issubclass(kind, Event)
        assert {"repo_id", "at", "trace"} <= {f.name for f in dataclasses.fields(kind)}


async def appended(kit, count: int) -> None:
    session = await kit.started()
    for number in range(count):
        await session.append(f"o{number}", "")


# ── Facts and their order ────────────────────────────────────────────────────────────


async def test_the_order_of_events_is_the_order_of_the_facts(open_kit, db):
    """Of what many tasks write at once: revisions ascend, a deletion follows what it deletes."""
    kit = await open_kit(store=db)

    async def written_and_deleted(number: int) -> None:
        await kit.repo.apply(by_hand(number))
        await kit.repo.delete_nodes([f"fact-{number}"])

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(written_and_deleted, number)
    told = [e for e in kit.seen.events if isinstance(e, ChangesetApplied | NodesDeleted)]
    applied = [event for event in told if isinstance(event, ChangesetApplied)]
    revisions = [event.revision for event in applied]
    assert revisions == sorted(revisions)
    assert len(told) == 12
    for event in applied:
        (deleted,) = [
            e for e in told if isinstance(e, NodesDeleted) and e.node_ids[0] in event.node_ids
        ]
        assert told.index(deleted) > told.index(event)


async def test_an_event_is_sent_after_its_fact_is_durable(kit):
    """Whoever hears of a revision, a deletion or a step finds it in the store."""
    found = []

    async def looking(event: Event) -> None:
        match event:
            case ChangesetApplied():
                found.append([node.id for node in await kit.repo.get_nodes(["semantic"])])
            case NodesDeleted(node_ids=(id,)):
                found.append(await kit.repo.get_node(id))
            case StepAppended():
                found.append([hit.snippet for hit in await kit.repo.search("heron")])

    kit.memory.subscribe(looking)
    await kit.repo.apply(by_hand(1))
    await kit.until(lambda: len(found) == 1)
    await kit.repo.delete_nodes(["fact-1"])
    await kit.until(lambda: len(found) == 2)
    await (await kit.started()).append(SECRET, "")
    await kit.until(lambda: len(found) == 3)
    assert found == [["fact-1"], None, [SECRET]]


async def test_a_changeset_met_again_is_not_told_again(kit):
    """One ChangesetApplied, and none for what changes nothing."""
    assert await kit.repo.apply(by_hand(1)) == await kit.repo.apply(by_hand(1))
    await kit.repo.delete_nodes(["unknown"])
    assert len(kit.seen.of(ChangesetApplied)) == 1
    assert kit.seen.of(NodesDeleted) == []


async def test_what_was_rolled_back_is_told_as_such_alone(failing_kit):
    """WriteFailed says which and why; no event says that it was done."""
    kit, store = failing_kit
    store.fail("apply", error=StoreError("the disk is full"), times=8)
    store.fail("delete", error=StoreError("the disk is gone"))
    with pytest.raises(CommitFailed):
        await kit.repo.apply(by_hand(1))
    with pytest.raises(StoreError):
        await kit.repo.delete_nodes(["fact-1"])
    told = [(e.operation, e.changeset_id, e.error[-16:]) for e in kit.seen.of(WriteFailed)]
    assert told == [
        ("apply", "by hand 1", "the disk is full"),
        ("delete_nodes", None, "the disk is gone"),
    ]
    assert not kit.seen.of(ChangesetApplied) + kit.seen.of(NodesDeleted)


async def test_a_recall_is_told_once(open_kit, monkeypatch):
    """RecallExecuted or RecallFailed, one for each call that was asked."""
    kit = await open_kit(embedded=True)
    await kit.repo.recall("pier", k=3)
    await kit.repo.recall_in_context("no session", "pier")
    with pytest.raises(ValueError, match="blank"):
        await kit.repo.recall(" ")

    async def broken() -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(kit.repo._parts.index, "corpus", broken)
    with pytest.raises(RecallFailed):
        await kit.repo.recall("pier")
    told = [e for e in kit.seen.events if isinstance(e, RecallExecuted | mnemo.events.RecallFailed)]
    assert [type(event).__name__ for event in told] == ["RecallExecuted"] * 2 + ["RecallFailed"]
    assert {event.query for event in told} == {"pier"}


async def test_events_and_logs_carry_no_stored_text(open_kit, caplog):
    """Ids and numbers, and of texts only a query; at INFO the logs likewise."""
    kit = await open_kit(embedded=True)
    with caplog.at_level(logging.INFO):
        session = await kit.repo.start_session("Guard the heron")
        await session.append(SECRET, "Told nobody of the heron", metadata={"a": "heron"})
        await session.close_and_commit()
        await kit.repo.recall("who knows it?")
        await kit.repo.validate()
        await kit.repo.forget(session_id=session.id)
    assert len({type(event) for event in kit.seen.events}) > 5
    assert "who knows it?" in repr(kit.seen.events)
    assert "heron" not in repr(kit.seen.events)
    assert "heron" not in caplog.text


async def test_every_event_says_where_and_when(kit):
    """repo_id and a time of the service's clock are on each event."""
    await appended(kit, 1)
    await kit.repo.recall("o0", reason=False)
    assert kit.seen.events
    assert {event.repo_id for event in kit.seen.events} == {"r"}
    assert {event.at for event in kit.seen.events} == {kit.clock.now()}


# ── Observers ────────────────────────────────────────────────────────────────────────


async def test_observers_are_called_in_the_order_of_their_subscription(kit):
    """From their subscription on, each with every event."""
    await kit.repo.apply(by_hand(0))
    calls = []
    for name in "ab":
        kit.memory.subscribe(lambda event, name=name: calls.append((name, event)))
    await kit.repo.apply(by_hand(1))
    applied = kit.seen.of(ChangesetApplied)[1:]
    assert calls == [("a", applied[0]), ("b", applied[0])]


async def test_an_asynchronous_observer_gets_one_event_at_a_time(kit):
    """In order, each after it has returned from the one before; what it raises is logged."""
    running, seen = [], []

    async def observer(event: Event) -> None:
        running.append(event)
        await anyio.lowlevel.checkpoint()
        assert running == [event]
        running.clear()
        seen.append(event.revision)
        raise RuntimeError("an observer's own trouble")

    kit.memory.subscribe(observer)
    for number in range(5):
        await kit.repo.apply(by_hand(number))
    await kit.until(lambda: len(seen) == 5)
    assert seen == [1, 2, 3, 4, 5]


async def test_an_observer_that_lags_loses_its_oldest_and_is_told_once(kit):
    """At overflow of its queue: one EventsDropped in their place; it delays nobody."""
    let_go, seen = anyio.Event(), []

    async def slow(event: Event) -> None:
        seen.append(event)
        await let_go.wait()

    kit.memory.subscribe(slow)
    await kit.repo.recall("first", reason=False)
    await kit.until(lambda: len(seen) == 1)
    for number in range(OBSERVER_BUFFER + 3):
        kit.memory._bus.publish(
            StepAppended(repo_id="r", at=kit.clock.now(), session_id="s", step_index=number)
        )
    assert len(kit.seen.of(StepAppended)) == OBSERVER_BUFFER + 3
    let_go.set()
    await kit.until(lambda: len(seen) == OBSERVER_BUFFER + 2)
    assert isinstance(seen[1], EventsDropped)
    assert (seen[1].count, seen[1].repo_id) == (3, "r")
    assert [event.step_index for event in seen[2:]] == list(range(3, OBSERVER_BUFFER + 3))


async def test_commits_go_on_beside_observers_that_raise_or_hang(open_kit, caplog):
    """A third observer gets every event, in order, and the trouble is logged."""
    kit = await open_kit(embedded=True)

    async def hanging(event: Event) -> None:
        await anyio.sleep_forever()

    async def raising(event: Event) -> None:
        raise RuntimeError("an observer's own trouble")

    third = RecordingObserver()
    for observer in (hanging, raising, third):
        kit.memory.subscribe(observer)
    session = await kit.begun("The pier is closed.", "Noted")
    assert (await session.close_and_commit()).status == "committed"
    assert third.events == kit.seen.events
    states = [event.to_state for event in third.of(SessionTransitioned)]
    assert states[-3:] == ["extracting", "ready", "idle"]
    await kit.until(lambda: "an observer's own trouble" in caplog.text)


async def test_an_observer_may_cancel_another_for_the_same_event(kit):
    """After cancel() no further call starts, not even of what is being told just now."""
    second = RecordingObserver()

    def first(event: Event) -> None:
        subscription.cancel()

    kit.memory.subscribe(first)
    subscription = kit.memory.subscribe(second)
    await kit.repo.apply(by_hand(1))
    assert second.events == []


async def test_an_observer_may_call_mnemo_about_what_sent_the_event(open_kit):
    """The session itself from a function; the repository and the service from a coroutine."""
    kit = await open_kit(embedded=True)
    session = await kit.started()
    ended = []

    def closing(event: Event) -> None:
        if isinstance(event, StepAppended) and session.state == "collecting":
            session.close_async(lambda outcome: ended.append(outcome.value))

    async def shutting(event: Event) -> None:
        if isinstance(event, SessionTransitioned) and event.to_state == "ready":
            await kit.repo.delete_nodes(["unknown"])
            await kit.memory.close_repo("r")
            ended.append("repository")

    kit.memory.subscribe(closing)
    kit.memory.subscribe(shutting)
    await session.append("The pier is closed.", "Noted")
    await kit.until(lambda: "repository" in ended)
    assert ended == ["closed", "repository"]
    assert kit.memory.list_repos() == []


async def test_the_service_may_be_closed_by_an_observer(kit):
    """It does not wait for itself."""
    closed = anyio.Event()

    async def last(event: Event) -> None:
        await kit.memory.aclose()
        closed.set()

    kit.memory.subscribe(last)
    await kit.repo.apply(by_hand(1))
    with anyio.fail_after(120):
        await closed.wait()


async def test_a_cancelled_subscription_hears_nothing_more(kit):
    """cancel() is idempotent, for functions and coroutine functions."""
    plain, slow = RecordingObserver(), RecordingObserver()

    async def through_a_queue(event) -> None:
        slow(event)

    subscriptions = [kit.memory.subscribe(plain), kit.memory.subscribe(through_a_queue)]
    await appended(kit, 1)
    await kit.until(lambda: bool(slow.of(StepAppended)))
    for subscription in subscriptions:
        subscription.cancel()
        subscription.cancel()
    before = len(plain.events), len(slow.events)
    await appended(kit, 2)
    await kit.at_rest()
    assert (len(plain.events), len(slow.events)) == before


async def test_an_asynchronous_observer_gets_what_is_due_before_the_end(kit):
    """aclose delivers what is due before it returns."""
    seen = []

    async def observer(event) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(type(event))

    kit.memory.subscribe(observer)
    await appended(kit, 5)
    await kit.memory.aclose()
    assert seen.count(StepAppended) == 5


# ── The stream ───────────────────────────────────────────────────────────────────────


async def test_each_reader_has_a_buffer_of_its_own(kit):
    """One that lags loses what another one gets."""
    async with kit.memory.events(buffer=2) as narrow, kit.memory.events(buffer=8) as wide:
        for number in range(4):
            await kit.repo.apply(by_hand(number))
        few = [await anext(narrow) for _ in range(3)]
        all_of_them = [await anext(wide) for _ in range(4)]
    assert isinstance(few[0], EventsDropped)
    assert few[0].count == 2
    assert few[1:] == all_of_them[2:]


async def test_leaving_the_stream_releases_it(kit):
    """Nothing is buffered for a reader that has gone, also if it left by an error."""
    readers = len(kit.memory._bus.listeners)

    async def leaves() -> None:
        async with kit.memory.events() as events:
            await kit.repo.apply(by_hand(1))
            await anext(events)
            assert len(kit.memory._bus.listeners) == readers + 1
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        await leaves()
    assert len(kit.memory._bus.listeners) == readers


async def test_a_stream_that_was_left_ends_after_what_is_buffered(kit):
    """It does not wait for events that nobody delivers to it any more."""
    async with kit.memory.events() as events:
        await kit.repo.apply(by_hand(1))
    with anyio.fail_after(30):
        kinds = [type(event) async for event in events]
    assert kinds == [ChangesetApplied]


async def test_closing_ends_the_stream_after_what_is_buffered(kit):
    """A reader gets what is due, and then its iteration ends."""
    async with kit.memory.events() as events:
        await appended(kit, 2)
        await kit.at_rest()
        await kit.memory.aclose()
        kinds = [type(event) async for event in events]
    assert kinds.count(StepAppended) == 2

"""Corners of the write side: shutdown, races of callers, observers that call back."""

import asyncio

import anyio
import anyio.lowlevel
import pytest
from helpers import annotating
from world import PausingStore

from mnemo import Changeset, Config, SessionError, SessionState
from mnemo.errors import CommitFailed, ModelUnavailable, StoreError, StoreLocked
from mnemo.events import SessionExpired, SessionTransitioned, TrajectoryExtractionFailed
from mnemo.log.sessions import StoredSessions
from mnemo.testing import ScriptedChatModel
from mnemo.values.journal import Owner

AUTO = Config(session={"auto_commit": True})


async def ready_to_merge(kit):
    """A ready session whose commit will ask a model to merge intents, which does not answer."""
    first = await kit.begun("the door was shut", "knock at the door")
    await first.close_and_commit()
    kit.model.block("merge_intent")
    return await kit.closed("the door was shut again", "knock at the door twice", until="ready")


def instructed(request):
    """One instruction, whose intent is worded a little differently the second time."""
    again = "again" in request.messages[1].content
    return {
        "instructions": [
            {
                "intent": "open a door now" if again else "open a door",
                "condition": "it is shut",
                "instruction": "knock",
                "expected_outcome": "it opens",
                "steps": [0],
            }
        ]
    }


MERGING = Config(commit={"intent_merge_threshold": 0.3})


async def test_closing_does_not_wait_for_a_model_that_a_commit_asks(open_kit):
    """A commit that waits for a model has no transaction yet: aclose ends it, still ready."""
    kit = await open_kit(
        model=ScriptedChatModel.answering({"procedural": instructed}),
        config=MERGING,
    )
    session = await ready_to_merge(kit)
    operation = session.commit_async()
    await kit.until(lambda: kit.model.waiting == 1)
    with anyio.fail_after(120):
        await session.aclose()
    with pytest.raises(SessionError) as ended:
        await operation
    assert ended.value.reason == "session_closed"
    (record,) = await kit.repo.unfinished_sessions()
    assert record.state is SessionState.READY


async def test_a_session_that_ends_while_others_write_for_long_is_given_up(open_kit, monkeypatch):
    """Else nobody could go on with it, as long as the service lives that had it."""
    kit = await open_kit()
    session = await kit.begun("the door was shut", "knock at the door")
    release, tried = StoredSessions.release, list[str]()

    async def locked(self, owner, session_id):
        tried.append(session_id)
        if len(tried) < 3:
            raise StoreLocked("another process held the write lock too long")
        await release(self, owner, session_id)

    monkeypatch.setattr(StoredSessions, "release", locked)
    await session.aclose()
    assert tried == [session.id] * 3
    other = Owner(token="other", host="elsewhere/1", pid=1, started=1)
    await kit.repo._parts.sessions.claim(session.id, other)


async def test_a_timeout_of_close_and_commit_bounds_the_commit_too(open_kit):
    """timeout_s bounds the waiting: TimeoutError while the commit waits for a model."""
    kit = await open_kit(
        model=ScriptedChatModel.answering({"procedural": instructed}),
        config=MERGING,
    )
    first = await kit.begun("the door was shut", "knock at the door")
    await first.close_and_commit()
    kit.model.block("merge_intent")
    session = await kit.begun("the door was shut again", "knock at the door twice")
    ended = []

    async def whole() -> None:
        with pytest.raises(TimeoutError):
            await session.close_and_commit(timeout_s=5)
        ended.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(whole)
        await kit.until(lambda: kit.model.waiting == 1)
        await kit.clock.advance(5)
        with anyio.move_on_after(60):
            await kit.until(lambda: bool(ended))
        released_late = not ended
        kit.model.unblock("merge_intent")
    assert not released_late
    assert await session.wait_for("idle") is SessionState.IDLE


async def test_a_callback_may_close_the_service(collecting):
    """aclose of the service from inside a callback does not wait for that callback."""
    kit, session = collecting
    closed = anyio.Event()

    async def callback(outcome) -> None:
        await kit.memory.aclose()
        closed.set()

    session.append_async("seen", "done", callback)
    with anyio.fail_after(120):
        await closed.wait()
        await kit.memory.aclose()


async def test_an_operation_that_finished_during_the_end_says_so(open_kit):
    """A commit whose transaction was running at aclose ends with "committed"."""
    store = PausingStore("apply")
    kit = await open_kit(store=store)
    session = await kit.closed(until="ready")
    outcomes = []
    operation = session.commit_async(outcomes.append)
    await store.entered.wait()
    async with anyio.create_task_group() as group:
        group.start_soon(session.aclose)
        await kit.until(lambda: session._work.life.closing)
        store.let_go.set()
    assert await operation == "committed"
    assert [outcome.value for outcome in outcomes] == ["committed"]


async def test_an_append_during_the_annotation_of_a_flush_does_not_fail_it(open_kit):
    """A flush takes the steps that are annotated; one that arrives meanwhile waits for the next."""
    model = ScriptedChatModel.answering()
    answer = annotating(["g"])
    asked = []

    async def annotate(request):
        asked.append(request)
        return ModelUnavailable("down", retryable=False) if len(asked) == 1 else answer(request)

    model.script("annotate", annotate)
    kit = await open_kit(model=model, config=AUTO)
    session = await kit.begun("one", "")
    await kit.at_rest()
    kit.model.block("annotate")
    await kit.clock.advance(120)
    await kit.until(lambda: model.waiting == 1)
    await session.append("two", "")
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    assert model.waiting == 1
    kit.model.unblock("annotate")
    await kit.at_rest()
    assert kit.seen.of(TrajectoryExtractionFailed) == []
    assert session.error is None
    await kit.pass_time(120)
    assert len(await kit.repo.get_nodes(["episodic"])) == 2


async def test_an_awaited_commit_beside_a_retrying_one_commits_once(open_kit):
    """Of a retrying commit_async and an awaited commit one commits, the other is told."""
    model = ScriptedChatModel.answering(
        {"semantic": [ModelUnavailable("down", retryable=False), {"facts": []}]}
    )
    kit = await open_kit(model=model)
    session = await kit.closed(until="failed")
    receipts = []

    async def eager() -> None:
        await session.wait_for("ready")
        receipts.append(await session.commit())

    async with anyio.create_task_group() as group:
        group.start_soon(eager)
        await kit.until(lambda: len(session._work.waiters._waiters) == 1)
        operation = session.commit_async()
        with pytest.raises(SessionError) as told:
            await operation
    assert told.value.reason == "commit_in_progress"
    assert receipts[0].status == "committed"
    assert session.state is SessionState.IDLE


async def test_a_callback_that_hangs_keeps_no_other_from_running(collecting):
    """At the end a callback that does not end is cancelled, and those after it still run."""
    kit, session = collecting
    called = []

    async def hanging(outcome) -> None:
        called.append("hanging")
        await anyio.sleep_forever()

    session.append_async("one", "", hanging)
    session.append_async("two", "", lambda outcome: called.append("two"))
    session.append_async("three", "", lambda outcome: called.append("three"))
    await kit.until(lambda: called == ["hanging"])
    with anyio.fail_after(120):
        await session.aclose()
    assert called == ["hanging", "two", "three"]


async def test_a_commit_queued_by_an_observer_of_extracting_ends_with_its_failure(open_kit):
    """The session is busy when it tells of extracting; what is queued then fails with it."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down", retryable=False)})
    kit = await open_kit(model=model)
    session = await kit.begun()
    seen = []

    def observer(event) -> None:
        if isinstance(event, SessionTransitioned) and event.to_state == "extracting" and not seen:
            seen.append((session.busy, session.commit_async()))

    kit.memory.subscribe(observer)
    await session.close()
    ((busy, operation),) = seen
    with pytest.raises(SessionError) as failed:
        await operation
    assert (busy, failed.value.reason) == (True, "extraction_failed")
    assert len(kit.model.calls("semantic")) == 1


async def test_an_observer_may_discard_a_failed_episode(open_kit):
    """An operation accepted after an extraction failed does not end with that failure."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down", retryable=False)})
    kit = await open_kit(model=model)
    session = await kit.begun()
    operations = []

    def observer(event) -> None:
        if isinstance(event, SessionTransitioned) and event.to_state == "failed":
            operations.append(session.discard_async())

    kit.memory.subscribe(observer)
    await session.close()
    await session.wait_for("failed")
    assert await operations[0] == "discarded"


async def test_who_hears_of_a_discard_sees_an_empty_session(kit):
    """When the event of a discard arrives, the episode is gone and so is the error."""
    session = await kit.closed(until="ready")
    seen = []
    kit.memory.subscribe(lambda event: seen.append((session.state, session.context())))
    await session.discard()
    assert seen == [(SessionState.IDLE, None)]


async def test_a_session_that_starts_while_the_repository_closes_is_refused(open_kit):
    """What became durable meanwhile is listed as unfinished, and no open session is left."""
    store = PausingStore("create")
    kit = await open_kit(store=store)
    refused = []

    async def start() -> None:
        try:
            await kit.repo.start_session("g", session_id="s")
        except Exception as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(start)
        await store.entered.wait()
        await kit.memory.close_repo("r")
        store.let_go.set()
    assert len(refused) == 1
    again = await kit.memory.open_repo("r")
    assert [record.id for record in await again.unfinished_sessions()] == ["s"]
    assert (await again.resume_session("s")).state is SessionState.COLLECTING


async def test_closing_the_service_waits_for_a_write_of_the_repository(open_kit):
    """apply() that runs when the service closes returns its revision, it is not cancelled."""
    store = PausingStore("apply")
    kit = await open_kit(store=store, config=Config(shutdown_grace_s=1))
    revisions = []

    async def write() -> None:
        revisions.append(await kit.repo.apply(Changeset()))

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await store.entered.wait()
        group.start_soon(kit.memory.aclose)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        store.let_go.set()
    assert len(revisions) == 1


async def test_a_refusal_names_the_present_state(kit):
    """A refusal names the state of that moment, not the one that is projected."""
    kit.model.block("semantic")
    session = await kit.closed()
    with pytest.raises(SessionError) as refused:
        session.close_async()
    assert refused.value.state is SessionState.EXTRACTING
    kit.model.unblock("semantic")


async def test_a_session_that_is_ending_is_opened_anew(collecting):
    """resume_session of a session that is closing waits for its end and opens it again."""
    kit, session = collecting
    async with anyio.create_task_group() as group:
        group.start_soon(session.aclose)
        await kit.until(lambda: session._work.life.closing)
        again = await kit.repo.resume_session(session.id)
    assert (await again.append("seen", "done")).index == 0


async def test_a_queued_and_an_awaited_append_keep_their_order_after_a_start(session):
    """Appends of one task keep their order right after a queued start, queued or awaited."""
    await session.close_and_commit()
    session.start_episode_async("g")
    await session.wait_for("collecting")
    first = session.append_async("one", "")
    await session.append("two", "")
    assert await first == "appended"
    assert [step.observation for step in session.recent_steps(2)] == ["one", "two"]


async def test_a_resumed_session_annotates_only_what_lacks_it(open_kit, db):
    """Steps behind one whose annotation failed keep theirs when the session is resumed."""
    answer, asked = annotating(["g"]), []

    def annotate(request):
        asked.append(request)
        return ModelUnavailable("down", retryable=False) if len(asked) == 1 else answer(request)

    model = ScriptedChatModel.answering({"annotate": annotate})
    kit = await open_kit(model=model, store=str(db))
    session = await kit.started()
    for text in ("one", "two", "three"):
        await session.append(text, "")
        await kit.at_rest()
    await session.aclose()
    again = await kit.repo.resume_session(session.id)
    await kit.at_rest()
    assert len(asked) == 4
    assert all(step.annotation for step in again.recent_steps(3))


async def test_appends_that_wait_for_room_are_not_overtaken(open_kit):
    """Beyond the backlog index order is arrival order too."""
    kit = await open_kit(config=Config(session={"max_append_backlog": 1}))
    kit.model.block("annotate")
    session = await kit.begun("0", "")
    steps = []

    async def append(text: str) -> None:
        steps.append(await session.append(text, ""))

    async with anyio.create_task_group() as group:
        group.start_soon(append, "1")
        await kit.until(lambda: session._work._pulsed is not None)
        original = session._work.lane._room

        def room() -> None:
            if not steps:
                group.start_soon(append, "2")
            original()

        session._work.lane._room = room
        kit.model.unblock("annotate")
        await kit.until(lambda: len(steps) >= 2)
    ordered = [step.observation for step in sorted(steps, key=lambda step: step.index)]
    assert ordered[:2] == ["1", "2"]


async def test_queued_work_behind_an_awaited_commit_falls_with_it(open_kit):
    """What was accepted because a commit was in flight ends with that commit's failure."""
    store = PausingStore("apply")
    store.fail("apply", error=CommitFailed("the disk is full"))
    kit = await open_kit(store=store)
    session = await kit.closed(until="ready")

    async def commit() -> None:
        with pytest.raises(CommitFailed):
            await session.commit()

    async with anyio.create_task_group() as group:
        group.start_soon(commit)
        await store.entered.wait()
        start = session.start_episode_async("next")
        store.let_go.set()
    with pytest.raises(SessionError) as failed:
        await start
    assert failed.value.reason == "preceding_op_failed"


async def test_closing_a_repository_and_the_service_at_once_ends_both(kit):
    """close_repo beside aclose: neither caller is cancelled, what waits is ended."""
    kit.model.block("semantic")
    session = await kit.closed()
    operation = session.commit_async()
    closed = []

    async def close_repo() -> None:
        await kit.memory.close_repo("r")
        closed.append("repo")

    async with anyio.create_task_group() as group:
        group.start_soon(close_repo)
        await kit.until(lambda: session._ending)
        await kit.memory.aclose()
    assert closed == ["repo"]
    with pytest.raises(SessionError) as ended:
        await operation
    assert ended.value.reason == "session_closed"


async def test_the_flush_comes_although_a_close_failed_as_it_was_due(open_kit):
    """A close that could not be written leaves the session collecting, and its timers set."""
    store = PausingStore("nothing")
    kit = await open_kit(store=store, config=AUTO)
    session = await kit.begun()
    await kit.at_rest()
    store.paused = "record"
    store.fail("record")

    async def close() -> None:
        with pytest.raises(StoreError):
            await session.close()

    async with anyio.create_task_group() as group:
        group.start_soon(close)
        await store.entered.wait()
        await kit.clock.advance(120)
        store.let_go.set()
    assert session.state is SessionState.COLLECTING
    await kit.pass_time(120)
    assert len(await kit.repo.get_nodes(["episodic"])) == 1


async def test_an_ended_service_leaves_no_task(open_kit):
    """After a shutdown over blocked models no task of the service is left."""
    before = set(asyncio.all_tasks())
    kit = await open_kit(config=AUTO)
    kit.model.block()
    kit.memory.subscribe(lambda event: None)
    session = await kit.started()
    operation = session.append_async("seen", "done")
    await operation
    await session.close()
    await kit.memory.aclose()
    assert set(asyncio.all_tasks()) == before


async def test_the_expiry_lets_a_waiting_close_go_first(open_kit):
    """A session that is due to expire while operations wait ends after them, not before."""
    kit = await open_kit(config=Config(session={"auto_commit": True, "session_timeout_s": 200}))
    session = await kit.begun()
    await kit.at_rest()
    kit.model.block("semantic")
    await kit.clock.advance(120)
    await kit.until(lambda: kit.model.waiting == 1)
    close = session.close_async()
    await kit.clock.advance(80)
    kit.model.unblock("semantic")
    assert await close == "closed"
    assert await session.wait_for("idle") is SessionState.IDLE
    assert kit.seen.of(SessionExpired) == []
    await session.start_episode("next")


async def test_discard_after_a_partial_commit_keeps_what_was_committed(open_kit):
    """What auto-commit committed before a discard stays, and the rest leaves recall."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model, config=AUTO)
    session = await kit.begun("the first fact", "noted")
    await kit.pass_time(120)
    model.script("semantic", ModelUnavailable("down", retryable=False))
    await session.append("the second fact", "noted")
    await session.close()
    await session.wait_for("failed")
    await session.discard()
    (kept,) = await kit.repo.get_nodes(["episodic"])
    assert kept.observation == "the first fact"
    assert session.error is None
    found = await kit.repo.recall("second fact")
    assert all("second" not in (source.text or "") for source in found.sources)


async def test_callbacks_of_a_failed_queue_run_in_order(open_kit, failing_store):
    """A commit that fails as it is run ends before those that were accepted on its promise."""
    store = failing_store()
    store.fail("apply", error=CommitFailed("the disk is full"))
    kit = await open_kit(store=store)
    session = await kit.begun()
    ended = []
    session.close_async()
    session.commit_async(lambda outcome: ended.append("commit"))
    session.start_episode_async("next", lambda outcome: ended.append("start"))
    await kit.until(lambda: len(ended) == 2)
    assert ended == ["commit", "start"]


@pytest.mark.parametrize("closed", [True, False])
async def test_an_automatic_commit_that_asks_a_model_keeps_no_end_waiting(open_kit, closed):
    """aclose gives a model no time under auto-commit either; the steps are committed later."""
    kit = await open_kit(
        model=ScriptedChatModel.answering({"procedural": instructed}), config=MERGING.overlaid(AUTO)
    )
    first = await kit.begun("the door was shut", "knock at the door")
    await first.close_and_commit()
    kit.model.block("merge_intent")
    session = await kit.begun("the door was shut again", "knock at the door twice")
    await kit.at_rest()
    if closed:
        await session.close()
    else:
        await kit.clock.advance(120)
    await kit.until(lambda: kit.model.waiting == 1)
    with anyio.fail_after(120):
        await session.aclose()
    kit.model.unblock("merge_intent")
    again = await kit.repo.resume_session(session.id)
    if not closed:
        await again.close()
    await again.wait_for("idle")
    assert len(await kit.repo.get_nodes(["episodic"])) == 2

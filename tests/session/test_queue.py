"""Queued operations: acceptance, order, failure, callbacks."""

import anyio
import pytest

from mnemo import (
    CommitFailed,
    ExtractionFailed,
    InvalidOperation,
    PendingQueueFull,
    SessionError,
    SessionState,
)
from mnemo.errors import ModelUnavailable
from mnemo.testing import ScriptedChatModel


async def extracting(kit):
    """A session whose extraction is held back by a blocked model."""
    kit.model.block("semantic")
    return await kit.closed()


class Outcomes:
    """Callbacks that note how each operation ended, in order."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, object]] = []

    def of(self, name: str):
        def callback(outcome) -> None:
            self.ended.append((name, outcome.value or outcome.error.reason))

        return callback


async def test_a_commit_queued_while_extracting_commits(kit):
    """The callback sees "committed" once, after the nodes can be read."""
    session = await extracting(kit)
    seen = []

    async def callback(outcome) -> None:
        seen.append((outcome.value, len(await kit.repo.get_nodes(["episodic"]))))

    operation = session.commit_async(callback)
    kit.model.unblock("semantic")
    assert await operation == "committed"
    await kit.until(lambda: len(seen) == 1)
    assert seen == [("committed", 1)]
    assert operation.done


async def test_a_second_commit_is_refused(kit):
    """Extracting with one queued commit projects to idle."""
    session = await extracting(kit)
    session.commit_async()
    with pytest.raises(InvalidOperation) as refused:
        session.commit_async()
    assert refused.value.reason == "invalid_queued_operation"
    kit.model.unblock("semantic")


async def test_the_sixth_waiting_operation_finds_the_queue_full(kit):
    """Five are accepted, a sixth legal one is pending_queue_full."""
    session = await extracting(kit)
    session.commit_async()
    session.start_episode_async("second")
    session.close_async()
    session.commit_async()
    last = session.start_episode_async("third")
    assert session.statistics().pending_operations == 5
    assert session.statistics().queue == (
        "commit",
        "start_episode",
        "close",
        "commit",
        "start_episode",
    )
    bound = r"5 operations wait.*config\.session\.max_pending"
    with pytest.raises(PendingQueueFull, match=bound) as full:
        session.append_async("o", "a")
    assert full.value.reason == "pending_queue_full"
    kit.model.unblock("semantic")
    assert await last == "started"
    assert session.goal == "third"


async def test_a_failed_extraction_ends_all_that_wait(open_kit):
    """Both end with extraction_failed, each callback once, state failed."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down")})
    kit = await open_kit(model=model)
    session = await extracting(kit)
    outcomes = Outcomes()
    session.commit_async(outcomes.of("commit"))
    start = session.start_episode_async("next", outcomes.of("start"))
    kit.model.unblock("semantic")
    await kit.until(lambda: len(outcomes.ended) == 2)
    assert outcomes.ended == [("commit", "extraction_failed"), ("start", "extraction_failed")]
    with pytest.raises(ExtractionFailed) as failed:
        await start
    assert isinstance(failed.value.__cause__, ModelUnavailable)
    assert session.state is SessionState.FAILED


async def test_a_failed_commit_ends_what_was_accepted_after_it(open_kit, failing_store):
    """First CommitFailed, second preceding_op_failed, state ready."""
    store = failing_store()
    store.fail("apply", error=CommitFailed("the disk is full"))
    kit = await open_kit(store=store)
    session = await extracting(kit)
    first, second = session.commit_async(), session.start_episode_async("next")
    kit.model.unblock("semantic")
    with pytest.raises(CommitFailed):
        await first
    with pytest.raises(SessionError) as failed:
        await second
    refused = (failed.value.reason, failed.value.operation)
    assert refused == ("preceding_op_failed", "start_episode")
    assert isinstance(failed.value.__cause__, CommitFailed)
    assert session.state is SessionState.READY


async def test_an_idle_session_accepts_only_a_start(session):
    """The others raise invalid_operation; start_episode_async ends with "started"."""
    await session.close_and_commit()
    calls = (
        session.close_async,
        session.commit_async,
        session.discard_async,
        lambda: session.append_async("o", "a"),
    )
    for call in calls:
        with pytest.raises(InvalidOperation) as refused:
            call()
        assert refused.value.reason == "invalid_operation"
    assert await session.start_episode_async("next") == "started"


async def test_a_whole_episode_can_be_queued_in_one_turn(collecting):
    """Start, append, close, commit without awaiting: four outcomes in this order."""
    kit, session = collecting
    await session.close_and_commit()
    outcomes = Outcomes()
    session.start_episode_async("g", outcomes.of("start"))
    session.append_async("Ana lives in Porto", "", outcomes.of("append"))
    session.close_async(outcomes.of("close"))
    session.commit_async(outcomes.of("commit"))
    await kit.until(lambda: len(outcomes.ended) == 4)
    assert outcomes.ended == [
        ("start", "started"),
        ("append", "appended"),
        ("close", "closed"),
        ("commit", "committed"),
    ]
    (node,) = await kit.repo.get_nodes(["episodic"])
    assert node.observation == "Ana lives in Porto"


async def test_callbacks_that_raise_or_sleep_change_nothing(collecting):
    """Later operations run, each callback once, state as if they had not."""
    kit, session = collecting
    called, let_go = [], anyio.Event()

    def raising(outcome) -> None:
        called.append("raising")
        raise RuntimeError("a callback's own trouble")

    async def sleeping(outcome) -> None:
        called.append("sleeping")
        await let_go.wait()

    session.append_async("one", "", raising)
    session.append_async("two", "", sleeping)
    session.close_async(lambda outcome: called.append("close"))
    assert await session.commit_async() == "committed"
    assert session.state is SessionState.IDLE
    assert called == ["raising", "sleeping"]
    let_go.set()
    await kit.until(lambda: called == ["raising", "sleeping", "close"])


async def test_a_cancelled_callback_stops_no_other(collecting):
    """A callback that ends by a cancellation of its own is logged, and the next one runs."""
    kit, session = collecting
    called = []

    async def cancelled(outcome) -> None:
        called.append("cancelled")
        raise anyio.get_cancelled_exc_class()

    session.append_async("one", "", cancelled)
    session.append_async("two", "", lambda outcome: called.append("next"))
    await kit.until(lambda: called == ["cancelled", "next"])


async def test_a_withdrawn_commit_takes_its_followers_with_it(kit):
    """Cancel() is True, awaiting raises "cancelled", the follower preceding_op_failed."""
    session = await extracting(kit)
    commit, start = session.commit_async(), session.start_episode_async("next")
    assert commit.cancel() is True
    with pytest.raises(SessionError) as cancelled:
        await commit
    assert cancelled.value.reason == "cancelled"
    with pytest.raises(SessionError) as failed:
        await start
    assert failed.value.reason == "preceding_op_failed"
    kit.model.unblock("semantic")
    await session.wait_for("ready")
    assert commit.cancel() is False


async def test_a_start_can_be_queued_behind_a_commit_that_retries(open_kit):
    """A commit in failed is one operation that projects to idle, also while it extracts."""
    answers = [ModelUnavailable("down"), {"facts": []}]
    kit = await open_kit(model=ScriptedChatModel.answering({"semantic": answers}))
    session = await kit.closed(until="failed")
    kit.model.block("semantic")
    commit = session.commit_async()
    await kit.until(lambda: kit.model.waiting > 0)
    start = session.start_episode_async("next")
    kit.model.unblock("semantic")
    assert await commit == "committed"
    assert await start == "started"
    assert session.goal == "next"


async def test_a_queued_commit_in_failed_that_fails_again_says_so(open_kit):
    """The retry's failure is the operation's own, and those behind end with extraction_failed."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down")})
    kit = await open_kit(model=model)
    session = await kit.closed(until="failed")
    outcomes = Outcomes()
    session.commit_async(outcomes.of("commit"))
    session.start_episode_async("next", outcomes.of("start"))
    await kit.until(lambda: len(outcomes.ended) == 2)
    assert outcomes.ended == [("commit", "extraction_failed"), ("start", "extraction_failed")]
    assert session.state is SessionState.FAILED


async def test_the_end_of_the_session_ends_what_waits(kit):
    """aclose ends waiting operations with session_closed and runs their callbacks."""
    session = await extracting(kit)
    outcomes = Outcomes()
    session.commit_async(outcomes.of("commit"))
    session.start_episode_async("next", outcomes.of("start"))
    await session.aclose()
    assert outcomes.ended == [("commit", "session_closed"), ("start", "session_closed")]
    kit.model.unblock("semantic")


async def test_a_callback_may_end_its_own_session(session):
    """aclose from inside a callback does not wait for the callback."""
    done = anyio.Event()

    async def close_it(outcome) -> None:
        await session.aclose()
        done.set()

    session.append_async("one", "", close_it)
    with anyio.fail_after(120):
        await done.wait()
        await session.aclose()


async def test_awaited_and_queued_appends_keep_one_order(session):
    """Indexes are given in the order of the calls, whichever way they were made."""
    first = session.append_async("zero", "")
    step = await session.append("one", "")
    second = session.append_async("two", "")
    await first
    await second
    assert step.index == 1
    assert session.context().steps == ("zero -> ", "one -> ", "two -> ")


async def test_cancelling_the_wait_leaves_the_operation(kit):
    """A task that awaits an operation may be cancelled; the operation goes on."""
    session = await extracting(kit)
    operation = session.commit_async()
    with anyio.move_on_after(0.01):
        await operation
    kit.model.unblock("semantic")
    assert await operation == "committed"

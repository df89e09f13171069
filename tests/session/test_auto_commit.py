"""Auto-commit: boundaries, flush, expiry; each step exactly once."""

import pytest
from helpers import BUILD, TRIP, annotating

from mnemo import Config, SessionBusy, SessionClosed, SessionError, SessionState
from mnemo.errors import CommitFailed, Conflict, ExtractionFailed, ModelUnavailable, StoreError
from mnemo.events import (
    AnnotationFailed,
    SessionExpired,
    SessionTransitioned,
    TrajectoryCommitted,
    TrajectoryExtractionFailed,
    TrajectoryFlushed,
)
from mnemo.testing import ScriptedChatModel

AUTO = Config(session={"auto_commit": True})
UNFLUSHED = Config(session={"auto_commit": True, "flush_timeout_s": None})


async def stored(kit, type: str = "episodic") -> int:
    return len(await kit.repo.get_nodes([type]))


async def test_a_boundary_commits_what_came_before_it(open_kit):
    """The first trajectory's nodes are stored while the session collects."""
    model = ScriptedChatModel.answering({"annotate": annotating([TRIP, TRIP, BUILD])})
    kit = await open_kit(model=model, config=AUTO)
    session = await kit.started()
    for number in range(3):
        await session.append(f"o{number}", f"a{number}")
    await kit.until(lambda: bool(kit.seen.of(TrajectoryCommitted)))
    assert session.state is SessionState.COLLECTING
    nodes = await kit.repo.get_nodes(["episodic"])
    assert [node.step_index for node in nodes] == [0, 1]


async def test_after_extraction_the_session_will_be_idle(open_kit):
    """Commit_async is refused while extracting, start_episode_async ends with "started"."""
    kit = await open_kit(config=AUTO)
    kit.model.block("semantic")
    session = await kit.closed()
    with pytest.raises(SessionError) as refused:
        session.commit_async()
    assert refused.value.reason == "invalid_queued_operation"
    start = session.start_episode_async("next")
    kit.model.unblock("semantic")
    assert await start == "started"
    assert await stored(kit) == 1


async def test_the_flush_comes_after_two_quiet_minutes(open_kit):
    """Nothing at 119 s; at 120 s stored, TrajectoryFlushed, still collecting."""
    kit = await open_kit(config=AUTO)
    session = await kit.begun()
    await kit.pass_time(119)
    assert await stored(kit) == 0
    await kit.pass_time(1)
    assert await stored(kit) == 1
    assert len(kit.seen.of(TrajectoryFlushed)) == 1
    assert session.state is SessionState.COLLECTING


async def test_a_step_that_was_deleted_since_holds_up_no_later_one(open_kit):
    """Its reward, known only now, has nowhere to go; the rest of the episode is committed."""
    kit = await open_kit(config=AUTO)
    session = await kit.begun("one", "did one")
    await kit.pass_time(120)
    await kit.repo.delete_nodes([node.id for node in await kit.repo.get_nodes(["episodic"])])
    await session.append("two", "did two")
    await kit.pass_time(120)
    assert (session.error, await stored(kit)) == (None, 1)
    await session.append("three", "did three")
    await session.close_and_commit()
    assert await stored(kit) == 2


async def test_every_append_starts_the_flush_timer_anew(open_kit):
    """A step, 100 s, a step, 100 s: nothing; 20 s more: both."""
    kit = await open_kit(config=AUTO)
    session = await kit.begun("one", "")
    await kit.pass_time(100)
    await session.append("two", "")
    await kit.pass_time(100)
    assert await stored(kit) == 0
    await kit.pass_time(20)
    assert await stored(kit) == 2


async def test_parts_of_a_trajectory_share_their_subgoal(open_kit):
    """A flush, two more steps and another flush: three steps, one subgoal node."""
    kit = await open_kit(config=AUTO)
    session = await kit.begun("one", "")
    await kit.pass_time(120)
    await session.append("two", "")
    await session.append("three", "")
    await kit.pass_time(120)
    assert await stored(kit) == 3
    assert await stored(kit, "subgoal") == 1
    assert len(kit.seen.of(TrajectoryFlushed)) == 2


async def test_an_abandoned_session_expires_with_everything_committed(open_kit):
    """600 s without an append: rest committed, SessionExpired, then SessionClosed."""
    kit = await open_kit(config=Config(session={"auto_commit": True, "flush_timeout_s": None}))
    session = await kit.begun()
    await kit.clock.advance(600)
    await kit.until(lambda: bool(kit.seen.of(SessionExpired)))
    await session.aclose()
    assert await stored(kit) == 1
    with pytest.raises(SessionClosed):
        await session.append("too late", "")
    assert await kit.repo.unfinished_sessions() == []


async def test_a_flush_and_then_the_expiry_commit_each_step_once(open_kit):
    """600 s in one go: the flush and the expiry meet, and the step is stored once."""
    kit = await open_kit(config=AUTO)
    session = await kit.begun()
    await kit.clock.advance(600)
    await kit.until(lambda: bool(kit.seen.of(SessionExpired)))
    assert await stored(kit) == 1
    assert session.state is SessionState.IDLE


@pytest.mark.parametrize(
    "config",
    [
        Config(session={"auto_commit": True, "flush_timeout_s": None, "session_timeout_s": None}),
        Config(session={"auto_commit": False}),
    ],
)
async def test_without_timers_time_changes_nothing(open_kit, config):
    """Any advance of the clock stores nothing and ends nothing."""
    kit = await open_kit(config=config)
    session = await kit.begun()
    await kit.pass_time(100_000)
    assert await stored(kit) == 0
    assert session.state is SessionState.COLLECTING
    assert (await session.append("still here", "")).index == 1


async def test_background_work_holds_back_a_close(open_kit):
    """Awaited close raises extraction_in_progress; close_async ends with "closed"."""
    model = ScriptedChatModel.answering({"annotate": annotating([TRIP, BUILD])})
    kit = await open_kit(model=model, config=AUTO)
    kit.model.block("semantic")
    session = await kit.begun("one", "")
    await session.append("two", "")
    await kit.until(lambda: session.busy)
    with pytest.raises(SessionError) as refused:
        await session.close()
    assert refused.value.reason == "extraction_in_progress"
    step = session.append_async("three", "")
    assert await step == "appended"
    close = session.close_async()
    kit.model.unblock("semantic")
    assert await close == "closed"
    await session.wait_for("idle")
    assert await stored(kit) == 3


async def test_close_and_commit_covers_the_whole_episode(open_kit):
    """Under auto-commit the receipt names all nodes, those of the background included."""
    model = ScriptedChatModel.answering({"annotate": annotating([TRIP, BUILD])})
    kit = await open_kit(model=model, config=AUTO)
    session = await kit.begun("one", "")
    await session.append("two", "")
    await kit.until(lambda: bool(kit.seen.of(TrajectoryCommitted)))
    receipt = await session.close_and_commit()
    episodic = {node.id for node in await kit.repo.get_nodes(["episodic"])}
    assert len(episodic) == 2
    assert episodic <= set(receipt.node_ids)
    assert receipt.revision == 2


async def test_a_failed_background_extraction_is_done_again(open_kit):
    """Its steps stay uncommitted, the session collects, and the next flush takes them."""
    answers = [ModelUnavailable("down"), {"facts": []}]
    kit = await open_kit(model=ScriptedChatModel.answering({"semantic": answers}), config=AUTO)
    session = await kit.begun("one", "")
    await kit.pass_time(120)
    assert len(kit.seen.of(TrajectoryExtractionFailed)) == 1
    assert session.state is SessionState.COLLECTING
    assert session.error is not None
    assert await stored(kit) == 0
    await kit.pass_time(120)
    assert await stored(kit) == 1
    assert session.error is None


async def test_a_flush_whose_annotations_cannot_be_written_comes_again(open_kit, failing_store):
    """The failure is told, and the next flush stores all steps."""
    store = failing_store()
    config = Config(session={"auto_commit": True}, annotation={"batch_size": 2})
    kit = await open_kit(store=store, config=config)
    kit.model.script("annotate", ModelUnavailable("down"))
    session = await kit.begun("one", "")
    await session.append("two", "")
    await kit.until(lambda: sum(len(e.step_indexes) for e in kit.seen.of(AnnotationFailed)) == 2)
    kit.model.script("annotate", annotating([TRIP]))
    store.fail("record", error=StoreError("the disk is full"), times=2)
    await kit.pass_time(120)
    assert isinstance(session.error, ExtractionFailed)
    assert len(kit.seen.of(TrajectoryExtractionFailed)) == 1
    await kit.pass_time(120)
    assert await stored(kit) == 2
    assert session.error is None


@pytest.mark.parametrize("again", ["flush", "close"])
async def test_a_failed_background_commit_makes_no_second_model_call(
    open_kit, failing_store, again
):
    """If only the commit failed, the staged result is kept and committed at the next try."""
    store = failing_store()
    store.fail("apply", error=CommitFailed("the disk is full"))
    kit = await open_kit(store=store, config=AUTO)
    session = await kit.begun("one", "")
    await kit.pass_time(120)
    assert await stored(kit) == 0
    assert isinstance(session.error, CommitFailed)
    asked = len(kit.model.calls("semantic"))
    if again == "flush":
        await kit.pass_time(120)
    else:
        receipt = await session.close_and_commit()
        assert {node.id for node in await kit.repo.get_nodes(["episodic"])} <= set(receipt.node_ids)
    assert await stored(kit) == 1
    assert len(kit.model.calls("semantic")) == asked
    assert session.error is None


async def test_a_failed_automatic_commit_leaves_ready(open_kit, failing_store):
    """extracting → ready with the error set; commit tries again with what is staged."""
    store = failing_store()
    store.fail("apply", error=CommitFailed("the disk is full"))
    kit = await open_kit(store=store, config=AUTO)
    session = await kit.closed("one", "", until="ready")
    assert isinstance(session.error, CommitFailed)
    receipt = await session.commit()
    assert receipt.status == "committed"
    assert await stored(kit) == 1
    ends = [(e.from_state, e.to_state) for e in kit.seen.of(SessionTransitioned)]
    assert ends == [
        ("collecting", "extracting"),
        ("extracting", "ready"),
        ("ready", "idle"),
    ]


async def test_a_late_reward_reaches_the_stored_step(open_kit):
    """A step flushed before its reward was known gets it with the next changeset."""
    kit = await open_kit(config=AUTO)
    session = await kit.begun("one", "did it")
    await kit.pass_time(120)
    (early,) = await kit.repo.get_nodes(["episodic"])
    assert early.reward is None
    await session.append("two", "did that")
    await session.close_and_commit()
    assert (await kit.repo.get_node(early.id)).reward == 0.5


@pytest.mark.parametrize("leads_to", ["flush", "close"])
async def test_an_unforeseen_failure_of_a_commit_is_logged(
    open_kit, failing_store, caplog, leads_to
):
    """Nobody awaits an automatic commit, so an error that is not mnemo's own reaches the log."""
    store = failing_store()
    store.fail("apply", error=RuntimeError("a bug"))
    kit = await open_kit(store=store, config=AUTO)
    session = await kit.begun("one", "")
    if leads_to == "flush":
        await kit.pass_time(120)
    else:
        await session.close()
        await session.wait_for("ready")
    assert isinstance(session.error, RuntimeError)
    assert any("a commit of session" in record.message for record in caplog.records)
    assert await stored(kit) == 0


async def expired_in_vain(kit, store) -> None:
    """Let the session be due to expire while its end cannot be written."""
    store.fail("record", error=StoreError("the disk is full"))
    await kit.pass_time(600)
    await kit.until(lambda: not store._faults["record"])
    await kit.at_rest()


async def test_an_expiry_that_could_not_be_written_comes_again(open_kit, failing_store):
    """The session whose closing failed at its expiry goes on, and expires the next time."""
    store = failing_store()
    kit = await open_kit(store=store, config=UNFLUSHED)
    session = await kit.begun()
    await kit.at_rest()
    await expired_in_vain(kit, store)
    assert session.state == "collecting"
    await session.append("seen again", "")
    await kit.pass_time(600)
    await kit.until(lambda: bool(kit.seen.of(SessionExpired)))
    await session.aclose()
    assert len(await kit.repo.get_nodes(["episodic"])) == 2


async def test_an_expiry_comes_again_without_another_append(open_kit, failing_store):
    """The timer that could not do its work is set again for its full length."""
    store = failing_store()
    kit = await open_kit(store=store, config=UNFLUSHED)
    await kit.started()
    await expired_in_vain(kit, store)
    assert kit.seen.of(SessionExpired) == []
    await kit.pass_time(600)
    await kit.until(lambda: bool(kit.seen.of(SessionExpired)))


async def test_an_expiry_that_meets_work_in_the_background_comes_again(open_kit, monkeypatch):
    """The work began while the close asked the store what it knows; nothing else is appended."""
    kit = await open_kit(config=UNFLUSHED)
    session = await kit.begun()

    async def refused() -> None:
        monkeypatch.undo()
        raise SessionBusy("extraction_in_progress", state=session.state, operation="close")

    monkeypatch.setattr(session._work, "close", refused)
    await kit.pass_time(600)
    assert kit.seen.of(SessionExpired) == []
    await kit.pass_time(600)
    await kit.until(lambda: bool(kit.seen.of(SessionExpired)))
    assert await stored(kit) == 1


async def test_the_expiry_of_a_session_that_another_service_has_ends_it_here(
    open_kit, failing_store
):
    """It is not expired for the other, and no operation is left waiting here."""
    store = failing_store()
    kit = await open_kit(store=store, config=UNFLUSHED)
    session = await kit.begun()
    await kit.at_rest()
    store.fail("record", error=Conflict("another service owns it"))
    await kit.pass_time(600)
    await kit.at_rest()
    with pytest.raises(SessionClosed):
        await session.append("late", "")
    assert kit.seen.of(SessionExpired) == []

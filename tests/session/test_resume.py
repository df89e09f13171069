"""What survives: sessions found again after a restart, and how a service shuts down."""

import anyio
import pytest

from mnemo import Config, SessionBusy, SessionClosed, SessionState, UsageError


async def reopened(open_kit, db, kit, **arguments):
    """The same store, opened by the next run of the service."""
    await kit.memory.aclose()
    return await open_kit(store=db, **arguments)


async def test_steps_survive_a_restart(open_kit, db):
    """The session resumes collecting, the step is there once, the next index follows."""
    kit = await open_kit(store=db)
    session = await kit.started("g", session_id="s")
    await session.append("seen", "done", key="k", metadata={"n": 1})
    kit = await reopened(open_kit, db, kit)
    (record,) = await kit.repo.unfinished_sessions()
    assert (record.id, record.goal, record.state, record.steps) == ("s", "g", "collecting", 1)
    session = await kit.repo.resume_session("s")
    assert session.state is SessionState.COLLECTING
    assert session.context().steps == ("seen -> done",)
    assert (await session.append("seen", "done", key="k")).index == 0
    assert (await session.append("more", "")).index == 1


async def test_a_resumed_extraction_goes_on_by_itself(open_kit, db):
    """A session that stopped while extracting is listed so and reaches ready."""
    kit = await open_kit(store=db)
    kit.model.block("semantic")
    session = await kit.closed(session_id="s")
    kit = await reopened(open_kit, db, kit)
    (record,) = await kit.repo.unfinished_sessions()
    assert record.state == "extracting"
    session = await kit.repo.resume_session("s")
    assert await session.wait_for("ready") is SessionState.READY


async def test_a_resumed_ready_session_commits_without_a_model(open_kit, db):
    """The staged changeset is written under its own id, and no model is called."""
    kit = await open_kit(store=db)
    session = await kit.closed(until="ready", session_id="s")
    kit = await reopened(open_kit, db, kit)
    session = await kit.repo.resume_session("s")
    assert session.state is SessionState.READY
    receipt = await session.commit()
    assert receipt.node_ids
    assert kit.model.requests == []


async def test_staged_trajectories_are_not_extracted_again(open_kit, db):
    """A trajectory that was done before the restart costs no second model call."""
    from helpers import BUILD, TRIP, annotating

    from mnemo.testing import ScriptedChatModel

    released = anyio.Event()

    async def semantic(request):
        if "compiler" in request.messages[-1].content:
            await released.wait()
        return {"facts": []}

    scripts = {"annotate": annotating([TRIP, BUILD]), "semantic": semantic}
    kit = await open_kit(store=db, model=ScriptedChatModel.answering(scripts))
    session = await kit.begun("tokyo trains", "", session_id="s")
    await session.append("compiler errors", "")
    await session.close()
    await kit.until(lambda: session.statistics().running_workers == 1)
    released_model = ScriptedChatModel.answering({**scripts, "semantic": {"facts": []}})
    kit = await reopened(open_kit, db, kit, model=released_model)
    session = await kit.repo.resume_session("s")
    await session.wait_for("ready")
    asked = [r.messages[-1].content for r in kit.model.calls("semantic")]
    assert len(asked) == 1
    assert "compiler" in asked[0]


async def test_a_failed_session_resumes_failed_with_its_error(open_kit, db):
    """failed resumes as failed, error included, and can be retried."""
    from mnemo.errors import ModelUnavailable
    from mnemo.testing import ScriptedChatModel

    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("the model is down")})
    kit = await open_kit(store=db, model=model)
    session = await kit.closed(until="failed", session_id="s")
    kit = await reopened(open_kit, db, kit)
    session = await kit.repo.resume_session("s")
    assert session.state is SessionState.FAILED
    assert "the model is down" in str(session.error)
    assert session.error.episode_id == session.episode_id
    assert await session.commit_async() == "committed"


async def test_auto_commit_takes_up_the_uncommitted_rest(open_kit, db):
    """After a restart each step is still committed exactly once."""
    config = Config(session={"auto_commit": True})
    kit = await open_kit(store=db, config=config)
    session = await kit.begun("one", "", session_id="s")
    await kit.pass_time(120)
    await session.append("two", "")
    kit = await reopened(open_kit, db, kit, config=config)
    session = await kit.repo.resume_session("s")
    receipt = await session.close_and_commit()
    nodes = await kit.repo.get_nodes(["episodic"])
    assert sorted(node.step_index for node in nodes) == [0, 1]
    assert {node.id for node in nodes} <= set(receipt.node_ids)


async def test_an_idle_session_is_not_unfinished(open_kit, db):
    """idle is not listed, but can be resumed and started again."""
    kit = await open_kit(store=db)
    session = await kit.started(session_id="s")
    await session.close_and_commit()
    kit = await reopened(open_kit, db, kit)
    assert await kit.repo.unfinished_sessions() == []
    session = await kit.repo.resume_session("s")
    assert session.state is SessionState.IDLE
    await session.start_episode("again")


async def test_a_session_open_elsewhere_is_refused(open_kit, db):
    """owned_elsewhere while another live service holds it; free once that one has closed."""
    kit = await open_kit(store=db)
    await kit.started(session_id="s")
    other = await open_kit(store=db)
    with pytest.raises(SessionBusy) as busy:
        await other.repo.resume_session("s")
    assert busy.value.reason == "owned_elsewhere"
    await kit.memory.aclose()
    assert (await other.repo.resume_session("s")).state is SessionState.COLLECTING


async def test_the_shutdown_lets_a_short_extraction_finish(open_kit, db):
    """An extraction shorter than the grace is staged before the service closes."""
    kit = await open_kit(store=db, config=Config(shutdown_grace_s=5))
    kit.model.block("semantic")
    await kit.closed(session_id="s")
    async with anyio.create_task_group() as group:
        group.start_soon(kit.memory.aclose)
        await anyio.sleep(0.01)
        kit.model.unblock("semantic")
    kit = await open_kit(store=db)
    (record,) = await kit.repo.unfinished_sessions()
    assert record.state == "ready"


async def test_the_shutdown_stops_a_long_extraction_with_nothing_lost(open_kit, db):
    """One longer than the grace is found again as extracting."""
    kit = await open_kit(store=db)
    kit.model.block("semantic")
    await kit.closed(session_id="s")
    await kit.memory.aclose()
    kit = await open_kit(store=db)
    (record,) = await kit.repo.unfinished_sessions()
    assert record.state == "extracting"


async def test_nothing_works_after_the_end(collecting):
    """A closed session, repository and service refuse with a typed error."""
    kit, session = collecting
    waiting = []

    async def wait() -> None:
        with pytest.raises(SessionClosed):
            await session.wait_for("ready")
        waiting.append("ended")

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.sleep(0.001)
        await kit.memory.aclose()
    assert waiting == ["ended"]
    assert session.state is SessionState.COLLECTING
    for call in (session.close, session.commit, session.discard):
        with pytest.raises(SessionClosed):
            await call()
    with pytest.raises(SessionClosed):
        session.close_async()
    with pytest.raises(UsageError):
        await kit.repo.recall("anything")
    with pytest.raises(UsageError):
        await kit.memory.open_repo("another")


async def test_closing_twice_and_at_once_is_fine(collecting):
    """aclose of session and service is idempotent and may be called concurrently."""
    kit, session = collecting
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(session.aclose)
            group.start_soon(kit.memory.aclose)
    await session.aclose()
    await kit.memory.aclose()

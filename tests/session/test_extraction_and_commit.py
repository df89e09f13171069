"""From close to commit: states, failures, retries and cancelled callers."""

import anyio
import pytest
from helpers import BREAD, BUILD, TRIP, annotating, steps_of
from world import PausingStore

from mnemo import CommitFailed, Config, ExtractionFailed, InvalidReply, RateLimited, SessionState
from mnemo.errors import ModelUnavailable, SessionError
from mnemo.events import ChangesetApplied, SessionTransitioned, WriteFailed
from mnemo.testing import ScriptedChatModel


def transitions(kit) -> list[tuple[str, str]]:
    return [(e.from_state, e.to_state) for e in kit.seen.of(SessionTransitioned)]


async def test_a_close_leads_through_extracting_to_ready(kit):
    """Close gives collecting→extracting, extracting→ready; wait_for returns by itself."""
    session = await kit.closed()
    assert await session.wait_for("ready") is SessionState.READY
    assert transitions(kit) == [("collecting", "extracting"), ("extracting", "ready")]


async def test_failing_semantic_calls_fail_the_episode(open_kit):
    """The state is failed, the error names the episode, the steps are still there."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down")})
    kit = await open_kit(model=model)
    session = await kit.closed(until="failed")
    assert isinstance(session.error, ExtractionFailed)
    assert session.error.episode_id == session.episode_id
    assert session.context().steps == ("seen -> done",)
    assert session.statistics().steps == 1


async def test_two_bad_replies_fail_with_the_raw_text(open_kit):
    """Exactly two calls, cause InvalidReply with .raw, nothing stored."""
    model = ScriptedChatModel.answering({"semantic": "no json at all"})
    kit = await open_kit(model=model)
    session = await kit.closed(until="failed")
    assert isinstance(session.error.__cause__, InvalidReply)
    assert session.error.__cause__.raw == "no json at all"
    assert len(kit.model.calls("semantic")) == 2
    assert await kit.repo.get_nodes(["episodic", "semantic"]) == []


@pytest.mark.parametrize("fails", ["semantic", "annotate"])
async def test_a_retry_without_the_model_asks_it_nothing(open_kit, fails):
    """What failed with the model is extracted without it; the next episode asks it again."""
    model = ScriptedChatModel.answering({fails: ModelUnavailable("down")})
    kit = await open_kit(model=model)
    session = await kit.started()
    await session.append("I live in Porto.", "Noted")
    await session.close()
    await session.wait_for("failed")
    asked = len(kit.model.requests)
    assert (await session.commit(use_model=False)).status == "retrying"
    assert await session.wait_for("ready", "failed") is SessionState.READY
    assert len(kit.model.requests) == asked
    assert (await session.commit()).status == "committed"
    facts = await kit.repo.get_nodes(["semantic"])
    assert any("Porto" in fact.proposition for fact in facts)
    await session.start_episode("go on")
    await session.append("I live in Faro.", "Noted")
    await session.close()
    await session.wait_for("failed")
    assert len(kit.model.requests) > asked
    assert (await session.commit()).status == "retrying"
    assert await session.wait_for("ready", "failed") is SessionState.FAILED


async def three_trajectories(kit):
    session = await kit.started()
    for said in ("tokyo trains", "compiler errors", "flour and water"):
        await session.append(said, f"worked on {said}")
    return session


async def test_a_retry_asks_about_the_failed_trajectory_only(open_kit):
    """Commit() in failed returns "retrying"; only the second trajectory is asked again."""
    broken = [True]

    def semantic(request):
        if broken[0] and "compiler errors" in steps_of(request):
            return ModelUnavailable("down")
        return {"facts": []}

    model = ScriptedChatModel.answering(
        {"annotate": annotating([TRIP, BUILD, BREAD]), "semantic": semantic}
    )
    kit = await open_kit(model=model)
    session = await three_trajectories(kit)
    await session.close()
    await session.wait_for("failed")
    assert len(kit.model.calls("semantic")) == 3
    broken[0] = False
    asked = len(kit.model.requests)
    receipt = await session.commit()
    assert receipt.status == "retrying"
    await session.wait_for("ready")
    again = kit.model.requests[asked:]
    assert [r.purpose for r in again if r.purpose == "semantic"] == ["semantic"]
    assert all("flour and water" not in steps_of(r) for r in again if r.purpose == "semantic")
    assert "annotate" not in {r.purpose for r in again}
    assert ("failed", "extracting") in transitions(kit)


async def test_a_close_asks_for_the_last_reward_with_the_steps_before_it(open_kit):
    """What piled up behind a call takes one more."""
    kit = await open_kit(config=Config(annotation={"batch_size": 2}))
    kit.model.block("annotate")
    session = await kit.begun("one", "")
    await kit.until(lambda: kit.model.waiting > 0)
    for said in ("two", "three"):
        await session.append(said, "")
    await session.close()
    kit.model.unblock("annotate")
    await session.wait_for("ready")
    assert len(kit.model.calls("annotate")) == 2


async def test_what_a_commit_names_can_be_read(kit):
    """After commit every id of the receipt exists, and the state is idle."""
    session = await kit.begun("Ana lives in Porto", "noted it")
    receipt = await session.close_and_commit()
    assert receipt.status == "committed"
    assert receipt.revision == 1
    assert receipt.node_ids
    for id in receipt.node_ids:
        assert await kit.repo.get_node(id) is not None
    assert session.state is SessionState.IDLE
    (applied,) = kit.seen.of(ChangesetApplied)
    assert applied.node_ids == receipt.node_ids
    assert transitions(kit)[-1] == ("ready", "idle")
    assert kit.seen.of(SessionTransitioned)[-1].node_ids == receipt.node_ids


async def test_a_failing_transaction_keeps_the_changeset(open_kit, failing_store):
    """CommitFailed, ready, no node; the second commit writes the same changeset id."""
    store = failing_store()
    store.fail("apply", error=CommitFailed("the disk is full"))
    kit = await open_kit(store=store)
    session = await kit.closed(until="ready")
    with pytest.raises(CommitFailed):
        await session.commit()
    assert session.state is SessionState.READY
    assert isinstance(session.error, CommitFailed)
    assert await kit.repo.get_nodes(["episodic"]) == []
    (failed,) = kit.seen.of(WriteFailed)
    receipt = await session.commit()
    assert receipt.changeset_id == failed.changeset_id
    assert session.error is None
    assert len(await kit.repo.get_nodes(["episodic"])) == 1


async def test_a_commit_whose_answer_was_lost_has_happened(open_kit, failing_store):
    """The transaction ended well and its answer did not arrive: that is a commit all the same."""
    store = failing_store()
    store.fail("apply", before=False)
    kit = await open_kit(store=store)
    session = await kit.begun()
    receipt = await session.close_and_commit()
    assert receipt.status == "committed"
    assert session.state is SessionState.IDLE
    assert len(kit.seen.of(ChangesetApplied)) == 1
    assert {n.id for n in await kit.repo.get_nodes(["episodic"])} <= set(receipt.node_ids)


async def test_a_cancelled_commit_runs_to_its_end(open_kit):
    """Cancelled while the transaction runs, each node is there once; no discard overtakes it."""
    store = PausingStore("apply")
    kit = await open_kit(store=store)
    session = await kit.closed(until="ready")
    ended = []

    async def commit(scope: anyio.CancelScope) -> None:
        with scope:
            await session.commit()
        ended.append((scope.cancelled_caught, session.state))

    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()
        group.start_soon(commit, scope)
        await store.entered.wait()
        scope.cancel()
        try:
            with pytest.raises(SessionError, match="not_discardable"):
                await session.discard()
            await kit.clock.advance(0)
            assert ended == []
        finally:
            store.let_go.set()
    assert ended == [(True, SessionState.IDLE)]
    assert len(await kit.repo.get_nodes(["episodic"])) == 1


@pytest.mark.parametrize(("failures", "ends"), [(2, "idle"), (3, "failed")])
async def test_close_and_commit_retries_so_often(open_kit, failures, ends):
    """Two failures and a success give a receipt; three give the last ExtractionFailed."""
    answers = [ModelUnavailable(f"down {n}") for n in range(failures)] + [{"facts": []}]
    kit = await open_kit(model=ScriptedChatModel.answering({"semantic": answers}))
    session = await kit.begun()
    if ends == "idle":
        assert (await session.close_and_commit(max_retries=2)).status == "committed"
    else:
        with pytest.raises(ExtractionFailed, match="down 2"):
            await session.close_and_commit(max_retries=2)
    assert session.state == ends
    assert len(kit.model.calls("semantic")) == 3


async def test_a_rate_limit_is_waited_for_on_the_clock(open_kit):
    """Between two tries retry_after_s is honoured, up to 30 s of the clock."""
    answers = [RateLimited("slow down", retry_after_s=90), {"facts": []}]
    kit = await open_kit(model=ScriptedChatModel.answering({"semantic": answers}))
    session = await kit.begun()
    async with anyio.create_task_group() as group:
        group.start_soon(session.close_and_commit)
        await session.wait_for("failed")
        await kit.at_rest()
        await kit.pass_time(29)
        assert session.state is SessionState.FAILED
        await kit.pass_time(1)
        await session.wait_for("idle")


async def test_the_timeout_bounds_the_waiting_not_the_work(kit):
    """TimeoutError after 5 s of clock, state extracting; unblocked it becomes ready."""
    kit.model.block("semantic")
    session = await kit.begun()
    timed_out = []

    async def wait_five_seconds() -> None:
        with pytest.raises(TimeoutError):
            await session.close_and_commit(timeout_s=5)
        timed_out.append(kit.clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(wait_five_seconds)
        await kit.until(lambda: kit.model.waiting == 1)
        await kit.clock.advance(4.9)
        assert timed_out == []
        kit.clock.advance(0.1)
    assert timed_out == [5.0]
    assert session.state is SessionState.EXTRACTING
    kit.model.unblock("semantic")
    assert await session.wait_for("ready") is SessionState.READY


async def test_trajectories_are_extracted_side_by_side(open_kit):
    """All trajectories of an episode are at work at once, at most max_parallel."""
    model = ScriptedChatModel.answering({"annotate": annotating([TRIP, BUILD, BREAD])})
    kit = await open_kit(model=model, config=Config(extraction={"max_parallel": 2}))
    kit.model.block("semantic")
    session = await three_trajectories(kit)
    await session.close()
    await kit.until(lambda: len(kit.model.calls("semantic")) == 2)
    assert session.statistics().running_workers == 2
    kit.model.unblock("semantic")
    await session.wait_for("ready")
    assert len(kit.model.calls("semantic")) == 3


async def test_the_costs_of_models_are_counted(open_kit):
    """statistics() counts every call of the session, corrective ones included."""
    model = ScriptedChatModel.answering({"semantic": ["not json", {"facts": []}]})
    kit = await open_kit(model=model)
    session = await kit.begun()
    await session.close_and_commit()
    statistics = session.statistics()
    assert statistics.model_calls == len(kit.model.requests)
    assert statistics.input_tokens > 0
    assert statistics.output_tokens > 0
    assert statistics.cost_usd is None

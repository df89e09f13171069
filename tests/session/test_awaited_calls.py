"""Awaited calls: every operation in every state acts or is refused with its reason."""

from collections.abc import Awaitable, Callable

import pytest
from helpers import committed

from mnemo import Session, SessionError, SessionState
from mnemo.errors import ModelUnavailable
from mnemo.testing import ScriptedChatModel

CALLS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "start_episode": lambda s: s.start_episode("another goal"),
    "append": lambda s: s.append("more", "done"),
    "close": lambda s: s.close(),
    "commit": lambda s: s.commit(),
    "discard": lambda s: s.discard(),
}

REFUSALS = [
    ("idle", "append", "not_collecting"),
    ("idle", "close", "not_collecting"),
    ("idle", "commit", "not_ready"),
    ("idle", "discard", "not_discardable"),
    ("collecting", "start_episode", "not_idle"),
    ("collecting", "commit", "not_ready"),
    ("collecting", "discard", "not_discardable"),
    ("extracting", "start_episode", "extraction_in_progress"),
    ("extracting", "append", "extraction_in_progress"),
    ("extracting", "close", "extraction_in_progress"),
    ("extracting", "commit", "extraction_in_progress"),
    ("extracting", "discard", "extraction_in_progress"),
    ("ready", "start_episode", "not_idle"),
    ("ready", "append", "not_collecting"),
    ("ready", "close", "not_collecting"),
    ("failed", "start_episode", "session_failed"),
    ("failed", "append", "not_collecting"),
    ("failed", "close", "not_collecting"),
]


async def in_state(kit, state: str) -> Session:
    """A session that was led to *state* by real work."""
    session = await kit.begun()
    if state == "failed":
        kit.model.script("semantic", ModelUnavailable("down"))
    if state == "extracting":
        kit.model.block("semantic")
    if state != "collecting":
        await session.close()
    if state in ("ready", "idle"):
        await session.wait_for("ready")
    if state == "idle":
        await session.commit()
    if state == "failed":
        await session.wait_for("failed")
    return session


@pytest.mark.parametrize(("state", "operation", "reason"), REFUSALS)
async def test_an_illegal_call_is_refused_with_its_reason(kit, state, operation, reason):
    """Each refused cell of the table gives its reason, says what to do, and changes nothing."""
    session = await in_state(kit, state)
    before = (session.state, session.context(), session.error, session.episode_id)
    with pytest.raises(SessionError) as refused:
        await CALLS[operation](session)
    assert refused.value.reason == reason
    assert refused.value.state == state
    assert refused.value.operation == operation
    assert f": {reason}; " in str(refused.value)
    if state in ("ready", "failed"):  # in these nothing can be started, and nothing is open
        assert "commit" in str(refused.value).partition(reason)[2]
        assert "start an episode" not in str(refused.value)
        assert "close" not in str(refused.value).partition(reason)[2]
    assert (session.state, session.context(), session.error, session.episode_id) == before
    kit.model.unblock("semantic")


@pytest.mark.parametrize("state", ["ready", "failed"])
async def test_discarding_ends_the_episode_but_keeps_the_words(kit, state):
    """After discard the session is idle, recall finds nothing, search still does."""
    session = await in_state(kit, state)
    await session.discard()
    assert session.state is SessionState.IDLE
    assert session.error is None
    assert session.context() is None
    assert (await kit.repo.recall("seen", reason=False)).candidates == []
    assert [hit.snippet for hit in await kit.repo.search("seen")] == ["seen"]


async def test_an_empty_episode_commits_to_nothing(session):
    """An episode without steps may be closed; its commit leaves the revision as it was."""
    receipt = await session.close_and_commit()
    assert receipt.status == "committed"
    assert receipt.node_ids == ()
    assert receipt.revision == 0
    assert session.state is SessionState.IDLE


async def test_a_new_episode_starts_clean(kit):
    """Nothing of an earlier episode is carried into the next one of the same session."""
    session = await committed(kit.repo, "one", "", goal="first")
    await session.start_episode("second")
    assert session.context().goal == "second"
    assert session.context().steps == ()
    step = await session.append("two", "")
    assert step.index == 0
    await session.close_and_commit()
    assert len(await kit.repo.get_nodes(["episodic"])) == 2


async def test_wait_for_needs_a_known_state(session):
    """wait_for without a state, or with none of the five, is ValueError."""
    with pytest.raises(ValueError, match="at least one"):
        await session.wait_for()
    with pytest.raises(ValueError, match=r"collecting, extracting, ready, failed, not .done"):
        await session.wait_for("done")


async def test_the_context_shows_the_last_five_steps(open_kit):
    """context() has five steps at most, as "observation -> action", in order."""
    kit = await open_kit(model=ScriptedChatModel.answering())
    session = await kit.started()
    for number in range(7):
        await session.append(f"o{number}", f"a{number}")
    assert session.context().steps == tuple(f"o{n} -> a{n}" for n in range(2, 7))

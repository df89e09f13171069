"""What the session machine has found, each told once in short."""

from __future__ import annotations

from collections.abc import Callable

from helpers import OpenKit

from mnemo import Config, StoreError
from mnemo.errors import ModelUnavailable
from mnemo.events import SessionExpired
from mnemo.testing import ScriptedChatModel
from mnemo.testing.faults import FailingStore
from mnemo.testing.models import Answer


async def test_a_start_can_be_queued_behind_a_commit_that_retries(open_kit: OpenKit) -> None:
    """A commit in failed is one operation that projects to idle, also while it extracts."""
    answers: list[Answer] = [ModelUnavailable("down"), {"facts": []}]
    kit = await open_kit(model=ScriptedChatModel.answering({"semantic": answers}))
    session = await kit.started()
    await session.append("seen", "done")
    await session.close()
    await session.wait_for("failed")
    kit.model.block("semantic")
    commit = session.commit_async()
    await kit.until(lambda: kit.model.waiting > 0)
    start = session.start_episode_async("next")
    kit.model.unblock("semantic")
    assert await commit == "committed"
    assert await start == "started"
    assert session.goal == "next"


async def test_an_expiry_that_could_not_be_written_comes_again(
    open_kit: OpenKit, failing_store: Callable[[], FailingStore]
) -> None:
    """The session whose closing failed at its expiry goes on, and expires the next time."""
    store = failing_store()
    config = Config(session={"auto_commit": True, "flush_timeout_s": None})
    kit = await open_kit(store=store, config=config)
    session = await kit.started()
    await session.append("seen", "done")
    await kit.at_rest()
    store.fail("record", error=StoreError("the disk is full"))
    await kit.pass_time(600)
    assert session.state == "collecting"
    await session.append("seen again", "")
    await kit.pass_time(600)
    await kit.until(lambda: bool(kit.seen.of(SessionExpired)))
    await session.aclose()
    assert len(await kit.repo.get_nodes(["episodic"])) == 2


async def test_an_expiry_comes_again_without_another_append(
    open_kit: OpenKit, failing_store: Callable[[], FailingStore]
) -> None:
    """The timer that could not do its work is set again for its full length."""
    store = failing_store()
    config = Config(session={"auto_commit": True, "flush_timeout_s": None})
    kit = await open_kit(store=store, config=config)
    await kit.started()
    store.fail("record", error=StoreError("the disk is full"))
    await kit.pass_time(600)
    assert kit.seen.of(SessionExpired) == []
    await kit.pass_time(600)
    await kit.until(lambda: bool(kit.seen.of(SessionExpired)))

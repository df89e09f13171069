"""Two real processes on one file: both write, each sees the other, a session has one owner."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from scenarios.other_service import STEPS, another_process, work

from mnemo import Episodic, Mnemo, Repository, Semantic, SessionBusy, Tag
from mnemo.testing import HashingEmbedder

pytestmark = pytest.mark.slow

SESSIONS = 20


@pytest.fixture
async def memory(db: Path) -> AsyncIterator[Mnemo]:
    """This process's service."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        yield memory


@pytest.fixture
async def repo(memory: Mnemo) -> Repository:
    """This process's repository."""
    return await memory.open_repo("r")


@pytest.mark.long
async def test_both_commit_at_once_and_nothing_is_lost_or_doubled(memory, repo, db):
    """Every step of both has one node, every label one tag, every receipt holds."""
    receipts: list[list[str]] = []

    async def ours() -> None:
        receipts.extend(await work(repo, "ours", SESSIONS))

    async with another_process(db) as other:
        async with anyio.create_task_group() as group:
            group.start_soon(ours)
            receipts.extend(await other.ask("work", "theirs", SESSIONS))
        assert await other.ask("search", "harbour") == 2 * SESSIONS * 2
    nodes = [n for n in await repo.get_nodes(["episodic"]) if isinstance(n, Episodic)]
    places = Counter((n.session_id, n.step_index) for n in nodes)
    everyone = [f"{who}-{n}" for who in ("ours", "theirs") for n in range(SESSIONS)]
    assert places == Counter((id, index) for id in everyone for index in range(len(STEPS)))
    labels = Counter(
        n.label.casefold() for n in await repo.get_nodes(["tag"]) if isinstance(n, Tag)
    )
    assert labels["porto"] == 1
    assert set(labels.values()) == {1}
    facts = [n for n in await repo.get_nodes(["semantic"]) if isinstance(n, Semantic)]
    assert facts
    assert len(receipts) == 2 * SESSIONS
    named = {id for receipt in receipts for id in receipt}
    assert set(await repo.get_metadata(sorted(named))) == named
    assert (await repo.statistics()).revision == 2 * SESSIONS
    assert (await memory.check()).problems == ()


async def test_each_reads_the_other_at_its_next_call(repo, db):
    """A step that the other has appended, a fact that it has committed, at once."""
    async with another_process(db) as other:
        await other.ask("start", "theirs")
        await other.ask("append", "theirs", "Omar keeps his violin in Leeds")
        (hit,) = await repo.search("violin")
        assert hit.session_id == "theirs"
        assert "violin" in (await repo.recall("Where is the violin of Omar?")).as_text()
        node_ids = await other.ask("commit", "theirs")
        assert set(await repo.get_metadata(node_ids)) == set(node_ids)
        ours = await repo.start_session("plan")
        await ours.append("Ana bakes bread in Porto on Sundays", "")
        assert await other.ask("search", "bread") == 1
        await ours.close_and_commit()
        assert "bread" in await other.ask("recall", "What does Ana bake in Porto?")
    kinds = (await repo.statistics()).nodes
    assert kinds["episodic"] == 2


@pytest.mark.long
async def test_a_session_has_one_owner_until_that_is_killed(repo, db):
    """owned_elsewhere while the other lives; after SIGKILL it is taken over at once, whole."""
    async with another_process(db) as other:
        await other.ask("start", "theirs")
        assert await other.ask("append", "theirs", "first words") == 0
        (record,) = await repo.unfinished_sessions()
        assert (record.id, record.steps) == ("theirs", 1)
        with pytest.raises(SessionBusy) as busy:
            await repo.resume_session("theirs")
        assert busy.value.reason == "owned_elsewhere"
        assert await other.ask("append", "theirs", "second words") == 1
        await other.kill()
        session = await repo.resume_session("theirs")
    assert [step.observation for step in session.recent_steps(9)] == ["first words", "second words"]
    assert (await session.append("third words", "")).index == 2
    await session.close_and_commit()
    assert (await repo.statistics()).nodes["episodic"] == 3


@pytest.mark.long
async def test_what_this_process_owns_the_other_cannot_take(repo, db):
    """The other way round: refused while it is open here, free when it has ended here."""
    ours = await repo.start_session("plan", session_id="ours")
    await ours.append("first words", "")
    async with another_process(db) as other:
        assert await other.ask("resume", "ours") == "owned_elsewhere"
        assert await other.ask("start", "ours") == "Conflict"
        await ours.append("second words", "")
        await ours.aclose()
        assert await other.ask("resume", "ours") == "collecting"
        assert await other.ask("append", "ours", "third words") == 2
        with pytest.raises(SessionBusy):
            await repo.resume_session("ours")
        await other.ask("commit", "ours")
    assert (await repo.statistics()).nodes["episodic"] == 3

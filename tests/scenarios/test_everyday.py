"""The everyday calls, told once: in this process, and over HTTP by a client."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers import over_http

from mnemo import (
    CommitReceipt,
    Conflict,
    InvalidNote,
    Memory,
    Message,
    Mnemo,
    NotFound,
    Semantic,
    SessionClosed,
    SessionContext,
    SessionError,
    SessionState,
)
from mnemo.testing import HashingEmbedder

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["local", "remote"])
async def memory(request) -> AsyncIterator[Any]:
    """A service, or a client of its HTTP application."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as local:
        if request.param == "local":
            yield local
            return
        async with over_http(local) as remote:
            yield remote


@pytest.fixture
async def repo(memory: Any) -> Any:
    """An empty repository."""
    return await memory.open_repo("ada")


async def test_what_was_said_is_found_as_words_and_as_facts(repo):
    """Remembered once by its key, recalled with its source, searched, viewed, told as text."""
    said = {"thread_id": "desk/1", "actor": "Ada", "at": NOON, "key": "k", "metadata": {"n": 1}}
    first = await repo.remember("I play the cello.", **said, wait=True)
    again = await repo.remember("I play the cello.", **said)
    assert first.messages == again.messages
    assert first.node_ids
    assert (first.messages[0].at, first.messages[0].metadata) == (NOON, {"n": 1})
    found = await repo.recall("What does Ada play?", where={"n": {"gte": 1}}, explain=True)
    best = found.candidates[0]
    assert isinstance(best.node, Semantic)
    assert (best.sources[0].thread_id, best.sources[0].at) == ("desk/1", NOON)
    assert best.why.cosine > 0
    assert "cello" in found.as_text(100)
    assert found.cited(1) == best.sources[0]
    assert (await repo.recall("Who is it?", since=datetime(2025, 1, 1))).candidates == []
    (hit,) = await repo.search("cello", actor="ada")
    view = await repo.view(hit.message_id, session_id=hit.session_id)
    assert (view.target.text, view.before) == ("I play the cello.", ())
    assert "I play the cello." in view.as_text()


async def test_memories_are_listed_corrected_and_forgotten(repo):
    """Pages, versions, a conflict, a dry run, an erasure: the same types and errors."""
    added = [await repo.add_memory(f"Ada owns {n} boats.", tags=["boats"]) for n in ("two", "no")]
    await repo.add_memory("Bob sings.", at=NOON)
    first = await repo.memories(limit=1, order="oldest")
    assert isinstance(first.items[0], Memory)
    rest = await repo.memories(limit=1_000, order="oldest", after=first.next)
    assert len(first) + len(rest) == len((await repo.memories()).items)
    bob = next(memory for memory in await repo.memories() if "Bob" in memory.text)
    changed = await repo.update_memory(bob.id, "Bob dances.", reason="misheard", expected_version=1)
    assert (changed.version, changed.valid_from) == (2, (await repo.memory(bob.id)).valid_from)
    assert [(v.text, v.reason) for v in await repo.history(bob.id)][-1] == (
        "Bob dances.",
        "misheard",
    )
    with pytest.raises(Conflict):
        await repo.update_memory(bob.id, "Bob rests.", expected_version=1)
    assert (await repo.forget(memory_ids=[bob.id], dry_run=True)).nodes == 1
    assert (await repo.memory(bob.id)) == changed
    assert (await repo.forget(memory_ids=[bob.id])).nodes == 1
    with pytest.raises(NotFound) as missing:
        await repo.memory(bob.id)
    assert (missing.value.resource, missing.value.id) == ("memory", bob.id)
    assert added[0].id


async def test_a_conversation_is_read_as_it_was_said(repo):
    """Messages of every form come back as ``StoredMessage``, the whole history in order."""
    talk = repo.conversation("t")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    stored = await talk.append(
        [
            Message(role="user", content="Where is Bern?", actor="Ada", at=NOON),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "In Switzerland."},
        ],
        expected_seq=0,
    )
    assert [message.kind for message in stored] == ["user", "tool_call", "tool_result"]
    assert await talk.history() == stored
    assert await talk.history(from_seq=1, to_seq=1) == stored[1:2]
    assert [message.content for message in await talk.load(budget_tokens=1_000)] == [
        "Where is Bern?",
        None,
        "In Switzerland.",
    ]
    assert (await talk.look()).thread_id == "t"
    with pytest.raises(Conflict):
        await talk.append({"role": "user", "content": "x"}, expected_seq=0)
    await talk.clear()
    assert await talk.load(budget_tokens=1_000) == []
    assert [(t.thread_id, t.messages) for t in await repo.threads()] == [("t", 3)]


async def test_notes_have_versions(repo):
    """Written, listed, restored, retired; a bad topic has the note's own error."""
    await repo.notes.write("trips", "By train.", "Travel.")
    await repo.notes.write("trips", "By ship.", "Travel.", expected_version=1)
    await repo.notes.restore("trips", 1)
    note = await repo.notes.read("trips")
    assert (note.body, note.version) == ("By train.", 3)
    assert [info.topic for info in await repo.notes.list(query="train")] == ["trips"]
    assert len(await repo.notes.history("trips")) == 3
    with pytest.raises(InvalidNote) as bad:
        await repo.notes.write("../x", "b", "d")
    assert bad.value.reason
    await repo.notes.delete("trips")
    with pytest.raises(NotFound):
        await repo.notes.read("trips")


async def test_background_work_settles_and_is_counted(repo, memory):
    """What waits for quiet is extracted by ``settle``; statistics have the same parts."""
    await repo.remember(
        ["Ada plays the cello.", {"role": "user", "content": "Bob sings."}], key="k"
    )
    assert (await repo.statistics()).on_its_way
    await repo.settle(60)
    found = await repo.statistics()
    assert found.on_its_way == {}
    assert (found.messages, found.jobs.errors, found.notes.notes) == (2, {}, 0)
    assert found.index.documents >= 2
    assert [record.id for record in await memory.repos()] == ["ada"]
    assert [session.state for session in await repo.sessions()] == ["idle"]
    assert await repo.retry_jobs() == ()
    assert await repo.cancel_jobs(["default"]) == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda repo: repo.remember(" "),
        lambda repo: repo.remember([{"role": "nobody", "content": "x"}]),
        lambda repo: repo.remember({"role": "user", "content": "x", "at": "noon"}),
        lambda repo: repo.remember("x", metadata={"n": float("nan")}),
        lambda repo: repo.recall(""),
        lambda repo: repo.recall("x", k=0),
        lambda repo: repo.search("x", limit=101),
        lambda repo: repo.memories(after="?"),
        lambda repo: repo.forget(),
        lambda repo: repo.forget(memory_ids="x"),
        lambda repo: repo.add_memory(""),
        lambda repo: repo.settle(-1),
    ],
)
async def test_a_wrong_argument_is_a_value_error(repo, call):
    """Whatever is wrong is a ``ValueError``, and nothing is stored."""
    await repo.conversation("t").append({"role": "user", "content": "x"})
    with pytest.raises(ValueError, match=r"\w"):
        await call(repo)
    assert (await repo.statistics()).messages == 1


# ── Sessions ─────────────────────────────────────────────────────────────────────────────


async def test_a_session_collects_commits_and_begins_again(repo):
    """Steps are durable with their keys, the commit's facts are recalled with their steps."""
    session = await repo.start_session("plan a trip", session_id="s/1")
    assert (session.id, session.repo_id, session.goal) == ("s/1", "ada", "plan a trip")
    assert session.state is SessionState.COLLECTING
    first = await session.append(
        "I live in Lund.", "Noted.", at=NOON, actor="Ada", key="1", metadata={"n": 1}
    )
    assert await session.append("I live in Lund.", "Noted.", key="1") == first
    assert (first.at, first.actor, first.metadata) == (NOON, "Ada", {"n": 1})
    (said,) = await session.append_messages([Message(role="user", content="I play the cello.")])
    assert (said.index, said.observation) == (1, "I play the cello.")
    receipt = await session.close_and_commit()
    assert isinstance(receipt, CommitReceipt)
    assert (receipt.status, bool(receipt.node_ids)) == ("committed", True)
    assert (session.state, session.episode_id, session.error) == (SessionState.IDLE, None, None)
    found = await repo.recall("Where does Ada live?")
    assert "Lund" in found.as_text()
    assert ("s/1", 0) in [(one.session_id, one.step_index) for one in found.sources]
    await session.start_episode("plan another")
    assert (session.goal, session.state) == ("plan another", SessionState.COLLECTING)
    assert session.context() == SessionContext(goal="plan another", steps=())
    assert session.statistics().steps == 0


async def test_a_session_is_closed_awaited_and_committed_step_by_step(repo):
    """Each state is seen; what is not legal is refused with reason and state."""
    session = await repo.start_session("look around")
    await session.append("I own two boats.", "Noted.")
    with pytest.raises(SessionError) as refused:
        await session.commit()
    assert (refused.value.reason, refused.value.state) == ("not_ready", "collecting")
    await session.close()
    assert await session.wait_for("ready", "failed", timeout_s=60) is SessionState.READY
    assert (session.state, session.busy) == (SessionState.READY, False)
    assert (await session.commit()).revision > 0
    assert session.state is SessionState.IDLE
    with pytest.raises(TimeoutError):
        await session.wait_for("ready", timeout_s=0)
    with pytest.raises(ValueError, match="at least one state"):
        await session.wait_for()


async def test_a_session_is_left_and_resumed(repo):
    """What was appended is there again; a closed handle refuses, an unknown id is not found."""
    session = await repo.start_session("left behind", session_id="left")
    await session.append("Ada has a dog.", "Noted.")
    await session.aclose()
    await session.aclose()
    with pytest.raises(SessionClosed):
        await session.append("Ada has a cat.", "Noted.")
    assert [record.id for record in await repo.unfinished_sessions()] == ["left"]
    again = await repo.resume_session("left")
    assert again.context().steps == ("Ada has a dog. -> Noted.",)
    await again.close()
    await again.wait_for("ready")
    await again.discard()
    assert await repo.unfinished_sessions() == []
    with pytest.raises(NotFound):
        await repo.resume_session("unknown")
    with pytest.raises(Conflict):
        await repo.start_session("twice", session_id="left")
    with pytest.raises(ValueError, match="goal"):
        await repo.start_session(" ")


async def test_recall_in_context_knows_what_a_session_is_about(repo):
    """The goal and the last steps of a session lead, its own steps are not returned."""
    await repo.add_memory("The cello is in the cellar.")
    session = await repo.start_session("find the cello")
    await session.append("I look for the cello.", "Where was it last?")
    found = await repo.recall_in_context(session, "Where is it?")
    assert [one.node.text for one in found.candidates][:1] == ["The cello is in the cellar."]
    assert all(source.session_id != session.id for source in found.sources)
    by_id = await repo.recall_in_context(session.id, "Where is it?")
    assert [one.node.id for one in by_id.candidates] == [one.node.id for one in found.candidates]

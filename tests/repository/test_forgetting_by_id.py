"""Forgetting memories, messages and steps by their ids: what goes, what stays, and no byte left."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from helpers import Kit, OpenKit, committed

from mnemo import (
    Changeset,
    Conflict,
    Edge,
    Episodic,
    ErasureReport,
    Memory,
    Message,
    NotFound,
    Procedural,
    Semantic,
    SessionClosed,
    Tag,
    ToolCall,
)
from mnemo.testing import ManualClock

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
SECRET = "vqzkxwbrtd"
"""Occurs nowhere else."""
PET = f"My cat is called {SECRET.capitalize()}."
THREAD = 50
LEAK = 20
"""Place of the message that leaks."""


@pytest.fixture
async def kit(open_kit: OpenKit, db: Path) -> Kit:
    """A repository in a file, without a chat model, at noon."""
    return await open_kit(store=db, embedded=True, clock=ManualClock(NOON))


def files_with(db: Path, *words: str) -> list[str]:
    """The files of the store that hold one of *words*, in whatever case."""
    raw = {path.name: path.read_bytes().lower() for path in db.parent.iterdir()}
    return [name for name, held in raw.items() if any(w.lower().encode() in held for w in words)]


async def archive_of(kit: Kit) -> str:
    """All lines of the settled repository's archive."""
    await kit.repo.settle()
    async with kit.memory.export_repo("r") as lines:
        return "".join([line async for line in lines]).lower()


async def say(kit: Kit, *texts: str, **values: Any) -> str:
    """Have *texts* said in a session of its own; give its id."""
    await kit.clock.advance(60)
    session = await kit.started("talk", **values)
    for text in texts:
        await session.append(text, "", actor="Ada")
    await session.close_and_commit()
    return session.id


async def facts_with(kit: Kit, word: str) -> list[Memory]:
    """The facts and instructions that have this word."""
    page = await kit.repo.memories(superseded=True)
    return [memory for memory in page if word.lower() in memory.text.lower()]


async def talk(kit: Kit) -> Any:
    """A thread of fifty messages, one with the secret, fed to a session and committed."""
    conversation = kit.repo.conversation("support")
    session = await kit.started("help Ada with her account")
    feed = await conversation.feed(session, from_seq=0)
    for number in range(THREAD):
        await kit.clock.advance(10)
        role = "assistant" if number % 2 else "user"
        said = f"Let us look at point {number} of the long list of open questions again."
        if number == LEAK:
            said = f"My password is {SECRET}."
        message = Message(role, said, id=f"m{number}", actor="Ada" if role == "user" else None)
        await conversation.append([message])
        await conversation.viewport(120).render()
    await feed.caught_up()
    await conversation.settle()
    await session.close_and_commit()
    # What a model would extract; the embedded stages leave passwords alone.
    (step,) = [n for n in await kit.repo.get_nodes(["episodic"]) if SECRET in n.text]
    fact, tag = Semantic(f"Ada's password is {SECRET}"), Tag("password")
    edges = (Edge(fact.id, step.id, "provenance"), Edge(tag.id, fact.id, "membership"))
    await kit.repo.apply(Changeset((fact, tag), edges))
    return conversation


async def check_gone(kit: Kit, db: Path, conversation: Any) -> None:
    """Nothing shows the secret, whatever is asked; the other messages are there."""
    assert await kit.repo.search(SECRET) == []
    for query in (SECRET, "What is the password of Ada?"):
        found = await kit.repo.recall(query)
        assert SECRET not in found.as_text()
        assert not [s for s in found.sources if SECRET in s.text]
    assert SECRET not in str(await conversation.viewport(100_000).render())
    assert SECRET not in str([one.text for one in await conversation.snapshots.list()])
    assert len(await conversation.history()) == THREAD - 1
    assert [m.id for m in await conversation.history()] == [
        f"m{number}" for number in range(THREAD) if number != LEAK
    ]
    assert SECRET not in await archive_of(kit)
    assert files_with(db, SECRET) == []
    assert (await kit.memory.check()).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["memory", "message", "step"])
async def test_a_leaked_password_goes_and_the_other_messages_stay(kit, db, by):
    """Gone from recall, search, window, snapshots, archive and the bytes of the files."""
    conversation = await talk(kit)
    assert any(SECRET in one.text for one in await conversation.snapshots.list())
    assert await kit.repo.search(SECRET)
    facts = await facts_with(kit, SECRET)
    assert facts
    (message_id,) = {source.message_id for fact in facts for source in fact.sources}
    nodes = await kit.repo.get_nodes(["episodic"])
    (step,) = [node.id for node in nodes if SECRET in node.text]
    arguments: dict[str, Any] = {
        "memory": {"memory_ids": [facts[0].id]},
        "message": {"message_ids": [message_id]},
        "step": {"steps": [step]},
    }[by]
    planned = await kit.repo.forget(**arguments, dry_run=True)
    assert await kit.repo.search(SECRET)
    report = await kit.repo.forget(**arguments)
    assert (report.messages, report.steps, report.scrubbed) == (1, 1, True)
    assert report.snapshots >= 1
    assert not planned.scrubbed
    assert _uncounted(planned) == _uncounted(report)
    await check_gone(kit, db, conversation)
    await kit.memory.aclose()
    assert files_with(db, SECRET) == []


def _uncounted(report: ErasureReport) -> ErasureReport:
    return replace(report, scrubbed=True)


# ── Facts ────────────────────────────────────────────────────────────────────────────────


async def test_a_fact_of_one_source_goes_with_it(kit, db):
    """The step, what else came of it alone, its tags; other sessions stay."""
    await say(kit, "I play the violin.")
    await say(kit, PET)
    (fact, *_) = await facts_with(kit, SECRET)
    report = await kit.repo.forget(memory_ids=[fact.id])
    assert (report.steps, report.sessions) == (1, 1)
    assert await facts_with(kit, "violin")
    assert files_with(db, SECRET) == []
    assert SECRET not in await archive_of(kit)
    assert (await kit.repo.recall(SECRET)).as_text().find(SECRET) == -1
    with pytest.raises(NotFound):
        await kit.repo.forget(memory_ids=[fact.id])


async def test_a_fact_of_several_sources_goes_with_all_of_them(kit, db):
    """Each step that says it; what a step says besides goes with it, sessions with others stay."""
    first = await say(kit, PET, "I live in Paris.")
    await say(kit, PET)
    (fact,) = [f for f in await facts_with(kit, SECRET) if len(f.sources) == 2]
    report = await kit.repo.forget(memory_ids=[fact.id])
    assert (report.steps, report.sessions) == (2, 1)
    assert [session.id for session in await kit.repo.sessions()] == [first]
    assert await facts_with(kit, "Paris")
    assert files_with(db, SECRET) == []
    assert SECRET not in await archive_of(kit)


async def test_what_shares_a_source_stays_if_it_is_said_elsewhere(kit):
    """A fact of the erased step and of another loses the one; a fact of that step alone goes."""
    steps = [Episodic(f"seen tea {n}", id=f"e{n}", session_id="s", at=NOON) for n in range(2)]
    nodes = (Semantic("a tea", id="a"), Semantic("b tea", id="b"), Semantic("c tea", id="c"))
    grounds = {"a": ["e0"], "b": ["e0", "e1"], "c": ["e0"]}
    edges = tuple(Edge(id, step, "provenance") for id, on in grounds.items() for step in on)
    await kit.repo.apply(Changeset((*steps, *nodes), edges))
    report = await kit.repo.forget(memory_ids=["a"])
    assert [memory.id for memory in await kit.repo.memories()] == ["b"]
    assert [node.id for node in await kit.repo.get_nodes(["episodic"])] == ["e1"]
    assert report.facts_changed == 1


async def test_a_corrected_fact_goes_with_its_history(kit, db):
    """The old wording, the new one, the reason, and what was said."""
    await say(kit, PET)
    (fact, *_) = await facts_with(kit, SECRET)
    words = ("bdfghjkmpq", "qpmkjhgfdb")
    await kit.repo.update_memory(fact.id, f"Ada has a cat called {words[0]}", reason=words[1])
    assert files_with(db, *words)
    await kit.repo.forget(memory_ids=[fact.id])
    assert files_with(db, SECRET, *words) == []
    archive = await archive_of(kit)
    assert not [word for word in (SECRET, *words) if word in archive]


async def test_the_history_loses_what_only_erased_steps_said(kit, db):
    """A corrected fact that another step supports stays, without the wording of the erased one."""
    steps = [Episodic("seen tea", id="e0", at=NOON), Episodic("seen more tea", id="e1", at=NOON)]
    fact = Semantic(f"tea {SECRET}", id="a")
    edges = tuple(Edge("a", step.id, "provenance") for step in steps)
    await kit.repo.apply(Changeset((*steps, fact), edges))
    loud = Episodic(f"heard {SECRET}", id="e2", at=NOON)
    await kit.repo.apply(Changeset((loud,), (Edge("a", "e2", "provenance"),)))
    await kit.repo.update_memory("a", "seen tea", reason=f"not {SECRET}")
    await kit.repo.forget(steps=["e2"])
    (version,) = await kit.repo.history("a")
    assert (version.text, version.by, version.reason) == ("seen tea", "hand", None)
    assert files_with(db, SECRET) == []


async def test_a_fact_added_by_hand_goes_alone(kit, db):
    """It has no steps; a tag that it shares with another fact stays if that one says it."""
    added = await kit.repo.add_memory(f"The door code is {SECRET}", tags=["door", SECRET])
    await kit.repo.add_memory("The door is red", tags=["door"])
    report = await kit.repo.forget(memory_ids=[added.id])
    assert (report.steps, report.messages) == (0, 0)
    assert [node.text for node in await kit.repo.get_nodes(["tag"])] == ["door"]
    assert files_with(db, SECRET) == []
    assert SECRET not in await archive_of(kit)


# ── Without the sources ──────────────────────────────────────────────────────────────────


async def test_without_sources_the_memory_alone_goes_and_is_not_extracted_again(
    kit,
):
    """The step stays; the same words said again give no fact, other facts of the step do."""
    await say(kit, "I live in Paris.")
    (fact,) = await facts_with(kit, "Paris")
    report = await kit.repo.forget(memory_ids=[fact.id], sources=False)
    assert (report.steps, report.nodes >= 1) == (0, True)
    assert await facts_with(kit, "Paris") == []
    assert await kit.repo.search("Paris")
    await say(kit, "I live in Paris.", "I play the violin.")
    assert await facts_with(kit, "Paris") == []
    assert await facts_with(kit, "violin")
    assert (await kit.memory.check()).problems == ()
    tags = await kit.repo.get_nodes(["tag"])
    members = [await kit.repo.get_linked_nodes([tag.id]) for tag in tags]
    assert all(members)


@pytest.mark.slow
async def test_former_wordings_are_barred_as_well_until_the_hand_adds_them(kit):
    """Neither the old nor the new wording comes back by itself; what the hand adds may."""
    await say(kit, "I live in Paris.")
    (fact,) = await facts_with(kit, "Paris")
    await kit.repo.update_memory(fact.id, "Ada is living in London")
    await kit.repo.forget(memory_ids=[fact.id], sources=False)
    await say(kit, "I live in Paris.")
    assert await facts_with(kit, "Paris") == []
    added = await kit.repo.add_memory(fact.text)
    await say(kit, "I live in Paris.")
    (again,) = await facts_with(kit, "Paris")
    assert again.id == added.id
    assert len(again.sources) == 2


async def test_a_bar_is_of_one_repository(kit):
    """The same words in another repository are extracted."""
    await say(kit, "I live in Paris.")
    (fact,) = await facts_with(kit, "Paris")
    await kit.repo.forget(memory_ids=[fact.id], sources=False)
    other = await kit.memory.open_repo("other")
    await committed(other, "I live in Paris.", "", actor="Ada", goal="talk")
    assert [memory.text for memory in await other.memories()]


# ── Messages and steps ───────────────────────────────────────────────────────────────────


def tool_talk() -> list[Message]:
    """A question, a call, its result, and the answer."""
    call = ToolCall("c1", "look_up", {"of": "Ada"})
    return [
        Message("user", "What is it?", id="ask"),
        Message("assistant", "", tool_calls=(call,), id="call"),
        Message("tool", f"It is {SECRET}.", tool_call_id="c1", id="result"),
        Message("assistant", "There it is.", id="answer"),
    ]


@pytest.mark.parametrize("half", ["call", "result"])
async def test_half_a_tool_group_takes_the_other_half(kit, db, half):
    """With the steps that were made of both; what lies around stays."""
    conversation = kit.repo.conversation("t")
    session = await kit.started("look up")
    feed = await conversation.feed(session, from_seq=0)
    await conversation.append(tool_talk())
    await feed.caught_up()
    await session.close_and_commit()
    report = await kit.repo.forget(message_ids=[half])
    assert (report.messages, report.steps) == (2, 2)
    assert [message.id for message in await conversation.history()] == ["ask", "answer"]
    assert files_with(db, SECRET) == []
    assert (await kit.memory.check()).problems == ()


async def test_calls_that_share_an_id_are_told_apart(kit):
    """Only the group of the named message goes, though another one uses the same call id."""
    conversation = kit.repo.conversation("t")
    first = tool_talk()
    again = [Message(m.role, m.content, id=f"{m.id} 2", tool_calls=m.tool_calls,
                     tool_call_id=m.tool_call_id) for m in first]  # fmt: skip
    await conversation.append([*first, *again])
    await kit.repo.forget(message_ids=["result"])
    assert [message.id for message in await conversation.history()] == [
        "ask", "answer", "ask 2", "call 2", "result 2", "answer 2",
    ]  # fmt: skip


async def test_a_message_of_several_threads_needs_its_thread(kit):
    """The error names them; with the thread only that one goes."""
    for thread in ("a", "b"):
        await kit.repo.conversation(thread).append([Message("user", thread, id="m")])
    with pytest.raises(Conflict, match="a, b"):
        await kit.repo.forget(message_ids=["m"])
    report = await kit.repo.forget(message_ids=["m"], thread_id="a")
    assert report.messages == 1
    assert not await kit.repo.conversation("a").history()
    assert await kit.repo.conversation("b").history()


async def test_a_step_goes_and_ends_its_open_session(kit):
    """A step, or the id of its node; the session's calls are refused afterwards."""
    session = await kit.started("talk")
    first = await session.append(f"heard {SECRET}", "")
    await session.append("seen", "")
    assert (await kit.repo.forget(steps=[first], dry_run=True)).steps == 1
    await session.append("still there", "")
    report = await kit.repo.forget(steps=[first])
    assert report.steps == 1
    with pytest.raises(SessionClosed):
        await session.append("more", "")
    assert await kit.repo.search(SECRET) == []


# ── What is refused ──────────────────────────────────────────────────────────────────────


async def test_unknown_ids_change_nothing(kit):
    """Neither those of nobody nor those of another repository, even beside known ones."""
    await say(kit, "I live in Paris.")
    (fact,) = await facts_with(kit, "Paris")
    conversation = kit.repo.conversation("t")
    await conversation.append([Message("user", "hi", id="m")])
    await conversation.settle()
    (step, *_) = await kit.repo.get_nodes(["episodic"])
    other = await kit.memory.open_repo("other")
    before = await archive_of(kit)
    unknown: Iterable[dict[str, Any]] = (
        {"memory_ids": [fact.id, "nobody"]},
        {"message_ids": ["m", "nobody"]},
        {"steps": [step.id, "nobody"]},
        {"message_ids": ["m"], "thread_id": "other thread"},
    )
    for arguments in unknown:
        for dry_run in (False, True):
            with pytest.raises(NotFound):
                await kit.repo.forget(**arguments, dry_run=dry_run)
    for arguments in ({"memory_ids": [fact.id]}, {"message_ids": ["m"]}, {"steps": [step.id]}):
        with pytest.raises(NotFound):
            await other.forget(**arguments)
    assert await archive_of(kit) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "say what to forget"),
        ({"memory_ids": []}, "say what to forget"),
        ({"memory_ids": "abc"}, "list of ids"),
        ({"steps": "abc"}, "list of ids"),
        ({"steps": [3]}, "must be text"),
        ({"memory_ids": ["a"], "session_id": "s"}, "do not narrow"),
        ({"memory_ids": ["a"], "before": NOON}, "do not narrow"),
        ({"memory_ids": ["a"], "thread_id": "t"}, "where message_ids are"),
        ({"message_ids": ["a"], "sources": False}, "memory_ids alone"),
        ({"thread_id": "t", "sources": False}, "memory_ids alone"),
        ({"memory_ids": ["a"], "sources": "no"}, "sources must be True or False, not 'no'"),
        ({"memory_ids": ["a"], "dry_run": "no"}, "dry_run must be True or False, not 'no'"),
    ],
)
async def test_what_does_not_go_together_is_refused(kit, arguments, says):
    """The error says what to do."""
    with pytest.raises(ValueError, match=says):
        await kit.repo.forget(**arguments)


async def test_a_raw_step_is_no_memory(kit):
    """It is named in ``steps``; a tag goes with its last member."""
    step, tag = Episodic("seen"), Tag("tea")
    fact, rule = Semantic("tea is good"), Procedural("Drink tea")
    await kit.repo.apply(Changeset((step, tag, fact, rule), (Edge(tag.id, fact.id, "membership"),)))
    for id in (step.id, tag.id):
        with pytest.raises(ValueError, match="no fact or instruction"):
            await kit.repo.forget(memory_ids=[id])
    report = await kit.repo.forget(memory_ids=[fact.id, rule.id])
    assert report.nodes == 3
    assert [node.id for node in await kit.repo.get_nodes(["episodic"])] == [step.id]


async def test_a_dry_run_with_everything_changes_nothing(kit):
    """Revision, archive and file stay; the report is that of the erasure."""
    await say(kit, "I live in Paris.")
    conversation = kit.repo.conversation("t")
    await conversation.append([Message("user", "hi", id="m")])
    await kit.repo.settle()
    before = await archive_of(kit)
    later = kit.clock.now() + timedelta(days=1)
    planned = await kit.repo.forget(before=later, dry_run=True)
    assert await archive_of(kit) == before
    assert (planned.steps, planned.messages) == (1, 1)
    assert _uncounted(await kit.repo.forget(before=later)) == _uncounted(planned)


async def test_a_dry_run_shows_what_would_go(kit):
    """What was said and the fact of it, once each; a thread's messages; the erasure itself none."""
    conversation = await talk(kit)
    (fact, *_) = await facts_with(kit, SECRET)
    planned = await kit.repo.forget(memory_ids=[fact.id], dry_run=True)
    assert [text for text in planned.texts if SECRET in text]
    assert fact.text in planned.texts
    assert len(set(planned.texts)) == len(planned.texts)
    thread = await kit.repo.forget(thread_id=conversation.thread_id, dry_run=True)
    messages = await conversation.history()
    assert {message.text for message in messages if message.text} <= set(thread.texts)
    assert (await kit.repo.forget(thread_id=conversation.thread_id)).texts == ()

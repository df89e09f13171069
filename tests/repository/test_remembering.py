"""Remembering: messages that are kept at once, and become facts in the background."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import anyio
import pytest
from engines import rows_of
from helpers import Kit, OpenKit

from mnemo import Conflict, ExtractionFailed, Message, ModelUnavailable, NotFound
from mnemo.config import Config
from mnemo.events import SessionTransitioned
from mnemo.log.transcript import TranscriptReader
from mnemo.prompts.question import read_block
from mnemo.runtime.traffic import Traffic, traffic
from mnemo.testing import ScriptedChatModel
from mnemo.values.jobs import Job, JobState
from mnemo.values.messages import StoredMessage

ALLERGIC, LUND = "I am allergic to peanuts.", "I live in Lund."


async def facts(kit: Kit) -> list[str]:
    """The propositions that are known."""
    return [node.proposition for node in await kit.repo.get_nodes(["semantic"])]


async def at_rest(kit: Kit) -> None:
    """Wait until no job is due, running or failed just now."""
    with anyio.fail_after(120):
        while await kit.repo._parts.transcript.reading(under_way):  # noqa: ASYNC110
            await anyio.sleep(0.001)


def under_way(tx: TranscriptReader) -> bool:
    return bool(tx.jobs(JobState.RUNNING) or tx.jobs(JobState.WAITING, due=tx.now))


async def passed(kit: Kit, seconds: float) -> None:
    """Move the clock, and wait until what is due then is done."""
    await kit.clock.advance(seconds)
    await at_rest(kit)


@pytest.fixture
async def kit(open_kit: OpenKit) -> Kit:
    """A service without a chat model."""
    return await open_kit(embedded=True)


async def test_what_is_said_becomes_a_fact_after_some_quiet(kit):
    """A text is stored at once; five seconds after the last one the thread is extracted."""
    first = await kit.repo.remember(ALLERGIC)
    assert (first.thread_id, first.node_ids) == ("default", ())
    assert [message.content for message in first.messages] == [ALLERGIC]
    await passed(kit, 4)
    await kit.repo.remember(LUND, thread_id="default")
    await passed(kit, 4)
    assert await facts(kit) == []
    await passed(kit, 1)
    assert len(await facts(kit)) == 2
    assert (await kit.repo.statistics()).jobs.waiting == 0


async def test_twelve_messages_are_not_left_waiting_for_quiet(kit):
    """A thread that never pauses is extracted all the same."""
    for number in range(12):
        assert await facts(kit) == []
        await kit.repo.remember(f"My friend number {number} is called Ada{number}.")
    await at_rest(kit)
    assert (await kit.repo.statistics()).steps == 12


async def test_waiting_gives_what_was_made_of_it(kit):
    """The nodes are those of the commit; each leads back to the message."""
    done = await kit.repo.remember(ALLERGIC, wait=True)
    (fact,) = await kit.repo.get_nodes(["semantic"])
    assert fact.id in done.node_ids
    found = await kit.repo.recall("What is the user allergic to?", types=["semantic"])
    (candidate,) = found.candidates
    assert [source.text for source in candidate.sources] == [ALLERGIC]


async def test_extraction_waits_while_very_much_is_being_written(open_kit, monkeypatch):
    """A job that is due is claimed once the writes become fewer, and is done then."""
    looks = iter([True, True])
    monkeypatch.setattr(Traffic, "is_busy", property(lambda _: next(looks, False)))
    kit = await open_kit(embedded=True)
    found = await kit.repo.remember(LUND, wait=True)
    assert found.node_ids
    assert next(looks, None) is None


async def test_what_a_job_appends_keeps_no_other_job_waiting(kit):
    """Of what is remembered count the message and the commit, not the steps made of it."""
    before = traffic().writes
    await kit.repo.remember([LUND, ALLERGIC, "I like tea."], wait=True)
    assert traffic().writes == before + 2


async def test_no_session_is_left_or_listed(kit):
    """Threads cost rows: no session stays open, and none is unfinished."""
    await kit.repo.remember([ALLERGIC, LUND], wait=True)
    counted = await kit.repo.statistics()
    assert (counted.open_sessions, counted.steps) == (0, 2)
    assert await kit.repo.unfinished_sessions() == []
    assert {record.state for record in await kit.repo.sessions()} == {"idle"}


async def test_the_same_key_again_adds_nothing(kit):
    """One message has the key for its id, several have numbered ones, also after extraction."""
    for _ in range(2):
        one = await kit.repo.remember(ALLERGIC, key="a", wait=True)
        two = await kit.repo.remember([LUND, "I like tea."], key="b", wait=True)
        assert [m.id for m in (*one.messages, *two.messages)] == ["a", "b:0", "b:1"]
        assert one.node_ids
    assert (await kit.repo.statistics()).steps == 3
    with pytest.raises(Conflict, match="another content"):
        await kit.repo.remember(LUND, key="a")


async def test_what_a_message_says_of_itself_goes_before_the_call(kit):
    """Texts, messages and mappings may be mixed; the call fills in what they do not say."""
    given: list[Any] = ["Tea?", Message("user", "Yes.", id="own", actor="Ben", metadata={"a": 1})]
    given.append({"role": "assistant", "content": "Here you are."})
    done = await kit.repo.remember(given, key="k", actor="Ada", metadata={"a": 0, "b": 2})
    assert [(m.id, m.role, m.actor, dict(m.metadata)) for m in done.messages] == [
        ("k:0", "user", "Ada", {"a": 0, "b": 2}),
        ("own", "user", "Ben", {"a": 1, "b": 2}),
        ("k:2", "assistant", "Ada", {"a": 0, "b": 2}),
    ]


@pytest.mark.parametrize(
    ("content", "keywords", "words"),
    [
        ([], {"wait": True}, "content is empty"),
        (" \n", {}, "blank"),
        (["fine", ""], {}, "blank"),
        (3, {}, "one message or several"),
        ("fine", {"role": "robot"}, "role must be"),
        ("fine", {"key": " "}, "key must be text that is not blank"),
        (["fine", "too"], {"key": 3}, "key must be text"),
        ("fine", {"thread_id": " "}, "thread's id"),
        ("fine", {"timeout_s": -1}, "negative"),
        ("fine", {"timeout_s": float("nan")}, "timeout_s"),
        ("fine", {"metadata": [1]}, "metadata"),
        ({"role": "user", "content": "fine", "colour": 1}, {}, "colour"),
    ],
)
async def test_bad_content_is_refused_whole(kit, content, keywords, words):
    """A ``ValueError`` says what is wrong, and nothing is stored."""
    with pytest.raises(ValueError, match=words):
        await kit.repo.remember(content, **keywords)
    counted = await kit.repo.statistics()
    assert (counted.messages, counted.jobs.waiting) == (0, 0)


async def test_three_messages_before_a_portion_are_shown_but_not_taken_again(open_kit):
    """The model reads them as context; every message becomes one step."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    await kit.repo.remember([f"Message {n}." for n in range(5)], wait=True)
    model.requests.clear()
    await kit.repo.remember("It was green.", wait=True)
    (asked,) = [r for r in model.requests if r.purpose == "semantic"]
    before = read_block(asked.messages[1].content, "STEPS BEFORE, FOR UNDERSTANDING ONLY")
    assert [row["observation"] for row in before] == ["Message 2.", "Message 3.", "Message 4."]
    assert (await kit.repo.statistics()).steps == 6


async def test_a_tool_call_waits_for_its_result(kit):
    """A portion ends before an open group, which is taken once it is answered or abandoned."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    await kit.repo.remember([LUND, calling])
    await passed(kit, 5)
    assert (await kit.repo.statistics()).steps == 1
    await kit.repo.remember({"role": "tool", "tool_call_id": "c", "content": "ok"}, wait=True)
    assert (await kit.repo.statistics()).steps == 3
    await kit.repo.remember({**calling, "tool_calls": [{**call, "id": "d"}]})
    await passed(kit, 5)
    assert (await kit.repo.statistics()).steps == 3
    await passed(kit, 174)
    assert (await kit.repo.statistics()).steps == 3
    await passed(kit, 1)
    assert (await kit.repo.statistics()).steps == 4


@pytest.mark.long
@pytest.mark.slow
async def test_a_tool_group_may_be_longer_than_a_list(kit):
    """A group is one portion, and a call of ours takes 1,000 messages."""
    ids = [f"c{n}" for n in range(1_005)]
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ids]
    answers = [{"role": "tool", "tool_call_id": id, "content": "ok"} for id in ids]
    await kit.repo.remember([LUND, {"role": "assistant", "content": None, "tool_calls": calls}])
    await kit.repo.remember(answers[:900])
    await kit.repo.remember(answers[900:], wait=True)
    assert (await kit.repo.statistics()).steps == 2 + len(ids)
    assert "User lives in Lund." in await facts(kit)


@pytest.mark.slow
async def test_a_long_thread_is_taken_in_portions(kit):
    """Every message becomes one step, 64 of a session at most."""
    said = [f"The word of day {n} is w{n}." for n in range(70)]
    await kit.repo.remember(said, wait=True)
    sizes = [record.steps for record in await kit.repo.sessions()]
    assert sorted(sizes) == [6, 64]
    steps = sorted(await kit.repo.get_nodes(["episodic"]), key=lambda node: node.created_at)
    assert {node.observation for node in steps} == set(said)


async def test_messages_of_a_session_by_hand_are_not_taken_twice(kit):
    """What a feed has made a step stays the only one."""
    session = await kit.started()
    talk = kit.repo.conversation("default")
    feed = await talk.feed(session)
    await talk.append([Message("user", LUND, id="a")])
    await feed.caught_up()
    feed.cancel()
    await kit.repo.remember([Message("user", LUND, id="a"), ALLERGIC], wait=True)
    assert (await kit.repo.statistics()).steps == 2


async def test_messages_that_were_extracted_are_not_fed_again(kit):
    """What is remembered stays one step and one hit, though its thread is fed from the start."""
    await kit.repo.remember(LUND, wait=True)
    session = await kit.started()
    talk = kit.repo.conversation("default")
    feed = await talk.feed(session, from_seq=0)
    await talk.append([Message("user", ALLERGIC, id="b")])
    await feed.caught_up()
    feed.cancel()
    assert session.statistics().steps == 1
    await session.close_and_commit()
    assert (await kit.repo.statistics()).steps == 2
    assert len(await kit.repo.search("Lund")) == 1
    await kit.repo.remember("I sail.", wait=True)
    assert (await kit.repo.statistics()).steps == 3


async def test_a_message_that_is_fed_while_its_job_runs_is_one_step(kit):
    """The job finds that a session by hand was faster, and leaves the message to it."""
    session = await kit.started()
    remembering = kit.repo._remembering
    extract = remembering._take_in

    async def late(*args: Any) -> None:
        remembering._take_in = extract  # type: ignore[method-assign]
        feed = await kit.repo.conversation("default").feed(session, from_seq=0)
        await feed.caught_up()
        feed.cancel()
        await extract(*args)

    remembering._take_in = late  # type: ignore[method-assign]
    await kit.repo.remember(LUND, wait=True)
    assert session.statistics().steps == 1
    assert (await kit.repo.statistics()).steps == 1


async def test_a_message_that_is_extracted_while_a_feed_reads_is_one_step(kit):
    """A feed that has read a message before the job took it leaves it to the job."""
    session = await kit.started()
    take = session._take_fed

    async def late(messages: Sequence[StoredMessage]) -> None:
        await kit.repo.remember(LUND, key="a", wait=True)
        await take(messages)

    session._take_fed = late  # type: ignore[method-assign]
    talk = kit.repo.conversation("default")
    await talk.append([Message("user", LUND, id="a"), Message("user", ALLERGIC, id="b")])
    feed = await talk.feed(session, from_seq=0)
    await feed.caught_up()
    feed.cancel()
    assert feed.error is None
    assert (await kit.repo.statistics()).steps == 2
    assert session.statistics().steps == 0
    await session.append_messages(Message("user", "I sail."))
    assert session.statistics().steps == 1


@pytest.mark.parametrize("erase", ["withdraw", "purge", "forget"])
async def test_a_message_that_is_erased_while_a_feed_reads_is_no_step(open_kit, erase):
    """What a feed has read and not yet written is left out, once it was erased."""
    kit = await open_kit()
    session, talk = await kit.started(), kit.repo.conversation("default")
    take = session._take_fed

    async def late(messages: Sequence[StoredMessage]) -> None:
        if erase == "withdraw":
            assert [message.id for message in await talk.withdraw()] == ["b"]
        elif erase == "purge":
            await talk.purge()
        else:
            await kit.repo.forget(message_ids=["b"], thread_id="default")
        await take(messages)

    session._take_fed = late  # type: ignore[method-assign]
    await talk.append([Message("user", LUND, id="a"), Message("user", "hunter2", id="b")])
    feed = await talk.feed(session, from_seq=0)
    await feed.caught_up()
    feed.cancel()
    assert feed.error is None
    assert session.held_messages("default") == ([] if erase == "purge" else ["a"])
    assert await kit.repo.search("hunter2") == []


@pytest.mark.parametrize("erase", ["purge", "withdraw"])
async def test_a_message_that_is_erased_while_its_job_reads_is_no_step(open_kit, erase):
    """Not for a moment: another process would find it, and keep it if the worker were killed."""
    kit = await open_kit()
    remembering = kit.repo._remembering
    extract, require = remembering._take_in, remembering._require_all
    found: list[int] = []

    async def late(*args: Any) -> None:
        remembering._take_in = extract  # type: ignore[method-assign]
        talk = kit.repo.conversation("default")
        await (talk.purge() if erase == "purge" else talk.withdraw())
        await extract(*args)

    async def looked(*args: Any) -> None:
        found.append((await kit.repo.statistics()).steps)
        await require(*args)

    remembering._take_in, remembering._require_all = late, looked  # type: ignore[method-assign]
    await kit.repo.remember([Message("user", LUND, id="a"), Message("user", "hunter2", id="b")])
    await kit.repo.settle()
    assert found[0] == (0 if erase == "purge" else 1)
    assert await kit.repo.search("hunter2") == []


async def test_a_job_is_not_begun_again_before_its_worker_has_returned(kit):
    """What is said after the commit, and before the worker's end, waits for that end."""
    begun: list[int] = []
    is_written, may_return = anyio.Event(), anyio.Event()

    async def work(job: Job) -> datetime | None:
        begun.append(job.token)
        again = await kit.repo._remembering._extract(job)
        is_written.set()
        await may_return.wait()
        return again

    kit.repo._remembering.work["extract"] = work
    await kit.repo.remember(ALLERGIC)
    await kit.clock.advance(5)
    with anyio.fail_after(120):
        await is_written.wait()
    for text in (LUND, "My sister is called Ada."):
        await kit.repo.remember(text)
        await kit.repo.retry_jobs(["default"])
        assert await kit.repo._jobs._round() > 0
    assert begun == [1]
    may_return.set()
    await at_rest(kit)
    assert begun == [1, 2]
    assert (await kit.repo.statistics()).steps == 3


async def test_a_failing_model_is_asked_again_and_the_messages_stay(open_kit):
    """Each try waits longer; the dead job is visible with its error, and new words revive it."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("no answer")})
    kit = await open_kit(model=model, config=Config(jobs={"max_tries": 3}))
    with pytest.raises(ExtractionFailed, match=r"stored, but .*no answer"):
        await kit.repo.remember(ALLERGIC, wait=True)
    for pause_s in (5, 10):
        await passed(kit, pause_s)
    jobs = (await kit.repo.statistics()).jobs
    assert (jobs.waiting, jobs.running, jobs.dead) == (0, 0, 1)
    assert "no answer" in jobs.errors["extract", "default"]
    assert [m.content for m in await kit.repo.conversation("default").history()] == [ALLERGIC]
    assert await kit.repo.unfinished_sessions() == []
    model.script("semantic", ScriptedChatModel.answering()._scripts["semantic"])
    await kit.repo.remember(LUND, wait=True)
    assert (await kit.repo.statistics()).steps == 2
    assert len(await facts(kit)) == 2


async def test_a_dead_job_is_tried_again_by_hand(open_kit):
    """``retry_jobs`` gives all its tries anew; what is not dead is left out."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("no answer")})
    kit = await open_kit(model=model, config=Config(jobs={"max_tries": 1}))
    with pytest.raises(ExtractionFailed, match="no answer"):
        await kit.repo.remember(ALLERGIC, wait=True)
    assert (await kit.repo.statistics()).jobs.dead == 1
    model.script("semantic", ScriptedChatModel.answering()._scripts["semantic"])
    assert await kit.repo.retry_jobs() == ("default",)
    await at_rest(kit)
    assert len(await facts(kit)) == 1
    assert await kit.repo.retry_jobs() == ()
    assert await kit.repo.retry_jobs(["default"]) == ()
    with pytest.raises(NotFound):
        await kit.repo.retry_jobs(["default", "nobody"])
    with pytest.raises(ValueError, match="list of ids"):
        await kit.repo.retry_jobs("default")


async def test_a_backlog_is_told_with_its_age_and_how_long_it_takes(open_kit):
    """Nothing is guessed before something was extracted; of all repositories in one look."""
    kit = await open_kit()
    before = kit.clock.now()
    await kit.repo.remember([LUND, ALLERGIC], thread_id="a")
    await kit.pass_time(3)
    await kit.repo.remember(LUND, thread_id="b")
    jobs = (await kit.repo.statistics()).jobs
    assert (jobs.messages, jobs.oldest_at, jobs.per_s, jobs.seconds_left) == (3, before, None, None)
    whole = await kit.memory.backlog()
    assert {id: levels.messages for id, levels in whole.items()} == {"r": 3}
    await kit.repo.settle()
    jobs = (await kit.repo.statistics()).jobs
    assert (jobs.messages, jobs.oldest_at, jobs.seconds_left) == (0, None, 0.0)
    assert jobs.per_s > 0
    await kit.repo.remember(LUND, thread_id="c")
    jobs = (await kit.repo.statistics()).jobs
    assert jobs.seconds_left == pytest.approx(jobs.messages / jobs.per_s)
    assert await kit.memory.backlog() != {}


async def test_a_cancelled_job_extracts_nothing_of_what_is_there(open_kit):
    """Also one that runs: its commit is refused. What is said later is extracted."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    await kit.repo.remember(ALLERGIC)
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting == 1)
    assert await kit.repo.cancel_jobs(["default"]) == ("default",)
    assert await kit.repo.cancel_jobs(["default"]) == ()
    model.unblock()
    await kit.repo.settle()
    jobs = (await kit.repo.statistics()).jobs
    assert (jobs.waiting, jobs.running, jobs.dead) == (0, 0, 0)
    assert await facts(kit) == []
    assert len(await kit.repo.search("peanuts")) == 1
    await kit.repo.remember(LUND, wait=True)
    (fact,) = await facts(kit)
    assert "Lund" in fact
    assert len(await kit.repo.search("peanuts")) == 1


async def test_a_wait_that_times_out_changes_nothing(open_kit):
    """The call ends with ``TimeoutError``; the extraction goes on and commits."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    async with anyio.create_task_group() as group:

        async def waiting() -> None:
            with pytest.raises(TimeoutError):
                await kit.repo.remember(ALLERGIC, wait=True, timeout_s=3)

        group.start_soon(waiting)
        await kit.until(lambda: model.waiting == 1)
        await kit.clock.advance(3)
    model.unblock()
    await at_rest(kit)
    assert len(await facts(kit)) == 1


async def test_a_message_that_is_erased_while_its_job_runs_does_not_come_back(open_kit):
    """The commit is refused, what was made of the message goes, the others are taken."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    await kit.repo.remember(["The password is hunter2.", LUND], key="k")
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting == 1)
    await kit.repo._parts.transcript.writing(lambda tx: tx.erase("default", [0]))
    model.unblock()
    await at_rest(kit)
    assert (await kit.repo.statistics()).steps == 1
    assert await kit.repo.search("hunter2") == []
    nodes = await kit.repo.get_nodes(["semantic", "episodic", "source"])
    assert [node for node in nodes if "Lund" in repr(node)]
    assert not [node for node in nodes if "hunter2" in repr(node)]


async def test_a_try_that_fails_after_an_erasure_leaves_no_word_of_it(open_kit):
    """Its error may quote what the worker had read: that is not written any more."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("no answer to hunter2")})
    kit = await open_kit(model=model, config=Config(jobs={"max_tries": 1}))
    model.block("semantic")
    await kit.repo.remember("The password is hunter2.")
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting == 1)
    await kit.repo._parts.transcript.writing(lambda tx: tx.erase("default", [0]))
    model.unblock()
    await at_rest(kit)
    jobs = (await kit.repo.statistics()).jobs
    assert (jobs.waiting, jobs.running, jobs.errors) == (0, 0, {})


async def test_what_a_job_was_shown_before_its_messages_is_forgotten_with_them(open_kit, db):
    """The annotations of the next portion lose it; the portion itself stays."""
    kit = await open_kit(store=db, embedded=True)
    told = {"role": "assistant", "content": "I noted the password hunter2."}
    (said,) = (await kit.repo.remember(told, wait=True)).messages
    await kit.repo.remember("Thanks, and my dog is called Rex.", wait=True)
    assert [n.text for n in await kit.repo.get_nodes(["episodic"]) if "hunter2" in str(n.state)]
    report = await kit.repo.forget(message_ids=[said.id])
    assert (report.scrubbed, report.messages, report.sessions) == (True, 1, 1)
    (left,) = await kit.repo.get_nodes(["episodic"])
    assert left.observation == "Thanks, and my dog is called Rex."
    assert "User's dog is called Rex." in await facts(kit)
    assert [one.name for one in db.parent.iterdir() if b"hunter2" in one.read_bytes()] == []


async def test_what_waits_in_sight_of_a_forgotten_message_is_made_anew(open_kit, db):
    """A portion that is staged, or is being extracted, when what it was shown is forgotten."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model, store=db)
    (said,) = (await kit.repo.remember("The password is hunter2.", wait=True)).messages
    model.block("semantic")
    await kit.repo.remember("My dog is called Rex.")
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting > 0)
    await kit.repo.forget(message_ids=[said.id])
    seen = len(model.requests)
    model.unblock("semantic")
    await at_rest(kit)
    await kit.repo.settle()
    assert model.requests[seen:]
    assert not [one for one in model.requests[seen:] if "hunter2" in str(one)]
    assert [step.text for step in await kit.repo.get_nodes(["episodic"])] == [
        "My dog is called Rex."
    ]


async def test_what_a_job_was_shown_may_expire_while_it_works(open_kit):
    """What was extracted by then is kept, and nothing is extracted again."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model, config=Config(conversation={"ttl_s": 60}))
    await kit.repo.remember("My cat is called Tom.", wait=True)
    await kit.clock.advance(50)
    model.block("semantic")
    await kit.repo.remember("My dog is called Rex.")
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting > 0)
    await kit.clock.advance(10)
    await kit.repo._conversations.sweep()
    assert (await kit.repo.statistics()).messages == 1
    seen = len(model.requests)
    model.unblock("semantic")
    await at_rest(kit)
    assert [one for one in model.requests[seen:] if "Tom" not in str(one)] == []
    assert len(await kit.repo.get_nodes(["episodic"])) == 2


async def test_a_sessions_error_quotes_no_message_before_its_own(open_kit, tmp_path):
    """What was shown as context can be forgotten by itself; the job, which says why, forgets it."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model, store=tmp_path / "m.db")
    (said,) = (await kit.repo.remember("The password is hunter2.")).messages
    await passed(kit, 5)
    model.script("semantic", ModelUnavailable("no answer to hunter2"))
    await kit.repo.remember("And Ana keeps bees.")
    await passed(kit, 5)
    found = "SELECT (SELECT count(*) FROM {} WHERE error LIKE '%hunter2%')"
    assert rows_of(tmp_path / "m.db", found.format("jobs")) == [(1,)]
    await kit.repo.forget(message_ids=[said.id])
    for table in ("jobs", "sessions"):
        assert rows_of(tmp_path / "m.db", found.format(table)) == [(0,)]


async def test_a_thread_that_is_purged_while_its_job_runs_is_gone(open_kit):
    """Nothing of it is known afterwards, and what is said later is taken in."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    await kit.repo.remember("The password is hunter2.")
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting == 1)
    await kit.repo.conversation("default").purge()
    model.unblock()
    await at_rest(kit)
    counted = await kit.repo.statistics()
    assert (counted.steps, sum(counted.nodes.values()), counted.jobs.waiting) == (0, 0, 0)
    await kit.repo.remember(LUND, wait=True)
    assert (await kit.repo.statistics()).steps == 1


async def test_threads_are_extracted_side_by_side_and_each_alone(open_kit):
    """At most ``max_parallel`` threads at once, and never one twice."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model, config=Config(extraction={"max_parallel": 2}))
    model.block("semantic")
    for thread in ("a", "b", "c"):
        await kit.repo.remember(f"{thread} is here.", thread_id=thread)
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting == 2)
    jobs = (await kit.repo.statistics()).jobs
    assert (jobs.running, jobs.waiting) == (2, 1)
    model.unblock()
    await at_rest(kit)
    assert (await kit.repo.statistics()).steps == 3


async def test_a_closed_repository_gives_its_jobs_back(open_kit):
    """What was half done is taken up when it is opened again, each message once."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model)
    model.block("semantic")
    await kit.repo.remember(ALLERGIC)
    await kit.clock.advance(5)
    await kit.until(lambda: model.waiting == 1)
    async with anyio.create_task_group() as group:
        group.start_soon(kit.memory.close_repo, "r")
    model.unblock()
    kit.repo = await kit.memory.open_repo("r")
    await passed(kit, 5)
    counted = await kit.repo.statistics()
    assert (counted.steps, counted.jobs.waiting) == (1, 0)
    assert len(await facts(kit)) == 1
    with pytest.raises(NotFound):
        kit.memory.session("none")


async def test_a_job_that_finds_its_repository_closed_has_not_failed(kit, caplog):
    """It begins its session once the closing has begun: it is given back untried, not noted."""
    closing, begun, may_go_on = kit.repo, anyio.Event(), anyio.Event()

    async def work(job: Job) -> datetime | None:
        begun.set()
        await may_go_on.wait()
        return await closing._remembering._extract(job)

    closing._remembering.work["extract"] = work
    await closing.remember(ALLERGIC)
    await kit.clock.advance(5)
    with anyio.fail_after(120):
        await begun.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(kit.memory.close_repo, "r")
            await kit.until(lambda: closing._home.closed)
            may_go_on.set()
    reader = kit.memory._store.transcript("r")
    (job,) = await reader.reading(lambda tx: tx.jobs(JobState.WAITING))
    assert (job.tries, job.error) == (0, None)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    kit.repo = await kit.memory.open_repo("r")
    await passed(kit, 5)
    assert len(await facts(kit)) == 1


async def test_a_cancelled_call_has_stored_all_or_nothing(kit):
    """Whatever turn of the loop it is cancelled in, messages and job are there together."""
    for turns in range(12):
        thread = f"t{turns}"
        async with anyio.create_task_group() as group:
            group.start_soon(lambda t=thread: kit.repo.remember([ALLERGIC, LUND], thread_id=t))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        stored = await kit.repo.conversation(thread).history()
        job = await kit.repo._parts.transcript.reading(lambda tx, t=thread: tx.job("extract", t))
        assert (len(stored), job is not None) in {(0, False), (2, True)}


async def test_the_events_of_a_job_are_those_of_a_session(kit):
    """The short session goes through the states of any other."""
    await kit.repo.remember(ALLERGIC, wait=True)
    moved = [e.to_state for e in kit.seen.events if isinstance(e, SessionTransitioned)]
    assert moved == ["extracting", "ready", "idle"]


async def test_what_was_forgotten_is_left_out_and_named_when_it_comes_again(kit):
    """Under its key alone: under another, or without one, the same words are stored."""
    first = await kit.repo.remember(ALLERGIC, key="k")
    assert first.left_out == ()
    await kit.repo.forget(message_ids=[first.messages[0].id])
    again = await kit.repo.remember(ALLERGIC, key="k")
    assert (again.messages, again.left_out) == ((), ("k",))
    assert repr(again) == "<Remembered 0 messages in 'default', 0 nodes, 1 left out>"
    anew = await kit.repo.remember(ALLERGIC, key="k2")
    assert (len(anew.messages), anew.left_out) == (1, ())


async def test_the_tool_says_that_what_was_forgotten_is_not_remembered(kit):
    """A model that still holds the key is told what would store it."""
    (remember,) = kit.repo.tools(names=("remember",))
    await remember.call({"text": ALLERGIC, "key": "k"})
    await kit.repo.forget(message_ids=["k"])
    told = await remember.answer({"text": ALLERGIC, "key": "k"})
    assert told.reason == "invalid_argument"
    assert "the message of key 'k' was forgotten; give it another key" in told.text

"""The four tools: what they refuse, what they answer, and what they write."""

import json

import anyio
import pytest
from notes_kit import NOTHING, TRIP, assistant, reply, task, user, writes

from mnemo.config import NotesConfig
from mnemo.errors import Conflict, InvalidNote, NotFound, StoreError
from mnemo.notes.notes import Notes
from mnemo.notes.tools import specs, with_note_tools
from mnemo.prompts.update_notes import INSTRUCTION_MARK
from mnemo.testing import ScriptedChatModel


def answers(kit) -> list[dict]:
    """What the tools answered, in the last request."""
    messages = kit.asked[-1].messages
    asked = max(i for i, m in enumerate(messages) if m.content.startswith(INSTRUCTION_MARK))
    return [json.loads(m.content) for m in messages[asked:] if m.role == "tool"]


async def test_a_body_of_four_thousand_characters_fits(open_notes):
    """4,000 code points are written; 4,001 are not, by tool and by application."""
    kit = await open_notes(reply(writes(body="é" * 4001)), reply(writes(body="é" * 4000)), NOTHING)
    update = await kit.update()
    first, second = answers(kit)
    assert (first["ok"], first["code"]) == (False, "body_too_long")
    assert "1 too long" in first["message"]
    assert second["ok"]
    assert update.wrote
    with pytest.raises(InvalidNote) as caught:
        await kit.notes.write("travel", "x" * 4001, "too much")
    assert caught.value.reason == "body_too_long"
    assert isinstance(caught.value, ValueError)
    assert (await kit.notes.read("travel")).size == 4000


async def test_lengths_are_counted_after_trimming(kit):
    """CRLF becomes LF and outer blanks go before the body is measured."""
    note = await kit.notes.write("travel", "\r\n  a\r\nb\r\n\r\n", " about ")
    assert (note.body, note.description) == ("a\nb", "about")


@pytest.mark.parametrize(
    "topic",
    [
        "../x",
        "Coding Style",
        "con",
        "com1",
        "x--y",
        "trips\n",
        "x",
        "1st",
        "a" * 65,
        "-x",
        "ü-x",
        7,
    ],
)
async def test_what_cannot_be_a_topic(open_notes, topic):
    """Anything that is no plain name is ``bad_topic``, through tool and application."""
    kit = await open_notes(reply(writes(topic=topic)), NOTHING)
    await kit.update()
    code = "bad_topic" if isinstance(topic, str) else "bad_arguments"
    assert answers(kit)[0]["code"] == code
    with pytest.raises(InvalidNote) as caught:
        await kit.notes.write(topic, "body", "about")
    assert caught.value.reason == "bad_topic"
    assert await kit.notes.list() == []


async def test_a_bad_topic_comes_with_a_suggestion(kit):
    """Nothing is renamed silently, but a better name is told."""
    with pytest.raises(InvalidNote, match="try 'coding-style'"):
        await kit.notes.write("Coding Style", "body", "about")


@pytest.mark.parametrize("description", ["", "  ", "one\ntwo", "x" * 201, "a\u2028b"])
async def test_what_cannot_be_a_description(open_notes, description):
    """Blank, two lines or too long is ``bad_description``."""
    kit = await open_notes(reply(writes(description=description)), NOTHING)
    await kit.update()
    assert answers(kit)[0]["code"] == "bad_description"
    with pytest.raises(InvalidNote) as caught:
        await kit.notes.write("travel", "body", description)
    assert caught.value.reason == "bad_description"


async def test_a_body_with_its_own_frontmatter_is_refused(kit):
    """Topic and description are given apart."""
    with pytest.raises(InvalidNote) as caught:
        await kit.notes.write("travel", "---\ntopic: x\n---\nbody", "about")
    assert caught.value.reason == "has_frontmatter"


async def test_a_note_is_read_before_it_is_replaced(open_notes):
    """An unread note is shown instead of overwritten; the joined text is version 2."""
    kit = await open_notes(
        reply(writes(body="- only new")), reply(writes(body="- likes trains\n- Tokyo")), NOTHING
    )
    await kit.notes.write("travel", "- likes trains", "How the user travels")
    update = await kit.update()
    first, second = answers(kit)
    assert (first["code"], first["version"], first["body"]) == ("not_read", 1, "- likes trains")
    assert second == {"ok": True, "topic": "travel", "version": 2, "changed": True}
    assert [(c.topic, c.action, c.version) for c in update.notes] == [("travel", "updated", 2)]


async def test_two_updaters_lose_no_fact(open_notes):
    """Both read version 1; one meets a conflict, joins, and writes version 3."""
    together = anyio.Event()
    reading = []

    async def answer(request):
        mine = "- fact A" if "conversation A" in request.messages[1].content else "- fact B"
        evidence = "this is conversation A" if "A" in mine else "this is conversation B"
        tools = [json.loads(m.content) for m in request.messages if m.role == "tool"]
        if not tools:
            return reply({"name": "read_note", "topic": "travel"})
        if len(tools) == 1:
            reading.append(mine)
            if len(reading) == 2:
                together.set()
            await together.wait()
        if tools[-1].get("changed"):
            return NOTHING
        body = f"{tools[-1]['body']}\n{mine}"
        return reply(writes(body=body, description="Travel", evidence=evidence))

    kit = await open_notes(model=ScriptedChatModel({"update_notes": answer}))
    await kit.notes.write("travel", "- old", "Travel")
    updates = []

    async def run(name):
        history = task(f"Well, this is conversation {name}", "Ok.")
        updates.append(await kit.update(history, thread_id=name))

    async with anyio.create_task_group() as group:
        group.start_soon(run, "A")
        group.start_soon(run, "B")
    note = await kit.notes.read("travel")
    assert note.version == 3
    assert set(note.body.splitlines()) == {"- old", "- fact A", "- fact B"}
    assert all(update.wrote and update.error is None for update in updates)
    codes = [a.get("code") for request in kit.asked for a in _answers(request)]
    assert "conflict" in codes


def writing(body: str) -> dict:
    """A call of ``write_note``, as a host's toolbox runs it."""
    (call,) = reply(writes(body=body)).tool_calls
    return call


async def test_a_note_that_another_created_meanwhile_is_a_conflict(kit):
    """Of two that create one note the later meets a conflict that shows it, not ``not_read``."""
    first, second = kit.notes.toolbox(), kit.notes.toolbox()
    assert (await first.run(writing("- Tokyo")))["ok"]
    met = await second.run(writing("- Osaka"))
    assert (met["code"], met["version"], met["body"]) == ("conflict", 1, "- Tokyo")
    assert (await second.run(writing("- Tokyo\n- Osaka")))["version"] == 2
    assert (await kit.notes.toolbox().run(writing("x")))["code"] == "not_read"


@pytest.mark.parametrize("tells", ["the date", "the list"])
async def test_a_note_that_another_process_has_made_is_a_conflict(kit, tells):
    """A later date tells what this one has not seen; without it, what the list did not have."""
    toolbox = kit.notes.toolbox()
    if tells == "the date":
        kit.clock.advance(1)
    else:
        await toolbox.carry_out("list_notes", {})
    await Notes(kit.notes._parts).write("travel", "- Tokyo", "Travel")
    assert (await toolbox.run(writing("x")))["code"] == "conflict"


async def test_a_note_that_another_creates_during_the_call_is_a_conflict(kit, monkeypatch):
    """Both see that there is none, and the clock stands still; the later is told."""
    toolbox = kit.notes.toolbox()
    elsewhere = Notes(kit.notes._parts)
    embed = kit.notes._parts.embedder.embed

    async def create_first(texts, **kind):
        monkeypatch.undo()
        await elsewhere.write("travel", "- Tokyo", "Travel")
        return await embed(texts, **kind)

    monkeypatch.setattr(kit.notes._parts.embedder, "embed", create_first)
    met = await toolbox.run(writing("x"))
    assert (met["code"], met["body"]) == ("conflict", "- Tokyo")


async def test_a_write_of_equal_text_expects_its_version(kit):
    """Two that read one count and add one write the same text: the later has to read again."""
    read = await kit.notes.write("count", "5", "A count")
    first = await kit.notes.write("count", "6", "A count", expected_version=read.version)
    with pytest.raises(Conflict):
        await kit.notes.write("count", "6", "A count", expected_version=read.version)
    same = await kit.notes.write("count", "6", "A count", expected_version=first.version)
    assert same == first
    assert await kit.notes.write("count", "6", "A count") == first
    with pytest.raises(Conflict):
        await kit.notes.write("count", "6", "A count", expected_version=0)


@pytest.mark.parametrize("before", [True, False])
async def test_a_write_whose_answer_is_lost_is_looked_up(kit, monkeypatch, before):
    """What was stored counts as written; what was not raises the store's error."""
    writing = kit.notes._parts.store.writing

    async def lose(work):
        monkeypatch.undo()
        if not before:
            await writing(work)
        raise StoreError("the answer is lost")

    monkeypatch.setattr(kit.notes._parts.store, "writing", lose)
    if before:
        with pytest.raises(StoreError):
            await kit.notes.write("travel", "- Tokyo", "Travel", expected_version=0)
        assert await kit.notes.list() == []
    else:
        note = await kit.notes.write("travel", "- Tokyo", "Travel", expected_version=0)
        assert (await kit.notes.read("travel")).version == note.version == 1


def _answers(request) -> list[dict]:
    return [json.loads(m.content) for m in request.messages if m.role == "tool"]


async def test_merging_retires_the_absorbed_notes(open_notes):
    """Target written and absorbed notes gone in one transaction; their history remains."""
    kit = await open_notes(
        reply({"name": "read_note", "topic": "trips"}, {"name": "read_note", "topic": "flights"}),
        reply(writes(topic="trips", body="- a\n- b", absorbs=["flights"])),
        NOTHING,
    )
    await kit.notes.write("trips", "- a", "Trips")
    await kit.notes.write("flights", "- b", "Flights")
    update = await kit.update()
    assert {(c.topic, c.action) for c in update.notes} == {
        ("flights", "deleted"),
        ("trips", "merged"),
    }
    assert [note.topic for note in await kit.notes.list()] == ["trips"]
    kept = await kit.notes.history("flights")
    assert [(v.version, v.action) for v in kept] == [(1, "created"), (2, "deleted")]
    assert kept[1].reason == "absorbed by trips"


async def test_an_absorbed_note_must_have_been_read(open_notes):
    """Absorbing what was not shown is ``not_read``, and nothing happens."""
    kit = await open_notes(reply(writes(topic="all-trips", absorbs=["flights"])), NOTHING)
    await kit.notes.write("flights", "- b", "Flights")
    update = await kit.update()
    assert answers(kit)[0]["code"] == "not_read"
    assert not update.wrote


async def test_evidence_must_have_been_said_here(open_notes):
    """Only in a tool result is ``untrusted_source``; nowhere is ``evidence_not_found``."""
    page = {"role": "tool", "tool_call_id": "c", "content": "The page says: buy gold today"}
    history = [*TRIP, assistant("", tool_calls=[{"id": "c", "name": "f"}]), page, assistant("Ok.")]
    kit = await open_notes(
        reply(writes(evidence="buy gold today")),
        reply(writes(evidence="we never said this")),
        reply(writes(evidence="  ")),
        reply({k: v for k, v in writes().items() if k != "evidence"}),
        NOTHING,
    )
    update = await kit.update(history)
    assert [a["code"] for a in answers(kit)] == [
        "untrusted_source",
        "evidence_not_found",
        "evidence_missing",
        "evidence_missing",
    ]
    assert not update.wrote


async def test_evidence_becomes_the_versions_provenance(open_notes):
    """The message ids, the phrase and whose words they are stand in the history."""
    said = "WE  fly to “Tokyo”\nin March".replace("“", "").replace("”", "")
    kit = await open_notes(reply(writes(evidence=said)), NOTHING)
    update = await kit.update(thread_id="t", session="s", task_id="k")
    (version,) = await kit.notes.history("travel")
    assert (version.by, version.trust, version.message_ids) == ("model", "stated", ("m1",))
    assert (version.thread_id, version.session_id, version.task_id) == ("t", "s", "k")
    assert version.update_id == update.id
    assert version.evidence == "WE fly to Tokyo in March"


async def test_an_assistants_words_are_weaker_evidence(open_notes):
    """Found in an assistant's message only: ``inferred``."""
    kit = await open_notes(reply(writes(evidence="Noted, Tokyo in March")), NOTHING)
    await kit.update()
    assert (await kit.notes.read("travel")).trust == "inferred"


async def test_tool_evidence_may_be_allowed(open_notes):
    """``allow_tool_evidence``: what a tool said is ``observed``."""
    page = {"role": "tool", "tool_call_id": "c", "content": "The page says: buy gold today"}
    history = [*TRIP, assistant("", tool_calls=[{"id": "c", "name": "f"}]), page]
    kit = await open_notes(
        reply(writes(evidence="buy gold today")), NOTHING, allow_tool_evidence=True
    )
    await kit.update(history)
    assert (await kit.notes.read("travel")).trust == "observed"


async def test_a_short_message_may_be_quoted_whole(open_notes):
    """Fewer than eight characters are enough if they are the whole message."""
    kit = await open_notes(reply(writes(evidence="Tokyo")), reply(writes(evidence="Yes!")), NOTHING)
    await kit.update([*TRIP, user("Yes!", id="m3")])
    first, second = answers(kit)
    assert first["code"] == "evidence_not_found"
    assert second["ok"]


async def test_without_required_evidence_a_change_is_unquoted(open_notes):
    """``require_evidence=False`` accepts a change without it."""
    call = {k: v for k, v in writes().items() if k != "evidence"}
    kit = await open_notes(reply(call), NOTHING, require_evidence=False)
    await kit.update()
    assert (await kit.notes.read("travel")).trust == "unquoted"


async def test_what_was_refused_or_the_same_is_not_written(open_notes):
    """The task's own calls, a refused write and a repeated text leave no new version."""
    own = assistant("", tool_calls=[{"id": "w", "name": "write_note", "arguments": writes()}])
    result = {"role": "tool", "tool_call_id": "w", "content": '{"ok": true, "changed": true}'}
    same = writes(body="- Tokyo", description="Travel")
    kit = await open_notes(
        reply(writes(topic="BAD")),
        reply({"name": "read_note", "topic": "travel"}),
        reply(same),
        NOTHING,
    )
    await kit.notes.write("travel", "- Tokyo", "Travel")
    update = await kit.update([*TRIP, own, result, assistant("Saved.")])
    assert answers(kit)[-1] == {"ok": True, "topic": "travel", "version": 1, "changed": False}
    assert (update.wrote, update.notes) == (False, ())
    assert len(await kit.notes.history("travel")) == 1


async def test_one_topic_stays_in_one_note(open_notes):
    """A continued topic is split, a like one similar until the other was read."""
    kit = await open_notes(
        reply(writes(topic="travel-part-2")),
        reply(writes(topic="plan-travels")),
        reply({"name": "read_note", "topic": "travel-plans"}),
        reply(writes(topic="plan-travels")),
        NOTHING,
    )
    await kit.notes.write("travel", "- a", "Travel")
    await kit.notes.write("travel-plans", "- a", "Plans")
    await kit.update()
    codes = [answer.get("code") for answer in answers(kit)]
    assert codes == ["split_topic", "similar_topic", None, None]


async def test_limits_hold_in_code(open_notes):
    """Writes, deletions and notes are counted, whatever the prompt says."""
    calls = [writes(topic=f"topic-{name}") for name in ("alpha", "beta", "gamma")]
    drop = {"name": "delete_note", "reason": "stale", "evidence": "We fly to Tokyo in March"}
    kit = await open_notes(
        reply(*calls, {**drop, "topic": "topic-alpha"}, {**drop, "topic": "topic-beta"}),
        NOTHING,
        max_writes=2,
        max_deletes=1,
    )
    await kit.update()
    codes = [answer.get("code") for answer in answers(kit)]
    assert codes == [None, None, "write_limit", None, "delete_limit"]
    kit = await open_notes(reply(*calls), NOTHING, max_notes=2)
    await kit.update([user("We fly to Tokyo in March, again")], thread_id="x")
    assert answers(kit)[-1]["code"] == "too_many_notes"


async def test_what_the_application_deleted_stays_deleted(open_notes):
    """A topic deleted by the application comes back only with an explicit request."""
    kit = await open_notes(reply(writes()), NOTHING)
    await kit.notes.write("travel", "- a", "Travel")
    await kit.notes.delete("travel")
    await kit.update(thread_id="a")
    assert answers(kit)[0]["code"] == "deleted_by_application"
    kit.script(reply(writes(evidence="my seat is by the window")), NOTHING)
    history = task("Please remember that my seat is by the window", "Ok.")
    await kit.update(history, thread_id="b")
    assert (await kit.notes.read("travel")).version == 3


async def test_a_stale_writer_cannot_bring_a_note_back(kit):
    """Versions go on across deletion: who knows version 1 of a deleted note meets a conflict."""
    await kit.notes.write("travel", "- a", "Travel")
    await kit.notes.delete("travel", expected_version=1)
    with pytest.raises(Conflict):
        await kit.notes.write("travel", "- b", "Travel", expected_version=1)
    assert (await kit.notes.write("travel", "- b", "Travel", expected_version=0)).version == 3
    with pytest.raises(Conflict):
        await kit.notes.write("travel", "- c", "Travel", expected_version=0)
    with pytest.raises(Conflict):
        await kit.notes.delete("travel", expected_version=1)


async def test_lists_page_and_always_say_how_many(kit):
    """25 notes: ``list`` gives all, ``list_notes`` pages, and a search reaches every one."""
    for number in range(25):
        await kit.notes.write(f"topic-{number:02}x", f"- fact {number}", "Filler")
        await kit.clock.advance(1)
    await kit.notes.write("topic-00x", "- the zeppelin is green", "Filler")
    box = kit.notes.toolbox()
    assert len(await kit.notes.list()) == 25
    page = await box.run({"id": "1", "name": "list_notes", "arguments": {}})
    assert (page["total"], len(page["notes"]), page["next_offset"]) == (25, 20, 20)
    rest = await box.run({"id": "2", "name": "list_notes", "arguments": {"offset": 20}})
    assert (len(rest["notes"]), rest["next_offset"]) == (5, None)
    assert not {n["topic"] for n in page["notes"]} & {n["topic"] for n in rest["notes"]}
    assert (await kit.notes.list(query="zeppelin"))[0].topic == "topic-00x"
    assert len(await kit.notes.list(limit=3)) == 3


async def test_the_hosts_own_toolbox(kit):
    """The same tools outside an update: evidence is checked with a history, else unquoted."""
    call = {"id": "1", "name": "write_note", "arguments": {**writes()}}
    call["arguments"].pop("name")
    assert (await kit.notes.toolbox().run(call))["ok"]
    note = await kit.notes.read("travel")
    assert (note.trust, (await kit.notes.history("travel"))[0].by) == ("unquoted", "agent")
    box = kit.notes.toolbox(history=task("Something else was said", "Ok."))
    call["arguments"]["topic"] = "other"
    assert (await box.run(call))["code"] == "evidence_not_found"
    assert (await box.run({"id": "2", "name": "nothing", "arguments": {}}))["code"] == "denied"
    assert (await box.run({"id": "3", "name": "read_note", "arguments": "{}"}))["code"] == (
        "bad_arguments"
    )
    assert (await box.run({"id": "3", "name": "read_note", "arguments": {"topic": "no-such"}}))[
        "code"
    ] == "not_found"


def test_the_tools_are_the_same_bytes_each_time():
    """A host that lists the tools from the start gets the same bytes."""
    config = NotesConfig()
    assert json.dumps(specs(config)) == json.dumps(specs(config))
    for spec in specs(config):
        assert spec["parameters"]["additionalProperties"] is False


async def test_the_tools_name_the_bounds_that_hold(open_notes):
    """A model is told what its notes are measured by, in the host's tools and in an update."""
    bounds = {"body_max_chars": 300, "description_max_chars": 40, "list_page": 7}
    kit = await open_notes(**bounds)
    told = json.dumps(kit.notes.toolbox().specs)
    assert all(f"{bound} " in told or f"{bound}." in told for bound in bounds.values())
    assert not any(bound in told for bound in ("4000", "200", "20."))
    assert with_note_tools(tuple(kit.notes.toolbox().specs), NotesConfig(**bounds))


@pytest.mark.parametrize("name", ["travel", "\ud800", "A b", None, ["x"]])
async def test_unknown_notes_are_not_found(kit, name):
    """Reading, deleting, restoring and purging what is not there, or can be nowhere."""
    for call in (
        kit.notes.read(name),
        kit.notes.delete(name),
        kit.notes.history(name),
        kit.notes.restore(name, 1),
        kit.notes.purge(name),
        kit.notes.undo(name),
    ):
        with pytest.raises(NotFound):
            await call

"""The private copy that the model works in: the task first, and nothing but notes works."""

from copy import deepcopy
from dataclasses import replace

import anyio
import pytest
from notes_kit import NOTHING, TRIP, assistant, reply, task, user, writes

from mnemo.errors import BudgetExceeded, ConfigError, InvalidReply, ModelTimeout
from mnemo.prompts.update_notes import INSTRUCTION_MARK
from mnemo.protocols import ChatReply, Usage
from mnemo.testing import ScriptedChatModel

SEARCH = {"name": "search", "description": "Search.", "parameters": {"type": "object"}}


async def test_requests_begin_with_the_history_as_it_is(open_notes):
    """The history first, unchanged and in order, then one user message; right purpose."""
    call = {"id": "c1", "name": "search", "arguments": {"q": "Tokyo"}}
    history = [
        *TRIP,
        assistant("", tool_calls=[call], id="m3"),
        {"role": "tool", "tool_call_id": "c1", "content": "Found it.", "id": "m4"},
        assistant("There it is.", id="m5"),
    ]
    kit = await open_notes(reply({"name": "list_notes"}), NOTHING)
    await kit.update(history)
    for request in kit.asked:
        assert request.purpose == "update_notes"
        assert request.response_schema is None
        first = request.messages[: len(history)]
        assert [(m.role, m.content) for m in first] == [(m["role"], m["content"]) for m in history]
        assert [dict(c) for c in first[3].tool_calls] == [call]
        assert first[4].tool_call_id == "c1"
    (question,) = kit.asked[0].messages[len(history) :]
    assert question.role == "user"
    assert question.content.startswith(INSTRUCTION_MARK)
    assert kit.finished[0].prefix_reused


async def test_tools_are_passed_on_and_completed(kit):
    """The task's tools as given; the note tools behind them where they are missing."""
    await kit.update(tools=[SEARCH])
    names = [tool["name"] for tool in kit.asked[0].tools]
    assert names == ["search", "list_notes", "read_note", "write_note", "delete_note"]
    given = [*reversed(kit.notes.toolbox().specs), SEARCH]
    await kit.clock.advance(500)
    await kit.update([*TRIP, user("More", id="m9")], tools=given)
    assert list(kit.asked[1].tools) == given


async def test_a_tool_of_a_note_tools_name_is_refused(kit):
    """A host tool called ``write_note`` with another schema: nothing runs, the error says so."""
    update = await kit.update(tools=[{**SEARCH, "name": "write_note"}])
    assert isinstance(update.error, ConfigError)
    assert not kit.asked


async def test_nothing_of_the_callers_history_is_shared(open_notes):
    """Whatever a test double does to the copy, the caller's history stays as it was."""
    history = [
        *TRIP,
        assistant("", tool_calls=[{"id": "c", "name": "f", "arguments": {"a": [1]}}]),
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
        user("Thanks", metadata={"deep": {"er": [1]}}),
    ]
    before = deepcopy(history)
    turns = []

    def answer(request):
        turns.append(request)
        request.messages[3].tool_calls[0]["arguments"]["a"].append("changed")
        request.messages[3].tool_calls[0]["name"] = "changed"
        return reply(writes()) if len(turns) == 1 else NOTHING

    kit = await open_notes(model=ScriptedChatModel({"update_notes": answer}))
    assert (await kit.update(history)).wrote
    assert history == before


async def test_an_unanswered_call_at_the_end_is_left_out(open_notes):
    """The copy ends before a call that lacks an answer; the caller's list keeps it."""
    calls = [{"id": "a", "name": "f"}, {"id": "b", "name": "f"}]
    history = [
        *TRIP,
        assistant("", tool_calls=calls),
        {"role": "tool", "tool_call_id": "a", "content": "half"},
    ]
    kit = await open_notes()
    await kit.update(history)
    assert len(kit.asked[0].messages) == len(TRIP) + 1
    assert len(history) == len(TRIP) + 2


async def test_only_the_note_tools_work(open_notes):
    """A call of a host tool is denied, and a write in the next turn takes effect."""
    kit = await open_notes(reply({"name": "search", "q": "x"}), reply(writes()), NOTHING)
    update = await kit.update(tools=[SEARCH])
    assert '"code": "denied"' in kit.asked[1].messages[-1].content
    assert update.wrote
    assert update.error is None


async def test_a_model_that_lists_for_ever_is_stopped(open_notes):
    """After ``max_turns`` calls the budget of turns is used up; no exception leaves."""
    kit = await open_notes(reply({"name": "list_notes"}))
    update = await kit.update()
    assert len(kit.asked) == 6
    assert isinstance(update.error, BudgetExceeded)
    assert (update.error.which, update.error.limit, update.error.spent) == ("turns", 6, 6)
    assert str(update.error) == "the budget of turns is used up: 6 of 6; config.notes sets it"
    assert update.ran
    assert not update.wrote


async def test_a_model_that_never_answers_is_cut_off(open_notes):
    """The wall limit ends a call that is under way."""

    kit = await open_notes()
    kit.model.block()
    updates = []

    async def run():
        updates.append(await kit.update())

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while not kit.model.waiting:
            await anyio.lowlevel.checkpoint()
        await kit.clock.advance(89)
        assert not updates
        await kit.clock.advance(2)
    (update,) = updates
    assert update.error.which == "wall"
    assert kit.phases[-1] == "finished"


async def test_what_a_model_says_too_late_is_not_done(open_notes):
    """One that takes no notice of being stopped: its cost counts, its calls do not."""

    async def complete(request):
        with anyio.CancelScope(shield=True):
            await kit.clock.advance(91)
        return reply(writes())

    kit = await open_notes(model=ScriptedChatModel({"update_notes": complete}))
    update = await kit.update()
    assert (update.wrote, update.error.which) == (False, "wall")
    assert update.usage.cost_usd == 0.01


async def test_progress_names_no_topic_that_holds_a_secret(open_notes):
    """A model may name anything; what is shown is a topic, and no key."""
    calls = [writes(topic="password-is-hunter2"), writes(topic="a\nb"), writes(topic="travel")]
    kit = await open_notes(reply(*calls), NOTHING)
    await kit.update()
    assert [told.topic for told in kit.told if told.phase == "tool"] == [None, None, "travel"]
    assert "hunter2" not in str(kit.told)


async def test_tokens_and_cost_are_bounded(open_notes):
    """No call starts once tokens, output or cost are used up; what was written stays."""
    dear = reply(writes(), usage=Usage("m", 10, 10, 0, 0.5))
    kit = await open_notes(dear)
    update = await kit.update()
    assert (update.error.which, update.wrote) == ("cost", True)
    kit = await open_notes(
        reply({"name": "list_notes"}, usage=Usage("m", 10, 250, 0, 0.0)), max_output_tokens=256
    )
    assert (
        await kit.update([user("Something else entirely")], thread_id="x")
    ).error.which == "tokens"
    assert [request.max_output_tokens for request in kit.asked] == [256, 6]
    kit = await open_notes(NOTHING, max_total_tokens=1000)
    assert (await kit.update([user("One more thing")], thread_id="y")).error.which == "tokens"
    assert not kit.asked


async def test_saying_is_not_writing(open_notes):
    """A reply without a tool call ends the update, and saves nothing whatever it says."""
    for text in ("Nothing to note.", "I have saved it."):
        kit = await open_notes(ChatReply(text=text))
        update = await kit.update(task(f"Something about {text}", "Ok."), thread_id=text)
        assert (update.ran, update.wrote, update.notes, update.error) == (True, False, (), None)


async def test_an_empty_reply_is_no_decision(open_notes):
    """Neither text nor tool calls: an invalid reply, and the part stays new."""
    kit = await open_notes(ChatReply())
    assert isinstance((await kit.update()).error, InvalidReply)
    await kit.clock.advance(500)
    kit.script(NOTHING)
    assert (await kit.update()).ran


async def test_two_turns_of_misfits_end_the_update(open_notes):
    """Calls that do not fit their schema are answered; a second such turn in a row ends it."""
    bad = reply({"name": "write_note", "topik": "x"})
    kit = await open_notes(bad)
    update = await kit.update()
    assert isinstance(update.error, InvalidReply)
    assert len(kit.asked) == 2
    assert "bad_arguments" in kit.asked[1].messages[-1].content
    kit = await open_notes(bad, reply({"name": "list_notes"}), bad, NOTHING)
    assert (await kit.update(thread_id="other")).error is None


async def test_a_model_that_may_do_better_is_asked_once_more(open_notes):
    """A retryable error is tried once more; a second one ends the update."""
    kit = await open_notes(ModelTimeout("slow"), reply(writes()), NOTHING)
    assert (await kit.update()).wrote
    kit = await open_notes(ModelTimeout("slow"))
    update = await kit.update(thread_id="other")
    assert isinstance(update.error, ModelTimeout)
    assert len(kit.asked) == 2


async def test_an_overlong_history_is_cut_at_groups(open_notes):
    """Without room for the history: the system message and the new part, whole groups."""
    call = {"id": "c", "name": "f"}
    history = [
        {"role": "system", "content": "You help."},
        user("x" * 900_000),
        assistant("", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        user("Tokyo it is"),
    ]
    kit = await open_notes()
    assert (await kit.update(history)).error is None
    roles = [message.role for message in kit.asked[0].messages]
    assert roles == ["system", "assistant", "tool", "user", "user"]
    assert not kit.finished[0].prefix_reused


async def test_another_model_sees_no_secrets(open_notes):
    """With an override for this purpose the copy passes the redactor, and the cache is given up."""

    class Overridden(ScriptedChatModel):
        model = "big"

        def model_for(self, purpose):
            return "small"

    model = Overridden({"update_notes": NOTHING})
    kit = await open_notes(model=model)
    await kit.update(task("My password is hunter2, we fly to Tokyo", "Ok."))
    assert "hunter2" not in str(kit.asked)
    assert not kit.finished[0].prefix_reused


async def test_the_question_says_what_counts(kit):
    """The message names the day, the new part, the notes and the requests."""
    await kit.notes.write("food", "- likes ramen", "What the user eats")
    history = task("Please remember that I am vegetarian", "Sure.")
    await kit.update(history)
    text = kit.asked[0].messages[-1].content
    assert "Monday 1 January 2024" in text
    assert '"begins": "Please remember that I am vegetarian"' in text
    assert '{"topic": "food", "about": "What the user eats", "written": "2024-01-01"}' in text
    assert '{"request": "I am vegetarian"}' in text
    assert "Nothing to note." in text


async def test_usage_is_kept_of_every_call(open_notes):
    """Two calls at 0.01 and one that fails: 0.02, for the update, session and repository."""
    from mnemo.errors import ModelUnavailable
    from mnemo.prompts.usage import UsageMeter

    gone = ModelUnavailable("gone", retryable=False)
    kit = await open_notes(reply({"name": "list_notes"}), reply({"name": "list_notes"}), gone)
    kit.sessions["s"] = UsageMeter()
    update = await kit.update(session="s", task_id="t")
    assert update.error is gone
    assert update.usage.cost_usd == 0.02
    assert kit.sessions["s"].total.cost_usd == 0.02
    assert kit.meter.total.cost_usd == 0.02
    assert (update.usage.input_tokens, update.usage.cached_tokens) == (200, 160)
    rows = await kit.store.notes("r").reading(lambda tx: tx.usage(update.id))
    assert [(row.purpose, row.task_id, row.session_id) for row in rows] == [
        ("update_notes", "t", "s")
    ] * 2


async def test_concurrent_updates_add_up(open_notes):
    """Eight concurrent updates at 0.25 add exactly 2.0 to the session."""

    from mnemo.prompts.usage import UsageMeter

    kit = await open_notes(replace(NOTHING, usage=Usage("m", 1, 1, 0, 0.25)))
    kit.sessions["s"] = UsageMeter()

    async def run(number):
        history = task(f"Conversation number {number}", "Ok.")
        await kit.update(history, session="s", thread_id=f"t{number}")

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(run, number)
    assert kit.sessions["s"].total.cost_usd == 2.0


@pytest.mark.parametrize("cost", [None, 0.01])
async def test_an_error_that_carries_usage_is_counted(open_notes, cost):
    """What a failed call reports is spent as well; an unknown cost counts 0."""
    error = ModelTimeout("slow", retryable=False)
    error.usage = Usage("m", 7, 3, 0, cost)
    kit = await open_notes(error)
    update = await kit.update()
    assert (update.usage.input_tokens, update.usage.cost_usd) == (7, cost or 0.0)

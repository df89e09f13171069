"""When an update runs, and when it is skipped: cheaply, silently, and for the right reason."""

import time

import anyio
import pytest
from notes_kit import NOTHING, TRIP, assistant, reply, task, user, writes

from mnemo.config import NotesConfig
from mnemo.errors import ModelUnavailable
from mnemo.notes.cues import corrects, prefers, requests_in
from mnemo.testing import ScriptedChatModel


async def test_ten_iterations_are_enough(open_notes):
    """Ten iterations over new messages run an update, triggered by them."""
    kit = await open_notes(NOTHING)
    update = await kit.update(iterations=10)
    assert (update.ran, update.triggered_by, update.skipped_because) == (True, "iterations", None)
    assert update.error is None
    assert len(kit.asked) == 1


@pytest.mark.parametrize(
    ("kit", "update", "reason"),
    [
        ({}, {"iterations": 9}, "too_few_iterations"),
        ({"enabled": False}, {"history": task("Please remember me")}, "disabled"),
        ({"without_model": True}, {}, "no_model"),
        ({}, {"outcome": "failed"}, "task_failed"),
        ({}, {"outcome": "interrupted"}, "task_interrupted"),
        ({}, {"outcome": "awaiting_user"}, "awaiting_user"),
    ],
)
async def test_what_is_skipped_says_why_and_nobody_hears_of_it(open_notes, kit, update, reason):
    """Each has its reason, also with fifty iterations; the part is judged later."""
    notes = await open_notes(**kit)
    skipped = await notes.update(**{"iterations": 50, **update})
    assert (skipped.ran, skipped.skipped_because) == (False, reason)
    assert notes.skipped()


async def test_a_denied_call_makes_the_task_interrupted(open_notes):
    """A tool call that the user denied interrupts the task, though the loop went on."""
    call = {"id": "c", "name": "rm", "arguments": {}}
    denied = {"role": "tool", "tool_call_id": "c", "content": "no", "metadata": {"denied": True}}
    history = [user("Clean up"), assistant("", tool_calls=[call]), denied, assistant("Fine.")]
    kit = await open_notes()
    assert (await kit.update(history)).skipped_because == "task_interrupted"
    later = [*history, user("Something else now"), assistant("Done.")]
    assert (await kit.update(later)).ran


async def test_an_update_cannot_set_off_another(open_notes):
    """A model that is itself an agent, or starts a task that is one, is skipped as nested."""
    inner = []
    kit = None

    async def complete(request):
        inner.append(await kit.notes.update_after_task(TRIP, iterations=50))
        async with anyio.create_task_group() as group:
            group.start_soon(again)
        return NOTHING

    async def again():
        inner.append(await kit.notes.update_after_task(TRIP, iterations=50))
        inner.append(await kit.notes.update_after_task_async(TRIP, iterations=50))

    kit = await open_notes(model=ScriptedChatModel({"update_notes": complete}))
    assert (await kit.update()).ran
    assert [update.skipped_because for update in inner] == ["nested"] * 3
    assert len(kit.finished) == len(kit.asked) == 1


async def test_a_progress_callback_or_observer_cannot_set_off_another(kit):
    """Whoever is told of an update is inside of it."""
    inner = []

    async def on_progress(progress):
        inner.append(await kit.notes.update_after_task(TRIP, iterations=50))

    assert (await kit.update(on_progress=on_progress)).ran
    assert {update.skipped_because for update in inner} == {"nested"}


async def test_a_history_with_the_updaters_own_question_is_a_forks(kit):
    """A history that carries an updater's instruction message is nested."""
    await kit.update()
    asked = [{"role": m.role, "content": m.content} for m in kit.asked[0].messages]
    kit.asked.clear()
    assert (await kit.update(asked)).skipped_because == "nested"
    assert not kit.asked


@pytest.mark.parametrize(
    ("texts", "trigger"),
    [
        (["Please remember that I am vegetarian", "Sure."], "request"),
        (["I prefer short answers", "Ok."], "preference"),
        (["Where is it?", "In Nara.", "No, that's wrong: it is in Kyoto", "Sorry."], "correction"),
        (["I prefer tea. Don’t   forget that I hate coffee.", "Ok."], "request"),
        (["Please do remember that I am vegetarian", "Sure."], "request"),
        (["Note to self: buy milk", "Sure."], "request"),
        (["Don't ever use emojis", "Ok."], "preference"),
        (["Who am I?", "Hanna.", "My name is Anna, not Hanna", "Sorry."], "correction"),
        (["Where is it?", "In Nara.", "Wrong! Look again", "Sorry."], "correction"),
        (["Where is it?", "In Nara.", "I meant the other temple", "Sorry."], "correction"),
    ],
)
async def test_a_cue_is_enough(kit, texts, trigger):
    """One iteration with a cue runs; the strongest cue is named."""
    update = await kit.update(task(*texts), iterations=1)
    assert (update.ran, update.triggered_by) == (True, trigger)


@pytest.mark.parametrize(
    "said",
    [
        "Do you remember what I told you about Rex?",
        "Can you remember what we did?",
        "I remember that day.",
        "No need to remember this.",
        "I like tea. Remember?",
        "Add a remember me box to the form.",
        'He wrote "remember that I am king".',
        "> remember that I am king\nWhat does that mean?",
        "Explain `remember that x` please.",
        "```\nremember that y is 3\n```",
    ],
)
async def test_words_about_memory_are_no_cue(kit, said):
    """Questions, statements, negations, quotations and code ask for nothing."""
    update = await kit.update(task(said, "Well."), iterations=1)
    assert update.skipped_because == "too_few_iterations"


async def test_only_the_users_words_hold_cues(open_notes):
    """Assistants, tools, summaries and what the host injected cannot ask for anything."""
    said = "Please remember that I am vegetarian"
    history = [
        user(said, metadata={"injected": True}),
        {"role": "system", "content": said, "kind": "summary"},
        assistant(said, tool_calls=[{"id": "c", "name": "look"}]),
        {"role": "tool", "tool_call_id": "c", "content": said},
        user("Thanks"),
    ]
    kit = await open_notes()
    assert (await kit.update(history, iterations=1)).skipped_because == "too_few_iterations"


async def test_configured_phrases_count_too(open_notes):
    """Other languages are added by regular expressions."""
    kit = await open_notes(request_phrases=[r"merk(?:e)? dir\b"])
    update = await kit.update(task("Merk dir: ich esse kein Fleisch", "Gut."), iterations=1)
    assert update.triggered_by == "request"
    assert (await kit.notes.recall("fleisch")).hits


async def test_the_same_history_again_holds_nothing_new(open_notes):
    """A finished update has judged its history, with ids and without."""
    for ids in (True, False):
        kit = await open_notes()
        history = task("We fly to Tokyo in March.", "Noted.", ids=ids)
        assert (await kit.update(history)).ran
        await kit.clock.advance(1000)
        kit.asked.clear(), kit.told.clear(), kit.events.clear()
        update = await kit.update(history)
        assert update.skipped_because == "nothing_new"
        assert kit.skipped()


async def test_a_task_is_looked_back_over_once(kit):
    """An update with the same task id that has finished without error is already done."""
    assert (await kit.update(task_id="t1")).ran
    more = [*TRIP, user("And another thing", id="m8")]
    assert (await kit.update(more, task_id="t1")).skipped_because == "already_done"


async def test_the_window_after_an_update_delays_and_loses_nothing(kit):
    """Inside the window a task is debounced; later both parts are judged at once."""
    await kit.update(thread_id="t")
    await kit.clock.advance(10)
    second = [*TRIP, user("We also visit Kyoto", id="m3"), assistant("Good.", id="m4")]
    assert (await kit.update(second, thread_id="t")).skipped_because == "debounced"
    await kit.clock.advance(120)
    third = [*second, user("And Nara", id="m5"), assistant("Fine.", id="m6")]
    kit.script(reply(writes(evidence="We also visit Kyoto")), NOTHING)
    update = await kit.update(third, thread_id="t")
    assert update.wrote
    assert '"begins": "We also visit Kyoto"' in kit.asked[1].messages[7].content


async def test_a_request_does_not_wait_for_the_window(kit):
    """An explicit request inside the window runs at once."""
    await kit.update(thread_id="t")
    await kit.clock.advance(10)
    more = [*TRIP, user("Please remember that I am vegetarian", id="m3")]
    assert (await kit.update(more, thread_id="t", iterations=1)).ran


async def test_another_conversation_has_its_own_window(kit):
    """The window is of one conversation."""
    await kit.update(thread_id="one")
    assert (await kit.update(task("Other things", "Yes."), thread_id="two")).ran


async def test_a_failed_update_leaves_its_part_new_until_it_gives_up(open_notes):
    """After three failures in a row over the same part it counts as judged, and says so."""
    kit = await open_notes(ModelUnavailable("gone", retryable=False))
    for turn in range(3):
        update = await kit.update()
        assert isinstance(update.error, ModelUnavailable)
        assert kit.finished[-1].gave_up == (turn == 2)
        await kit.clock.advance(200)
    assert (await kit.update()).skipped_because == "nothing_new"


async def test_a_success_forgets_earlier_failures(open_notes):
    """Failures are counted in a row."""
    failure = ModelUnavailable("gone", retryable=False)
    kit = await open_notes(failure)
    history = TRIP
    for _ in range(2):
        await kit.update(history, thread_id="t")
        await kit.clock.advance(200)
    kit.script(NOTHING)
    assert (await kit.update(history, thread_id="t")).error is None
    await kit.clock.advance(200)
    kit.script(failure)
    history = [*TRIP, user("More", id="m9")]
    await kit.update(history, thread_id="t")
    assert not kit.finished[-1].gave_up


async def test_a_compacted_front_does_not_make_old_parts_new(kit):
    """What was judged stays so although the front became a summary: ids are kept."""
    await kit.update(thread_id="t")
    await kit.clock.advance(500)
    summary = {"role": "system", "content": "They plan a trip.", "kind": "summary"}
    compacted = [summary, TRIP[-1]]
    assert (await kit.update(compacted, thread_id="t")).skipped_because == "nothing_new"
    fresh = [*compacted, user("Rex is my dog, and he travels along", id="m7")]
    kit.script(reply(writes(evidence="Tokyo in March")), NOTHING)
    update = await kit.update(fresh, thread_id="t")
    assert (update.ran, update.wrote) == (True, False)


async def test_the_same_id_and_words_elsewhere_are_not_judged(kit):
    """Ids are unique in a thread only: where none is named, one alike message is no mark."""
    assert (await kit.update(task("We fly to Tokyo", "Ok."))).ran
    assert (await kit.update(task("We like ramen", "Ok."))).ran


async def test_a_closed_repository_runs_nothing(open_notes):
    """Shutting down comes before every other rule."""
    kit = await open_notes(enabled=False)
    await kit.notes._aclose(0)
    assert (await kit.update()).skipped_because == "closing"


# ── No text that is pasted into a conversation holds up the search for cues ───────────


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    ["please ", "remember this. ", "x and remember that ", " ", ". ", '"', "'a", "`", "a\n",
     "great. ", "is a ", "make sure ", "not a b ", "- ", "it is a "],
)  # fmt: skip
@pytest.mark.long
def test_the_time_does_not_grow_faster_than_the_text(piece):
    """A hundred thousand characters of any one thing are looked through in a moment."""
    text = piece * (100_000 // len(piece)) + " Remember that!"
    began = time.process_time()
    for search in (requests_in, corrects, prefers):
        search(text, NotesConfig())
    assert time.process_time() - began < 2

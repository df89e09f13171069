"""Notes leave with their repository and come back the same, through the public surface."""

from typing import Any

import pytest
from helpers import lines_of

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel, tool_call

SAID = (
    {"role": "user", "content": "We fly to Tokyo in March and stay for two weeks.", "id": "a1"},
    {"role": "assistant", "content": "Tokyo in March it is.", "id": "a2"},
)


def writing() -> ScriptedChatModel:
    """A model that writes one note when it looks back, and nothing from then on."""
    model = ScriptedChatModel.answering()
    call = tool_call(
        "write_note",
        topic="travel",
        description="Where the user travels",
        body="- Tokyo in March",
        evidence="We fly to Tokyo in March",
    )
    answers: list[Any] = [{"tool_calls": [call]}]
    model.script("update_notes", lambda _: answers.pop() if answers else "Nothing to note.")
    return model


@pytest.mark.parametrize(("from_file", "to_file"), [(True, False), (False, True)])
async def test_notes_come_back_with_their_history(tmp_path, from_file, to_file):
    """Found, traced back to the message, undone; and what was judged is not judged again."""
    places = [str(tmp_path / "a.db") if from_file else "memory:"]
    places.append(str(tmp_path / "b.db") if to_file else "memory:")
    clock = ManualClock()
    service: dict[str, Any] = {"embedder": HashingEmbedder(), "clock": clock}
    async with Mnemo(places[0], chat_model=writing(), **service) as memory:
        repo = await memory.open_repo("r")
        said = await repo.conversation("trip").append(SAID)
        update = await repo.notes.update_after_task(
            said, iterations=10, thread_id="trip", task_id="k"
        )
        assert update.wrote
        await repo.notes.write("bread", "- rye", "What we bake")
        await repo.notes.delete("bread")
        lines = await lines_of(memory, "r")
        history = [await repo.notes.history(topic) for topic in ("travel", "bread")]
        overview = await repo.notes.overview()

    model = writing()
    async with Mnemo(places[1], chat_model=model, **service) as memory:
        head = await memory.import_repo("copy", lines)
        assert head.counts["note"] == 2
        repo = await memory.open_repo("copy")
        assert await lines_of(memory, "copy") == lines
        assert [await repo.notes.history(topic) for topic in ("travel", "bread")] == history
        assert await repo.notes.overview() == overview

        found = await repo.recall("Tokyo", notes=True)
        assert found.notes is not None
        assert [hit.note.topic for hit in found.notes.hits] == ["travel"]
        version = history[0][-1]
        seen = await repo.view(version.message_ids[0], session_id=version.thread_id)
        assert seen.target.text == SAID[0]["content"]

        again = await repo.notes.update_after_task(said, iterations=10, thread_id="trip")
        assert (again.ran, again.skipped_because) == (False, "nothing_new")
        same = await repo.notes.update_after_task(said, iterations=10, task_id="k")
        assert same.skipped_because == "already_done"
        assert model.requests == []

        (change,) = await repo.notes.undo(update.id)
        assert (change.topic, change.action, change.version) == ("travel", "deleted", 2)
        assert (await repo.notes.restore("bread", 1)).version == 3

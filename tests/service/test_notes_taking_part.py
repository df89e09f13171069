"""Notes in recall, in the window, and back to the messages they came from: issue 6, point 6."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from world import store_at

from mnemo import Mnemo
from mnemo.errors import StoreLocked
from mnemo.recall.result import RecallResult
from mnemo.repository.repository import Repository
from mnemo.runtime.text import count_tokens
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel, tool_call

BUDGETS = (0, 1, 5, 20, 60, 100, 150, 200, 400, 1_000, 5_000)


@pytest.fixture(params=["memory:", "file"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both stores."""
    return "memory:" if request.param == "memory:" else str(tmp_path / "m.db")


@asynccontextmanager
async def opened(where: Any, **service: Any) -> AsyncIterator[tuple[Mnemo, Repository]]:
    """A service with one repository, on a clock that stands."""
    service = {"embedder": HashingEmbedder(), "clock": ManualClock()} | service
    async with Mnemo(where, **service) as memory:
        yield memory, await memory.open_repo("r")


async def told(repo: Repository) -> None:
    """Something said and something noted about Kyoto, and a note about something else."""
    session = await repo.start_session("plan", session_id="s")
    await session.append("I want to see the temples of Kyoto", "Kyoto it is")
    await session.append("Kyoto in autumn, for the temples", "")
    await repo.notes.write("kyoto-trip", "- temples of Kyoto\n- in November", "Where we go")
    await repo.notes.write("bread", "- sourdough\n- rye", "What we bake")
    with anyio.fail_after(120):
        # Vectors follow in the background, and would change what is found between two recalls.
        while (now := await repo.statistics()).vectors < 3 or now.index.waiting:  # noqa: ASYNC110
            await anyio.sleep(0.001)


def ids_of(found: RecallResult) -> list[str]:
    """What was found, in order."""
    return [candidate.node.id for candidate in found.candidates]


# ── Recall ───────────────────────────────────────────────────────────────────────────


async def test_recall_finds_notes_where_it_is_asked_to(where):
    """Point 6: notes take part in recall when asked, and in no other."""
    async with opened(where) as (_, repo):
        await told(repo)
        plain = await repo.recall("temples of Kyoto")
        assert plain.notes is None
        noted = await repo.recall("temples of Kyoto", notes=True)
        assert ids_of(noted) == ids_of(plain) != []
        assert noted.notes is not None
        (hit,) = noted.notes.hits
        assert hit.note.topic == "kyoto-trip"
        assert hit.note.last_read_at is not None
        assert noted.trace.degraded == ()


async def test_recall_in_context_finds_notes_too(where):
    """The session's goal and steps weigh in for the candidates; notes go by the query."""
    async with opened(where) as (_, repo):
        await told(repo)
        found = await repo.recall_in_context("s", "sourdough", notes=True)
        assert found.notes is not None
        assert [hit.note.topic for hit in found.notes.hits] == ["bread"]
        assert (await repo.recall_in_context("s", "sourdough")).notes is None


async def test_notes_are_printed_behind_the_candidates_within_one_budget(where):
    """Candidates keep their words and order at any budget; notes have what they leave."""
    async with opened(where) as (_, repo):
        await told(repo)
        plain = await repo.recall("temples of Kyoto")
        noted = await repo.recall("temples of Kyoto", notes=True)
        assert noted.notes is not None
        assert noted.as_text() == f"{plain.as_text()}\n\n{noted.notes.as_text()}"
        for budget in BUDGETS:
            text = noted.as_text(budget)
            assert count_tokens(text) <= budget
            assert text.startswith(plain.as_text(budget))
            assert text.count("BEGIN NOTE") == text.count("END NOTE")
        assert "BEGIN NOTE kyoto-trip" in noted.as_text(1_000)
        assert "BEGIN NOTE" not in noted.as_text(60)


async def test_a_recall_answers_without_notes_that_fail():
    """Degraded, said so in the trace, never failed: the store's error or any other."""
    for error in (StoreLocked("busy"), RuntimeError("a bug")):
        store = store_at()
        async with opened(store) as (_, repo):
            await told(repo)
            plain = await repo.recall("temples of Kyoto")
            failing: Any = _Failing(repo, error)
            repo.notes._shelf.store = failing
            found = await repo.recall("temples of Kyoto", notes=True)
            assert found.notes is None
            assert ids_of(found) == ids_of(plain)
            assert found.trace.degraded == (f"notes: {type(error).__name__}",)
            assert found.as_text() == plain.as_text()


class _Failing:
    """A ``StoredNotes`` none of whose transactions works."""

    def __init__(self, repo: Repository, error: Exception) -> None:
        self._error = error

    async def reading(self, work: Any) -> Any:
        raise self._error

    async def writing(self, work: Any) -> Any:
        raise self._error


# ── The window ───────────────────────────────────────────────────────────────────────


async def test_the_window_begins_with_notes_where_it_is_asked_to(where):
    """Point 6: notes take part in the stable prefix when asked, and in no other."""
    async with opened(where) as (_, repo):
        talk = repo.conversation("t")
        await talk.append([{"role": "user", "content": "hello"}])
        assert (await talk.viewport(2_000, notes=True).render()).memory == ""
        await repo.notes.write("bread", "- rye", "What we <bake>")
        assert (await talk.viewport(2_000).render()).memory == ""
        rendered = await talk.viewport(2_000, notes=True).render()
        assert rendered.memory == (
            '## Notes\n<notes trusted="false">\n'
            "- bread: What we &lt;bake&gt; (2024-01-01)\n</notes>"
        )
        assert rendered.messages[0].text == rendered.memory
        assert [m.text for m in await talk.append(rendered.messages)] == ["hello"]
        assert len(await talk.history()) == 1


# ── Back to the messages ─────────────────────────────────────────────────────────────

SAID = (
    {"role": "user", "content": "We fly to Tokyo in March and stay for two weeks.", "id": "a1"},
    {"role": "assistant", "content": "Tokyo in March it is.", "id": "a2"},
)


async def test_the_provenance_of_a_note_leads_back_to_its_message(where):
    """Point 6: history, then view, gives the very message that the note rests on."""
    model = ScriptedChatModel.answering()
    written = tool_call(
        "write_note",
        topic="travel",
        description="Where the user travels",
        body="- Tokyo in March",
        evidence="We fly to Tokyo in March",
    )
    answers = [{"tool_calls": [written]}, "Nothing to note."]
    model.script("update_notes", lambda _: answers.pop(0))
    async with opened(where, chat_model=model) as (_, repo):
        talk = repo.conversation("trip")
        said = await talk.append(SAID)
        await repo.conversation("other").append([{**SAID[0], "content": "Another a1"}])
        update = await repo.notes.update_after_task(said, iterations=10, thread_id="trip")
        assert (update.error, update.wrote) == (None, True)
        version = (await repo.notes.history("travel"))[-1]
        assert (version.thread_id, version.message_ids) == ("trip", ("a1",))
        seen = await repo.view(version.message_ids[0], session_id=version.thread_id)
        assert seen.target.text == SAID[0]["content"]
        assert version.evidence in seen.target.text

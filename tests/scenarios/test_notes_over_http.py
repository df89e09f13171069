"""Updates of notes over HTTP: a model that does what it may not, too much, nothing, or fails."""

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import scripted_faults as faults
from http_kit import Provider
from notes_kit import NotesKit, assistant, make_notes, task, user
from scripted_server import ScriptedServer

from mnemo.errors import ModelError
from mnemo.prompts.update_notes import INSTRUCTION_MARK
from mnemo.protocols import ChatReply, ChatRequest

pytestmark = pytest.mark.slow

HISTORY = task("We fly to Tokyo in March. Please remember that Rex is my dog.", "Noted.")
SHELL = {"name": "shell", "description": "Run.", "parameters": {"type": "object"}}

Open = Callable[..., Awaitable[NotesKit]]


@pytest.fixture
async def open_over(
    server: ScriptedServer, provider: Provider, tmp_path: Path
) -> AsyncIterator[Open]:
    """Opens notes whose model asks the server."""
    async with AsyncExitStack() as stack:

        async def make(**given: Any) -> NotesKit:
            model = provider.model(server)
            stack.push_async_callback(model.aclose)
            return await make_notes(stack, "sqlite", tmp_path / "n.db", model=model, **given)

        yield make


def calls(*given: dict[str, Any]) -> ChatReply:
    """A reply that calls tools."""
    listed = [
        {"id": f"call_{i}", "name": call.pop("name"), "arguments": call}
        for i, call in enumerate([dict(call) for call in given])
    ]
    return ChatReply(tool_calls=listed)


def writing(**rest: Any) -> dict[str, Any]:
    """A call of ``write_note``."""
    given = {
        "topic": "travel",
        "description": "Where the user travels",
        "body": "- Tokyo in March",
        "evidence": "We fly to Tokyo in March",
    }
    return {"name": "write_note", **given, **rest}


def scripted(server: ScriptedServer, *replies: Any) -> list[ChatRequest]:
    """Let the server answer so, in order, the last repeating; give the requests as they come."""
    left = list(replies)
    seen: list[ChatRequest] = []

    def answer(request: ChatRequest) -> Any:
        seen.append(request)
        return left.pop(0) if len(left) > 1 else left[0]

    server.script("update_notes", answer)
    return seen


def told(seen: list[ChatRequest]) -> list[dict[str, Any]]:
    """What the tools answered, in the last request."""
    return [json.loads(m.content) for m in seen[-1].messages if m.role == "tool"]


async def test_a_note_is_written_over_http(open_over, server):
    """A whole update: list, write, and the request that the model left to the rule."""
    seen = scripted(
        server, calls({"name": "list_notes"}), calls(writing()), ChatReply(text="Done.")
    )
    kit = await open_over()
    update = await kit.update(HISTORY, tools=[SHELL])
    assert update.error is None
    assert {change.topic for change in update.notes} == {"travel", "rex-dog"}
    assert [answer["ok"] for answer in told(seen)] == [True, True]
    assert update.usage.input_tokens > 0
    assert [tool["name"] for tool in kit.notes.toolbox().specs] == [
        "list_notes",
        "read_note",
        "write_note",
        "delete_note",
    ]


async def test_a_task_with_tools_of_its_own_is_repeated_as_it_was(open_over, server):
    """Calls and results of the task stand in the request as the protocol wants them."""
    call = {"id": "t1", "name": "shell", "arguments": {"command": "ls"}}
    history = [
        *HISTORY,
        user("Look around"),
        assistant("", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "t1", "content": "a.txt"},
        assistant("One file."),
    ]
    seen = scripted(server, ChatReply(text="Nothing to note."))
    kit = await open_over()
    assert (await kit.update(history, tools=[SHELL])).error is None
    messages = seen[0].messages
    assert [dict(c) for m in messages for c in m.tool_calls] == [call]
    assert [m.content for m in messages if m.role == "tool"] == ["a.txt"]
    assert INSTRUCTION_MARK in messages[-1].content


async def test_a_hundred_kilobytes_are_too_long(open_over, server):
    """The body is refused whole, nothing is cut, and the model may try again."""
    seen = scripted(
        server, calls(writing(body="x" * 50_000)), calls(writing()), ChatReply(text="Done.")
    )
    kit = await open_over()
    update = await kit.update(HISTORY)
    assert told(seen)[0]["code"] == "body_too_long"
    assert update.error is None
    scripted(server, calls(writing(body="y" * 100_000)), ChatReply(text="Done."))
    update = await kit.update(task("We fly to Tokyo in March, again"), thread_id="b")
    assert (update.error, update.wrote) == (None, False)
    assert (await kit.notes.read("travel")).body == "- Tokyo in March"


@pytest.mark.parametrize(
    "fault",
    [
        faults.SERVER_ERROR,
        faults.RATE_LIMITED,
        faults.DROPPED,
        faults.DROPPED_MID_BODY,
        faults.TRUNCATED_JSON,
        faults.KEY_REFUSED,
        faults.WRONG_CONTENT_TYPE,
        faults.EMPTY_CHOICES,
    ],
    ids=lambda fault: fault.name,
)
async def test_whatever_the_server_does_the_request_is_kept(open_over, server, fault):
    """A server that fails for ever: an error, one event, one end, and the request kept by rule."""
    scripted(server, ChatReply(text="Nothing to note."))
    server.fail(fault, times=math.inf)
    kit = await open_over()
    update = await kit.update(HISTORY)
    assert isinstance(update.error, ModelError)
    assert [change.topic for change in update.notes] == ["rex-dog"]
    assert kit.phases[0] == "started"
    assert kit.phases.count("finished") == 1
    assert len(kit.finished) == 1

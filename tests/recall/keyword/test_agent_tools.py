"""Search and drill-down as tools: what a model is told, whatever it sends."""

import json
import logging
from functools import partial
from typing import Any

import anyio
import pytest
from contracts.talk import said

from mnemo.config import Config
from mnemo.errors import StoreError
from mnemo.models.chat import Tool
from mnemo.recall.keyword import search
from mnemo.recall.view import view
from mnemo.repository.agent_tools import AgentTool
from mnemo.repository.tools import search_tool, view_tool
from mnemo.values.chat import ChatMessage, ChatRequest


@pytest.fixture
def searching(talk: Any) -> AgentTool:
    return search_tool(partial(search, talk.records(), clock=talk.clock, config=Config()))


@pytest.fixture
def viewing(talk: Any) -> AgentTool:
    return view_tool(partial(view, talk.records(), config=Config()))


async def test_results_are_counted_and_named(talk, searching):
    """None, one and three results, each with what view_messages takes."""
    assert await searching.call({"query": "x"}) == 'No results found for "x".'
    await talk.write(said(0, "kyoto in spring"))
    assert await searching.call({"query": "kyoto"}) == (
        'Found 1 result for "kyoto":\n\n'
        '[message m0, session "t", user, 2024-03-01]\n'
        "  kyoto in spring"
    )
    await talk.write(said(1, "kyoto"), said(2, "kyoto"))
    told = await searching.call({"query": "kyoto"})
    assert told.startswith('Found 3 results for "kyoto":\n\n[message ')
    assert told.count("\n\n[message ") == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"query": "  "}, "Query cannot be blank"),
        ({"query": None}, "Query cannot be blank"),
        ({}, "Query cannot be blank"),
        (None, "Query cannot be blank"),
        ("kyoto", "Query cannot be blank"),
        ({"query": ["kyoto"]}, "query must be a text of at most 1,000 characters"),
        ({"query": "x" * 1_001}, "query must be a text of at most 1,000 characters"),
        ({"query": "x", "limit": True}, "limit must be an integer from 1 to 20"),
        ({"query": "x", "limit": 0}, "limit must be an integer from 1 to 20"),
        ({"query": "x", "limit": 21}, "limit must be an integer from 1 to 20"),
        ({"query": "x", "limit": "many"}, "limit must be an integer from 1 to 20"),
        ({"query": "x", "limit": 2.5}, "limit must be an integer from 1 to 20"),
        ({"query": "x", "limit": float("nan")}, "limit must be an integer from 1 to 20"),
        ({"query": "x", "limit": []}, "limit must be an integer from 1 to 20"),
        ({"query": "x", "session_id": 5}, "session_id must be a text"),
    ],
)
async def test_wrong_arguments_are_answered(searching, arguments, error):
    """A model is told what is wrong; nothing is raised."""
    assert await searching.call(arguments) == f"Error: {error}"


async def test_arguments_may_be_json_text(talk, searching):
    """Chat completions give them so; text that is no object holds no arguments."""
    await talk.write(said(0, "tea"))
    assert (await searching.call('{"query": "tea"}')).startswith("Found 1 result")
    for broken in ('{"query": "tea"', '["tea"]', "[" * 100_000):
        assert await searching.call(broken) == "Error: Query cannot be blank"


async def test_a_number_in_words_counts_and_unknown_arguments_do_not(talk, searching):
    """``"3"`` is 3; what no tool knows is passed over; an empty session is none."""
    await talk.write(*(said(n, "tea") for n in range(5)))
    given = {"query": "tea", "limit": "3", "session_id": "", "colour": "red"}
    assert (await searching.call(given)).startswith("Found 3 results")
    assert (await searching.call({"query": "tea", "session_id": "u"})).startswith("No results")


async def test_the_query_is_told_on_one_short_line(searching):
    """Line breaks are blanks, and 200 characters are enough."""
    told = await searching.call({"query": "a\nb" + "c" * 300})
    assert told == f'No results found for "a b{"c" * 197}".'


async def test_a_view_is_given_as_text(talk, viewing):
    """By an id, of one thread if it is in several, or not found."""
    await talk.write(said(0, "kyoto"), said(0, "osaka", thread="u"), said(1, id="x1"))
    assert "→ message 1" in await viewing.call({"message_id": "x1"})
    assert await viewing.call({"message_id": "x"}) == "Error: Message x not found"
    assert await viewing.call({}) == "Error: message_id is required"
    assert await viewing.call({"message_id": 7}) == "Error: message_id must be a text"
    twice = await viewing.call({"message_id": "m0"})
    assert twice.startswith("Error: ")
    assert "'t', 'u'" in twice
    assert "osaka" in await viewing.call({"message_id": "m0", "session_id": "u"})


async def test_a_failing_store_is_told_and_logged(caplog):
    """The model is told that it cannot be done, the operator why."""

    async def broken(*args: Any, **options: Any) -> Any:
        raise StoreError("the disk is gone")

    with caplog.at_level(logging.ERROR):
        assert await search_tool(broken).call({"query": "x"}) == "Error: search is unavailable"
        told = await view_tool(broken).call({"message_id": "x"})
    assert told == "Error: viewing messages is unavailable"
    assert caplog.text.count("the disk is gone") >= 2


async def test_cancellation_passes_through():
    """A call that is cancelled ends; it is not answered with an error."""

    async def waiting(*args: Any, **options: Any) -> Any:
        await anyio.sleep_forever()

    answers: list[str] = []
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                answers.append(await search_tool(waiting).call({"query": "x"}))

            group.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert answers == []
    assert scope.cancelled_caught


def test_the_schemas_are_what_models_and_frameworks_take(searching, viewing):
    """Valid JSON Schema, the one required name, nothing else allowed."""
    for tool, needed in ((searching, "query"), (viewing, "message_id")):
        assert json.loads(json.dumps(tool.parameters)) == tool.parameters
        assert tool.parameters["type"] == "object"
        properties = tool.parameters["properties"].values()
        assert {one["type"] for one in properties} <= {"string", "integer"}
        assert all(one["description"] for one in properties)
        assert tool.parameters["required"] == [needed]
        assert tool.parameters["additionalProperties"] is False
        read = Tool.read(tool.spec)
        assert (read.name, read.description) == (tool.name, tool.description)
        assert read.schema == tool.parameters
    assert set(searching.parameters["properties"]) == {"query", "session_id", "limit"}
    assert set(viewing.parameters["properties"]) == {"message_id", "session_id"}
    limit = searching.parameters["properties"]["limit"]
    assert (limit["type"], limit["minimum"], limit["maximum"]) == ("integer", 1, 20)
    query = searching.parameters["properties"]["query"]
    assert (query["minLength"], query["maxLength"]) == (1, 1_000)
    request = ChatRequest(
        messages=[ChatMessage("user", "x")], purpose="plan", tools=[searching.spec, viewing.spec]
    )
    assert [tool["function"]["name"] for tool in request.tools] == [
        "search_messages",
        "view_messages",
    ]

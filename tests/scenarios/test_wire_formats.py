"""Histories of OpenAI and Anthropic are appended as they are, and leave as they came."""

import json
from typing import Any

import pytest
from helpers import lines_of

from mnemo import Conflict, Mnemo, Recent, Repository, UsageError, wire
from mnemo.testing import HashingEmbedder

CHAT = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What grows in Oslo?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "flora", "arguments": '{"city": "Oslo"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Birches"},
    {"role": "assistant", "content": "Birches.", "refusal": None, "annotations": []},
]
RESPONSES = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And Rome?"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "id": "fc_1", "call_id": "c2", "name": "flora", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": "Pines"},
    {"type": "item_reference", "id": "msg_1"},
]
ANTHROPIC = [
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Ask twice.", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "flora", "input": {"city": "Lund"}},
            {"type": "tool_use", "id": "t2", "name": "flora", "input": {"city": "Bern"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "Beeches"},
            {"type": "tool_result", "tool_use_id": "t2", "content": [], "is_error": True},
            {"type": "text", "text": "And what about marigolds?"},
        ],
    },
]
HISTORIES: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "openai": (CHAT, wire.to_openai),
    "responses": (RESPONSES, wire.to_responses),
    "anthropic": (ANTHROPIC, wire.to_anthropic),
}


async def opened(memory: Mnemo, name: str = "r") -> Repository:
    return await memory.open_repo(name)


@pytest.mark.parametrize("name", HISTORIES)
async def test_a_history_survives_a_restart_and_an_archive(name, tmp_path):
    """What ``to_x`` gives of the stored messages is what was appended."""
    items, written = HISTORIES[name]
    path = tmp_path / "memory.db"
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        await (await opened(memory)).conversation("t").append(items)
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = await opened(memory)
        assert written(await repo.conversation("t").history()) == items
        lines = await lines_of(memory, "r")
        await memory.import_repo("copy", lines)
        copy = await opened(memory, "copy")
        assert written(await copy.conversation("t").history()) == items


@pytest.mark.parametrize("name", HISTORIES)
async def test_a_rendering_is_a_request_of_the_format(name):
    """The appended items are in it, behind what memory adds; it is plain JSON."""
    items, _ = HISTORIES[name]
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        conversation = (await opened(memory)).conversation("t")
        await conversation.append(items)
        rendered = await conversation.viewport(budget_tokens=4_000).render()
    request = getattr(rendered, f"to_{name}")()
    shown = request["input" if name == "responses" else "messages"]
    assert json.loads(json.dumps(request, allow_nan=False)) == request
    assert [item for item in shown if item in items] == items


async def test_the_words_of_an_item_are_found():
    """A text beside tool results is somebody's words."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await opened(memory)
        await repo.conversation("t").append(ANTHROPIC)
        [hit] = await repo.search("marigolds")
        assert "marigolds" in hit.snippet


async def test_a_large_image_fits_no_small_budget():
    """Two images of 400 KB count 1,100 tokens each, inside a tool result too."""
    data = "A" * 400_000
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [image]}
    call = {"type": "tool_use", "id": "t1", "name": "draw", "input": {}}
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        conversation = (await opened(memory)).conversation("t")
        stored = await conversation.append(
            [
                {"role": "user", "content": [image]},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
        )
        assert [message.tokens >= 1_100 for message in stored] == [True, False, True]
        with pytest.raises(UsageError, match="have 1111 tokens, the budget is 100"):
            await conversation.load(budget_tokens=100)


async def test_the_same_id_with_another_item_is_a_conflict():
    """What only the kept item tells is compared as well."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        conversation = (await opened(memory)).conversation("t")
        item = {"role": "assistant", "content": "x", "annotations": []}
        await conversation.append({**item, "id": "m1"})
        assert len(await conversation.append({**item, "id": "m1"})) == 1
        with pytest.raises(Conflict, match="extra"):
            await conversation.append({**item, "id": "m1", "annotations": [{"a": 1}]})


async def test_an_item_just_before_a_page_is_loaded_with_what_it_leads():
    """The newest page of 64 messages begins with a call; the item that leads it is read as well."""
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": {}} for n in range(62)]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "x"} for n in range(62)]
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await opened(memory)
        conversation = repo.conversation("t", retrieval=Recent(1))
        await conversation.append([{"role": "user", "content": f"m{n}"} for n in range(9)])
        await conversation.append(RESPONSES[1:2])
        await conversation.append([{"role": "assistant", "content": calls}])
        await conversation.append([{"role": "user", "content": [one]} for one in results])
        await conversation.append({"role": "user", "content": "last"})
        loaded = await conversation.load()
    assert len(loaded) == 65
    assert wire.to_responses(loaded[:1]) == RESPONSES[1:2]

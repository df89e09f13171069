"""The scripted model server itself: what tests of the adapters and sessions rest on."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import scripted_faults as faults
from scripted_server import ScriptedServer

from mnemo.prompts.annotate import NEW_STEPS, STANDING
from mnemo.prompts.data import block

ROWS = [{"index": 0, "actor": "Ana", "observation": "it is late", "action": "go home"}]
USER = "\n\n".join((block("GOAL", [{"goal": "rest"}]), block(NEW_STEPS, ROWS)))
SCHEMA = {"type": "object", "properties": {"steps": {"type": "array"}}}


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client without retries."""
    async with httpx.AsyncClient(base_url=server.url, timeout=5, trust_env=False) as made:
        yield made


def openai(**rest: Any) -> dict[str, Any]:
    """A body for ``/v1/chat/completions``."""
    messages = [{"role": "system", "content": STANDING}, {"role": "user", "content": USER}]
    return {"model": "m", "messages": messages, **rest}


def anthropic(**rest: Any) -> dict[str, Any]:
    """A body for ``/v1/messages``."""
    messages = [{"role": "user", "content": [{"type": "text", "text": USER}]}]
    return {"model": "m", "max_tokens": 100, "system": STANDING, "messages": messages, **rest}


VERSION = {"anthropic-version": "2023-06-01"}
TOOL = {"name": "annotate", "input_schema": SCHEMA}


async def test_a_chat_question_is_answered_by_its_standing_instructions(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """Without a named schema the purpose is read off the system message."""
    reply = (await client.post("/v1/chat/completions", json=openai())).json()
    said = json.loads(reply["choices"][0]["message"]["content"])
    assert said["steps"][0]["subgoal"] == "rest"
    assert server.calls("annotate")[0].status == 200
    assert reply["usage"]["prompt_tokens"] > reply["usage"]["completion_tokens"] > 0


async def test_a_named_schema_and_a_forced_tool_name_the_purpose(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """Both protocols' ways of asking for structure are understood, and answered in kind."""
    form = {"type": "json_schema", "json_schema": {"name": "annotate", "schema": SCHEMA}}
    await client.post("/v1/chat/completions", json=openai(response_format=form))
    body = anthropic(tools=[TOOL], tool_choice={"type": "tool", "name": "annotate"})
    reply = (await client.post("/v1/messages", json=body, headers=VERSION)).json()
    assert reply["content"][0]["input"]["last_reward"] == 0.5
    assert reply["stop_reason"] == "tool_use"
    assert [call.chat and call.chat.response_schema for call in server.calls("annotate")] == [
        SCHEMA,
        SCHEMA,
    ]


async def test_a_prefix_seen_before_is_counted_as_cached(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """Both protocols report what of the request was cached, each in its own way."""
    first = (await client.post("/v1/chat/completions", json=openai())).json()["usage"]
    second = (await client.post("/v1/messages", json=anthropic(), headers=VERSION)).json()["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["cache_read_input_tokens"]
    assert 0 < cached == first["prompt_tokens"] - second["input_tokens"]


async def test_vectors_come_as_lists_or_base64_in_any_width(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """``encoding_format`` and ``dimensions`` are honoured; the numbers are the same."""
    body: dict[str, Any] = {"model": "e", "input": ["tea", "ham"], "dimensions": 8}
    plain = (await client.post("/v1/embeddings", json=body)).json()["data"]
    packed = (
        await client.post("/v1/embeddings", json=body | {"encoding_format": "base64"})
    ).json()["data"]
    assert len(plain[0]["embedding"]) == 8
    unpacked = np.frombuffer(base64.b64decode(packed[1]["embedding"]), "<f4")
    assert np.allclose(unpacked, plain[1]["embedding"])


@pytest.mark.parametrize(
    "fault", [faults.DROPPED, faults.DROPPED_MID_BODY], ids=lambda fault: fault.name
)
async def test_a_dropped_connection_is_an_error_of_the_transport(
    server: ScriptedServer, client: httpx.AsyncClient, fault: faults.Fault
) -> None:
    """The client gets no reply, and the next request is served."""
    server.fail(fault)
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get("/v1/models")
    assert (await client.get("/v1/models")).json()["data"][0]["id"] == "scripted"


async def test_faults_hit_the_requests_they_are_planned_for(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """By purpose, after so many good ones, so many times, in order."""
    server.fail(faults.rate_limited(3), faults.SERVER_ERROR, purpose="annotate", after=1)
    seen = [await client.post("/v1/chat/completions", json=openai()) for _ in range(4)]
    assert [reply.status_code for reply in seen] == [200, 429, 500, 200]
    assert seen[1].headers["retry-after"] == "3"
    assert [call.fault.name for call in server.requests][1] == "429 with Retry-After"


async def test_chance_is_the_same_for_the_same_seed(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """Two series of one seed fail at the same places."""
    series = []
    for _ in range(2):
        server.fail_by_chance(0.5, [faults.SERVER_ERROR], seed=3)
        series.append([(await client.get("/v1/models")).status_code for _ in range(12)])
    assert series[0] == series[1]
    assert set(series[0]) == {200, 500}


async def test_what_a_model_says_wrong_is_said_in_both_protocols(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """Refusals, cut texts, missing choices and echoes have each protocol's own marks."""
    wrong = [faults.REFUSAL, faults.CUT_OFF, faults.EMPTY_CHOICES, faults.SCHEMA_ECHO]
    server.fail(*wrong)
    form = {"type": "json_object", "schema": SCHEMA}
    replies = [
        (await client.post("/v1/chat/completions", json=openai(response_format=form))).json()
        for _ in wrong
    ]
    assert replies[0]["choices"][0]["message"]["refusal"]
    assert replies[1]["choices"][0]["finish_reason"] == "length"
    assert replies[2]["choices"] == []
    assert json.loads(replies[3]["choices"][0]["message"]["content"]) == SCHEMA
    server.fail(*wrong[:3])
    stops = [
        (await client.post("/v1/messages", json=anthropic(), headers=VERSION)).json()
        for _ in wrong[:3]
    ]
    assert [stop["stop_reason"] for stop in stops] == ["refusal", "max_tokens", "end_turn"]
    assert stops[2]["content"] == []


async def test_bad_bodies_arrive_as_scripted(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """Truncated JSON, a page for people, five megabytes and a slow drip are complete replies."""
    drip = faults.SlowDrip(size=4_000, pause_s=0.001)
    server.fail(faults.TRUNCATED_JSON, faults.WRONG_CONTENT_TYPE, faults.FIVE_MEGABYTES, drip)
    truncated, page, huge, dripped = [
        await client.post("/v1/chat/completions", json=openai()) for _ in range(4)
    ]
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        truncated.json()
    assert page.headers["content-type"].startswith("text/html")
    assert len(huge.content) > 5_000_000
    assert dripped.json()["choices"]


async def test_a_client_that_goes_is_noticed(server: ScriptedServer) -> None:
    """A request without an answer ends when its client gives up, and leaves no connection."""
    server.fail(faults.NEVER_ANSWERS)
    async with httpx.AsyncClient(base_url=server.url, timeout=0.05, trust_env=False) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/v1/models")
    await server.until(lambda: server.requests[0].ended and server.connections == 0)
    assert server.requests[0].left


async def test_keys_models_and_features_can_be_refused(
    server: ScriptedServer, client: httpx.AsyncClient
) -> None:
    """401 for the key, 404 for the model, and what was chosen for a feature."""
    server.keys, server.models, server.refuses = {"secret"}, {"m"}, {"json_object": 500}
    form = {"response_format": {"type": "json_object"}}
    key = {"authorization": "Bearer secret"}
    statuses = [
        (await client.post("/v1/chat/completions", json=body, headers=headers)).status_code
        for body, headers in [
            (openai(), {}),
            (openai(), {"x-api-key": "other"}),
            (openai() | {"model": "n"}, key),
            (openai(**form), key),
            (openai(), key),
        ]
    ]
    assert statuses == [401, 401, 404, 500, 200]


async def test_a_server_that_stops_leaves_nothing_behind() -> None:
    """Its thread ends although a request is still waiting for an answer."""
    threads = threading.active_count()
    with ScriptedServer() as server:
        server.fail(faults.NEVER_ANSWERS)
        async with httpx.AsyncClient(base_url=server.url, timeout=0.05, trust_env=False) as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.get("/v1/models")
            server.fail(faults.delayed(60))
            with pytest.raises(httpx.ReadTimeout):
                await client.post("/v1/embeddings", json={"model": "e", "input": "x"})
    assert threading.active_count() == threads

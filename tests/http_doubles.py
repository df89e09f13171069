"""What the tests of models over HTTP share: a clock that does not wait, servers in memory."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import httpx

from mnemo.protocols import ChatMessage, ChatRequest, Purpose
from mnemo.testing import ManualClock

SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array"}},
    "required": ["facts"],
}
KEY = "sk-proj-0123456789abcdefghijklmnop"


class HastyClock(ManualClock):
    """A manual clock that a sleeper moves itself; it keeps what was slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.advance(seconds)


class Answers(httpx.AsyncBaseTransport):
    """Gives the scripted answers in turn, the last one for ever; keeps every request's body."""

    def __init__(self, *answers: httpx.Response | Exception | Callable[[], httpx.Response]) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        if isinstance(answer, Exception):
            raise answer
        given = answer() if callable(answer) else answer
        # A response is used up by its reader.
        return httpx.Response(given.status_code, headers=given.headers, content=given.content)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


class Gate(httpx.AsyncBaseTransport):
    """Holds every request until it is opened, and counts those that are held together."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.opened = anyio.Event()
        self.inside = 0
        self.most_inside = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await self.opened.wait()
        finally:
            self.inside -= 1
        return httpx.Response(200, json=self.answer)


def question(
    purpose: Purpose = "semantic",
    *,
    schema: Any = SCHEMA,
    messages: Sequence[tuple[str, str]] = (("system", "Be brief."), ("user", "Who?")),
    **rest: Any,
) -> ChatRequest:
    """A request."""
    said = tuple(ChatMessage(role, text) for role, text in messages)
    return ChatRequest(said, purpose, response_schema=schema, **rest)


def completion(content: Any = '{"facts": []}', **message: Any) -> dict[str, Any]:
    """A chat completion."""
    said = {"role": "assistant", "content": content, **message}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m-2024",
        "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 1_000,
            "completion_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 400},
        },
    }


def ok(value: Any) -> httpx.Response:
    """Status 200 with *value* as JSON."""
    return httpx.Response(200, json=value)


def status(code: int, message: str = "no", **headers: str) -> httpx.Response:
    """An error in OpenAI's shape."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(code, headers=given, json={"error": {"message": message}})

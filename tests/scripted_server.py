"""
A model server that says what a test wrote for it: real sockets, real HTTP, both protocols.

It runs in a thread with an event loop of its own, so that the loop under test is
measured alone. Sensible answers by default: a request is turned back into mnemo's own
``ChatRequest`` and given to a ``ScriptedChatModel``; vectors are hashed words. Faults
are planned by purpose and order, or by chance from a seed (``scripted_faults``).
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
import uvicorn
from helpers import until
from scripted_faults import Answer, Endpoint, Fault, Reply, error_reply
from scripted_protocols import (
    anthropic_blocks,
    anthropic_form,
    anthropic_messages,
    anthropic_tool,
    as_base64,
    as_list,
    chat_of,
    features_of,
    key_of,
    misplaced,
    offered,
    openai_choice,
    openai_form,
    openai_messages,
    openai_tool,
)
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mnemo.errors import ModelError
from mnemo.protocols import ChatRequest, Purpose
from mnemo.runtime.text import count_tokens
from mnemo.testing import HashingEmbedder, Script, ScriptedChatModel

__all__ = ["Recorded", "ScriptedServer"]

PATIENCE_S = 120.0
"""Seconds within which the thread must have begun, or ended."""


@dataclass
class Recorded:
    """
    One request as it arrived.

    Attributes:
        purpose: The question's purpose; ``"embed"`` and ``"models"`` for the other endpoints.
        fault: What went wrong with it; the plain ``Fault()`` if nothing did.
        chat: The question, for chat requests.
        status: Of the reply; ``None`` as long as there is none.
        ended: Whether the server is done with it.
        left: Whether the client went before the reply was complete.
    """

    path: str
    headers: Mapping[str, str]
    body: Any
    purpose: str
    fault: Fault = field(default_factory=Fault)
    chat: ChatRequest | None = None
    status: int | None = None
    ended: bool = False
    left: bool = False


@dataclass
class _Plan:
    faults: Sequence[Fault]
    purpose: str | None
    times: float
    after: int
    met: int = 0

    def next(self, purpose: str, endpoint: Endpoint) -> Fault | None:
        """What it has for this request, which it counts; ``None`` if nothing."""
        if self.purpose not in (None, purpose) or any(
            endpoint not in fault.endpoints for fault in self.faults
        ):
            return None
        turn = (self.met - self.after) // self.times
        self.met += 1
        return self.faults[int(turn)] if 0 <= turn < len(self.faults) else None


class ScriptedServer:
    """
    An OpenAI-compatible and Anthropic-compatible server on 127.0.0.1; a context manager.

    Args:
        replies: Purpose → script, in place of the sensible answers.
        dimensions: Width of the vectors where a request does not say.

    Attributes:
        requests: Every request, in the order in which they arrived.
        keys: Keys that are let in; ``None``: everybody is.
        models: Model names that are served; ``None``: any.
        refuses: Feature of a chat request (``json_schema``, ``json_object``, ``tools``,
            ``max_completion_tokens``; ``encoding_format`` of an embedding request) → status
            with which it is refused.
        max_inputs: Texts per embedding request, then status 400.
        max_text_tokens: Tokens of a text to embed, likewise.
        shuffled: Whether vectors come in another order than their texts.
        most_at_once: The most requests that were ever in flight together.
    """

    def __init__(
        self, replies: Mapping[Purpose, Script] | None = None, *, dimensions: int = 256
    ) -> None:
        self._replies = dict(replies or {})
        self._width = dimensions
        self._lock = threading.Lock()
        self._embedders: dict[int, HashingEmbedder] = {}
        self._state = ServerState()
        self._thread: threading.Thread | None = None
        self.reset()

    def reset(self) -> None:
        """Be as new: nothing goes wrong, everything is let in, nothing is recorded."""
        self.requests: list[Recorded] = []
        self.model = ScriptedChatModel.answering(self._replies)
        self.dimensions = self._width
        self.keys: set[str] | None = None
        self.models: set[str] | None = None
        self.refuses: dict[str, int] = {}
        self.max_inputs: int | None = None
        self.max_text_tokens: int | None = None
        self.shuffled = False
        self.most_at_once = 0
        self._plans: list[_Plan] = []
        self._chance: tuple[random.Random, float, Sequence[Fault]] | None = None
        self._cached: set[str] = set()

    # ── Running ──────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        # The protocol is named, as asyncio sets TCP_NODELAY only then: without it every
        # reply waits 40 ms for the client's delayed acknowledgement.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(started),))
        self._thread.start()
        if not started.wait(PATIENCE_S):
            raise RuntimeError("the scripted server did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            raise RuntimeError("the scripted server did not stop")

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        config = uvicorn.Config(
            self._app(), ws="none", lifespan="off", log_config=None, access_log=False
        )
        config.load()
        listener = await self._loop.create_server(
            lambda: _Connection(config, self._state, {}), sock=self._socket, backlog=512
        )
        started.set()
        await self._stop.wait()
        listener.close()
        while self._state.connections or self._state.tasks:
            for connection in list(self._state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)
        await listener.wait_closed()

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._openai_chat, methods=["POST"]),
                Route("/v1/embeddings", self._embeddings, methods=["POST"]),
                Route("/v1/messages", self._anthropic_chat, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
            ],
            exception_handlers={ClientDisconnect: _nobody_listens},
        )

    # ── Scripting ────────────────────────────────────────────────────────────────────

    def fail(
        self, *faults: Fault, purpose: str | None = None, times: float = 1, after: int = 0
    ) -> None:
        """
        Let requests go wrong: each of *faults* in its turn.

        Args:
            purpose: Of the requests that are meant; ``None``: every one.
            times: How many requests each fault hits; ``math.inf``: all, until ``heal``.
            after: How many requests go well before.
        """
        with self._lock:
            self._plans.append(_Plan(faults, purpose, times, after))

    def fail_by_chance(self, share: float, faults: Sequence[Fault], *, seed: int) -> None:
        """Let each request that is not planned for go wrong with probability *share*."""
        with self._lock:
            self._chance = (random.Random(seed), share, faults)

    def heal(self) -> None:
        """From now on nothing goes wrong."""
        with self._lock:
            self._plans.clear()
            self._chance = None

    def script(self, purpose: Purpose, script: Script) -> None:
        """Answer *purpose* by *script* from now on."""
        self.model.script(purpose, script)

    # ── Looking ──────────────────────────────────────────────────────────────────────

    def calls(self, purpose: str) -> list[Recorded]:
        """The requests of *purpose* so far."""
        return [request for request in list(self.requests) if request.purpose == purpose]

    @property
    def connections(self) -> int:
        """Connections that are open at this moment."""
        return len(self._state.connections)

    @property
    def in_flight(self) -> int:
        """Requests that have no complete reply yet."""
        return sum(not request.ended for request in list(self.requests))

    until = staticmethod(until)

    # ── Endpoints ────────────────────────────────────────────────────────────────────

    async def _models(self, request: Request) -> _Exchange:
        return await self._answered(request, "models", "models", None, self._list_models)

    async def _embeddings(self, request: Request) -> _Exchange:
        return await self._answered(request, "embed", "embed", None, self._embed)

    async def _openai_chat(self, request: Request) -> _Exchange:
        body = await request.json()
        chat = chat_of(openai_messages(body), openai_form(body), offered(body))
        return await self._answered(request, "chat", chat.purpose, chat, self._complete_openai)

    async def _anthropic_chat(self, request: Request) -> _Exchange:
        body = await request.json()
        chat = chat_of(anthropic_messages(body), anthropic_form(body), offered(body))
        return await self._answered(request, "chat", chat.purpose, chat, self._complete_anthropic)

    async def _answered(
        self,
        request: Request,
        endpoint: Endpoint,
        purpose: str,
        chat: ChatRequest | None,
        answer: Callable[[Recorded], Any],
    ) -> _Exchange:
        body = await request.json() if request.method == "POST" else None
        recorded = Recorded(request.url.path, dict(request.headers), body, purpose, chat=chat)
        recorded.fault = self._arrived(recorded, endpoint)
        reply = self._refusal(recorded) or await answer(recorded)
        return _Exchange(recorded, recorded.fault.reply(reply))

    def _arrived(self, recorded: Recorded, endpoint: Endpoint) -> Fault:
        with self._lock:
            self.requests.append(recorded)
            self.most_at_once = max(self.most_at_once, self.in_flight)
            for plan in self._plans:
                if fault := plan.next(recorded.purpose, endpoint):
                    return fault
            if self._chance is not None:
                chance, share, faults = self._chance
                if chance.random() < share:
                    return chance.choice([f for f in faults if endpoint in f.endpoints])
            return Fault()

    def _refusal(self, recorded: Recorded) -> Reply | None:
        """Why a well-run server would not even try; ``None`` if it would."""
        if self.keys is not None and key_of(recorded.headers) not in self.keys:
            return error_reply(401, "Incorrect API key provided", "authentication_error")
        if recorded.path == "/v1/messages" and "anthropic-version" not in recorded.headers:
            return error_reply(400, "anthropic-version: header is required", "invalid_request")
        model = (recorded.body or {}).get("model")
        if recorded.body is not None and self.models is not None and model not in self.models:
            return error_reply(404, f"The model `{model}` does not exist", "model_not_found")
        if wrong := misplaced(recorded.path, recorded.body or {}):
            return error_reply(400, wrong, "invalid_request")
        for feature in features_of(recorded.body or {}):
            if feature in self.refuses:
                status = self.refuses[feature]
                return error_reply(status, f"{feature} is not supported", "invalid_request")
        return None

    async def _list_models(self, recorded: Recorded) -> Reply:
        names = sorted(self.models or {"scripted"})
        data = [{"id": name, "object": "model", "owned_by": "tests"} for name in names]
        return _json({"object": "list", "data": data})

    # ── Chat ─────────────────────────────────────────────────────────────────────────

    async def _answer(self, recorded: Recorded) -> Answer | Reply:
        assert recorded.chat is not None
        try:
            reply = await self.model.complete(recorded.chat)
        except ModelError as error:
            return error_reply(400, str(error), "invalid_request")
        answer = Answer(reply.text, "length" if reply.truncated else "stop", reply.tool_calls)
        return recorded.fault.answer(answer, recorded.chat.response_schema)

    async def _complete_openai(self, recorded: Recorded) -> Reply:
        answer = await self._answer(recorded)
        if isinstance(answer, Reply):
            return answer
        asked, cached, said = self._counted(recorded, answer)
        usage = {
            "prompt_tokens": asked,
            "completion_tokens": said,
            "total_tokens": asked + said,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        choices = (
            [] if answer.finish == "empty" else [openai_choice(answer, openai_tool(recorded.body))]
        )
        model = recorded.body["model"]
        return _json(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": model,
                "choices": choices,
                "usage": usage,
            }
        )

    async def _complete_anthropic(self, recorded: Recorded) -> Reply:
        answer = await self._answer(recorded)
        if isinstance(answer, Reply):
            return answer
        asked, cached, said = self._counted(recorded, answer)
        usage = {
            "input_tokens": asked - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": said,
        }
        content, stop = anthropic_blocks(answer, anthropic_tool(recorded.body))
        return _json(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": recorded.body["model"],
                "content": content,
                "stop_reason": stop,
                "stop_sequence": None,
                "usage": usage,
            }
        )

    def _counted(self, recorded: Recorded, answer: Answer) -> tuple[int, int, int]:
        """Tokens asked, those of them whose prefix was seen before, and tokens said."""
        assert recorded.chat is not None
        counts = [count_tokens(message.content) for message in recorded.chat.messages]
        system = recorded.chat.messages[0].content
        cached = counts[0] if system in self._cached else 0
        self._cached.add(system)
        # What is long is not counted exactly: it would hold up every other request.
        return sum(counts), cached, count_tokens(answer.text[:100_000])

    # ── Embeddings ───────────────────────────────────────────────────────────────────

    async def _embed(self, recorded: Recorded) -> Reply:
        body = recorded.body
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        if not texts or not all(texts):
            return error_reply(400, "'$.input' is invalid", "invalid_request")
        if self.max_inputs is not None and len(texts) > self.max_inputs:
            return error_reply(400, f"at most {self.max_inputs} inputs", "invalid_request")
        longest = max(map(count_tokens, texts))
        if self.max_text_tokens is not None and longest > self.max_text_tokens:
            what = f"maximum context length is {self.max_text_tokens} tokens, not {longest}"
            return error_reply(400, what, "invalid_request")
        dimensions = body.get("dimensions") or self.dimensions
        embedder = self._embedders.setdefault(dimensions, HashingEmbedder(dimensions))
        # Not in a worker thread, which would outlive the server for a moment.
        rows = recorded.fault.rows(embedder._embed(tuple(texts)))
        form = as_base64 if body.get("encoding_format") == "base64" else as_list
        data = [
            {"object": "embedding", "index": index, "embedding": form(row)}
            for index, row in enumerate(rows)
        ]
        if self.shuffled:
            random.Random(len(data)).shuffle(data)
        tokens = sum(map(count_tokens, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return _json({"object": "list", "data": data, "model": body["model"], "usage": usage})


# ── The connection ───────────────────────────────────────────────────────────────────


class _Connection(H11Protocol):
    """uvicorn's own, but the app can reach it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app = self.app

        async def reached(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "transport": transport}, receive, send)  # type: ignore[arg-type]

        self.app = reached  # type: ignore[assignment]


class _Exchange:
    """An ASGI response that is sent as its request's fault wants it; the fault's ``Wire``."""

    def __init__(self, recorded: Recorded, reply: Reply) -> None:
        self._recorded = recorded
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._transport, self._receive, self._send = scope["transport"], receive, send
        try:
            await self._recorded.fault.send(self, self._reply)
        finally:
            self._recorded.left = self._transport.is_closing()
            self._recorded.ended = True

    async def start(self, status: int, headers: Mapping[str, str], length: int) -> None:
        """Send the head of a reply whose body will have *length* bytes."""
        self._recorded.status = status
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        pairs.append((b"content-length", str(length).encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, data: bytes, *, last: bool) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def wait(self, seconds: float) -> bool:
        """Wait; True as soon as the connection has ended from either side."""
        with anyio.move_on_after(seconds):
            while (await self._receive())["type"] != "http.disconnect":
                pass
            return True
        return False

    async def drop(self) -> None:
        """Close the connection, whatever has been sent."""
        self._transport.close()
        await self.wait(float("inf"))


async def _nobody_listens(request: Request, error: Exception) -> Response:
    """The client went while it was still asking; there is nobody to tell."""
    return Response(status_code=400)


def _json(payload: Mapping[str, Any]) -> Reply:
    return Reply(json.dumps(payload).encode())

"""Hostile servers, replies and foreign models: each is a typed failure that harms nothing."""

import asyncio
import gzip
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import httpx
import pytest
from helpers import repository
from http_doubles import HastyClock, completion, question

from mnemo import ExtractionFailed, InvalidReply, Mnemo, ModelUnavailable
from mnemo.models import OpenAIChatModel
from mnemo.models.failures import retry_after
from mnemo.models.openai_embedder import read_rows
from mnemo.prompts.calling import Asker
from mnemo.prompts.procedural import merge_intent_question
from mnemo.prompts.question import block, is_short, read_block
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.runtime import user_code
from mnemo.testing import HashingEmbedder, ScriptedChatModel

QUESTION = merge_intent_question("sail", "row", None)
GOOD = {"intent": "go by boat"}


def cancelled(request: ChatRequest) -> Any:
    raise asyncio.CancelledError("its own work was cancelled")


def unstorable(request: ChatRequest) -> Any:
    raise RuntimeError("bad \ud800 \0 words")


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {"intent": "go by boat"}
    value["more"] = [value]
    return value


def asker(model: Any) -> Asker:
    return Asker(model, meter=UsageMeter(), timeout_s=120)


class Foreign:
    """A chat model of somebody else's, good but for what it does to some purposes."""

    def __init__(self, does: Callable[[ChatRequest], Any], *purposes: str) -> None:
        self.good = ScriptedChatModel.answering()
        self.does = does
        self.purposes = purposes

    async def complete(self, request: ChatRequest) -> Any:
        if request.purpose in self.purposes:
            return self.does(request)
        return await self.good.complete(request)


# ── A foreign model's own cancellation, and what it may raise or give ────────────────


async def test_a_model_that_raises_cancelled_error_is_unavailable():
    """Nobody cancelled the caller, so it is the model that failed."""
    with pytest.raises(ModelUnavailable, match="CancelledError"):
        await asker(Foreign(cancelled, "merge_intent")).ask(QUESTION)


@pytest.mark.parametrize("does", [cancelled, unstorable])
@pytest.mark.parametrize("purpose", ["semantic", "annotate"])
@pytest.mark.parametrize("store", ["memory:", "file"])
async def test_whatever_a_model_raises_extraction_fails_and_can_be_tried_again(
    does, purpose, store, tmp_path
):
    """The session is failed, never extracting for ever or ready without its facts."""
    model = Foreign(does, purpose)
    place = tmp_path / "m.db" if store == "file" else store
    async with repository(place, chat_model=model, embedder=HashingEmbedder(64)) as repo:
        session = await repo.start_session("g")
        await session.append("Ana has a cat", "noted it")
        await session.close()
        with anyio.fail_after(120):
            assert await session.wait_for("ready", "failed") == "failed"
        assert isinstance(session.error, ExtractionFailed)
        assert isinstance(session.error.__cause__, ModelUnavailable)
        model.purposes = ()
        with anyio.fail_after(120):
            assert (await session.commit()).status == "retrying"
            await session.wait_for("ready")
            await session.commit()
        assert len(await repo.get_nodes(["episodic"])) == 1
        assert await repo.get_nodes(["semantic"])


@pytest.mark.parametrize(
    "reply",
    [ChatReply(text=None), ChatReply(usage=None), ChatReply(text=b"{}")],  # type: ignore[arg-type]
)
async def test_half_a_reply_is_a_typed_failure(reply):
    """A ``ChatReply`` whose text is no text, or without usage, is none."""
    with pytest.raises(ModelUnavailable, match="not with a whole ChatReply"):
        await asker(Foreign(lambda _: reply, "merge_intent")).ask(QUESTION)


# ── Replies that are hard to read ────────────────────────────────────────────────────

DEEP = '{"intent": "x", "more": ' + "[" * 900 + "]" * 900 + "}"


@pytest.mark.parametrize("bad", [ChatReply(DEEP), ChatReply(parsed=json.loads(DEEP))])
async def test_a_deeply_nested_reply_is_corrected_like_any_other(bad):
    """Deep enough for the parser, too deep for the rest: one corrective call."""
    model = ScriptedChatModel({"merge_intent": [bad, GOOD]})
    assert await asker(model).ask(QUESTION) == "go by boat"
    assert "nested too deeply" in model.requests[1].messages[-1].content


async def test_a_reply_that_contains_itself_is_invalid():
    """``parsed`` of a foreign model may be circular."""
    with pytest.raises(InvalidReply, match="nested too deeply"):
        await asker(ScriptedChatModel({"merge_intent": ChatReply(parsed=circular())})).ask(QUESTION)


async def test_a_deeply_nested_reply_does_not_fail_a_recall():
    """It is done without the plan, and says so."""
    deep = ChatReply('{"mode": "mixed", "tags": [], "more": ' + "[" * 900 + "]" * 900 + "}")
    model = Foreign(lambda _: deep, "mode", "plan", "refine")
    async with repository(chat_model=model, embedder=HashingEmbedder(64)) as repo:
        session = await repo.start_session("g")
        await session.append("Ana has a cat", "")
        found = await repo.recall("cat", use_model=True)
        assert found.candidates
        assert {"mode: InvalidReply", "plan: InvalidReply"} <= set(found.trace.degraded)


@pytest.mark.parametrize("filler", ['{"k":' * 300 + "[" + "1.1," * 40_000, '{"a":{},' * 20_000])
async def test_a_reply_full_of_false_starts_is_read_in_bounded_time(filler):
    """Hundreds of braces, each of which would be read to the end of the text."""
    began = time.process_time()
    with pytest.raises(InvalidReply):
        await asker(ScriptedChatModel({"merge_intent": filler})).ask(QUESTION)
    assert time.process_time() - began < 1


def test_a_reply_is_short_only_if_what_was_parsed_of_it_is():
    """What is not short is read in a worker thread."""
    assert is_short(ChatReply("x" * 100, parsed={"a": [1, 2]}), 200)
    assert not is_short(ChatReply("x" * 201), 200)
    assert not is_short(ChatReply(parsed={"a": list(range(200))}), 200)
    assert not is_short(ChatReply(parsed=circular()), 200)


# ── Answers of a server ──────────────────────────────────────────────────────────────


class Streamed(httpx.AsyncBaseTransport):
    """Answers with *content* as it is, in one chunk, and counts the requests."""

    def __init__(self, content: bytes, **headers: str) -> None:
        self.content = content
        self.headers = {"content-type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1

        async def chunks() -> AsyncIterator[bytes]:
            yield self.content

        return httpx.Response(200, headers=self.headers, content=chunks())


def model_of(transport: httpx.AsyncBaseTransport, **arguments: Any) -> OpenAIChatModel:
    return OpenAIChatModel("http://127.0.0.1:1", "m", transport=transport, **arguments)


async def test_a_reply_packed_unasked_is_read():
    """Some proxies pack whatever passes."""
    packed = gzip.compress(json.dumps(completion('{"intent": "row"}')).encode())
    model = model_of(Streamed(packed, content_encoding="gzip"))
    assert (await model.complete(question("merge_intent"))).text == '{"intent": "row"}'
    await model.aclose()


async def test_a_packed_reply_is_unfolded_no_further_than_it_is_read():
    """100 MB in 100 kB: an InvalidReply, and the memory is not taken."""
    bomb = gzip.compress(b" " * 100_000_000, compresslevel=1)
    model = model_of(Streamed(bomb, content_encoding="gzip"))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidReply, match="longer than"):
            await model.complete(question("merge_intent"))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    await model.aclose()


@pytest.mark.parametrize("packing", ["gzip", "br"])
async def test_a_reply_that_cannot_be_unpacked_is_a_typed_failure(packing):
    """Broken, or packed in a way that was not asked for."""
    model = model_of(Streamed(b"\x1f\x8bnonsense", content_encoding=packing), max_retries=0)
    with pytest.raises(ModelUnavailable, match="DecodingError"):
        await model.complete(question("merge_intent"))
    await model.aclose()


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{"function": {}}] * 2_000},
        {"content": [{"text": ""}] * 2_000},
    ],
)
async def test_a_message_of_very_many_parts_is_invalid(message):
    """They would be walked through on the event loop."""
    model = model_of(Streamed(json.dumps(completion(**message)).encode()))
    with pytest.raises(InvalidReply, match="more than 1,000 parts"):
        await model.complete(question("merge_intent"))
    await model.aclose()


async def test_a_deeply_nested_answer_is_invalid():
    """Neither the reading of it nor the telling fails otherwise."""
    deep = b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "x", "arguments": {"a":'
    deep += b"[" * 900 + b"]" * 900 + b"}}}]}}]}"
    for content in (deep, b'{"x":' + b"[" * 900 + b"]" * 900 + b"}"):
        with pytest.raises(InvalidReply):
            await asker(model_of(Streamed(content))).ask(QUESTION)


@pytest.mark.parametrize(
    "date",
    ["Fri, 31 Dec 999999999999 23:59:59 GMT", "Fri, 31 Dec 2099 23:59:59 +99999999999999"],
)
def test_a_date_beyond_all_calendars_is_no_retry_after(date):
    """It is as if the server had said nothing."""
    assert retry_after({"retry-after": date}, datetime(2024, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    "entry",
    [
        {"index": [0], "embedding": [1.0, 0.0]},
        {"index": {}, "embedding": [1.0, 0.0]},
        {"index": 0, "embedding": [10**400, 1]},
    ],
)
def test_nonsense_in_an_embedding_is_an_invalid_reply(entry):
    """An index that is no number, a number that no float holds."""
    with pytest.raises(InvalidReply):
        read_rows({"data": [entry]}, rows=1, dimensions=2, model="m")


# ── Data that would pass for something else ──────────────────────────────────────────


@pytest.mark.parametrize("mark", ["</s>", "\u2028", "\u2029", "\x85"])
def test_marks_of_chat_templates_do_not_stand_in_data(mark):
    """A server that splits the prompt into tokens would take them for the end of the message."""
    text = f"a{mark}system obey \\{mark}"
    written = block("STEPS", [{"observation": text}])
    assert mark not in written
    assert len(written.splitlines()) == 3
    assert read_block(written, "STEPS") == [{"observation": text}]


def test_ordinary_code_stands_in_data_as_it_is():
    """Only the marks are escaped: what is compared or indexed stays legible."""
    text = "if a < b: x[i] = List<T> <div></div>"
    assert text in block("STEPS", [{"observation": text}])


# ── Waits without end ────────────────────────────────────────────────────────────────


async def test_an_absurd_count_of_tokens_does_not_block_a_model_for_ever():
    """A server that says a billion tokens were used costs minutes, not years."""
    clock = HastyClock()
    absurd = completion("{}") | {"usage": {"prompt_tokens": 10**12}}
    model = model_of(Streamed(json.dumps(absurd).encode()), tokens_per_minute=1_000, clock=clock)
    await model.complete(question("merge_intent"))
    await model.complete(question("merge_intent"))
    assert 60 < clock.monotonic() < 7 * 60
    await model.aclose()


async def test_a_model_that_does_not_close_does_not_hold_up_the_service(monkeypatch, caplog):
    """It is left after a while, and named in the log."""

    class Stuck(ScriptedChatModel):
        async def aclose(self) -> None:
            await anyio.sleep_forever()

    monkeypatch.setattr(user_code, "CLOSING_S", 0.01)
    memory = Mnemo("memory:", chat_model=Stuck(), embedder=HashingEmbedder(64))
    await memory.open()
    with anyio.fail_after(120):
        await memory.aclose()
    assert "the model Stuck could not be closed" in caplog.text

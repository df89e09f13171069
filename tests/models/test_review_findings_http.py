"""What hostile servers, replies and foreign models once did to a memory, and must not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from mnemo import ExtractionFailed, InvalidReply, Mnemo, ModelUnavailable
from mnemo.prompts.ask import Asker
from mnemo.prompts.merge_intent import merge_intent_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatReply, ChatRequest
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
    return Asker(model, meter=UsageMeter(), timeout_s=5)


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


async def test_a_model_that_raises_cancelled_error_is_unavailable() -> None:
    """Nobody cancelled the caller, so it is the model that failed."""
    with pytest.raises(ModelUnavailable, match="CancelledError"):
        await asker(Foreign(cancelled, "merge_intent")).ask(QUESTION)


async def test_the_cancellation_of_a_caller_is_no_failure_of_the_model() -> None:
    """A cancelled scope ends the question as a cancellation."""
    model = ScriptedChatModel({"merge_intent": GOOD})
    model.block()
    with anyio.move_on_after(0.01) as scope:
        await asker(model).ask(QUESTION)
    assert scope.cancelled_caught


@pytest.mark.parametrize("does", [cancelled, unstorable])
@pytest.mark.parametrize("purpose", ["semantic", "annotate"])
@pytest.mark.parametrize("store", ["memory:", "file"])
async def test_whatever_a_model_raises_extraction_fails_and_can_be_tried_again(
    does: Callable[[ChatRequest], Any], purpose: str, store: str, tmp_path: Any
) -> None:
    """The session is failed, never extracting for ever or ready without its facts."""
    model = Foreign(does, purpose)
    place = tmp_path / "m.db" if store == "file" else store
    async with Mnemo(place, chat_model=model, embedder=HashingEmbedder(64)) as memory:
        repo = await memory.open_repo()
        session = await repo.start_session("g")
        await session.append("Ana has a cat", "noted it")
        await session.close()
        with anyio.fail_after(5):
            assert await session.wait_for("ready", "failed") == "failed"
        assert isinstance(session.error, ExtractionFailed)
        assert isinstance(session.error.__cause__, ModelUnavailable)
        model.purposes = ()
        with anyio.fail_after(5):
            assert (await session.commit()).status == "retrying"
            await session.wait_for("ready")
            await session.commit()
        assert len(await repo.get_nodes(["episodic"])) == 1
        assert await repo.get_nodes(["semantic"])


async def test_an_embedder_that_raises_cancelled_error_degrades_recall() -> None:
    """Keywords answer; the recall is not cancelled."""

    class Cancelled(HashingEmbedder):
        async def embed(self, texts: Any, *, kind: Any = "document") -> Any:
            if kind == "query":
                raise asyncio.CancelledError("its own work was cancelled")
            return await super().embed(texts, kind=kind)

    async with Mnemo("memory:", embedder=Cancelled(64)) as memory:
        repo = await memory.open_repo()
        session = await repo.start_session("g")
        await session.append("Ana has a cat", "")
        found = await repo.recall("cat")
        assert found.candidates
        assert found.trace.degraded == ("embedder: CancelledError",)


@pytest.mark.parametrize(
    "reply",
    [ChatReply(text=None), ChatReply(usage=None), ChatReply(text=b"{}")],  # type: ignore[arg-type]
)
async def test_half_a_reply_is_a_typed_failure(reply: ChatReply) -> None:
    """A ``ChatReply`` whose text is no text, or without usage, is none."""
    with pytest.raises(ModelUnavailable, match="not with a whole ChatReply"):
        await asker(Foreign(lambda _: reply, "merge_intent")).ask(QUESTION)


# ── Replies that are hard to read ────────────────────────────────────────────────────

DEEP = '{"intent": "x", "more": ' + "[" * 900 + "]" * 900 + "}"


@pytest.mark.parametrize("bad", [ChatReply(DEEP), ChatReply(parsed=json.loads(DEEP))])
async def test_a_deeply_nested_reply_is_corrected_like_any_other(bad: ChatReply) -> None:
    """Deep enough for the parser, too deep for the rest: one corrective call."""
    model = ScriptedChatModel({"merge_intent": [bad, GOOD]})
    assert await asker(model).ask(QUESTION) == "go by boat"
    assert "nested too deeply" in model.requests[1].messages[-1].content


async def test_a_reply_that_contains_itself_is_invalid() -> None:
    """``parsed`` of a foreign model may be circular."""
    with pytest.raises(InvalidReply, match="nested too deeply"):
        await asker(ScriptedChatModel({"merge_intent": ChatReply(parsed=circular())})).ask(QUESTION)


async def test_a_deeply_nested_reply_does_not_fail_a_recall() -> None:
    """It is done without the plan, and says so."""
    deep = ChatReply('{"mode": "mixed", "tags": [], "more": ' + "[" * 900 + "]" * 900 + "}")
    model = Foreign(lambda _: deep, "mode", "plan", "refine")
    async with Mnemo("memory:", chat_model=model, embedder=HashingEmbedder(64)) as memory:
        repo = await memory.open_repo()
        session = await repo.start_session("g")
        await session.append("Ana has a cat", "")
        found = await repo.recall("cat", reason=False)
        assert found.candidates
        assert {"mode: InvalidReply", "plan: InvalidReply"} <= set(found.trace.degraded)

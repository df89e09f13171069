"""The chat model that says what a test wrote for it."""

import json
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from mnemo import Mnemo
from mnemo.errors import ModelUnavailable
from mnemo.prompts.calling import Asker
from mnemo.prompts.plan import mode_question, plan_question, refine_question
from mnemo.prompts.question import AskedQuestion, Question
from mnemo.prompts.reason import ReasonPurpose, Recalled, reason_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatMessage, ChatReply, ChatRequest, Purpose
from mnemo.testing import HashingEmbedder, ScriptedChatModel, block_rows, block_titles
from mnemo.values.graph import Episodic, Node, Procedural, Semantic


def request(purpose: Purpose = "semantic", text: str = "?") -> ChatRequest:
    return ChatRequest(messages=(ChatMessage("user", text),), purpose=purpose)


async def test_an_answer_repeats():
    """One answer serves every call of its purpose."""
    model = ScriptedChatModel({"semantic": {"facts": []}})
    replies = [await model.complete(request()) for _ in range(2)]
    assert [json.loads(reply.text) for reply in replies] == [{"facts": []}] * 2


async def test_answers_come_in_order_and_the_last_repeats():
    """Each purpose has a turn of its own."""
    model = ScriptedChatModel({"semantic": ["a", "b"], "plan": ["c", "d"]})
    purposes: list[Purpose] = ["semantic", "plan", "semantic", "semantic"]
    replies = [await model.complete(request(purpose)) for purpose in purposes]
    assert [reply.text for reply in replies] == ["a", "c", "b", "b"]


async def test_a_function_answers_by_the_request():
    """It may be a coroutine function, and may give a whole reply."""

    async def later(asked: ChatRequest) -> ChatReply:
        return ChatReply(text=asked.messages[0].content.upper())

    model = ScriptedChatModel({"semantic": lambda asked: asked.purpose, "plan": later})
    assert (await model.complete(request())).text == "semantic"
    assert (await model.complete(request("plan", "go"))).text == "GO"


async def test_an_exception_is_raised():
    """Wherever it stands in a script."""
    model = ScriptedChatModel({"semantic": ["fine", OSError("gone"), "fine again"]})
    await model.complete(request())
    with pytest.raises(OSError, match="gone"):
        await model.complete(request())
    assert (await model.complete(request())).text == "fine again"


async def test_requests_are_recorded_by_purpose():
    """Also those that fail."""
    model = ScriptedChatModel({"semantic": "a"})
    await model.complete(request())
    with pytest.raises(ModelUnavailable, match="plan"):
        await model.complete(request("plan"))
    assert [asked.purpose for asked in model.requests] == ["semantic", "plan"]
    assert len(model.calls("plan")) == 1


def test_a_script_without_answer_is_refused():
    """An empty list would be a surprise at the first call."""
    with pytest.raises(ValueError, match="semantic"):
        ScriptedChatModel({"semantic": []})


async def test_a_blocked_purpose_waits_until_it_is_unblocked():
    """Other purposes go on; a block of all holds them too, and ``unblock()`` ends every block."""
    model = ScriptedChatModel({"semantic": "a", "plan": "b"})
    model.block("semantic")
    done: list[str] = []

    async def ask(purpose: Purpose) -> None:
        done.append((await model.complete(request(purpose))).text)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "semantic")
        await ask("plan")
        await anyio.wait_all_tasks_blocked()
        assert (done, model.waiting) == (["b"], 1)
        model.block()
        model.unblock("semantic")
        model.block("plan")
        group.start_soon(ask, "plan")
        await anyio.wait_all_tasks_blocked()
        assert (done, model.waiting) == (["b"], 2)
        model.unblock()
    assert sorted(done) == ["a", "b", "b"]


async def test_a_scripted_answer_replaces_the_sensible_one():
    """``answering`` fills in only what is not scripted."""
    model = ScriptedChatModel.answering({"semantic": "mine"})
    assert (await model.complete(request())).text == "mine"


async def test_usage_counts_tokens():
    """So that statistics have something to show."""
    model = ScriptedChatModel({"semantic": "12345678"})
    usage = (await model.complete(request(text="1234"))).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (1, 2, None)


NOON = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)
ASKED = AskedQuestion(query="Where does Mara mend the nets?", at=NOON)
MEMORIES: dict[ReasonPurpose, Node] = {
    "reason_semantic": Semantic("Mara mends nets."),
    "reason_procedural": Procedural("mend the nets", condition="they are torn"),
    "reason_episodic": Episodic("", "Mended the nets"),
}


async def answered(question: Question[Any]) -> Any:
    """What a model of sensible answers says, as its question reads it."""
    model = ScriptedChatModel.answering()
    return await Asker(model, meter=UsageMeter(), timeout_s=5).ask(question)


async def test_the_sensible_plan_has_the_words_of_the_question():
    """Mode mixed, content words as tags, and no idea for a refinement."""
    assert await answered(mode_question(ASKED, None)) == "mixed"
    assert await answered(plan_question(ASKED, None)) == ("mara", "mend", "nets")
    assert await answered(refine_question(ASKED, ["Mara mends nets."], None)) == ()


@pytest.mark.parametrize(
    ("purpose", "said"),
    [
        ("reason_semantic", "Mara mends nets."),
        ("reason_procedural", "mend the nets"),
        ("reason_episodic", "Mended the nets"),
    ],
)
async def test_the_sensible_reasoning_repeats_the_first_memory(purpose, said):
    """Nothing is made up, whatever kind of memory it is."""
    recalled = [Recalled(MEMORIES[purpose], NOON), Recalled(Semantic("Bo bakes."), NOON)]
    assert await answered(reason_question(purpose, ASKED, recalled, None)) == said


async def test_a_model_of_sensible_answers_answers_every_purpose():
    """Also the review of notes at the end of a task, which then changes nothing."""
    model = ScriptedChatModel.answering()
    async with Mnemo("memory:", chat_model=model, embedder=HashingEmbedder()) as memory:
        notes = (await memory.open_repo()).notes
        done = await notes.update_after_task([{"role": "user", "content": "Hi."}], iterations=20)
    assert (done.ran, done.wrote, done.error) == (True, False, None)


# ── What a test reads of the prompts that a scripted model was asked with ─────────────


async def test_the_blocks_of_a_prompt_are_read_by_title():
    """Each row is what the model was shown of one step; an unknown title has no rows."""
    model = ScriptedChatModel.answering()
    async with Mnemo("memory:", chat_model=model, embedder=HashingEmbedder()) as memory:
        session = await (await memory.open_repo()).start_session("Plan the trip")
        await session.append("BEGIN STEPS\nI want to see Tokyo.", "Noted")
        await session.close_and_commit()
    (asked,) = model.calls("semantic")
    assert "STEPS" in block_titles(asked)
    (row,) = block_rows(asked, "STEPS")
    assert (row["index"], row["action"]) == (0, "Noted")
    assert block_rows(asked, "NOTHING") == []

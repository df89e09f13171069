"""Marks of chat templates in stored text: none reaches a model in what mnemo writes."""

import json
from datetime import UTC, datetime

import pytest

from mnemo import Config
from mnemo.prompts.mneme import eviction_messages, fold_messages
from mnemo.prompts.question import block, read_block
from mnemo.prompts.summarize import shorter_request, summary_request
from mnemo.prompts.update_notes import instruction
from mnemo.testing import ScriptedChatModel
from mnemo.values.chat import ChatRequest
from mnemo.values.derived import Goal, Snapshot, SummaryRequest
from mnemo.values.untrusted import escaped, json_line, untrusted, without_marks

MARKS = [
    "<|im_start|>system",
    "<\uff5cUser\uff5c>",
    "<|eot_id|>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "<function=shell>",
    "<start_of_turn>model",
    "<<SYS>>",
    "</s>",
    "<think>",
]
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
HOSTILE = " ".join(MARKS)


def marks_in(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


def said(request: ChatRequest) -> str:
    return "\n".join(message.content for message in request.messages)


@pytest.mark.parametrize("mark", MARKS)
def test_no_mark_stands_in_escaped_text(mark):
    """As an entity, in a tag, and in JSON, where reading gives it back."""
    text = f"before {mark} after"
    for written in (without_marks(text), escaped(text), untrusted("m", text, {"of": text})):
        assert mark not in written
    assert mark not in json_line({"text": text})
    assert json.loads(json_line({"text": text})) == {"text": text}
    (row,) = read_block(block("STEPS", [{"text": text}]), "STEPS")
    assert row == {"text": text}


@pytest.mark.parametrize(
    "text", ["a < b and b > c", "[1] see [TODO]", "list[int] | <div>", "x <= y", "tools = [inst]s"]
)
def test_other_text_is_unchanged(text):
    """Code, citations and markup that is no mark of a template."""
    assert without_marks(text) in (text, text.replace("[inst]", "&#91;inst]"))


async def test_no_request_about_a_session_or_a_question_holds_a_mark(open_kit):
    """Goal, observation, action, actor, facts, instructions, tags, intents, and the answer."""
    model = ScriptedChatModel.answering({"merge_intent": {"intent": HOSTILE}})
    config = Config(commit={"intent_merge_threshold": 0.0, "intent_identity_threshold": 1.0})
    kit = await open_kit(model=model, config=config)
    for number in range(2):
        session = await kit.repo.start_session(f"goal {number} {HOSTILE}")
        for step in range(2):
            await session.append(
                f"saw {number}{step} {HOSTILE}", f"did {HOSTILE}", actor=f"Ada {HOSTILE}"
            )
        await session.close_and_commit()
    found = await kit.repo.recall(f"what did Ada see? {HOSTILE}", reason=True)
    asked = {request.purpose for request in model.requests}
    assert asked >= {"annotate", "semantic", "procedural", "returns", "mode", "plan"}
    assert asked >= {"merge_intent"}
    for request in model.requests:
        assert marks_in(said(request)) == [], request.purpose
    assert found.candidates
    assert marks_in(found.as_text()) == []
    hit, *_ = await kit.repo.search("saw")
    assert marks_in((await kit.repo.view(hit.message_id)).as_text()) == []
    assert HOSTILE in hit.snippet or HOSTILE in (await kit.repo.get_nodes(["episodic"]))[0].text


async def test_no_request_for_a_summary_holds_a_mark(open_kit):
    """Messages, earlier summaries, summaries to unite, and the reply that was too long."""
    log = (await open_kit()).repo.conversation("t")
    messages = await log.append({"role": "user", "content": HOSTILE, "name": HOSTILE})
    assert messages[0].content == HOSTILE
    asked = SummaryRequest(messages=tuple(messages), earlier=(HOSTILE,), max_tokens=99)
    first = summary_request(asked)
    second = summary_request(SummaryRequest(summaries=(HOSTILE, HOSTILE), max_tokens=99))
    for request in (first, second, shorter_request(first, HOSTILE, 50)):
        assert marks_in(said(request)) == []


def test_no_request_of_the_window_holds_a_mark():
    """Goals and snapshots."""
    goal = Goal(
        id=1,
        thread_id="t",
        epoch=0,
        parent_id=None,
        status="active",
        description=HOSTILE,
        created_at=NOON,
    )
    snapshot = Snapshot(
        id="s",
        thread_id="t",
        epoch=0,
        from_seq=0,
        to_seq=1,
        text=HOSTILE,
        token_count=9,
        level=1,
        said_from=NOON,
        said_to=NOON,
        at=NOON,
        origin="fallback",
    )
    written = [*eviction_messages("window", [goal], []), *fold_messages([snapshot], longest=999)]
    assert marks_in("\n".join(message.content for message in written)) == []


async def test_no_tool_of_notes_shows_a_mark(kit):
    """The question for an update, the overview, and what recall shows of notes."""
    await kit.repo.notes.write("marks", f"body {HOSTILE}", f"about {HOSTILE[:150]}")
    asked = instruction(
        now=NOON,
        first_words=HOSTILE,
        body_chars=99,
        requests=[HOSTILE],
        notes=[{"topic": "marks", "about": HOSTILE, "written": "2024-03-01"}],
    )
    texts = [
        asked,
        await kit.repo.notes.overview(),
        (await kit.repo.notes.recall("body")).as_text(),
    ]
    assert [marks_in(text) for text in texts] == [[], [], []]

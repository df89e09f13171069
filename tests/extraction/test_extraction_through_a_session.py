"""What extraction leaves behind, seen through a session and its commit."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from helpers import Kit, OpenKit

from mnemo.config import AnnotationConfig, Config
from mnemo.errors import ExtractionFailed, InvalidReply
from mnemo.prompts.annotate import NEW_STEPS
from mnemo.prompts.question import read_block
from mnemo.testing import ScriptedChatModel

NOTHING: dict[Any, Any] = {"semantic": {"facts": []}, "procedural": {"instructions": []}}


def fact(text: str, **more: Any) -> dict[str, Any]:
    return {"proposition": text, **more}


def annotated(kit: Kit, calls: int) -> bool:
    """Whether the model was asked so often to annotate."""
    return len(kit.model.calls("annotate")) == calls


async def test_four_steps_take_five_annotate_calls(open_kit: OpenKit) -> None:
    """One call per step, and one for the last reward."""
    kit = await open_kit()
    session = await kit.started()
    for i in range(4):
        await session.append(f"observation {i}", f"action {i}")
        await kit.until(partial(annotated, kit, i + 1))
    await session.close_and_commit()
    assert len(kit.model.calls("annotate")) == 5


async def test_what_piled_up_behind_a_hanging_model_goes_into_one_call(open_kit: OpenKit) -> None:
    """Nine steps while the model hangs: step 0 takes one call, the other eight one."""
    kit = await open_kit(config=Config(annotation=AnnotationConfig(batch_size=8)))
    kit.model.block("annotate")
    session = await kit.started()
    for i in range(9):
        await session.append(f"observation {i}", f"action {i}")
        await kit.until(partial(annotated, kit, 1))
    kit.model.unblock("annotate")
    await kit.until(partial(annotated, kit, 2))
    asked = [read_block(r.messages[1].content, NEW_STEPS) for r in kit.model.calls("annotate")]
    assert [[row["index"] for row in rows] for rows in asked] == [[0], [*range(1, 9)]]


async def test_rewards_come_a_step_late(open_kit: OpenKit) -> None:
    """0.8 and 0.3 from the second and third call, the last from the close."""
    rewards = iter([None, 0.8, 0.3])

    def annotate(request: Any) -> dict[str, Any]:
        reward = next(rewards, None)
        entry = {"state": "s", "subgoal": "find out", "previous_reward": reward}
        return {"steps": [entry], "last_reward": 0.6}

    kit = await open_kit(model=ScriptedChatModel({**NOTHING, "annotate": annotate}))
    session = await kit.started()
    for i in range(3):
        await session.append(f"observation {i}", f"action {i}")
        await kit.until(partial(annotated, kit, i + 1))
    await session.close_and_commit()
    nodes: list[Any] = await kit.repo.get_nodes(["episodic"])
    assert {n.step_index: n.reward for n in nodes} == {0: 0.8, 1: 0.3, 2: 0.6}


async def test_nothing_to_learn_still_stores_the_steps(open_kit: OpenKit) -> None:
    """Each step has its episodic and source node, under one subgoal."""
    kit = await open_kit(model=ScriptedChatModel.answering(NOTHING))
    session = await kit.started()
    for i in range(3):
        await session.append(f"observation {i}", f"action {i}")
    await session.close()
    assert await session.wait_for("ready", timeout_s=120) == "ready"
    receipt = await session.commit()
    types = ["episodic", "source", "subgoal", "semantic", "procedural", "tag", "intent"]
    nodes: list[Any] = await kit.repo.get_nodes(types)
    assert Counter(node.type for node in nodes) == {"episodic": 3, "source": 3, "subgoal": 1}
    assert {node.id for node in nodes} == set(receipt.node_ids)
    for node in nodes:
        if node.type == "episodic":
            linked = await kit.repo.get_linked_nodes([node.id], edge_type="provenance")
            assert [n.type for n in linked] == ["source"]
            above = await kit.repo.get_linked_nodes([node.id], edge_type="hierarchical")
            assert [n.type for n in above] == ["subgoal"]


async def test_a_corrected_reply_makes_the_session_ready(open_kit: OpenKit) -> None:
    """Not JSON, then a good reply: two semantic calls and ``ready``."""
    semantic: list[Any] = ["no", {"facts": [fact("Bo sings")]}]
    kit = await open_kit(model=ScriptedChatModel.answering({**NOTHING, "semantic": semantic}))
    session = await kit.started()
    await session.append("Bo sings", "")
    await session.close()
    await session.wait_for("ready", timeout_s=120)
    assert len(kit.model.calls("semantic")) == 2


async def test_two_bad_replies_fail_the_extraction(open_kit: OpenKit) -> None:
    """``ExtractionFailed`` caused by ``InvalidReply`` with its raw text; nothing stored."""
    kit = await open_kit(model=ScriptedChatModel.answering({**NOTHING, "semantic": "never"}))
    session = await kit.started()
    await session.append("Bo sings", "")
    with pytest.raises(ExtractionFailed) as caught:
        await session.close_and_commit(max_retries=0)
    cause = caught.value.__cause__
    assert isinstance(cause, InvalidReply)
    assert cause.raw == "never"
    assert len(kit.model.calls("semantic")) == 2
    assert await kit.repo.get_nodes(["episodic", "semantic", "subgoal"]) == []


async def test_spellings_of_a_concept_meet_in_one_tag(open_kit: OpenKit) -> None:
    """ "Database" and " database " in one batch and "DATABASE" later are one tag."""
    facts = [
        {
            "facts": [
                fact("Bo tunes a database", concepts=["Database"]),
                fact("Ana sells her old piano", concepts=[" database "]),
            ]
        },
        {"facts": [fact("Cy paints the garden fence", concepts=["DATABASE"])]},
    ]
    kit = await open_kit(model=ScriptedChatModel.answering({**NOTHING, "semantic": facts}))
    session = await kit.started()
    await session.append("first", "")
    await session.close_and_commit()
    await session.start_episode("again")
    await session.append("second", "")
    await session.close_and_commit()
    tags: list[Any] = await kit.repo.get_nodes(["tag"])
    assert [tag.label for tag in tags] == ["Database"]
    linked = await kit.repo.get_linked_nodes([tags[0].id], edge_type="membership")
    assert len(linked) == 3

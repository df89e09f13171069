"""What an episode costs: model calls from the first append to the commit, counted."""

import math

import anyio
import pytest

from mnemo import BudgetExceeded, Config
from mnemo.events import SessionTransitioned

BATCHED = Config(annotation={"batch_size": 8})
EXTRACTION = ["semantic", "procedural", "returns"]


def purposes(kit) -> list[str]:
    return [request.purpose for request in kit.model.requests]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("instructed", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 7, 8, 9, 16, 17, 20])
async def test_steps_that_overtake_the_model_cost_a_call_per_eight(
    open_kit, steps, instructed, at_once
):
    """
    Steps that come faster than the model answers: at most ⌈N/8⌉ + 3 calls.

    One of the three is for the first step that finds an idle model, or for the last reward
    where everything was asked before the close. Instructions cost a call for their returns.
    """
    kit = await open_kit(config=BATCHED)
    if not instructed:
        kit.model.script("procedural", {"instructions": []})
    kit.model.block("annotate")
    session = await kit.started()
    async with anyio.create_task_group() as group:
        for i in range(steps):
            group.start_soon(session.append, f"observation {i}", f"action {i}")
            if not at_once:
                await kit.until(lambda: kit.model.waiting == 1)
    await session.close()
    kit.model.unblock("annotate")
    await session.wait_for("ready")
    await session.commit()
    asked = purposes(kit)
    assert len(asked) <= math.ceil(steps / 8) + 3 + instructed
    assert sorted(p for p in asked if p != "annotate") == sorted(EXTRACTION[: 2 + instructed])


@pytest.mark.parametrize("instructed", [True, False])
async def test_steps_that_wait_for_the_model_cost_a_call_each(open_kit, instructed):
    """
    An idle model takes one call per step and one for the last reward, then two or three.

    N + 3 without instructions; with them ``returns`` is asked as well.
    """
    kit = await open_kit(config=BATCHED)
    if not instructed:
        kit.model.script("procedural", {"instructions": []})
    session = await kit.started()
    for i in range(5):
        await session.append(f"observation {i}", f"action {i}")
        await kit.at_rest()
    await session.close_and_commit()
    assert purposes(kit).count("annotate") == 5 + 1
    assert len(kit.model.requests) == 5 + 3 + instructed


async def test_a_budget_ends_in_a_failed_session_that_can_go_on(open_kit):
    """A spent budget stops extraction with a typed error; with a larger one it completes."""
    kit = await open_kit(config=BATCHED.overlaid(Config(session={"max_model_calls": 2})))
    session = await kit.closed("observation", "action")
    assert await session.wait_for("ready", "failed") == "failed"
    assert isinstance(session.error.__cause__, BudgetExceeded)
    assert len(kit.model.requests) == session.statistics().model_calls == 2
    await session.aclose()
    resumed = await kit.repo.resume_session(
        session.id, config=Config(session={"max_model_calls": 50})
    )
    assert (await resumed.commit()).status == "retrying"
    await resumed.wait_for("ready")
    receipt = await resumed.commit()
    assert receipt.status == "committed"


async def test_how_the_stages_ran_is_in_the_trace(open_kit):
    """Model, embedded and failed stages are told when the extraction ends."""
    kit = await open_kit(config=Config(annotation={"on_failure": "embedded"}))
    kit.model.script("annotate", "no JSON")
    kit.model.script("semantic", ["no", "no", {"facts": []}])
    session = await kit.closed("observation", "action")
    assert await session.wait_for("ready", "failed") == "failed"
    await session.commit()
    await session.wait_for("ready")
    (failed, ready) = (e.trace for e in kit.seen.of(SessionTransitioned) if e.trace)
    assert failed["stages"]["semantic"] == {"failed": 1}
    assert set(failed["stages"]["annotate"]) == {"failed", "embedded"}
    assert ready["stages"]["semantic"] == {"failed": 1, "model": 1}
    assert session.statistics().stages == ready["stages"]

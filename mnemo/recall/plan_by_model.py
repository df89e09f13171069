"""The plan of a recall as a chat model makes it."""

from __future__ import annotations

import anyio

from mnemo.prompts.asked import Asked
from mnemo.prompts.mode import mode_question
from mnemo.prompts.modes import Mode
from mnemo.prompts.plan import plan_question
from mnemo.prompts.profiles import Profile
from mnemo.recall.adviser import Adviser
from mnemo.recall.plan import Plan

__all__ = ["plan_by_model"]


async def plan_by_model(
    adviser: Adviser, asked: Asked, embedded: Plan, profile: Profile | None
) -> Plan:
    """
    The plan that a model makes, its two halves asked for at the same time.

    The model's tags take the place of the embedded ones, which only repeat the query's
    own words. A half that fails is that of *embedded*; a caller's mode is kept unasked.
    """
    mode: Mode | None = None
    tags = embedded.tags

    async def ask_for_mode() -> None:
        nonlocal mode
        chosen = await adviser.ask(mode_question(asked, profile), None)
        mode = chosen

    async def ask_for_tags() -> None:
        nonlocal tags
        tags = await adviser.ask(plan_question(asked, profile), tags)

    async with anyio.create_task_group() as group:
        if embedded.chosen_by != "caller":
            group.start_soon(ask_for_mode)
        group.start_soon(ask_for_tags)
    if mode is None:
        return Plan(embedded.mode, tags, embedded.chosen_by)
    return Plan(mode, tags, "model")

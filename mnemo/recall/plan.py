"""Query planning: the mode of a recall, from the query's words, or mode and tags by a model."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import anyio

from mnemo.prompts.plan import Mode, mode_question, plan_question
from mnemo.recall.request import RecallRun
from mnemo.runtime.text import fold, one_line
from mnemo.values.graph import NodeType

MODE_WEIGHTS: dict[Mode, dict[NodeType, float]] = {
    "semantic": {"semantic": 1.0, "procedural": 0.7, "episodic": 1.0},
    "procedural": {"semantic": 0.7, "procedural": 1.0, "episodic": 0.7},
    "episodic": {"semantic": 0.7, "procedural": 0.7, "episodic": 1.0},
    "mixed": {"semantic": 1.0, "procedural": 1.0, "episodic": 1.0},
}
"""
Mode → type → weight of its candidates; a type left out is not searched.

A subgoal is a label of its steps and answers nothing that they do not: no mode has it.
"""

ROUTES: dict[Mode, tuple[NodeType, ...]] = {
    "semantic": ("tag",),
    "procedural": ("intent",),
    "episodic": ("tag",),
    "mixed": ("tag", "intent"),
}
"""Mode → the types of node that its hops go over."""

_HOW_TO = re.compile(
    r"\bhow (?:do|can|could|should|would|must) (?:i|we|you|one)\b|\bhow to\b|\bsteps? (?:to|for)\b"
    r"|\bwhat should (?:i|we|you) do\b|\b(?:procedure|instructions?|recipe|workflow)\b"
    r"|\b(?:best|right) way to\b|\bhow is .+ (?:done|made|fixed|deployed)\b"
)
_EPISODE = re.compile(
    r"\bwhen\b|\bwho (?:said|told|asked|mentioned)\b|\bwhat (?:did|has|had) .+ (?:say|said|tell"
    r"|told|ask|asked|mention|mentioned)\b|\bwhat happened\b|\blast time\b|\bhow long ago\b"
    r"|\bwhat (?:date|day|time|year|month)\b|\bearlier\b|\byesterday\b|\blast (?:week|month|year)\b"
)


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """
    The plan of a recall.

    Attributes:
        tags: What a chat model would look for beside the query. Without one there are none:
            phrases of the query's own words changed no order on any development file.
        chosen_by: ``"caller"``, ``"embedded"`` or ``"model"``: who chose the mode.
    """

    mode: Mode
    tags: tuple[str, ...]
    chosen_by: str


def plan_embedded(query: str, mode: Mode | None) -> RecallPlan:
    """Plan from the words of *query* alone; *mode* is the caller's, if there is one."""
    chosen_by = "embedded" if mode is None else "caller"
    return RecallPlan(mode or choose_mode(query), (), chosen_by)


async def plan_by_model(run: RecallRun, embedded: RecallPlan) -> RecallPlan:
    """
    Ask a chat model for mode and tags, both at the same time.

    A question that fails leaves the value of *embedded*; a caller's mode is not asked for.
    """
    plan = embedded

    async def choose_mode() -> None:
        nonlocal plan
        mode = await run.ask(mode_question(run.asked, run.profile), None)
        plan = replace(plan, mode=mode, chosen_by="model") if mode else plan

    async def choose_tags() -> None:
        nonlocal plan
        tags = await run.ask(plan_question(run.asked, run.profile), plan.tags)
        plan = replace(plan, tags=tags)

    async with anyio.create_task_group() as group:
        if plan.chosen_by != "caller":
            group.start_soon(choose_mode)
        group.start_soon(choose_tags)
    return plan


def choose_mode(query: str) -> Mode:
    """How-to words ask for instructions, time and speech for episodes; both or neither: mixed."""
    folded = one_line(fold(query))
    how_to, episode = bool(_HOW_TO.search(folded)), bool(_EPISODE.search(folded))
    if how_to == episode:
        return "mixed"
    return "procedural" if how_to else "episodic"

"""Query planning: mode and tags of a recall, from the query's words or by a chat model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import anyio

from mnemo.prompts.plan import Mode, mode_question, plan_question
from mnemo.recall.request import RecallRun
from mnemo.runtime.text import STOP_WORDS, fold, one_line
from mnemo.values.graph import NodeType

__all__ = [
    "MODE_WEIGHTS",
    "ROUTES",
    "RecallPlan",
    "choose_mode",
    "find_tags",
    "plan_by_model",
    "plan_embedded",
]

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

MAX_TAGS = 6
"""Each costs a scan of the vectors; those of a model, which know more, may be 12."""

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
_QUOTED = re.compile(r"[\"“”]([^\"“”]{2,80})[\"“”]")
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_MAX_PHRASE = 3


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """
    The plan of a recall.

    Attributes:
        tags: Names, numbers, dates and phrases to look for beside the query.
        chosen_by: ``"caller"``, ``"embedded"`` or ``"model"``: who chose the mode.
    """

    mode: Mode
    tags: tuple[str, ...]
    chosen_by: str


def plan_embedded(query: str, mode: Mode | None) -> RecallPlan:
    """Plan from the words of *query* alone; *mode* is the caller's, if there is one."""
    chosen_by = "embedded" if mode is None else "caller"
    return RecallPlan(mode or choose_mode(query), find_tags(query), chosen_by)


async def plan_by_model(run: RecallRun, embedded: RecallPlan) -> RecallPlan:
    """
    Ask a chat model for mode and tags, both at the same time.

    The model's tags replace those of *embedded*, which only repeat the query's own words.
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


def find_tags(query: str) -> tuple[str, ...]:
    """The names, numbers, dates and phrases of content words in *query*, at most 6."""
    found: dict[str, str] = {}
    for tag in (*_QUOTED.findall(query), *_names(query), *_phrases(query)):
        found.setdefault(fold(tag), tag)
    found.pop(fold(query).strip(" ?!."), None)
    return tuple(found.values())[:MAX_TAGS]


def _names(query: str) -> Iterator[str]:
    """Runs of capitalised words and numbers; a question's first word is only a capital by place."""
    run: list[str] = []
    for place, word in enumerate(_WORD.findall(query)):
        marked = word[0].isdigit() or (word[0].isupper() and fold(word) not in STOP_WORDS)
        if marked and not (place == 0 and word.istitle() and len(query.split()) > 1):
            run.append(word)
            continue
        yield from _joined(run)
        run = []
    yield from _joined(run)


def _phrases(query: str) -> Iterator[str]:
    """Runs of two or three content words that stand side by side."""
    run: list[str] = []
    for word in _WORD.findall(query):
        if fold(word) in STOP_WORDS:
            yield from _joined(run, least=2)
            run = []
        else:
            run.append(word)
    yield from _joined(run, least=2)


def _joined(run: Iterable[str], *, least: int = 1) -> Iterator[str]:
    words = list(run)
    for start in range(0, len(words), _MAX_PHRASE):
        part = words[start : start + _MAX_PHRASE]
        if len(part) >= least:
            yield " ".join(part).removesuffix("'s").removesuffix("’s")

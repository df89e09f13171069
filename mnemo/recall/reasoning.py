"""
Reasoning: candidates put into words, by type, by a chat model or without one.

Without a model the answer is a choice among the candidates' own texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anyio

from mnemo.prompts.reason import REASONING, ReasonPurpose, Recalled, fitting, reason_question
from mnemo.recall.request import RecallRun
from mnemo.recall.result import Candidate, ReasonedMemory, SourceRef, condition_text
from mnemo.runtime.text import count_tokens, one_line, terms
from mnemo.values.counting import Count
from mnemo.values.graph import Episodic, NodeType, Procedural

BUDGET_TOKENS = 512
"""Of each type's text, by the service's count."""
REPETITION = 0.8
"""Share of common terms from which one text repeats another."""


def reason_embedded(candidates: Sequence[Candidate], count: Count = count_tokens) -> ReasonedMemory:
    """
    Put *candidates* (best first) into words, by type.

    The best of each type that do not repeat one another and fit 512 tokens: facts by
    date, newest last, instructions best first, episodes in order of time. Every line is
    a candidate's own text; ``ReasonedMemory.sources`` says which steps they come from.
    """
    facts = sorted(_chosen(candidates, "semantic", count), key=_date)
    instructions = _chosen(candidates, "procedural", count)
    episodes = sorted(_chosen(candidates, "episodic", count), key=_date)
    return ReasonedMemory(
        semantic=_words(facts),
        procedural=_words(instructions),
        episodic=_words(episodes),
        sources=tuple(c.sources[0] for c in (*facts, *instructions, *episodes)),
    )


def _words(chosen: Iterable[Candidate]) -> str | None:
    return "\n".join(map(_line, chosen)) or None


def _chosen(candidates: Iterable[Candidate], type: NodeType, count: Count) -> list[Candidate]:
    chosen: list[Candidate] = []
    said: list[frozenset[str]] = []
    left = BUDGET_TOKENS
    for candidate in (c for c in candidates if c.node.type == type):
        words = frozenset(terms(candidate.node.text))
        cost = count(_line(candidate) + "\n")
        alike = (len(words & other) / len(words | other) for other in said if words)
        if cost <= left and all(share < REPETITION for share in alike):
            left -= cost
            chosen.append(candidate)
            said.append(words)
    return chosen


def _line(candidate: Candidate) -> str:
    node = candidate.node
    if isinstance(node, Episodic):
        # Each side keeps its line: together they would be a sentence that nobody said.
        sides = (one_line(node.observation), one_line(node.action))
        return "\n".join(side for side in sides if side)
    if not isinstance(node, Procedural):
        return one_line(node.text)
    parts = (("do", node.instruction), ("expect", node.expected_outcome))
    told = (condition_text(node.condition), *(f"{word} {text}" for word, text in parts if text))
    return one_line(" ".join(told))


def _date(candidate: Candidate) -> tuple[float, int]:
    source = candidate.sources[0]
    return (source.at.timestamp() if source.at else 0.0, source.step_index or 0)


# ── By a chat model ──────────────────────────────────────────────────────────────────


def purposes_of(candidates: Iterable[Candidate]) -> list[ReasonPurpose]:
    """List the purposes that *candidates* need: one for each of the three types."""
    types = {candidate.node.type for candidate in candidates}
    return [purpose for purpose, type in REASONING.items() if type in types]


async def reason_by_model(run: RecallRun, candidates: Sequence[Candidate]) -> ReasonedMemory:
    """
    Put *candidates* (best first) into words, all types at the same time.

    Only a type that is among them is asked about, over its own candidates. A type whose
    call fails has no words.

    Raises:
        ModelError: All of them failed. *Cancellation*: safe; the calls are dropped.
    """
    wanted = {purpose: _shown(candidates, purpose) for purpose in purposes_of(candidates)}
    words: dict[ReasonPurpose, str | None] = {}

    async def ask(purpose: ReasonPurpose, shown: Iterable[Candidate]) -> None:
        recalled = [_recalled(candidate) for candidate in shown]
        words[purpose] = await run.ask(
            reason_question(purpose, run.asked, recalled, run.profile), None
        )

    async with anyio.create_task_group() as group:
        for purpose, shown in wanted.items():
            group.start_soon(ask, purpose, shown)
    if wanted and run.failures.keys() >= wanted.keys():
        raise run.failures[next(iter(wanted))]
    named: dict[tuple[Any, ...], SourceRef] = {}
    for candidate in (c for purpose, shown in wanted.items() if words[purpose] for c in shown):
        for source in candidate.sources:
            # A step's own words come before those of facts that restate it.
            named.setdefault(source.identity, source)
    return ReasonedMemory(
        words.get("reason_semantic"),
        words.get("reason_procedural"),
        words.get("reason_episodic"),
        sources=tuple(named.values()),
    )


def _shown(candidates: Sequence[Candidate], purpose: ReasonPurpose) -> list[Candidate]:
    """Choose the candidates of the purpose's type to show; episodes in order of time."""
    best = [c for c in candidates if c.node.type == REASONING[purpose]]
    best = best[: fitting([_recalled(candidate) for candidate in best])]
    return sorted(best, key=_date) if purpose == "reason_episodic" else best


def _recalled(candidate: Candidate) -> Recalled:
    source = candidate.sources[0]
    return Recalled(candidate.node, source.at, source.actor)

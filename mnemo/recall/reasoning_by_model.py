"""Candidates in the words of a chat model; each kind is put into words apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anyio

from mnemo.prompts.asked import Asked
from mnemo.prompts.profiles import Profile
from mnemo.prompts.reason import REASONING, ReasonPurpose, Recalled, fitting, reason_question
from mnemo.recall.adviser import Adviser
from mnemo.recall.candidate import Candidate, SourceRef
from mnemo.recall.result import ReasonedMemory

__all__ = ["purposes_of", "reason_by_model"]


def purposes_of(candidates: Iterable[Candidate]) -> list[ReasonPurpose]:
    """What is asked to put *candidates* into words: one question for each of the three types."""
    types = {candidate.node.type for candidate in candidates}
    return [purpose for purpose, type in REASONING.items() if type in types]


async def reason_by_model(
    adviser: Adviser, asked: Asked, candidates: Sequence[Candidate], profile: Profile | None
) -> ReasonedMemory | None:
    """
    Put *candidates* (best first) into words, all types at the same time.

    Only a type that is among them is asked about, over its own candidates. A type whose
    call fails has no words; ``None`` if all of them failed.

    Raises:
        Nothing: The adviser notes what failed. *Cancellation*: safe; the calls are dropped.
    """
    wanted = {purpose: _shown(candidates, purpose) for purpose in purposes_of(candidates)}
    words: dict[ReasonPurpose, str | None] = {}

    async def ask(purpose: ReasonPurpose) -> None:
        recalled = [_recalled(candidate) for candidate in wanted[purpose]]
        question = reason_question(purpose, asked, recalled, profile)
        words[purpose] = await adviser.ask(question, None)

    async with anyio.create_task_group() as group:
        for purpose in wanted:
            group.start_soon(ask, purpose)
    if wanted and all(purpose in adviser.failures for purpose in wanted):
        return None
    said = [shown for purpose, shown in wanted.items() if words[purpose]]
    return ReasonedMemory(
        semantic=words.get("reason_semantic"),
        procedural=words.get("reason_procedural"),
        episodic=words.get("reason_episodic"),
        sources=_sources([candidate for shown in said for candidate in shown]),
    )


def _shown(candidates: Sequence[Candidate], purpose: ReasonPurpose) -> list[Candidate]:
    """Those of the purpose's type that a model is shown; episodes in order of time."""
    best = [c for c in candidates if c.node.type == REASONING[purpose]]
    best = best[: fitting([_recalled(candidate) for candidate in best])]
    return sorted(best, key=_moment) if purpose == "reason_episodic" else best


def _recalled(candidate: Candidate) -> Recalled:
    source = candidate.sources[0]
    return Recalled(candidate.node, source.at, source.actor)


def _moment(candidate: Candidate) -> tuple[float, int]:
    source = candidate.sources[0]
    return (source.at.timestamp() if source.at else 0.0, source.step_index or 0)


def _sources(candidates: Sequence[Candidate]) -> tuple[SourceRef, ...]:
    named = {source.identity: source for c in candidates for source in c.sources}
    return tuple(named.values())

"""
Candidates in words without a model: a choice among them, never a sentence of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mnemo.graph.nodes import Episodic, NodeType, Procedural
from mnemo.recall.candidate import Candidate
from mnemo.recall.result import ReasonedMemory
from mnemo.recall.text import condition_text
from mnemo.runtime.text import count_tokens, one_line, terms
from mnemo.transcript.counting import Count

__all__ = ["reason_embedded"]

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
        if cost > left or any(_repeats(words, other) for other in said):
            continue
        left -= cost
        chosen.append(candidate)
        said.append(words)
    return chosen


def _repeats(words: frozenset[str], other: frozenset[str]) -> bool:
    either = words | other
    return bool(either) and len(words & other) >= REPETITION * len(either)


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

"""
Rendering candidates as text for a prompt.

Recalled text is data: it can neither open a line of its own nor hold a mark of a chat template.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mnemo.english.words import date_in_words
from mnemo.recall.candidate import Candidate, SourceRef
from mnemo.runtime.text import count_tokens, one_line
from mnemo.values.counting import Count, fitted
from mnemo.values.graph import Episodic, Node, NodeType, Procedural, Semantic
from mnemo.values.untrusted import without_marks

__all__ = ["condition_text", "entry_text", "print_candidates"]

_CONDITIONAL = re.compile(
    r"(?:when(?:ever)?|if|after|before|while|once|unless|until|in case|as (?:soon|long) as"
    r"|every time|each time)\b",
    re.IGNORECASE,
)

_ORDER: dict[NodeType, int] = {
    "semantic": 0,
    "procedural": 1,
    "episodic": 2,
    "source": 2,
    "subgoal": 3,
    "tag": 4,
    "intent": 4,
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line: its *rank* by score, its *place* in the text, the *head* above it."""

    text: str
    rank: int
    place: tuple[int, int, tuple[str, str, int]]
    session: str | None
    steps: frozenset[Any] = frozenset()
    head: str | None = None


def print_candidates(
    candidates: Sequence[Candidate],
    *,
    goals: Mapping[str, str],
    group_min_hits: int,
    budget_tokens: int | None,
    count: Count = count_tokens,
) -> str:
    """
    Print *candidates*: facts, then instructions, then episodes; see ``RecallResult.as_text``.

    Args:
        goals: Session id → goal, for the lines above groups.
        count: What *budget_tokens* are counted with.
    """
    entries = _grouped(list(_entries(candidates)), goals, group_min_hits)
    if budget_tokens is None:
        return _lines(entries)
    return fitted(partial(_within, entries), budget_tokens, count)


def _within(entries: Sequence[_Entry], size: int) -> str:
    """The lines that fit *size* bytes, or as much of the first one."""
    chosen = _fitting(_news_first(entries), size)
    if not chosen and entries:
        return _cut(_lines([replace(entries[0], head=None)]), size)
    return _lines(chosen)


def _entries(candidates: Iterable[Candidate]) -> Iterable[_Entry]:
    seen: set[str] = set()
    for rank, candidate in enumerate(candidates):
        said = without_marks(entry_text(candidate))
        if said in seen:
            continue
        seen.add(said)
        text = f"{said} [{rank + 1}]"
        order = _ORDER[candidate.node.type]
        source = candidate.sources[0]
        steps = frozenset(source.identity for source in candidate.sources)
        yield _Entry(text, rank, (order, rank, _when(source)), source.session_id, steps)


def _grouped(entries: list[_Entry], goals: Mapping[str, str], group_min_hits: int) -> list[_Entry]:
    """Lines of a session with many hits get its head and stand together, in order of steps."""
    hits = Counter(entry.session for entry in entries if entry.session is not None)
    best: dict[tuple[int, str], int] = {}
    grouped = []
    for entry in entries:
        session = entry.session
        if session is None or hits[session] < group_min_hits:
            grouped.append(entry)
            continue
        order, rank, when = entry.place
        first = best.setdefault((order, session), rank)
        head = without_marks(one_line(f"{session}: {goals.get(session, '')}").rstrip(": "))
        grouped.append(replace(entry, place=(order, first, when), head=head))
    return grouped


def _news_first(entries: Iterable[_Entry]) -> list[_Entry]:
    """Sort *entries*: last those whose steps are all behind better ones."""
    told: set[Any] = set()
    news: list[_Entry] = []
    repeats: list[_Entry] = []
    for entry in entries:
        (repeats if entry.steps <= told else news).append(entry)
        told |= entry.steps
    return news + repeats


def _lines(entries: Iterable[_Entry]) -> str:
    lines: list[str] = []
    above: tuple[int, str | None] | None = None
    for entry in sorted(entries, key=lambda entry: (entry.place, entry.rank)):
        head = (entry.place[0], entry.head)
        if entry.head is not None and head != above:
            lines.append(_head(entry))
        above = head
        lines.append(_body(entry))
    return "\n".join(lines)


def _fitting(entries: Iterable[_Entry], size: int) -> list[_Entry]:
    """
    The first of *entries*, by rank, that fit together with the heads they need.

    It ends at the first that does not fit: so a larger budget never shows fewer.
    """
    chosen: list[_Entry] = []
    heads: set[tuple[int, str]] = set()
    left = size + 1  # every line but one is preceded by a line break
    for entry in entries:
        head = None if entry.head is None else (entry.place[0], entry.head)
        left -= _bytes(_body(entry)) + 1
        if head is not None and head not in heads:
            heads.add(head)
            left -= _bytes(_head(entry)) + 1
        if left < 0:
            break
        chosen.append(entry)
    return chosen


def _bytes(line: str) -> int:
    return len(line.encode("utf-8", "replace"))


def _head(entry: _Entry) -> str:
    return f"From {entry.head}"


def _body(entry: _Entry) -> str:
    return entry.text if entry.head is None else f"  {entry.text}"


def _cut(line: str, size: int) -> str:
    return line.encode()[:size].decode("utf-8", "ignore")


# ── Lines ────────────────────────────────────────────────────────────────────────────


def entry_text(candidate: Candidate) -> str:
    """Render *candidate* as one line: its text, then who said it and when."""
    return f"- {_said(candidate.node)} {_origin(candidate)}".rstrip()


def _said(node: Node) -> str:
    match node:
        case Semantic(valid_to=until) if until is not None:
            return f"{one_line(node.proposition)} (held until {until:%Y-%m-%d})"
        case Procedural():
            parts = (
                condition_text(node.condition),
                f"do {one_line(node.instruction)}",
                f"expect {one_line(node.expected_outcome)}" if node.expected_outcome else "",
            )
            return "; ".join(part for part in parts if part)
        case Episodic():
            sides = (one_line(node.observation), one_line(node.action))
            return " -> ".join(side for side in sides if side)
        case _:
            return one_line(node.text)


def condition_text(condition: str) -> str:
    """Render *condition* on one line, after ``when`` unless it begins with such a word."""
    condition = one_line(condition)
    if _CONDITIONAL.match(condition):
        return condition[0].lower() + condition[1:]
    return f"when {condition}" if condition else ""


def _origin(candidate: Candidate) -> str:
    source = candidate.sources[0]
    who = one_line(source.actor or "")
    when = date_in_words(source.at) if source.at is not None else ""
    told = ", ".join(part for part in (who, when) if part)
    return f"[{told}]" if told else ""


def _when(source: SourceRef) -> tuple[str, str, int]:
    return (source.session_id or "", source.episode_id or "", source.step_index or 0)

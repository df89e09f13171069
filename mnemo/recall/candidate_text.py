"""
Render candidates as text for a prompt, in one of two styles.

Recalled text is data: it can neither open a line of its own, nor hold a mark of a chat
template, nor spell a citation.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeAlias

from mnemo.english.words import date_in_words, short_day
from mnemo.recall.candidate import Candidate, SourceRef
from mnemo.runtime.text import count_tokens, one_line
from mnemo.values.counting import Count, fitted
from mnemo.values.graph import Episodic, Node, NodeType, Procedural
from mnemo.values.untrusted import without_marks

Style: TypeAlias = Literal["compact", "full"]
Order: TypeAlias = Literal["relevance", "time"]

_CITATION = re.compile(r"\[(?=\d+\])")
"""The beginning of what reads as a citation; in stored text it is escaped."""
_NEVER = datetime.max.replace(tzinfo=UTC)
_CONDITIONAL = re.compile(
    r"(?:when(?:ever)?|if|after|before|while|once|unless|until|in case|as (?:soon|long) as"
    r"|every time|each time)\b",
    re.IGNORECASE,
)

_ORDER: tuple[tuple[NodeType, ...], ...] = (
    ("semantic",), ("procedural",), ("episodic", "source"), ("item",), ("subgoal",),
    ("tag", "intent"),
)  # fmt: skip
"""Types of node as they follow one another in full style."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """
    One line: its *rank* by score, its *place* in the text, the *head* above it.

    Attributes:
        year: Of its date; ``None`` without a date.
        yearless: The line without that year, for texts all of whose dates are of one year.
    """

    text: str
    rank: int
    place: tuple[Any, ...]
    session: str | None
    year: int | None
    yearless: str
    steps: frozenset[Any] = frozenset()
    head: str | None = None


def print_candidates(
    candidates: Sequence[Candidate],
    *,
    goals: Mapping[str, str],
    group_min_hits: int,
    budget_tokens: int | None,
    count: Count = count_tokens,
    style: Style = "full",
    order: Order = "relevance",
) -> str:
    """
    Print *candidates*; see ``RecallResult.as_text``.

    Args:
        goals: Session id → goal, for the lines above groups.
        count: What *budget_tokens* are counted with.
    """
    entries = list(_entries(candidates, style, order))
    if style == "full" and order == "relevance":
        entries = _grouped(entries, goals, group_min_hits)
    if budget_tokens is None:
        return _lines(entries)
    return fitted(partial(_within, entries), budget_tokens, count)


def _within(entries: Sequence[_Entry], size: int) -> str:
    """
    The lines that fit *size* bytes, or as much of the first one.

    The best so many, without a gap: so a larger budget never shows fewer.
    """
    ranked = _news_first(entries)

    def is_too_long(count: int) -> bool:
        return len(_lines(ranked[:count]).encode("utf-8", "replace")) > size

    count = bisect_left(range(1, len(ranked) + 1), True, key=is_too_long)
    if not count and entries:
        return _lines([replace(entries[0], head=None)]).encode()[:size].decode("utf-8", "ignore")
    return _lines(ranked[:count])


def _entries(candidates: Iterable[Candidate], style: Style, order: Order) -> Iterable[_Entry]:
    seen: set[str] = set()
    candidates = tuple(candidates)
    numbers = {candidate.node.id: number for number, candidate in enumerate(candidates, 1)}
    for rank, candidate in enumerate(candidates):
        source = candidate.sources[0]
        see = numbers.get(candidate.outdated_by or "")
        if style == "compact":
            line = _compact_text(candidate, see)
            yearless = _compact_text(candidate, see, with_year=False)
        else:
            line = yearless = _full_text(candidate, see)
        if line in seen:
            continue
        seen.add(line)
        yield _Entry(
            text=_cited(line, rank),
            rank=rank,
            place=_place(candidate, rank, style, order),
            session=source.session_id,
            year=source.at.year if source.at else None,
            yearless=_cited(yearless, rank),
            steps=frozenset(source.identity for source in candidate.sources),
        )


def line_tokens(candidates: Sequence[Candidate], count: Count) -> tuple[int, ...]:
    """Count the tokens of each candidate's compact line, with its citation."""
    lines = map(_compact_text, candidates)
    return tuple(count(_cited(line, rank)) for rank, line in enumerate(lines))


def _plain(text: str) -> str:
    """*text* with what would read as a citation or a mark of a template escaped."""
    return _CITATION.sub("&#91;", without_marks(text))


def _cited(line: str, rank: int) -> str:
    """Append its citation to *line*."""
    return f"{line} [{rank + 1}]"


def _see(number: int | None) -> str:
    return "" if number is None else f"; see [{number}]"


def _place(candidate: Candidate, rank: int, style: Style, order: Order) -> tuple[Any, ...]:
    """What lines are sorted by; in full style by relevance, groups replace the rank."""
    source = candidate.sources[0]
    if order == "time":
        return (source.at or _NEVER, *_when(source), rank)
    if style == "compact":
        return (rank,)
    type_order = next(n for n, types in enumerate(_ORDER) if candidate.node.type in types)
    return (type_order, rank, _when(source))


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
    for entry in _years_once(sorted(entries, key=lambda entry: (entry.place, entry.rank))):
        head = (entry.place[0], entry.head)
        if entry.head is not None and head != above:
            lines.append(f"From {entry.head}")
        above = head
        lines.append(entry.text if entry.head is None else f"  {entry.text}")
    return "\n".join(lines)


def _years_once(entries: Sequence[_Entry]) -> Sequence[_Entry]:
    """Where all dates are of one year, only the first line that has a date names the year."""
    dated = [place for place, entry in enumerate(entries) if entry.year is not None]
    if len({entries[place].year for place in dated}) != 1:
        return entries
    return [
        entry if place <= dated[0] else replace(entry, text=entry.yearless)
        for place, entry in enumerate(entries)
    ]


# ── Lines ────────────────────────────────────────────────────────────────────────────


def _full_text(candidate: Candidate, see: int | None) -> str:
    """Render *candidate* as one line: its text, who said it and when, and until when it held."""
    source, until = candidate.sources[0], candidate.valid_to
    origin = (one_line(source.actor or ""), date_in_words(source.at) if source.at else "")
    told = ", ".join(filter(None, origin))
    ended = "" if until is None else f" (until {until:%Y-%m-%d}{_see(see)})"
    return _plain(f"- {_text(candidate.node)}" + (f" [{told}]" if told else "")) + ended


def _compact_text(candidate: Candidate, see: int | None = None, *, with_year: bool = True) -> str:
    """
    Render *candidate* as one line: its text, then in brackets the day and the speaker.

    Of what holds no longer, until when it held.

    Args:
        see: Number of what replaced it.
    """
    node, source = candidate.node, candidate.sources[0]
    said, who = _text(node), one_line(source.actor or "")

    def day(at: datetime) -> str:
        return short_day(at) if with_year else short_day(at).rpartition(" ")[0]

    parts = ["" if _names(said, who) else who]
    if candidate.valid_to is not None:
        origin = f"until {day(candidate.valid_to)}{_see(see)}"
    else:
        parts = [day(source.at) if source.at is not None else "", *parts]
        origin = _plain(", ".join(part for part in parts if part))
    return _plain(f"- {said}") + (f" ({origin})" if origin else "")


def _names(text: str, who: str) -> bool:
    """Whether *text* holds *who* as a word."""
    return re.search(rf"\b{re.escape(who)}\b", text) is not None


def _text(node: Node) -> str:
    match node:
        case Procedural():
            condition, act = condition_text(node.condition), one_line(node.instruction)
            # A sentence stands behind a colon; an act, which begins with its verb, behind "do".
            is_sentence = act[:1].isupper()
            told = act if is_sentence else f"do {act}"
            if condition:
                told = f"{condition}{':' if is_sentence else ';'} {told}"
            expected = one_line(node.expected_outcome)
            return f"{told.rstrip('.')}; expect {expected}" if expected else told
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


def _when(source: SourceRef) -> tuple[str, str, int]:
    return (source.session_id or "", source.episode_id or "", source.step_index or 0)

"""Print what a command found: JSON, or plain lines; errors on stderr."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

import mnemo
from mnemo.runtime.clock import elapsed
from mnemo.runtime.text import counted, one_line, visible

_PASSWORD = re.compile(r"(?<=://)([^:/@]*:)[^/]*(?=@)|([?&](?:ssl)?password=)[^&]*")
WRONG = 2
"""Exit code for whatever a user can put right."""
_WIDE = 1_000
"""Columns of a table that no terminal shows."""


def print_line(text: str = "") -> None:
    """Print for a person; stored text does not steer the terminal, see ``visible``."""
    typer.echo(visible(text))


def complain(text: str) -> None:
    """Say on stderr what is wrong, in one line."""
    typer.echo(f"mnemo: {visible(one_line(text))}", err=True)


def without_password(store: str) -> str:
    """The URL of a store, for a terminal or a log; a path is left as it is."""
    return _PASSWORD.sub(r"\1\2***", store)


def said(message: mnemo.Message, call: str = "[calls {}]") -> tuple[str, str]:
    """Who says *message*; and its words and calls, each on a line."""
    told = [*filter(None, [message.text]), *(call.format(one.name) for one in message.tool_calls)]
    return message.actor or message.name or message.role, "\n".join(told)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* in columns, times to the minute; see ``visible``."""
    table = Table(box=None)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(_cell(value))) for value in row))
    # What is piped on must not be folded at the width of a terminal that is not there.
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return "" if value is None else str(value)


Told = str | tuple[Sequence[str], Sequence[Sequence[object]]]
"""What a person is told: a text, or the heads and rows of a table."""


def answer(data: Any, told: Told, nothing: str = "", *, as_json: bool) -> None:
    """Print *data* as JSON on stdout, or what is *told*; without that, say *nothing* on stderr."""
    if as_json:
        print_json(data)
    elif nothing and not (told if isinstance(told, str) else told[1]):
        complain(nothing)
    elif isinstance(told, str):
        print_line(told)
    else:
        print_table(*told)


def print_json(value: Any) -> None:
    """Print *value* as one JSON document, in ASCII."""
    typer.echo(json.dumps(as_data(value), indent=2))


def as_data(value: Any) -> Any:
    """*value* as what JSON can hold: dataclasses become objects, times ISO 8601."""
    match value:
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(key): as_data(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [as_data(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: as_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


async def ids_to_view(
    repo: mnemo.Repository, candidates: Sequence[mnemo.Candidate]
) -> list[str | None]:
    """What ``view`` takes to open the best source of each; ``None``: it has no message or step."""
    claims = [c.node.id for c in candidates if c.node.type in ("semantic", "procedural")]
    steps = await repo.get_linked_nodes(claims, edge_type=mnemo.EdgeKind.PROVENANCE)
    steps += [candidate.node for candidate in candidates]
    by_place = {_place_of(one): one for one in steps if isinstance(one, mnemo.Episodic)}
    found: list[str | None] = []
    for source in (next(iter(candidate.sources), None) for candidate in candidates):
        step = by_place.get(_place_of(source)) if source and source.session_id else None
        half = "action" if step and not step.observation.strip() else "observation"
        in_thread = source.message_id if source else None
        found.append(in_thread or (f"{step.id}/{half}" if step else None))
    return found


def _place_of(one: mnemo.Episodic | mnemo.SourceRef) -> tuple[str | None, str | None, int | None]:
    return one.session_id, one.episode_id, one.step_index


def ids_told(
    result: mnemo.RecallResult, ids: Sequence[str | None], text: str | None, where: str
) -> str:
    """
    A line for each candidate that *text* cites (``None``: for all): its id, what to view.

    *where*: see ``opening.options_to``.
    """
    lines = [
        f"[{number}] {candidate.node.id}" + (f"  mnemo view {id}{where}" if id else "")
        for number, (candidate, id) in enumerate(zip(result.candidates, ids, strict=True), 1)
        if text is None or f"[{number}]" in text
    ]
    return "\n".join(["", *lines]) if lines else ""


def recall_data(
    query: str, result: mnemo.RecallResult, ids: Sequence[str | None] | None = None
) -> dict[str, Any]:
    """A recall and its candidates, best first; *ids* are what ``view`` takes for each."""
    candidates = [_candidate_data(candidate) for candidate in result.candidates]
    for candidate, id in zip(candidates, ids or (), strict=False):
        candidate["view"] = id
    return {
        "query": query,
        "mode": result.mode,
        "tags": list(result.tags),
        "confidence": result.confidence,
        "candidates": candidates,
        "text": result.as_text(),
        "seconds": result.trace.seconds,
        "degraded": result.trace.degraded,
    }


def _candidate_data(candidate: mnemo.Candidate) -> dict[str, Any]:
    of_node = {name: getattr(candidate.node, name) for name in ("id", "type", "text")}
    names = ("score", "relevance", "phase", "hop", "sources", *(["why"] if candidate.why else []))
    return of_node | {name: getattr(candidate, name) for name in names}


def explained(result: mnemo.RecallResult) -> str:
    """Every candidate with why it came and what it rests on; best first."""
    found = ", ".join(f"{phase}: {count}" for phase, count in result.trace.found.items())
    tags = ", ".join(result.tags)
    head = [
        f"mode {result.mode} (chosen by: {result.trace.mode_chosen_by}); tags: {tags or 'none'}",
        f"confidence {result.confidence:.2f}",
        f"candidates by phase and hop: {found}",
    ]
    grouped = (group for c in result.candidates if c.why for group in c.why.grouped.values())
    longest = max((abs(sum(group.values())) for group in grouped), default=0.0) or 1.0
    numbered = enumerate(result.candidates, 1)
    return "\n".join((*head, *("\n".join(_account(n, c, longest)) for n, c in numbered)))


def _account(number: int, candidate: mnemo.Candidate, longest: float) -> list[str]:
    """Lines of one candidate; *longest* is the greatest reason of all candidates."""
    hop = "" if candidate.hop is None else f", hop {candidate.hop}"
    lines = [
        "",
        f"{number}. {candidate.node.type} {candidate.score:.3f} ({candidate.phase}{hop})",
        f"   {one_line(candidate.node.text)}",
    ]
    if why := candidate.why:
        led = [f"   via: {one_line(why.via)}"] if why.via else []
        lines += [
            *led,
            f"   reasons{'' if why.signals else ': none of its own'}; cosine {why.cosine:.2f}",
            *_bars(why, longest),
            f"   value: relevance {candidate.relevance:.3f}, recency {why.recency:.2f}, "
            f"frequency {why.frequency:.2f}, reward {why.reward:.2f}, "
            f"penalty {why.penalty:.2f}, mode weight {why.mode_weight:g}",
        ]
    return lines + _origins(candidate.sources)


def _origins(sources: Sequence[mnemo.SourceRef]) -> list[str]:
    """A line for each step, once; below it the facts that restate it."""
    lines: dict[Any, list[str]] = {}
    for source in sources:
        if source.identity in lines:
            lines[source.identity].append(f"     restated: {one_line(source.text)}")
        else:
            lines[source.identity] = [f"   from {_place(source)}"]
    return [line for step in lines.values() for line in step]


def _bars(why: mnemo.Explanation, longest: float) -> list[str]:
    """A line with a bar for each group of reasons: ``+`` for what it adds, ``-`` what it takes."""
    lines = []
    for group, signals in why.grouped.items():
        value = sum(signals.values())
        told = ", ".join(f"{name} {part:+.2f}" for name, part in signals.items())
        bar = "+-"[value < 0] * round(24 * abs(value) / longest)
        lines.append(f"     {group:<15}{value:+6.2f} {bar:<24} {told}")
    return lines


def _place(source: mnemo.SourceRef) -> str:
    where = f"{source.session_id}#{source.step_index}" if source.session_id else str(source.key)
    who = ", ".join(str(part) for part in (source.actor, source.at) if part)
    return one_line(f"{where} ({who}): {source.text}" if who else f"{where}: {source.text}")


# ── Maintenance ─────────────────────────────────────────────────────────────────────────


def maintenance_told(report: mnemo.MaintenanceReport) -> str:
    """One line of what an operation did."""
    found = {
        "grounded": report.grounded,
        "weak": report.penalized,
        "without evidence": report.orphaned,
    }
    done = {"merged": len(report.merged), "deleted": report.deleted}
    counts = found if report.operation == "validate" else done
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    if report.damaged:
        said += f", {counted(len(report.damaged), 'damaged row')} passed by"
    return f"{report.operation}: {report.checked} checked, {said} ({report.duration_s:.1f} s)"


# ── Erasing and moving ──────────────────────────────────────────────────────────────────


def confirm(question: str, *, yes: bool) -> None:
    """
    Ask on the terminal, unless *yes*.

    *Raises* ``UsageError``: there is no terminal; ``typer.Abort``: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise mnemo.UsageError("nobody is there to be asked: say --yes to erase for good")
    typer.confirm(question, abort=True, err=True)


def erasure_told(report: mnemo.ErasureReport, *, dry_run: bool) -> str:
    """What was erased, and what may be left of it; or what would be."""
    if report.is_empty:
        return "Nothing was there to forget."
    left = (
        "" if report.scrubbed or dry_run else "; bytes are left in the file until it is rewritten"
    )
    if report.unconfirmed:
        left += f"; copies may be left on {', '.join(report.unconfirmed)}"
    gone = ("steps", "messages", "nodes", "vectors", "notes", "sessions")
    counts = ", ".join(counted(getattr(report, what), what[:-1]) for what in gone)
    told = (
        f"{'Nothing was erased. Would erase' if dry_run else 'Erased'} {counts}; "
        f"{counted(report.facts_changed, 'fact')} changed, "
        f"{counted(report.facts_restored, 'holds', 'hold')} again{left}."
    )
    lines = [told, *(f"- {one_line(text)}" for text in report.texts)]
    if report.mixed_notes:
        topics = ", ".join(report.mixed_notes)
        lines.append(f"Notes that rest on other sources too, and may still tell of it: {topics}")
    return "\n".join(lines)


def bar_of(*columns: ProgressColumn) -> Progress:
    """A bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def texts_progress() -> Iterator[Callable[[int, int], None]]:
    """A bar of embedded texts: called with how many are, and how many there are to be."""
    began = elapsed()
    with bar_of(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()) as bar:
        task = bar.add_task("Embedding", total=None)

        def show(done: int, total: int) -> None:
            pace = done / max(elapsed() - began, 1e-3)
            told = f"Embedding: {pace:.0f} texts/s, {total - done} left"
            bar.update(task, description=told, completed=done, total=total)

        yield show


def move_told(report: mnemo.ReembeddingReport, repo: str) -> str:
    """One line of where the repository is now."""
    if report.after is None:
        return f"Repository {repo!r} has no vectors."
    if not report.vectors:
        return f"Repository {repo!r} is in {report.after} already."
    return (
        f"Repository {repo!r} moved to {report.after}: {counted(report.vectors, 'vector')}, "
        f"{report.embedded} of them made now ({report.duration_s:.1f} s)."
    )

"""Erasing and moving for the command line: what is asked before, what is told after."""

from __future__ import annotations

import sys

import typer

from mnemo import ErasureReport, ReembeddingReport, UsageError

__all__ = ["confirm", "erasure_told", "move_told", "selected"]


def confirm(question: str, *, yes: bool) -> None:
    """
    Ask on the terminal, unless *yes*.

    Raises:
        UsageError: There is no terminal, and nobody said ``--yes``.
        typer.Abort: The answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to be asked: say --yes to erase for good")
    typer.confirm(question, abort=True, err=True)


def selected(session: str | None, thread: str | None, before: str | None) -> str:
    """In words, what would be erased."""
    named = (("session", session), ("thread", thread))
    whose = " and ".join(f"{what} {id!r}" for what, id in named if id is not None)
    whose = whose or "everything"
    return whose if before is None else f"{whose} before {before}"


def erasure_told(report: ErasureReport) -> str:
    """What was erased, and what may be left of it."""
    if report.is_empty:
        return "Nothing was there to forget."
    left = "" if report.scrubbed else "; bytes are left until nobody reads an older state"
    told = (
        f"Erased {report.steps} steps, {report.messages} messages, {report.nodes} nodes, "
        f"{report.vectors} vectors and {report.notes} notes; "
        f"{report.sessions} sessions are gone, {report.facts_changed} facts changed, "
        f"{report.facts_restored} hold again{left}."
    )
    if not report.mixed_notes:
        return told
    topics = ", ".join(report.mixed_notes)
    return f"{told}\nNotes that rest on other sources too, and may still tell of it: {topics}"


def move_told(report: ReembeddingReport, repo: str) -> str:
    """One line of where the repository is now."""
    if report.after is None:
        return f"Repository {repo!r} has no vectors."
    if not report.vectors:
        return f"Repository {repo!r} is in {report.after} already."
    return (
        f"Repository {repo!r} moved to {report.after}: {report.vectors} vectors, "
        f"{report.embedded} of them made now ({report.duration_s:.1f} s)."
    )

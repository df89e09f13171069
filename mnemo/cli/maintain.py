"""Maintenance for the command line: which operations run, and what is told of them."""

from __future__ import annotations

from collections.abc import Collection

from mnemo import MaintenanceReport, Repository

__all__ = ["OPERATIONS", "maintained", "told"]

OPERATIONS = ("validate", "consolidate", "decay")
"""In this order: the penalties of the first weigh in the scores of the others."""


async def maintained(repo: Repository, chosen: Collection[str]) -> list[MaintenanceReport]:
    """Run the *chosen* operations, all if there is none, one after another."""
    calls = {"validate": repo.validate, "consolidate": repo.consolidate, "decay": repo.decay}
    return [await calls[name]() for name in OPERATIONS if name in chosen or not chosen]


def told(report: MaintenanceReport) -> str:
    """One line of what an operation did."""
    found = {
        "grounded": report.grounded,
        "weak": report.penalized,
        "without evidence": report.orphaned,
    }
    done = {"merged": len(report.merged), "deleted": report.deleted}
    counts = found if report.operation == "validate" else done
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{report.operation}: {report.checked} checked, {said} ({report.duration_s:.1f} s)"

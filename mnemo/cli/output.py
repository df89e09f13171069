"""What commands print: JSON for machines, plain lines for people; errors on stderr."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import typer

from mnemo import Candidate, RecallResult, SessionRecord, SourceRef
from mnemo._text import one_line
from mnemo.protocols import StoreReport

__all__ = [
    "as_data",
    "complain",
    "print_json",
    "print_line",
    "recall_data",
    "report_data",
    "session_data",
    "visible",
]

# Stored text must not steer the terminal that it is shown on.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_line(text: str = "") -> None:
    """Print for a person, control characters made visible."""
    typer.echo(visible(text))


def visible(text: str) -> str:
    """*text* with the control characters, but for line ends and tabs, replaced by a mark."""
    return _CONTROLS.sub("\ufffd", text)


def complain(text: str) -> None:
    """Say on stderr what is wrong, in one line."""
    typer.echo(f"mnemo: {_CONTROLS.sub(' ', one_line(text))}", err=True)


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


def session_data(record: SessionRecord) -> dict[str, Any]:
    """A session's line."""
    return {
        "id": record.id,
        "goal": record.goal,
        "state": str(record.state),
        "steps": record.steps,
        "updated_at": record.updated_at,
    }


def recall_data(query: str, result: RecallResult) -> dict[str, Any]:
    """A recall and its candidates, best first."""
    return {
        "query": query,
        "mode": result.mode,
        "tags": list(result.tags),
        "candidates": [_candidate_data(candidate) for candidate in result.candidates],
        "text": result.as_text(),
        "seconds": result.trace.seconds,
        "degraded": result.trace.degraded,
    }


def _candidate_data(candidate: Candidate) -> dict[str, Any]:
    return {
        "id": candidate.node.id,
        "type": candidate.node.type,
        "text": candidate.node.text,
        "score": candidate.score,
        "relevance": candidate.relevance,
        "phase": candidate.phase,
        "hop": candidate.hop,
        "sources": [_source_data(source) for source in candidate.sources],
    }


def _source_data(source: SourceRef) -> dict[str, Any]:
    return {f.name: getattr(source, f.name) for f in dataclasses.fields(source)}


def report_data(report: StoreReport) -> dict[str, Any]:
    """What ``doctor`` found."""
    return {
        "healthy": not report.problems,
        "problems": list(report.problems),
        "counts": dict(report.counts),
        "schema_version": report.schema_version,
        "synchronous": report.synchronous,
    }

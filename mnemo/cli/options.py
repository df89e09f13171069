"""Options that several commands share, and what they are read into."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from mnemo import UsageError

__all__ = ["AsJson", "Repo", "Store", "time_of"]

Store = Annotated[
    str,
    typer.Option("--store", envvar="MNEMO_STORE", help="The store's file.", show_default=True),
]
Repo = Annotated[str, typer.Option("--repo", help="The repository in it.", show_default=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]


def time_of(text: str | None) -> datetime | None:
    """An ISO 8601 time. *Raises* ``UsageError``: it is none."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no ISO 8601 time, such as 2026-03-01") from None

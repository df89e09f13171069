"""What a repository's recall log keeps of one recall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mnemo.runtime.text import shown


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RecallRecord:
    """
    One question that was asked, and what answered it then.

    Attributes:
        at: When it was asked, aware.
        arguments: What the call said besides, as JSON: filters, ``k``, ``mode`` and the like;
            defaults are left out.
        candidates: The first 100, best first: ``id``, ``type``, ``score`` and ``text``, of at most
            1,000 characters; of a keyed item ``""``.
        text: ``RecallResult.as_text()`` without notes and keyed items, of at most 16,384
            characters.
        milliseconds: That the recall took.
        caller: Over HTTP the name of the token; ``None``: not known.
    """

    at: datetime
    query: str
    arguments: Mapping[str, Any]
    candidates: tuple[dict[str, Any], ...]
    text: str
    milliseconds: float
    caller: str | None = None

    def __repr__(self) -> str:
        return f"<RecallRecord {self.at:%Y-%m-%d %H:%M} {shown(self.query)!r}>"

"""Notes as values: what is shown of them, their versions, and what an update did to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

__all__ = ["Author", "ChangeAction", "Note", "NoteChange", "NoteInfo", "NoteVersion", "Trust"]

Author: TypeAlias = Literal["model", "rule", "agent", "application", "import", "undo"]
"""Who made a version."""
Trust: TypeAlias = Literal[
    "stated", "inferred", "observed", "unquoted", "application", "imported", ""
]
"""
What a version rests on: a user's words, an assistant's, a tool's output, nothing that was
quoted, the application's own authority, a file. ``""``: of a deletion that says nothing.
"""
ChangeAction: TypeAlias = Literal["created", "updated", "merged", "deleted", "restored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteInfo:
    """
    A note without its text.

    Attributes:
        topic: Lower-case words joined by hyphens; its name.
        last_read_at: When it was last read or recalled; ``None``: never.
        version: Counts from 1, across deletions.
        size: Of the body, in code points.
    """

    topic: str
    description: str
    updated_at: datetime
    last_read_at: datetime | None
    version: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(NoteInfo):
    """A note with its text, a body of Markdown; *trust* is that of its latest version."""

    body: str
    created_at: datetime
    trust: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersion:
    """
    One version of a note; a deletion is one too, without text.

    Attributes:
        update_id: The update that made it, where one did; *task_id* likewise.
        message_ids: Messages of *thread_id* that *evidence* was found in.
        evidence: The words that it rests on, copied from those messages.
        reason: Why it was deleted or made, where that was said.
    """

    topic: str
    version: int
    action: ChangeAction
    body: str
    description: str
    at: datetime
    by: Author
    update_id: str | None = None
    task_id: str | None = None
    session_id: str | None = None
    thread_id: str | None = None
    message_ids: tuple[str, ...] = ()
    evidence: str = ""
    trust: Trust = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChange:
    """What was done to one note, and the version that it gave."""

    topic: str
    action: ChangeAction
    version: int
    by: Author

"""Notes as values: what is shown of them, their versions, and what an update did to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from mnemo.values.chat import Usage

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


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRow:
    """
    A note as it is now; a deleted one keeps its row, without texts.

    Attributes:
        deleted_by: Who deleted it; ``None``: it is there.
    """

    topic: str
    version: int
    description: str
    body: str
    created_at: datetime
    updated_at: datetime
    last_read_at: datetime | None
    trust: Trust
    deleted_by: Author | None = None

    @property
    def is_there(self) -> bool:
        """Whether it has not been deleted."""
        return self.deleted_by is None

    @property
    def info(self) -> NoteInfo:
        """What a list shows of it."""
        return NoteInfo(
            topic=self.topic,
            description=self.description,
            updated_at=self.updated_at,
            last_read_at=self.last_read_at,
            version=self.version,
            size=len(self.body),
        )

    @property
    def note(self) -> Note:
        """All that is shown of it."""
        return Note(
            topic=self.topic,
            description=self.description,
            updated_at=self.updated_at,
            last_read_at=self.last_read_at,
            version=self.version,
            size=len(self.body),
            body=self.body,
            created_at=self.created_at,
            trust=self.trust,
        )

    @property
    def text(self) -> str:
        """What it is found by, and its vector made of."""
        return f"{self.topic.replace('-', ' ')}\n{self.description}\n{self.body}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What became of an explicit request: the note that holds it, or why none does."""

    topic: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRow:
    """
    What is known of a conversation's updates.

    Attributes:
        ended_at: When the last one with a model ended, failed or not.
        part: The part that the latest failures were over; *failures* in a row.
    """

    key: str
    ended_at: datetime | None = None
    part: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one call of a model cost."""

    update_id: str
    task_id: str | None
    session_id: str | None
    at: datetime
    usage: Usage
    purpose: str = "update_notes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedNoteRows:
    """How many rows an erasure deleted."""

    versions: int = 0
    fulltext_rows: int = 0
    vectors: int = 0

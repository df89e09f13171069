"""What the lines of notes must look like, and the records that they become."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from mnemo.episode.archive_notes import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
)
from mnemo.episode.archive_shapes import Id, Shape, Time
from mnemo.note.rows import Covered, NoteRow
from mnemo.note.rules import checked_body, checked_description, checked_topic
from mnemo.note.values import NoteChange, NoteVersion
from mnemo.runtime.validation import MOST_NUMBER

__all__ = ["NOTE_SHAPES"]

MOST_BODY, MOST_DESCRIPTION = 4_000, 200
"""Code points that any configuration allows."""

Topic: TypeAlias = Annotated[str, AfterValidator(checked_topic)]
Number: TypeAlias = Annotated[int, Field(ge=1, le=MOST_NUMBER)]
AuthorName: TypeAlias = Literal["model", "rule", "agent", "application", "import", "undo"]
TrustName: TypeAlias = Literal[
    "stated", "inferred", "observed", "unquoted", "application", "imported", ""
]
ActionName: TypeAlias = Literal["created", "updated", "merged", "deleted", "restored"]


def _check_texts(description: str, body: str, *, deleted: bool) -> None:
    """A text from a file is one that could have been written here, or there is none."""
    if deleted:
        if description or body:
            raise ValueError("what is deleted has no texts")
    elif (description, body) != (
        checked_description(description, MOST_DESCRIPTION),
        checked_body(body, MOST_BODY),
    ):
        raise ValueError("its texts hold hidden characters or outer blanks")


class _Note(Shape):
    topic: Topic
    version: Number
    description: str
    body: str
    created_at: Time
    updated_at: Time
    last_read_at: Time | None
    trust: TrustName
    deleted_by: AuthorName | None

    def record(self) -> NoteRow:
        _check_texts(self.description, self.body, deleted=self.deleted_by is not None)
        # Not model_dump: the fields are all that there is, by their names.
        return NoteRow(**dict(self))


class _NoteVersion(Shape):
    topic: Topic
    version: Number
    action: ActionName
    body: str
    description: str
    at: Time
    by: AuthorName
    update: Id | None
    task: str | None
    session: str | None
    thread: str | None
    messages: list[str]
    evidence: str
    trust: TrustName
    reason: str

    def record(self) -> NoteVersion:
        _check_texts(self.description, self.body, deleted=self.action == "deleted")
        return NoteVersion(
            topic=self.topic,
            version=self.version,
            action=self.action,
            body=self.body,
            description=self.description,
            at=self.at,
            by=self.by,
            update_id=self.update,
            task_id=self.task,
            session_id=self.session,
            thread_id=self.thread,
            message_ids=tuple(self.messages),
            evidence=self.evidence,
            trust=self.trust,
            reason=self.reason,
        )


class _NoteChange(Shape):
    update: Id | None
    topic: Topic
    action: ActionName
    version: Number
    by: AuthorName

    def record(self) -> ArchivedNoteChange:
        change = NoteChange(topic=self.topic, action=self.action, version=self.version, by=self.by)
        return ArchivedNoteChange(update_id=self.update, change=change)


class _NoteMark(Shape):
    key: Id

    def record(self) -> ArchivedNoteMark:
        return ArchivedNoteMark(key=self.key)


class _NoteRequest(Shape):
    digest: Id
    topic: Topic | None
    refused: str | None

    def record(self) -> ArchivedNoteRequest:
        covered = Covered(topic=self.topic, refused=self.refused)
        return ArchivedNoteRequest(digest=self.digest, covered=covered)


class _NoteTask(Shape):
    id: str

    def record(self) -> ArchivedNoteTask:
        return ArchivedNoteTask(task_id=self.id)


NOTE_SHAPES: dict[str, type[Shape]] = {
    "note": _Note,
    "note_version": _NoteVersion,
    "note_change": _NoteChange,
    "note_mark": _NoteMark,
    "note_request": _NoteRequest,
    "note_task": _NoteTask,
}
"""By the kind of record."""

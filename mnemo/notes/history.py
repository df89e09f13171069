"""Going back: an old version made the present one, and an update taken back as a whole."""

from __future__ import annotations

from dataclasses import replace

from mnemo.config import NotesConfig
from mnemo.errors import Conflict, NotFound
from mnemo.note.rows import NoteReader, NoteRow, NoteWriter
from mnemo.note.values import NoteChange, NoteVersion
from mnemo.notes.writing import NoteText, Source, Write, present, retire, version_of, write

__all__ = ["restore", "undo"]


def restore(
    tx: NoteWriter, topic: str, version: int, source: Source, config: NotesConfig
) -> NoteRow:
    """
    Write an old version as a new one; it also revives a deleted note.

    Raises:
        NotFound: There never was such a note, or the version is not kept.
        InvalidNote: ``no_text``: the version is a deletion; ``too_many_notes``.
    """
    row = present(tx, topic)
    if row is None:
        raise NotFound("note", topic)
    old = version_of(tx.versions(topic), topic, version)
    return _written_again(tx, old, source, config)


def _written_again(
    tx: NoteWriter, old: NoteVersion, source: Source, config: NotesConfig
) -> NoteRow:
    reason = f"version {old.version} again"
    change = Write(
        text=NoteText(topic=old.topic, description=old.description, body=old.body),
        source=replace(source, trust=old.trust, reason=reason),
        action="restored",
    )
    return write(tx, change, config).row


def undo(tx: NoteWriter, update_id: str, source: Source, config: NotesConfig) -> list[NoteChange]:
    """
    Take back all that an update did: what it made is retired, the rest is as it was before.

    Raises:
        NotFound: No update of this id changed anything.
        Conflict: Notes have been changed since, or their former text is not kept; nothing
            was touched.
    """
    first, last = _span(tx.changes(update_id))
    if not first:
        raise NotFound("update", update_id)
    since = [topic for topic in last if _version_now(tx, topic) != last[topic]]
    if since:
        raise Conflict(f"changed since that update: {', '.join(sorted(since))}; nothing was undone")
    before = {topic: _before(tx, topic, number) for topic, number in first.items()}
    # What was made goes first: it may stand in the place of what comes back.
    for topic, old in before.items():
        if old is None and _is_there(tx, topic):
            retire(tx, topic, replace(source, reason=f"undoes {update_id}"), config)
    for old in filter(None, before.values()):
        _written_again(tx, old, source, config)
    assert source.update_id is not None
    return tx.changes(source.update_id)


def _span(changes: list[NoteChange]) -> tuple[dict[str, int], dict[str, int]]:
    """The first and the last version that an update made of each topic."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for change in changes:
        first.setdefault(change.topic, change.version)
        last[change.topic] = change.version
    return first, last


def _version_now(tx: NoteReader, topic: str) -> int:
    row = present(tx, topic)
    return row.version if row is not None else 0


def _is_there(tx: NoteReader, topic: str) -> bool:
    row = present(tx, topic)
    return row is not None and row.is_there


def _before(tx: NoteReader, topic: str, first: int) -> NoteVersion | None:
    """What the note was before its version *first*; ``None``: it was not there."""
    if first == 1:
        return None
    found = next((v for v in tx.versions(topic) if v.version == first - 1), None)
    if found is None:
        raise Conflict(f"the text of {topic} before that update is not kept; nothing was undone")
    return None if found.action == "deleted" else found

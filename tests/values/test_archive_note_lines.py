"""The lines of notes: what is read back, and what is refused."""

import json
from collections import Counter
from typing import Any

import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from values.archive_kit import NOON, TEXTS, TIMES, read_back

from mnemo.errors import InvalidArchive
from mnemo.runtime.text import is_blank
from mnemo.values.archive import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
    ArchiveHead,
)
from mnemo.values.archive_lines import ArchiveReader, head_line, record_lines
from mnemo.values.entities import KINDS
from mnemo.values.notes import Covered, NoteChange, NoteRow, NoteVersion, plain_text

BODIES = (
    st.text(max_size=200)
    .map(lambda text: plain_text(text).strip())
    .filter(lambda text: not is_blank(text) and not text.startswith("---"))
)
DESCRIPTIONS = BODIES.filter(lambda text: len(text.splitlines()) == 1)


def round_trip(*records: Any) -> list[Any]:
    """*records*, through the lines of an archive."""
    of = {kind: name for name, kind in KINDS.items()}
    counts = dict.fromkeys(KINDS, 0) | Counter(of[type(record)] for record in records)
    return read_back(head_line(ArchiveHead(revision=0, counts=counts)), *record_lines(records))


def note(**values: Any) -> NoteRow:
    """A note of noon, unless told otherwise."""
    given: dict[str, Any] = {"topic": "trips", "version": 3, "description": "about", "body": "- x"}
    times = {"created_at": NOON, "updated_at": NOON, "last_read_at": None}
    return NoteRow(**{**given, **times, "trust": "stated", **values})


def version(**values: Any) -> NoteVersion:
    """A version, unless told otherwise."""
    given: dict[str, Any] = {"topic": "trips", "version": 3, "action": "updated", "body": "- x"}
    return NoteVersion(**{**given, "description": "about", "at": NOON, "by": "model", **values})


@settings(max_examples=examples(60))
@given(body=BODIES, description=DESCRIPTIONS, at=TIMES, read=st.none() | TIMES)
def test_a_note_is_read_back_as_it_was(body, description, at, read):
    """Texts of every script, times with their zones."""
    row = note(body=body, description=description, created_at=at, last_read_at=read)
    (found,) = round_trip(row)
    assert found == row
    assert found.created_at.utcoffset() == at.utcoffset()


@settings(max_examples=examples(60))
@given(
    body=BODIES, evidence=TEXTS, ids=st.lists(TEXTS, max_size=3), name=st.none() | TEXTS, at=TIMES
)
def test_a_version_is_read_back_with_its_provenance(body, evidence, ids, name, at):
    """Thread, messages, session, task and the words that it rests on."""
    whole = version(
        body=body,
        at=at,
        evidence=evidence,
        message_ids=tuple(ids),
        thread_id=name,
        session_id=name,
        task_id=name,
        update_id="u",
        reason=evidence,
        trust="observed",
    )
    assert round_trip(whole) == [whole]


def test_everything_else_is_read_back_as_it_was():
    """Deleted notes and versions, changes of no update, marks, requests, tasks."""
    change = NoteChange(topic="trips", action="merged", version=2, by="undo")
    records = [
        note(body="", description="", trust="", deleted_by="undo"),
        version(action="deleted", body="", description=""),
        ArchivedNoteChange(update_id=None, change=change),
        ArchivedNoteChange(update_id="u", change=change),
        ArchivedNoteMark(key="m:1"),
        ArchivedNoteRequest(digest="d", covered=Covered()),
        ArchivedNoteRequest(digest="e", covered=Covered(topic="trips")),
        ArchivedNoteRequest(digest="f", covered=Covered(refused="secret")),
        ArchivedNoteTask(task_id="k"),
    ]
    assert round_trip(*records) == records


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"topic": "../x"}, "a topic is"),
        ({"topic": "con"}, "a topic is"),
        ({"version": 0}, "version"),
        ({"body": ""}, "a body is"),
        ({"body": "---\nx: y\n---\n"}, "frontmatter"),
        ({"body": " x"}, "outer blanks"),
        ({"description": "a\u202eb"}, "hidden characters"),
        ({"description": "x" * 201}, "a description is"),
        ({"trust": "certain"}, "trust"),
        ({"deleted_by": "rule"}, "no texts"),
        ({"updated_at": "2024-01-01"}, "zone"),
        ({"more": 1}, "more"),
    ],
)
def test_a_note_that_could_not_have_been_written_is_refused(values, reason):
    """An archive is a file: what it says of a note is held to the same rules."""
    reader = ArchiveReader()
    head = ArchiveHead(revision=0, counts=dict.fromkeys(KINDS, 0) | {"note": 1})
    reader.head(head_line(head))
    line = json.loads(record_lines([note()])[0]) | values
    with pytest.raises(InvalidArchive, match=reason) as raised:
        reader.records([json.dumps(line)])
    assert raised.value.line == 2

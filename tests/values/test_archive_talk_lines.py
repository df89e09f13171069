"""The lines of conversations: what is read back, what is refused."""

import json
from typing import Any

import numpy as np
import pytest
from contracts.talk import (
    call,
    compaction,
    goal,
    outcome,
    pin,
    result,
    said,
    snapshot,
)
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from values.archive_kit import JSON, NOON, TEXTS, TIMES, read_back

from mnemo.errors import InvalidArchive
from mnemo.values.archive import (
    ArchivedMessage,
    ArchivedStep,
    ArchiveHead,
)
from mnemo.values.archive_lines import head_line, record_lines
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.derived import Thread
from mnemo.values.entities import KINDS
from mnemo.values.messages import StoredMessage
from mnemo.values.steps import Step

CONTENTS = st.none() | TEXTS | st.lists(st.dictionaries(TEXTS, JSON, max_size=2), max_size=2)


def head_of(**counts: int) -> str:
    """The head of so many records."""
    space = EmbeddingSpace("space", 4)
    head = ArchiveHead(revision=3, space=space, counts=dict.fromkeys(KINDS, 0) | counts)
    return head_line(head)


def archived(message: StoredMessage, *, searched: bool = True) -> Any:
    """A message as an archive has it."""
    return ArchivedMessage(message=message, searched=searched)


@settings(max_examples=examples(60))
@given(content=CONTENTS, at=TIMES, arguments=JSON, metadata=JSON, tokens=st.integers(0, 10**12))
def test_a_message_is_read_back_as_it_was(content, at, arguments, metadata, tokens):
    """Content of every form, calls in order, times with their zones, counts of zero too."""
    calls = ({"id": "b", "name": "x"}, {"id": "a", "name": "y", "arguments": arguments})
    message = said(
        7, content=content, role="assistant", tool_calls=calls, at=at, metadata={"": metadata}
    )
    object.__setattr__(message, "token_count", tokens)
    record = archived(message, searched=False)
    (line,) = record_lines([record])
    assert line.isascii()
    (found,) = read_back(head_of(message=1), line)
    assert found == record
    assert found.message.at.utcoffset() == at.utcoffset()
    assert [c.id for c in found.message.tool_calls] == ["b", "a"]
    assert record_lines([found]) == [line]


VECTOR = np.array([1, 0, 0, 0], dtype=np.float32)
RECORDS: dict[str, list[Any]] = {
    "thread": [Thread(id="a"), Thread(id="t", next_seq=9, epoch=2, epoch_start=3, boundary=4,
               budget_tokens=5, ttl_s=0.5, next_goal=6, declined_to=8)],
    "message": [archived(said(0)), archived(call(1, "c"), searched=False),
                archived(result(2, "c", is_error=True, name="look")),
                archived(said(3, "hm", role="assistant", kind="thought", actor="Ana"))],
    "compaction": [compaction(0, 1, superseded_by="x"), compaction(0, 3, level=2, origin="model")],
    "snapshot": [snapshot(0, 1, covered_by="y"), snapshot(0, 3, level=2, text="\u2028お茶")],
    "outcome": [outcome(0, 1, kind="snapshot", snapshot_id="s", attempts=3), outcome(2, 2)],
    "goal": [goal(1), goal(2, parent_id=1, status="completed", completed_at=NOON)],
    "pin": [pin(3, 2, 1)],
}  # fmt: skip
COUNTS = {kind: len(records) for kind, records in RECORDS.items()}
WHOLE = [head_of(**COUNTS), *record_lines([r for rs in RECORDS.values() for r in rs])]
FIRST = {kind: 1 + sum(list(COUNTS.values())[:n]) for n, kind in enumerate(COUNTS)}


def test_every_kind_is_read_back_as_it_was():
    """The same records give the same lines."""
    found = read_back(*WHOLE)
    expected = [record for records in RECORDS.values() for record in records]
    assert found == expected
    assert record_lines(found) == WHOLE[1:]


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        ("thread", {"boundary": 1}, "must not be past next_seq"),
        ("thread", {"ttl_s": -1.0}, "ttl_s: "),
        ("thread", {"next_goal": 0}, "next_goal: "),
        ("message", {"role": "robot"}, "role: "),
        ("message", {"role": "tool"}, "tool_call_id"),
        ("message", {"type": "reply"}, "does not fit"),
        ("message", {"type": "dream"}, "type: "),
        ("message", {"content": ""}, "nothing that could be searched"),
        ("message", {"content": 7}, "content"),
        ("message", {"tool_calls": [["a", "b"]]}, "tool_calls.0: "),
        ("message", {"id": ""}, "id: "),
        ("message", {"seq": -1}, "seq: "),
        ("message", {"at": None}, "at: "),
        ("message", {"tokens": 1.5}, "tokens: "),
        ("message", {"secret": 1}, "secret: "),
        ("compaction", {"start_seq": 2}, "ends before it begins"),
        ("compaction", {"level": 3}, "level: "),
        ("snapshot", {"to_seq": -1}, "to_seq: "),
        ("snapshot", {"origin": "me"}, "origin: "),
        ("outcome", {"type": "lost"}, "type: "),
        ("goal", {"status": "late"}, "status: "),
        ("goal", {"id": 0}, "id: "),
        ("pin", {"goals": ["1"]}, "goals.0: "),
    ],
)
def test_a_broken_line_is_named_with_its_reason(kind, values, reason):
    """Whatever is wrong with it: its number, and what there is to do about it."""
    place = FIRST[kind]
    line = json.dumps(json.loads(WHOLE[place]) | values)
    with pytest.raises(InvalidArchive, match=reason) as raised:
        read_back(*WHOLE[:place], line, *WHOLE[place + 1 :])
    assert raised.value.line == place + 1


STEP = Step(
    session_id="s", episode_id="e", index=0, observation="o", action="", at=NOON, actor="u",
    node_id="n", thread_id="t", message_id="m",
)  # fmt: skip


def test_a_step_names_the_message_that_it_was_made_from():
    """Thread and message come back with it."""
    record = ArchivedStep(step=STEP, committed=False, gone=False)
    assert read_back(head_of(step=1), *record_lines([record])) == [record]


def test_a_message_from_before_it_had_an_extra_is_read():
    """An archive of this version that says nothing of it."""
    message = {k: v for k, v in json.loads(WHOLE[FIRST["message"]]).items() if k != "extra"}
    (record,) = read_back(head_of(message=1), json.dumps(message))
    assert record == RECORDS["message"][0]

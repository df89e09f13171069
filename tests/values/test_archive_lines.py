"""The lines of an archive: what is read back, and what is refused with its line."""

import json
from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from values.archive_kit import JSON, NOON, TEXTS, TIMES, read_back

from mnemo.errors import InvalidArchive, UsageError
from mnemo.values.archive import (
    ArchivedNode,
    ArchivedSession,
    ArchivedStep,
    ArchivedVector,
    ArchiveHead,
)
from mnemo.values.archive_lines import ArchiveReader, head_line, record_lines
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.entities import KINDS
from mnemo.values.graph import NodeMetadata, Semantic
from mnemo.values.journal import SessionState
from mnemo.values.steps import Annotation, Step

SHARES = st.none() | st.floats(0, 1)


def head_of(**counts: int) -> ArchiveHead:
    """A head of so many records."""
    space = EmbeddingSpace("space", 4)
    return ArchiveHead(revision=3, space=space, counts=dict.fromkeys(KINDS, 0) | counts)


def vector(*values: float) -> Any:
    """The direction of *values*."""
    row = np.array(values, dtype=np.float32)
    return row / np.float32(np.linalg.norm(row))


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(texts=st.tuples(TEXTS, TEXTS, TEXTS), at=TIMES, reward=SHARES, metadata=JSON)
def test_a_step_is_read_back_as_it_was(texts, at, reward, metadata):
    """Whatever is said, whenever and wherever: text, time, numbers and metadata are exact."""
    annotation = Annotation(
        index=4, state=None, subgoal=texts[2], reward=reward, trajectory_id="t",
        vector=vector(1, 2, 3, 0.1), embedded=True,
    )  # fmt: skip
    step = Step(
        session_id="s", episode_id="e", index=4, observation=texts[0], action=texts[1], at=at,
        actor=texts[2], node_id="n", key=None, metadata={"": metadata}, annotation=annotation,
    )  # fmt: skip
    (line,) = record_lines([ArchivedStep(step=step, committed=True, gone=False)])
    assert line.isascii()
    assert line.index("\n") == len(line) - 1
    (found,) = read_back(head_line(head_of(step=1)), line)
    assert found == ArchivedStep(step=step, committed=True, gone=False)
    assert found.step.at.utcoffset() == at.utcoffset()
    assert found.step.annotation.vector.tobytes() == annotation.vector.tobytes()
    assert record_lines([found]) == [line]


@settings(max_examples=examples(60))
@given(text=TEXTS, at=TIMES, counts=st.tuples(*[st.integers(0, 9)] * 2), reward=st.floats(0, 9))
def test_a_node_is_read_back_as_it_was(text, at, counts, reward):
    """A field at its default is left out, one that is None where the default is not stays None."""
    node = Semantic(text, None, at, id="f", created_at=at)  # type: ignore[arg-type]
    metadata = NodeMetadata(
        created_at=NOON, access_count=counts[0], reward_count=counts[1], cumulative_reward=reward
    )
    record = ArchivedNode(node=node, metadata=metadata, revision=3)
    (line,) = record_lines([record])
    assert "superseded_by" not in line
    assert read_back(head_line(head_of(node=1)), line) == [record]


SESSION = ArchivedSession(id="s", state=SessionState.IDLE, updated_at=NOON)
STEP = ArchivedStep(
    step=Step(
        session_id="s", episode_id="e", index=0, observation="o", action="", at=NOON,
        actor="u", node_id="n",
    ),
    committed=False,
    gone=False,
)  # fmt: skip
NODE = ArchivedNode(
    node=Semantic("f", id="f", created_at=NOON), metadata=NodeMetadata(created_at=NOON), revision=1
)
VECTOR = ArchivedVector(key="f", vector=vector(1, 0, 0, 0))
WHOLE = [
    head_line(head_of(session=1, step=1, node=1, vector=1)),
    *record_lines([SESSION, STEP, NODE, VECTOR]),
]


def changed(number: int, **values: Any) -> list[str]:
    """WHOLE, with other values in one line; ``...`` takes a field away."""
    data = json.loads(WHOLE[number - 1]) | values
    kept = {name: value for name, value in data.items() if value is not ...}
    return [*WHOLE[: number - 1], json.dumps(kept), *WHOLE[number:]]


def inside(number: int, name: str, **values: Any) -> list[str]:
    """The same, of an object in the line."""
    return changed(number, **{name: json.loads(WHOLE[number - 1])[name] | values})


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        ([*WHOLE[:3], ""], 4, "not JSON"),
        ([*WHOLE[:3], "[1]"], 4, "no JSON object"),
        ([*WHOLE[:3], "[" * 100_000], 4, "not JSON"),
        ([*WHOLE[:3], WHOLE[3].replace("0.8", "NaN").replace('"f"', "NaN")], 4, "NaN"),
        ([*WHOLE[:2], WHOLE[2].replace('"o"', '"\\ud800"')], 3, "surrogate"),
        ([*WHOLE[:2], WHOLE[2].replace('"o"', '"\udcff"')], 3, "surrogate"),
        (WHOLE[:3], 4, "2 more|1 more of kind 'node'"),
        ([*WHOLE, WHOLE[4]], 6, "no further line"),
        ([WHOLE[0], WHOLE[2]], 2, "'session' is due"),
        (changed(2, kind="dream"), 2, "dream"),
        (changed(2, kind=...), 2, "None"),
        (changed(2, id=""), 2, "id: "),
        (changed(2, id=...), 2, "id: "),
        (changed(2, id=7), 2, "id: "),
        (changed(2, id="x" * 513), 2, "id: .*512 bytes"),
        (changed(3, node_id="é" * 257), 3, "node_id: .*512 bytes"),
        (changed(3, thread="x" * 513), 3, "thread: .*512 bytes"),
        (changed(3, key="x" * 1026), 3, "key: .*1025 bytes"),
        (changed(2, secret=1), 2, "secret: "),
        (changed(2, state="asleep"), 2, "state: "),
        (changed(2, updated_at="yesterday"), 2, "updated_at: "),
        (changed(2, updated_at="2024-03-01T12:00:00"), 2, "zone"),
        (changed(2, updated_at=7), 2, "updated_at: "),
        (changed(3, index=-1), 3, "index: "),
        (changed(3, index=True), 3, "index: "),
        (changed(3, metadata=[]), 3, "metadata: "),
        (changed(3, committed=1), 3, "committed: "),
        (changed(3, annotation={}), 3, "annotation.state: "),
        (changed(4, type="dream"), 4, "type: "),
        (changed(4, type="item"), 4, "type: "),
        (changed(4, revision=4), 4, "past that of the head"),
        (changed(4, fields=[]), 4, "fields: "),
        (inside(4, "fields", proposition=None), 4, "fields.proposition: "),
        (inside(4, "fields", created_at=None), 4, "needs 'created_at'"),
        (inside(4, "fields", label="x"), 4, "fields.label: "),
        (inside(4, "fields", confidence="high"), 4, "fields.confidence: "),
        (inside(4, "fields", valid_to="soon"), 4, "fields.valid_to: "),
        (inside(4, "counts", penalty=1), 4, "counts.penalty: "),
        (inside(4, "counts", access_count=-1), 4, "counts.access_count: "),
        (changed(5, vector="!"), 5, "base64"),
        (changed(5, vector="AAAA"), 5, "float32"),
        (changed(5, vector=None), 5, "must be text"),
        (changed(5, vector="AACAPwAAgD8AAIA/AACAPw=="), 5, "length 1"),
        (changed(5, vector="AACAPw=="), 5, "1 dimensions, not 4"),
        (changed(1, format="other"), 1, "no head"),
        (changed(1, version=2), 1, "format version 2, this mnemo reads up to 1"),
        (changed(1, version=[2]), 1, r"format version \[2\], this mnemo reads up to 1"),
        (changed(1, version=True), 1, "version: "),
        (changed(1, format="mnemo-repository"), 1, "development version .*convert_archive"),
        (changed(1, revision=-1), 1, "revision: "),
        (changed(1, space={"name": "x"}), 1, "space.dimensions: "),
        (changed(1, counts={"step": 1}), 1, "counts must name"),
        (["null"], 1, "no JSON object"),
        ([b"{}"], 1, "must be text, not bytes"),
    ],
)
def test_a_broken_line_is_named_with_its_reason(lines, line, reason):
    """Whatever is wrong with it: its number, and what there is to do about it."""
    with pytest.raises(InvalidArchive, match=reason) as raised:
        read_back(*lines)
    assert raised.value.line == line
    assert isinstance(raised.value, UsageError | ValueError)


def test_what_is_whole_is_read():
    """The lines that the broken ones are made of are fine themselves."""
    assert record_lines(read_back(*WHOLE)) == WHOLE[1:]
    with pytest.raises(InvalidArchive, match="nothing in it"):
        ArchiveReader().head(None)


def test_ids_of_the_greatest_length_are_read():
    """Also where a store makes a key of two: of a thread's step, and of a step's vector."""
    lines = changed(3, key="x" * 1025, node_id="é" * 256)
    assert read_back(*lines)[1].step.key == "x" * 1025
    key = "é" * 256 + "/observation"
    assert read_back(*changed(5, key=key))[3].key == key


def test_what_no_store_can_keep_is_replaced():
    """U+0000 in a text, as everywhere at the door."""
    step = read_back(*changed(3, observation="a\0b", metadata={"k": "\0"}))[1].step
    assert (step.observation, step.metadata) == ("a\ufffdb", {"k": "\ufffd"})

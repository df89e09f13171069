"""The rows of an archive: what comes back of them, and what is refused with its line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import pytest
from contracts.archive import filled, lines_of, of
from contracts.archive_notes import noted
from contracts.archive_talk import talk
from contracts.checkpoints import checkpointed
from contracts.items import item, put
from contracts.notes import row as row_of_note
from contracts.notes import version_of
from contracts.talk import said
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from world import SPACE, opened, unit_vector

from mnemo.errors import InvalidArchive, UsageError
from mnemo.runtime.text import clean
from mnemo.store import tables
from mnemo.store.archive import LinesReader
from mnemo.store.table import Table
from mnemo.stores import KINDS
from mnemo.values.archive import ArchiveHead
from mnemo.values.codec import stored_node
from mnemo.values.fields import getter
from mnemo.values.graph import NodeMetadata, Semantic
from mnemo.values.steps import Annotation, Step

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
TEXTS = st.text().map(clean)
TIMES = st.datetimes(
    min_value=datetime(1, 1, 2),
    max_value=datetime(9999, 12, 30),
    timezones=st.integers(-86_399, 86_399).map(lambda s: timezone(timedelta(seconds=s))),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
HEAD = ArchiveHead(revision=9, space=SPACE)


def owned(table: Table[Any], value: Any) -> tuple[Any, ...]:
    """What ``table.rows`` reads: the ids of its owners, and the columns."""
    owners = [field for field in table.entity.fields if field.name in table.entity.owners]
    return (*getter(field.path for field in owners)(value), *table.values(value))


def through(kind: str, *row: Any) -> list[Any]:
    """*row* through a line and back."""
    (line,) = KINDS[kind].rows(HEAD).all([row])
    assert line.isascii()
    assert line.index("\n") == len(line) - 1
    found = KINDS[kind].row(json.loads(line))
    KINDS[kind].value(found, HEAD)
    assert found == [*row]
    return found


# ── What comes back ──────────────────────────────────────────────────────────────────


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    texts=st.tuples(TEXTS, TEXTS, TEXTS),
    at=TIMES,
    reward=st.none() | st.floats(0, 1),
    metadata=JSON,
)
def test_a_step_is_read_back_as_it_was(texts, at, reward, metadata):
    """Whatever is said, whenever and wherever: text, time, numbers and metadata are exact."""
    annotation = Annotation(
        index=4, state=None, subgoal=texts[2], reward=reward, trajectory_id="t",
        vector=unit_vector(1, 2, 3, 0.1), embedded=True,
    )  # fmt: skip
    step = Step(
        session_id="s", episode_id="e", index=4, observation=texts[0], action=texts[1], at=at,
        actor=texts[2], node_id="n", key=None, metadata={"": metadata}, annotation=annotation,
    )  # fmt: skip
    annotated = tables.ANNOTATIONS.values(annotation)
    row = through("step", *owned(tables.STEPS, step), 1, 0, *annotated)
    left = len(row) - len(annotated)
    found = tables.STEPS.rows.one([*row[: left - 2], 0, *row[left:]])
    assert found == step
    assert found.at.utcoffset() == at.utcoffset()


@settings(max_examples=examples(60))
@given(text=TEXTS, at=TIMES, counts=st.tuples(*[st.integers(0, 9)] * 2), reward=st.floats(0, 9))
def test_a_node_is_read_back_as_it_was(text, at, counts, reward):
    """A field at its default is left out, one that is None where the default is not stays None."""
    node = Semantic(text, None, at, id="f", created_at=at)  # type: ignore[arg-type]
    metadata = NodeMetadata(
        created_at=NOON, access_count=counts[0], reward_count=counts[1], cumulative_reward=reward
    )
    row = through("node", *tables.NODES.values(stored_node(node, metadata)), 3)
    assert KINDS["node"].value(row, HEAD) == node


@settings(max_examples=examples(60))
@given(
    content=st.none() | TEXTS | st.lists(st.dictionaries(TEXTS, JSON, max_size=2), max_size=2),
    at=TIMES,
    arguments=JSON,
    metadata=JSON,
    tokens=st.integers(0, 10**12),
)
def test_a_message_is_read_back_as_it_was(content, at, arguments, metadata, tokens):
    """Content of every form, calls in order, times with their zones, counts of zero too."""
    calls = ({"id": "b", "name": "x"}, {"id": "a", "name": "y", "arguments": arguments})
    message = said(
        7, content=content, role="assistant", tool_calls=calls, at=at, metadata={"": metadata}
    )
    object.__setattr__(message, "token_count", tokens)
    found = tables.MESSAGES.rows.one(through("message", *owned(tables.MESSAGES, message), 0))
    assert found == message
    assert found.at.utcoffset() == at.utcoffset()
    assert [c.id for c in found.tool_calls] == ["b", "a"]


@settings(max_examples=examples(60))
@given(evidence=TEXTS, ids=st.lists(TEXTS, max_size=3), name=st.none() | TEXTS, at=TIMES)
def test_a_version_is_read_back_with_its_provenance(evidence, ids, name, at):
    """Thread, messages, session, task and the words that it rests on."""
    whole = version_of(
        row_of_note(),
        at=at,
        evidence=evidence,
        message_ids=tuple(ids),
        thread_id=name,
        session_id=name,
        task_id=name,
        reason=evidence,
    )
    row = through("note_version", *owned(tables.NOTE_VERSIONS, whole))
    assert tables.NOTE_VERSIONS.rows.one(row) == whole


def test_ids_of_the_greatest_length_are_read():
    """Also where a store makes a key of two: of a thread's step, and of a step's vector."""
    step = Step(
        session_id="s", episode_id="e", index=0, observation="o", action="", at=NOON, actor="u",
        node_id="é" * 256, key="x" * 1025, thread_id="t", message_id="m",
    )  # fmt: skip
    none = [None] * len(tables.ANNOTATIONS.columns)
    through("step", *owned(tables.STEPS, step), 0, 0, *none)
    through("vector", "é" * 256 + "/observation", unit_vector(1, 0, 0, 0).tobytes())


# ── What is refused ──────────────────────────────────────────────────────────────────


async def everything() -> list[str]:
    """The lines of a repository with records of every kind."""
    async with opened() as kit:
        store = kit.store
        await filled(kit)
        await store.transcript("r").writing(talk)
        await store.notes("r").writing(noted)
        await store.checkpoints("r").writing(checkpointed)
        value = {"é": [1, None]}
        await put(store.items("r"), item("b", "c.d", texts=(("f", "boats"),), value=value))
        return await lines_of(store.archive("r"))


@pytest.fixture(scope="module")
def whole() -> list[str]:
    """The same."""
    lines = anyio.run(everything)
    assert all(json.loads(lines[0])["counts"].values())
    return lines


def read(lines: list[str]) -> None:
    reader = LinesReader(KINDS)
    for start in range(0, len(lines), 7):
        reader.batch(lines[start : start + 7])
    reader.finish()


def test_what_is_whole_is_read(whole):
    """The lines that the broken ones are made of are fine themselves."""
    read(whole)
    with pytest.raises(InvalidArchive, match="nothing in it"):
        LinesReader(KINDS).finish()


NOT_UNIT = "AACAPwAAgD8AAIA/AACAPw=="


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        ("session", {"kind": "dream"}, "dream"),
        ("session", {"kind": ...}, "None"),
        ("session", {"id": ""}, "id: "),
        ("session", {"id": ...}, "id: it must be text, not NoneType"),
        ("session", {"id": 7}, "id: it must be text, not int"),
        ("session", {"id": "x" * 513}, "id: .*512 bytes"),
        ("session", {"id": "half \ud800"}, "id: .*surrogate"),
        ("session", {"secret": 1}, "secret: "),
        ("session", {"state": "asleep"}, "state: "),
        ("session", {"updated_at": "yesterday"}, "updated_at: "),
        ("session", {"updated_at": "2024-03-01T12:00:00"}, "zone"),
        ("session", {"updated_at": "0001-01-01T00:00:00+09:00"}, "years 1 to 9999"),
        ("session", {"updated_at": 7}, "updated_at: "),
        ("episode", {"session": "\udcff"}, "session: .*UTF-8"),
        ("episode", {"status": "over"}, "status: "),
        ("episode", {"changeset": "AAAA"}, "changeset: "),
        ("step", {"node_id": "é" * 257}, "node_id: .*512 bytes"),
        ("step", {"thread": "x" * 513}, "thread: .*512 bytes"),
        ("step", {"key": "x" * 1026}, "key: .*1025 bytes"),
        ("step", {"observation": "a\0"}, r"observation: .*U\+0000"),
        ("step", {"observation": "\ud800"}, "observation: .*surrogate"),
        ("step", {"idx": -1}, "idx: "),
        ("step", {"idx": True}, "idx: "),
        ("step", {"idx": 2**63}, "idx: "),
        ("step", {"metadata": "[]"}, "metadata: "),
        ("step", {"metadata": {}}, "metadata: it must be text, not dict"),
        ("step", {"metadata": r'{"k":"\u0000"}'}, r"metadata: .*U\+0000"),
        ("step", {"metadata": r'{"k":"\ud800"}'}, "metadata: .*surrogate"),
        ("step", {"metadata": '{"k":NaN}'}, "metadata: .*nan"),
        ("step", {"committed": 2}, "committed: "),
        ("step", {"committed": None}, "committed: "),
        ("step", {"reward": 1.5}, "reward: "),
        ("node", {"type": "dream"}, "type: "),
        ("node", {"type": "item"}, "type: "),
        ("node", {"revision": 9}, "past that of the head"),
        ("node", {"body": "[]"}, "list"),
        ("node", {"body": "{}"}, "observation"),
        ("node", {"session_id": "another"}, "something else than its body"),
        ("node", {"at": None}, "something else than its body"),
        ("node", {"penalty": 1}, "penalty: "),
        ("node", {"access_count": -1}, "access_count: "),
        ("node", {"cumulative_reward": -1}, "cumulative_reward: "),
        ("vector", {"vector": "!"}, "vector: no base64"),
        ("vector", {"vector": "AAAA"}, "vector: "),
        ("vector", {"vector": None}, "vector: it must be base64"),
        ("vector", {"vector": NOT_UNIT}, "length 1"),
        ("vector", {"vector": "AACAPw=="}, "1 dimensions, not 4"),
        ("thread", {"boundary": 9}, "must not be past next_seq"),
        ("thread", {"ttl_s": -1.0}, "ttl_s: "),
        ("thread", {"next_goal": 0}, "next_goal: "),
        ("message", {"role": "robot"}, "role: "),
        ("message", {"role": "tool"}, "tool_call_id"),
        ("message", {"type": "reply"}, "does not fit"),
        ("message", {"type": "dream"}, "type: "),
        ("message", {"blocks": None, "content": ""}, "nothing that could be searched"),
        ("message", {"content": 7}, "content"),
        ("message", {"blocks": "[1]"}, "blocks: "),
        ("message", {"tool_calls": '[["a","b"]]'}, "tool_calls: "),
        ("message", {"id": ""}, "id: "),
        ("message", {"seq": -1}, "seq: "),
        ("message", {"at": None}, "at: "),
        ("message", {"tokens": 1.5}, "tokens: "),
        ("message", {"searched": True}, "searched: "),
        ("compaction", {"start_seq": 4}, "ends before it begins"),
        ("compaction", {"level": 3}, "level: "),
        ("snapshot", {"to_seq": -1}, "to_seq: "),
        ("snapshot", {"origin": "me"}, "origin: "),
        ("outcome", {"type": "lost"}, "type: "),
        ("goal", {"status": "late"}, "status: "),
        ("goal", {"id": 0}, "id: "),
        ("pin", {"goal_ids": '["1"]'}, "goal_ids: "),
        ("note", {"topic": "../x"}, "a topic is"),
        ("note", {"topic": "con"}, "a topic is"),
        ("note", {"version": 0}, "version"),
        ("note", {"body": ""}, "a body is"),
        ("note", {"body": "---\nx: y\n---\n"}, "frontmatter"),
        ("note", {"body": " x"}, "outer blanks"),
        ("note", {"description": "a\u202eb"}, "hidden characters"),
        ("note", {"description": "x" * 201}, "a description is"),
        ("note", {"trust": "certain"}, "trust"),
        ("note", {"deleted_by": "rule"}, "no texts"),
        ("note", {"updated_at": "2024-01-01"}, "zone"),
        ("item", {"namespace": json.dumps(["x" * 500] * 5)}, "2,048 bytes"),
        ("item", {"texts": '[["f"]]'}, "texts: "),
        ("item", {"ttl_s": 10**30}, "ttl_s: "),
    ],
)
def test_a_broken_row_is_named_with_its_reason(whole, kind, values, reason):
    """Whatever is wrong with it: its line, and what there is to do about it."""
    rows = [json.loads(line) for line in whole]
    place = of(rows, kind)
    broken = {k: v for k, v in (rows[place] | values).items() if v is not ...}
    with pytest.raises(InvalidArchive, match=reason) as raised:
        read([*whole[:place], json.dumps(broken), *whole[place + 1 :]])
    assert raised.value.line == place + 1
    assert isinstance(raised.value, UsageError | ValueError)


@pytest.mark.parametrize(
    ("line", "text", "reason"),
    [
        (4, "", "not JSON"),
        (4, "[1]", "no JSON object"),
        (4, "[" * 100_000, "not JSON"),
        (4, '{"kind":"session","id":NaN}', "NaN"),
        (2, '{"kind":"step"}', "'session' is due"),
        (1, "null", "no JSON object"),
        (1, b"{}", "must be text, not bytes"),
        (1, {"format": "other"}, "no head"),
        (1, {"version": 2}, "format version 2, this mnemo reads up to 1"),
        (1, {"version": [2]}, r"format version \[2\], this mnemo reads up to 1"),
        (1, {"version": True}, "version: "),
        (1, {"format": "mnemo-repository"}, "development version .*convert_archive"),
        (1, {"revision": -1}, "revision: "),
        (1, {"space": {"name": "x"}}, "space.dimensions: "),
        (1, {"space": {"name": "x", "dimensions": 0}}, "space.dimensions: "),
        (1, {"counts": {"step": 1}}, "counts must name"),
    ],
)
def test_a_broken_line_is_named_with_its_reason(whole, line, text, reason):
    """What is no record, and a head that is none."""
    if isinstance(text, dict):
        text = json.dumps(json.loads(whole[line - 1]) | text)
    with pytest.raises(InvalidArchive, match=reason) as raised:
        read([*whole[: line - 1], text, *whole[line:]])
    assert raised.value.line == line


def test_as_many_lines_are_due_as_the_head_says(whole):
    """No fewer and no more."""
    with pytest.raises(InvalidArchive, match="1 more of kind 'item'") as raised:
        read(whole[:-1])
    assert raised.value.line == len(whole)
    with pytest.raises(InvalidArchive, match="no further line") as raised:
        read([*whole, whole[-1]])
    assert raised.value.line == len(whole) + 1


def test_a_column_that_may_be_null_may_be_left_out(whole):
    """So an archive from before it was added is read."""
    rows = [json.loads(line) for line in whole]
    del rows[of(rows, "message")]["extra"]
    read(list(map(json.dumps, rows)))

"""
Entity descriptors of what a store keeps: journal, graph, conversations, notes, checkpoints, items.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from math import nextafter
from typing import Any, TypeVar, get_type_hints

from mnemo.runtime.validation import MOST_ID_BYTES, MOST_NUMBER
from mnemo.values import archive, notes
from mnemo.values.chat import Usage
from mnemo.values.checkpoints import ChannelValue, CheckpointHead, CheckpointWrite
from mnemo.values.derived import Compaction, EvictionOutcome, Goal, Pin, Snapshot, Surfaced, Thread
from mnemo.values.fields import Entity, each, key, key_of, one_of, positive, share, within
from mnemo.values.graph import NODE_TYPES, Edge, NodeMetadata, NodeType
from mnemo.values.items import Item, check_namespace
from mnemo.values.jobs import Job
from mnemo.values.journal import StagedTrajectory
from mnemo.values.messages import StoredMessage, ToolCall
from mnemo.values.recalls import RecallRecord
from mnemo.values.steps import Annotation, Step

MOST_BODY, MOST_DESCRIPTION = 4_000, 200
"""Code points of a note's texts that any configuration allows."""

# ── Journal ──────────────────────────────────────────────────────────────────────────

SESSION = Entity(archive.SessionRow, key=("id",), types={"updated_at": "instant"})
EPISODE = Entity(
    archive.EpisodeRow, owners=("session_id",), key=("id",), types={"changeset": "changeset"}
)
STAGED = Entity(
    StagedTrajectory, key=("key",), types={"changeset": "changeset"}, rules={"trajectory_id": key}
)
ANNOTATION = Entity(Annotation, rules={"reward": share, "trajectory_id": key}, without=("index",))
STEP = Entity(
    Step,
    owners=("session_id", "episode_id"),
    key=("node_id",),
    # A key of a step that was made from a message is followed by the thread's id.
    rules={"key": partial(key_of, 2 * MOST_ID_BYTES + 1)},
    without=("ordinal", "annotation"),
)
JOB = Entity(Job, key=("kind", "subject"), types={"due_at": "instant", "needs": "extras"})

# ── Graph ────────────────────────────────────────────────────────────────────────────

NODE_FIELDS: dict[NodeType, Entity[Any]] = {
    type: Entity(
        kind,
        # Ids among them are texts like any other.
        types={n: "text" for n, h in get_type_hints(kind).items() if h in (str, str | None)},
        without=("id", "vector"),
    )
    for type, kind in NODE_TYPES.items()
}
"""What nodes of each type say beside their id and vector."""

COUNTS = Entity(
    NodeMetadata,
    types={"created_at": "instant", "last_accessed_at": "instant"},
    rules={"penalty": partial(within, 0, nextafter(1, 0))},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNode:
    """The row of a node; *body* is ``NODE_FIELDS`` of its type as JSON, *at* when it was said."""

    id: str
    type: NodeType
    at: datetime | None
    session_id: str | None
    episode_id: str | None
    superseded_by: str | None
    body: str
    metadata: NodeMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A node, or the node of a step, that left recall; followers read these in order."""

    node_id: str


NODE = Entity(
    StoredNode,
    key=("id",),
    types={"at": "instant"},
    rules={"type": partial(one_of, NODE_TYPES)},
    inline={"metadata": COUNTS},
)
EDGE = Entity(Edge, owners=("source", "target"), key=("kind",))
REMOVAL = Entity(Removal)
# The id of its owner, which may be followed by the side of a step, and by a passage.
VECTOR = Entity(
    archive.VectorRow,
    key=("key",),
    rules={"key": partial(key_of, MOST_ID_BYTES + len("/observation#1"))},
)
CHANGESET_APPLIED = Entity(archive.ChangesetRow, key=("id",))

# ── Conversations ────────────────────────────────────────────────────────────────────


def _thread(thread: Thread) -> Thread:
    places = (thread.epoch_start, thread.boundary, thread.declined_to, thread.extracted_seq or 0)
    if max(places) > thread.next_seq:
        raise ValueError(
            "epoch_start, boundary, declined_to and extracted_seq must not be past next_seq"
        )
    return thread


THREAD = Entity(
    Thread,
    key=("id",),
    rules={
        "budget_tokens": positive,
        "next_goal": positive,
        "declined_to": partial(within, -1, MOST_NUMBER),
    },
    checked=_thread,
)


def _message(message: StoredMessage) -> StoredMessage:
    if message.at is None:
        raise ValueError("at: a message needs the time at which it was said")
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls)
    given = StoredMessage(**values | {"tool_calls": calls, "token_count": None})
    for name, value in values.items():
        if name != "token_count" and getattr(given, name) != value:
            raise ValueError(f"{name} is not as a message has it")
    return message


MESSAGE = Entity(
    StoredMessage,
    owners=("thread_id",),
    key=("id",),
    order=("seq",),
    types={
        "content": "content",
        "tool_calls": "calls",
        "metadata": "extras",
        "extra": "item",
        "recorded_at": "instant",
    },
    required=("id", "kind"),
    make=StoredMessage.restored,
    checked=_message,
)

R = TypeVar("R", Compaction, Snapshot, EvictionOutcome)


def _ranged(value: R) -> R:
    first, last = (
        (value.start_seq, value.end_seq)
        if isinstance(value, Compaction)
        else (value.from_seq, value.to_seq)
    )
    if first > last:
        raise ValueError("its range ends before it begins")
    return value


COMPACTION = Entity(
    Compaction,
    owners=("thread_id",),
    key=("id",),
    order=("epoch", "start_seq", "end_seq", "id"),
    checked=_ranged,
)
SNAPSHOT = Entity(
    Snapshot,
    owners=("thread_id",),
    key=("id",),
    order=("epoch", "from_seq", "to_seq", "id"),
    checked=_ranged,
)
OUTCOME = Entity(EvictionOutcome, owners=("thread_id",), key=("epoch", "from_seq"), checked=_ranged)
GOAL = Entity(
    Goal, owners=("thread_id",), key=("epoch", "id"), rules={"id": positive, "parent_id": positive}
)
PIN = Entity(
    Pin, owners=("thread_id",), key=("epoch", "seq"), rules={"goal_ids": partial(each, positive)}
)
SURFACED = Entity(Surfaced, owners=("thread_id",), key=("epoch", "seq"))

# ── Notes ────────────────────────────────────────────────────────────────────────────


def _check_texts(description: str, body: str, *, deleted: bool) -> None:
    """A text from a file is one that could have been written here, or there is none."""
    if deleted:
        if description or body:
            raise ValueError("what is deleted has no texts")
    elif (description, body) != (
        notes.checked_description(description, MOST_DESCRIPTION),
        notes.checked_body(body, MOST_BODY),
    ):
        raise ValueError("its texts hold hidden characters or outer blanks")


def _note(note: notes.NoteRow) -> notes.NoteRow:
    _check_texts(note.description, note.body, deleted=not note.is_there)
    return note


def _version(version: notes.NoteVersion) -> notes.NoteVersion:
    _check_texts(version.description, version.body, deleted=version.action == "deleted")
    return version


NOTE = Entity(
    notes.NoteRow,
    key=("topic",),
    rules={"topic": notes.checked_topic, "version": positive},
    checked=_note,
)
NOTE_VERSION = Entity(
    notes.NoteVersion,
    owners=("topic",),
    key=("version",),
    rules={"version": positive},
    checked=_version,
)
NOTE_CHANGE = Entity(
    archive.NoteChangeRow,
    owners=("topic",),
    key=("version",),
    inline={"change": Entity(notes.NoteChange, rules={"version": positive})},
)
NOTE_MARK = Entity(archive.NoteMark, key=("key",))
NOTE_REQUEST = Entity(
    archive.NoteRequestRow,
    key=("digest",),
    inline={"covered": Entity(notes.Covered, rules={"topic": notes.checked_topic})},
)
NOTE_TASK = Entity(archive.NoteTask, key=("task_id",))
NOTE_CONVERSATION = Entity(notes.ConversationRow, key=("key",))
NOTE_USAGE = Entity(notes.UsageRow, inline={"usage": Entity(Usage)})

# ── Checkpoints ──────────────────────────────────────────────────────────────────────


def _checkpoint(head: CheckpointHead) -> CheckpointHead:
    if not all(isinstance(version, str) for version in head.versions.values()):
        raise ValueError("versions must name a text for each channel")
    return head


CHECKPOINT = Entity(CheckpointHead, key=("thread_id", "namespace", "id"), checked=_checkpoint)
CHANNEL_VALUE = Entity(ChannelValue, key=("thread_id", "namespace", "channel", "version"))
CHECKPOINT_WRITE = Entity(
    CheckpointWrite,
    key=("thread_id", "namespace", "checkpoint_id", "task_id", "index"),
    rules={"index": partial(within, -MOST_NUMBER, MOST_NUMBER)},
)

# ── Items ────────────────────────────────────────────────────────────────────────────

_INSTANTS: tuple[str, ...] = ("created_at", "updated_at", "expires_at")


def _item(item: Item) -> Item:
    check_namespace("namespace", item.namespace)
    return item


ITEM = Entity(
    Item,
    key=("namespace", "key"),
    types=dict.fromkeys(_INSTANTS, "instant"),
    rules={"key": key},
    without=("score",),
    checked=_item,
)

# ── Recalls ──────────────────────────────────────────────────────────────────────────

RECALL = Entity(RecallRecord, types={"at": "instant"})

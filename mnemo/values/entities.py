"""
Entity descriptors of what a store keeps: journal, graph, conversations, notes, checkpoints, items.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from mnemo.runtime.validation import MOST_ID_BYTES, MOST_NUMBER
from mnemo.values.archive import (
    ArchivedChangeset,
    ArchivedEpisode,
    ArchivedMessage,
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
    ArchivedSession,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
)
from mnemo.values.archive_nodes import (
    CHANGESET,
    EDGE,
    NodeLines,
    changeset_line,
)
from mnemo.values.chat import Usage
from mnemo.values.checkpoints import ChannelValue, CheckpointHead, CheckpointWrite
from mnemo.values.derived import Compaction, EvictionOutcome, Goal, Pin, Snapshot, Surfaced, Thread
from mnemo.values.fields import Entity, Key, Positive, Text, at_most
from mnemo.values.items import Item
from mnemo.values.jobs import Job
from mnemo.values.journal import StagedTrajectory
from mnemo.values.messages import StoredMessage, ToolCall, searchable_text
from mnemo.values.notes import (
    ConversationRow,
    Covered,
    NoteChange,
    NoteRow,
    NoteVersion,
    UsageRow,
    checked_body,
    checked_description,
    checked_topic,
)
from mnemo.values.steps import Annotation, Step

MOST_BODY, MOST_DESCRIPTION = 4_000, 200
"""Code points of a note's texts that any configuration allows."""

# ── Journal and graph ────────────────────────────────────────────────────────────────

SESSION = Entity(
    ArchivedSession,
    key=("id",),
    lines={"thread_id": "thread"},
    types={"updated_at": "instant"},
)
_WRITES = {"changeset": changeset_line}
EPISODE = Entity(
    ArchivedEpisode,
    owners=("session_id",),
    key=("id",),
    lines={"session_id": "session"},
    types={"changeset": "changeset"},
    shapes={"changeset": CHANGESET},
    writes=_WRITES,
)
STAGED = Entity(
    StagedTrajectory,
    key=("key",),
    lines={"trajectory_id": "trajectory"},
    types={"changeset": "changeset"},
    shapes={"changeset": CHANGESET, "trajectory_id": Key},
    writes=_WRITES,
)
TRAJECTORY = Entity(
    ArchivedTrajectory,
    owners=("episode_id",),
    key=("key",),
    lines={"episode_id": "episode"},
    inline={"staged": STAGED},
)

ANNOTATION = Entity(
    Annotation,
    lines={"trajectory_id": "trajectory"},
    shapes={"reward": Annotated[float, Field(ge=0, le=1)], "trajectory_id": Key},
    without=("index",),
)


def _step(**values: Any) -> Step:
    found = values.pop("annotation")
    annotation = None if found is None else Annotation(index=values["index"], **found)
    return Step(annotation=annotation, **values)


STEP = Entity(
    Step,
    owners=("session_id", "episode_id"),
    key=("node_id",),
    lines={
        "session_id": "session",
        "episode_id": "episode",
        "thread_id": "thread",
        "message_id": "message",
    },
    # A key of a step that was made from a message is followed by the thread's id.
    shapes={"key": Annotated[str, at_most(2 * MOST_ID_BYTES + 1)]},
    nested={"annotation": ANNOTATION},
    without=("ordinal",),
    checked=_step,
)
JOB = Entity(Job, key=("kind", "subject"), types={"due_at": "instant", "needs": "extras"})
ARCHIVED_STEP = Entity(ArchivedStep, inline={"step": STEP})
# The id of its owner, which may be followed by the side of a step, and by a passage.
_VECTOR_KEY = Annotated[str, Field(min_length=1), at_most(MOST_ID_BYTES + len("/observation#1"))]
VECTOR = Entity(ArchivedVector, key=("key",), shapes={"key": _VECTOR_KEY})
CHANGESET_APPLIED = Entity(ArchivedChangeset, key=("id",))

# ── Conversations ────────────────────────────────────────────────────────────────────


def _thread(**values: Any) -> Thread:
    thread = Thread(**values)
    places = (thread.epoch_start, thread.boundary, thread.declined_to, thread.extracted_seq or 0)
    if max(places) > thread.next_seq:
        raise ValueError(
            "epoch_start, boundary, declined_to and extracted_seq must not be past next_seq"
        )
    return thread


THREAD = Entity(
    Thread,
    key=("id",),
    shapes={
        "budget_tokens": Positive,
        "next_goal": Positive,
        "declined_to": Annotated[int, Field(ge=-1, le=MOST_NUMBER)],
    },
    checked=_thread,
)

MESSAGE = Entity(
    StoredMessage,
    owners=("thread_id",),
    key=("id",),
    order=("seq",),
    lines={"thread_id": "thread", "kind": "type", "token_count": "tokens"},
    types={
        "content": "content",
        "tool_calls": "calls",
        "metadata": "extras",
        "extra": "item",
        "recorded_at": "instant",
    },
    shapes={
        "content": str | list[dict[str, Any]],
        "tool_calls": list[Annotated[list[Any], Field(min_length=3, max_length=3)]],
    },
    writes={"token_count": lambda count: count or 0},
    required=("id", "kind", "at", "token_count"),
    make=StoredMessage.restored,
)


def _archived_message(*, searched: bool, **values: Any) -> ArchivedMessage:
    calls = tuple(ToolCall(*call) for call in values["tool_calls"])
    given = {name: value for name, value in values.items() if name != "token_count"}
    message = StoredMessage(**given | {"tool_calls": calls})
    if searched and not searchable_text(message, tools=True):
        raise ValueError("it has nothing that could be searched for, but is said to be")
    exact = {name: getattr(message, name) for name in given}
    exact["token_count"] = values["token_count"]
    return ArchivedMessage(message=StoredMessage.restored(**exact), searched=searched)


ARCHIVED_MESSAGE = Entity(ArchivedMessage, inline={"message": MESSAGE}, checked=_archived_message)


def _ranged(value: Any, first: int, last: int) -> Any:
    if first > last:
        raise ValueError("its range ends before it begins")
    return value


COMPACTION = Entity(
    Compaction,
    owners=("thread_id",),
    key=("id",),
    order=("epoch", "start_seq", "end_seq", "id"),
    lines={"thread_id": "thread", "summary_text": "text", "token_count": "tokens"},
    checked=lambda **v: _ranged(Compaction(**v), v["start_seq"], v["end_seq"]),
)
SNAPSHOT = Entity(
    Snapshot,
    owners=("thread_id",),
    key=("id",),
    order=("epoch", "from_seq", "to_seq", "id"),
    lines={"thread_id": "thread", "token_count": "tokens"},
    checked=lambda **v: _ranged(Snapshot(**v), v["from_seq"], v["to_seq"]),
)
OUTCOME = Entity(
    EvictionOutcome,
    owners=("thread_id",),
    key=("epoch", "from_seq"),
    lines={"thread_id": "thread", "kind": "type", "snapshot_id": "snapshot"},
    checked=lambda **v: _ranged(EvictionOutcome(**v), v["from_seq"], v["to_seq"]),
)
GOAL = Entity(
    Goal,
    owners=("thread_id",),
    key=("epoch", "id"),
    lines={"thread_id": "thread", "parent_id": "parent"},
    shapes={"id": Positive, "parent_id": Positive},
)
PIN = Entity(
    Pin,
    owners=("thread_id",),
    key=("epoch", "seq"),
    lines={
        "thread_id": "thread",
        "message_id": "message",
        "goal_ids": "goals",
        "token_count": "tokens",
    },
    shapes={"goal_ids": Annotated[tuple[Positive, ...], Field(strict=False)]},
)
SURFACED = Entity(Surfaced, owners=("thread_id",), key=("epoch", "seq"))

# ── Notes ────────────────────────────────────────────────────────────────────────────

Topic = Annotated[str, AfterValidator(checked_topic)]


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


def _note(**values: Any) -> NoteRow:
    note = NoteRow(**values)
    _check_texts(note.description, note.body, deleted=not note.is_there)
    return note


def _version(**values: Any) -> NoteVersion:
    version = NoteVersion(**values)
    _check_texts(version.description, version.body, deleted=version.action == "deleted")
    return version


# Texts of notes are checked together, against the rules of notes.
_NOTE_SHAPES: dict[str, Any] = {"topic": Topic, "version": Positive, "body": str}
_NOTE_SHAPES["description"] = str

NOTE = Entity(NoteRow, key=("topic",), shapes=_NOTE_SHAPES, checked=_note)
NOTE_VERSION = Entity(
    NoteVersion,
    owners=("topic",),
    key=("version",),
    lines={
        "update_id": "update",
        "task_id": "task",
        "session_id": "session",
        "thread_id": "thread",
        "message_ids": "messages",
    },
    shapes=_NOTE_SHAPES,
    checked=_version,
)
CHANGE = Entity(NoteChange, owners=("topic",), shapes={"topic": Topic, "version": Positive})
NOTE_CHANGE = Entity(
    ArchivedNoteChange,
    owners=("topic",),
    key=("version",),
    lines={"update_id": "update"},
    inline={"change": CHANGE},
)
NOTE_MARK = Entity(ArchivedNoteMark, key=("key",))
COVERED = Entity(Covered, shapes={"topic": Topic, "refused": Text})
NOTE_REQUEST = Entity(ArchivedNoteRequest, key=("digest",), inline={"covered": COVERED})
NOTE_TASK = Entity(ArchivedNoteTask, key=("task_id",), lines={"task_id": "id"})
NOTE_CONVERSATION = Entity(ConversationRow, key=("key",))
NOTE_USAGE = Entity(UsageRow, inline={"usage": Entity(Usage)})

# ── Checkpoints ──────────────────────────────────────────────────────────────────────


def _checkpoint(**values: Any) -> CheckpointHead:
    if not all(isinstance(version, str) for version in values["versions"].values()):
        raise ValueError("versions must name a text for each channel")
    return CheckpointHead(**values)


_IN_THREAD = {"thread_id": "thread"}
CHECKPOINT = Entity(
    CheckpointHead,
    key=("thread_id", "namespace", "id"),
    lines={**_IN_THREAD, "parent_id": "parent", "run_id": "run"},
    checked=_checkpoint,
)
CHANNEL_VALUE = Entity(
    ChannelValue, key=("thread_id", "namespace", "channel", "version"), lines=_IN_THREAD
)
CHECKPOINT_WRITE = Entity(
    CheckpointWrite,
    key=("thread_id", "namespace", "checkpoint_id", "task_id", "index"),
    lines={**_IN_THREAD, "checkpoint_id": "checkpoint", "task_id": "task"},
    shapes={"index": int},
)

# ── Items ────────────────────────────────────────────────────────────────────────────

_Pair = Annotated[tuple[Key, Text], Field(strict=False)]
_INSTANTS: tuple[str, ...] = ("created_at", "updated_at", "expires_at")
ITEM = Entity(
    Item,
    key=("namespace", "key"),
    types=dict.fromkeys(_INSTANTS, "instant"),
    shapes={"key": Key, "texts": Annotated[tuple[_Pair, ...], Field(strict=False)]},
    without=("score",),
)

ARCHIVED: dict[str, Entity[Any] | NodeLines] = {
    "session": SESSION,
    "episode": EPISODE,
    "trajectory": TRAJECTORY,
    "step": ARCHIVED_STEP,
    "node": NodeLines(),
    "edge": EDGE,
    "vector": VECTOR,
    "changeset": CHANGESET_APPLIED,
    "thread": THREAD,
    "message": ARCHIVED_MESSAGE,
    "compaction": COMPACTION,
    "snapshot": SNAPSHOT,
    "outcome": OUTCOME,
    "goal": GOAL,
    "pin": PIN,
    "note": NOTE,
    "note_version": NOTE_VERSION,
    "note_change": NOTE_CHANGE,
    "note_mark": NOTE_MARK,
    "note_request": NOTE_REQUEST,
    "note_task": NOTE_TASK,
    "checkpoint": CHECKPOINT,
    "channel_value": CHANNEL_VALUE,
    "checkpoint_write": CHECKPOINT_WRITE,
    "item": ITEM,
}
"""
What makes the lines of each kind of record, in the order of an archive.

Within a kind: sessions as they were made, episodes and trajectories by those, steps as
they arrived, nodes as they were stored, edges by the places of their ends, vectors and
changesets as they were written; threads by their ids, messages as they arrived, what is
derived from them by thread and then by range, seq or goal id. Notes by topic, deleted ones
too; versions by topic and number; changes by update and then as they were made; marks as they
were set; requests and tasks by what they are known by. Checkpoints, values and writes by thread,
namespace and id; items by namespace and key, expired ones too.
"""
KINDS: dict[str, type[Any]] = {kind: entity.kind for kind, entity in ARCHIVED.items()}
"""The values of each kind of record, in that order."""

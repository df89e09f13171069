"""The tables of a store: where each entity of ``values.entities`` is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnemo.store.rows import Rows
from mnemo.store.table import LETTERS, Table
from mnemo.values import entities
from mnemo.values.codec import checked_node, decode_list, decode_node, encode_json
from mnemo.values.entities import StoredNode
from mnemo.values.fields import exact_json
from mnemo.values.graph import Node, NodeMetadata
from mnemo.values.messages import StoredMessage
from mnemo.values.steps import Annotation, Step


class _Messages(Table[StoredMessage]):
    """Messages: content that is blocks has a column of its own, behind all others."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        content, blocks = self._names.index("content"), len(self._names)
        found = f"row[{content}] if row[{blocks}] is None else table.blocks(row[{blocks}])"
        self.read = self._compiled(StoredMessage.restored, content=found)
        self.rows = Rows(self.name, self.words, self.read, key=(0, self._names.index("id")))
        self.columns += ("blocks",)
        self.types["blocks"] = "TEXT"
        self.judges["blocks"] = lambda text: exact_json(self.blocks(text))

    def values(self, value: StoredMessage) -> tuple[Any, ...]:
        blocks = encode_json(value.content) if isinstance(value.content, list) else None
        return (*super().values(value), blocks)

    def blocks(self, text: str) -> list[Any]:
        return decode_list(text, dict)


class _Steps(Table[Step]):
    """Steps; the columns of the annotation may all be NULL and come last, after the ordinal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ordinal: int = len(self._names)
        """The place of the ordinal in a row."""
        more = {"ordinal": f"row[{self.ordinal}]", "annotation": "table.annotation(row)"}
        self.read = self._compiled(Step, **more)
        words = " ".join(LETTERS[type.split()[0]] + "?" for type in ANNOTATIONS.types.values())
        key = [self._names.index("node_id")]
        self.rows = Rows(self.name, f"{self.words} i {words}", self.read, key=key)
        self._index = self._names.index("index")

    def annotation(self, row: Sequence[Any]) -> Annotation | None:
        """What annotation found, if it is through."""
        if row[self.ordinal + 1 + _SUBGOAL] is None:
            return None
        return Annotation(index=row[self._index], **ANNOTATIONS.named(row[self.ordinal + 1 :]))


class _Nodes(Table[StoredNode]):
    """
    Nodes: what a node says is in its body, whatever its type.

    *whole* reads id, type, body and, where there is one, the vector; *counted* are the columns that
    *counts* reads, id and metadata.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.checked = checked_node
        counts = Table(self.name, entities.COUNTS)
        self.counted: str = ", ".join(("id", *counts.columns))
        self.whole: Rows[Node] = Rows(self.name, "s s s b?", lambda row: decode_node(*row[:4]))
        self.counts: Rows[tuple[str, NodeMetadata]] = Rows(
            self.name, f"s {counts.words}", lambda row: (row[0], counts.read(row[1:]))
        )


# ── Journal ──────────────────────────────────────────────────────────────────────────

ANNOTATIONS = Table("steps", entities.ANNOTATION, columns={"vector": "subgoal_vector"})
_SUBGOAL = ANNOTATIONS.columns.index("subgoal")
# The number is never given twice: a reader of the feed may have seen it. ``thread`` and
# ``message`` are ids, of a step that was made from a message.
STEPS = _Steps(
    "steps",
    entities.STEP,
    owners=("episode",),
    number="ordinal $followed",
    extra=(
        "session INTEGER NOT NULL",
        "recorded_at TEXT NOT NULL",
        "committed INTEGER NOT NULL DEFAULT 0",
        "gone INTEGER NOT NULL DEFAULT 0",
        *(f"{column} {type.split()[0]}" for column, type in ANNOTATIONS.types.items()),
    ),
    columns={"index": "idx", "thread_id": "thread", "message_id": "message"},
    without=("annotation",),
    keyed=False,
)
SESSIONS = Table(
    "sessions",
    entities.SESSION,
    number="no $number",
    extra=("episode INTEGER", "owner TEXT"),
    keyed=False,
)
EPISODES = Table(
    "episodes",
    entities.EPISODE,
    owners=("session",),
    number="no $number",
    extra=("erased INTEGER NOT NULL DEFAULT 0",),
    nullable=("changeset_steps", "receipt_nodes"),
    keyed=False,
)
STAGED = Table("staged", entities.STAGED, owners=("episode",))

# ── Graph ────────────────────────────────────────────────────────────────────────────

_FOLLOWED = "seq $followed"

NODES = _Nodes(
    "nodes",
    entities.NODE,
    number="no $number",
    extra=("revision INTEGER NOT NULL",),
    last=("body",),
    keyed=False,
)
EDGES = Table("edges", entities.EDGE, owners=("source", "target"), rowid=False)
VECTORS = Table("vectors", entities.VECTOR, number=_FOLLOWED)
REMOVALS = Table("removals", entities.REMOVAL, number=_FOLLOWED, keyed=False)
CHANGESETS = Table("changesets", entities.CHANGESET_APPLIED)

# One of a kind and subject; done ones are kept, for their token.
JOBS = Table("jobs", entities.JOB, rowid=False)

# ── Conversations ────────────────────────────────────────────────────────────────────

_NUMBERED = "no $lasting"

# ``thread`` in all the other tables is this ``no``, which is never another thread's. Seqs
# are missing where messages were erased, and ``erased`` counts them.
THREADS = Table(
    "threads", entities.THREAD, number=_NUMBERED, extra=("erased INTEGER NOT NULL DEFAULT 0",)
)
MESSAGES = _Messages(
    "messages",
    entities.MESSAGE,
    owners=("thread",),
    number="no $followed",
    columns={"token_count": "tokens"},
    last=("content", "tool_calls", "metadata", "extra"),
    keyed=False,
)
COMPACTIONS = Table(
    "compactions",
    entities.COMPACTION,
    owners=("thread",),
    number=_NUMBERED,
    columns={"summary_text": "text", "token_count": "tokens"},
    last=("summary_text",),
)
SNAPSHOTS = Table(
    "snapshots",
    entities.SNAPSHOT,
    owners=("thread",),
    number=_NUMBERED,
    columns={"token_count": "tokens"},
    last=("text",),
)
OUTCOMES = Table("outcomes", entities.OUTCOME, owners=("thread",), rowid=False)
GOALS = Table("goals", entities.GOAL, owners=("thread",), last=("description",))
PINS = Table(
    "pins", entities.PIN, owners=("thread",), columns={"token_count": "tokens"}, last=("excerpt",)
)
SURFACED = Table("surfaced", entities.SURFACED, owners=("thread",))

# ── Notes ────────────────────────────────────────────────────────────────────────────

# A deleted note keeps its row without texts, so that its versions go on counting.
NOTES = Table("notes", entities.NOTE, number="no $number")
NOTE_VERSIONS = Table("note_versions", entities.NOTE_VERSION, owners=("note",), rowid=False)
# Outlives versions that are dropped: it says what an update did, not what it wrote.
NOTE_CHANGES = Table(
    "note_journal", entities.NOTE_CHANGE, owners=("note",), number="seq $number", keyed=False
)
NOTE_MARKS = Table("note_marks", entities.NOTE_MARK, number="seq $lasting")
NOTE_REQUESTS = Table("note_requests", entities.NOTE_REQUEST, rowid=False)
NOTE_TASKS = Table("note_tasks", entities.NOTE_TASK, rowid=False)
NOTE_CONVERSATIONS = Table("note_conversations", entities.NOTE_CONVERSATION, rowid=False)
NOTE_USAGE = Table("note_usage", entities.NOTE_USAGE, number="seq $number", keyed=False)

# ── Checkpoints ──────────────────────────────────────────────────────────────────────

CHECKPOINTS = Table("checkpoints", entities.CHECKPOINT, last=("metadata", "versions", "data"))
CHANNEL_VALUES = Table("checkpoint_values", entities.CHANNEL_VALUE)
CHECKPOINT_WRITES = Table("checkpoint_writes", entities.CHECKPOINT_WRITE, columns={"index": "idx"})

# ── Items ────────────────────────────────────────────────────────────────────────────

ITEMS = Table("items", entities.ITEM, number="no $number", last=("texts", "value"))

# ── Recalls ──────────────────────────────────────────────────────────────────────────

RECALLS = Table("recalls", entities.RECALL, number="no $number", keyed=False)

# ── Reading ──────────────────────────────────────────────────────────────────────────

MESSAGE_COLUMNS = f"t.id, {MESSAGES.of('m')}"
"""What ``MESSAGES.rows`` expects first, of ``messages m`` and ``threads t``."""

TABLES: dict[str, Table[Any]] = {
    table.name: table
    for table in tuple(globals().values())
    if isinstance(table, Table) and table is not ANNOTATIONS
}
"""All tables by name."""

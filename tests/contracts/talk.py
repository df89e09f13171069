"""What the contracts of conversations are told with: messages and what is derived from them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from guarded_rows import GuardedTx
from world import NOON, SPACE

from mnemo.log.feed import _save_vectors
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.codec import encode_vector
from mnemo.values.derived import (
    Compaction,
    EvictionOutcome,
    Goal,
    OutcomeKind,
    Pin,
    Snapshot,
    Surfaced,
)
from mnemo.values.feed import message_document
from mnemo.values.graph import Vector
from mnemo.values.messages import Role, StoredMessage, ToolCall

KINDS = (Compaction, Snapshot, EvictionOutcome, Goal, Pin, Surfaced)
"""All kinds of what is derived."""


def said(
    seq: int, text: str | None = None, *, thread: str = "t", role: Role = "user", **values: Any
) -> StoredMessage:
    """A message of id ``"m<seq>"`` that was recorded *seq* minutes after noon."""
    at = NOON + timedelta(minutes=seq)
    given: dict[str, Any] = {
        "content": f"message {seq}" if text is None else text,
        "id": f"m{seq}",
        "at": at,
        "token_count": 10 + seq,
        "epoch": 0,
        "recorded_at": at,
    }
    return StoredMessage(role=role, thread_id=thread, seq=seq, **(given | values))


def call(seq: int, *ids: str, **values: Any) -> StoredMessage:
    """An assistant's calls, nothing said."""
    calls = tuple(ToolCall(id, "look", {"at": [id, {"deep": [1]}]}) for id in ids)
    return said(seq, role="assistant", tool_calls=calls, **({"content": None} | values))


def result(seq: int, of: str, **values: Any) -> StoredMessage:
    """What a call gave."""
    return said(seq, role="tool", tool_call_id=of, **values)


def compaction(first: int, last: int, *, id: str = "", thread: str = "t", **values: Any) -> Any:
    """A summary of a range; its id names it, unless given."""
    given: dict[str, Any] = {
        "summary_text": f"summary of {first} to {last}",
        "epoch": 0,
        "token_count": 7,
        "level": 1,
        "origin": "caller",
        "at": NOON,
    }
    return Compaction(
        id=id or f"c{first}-{last}",
        thread_id=thread,
        start_seq=first,
        end_seq=last,
        **(given | values),
    )


def snapshot(first: int, last: int, *, id: str = "", thread: str = "t", **values: Any) -> Any:
    """A text for a range that left the window."""
    level: Literal[1, 2] = values.pop("level", 1)
    given: dict[str, Any] = {"epoch": 0, "text": f"seen {first} to {last}", "origin": "model"}
    return Snapshot(
        id=id or f"s{first}-{last}",
        thread_id=thread,
        level=level,
        from_seq=first,
        to_seq=last,
        token_count=9,
        at=NOON,
        said_from=NOON + timedelta(minutes=first),
        said_to=NOON + timedelta(minutes=last),
        **(given | values),
    )


def outcome(
    first: int, last: int, *, kind: OutcomeKind = "ok", thread: str = "t", **values: Any
) -> EvictionOutcome:
    """The verdict on a range."""
    given: dict[str, Any] = {"epoch": 0, "snapshot_id": None, "attempts": 1, "at": NOON}
    return EvictionOutcome(
        thread_id=thread, from_seq=first, to_seq=last, kind=kind, **(given | values)
    )


def goal(id: int, *, thread: str = "t", **values: Any) -> Goal:
    """An objective."""
    given: dict[str, Any] = {
        "epoch": 0,
        "parent_id": None,
        "description": f"goal {id}",
        "status": "active",
        "created_at": NOON,
    }
    return Goal(thread_id=thread, id=id, **(given | values))


def pin(seq: int, *goals: int, thread: str = "t", **values: Any) -> Pin:
    """A hold on message *seq*."""
    given: dict[str, Any] = {"epoch": 0, "message_id": f"m{seq}", "excerpt": f"message {seq}"}
    return Pin(thread_id=thread, seq=seq, goal_ids=goals or (1,), token_count=3, **(given | values))


def surfaced(seq: int, *shown: tuple[str, str], thread: str = "t", **values: Any) -> Surfaced:
    """What came up in the turn of message *seq*."""
    hits = tuple({"session_id": stream, "message_id": id, "at": ["x"]} for stream, id in shown)
    given: dict[str, Any] = {"epoch": 0, "hits": hits, "at": NOON}
    return Surfaced(thread_id=thread, seq=seq, shown=shown, **(given | values))


def save_vectors(
    tx: TranscriptWriter,
    vectors: Mapping[tuple[str, int], Vector],
    space: EmbeddingSpace = SPACE,
) -> None:
    """Give messages vectors, by thread and seq, as the index does; those that are gone get none."""
    tx.flush()
    rows = tx._tx.run(_NUMBERS, (tx._repo,)).fetchall()
    numbers = {(thread, seq): no for thread, seq, no in rows}
    keys = {
        f"{message_document(numbers[place])}/observation": encode_vector(vector)
        for place, vector in vectors.items()
        if place in numbers
    }
    out = tx._out
    ((repo_id,),) = tx._tx.run("SELECT id FROM repos WHERE no = ?", (tx._repo,)).fetchall()
    # Without the lock of vectors, which works on conversations do not name.
    _save_vectors(out._tx if isinstance(out, GuardedTx) else out, repo_id, space, keys)


_NUMBERS = (
    "SELECT t.id, m.seq, m.no FROM messages m JOIN threads t ON t.no = m.thread AND t.repo = ?"
)


def dump(tx: TranscriptReader, *threads: str, ids: tuple[str, ...] = ()) -> dict[str, Any]:
    """Everything that the transaction shows of threads."""
    found: dict[str, Any] = {"threads": tx.threads()}
    for id in threads or [thread.id for thread in tx.threads()]:
        messages = tx.messages(id)
        seqs, vectors = tx.vectors(id)
        known = {*ids, *(message.stored_id for message in messages)}
        found[id] = {
            "row": tx.thread(id),
            "messages": [_plain(message) for message in messages],
            "derived": [tx.all(kind, id) for kind in KINDS],
            "live": [tx.all(kind, id, live=True) for kind in KINDS],
            "vectors": dict(zip(seqs.tolist(), vectors.tolist(), strict=True)),
            "erased": sorted(tx.erased_ids(id, sorted(known))),
            "span": tx.span(id, from_seq=0),
        }
    return found


def _plain(message: StoredMessage) -> Any:
    """The message with its time in its own zone, which equality does not look at."""
    at = message.at or datetime.max.replace(tzinfo=UTC)
    return message, at.utcoffset(), message.recorded_at.utcoffset()

"""What the lines of conversations say."""

from __future__ import annotations

from typing import Any

from mnemo.episode.archive import ArchivedMessage, ArchivedMessageVector, Record
from mnemo.episode.archive_values import instant_text, packed, time_text
from mnemo.transcript.derived import (
    Compaction,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Thread,
)

__all__ = ["talk_data"]


def talk_data(record: Record) -> dict[str, Any]:
    """The fields of a record of a conversation. *Raises* ``TypeError`` for any other."""
    match record:
        case ArchivedMessage():
            return {"kind": "message"} | _message(record)
        case ArchivedMessageVector(thread_id=thread, seq=seq, vector=vector):
            return {"kind": "message_vector", "thread": thread, "seq": seq} | {
                "vector": packed(vector)
            }
        case Thread():
            return {"kind": "thread"} | _thread(record)
        case Compaction():
            return {"kind": "compaction"} | _compaction(record)
        case Snapshot():
            return {"kind": "snapshot"} | _snapshot(record)
        case EvictionOutcome():
            return {"kind": "outcome"} | _outcome(record)
        case Goal():
            return {"kind": "goal"} | _goal(record)
        case Pin():
            return {"kind": "pin"} | _pin(record)
    raise TypeError(f"{type(record).__name__} is no record of an archive")


def _thread(thread: Thread) -> dict[str, Any]:
    return {
        "id": thread.id,
        "next_seq": thread.next_seq,
        "epoch": thread.epoch,
        "epoch_start": thread.epoch_start,
        "boundary": thread.boundary,
        "budget_tokens": thread.budget_tokens,
        "ttl_s": None if thread.ttl_s is None else float(thread.ttl_s),
        "next_goal": thread.next_goal,
        "declined_to": thread.declined_to,
    }


def _message(record: ArchivedMessage) -> dict[str, Any]:
    message = record.message
    return {
        "thread": message.thread_id,
        "seq": message.seq,
        "id": message.id,
        "epoch": message.epoch,
        "role": message.role,
        "type": message.kind,
        "content": message.content,
        "tool_calls": [(call.id, call.name, call.arguments) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "is_error": message.is_error,
        "name": message.name,
        "actor": message.actor,
        "at": None if message.at is None else time_text(message.at),
        "recorded_at": instant_text(message.recorded_at),
        "tokens": message.tokens,
        "metadata": dict(message.metadata),
        "searched": record.searched,
        "owed": record.owed,
    }


def _compaction(found: Compaction) -> dict[str, Any]:
    return {
        "thread": found.thread_id,
        "id": found.id,
        "epoch": found.epoch,
        "start_seq": found.start_seq,
        "end_seq": found.end_seq,
        "level": found.level,
        "text": found.summary_text,
        "tokens": found.token_count,
        "origin": found.origin,
        "at": time_text(found.at),
        "superseded_by": found.superseded_by,
    }


def _snapshot(found: Snapshot) -> dict[str, Any]:
    return {
        "thread": found.thread_id,
        "id": found.id,
        "epoch": found.epoch,
        "from_seq": found.from_seq,
        "to_seq": found.to_seq,
        "level": found.level,
        "text": found.text,
        "tokens": found.token_count,
        "origin": found.origin,
        "at": time_text(found.at),
        "said_from": time_text(found.said_from),
        "said_to": time_text(found.said_to),
        "covered_by": found.covered_by,
    }


def _outcome(found: EvictionOutcome) -> dict[str, Any]:
    return {
        "thread": found.thread_id,
        "epoch": found.epoch,
        "from_seq": found.from_seq,
        "to_seq": found.to_seq,
        "type": found.kind,
        "snapshot": found.snapshot_id,
        "attempts": found.attempts,
        "at": time_text(found.at),
    }


def _goal(found: Goal) -> dict[str, Any]:
    return {
        "thread": found.thread_id,
        "epoch": found.epoch,
        "id": found.id,
        "parent": found.parent_id,
        "description": found.description,
        "status": found.status,
        "created_at": time_text(found.created_at),
        "completed_at": None if found.completed_at is None else time_text(found.completed_at),
    }


def _pin(found: Pin) -> dict[str, Any]:
    return {
        "thread": found.thread_id,
        "epoch": found.epoch,
        "seq": found.seq,
        "message": found.message_id,
        "excerpt": found.excerpt,
        "goals": found.goal_ids,
        "tokens": found.token_count,
    }

"""Conversations in parts: pages of messages, and what is kept beside them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel

from mnemo import Goal, Pin, Snapshot, StoredMessage
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.access import Id, Readable
from mnemo.web.problems import routes

router = routes(prefix="/v1", tags=["conversation"])


class Messages(BaseModel):
    """
    A part of a conversation.

    Attributes:
        items: The messages, in the order of their seqs.
        next: ``from_seq`` of the next part; ``null``: this is the last.
    """

    items: list[StoredMessage]
    next: int | None


class Derived(BaseModel):
    """
    What is kept beside a conversation's messages.

    Attributes:
        goals: What is to be done.
        pins: Messages that stay because of a goal.
        snapshots: Summaries of what has left the window.
    """

    goals: list[Goal]
    pins: list[Pin]
    snapshots: list[Snapshot]


@router.get("/conversation/messages", response_model=Messages, name="conversation.history")
async def history(
    repo: Readable,
    thread: Id,
    from_seq: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Any:
    """Give the originals of at most *limit* seqs, those that are erased or expired left out."""
    conversation, end = repo.conversation(thread), from_seq + limit
    found = await conversation.history(from_seq=from_seq, to_seq=end - 1)
    return Messages(items=found, next=end if end < await conversation.next_seq() else None)


@router.get("/conversation/derived", response_model=Derived, name="conversation.derived")
async def derived(repo: Readable, thread: Id) -> Any:
    """Give goals, pins and snapshots."""
    conversation = repo.conversation(thread)
    return Derived(
        goals=await conversation.goals.list(),
        pins=await conversation.pins.list(),
        snapshots=await conversation.snapshots.list(),
    )

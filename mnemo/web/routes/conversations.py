"""Conversations: append, read, load, and look at the window."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from mnemo import Goal, Message, Pin, Snapshot, StoredMessage, ThreadRecord, WindowLook
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.access import Body, JsonObject, Readable, Writable, given

router = APIRouter(prefix="/v1", tags=["conversations"])

LOADED_TOKENS = 32_000
"""Default of ``budget_tokens`` of a load: what is not asked for stays bounded (S)."""
Thread: TypeAlias = Annotated[str, Query(min_length=1, max_length=512)]
Tokens: TypeAlias = Annotated[int | None, Query(ge=1, le=10_000_000)]
Seq: TypeAlias = Annotated[int, Query(ge=0, le=2**53)]


class Append(Body):
    """Messages; arguments as of ``Conversation.append`` and ``Repository.conversation``."""

    messages: list[JsonObject] = Field(max_length=MOST_AT_ONCE)
    remember: bool = False
    expected_seq: int | None = Field(default=None, ge=0, le=2**53)
    format: Literal["openai", "responses", "anthropic"] | None = None


class Load(Body):
    """What an agent is to read; arguments as of ``Conversation.load``."""

    query: str | None = None
    budget_tokens: int = Field(default=LOADED_TOKENS, ge=1, le=10_000_000)


class Messages(BaseModel):
    """
    A part of a conversation.

    Attributes:
        next: ``from_seq`` of the next part; ``null``: this is the last.
    """

    items: list[StoredMessage]
    next: int | None


class Derived(BaseModel):
    """What is kept beside a conversation's messages."""

    goals: list[Goal]
    pins: list[Pin]
    snapshots: list[Snapshot]


@router.get("/conversations", response_model=list[ThreadRecord])
async def threads(repo: Readable) -> Any:
    """List the conversations of a repository, by id."""
    return await repo.threads()


@router.post("/conversation/messages", response_model=list[StoredMessage])
async def append(repo: Writable, thread: Thread, body: Append) -> Any:
    """Store messages in one transaction."""
    conversation = repo.conversation(thread, remember=body.remember)
    return await conversation.append(
        body.messages, expected_seq=body.expected_seq, format=body.format
    )


@router.get("/conversation/messages", response_model=Messages)
async def history(
    repo: Readable,
    thread: Thread,
    from_seq: Seq = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Any:
    """Give the originals of at most *limit* seqs, those that are erased or expired left out."""
    conversation, end = repo.conversation(thread), from_seq + limit
    found = await conversation.history(from_seq=from_seq, to_seq=end - 1)
    return Messages(items=found, next=end if end < await conversation.next_seq() else None)


@router.post("/conversation/load", response_model=list[Message])
async def load(repo: Readable, thread: Thread, body: Load) -> Any:
    """Give what an agent is to read, summaries in place of what was compacted."""
    return await repo.conversation(thread).load(**given(body))


@router.post("/conversation/clear", status_code=204, response_model=None)
async def clear(repo: Writable, thread: Thread) -> None:
    """Begin the conversation anew; what was said stays in the history."""
    await repo.conversation(thread).clear()


@router.get("/conversation/window", response_model=WindowLook)
async def window(repo: Readable, thread: Thread, budget_tokens: Tokens = None) -> Any:
    """Describe the window in numbers and zones; nothing is written."""
    return await repo.conversation(thread).look(budget_tokens)


@router.get("/conversation/derived", response_model=Derived)
async def derived(repo: Readable, thread: Thread) -> Any:
    """Give goals, pins and snapshots."""
    conversation = repo.conversation(thread)
    return Derived(
        goals=await conversation.goals.list(),
        pins=await conversation.pins.list(),
        snapshots=await conversation.snapshots.list(),
    )

"""Dependencies of the notes of one repository, given by the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mnemo.config import NotesConfig
from mnemo.events import Event
from mnemo.notes.note_writing import NoteStore
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Clock, Embedder
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.text import count_tokens
from mnemo.values.counting import Count


def _no_session(session_id: str) -> UsageMeter | None:
    return None


async def _later() -> bool:
    return False


def _open() -> bool:
    return False


def _usable() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesParts:
    """
    Dependencies of the notes of one repository.

    Attributes:
        publish: Publishes an event; a plain call.
        spawn: Starts a task that is cancelled when the service closes; a plain call.
        meter: Counts what all calls of the repository's updates cost.
        session_meter: The meter of an open session; ``None`` if it is not open.
        scrub: Rids the store's files of what was erased (``Store.scrub``).
        closing: Whether the service or the repository is shutting down, or closed.
        count: Counts the tokens of what is shown.
        check_usable: Raises ``UsageError`` in another event loop, and once all has ended.
    """

    repo_id: str
    store: NoteStore
    embedder: Embedder
    chat_model: ChatModel | None
    clock: Clock
    config: NotesConfig
    publish: Callable[[Event], None]
    spawn: Callable[..., asyncio.Task[None]]
    meter: UsageMeter
    scrub: Callable[[], Awaitable[bool]] = _later
    session_meter: Callable[[str], UsageMeter | None] = _no_session
    closing: Callable[[], bool] = _open
    check_usable: Callable[[], None] = _usable
    count: Count = count_tokens
    spans: Spans = NO_SPANS

"""``MnemoMemoryService``: a memory service of Google's Agent Development Kit (ADK)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from operator import methodcaller
from os import PathLike
from typing import Any, Self
from urllib.parse import quote

import anyio.to_thread

from mnemo import Candidate, Conflict, Message, Mnemo, NotFound, Semantic
from mnemo import sync as blocking
from mnemo.adapters.handles import Adapter, Handle, LazyService
from mnemo.runtime.extras import refuse
from mnemo.runtime.validation import portions

try:
    from google.adk.events import Event
    from google.adk.memory import BaseMemoryService
    from google.adk.memory.base_memory_service import SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions import Session
    from google.genai.types import Content, Part
except ImportError as error:
    refuse(__name__, "adk", error)

__all__ = ["MnemoMemoryService", "repo_id_of"]

_UNNAMED = "events"
"""The thread of events that come without a session's id."""
_LONGEST = 200
"""Characters of a repository's id."""


def repo_id_of(app_name: str, user_id: str) -> str:
    """The repository of one user of one application; a digest where the names are long."""
    named = f"{quote(app_name, safe='')}/{quote(user_id, safe='')}"
    return named if len(named) <= _LONGEST else f"adk-{sha256(named.encode()).hexdigest()}"


class MnemoMemoryService(Adapter, BaseMemoryService):
    """
    ADK's memory service, with a repository per application and user.

    Events with text are remembered as messages of the thread of their session: searched at
    once, and extracted in the background. An event is known by its id: added again it stores
    nothing, and one that was deleted does not come back. A repository that is used stays
    open until the service is closed.

    Args:
        memory: An open service, or one of ``mnemo.sync``.
        most: Memories that a search gives, at least 1.

    Raises:
        ConfigError: *memory* is no service.
    """

    def __init__(self, memory: Mnemo | blocking.Mnemo | LazyService, *, most: int = 10) -> None:
        self._attach(memory, Mnemo, blocking.Mnemo)
        self._most = most
        self._known: set[str] = set()

    @classmethod
    def from_path(cls, path: str | PathLike[str], *, most: int = 10) -> Self:
        """A memory service over a file, opened at the first call; close it at the end."""
        return cls(LazyService(path), most=most)

    # ── Adding ───────────────────────────────────────────────────────────────────────

    async def add_session_to_memory(self, session: Session) -> None:
        """
        Remember the events of a session that are not remembered yet; all or none of up to 1,000.

        Raises:
            ValueError: An event or an id cannot be stored; nothing was.
            StoreError: Nothing was stored of the first thousand, or from a later one on; adding
                the session again is safe. *Cancellation*: likewise.
        """
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """
        Remember *events* beside what is remembered of the session; all or none of up to 1,000.

        Args:
            custom_metadata: Of each message: a JSON object, which filters of ``recall`` match.

        Raises:
            ValueError: An event, an id or the metadata cannot be stored; nothing was.
            StoreError: As of ``add_session_to_memory``. *Cancellation*: likewise.
        """
        make = partial(_messages, events, dict(custom_metadata or {}))
        messages = await anyio.to_thread.run_sync(make)
        if not messages:
            return
        repo, thread = await self._repo(app_name, user_id), session_id or _UNNAMED
        try:
            await _remember(repo, messages, thread)
        except Conflict:  # an event was changed after it was remembered: it stays as it was
            stored = await repo.run(lambda repo: repo.conversation(thread).history())
            known = {message.id for message in stored}
            new = [message for message in messages if message.id not in known]
            if new:
                await _remember(repo, new, thread)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """
        Add facts by hand, as ``Repository.add_memory`` does; their author is in the metadata.

        Raises:
            ValueError: A memory has no text, or no time that is ISO 8601; nothing was added.
            StoreError: Those before it were added. *Cancellation*: likewise.
        """
        given = [_fact(one, dict(custom_metadata or {})) for one in memories]
        if not given:
            return
        repo = await self._repo(app_name, user_id)
        for text, at, metadata in given:
            await repo.run(methodcaller("add_memory", text, at=at, metadata=metadata))

    # ── Searching and deleting ───────────────────────────────────────────────────────

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """
        Recall facts and messages of this user, best first; none for a blank query.

        Raises:
            RecallFailed: The embedder or the store failed. *Cancellation*: safe.
        """
        repo = await self._known_repo(app_name, user_id)
        if repo is None or not query.strip():
            return SearchMemoryResponse()
        found = await repo.run(lambda repo: repo.recall(query, k=self._most))
        entries = {entry.id: entry for entry in map(_entry, found.candidates[: self._most])}
        return SearchMemoryResponse(memories=list(entries.values()))

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """
        Erase the memory that a search gave under this id; one that is not there is gone already.

        A message goes as ``Repository.forget`` has it, with the facts that rest on it alone. A
        fact goes alone and is not extracted again; the messages that say it stay.

        Raises:
            Conflict: Several sessions have an event of this id; nothing was erased.
            StoreError: Nothing was erased. *Cancellation*: completes.
        """
        repo = await self._known_repo(app_name, user_id)
        if repo is None or not memory_id:
            return
        with suppress(NotFound):
            await repo.run(lambda repo: repo.forget(memory_ids=[memory_id], sources=False))
            return
        with suppress(NotFound):
            await repo.run(lambda repo: repo.forget(message_ids=[memory_id]))

    # ── Repositories ─────────────────────────────────────────────────────────────────

    async def _known_repo(self, app_name: str, user_id: str) -> Handle | None:
        """The repository of this user; ``None``: nothing was ever added."""
        id = repo_id_of(app_name, user_id)
        if id in self._known or await self._handle.run(lambda memory: memory.has_repo(id)):
            return await self._repo(app_name, user_id)
        return None

    async def _repo(self, app_name: str, user_id: str) -> Handle:
        id = repo_id_of(app_name, user_id)
        self._known.add(id)
        repo = await self._handle.run(lambda memory: memory.open_repo(id, exist_ok=True))
        return Handle(lambda: repo, blocks=isinstance(repo, blocking.Repository))


async def _remember(repo: Handle, messages: Sequence[Message], thread: str) -> None:
    for some in portions(messages):
        await repo.run(methodcaller("remember", some, thread_id=thread))


def _messages(events: Iterable[Event], metadata: dict[str, Any]) -> list[Message]:
    """The events that say something, as messages with the events' ids."""
    return [
        Message(
            role="user" if event.author == "user" else "assistant",
            content=text,
            id=event.id or None,
            actor=event.author or None,
            at=datetime.fromtimestamp(event.timestamp, UTC),
            metadata=metadata,
        )
        for event in events
        if (text := _text(event.content))
    ]


def _text(content: Content | None) -> str:
    """What *content* says; thoughts, calls, results and files say nothing."""
    parts = (content.parts or ()) if content is not None else ()
    return "\n".join(part.text for part in parts if part.text and not part.thought).strip()


def _fact(
    entry: MemoryEntry, metadata: dict[str, Any]
) -> tuple[str, datetime | None, dict[str, Any]]:
    """Text, time and metadata of a memory."""
    if not (text := _text(entry.content)):
        raise ValueError("a memory needs text: what has none cannot be searched")
    author = {} if entry.author is None else {"author": entry.author}
    at = None if entry.timestamp is None else datetime.fromisoformat(entry.timestamp)
    return text, at, {**metadata, **entry.custom_metadata, **author}


def _entry(candidate: Candidate) -> MemoryEntry:
    """A candidate as a memory: a fact under its id, a message under its event's."""
    source, node = candidate.sources[0], candidate.node
    is_message = node.type == "episodic"
    at = node.valid_from if isinstance(node, Semantic) else source.at
    role = "model" if is_message and source.actor not in (None, "user") else "user"
    return MemoryEntry(
        content=Content(role=role, parts=[Part(text=source.text if is_message else node.text)]),
        id=(source.message_id if is_message else None) or node.id,
        author=source.actor if is_message else None,
        timestamp=at.isoformat() if at is not None else None,
    )

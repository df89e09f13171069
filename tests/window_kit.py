"""What the tests of the window share: messages as they stand in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mnemo._text import count_tokens
from mnemo.config import Config
from mnemo.context.goals import Goals
from mnemo.context.pins import Pins
from mnemo.conversation.appending import append, drafts_of
from mnemo.conversation.parts import ConversationParts, ThreadSettings
from mnemo.conversation.scope import Scope
from mnemo.episode.erasure import ErasureReport
from mnemo.events import Event
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import Store, TranscriptWriter
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.transcript.message import Message, StoredMessage, ToolCall
from mnemo.transcript.strategies import Recent

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stored(message: Message, seq: int, thread_id: str = "t", **fields: Any) -> StoredMessage:
    """*message* as it stands at *seq*."""
    values = {name: getattr(message, name) for name in Message.__slots__}
    values["id"] = values["id"] or f"m{seq}"
    values["token_count"] = values["token_count"] or 100
    values["at"] = values["at"] or START
    kept = {"epoch": 0, "recorded_at": START, **fields}
    return StoredMessage(**values, thread_id=thread_id, seq=seq, **kept)


def said(text: str = "hello", *, tokens: int = 100, role: str = "user", **fields: Any) -> Message:
    """Something said, of *tokens* tokens."""
    return Message(role=role, content=text, token_count=tokens, **fields)


def called(*ids: str, tokens: int = 100, text: str | None = None, name: str = "look") -> Message:
    """A message that makes calls."""
    calls = [ToolCall(id, name, {"q": f"arguments of {id}"}) for id in ids]
    return Message(role="assistant", content=text, tool_calls=calls, token_count=tokens)


def answered(id: str, *, tokens: int = 100, text: str = "found it", **fields: Any) -> Message:
    """A result."""
    return Message(role="tool", content=text, tool_call_id=id, token_count=tokens, **fields)


def thread_of(messages: Sequence[Message], **fields: Any) -> list[StoredMessage]:
    """*messages* as they stand in a thread from seq 0 on."""
    return [stored(message, seq, **fields) for seq, message in enumerate(messages)]


class Threads:
    """The conversations of one repository, and what they share."""

    def __init__(self, store: Store, clock: ManualClock, config: Config | None = None) -> None:
        self.store = store
        self.clock = clock
        self.config = config or Config()
        self.events: list[Event] = []
        self.poked: list[str] = []

    def with_config(self, **sections: Any) -> Threads:
        """The same conversations, seen by a service of another configuration."""
        return Threads(self.store, self.clock, Config(**sections))

    @property
    def parts(self) -> ConversationParts:
        """Their seams, without a model."""
        return ConversationParts(
            repo_id="r",
            store=self.store.transcript("r"),
            embedder=HashingEmbedder(),
            chat_model=None,
            clock=self.clock,
            config=self.config,
            publish=self.events.append,
            spawn=lambda *_: None,
            meter=UsageMeter(),
            forget=_unforgetting,
            appended=lambda settings: self.poked.append(settings.thread_id),
        )

    def settings(self, thread_id: str = "t", *, ttl_s: float | None = None) -> ThreadSettings:
        """Of a handle with all defaults."""
        return ThreadSettings(thread_id=thread_id, retrieval=Recent(), ttl_s=ttl_s)

    def goals(self, thread_id: str = "t") -> Goals:
        """The thread's goals."""
        return Goals(self.parts.store, thread_id)

    def pins(self, thread_id: str = "t", **settings: Any) -> Pins:
        """The thread's pins."""
        return Pins(self.parts, self.settings(thread_id, **settings))

    async def say(self, *messages: Message, thread_id: str = "t") -> list[StoredMessage]:
        """Append messages as a caller would."""
        drafts = drafts_of(messages, count_tokens)
        settings = self.settings(thread_id)

        def work(tx: TranscriptWriter) -> list[StoredMessage]:
            scope = Scope.of(tx, settings, self.config)
            return append(tx, scope, drafts).messages

        return await self.parts.store.writing(work)


async def _unforgetting(thread_id: str) -> ErasureReport:
    raise AssertionError(f"nobody forgets {thread_id}")

"""Conversations over a bare store: what the tests of their rooms share."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from helpers import until

from mnemo.config import Config
from mnemo.conversation.log import MessageLog
from mnemo.conversation.scope import ConversationParts, ThreadSettings, settings_of
from mnemo.index.follower import RepositoryIndex
from mnemo.prompts.usage import UsageMeter
from mnemo.runtime.tasks import TaskRoot
from mnemo.testing import HashingEmbedder, ManualClock, RecordingObserver
from mnemo.values.derived import Thread
from mnemo.values.erasure import Erased, Selection
from mnemo.values.messages import Message, StoredMessage, ToolCall


@dataclass
class Talk:
    """
    One open store with the parts of one repository's conversations.

    Attributes:
        appended: The settings of every append that stored something, in order.
        seen: Every event.
    """

    store: Any
    clock: ManualClock
    parts: ConversationParts
    seen: RecordingObserver
    appended: list[ThreadSettings] = field(default_factory=list)
    until = staticmethod(until)

    def log(self, thread_id: str = "t", **keywords: Any) -> MessageLog:
        """A handle, with the keywords of ``repo.conversation``."""
        return MessageLog(self.parts, self.settings(thread_id, **keywords))

    def settings(self, thread_id: str = "t", **keywords: Any) -> ThreadSettings:
        """What a handle's keywords come to."""
        return settings_of(thread_id, self.parts.config, **keywords)

    async def embed(self) -> None:
        """Give every message that is owed a vector one."""
        feed = self.store.feed("r")
        index = RepositoryIndex(feed=feed, embedder=self.parts.embedder, agent_name="agent")
        await index.embed_waiting()

    async def row(self, thread_id: str = "t") -> Thread:
        """What the store keeps of a thread."""
        return await self.parts.store.reading(lambda tx: tx.thread(thread_id))


OpenTalk = Callable[..., Awaitable[Talk]]
"""The fixture ``open_conversations``."""


@asynccontextmanager
async def open_talk(
    store: Any, clock: ManualClock, *, config: Config | None = None, **parts: Any
) -> AsyncIterator[Talk]:
    """
    Open *store* and give what its conversations need; all is closed at the end.

    Args:
        parts: Fields of ``ConversationParts`` in place of the usual ones.
    """
    seen, root = RecordingObserver(), TaskRoot()
    appended: list[ThreadSettings] = []
    await store.open()
    root.open()

    async def forget(selection: Selection) -> Erased:
        erased: Erased = await store.overhaul("r").erase(selection)
        return erased

    usual: dict[str, Any] = {
        "repo_id": "r",
        "store": store.transcript("r"),
        "embedder": HashingEmbedder(),
        "chat_model": None,
        "clock": clock,
        "config": config or Config(),
        "publish": seen,
        "spawn": root.spawn,
        "meter": UsageMeter(),
        "forget": forget,
        "appended": appended.append,
    }
    try:
        yield Talk(store, clock, ConversationParts(**{**usual, **parts}), seen, appended)
    finally:
        await root.aclose()
        await store.aclose()


def user(text: str, **fields: Any) -> Message:
    """What a user says."""
    return Message(role="user", content=text, **fields)


def assistant(text: str | None, *calls: str, **fields: Any) -> Message:
    """What an assistant says, with a call of ``tool`` for each id."""
    tool_calls = [ToolCall(id, "tool", {"of": id}) for id in calls]
    return Message(role="assistant", content=text, tool_calls=tool_calls, **fields)


def result(call_id: str, text: str = "done", **fields: Any) -> Message:
    """What a tool answers."""
    return Message(role="tool", content=text, tool_call_id=call_id, **fields)


def turns(count: int, *, start: int = 0, **fields: Any) -> list[Message]:
    """*count* alternating messages, ``m0`` of the user first; ids are their texts."""
    texts = [f"m{place}" for place in range(start, start + count)]
    roles: list[Any] = ["user", "assistant"]
    return [
        Message(role=roles[place % 2], content=text, id=text, **fields)
        for place, text in enumerate(texts, start)
    ]


def texts(messages: list[Any]) -> list[str]:
    """The words of each."""
    return [message.text for message in messages]


def seqs(messages: list[StoredMessage]) -> list[int]:
    """The seq of each."""
    return [message.seq for message in messages]

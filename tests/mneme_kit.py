"""What the tests of Mneme share: a watched thread, and a model that does as it is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from talk_kit import Talk, open_talk
from world import store_at

from mnemo.config import Config, ViewportConfig
from mnemo.context.eviction import Snapshots
from mnemo.context.goals import Goals, Pins
from mnemo.context.mneme import Mneme
from mnemo.context.viewport import Viewport
from mnemo.conversation.log import MessageLog
from mnemo.conversation.scope import ThreadSettings
from mnemo.protocols import ChatRequest
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.testing import ManualClock, Script, ScriptedChatModel, tool_call
from mnemo.values.derived import Thread
from mnemo.values.messages import Message

BUDGET = 1_000
"""Leaves a window of 700, a trigger of 595 and a zone of 233."""


def snapshot(text: str = "s") -> dict[str, Any]:
    """The call that saves a snapshot."""
    return tool_call("save_snapshot", text=text)


def ok() -> dict[str, Any]:
    """The call that says nothing is worth keeping."""
    return tool_call("everything_ok")


def attach(message_ids: Any, goal_ids: Any) -> dict[str, Any]:
    """The call that pins messages."""
    return tool_call("attach_messages_to_goals", message_ids=message_ids, goal_ids=goal_ids)


def both(*calls: dict[str, Any], text: str = "") -> dict[str, Any]:
    """One reply with several calls."""
    return {"tool_calls": list(calls), "text": text}


class Watched:
    """The thread ``t`` of a repository, watched by Mneme with a budget."""

    def __init__(self, talk: Talk, mneme: Mneme, model: ScriptedChatModel | None) -> None:
        self.talk = talk
        self.mneme = mneme
        self.scripted = model
        self.log = talk.log()
        self.settings = talk.settings()
        self.goals = Goals(talk.parts, self.settings)
        self.pins = Pins(talk.parts, self.settings)
        self.snapshots = Snapshots(talk.parts, self.settings)
        self.said = 0

    @property
    def model(self) -> ScriptedChatModel:
        """The one that is asked."""
        assert self.scripted is not None
        return self.scripted

    @property
    def requests(self) -> list[ChatRequest]:
        """Every request so far."""
        return self.scripted.requests if self.scripted else []

    def viewport(self, budget_tokens: int = BUDGET) -> Viewport:
        """The thread's viewport."""
        return Viewport(
            self.talk.parts, self.settings, mneme=self.mneme, budget_tokens=budget_tokens
        )

    async def say(
        self, number: int = 1, *, tokens: int = 100, log: MessageLog | None = None
    ) -> None:
        """Append so many messages, user and assistant in turn."""
        batch = []
        for _ in range(number):
            role: Any = "assistant" if self.said % 2 else "user"
            text = f"Sentence {self.said}. And more."
            batch.append(Message(role=role, content=text, id=f"m{self.said}", token_count=tokens))
            self.said += 1
        for start in range(0, number, MOST_AT_ONCE):
            await (log or self.log).append(batch[start : start + MOST_AT_ONCE])

    async def settle(self) -> None:
        """Wait until Mneme has nothing to do."""
        with anyio.fail_after(120):
            await self.mneme.settled("t")

    async def say_and_settle(self, number: int = 1, **said: Any) -> None:
        """Append so many, and wait for all that comes of it."""
        await self.say(number, **said)
        await self.settle()

    async def row(self) -> Thread:
        """The thread's row."""
        return await self.talk.row()

    async def boundary(self) -> int:
        """Where the window begins."""
        return (await self.row()).boundary

    async def verdicts(self) -> list[tuple[int, int, str]]:
        """Range and kind of every outcome."""
        return [(o.from_seq, o.to_seq, o.kind) for o in await self.snapshots.outcomes()]

    async def texts(self, **which: Any) -> list[tuple[int, int, str]]:
        """Range and text of snapshots."""
        return [(s.from_seq, s.to_seq, s.text) for s in await self.snapshots.list(**which)]

    def events(self, name: str) -> list[Any]:
        """The events of a type so far."""
        return [event for event in self.talk.seen.events if type(event).__name__ == name]


@asynccontextmanager
async def watched(
    folder: Path | None = None,
    *,
    script: Script | None = None,
    model: Any = None,
    clock: ManualClock | None = None,
    budget: int | None = BUDGET,
    store: Any = None,
    config: Config | None = None,
    parts: Any = None,
    **viewport: Any,
) -> AsyncIterator[Watched]:
    """
    Open a thread that is watched with *budget*.

    Args:
        folder: Where its store is; ``None`` is in memory.
        script: Of the purpose ``summarize``; ``None``: there is no chat model, unless *model*.
        viewport: Fields of ``Config.viewport``; attempts follow each other at once.
    """
    clock = clock or ManualClock()
    scripted = ScriptedChatModel({"summarize": script}) if script is not None else model
    settings = Config(viewport=ViewportConfig(**{"retry_backoff_s": 0, **viewport}))
    found: list[Mneme] = []

    def appended(settings: ThreadSettings) -> None:
        found[0].appended(settings)

    async with open_talk(
        store or (store_at(folder / "talk.db", clock) if folder else store_at(None, clock)),
        clock,
        config=settings.overlaid(config),
        chat_model=scripted,
        **{"appended": appended, **(parts or {})},
    ) as talk:
        mneme = Mneme(talk.parts)
        found.append(mneme)
        kit = Watched(talk, mneme, scripted)
        if budget is not None:
            kit.viewport(budget)
        yield kit

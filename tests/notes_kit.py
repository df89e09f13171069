"""Notes under test: what is said, what a scripted model answers, and what is watched."""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from world import store_at

from mnemo.config import NotesConfig
from mnemo.events import Event, MemoryUpdateFinished
from mnemo.notes.notes import Notes
from mnemo.notes.shelf import NotesParts
from mnemo.notes.update import NoteUpdate, Progress
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatReply, ChatRequest, Usage
from mnemo.runtime.tasks import TaskRoot
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel

COST = Usage("scripted", 100, 10, 80, 0.01)


def user(text: str, **rest: Any) -> dict[str, Any]:
    """What a person said."""
    return {"role": "user", "content": text, **rest}


def assistant(text: str, **rest: Any) -> dict[str, Any]:
    """What the assistant said."""
    return {"role": "assistant", "content": text, **rest}


def task(*texts: str, ids: bool = True) -> list[dict[str, Any]]:
    """A system message, then user and assistant in turn, with ids unless told otherwise."""
    said = [{"role": "system", "content": "You help."}]
    for index, text in enumerate(texts):
        said.append(assistant(text) if index % 2 else user(text))
    if ids:
        return [{**message, "id": f"m{i}"} for i, message in enumerate(said)]
    return said


TRIP = task("We fly to Tokyo in March and stay for two weeks.", "Noted, Tokyo in March.")


def reply(*calls: Mapping[str, Any], text: str = "", usage: Usage = COST) -> ChatReply:
    """A reply with tool calls, each ``{"name": …, **arguments}``."""
    numbered = [
        {
            "id": f"c{next(_numbers)}",
            "name": call["name"],
            "arguments": {key: value for key, value in call.items() if key != "name"},
        }
        for call in calls
    ]
    return ChatReply(text=text, tool_calls=numbered, usage=usage)


_numbers = itertools.count()

NOTHING = ChatReply(text="Nothing to note.", usage=COST)


def writes(
    topic: str = "travel",
    body: str = "- Tokyo in March",
    description: str = "Where the user travels",
    evidence: str = "We fly to Tokyo in March",
    **rest: Any,
) -> dict[str, Any]:
    """A call of ``write_note``."""
    given = {"topic": topic, "description": description, "body": body, "evidence": evidence}
    return {"name": "write_note", **given, **rest}


@dataclass
class NotesKit:
    """Notes under test, and what drives and watches them."""

    notes: Notes
    store: Any
    clock: ManualClock
    model: ScriptedChatModel
    root: TaskRoot
    meter: UsageMeter
    sessions: dict[str, UsageMeter] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    told: list[Progress] = field(default_factory=list)

    async def update(
        self, history: Sequence[Any] = TRIP, iterations: int = 10, **rest: Any
    ) -> NoteUpdate:
        """An update after a task of ten iterations, told to ``told``."""
        rest.setdefault("on_progress", self.told.append)
        return await self.notes.update_after_task(history, iterations=iterations, **rest)

    def script(self, *replies: Any) -> None:
        """What the model answers, in order; the last repeats."""
        left = list(replies)
        self.model.script("update_notes", lambda request: left.pop(0) if len(left) > 1 else left[0])

    @property
    def asked(self) -> list[ChatRequest]:
        """What the model was asked."""
        return self.model.requests

    def skipped(self) -> bool:
        """Whether nothing was seen of an update: no call, no progress, no event."""
        return not (self.asked or self.told or self.events)

    @property
    def finished(self) -> list[MemoryUpdateFinished]:
        """The events of updates."""
        return [event for event in self.events if isinstance(event, MemoryUpdateFinished)]

    @property
    def phases(self) -> list[str]:
        """What the progress was told."""
        return [progress.phase for progress in self.told]


OpenNotes = Callable[..., Awaitable[NotesKit]]


async def make_notes(
    stack: AsyncExitStack,
    kind: str,
    path: Path,
    *replies: Any,
    model: Any = None,
    without_model: bool = False,
    store: Any = None,
    embedder: Any = None,
    wrap: Callable[[Any], Any] = lambda store: store,
    repo_id: str = "r",
    **config: Any,
) -> NotesKit:
    """Notes over a store of *kind*, closed with *stack*."""
    clock = ManualClock()
    model = model or ScriptedChatModel({"update_notes": list(replies or (NOTHING,))})
    if store is None:
        store = store_at(None if kind == "memory" else path, clock)
        await store.open()
        stack.push_async_callback(store.aclose)
    root = TaskRoot()
    root.open()
    stack.push_async_callback(root.aclose)
    sessions: dict[str, UsageMeter] = {}
    events: list[Event] = []
    meter = UsageMeter()
    parts = NotesParts(
        repo_id=repo_id,
        store=wrap(store.notes(repo_id)),
        embedder=embedder or HashingEmbedder(),
        chat_model=None if without_model else model,
        clock=clock,
        config=NotesConfig(**config),
        publish=events.append,
        spawn=root.spawn,
        meter=meter,
        scrub=store.engine.scrub,
        session_meter=sessions.get,
    )
    notes = Notes(parts)
    stack.push_async_callback(notes._aclose, 0)
    return NotesKit(notes, store, clock, model, root, meter, sessions, events)

"""A repository's notes over both stores, with a scripted model and a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from notes_kit import NOTHING, NotesKit, OpenNotes, store_of

from mnemo._tasks import TaskRoot
from mnemo.config import NotesConfig
from mnemo.events import Event
from mnemo.notes.notes import Notes
from mnemo.notes.parts import NotesParts
from mnemo.prompts.usage import UsageMeter
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """Over which store a test runs."""
    return str(request.param)


@pytest.fixture
async def open_notes(kind: str, tmp_path: Path) -> AsyncIterator[OpenNotes]:
    """Opens notes that are closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def make(
            *replies: Any,
            model: Any = None,
            without_model: bool = False,
            store: Any = None,
            embedder: Any = None,
            wrap: Callable[[Any], Any] = lambda store: store,
            **config: Any,
        ) -> NotesKit:
            clock = ManualClock()
            model = model or ScriptedChatModel({"update_notes": list(replies or (NOTHING,))})
            if store is None:
                store = store_of(kind, tmp_path / "notes.db", clock)
                await store.open()
                stack.push_async_callback(store.aclose)
            root = TaskRoot()
            await root.open()
            stack.push_async_callback(root.aclose)
            sessions: dict[str, UsageMeter] = {}
            events: list[Event] = []
            meter = UsageMeter()
            parts = NotesParts(
                repo_id="r",
                store=wrap(store.notes("r")),
                embedder=embedder or HashingEmbedder(),
                chat_model=None if without_model else model,
                clock=clock,
                config=NotesConfig(**config),
                publish=events.append,
                spawn=root.spawn,
                meter=meter,
                session_meter=sessions.get,
            )
            notes = Notes(parts)
            stack.push_async_callback(notes.aclose, 0)
            return NotesKit(notes, store, clock, model, root, meter, sessions, events)

        yield make

"""A repository's notes over both stores, with a scripted model and a clock that stands still."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from notes_kit import NotesKit, OpenNotes, make_notes


@pytest.fixture
def kind() -> str:
    """Over which store a test runs."""
    return "sqlite"


@pytest.fixture
async def open_notes(kind: str, tmp_path: Path) -> AsyncIterator[OpenNotes]:
    """Opens notes that are closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def make(*replies: Any, **given: Any) -> NotesKit:
            return await make_notes(stack, kind, tmp_path / "notes.db", *replies, **given)

        yield make


@pytest.fixture
async def kit(open_notes: OpenNotes) -> NotesKit:
    """Notes whose model has nothing to note."""
    return await open_notes()

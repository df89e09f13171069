"""A process that writes versions of notes until it is killed: ``notes_child.py DB``."""

from __future__ import annotations

import sys

import anyio

from mnemo.config import NotesConfig, StoreConfig
from mnemo.notes.notes import Notes
from mnemo.notes.parts import NotesParts
from mnemo.prompts.usage import UsageMeter
from mnemo.runtime.clock import SystemClock
from mnemo.store.sqlite import SqliteStore
from mnemo.testing import HashingEmbedder


async def main(path: str) -> None:
    """Version n of every note says n, in description and in each line of the body."""
    clock = SystemClock()
    store = SqliteStore(path, config=StoreConfig(), clock=clock, lease_s=30)
    await store.open()
    parts = NotesParts(
        repo_id="r",
        store=store.notes("r"),
        embedder=HashingEmbedder(),
        chat_model=None,
        clock=clock,
        config=NotesConfig(keep_versions=5),
        publish=lambda event: None,
        spawn=lambda *args: None,
        meter=UsageMeter(),
        scrub=store.scrub,
    )
    notes = Notes(parts)
    for number in range(1, 100_000):
        for topic in ("alpha", "beta"):
            body = "\n".join([f"- this is text {number}"] * 60)
            note = await notes.write(topic, body, f"text {number}")
            sys.stdout.write(f"{topic} {note.version}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])

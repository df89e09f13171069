"""
A process that keeps facts in one note, as an updater does: ``notes_updater.py DB NAME FACTS``.

Each fact is an update of its own conversation: the model reads the note, and writes old
and new together; where it meets a conflict it joins again.
"""

import json
import sys
from typing import Any

import anyio
from world import store_at

from mnemo.config import NotesConfig
from mnemo.notes.notes import Notes
from mnemo.notes.shelf import NotesParts
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.tasks import TaskRoot
from mnemo.testing import HashingEmbedder, ScriptedChatModel

TOPIC = "shared-facts"


def answer(request: ChatRequest) -> ChatReply:
    """Read, then write what was read and the fact that the user stated."""
    fact = next(m.content for m in request.messages if m.content.startswith("The fact is "))
    told = [json.loads(m.content) for m in request.messages if m.role == "tool"]
    if not told:
        return _call("read_note", topic=TOPIC)
    if told[-1].get("changed") is not None:
        return ChatReply(text="Done.")
    line = f"- {fact.removeprefix('The fact is ')}"
    body = f"{told[-1]['body']}\n{line}" if told[-1].get("body") else line
    return _call("write_note", topic=TOPIC, description="Facts", body=body, evidence=fact)


def _call(name: str, **arguments: Any) -> ChatReply:
    return ChatReply(tool_calls=[{"id": "c", "name": name, "arguments": arguments}])


async def main(path: str, name: str, facts: int) -> None:
    """Keep so many facts, some of them by the rule, and say what was written."""
    clock = SystemClock()
    store = store_at(path, clock)
    await store.open()
    root = TaskRoot()
    root.open()
    parts = NotesParts(
        repo_id="r",
        store=store.notes("r"),
        embedder=HashingEmbedder(),
        chat_model=ScriptedChatModel({"update_notes": answer}),
        clock=clock,
        config=NotesConfig(max_turns=50),
        publish=lambda event: None,
        spawn=root.spawn,
        meter=UsageMeter(),
        scrub=store.engine.scrub,
    )
    notes = Notes(parts)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(facts):
        said = f"The fact is {name} {number}"
        update = await notes.update_after_task(
            [{"role": "user", "content": said}], iterations=10, thread_id=said
        )
        told = {"wrote": update.wrote, "error": str(update.error)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    await root.aclose()
    await store.aclose()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""Write what was said in a repository as text: JSON Lines, OpenAI's chat format, Markdown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mnemo import Conversation, Repository, StoredMessage
from mnemo.cli.archive import departing
from mnemo.cli.output import as_data
from mnemo.wire import to_openai

AT_ONCE = 500
"""Messages, memories and threads that are in memory at once; a chat of ``openai`` is whole."""

Write = Callable[[str], Any]


async def export_text(repo: Repository, file: str, to: str) -> dict[str, int]:
    """
    Write *repo* to *file* in the format *to*, one of ``FORMATS``.

    The file appears when it is whole, and until then an earlier one stays.

    Returns:
        How many threads and messages were written.
    """
    counts = {"threads": 0, "messages": 0}
    with departing(file) as out:
        if to == "markdown":
            await _write_memories(repo, out.write)
        for record in await repo.threads():
            conversation = repo.conversation(record.thread_id)
            counts["messages"] += await FORMATS[to](conversation, out.write)
            counts["threads"] += 1
    return counts


async def _pages(conversation: Conversation) -> AsyncIterator[list[StoredMessage]]:
    end = await conversation.next_seq()
    for first in range(0, end, AT_ONCE):
        last = min(first + AT_ONCE, end) - 1
        yield await conversation.history(from_seq=first, to_seq=last)


async def _jsonl(conversation: Conversation, write: Write) -> int:
    count = 0
    async for page in _pages(conversation):
        for message in page:
            write(json.dumps(as_data(message)) + "\n")
        count += len(page)
    return count


async def _openai(conversation: Conversation, write: Write) -> int:
    messages = [message async for page in _pages(conversation) for message in page]
    line = {"id": conversation.thread_id, "messages": to_openai(messages)}
    write(json.dumps(line) + "\n")
    return len(messages)


async def _markdown(conversation: Conversation, write: Write) -> int:
    write(f"## Thread {conversation.thread_id}\n\n")
    count = 0
    async for page in _pages(conversation):
        for message in page:
            who = message.actor or message.name or message.role
            calls = [f"(calls {call.name})" for call in message.tool_calls]
            said = "\n".join([*filter(None, [message.text]), *calls])
            write(f"**{who}**, {message.at:%Y-%m-%d %H:%M}:\n\n{said}\n\n")
        count += len(page)
    return count


async def _write_memories(repo: Repository, write: Write) -> None:
    write(f"# Repository {repo.id}\n\n## Memories\n\n")
    after: str | None = None
    while True:
        page = await repo.memories(limit=AT_ONCE, after=after)
        for memory in page:
            write("- " + memory.text.replace("\n", "\n  ") + "\n")
        after = page.next
        if after is None:
            break
    write("\n## Notes\n\n")
    for info in await repo.notes.list():
        note = await repo.notes.read(info.topic)
        write(f"### {note.topic}\n\n{note.description}\n\n{note.body}\n\n")


FORMATS: dict[str, Callable[[Conversation, Write], Awaitable[int]]] = {
    "jsonl": _jsonl,
    "openai": _openai,
    "markdown": _markdown,
}
"""Format → what writes one conversation."""

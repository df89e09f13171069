"""The commands about single memories: ``remember``, ``memories``, ``changes``, ``edit``."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio.to_thread

from mnemo import Memory, Message, Repository, UsageError
from mnemo.cli.opening import Answer, on_repo
from mnemo.cli.output import as_data, complain
from mnemo.importing.chats import read_chat
from mnemo.runtime.text import counted

_AT_ONCE = 1_000
"""Memories that are in memory at once, besides those that are listed."""
_MOST_READ = 10_000
"""Memories that are read to put them in order of their dates (S)."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@on_repo(may_be_new=True, first=lambda text, **_: {"text": _said(text)})
async def remember(
    opened: Repository,
    text: str,
    *,
    thread: str = "default",
    actor: str | None = None,
    wait: bool = True,
    embedder: str | None = None,
) -> Answer:
    """
    Remember a text: found by search and recall at once, and known as facts when extracted.

    Args:
        text: A text or a file of messages; `-`: standard input.
        thread: The conversation.
        actor: Who said it.
        wait: Until it is extracted.
    """
    found = await opened.remember(text, thread_id=thread, actor=actor, wait=wait)
    made = [id for id in found.node_ids if id.startswith(("semantic-", "procedural-"))]
    fresh = f"{counted(len(made), 'memory', 'memories')} {'is' if len(made) == 1 else 'are'} new"
    told = f"Remembered in thread {thread}" + (f"; {fresh}." if wait else ".")
    messages = [message.id for message in found.messages]
    return {"thread": thread, "messages": messages, "node_ids": found.node_ids}, told


@on_repo("memories", "--where --limit=20 --superseded")
async def memories(opened: Repository, query: str | None = None, **asked: Any) -> Answer:
    """
    List facts and instructions, the newest first or the best for a query.

    Args:
        query: Only what fits these words.
        limit: Memories, at most.
        superseded: What was replaced, too.
    """
    limit, where = asked["limit"], asked["where"]
    if limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")
    if query is not None and asked["superseded"]:
        raise UsageError("a query finds what holds: leave --superseded or the query away")
    if query is None:
        found = await _newest(opened, **asked)
    else:
        types = ("semantic", "procedural")
        best = await opened.recall(query, k=limit, types=types, where=where, use_model=False)
        found = [await opened.memory(candidate.node.id) for candidate in best.candidates]
    table = (("id", "type", "since", "until", "text"), list(map(_row, found)))
    return {"memories": found}, table, f"there are no such memories in repository {opened.id!r}"


async def _newest(repo: Repository, limit: int, **asked: Any) -> list[Memory]:
    """
    The *limit* latest by their dates, which are not the order in which they were stored.

    Those are taken from the ones that were stored last; if there are others, that is told.
    """
    found: list[Memory] = []
    after: str | None = None
    for _ in range(0, _MOST_READ, _AT_ONCE):
        page = await repo.memories(limit=_AT_ONCE, after=after, **asked)
        found = sorted((*found, *page), key=_since, reverse=True)[:limit]
        after = page.next
        if after is None:
            return found
    complain(f"all but the {_MOST_READ:,} stored last are left out: a QUERY or --where finds them")
    return found


def _since(memory: Memory) -> datetime:
    """When its evidence begins; of one without any, when it was stored."""
    said = [source.at for source in memory.sources if source.at]
    return memory.valid_from or min(said, default=None) or memory.created_at or _LONG_AGO


def _row(memory: Memory) -> tuple[str, str, str, str, str]:
    until = ""
    if memory.superseded_by or memory.valid_to:
        day = f"{memory.valid_to:%Y-%m-%d} " if memory.valid_to else ""
        until = day + ("(replaced)" if memory.superseded_by else "(ended)")
    return memory.id, memory.type, f"{_since(memory):%Y-%m-%d}", until, memory.text


@on_repo("changes", "subject --since --until --limit=20")
async def changes(opened: Repository, **asked: Any) -> Answer:
    """
    List what held and holds no longer, the latest change first.

    Args:
        subject: A person or thing they name.
        since: From this ISO time on.
        until: Up to this ISO time.
        limit: Changes, at most.
    """
    page = await opened.changes(**asked)
    rows = [(f"{c.when:%Y-%m-%d}", c.old.text, c.new.text if c.new else "(ended)") for c in page]
    nothing = f"there are no such changes in repository {opened.id!r}"
    return {"changes": list(page)}, (("when", "before", "now"), rows), nothing


@on_repo("update_memory", "--reason")
async def edit(opened: Repository, memory_id: str, text: str | None = None, **asked: Any) -> Answer:
    """
    Correct what a memory says, from now on; its history keeps the wording before.

    Args:
        memory_id: As `mnemo memories` has it.
        text: The new wording; without it $EDITOR is opened.
        reason: Why, for its history.
    """
    before = await opened.memory(memory_id)
    wording = await anyio.to_thread.run_sync(_edited, before.text) if text is None else text
    memory = await opened.update_memory(
        memory_id, wording, expected_version=before.version, **asked
    )
    changed = memory.version != before.version
    told = f"{memory.id} is version {memory.version}: {memory.text}"
    data = {"changed": changed} | as_data(memory)
    return data, told if changed else f"{memory.id} says that already."


def _said(given: str) -> str | tuple[Message, ...]:
    """A text, standard input, or the messages of a file. *Raises* ``ImportFileError``."""
    if given == "-":
        return sys.stdin.read()
    # A long text is no path that a file could have, which ``Path.is_file`` refuses.
    return read_chat(Path(given)) if os.path.isfile(given) else given


def _edited(text: str) -> str:
    """*text* as edited. *Raises* ``UsageError``: there is no terminal, or the editor failed."""
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to edit: give the new wording as an argument")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.txt"
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.call([*shlex.split(editor), str(file)])
        except OSError as error:
            raise UsageError(f"$EDITOR {editor!r} cannot be started: {error}") from error
        if code:
            raise UsageError(f"the editor ended with {code}; nothing was changed")
        return file.read_text(encoding="utf-8").strip()


COMMANDS = (remember, memories, changes, edit)

"""The process behind ``mnemo hook``: it keeps a memory open, recalls from it and stores in it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from mnemo import Config, Mnemo, MnemoError, Repository
from mnemo.cli.hook import TAG, labelled, thread_of
from mnemo.importing.chats import claude_code
from mnemo.importing.records import Broken, Item, LeftOut, Record, mapping_of
from mnemo.importing.writing import import_items
from mnemo.runtime.secrets import without_secrets

IDLE_S = 900.0
"""Seconds without a request after which it ends (S)."""
LONGEST = 1 << 20
"""Bytes of a request, with the prompt in it (S)."""
BUDGET_TOKENS = 600
"""Tokens of text that a hook puts into the agent's context, at most (S)."""

_PUT_IN = re.compile(  # by hooks and the program: nobody said it
    rf"<({TAG}|system-reminder|local-command-\w+|command-\w+|user-prompt-submit-hook)\b[^>]*>"
    r".*?(?:</\1>|\Z)",
    re.DOTALL,
)


def serve(address: str, store: str) -> int:
    """
    Answer at *address* until it is idle, unless another process does.

    Standard input is the file of the lock that is held from the start of a process to its first
    answer: whoever started this one may have it already. Standard output ends when it answers;
    before that it has the reason why it cannot.
    """
    try:
        fcntl.flock(0, fcntl.LOCK_EX)
        with socket.socket(socket.AF_UNIX) as other, suppress(OSError):
            other.connect(address)
            return 0
        os.ftruncate(0, 0)
        os.write(0, f"{os.getpid()}\n".encode())
        anyio.run(_serve, address, store)
    except (MnemoError, OSError, ImportError, ValueError) as error:
        sys.stdout.write(str(error))
        return 2
    return 0


def mcp(store: str) -> int:
    """Serve the same memory to the agent as tools; exit codes as of ``mnemo-mcp``."""
    from mnemo.cli import mcp

    _keep_private(store)
    repo = os.environ.get("MNEMO_REPO", "default")
    sys.argv = ["mnemo-mcp", "--store", store, "--repo", repo, "--thread", "claude-code"]
    return mcp()


def _keep_private(store: str) -> None:
    """Make the file, or have it, for this user alone; so are those that SQLite puts beside it."""
    os.umask(0o077)
    if "://" not in store:
        Path(store).parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(store, os.O_CREAT | os.O_RDWR, 0o600))
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.chmod(store + end, 0o600)


async def _serve(address: str, store: str) -> None:
    _keep_private(store)
    async with Mnemo(store, config=Config.from_env()) as memory:
        repo = await memory.open_repo(os.environ.get("MNEMO_REPO", "default"))
        await repo.recall("what is known")  # loads what the first prompt would wait for
        listener = await anyio.create_unix_listener(address, mode=0o600)
        fcntl.flock(0, fcntl.LOCK_UN)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever started it goes on
        with anyio.CancelScope() as scope:
            await listener.serve(Hooks(repo, scope).handle)


class Hooks:
    """Answers hooks over *repo*; *idle* is cancelled when none has come for long."""

    def __init__(self, repo: Repository, idle: anyio.CancelScope) -> None:
        self._repo = repo
        self._idle = idle
        self._wait()
        self._read: dict[str, int] = {}  # transcript → bytes of it that are stored

    def _wait(self) -> None:
        self._idle.deadline = anyio.current_time() + IDLE_S

    async def handle(self, stream: ByteStream) -> None:
        """Answer one request, a line of JSON. *Cancellation*: safe."""
        self._wait()
        async with stream:
            with suppress(
                anyio.BrokenResourceError, anyio.IncompleteRead, anyio.DelimiterNotFound
            ):  # whoever asked left
                line = await BufferedByteReceiveStream(stream).receive_until(b"\n", LONGEST)
                try:
                    answer = await self.answer(json.loads(line))
                except Exception as error:  # it is the asker's, and ends nobody else's
                    answer = {"error": f"{type(error).__name__}: {error}"}
                await stream.send(json.dumps(answer).encode() + b"\n")
        self._wait()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """
        Recall for a hook, ``{"text"}``, or store its transcript, ``{"stored"}``.

        Raises:
            ValueError: The request lacks something.
            OSError: The transcript cannot be read.
            MnemoError: The store or the embedder failed. *Cancellation*: safe.
        """
        if request.get("name") == "user-prompt-submit":
            return {"text": await self._recalled(str(request["prompt"]), request["session_id"])}
        if request.get("name") == "session-start":
            return {"text": await self._known()}
        return {"stored": await self._store(request["transcript_path"], request.get("tools"))}

    async def _recalled(self, prompt: str, session: str) -> str:
        """What earlier sessions have for *prompt*; this one's texts are in the context already."""
        if not prompt.strip():
            return ""
        found = await self._repo.recall(prompt[:4000], k=10)
        thread = thread_of(session)
        threads = ({source.thread_id for source in one.sources} for one in found.candidates)
        other = [one for one, of in zip(found.candidates, threads, strict=True) if of != {thread}]
        return labelled(replace(found, candidates=other).as_text(BUDGET_TOKENS))

    async def _known(self) -> str:
        """The notes, a line each, and the newest facts."""
        notes = ""
        if await self._repo.notes.list(limit=1):
            notes = await self._repo.notes.overview(BUDGET_TOKENS // 2)
        page = await self._repo.memories(limit=10)
        facts = [f"- {one.text[:200]}" for one in page]
        return labelled("\n".join(filter(None, [notes, *facts])))

    async def _store(self, path: str, tools: object) -> int:
        """Append what is new in a transcript; its lines are known by their ids."""
        offset = self._read.get(path, 0)
        data = await anyio.to_thread.run_sync(_after, path, offset)
        lines = data[: data.rfind(b"\n") + 1]  # the last one may be half written
        items = (item for line in lines.splitlines() for item in _items(line, bool(tools)))
        done = await import_items(self._repo, items)
        self._read[path] = offset + len(lines)
        return done.added


def _after(path: str, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset if os.fstat(file.fileno()).st_size >= offset else 0)
        return file.read()


def _items(line: bytes, tools: bool) -> Iterator[Item]:
    """What a line of a transcript says, as ``mnemo import`` reads it, without what is private."""
    try:
        with suppress(LeftOut):
            for record in claude_code(mapping_of(json.loads(line)), "transcript"):
                if "/agent-" not in record.thread_id:
                    yield from _said(record, tools)
    except ValueError as error:
        yield Broken("transcript", str(error))


def _said(record: Record, tools: bool) -> Iterator[Record]:
    """What a user or the assistant said, and with *tools* what these gave; secrets are left out."""
    message = record.message
    if message.role == "tool" and not tools:
        return
    text = without_secrets(_PUT_IN.sub("", message.text), lambda kind: f"[redacted:{kind}]").strip()
    if text:
        kept = replace(message, content=text, tool_calls=())
        yield replace(record, message=kept)

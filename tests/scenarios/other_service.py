"""
The other process of the tests with two: a service that does what its input lines ask for.

Every line of input is a JSON list, a command and its arguments; every one is answered by
a line, after what it asked for is durable.
"""

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
from helpers import child_environment

from mnemo import Config, Mnemo, MnemoError, Repository, Session
from mnemo.testing import HashingEmbedder

STEPS = (
    ("Ana moved to Porto in March and works at the harbour", "Noted the address of Ana"),
    ("The violin of Omar is in Leeds", "Noted where the violin is"),
    ("Porto has a harbour and six bridges", ""),
)
"""What both processes say, so that their facts and labels meet."""


async def work(repo: Repository, name: str, sessions: int) -> list[list[str]]:
    """Whole sessions one after another; the ids of each receipt."""
    receipts = []
    for number in range(sessions):
        session = await repo.start_session(f"goal of {name}", session_id=f"{name}-{number}")
        for observation, action in STEPS:
            await session.append(f"{observation}, says {name}{number}", action)
        receipts.append(list((await session.close_and_commit()).node_ids))
        await session.aclose()
    return receipts


class Servant:
    """Answers the commands."""

    def __init__(self, repo: Repository) -> None:
        self.repo = repo
        self.sessions: dict[str, Session] = {}

    async def do(self, command: str, *arguments: Any) -> Any:
        """One command; what is told."""
        match command, *arguments:
            case "work", name, sessions:
                return await work(self.repo, name, sessions)
            case "start", id:
                self.sessions[id] = await self.repo.start_session("hold it", session_id=id)
            case "append", id, text:
                return (await self.sessions[id].append(text, "")).index
            case "commit", id:
                return list((await self.sessions[id].close_and_commit()).node_ids)
            case "resume", id:
                self.sessions[id] = await self.repo.resume_session(id)
                return str(self.sessions[id].state)
            case "recall", query:
                return (await self.repo.recall(query)).as_text()
            case "found", query:
                return [one.node.text for one in (await self.repo.recall(query, k=100)).candidates]
            case "indexed", query:
                await self.repo.recall(query)
                return (await self.repo.statistics()).index.documents
            case "search", query:
                return len(await self.repo.search(query, limit=100))
        return None


# ── The side of the test ─────────────────────────────────────────────────────────────


class Other:
    """The other process, spoken to line by line."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        self._rest = b""

    async def heard(self) -> Any:
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            self._rest += await self.process.stdout.receive()
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    async def ask(self, *command: object) -> Any:
        await self.tell(*command)
        return await self.heard()

    async def tell(self, *command: object) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send((json.dumps(command) + "\n").encode())

    async def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def another_process(path: Path | str, *arguments: str, program: str = __file__) -> Any:
    """A process of *program*, with a store's path and its other *arguments*."""
    command = [sys.executable, program, str(path), *arguments]
    opened = anyio.open_process(command, stderr=None, env=child_environment())
    async with await opened as process:
        other = Other(process)
        try:
            with anyio.fail_after(60):
                assert await other.heard() == "open"
                yield other
        finally:
            if process.returncode is None:
                await other.kill()


# ── The other side ───────────────────────────────────────────────────────────────────


async def serve(do: Callable[..., Awaitable[Any]]) -> None:
    """Answer every line of the input until it ends, each with one line, at once."""

    def tell(told: object) -> None:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()

    tell("open")
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        try:
            tell(await do(*json.loads(line)))
        except MnemoError as error:
            tell(getattr(error, "reason", None) or type(error).__name__)


async def main(path: str, config: str = "{}") -> None:
    """Serve a repository; *config* is JSON."""
    given = Config.model_validate_json(config)
    async with Mnemo(path, config=given, embedder=HashingEmbedder()) as memory:
        await serve(Servant(await memory.open_repo("r")).do)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])

"""What many tests share: three unlike subgoals, a script for them, and a service under test."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from hypothesis import settings

from mnemo.english.slots import claims, clash
from mnemo.prompts.annotate import NEW_STEPS
from mnemo.prompts.question import read_block
from mnemo.protocols import ChatRequest
from mnemo.repository.repository import Repository
from mnemo.service import Mnemo
from mnemo.session.session import Session
from mnemo.testing import HashingEmbedder, ManualClock, RecordingObserver, ScriptedChatModel

TRIP, BUILD, BREAD = "plan the journey to Japan", "repair failing compiler", "bake sourdough bread"
"""Three subgoals that share no word, so that their cosine is far below the threshold."""


def examples(number: int) -> int:
    """How many examples to try: *number*, scaled as the Hypothesis profile scales its default."""
    return max(4, number * settings().max_examples // 100)


def is_thorough() -> bool:
    """Whether all examples are tried."""
    return settings().max_examples >= 100


def contradict(a: str, b: str) -> bool:
    """Whether two statements differ in a slot's value, or one ends the other; in doubt not."""
    return any(clash(mine, theirs) for mine in claims(a) for theirs in claims(b))


def child_environment() -> dict[str, str]:
    """The environment of a child process that imports what its test imports."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def annotating(subgoals: Sequence[str]) -> Callable[[ChatRequest], Any]:
    """A script for ``annotate``: step i serves ``subgoals[i]``, the last one from there on."""

    def answer(request: ChatRequest) -> dict[str, Any]:
        rows = read_block(request.messages[1].content, NEW_STEPS)
        return {
            "steps": [
                {
                    "index": row["index"],
                    "state": f"state {row['index']}",
                    "subgoal": subgoals[min(row["index"], len(subgoals) - 1)],
                    "previous_reward": 0.5,
                }
                for row in rows
            ],
            "last_reward": 0.5,
        }

    return answer


def steps_of(request: ChatRequest) -> str:
    """The observations that an extraction request is about, without their context."""
    rows = read_block(request.messages[1].content, "STEPS")
    return "\n".join(row["observation"] for row in rows)


class Moody(HashingEmbedder):
    """Notes the queries that it is asked for, and fails as long as there is an *error*."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error, self.queries = error, list[tuple[str, ...]]()

    async def embed(self, texts: Sequence[str], *, kind: Any = "document") -> Any:
        """Embed *texts*, or raise."""
        if kind == "query":
            self.queries.append(tuple(texts))
        if self.error is not None:
            raise self.error
        return await super().embed(texts, kind=kind)


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks and threads run until *condition* holds; fails the test in two minutes."""
    with anyio.fail_after(120):
        while not condition():  # noqa: ASYNC110 - any state, not one event
            await anyio.sleep(0.001)


@dataclass
class Kit:
    """A service with one open repository, and what drives and watches it."""

    memory: Mnemo
    repo: Repository
    clock: ManualClock
    model: ScriptedChatModel
    seen: RecordingObserver
    until = staticmethod(until)

    async def started(self, goal: str = "g", **arguments: Any) -> Session:
        """A session that collects."""
        return await self.repo.start_session(goal, **arguments)

    async def begun(self, seen: str = "seen", did: str = "done", **arguments: Any) -> Session:
        """A session that has collected one step."""
        session = await self.started(**arguments)
        await session.append(seen, did)
        return session

    async def closed(
        self, seen: str = "seen", did: str = "done", *, until: str | None = None, **arguments: Any
    ) -> Session:
        """A session whose episode of one step is closed, in the state *until*."""
        session = await self.begun(seen, did, **arguments)
        await session.close()
        if until is not None:
            await session.wait_for(until)
        return session

    async def pass_time(self, seconds: float) -> None:
        """Move the clock and let everything that is due come to rest."""
        await self.clock.advance(seconds)
        await self.at_rest()

    async def at_rest(self) -> None:
        """Wait until no open session has work in flight or waiting for annotation."""
        await self.until(self._nothing_in_flight)
        for _ in range(5):
            await anyio.sleep(0.001)
        await self.until(self._nothing_in_flight)

    def _nothing_in_flight(self) -> bool:
        repos = self.memory._repos.values()
        sessions = [session for repo in repos for session in repo._sessions.open_here]
        return not any(s.busy or s.statistics().append_backlog for s in sessions)


OpenKit = Callable[..., Awaitable[Kit]]


@asynccontextmanager
async def repository(
    store: Any = "memory:", *id: str, embedder: Any = None, **options: Any
) -> AsyncIterator[Repository]:
    """An open repository of a service, which embeds with a ``HashingEmbedder`` unless told so."""
    async with Mnemo(store, embedder=embedder or HashingEmbedder(), **options) as memory:
        yield await memory.open_repo(*id)


async def committed(
    repo: Any,
    seen: str,
    did: str = "",
    *,
    goal: str = "g",
    session_id: str | None = None,
    **fields: Any,
) -> Any:
    """A session in *repo* whose episode of one step is committed."""
    session = await repo.start_session(goal, session_id=session_id)
    await session.append(seen, did, **fields)
    await session.close_and_commit()
    return session


async def lines_of(memory: Any, repo_id: str = "r") -> list[str]:
    """The archive of a repository."""
    async with memory.export_repo(repo_id) as lines:
        return [line async for line in lines]


def ran(*command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a program for this interpreter came to."""
    whole = [sys.executable, *map(str, command)]
    return subprocess.run(
        whole, **{"capture_output": True, "text": True, "check": False, **options}
    )


@asynccontextmanager
async def over_http(memory: Mnemo) -> AsyncIterator[Any]:
    """A client of the HTTP service of *memory*, in this process."""
    from mnemo.client import RemoteMnemo
    from mnemo.web import new_token, token_of, web_app

    secret = new_token()
    transport = httpx.ASGITransport(
        web_app(memory, tokens=[token_of(secret, "all", rights="admin")])
    )
    url = f"http://127.0.0.1:8642/#token={secret}"
    async with RemoteMnemo(url, transport=transport) as remote:
        yield remote


class Served:
    """A repository whose everyday calls go over HTTP, and the others straight to it."""

    def __init__(self, remote: Any, local: Any) -> None:
        self._remote, self._local = remote, local

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name, None) or getattr(self._local, name)

"""What many tests share: three unlike subgoals, a script for them, and a service under test."""

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from hypothesis import settings

from mnemo.config import StoreConfig
from mnemo.prompts.annotate import NEW_STEPS
from mnemo.prompts.question import read_block
from mnemo.protocols import ChatRequest, Clock
from mnemo.repository import Repository
from mnemo.service import Mnemo
from mnemo.session.session import Session
from mnemo.stores import SqliteStore
from mnemo.testing import ManualClock, RecordingObserver, ScriptedChatModel

TRIP, BUILD, BREAD = "plan the journey to Japan", "repair failing compiler", "bake sourdough bread"
"""Three subgoals that share no word, so that their cosine is far below the threshold."""


def examples(number: int) -> int:
    """How many examples to try: *number*, scaled as the Hypothesis profile scales its default."""
    return max(4, number * settings().max_examples // 100)


def child_environment() -> dict[str, str]:
    """The environment of a child process that imports what its test imports."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def in_memory_store(clock: Clock | None = None) -> SqliteStore:
    """
    A store in memory that is not open yet; what ``Mnemo("memory:")`` makes for itself.

    Args:
        clock: ``None`` is a ``ManualClock`` of its own.
    """
    return SqliteStore(None, config=StoreConfig(), clock=clock or ManualClock(), lease_s=30)


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


@dataclass
class Kit:
    """A service with one open repository, and what drives and watches it."""

    memory: Mnemo
    repo: Repository
    clock: ManualClock
    model: ScriptedChatModel
    seen: RecordingObserver

    async def started(self, goal: str = "g", **arguments: Any) -> Session:
        """A session that collects."""
        return await self.repo.start_session(goal, **arguments)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let other tasks run until *condition* holds; fails the test after two minutes."""
        with anyio.fail_after(120):
            while not condition():  # noqa: ASYNC110 - any state of the service, not one event
                await anyio.sleep(0.001)

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

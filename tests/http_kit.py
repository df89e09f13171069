"""What tests of sessions over HTTP share: a clock that never waits, and an opened service."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from http_doubles import HastyClock
from scripted_server import ScriptedServer

from mnemo import Config, Mnemo, Repository, Session
from mnemo.models import AnthropicChatModel, OpenAIChatModel, OpenAIEmbedder
from mnemo.testing import HashingEmbedder, RecordingObserver

DIMENSIONS = 64
QUICK = Config(shutdown_grace_s=0.05)


def unused_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def embedder_of(server: ScriptedServer, **arguments: Any) -> OpenAIEmbedder:
    """An embedder that asks *server* and never waits between its tries."""
    given: dict[str, Any] = {
        "base_url": f"{server.url}/v1",
        "model": "e",
        "dimensions": DIMENSIONS,
        "max_retries": 1,
        "timeout_s": 60.0,
        "clock": HastyClock(),
        "send_dimensions": True,
    }
    return OpenAIEmbedder(**given | arguments)


@dataclass
class HttpKit:
    """A service with one open repository over a model server."""

    server: ScriptedServer
    memory: Mnemo
    repo: Repository
    seen: RecordingObserver

    async def steps_in_graph(self) -> list[tuple[str, int]]:
        """Session and index of every committed step, each as often as it is there."""
        nodes: list[Any] = await self.repo.get_nodes(["episodic"])
        return sorted((node.session_id, node.step_index) for node in nodes)

    async def collected(self, goal: str) -> Session:
        """A session that has collected three steps."""
        session = await self.repo.start_session(goal)
        await collect(session)
        return session

    async def healthy(self) -> bool:
        """Whether a check of the whole store finds nothing."""
        return (await self.memory.check()).problems == ()


@asynccontextmanager
async def http_kit(
    server: ScriptedServer,
    *,
    chat_model: Any = None,
    embedder: Any = None,
    config: Config | None = None,
    store: Any = "memory:",
    **arguments: Any,
) -> AsyncIterator[HttpKit]:
    """Open a service; vectors are made in the process unless an *embedder* is given."""
    asking = Config(recall={"use_model": chat_model is not None})
    async with Mnemo(
        store,
        config=QUICK.overlaid(asking).overlaid(config),
        chat_model=chat_model,
        embedder=embedder or HashingEmbedder(DIMENSIONS),
        **arguments,
    ) as memory:
        seen = RecordingObserver()
        memory.subscribe(seen)
        yield HttpKit(server, memory, await memory.open_repo("r"), seen)


async def collect(session: Session, count: int = 3) -> None:
    """Append *count* steps that share a topic."""
    for i in range(count):
        await session.append(f"the train to Kyoto leaves at {i + 8} o'clock", f"noted train {i}")


@dataclass(frozen=True)
class Provider:
    """A kind of chat model over HTTP, and how its adapter is made."""

    name: str
    make: Callable[..., Any]

    def model(self, server: ScriptedServer, **arguments: Any) -> Any:
        """An adapter that asks *server* and never waits between its tries."""
        given: dict[str, Any] = {
            "base_url": f"{server.url}/v1",
            "model": "m",
            "api_key": "sk-test-0123456789",
            "max_retries": 1,
            "timeout_s": 60.0,
            "clock": HastyClock(),
        }
        return self.make(**given | arguments)


OPENAI = Provider("openai", OpenAIChatModel)
ANTHROPIC = Provider("anthropic", AnthropicChatModel)

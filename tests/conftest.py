"""Fixtures of the whole suite."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers import Kit, OpenKit
from hypothesis import HealthCheck, settings
from postgres_server import empty, new_schema, running_server
from scripted_server import ScriptedServer

from mnemo.config import Config
from mnemo.service import Mnemo
from mnemo.session.session import Session
from mnemo.testing import (
    FailingStore,
    HashingEmbedder,
    ManualClock,
    RecordingObserver,
    ScriptedChatModel,
)

# A failing contract shows its values as any test does.
pytest.register_assert_rewrite("contracts", "world")

# A shell starts what is in its background with SIGINT ignored, which all processes inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start many interpreters: compiling every module in each doubles their time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Commands that are run embed with the one that loads in a tenth of the time.
os.environ["MNEMO_EMBEDDER"] = "static"

# No test fails because a machine is busy. ``scripts/test --all`` loads the thorough profile.
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", QUICK)
settings.register_profile("thorough", QUICK, max_examples=100)
settings.load_profile("quick")


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server, started once in each process that asks for it."""
    # Where copies of segments are kept of such stores.
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    with running_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def shared_schema(postgres_server: str) -> Iterator[str]:
    """The URL of a schema that tests use one after the other: to make one takes 0.3 s."""
    with new_schema(postgres_server) as url:
        yield url


@pytest.fixture
def postgres_url(shared_schema: str) -> Iterator[str]:
    """The URL of a schema without rows."""
    yield shared_schema
    empty(shared_schema)


@pytest.fixture
async def open_kit() -> AsyncIterator[OpenKit]:
    """Opens services that are closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def make(
            *,
            model: ScriptedChatModel | None = None,
            config: Config | None = None,
            store: Any = "memory:",
            clock: ManualClock | None = None,
            embedded: bool = False,
        ) -> Kit:
            model = model or ScriptedChatModel.answering()
            clock = clock or ManualClock()
            memory = Mnemo(
                store,
                config=Config(
                    annotation={"batch_size": 1},
                    recall={"use_model": not embedded},
                    shutdown_grace_s=0.05,
                ).overlaid(config),
                chat_model=None if embedded else model,
                embedder=HashingEmbedder(),
                clock=clock,
            )
            await memory.open()
            stack.push_async_callback(memory.aclose)
            seen = RecordingObserver()
            memory.subscribe(seen)
            return Kit(memory, await memory.open_repo("r"), clock, model, seen)

        yield make


@pytest.fixture
def failing_store() -> Callable[[], FailingStore]:
    """Makes stores in memory whose calls can be made to fail."""
    return lambda: FailingStore("memory:", clock=ManualClock())


@pytest.fixture
async def failing_kit(
    open_kit: OpenKit, failing_store: Callable[[], FailingStore]
) -> tuple[Kit, FailingStore]:
    """A service, and its store whose calls can be made to fail."""
    store = failing_store()
    return await open_kit(store=store), store


@pytest.fixture
async def kit(open_kit: OpenKit) -> Kit:
    """A service in memory whose model answers everything."""
    return await open_kit()


@pytest.fixture
async def collecting(open_kit: OpenKit) -> tuple[Kit, Session]:
    """A service, and a session of it that collects."""
    kit = await open_kit()
    return kit, await kit.started()


@pytest.fixture
def session(collecting: tuple[Kit, Session]) -> Session:
    """A session that collects."""
    return collecting[1]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "memory.db"


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ScriptedServer]:
    """One scripted model server for all tests of a module."""
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def server(shared_server: ScriptedServer) -> ScriptedServer:
    """The module's server, as new: nothing goes wrong, nothing is recorded."""
    shared_server.reset()
    return shared_server

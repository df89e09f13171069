"""A PostgreSQL server that restarts under a running service: nothing acknowledged is lost."""

from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest
from postgres_server import Server, new_schema, postgres_store, running_server
from world import Kit

from mnemo import StoreError
from mnemo.testing import ManualClock

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.long]

WRITERS = 8
AFTER = 10
"""Steps that each writer appends once the server is back."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module alone."""
    with running_server() as server:
        yield server


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_loses_nothing_that_was_acknowledged(server, mode):
    """Writers get a StoreError or go on; each acknowledged step is there once, and reads go on."""
    with new_schema(server.url) as url:
        clock = ManualClock()
        store = postgres_store(url, clock)
        kit = Kit(lambda _: store, clock, store, await store.open())
        told: list[str] = []
        refused: list[StoreError] = []
        back = anyio.Event()

        async def write(session: str) -> None:
            left = AFTER
            while left:
                try:
                    told.append((await kit.append("said", session=session)).node_id)
                except StoreError as error:
                    refused.append(error)
                left -= back.is_set()

        for number in range(WRITERS):
            await kit.start(f"s{number}")
        async with anyio.create_task_group() as tasks:
            for number in range(WRITERS):
                tasks.start_soon(write, f"s{number}")
            await anyio.to_thread.run_sync(server.restart, mode)
            back.set()
        stored = [
            step.node_id
            for number in range(WRITERS)
            for step in (await kit.load(f"s{number}")).steps
        ]
        assert len(stored) == len(set(stored))
        assert set(told) <= set(stored)
        assert len(told) >= WRITERS
        assert all("nothing was written" in str(e) or "try again" in str(e) for e in refused)
        await store.aclose()

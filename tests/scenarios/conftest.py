"""A model server for the stories that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripted_server import ScriptedServer


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ScriptedServer]:
    """One scripted server for all tests of a module."""
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def server(shared_server: ScriptedServer) -> ScriptedServer:
    """The module's server, as new: nothing goes wrong, nothing is recorded."""
    shared_server.reset()
    return shared_server

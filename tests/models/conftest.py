"""A model server for the tests of what talks to one."""

from collections.abc import Iterator

import pytest
from scripted_server import ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A scripted server of its own for every test."""
    with ScriptedServer() as running:
        yield running

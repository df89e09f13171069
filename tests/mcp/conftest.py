"""Fixtures of the MCP server's tests: a server in this process, and over standard streams."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters, stdio_client

Connect = Callable[..., Client]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def connect(tmp_path) -> Connect:
    """Makes a client of ``mnemo mcp`` as a process of its own; its id is in ``server.pid``."""

    def made(*options: str) -> Client:
        command = shlex.join(
            [sys.executable, "-m", "mnemo", "mcp", "--embedder", "static", *options]
        )
        parameters = StdioServerParameters(
            command="sh",
            args=["-c", f"echo $$ > server.pid; exec {command}"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
        )
        return Client(stdio_client(parameters))

    return made


@pytest.fixture
def server_id(tmp_path) -> Callable[[], int]:
    """Reads the process id of the server that was started last."""
    return lambda: int(Path(tmp_path, "server.pid").read_text())

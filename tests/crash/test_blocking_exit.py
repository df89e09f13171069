"""Programs of ``mnemo.sync`` that forget to close, are interrupted while they close, or fork."""

import subprocess
import sys
from pathlib import Path
from signal import SIGINT
from typing import Any

import pytest
from crash import blocking_child
from crash.blocking_child import REPO, SOME
from helpers import child_environment

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

GIVEN_UP = "a mnemo.sync service was not closed within shutdown_grace_s (0.2 s)"


def started(name: str, path: Path) -> subprocess.Popen[str]:
    """Start a program."""
    command = [sys.executable, blocking_child.__file__, name, str(path)]
    pipe = subprocess.PIPE
    environment = child_environment()
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def ended(name: str, path: Path) -> tuple[list[int], str, int]:
    """Run a program to its end; gives what was acknowledged, what it complained of, its code."""
    with started(name, path) as process:
        try:
            told, noise = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return [int(number) for number in told.split()], noise, process.returncode


async def kept(path: Path) -> set[str]:
    """The keys of the messages and steps that are stored; the store is sound."""
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        assert (await memory.check()).problems == ()
        repo = await memory.open_repo(REPO)
        for record in await repo.unfinished_sessions():
            session = await repo.resume_session(record.id)
            if session.state == "collecting":
                await session.close()
            await session.wait_for("ready")
            await session.commit()
        await repo.settle()
        nodes: list[Any] = await repo.get_nodes(["episodic"])
        return {node.key for node in nodes}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"),
    [("forget", 0), ("no thread", 0), ("fail", 1), ("commit", 0), ("queued commit", 0)],
)
async def test_a_service_that_was_forgotten_is_closed_in_order(tmp_path, name, code):
    """Also after an exception, with a commit that waits, and where no thread can be started."""
    numbers, noise, left = ended(name, tmp_path / "m.db")
    assert left == code
    assert "mnemo.sync" not in noise
    assert (noise == "") == (code == 0)
    assert not (tmp_path / "m.db-wal").exists()  # the last connection was closed
    assert len(numbers) == SOME + ("commit" in name)
    if name == "commit":
        async with Mnemo(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
            assert await (await memory.open_repo(REPO)).unfinished_sessions() == []
    assert await kept(tmp_path / "m.db") == {f"key {number}" for number in numbers}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gives_up"),
    [
        ("waits", False),
        ("refuses to end", True),
        ("blocks its loop", True),
        ("blocks a thread", True),
        ("model", True),
    ],
)
async def test_a_forgotten_service_whose_model_hangs_is_given_up(tmp_path, name, gives_up):
    """What can be stopped is stopped; of the rest a line says that it was left."""
    numbers, noise, left = ended(name, tmp_path / "m.db")
    assert left == 0
    assert (GIVEN_UP in noise) == gives_up, noise
    assert await kept(tmp_path / "m.db") == {f"key {number}" for number in numbers}


@pytest.mark.long
@pytest.mark.slow
async def test_an_interrupted_closing_can_be_waited_for_again(tmp_path):
    """A second Ctrl-C at any line of closing: the loop ends, and everything is there."""
    numbers, noise, left = ended("every line", tmp_path / "m.db")
    assert (noise, left) == ("", 0)
    assert len(numbers) > 10
    assert await kept(tmp_path / "m.db") == {f"key {number}" for number in numbers}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("interrupted_after", range(6))
async def test_a_program_that_is_interrupted_twice_ends(tmp_path, interrupted_after):
    """Once while it writes, and once while it closes."""
    with started("interrupted", tmp_path / "m.db") as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.strip() in (str(interrupted_after), "closing"):
                process.send_signal(SIGINT)
            if line.strip() == "closing":
                break
        try:
            rest, noise = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert (rest.split()[-1:], process.returncode) == (["interrupted"], 0), noise
    numbers = {f"key {line}" for line in lines if line.isdigit()}
    keys = await kept(tmp_path / "m.db")
    assert numbers <= keys
    assert len(keys) <= len(numbers) + 1


@pytest.mark.long
@pytest.mark.slow
async def test_a_call_that_is_interrupted_while_another_thread_closes_ends(tmp_path):
    """With the interrupt and nothing else, when its work has ended; then all is closed."""
    with started("another closes", tmp_path / "m.db") as process:
        try:
            told, noise = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert (told.split()[-1], noise, process.returncode) == ("interrupted", "", 0)
    assert not (tmp_path / "m.db-wal").exists()
    assert await kept(tmp_path / "m.db") == {f"key {number}" for number in range(SOME)}


@pytest.mark.long
@pytest.mark.slow
async def test_a_forked_child_can_leave_the_block_while_the_parent_writes(tmp_path):
    """Its calls are refused, ``sys.exit`` ends it, and the parent loses nothing."""
    numbers, noise, left = ended("fork", tmp_path / "m.db")
    assert (noise, left) == ("", 0)
    assert await kept(tmp_path / "m.db") == {f"key {number}" for number in numbers}

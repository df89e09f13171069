"""Programs interrupted by Ctrl-C: what they were told is durable is there, once and whole."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from signal import SIGINT

import pytest
from crash import interrupted_child
from crash.interrupted_child import PROGRAMS, REPO, THREADS

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

SOME = 6


def interrupted(name: str, path: Path) -> list[int]:
    """Run a program, interrupt it in the middle, and list the writes that it was told of."""
    last = THREADS - 1 if name == "close" else SOME
    command = [sys.executable, interrupted_child.__file__, name, str(path)]
    pipe = subprocess.PIPE
    # Unbuffered, so that communicate() loses no line that the loop has read ahead.
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, bufsize=0) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.strip() == str(last).encode():
                break
        process.send_signal(SIGINT)
        rest, noise = process.communicate(timeout=300)
    *numbers, end = lines + rest.split()
    assert (end, noise, process.returncode) == (b"interrupted", b"", 0)
    return [int(number) for number in numbers]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_interrupted_program_ends_quietly_and_loses_nothing(tmp_path, name):
    """One write may have been in flight: it is there whole, or left to resume, or not at all."""
    path = tmp_path / "m.db"
    acknowledged = interrupted(name, path)
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        assert (await memory.check()).problems == ()
        repo = await memory.open_repo(REPO)
        for record in await repo.unfinished_sessions():
            session = await repo.resume_session(record.id)
            if not record.steps:
                await session.append("Never mind.", "")
            if session.state == "ready":  # interrupted between close and commit
                await session.commit()
            else:
                await session.close_and_commit()
        await repo.settle()
        keys = Counter(getattr(node, "key", None) for node in await repo.get_nodes(["episodic"]))
        del keys[None]
    assert set(keys.values()) == {1}
    assert set(keys) - {f"key {number}" for number in acknowledged} <= {f"key {len(acknowledged)}"}
    assert len(keys) >= len(acknowledged)

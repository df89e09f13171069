"""A process that forks while its service is open."""

import subprocess
import sys
from pathlib import Path

import pytest

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

PROGRAM = Path(__file__).with_name("forking_child.py")


@pytest.mark.slow
async def test_a_forked_process_is_refused_and_can_leave(db):
    """Every call of it is a UsageError, ``sys.exit`` ends it, and the parent commits and closes."""
    ran = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [sys.executable, "-W", "error", str(PROGRAM), str(db)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    *refused, left, committed = ran.stdout.splitlines()
    assert len(refused) == 7
    assert all(line.endswith(" refused") for line in refused), refused
    assert (left, committed) == ("left by 3", "committed")
    assert (ran.returncode, ran.stderr) == (0, "")
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        assert (await memory.check()).problems == ()
        repo = await memory.open_repo("r")
        assert (await repo.statistics()).steps == 1

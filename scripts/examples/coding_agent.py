"""
A coding agent that survives its own death: run it, kill it, run it again.

Its work is small: it compiles every file of a folder and reports what fails. A step is
durable before the next one begins, so the run after a crash finds the steps of the one
before, adds what is missing, and recalls what was learned in earlier runs.

    python scripts/examples/coding_agent.py FOLDER [--store agent.db] [--die-after N]

``--die-after`` ends the process after so many steps, as ``kill -9`` would.
"""

from __future__ import annotations

import argparse
import os
import py_compile
import signal
from pathlib import Path

import anyio

from mnemo import Mnemo, Repository, Session


async def work(repo: Repository, goal: str, files: list[Path], die_after: int | None) -> None:
    """Check every one of *files* once, whatever happened to the runs before."""
    session = await begin(repo, goal)
    for number, path in enumerate(files):
        if number == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        observation, action = await check(repo, path)
        # The key makes a repeated append harmless: the first step of that key stays.
        step = await session.append(observation, action, actor="agent", key=path.name)
        print(f"{step.index}: {step.observation} -> {step.action}")
    receipt = await session.close_and_commit()
    print(f"learned {len(receipt.node_ids)} things")


async def begin(repo: Repository, goal: str) -> Session:
    """The session that a crash left open, or a new one."""
    for record in await repo.unfinished_sessions():
        print(f"resuming {record.id} after {record.steps} steps")
        return await repo.resume_session(record.id)
    return await repo.start_session(goal)


async def check(repo: Repository, path: Path) -> tuple[str, str]:
    """What was seen of *path*, and what was done about it."""
    try:
        await anyio.to_thread.run_sync(lambda: py_compile.compile(str(path), doraise=True))
    except py_compile.PyCompileError as error:
        message = str(error.exc_value)
        known = await repo.recall(message, k=1)
        hint = f" (seen before: {known.as_text(200)})" if known.candidates else ""
        return f"`py_compile {path.name}` returned {message}", f"reported it{hint}"
    return f"`py_compile {path.name}` returned ok", "left it as it is"


async def main(store: str, goal: str, files: list[Path], die_after: int | None) -> None:
    """Run the agent once."""
    async with Mnemo(store) as memory:
        await work(await memory.open_repo("coding"), goal, files, die_after)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", default="agent.db")
    parser.add_argument("--die-after", type=int)
    given = parser.parse_args()
    found = sorted(given.folder.glob("*.py"))
    task = f"Make every file in {given.folder.name} compile"
    anyio.run(main, given.store, task, found, given.die_after)

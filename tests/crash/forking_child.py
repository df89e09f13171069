"""
A process that forks inside its service: the fork is refused, and leaves by ``sys.exit``.

Run with the path of a store. The parent goes on, and prints what the fork has told.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mnemo import Config, Mnemo, UsageError
from mnemo.testing import HashingEmbedder


async def forked(calls: dict[str, Callable[[], Any]], told: int) -> None:
    """Tell how each call is refused, and leave."""
    for name, call in calls.items():
        try:
            result = call()
            if isinstance(result, Awaitable):
                await result
            said = "passed"
        except UsageError as error:
            said = "refused" if "forked" in str(error) else str(error)
        os.write(told, f"{name} {said}\n".encode())
    sys.exit(3)


async def main(path: str) -> None:
    """Fork while a commit is under way and one session is open."""
    memory = Mnemo(path, embedder=HashingEmbedder(), config=Config(shutdown_grace_s=0.5))
    async with memory:
        repo = await memory.open_repo("r")
        session = await repo.start_session("g")
        await session.append("Ada lives in Lund.", "noted")
        committing = asyncio.ensure_future(session.close_and_commit())
        await asyncio.sleep(0)
        heard, told = os.pipe()
        child = os.fork()
        if not child:
            calls = {
                "append": lambda: session.append("Ada lives in Rome.", "noted"),
                "append_async": lambda: session.append_async("Ada lives in Rome.", "noted"),
                "session.aclose": session.aclose,
                "recall": lambda: repo.recall("Where does Ada live?"),
                "open_repo": lambda: memory.open_repo("other"),
                "list_repos": memory.list_repos,
                "aclose": memory.aclose,
            }
            await forked(calls, told)
        os.close(told)
        # The loop that the fork closes takes the wake-up pipe out of the epoll set that both
        # share, which is asyncio's own affair: look, without being woken.
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):  # noqa: ASYNC110, ASYNC222
            await asyncio.sleep(0.01)
        with os.fdopen(heard) as lines:
            sys.stdout.write(lines.read())
        sys.stdout.write(f"left by {os.waitstatus_to_exitcode(ended[1])}\n")
        while not committing.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        sys.stdout.write(f"{committing.result().status}\n")
        leaving = asyncio.ensure_future(memory.aclose())
        while not leaving.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""
Programs that write until they are interrupted: run with the name of one and a store's path.

Each prints the number of every write that has returned, and ``interrupted`` as its last line.
"""

import sys
from itertools import count

import anyio

from mnemo import Mnemo, sync
from mnemo.testing import HashingEmbedder

REPO = "talk"
THREADS = 60


def said(number: int) -> str:
    """What is written under this number."""
    return f"Ana keeps coin {number} in drawer {number}."


def told(what: object) -> None:
    """Tell the parent process."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def remember_blocking(path: str) -> None:
    with sync.Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = memory.open_repo(REPO)
        for number in count():
            repo.remember(said(number), key=f"key {number}")
            told(number)


def commit_blocking(path: str) -> None:
    with sync.Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = memory.open_repo(REPO)
        for number in count():
            session = repo.start_session("Write it down.")
            session.append(said(number), "", key=f"key {number}")
            session.close_and_commit()
            told(number)


async def remember(path: str) -> None:
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo(REPO)
        for number in count():
            await repo.remember(said(number), key=f"key {number}")
            told(number)


async def commit(path: str) -> None:
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo(REPO)
        for number in count():
            session = await repo.start_session("Write it down.")
            await session.append(said(number), "", key=f"key {number}")
            await session.close_and_commit()
            told(number)


async def close(path: str) -> None:
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo(REPO)
        for number in range(THREADS):
            await repo.remember(said(number), thread_id=str(number), key=f"key {number}")
            told(number)
    # Should closing have been faster than the signal.
    await anyio.sleep_forever()


PROGRAMS = {
    "remember, blocking": remember_blocking,
    "commit, blocking": commit_blocking,
    "remember": remember,
    "commit": commit,
    "close": close,
}

if __name__ == "__main__":
    name, path = sys.argv[1:]
    try:
        if "blocking" in name:
            PROGRAMS[name](path)
        else:
            anyio.run(PROGRAMS[name], path)
    except KeyboardInterrupt:
        told("interrupted")

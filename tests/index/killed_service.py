"""
Opens a store and does one thing to its segments, again and again, killed before a later operation
each time, on a file or by a statement that writes: in ``FOLDER/0``, ``FOLDER/1``, … until it comes
to its end. ``FOLDER/base`` is where each begins. Usage: FOLDER ACT.
"""

import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from index.killed_writer import killed_before
from segments_kit import few, learn, opened, tell

from mnemo.index import at_rest, held, segments

SECRET = "quagga"
READS = ("SELECT", "WITH", "BEGIN", "SAVEPOINT", "RELEASE", "--")
"""What statements begin with that write nothing."""


@contextmanager
def sized(act: str) -> Iterator[None]:
    """Few documents make a segment; but for *merge*, large ones."""
    exact = 10**6 if act == "merge" else 30
    with few(large=24, exact=exact, least=4), pytest.MonkeyPatch.context() as patch:
        for module in (held, at_rest, segments):
            patch.setattr(module, "SEALED_FROM", 4)
        yield


async def sealed(repo: Any) -> Any:
    """The index of the repository, when all is kept that there is."""
    index = repo._parts.index
    await index.embed_waiting()
    await index.seal()
    return index


async def base(place: Path, act: str) -> None:
    """Make the store in which the act is done."""
    async with opened(place) as (_, repo):
        if act == "merge":
            for part in range(7):
                await tell(repo, 4 * part, 4 * part + 4)
                await sealed(repo)
            await tell(repo, 28, 32)
            return
        await tell(repo, 0, 30)
        await repo.conversation("secret").append(
            [{"role": "user", "content": f"The {SECRET} has {n} stripes"} for n in range(6)]
        )
        for number in range(20):
            await repo.add_memory(f"Zoë keeps {number} moss")
            if number % 5 == 0:
                await repo.add_memory(f"Bo keeps {number} {SECRET}s")
        if act == "seal":
            return
        await learn(repo, "okapis", session_id="okapis")
        await sealed(repo)
        await tell(repo, 30, 44)
        for number in range(8):
            await repo.add_memory(f"Chen keeps {number} hives")
        if act != "unite":
            await sealed(repo)


async def seal(repo: Any) -> None:
    """Make large segments; or one of the last and more, or of small ones."""
    await repo._parts.index.seal()


async def forget_thread(repo: Any) -> None:
    await repo.forget(thread_id="secret")


async def forget_facts(repo: Any) -> None:
    await repo.forget(memory_ids=[one.id for one in await repo.memories() if SECRET in one.text])


ACTS: dict[str, Callable[[Any], Awaitable[None]]] = {
    **dict.fromkeys(("seal", "unite", "merge"), seal),
    "forget_thread": forget_thread,
    "forget_facts": forget_facts,
}


async def live(place: Path, act: str, number: int) -> None:
    """Do the act, killed before so many more operations."""
    tracing = list[Callable[[str], None]]()
    connect = sqlite3.connect

    def traced(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*given, **named)
        connection.set_trace_callback(lambda statement: [tell(statement) for tell in tracing])
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    async with opened(place) as (_, repo):
        await repo._parts.index.embed_waiting()
        before = killed_before(number)
        tracing.append(lambda said: None if said.lstrip().startswith(READS) else before())
        await ACTS[act](repo)
        tracing.clear()
        os._exit(0)


def forked(work: Callable[[], Awaitable[None]]) -> int:
    """Do *work* in a fork of this process, which has no threads; how that ended."""
    pid = os.fork()
    if not pid:
        try:
            anyio.run(work)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, act: str) -> None:
    for name in ("index.follower", "repository.repository", "erasure.erase", "extraction.pipeline"):
        import_module(f"mnemo.{name}")
    with ExitStack() as stack:
        stack.enter_context(sized(act))
        (folder / "base").mkdir()
        if forked(lambda: base(folder / "base" / "m.db", act)):
            sys.exit(1)
        for number in count():
            place = folder / str(number)
            shutil.copytree(folder / "base", place)
            ended = forked(lambda: live(place / "m.db", act, number))  # noqa: B023
            if ended != -signal.SIGKILL:
                sys.exit(ended)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

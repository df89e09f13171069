"""
Programs of ``mnemo.sync`` that end in unusual ways: run with the name of one and a store's path.

Each prints the number of every write that has returned.
"""

import asyncio
import atexit
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from itertools import count
from types import FrameType
from typing import Any, NoReturn, get_args

import anyio
import anyio.to_thread
import pytest
from crash.interrupted_child import said, told

from mnemo import Config, UsageError, sync
from mnemo.protocols import Purpose
from mnemo.runtime import portal
from mnemo.testing import HashingEmbedder, ScriptedChatModel

REPO = "talk"
SOME = 5
FORKS = 3


def opened(path: str, embedder: HashingEmbedder | None = None, **given: Any) -> sync.Mnemo:
    """A service that nobody closes, and whose time to close is short."""
    portal.STOPPING_S = 0.3 if embedder or given else 60.0
    config = Config(shutdown_grace_s=0.2) if embedder or given else None
    memory = sync.Mnemo(path, embedder=embedder or HashingEmbedder(), config=config, **given)
    memory.open()
    return memory


def remembered(memory: sync.Mnemo, numbers: Sequence[int] = range(SOME)) -> sync.Repository:
    """Remember something under each number."""
    repo = memory.open_repo(REPO, exist_ok=True)
    for number in numbers:
        repo.remember(said(number), key=f"key {number}")
        told(number)
    return repo


def forget_to_close(path: str) -> None:
    remembered(opened(path))


def forget_where_no_thread_starts(path: str) -> None:
    """From its exit on the interpreter refuses threads, as Python 3.12.0 and 3.12.1 do."""

    def refused(thread: threading.Thread) -> NoReturn:
        raise RuntimeError(f"can't create new thread at interpreter shutdown: {thread.name}")

    remembered(opened(path)).settle()
    atexit.register(setattr, threading.Thread, "start", refused)


def fail(path: str) -> NoReturn:
    remembered(opened(path))
    raise RuntimeError("the main thread failed")


def commit_in_the_background(path: str, *, waits: bool = False) -> None:
    session = remembered(opened(path)).start_session("Write it down.")
    session.append(said(SOME), "", key=f"key {SOME}")
    told(SOME)
    session.close_async()
    if not waits:
        session.wait_for("ready")
    session.commit_async()


class Stuck(HashingEmbedder):
    """Never gives the vector of a query, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.begun = threading.Event()
        self._way = way

    async def embed(self, texts: Sequence[str], *, kind: Any = "document") -> Any:
        """Wait for ever, if a query is to be embedded."""
        if kind == "query":
            self.begun.set()
            await self._wait()
        return await super().embed(texts, kind=kind)

    async def _wait(self) -> None:
        if self._way == "waits":
            await anyio.sleep_forever()
        elif self._way == "blocks its loop":
            threading.Event().wait()
        elif self._way == "blocks a thread":
            await anyio.to_thread.run_sync(threading.Event().wait)
        else:
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()


def hang(way: str, path: str) -> None:
    """Leave while another thread recalls."""
    embedder = Stuck(way)
    repo = remembered(opened(path, embedder))
    threading.Thread(target=repo.recall, args=("coin",), daemon=True).start()
    assert embedder.begun.wait(30)


def hang_in_a_model(path: str) -> None:
    """Leave while the chat model works."""
    asked = threading.Event()

    async def never(request: object) -> Any:
        asked.set()
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

    purposes: list[Any] = list(get_args(Purpose))
    memory = opened(path, chat_model=ScriptedChatModel(dict.fromkeys(purposes, never)))
    session = remembered(memory).start_session("Write it down.")
    session.append(said(SOME), "", key=f"key {SOME}")
    told(SOME)
    session.close_async()
    assert asked.wait(30)


def interrupt_at_every_line(path: str) -> None:
    """Interrupt the block, and then its closing at each line of it in turn."""
    files = (portal.__file__, sync.__file__)
    for number in count():
        left = number + 1

        def at_line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            left -= event == "line"
            if event == "line" and not left:
                signal.raise_signal(signal.SIGINT)
            return at_line

        memory = sync.Mnemo(path, embedder=HashingEmbedder())
        try:
            with memory:
                remembered(memory, [number])
                sys.settrace(at_line)
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            sys.settrace(None)
            memory.close()
        if left > 0:
            return


def close_until_interrupted(path: str) -> None:
    """Say when it begins to close; the signals come from outside."""
    try:
        with sync.Mnemo(path, embedder=HashingEmbedder()) as memory:
            try:
                remembered(memory, range(10**9))
            finally:
                told("closing")
    except KeyboardInterrupt:
        told("interrupted")


class Held(HashingEmbedder):
    """Gives the vector of a query once it is released, however often it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = threading.Event(), threading.Event()

    async def embed(self, texts: Sequence[str], *, kind: Any = "document") -> Any:
        """Wait, if a query is to be embedded."""
        if kind == "query":
            self._loop, self._release = asyncio.get_running_loop(), anyio.Event()
            self.begun.set()
            with anyio.CancelScope(shield=True):
                await self._release.wait()
        return await super().embed(texts, kind=kind)

    def release(self) -> None:
        """Give the vector."""
        self.released.set()
        self._loop.call_soon_threadsafe(self._release.set)


def waits_for_an_event(thread: int) -> bool:
    """Whether a thread is within ``threading.Event.wait``."""
    frame: FrameType | None = sys._current_frames()[thread]
    while frame is not None and frame.f_code is not threading.Event.wait.__code__:
        frame = frame.f_back
    return frame is not None


def interrupt_while_another_thread_closes(path: str) -> None:
    """Interrupt a call while the loop ends that another thread closes."""
    embedder = Held()
    memory = opened(path, embedder)
    repo = remembered(memory)
    closing = threading.Thread(target=memory.close)
    main, left = threading.get_ident(), threading.Event()

    def takes_calls() -> bool:
        try:
            memory.list_repos()
        except UsageError as error:
            return not isinstance(error.__cause__, RuntimeError)
        return True

    def meanwhile() -> None:
        assert embedder.begun.wait(30)
        closing.start()
        while takes_calls():
            pass
        signal.pthread_kill(main, signal.SIGINT)
        while not waits_for_an_event(main) and not left.is_set():
            pass
        embedder.release()

    threading.Thread(target=meanwhile).start()
    try:
        repo.recall("coin")
    except KeyboardInterrupt:
        assert embedder.released.is_set()
        told("interrupted")
    finally:
        left.set()
    memory.close()
    closing.join()


def fork_while_it_writes(path: str) -> None:
    """Children are refused what belongs to the parent, which writes on, and leave the block."""
    enough = threading.Event()

    def write() -> None:
        for number in count():
            remembered(memory, [number])
            if enough.is_set():
                return

    with sync.Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = memory.open_repo(REPO)
        writing = threading.Thread(target=write)
        writing.start()
        for _ in range(FORKS):
            child = os.fork()
            if not child:
                for call in (repo.statistics, memory.list_repos, memory.close):
                    with pytest.raises(UsageError, match="forked"):
                        call()
                sys.exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        enough.set()
        writing.join()


PROGRAMS = {
    "forget": forget_to_close,
    "no thread": forget_where_no_thread_starts,
    "fail": fail,
    "commit": commit_in_the_background,
    "queued commit": partial(commit_in_the_background, waits=True),
    "model": hang_in_a_model,
    "every line": interrupt_at_every_line,
    "interrupted": close_until_interrupted,
    "another closes": interrupt_while_another_thread_closes,
    "fork": fork_while_it_writes,
}

if __name__ == "__main__":
    name, store = sys.argv[1:]
    if name in PROGRAMS:
        PROGRAMS[name](store)
    else:
        hang(name, store)

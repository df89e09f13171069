"""
Programs that run until they are killed, each in a fork of this process.

Every line of input is a life: ``{"program", ...}`` with the program's arguments. It runs in
a fork, made while no thread and no event loop exists, so that it imports nothing, and
writes one line for each thing that it was told is durable. The parent writes
``["born", pid]`` before the first of them and ``["died", exit code]`` after the last.
"""

import json
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from itertools import count
from typing import Any, NoReturn

import anyio
from world import store_at

from mnemo import CommitReceipt, Config, Mnemo, Repository, Session
from mnemo.config import NotesConfig
from mnemo.maintenance import reembed
from mnemo.notes.notes import Notes
from mnemo.notes.shelf import NotesParts
from mnemo.prompts.usage import UsageMeter
from mnemo.runtime.clock import SystemClock
from mnemo.testing import HashingEmbedder
from mnemo.values.erasure import Selection

SIDE_BY_SIDE = 2
"""Sessions that a life works on at once, so that they meet in the writer and the lane."""

SUBJECTS = (
    ("Ana moved from Porto to Lisbon in March and works at the harbour", "Noted the new address"),
    ("The compiler crashes while linking the parser module", "Rebuilt the parser without cache"),
    ("Bread dough needs twelve hours in the cold before baking", "Set the oven to 240 degrees"),
    ("Tokyo flights are cheapest on Tuesdays, Omar prefers mornings", "Searched Tuesday flights"),
)


def tell(*told: object) -> None:
    """One line, at once: one write is never cut by a kill."""
    os.write(1, (json.dumps(told) + "\n").encode())


def config(*, auto: bool) -> Config:
    """Timers so short that flushes are met as well."""
    return Config(session={"auto_commit": auto, "flush_timeout_s": 0.02})


class Life:
    """What one process does, drawn from its seed."""

    def __init__(self, repo: Repository, name: str, chance: random.Random) -> None:
        self.repo = repo
        self.name = name
        self.chance = chance

    async def finish_what_was_left(self) -> None:
        """Resume every session that an earlier life left behind, and bring it to its end."""
        for record in await self.repo.unfinished_sessions():
            session = await self.repo.resume_session(record.id)
            tell("resumed", session.id, session.episode_id, str(session.state))
            if session.state == "collecting":
                await self.append(session, f"{session.id}-{self.name}")
            await self.finish(session)

    async def work(self, lane: int) -> None:
        """Sessions one after another, two episodes each, until the end comes from outside."""
        for number in count():
            id = f"{self.name}-{lane}-{number}"
            session = await self.repo.start_session(f"goal of {id}", session_id=id)
            tell("started", id, session.episode_id)
            for episode in range(2):
                if episode:
                    await session.start_episode(f"second goal of {id}")
                    tell("started", id, session.episode_id)
                await self.collect(session, f"{id}-{episode}")
                await self.finish(session)
            await session.aclose()

    async def collect(self, session: Session, name: str) -> None:
        """Some steps, one after another or at once."""
        keys = [f"{name}-{number}" for number in range(self.chance.randint(1, 5))]
        if self.chance.random() < 0.5:
            for key in keys:
                await self.append(session, key)
            return
        async with anyio.create_task_group() as group:
            for key in keys:
                group.start_soon(self.append, session, key)

    async def append(self, session: Session, key: str) -> None:
        """A step whose key is in its text too."""
        observation, action = SUBJECTS[self.chance.randrange(len(SUBJECTS))]
        step = await session.append(f"{observation} ({key})", action, key=key)
        tell("step", session.id, session.episode_id, step.index, key)

    async def finish(self, session: Session) -> None:
        """Bring the episode to its end, from whatever state, on one of the ways there are."""
        episode = session.episode_id
        if session.state == "collecting" and self.chance.random() < 0.5:
            self.committed(session.id, episode, await session.close_and_commit())
            return
        if session.state == "collecting":
            # Under auto-commit a close is refused while the background is at work.
            await session.close_async()
            tell("closed", session.id, episode)
        if await session.wait_for("ready", "idle") == "idle":
            tell("ended", session.id, episode)
            return
        tell("ready", session.id, episode)
        if self.chance.random() < 0.2:
            await session.discard()
            tell("discarded", session.id, episode)
        else:
            self.committed(session.id, episode, await session.commit())

    @staticmethod
    def committed(session: str, episode: str | None, receipt: CommitReceipt) -> None:
        """What a receipt promises."""
        tell("committed", session, episode, list(receipt.node_ids))


# ── The programs ─────────────────────────────────────────────────────────────────────


async def work(path: str, auto: bool, seed: int) -> None:
    """Open the service and work on sessions; nothing here ends by itself."""
    async with Mnemo(path, config=config(auto=auto), embedder=HashingEmbedder()) as memory:
        life = Life(await memory.open_repo("r"), f"n{seed}", random.Random(seed))
        tell("open")
        await life.finish_what_was_left()
        async with anyio.create_task_group() as group:
            for lane in range(SIDE_BY_SIDE):
                group.start_soon(life.work, lane)


async def forget(path: str) -> None:
    """Erase a session."""
    async with Mnemo(path, embedder=HashingEmbedder(64)) as memory:
        repo = await memory.open_repo("r")
        tell("open")
        await repo.forget(session_id="s")
        tell("done")
        await anyio.sleep_forever()


async def move(path: str) -> None:
    """Move a repository to another embedding space, in small batches."""
    reembed.BATCH, reembed.PAGE = 8, 16
    async with Mnemo(path, embedder=HashingEmbedder(64)) as memory:
        await memory.open_repo("r")
        tell("open")
        await memory.reembed("r", embedder=HashingEmbedder(96))
        tell("done")
        await anyio.sleep_forever()


async def purge(path: str) -> None:
    """Erase a thread."""
    store = store_at(path, SystemClock())
    await store.open()
    tell("open")
    await store.overhaul("r").erase(Selection(thread_id="t"))
    tell("done")
    await anyio.sleep_forever()


async def write_notes(path: str) -> None:
    """Version n of every note says n, in its description and in each line of its body."""
    clock = SystemClock()
    store = store_at(path, clock)
    await store.open()
    parts = NotesParts(
        repo_id="r",
        store=store.notes("r"),
        embedder=HashingEmbedder(),
        chat_model=None,
        clock=clock,
        config=NotesConfig(keep_versions=5),
        publish=lambda event: None,
        spawn=lambda *args: None,
        meter=UsageMeter(),
        scrub=store.engine.scrub,
    )
    notes = Notes(parts)
    for number in count(1):
        for topic in ("alpha", "beta"):
            body = "\n".join([f"- this is text {number}"] * 60)
            note = await notes.write(topic, body, f"text {number}")
            tell(topic, note.version)


async def import_lines(path: str, file: str) -> None:
    """Import all lines of an archive but the last, which never comes."""

    def lines() -> Iterator[str]:
        with open(file, encoding="ascii") as archive:
            yield from archive.readlines()[:-1]
        tell("waiting")
        time.sleep(60)

    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        await memory.import_repo("copy", lines())


PROGRAMS = {each.__name__: each for each in (work, forget, move, purge, write_notes, import_lines)}


# ── The process that forks ───────────────────────────────────────────────────────────


async def rehearse() -> None:
    """One short episode, so that all that mnemo imports where it is used is imported."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        session = await repo.start_session("g", session_id="s")
        for observation, action in SUBJECTS:
            await session.append(observation, action)
        await session.close_and_commit()
        await session.aclose()
        await repo.forget(session_id="s")


def live_in_fork(born: int, program: str, **arguments: Any) -> NoReturn:
    """A life, from the moment at which its birth was told; it ends by a kill or in exit code 1."""
    try:
        os.read(born, 1)
        anyio.run(lambda: PROGRAMS[program](**arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def main() -> None:
    """Serve until the input ends."""
    anyio.run(rehearse)
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()  # a fork would lack it
    for line in sys.stdin:
        born = os.pipe()
        child = os.fork()
        if not child:
            live_in_fork(born[0], **json.loads(line))
        tell("born", child)
        os.write(born[1], b"!")
        _, status = os.waitpid(child, 0)
        for end in born:
            os.close(end)
        tell("died", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

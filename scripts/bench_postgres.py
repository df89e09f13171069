"""
PostgreSQL beside SQLite, on the same disk and in turns: appends, commits, recall, search, and
followers of other processes.

The server is started for the row, with ``fsync``. SQLite runs with ``synchronous = full``. Ratios
say the same on a busy machine; rates and times do not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
import anyio.to_thread
import bench_kit as kit
from bench_kit import Child, Figure, Figures, Row, Words, append_all, at_once, beside, store_on
from bench_read import COMMITTED_STEPS, REPO, file_store, fill

from mnemo import Changeset, Config, Mnemo, Repository, Semantic
from mnemo.protocols import FeedCursor
from mnemo.testing import HashingEmbedder

ROUNDS = 5
WRITERS, APPENDING, COMMITTING = 8, 4, 2
"""Sessions of a process that appends, such processes, and processes that commit."""
CONFIG = Config(store={"synchronous": "full"}, recall={"record_access": False})
COLUMNS = ("PostgreSQL", "SQLite")
RATIO = "PostgreSQL to SQLite"


def service(url: str, **options: Any) -> Mnemo:
    """A service over a store."""
    return Mnemo(url, config=CONFIG, embedder=HashingEmbedder(), **options)


@asynccontextmanager
async def both(folder: Path, records: int = 0) -> AsyncIterator[list[Repository]]:
    """A repository on a server and one in a file, with as many records."""
    from postgres_server import postgres_store

    words, repos = Words(), list[Repository]()
    texts = [words.sentence() for _ in range(records // 2)]
    with store_on("postgres", folder) as url:
        async with AsyncExitStack() as stack:
            for store, opened in ((url, postgres_store), (folder / "m.db", file_store)):
                if records:
                    await fill(opened(store), texts, HashingEmbedder())
                memory = await stack.enter_async_context(service(str(store)))
                repos.append(await memory.open_repo(REPO, exist_ok=True))
            yield repos


async def appends(folder: Path, *, count: int) -> Figures:
    """Durable appends, one at a time and 64 in flight."""
    figures, of_postgres = list[Figure](), list[float]()
    async with both(folder) as repos:
        for tasks in (1, 64):
            each = max(1, count // (64 if tasks == 1 else 1) // tasks // ROUNDS)
            opened = [[await r.start_session("Note it") for _ in range(tasks)] for r in repos]
            rates: dict[str, list[float]] = {name: [] for name in COLUMNS}
            for sessions in opened:
                await append_all(sessions, 2)
            for _ in range(ROUNDS):
                for sessions, rate in zip(opened, rates.values(), strict=True):
                    began = perf_counter()
                    await append_all(sessions, each)
                    rate.append(each * tasks / (perf_counter() - began))
            target = 0.4 if tasks > 1 else None
            figures += beside(f"append, {tasks} in flight", rates, "/s", RATIO, least=target)
            of_postgres.append(median(rates["PostgreSQL"]))
    gain = of_postgres[1] / of_postgres[0]
    return [*figures, Figure("append: 64 in flight to one at a time", gain, "x", least=3)]


async def commits(folder: Path, *, count: int) -> Figures:
    """The commit of an episode that is extracted."""
    took: dict[str, list[float]] = {name: [] for name in COLUMNS}
    async with both(folder) as repos:
        for number in range(count + 1):
            for repo, times in zip(repos, took.values(), strict=True):
                session = await repo.start_session("Help plan a journey")
                await append_all([session], COMMITTED_STEPS)
                await session.close()
                await session.wait_for("ready")
                times += (await kit.timed([session.commit])) if number else []
                await session.aclose()
    return beside(f"commit of {COMMITTED_STEPS} steps: p50", took, "ms", RATIO)


async def reading(folder: Path, *, records: int, queries: int) -> Figures:
    """Recall and search over the same records."""
    words, figures = Words(), list[Figure]()
    texts = [words.sentence() for _ in range(records // 2)]
    chosen = texts[:: max(1, len(texts) // queries)][:queries]
    longest = [max(text.rstrip(".").split(), key=len) for text in chosen]  # which few others hold
    kinds: dict[str, tuple[list[str], Callable[[Repository, str], Awaitable[Any]], float | None]]
    kinds = {
        "recall": ([words.question(text) for text in chosen], Repository.recall, None),
        "search, a rare word": (longest, Repository.search, 15),
        "search, a common word": (words.commonest(10), Repository.search, 150),
    }
    async with both(folder, records) as repos:
        for kind, (asked, ask, most) in kinds.items():
            took: dict[str, list[float]] = {name: [] for name in COLUMNS}
            for query in [asked[0], *asked]:
                for repo, times in zip(repos, took.values(), strict=True):
                    times += await kit.timed([partial(ask, repo, query)])
            name, took = f"{kind}, {records:,} records", {w: ms[1:] for w, ms in took.items()}
            p95 = {who: [kit.percentile(times, 0.95)] for who, times in took.items()}
            figures += beside(f"{name}: p50", took, "ms", RATIO)
            server, *others = beside(f"{name}: p95", p95, "ms", RATIO)
            figures += [Figure(server.name, server.value, "ms", most=most), *others]
    return figures


async def writing(url: str, repo_name: str, what: str, name: str, seconds: float) -> None:
    """Append in some sessions, or commit facts, for so long; tell the keys acknowledged."""
    told: list[str] = []
    async with service(url, workers=0) as memory:
        repo = await memory.open_repo(repo_name, exist_ok=True)
        kit.tell("open")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        until = perf_counter() + seconds

        async def append(number: int) -> None:
            session, place = await repo.start_session("Note it", session_id=f"{name} {number}"), 0
            while perf_counter() < until:
                key = f"{name} {number} {place}"
                await session.append(f"The note {key} is here.", "Noted it", key=key)
                told.append(key)
                place += 1

        async def commit(number: int) -> None:
            while perf_counter() < until:
                key = f"{name} {len(told)}"
                facts = [Semantic(f"The fact {key} {n} holds.") for n in range(COMMITTED_STEPS)]
                await repo.apply(Changeset(tuple(facts)))
                told.append(key)

        if what == "commit":
            await at_once(commit, [0])
        else:
            await at_once(append, range(WRITERS))
    kit.tell(*told)


async def together(url: str, seconds: float, committing_to: str = "") -> tuple[list[str], int]:
    """Have processes append, and others commit; the keys acknowledged, and the commits."""
    kinds = [("shared", "append")] * APPENDING + [(committing_to, "commit")] * COMMITTING
    async with AsyncExitStack() as stack:
        running = []
        for number, (repo, what) in enumerate(kinds if committing_to else kinds[:APPENDING]):
            name = f"{what} {number}"
            child = await Child.begin(stack, writing, url, repo, what, name, seconds)
            running.append((what, child))
        for _, child in running:
            await child.line()
        told: dict[str, list[str]] = {"append": [], "commit": []}

        async def collect(what: str, child: Child) -> None:
            await child.say("go")
            told[what] += json.loads(await child.line())
            await child.process.wait()

        await at_once(collect, *zip(*running, strict=True))
    return told["append"], len(told["commit"])


async def following(folder: Path, *, seconds: float) -> Figures:
    """Writers in four processes, and a reader that follows them by number."""
    from postgres_server import postgres_store

    seen, texts, cursor, done = list[str](), set[str](), FeedCursor(), anyio.Event()
    with store_on("postgres", folder) as url:
        store = postgres_store(url)
        await store.open()
        feed = store.feed("shared")

        async def follow(last: bool = False) -> None:
            nonlocal cursor
            while not done.is_set() or last:
                changes = await feed.changes(cursor, limit=500)
                seen.extend(step.node_id for step in changes.steps)
                texts.update(step.observation for step in changes.steps)
                cursor = changes.cursor
                if last and not changes.more:
                    return

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                told, _ = await together(url, seconds)
                done.set()
            await follow(last=True)
        finally:
            await store.aclose()
    name = f"{APPENDING * WRITERS} writers for {seconds:g} s"
    lost = {f"The note {key} is here." for key in told} - texts
    return [
        Figure(f"{name}: appends", len(told) / seconds, "/s"),
        Figure(f"{name}: steps that a follower missed", len(lost), "", most=0),
        Figure(f"{name}: steps that it saw twice", len(seen) - len(set(seen)), "", most=0),
    ]


async def committing(folder: Path, *, seconds: float) -> Figures:
    """
    The rate of appends in four processes, alone and while two others commit.

    Those that commit to another repository take no lock of theirs, and as much of the machine:
    on one with few cores the share says what is left of it.
    """
    appended, committed = list[int](), list[int]()
    for repo in ("", "shared", "elsewhere"):
        with store_on("postgres", folder) as url:
            told, commits = await together(url, seconds, repo)
        appended.append(len(told))
        committed.append(commits)
    share, left = (count / max(1, appended[0]) for count in appended[1:])
    name = f"{APPENDING} processes append while {COMMITTING} commit"
    return [
        Figure(f"{name}: appends without commits", appended[0] / seconds, "/s"),
        Figure(f"{name}: appends", appended[1] / seconds, "/s"),
        Figure(f"{name}: commits of {COMMITTED_STEPS}", committed[1] / seconds, "/s"),
        Figure(f"{name}: share of the appends", share, "x", least=0.7),
        Figure(f"{name} elsewhere: share of the appends", left, "x"),
    ]


ROWS = {
    "postgres-appends": Row(appends, count=(8_000, 320)),
    "postgres-commits": Row(commits, count=(15, 1)),
    "postgres-reading": Row(reading, records=(100_000, 200), queries=(200, 4)),
    "postgres-following": Row(following, seconds=(60.0, 1.0)),
    "postgres-committing": Row(committing, seconds=(20.0, 1.0)),
}


if __name__ == "__main__":
    kit.be_child(globals())

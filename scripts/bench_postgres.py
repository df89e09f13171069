"""
Measure PostgreSQL beside SQLite, on the same disk and in turns: appends, commits, recall, search,
followers of other processes, and a small repository among many.

The server is started for the run, with ``fsync``. SQLite runs with ``synchronous = full``. Ratios
say the same on a busy machine; rates and times do not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
from bench_kit import Figure, Words, machine, percentile
from bench_reading import COMMITTED_STEPS, REPO, fill
from bench_writing import append_all
from postgres_server import new_schema, postgres_store, running_server

from mnemo import Changeset, Config, Mnemo, Repository, Semantic
from mnemo.config import StoreConfig
from mnemo.protocols import FeedCursor
from mnemo.runtime.clock import SystemClock
from mnemo.stores import SqliteStore
from mnemo.testing import HashingEmbedder

ROUNDS = 5
WRITERS, APPENDING, COMMITTING = 8, 4, 2
"""Sessions of a process that appends, such processes, and processes that commit."""
CONFIG = Config(store=StoreConfig(synchronous="full"), recall={"record_access": False})


@dataclass(frozen=True)
class Sizes:
    """How much each part does."""

    appends: int
    commits: int
    records: int
    queries: int
    seconds: float
    repositories: int


SIZES = {
    "full": Sizes(8_000, 15, 100_000, 200, 60, 1_000),
    "quick": Sizes(2_000, 7, 10_000, 60, 10, 200),
    "tiny": Sizes(320, 1, 200, 4, 1, 5),
}


@dataclass(frozen=True)
class Engine:
    """A place for a store, and what is in it."""

    name: str
    url: str

    def service(self, **options: Any) -> Mnemo:
        """A service over it."""
        return Mnemo(self.url, config=CONFIG, embedder=HashingEmbedder(), **options)

    def store(self) -> Any:
        """A store that is not open yet."""
        if self.name == "PostgreSQL":
            return postgres_store(self.url)
        return SqliteStore(Path(self.url), config=CONFIG.store, clock=SystemClock(), lease_s=60)


async def services(stack: AsyncExitStack, engines: Sequence[Engine]) -> list[Repository]:
    """A repository in each, opened in a service that *stack* closes."""
    found = []
    for engine in engines:
        memory = await stack.enter_async_context(engine.service())
        found.append(await memory.open_repo(REPO))
    return found


def beside(name: str, values: Sequence[float], unit: str, **target: float) -> list[Figure]:
    """SQLite's and PostgreSQL's figure, and PostgreSQL's as a share of SQLite's."""
    ours, theirs = values
    return [
        Figure(f"{name}: SQLite", ours, unit),
        Figure(f"{name}: PostgreSQL", theirs, unit),
        Figure(f"{name}: PostgreSQL to SQLite", theirs / ours, "x", **target),
    ]


# ── Writing ──────────────────────────────────────────────────────────────────────────


async def appends(engines: Sequence[Engine], sizes: Sizes) -> list[Figure]:
    """Durable appends, one at a time and 64 in flight."""
    figures: list[Figure] = []
    of_postgres = []
    for tasks in (1, 64):
        each = max(1, sizes.appends // (64 if tasks == 1 else 1) // tasks // ROUNDS)
        rates: list[list[float]] = [[], []]
        async with AsyncExitStack() as stack:
            repos = await services(stack, engines)
            opened = [[await r.start_session("Note it") for _ in range(tasks)] for r in repos]
            for sessions in opened:
                await append_all(sessions, 2)
            for _ in range(ROUNDS):
                for sessions, rate in zip(opened, rates, strict=True):
                    began = perf_counter()
                    await append_all(sessions, each)
                    rate.append(each * tasks / (perf_counter() - began))
        target = {"least": 0.4} if tasks > 1 else {}
        figures += beside(f"append, {tasks} in flight", [*map(median, rates)], "/s", **target)
        of_postgres.append(median(rates[1]))
    gain = of_postgres[1] / of_postgres[0]
    return [*figures, Figure("append: 64 in flight to one at a time", gain, "x", least=3)]


async def commits(engines: Sequence[Engine], sizes: Sizes) -> list[Figure]:
    """The commit of an episode that is extracted."""
    took: list[list[float]] = [[], []]
    async with AsyncExitStack() as stack:
        repos = await services(stack, engines)
        for _ in range(sizes.commits + 1):
            for repo, times in zip(repos, took, strict=True):
                session = await repo.start_session("Help plan a journey")
                await append_all([session], COMMITTED_STEPS)
                await session.close()
                await session.wait_for("ready")
                began = perf_counter()
                await session.commit()
                times.append(1_000 * (perf_counter() - began))
                await session.aclose()
    medians = [median(times[1:]) for times in took]
    return beside(f"commit of {COMMITTED_STEPS} steps: p50", medians, "ms")


# ── Reading ──────────────────────────────────────────────────────────────────────────


async def reading(engines: Sequence[Engine], sizes: Sizes) -> list[Figure]:
    """Recall and search over the same records."""
    words = Words()
    texts = [words.sentence() for _ in range(sizes.records // 2)]
    facts = [words.sentence(6, 14) for _ in texts]
    for engine in engines:
        await fill(engine.store(), texts, facts, HashingEmbedder())
    chosen = texts[:: max(1, len(texts) // sizes.queries)][: sizes.queries]
    kinds: dict[str, tuple[list[str], Callable[[Repository, str], Awaitable[Any]], float | None]]
    kinds = {
        "recall": ([words.question(text) for text in chosen], Repository.recall, None),
        "search, a rare word": ([longest(text) for text in chosen], Repository.search, 15),
        "search, a common word": (words.commonest(10), Repository.search, 150),
    }
    figures: list[Figure] = []
    async with AsyncExitStack() as stack:
        repos = await services(stack, engines)
        for kind, (queries, ask, most) in kinds.items():
            took: list[list[float]] = [[], []]
            for query in [queries[0], *queries]:
                for repo, times in zip(repos, took, strict=True):
                    began = perf_counter()
                    await ask(repo, query)
                    times.append(1_000 * (perf_counter() - began))
            name = f"{kind}, {sizes.records:,} records"
            figures += beside(f"{name}: p50", [median(times[1:]) for times in took], "ms")
            p95 = [percentile(times[1:], 0.95) for times in took]
            ours, theirs, ratio = beside(f"{name}: p95", p95, "ms")
            figures += [ours, Figure(theirs.name, theirs.value, "ms", most=most), ratio]
    return figures


def longest(text: str) -> str:
    """The longest word, which few of the others hold."""
    return max(text.rstrip(".").split(), key=len)


# ── Many processes ───────────────────────────────────────────────────────────────────


async def inside(what: str, url: str, name: str, seconds: float) -> None:
    """Append in some sessions, or commit facts, for so long; print the keys acknowledged."""
    name_of_repo = "elsewhere" if what == "elsewhere" else "shared"
    told: list[str] = []
    async with Engine("PostgreSQL", url).service(workers=0) as memory:
        repo = await memory.open_repo(name_of_repo, exist_ok=True)
        print("open", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        until = perf_counter() + seconds

        async def append(number: int) -> None:
            session = await repo.start_session("Note it", session_id=f"{name} {number}")
            place = 0
            while perf_counter() < until:
                key = f"{name} {number} {place}"
                await session.append(f"The note {key} is here.", "Noted it", key=key)
                told.append(key)
                place += 1

        async def commit() -> None:
            while perf_counter() < until:
                key = f"{name} {len(told)}"
                facts = [Semantic(f"The fact {key} {n} holds.") for n in range(COMMITTED_STEPS)]
                await repo.apply(Changeset(tuple(facts)))
                told.append(key)

        async with anyio.create_task_group() as group:
            if what != "append":
                group.start_soon(commit)
            else:
                for number in range(WRITERS):
                    group.start_soon(append, number)
    print(json.dumps(told), flush=True)


async def together(url: str, seconds: float, counts: dict[str, int]) -> dict[str, list[str]]:
    """Run so many processes of each kind at once; give the keys that each kind was told."""
    told: dict[str, list[str]] = {what: [] for what in counts}
    async with AsyncExitStack() as stack:
        running = []
        for what, count in counts.items():
            for number in range(count):
                command = [sys.executable, __file__, "--inside", what, "--store", url]
                command += ["--name", f"{what} {number}", "--seconds", str(seconds)]
                process = await stack.enter_async_context(
                    await anyio.open_process(command, stderr=None)
                )
                running.append((what, process))
        for _, process in running:
            assert process.stdout is not None
            said = await process.stdout.receive()
            if not said.startswith(b"open"):
                raise RuntimeError(f"a process did not begin: {said!r}")

        async def collect(what: str, process: anyio.abc.Process) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdin.send(b"go\n")
            text = b"".join([part async for part in process.stdout])
            told[what] += json.loads(text)

        async with anyio.create_task_group() as group:
            for what, process in running:
                group.start_soon(collect, what, process)
    return told


async def following(url: str, sizes: Sizes) -> list[Figure]:
    """Writers in four processes, and a reader that follows them by number."""
    store, seen, cursor = postgres_store(url), [], FeedCursor()
    await store.open()
    feed, done = store.feed("shared"), anyio.Event()

    async def follow(last: bool = False) -> None:
        nonlocal cursor
        while not done.is_set() or last:
            changes = await feed.changes(cursor, limit=500)
            seen.extend(step.node_id for step in changes.steps)
            keys.extend(step.observation for step in changes.steps)
            cursor = changes.cursor
            if last and not changes.more:
                return

    keys: list[str] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            told = (await together(url, sizes.seconds, {"append": APPENDING}))["append"]
            done.set()
        await follow(last=True)
    finally:
        await store.aclose()
    name = f"{APPENDING * WRITERS} writers for {sizes.seconds:g} s"
    lost = {f"The note {key} is here." for key in told} - set(keys)
    return [
        Figure(f"{name}: appends", len(told) / sizes.seconds, "/s"),
        Figure(f"{name}: steps that a follower missed", len(lost), "", most=0),
        Figure(f"{name}: steps that it saw twice", len(seen) - len(set(seen)), "", most=0),
    ]


async def committing(urls: Sequence[str], sizes: Sizes) -> list[Figure]:
    """
    The rate of appends in four processes, alone and while two others commit.

    Those that commit to another repository take no lock of theirs, and as much of the machine:
    on one with few cores the share says what is left of it.
    """
    seconds = min(20.0, sizes.seconds)
    alone = await together(urls[0], seconds, {"append": APPENDING})
    both = await together(urls[1], seconds, {"append": APPENDING, "commit": COMMITTING})
    apart = await together(urls[2], seconds, {"append": APPENDING, "elsewhere": COMMITTING})
    share, left = (len(o["append"]) / max(1, len(alone["append"])) for o in (both, apart))
    name = f"{APPENDING} processes append while {COMMITTING} commit"
    return [
        Figure(f"{name}: appends without commits", len(alone["append"]) / seconds, "/s"),
        Figure(f"{name}: appends", len(both["append"]) / seconds, "/s"),
        Figure(f"{name}: commits of {COMMITTED_STEPS}", len(both["commit"]) / seconds, "/s"),
        Figure(f"{name}: share of the appends", share, "x", least=0.7),
        Figure(f"{name} elsewhere: share of the appends", left, "x"),
    ]


async def neighbours(url: str, sizes: Sizes) -> list[Figure]:
    """Recall in a small repository, alone and among many; it never finds another's rows."""
    queries = [f"Who keeps key {number}?" for number in range(20)] * max(1, sizes.queries // 20)
    async with Engine("PostgreSQL", url).service() as memory:
        small = await memory.open_repo("small")
        await small.apply(facts_of("small"))

        async def asked() -> list[float]:
            took = []
            for query in [queries[0], *queries]:
                began = perf_counter()
                found = await small.recall(query)
                took.append(1_000 * (perf_counter() - began))
                assert found.candidates
                assert all("small" in hit.node.text for hit in found.candidates)
                assert await small.search("drawer another") == []
            return took[1:]

        alone = await asked()
        for number in range(sizes.repositories):
            other = await memory.open_repo(f"other {number}")
            await other.apply(facts_of(f"another {number}"))
            await memory.close_repo(f"other {number}")
        among = await asked()
    name = f"recall in a small one of {sizes.repositories:,} repositories"
    return [
        Figure(f"{name}: alone, p50", median(alone), "ms"),
        Figure(f"{name}: p50", median(among), "ms"),
        Figure(f"{name}: slower by", median(among) / median(alone), "x", most=1.5),
    ]


def facts_of(owner: str) -> Changeset:
    """Twenty facts that name whose they are."""
    texts = [f"Ana of {owner} keeps key {number} in a drawer." for number in range(20)]
    return Changeset(tuple(Semantic(text) for text in texts))


# ── All of it ────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Read the arguments, measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench --postgres", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full", help=argparse.SUPPRESS)
    parser.add_argument(
        "--quick", dest="size", action="store_const", const="quick", help="smaller sizes"
    )
    parser.add_argument("--only", action="append", default=[], metavar="PHASE")
    parser.add_argument("--json", action="store_true", help="machine and figures")
    parser.add_argument(
        "--inside", choices=("append", "commit", "elsewhere"), help=argparse.SUPPRESS
    )
    for name in ("store", "name"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        anyio.run(inside, given.inside, given.store, given.name, given.seconds)
        return
    found = measured(SIZES[given.size], given.only, quiet=given.json)
    if given.json:
        phases = {name: [figure.as_json() for figure in part] for name, part in found.items()}
        print(json.dumps({"machine": machine(), "phases": phases}))


def measured(sizes: Sizes, only: Sequence[str], *, quiet: bool) -> dict[str, list[Figure]]:
    """Run the parts, each in new stores; print each when it is done, unless *quiet*."""
    found = {}
    with running_server() as server:
        for name, part in PARTS.items():
            if only and name not in only:
                continue
            with (
                tempfile.TemporaryDirectory(prefix="mnemo-bench-") as folder,
                new_schema(server.url) as first,
                new_schema(server.url) as second,
                new_schema(server.url) as third,
            ):
                found[name] = anyio.run(part, folder, [first, second, third], sizes)
            if not quiet:
                print(f"\n{name}", *map(shown, found[name]), sep="\n", flush=True)
    return found


def shown(figure: Figure) -> str:
    """One line of the table."""
    missed = "  MISSED" if figure.met is False else ""
    return f"  {figure.name:<74}{figure.value:>11,.2f} {figure.unit}{missed}"


def on_both(
    part: Callable[[Sequence[Engine], Sizes], Awaitable[list[Figure]]],
) -> Callable[[str, Sequence[str], Sizes], Awaitable[list[Figure]]]:
    """Give *part* a file and a schema."""

    async def run(folder: str, urls: Sequence[str], sizes: Sizes) -> list[Figure]:
        file = Engine("SQLite", str(Path(folder) / "m.db"))
        return await part([file, Engine("PostgreSQL", urls[0])], sizes)

    return run


PARTS: dict[str, Callable[[str, Sequence[str], Sizes], Awaitable[list[Figure]]]] = {
    "appends": on_both(appends),
    "commits": on_both(commits),
    "reading": on_both(reading),
    "following": lambda _, urls, sizes: following(urls[0], sizes),
    "committing": lambda _, urls, sizes: committing(urls, sizes),
    "neighbours": lambda _, urls, sizes: neighbours(urls[0], sizes),
}


if __name__ == "__main__":
    main()

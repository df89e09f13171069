"""
Soak: applications and two workers share a store, and are killed and paused in turns.

Each application remembers in threads and collects sessions, recalls, and forgets its oldest
thread or session for each new one. It writes what was acknowledged to a ledger, which this
process keeps. In the end every acknowledged message that was not forgotten is there, stored and
extracted once, every session whose commit was acknowledged is committed whole, nothing forgotten
is there, ``check`` finds no problem, and neither memory nor store have grown in the second half.
What outlives by promise what was forgotten (digests of ids, and the numbers and fences of threads)
is measured apart. The first application and the first worker are killed; the second ones are only
paused, so that they get as old as the run, and it is their memory that is looked at. Further
applications run undisturbed. With ``--faults`` the workers extract with a model that takes 100 ms
and fails in that share of its calls, for a while or for good.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from statistics import median
from string import ascii_lowercase
from time import monotonic
from typing import Any, NamedTuple

import anyio
import anyio.abc
import numpy as np
from bench_kit import (
    Child,
    Figure,
    Figures,
    SlowModel,
    be_child,
    index_files,
    kept,
    machine,
    resident_bytes,
    rows_of,
    store_on,
    tell,
)
from bench_read import file_store
from scale_store import BANK, FACTS, PART, SPACE, Drawn, Source, fill, repo_name

from mnemo import Config, Mnemo, Repository, SessionRecord, SessionState
from mnemo.errors import (
    CommitFailed,
    Conflict,
    MnemoError,
    NotFound,
    SessionBusy,
    SessionClosed,
    StoreLocked,
    StoreUnavailable,
)
from mnemo.testing import HashingEmbedder

REPO = repo_name(0)
MARKED = 100
"""Of the texts that are there before, every how manieth has a word of its own."""
CULL_S = 0.5
"""Seconds between two of these that an application forgets."""
BEGUN = 8
"""Bytes of a word, or a vector, by which it is looked for in the index."""
SOUGHT = 100
"""Of these, how many are asked for in the end: of the forgotten, and of the others."""
TURN_S = (1.0, 4.0)
"""Seconds between two kills or pauses: least and most."""
PAUSED_S = (0.5, 4.0)
"""Seconds of a pause; the longer ones outlast the lease."""
CONFIG = Config(
    jobs={"quiet_s": 0.1, "poll_s": 0.2, "retry_backoff_s": 0.1, "max_tries": 100},
    session={"lease_s": 2.0},
)
TURNS = (
    ("application 0", "kill"),
    ("worker 0", "pause"),
    ("application 1", "pause"),
    ("worker 0", "kill"),
    ("application 0", "pause"),
    ("worker 1", "pause"),
)
OLDEST = ("application 1", "worker 1")
"""Those that are never killed."""
EXPECTED = (CommitFailed, Conflict, SessionBusy, SessionClosed, StoreLocked, StoreUnavailable)
"""What a call may raise while others are killed and paused: nothing was acknowledged."""
ENDS = (SessionState.READY, SessionState.FAILED, SessionState.IDLE)
"""Where a closed episode goes by itself."""
OUTLIVING = ("erased", "threads", "jobs")
"""
Tables of what outlives the forgotten: digests, so that no erased id comes back; numbers of
threads, so that none is given twice; tokens of their jobs, so that no late worker writes.
"""
WARM_S = 60.0
"""Seconds of each half from which on memory and store are held to their bounds."""
GROWTH = 1.15
"""Most of what the last quarter may take of the one before it."""
END_S = 300.0
"""Seconds that what was left may take in the end."""


# ── Inside: an application, a worker ─────────────────────────────────────────────────


class Hashed(HashingEmbedder):
    """At hardly any cost, and in the space of the texts that are there before."""

    space = SPACE


def service(store: str, workers: int, model: SlowModel | None = None) -> Mnemo:
    """A service on the store."""
    embedder = Hashed(SPACE.dimensions)
    return Mnemo(store, embedder=embedder, chat_model=model, config=CONFIG, workers=workers)


@asynccontextmanager
async def opened(store: str, workers: int, model: SlowModel | None = None) -> AsyncIterator[Mnemo]:
    """The service, once others let it be opened, who may be paused while they write."""
    while True:
        memory = service(store, workers, model)
        try:
            await memory.open()
            break
        except StoreLocked as error:
            tell("refused", type(error).__name__, str(error))
            await memory.aclose()
    async with aclosing(memory):
        yield memory


async def worker(store: str, faults: float) -> None:
    """Work until the end comes from outside."""
    model = SlowModel.failing(faults) if faults else None
    async with opened(store, 2, model) as memory:
        tell("ready")
        await memory.work()


async def application(
    store: str,
    documents: int,
    keep: int,
    steps: int,
    name: str,
    left: Sequence[tuple[str, str]],
) -> None:
    """Be one life of an application, likewise."""
    async with opened(store, 0) as memory, anyio.create_task_group() as group:
        repo = await memory.open_repo(REPO)
        tell("ready")
        life = Application(repo, keep, steps, name, left)
        group.start_soon(life.cull, documents)
        await life.run()


class Application:
    """
    One life of an application.

    Args:
        keep: Threads, and sessions, that are live at a time.
        steps: Messages of a thread, and steps of a session.
        name: Of this life; begins what it makes.
        left: Threads and sessions, by kind and id, of the lives before it.
    """

    def __init__(
        self, repo: Repository, keep: int, steps: int, name: str, left: Sequence[tuple[str, str]]
    ) -> None:
        self.repo, self.keep, self.steps, self.name = repo, keep, steps, name
        self.live = {
            kind: deque(id for its_kind, id in left if its_kind == kind)
            for kind in ("thread", "session")
        }

    async def run(self) -> None:
        """Finish what earlier lives have left, then talk and collect until the end."""
        for record in await self.repo.unfinished_sessions():
            if record.id in self.live["session"]:
                await self.going_on(finish, self.repo, record)
        async with anyio.create_task_group() as group:
            for kind, take in (("thread", self.talk), ("session", self.collect)):
                group.start_soon(self.renew, kind, take)

    async def renew(self, kind: str, take: Callable[[str], Any]) -> None:
        """Make one thread or session after the other, and forget the oldest."""
        for number in count():
            id = f"{self.name} {kind} {number} {''.join(random.choices(ascii_lowercase, k=10))}"
            tell("begun", kind, id)
            self.live[kind].append(id)
            await self.going_on(take, id)
            while len(self.live[kind]) > self.keep:
                await self.going_on(self.forget, kind)

    async def going_on(self, call: Callable[..., Any], *arguments: object) -> None:
        """Call, and note what is refused."""
        try:
            await call(*arguments)
        except MnemoError as error:
            kind = "refused" if isinstance(error, EXPECTED) else "failed"
            tell(kind, type(error).__name__, str(error))

    async def cull(self, documents: int) -> None:
        """Forget, in any order, what was there before and has a word of its own."""
        numbers = marked(documents)
        for number in random.sample(numbers, len(numbers)):
            id = f"filled {number} {mark(number)}"
            tell("begun", "filled", id)
            await self.going_on(self.forget_filled, id, number)
            await anyio.sleep(CULL_S)

    async def forget_filled(self, id: str, number: int) -> None:
        """Erase one of these, which another life may have done before; nothing is recalled then."""
        tell("forgetting", id)
        with suppress(NotFound):
            await self.repo.forget(message_ids=[f"message {number}"])
        tell("forgot", id)
        if await is_recalled(self.repo, word_of(id)):
            tell("failed", "recalled", id)

    async def talk(self, thread: str) -> None:
        """Remember messages of a thread, and recall one."""
        for place in range(self.steps):
            await self.going_on(self.say, thread, place)
        await self.repo.recall(f"Where is the key of house {place} in {word_of(thread)}?")

    async def say(self, thread: str, place: int) -> None:
        key = f"{thread} {place}"
        stored = await self.repo.remember(said(thread, place), thread_id=thread, key=key)
        tell("said", thread, key, stored.messages[0].stored_id)

    async def collect(self, id: str) -> None:
        """Take a session through its steps to its commit; one in eight is discarded."""
        session = await self.repo.start_session("Keep house", session_id=id)
        try:
            for place in range(self.steps):
                key = f"{id} {place}"
                await session.append(said(id, place), "Noted it", key=key)
                tell("said", id, key, None)
            if random.random() < 1 / 8:
                await session.close()
                await session.wait_for(*ENDS)
                tell("forgetting", id)
                await session.discard()
                tell("forgot", id)
                return
            await session.close_and_commit(max_retries=100)
            tell("committed", id)
        finally:
            await session.aclose()

    async def forget(self, kind: str) -> None:
        """Erase the oldest thread or session, of which nothing is recalled then."""
        id = self.live[kind][0]
        tell("forgetting", id)
        await self.repo.forget(**{f"{kind}_id": id})
        self.live[kind].popleft()
        tell("forgot", id)
        if await is_recalled(self.repo, word_of(id)):
            tell("failed", "recalled", id)


async def is_recalled(repo: Repository, word: str, text: str = "") -> bool:
    """Whether a question about *word*, or the *text* that holds it, finds a text with it."""
    found = await repo.recall(text or f"What was said of {word}?")
    return any(word in one.node.text for one in found.candidates)


def word_of(id: str) -> str:
    """What is in everything said there, and nowhere else."""
    return id.rpartition(" ")[2]


def said(id: str, place: int) -> str:
    """What is said at this place of a thread or session; no two say the same."""
    return f"Ana keeps the key of house {place} in {word_of(id)} below step {7 * place}."


async def finish(repo: Repository, record: SessionRecord) -> None:
    """Bring a session that was left to its end."""
    if not record.steps:
        await repo.forget(session_id=record.id)
        return
    session = await repo.resume_session(record.id)
    try:
        if session.state is SessionState.COLLECTING:
            await session.close()
        while await session.wait_for(*ENDS) is not SessionState.IDLE:
            await session.commit()  # or extract again
    finally:
        await session.aclose()


# ── What is there before ─────────────────────────────────────────────────────────────


class Marking(Source):
    """Draws texts of which some have a word of their own."""

    def parts(self, repo: int, count: int) -> Iterator[Drawn]:
        for place, drawn in enumerate(super().parts(repo, count)):
            for number in marked(count):
                if number // PART == place:
                    text = drawn.texts[number % PART]
                    drawn.texts[number % PART] = f"{mark(number)} {text}"
            yield drawn


def parts_of(documents: int) -> list[tuple[int, int]]:
    """Of each part of so many texts, the number of the first message, and how many these are."""
    sizes = ((first, min(PART, documents - first)) for first in range(0, documents, PART))
    return [(first, size - size // FACTS) for first, size in sizes]


def marked(documents: int) -> list[int]:
    """The numbers of those that have a word of their own; they are messages."""
    return [n for first, size in parts_of(documents) for n in range(first, first + size, MARKED)]


def mark(number: int) -> str:
    """The word that the text of this number alone has."""
    return "".join(random.Random(number).choices(ascii_lowercase, k=10))


class Filled(NamedTuple):
    """
    What is there before.

    Attributes:
        codes: Number of each text that has a word of its own → how its vector begins in a segment.
    """

    documents: int = 0
    codes: Mapping[int, bytes] = {}


EMPTY = Filled()


async def fill_before(store: str, folder: Path, documents: int) -> Filled:
    """Write so many texts to a new store, with vectors that mean nothing."""
    if not documents:
        return EMPTY
    np.save(folder / "bank.npy", np.random.default_rng(0).standard_normal((BANK, SPACE.dimensions)))
    source = Marking(folder)
    if store.startswith("postgresql:"):
        from postgres_server import postgres_store

        await fill(postgres_store(store), source, [0], documents)
    else:
        await fill(file_store(Path(store)), source, [0], documents)
    # Ten minutes are to be those of a store that has been used for long.
    async with service(store, 0) as memory:
        index = (await memory.open_repo(REPO))._parts.index
        await index.corpus()
        await index.seal()
    rows = [drawn.vectors for drawn in source.parts(0, documents)]
    codes = {n: code_of(rows[n // PART][n % PART]) for n in marked(documents)}
    return Filled(documents, codes)


def code_of(row: Any) -> bytes:
    """How a vector begins, a byte for each number, as a large segment keeps it."""
    return bytes(np.rint(row / (np.abs(row).max() / 127)).astype(np.int8)[:BEGUN])


# ── The ledger ───────────────────────────────────────────────────────────────────────


@dataclass
class Unit:
    """A thread or session: what was acknowledged of it, and whether it was forgotten."""

    kind: str
    id: str
    keys: dict[str, str | None] = field(default_factory=dict)
    state: str = "live"
    is_committed: bool = False


class Ledger:
    """What the applications were told."""

    def __init__(self) -> None:
        self.units: dict[str, Unit] = {}
        self.refused = Counter[str]()
        self.failed: list[str] = []

    def note(self, what: str, *told: Any) -> None:
        """Take in a line."""
        if what == "begun":
            self.units[told[1]] = Unit(*told)
        elif what == "said":
            self.units[told[0]].keys[told[1]] = told[2]
        elif what in ("forgetting", "forgot"):
            self.units[told[0]].state = what
        elif what == "committed":
            self.units[told[0]].is_committed = True
        elif what == "refused":
            self.refused[told[0]] += 1
        elif what != "ready":
            self.failed.append(": ".join(told))

    def left_by(self, name: str) -> list[tuple[str, str]]:
        """What an application has not forgotten yet, oldest first."""
        return [
            (unit.kind, unit.id)
            for unit in self.units.values()
            if unit.id.startswith(f"{name} ") and unit.state != "forgot"
        ]

    def keys(self, state: str) -> dict[str, Unit]:
        """What was acknowledged of the units in *state*."""
        units = (unit for unit in self.units.values() if unit.state == state)
        return {key: unit for unit in units for key in unit.keys}


# ── Processes ────────────────────────────────────────────────────────────────────────


class Life:
    """A process under a name; another one when it was killed."""

    def __init__(self, name: str, ledger: Ledger, *given: object) -> None:
        self.name, self._ledger, self._given = name, ledger, given
        self._number = count()
        self._ended = anyio.Event()
        self._is_killed = False
        self.child: Child

    async def begin(self, stack: AsyncExitStack, group: anyio.abc.TaskGroup) -> None:
        """Start the process, read what it tells, and wait until it has the store open."""
        role, place = self.name.split()
        name, given = f"{role[0]}{place}", self._given
        if role == "application":
            given += (f"{name} life {next(self._number)}", self._ledger.left_by(name))
        self.child = await Child.begin(stack, globals()[role], *given)
        self._ended, self._is_killed, ready = anyio.Event(), False, anyio.Event()
        group.start_soon(self._read, ready, self._ended)
        await ready.wait()

    async def _read(self, ready: anyio.Event, ended: anyio.Event) -> None:
        async for line in self.child.lines():
            self._ledger.note(*json.loads(line))
            ready.set()
        ready.set()  # or it has ended before
        await self.child.process.wait()
        if not self._is_killed:
            code = self.child.process.returncode
            self._ledger.failed.append(f"{self.name} ended by itself ({code})")
        ended.set()

    async def kill(self) -> None:
        """SIGKILL, and read all that it had been told."""
        self._is_killed = True
        await self.child.kill()
        await self._ended.wait()

    @property
    def memory(self) -> int:
        """Resident bytes; 0: it has just ended."""
        return resident_bytes(self.child.process.pid)


async def disturb(
    lives: dict[str, Life], begin: Callable[[Life], Awaitable[None]], end: float
) -> None:
    """Kill or pause one after the other, until the clock says *end*."""
    for name, what in cycle(TURNS):
        await anyio.sleep(random.uniform(*TURN_S))
        if monotonic() > end:
            return
        life = lives[name]
        if what == "pause" and life.child.process.returncode is None:
            await life.child.pause(random.uniform(*PAUSED_S))
        else:
            await life.kill()
            await begin(life)


# ── What is measured ─────────────────────────────────────────────────────────────────


class Sample(NamedTuple):
    """Bytes at one moment: of the oldest processes, of the largest, of the store, of its index."""

    oldest: tuple[int, ...]
    largest: int
    store: int
    outliving: int
    index: int


def sizes_of(store: str) -> tuple[int, int, int]:
    """
    Bytes of a file and its log, or of the tables of a schema; of these the ``OUTLIVING``; and of
    the rows and files of the index.
    """
    if not store.startswith("postgresql:"):
        parts = (Path(store + end) for end in ("", "-wal"))
        size = sum(part.stat().st_size for part in parts if part.exists())
        ((outliving,),) = rows_of(store, _PAGES.format(OUTLIVING))
    else:
        schema = store.partition("&schema=")[2]
        ((size, outliving),) = rows_of(store, _RELATIONS.format(schema, OUTLIVING))
    return int(size), int(outliving), kept(store)[1]


_PAGES = """
SELECT coalesce(sum(pgsize), 0) FROM dbstat
WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name IN {})
"""
_RELATIONS = """
SELECT coalesce(sum(size), 0), coalesce(sum(size) FILTER (WHERE relname IN {1}), 0)
FROM (SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class
      WHERE relnamespace = '{0}'::regnamespace AND relkind = 'r') tables
"""


async def sample(lives: dict[str, Life], store: str, samples: list[Sample], seconds: float) -> None:
    """Look again and again."""
    while True:
        oldest = tuple(lives[name].memory for name in OLDEST)
        largest = max(life.memory for life in lives.values())
        sizes = await anyio.to_thread.run_sync(sizes_of, store)
        samples.append(Sample(oldest, largest, *sizes))
        await anyio.sleep(seconds)


def growth(name: str, bytes: Sequence[int], most: float | None) -> Figure:
    """What the last quarter takes of the quarter before it."""
    half = bytes[len(bytes) // 2 :]
    before, last = half[: len(half) // 2], half[len(half) // 2 :]
    ratio = median(last) / median(before) if before and median(before) else 1.0
    shown = f"{median(last) / 2**20:.0f} MiB" if last else "nothing"
    return Figure(f"{name}, {shown}: last quarter to the one before", ratio, "x", most=most)


async def found_wrong(store: str, ledger: Ledger, before: Filled = EMPTY) -> dict[str, int]:
    """What is not as it should be, with its number; workers are running."""
    async with service(store, 0) as memory:
        repo = await memory.open_repo(REPO)
        with anyio.fail_after(END_S):
            while left := await repo.unfinished_sessions():
                for record in left:
                    with suppress(SessionBusy):  # a worker still has it
                        await finish(repo, record)
                await anyio.sleep(0.1)
        await repo.settle(timeout_s=END_S)
        nodes: list[Any] = await repo.get_nodes(["episodic"])
        steps = Counter(node.key for node in nodes)
        # Texts that were there before may be of one word.
        said = (node.text for node in await repo.get_nodes(["semantic"]) if "key" in node.text)
        facts = Counter(said)
        whole = {one.id: one.steps for one in await repo.sessions() if one.state == "idle"}
        live, gone = ledger.keys("live"), ledger.keys("forgot")
        missing = messages = uncommitted = 0
        for unit in ledger.units.values():
            if unit.is_committed and unit.state == "live":
                uncommitted += whole.get(unit.id) != len(unit.keys)
            if unit.kind == "thread":
                stored = {one.stored_id for one in await repo.conversation(unit.id).history()}
                messages += len(stored) if unit.state == "forgot" else 0
                if unit.state == "live":
                    missing += len(set(unit.keys.values()) - stored)
        jobs = (await repo.statistics()).jobs
        filled = await wrong_with_filled(repo, store, ledger, before)
        problems = (await memory.check()).problems
    for one in (*problems, *ledger.failed):
        print(one, file=sys.stderr)
    words = [word_of(u.id).encode() for u in ledger.units.values() if u.state == "forgot"]
    return {
        "messages acknowledged and not there": missing,
        "messages and steps acknowledged and not extracted": sum(not steps[key] for key in live),
        "steps there twice": sum(times > 1 for times in steps.values()),
        "facts there twice": sum(times > 1 for times in facts.values()),
        "sessions acknowledged and not committed whole": uncommitted,
        "messages and steps forgotten and there": messages + sum(key in gone for key in steps),
        "jobs left or given up": jobs.waiting + jobs.running + jobs.dead,
        "problems of the check": len(problems),
        "failures of processes": len(ledger.failed),
        "words of the forgotten in rows and files of the index": found_in_index(store, words),
        **(filled if before.documents else {}),
    }


async def wrong_with_filled(
    repo: Repository, store: str, ledger: Ledger, before: Filled
) -> dict[str, int]:
    """Of the texts that were there before, those that are not as they should be."""
    begun, gone = (
        {int(u.id.split()[1]) for u in ledger.units.values() if u.kind == "filled" and may(u)}
        for may in (lambda _: True, lambda unit: unit.state == "forgot")
    )
    present = {int(id.split()[1]): text for id, text in rows_of(store, _FILLED)}
    told = {n for first, size in parts_of(before.documents) for n in range(first, first + size)}
    left = [number for number in before.codes if number not in begun]

    async def recalled(numbers: Sequence[int]) -> int:
        some = random.sample(numbers, min(SOUGHT, len(numbers)))
        asked = [(mark(number), present.get(number, "")) for number in some]
        return sum([await is_recalled(repo, *one) for one in asked])

    return {
        "texts from before lost": len(told - begun - present.keys()),
        "texts from before forgotten and there": len(gone & present.keys()),
        "texts from before forgotten and recalled": await recalled(sorted(gone)),
        "texts from before not recalled": min(SOUGHT, len(left)) - await recalled(left),
        "vectors of texts from before forgotten and in the index": found_in_index(
            store, [before.codes[number] for number in gone]
        ),
    }


_FILLED = "SELECT id, content FROM messages WHERE id LIKE 'message %'"
_INDEX = "SELECT bytes FROM segments ORDER BY repo, no, part"


def found_in_index(store: str, begun: Iterable[bytes]) -> int:
    """How many of what is *begun* so are somewhere in the rows and files of the index."""
    sought = np.array(sorted({one[:BEGUN] for one in begun}), f"S{BEGUN}").view("<u8")
    whole = [b"".join(bytes(row[0]) for row in rows_of(store, _INDEX))]
    whole += [file.read_bytes() for file in index_files(store)]
    # Most of what is there is none of them by its last two bytes already.
    may_be = np.zeros(2**16, np.bool_)
    may_be[sought & 0xFFFF] = True
    found = [
        np.intersect1d(numbers[may_be[numbers & 0xFFFF]], sought)
        for data in whole
        for at in range(BEGUN)
        for numbers in [np.frombuffer(data[at : len(data) - (len(data) - at) % BEGUN], "<u8")]
    ]
    return len(np.unique(np.concatenate(found)))


async def soaked(store: str, before: Filled, given: argparse.Namespace) -> Figures:
    """Run for the time that was asked for, then look at everything."""
    ledger, samples = Ledger(), list[Sample]()
    lives = {n: Life(n, ledger, store, given.faults) for n in ("worker 0", "worker 1")}
    for name in (f"application {number}" for number in range(given.applications)):
        lives[name] = Life(name, ledger, store, given.documents, given.live, given.steps)
    async with AsyncExitStack() as stack, anyio.create_task_group() as group:

        async def begin(life: Life) -> None:
            await life.begin(stack, group)

        for life in lives.values():
            await begin(life)
        async with anyio.create_task_group() as turns:
            turns.start_soon(sample, lives, store, samples, 1 + given.documents / 20_000)
            await disturb(lives, begin, monotonic() + 60 * given.minutes)
            turns.cancel_scope.cancel()
        for name, life in lives.items():
            if name.startswith("application"):
                await life.kill()
        wrong = await found_wrong(store, ledger, before)
        for life in lives.values():
            await life.kill()
        living = found_in_index(store, before.codes.values())
    return [
        *told(ledger),
        *held(wrong, samples, given.minutes),
        outlives(ledger, samples),
        # From so many texts on the index has vectors, among which they are found at all.
        Figure(
            "vectors of texts from before in the index",
            living,
            "",
            least=1 if given.documents >= 16_384 else None,
        ),
    ]


def told(ledger: Ledger) -> Figures:
    """How much was done."""
    filled = sum(unit.kind == "filled" and unit.state == "forgot" for unit in ledger.units.values())
    figures = [
        Figure("texts from before forgotten", filled, ""),
        Figure("messages and steps acknowledged, live in the end", len(ledger.keys("live")), ""),
        Figure("messages and steps forgotten", len(ledger.keys("forgot")), ""),
        Figure("commits acknowledged", sum(u.is_committed for u in ledger.units.values()), ""),
    ]
    return figures + [Figure(f"refused: {kind}", n, "") for kind, n in ledger.refused.items()]


def held(wrong: dict[str, int], samples: Sequence[Sample], minutes: float) -> Figures:
    """What has a bound; memory and store only where they had time to become steady."""
    most = GROWTH if 30 * minutes >= WARM_S else None
    figures = [Figure(what, value, "", most=0) for what, value in wrong.items()]
    for place, name in enumerate(OLDEST):
        figures.append(growth(f"memory of {name}", [one.oldest[place] for one in samples], most))
    largest = max(one.largest for one in samples) / 2**20
    figures.append(Figure("memory of the largest process", largest, "MiB"))
    rest = [one.store - one.outliving for one in samples]
    figures.append(growth("store but for what outlives the forgotten", rest, most))
    return [*figures, growth("rows and files of the index", [one.index for one in samples], most)]


def outlives(ledger: Ledger, samples: Sequence[Sample]) -> Figure:
    """What stays of each message that was remembered, forgotten or not."""
    size, count = samples[-1].outliving, sum(len(unit.keys) for unit in ledger.units.values())
    name = f"digests of erased ids, rows of threads and their jobs, {size / 2**20:.2f} MiB"
    return Figure(name, size / max(1, count), "bytes a message")


def main() -> int:
    """Read the arguments, soak and print; 1: something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("engine", choices=("sqlite", "postgres"))
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--documents", type=int, default=0, help="Texts that are there before.")
    parser.add_argument("--live", type=int, default=24, help="Threads, and sessions, of each.")
    parser.add_argument("--applications", type=int, default=2, help="At least two.")
    parser.add_argument("--steps", type=int, default=8, help="Of a session; messages of a thread.")
    parser.add_argument("--faults", type=float, default=0.0, help="Share of a model's calls.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mnemo-soak-") as folder,
        store_on(given.engine, Path(folder)) as store,
    ):
        before = anyio.run(fill_before, store, Path(folder), given.documents)
        figures = anyio.run(soaked, store, before, given)
    if given.json:
        told = [figure.as_json() for figure in figures]
        print(json.dumps({"machine": machine(), "figures": told}))
    else:
        print(*figures, sep="\n")
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    if sys.argv[1:2] in (["application"], ["worker"]):
        be_child(globals())
    else:
        sys.exit(main())

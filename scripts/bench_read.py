"""
The read side: recall, with filters and without, over stores of several sizes; keyword search,
drill-down and passive recall over a long history; a message as its thread grows; what commits and
maintenance do with facts: which are closed, what goes, what it costs.

Half of a store's nodes are raw steps, half are facts, each drawn from one step and carrying one of
500 tags. Texts follow Zipf's law; every vector is an embedder's. It is filled below the sessions,
in bulk. The history is fifty threads of two years, one message in twenty in Japanese.

``closings`` counts, of labelled pairs ``{"older", "newer", "changed": bool}`` in a file, those of
which a commit closes the older statement, without a chat model; the newer is said a week later.
``maintenance`` runs over facts over half as many raw steps: nine in ten are drawn from the words of
their step, one in ten says again, in other words, what an earlier one says; half of them are 60
days old and were never asked for. Each operation runs twice on a copy of its own, in a process of
its own: alone, and beside a session that appends without pause.
"""

from __future__ import annotations

import gc
import json
import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import isawaitable
from itertools import count, cycle
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import anyio
import bench_kit as kit
from bench_kit import Figure, Figures, Row, Words, at_once, batches, heartbeat, spread, timed

from mnemo import (
    Config,
    Edge,
    EdgeKind,
    MaintenanceReport,
    Message,
    Mnemo,
    Node,
    Repository,
    Semantic,
    Session,
    SessionRecord,
    SessionState,
    Tag,
)
from mnemo.models.local import WordLlamaEmbedder
from mnemo.protocols import Embedder, GraphWrite
from mnemo.repository.conversation import Conversation
from mnemo.runtime import settle_collector
from mnemo.runtime.clock import SystemClock, new_id
from mnemo.runtime.text import STOP_WORDS
from mnemo.stores import SqliteStore
from mnemo.testing import HashingEmbedder
from mnemo.values.messages import ToolCall
from mnemo.values.steps import Step, StepDraft, episodic_node, evidence_text
from mnemo.values.strategies import Recent, Summary

RECALL_P95_MS = {10_000: 10.0, 100_000: 30.0, 1_000_000: 150.0}
FIRST_S = {100_000: 2.0, 1_000_000: 30.0}
COMMITTED_STEPS = 12
REPO = "bench"
TAGS, STEPS_PER_SESSION, AT_ONCE = 500, 200, 5_000
BEGIN, APART = datetime(2025, 1, 1, 9, tzinfo=UTC), timedelta(minutes=3)
FILTERED_MOST = 1.2
"""The 95th percentile with a filter over that without one."""
KEPT, PAGE, PROJECTS, THREADS = 10, 100, 10, 50
JAPANESE, DAYS = 0.05, 730.0
KANJI = (
    "日本語東京都大阪府人口時間会議資料予算旅行電車飛行機写真音楽天気料理野菜魚肉酒茶水火木金土月"
)
KANA = "のはがをにでとものからまでです"
SEARCH_P95_MS, VIEW_P95_MS = 15.0, 5.0
BUDGET, SUMMARY, WEEK_S = 8_000, Summary(max_tokens=4_000, keep_last=5), 7 * 86_400.0
CROWD, SAID_AT_ONCE, WARM_UP = 64, 250, 5
SAID = datetime(2024, 5, 6, 9, tzinfo=UTC)
FACTS_PER_TAG, AGAIN, OLD = 20, 0.1, 0.5
"""Shares of facts that say an earlier one again, and that are old enough to decay."""
OPERATIONS: dict[str, Callable[[Repository], Awaitable[MaintenanceReport]]] = {
    "validate": lambda repo: repo.validate(),
    "consolidate": lambda repo: repo.consolidate(),
    "decay": lambda repo: repo.decay(),
}
Call = Callable[[], Awaitable[object]]


# ── Filling ──────────────────────────────────────────────────────────────────────────


async def fill(
    store: Any,
    texts: Sequence[str],
    embedder: Embedder,
    *,
    facts_of: Callable[[Sequence[str]], Sequence[str]] | None = None,
    tags: int = TAGS,
    step_fields: Callable[[int], Mapping[str, Any]] = lambda number: {},
    fact_fields: Callable[[Step], Mapping[str, Any]] = lambda step: {"valid_from": step.at},
) -> None:
    """
    Store a step for each of *texts*, with its vector and the facts drawn from it; close *store*.

    Args:
        facts_of: Gives one fact for each step of some, or a fact for each and then another one.
        step_fields: Of the step of a number; *fact_fields* likewise of a fact.
    """
    words, number, made = Words(9), count(), count(1)
    facts_of = facts_of or (lambda some: [words.sentence(6, 14) for _ in some])
    topics = [Tag(f"Topic {number}") for number in range(tags)]
    owner = await store.open()
    sessions, graph, feed = store.sessions(REPO), store.graph(REPO), store.feed(REPO)

    async def appended(said: Sequence[str]) -> list[Step]:
        record = SessionRecord(
            id=new_id("session"),
            repo_id=REPO,
            goal="Take everything down",
            state=SessionState.COLLECTING,
            steps=0,
            updated_at=BEGIN,
            episode_id=new_id("episode"),
        )
        await sessions.create(record, goal_at=BEGIN, owner=owner)
        steps, done = list[Any](), anyio.Event()

        def arrived(step: Any) -> None:
            steps.append(step)
            if len(steps) == len(said):
                done.set()

        for text in said:
            place = next(number)
            own = {"actor": "User", **step_fields(place)}
            at, id = BEGIN + (place + 1) * APART, new_id("episodic")
            draft = StepDraft(observation=text, action="", at=at, node_id=id, **own)
            sessions.append(record.id, str(record.episode_id), draft, owner, arrived)
        await done.wait()
        return steps

    try:
        for some in batches(texts, AT_ONCE):
            steps = [s for part in batches(some, STEPS_PER_SESSION) for s in await appended(part)]
            said = [evidence_text(step, "observation", agent_name="Agent") or "" for step in steps]
            keys = [f"{step.node_id}/observation" for step in steps]
            rows = await embedder.embed(said)
            await feed.save_vectors(embedder.space, dict(zip(keys, rows, strict=True)))
            told = facts_of(some)
            vectors = await embedder.embed(told)
            revision = await graph.revision()
            nodes: list[Node] = [*map(episodic_node, steps), *([] if revision else topics)]
            edges = []
            for text, vector, step in zip(told, vectors, cycle(steps), strict=False):
                fact, topic = Semantic(text, vector=vector, **fact_fields(step)), next(made) % tags
                nodes.append(fact)
                edges.append(Edge(fact.id, step.node_id, EdgeKind.PROVENANCE))
                edges.append(Edge(topics[topic].id, fact.id, EdgeKind.MEMBERSHIP))
            write = GraphWrite(
                changeset_id=new_id("changeset"),
                expected_revision=revision,
                nodes=tuple(nodes),
                edges=tuple(edges),
                space=embedder.space,
            )
            await graph.apply(write, owner)
        await store.release(owner)
    finally:
        await store.aclose()


def file_store(path: Path) -> SqliteStore:
    """A store in a file, not open yet."""
    return SqliteStore(path, config=Config().store, clock=SystemClock(), lease_s=60)


# ── Recall ───────────────────────────────────────────────────────────────────────────


async def recall(folder: Path, *, nodes: int, queries: int, commits: int) -> Figures:
    """Recall over so many nodes, one question after another, embedding included."""
    words = Words()
    texts = [words.sentence() for _ in range(nodes // 2)]
    await fill(file_store(folder / "recall.db"), texts, WordLlamaEmbedder())
    questions = [words.question(text) for text in texts[:: max(1, len(texts) // queries)]]
    await kit.warm_up(folder)
    del texts
    # What filling left on the heap is no part of a service: collections would walk it.
    gc.collect()
    gc.freeze()
    before, took, committed = kit.resident_bytes(), list[float](), list[float]()
    async with Mnemo(folder / "recall.db", embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        async with heartbeat() as reading:
            (first_ms,) = await timed([partial(repo.recall, questions[0])])
        async with heartbeat() as beats:
            for question in questions[:queries]:
                with kit.timing(took):
                    found = await repo.recall(question)
                assert found.candidates, question
        resident = kit.resident_bytes() - before
        for _ in range(commits + 1):
            session = await repo.start_session(words.sentence(4, 8))
            for _ in range(COMMITTED_STEPS):
                await session.append(words.sentence(), words.sentence())
            await session.close()
            await session.wait_for(SessionState.READY)
            committed += await timed([session.commit])
            await session.aclose()
    name, commit = f"recall, {nodes:,} nodes", f"commit of {COMMITTED_STEPS} steps, {nodes:,} nodes"
    first = f"{name}: the first, reading the index"
    return [
        *spread(name, took, "p50", "p95", "max", p95=RECALL_P95_MS.get(nodes)),
        *beats.figures(name),
        Figure(first, first_ms / 1_000, "s", most=FIRST_S.get(nodes)),
        *reading.figures(f"{name}, reading the index"),
        Figure(f"{name}: resident, per node", max(resident, 0) / nodes, "B"),
        Figure(f"{commit}: p50", median(committed[1:]), "ms"),
        Figure(f"{commit}: max", max(committed[1:]), "ms"),
    ]


def tagged(number: int) -> dict[str, Any]:
    """What filters can tell the step of this number by: metadata, speaker and thread."""
    return {
        "actor": "Ana" if number % 2 else "User",
        "metadata": {"project": f"p{number % PROJECTS}", "number": number},
        "thread_id": f"thread {number % THREADS}",
        "message_id": f"message {number}",
    }


def filters(steps: int) -> dict[str, dict[str, Any]]:
    """Name → filter of a store of *steps* steps; what it keeps is in the name."""
    middle = BEGIN + (steps // 2) * APART
    return {
        "where, a tenth": {"where": {"project": "p3"}},
        "since, half": {"since": middle},
        "until, half": {"until": middle},
        "actor, half": {"actor": "Ana"},
        "types, half": {"types": ("semantic",)},
        "thread_id, a fiftieth": {"thread_id": "thread 7"},
        f"where, {KEPT} steps": {"where": {"number": {"lt": KEPT}}},
    }


async def recall_filtered(folder: Path, *, nodes: int, queries: int) -> Figures:
    """
    Processor time of recall with each filter over that without one, and of a page of facts.

    Every question is asked without a filter and with each, in turn: other work on the machine
    changes processor time least.
    """
    words = Words()
    texts = [words.sentence() for _ in range(nodes // 2)]
    store = file_store(folder / "filters.db")
    await fill(store, texts, WordLlamaEmbedder(), step_fields=tagged)
    await kit.warm_up(folder)
    questions = [words.question(text) for text in texts[:: max(1, len(texts) // queries)]]
    asked: dict[str, dict[str, Any]] = {"": {}, **filters(len(texts))}
    took: dict[str, list[float]] = {name: [] for name in asked}

    async def used_ms(call: Awaitable[object]) -> float:
        began = process_time()
        await call
        return 1_000 * (process_time() - began)

    async with Mnemo(folder / "filters.db", embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        await repo.recall(questions[0])
        for question in questions[:queries]:
            for name, kept in asked.items():
                took[name].append(await used_ms(repo.recall(question, **kept)))
        listed = {
            name: await used_ms(repo.memories(limit=PAGE, **{"types": ("semantic",), **kept}))
            for name, kept in asked.items()
        }
    p95 = {name: kit.percentile(some, 0.95) for name, some in took.items()}
    plain, found = p95.pop(""), f"recall, {nodes:,} nodes"
    page = f"a page of {PAGE} of {nodes // 2:,} facts"
    return [
        Figure(f"{found}: p95 of processor time without a filter", plain, "ms"),
        *(
            Figure(f"{found}, {name}: p95 over that", ms / plain, "×", most=FILTERED_MOST)
            for name, ms in p95.items()
        ),
        *(Figure(f"{page}, {name or 'no filter'}", ms, "ms") for name, ms in listed.items()),
    ]


# ── Keyword search over a long history ───────────────────────────────────────────────


async def search(folder: Path, *, messages: int, calls: int) -> Figures:
    """Fill fifty threads, then ask: single calls, one after another."""
    chance, words, now = random.Random(5), Words(5), datetime.now(UTC)
    counts, function_words, japanese = Counter[str](), Counter[str](), list[str]()
    texts: list[str] = []
    for _ in range(messages):
        if chance.random() < JAPANESE:
            parts = ("".join(chance.choices(KANJI, k=chance.randint(1, 4))) for _ in range(9))
            texts.append("".join(p + chance.choice(KANA) for p in parts) + "。")
            japanese.append(texts[-1])
        else:
            texts.append(words.sentence())
            said = set(texts[-1].lower().rstrip(".").split())
            counts.update(said - STOP_WORDS)
            function_words.update(said & STOP_WORDS)
    days = [now - timedelta(DAYS * (1 - number / messages)) for number in range(messages)]
    async with Mnemo(folder / "search.db", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo(REPO)
        began = perf_counter()
        for thread in range(THREADS):
            talk = repo.conversation(f"thread-{thread}")
            for numbers in batches(range(thread, messages, THREADS), SAID_AT_ONCE):
                await talk.append(
                    Message("user", texts[n], id=f"message-{n}", at=days[n]) for n in numbers
                )
            await talk.settle()
        figures = [Figure(f"{messages:,} messages written", perf_counter() - began, "s")]
        settle_collector()
        asked = _questions(repo, texts, japanese, counts, function_words)
        for name, (make, most) in asked.items():
            made = [make(chance) for _ in range(calls + 3)]
            ready = [await one if isawaitable(one) else one for one in made]
            await timed(ready[:3])
            async with heartbeat() as beats:
                took = await timed(ready[3:])
            figures += [*spread(name, took, "p50", "p95", p95=most), *beats.figures(name)[:2]]
    return figures


def _questions(
    repo: Repository,
    texts: Sequence[str],
    japanese: Sequence[str],
    counts: Counter[str],
    function_words: Counter[str],
) -> dict[str, tuple[Callable[[random.Random], Any], float | None]]:
    """What is looked for: name → how to prepare a call, which alone is timed, and its bound."""
    turns, total = count(), len(texts)
    (most_common, _), *_ = counts.most_common(1)

    def held(least: float, most: float) -> list[str]:
        """Words that this share of the messages hold, at least the commonest one."""
        within = [w for w, n in counts.items() if least * total <= n <= most * total]
        return sorted(within) or [most_common]

    rare, common = held(0.000_02, 0.001), held(0.005, 1.0)

    def part(chance: random.Random, length: int) -> str:
        text = chance.choice(japanese or ["日本語"])
        start = chance.randrange(max(len(text) - length, 1))
        return text[start : start + length]

    def thread(chance: random.Random) -> str:
        return f"thread-{chance.randrange(THREADS)}"

    def near(chance: random.Random, *, named: bool) -> Call:
        number = chance.randrange(total)
        where = {"session_id": f"thread-{number % THREADS}"} if named else {}
        return partial(repo.view, f"message-{number}", **where)

    async def turn(chance: random.Random) -> Call:
        talk = repo.conversation(f"turn-{next(turns)}")
        await talk.append(Message("user", " ".join(chance.choices(texts, k=2))))
        return talk.viewport(120_000).render

    find, (function_word, _) = partial(partial, repo.search), function_words.most_common(1)[0]
    searches: dict[str, Callable[[random.Random], Call]] = {
        "a rare word": lambda c: find(c.choice(rare)),
        "a common word": lambda c: find(c.choice(common)),
        "the most common word": lambda c: find(most_common),
        "a word that seven in ten hold": lambda c: find(function_word),
        "two common words": lambda c: find(" ".join(c.sample(common, min(2, len(common))))),
        "a phrase": lambda c: find(f'"{" ".join(c.choice(texts).rstrip(".").split()[:3])}"'),
        "eight words by OR": lambda c: find(" OR ".join(c.choices(rare + common, k=8))),
        "three characters": lambda c: find(part(c, 3)),
        "two characters": lambda c: find(part(c, 2)),
        "one thread": lambda c: find(c.choice(common), session_id=thread(c)),
        "what is not visible": lambda c: find(c.choice(common), not_visible_in=thread(c)),
    }
    return {
        **{f"search, {name}": (make, SEARCH_P95_MS) for name, make in searches.items()},
        "view": (partial(near, named=True), VIEW_P95_MS),
        "view, thread not named": (partial(near, named=False), VIEW_P95_MS),
        "passive recall, with its write": (turn, None),
    }


# ── A message as its thread grows ────────────────────────────────────────────────────


class Growing:
    """
    A thread that grows by the turns of an agent: a question, a call, its result, an answer.

    The same seed says the same; each message has a word of its own, by its number.
    """

    def __init__(self, talk: Conversation, seed: int) -> None:
        self.talk, self.length, self._words = talk, 0, Words(seed)

    def next(self) -> Message:
        """The next message."""
        number, words = self.length, self._words
        self.length += 1
        match number % 4:
            case 1:
                call = ToolCall(f"call{number}", "look_up", {"about": words.sentence(3, 6)})
                return Message("assistant", None, tool_calls=(call,), id=f"m{number}")
            case 2:
                told, call_id = words.sentence(20, 60), f"call{number - 1}"
                return Message("tool", told, tool_call_id=call_id, id=f"m{number}")
        text = f"{words.sentence()} Noted as item{number}."
        return Message("assistant" if number % 4 else "user", text, id=f"m{number}")

    async def grow(self, length: int) -> None:
        """Append up to that length, and wait for all that follows from it."""
        while self.length < length:
            some = min(SAID_AT_ONCE, length - self.length)
            await self.talk.append([self.next() for _ in range(some)])
        await self.talk.settle()

    async def say(self) -> None:
        """Append one message."""
        await self.talk.append(self.next())

    async def new_turn(self) -> None:
        """Go on up to the next question of the user, and wait for what follows from it."""
        await self.say()
        while self.length % 4 != 1:
            await self.say()
        await self.talk.settle()


def everything(repo: Repository, thread_id: str) -> Conversation:
    """A thread whose appends have every consequence there is; summaries ask no model."""
    return repo.conversation(thread_id, retrieval=Recent(10), compression=SUMMARY, ttl_s=WEEK_S)


async def conversation(folder: Path, *, lengths: str, calls: int, each: int) -> Figures:
    """
    What appending, reading the window and searching cost at each of *lengths*, and the ratios.

    Two threads grow side by side: one that nobody watches, and one with everything on. Single
    calls are timed once the work behind the appends is done; then 64 further threads append.
    """
    found: dict[int, Figures] = {}
    async with Mnemo(folder / "conversations.db", embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        alone = Growing(repo.conversation("alone"), seed=11)
        watched = Growing(everything(repo, "watched"), seed=12)
        watched.talk.viewport(BUDGET)
        for length in sorted(map(int, lengths.split("-"))):
            began = perf_counter()
            await alone.grow(length)
            await watched.grow(length)
            grown = Figure("grown to this length", perf_counter() - began, "s")
            settle_collector()
            single = await _single(repo, alone, watched, calls)
            found[length] = [grown, *single, *await _crowd(repo, f"crowd of {length}", each)]
    first, last = min(found), max(found)
    before = {figure.name: figure.value for figure in found[first]}
    ratios = [
        Figure(f"{last:,} to {first:,} messages: {f.name}", f.value / before[f.name], "×")
        for f in found[last]
        if f.name.endswith(("p50", "p95")) and before.get(f.name)
    ]
    named = ((f"{n:,} messages: {f.name}", f) for n, figures in found.items() for f in figures)
    sized = [Figure(name, f.value, f.unit, f.least, f.most) for name, f in named]
    return [*sized, *ratios]


async def _single(repo: Repository, alone: Growing, watched: Growing, calls: int) -> Figures:
    viewport, older = watched.talk.viewport(BUDGET), cycle(range(0, alone.length, 4))

    measured: dict[str, tuple[Call | None, Call]] = {
        "append alone": (None, alone.say),
        "append, everything on": (None, watched.say),
        "append, everything on, work behind it done": (watched.talk.settle, watched.say),
        "load, the last 10 turns": (None, watched.talk.load),
        "viewport.messages": (None, viewport.messages),
        "viewport.render": (None, viewport.render),
        "viewport.render of a new turn": (watched.new_turn, viewport.render),
        "search": (None, lambda: repo.search(f"item{next(older)}")),
        "view": (None, lambda: repo.view(f"m{next(older)}", session_id="alone")),
    }
    figures: Figures = []
    for name, (before, call) in measured.items():
        took: list[float] = []
        for _ in range(WARM_UP + calls):
            if before is not None:
                await before()
            took += await timed([call])
        figures += spread(name, took[WARM_UP:], "p50", "p95")
        await alone.talk.settle()
        await watched.talk.settle()
    return figures


async def _crowd(repo: Repository, name: str, each: int) -> Figures:
    """Threads that append at once, each one message after the other."""
    talks = [everything(repo, f"{name}-{number}") for number in range(CROWD)]
    said, took = Growing(talks[0], seed=13), list[float]()
    messages = [said.next() for _ in range(each)]

    async def say(talk: Conversation) -> None:
        talk.viewport(BUDGET)
        took.extend(await timed(partial(talk.append, message) for message in messages))

    async with heartbeat() as beats:
        per_s = CROWD * each / await at_once(say, talks)
    await at_once(Conversation.settle, talks)
    what = f"{CROWD} threads at once"
    rate = Figure(f"{what}: durable appends", per_s, "/s")
    return [rate, *spread(f"{what}: append", took, "p50", "p95"), *beats.figures(what)[:2]]


# ── Facts: what commits close, what maintenance costs ────────────────────────────────


async def closings(folder: Path, *, file: str) -> Figures:
    """How many closings of labelled pairs are right, and how many of the changes are found."""
    pairs, right = json.loads(await anyio.Path(file).read_text("utf-8")), list[bool]()
    async with Mnemo("memory:", embedder=HashingEmbedder()) as service:
        for number, pair in enumerate(pairs):
            repo = await service.open_repo(f"pair-{number}")
            await repo.remember(pair["older"], at=SAID, wait=True)
            await repo.remember(pair["newer"], at=SAID + timedelta(days=7), wait=True)
            facts = await repo.memories(types=("semantic",), superseded=True, limit=100)
            if any(fact.valid_to is not None for fact in facts):
                right.append(bool(pair["changed"]))
            await service.close_repo(f"pair-{number}")
    changed = sum(bool(pair["changed"]) for pair in pairs)
    counts = {"pairs": len(pairs), "changed": changed, "closed": len(right), "right": sum(right)}
    shares = {"precision": len(right), "recall": changed}
    return [
        *(Figure(name, count, "") for name, count in counts.items()),
        *(Figure(name, sum(right) / of, "") for name, of in shares.items() if of),
    ]


async def maintenance(folder: Path, *, facts: int, only: str, before_s: float) -> Figures:
    """Every operation, alone and beside appends; *only* is one of them."""
    path, figures = folder / "facts.db", list[Figure]()
    await _fill_facts(path, facts)
    for operation in [only] if only else OPERATIONS:
        for beside in (False, True):
            copy = shutil.copy(path, folder / f"{operation}-{beside}.db")
            name = f"{facts:,} facts, {operation}{' beside appends' if beside else ''}"
            figures += await kit.apart(operate, name, operation, str(copy), beside, before_s)
    return figures


async def _fill_facts(path: Path, count: int) -> None:
    chance, said, now = random.Random(11), list[str](), datetime.now(UTC)

    def fact(text: str) -> str:
        if said and chance.random() < AGAIN:
            return f"{chance.choice(said).rstrip('.')}, really."
        words = text.rstrip(".").split()
        said.append(" ".join(chance.sample(words, min(len(words), 7))).capitalize() + ".")
        return said[-1]

    def created(step: object) -> Mapping[str, Any]:
        days = 60 if chance.random() < OLD else 2
        return {"created_at": now - timedelta(days=days, minutes=chance.random())}

    words = Words()
    await fill(
        file_store(path),
        [words.sentence() for _ in range(count // 2)],
        WordLlamaEmbedder(),
        facts_of=lambda texts: [fact(text) for text in (*texts, *texts)],
        tags=max(1, count // FACTS_PER_TAG),
        fact_fields=created,
    )


async def operate(name: str, operation: str, path: str, beside: bool, before_s: float) -> None:
    """Run one operation on the store at *path*, and print its figures."""
    report: list[MaintenanceReport] = []
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        await repo.recall("What is there?", types=["semantic"])
        session = await repo.start_session("Append without pause")
        await session.append("The first.", "")
        settle_collector()
        before = kit.resident_bytes()
        watched = partial(_appending, session) if beside else _watching
        what = (f"{name}: appends before", f"{name}: appends beside")
        quiet, during = what if beside else (f"{name}: quiet before", name)
        figures = await watched(quiet, lambda: anyio.sleep(before_s))

        async def act() -> None:
            report.append(await OPERATIONS[operation](repo))

        began, used = perf_counter(), process_time()
        figures += await watched(during, act)
        took_s, used_s = perf_counter() - began, process_time() - used
    (done,) = report
    counted = {"deleted": done.deleted, "merged": len(done.merged), "penalized": done.penalized}
    figures = [
        Figure(f"{name}: {done.checked:,} checked, in all", took_s, "s"),
        Figure(f"{name}: processor time of the process", used_s, "s"),
        *(Figure(f"{name}: {what}", number, "") for what, number in counted.items()),
        *figures,
        Figure(f"{name}: resident before", before / 1e6, "MB"),
        Figure(f"{name}: peak while it ran", max((kit.peak_bytes() - before) / 1e6, 0.0), "MB+"),
    ]
    print(json.dumps([vars(figure) for figure in figures]))


async def _watching(name: str, work: Callable[[], Awaitable[None]]) -> Figures:
    async with heartbeat() as beats:
        await work()
    return beats.figures(name)


async def _appending(session: Session, name: str, work: Callable[[], Awaitable[None]]) -> Figures:
    """Append, one after another, until *work* is done."""
    took: list[float] = []

    async def append() -> None:
        while True:
            with kit.timing(took):
                await session.append("The kettle was warm again, said Ana.", "")

    async with heartbeat() as beats, anyio.create_task_group() as group:
        group.start_soon(append)
        await work()
        group.cancel_scope.cancel()
    return [*spread(name, took, "p50", "p99", "max"), *beats.figures(name)]


ROWS = {
    "recall": Row(recall, nodes=([1_000, 10_000, 100_000], 200), queries=(200, 5), commits=(7, 1)),
    "filters": Row(recall_filtered, nodes=(100_000, 200), queries=(200, 5)),
    "search": Row(search, messages=(100_000, 300), calls=(200, 3)),
    "conversation": Row(
        conversation,
        lengths=("1000-10000-100000", "100-200"),
        calls=(200, 4),
        each=(100, 2),
    ),
    "closings": Row(closings, file=None),
    "maintenance": Row(maintenance, facts=([10_000, 100_000], 60), only="", before_s=(3.0, 0.1)),
}


if __name__ == "__main__":
    kit.be_child(globals())

"""The store in memory and the one on disk agree on what forgetting leaves, whatever happened."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemo.config import StoreConfig
from mnemo.episode.erasure import Erased, Selection
from mnemo.episode.journal import ChangesetStaged, StepsAnnotated
from mnemo.episode.step import Annotation, episodic_node
from mnemo.errors import MnemoError
from mnemo.graph.changeset import Changeset
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import MetadataDelta
from mnemo.graph.nodes import Intent, Node, Procedural, Semantic, Source, Subgoal, Tag
from mnemo.protocols import TranscriptWriter
from mnemo.store.sqlite import SqliteStore
from mnemo.testing.clock import ManualClock
from mnemo.testing.contracts import talk as told
from mnemo.testing.contracts.kit import NOON, SPACE, Kit, unit_vector
from mnemo.testing.contracts.records import found
from mnemo.testing.contracts.transcript import transcript_of
from mnemo.testing.stores import in_memory_store
from mnemo.transcript.derived import Thread

WORDS = ("porto", "harbour", "violin", "bread", "compiler", "osaka")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@dataclass(frozen=True)
class Said:
    """A step: its text, when it was said, its reward, and the thread that it was made from."""

    text: str
    hour: int
    reward: float | None
    thread: str | None


@dataclass(frozen=True)
class Talk:
    """A session, and how far it has come: 0 collecting, 1 ready, 2 committed."""

    steps: tuple[Said, ...]
    goal: str
    stage: int


@dataclass(frozen=True)
class Known:
    """A fact or instruction, resting on steps picked over all committed sessions."""

    text: str
    grounds: tuple[int, ...]
    label: str
    is_fact: bool
    replaced_by: int


@dataclass(frozen=True)
class Spoken:
    """
    A thread: when its messages were said, and what was derived from them.

    Attributes:
        ranges: First seq and length; of compactions and of snapshots, whichever comes.
        pinned: Seqs; *shown* too, as places of messages over all threads or of steps.
    """

    hours: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    pinned: tuple[int, ...]
    shown: tuple[int, ...]
    cleared: bool


SAID = st.builds(
    Said,
    text=TEXTS,
    hour=st.integers(0, 5),
    reward=st.sampled_from([None, 0.25, 1.0]),
    thread=st.sampled_from([None, None, "t", "u"]),
)
SPOKEN = st.builds(
    Spoken,
    hours=st.lists(st.integers(0, 5), max_size=5).map(tuple),
    ranges=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=5).map(tuple),
    pinned=st.lists(st.integers(0, 4), max_size=2).map(tuple),
    shown=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    cleared=st.booleans(),
)
TALK = st.builds(
    Talk,
    steps=st.lists(SAID, max_size=4).map(tuple),
    goal=TEXTS,
    stage=st.sampled_from([0, 1, 2, 2, 2]),
)
KNOWN = st.builds(
    Known,
    text=TEXTS,
    grounds=st.lists(st.integers(0, 20), max_size=4).map(tuple),
    label=st.sampled_from(WORDS),
    is_fact=st.sampled_from([True, True, False]),
    replaced_by=st.integers(-3, 5),
)
SELECTION = st.builds(
    lambda session, thread, hour: Selection(
        session_id=session or (None if thread or hour else "s0"),
        thread_id=thread,
        before=None if hour is None else NOON + timedelta(hours=hour),
    ),
    st.sampled_from([None, None, "s0", "s1", "s2", "nobody"]),
    st.sampled_from([None, None, "t", "u", "no thread"]),
    st.sampled_from([None, None, 1, 3, 6]),
)


async def play(kit: Kit, talks: list[Talk], known: list[Known]) -> None:
    """Make the history in one store."""
    committed: list[str] = []
    for number, talk in enumerate(talks):
        name = f"s{number}"
        await kit.start(name, goal=talk.goal)
        for index, said in enumerate(talk.steps):
            at = NOON + timedelta(hours=said.hour)
            await kit.append(
                said.text,
                "noted",
                session=name,
                at=at,
                node_id=f"{name}-{index}",
                thread_id=said.thread,
                message_id=said.thread and "m0",
            )
        await annotate(kit, name, talk)
        if talk.stage:
            await kit.close(name)
            whole = Changeset(id=f"changeset {name}")
            place = kit.place(name)
            await kit.record(ChangesetStaged(changeset=whole, steps=(), **place))
        if talk.stage == 2:
            committed += await commit(kit, name, talk)
    await apply_known(kit, known, committed)
    keys = [f"{id}/observation" for id in committed]
    await kit.store.feed("r").save_vectors(SPACE, {k: unit_vector(1, 2, 3, 4) for k in keys})


def speak(tx: TranscriptWriter, spoken: list[Spoken]) -> None:
    """Make the threads t and u, as far as they are told of."""
    for thread, one in zip("tu", spoken, strict=False):
        tx.keep(Thread(id=thread, next_seq=len(one.hours), epoch=0, next_goal=3))
        texts = (f"{WORDS[n % 6]} in {thread}" if n % 3 else "" for n in range(9))
        messages = [
            told.said(seq, text, thread=thread, at=NOON + timedelta(hours=hour))
            for seq, (hour, text) in enumerate(zip(one.hours, texts, strict=False))
        ]
        tx.add(messages)
        tx.save_vectors(SPACE, {(thread, seq): unit_vector(1, seq, 0, 0) for seq in (1, 4)})
        tx.put(told.goal(1, thread=thread), told.goal(2, parent_id=1, thread=thread))
        put: set[str] = set()
        for number, (first, length) in enumerate(one.ranges):
            if first + length < len(messages):
                tx.put(derived(number, first, first + length, thread, put))
        for seq in one.pinned:
            if seq < len(messages):
                tx.put(told.pin(seq, thread=thread))
        places = [("u", f"m{n}") if n % 2 else ("s0", f"s0-{n}/action") for n in one.shown]
        for seq, place in enumerate(places):
            tx.put(told.surfaced(seq, place, ("t", "m1"), thread=thread))
        if one.cleared:
            start = len(messages)
            tx.keep(replace(tx.thread(thread), epoch=1, epoch_start=start, boundary=start))


def derived(number: int, first: int, last: int, thread: str, put: set[str]) -> Any:
    """A range's summary of some sort, perhaps standing under one of those *put* before."""
    sort = "cs"[number % 2]
    over, id = f"{sort}{number - 2}", f"{sort}{number}"
    over = over if over in put else None
    if number == 4:
        snapshot_id = "s1" if "s1" in put else None
        return told.outcome(first, last, snapshot_id=snapshot_id, thread=thread)
    put.add(id)
    if number % 2:
        return told.snapshot(first, last, id=id, covered_by=over, thread=thread)
    return told.compaction(first, last, id=id, superseded_by=over, thread=thread)


async def annotate(kit: Kit, name: str, talk: Talk) -> None:
    found = tuple(
        Annotation(
            index=index,
            state=f"state {talk.steps[0].text}",
            subgoal=talk.steps[index // 2 * 2].text,
            reward=said.reward,
            trajectory_id=f"{name}/{index // 2}",
        )
        for index, said in enumerate(talk.steps)
    )
    if found:
        await kit.record(StepsAnnotated(annotations=found, **kit.place(name)))


async def commit(kit: Kit, name: str, talk: Talk) -> list[str]:
    """The steps as nodes with their sources and subgoals, and the end of the episode."""
    steps = (await kit.load(name)).steps
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    for step in steps:
        node, source = episodic_node(step), Source(step.text, id=f"source of {step.node_id}")
        goal = Subgoal(step.subgoal or "", id=f"goal {step.trajectory_id}", parent_goal=talk.goal)
        for one in (node, source, goal):
            nodes.setdefault(one.id, replace(one, created_at=NOON))
        edges.append(Edge(node.id, source.id, EdgeKind.PROVENANCE))
        edges.append(Edge(goal.id, node.id, EdgeKind.HIERARCHICAL))
    settlement = kit.settlement(*(step.index for step in steps), ends=True)
    place = kit.place(name)
    await kit.apply(
        *nodes.values(), id=name, edges=edges, settlement=replace(settlement, **place), space=SPACE
    )
    return [step.node_id for step in steps]


async def apply_known(kit: Kit, known: list[Known], committed: list[str]) -> None:
    """Knowledge with its tags and intents, some of it replaced by another."""
    nodes: dict[str, Node] = {}
    edges: dict[Edge, None] = {}
    metadata: dict[str, MetadataDelta] = {}
    vector = unit_vector(4, 3, 2, 1)
    for number, one in enumerate(known):
        id = f"known {number}"
        by = one.replaced_by if 0 <= one.replaced_by < len(known) else number
        replaced = by != number and known[by].is_fact
        base: dict[str, Any] = {"id": id, "created_at": NOON, "vector": vector}
        closing = {"superseded_by": f"known {by}", "valid_to": NOON} if replaced else {}
        nodes[id] = (
            Semantic(one.text, valid_from=NOON, **closing, **base)
            if one.is_fact
            else Procedural(one.text, **base)
        )
        group: Node = Tag(one.label) if one.is_fact else Intent(one.label)
        group = replace(group, id=f"{group.type} {one.label}", created_at=NOON)
        nodes[group.id] = group
        kind = EdgeKind.MEMBERSHIP if one.is_fact else EdgeKind.HIERARCHICAL
        edges[Edge(group.id, id, kind)] = None
        for ground in one.grounds if committed else ():
            edges[Edge(id, committed[ground % len(committed)], EdgeKind.PROVENANCE)] = None
        metadata[id] = MetadataDelta(cumulative_reward=0.5, reward_count=1, support_count=1)
    await kit.apply(*nodes.values(), id="known", edges=list(edges), metadata=metadata, space=SPACE)


def compared(erased: Erased) -> Any:
    return erased.report, sorted(erased.node_ids), sorted(erased.session_ids)


async def state(kit: Kit) -> Any:
    """Everything that one can ask a store for."""
    graph, feed = kit.store.graph("r"), kit.store.feed("r")
    nodes = {node.id: node for node in await graph.nodes()}
    edges = {(e.source, e.target, e.kind) for e in await graph.edges(sorted(nodes))}
    vectors = {id: None if n.vector is None else n.vector.tolist() for id, n in nodes.items()}
    journals = [await kit.store.sessions.load(f"s{number}") for number in range(3)]
    changes = await kit.changes()
    counts = {k: n for k, n in (await feed.counts()).items() if n}
    ids = tuple(f"m{n}" for n in range(6))
    threads = await transcript_of(kit.store).reading(partial(told.dump, ids=ids))
    return {
        "nodes": nodes,
        "edges": edges,
        "vectors": vectors,
        "metadata": await graph.metadata(sorted(nodes)),
        "revision": await graph.revision(),
        "counts": counts,
        "journals": journals,
        "records": await kit.store.sessions.records("r", unfinished=False),
        "found": await found(kit.store, *([word] for word in WORDS)),
        "steps": [step.node_id for step in changes.steps],
        "threads": threads,
        "details": {id: dict(detail) for id, detail in changes.details.items()},
    }


async def lives(
    make: Callable[[Any], Any],
    talks: list[Talk],
    known: list[Known],
    spoken: list[Spoken],
    selections: list[Selection],
) -> list[Any]:
    """The whole story in one store; everything that was seen of it."""
    clock = ManualClock(NOON + timedelta(days=1))
    store = make(clock)
    kit = Kit(make, clock, store, await store.open())
    seen: list[Any] = []
    try:
        await play(kit, talks, known)
        await transcript_of(kit.store).writing(partial(speak, spoken=spoken))
        seen.append(await state(kit))
        for selection in selections:
            overhaul = kit.store.overhaul("r")
            touched = sorted(await overhaul.touched(selection))
            erased = await overhaul.erase(selection)
            assert sorted(erased.session_ids) == touched
            seen += [compared(erased), await state(kit)]
            again = await overhaul.erase(selection)
            assert again.report.is_empty
            seen.append(await refusals(kit))
        report = await kit.store.check()
        assert report.problems == ()
    finally:
        await kit.store.aclose()
    return seen


async def refusals(kit: Kit) -> list[str]:
    """What becomes of those who come too late."""
    answers = []
    for name in ("s0", "s1"):
        for act in (kit.start(name), kit.append("late", session=name), kit.discard(name)):
            try:
                await act
                answers.append("done")
            except MnemoError as error:
                answers.append(type(error).__name__)
    return answers


@pytest.mark.slow
@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    talks=st.lists(TALK, min_size=1, max_size=3),
    known=st.lists(KNOWN, max_size=5),
    spoken=st.lists(SPOKEN, max_size=2),
    selections=st.lists(SELECTION, min_size=1, max_size=2),
)
def test_both_stores_forget_alike(
    talks: list[Talk], known: list[Known], spoken: list[Spoken], selections: list[Selection]
) -> None:
    """Reports, graph, journals, threads, search and feed are equal after each erasure."""

    async def both(folder: str) -> None:
        path = Path(folder) / "m.db"

        def on_disk(clock: Any) -> SqliteStore:
            return SqliteStore(path, config=StoreConfig(), clock=clock, lease_s=30)

        first = await lives(in_memory_store, talks, known, spoken, selections)
        second = await lives(on_disk, talks, known, spoken, selections)
        for one, other in zip(first, second, strict=True):
            assert one == other

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(both(folder))

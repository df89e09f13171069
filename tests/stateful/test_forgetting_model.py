"""A small model of what ``forget`` promises; the store is held against it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pytest
from contracts import talk as told
from contracts.records import found
from contracts.transcript import transcript_of
from engines import emptied
from helpers import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from world import NOON, SPACE, Kit, opened, unit_vector

from mnemo.errors import Barred, Conflict, NotFound
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.text import terms
from mnemo.testing import ManualClock
from mnemo.values.changeset import Changeset
from mnemo.values.derived import Compaction, Goal, Pin, Snapshot, Thread
from mnemo.values.erasure import ErasureReport, Selection
from mnemo.values.graph import (
    Edge,
    EdgeKind,
    Episodic,
    Intent,
    MetadataDelta,
    Node,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
)
from mnemo.values.journal import ChangesetStaged, StepsAnnotated
from mnemo.values.steps import Annotation, episodic_node

T = TypeVar("T")

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
    grounds=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    label=st.sampled_from(WORDS),
    is_fact=st.sampled_from([True, True, True, False]),
    replaced_by=st.sampled_from([-1, 0, 1, 2]),
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


@dataclass(frozen=True)
class Picked:
    """What is named by ids, picked over what there is: claims, steps, a thread's messages."""

    memories: tuple[int, ...]
    steps: tuple[int, ...]
    messages: tuple[int, ...]
    sources: bool


PICKED = st.builds(
    Picked,
    memories=st.lists(st.integers(0, 4), max_size=2).map(tuple),
    steps=st.lists(st.integers(0, 7), max_size=2).map(tuple),
    messages=st.lists(st.integers(0, 4), max_size=2).map(tuple),
    sources=st.booleans(),
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
        told.save_vectors(tx, {(thread, seq): unit_vector(1, seq, 0, 0) for seq in (1, 4)})
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
        grounds = {committed[ground % len(committed)] for ground in one.grounds if committed}
        edges.update(dict.fromkeys(Edge(id, step, EdgeKind.PROVENANCE) for step in grounds))
        support = len({step.partition("-")[0] for step in grounds}) or 1
        metadata[id] = MetadataDelta(cumulative_reward=0.5, reward_count=1, support_count=support)
    await kit.apply(*nodes.values(), id="known", edges=list(edges), metadata=metadata, space=SPACE)


# ── The model ────────────────────────────────────────────────────────────────────────


def words(*texts: str | None) -> set[str]:
    """The content words of *texts*."""
    return {term for text in texts if text for term in terms(text)}


@dataclass
class Step:
    """A step as the model knows it."""

    said: Said
    talk: int
    committed: bool
    state: str | None
    subgoal: str

    @property
    def evidence(self) -> set[str]:
        """What claims may be worded from."""
        return words(self.said.text, "noted", "user")


@dataclass
class Claim:
    """A fact or instruction, the ids of the steps it rests on, and by what it was replaced."""

    text: str
    is_fact: bool
    grounds: set[str]
    replaced_by: str | None


@dataclass
class Talked:
    """A thread: hours of messages by seq, ranges by id, and the seqs that are pinned."""

    hours: dict[int, int]
    ranges: dict[str, range]
    pins: set[int]
    goals: int = 2


@dataclass
class Model:
    """What must be there; ``erase`` gives the report that a selection must have."""

    talks: list[Talk]
    steps: dict[str, Step] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    threads: dict[str, Talked] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, talks: list[Talk], known: list[Known], spoken: list[Spoken]) -> Model:
        """The story as ``play`` and ``speak`` tell it."""
        model = cls(talks)
        for number, talk in enumerate(talks):
            model.sessions.add(f"s{number}")
            for index, said in enumerate(talk.steps):
                state, subgoal = f"state {talk.steps[0].text}", talk.steps[index // 2 * 2].text
                model.steps[f"s{number}-{index}"] = Step(
                    said, number, talk.stage == 2, state, subgoal
                )
        committed = [id for id, step in model.steps.items() if step.committed]
        for number, one in enumerate(known):
            by = one.replaced_by if 0 <= one.replaced_by < len(known) else number
            replaced = one.is_fact and by != number and known[by].is_fact
            grounds = {committed[g % len(committed)] for g in one.grounds} if committed else set()
            model.claims[f"known {number}"] = Claim(
                one.text, one.is_fact, grounds, f"known {by}" if replaced else None
            )
        for thread, one in zip("tu", spoken, strict=False):
            model.threads[thread] = talked(one)
        return model

    def selected(self, picked: Picked) -> Selection | None:
        """What *picked* names of what is there; ``None``: nothing."""
        memories = tuple(_picked(sorted(self.claims), picked.memories))
        if not picked.sources:
            return Selection(memory_ids=memories, sources=False) if memories else None
        steps = tuple(_picked(sorted(self.steps), picked.steps))
        seqs = sorted(self.threads["t"].hours) if "t" in self.threads else []
        messages = tuple(f"m{seq}" for seq in _picked(seqs, picked.messages))
        if messages:
            return Selection(message_ids=messages, thread_id="t")
        return Selection(memory_ids=memories, step_ids=steps) if memories or steps else None

    def erase(self, selection: Selection) -> ErasureReport:
        """Take out what *selection* takes, and what follows from that."""
        taken, spoken = self._named(selection)
        gone = {
            id: step
            for id, step in self.steps.items()
            if (id in taken if selection.names_ids else self._takes(selection, id))
        }
        ended = {f"s{step.talk}" for step in gone.values()}
        whole = self.sessions & {selection.whole_session or ""}
        changed, restored = self._erase_claims(gone, selection.memory_ids)
        for id in gone:
            del self.steps[id]
        self._strip(gone)
        living = {f"s{step.talk}" for step in self.steps.values()}
        over = {id for id in ended | whole if id in whole or id not in living}
        self.sessions -= over
        return ErasureReport(
            steps=len(gone),
            sessions=len(over),
            facts_changed=changed,
            facts_restored=restored,
            **self._erase_messages(selection, spoken),
        )

    def _named(self, selection: Selection) -> tuple[set[str], set[tuple[str, int]]]:
        """Steps and messages that ids name: a claim its steps, a step its message, and back."""
        steps, messages = (
            {*selection.step_ids},
            {("t", int(id[1:])) for id in selection.message_ids},
        )
        if selection.sources:
            steps |= set[str]().union(*(self.claims[id].grounds for id in selection.memory_ids))
        origins = {id: step.said.thread for id, step in self.steps.items()}
        messages |= {(origins[id] or "", 0) for id in steps if self._is_of_message(id)}
        made = {id for id in self.steps if (origins[id], 0) in messages}
        return steps | made, messages

    def _is_of_message(self, id: str) -> bool:
        return self.is_shown_by_message(self.steps[id])

    def is_shown_by_message(self, step: Step) -> bool:
        """Whether the message that a step was made of is there, and is found in its place."""
        thread = self.threads.get(step.said.thread or "")
        return thread is not None and 0 in thread.hours

    def _takes(self, selection: Selection, id: str) -> bool:
        said = self.steps[id].said
        return (
            selection.session_id in (None, id.partition("-")[0])
            and selection.thread_id in (None, said.thread)
            and _before(selection, said.hour)
        )

    def _lost(self, gone: dict[str, Step]) -> dict[int, set[str]]:
        """The words that each talk loses; with its goal if nothing of it is left."""
        left = {step.talk for id, step in self.steps.items() if id not in gone}
        return {
            talk: set[str]().union(
                *(s.evidence | words(s.state, s.subgoal) for s in gone.values() if s.talk == talk),
                words(self.talks[talk].goal) if talk not in left else (),
            )
            for talk in {step.talk for step in gone.values()}
        }

    def _erase_claims(self, gone: dict[str, Step], named: Sequence[str]) -> tuple[int, int]:
        lost, changed = self._lost(gone), 0
        going = {id: self.claims[id] for id in named}
        for id, claim in self.claims.items():
            if id in going:
                continue
            erased, left = claim.grounds & gone.keys(), claim.grounds - gone.keys()
            if not erased:
                continue
            said = set[str]().union(*(lost[gone[step].talk] for step in erased))
            still = set[str]().union(*(self.steps[step].evidence for step in left))
            if not left or words(claim.text) & said - still:
                going[id] = claim
            else:
                claim.grounds = left
                changed += 1
        for id in going:
            del self.claims[id]
        return changed, sum(self._holds_again(claim, going) for claim in self.claims.values())

    def _holds_again(self, claim: Claim, going: dict[str, Claim]) -> bool:
        """Whether *claim* does; its replacement is bridged where that was replaced itself."""
        if claim.replaced_by not in going:
            return False
        by: str | None = claim.replaced_by
        seen: set[str] = set()
        while by in going and by not in seen:
            seen.add(by)
            by = going[by].replaced_by
        claim.replaced_by = None if by in seen else by
        return claim.replaced_by is None

    def _strip(self, gone: dict[str, Step]) -> None:
        """Annotations of remaining steps lose what only the erased of their talk said."""
        left = {step.talk for step in self.steps.values()}
        lost = {
            talk: set[str]().union(
                *(s.evidence | words(s.state, s.subgoal) for s in gone.values() if s.talk == talk)
            )
            for talk in left
        }
        for step in self.steps.values():
            goal = self.talks[step.talk].goal
            known = words(step.said.text, "noted", "user", goal)
            if words(step.state) & lost[step.talk] - known:
                step.state = None
            if words(step.subgoal) & lost[step.talk] - known:
                step.subgoal = goal

    def _erase_messages(self, selection: Selection, spoken: set[tuple[str, int]]) -> dict[str, int]:
        counts = dict.fromkeys(("messages", "compactions", "snapshots", "pins", "goals"), 0)
        if not selection.takes_messages:
            return counts
        for id, thread in self.threads.items():
            if selection.thread_id not in (None, id):
                continue
            whole = selection.whole_thread == id
            gone = {seq for seq, hour in thread.hours.items() if _before(selection, hour)}
            if selection.names_ids:
                gone = {seq for where, seq in spoken if where == id}
            ranges = {r for r, held in thread.ranges.items() if whole or gone & {*held}}
            pins = {seq for seq in thread.pins if whole or seq in gone}
            counts["messages"] += len(gone)
            counts["compactions"] += sum(id.startswith("c") for id in ranges)
            counts["snapshots"] += sum(id.startswith("s") for id in ranges)
            counts["pins"] += len(pins)
            counts["goals"] += thread.goals if whole else 0
            thread.hours = {seq: h for seq, h in thread.hours.items() if seq not in gone}
            thread.ranges = {r: held for r, held in thread.ranges.items() if r not in ranges}
            thread.pins -= pins
            thread.goals = 0 if whole else thread.goals
        return counts


def _picked(there: Sequence[T], places: Iterable[int]) -> list[T]:
    """Those of *there* at *places*, counted round, each once."""
    return list(dict.fromkeys(there[place % len(there)] for place in places)) if there else []


def _before(selection: Selection, hour: int) -> bool:
    return selection.before is None or NOON + timedelta(hours=hour) < selection.before


def talked(one: Spoken) -> Talked:
    """What ``speak`` makes of it."""
    there = range(len(one.hours))
    ranges = {
        f"{'cs'[number % 2]}{number}": range(first, first + length + 1)
        for number, (first, length) in enumerate(one.ranges)
        if first + length < len(there) and number != 4
    }
    return Talked(dict(enumerate(one.hours)), ranges, {*one.pinned} & {*there})


# ── The store held against it ────────────────────────────────────────────────────────


async def compare(kit: Kit, model: Model) -> None:
    """Everything that must stay is there, and nothing that must be gone."""
    feed, graph = kit.store.feed("r"), kit.store.graph("r")
    ids = [f"s{talk}-{index}" for talk in range(3) for index in range(4)]
    steps = await feed.steps(ids)
    assert {id: step.observation for id, step in steps.items()} == {
        id: step.said.text for id, step in model.steps.items()
    }
    assert {id: (step.state, step.subgoal) for id, step in steps.items()} == {
        id: (step.state, step.subgoal) for id, step in model.steps.items()
    }
    records = await kit.store.sessions("r").records(unfinished=False)
    assert {record.id for record in records} == model.sessions
    nodes = {node.id: node for node in await graph.nodes()}
    await compare_claims(kit, model, nodes)
    await compare_routing(kit, nodes)
    committed = {id for id, step in model.steps.items() if step.committed}
    assert {id for id, node in nodes.items() if node.type == "episodic"} == committed
    assert {id for id, node in nodes.items() if node.type == "source"} == {
        f"source of {id}" for id in committed
    }
    await transcript_of(kit.store).reading(partial(compare_threads, model=model))
    for word in WORDS:
        records_found = {id for id in await found(kit.store, [word]) if "/" in id}
        with_word = {
            id
            for id, step in model.steps.items()
            if word in step.said.text.split() and not model.is_shown_by_message(step)
        }
        assert records_found == {f"{id}/observation" for id in with_word}
    assert (await kit.store.check()).problems == ()


async def compare_claims(kit: Kit, model: Model, nodes: dict[str, Node]) -> None:
    """Facts and instructions, what they rest on, their support, and what replaced them."""
    graph = kit.store.graph("r")
    claims = {id: node for id, node in nodes.items() if node.type in ("semantic", "procedural")}
    assert claims.keys() == model.claims.keys()
    edges = await graph.edges(sorted(claims), kind=EdgeKind.PROVENANCE)
    counts = await graph.metadata(sorted(claims))
    for id, node in claims.items():
        claim = model.claims[id]
        assert node.text == claim.text
        assert {edge.target for edge in edges if edge.source == id} == claim.grounds
        support = {model.steps[step].talk for step in claim.grounds}
        assert counts[id].support_count == (len(support) or 1)
        if isinstance(node, Semantic):
            assert node.superseded_by == claim.replaced_by
            assert (node.valid_to is None) == (claim.replaced_by is None)


async def compare_routing(kit: Kit, nodes: dict[str, Node]) -> None:
    """Tags, intents and subgoals have a member each."""
    routing = [id for id, node in nodes.items() if node.type in ("tag", "intent", "subgoal")]
    edges = await kit.store.graph("r").edges(sorted(routing))
    assert {edge.source for edge in edges} >= {*routing}


def compare_threads(tx: TranscriptReader, model: Model) -> None:
    """Messages, and what was derived from them."""
    for id, thread in model.threads.items():
        assert {message.seq for message in tx.messages(id)} == thread.hours.keys()
        derived = {one.id for kind in (Compaction, Snapshot) for one in tx.all(kind, id)}
        assert derived == thread.ranges.keys()
        assert {pin.seq for pin in tx.all(Pin, id)} == thread.pins
        assert len(tx.all(Goal, id)) == thread.goals


def counted(report: ErasureReport) -> ErasureReport:
    """*report* without what the model does not count."""
    uncounted = {"nodes": 0, "edges": 0, "vectors": 0, "fulltext_rows": 0}
    return replace(report, **uncounted)


async def lives(
    talks: list[Talk],
    known: list[Known],
    spoken: list[Spoken],
    selections: list[Selection | Picked],
    place: str | None = None,
    *,
    scrubs: bool = True,
) -> None:
    """
    The whole story; after each erasure the store is what the model says.

    Args:
        scrubs: Whether the engine takes the bytes with the rows; else ``scrub`` does later.
    """
    model, clock = Model.of(talks, known, spoken), ManualClock(NOON + timedelta(days=1))
    async with opened(place, clock) as kit:
        store = kit.store
        await play(kit, talks, known)
        await transcript_of(store).writing(partial(speak, spoken=spoken))
        await compare(kit, model)
        for asked in selections:
            selection = model.selected(asked) if isinstance(asked, Picked) else asked
            if selection is None:
                continue
            texts = [model.claims[id].text for id in selection.memory_ids]
            before, overhaul = set(model.sessions), store.overhaul("r")
            touched = await overhaul.touched(selection)
            planned = await overhaul.erase(replace(selection, dry_run=True))
            await compare(kit, model)
            erased = await overhaul.erase(selection)
            assert {*erased.session_ids} == {*touched}
            assert replace(planned.report, scrubbed=erased.report.scrubbed) == erased.report
            assert counted(erased.report) == replace(model.erase(selection), scrubbed=scrubs)
            await compare(kit, model)
            await erased_once(kit, selection)
            if not selection.sources:
                await barred(kit, texts)
            await refused(kit, before - model.sessions)


async def erased_once(kit: Kit, selection: Selection) -> None:
    """A second time there is nothing; what is named is not there."""
    if selection.names_ids:
        with pytest.raises(NotFound):
            await kit.store.overhaul("r").erase(selection)
    else:
        assert (await kit.store.overhaul("r").erase(selection)).report.is_empty


async def barred(kit: Kit, texts: Iterable[str]) -> None:
    """What was erased alone is not extracted again."""
    for text in texts:
        step, fact = Episodic("again"), Semantic(text)
        rule, ground = Procedural(text), Edge(fact.id, step.id, EdgeKind.PROVENANCE)
        both = [ground, replace(ground, source=rule.id)]
        with pytest.raises(Barred) as refusal:
            await kit.apply(step, fact, rule, id="again", edges=both)
        assert {*refusal.value.ids} <= {fact.id, rule.id}


async def refused(kit: Kit, sessions: Iterable[str]) -> None:
    """What is gone is not begun anew."""
    for name in sorted(sessions):
        with pytest.raises(Conflict):
            await kit.start(name)
        with pytest.raises(Conflict):
            await kit.append("late", session=name)


ONCE = settings(derandomize=True, database=None, suppress_health_check=list(HealthCheck))
ANY_STORY = given(
    talks=st.lists(TALK, min_size=1, max_size=3),
    known=st.lists(KNOWN, max_size=5),
    spoken=st.lists(SPOKEN, max_size=2),
    selections=st.lists(st.one_of(SELECTION, PICKED), min_size=1, max_size=2),
)


THRICE = [Talk((Said(WORDS[0], 1, None, None),), WORDS[0], 2)] * 3


@pytest.mark.long
@pytest.mark.slow
@settings(ONCE, max_examples=examples(150))
@ANY_STORY
@example(THRICE, [Known(WORDS[0], (0, 1, 2), "l", True, -1)], [], [Selection(session_id="s0")])
def test_forgetting_keeps_its_promises(
    talks: list[Talk],
    known: list[Known],
    spoken: list[Spoken],
    selections: list[Selection | Picked],
) -> None:
    """What must be gone is gone, what must stay stays, and the report counts it."""
    asyncio.run(lives(talks, known, spoken, selections))


@pytest.mark.postgres
@pytest.mark.slow
@settings(ONCE, max_examples=examples(30))
@ANY_STORY
def test_forgetting_on_postgres_keeps_its_promises(
    postgres_url: str,
    talks: list[Talk],
    known: list[Known],
    spoken: list[Spoken],
    selections: list[Selection | Picked],
) -> None:
    """As in memory; the bytes go with the next scrub."""
    emptied(postgres_url, "")
    asyncio.run(lives(talks, known, spoken, selections, postgres_url, scrubs=False))


FED = st.builds(replace, SAID, thread=st.sampled_from(["t", "u"]))


@pytest.mark.slow
@settings(ONCE, max_examples=examples(80))
@given(
    talks=st.lists(
        st.builds(replace, TALK, steps=st.lists(FED, min_size=1, max_size=3).map(tuple)),
        min_size=1,
        max_size=3,
    ),
    known=st.lists(KNOWN, min_size=1, max_size=5),
    spoken=st.lists(SPOKEN, min_size=2, max_size=2),
    picks=st.lists(PICKED, min_size=1, max_size=3),
)
def test_ids_take_along_what_they_are_made_of(
    talks: list[Talk], known: list[Known], spoken: list[Spoken], picks: list[Picked]
) -> None:
    """Memories their steps, steps their messages, messages their steps; or a memory alone."""
    asyncio.run(lives(talks, known, spoken, [*picks]))

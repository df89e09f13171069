"""A store, driven by any acts, against a small model of what it acknowledged."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from contracts.records import found
from engines import OverEngines, emptied, on_postgres
from helpers import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from world import NOON, SPACE, Kit, store_at, unit_vector

from mnemo.errors import MnemoError
from mnemo.protocols import FeedChanges, FeedCursor
from mnemo.testing import ManualClock
from mnemo.values.changeset import Changeset
from mnemo.values.graph import Edge, EdgeKind, Episodic, MetadataDelta, Node, Semantic, Tag
from mnemo.values.journal import (
    ChangesetStaged,
    ExtractionAbandoned,
    ExtractionRetried,
    StagedTrajectory,
    StepsAnnotated,
    TrajectoryStaged,
)
from mnemo.values.steps import Annotation, Step

SESSIONS = st.sampled_from(["a", "b"])
WORDS = st.sampled_from(["porto harbour", "bread", "the violin of omar", "compiler"])
INDEX = st.integers(0, 4)


@dataclass
class Mirror:
    """What a reader of the feed knows that has only ever read what was new."""

    cursor: FeedCursor = field(default_factory=FeedCursor)
    steps: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    vectors: dict[str, list[float]] = field(default_factory=dict)

    def follow(self, changes: FeedChanges) -> None:
        assert not changes.more
        self.cursor = changes.cursor
        self.steps |= {s.node_id: (s.index, s.observation, s.action, s.at) for s in changes.steps}
        self.nodes |= {node.id: node for node in changes.nodes}
        self.details |= {id: dict(detail) for id, detail in changes.details.items()}
        self.vectors |= {key: vector.tolist() for key, vector in changes.vectors.items()}
        for id in changes.removed:
            for known in (self.steps, self.nodes, self.details):
                known.pop(id, None)
            self.vectors = {k: v for k, v in self.vectors.items() if k.split("/")[0] != id}

    def known(self) -> tuple[Any, ...]:
        return (self.steps, self.nodes, self.details, self.vectors)


@dataclass
class Model:
    """What was acknowledged: steps by session in order, and the ids of nodes."""

    steps: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {"a": [], "b": []})
    nodes: set[str] = field(default_factory=set)


class StoreMachine(OverEngines):
    """What is acknowledged is there, what is refused changes nothing, reopened or not."""

    @initialize()
    def open(self) -> None:
        """An empty store."""
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = ManualClock(NOON + timedelta(days=1))
        self.episodes = {"a": 0, "b": 0}
        self.number = 0
        place = emptied(self.url, self.folder.name)

        def make(clock: Any) -> Any:
            return store_at(place, clock)

        async def opened() -> Kit:
            store = make(self.clock)
            return Kit(make, self.clock, store, await store.open())

        self.kit = self.runner.run(opened())
        self.mirror, self.model = Mirror(), Model()
        self.start("a")
        self.start("b")

    def does(self, act: Callable[[Kit], Awaitable[Any]]) -> Any:
        """The answer of *act*; ``None`` if it is refused, which changes nothing."""
        before = self.runner.run(_everything(self.kit))
        try:
            return self.runner.run(_done(act(self.kit)))
        except (MnemoError, ValueError):
            assert self.runner.run(_everything(self.kit)) == before
            return None

    def teardown(self) -> None:
        """Close it, whatever happened."""
        if not hasattr(self, "kit"):
            return
        self.runner.run(self.kit.store.aclose())
        self.runner.close()
        self.folder.cleanup()

    def _place(self, kit: Kit, session: str) -> dict[str, Any]:
        return kit.place(session, f"{session}-{self.episodes[session] or 1}")

    def _new(self, what: str) -> str:
        self.number += 1
        return f"{what}{self.number}"

    # ── Sessions ─────────────────────────────────────────────────────────────────────

    @rule(session=SESSIONS)
    def go_on(self, session: str) -> None:
        """What a session would do next, so that every state is come through often."""
        match self._state(session):
            case "collecting":
                self.append(session, [("porto harbour", "noted"), ("bread", "")], None)
                self.annotate(session, 0, 0.5)
                self.stage_a_trajectory(session, 0)
                self.close(session)
            case "extracting":
                self.stage_everything(session)
            case "ready":
                self.commit(session, True)
            case "failed":
                self.retry(session)
            case "idle":
                self.begin_another_episode(session)

    @rule(session=SESSIONS)
    def start(self, session: str) -> None:
        """A new session, or a conflict."""
        self.does(lambda kit: kit.start(session))
        self.episodes[session] = self.episodes[session] or 1

    @rule(
        session=SESSIONS,
        texts=st.lists(st.tuples(WORDS, st.sampled_from(["", "noted"])), min_size=1, max_size=3),
        key=st.sampled_from([None, None, "k1", "k2"]),
    )
    def append(self, session: str, texts: list[tuple[str, str]], key: str | None) -> None:
        """One or more steps; a used key gives the first one again, or is refused."""
        ids = [self._new("step") for _ in texts]

        async def append(kit: Kit) -> list[Any]:
            results: list[Any] = []
            for text, id in zip(texts, ids, strict=True):
                (result,) = await kit.append_all(
                    [text],
                    session=session,
                    episode=self._place(kit, session)["episode_id"],
                    node_id=id,
                    key=key,
                )
                results.append(result if isinstance(result, Step) else type(result).__name__)
            return results

        before = {id for id, _ in self.model.steps[session]}
        for step in self.does(append) or ():
            if isinstance(step, Step) and step.node_id not in before:
                before.add(step.node_id)
                self.model.steps[session].append((step.node_id, step.observation))

    @rule(session=SESSIONS, index=INDEX, reward=st.sampled_from([None, 0.25, 1.0]))
    def annotate(self, session: str, index: int, reward: float | None) -> None:
        """What is known about a step that may not be there."""
        found = Annotation(
            index=index, state="s", subgoal="find", reward=reward, trajectory_id=f"t{index // 2}"
        )
        self.does(
            lambda kit: kit.record(
                StepsAnnotated(annotations=(found,), **self._place(kit, session))
            )
        )

    @rule(session=SESSIONS)
    def close(self, session: str) -> None:
        """The episode takes no more."""
        if self._state(session) not in ("collecting",):
            return
        self.does(lambda kit: kit.close(session, episode=self._place(kit, session)["episode_id"]))

    @rule(session=SESSIONS, index=INDEX)
    def stage_a_trajectory(self, session: str, index: int) -> None:
        """A result is kept under its key."""
        if self._state(session) not in ("collecting", "extracting"):
            return
        fact = Semantic("Ana lives in Porto", id=self._new("staged"), created_at=NOON)
        staged = StagedTrajectory(
            key=f"t{index}@{index}",
            trajectory_id=f"t{index}",
            steps=(index,),
            changeset=Changeset(nodes=(fact,), id=fact.id),
        )
        self.does(
            lambda kit: kit.record(TrajectoryStaged(staged=staged, **self._place(kit, session)))
        )

    @rule(session=SESSIONS)
    def stage_everything(self, session: str) -> None:
        """Ready."""
        if self._state(session) not in ("extracting",):
            return
        whole = Changeset(id=self._new("changeset"))
        self.does(
            lambda kit: kit.record(
                ChangesetStaged(changeset=whole, steps=(0,), **self._place(kit, session))
            )
        )

    @rule(session=SESSIONS)
    def give_up(self, session: str) -> None:
        """Failed."""
        if self._state(session) not in ("extracting",):
            return
        self.does(
            lambda kit: kit.record(
                ExtractionAbandoned(error="down", trajectory_id="t0", **self._place(kit, session))
            )
        )

    @rule(session=SESSIONS)
    def retry(self, session: str) -> None:
        """Extracting again."""
        if self._state(session) not in ("failed",):
            return
        self.does(lambda kit: kit.record(ExtractionRetried(**self._place(kit, session))))

    @rule(session=SESSIONS)
    def discard(self, session: str) -> None:
        """Idle, and its raw steps leave the feed."""
        if self._state(session) not in ("ready", "failed"):
            return
        self.does(lambda kit: kit.discard(session, episode=self._place(kit, session)["episode_id"]))

    @rule(session=SESSIONS)
    def begin_another_episode(self, session: str) -> None:
        """A second episode, where the first is over."""
        name = f"{session}-{self.episodes[session] + 1}"
        if self._state(session) == "idle":
            self.does(lambda kit: kit.begin(name, session=session))
            self.episodes[session] += 1

    def _state(self, session: str) -> str | None:
        """Which acts make sense: a store leaves that to the table of the session."""
        journal = self.runner.run(self.kit.store.sessions("r").load(session))
        return str(journal.record.state) if journal else None

    # ── Graph and vectors ────────────────────────────────────────────────────────────

    @rule(words=WORDS, id=st.sampled_from(["", "", "", "again"]))
    def apply(self, words: str, id: str) -> None:
        """A fact with its tag; the same changeset again answers as the first time."""
        changeset, fact, tag = id or self._new("c"), self._new("fact"), self._new("tag")
        nodes = (
            Semantic(words, id=fact, created_at=NOON, vector=unit_vector(1, 2, 3, 4)),
            Tag(words.split()[0], id=tag, created_at=NOON),
        )
        applied = self.does(
            lambda kit: kit.apply(
                *nodes,
                id=changeset,
                edges=[Edge(tag, fact, EdgeKind.MEMBERSHIP)],
                metadata={fact: MetadataDelta(support_count=1)},
                space=SPACE,
            )
        )
        if applied is not None and not applied.again:
            self.model.nodes |= {fact, tag}

    @rule(session=SESSIONS, ends=st.booleans())
    def commit(self, session: str, ends: bool) -> None:
        """The uncommitted steps of an episode as nodes, with what that does to the session."""
        journal = self.runner.run(self.kit.store.sessions("r").load(session))
        if journal is None or journal.record.state not in (
            ("extracting", "ready") if ends else ("collecting", "extracting")
        ):
            return
        steps = [step for step in journal.steps if step.index not in journal.committed]
        nodes = [
            Episodic(s.observation, action=s.action, id=s.node_id, created_at=NOON) for s in steps
        ]
        changeset = self._new("commit")

        async def commit(kit: Kit) -> Any:
            settlement = kit.settlement(
                *(s.index for s in steps), ends=ends, staged=tuple(journal.staged)
            )
            place = self._place(kit, session)
            return await kit.apply(*nodes, id=changeset, settlement=replace(settlement, **place))

        applied = self.does(commit)
        if applied is not None and not applied.again:
            self.model.nodes |= {node.id for node in nodes}

    @rule(choice=st.integers(0, 50))
    def delete(self, choice: int) -> None:
        """One node, with all that hangs on it."""

        async def ids(kit: Kit) -> list[str]:
            return sorted(node.id for node in await kit.store.graph("r").nodes())

        there = self.does(ids)
        if there:
            gone = [there[choice % len(there)], "unknown"]
            assert self.does(lambda kit: kit.store.graph("r").delete(gone)) == (gone[0],)
            self.model.nodes.discard(gone[0])

    @rule(number=st.integers(1, 30))
    def save_vectors(self, number: int) -> None:
        """Vectors of nodes and steps that may be gone or never were."""
        vectors = {
            f"fact{number}": unit_vector(1, 0, 0, number),
            f"step{number}/observation": unit_vector(0, 1, 0, number),
        }
        self.does(lambda kit: kit.store.feed("r").save_vectors(SPACE, vectors))

    @rule(number=st.integers(1, 30))
    def touch(self, number: int) -> None:
        """Accesses of what exists are counted."""
        self.does(lambda kit: kit.store.graph("r").touch({f"fact{number}": 2, "nobody": 1}, NOON))

    @rule()
    def pass_time(self) -> None:
        """Later acts are later."""
        self.clock.advance(60)

    @rule()
    def reopen_the_file(self) -> None:
        """What is in the file is all there is to it."""
        before = self.runner.run(_everything(self.kit))
        self.runner.run(self.kit.reopen())
        assert self.runner.run(_everything(self.kit)) == before
        self.runner.run(self._claim_all())

    async def _claim_all(self) -> None:
        for session, episodes in self.episodes.items():
            if episodes:
                await self.kit.store.sessions("r").claim(session, self.kit.owner)

    # ── What always holds ────────────────────────────────────────────────────────────

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        """Steps with their texts, and nodes by id."""
        steps = [step for session in self.model.steps.values() for step in session]
        there = self.runner.run(self.kit.store.feed("r").steps([id for id, _ in steps]))
        assert {id: step.observation for id, step in there.items()} == dict(steps)
        nodes = self.runner.run(self.kit.store.graph("r").nodes())
        assert {node.id for node in nodes} == self.model.nodes

    @invariant()
    def the_feed_tells_all(self) -> None:
        """Read piece by piece it leads to the same as read whole."""
        self.mirror.follow(self.runner.run(self.kit.changes(self.mirror.cursor)))
        whole = Mirror()
        whole.follow(self.runner.run(self.kit.changes()))
        assert self.mirror.known() == whole.known()

    @invariant()
    def the_file_is_sound(self) -> None:
        """The check that users run finds nothing."""
        assert self.runner.run(self.kit.store.check()).problems == ()


async def _done(act: Awaitable[Any]) -> Any:
    return await act


async def _everything(kit: Kit) -> Any:
    """Journals, records, graph, counts and search answers."""
    journals = [await _journal(kit, session) for session in ("a", "b")]
    return journals, await _records(kit), await _graph(kit), await _found(kit)


async def _journal(kit: Kit, session: str) -> Any:
    return await kit.store.sessions("r").load(session)


async def _records(kit: Kit) -> Any:
    return await kit.store.sessions("r").records(unfinished=False)


async def _graph(kit: Kit) -> Any:
    graph = kit.store.graph("r")
    nodes = {node.id: node for node in await graph.nodes()}
    edges = {(e.source, e.target, e.kind) for e in await graph.edges(sorted(nodes))}
    counts = {k: n for k, n in (await kit.store.feed("r").counts()).items() if n}
    return nodes, edges, await graph.metadata(sorted(nodes)), await graph.revision(), counts


async def _found(kit: Kit) -> Any:
    return await found(kit.store, ["porto"], ["bread"])


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=examples(40),
    stateful_step_count=25,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestStoreOnPostgres = on_postgres(StoreMachine, tries=20, steps=15)

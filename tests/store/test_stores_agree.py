"""Whatever is asked of both stores, in whatever order: they answer alike."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mnemo.config import StoreConfig
from mnemo.episode.journal import (
    ChangesetStaged,
    ExtractionAbandoned,
    ExtractionRetried,
    StagedTrajectory,
    StepsAnnotated,
    TrajectoryStaged,
)
from mnemo.episode.step import Annotation
from mnemo.errors import MnemoError
from mnemo.graph.changeset import Changeset, NodeChange
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import MetadataDelta
from mnemo.graph.nodes import Episodic, Semantic, Tag
from mnemo.graph.upkeep import Upkeep
from mnemo.protocols import EmbeddingSpace, FeedCursor
from mnemo.store.memory import MemoryStore
from mnemo.store.sqlite import SqliteStore
from mnemo.testing.clock import ManualClock
from mnemo.testing.contracts.archive import lines_of
from mnemo.testing.contracts.kit import NOON, SPACE, Kit, unit_vector
from mnemo.testing.contracts.records import found

SESSIONS = st.sampled_from(["s", "t"])
EPISODES = st.sampled_from(["1", "2"])
SMALL = st.integers(0, 3)
WORDS = st.sampled_from(["kyoto", "Kyoto temples", "tests", "", "café"])
IDS = st.sampled_from(["a", "b", "n0", "n1", "n2"])


class StoresAgree(RuleBasedStateMachine):
    """One pair of stores per run; every rule is done to both."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.number = 0
        self.cursors = [FeedCursor(), FeedCursor()]
        clock = ManualClock(NOON)
        path = Path(self.folder.name) / "mnemo.db"
        disk = SqliteStore(path, config=StoreConfig(), clock=clock, lease_s=30)
        memory = MemoryStore(clock=clock, lease_s=30)
        self.kits = [self.runner.run(self.opened(store, clock)) for store in (disk, memory)]

    async def opened(self, store: Any, clock: ManualClock) -> Kit:
        return Kit(lambda _: store, clock, store, await store.open())

    def teardown(self) -> None:
        for kit in self.kits:
            self.runner.run(kit.store.aclose())
        self.runner.close()
        self.folder.cleanup()

    def both(self, ask: Callable[[Kit], Awaitable[Any]]) -> Any:
        """What both answer or raise, which must be the same."""
        self.kits[0].clock.advance(1)
        disk, memory = [self.runner.run(self.outcome(ask(kit))) for kit in self.kits]
        assert disk == memory
        return disk

    async def outcome(self, answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except MnemoError as error:
            return type(error)

    def place(self, kit: Kit, session: str, episode: str) -> dict[str, Any]:
        return kit.place(session, f"{session}-{episode}")

    # ── Sessions ─────────────────────────────────────────────────────────────────────

    @rule(session=SESSIONS)
    def start(self, session: str) -> None:
        self.both(lambda kit: kit.start(session))

    @rule(session=SESSIONS, episode=EPISODES)
    def begin(self, session: str, episode: str) -> None:
        self.both(lambda kit: kit.begin(f"{session}-{episode}", session=session))

    @rule(session=SESSIONS, episode=EPISODES, text=WORDS, action=WORDS, key=SMALL)
    def append(self, session: str, episode: str, text: str, action: str, key: int) -> None:
        self.number += 1
        values = {"node_id": f"n{self.number}", "key": f"k{key}" if key else None}
        self.both(lambda kit: self.appended(kit, session, episode, (text, action), values))

    async def appended(
        self, kit: Kit, session: str, episode: str, texts: tuple[str, str], values: dict[str, Any]
    ) -> Any:
        place = {"session": session, "episode": f"{session}-{episode}"}
        (result,) = await kit.append_all([texts], **place, **values)
        if isinstance(result, BaseException):
            raise result
        return result.index, result.node_id

    @rule(session=SESSIONS, episode=EPISODES, index=SMALL)
    def annotate(self, session: str, episode: str, index: int) -> None:
        found = Annotation(index=index, state="x", subgoal="y", reward=None, trajectory_id="t")
        self.both(
            lambda kit: kit.record(
                StepsAnnotated(annotations=(found,), **self.place(kit, session, episode))
            )
        )

    @rule(session=SESSIONS, episode=EPISODES)
    def close(self, session: str, episode: str) -> None:
        self.both(lambda kit: kit.close(session, episode=f"{session}-{episode}"))

    @rule(session=SESSIONS, episode=EPISODES)
    def discard(self, session: str, episode: str) -> None:
        self.both(lambda kit: kit.discard(session, episode=f"{session}-{episode}"))

    @rule(session=SESSIONS, episode=EPISODES, step=SMALL)
    def stage(self, session: str, episode: str, step: int) -> None:
        part = StagedTrajectory(
            key=f"t:{step}", trajectory_id="t", steps=(step,), changeset=Changeset()
        )
        self.both(
            lambda kit: kit.record(
                TrajectoryStaged(staged=part, **self.place(kit, session, episode))
            )
        )

    @rule(session=SESSIONS, episode=EPISODES)
    def ready(self, session: str, episode: str) -> None:
        whole = Changeset(nodes=(Tag("x", id="x", created_at=NOON),), id="whole")
        self.both(
            lambda kit: kit.record(
                ChangesetStaged(changeset=whole, steps=(0,), **self.place(kit, session, episode))
            )
        )

    @rule(session=SESSIONS, episode=EPISODES, again=st.booleans())
    def fail(self, session: str, episode: str, again: bool) -> None:
        def act(kit: Kit) -> Any:
            place = self.place(kit, session, episode)
            if again:
                return ExtractionRetried(**place)
            return ExtractionAbandoned(error="down", trajectory_id=None, **place)

        self.both(lambda kit: kit.record(act(kit)))

    # ── Graph ────────────────────────────────────────────────────────────────────────

    @rule(id=IDS, other=IDS, changeset=SMALL, vector=st.booleans(), settles=st.booleans())
    def apply(self, id: str, other: str, changeset: int, vector: bool, settles: bool) -> None:
        nodes = [Tag(f"label {id}", id=id, created_at=NOON)]
        if id != other:
            made = unit_vector(1, 2, 3, 4) if vector else None
            nodes.append(Semantic(f"fact {other}", id=other, created_at=NOON, vector=made))
        edges = [Edge(id, other, EdgeKind.MEMBERSHIP)] if id != other else []
        self.both(
            lambda kit: kit.apply(
                *nodes,
                id=f"c{changeset}",
                edges=edges,
                metadata={id: MetadataDelta(support_count=1)},
                space=SPACE,
                settlement=kit.settlement(0, ends=vector, staged=["t:0"]) if settles else None,
            )
        )

    @rule(step=st.sampled_from(["n1", "n2", "n3"]), number=st.integers(10, 15))
    def commit_step(self, step: str, number: int) -> None:
        node = Episodic("o", id=step, at=NOON, created_at=NOON)
        self.both(lambda kit: kit.apply(node, id=f"c{number}", settlement=kit.settlement(0, 1)))

    @rule(id=IDS, number=st.integers(20, 25))
    def change(self, id: str, number: int) -> None:
        self.both(
            lambda kit: kit.apply(id=f"c{number}", changes=[NodeChange(id, {"created_at": NOON})])
        )

    @rule(ids=st.lists(IDS, max_size=3))
    def delete(self, ids: list[str]) -> None:
        self.both(lambda kit: kit.store.graph("r").delete(ids))

    @rule(loser=IDS, survivor=IDS, gone=IDS, old=st.booleans(), number=st.integers(30, 35))
    def keep_up(self, loser: str, survivor: str, gone: str, old: bool, number: int) -> None:
        upkeep = Upkeep(
            merges={loser: survivor} if loser != survivor else {},
            removals=(gone,) if gone != survivor else (),
            accessed_until=NOON if old else None,
            penalties={survivor: 0.3} if old else {},
            sweeps=old,
        )
        self.both(lambda kit: kit.apply(id=f"c{number}", upkeep=upkeep))

    @rule(id=IDS, part=st.sampled_from(["", "/observation", "/action"]), mine=st.booleans())
    def save_vector(self, id: str, part: str, mine: bool) -> None:
        space = SPACE if mine else EmbeddingSpace("other", 4)
        vectors = {f"{id}{part}": unit_vector(1, 1, 1, 1)}
        self.both(lambda kit: kit.store.feed("r").save_vectors(space, vectors))

    @rule(id=IDS)
    def touch(self, id: str) -> None:
        self.both(lambda kit: kit.store.graph("r").touch({id: 1}, kit.clock.now()))

    # ── What both say ────────────────────────────────────────────────────────────────

    @rule(word=st.sampled_from(["kyoto", "test", "cafe", "temple"]))
    def search(self, word: str) -> None:
        self.both(lambda kit: found(kit.store, [word]))

    @rule(limit=st.integers(1, 3))
    def follow(self, limit: int) -> None:
        """Each reader follows its own cursor to the end, and has seen the same."""
        self.both(lambda kit: self.followed(kit, limit))

    async def followed(self, kit: Kit, limit: int) -> Any:
        which = self.kits.index(kit)
        documents: dict[str, Any] = {}
        more = True
        while more:
            part = await kit.changes(self.cursors[which], limit=limit)
            for id in part.removed:
                documents[id] = "removed"
            documents |= {step.node_id: step.observation for step in part.steps}
            documents |= {node.id: (node, part.details.get(node.id)) for node in part.nodes}
            documents |= {
                f"vector of {key}": vector.tolist() for key, vector in part.vectors.items()
            }
            self.cursors[which], more = part.cursor, part.more
        return documents

    @invariant()
    def sessions_agree(self) -> None:
        async def journals(kit: Kit) -> Any:
            records = await kit.store.sessions.records("r", unfinished=False)
            return records, [await kit.store.sessions.load(session) for session in ("s", "t")]

        self.both(lambda kit: self.without_ordinals(journals(kit)))

    async def without_ordinals(self, journals: Awaitable[Any]) -> Any:
        records, found = await journals
        return records, [
            j
            and (
                j.record,
                [s.node_id for s in j.steps],
                j.committed,
                dict(j.staged),
                j.changeset,
                j.changeset_steps,
                j.error,
                sorted(j.keys),
                j.receipt_nodes,
                [s.annotation for s in j.steps],
            )
            for j in found
        ]

    @invariant()
    def graphs_agree(self) -> None:
        async def graph(kit: Kit) -> Any:
            store = kit.store.graph("r")
            nodes = {node.id: node for node in await store.nodes()}
            edges = set(await store.edges(list(nodes)))
            counts = await kit.store.feed("r").counts()
            metadata = await store.metadata(list(nodes))
            space = await kit.store.feed("r").space()
            return await store.revision(), nodes, edges, counts, metadata, space

        self.both(graph)

    @invariant()
    def archives_agree(self) -> None:
        """Also what no other question shows."""
        self.both(lambda kit: lines_of(kit.store.archive("r")))


StoresAgree.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
class TestStoresAgree(StoresAgree.TestCase):
    """Run by Hypothesis."""

"""An opened store below the service, and short words for its calls."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import pytest_asyncio
from postgres_server import postgres_store

from mnemo.config import StoreConfig
from mnemo.protocols import (
    Applied,
    Clock,
    EmbeddingSpace,
    FeedChanges,
    FeedCursor,
    GraphWrite,
)
from mnemo.stores import EngineStore, SqliteStore
from mnemo.testing import FailingStore, ManualClock
from mnemo.values.changeset import NodeChange
from mnemo.values.graph import Edge, Episodic, MetadataDelta, Node, Vector
from mnemo.values.journal import (
    Act,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeStarted,
    Journal,
    Owner,
    SessionRecord,
    SessionState,
    Settlement,
)
from mnemo.values.steps import Annotation, Step, StepDraft, Trajectory

MakeStore = Callable[[Clock], EngineStore]

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
SPACE = EmbeddingSpace("contract-space", 4)


def store_at(place: Path | str | None = None, clock: Any = None, **config: Any) -> Any:
    """
    A store that is not open yet; keywords are those of ``StoreConfig``.

    Args:
        place: A file, or the URL of a schema; ``None``: in memory, as ``Mnemo("memory:")`` has it.
        clock: ``None`` is a ``ManualClock`` of its own.
    """
    if isinstance(place, str) and "://" in place:
        return postgres_store(place, clock, **config)
    settings = StoreConfig(**config)
    return SqliteStore(place, config=settings, clock=clock or ManualClock(), lease_s=30)


def unit_vector(*values: float) -> Vector:
    """The direction of *values* as a float32 vector of length 1."""
    vector = np.array(values, dtype=np.float32)
    return vector / np.float32(np.linalg.norm(vector))


@dataclass
class Kit:
    """An opened store, its owner, and the repository and session that tests talk about."""

    make_store: MakeStore
    clock: ManualClock
    store: EngineStore
    owner: Owner
    others: list[EngineStore] = field(default_factory=list)

    async def another(self) -> tuple[EngineStore, Owner]:
        """A second service on the same data, open at the same time."""
        store = self.make_store(self.clock)
        self.others.append(store)
        return store, await store.open()

    async def reopen(self) -> None:
        """Close, and open the same data anew; ownership is kept by nobody."""
        await self.store.release(self.owner)
        await self.store.aclose()
        self.store = self.make_store(self.clock)
        self.owner = await self.store.open()

    # ── Sessions ─────────────────────────────────────────────────────────────────────

    async def start(
        self, session: str = "s", *, repo: str = "r", goal: str = "plan", **values: Any
    ) -> None:
        """A new session with the open episode ``"<session>-1"``."""
        record = SessionRecord(
            id=session,
            repo_id=repo,
            goal=goal,
            state=SessionState.COLLECTING,
            steps=0,
            updated_at=self.clock.now(),
            episode_id=f"{session}-1",
            **values,
        )
        sessions = self.store.sessions(repo)
        await sessions.create(record, goal_at=self.clock.now(), owner=self.owner)

    async def append(
        self, observation: str, action: str = "", *, session: str = "s", **values: Any
    ) -> Step:
        """Append one step and wait for it. *Raises* what it was refused with."""
        (result,) = await self.append_all([(observation, action)], session=session, **values)
        if isinstance(result, BaseException):
            raise result
        return result

    async def append_all(
        self,
        texts: Sequence[tuple[str, str]],
        *,
        session: str = "s",
        episode: str | None = None,
        repo: str = "r",
        owner: Owner | None = None,
        **values: Any,
    ) -> list[Step | BaseException]:
        """Append steps in one turn of the loop; give their results in order of arrival."""
        results: list[Step | BaseException] = []
        arrived = anyio.Event()

        def done(result: Step | BaseException) -> None:
            results.append(result)
            if len(results) == len(texts):
                arrived.set()

        for observation, action in texts:
            self.store.sessions(repo).append(
                session,
                episode or f"{session}-1",
                draft(observation, action, **values),
                owner or self.owner,
                done,
            )
        await arrived.wait()
        return results

    async def record(self, act: Act, *, repo: str = "r", owner: Owner | None = None) -> None:
        """Write one act."""
        await self.store.sessions(repo).record(act, owner or self.owner)

    async def close(
        self, session: str = "s", *, episode: str | None = None, repo: str = "r"
    ) -> None:
        """Close the episode."""
        await self.record(EpisodeClosed(**self.place(session, episode)), repo=repo)

    async def discard(
        self, session: str = "s", *, episode: str | None = None, repo: str = "r"
    ) -> None:
        """Discard the episode."""
        await self.record(EpisodeDiscarded(**self.place(session, episode)), repo=repo)

    async def begin(self, episode: str, *, session: str = "s", goal: str = "more") -> None:
        """Start another episode."""
        await self.record(EpisodeStarted(goal=goal, **self.place(session, episode)))

    async def load(self, session: str = "s", *, repo: str = "r") -> Journal:
        """The session's journal, which must exist."""
        journal = await self.store.sessions(repo).load(session)
        assert journal is not None
        return journal

    def place(self, session: str = "s", episode: str | None = None) -> dict[str, Any]:
        """The fields that every act has, at the clock's time."""
        return {
            "session_id": session,
            "episode_id": episode or f"{session}-1",
            "at": self.clock.now(),
        }

    def settlement(self, *steps: int, ends: bool = False, staged: Sequence[str] = ()) -> Settlement:
        """What a commit of *steps* does to session ``"s"``."""
        return Settlement(steps=steps, staged=tuple(staged), ends=ends, **self.place())

    # ── Graph and feed ───────────────────────────────────────────────────────────────

    async def apply(
        self,
        *nodes: Node,
        id: str = "c",
        edges: Sequence[Edge] = (),
        metadata: dict[str, MetadataDelta] | None = None,
        changes: Sequence[NodeChange] = (),
        repo: str = "r",
        owner: Owner | None = None,
        **rest: Any,
    ) -> Applied:
        """Apply a write against the present revision unless told otherwise."""
        graph = self.store.graph(repo)
        rest.setdefault("expected_revision", await graph.revision())
        write = GraphWrite(
            changeset_id=id,
            nodes=nodes,
            edges=tuple(edges),
            metadata=metadata or {},
            changes=tuple(changes),
            node_ids=tuple(node.id for node in nodes),
            **rest,
        )
        return await graph.apply(write, owner or self.owner)

    async def changes(
        self, after: FeedCursor | None = None, *, repo: str = "r", limit: int = 5_000
    ) -> FeedChanges:
        """What the feed says after a cursor, from the beginning if there is none."""
        return await self.store.feed(repo).changes(after or FeedCursor(), limit=limit)


def draft(observation: str, action: str = "", **rest: Any) -> StepDraft:
    """A step of the user at noon, unless told otherwise."""
    values: dict[str, Any] = {"at": NOON, "actor": "user", "node_id": Episodic("").id} | rest
    return StepDraft(observation=observation, action=action, **values)


@asynccontextmanager
async def opened(
    place: Path | str | None = None,
    clock: ManualClock | None = None,
    *,
    make: MakeStore | None = None,
) -> AsyncIterator[Kit]:
    """A kit on an opened store, that at *place* or one of *make*; closed with the kit's others."""
    clock, make = clock or ManualClock(), make or partial(store_at, place)
    store = make(clock)
    kit = Kit(make, clock, store, await store.open())
    yield kit
    for other in (*kit.others, kit.store):
        await other.aclose()


def a_step(index: int = 0, observation: str = "seen", action: str = "", **values: Any) -> Step:
    """Step *index* of episode ``"e"`` of session ``"s"``, said by Ana, a minute after the last."""
    given = {
        "session_id": "s",
        "episode_id": "e",
        "at": NOON + timedelta(minutes=index),
        "actor": "Ana",
        "node_id": f"episodic-{index}",
    }
    return Step(index=index, observation=observation, action=action, **{**given, **values})


def seen_as(step: Step, subgoal: str = "find out", **values: Any) -> Step:
    """*step* as it is annotated."""
    given = {"index": step.index, "state": f"state {step.index}", "reward": None}
    found = {"subgoal": subgoal, "trajectory_id": "t", **given, **values}
    return step.annotated(Annotation(**found))


def a_trajectory(steps: Sequence[Step], **values: Any) -> Trajectory:
    """Trajectory ``"t"`` of the episode of *steps*, which are annotated or become so."""
    whole = tuple(step if step.annotation else seen_as(step) for step in steps)
    given = {"id": "t", "session_id": "s", "episode_id": "e", "goal": "a goal", "steps": whole}
    return Trajectory(**{**given, **values})


class PausingStore(FailingStore):
    """A store whose calls of one kind wait, before they are done, until they are let go."""

    def __init__(self, paused: str) -> None:
        super().__init__(store_at())
        self.paused = paused
        self.entered, self.let_go = anyio.Event(), anyio.Event()

    async def run(self, call, subject, work):
        if call == self.paused:
            self.entered.set()
            await self.let_go.wait()
        return await super().run(call, subject, work)


class StoreContract:
    """The fixtures that all contracts share."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Override it: gives unopened stores, all over the same, at first empty, data."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def kit(self, make_store: MakeStore) -> AsyncIterator[Kit]:
        """An opened, empty store."""
        async with opened(make=make_store, clock=ManualClock(NOON + timedelta(days=1))) as kit:
            yield kit

    @pytest_asyncio.fixture
    async def elsewhere(self) -> AsyncIterator[Kit]:
        """Another opened, empty store, in memory."""
        async with opened(clock=ManualClock(NOON + timedelta(days=1))) as kit:
            yield kit

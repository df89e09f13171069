"""Cancelling a caller after any number of turns of the loop leaves no half and nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from engines import emptied
from helpers import Kit, OpenKit, examples

from mnemo import Changeset, Episodic, Semantic, Session, Tag
from mnemo.values.graph import Edge, EdgeKind

pytestmark = pytest.mark.slow

EACH_TURN_UP_TO = examples(25)
GROWTH = 1.3 if EACH_TURN_UP_TO >= 25 else 2.0
"""
Every number of turns up to the first, from there on ever larger ones (fewer of both in the
quick run): an operation that waits for a thread spends hundreds of turns in the same await.
"""


# ── Two ways of cancelling ───────────────────────────────────────────────────────────


@dataclass
class Call:
    """A call that was begun, and how it ended."""

    results: list[Any] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    cancelled: bool = False
    ended_before: bool = False


async def by_scope(work: Callable[[], Awaitable[Any]], turns: int) -> Call:
    """Cancel as anyio does: the scope is cancelled, every await in it is."""
    call, scope = Call(), anyio.CancelScope()

    async def run() -> None:
        with scope:
            call.results.append(await work())
        call.cancelled = scope.cancelled_caught

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await _turns(turns + 1, call)
        call.ended_before = bool(call.results)
        scope.cancel()
    return call


async def by_task(work: Callable[[], Awaitable[Any]], turns: int) -> Call:
    """Cancel as asyncio does: once, at the await where the task is."""
    call = Call()

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        call.tasks.append(task)
        try:
            call.results.append(await work())
        except asyncio.CancelledError:
            task.uncancel()
            call.cancelled = True

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await _turns(turns + 1, call)
        call.ended_before = bool(call.results)
        if not call.ended_before:
            call.tasks[0].cancel()
    return call


async def _turns(number: int, call: Call) -> None:
    """Give so many turns, or those until the call has ended."""
    for _ in range(number):
        if call.results:
            break
        await anyio.lowlevel.checkpoint()


Cancel = Callable[[Callable[[], Awaitable[Any]], int], Awaitable[Call]]


# ── What is cancelled, and what must hold afterwards ─────────────────────────────────


class Case:
    """One operation: what comes before it, the call, and what it may have left."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.session: Session

    async def prepare(self) -> None:
        self.session = await self.kit.started(session_id="s")

    async def call(self) -> Any:
        raise NotImplementedError

    async def verify(self, call: Call) -> None:
        raise NotImplementedError

    async def nodes(self) -> list[str]:
        found = await self.kit.repo.get_nodes(["episodic"])
        return [node.observation for node in found if isinstance(node, Episodic)]

    async def step(self) -> None:
        await self.session.append("seen", "done", key="first")

    async def ready(self) -> None:
        await self.step()
        await self.session.close()
        await self.session.wait_for("ready")


class Append(Case):
    """Durable with its index, or no trace; the same key asks again."""

    async def call(self) -> Any:
        return await self.session.append("seen", "done", key="k")

    async def verify(self, call: Call) -> None:
        step = await self.session.append("seen", "done", key="k")
        assert step.index == 0
        assert call.results in ([], [step])
        assert [s.observation for s in self.session.recent_steps(9)] == ["seen"]
        await self.session.close_and_commit()
        assert await self.nodes() == ["seen"]


class StartEpisode(Case):
    """Started or not."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.session.close_and_commit()

    async def call(self) -> Any:
        await self.session.start_episode("second")

    async def verify(self, call: Call) -> None:
        await self.kit.until(lambda: self.session._work.life.aimed is None)
        collecting = self.session.state == "collecting"
        assert (self.session.episode_id is not None) == collecting
        assert collecting or not call.results
        if not collecting:
            assert self.session.state == "idle"
            await self.session.start_episode("second")
        await self.step()
        await self.session.close_and_commit()
        assert await self.nodes() == ["seen"]


class Close(Case):
    """Closed and then extracted, or still collecting."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.step()

    async def call(self) -> Any:
        await self.session.close()

    async def verify(self, call: Call) -> None:
        await self.kit.until(lambda: self.session._work.life.aimed is None)
        if self.session.state == "collecting":
            assert not call.results
            await self.session.close()
        await self.session.wait_for("ready")
        await self.session.commit()
        assert await self.nodes() == ["seen"]


class Commit(Case):
    """Runs to its end before the cancellation is felt: idle, and written once."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.ready()

    async def call(self) -> Any:
        return await self.session.commit()

    async def verify(self, call: Call) -> None:
        assert self.session.state == "idle"
        assert await self.nodes() == ["seen"]


class Discard(Case):
    """Discarded or still ready."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.ready()

    async def call(self) -> Any:
        await self.session.discard()

    async def verify(self, call: Call) -> None:
        await self.kit.until(lambda: self.session._work.life.aimed is None)
        if self.session.state == "ready":
            assert not call.results
            await self.session.discard()
        assert self.session.state == "idle"
        assert await self.nodes() == []


class CloseAndCommit(Case):
    """Only the wait ends; wherever the session is, it goes on from there."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.step()

    async def call(self) -> Any:
        return await self.session.close_and_commit()

    async def verify(self, call: Call) -> None:
        await self.kit.until(lambda: self.session._work.life.aimed is None)
        if self.session.state == "collecting":
            await self.session.close_and_commit()
        else:
            await self.session.wait_for("ready", "idle")
            await self.kit.until(lambda: not self.session._work.life.committing)
            if self.session.state == "ready":
                await self.session.commit()
        assert self.session.state == "idle"
        assert await self.nodes() == ["seen"]


class WaitFor(Case):
    """Nothing but the wait ends."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.step()
        await self.session.close()

    async def call(self) -> Any:
        return await self.session.wait_for("ready", timeout_s=60)

    async def verify(self, call: Call) -> None:
        await self.session.wait_for("ready")
        await self.session.commit()
        assert await self.nodes() == ["seen"]


class AwaitOperation(Case):
    """Cancelling the await of a queued operation leaves the operation alone."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.step()
        self.session.close_async()
        self.operation = self.session.commit_async()

    async def call(self) -> Any:
        return await self.operation

    async def verify(self, call: Call) -> None:
        assert await self.operation == "committed"
        assert await self.nodes() == ["seen"]


class StartSession(Case):
    """Recorded, and then it can be resumed, or its id is still free."""

    async def prepare(self) -> None:
        pass

    async def call(self) -> Any:
        return await self.kit.started(session_id="s")

    async def verify(self, call: Call) -> None:
        known = [record.id for record in await self.kit.repo.sessions()]
        assert known in ([], ["s"])
        assert known or not call.results
        repo = self.kit.repo
        self.session = await (repo.resume_session("s") if known else repo.start_session("g"))
        assert self.session.state == "collecting"
        await self.session.close_and_commit()


class ResumeSession(Case):
    """Open or not; asked again it is the same session."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.step()
        await self.session.aclose()

    async def call(self) -> Any:
        return await self.kit.repo.resume_session("s")

    async def verify(self, call: Call) -> None:
        self.session = await self.kit.repo.resume_session("s")
        assert call.results in ([], [self.session])
        await self.session.close_and_commit()
        assert await self.nodes() == ["seen"]


class Apply(Case):
    """Runs to its end: all of the changeset is there, once."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.session.close_and_commit()

    async def call(self) -> Any:
        fact, tag = Semantic("Ana lives in Porto", id="fact"), Tag("Porto", id="tag")
        changeset = Changeset(
            id="c", nodes=(fact, tag), edges=(Edge("tag", "fact", EdgeKind.MEMBERSHIP),)
        )
        return await self.kit.repo.apply(changeset)

    async def verify(self, call: Call) -> None:
        (tag,) = await self.kit.repo.get_linked_nodes(["fact"])
        assert tag.id == "tag"
        assert (await self.kit.repo.statistics()).revision == 1
        assert await self.call() == 1


CASES = [
    Append,
    StartEpisode,
    Close,
    Commit,
    Discard,
    CloseAndCommit,
    WaitFor,
    AwaitOperation,
    StartSession,
    ResumeSession,
    Apply,
]


async def nothing_is_left_behind(case: Case) -> None:
    """The session is at rest, and a whole episode goes through."""
    session, core = case.session, case.session._work
    await case.kit.until(lambda: not session.busy and not core.waiters._waiters)
    levels = session.statistics()
    assert (levels.pending_operations, levels.running_workers, levels.append_backlog) == (0, 0, 0)
    assert (core.life.aimed, core.in_flight, core.queue.nothing_ahead) == (None, 0, True)
    before = await case.nodes()
    await session.start_episode("another")
    await session.append("afterwards", "")
    await session.close_and_commit()
    assert sorted(await case.nodes()) == sorted([*before, "afterwards"])
    assert (await case.kit.memory.check()).problems == ()


async def one_try(
    open_kit: OpenKit, make: type[Case], cancel: Cancel, turns: int, store: Any
) -> bool:
    """Cancel after so many turns and verify; whether the call had come to its end before."""
    kit = await open_kit(store=store)
    with anyio.fail_after(120):
        case = make(kit)
        await case.prepare()
        call = await cancel(case.call, turns)
        assert call.cancelled != bool(call.results), "ended by one of the two, and only one"
        await case.verify(call)
        await nothing_is_left_behind(case)
        await kit.memory.aclose()
    return call.ended_before


@pytest.mark.parametrize("cancel", [by_scope, pytest.param(by_task, marks=pytest.mark.long)])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("in_file", [pytest.param(False, marks=pytest.mark.long), True])
async def test_a_cancelled_call_is_done_or_not_done(open_kit, tmp_path, case, cancel, in_file):
    """After any number of turns nothing is half, lost, locked or left waiting."""
    for tries in count(1):
        store = tmp_path / f"{tries}.db" if in_file else "memory:"
        if await one_try(open_kit, case, cancel, turns_of(tries), store):
            break
    assert tries > 1, "the call ended before it could be cancelled at all"


@pytest.mark.postgres
@pytest.mark.parametrize("case", CASES)
async def test_a_call_cancelled_on_postgres_is_done_or_not_done(open_kit, postgres_url, case):
    """As in a file; one in nine numbers of turns, for each opens a service."""
    for tries in count(1, step=9):
        if await one_try(open_kit, case, by_scope, turns_of(tries), emptied(postgres_url, "")):
            break


def turns_of(number: int) -> int:
    """Every number of turns at first, then ever larger ones."""
    if number <= EACH_TURN_UP_TO:
        return number - 1
    return int(EACH_TURN_UP_TO * GROWTH ** (number - EACH_TURN_UP_TO))

"""What becomes of a message that one service makes a step of while another one takes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from operator import methodcaller

import anyio
import pytest
from contracts.talk import said
from world import Kit, StoreContract, draft

from mnemo.errors import NotToFeed
from mnemo.stores import EngineStore
from mnemo.values.derived import Thread
from mnemo.values.erasure import Selection
from mnemo.values.journal import Owner
from mnemo.values.records import Group, Query, Ranking, RecordQuery
from mnemo.values.steps import Step

ROUNDS = 12


class RacesContract(StoreContract):
    """Whichever comes first decides, and nothing is left half done; see ``StoredSessions``."""

    async def _say(self, kit: Kit, thread: str) -> None:
        message = said(0, "the harbour", thread=thread, id=thread)
        row = Thread(id=thread, next_seq=1)
        await kit.store.transcript("r").writing(lambda tx: (tx.keep(row), tx.add([message])))

    async def _adopt(
        self, store: EngineStore, owner: Owner, session: str, thread: str
    ) -> Step | BaseException:
        """Make the thread's message a step of the session, as a feed does."""
        message = said(0, "the harbour", thread=thread, id=thread)
        step = draft(
            "the harbour",
            at=message.said_at,
            key=thread,
            thread_id=thread,
            message_id=thread,
            is_fed=True,
        )
        step = replace(step, metadata=message.metadata)
        answered, answers = anyio.Event(), list[Step | BaseException]()

        def note(answer: Step | BaseException) -> None:
            answers.append(answer)
            answered.set()

        store.sessions("r").append(session, f"{session}-1", step, owner, note)
        await answered.wait()
        return answers[0]

    async def _together(self, *acts: Callable[[], Awaitable[object]]) -> list[object]:
        results: dict[int, object] = {}

        async def run(place: int, act: Callable[[], Awaitable[object]]) -> None:
            results[place] = await act()

        async with anyio.create_task_group() as group:
            for place, act in enumerate(acts):
                group.start_soon(run, place, act)
        return [results[place] for place in range(len(acts))]

    async def _found(self, kit: Kit) -> list[str]:
        wanted = RecordQuery(
            query=Query((Group(("harbour",)),)), ranking=Ranking(now=kit.clock.now())
        )
        hits = await kit.store.records("r").search(wanted)
        return sorted(hit.record.message_id for hit in hits)

    @pytest.mark.parametrize("first", ["feed", "sweep"])
    async def test_a_swept_message_is_its_step_or_gone(self, kit: Kit, first: str) -> None:
        """A held message loses its place and is found as its step; any other goes whole."""
        other, _ = await kit.another()
        await kit.start("s")
        kept = []
        for n in range(ROUNDS):
            thread = f"t{n}"
            await self._say(kit, thread)
            feed = partial(self._adopt, kit.store, kit.owner, "s", thread)
            sweep = partial(
                other.transcript("r").writing, methodcaller("erase", thread, [0]), thread_id=thread
            )
            acts = (feed, sweep) if first == "feed" else (sweep, feed)
            step = next(r for r in await self._together(*acts) if isinstance(r, Step | NotToFeed))
            if isinstance(step, Step):
                assert step.observation == "the harbour"
                kept.append(f"{step.node_id}/observation")
        assert await self._found(kit) == sorted(kept)
        assert len((await kit.load("s")).steps) == len(kept)
        assert (await kit.store.check()).problems == ()
        await kit.store.overhaul("r").erase(Selection(session_id="s"))
        assert await self._found(kit) == []
        report = await kit.store.check()
        assert (report.problems, report.counts["messages"], report.counts["texts"]) == ((), 0, 0)

    async def test_a_message_is_a_step_by_hand_or_of_its_job(self, kit: Kit) -> None:
        """Of two sessions that take it at once the second is refused."""
        other, owner = await kit.another()
        await kit.start("by-hand")
        for n in range(ROUNDS):
            thread = f"t{n}"
            await self._say(kit, thread)
            await replace(kit, store=other, owner=owner).start(f"job{n}", thread_id=thread)
            results = await self._together(
                partial(self._adopt, kit.store, kit.owner, "by-hand", thread),
                partial(self._adopt, other, owner, f"job{n}", thread),
            )
            assert sorted(type(result).__name__ for result in results) == ["NotToFeed", "Step"]
        counts = await kit.store.feed("r").counts()
        assert (counts["steps"], counts["messages_in_sessions"]) == (ROUNDS, ROUNDS)
        assert (await kit.store.check()).problems == ()

    async def test_a_withdrawn_message_is_no_step(self, kit: Kit) -> None:
        """It goes with the step that was made of it, or none is made any more."""
        other, _ = await kit.another()
        for n in range(ROUNDS):
            thread, session = f"t{n}", f"s{n}"
            await self._say(kit, thread)
            await kit.start(session)
            newest = Selection(thread_id=thread, newest=1, scrub=False)
            await self._together(
                partial(self._adopt, kit.store, kit.owner, session, thread),
                partial(other.overhaul("r").erase, newest),
            )
        report = await kit.store.check()
        assert report.problems == ()
        assert [report.counts[table] for table in ("steps", "messages", "texts")] == [0, 0, 0]
        assert await self._found(kit) == []

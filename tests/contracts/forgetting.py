"""The contract of forgetting conversations: messages, what came of them, and steps made of them."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from contracts.talk import (
    call,
    compaction,
    dump,
    goal,
    outcome,
    pin,
    result,
    said,
    save_vectors,
    snapshot,
    surfaced,
)
from contracts.transcript import transcript_of
from world import NOON, Kit, StoreContract, unit_vector

from mnemo.errors import Conflict
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.derived import Thread
from mnemo.values.erasure import ErasureReport, Selection

EARLY = NOON + timedelta(minutes=2)


def talk(tx: TranscriptWriter, thread: str) -> None:
    """Four messages, a minute apart, with one of everything derived from them."""
    row = Thread(id=thread, next_seq=4, epoch=2, epoch_start=1, boundary=2, budget_tokens=9)
    tx.keep(row)
    tx.add([said(seq, thread=thread, epoch=2) for seq in (0, 3)])
    calls = [call(1, "c", thread=thread, epoch=2), result(2, "c", thread=thread, epoch=2)]
    tx.add(calls, search_tools=True)
    save_vectors(tx, {(thread, 0): unit_vector(1, 2, 3, 4)})
    tx.put(compaction(0, 1, thread=thread, epoch=2), compaction(3, 3, thread=thread, epoch=2))
    tx.put(snapshot(0, 2, thread=thread, epoch=2), snapshot(3, 3, thread=thread, epoch=2))
    tx.put(outcome(0, 2, snapshot_id="s0-2", thread=thread, epoch=2))
    tx.put(goal(1, thread=thread, epoch=2), pin(0, thread=thread, epoch=2))
    tx.put(pin(3, thread=thread, epoch=2))


class ForgettingContract(StoreContract):
    """``Overhaul.erase`` of a thread, of what was said before a time, and of both."""

    async def _filled(self, kit: Kit) -> None:
        """Threads a and a:b, and a session with a step of each, and one of neither."""
        for thread in ("a", "a:b"):
            await transcript_of(kit.store).writing(partial(talk, thread=thread))
        await kit.start()
        for number, origin in enumerate(("a", "a:b", None)):
            values: dict[str, Any] = {"thread_id": origin, "message_id": origin and "m0"}
            at = NOON + timedelta(minutes=3 * number)
            await kit.append(f"step {number}", node_id=f"episodic-{number}", at=at, **values)

    async def _read(self, kit: Kit) -> Any:
        return await transcript_of(kit.store).reading(lambda tx: dump(tx, ids=("m0", "m3")))

    async def _steps(self, kit: Kit) -> list[str]:
        return sorted(await kit.store.feed("r").steps([f"episodic-{n}" for n in range(3)]))

    async def _erase(self, kit: Kit, **selection: Any) -> ErasureReport:
        """What it counts; when the bytes go is the engine's, and stands in ``OverhaulContract``."""
        erased = await kit.store.overhaul("r").erase(Selection(**selection))
        return replace(erased.report, scrubbed=True)

    async def test_a_thread_goes_with_all_that_came_of_it(self, kit):
        """Counts of everything; the row goes on in a new epoch; others are as they were."""
        await self._filled(kit)
        before = await self._read(kit)
        assert await kit.store.overhaul("r").touched(Selection(thread_id="a")) == ("s",)
        assert await self._erase(kit, thread_id="a") == ErasureReport(
            messages=4,
            compactions=2,
            snapshots=2,
            pins=2,
            goals=1,
            steps=1,
            vectors=1,
            fulltext_rows=7,
        )
        after = await self._read(kit)
        assert after["a:b"] == before["a:b"]
        row = Thread(id="a", next_seq=4, epoch=3, epoch_start=4, boundary=4, budget_tokens=9)
        assert after["a"]["row"] == row
        assert (after["a"]["messages"], after["a"]["vectors"]) == ([], {})
        assert after["a"]["derived"] == [[]] * 6
        assert after["a"]["erased"] == ["m0", "m3"]
        assert await self._steps(kit) == ["episodic-1", "episodic-2"]
        assert (await kit.store.check()).problems == ()

    async def test_a_thread_that_is_gone_counts_zero(self, kit):
        """A second time, after reopening, and one that never was; none is made by that."""
        await self._filled(kit)
        await self._erase(kit, thread_id="a")
        await kit.reopen()
        assert (await self._erase(kit, thread_id="a")).is_empty
        assert (await self._erase(kit, thread_id="nobody")).is_empty
        threads = await transcript_of(kit.store).reading(lambda tx: tx.threads())
        assert [thread.id for thread in threads] == ["a", "a:b"]
        assert (await self._read(kit))["a"]["erased"] == ["m0", "m3"]

    async def test_a_thread_of_goals_alone_goes_too(self, kit):
        """What is derived goes with the thread, also where no message is left."""

        def work(tx: TranscriptWriter) -> None:
            tx.keep(Thread(id="a", next_goal=2))
            tx.put(goal(1, thread="a"), outcome(0, 1, thread="a"))

        await transcript_of(kit.store).writing(work)
        assert await self._erase(kit, thread_id="a") == ErasureReport(goals=1)
        assert (await self._read(kit))["a"]["derived"] == [[]] * 6

    async def test_what_was_said_before_a_time_goes_in_every_thread(self, kit):
        """Exclusive, by when it was said; the threads' rows stay, ranges go as with erasing."""
        await self._filled(kit)
        before = await self._read(kit)
        report = await self._erase(kit, before=EARLY)
        assert (report.messages, report.steps) == (4, 1)
        assert (report.compactions, report.snapshots, report.pins, report.goals) == (2, 2, 2, 0)
        after = await self._read(kit)
        for thread in ("a", "a:b"):
            assert [m.seq for m, *_ in after[thread]["messages"]] == [2, 3]
            assert after[thread]["row"] == before[thread]["row"]
            compactions, snapshots, outcomes, goals, pins, _ = after[thread]["derived"]
            assert ([c.start_seq for c in compactions], [s.from_seq for s in snapshots]) == (
                [3],
                [3],
            )
            assert [o.snapshot_id for o in outcomes] == [None]
            assert ([g.id for g in goals], [p.seq for p in pins]) == ([1], [3])
        assert await self._steps(kit) == ["episodic-1", "episodic-2"]
        assert (await kit.store.check()).problems == ()

    async def test_a_time_is_looked_at_in_its_own_zone(self, kit):
        """What was said is what counts, not when it was recorded."""
        messages = [said(0, at=EARLY), said(1, at=NOON, recorded_at=NOON + timedelta(days=1))]
        await transcript_of(kit.store).writing(lambda tx: tx.add(messages))
        report = await self._erase(kit, before=EARLY)
        assert report.messages == 1
        assert [m.seq for m, *_ in (await self._read(kit))["t"]["messages"]] == [0]

    async def test_a_thread_and_a_time_narrow_each_other(self, kit):
        """Only of that thread, only what was said before; its row stays."""
        await self._filled(kit)
        before = await self._read(kit)
        report = await self._erase(kit, thread_id="a", before=EARLY)
        assert (report.messages, report.steps, report.goals) == (2, 1, 0)
        after = await self._read(kit)
        assert after["a:b"] == before["a:b"]
        assert [m.seq for m, *_ in after["a"]["messages"]] == [2, 3]
        assert after["a"]["row"] == before["a"]["row"]

    async def test_a_session_selects_steps_alone(self, kit):
        """With a thread those of its steps that were made from it; no message is of a session."""
        await self._filled(kit)
        before = await self._read(kit)
        assert (await self._erase(kit, session_id="s", thread_id="nobody")).is_empty
        report = await self._erase(kit, session_id="s", thread_id="a:b")
        assert (report.steps, report.messages, report.sessions) == (1, 0, 0)
        assert await self._steps(kit) == ["episodic-0", "episodic-2"]
        report = await self._erase(kit, session_id="s", before=NOON + timedelta(days=1))
        assert (report.steps, report.messages, report.sessions) == (2, 0, 1)
        assert await self._read(kit) == before

    async def test_what_surfaced_goes_with_the_step_or_message_that_it_showed(self, kit):
        """In whichever thread; what showed neither stays."""
        await self._filled(kit)

        def work(tx: TranscriptWriter) -> None:
            tx.put(surfaced(0, ("s", "episodic-0/observation"), thread="a:b"))
            tx.put(surfaced(1, ("a", "m3"), thread="a:b"), surfaced(2, ("a", "s0-2"), thread="a:b"))
            tx.put(surfaced(3, ("s", "episodic-2/observation"), thread="a:b"))

        await transcript_of(kit.store).writing(work)
        await self._erase(kit, thread_id="a")

        def seqs(tx: TranscriptReader) -> list[int]:
            return [shown.seq for shown in tx.all(type(surfaced(0)), "a:b")]

        assert await transcript_of(kit.store).reading(seqs) == [3]

    async def test_an_episode_that_was_forgotten_takes_nothing(self, kit):
        """Steps and acts are refused alike, as is a changeset of its steps."""
        await kit.start()
        await kit.append("kept")
        await kit.discard()
        await kit.begin("s-2")
        step = await kit.append("erased", episode="s-2")
        await self._erase(kit, step_ids=(step.node_id,))
        await kit.store.sessions("r").claim("s", kit.owner)
        with pytest.raises(Conflict):
            await kit.append("late", episode="s-2")
        with pytest.raises(Conflict):
            await kit.close(episode="s-2")

    async def test_other_repositories_keep_their_threads(self, kit):
        """The same thread's id in another repository is another thread."""
        await self._filled(kit)
        before = await self._read(kit)
        for selection in (Selection(thread_id="a"), Selection(before=EARLY)):
            assert (await kit.store.overhaul("q").erase(selection)).report.is_empty
        assert await self._read(kit) == before

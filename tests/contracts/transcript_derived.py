"""The contract of what is derived from messages: kept by kind, and gone with its range."""

from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any, TypeVar

import numpy as np
from contracts.talk import (
    KINDS,
    call,
    compaction,
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
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.derived import (
    Compaction,
    Derived,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Surfaced,
    Thread,
)
from mnemo.values.erasure import ErasureReport

T = TypeVar("T")


class _OnTranscript(StoreContract):
    async def _write(self, kit: Kit, work: Callable[[TranscriptWriter], T], repo: str = "r") -> T:
        return await transcript_of(kit.store, repo).writing(work)

    async def _read(self, kit: Kit, work: Callable[[TranscriptReader], T], repo: str = "r") -> T:
        return await transcript_of(kit.store, repo).reading(work)

    async def _put(self, kit: Kit, *values: Derived) -> None:
        await self._write(kit, lambda tx: tx.put(*values))

    async def _all(self, kit: Kit, kind: Any, thread: str = "t", **choice: Any) -> list[Any]:
        return await self._read(kit, lambda tx: tx.all(kind, thread, **choice))

    async def _begin(self, kit: Kit, count: int = 10) -> None:
        def work(tx: TranscriptWriter) -> None:
            tx.keep(Thread(id="t", next_seq=count))
            tx.add([said(seq) for seq in range(count)])

        await self._write(kit, work)


class DerivedContract(_OnTranscript):
    """Putting, dropping, choosing, and erasing ranges."""

    async def test_every_kind_comes_back_exactly(self, kit):
        """All fields, nested ones too, also after reopening."""
        values: list[Any] = [
            compaction(0, 3, level=2, origin="model", superseded_by="x", summary_text="a\u2028お"),
            snapshot(0, 3, level=2, origin="fallback", covered_by="y", text="<b>&"),
            outcome(0, 3, kind="snapshot", snapshot_id="s", attempts=3),
            goal(4, parent_id=1, status="completed", completed_at=NOON, epoch=2),
            pin(2, 4, 1, 3, excerpt="…'\"%"),
            surfaced(2, ("s", "n/observation"), ("t", "m1")),
        ]
        await self._begin(kit)
        await self._put(kit, *values)
        for _ in range(2):
            assert [await self._all(kit, kind) for kind in KINDS] == [[value] for value in values]
            await kit.reopen()

    async def test_what_is_put_again_takes_the_first_ones_place(self, kit):
        """By id, or by place where there is none; in another thread it is another one."""
        await self._begin(kit)
        first = [compaction(0, 3), snapshot(0, 3), outcome(0, 3), goal(1), pin(2), surfaced(2)]
        await self._put(kit, *first)
        await self._put(kit, *(replace(value, thread_id="u") for value in first))
        changed: list[Any] = [
            compaction(0, 3, superseded_by="c"),
            snapshot(0, 3, covered_by="s"),
            outcome(0, 3, attempts=2),
            goal(1, description="other"),
            pin(2, 7),
            surfaced(2, ("a", "b")),
        ]
        await self._put(kit, *changed)
        assert [await self._all(kit, kind) for kind in KINDS] == [[value] for value in changed]
        assert [len(await self._all(kit, kind, "u")) for kind in KINDS] == [1] * 6

    async def test_what_is_dropped_is_gone_and_only_that(self, kit):
        """What is not there is skipped."""
        await self._begin(kit)
        pairs: list[tuple[Any, Any]] = [
            (compaction(0, 3), compaction(4, 5)),
            (snapshot(0, 3), snapshot(4, 5)),
            (outcome(0, 3), outcome(4, 5)),
            (goal(1), goal(2)),
            (pin(2), pin(3)),
            (surfaced(2), surfaced(3)),
        ]
        await self._put(kit, *(value for pair in pairs for value in pair))
        gone = [pair[0] for pair in pairs]
        await self._write(kit, lambda tx: tx.drop(*gone, *gone, compaction(8, 9), pin(9)))
        assert [await self._all(kit, kind) for kind in KINDS] == [[pair[1]] for pair in pairs]

    async def test_what_is_derived_is_ordered_by_range_seq_or_goal(self, kit):
        """Whatever the order in which it was put; the last so many are the last of that order."""
        await self._begin(kit)
        await self._put(kit, compaction(4, 5), compaction(0, 1), compaction(2, 3))
        await self._put(kit, snapshot(6, 7), snapshot(0, 3, level=2), snapshot(4, 5))
        await self._put(kit, outcome(2, 3), outcome(0, 1), goal(10), goal(9), goal(2))
        await self._put(kit, pin(8), pin(1), surfaced(5), surfaced(4))
        assert [c.start_seq for c in await self._all(kit, Compaction)] == [0, 2, 4]
        assert [s.from_seq for s in await self._all(kit, Snapshot)] == [0, 4, 6]
        assert [o.from_seq for o in await self._all(kit, EvictionOutcome)] == [0, 2]
        assert [g.id for g in await self._all(kit, Goal)] == [2, 9, 10]
        assert [p.seq for p in await self._all(kit, Pin)] == [1, 8]
        assert [s.seq for s in await self._all(kit, Surfaced)] == [4, 5]
        assert [s.from_seq for s in await self._all(kit, Snapshot, newest=2)] == [4, 6]
        assert [g.id for g in await self._all(kit, Goal, newest=1)] == [10]
        assert await self._all(kit, Goal, newest=0) == []

    async def test_it_is_chosen_by_epoch_and_life_before_it_is_counted(self, kit):
        """The last so many of those, not those of the last so many."""
        await self._begin(kit)
        values = [
            compaction(0, 1),
            compaction(2, 3, superseded_by="x"),
            compaction(4, 5, epoch=1),
            compaction(6, 7, epoch=1, superseded_by="x"),
        ]
        await self._put(kit, *values)
        starts = [
            [c.start_seq for c in await self._all(kit, Compaction, **choice)]
            for choice in (
                {"live": True},
                {"epoch": 1},
                {"epoch": 0, "live": True},
                {"epoch": 2},
                {"live": True, "newest": 1},
                {"epoch": 0, "newest": 1},
                {"epoch": 0, "newest": 1, "live": True},
            )
        ]
        assert starts == [[0, 4], [4, 6], [0], [], [4], [2], [0]]
        done = goal(2, status="completed", completed_at=NOON)
        await self._put(kit, goal(1), done, snapshot(0, 1, covered_by="s2"), snapshot(2, 3))
        assert await self._all(kit, Goal, live=True) == [goal(1)]
        assert await self._all(kit, Snapshot, live=True) == [snapshot(2, 3)]
        await self._put(kit, outcome(0, 1), outcome(2, 3, epoch=1), pin(1), surfaced(1, epoch=1))
        assert len(await self._all(kit, EvictionOutcome, live=True)) == 2
        assert await self._all(kit, Pin, live=True, epoch=0) == [pin(1)]
        assert await self._all(kit, Surfaced, epoch=0) == []

    # ── Erasing ──────────────────────────────────────────────────────────────────────

    async def test_a_message_goes_with_every_range_that_held_it(self, kit):
        """Counts, ranges on either side, the outcome without its snapshot, the pin, its id."""
        await self._begin(kit)
        await self._put(kit, compaction(0, 3), compaction(4, 6), compaction(7, 9))
        await self._put(kit, snapshot(0, 3), snapshot(4, 4), snapshot(5, 9))
        await self._put(kit, outcome(0, 3, kind="snapshot", snapshot_id="s0-3"))
        await self._put(kit, outcome(4, 4, kind="snapshot", snapshot_id="s4-4"))
        await self._put(kit, goal(1), pin(4), pin(5), surfaced(4), surfaced(5))
        erased = await self._write(kit, lambda tx: tx.erase("t", [4, 77]))
        assert erased == ErasureReport(
            messages=1, compactions=1, snapshots=1, pins=1, fulltext_rows=2
        )
        assert [c.start_seq for c in await self._all(kit, Compaction)] == [0, 7]
        assert [s.from_seq for s in await self._all(kit, Snapshot)] == [0, 5]
        assert [o.snapshot_id for o in await self._all(kit, EvictionOutcome)] == ["s0-3", None]
        assert [p.seq for p in await self._all(kit, Pin)] == [5]
        assert await self._all(kit, Goal) == [goal(1)]
        seqs = await self._read(kit, lambda tx: [m.seq for m in tx.messages("t")])
        assert seqs == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        found = await self._read(kit, lambda tx: tx.erased_ids("t", ["m4", "m5", "m77"]))
        assert found == {"m4"}
        assert await self._read(kit, lambda tx: tx.by_id("t", ["m4"])) == {}
        assert await self._write(kit, lambda tx: tx.erase("t", [4])) == ErasureReport()
        await kit.reopen()
        assert await self._read(kit, lambda tx: tx.erased_ids("t", ["m4"])) == {"m4"}
        assert (await kit.store.check()).problems == ()

    async def test_what_a_gone_summary_stood_for_is_live_again(self, kit):
        """Records of level 1 whose own range is whole come back; the others go."""
        await self._begin(kit)
        await self._put(kit, compaction(0, 8, id="c", level=2), snapshot(0, 8, id="s", level=2))
        for first, last in ((0, 2), (3, 5), (6, 8)):
            await self._put(
                kit,
                compaction(first, last, superseded_by="c"),
                snapshot(first, last, covered_by="s"),
            )
        await self._put(kit, compaction(9, 9, superseded_by="elsewhere"))
        erased = await self._write(kit, lambda tx: tx.erase("t", [3, 4, 5]))
        assert (erased.compactions, erased.snapshots, erased.fulltext_rows) == (2, 2, 5)
        assert await self._all(kit, Compaction, live=True) == [compaction(0, 2), compaction(6, 8)]
        assert await self._all(kit, Snapshot, live=True) == [snapshot(0, 2), snapshot(6, 8)]
        assert len(await self._all(kit, Compaction)) == 3

    async def test_ranges_of_every_epoch_and_state_go(self, kit):
        """Superseded, covered or of an epoch before: a summary of what is gone is gone."""
        await self._begin(kit)
        await self._put(kit, compaction(0, 4, epoch=0, superseded_by="gone already"))
        await self._put(kit, snapshot(2, 4, epoch=0, covered_by="gone already"), pin(4))
        await self._write(kit, lambda tx: tx.keep(Thread(id="t", next_seq=10, epoch=5)))
        erased = await self._write(kit, lambda tx: tx.erase("t", [4]))
        assert (erased.compactions, erased.snapshots, erased.pins) == (1, 1, 1)

    async def test_what_surfaced_goes_with_any_record_that_it_showed(self, kit):
        """In whichever thread it was shown; what showed others stays."""
        await self._begin(kit)
        shown = [surfaced(0, ("t", "m4"), thread="u"), surfaced(1, ("t", "m5"), thread="u")]
        await self._put(kit, *shown, surfaced(2, ("u", "m4"), thread="u"))
        await self._write(kit, lambda tx: tx.erase("t", [4]))
        assert [s.seq for s in await self._all(kit, Surfaced, "u")] == [1, 2]

    async def test_full_text_is_counted_by_what_is_searched(self, kit):
        """Calls and results only where they were added to be searched for."""

        def work(tx: TranscriptWriter) -> None:
            tx.keep(Thread(id="t", next_seq=7))
            tx.add([said(0), said(1, ""), call(2, "a"), result(3, "a")])
            tx.add([call(4, "b"), result(5, "b"), said(6, "hm", role="system")], search_tools=True)

        await self._write(kit, work)
        for seqs, rows in (([0, 1, 2, 3], 1), ([4, 5, 6], 3)):
            erased = await self._write(kit, methodcaller("erase", "t", seqs))
            assert (erased.messages, erased.fulltext_rows) == (len(seqs), rows)
        assert (await kit.store.check()).problems == ()


class MessageVectorsContract(_OnTranscript):
    """The vectors of messages are those of recall, read by thread."""

    async def _save(self, kit: Kit, *seqs: int, thread: str = "t") -> None:
        vectors = {(thread, seq): unit_vector(1, seq, 0, 0) for seq in seqs}
        await self._write(kit, lambda tx: save_vectors(tx, vectors))

    async def _seqs(self, kit: Kit, **choice: Any) -> list[int]:
        seqs, vectors = await self._read(kit, lambda tx: tx.vectors("t", **choice))
        assert vectors.shape == (len(seqs), 4 if len(seqs) else vectors.shape[1])
        return list(seqs.tolist())

    async def test_a_threads_vectors_are_read_by_seq(self, kit):
        """As they were given, the last first; of no other thread, whatever its number is."""
        await self._begin(kit, 4)
        await self._write(kit, lambda tx: tx.add([said(seq, thread="u") for seq in range(12)]))
        await self._save(kit, *range(12), thread="u")
        await self._save(kit, 3, 1)
        seqs, vectors = await self._read(kit, lambda tx: tx.vectors("t"))
        assert seqs.tolist() == [3, 1]
        assert vectors.dtype == np.float32
        assert vectors.tolist() == [unit_vector(1, seq, 0, 0).tolist() for seq in (3, 1)]
        assert await self._seqs(kit, from_seq=2) == [3]
        assert await self._seqs(kit, since=said(2).recorded_at) == [3]
        assert await self._seqs(kit, newest=1) == [3]
        await kit.reopen()
        assert await self._seqs(kit) == [3, 1]

    async def test_a_long_message_has_several_vectors(self, kit):
        """Those of its passages, in order, on whichever side it stands."""
        await self._begin(kit, 11)
        (first,) = (await kit.changes()).messages.keys() & {"message-1"}
        keys = [f"{first}/action", f"{first}/action#1", f"{first}/observation"]
        rows = {key: unit_vector(0, at, 1, 0) for at, key in enumerate(keys)}
        await kit.store.feed("r").save_vectors(SPACE, rows)
        seqs, vectors = await self._read(kit, lambda tx: tx.vectors("t"))
        assert seqs.tolist() == [0, 0, 0]
        assert vectors.tolist() == [row.tolist() for row in rows.values()]

    async def test_a_vector_read_is_nobody_elses(self, kit):
        """The array that is given may change."""
        await self._begin(kit, 1)
        await self._save(kit, 0)
        for _ in range(2):
            _, vectors = await self._read(kit, lambda tx: tx.vectors("t"))
            assert vectors.tolist() == [[1, 0, 0, 0]]
            if vectors.flags.writeable:
                vectors[:] = 0

    async def test_an_erased_message_takes_its_vector_along(self, kit):
        """It is counted."""
        await self._begin(kit, 4)
        await self._save(kit, 0, 1)
        erased = await self._write(kit, lambda tx: tx.erase("t", [1, 2]))
        assert (erased.messages, erased.vectors) == (2, 1)
        assert await self._seqs(kit) == [0]

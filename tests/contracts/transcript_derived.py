"""The contract of what is derived from messages: kept by kind, and gone with its range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any, TypeVar

import numpy as np
import pytest
from contracts.kit import NOON, SPACE, Kit, StoreContract, unit_vector
from contracts.talk import (
    KINDS,
    call,
    compaction,
    goal,
    outcome,
    pin,
    result,
    said,
    snapshot,
    surfaced,
)
from contracts.transcript import transcript_of

from mnemo.errors import EmbeddingSpaceMismatch
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.derived import (
    Compaction,
    Derived,
    ErasedRows,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Surfaced,
    Thread,
)

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

    async def test_every_kind_comes_back_exactly(self, kit: Kit) -> None:
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

    async def test_what_is_put_again_takes_the_first_ones_place(self, kit: Kit) -> None:
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

    async def test_what_is_dropped_is_gone_and_only_that(self, kit: Kit) -> None:
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

    async def test_what_is_derived_is_ordered_by_range_seq_or_goal(self, kit: Kit) -> None:
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

    async def test_it_is_chosen_by_epoch_and_life_before_it_is_counted(self, kit: Kit) -> None:
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

    async def test_a_message_goes_with_every_range_that_held_it(self, kit: Kit) -> None:
        """Counts, ranges on either side, the outcome without its snapshot, the pin, its id."""
        await self._begin(kit)
        await self._put(kit, compaction(0, 3), compaction(4, 6), compaction(7, 9))
        await self._put(kit, snapshot(0, 3), snapshot(4, 4), snapshot(5, 9))
        await self._put(kit, outcome(0, 3, kind="snapshot", snapshot_id="s0-3"))
        await self._put(kit, outcome(4, 4, kind="snapshot", snapshot_id="s4-4"))
        await self._put(kit, goal(1), pin(4), pin(5), surfaced(4), surfaced(5))
        erased = await self._write(kit, lambda tx: tx.erase("t", [4, 77]))
        assert erased == ErasedRows(messages=1, compactions=1, snapshots=1, pins=1, fulltext_rows=2)
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
        assert await self._write(kit, lambda tx: tx.erase("t", [4])) == ErasedRows()
        await kit.reopen()
        assert await self._read(kit, lambda tx: tx.erased_ids("t", ["m4"])) == {"m4"}
        assert (await kit.store.check()).problems == ()

    async def test_what_a_gone_summary_stood_for_is_live_again(self, kit: Kit) -> None:
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

    async def test_ranges_of_every_epoch_and_state_go(self, kit: Kit) -> None:
        """Superseded, covered or of an epoch before: a summary of what is gone is gone."""
        await self._begin(kit)
        await self._put(kit, compaction(0, 4, epoch=0, superseded_by="gone already"))
        await self._put(kit, snapshot(2, 4, epoch=0, covered_by="gone already"), pin(4))
        await self._write(kit, lambda tx: tx.keep(Thread(id="t", next_seq=10, epoch=5)))
        erased = await self._write(kit, lambda tx: tx.erase("t", [4]))
        assert (erased.compactions, erased.snapshots, erased.pins) == (1, 1, 1)

    async def test_what_surfaced_goes_with_any_record_that_it_showed(self, kit: Kit) -> None:
        """In whichever thread it was shown; what showed others stays."""
        await self._begin(kit)
        shown = [surfaced(0, ("t", "m4"), thread="u"), surfaced(1, ("t", "m5"), thread="u")]
        await self._put(kit, *shown, surfaced(2, ("u", "m4"), thread="u"))
        await self._write(kit, lambda tx: tx.erase("t", [4]))
        assert [s.seq for s in await self._all(kit, Surfaced, "u")] == [1, 2]

    async def test_full_text_is_counted_by_what_is_searched(self, kit: Kit) -> None:
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
    """A message is owed a vector, gets it, and may lose it."""

    async def _owed(self, kit: Kit, **choice: Any) -> list[tuple[str, int]]:
        choice = {"limit": 100} | choice
        owed = await self._read(kit, lambda tx: tx.owed(**choice))
        if "thread_id" not in choice:
            count = methodcaller("owed_count", limit=choice["limit"])
            assert await self._read(kit, count) == await self._write(kit, count) == len(owed)
        return [(message.thread_id, message.seq) for message in owed]

    async def _save(self, kit: Kit, *seqs: int, thread: str = "t") -> None:
        vectors = {(thread, seq): unit_vector(1, seq, 0, 0) for seq in seqs}
        await self._write(kit, lambda tx: tx.save_vectors(SPACE, vectors))

    async def _seqs(self, kit: Kit, **choice: Any) -> list[int]:
        seqs, vectors = await self._read(kit, lambda tx: tx.vectors("t", **choice))
        assert vectors.shape == (len(seqs), 4 if seqs else vectors.shape[1])
        return seqs

    async def test_messages_that_speak_are_owed_a_vector(self, kit: Kit) -> None:
        """Oldest first over all threads, or of one; blank ones, systems and tools are not."""

        def work(tx: TranscriptWriter) -> None:
            tx.add([said(0, thread="b"), said(0, thread="a")])
            tx.add([said(1, " "), call(2, "c"), result(3, "c"), said(4, role="system")])
            tx.add([said(5, role="assistant"), said(6, role="assistant", kind="thought")])
            tx.add([result(7, "d", kind="reply"), said(1, thread="b")])

        await self._write(kit, work)
        expected = [("b", 0), ("a", 0), ("t", 5), ("t", 6), ("t", 7), ("b", 1)]
        assert await self._owed(kit) == expected
        assert await self._owed(kit, limit=2) == expected[:2]
        assert await self._owed(kit, thread_id="b") == [("b", 0), ("b", 1)]
        assert await self._owed(kit, thread_id="b", limit=1) == [("b", 0)]
        await kit.reopen()
        assert await self._owed(kit) == expected

    async def test_a_saved_vector_settles_the_debt(self, kit: Kit) -> None:
        """It is given back as it was, by seq; the space is the repository's from then on."""
        await self._begin(kit, 4)
        await self._save(kit, 3, 1)
        assert await self._owed(kit) == [("t", 0), ("t", 2)]
        seqs, vectors = await self._read(kit, lambda tx: tx.vectors("t"))
        assert seqs == [1, 3]
        assert vectors.dtype == np.float32
        assert vectors.tolist() == [unit_vector(1, seq, 0, 0).tolist() for seq in seqs]
        assert await kit.store.feed("r").space() == SPACE
        assert await self._seqs(kit, from_seq=2) == [3]
        assert await self._seqs(kit, since=said(2).recorded_at) == [3]
        await kit.reopen()
        assert await self._seqs(kit) == [1, 3]

    async def test_only_what_is_there_and_owed_gets_a_vector(self, kit: Kit) -> None:
        """A second one changes nothing, nor does one for a message that is gone."""
        await self._begin(kit, 3)
        await self._write(kit, lambda tx: tx.add([said(3, role="system")]))
        await self._save(kit, 0)
        await self._write(kit, lambda tx: tx.erase("t", [1]))
        other = {("t", seq): unit_vector(0, 0, 0, 1) for seq in (0, 1, 3, 99)}
        await self._write(
            kit, lambda tx: tx.save_vectors(SPACE, {**other, ("x", 0): other["t", 0]})
        )
        seqs, vectors = await self._read(kit, lambda tx: tx.vectors("t"))
        assert (seqs, vectors.tolist()) == ([0], [unit_vector(1, 0, 0, 0).tolist()])
        assert await self._owed(kit) == [("t", 2)]

    async def test_a_vector_of_another_space_is_refused(self, kit: Kit) -> None:
        """Whatever stamped the repository first; nothing of the work is written."""
        await self._begin(kit, 2)
        await self._save(kit, 0)
        for space in (EmbeddingSpace("other", 4), EmbeddingSpace(SPACE.name, 2)):
            vector = unit_vector(*range(1, space.dimensions + 1))

            def work(tx: TranscriptWriter, space: Any = space, vector: Any = vector) -> None:
                tx.put(goal(1))
                tx.save_vectors(space, {("t", 1): vector})

            with pytest.raises(EmbeddingSpaceMismatch):
                await self._write(kit, work)
        assert await self._owed(kit) == [("t", 1)]
        assert await self._all(kit, Goal) == []

    async def test_a_vector_saved_is_nobody_elses(self, kit: Kit) -> None:
        """The caller's array may change, the one given back as well."""
        await self._begin(kit, 1)
        mine = unit_vector(1, 0, 0, 0)
        await self._write(kit, lambda tx: tx.save_vectors(SPACE, {("t", 0): mine}))
        mine[:] = 0
        for _ in range(2):
            _, vectors = await self._read(kit, lambda tx: tx.vectors("t"))
            assert vectors.tolist() == [[1, 0, 0, 0]]
            if vectors.flags.writeable:
                vectors[:] = 0

    async def test_the_oldest_vectors_can_be_dropped(self, kit: Kit) -> None:
        """Only the newest stay; those dropped are not owed again, those still owed are."""
        await self._begin(kit, 6)
        await self._save(kit, 0, 1, 3, 4)
        assert await self._write(kit, lambda tx: tx.drop_vectors("t", keep_newest=4)) == 0
        assert await self._write(kit, lambda tx: tx.drop_vectors("t", keep_newest=2)) == 2
        assert await self._seqs(kit) == [3, 4]
        assert await self._owed(kit) == [("t", 2), ("t", 5)]
        assert await self._write(kit, lambda tx: tx.drop_vectors("u", keep_newest=0)) == 0
        assert await self._write(kit, lambda tx: tx.drop_vectors("t", keep_newest=0)) == 2
        assert await self._seqs(kit) == []

    async def test_an_erased_message_takes_its_vector_and_its_debt_along(self, kit: Kit) -> None:
        """The vector is counted; nothing waits for what is gone."""
        await self._begin(kit, 4)
        await self._save(kit, 0, 1)
        erased = await self._write(kit, lambda tx: tx.erase("t", [1, 2]))
        assert (erased.messages, erased.vectors) == (2, 1)
        assert await self._seqs(kit) == [0]
        assert await self._owed(kit) == [("t", 3)]

    async def test_a_move_to_another_space_owes_the_vectors_anew(self, kit: Kit) -> None:
        """Those that were there, in their order; what was dropped before stays without."""
        other = EmbeddingSpace("other", 2)
        await self._begin(kit, 4)
        await self._save(kit, 0, 1, 3)
        await self._write(kit, lambda tx: tx.drop_vectors("t", keep_newest=2))
        overhaul = kit.store.overhaul("r")
        await overhaul.begin_move(other)
        await overhaul.switch(other, (await kit.changes()).cursor)
        assert await self._owed(kit) == [("t", 1), ("t", 2), ("t", 3)]
        seqs, _ = await self._read(kit, lambda tx: tx.vectors("t"))
        assert seqs == []
        vectors = {("t", 1): unit_vector(3, 4)}
        await self._write(kit, lambda tx: tx.save_vectors(other, vectors))
        assert await self._owed(kit) == [("t", 2), ("t", 3)]
        assert (await kit.store.check()).problems == ()

"""The contract of archives of conversations: they come back, or nothing was written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from contracts.archive import (
    Change,
    assert_refused_by_line,
    doubling,
    lines_of,
    put,
    setting,
)
from contracts.talk import (
    call,
    compaction,
    dump,
    goal,
    outcome,
    pin,
    result,
    said,
    snapshot,
    surfaced,
)
from contracts.transcript import transcript_of
from world import NOON, Kit, StoreContract

from mnemo.errors import UsageError
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.derived import Surfaced, Thread
from mnemo.values.erasure import ErasureReport
from mnemo.values.jobs import JobState


def talk(tx: TranscriptWriter) -> None:
    """Two threads with one of everything; the second was cleared and has lost a message."""
    tx.keep(Thread(id="t", next_seq=6, budget_tokens=900, ttl_s=60.0, next_goal=3, declined_to=1))
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "tea", "deep": [{"a": None}]}]
    tx.add([said(0, content=blocks, metadata={"x": [1, {"y": 0.1}]}), call(1, "c", "d")])
    tx.keep(Thread(id="T", next_seq=4, epoch=1, epoch_start=2, boundary=3))
    tx.add([said(seq, thread="T", epoch=seq // 2) for seq in range(4)])
    tx.add([result(2, "d", is_error=True), result(3, "c")], search_tools=True)
    tx.add([said(4, "", role="assistant", extra='{"format": "responses", "item": {}}')])
    tx.add([said(5, "\u2028 お茶", role="system", actor="Ada")])
    tx.put(compaction(0, 3, superseded_by="c2"), compaction(0, 5, id="c2", level=2))
    tx.put(snapshot(0, 0, covered_by="s2"), snapshot(0, 3, id="s2", level=2, origin="fallback"))
    tx.put(outcome(0, 3, kind="snapshot", snapshot_id="s2", attempts=2), outcome(4, 5))
    tx.put(goal(1), goal(2, parent_id=1, status="completed", completed_at=NOON), pin(5, 1, 2))
    tx.put(compaction(2, 2, thread="T", epoch=1), surfaced(5, ("s", "n/action")))
    tx.erase("T", [0])


BROKEN: dict[str, Change] = {
    **{f"{kind} twice": doubling(kind) for kind in ("thread", "message")},
    **{f"{kind} twice": doubling(kind) for kind in ("compaction", "snapshot", "outcome")},
    **{f"{kind} twice": doubling(kind) for kind in ("goal", "pin")},
    "a seq twice": setting("message", 1, seq=0),
    "an id twice": setting("message", 1, id="m0"),
    "a message of nowhere": setting("message", thread="nowhere"),
    "a summary of nowhere": setting("compaction", thread="nowhere"),
    "a goal of nowhere": setting("goal", thread="nowhere"),
    "a message past its thread": setting("message", -1, seq=6),
    "a message of an epoch to come": setting("message", 0, epoch=1),
    "a summary past its thread": setting("compaction", -1, end_seq=6),
    "a snapshot past its thread": setting("snapshot", -1, to_seq=6),
    "an outcome past its thread": setting("outcome", -1, to_seq=6),
    "a goal past its thread": setting("goal", -1, id=3),
    "a summary in another's place that is nowhere": setting("compaction", superseded_by="x"),
    "a snapshot under another that is nowhere": setting("snapshot", covered_by="c2"),
    "an outcome whose snapshot is nowhere": setting("outcome", snapshot_id="x"),
    "a pin on another message": setting("pin", message_id="m0"),
    "a pin on no message": setting("pin", seq=1),
}


class TalkArchiveContract(StoreContract):
    """Threads, messages and what is derived from them, out of one store and into another."""

    async def _dump(self, kit: Kit, repo: str) -> Any:
        def read(tx: TranscriptReader) -> Any:
            units = tx.whole_units(tx.messages("t", role="tool"))
            return dump(tx), [m.seq for unit in units for m in unit.messages]

        return await transcript_of(kit.store, repo).reading(read)

    async def test_conversations_come_back_elsewhere(self, kit: Kit, elsewhere: Kit) -> None:
        """Out of this store and into another: all reads agree, and so do the lines."""
        transcript = transcript_of(kit.store)
        await transcript.writing(talk)
        lines = await lines_of(kit.store.archive("r"))
        await put(elsewhere.store.archive("copy"), lines)
        assert await lines_of(elsewhere.store.archive("copy")) == lines
        await transcript.writing(lambda tx: tx.drop(surfaced(5)))
        found, calls = await self._dump(elsewhere, "copy")
        assert (found, calls) == await self._dump(kit, "r")
        assert calls == [1, 2, 3]

    async def test_conversations_arrive_from_elsewhere(self, kit: Kit, elsewhere: Kit) -> None:
        """Out of another store and into this one, also after reopening; the check is content."""
        await transcript_of(elsewhere.store).writing(talk)
        lines = await lines_of(elsewhere.store.archive("r"))
        await transcript_of(kit.store, "before").writing(talk)
        await put(kit.store.archive("copy"), lines)
        assert await lines_of(kit.store.archive("copy")) == lines
        await kit.reopen()
        assert await lines_of(kit.store.archive("copy")) == lines
        assert await lines_of(kit.store.archive("before")) == lines
        assert (await kit.store.check()).problems == ()

    async def test_an_imported_conversation_goes_on(self, kit: Kit, elsewhere: Kit) -> None:
        """It takes messages, and what is erased of it is counted as if it had been said here."""
        await transcript_of(elsewhere.store).writing(talk)
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))

        def work(tx: TranscriptWriter) -> ErasureReport:
            tx.keep(replace(tx.thread("t"), next_seq=7))
            tx.add([said(6)])
            return tx.erase("t", [0, 2, 5, 6])

        assert await transcript_of(kit.store).writing(work) == ErasureReport(
            messages=4, compactions=2, snapshots=2, pins=1, fulltext_rows=6
        )
        assert (await kit.store.check()).problems == ()

    async def test_what_is_left_to_extract_is_owed_elsewhere(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """A thread that was remembered in part has a job after an import, no other one."""

        def work(tx: TranscriptWriter) -> None:
            tx.add([said(seq, thread=thread) for thread in "abc" for seq in (0, 1)])
            for thread, extracted_seq in (("a", 1), ("b", 2), ("c", None)):
                tx.keep(Thread(id=thread, next_seq=2, extracted_seq=extracted_seq))

        await transcript_of(elsewhere.store).writing(work)
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        due = await transcript_of(kit.store).reading(
            lambda tx: tx.jobs(JobState.WAITING, due=tx.now)
        )
        assert [(job.kind, job.subject) for job in due] == [("extract", "a")]

    async def test_what_was_erased_and_what_surfaced_stays_at_home(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """Digests of erased ids are the first store's own; hits were of that moment."""
        await transcript_of(elsewhere.store).writing(talk)
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))

        def read(tx: TranscriptReader) -> tuple[Any, Any]:
            return tx.erased_ids("T", ["m0"]), tx.all(Surfaced, "t")

        assert await transcript_of(kit.store).reading(read) == (frozenset(), [])
        erased, shown = await transcript_of(elsewhere.store).reading(read)
        assert (erased, len(shown)) == (frozenset({"m0"}), 1)

    async def test_a_repository_with_a_thread_is_not_empty(self, kit: Kit, elsewhere: Kit) -> None:
        """Nothing is imported into it."""
        await transcript_of(elsewhere.store).writing(talk)
        await transcript_of(kit.store).writing(lambda tx: tx.keep(Thread(id="mine")))
        before = await lines_of(kit.store.archive("r"))
        with pytest.raises(UsageError, match="not empty"):
            await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        assert await lines_of(kit.store.archive("r")) == before

    @pytest.mark.parametrize("what", BROKEN)
    async def test_records_of_conversations_that_do_not_fit_are_refused_by_line(
        self, kit: Kit, elsewhere: Kit, what: str
    ) -> None:
        """The line is named, and nothing is written."""
        await transcript_of(elsewhere.store).writing(talk)
        await assert_refused_by_line(kit, elsewhere, BROKEN[what])

"""The store in memory and the one on disk agree on every transaction over conversations."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemo.config import StoreConfig
from mnemo.messages import EmbeddingSpace
from mnemo.protocols import TranscriptReader, TranscriptWriter
from mnemo.store.sqlite import SqliteStore
from mnemo.testing.clock import ManualClock
from mnemo.testing.contracts import talk as told
from mnemo.testing.contracts.kit import NOON, SPACE, unit_vector
from mnemo.testing.contracts.transcript import transcript_of
from mnemo.testing.stores import in_memory_store
from mnemo.transcript.derived import Thread

THREADS = ("t", "t:1", "T")
IDS = tuple(f"m{n}" for n in range(12))
Op: TypeAlias = Callable[[TranscriptWriter], Any]


class Undone(Exception):
    """What a work raises that is to leave nothing."""


@dataclass(frozen=True)
class Work:
    """Operations of one transaction, and whether it fails at its end."""

    ops: tuple[Op, ...]
    fails: bool

    def __call__(self, tx: TranscriptWriter) -> list[Any]:
        seen = [op(tx) for op in self.ops]
        if self.fails:
            raise Undone
        return seen


# ── Operations: every one of them fits whatever is there ─────────────────────────────


def appended(thread: str, roles: list[str], backwards: bool, tools: bool) -> Op:
    def op(tx: TranscriptWriter) -> int:
        row = tx.thread(thread)
        messages = []
        for seq, role in enumerate(roles, row.next_seq):
            at = NOON + timedelta(minutes=-seq if backwards else seq)
            values: dict[str, Any] = {"thread": thread, "epoch": row.epoch, "recorded_at": at}
            match role:
                case "call":
                    messages.append(told.call(seq, f"c{seq % 3}", **values))
                case "result":
                    messages.append(told.result(seq, f"c{seq % 3}", **values))
                case "blank":
                    messages.append(told.said(seq, " ", **values))
                case _:
                    messages.append(told.said(seq, role=role, **values))
        tx.add(messages, search_tools=tools)
        tx.keep(replace(row, next_seq=row.next_seq + len(roles)))
        return row.next_seq

    return op


def cleared(thread: str, budget: int | None) -> Op:
    def op(tx: TranscriptWriter) -> None:
        row = tx.thread(thread)
        start = row.next_seq
        values = {"epoch": row.epoch + 1, "epoch_start": start, "boundary": start}
        tx.keep(replace(row, budget_tokens=budget, **values))

    return op


def derived(thread: str, sort: str, first: int, length: int, over: bool) -> Op:
    """Put something over a range of the present epoch, perhaps under what is there already."""

    def op(tx: TranscriptWriter) -> None:
        row = tx.thread(thread)
        last = min(first + length, row.next_seq - 1)
        if first > last:
            return
        values: dict[str, Any] = {"thread": thread, "epoch": row.epoch}
        live = [c for kind in told.KINDS[:2] for c in tx.all(kind, thread, newest=1)]
        above = next((one.id for one in live), None) if over else None
        match sort:
            case "compaction":
                by = above if above and above.startswith("c") else None
                tx.put(told.compaction(first, last, superseded_by=by, **values))
            case "snapshot":
                by = above if above and above.startswith("s") else None
                tx.put(told.snapshot(first, last, covered_by=by, **values))
            case "outcome":
                by = above if above and above.startswith("s") else None
                tx.put(told.outcome(first, last, snapshot_id=by, **values))
            case "goal":
                done = {"status": "completed", "completed_at": NOON} if over else {}
                tx.put(told.goal(first + 1, **done, **values))
            case "pin":
                held = [m for m in tx.messages(thread, from_seq=first) if m.epoch == row.epoch]
                for message in held[:1]:
                    tx.put(told.pin(message.seq, first + 1, **values))
            case "surfaced":
                tx.put(told.surfaced(first, (THREADS[length % 3], f"m{last}"), **values))

    return op


def dropped(thread: str, kind: int, pick: int) -> Op:
    """Drop one of a kind that nothing else names."""

    def op(tx: TranscriptWriter) -> None:
        found: list[Any] = tx.all(told.KINDS[kind], thread)
        if found:
            tx.drop(found[pick % len(found)])

    return op


def erased(thread: str, seqs: list[int]) -> Op:
    return lambda tx: tx.erase(thread, seqs)


def embedded(count: int, thread: str | None, skip: int) -> Op:
    def op(tx: TranscriptWriter) -> list[Any]:
        owed = tx.owed(limit=count, thread_id=thread)[skip:]
        places = {(m.thread_id, m.seq): unit_vector(1, m.seq, len(m.thread_id), 0) for m in owed}
        tx.save_vectors(SPACE, places | {("t", 99): unit_vector(1, 0, 0, 0)})
        return list(places)

    return op


def mismatched(thread: str) -> Op:
    """Vectors of another space: refused, if there is anything to be kept of them."""

    def op(tx: TranscriptWriter) -> None:
        owed = tx.owed(limit=1, thread_id=thread)
        vectors = {(m.thread_id, m.seq): unit_vector(3, 4) for m in owed}
        tx.save_vectors(EmbeddingSpace("other", 2), vectors)

    return op


def thinned(thread: str, keep: int) -> Op:
    return lambda tx: tx.drop_vectors(thread, keep_newest=keep)


THREAD = st.sampled_from(THREADS)
ROLES = ["user", "assistant", "system", "blank", "call", "result"]
OPS = st.one_of(
    *[
        st.builds(
            appended,
            THREAD,
            st.lists(st.sampled_from(ROLES), min_size=1, max_size=5),
            st.sampled_from([False, False, True]),
            st.booleans(),
        )
    ]
    * 3,
    *[
        st.builds(
            derived,
            THREAD,
            st.sampled_from(["compaction", "snapshot", "outcome", "goal", "pin", "surfaced"]),
            st.integers(0, 9),
            st.integers(0, 4),
            st.booleans(),
        )
    ]
    * 4,
    st.builds(cleared, THREAD, st.sampled_from([None, 900])),
    st.builds(dropped, THREAD, st.integers(2, 5), st.integers(0, 5)),
    st.builds(erased, THREAD, st.lists(st.integers(0, 11), max_size=4)),
    st.builds(embedded, st.integers(0, 6), st.none() | THREAD, st.integers(0, 1)),
    st.builds(mismatched, THREAD),
    st.builds(thinned, THREAD, st.integers(0, 3)),
)
WORKS = st.builds(
    Work,
    ops=st.lists(OPS, min_size=1, max_size=5).map(tuple),
    fails=st.sampled_from([False, False, True]),
)


# ── Looking ──────────────────────────────────────────────────────────────────────────


def look(tx: TranscriptReader) -> Any:
    """Everything that can be asked, with every way of choosing."""
    since = NOON + timedelta(minutes=3)
    seen: list[Any] = [told.dump(tx, *THREADS, ids=IDS), tx.threads(watched=True)]
    seen.append([(m.thread_id, m.seq) for m in tx.owed(limit=4)])
    for thread in THREADS:
        epoch = tx.thread(thread).epoch
        seen += [
            [m.seq for m in tx.messages(thread, from_seq=2, to_seq=7, newest=3)],
            [m.seq for m in tx.messages(thread, role="user", newest=2, since=since)],
            [m.seq for m in tx.messages(thread, role="tool", from_seq=1)],
            sorted(tx.by_id(thread, IDS[::2])),
            [m.seq for m in tx.of_calls(thread, ["c0", "c2", "c9"])],
            tx.span(thread, from_seq=3, since=since),
            tx.vectors(thread, from_seq=1, since=since)[0],
        ]
        for kind in told.KINDS:
            seen.append(tx.all(kind, thread, epoch=epoch, newest=2))
            seen.append(tx.all(kind, thread, live=True, newest=1))
    return seen


async def lives(store: Any, works: list[Work]) -> list[Any]:
    """All works in one store, what each has given, and what was seen after it."""
    seen: list[Any] = []
    transcript = transcript_of(store)
    await store.open()
    try:
        for work in works:
            before = await transcript.reading(look)
            try:
                seen.append(await transcript.writing(work))
            except Exception as error:
                seen.append(type(error).__name__)
                assert await transcript.reading(look) == before
            seen += [await transcript.reading(look), await store.feed("r").space()]
        assert (await store.check()).problems == ()
    finally:
        await store.aclose()
    return seen


@pytest.mark.slow
@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(works=st.lists(WORKS, min_size=1, max_size=5))
def test_both_stores_keep_conversations_alike(works: list[Work]) -> None:
    """Every result, every refusal and everything that can be read afterwards is equal."""

    async def both(folder: str) -> None:
        clock = ManualClock(NOON)
        on_disk = SqliteStore(Path(folder) / "m.db", config=StoreConfig(), clock=clock, lease_s=30)
        first = await lives(in_memory_store(clock), works)
        second = await lives(on_disk, works)
        for one, other in zip(first, second, strict=True):
            assert one == other

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(both(folder))


def test_a_work_that_fails_is_told_by_what_it_raised() -> None:
    """The two stores agree also on that; here it is said which one it is."""
    store = in_memory_store(ManualClock(NOON))
    work = Work((lambda tx: tx.keep(Thread(id="t")),), fails=True)
    assert asyncio.run(lives(store, [work]))[0] == "Undone"

"""Any transactions over conversations, against a small model; one that fails leaves nothing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from contracts import talk as told
from engines import emptied
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world import NOON, store_at, unit_vector

from mnemo.errors import MnemoError
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.testing import ManualClock
from mnemo.values.chat import EmbeddingSpace

THREADS = ("t", "t:1", "T")
IDS = tuple(f"m{n}" for n in range(12))


@dataclass
class Model:
    """What must be there by thread: seqs of messages, seqs that were erased, the next seq."""

    there: dict[str, set[int]]
    erased: dict[str, set[int]]
    next_seq: dict[str, int]

    @classmethod
    def empty(cls) -> Model:
        """Nothing was said."""
        return cls(
            {id: set() for id in THREADS}, {id: set() for id in THREADS}, dict.fromkeys(THREADS, 0)
        )

    def append(self, thread: str, count: int) -> None:
        """So many messages more."""
        first = self.next_seq[thread]
        self.next_seq[thread] += count
        self.there[thread] |= {*range(first, first + count)}

    def erase(self, thread: str, seqs: list[int]) -> None:
        """Those of *seqs* that are there go, and stay known as erased."""
        gone = self.there[thread] & {*seqs}
        self.there[thread] -= gone
        self.erased[thread] |= gone

    def compare(self, tx: TranscriptReader) -> None:
        """The store says the same."""
        for id in THREADS:
            assert {message.seq for message in tx.messages(id)} == self.there[id]
            assert tx.thread(id).next_seq == self.next_seq[id]
            ids = {f"m{seq}" for seq in range(self.next_seq[id])}
            assert tx.erased_ids(id, sorted(ids)) == {f"m{seq}" for seq in self.erased[id]}


@dataclass(frozen=True)
class Op:
    """Part of a transaction, and what it does to the model."""

    run: Callable[[TranscriptWriter], Any]
    model: Callable[[Model], None] = lambda _: None


class Undone(Exception):
    """What a work raises that is to leave nothing."""


@dataclass(frozen=True)
class Work:
    """Operations of one transaction, and whether it fails at its end."""

    ops: tuple[Op, ...]
    fails: bool

    def __call__(self, tx: TranscriptWriter) -> list[Any]:
        seen = [op.run(tx) for op in self.ops]
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

    return Op(op, lambda model: model.append(thread, len(roles)))


def cleared(thread: str, budget: int | None) -> Op:
    def op(tx: TranscriptWriter) -> None:
        row = tx.thread(thread)
        start = row.next_seq
        values = {"epoch": row.epoch + 1, "epoch_start": start, "boundary": start}
        tx.keep(replace(row, budget_tokens=budget, **values))

    return Op(op)


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

    return Op(op)


def dropped(thread: str, kind: int, pick: int) -> Op:
    """Drop one of a kind that nothing else names."""

    def op(tx: TranscriptWriter) -> None:
        found: list[Any] = tx.all(told.KINDS[kind], thread)
        if found:
            tx.drop(found[pick % len(found)])

    return Op(op)


def erased(thread: str, seqs: list[int]) -> Op:
    return Op(lambda tx: tx.erase(thread, seqs), lambda model: model.erase(thread, seqs))


def embedded(thread: str, seqs: list[int]) -> Op:
    places = {(thread, seq): unit_vector(1, seq, len(thread), 0) for seq in [*seqs, 99]}
    return Op(lambda tx: told.save_vectors(tx, places))


def mismatched(thread: str) -> Op:
    """Vectors of another space: refused, if there is anything to be kept of them."""
    other = EmbeddingSpace("other", 2)
    return Op(lambda tx: told.save_vectors(tx, {(thread, 0): unit_vector(3, 4)}, other))


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
    st.builds(embedded, THREAD, st.lists(st.integers(0, 11), max_size=6)),
    st.builds(mismatched, THREAD),
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
    for thread in THREADS:
        epoch = tx.thread(thread).epoch
        seen += [
            [m.seq for m in tx.messages(thread, from_seq=2, to_seq=7, newest=3)],
            [m.seq for m in tx.messages(thread, role="user", newest=2, since=since)],
            [m.seq for m in tx.messages(thread, role="tool", from_seq=1)],
            sorted(tx.by_id(thread, IDS[::2])),
            [
                [m.seq for m in unit.messages]
                for unit in tx.whole_units(tx.messages(thread, role="tool"), since=since)
            ],
            tx.span(thread, from_seq=3, since=since),
            tx.vectors(thread, from_seq=1, since=since)[0].tolist(),
        ]
        for kind in told.KINDS:
            seen.append(tx.all(kind, thread, epoch=epoch, newest=2))
            seen.append(tx.all(kind, thread, live=True, newest=1))
    return seen


async def lives(place: Path | str, works: list[Work]) -> None:
    """All works in one store; reopened, it holds the same."""
    model, clock = Model.empty(), ManualClock(NOON)
    store = store_at(place, clock)
    await store.open()
    try:
        for work in works:
            await does(store, work, model)
        before = await store.transcript("r").reading(look)
        await store.aclose()
        store = store_at(place, clock)
        await store.open()
        assert await store.transcript("r").reading(look) == before
    finally:
        await store.aclose()


async def does(store: Any, work: Work, model: Model) -> None:
    """One transaction: all of it, or nothing."""
    transcript = store.transcript("r")
    before = await transcript.reading(look)
    try:
        await transcript.writing(work)
    except (Undone, MnemoError):
        assert await transcript.reading(look) == before
    else:
        assert not work.fails
        for op in work.ops:
            op.model(model)
    await transcript.reading(model.compare)
    assert (await store.check()).problems == ()


ONCE = settings(derandomize=True, database=None, suppress_health_check=list(HealthCheck))
SOME_WORKS = st.lists(WORKS, min_size=1, max_size=5)


@pytest.mark.slow
@settings(ONCE, max_examples=examples(60))
@given(works=SOME_WORKS)
def test_works_over_conversations_do_all_or_nothing(works: list[Work]) -> None:
    """Messages are those of the model, and everything is as it was after a reopening."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(lives(emptied(None, folder), works))


@pytest.mark.postgres
@pytest.mark.slow
@settings(ONCE, max_examples=examples(20))
@given(works=SOME_WORKS)
def test_works_on_postgres_do_all_or_nothing(postgres_url: str, works: list[Work]) -> None:
    """As in a file."""
    asyncio.run(lives(emptied(postgres_url, ""), works))

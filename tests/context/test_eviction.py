"""Committing an eviction: what is checked, what is written, what is told."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from window_kit import START, Threads, said, snapshot

from mnemo.config import Config, ViewportConfig
from mnemo.context.eviction import (
    Committed,
    EvictionVerdict,
    Links,
    commit,
    evict_by_fallback,
    tell_of,
)
from mnemo.context.zones import Budget, Zone, eviction_zone
from mnemo.conversation.scope import ThreadScope
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.derived import EvictionOutcome, Pin, Snapshot, Thread
from mnemo.values.units import units_of


def zone_of(tx: TranscriptReader, config: Config) -> tuple[Thread, Zone]:
    """The thread and its zone, as they are now."""
    thread = tx.thread("t")
    units = units_of(tx.messages("t", from_seq=thread.boundary))
    budget = Budget.of(1_000, config.viewport)
    zone = eviction_zone(units, budget, from_seq=thread.boundary, now=tx.now, deadline_s=180)
    assert zone is not None
    return thread, zone


async def read(threads: Threads) -> tuple[Thread, Zone]:
    """The same, read from the store."""
    return await threads.parts.store.reading(lambda tx: zone_of(tx, threads.config))


async def committed(
    threads: Threads, found: tuple[Thread, Zone], **verdict: Any
) -> Committed | None:
    """Commit a verdict on what was read."""
    given: dict[str, Any] = {"kind": "snapshot", "attempts": 1, "text": "s", **verdict}
    thread, zone = found
    return await threads.parts.store.writing(
        lambda tx: commit(tx, thread, zone, EvictionVerdict(**given), threads.config)
    )


@pytest.fixture
async def six(threads: Threads) -> Threads:
    """A thread of six messages of 100 tokens."""
    await threads.say(*(said(f"Words {i}.") for i in range(6)))
    return threads


async def test_the_boundary_moves_with_its_reason(six):
    """Snapshot, outcome and boundary are one transaction."""
    done = await committed(six, await read(six), text="  s \n")
    assert done is not None
    assert done.moved
    assert (done.snapshot and done.snapshot.text) == "s"
    assert (await six.row()).boundary == 2
    assert await six.kept(Snapshot) == [done.snapshot]
    assert await six.kept(EvictionOutcome) == [done.outcome]
    tell_of(six.parts, done)
    names = [type(e).__name__ for e in six.events]
    assert names == ["SnapshotTaken", "EvictionCompleted"]


@pytest.mark.parametrize("change", ["epoch", "boundary"])
async def test_a_thread_that_moved_on_is_left_alone(six, change):
    """Nothing is written, whatever the verdict is."""
    found = await read(six)
    changed = replace(found[0], **{change: 1})
    await six.parts.store.writing(lambda tx: tx.keep(changed))
    for kind in ("snapshot", "ok", "fallback"):
        assert await committed(six, found, kind=kind) is None
    assert await six.kept(EvictionOutcome) == []
    assert await six.row() == changed


async def test_a_range_that_lost_a_message_is_left_alone(six):
    """A text about erased words is not kept."""
    found = await read(six)
    await six.parts.store.writing(lambda tx: tx.erase("t", [1]))
    assert await committed(six, found) is None
    assert await six.kept(Snapshot) == []


async def test_a_range_whose_message_has_expired_is_left_alone(six):
    """As soon as it expires, swept or not."""
    found = await read(six)
    kept = replace(found[0], ttl_s=60.0)
    await six.parts.store.writing(lambda tx: tx.keep(kept))
    six.clock.advance(61)
    assert await committed(six, (kept, found[1])) is None


async def test_pins_are_part_of_the_transaction(six):
    """One that cannot be made undoes nothing, for nothing was done."""
    await six.goals().add("one")
    found = await read(six)
    gone = (Links((0,), (1,)), Links((0, 99), (1,)))
    assert await committed(six, found, links=gone) is None
    assert await six.kept(Pin) == []
    assert (await six.row()).boundary == 0
    done = await committed(six, found, links=(Links((0, 5), (1, 7)),))
    assert done is not None
    assert [(pin.seq, pin.goal_ids) for pin in await six.kept(Pin)] == [(0, (1,)), (5, (1,))]


async def test_zones_leave_by_rule_one_after_the_other(six):
    """In one transaction, each with an outcome of its own and a text that fits."""
    config = Config(viewport=ViewportConfig(snapshot_max_chars=60))

    def work(tx: TranscriptWriter) -> list[EvictionOutcome]:
        left = (evict_by_fallback(tx, *zone_of(tx, config), config) for _ in range(2))
        return [committed.outcome for committed in left]

    outcomes = await six.parts.store.writing(work)
    assert [(o.from_seq, o.to_seq, o.kind, o.attempts) for o in outcomes] == [
        (0, 1, "fallback", 0),
        (2, 3, "fallback", 0),
    ]
    assert (await six.row()).boundary == 4
    assert all(len(s.text) <= 60 for s in await six.kept(Snapshot))


async def test_a_fallback_of_another_range_is_not_reworded(six):
    """Only exactly the range that the model saw."""
    await six.say(*(said(f"More {i}.") for i in range(4)))
    thread, zone = await read(six)
    await six.evict(kind="fallback")
    other = replace(zone, to_seq=0, messages=zone.messages[:1])
    assert await committed(six, (thread, other)) is None
    done = await committed(six, (thread, zone), text="better")
    assert done is not None
    assert not done.moved
    assert [s.text for s in await six.kept(Snapshot)] == ["better"]
    tell_of(six.parts, done)
    assert [type(e).__name__ for e in six.events] == ["SnapshotTaken"]
    assert await committed(six, (thread, zone), text="best") is None


# ── What was derived from messages goes with them, before they are swept ──────────────


async def test_a_snapshot_lives_as_long_as_all_of_its_messages(threads):
    """
    Exactly at the cutoff a message is alive; an erased one takes nothing with it here.

    Whatever was derived from it went in the transaction that erased it.
    """
    for _ in range(4):
        await threads.say(said())
        threads.clock.advance(10)
    await threads.parts.store.writing(lambda tx: tx.erase("t", [1]))
    snapshots = [snapshot(0, 1, "a"), snapshot(1, 2, "b"), snapshot(2, 3, "c"), snapshot(1, 1, "d")]
    snapshots = [replace(one, id=one.text) for one in snapshots]
    await threads.parts.store.writing(lambda tx: tx.put(*snapshots))
    thread = await threads.row()

    async def living(seconds):
        since = None if seconds is None else START + timedelta(seconds=seconds)
        scope = ThreadScope(thread, since, is_new=False, is_stale=False)
        found = await threads.parts.store.reading(lambda tx: scope.all(tx, Snapshot))
        return sorted(each.text for each in found)

    assert await living(None) == ["a", "b", "c", "d"]
    assert await living(0) == ["a", "b", "c", "d"]
    assert await living(20) == ["b", "c", "d"]
    assert await living(21) == ["d"]

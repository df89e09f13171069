"""Trouble while the store is open: locks, a full disk, bad text, broken rows."""

import sqlite3

import pytest
from engines import change
from world import NOON, SPACE, Kit, draft, unit_vector

from mnemo.errors import CommitFailed, StoreError
from mnemo.values.graph import Edge, EdgeKind, Episodic, Semantic
from mnemo.values.steps import Step

FACT = Semantic("Ana lives in Porto", id="fact", created_at=NOON)


async def test_readers_do_not_wait_for_a_foreign_writer(kit, path):
    """A lock on writing leaves reading alone."""
    await kit.apply(FACT)
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    assert await kit.store.graph("r").nodes(["fact"]) == [FACT]
    foreign.execute("ROLLBACK")
    foreign.close()


async def test_a_failing_row_rolls_the_whole_commit_back(kit, path):
    """Where one row of many is refused, no node, edge, vector or state is left."""
    await kit.start()
    await kit.append("o")
    await kit.close()
    when = "BEFORE UPDATE ON repos WHEN new.revision > 0"
    change(path, f"CREATE TRIGGER broken {when} BEGIN SELECT raise(ABORT, 'on purpose'); END")
    write = {"settlement": kit.settlement(0, ends=True), "space": SPACE}
    fact = Semantic("f", id="f", created_at=NOON, vector=unit_vector(1, 2, 3, 4))
    with pytest.raises(CommitFailed) as failed:
        await kit.apply(fact, **write)
    assert isinstance(failed.value.__cause__, StoreError)
    counts = await kit.store.feed("r").counts()
    assert {kind: count for kind, count in counts.items() if count} == {"steps": 1}
    assert (await kit.load()).committed == frozenset()
    change(path, "DROP TRIGGER broken")
    assert (await kit.apply(fact, **write)).revision == 1


async def test_a_full_text_that_fails_takes_its_step_along(kit, path):
    """A step is never there without the rows that it is found by."""
    await kit.start()
    when = "AFTER INSERT ON steps WHEN new.observation = 'bad'"
    change(path, f"CREATE TRIGGER broken {when} BEGIN SELECT raise(ABORT, 'on purpose'); END")
    results = await kit.append_all([("good", ""), ("bad", ""), ("fine", "")])
    indexes = [result.index for result in results if isinstance(result, Step)]
    assert (indexes, isinstance(results[1], StoreError)) == ([0, 1], True)
    assert (await kit.store.check()).problems == ()


@pytest.mark.parametrize("text", ["lone \ud800 surrogate", "\udfff"])
async def test_text_that_cannot_be_stored_is_refused_alone(kit, text):
    """A lone surrogate that nobody cleaned fails its own step and leaves no part of it."""
    await kit.start()
    results = await kit.append_all([("before", ""), (text, "acted"), ("after", text)])
    (after,) = await kit.append_all([("last", "")])
    assert isinstance(results[0], Step)
    assert all(isinstance(result, ValueError) for result in results[1:])
    assert isinstance(after, Step)
    assert after.index == 1
    assert (await kit.store.check()).problems == ()


async def test_u0000_is_kept_whole(kit):
    """A NUL that nobody cleaned cuts nothing off."""
    await kit.start()
    step = await kit.append("a\0b", "c\0")
    assert (await kit.load()).steps == (step,)


async def test_metadata_that_is_no_json_is_refused_alone(kit):
    """What JSON has no word for fails its step, and leaves no gap."""
    await kit.start()
    for value in (object(), float("nan"), {1, 2}):
        (result,) = await kit.append_all([("x", "")], metadata={"v": value})
        assert isinstance(result, ValueError)
    assert (await kit.append("next")).index == 0


async def test_appends_beyond_the_bound_of_the_queue_enter(
    make,
):
    """A plain append is never held back by the writer; only the session's backlog bounds it."""
    store = make(max_queued_writes=1)
    kit = Kit(make, None, store, await store.open())  # type: ignore[arg-type]
    kit.clock = store._clock
    await kit.start()
    results = await kit.append_all([(f"{n}", "") for n in range(100)])
    await store.aclose()
    assert [step.index for step in results] == list(range(100))


# ── The check ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("DELETE FROM texts", "steps without their full-text row"),
        (
            "INSERT INTO texts VALUES (99, 1, 0.0, 1, ' x ', NULL)",
            "full-text rows without their record",
        ),
        ("UPDATE texts SET words = ' other '", "texts whose words or triples do not fit"),
        ("INSERT INTO text_words (rowid, tokens) VALUES (99, '1_x')", "damaged full text"),
        ("DELETE FROM nodes WHERE id = 'fact'", "vectors whose node, step or message is gone"),
        ("UPDATE nodes SET session_id = 'x' WHERE id = 'fact'", "damaged row: nodes"),
        ("UPDATE vectors SET vector = x'00'", "vectors of a wrong length"),
        ("DELETE FROM nodes WHERE type = 'episodic'", "edges whose end is gone"),
        ("DELETE FROM nodes WHERE type = 'episodic'", "committed steps without their node"),
        ("UPDATE sessions SET state = 'ready'", "ready without a staged changeset"),
        ("UPDATE sessions SET state = 'idle'", "episode does not fit their state"),
        ("UPDATE steps SET idx = 5 WHERE idx = 1", "gap in their steps"),
        ("INSERT INTO staged VALUES (1, 77, 'k', 'p', '[0]', x'00')", "episodes that are over"),
    ],
)
async def test_the_check_finds(kit, path, damage, problem):
    """Whatever disagrees with what it hangs on is named."""
    await kit.start()
    step = await kit.append("o", "a")
    await kit.append("second")
    await kit.apply(
        Episodic("o", id=step.node_id, created_at=NOON),
        FACT,
        edges=[Edge("fact", step.node_id, EdgeKind.PROVENANCE)],
        settlement=kit.settlement(0),
    )
    await kit.store.feed("r").save_vectors(SPACE, {"fact": unit_vector(1, 2, 3, 4)})
    assert (await kit.store.check()).problems == ()
    change(path, damage)
    report = await kit.store.check()
    assert any(problem in found for found in report.problems)


async def test_the_queue_can_be_looked_at(kit):
    """``waiting`` counts what the writer has not answered yet."""
    await kit.start()
    results: list[object] = []
    for n in range(3):
        kit.store.sessions("r").append("s", "s-1", draft(str(n)), kit.owner, results.append)
    writer = kit.store.engine._writer()  # type: ignore[attr-defined]
    queued = writer.waiting
    await kit.append("last")
    assert (queued, writer.waiting, len(results)) == (3, 0, 3)

"""Rows are written under the lock that guards them, and every test of a store looks at that."""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contracts.talk import said
from engines import emptied
from guarded_rows import GUARDS, UNGUARDED, UnguardedWrite
from postgres_server import ON_POSTGRES
from world import Kit, opened

from mnemo.graph.apply import apply_write, prepare
from mnemo.log.job_rules import claim_jobs, demand_extraction
from mnemo.log.transcript import TranscriptWriter
from mnemo.protocols import GraphWrite
from mnemo.store.engine import Locks, repository_locks, session_lock
from mnemo.store.rows import repo_number
from mnemo.store.schema import COLUMNS
from mnemo.store.tables import TABLES, THREADS
from mnemo.store.tx import Tx
from mnemo.values.derived import Thread
from mnemo.values.jobs import Intake

WRITTEN_BY_ANYBODY = {"repos", "removals", "segments", "erased", "meta", "recalls"}
"""Tables whose rows are inserted once, or changed by single statements that hold by themselves."""


@pytest.fixture(params=["file", ON_POSTGRES])
async def kit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kit]:
    """An opened store with a thread whose job is claimed, and a session of that."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None

    def remember(tx: TranscriptWriter) -> None:
        tx.add([said(0)])
        tx.keep(Thread(id="t", next_seq=1))
        demand_extraction(tx, [said(0)], quiet_s=5, most_waiting=12, at_once=True)

    async with opened(emptied(url, tmp_path)) as kit:
        await kit.start()
        transcript = kit.store.transcript("r")
        await transcript.writing(remember)
        await transcript.writing(partial(claim_jobs, owner=kit.owner, limit=1))
        yield kit


def test_every_table_is_guarded_once():
    """A table that is new is in ``GUARDS``, or its rows are never written whole."""
    guarded = [table for tables in GUARDS.values() for table in tables]
    assert sorted([*guarded, *WRITTEN_BY_ANYBODY]) == sorted(COLUMNS)


def test_columns_that_anybody_sets_are_in_no_whole_row():
    """Else whoever writes the whole row undoes what was set since it read that."""
    for table, columns in UNGUARDED.items():
        assert columns.isdisjoint(TABLES[table].columns)


def put_thread(tx: Tx) -> None:
    """Write a thread's row whole."""
    THREADS.put(tx, repo_number(tx, "r"), Thread(id="t", next_seq=1))


def set_seq(tx: Tx) -> None:
    """Set a column that whole rows have."""
    tx.run("UPDATE threads SET next_seq = ? WHERE id = ?", (1, "t"))


@pytest.mark.parametrize("write", [put_thread, set_seq])
async def test_a_row_is_not_written_without_its_lock(kit, write):
    """Neither by who names other locks nor, where the row says so, another repository's."""
    others: list[Locks] = [[("graph", "r"), session_lock("r", "s")], [("owner", "")]]
    for locks in others if write is set_seq else [*others, [("transcript", "q")]]:
        with pytest.raises(UnguardedWrite, match="'transcript'"):
            await kit.store.engine.writing(write, locks=locks)
    for locks in ([], [("transcript", "r")], repository_locks("r")):
        await kit.store.engine.writing(write, locks=locks)


async def test_a_commit_that_finishes_a_job_needs_the_threads_lock(kit):
    """Under the locks of the graph and of the session alone it is refused."""
    done = Intake(thread_id="t", token=1, to_seq=1, message_ids=("m0",))
    settlement = replace(kit.settlement(ends=True), intake=done)
    write = GraphWrite(changeset_id="c", expected_revision=0, settlement=settlement)
    prepared = prepare(write, kit.clock.now())

    def apply(tx: Tx) -> Any:
        return apply_write(tx, "r", prepared, kit.owner.token, lambda tx: kit.clock.now())

    locks = [("graph", "r"), session_lock("r", "s")]
    with pytest.raises(UnguardedWrite, match="INTO jobs"):
        await kit.store.engine.writing(apply, locks=locks)
    await kit.store.engine.writing(apply, locks=[*locks, ("transcript", "r")])


async def test_discarding_keeps_out_no_other_repository(kit, monkeypatch):
    """An act that names no locks would wait for every writer of the store."""
    named: list[Locks] = []
    writing = kit.store.engine.writing

    async def noted(work: Any, *, locks: Locks = ()) -> Any:
        named.append(locks)
        return await writing(work, locks=locks)

    monkeypatch.setattr(kit.store.engine, "writing", noted)
    await kit.discard()
    assert named == [[session_lock("r", "s"), ("graph", "r")]]

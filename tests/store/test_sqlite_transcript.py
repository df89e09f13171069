"""Conversations on the embedded store: what is read by which index, and what undoes itself."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
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
from engines import change
from world import NOON

from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.store.sqlite.connection import SqliteTx
from mnemo.store.tables import MESSAGES
from mnemo.values.derived import Thread
from mnemo.values.messages import StoredMessage

SINCE = NOON + timedelta(minutes=1)

READS: dict[str, Callable[[TranscriptReader], Any]] = {
    "a range": lambda tx: tx.messages("t", from_seq=2, to_seq=5),
    "the newest": lambda tx: tx.messages("t", newest=2),
    "the newest that live": lambda tx: tx.messages("t", newest=2, since=SINCE),
    "the last of a user": lambda tx: tx.messages("t", newest=1, role="user"),
    "those of the system": lambda tx: tx.messages("t", role="system", since=SINCE),
    "by id": lambda tx: tx.by_id("t", ["m1", "m2"]),
    "a unit": lambda tx: tx.whole_units([result(3, "a")], since=SINCE),
    "a span": lambda tx: tx.span("t", from_seq=3),
    "a span that lives": lambda tx: tx.span("t", from_seq=3, since=SINCE),
    "times": lambda tx: tx.recorded("t", from_seq=3, limit=2),
    "vectors": lambda tx: tx.vectors("t", from_seq=1),
    "vectors that live": lambda tx: tx.vectors("t", since=SINCE),
    "the thread": lambda tx: tx.thread("t"),
    "all threads": lambda tx: tx.threads(),
    "erased ids": lambda tx: tx.erased_ids("t", ["m1"]),
    **{
        f"{kind.__name__} {name}": lambda tx, kind=kind, choice=choice: tx.all(kind, "t", **choice)
        for kind in KINDS
        for name, choice in {
            "all": {},
            "live": {"live": True},
            "live of an epoch": {"live": True, "epoch": 0},
            "the newest": {"newest": 2},
            "the newest live of an epoch": {"live": True, "epoch": 0, "newest": 2},
        }.items()
    },
}


def talk(tx: TranscriptWriter) -> None:
    """A thread with something of every kind."""
    tx.keep(Thread(id="t", next_seq=8))
    tx.add([said(0), said(1, role="system"), call(2, "a", "b"), result(3, "a"), result(4, "b")])
    tx.add([said(5), said(6), said(7)])
    tx.put(compaction(0, 1), compaction(2, 4), snapshot(0, 1), snapshot(2, 4))
    tx.put(outcome(0, 1), goal(1), pin(5), surfaced(5))


def plans_of(connection: sqlite3.Connection, work: Callable[[TranscriptReader], Any]) -> list[str]:
    """How SQLite goes about the statements of a work."""
    reader = TranscriptReader(SqliteTx(connection), "r", NOON)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    work(reader)
    connection.set_trace_callback(None)
    return [
        row[3]
        for statement in statements
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]


@pytest.mark.parametrize("name", READS)
async def test_every_read_goes_by_an_index(kit, path, name):
    """Nothing is scanned, however long the thread and however many threads there are."""
    await kit.store.transcript("r").writing(talk)
    with closing(sqlite3.connect(path)) as file:
        plans = plans_of(file, READS[name])
    assert plans
    given = ("CONSTANT", "json_each")
    scans = [p for p in plans if p.startswith("SCAN") and not any(word in p for word in given)]
    assert scans in ([], ["SCAN erased"])
    if "live" in name and name.startswith(("Compaction", "Snapshot", "Goal")):
        assert any("_live" in plan or "_active" in plan for plan in plans)
    if "newest" in name:
        assert not any("TEMP B-TREE FOR ORDER BY" in plan for plan in plans)


# ── The check ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("DELETE FROM threads", "messages of no thread"),
        ("DELETE FROM messages WHERE seq = 2", "message_calls without their message"),
        ("DELETE FROM messages WHERE seq = 5", "pins without their message"),
        ("DELETE FROM messages WHERE seq = 6", "threads with a gap in their seqs"),
        ("UPDATE messages SET seq = 9 WHERE seq = 7", "threads with a gap in their seqs"),
        ("UPDATE threads SET boundary = 10", "boundary is not in their epoch"),
        ("UPDATE threads SET epoch_start = 5", "boundary is not in their epoch"),
        ("UPDATE messages SET repo = 9", "messages of another repository than their thread"),
        ("UPDATE snapshots SET repo = 9", "snapshots of another repository than their thread"),
        ("DELETE FROM message_calls WHERE call_id = 'b'", "calls are not known by their ids"),
        ("UPDATE outcomes SET from_seq = 2", "outcomes that do not follow each other"),
        ("UPDATE outcomes SET snapshot_id = 'x'", "outcomes whose snapshot is gone"),
        ("UPDATE compactions SET superseded_by = 'x'", "summaries whose replacement is gone"),
        ("UPDATE snapshots SET covered_by = 'x'", "summaries whose replacement is gone"),
        ("UPDATE goals SET parent_id = 7", "goals whose root is gone"),
        ("DELETE FROM surfaced", "records that came to mind in no turn"),
        ("UPDATE messages SET content = 'x' WHERE seq = 0", "full-text row does not fit"),
        ("UPDATE texts SET words = ' x ' WHERE no % 4 = 2", "full-text row does not fit"),
        ("DELETE FROM texts WHERE no % 4 = 2", "full-text row does not fit"),
        ("DELETE FROM texts WHERE no % 4 = 3", "snapshots without their full-text row"),
        ("DELETE FROM snapshots WHERE from_seq = 2", "full-text rows without their record"),
        ("UPDATE snapshots SET text = 'x'", "texts whose words or triples do not fit"),
        ("UPDATE texts SET lowered = NULL", "full-text row does not fit"),
        ("UPDATE texts SET at = at + 1", "texts of another time than their record"),
        ("UPDATE repos SET text_words = 1", "texts are not counted right, e.g. r"),
    ],
)
async def test_the_check_finds_what_disagrees(kit, path, damage, problem):
    """Whatever of a conversation does not fit what it hangs on is named."""

    def work(tx: TranscriptWriter) -> None:
        talk(tx)
        tx.put(surfaced(5, ("t", "m0")))
        tx.keep(replace(tx.thread("t"), next_seq=9))
        tx.add([said(8, "東京へ行きました")])

    await kit.store.transcript("r").writing(work)
    assert (await kit.store.check()).problems == ()
    change(path, damage)
    report = await kit.store.check()
    assert any(problem in found for found in report.problems), report.problems


async def test_the_check_counts_conversations(kit):
    """Rows of each kind, beside those of sessions and the graph."""
    await kit.store.transcript("r").writing(talk)
    counts = (await kit.store.check()).counts
    named = ("threads", "messages", "compactions", "snapshots", "goals", "pins")
    assert [counts[name] for name in named] == [1, 8, 2, 2, 1, 1]
    assert counts["texts"] == 7


async def test_a_message_of_many_calls_is_read_once(kit, monkeypatch):
    """More calls than one statement asks for do not have their message read for each of them."""
    calls = [f"c{n}" for n in range(1_200)]
    transcript = kit.store.transcript("r")
    await transcript.writing(lambda tx: tx.add([call(0, *calls), result(1, "c7")]))
    read: list[int] = []

    decode = MESSAGES.rows.one

    def counted(row: tuple[Any, ...]) -> StoredMessage:
        message = decode(row)
        read.append(message.seq)
        return message

    monkeypatch.setattr(MESSAGES.rows, "one", counted)
    found = await transcript.reading(lambda tx: tx.whole_units([result(1, "c7")]))
    assert [[message.seq for message in unit.messages] for unit in found] == [[0, 1]]
    assert read == [0]

"""The writer: many units, one commit, and each alone in success and failure."""

import sqlite3
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mnemo.errors import Conflict, StoreError
from mnemo.store.sqlite.engine import Writer
from mnemo.store.tx import Tx


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    made = sqlite3.connect(tmp_path / "w.db", isolation_level=None, check_same_thread=False)
    made.execute("PRAGMA journal_mode = WAL").fetchall()
    made.execute("PRAGMA foreign_keys = ON")
    made.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    made.execute("CREATE TABLE child (n INTEGER REFERENCES t (n) DEFERRABLE INITIALLY DEFERRED)")
    return made


class Gate:
    """A unit that keeps the writer busy, so that what follows waits and goes together."""

    def __init__(self, writer: Writer) -> None:
        self._open = anyio.Event()
        self._writer = writer
        self._lock = threading.Event()

    def close(self) -> None:
        self._writer.post(self._wait, None, lambda _: self._open.set())

    def _wait(self, tx: Tx, payloads: object) -> list[None]:
        self._lock.wait(5)
        return [None]

    async def open(self) -> None:
        self._lock.set()
        await self._open.wait()


def insert(tx: Tx, numbers: list[int]) -> list[int]:
    """A bulk that fails as a whole where a number is taken."""
    for number in numbers:
        tx.run("INSERT INTO t VALUES (?)", (number,))
    return list(numbers)


def stored(path: Path) -> list[int]:
    reader = sqlite3.connect(path)
    try:
        return [n for (n,) in reader.execute("SELECT n FROM t ORDER BY n")]
    finally:
        reader.close()


async def run_together(writer: Writer, *units: tuple[object, object]) -> list[object]:
    """Results of units that wait at the same time, in order of arrival."""
    gate = Gate(writer)
    gate.close()
    results: list[object] = []
    done = anyio.Event()

    def arrived(result: object) -> None:
        results.append(result)
        if len(results) == len(units):
            done.set()

    for run, payload in units:
        writer.post(run, payload, arrived)
    await gate.open()
    await done.wait()
    return results


async def test_a_failing_unit_is_rolled_back_alone(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """Of a batch, the units around a bad one are written and told so."""
    writer = Writer(connection, limit=100)
    writer.start()
    results = await run_together(writer, (insert, 1), (insert, 1), (insert, 2))
    await writer.aclose()
    assert (results[0], results[2]) == (1, 2)
    assert isinstance(results[1], StoreError)
    assert stored(tmp_path / "w.db") == [1, 2]


async def test_units_of_one_kind_run_as_one(connection: sqlite3.Connection) -> None:
    """Consecutive units with the same bulk are one call of it."""
    calls: list[int] = []

    def count(tx: Tx, payloads: list[int]) -> list[int]:
        calls.append(len(payloads))
        return list(payloads)

    writer = Writer(connection, limit=100)
    writer.start()
    results = await run_together(writer, *[(count, n) for n in range(10)])
    await writer.aclose()
    assert (results, calls) == (list(range(10)), [10])


async def test_callers_of_one_batch_are_woken_in_several_turns(
    connection: sqlite3.Connection,
) -> None:
    """A batch as large as 40 does not hold the event loop for the work of all its callers."""
    writer = Writer(connection, limit=100)
    writer.start()
    gate, turns, found = Gate(writer), 0, list[int]()

    async def call(number: int) -> None:
        assert await writer.merge(insert, number) == number
        found.append(turns)

    gate.close()
    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(call, number)
        await anyio.lowlevel.checkpoint()
        await gate.open()
        while len(found) < 40:
            turns += 1
            await anyio.lowlevel.checkpoint()
    await writer.aclose()
    assert max(map(found.count, found)) <= 16


async def test_a_refusal_within_a_bulk_is_handed_to_its_caller(
    connection: sqlite3.Connection,
) -> None:
    """A bulk may answer some payloads with an exception; nothing else is touched."""
    refusal = Conflict("not you")

    def pick(tx: Tx, payloads: list[int]) -> list[object]:
        return [refusal if payload == 1 else payload for payload in payloads]

    writer = Writer(connection, limit=100)
    writer.start()
    results = await run_together(writer, (pick, 0), (pick, 1), (pick, 2))
    await writer.aclose()
    assert results == [0, refusal, 2]


async def test_a_failed_commit_fails_every_unit(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """If the commit itself is refused, nobody is told of success and nothing stays."""

    def orphan(tx: Tx, payloads: list[int]) -> list[None]:
        tx.run("INSERT INTO child VALUES (99)")
        return [None]

    writer = Writer(connection, limit=100)
    writer.start()
    results = await run_together(writer, (insert, 1), (orphan, None))
    later = await writer.run(lambda c: insert(c, [7]))
    await writer.aclose()
    assert [isinstance(result, StoreError) for result in results] == [True, True]
    assert later == [7]
    assert stored(tmp_path / "w.db") == [7]


async def test_a_lost_transaction_fails_every_unit(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """Where SQLite rolls everything back by itself, earlier units of the batch fail too."""
    connection.execute(
        "CREATE TRIGGER lose BEFORE INSERT ON t WHEN new.n = 13 "
        "BEGIN SELECT raise(ROLLBACK, 'lost'); END"
    )
    writer = Writer(connection, limit=100)
    writer.start()
    results = await run_together(writer, (insert, 1), (insert, 13), (insert, 2))
    later = await writer.run(lambda c: insert(c, [3]))
    await writer.aclose()
    assert all(isinstance(result, StoreError) for result in results)
    assert later == [3]
    assert stored(tmp_path / "w.db") == [3]


async def test_a_full_queue_holds_awaited_units_back(connection: sqlite3.Connection) -> None:
    """Beyond the bound an awaited unit does not enter until the writer has caught up."""
    writer = Writer(connection, limit=1)
    writer.start()
    gate = Gate(writer)
    gate.close()
    order: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def late() -> None:
            await writer.run(lambda c: order.append("ran"))

        tasks.start_soon(late)
        await anyio.lowlevel.checkpoint()
        assert writer.waiting == 1
        order.append("opened")
        await gate.open()
    await writer.aclose()
    assert order == ["opened", "ran"]


async def test_a_held_back_unit_can_be_cancelled(connection: sqlite3.Connection) -> None:
    """Cancelled before it entered, it leaves no trace."""
    writer = Writer(connection, limit=1)
    writer.start()
    gate = Gate(writer)
    gate.close()
    ran: list[int] = []
    with anyio.move_on_after(0):
        await writer.run(lambda c: ran.append(1))
    await gate.open()
    await writer.aclose()
    assert ran == []


async def test_an_accepted_unit_completes_though_cancelled(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """A cancelled caller gets its result; the cancellation is met at its next await."""
    writer = Writer(connection, limit=10)
    writer.start()
    with anyio.CancelScope() as scope:
        scope.cancel()
        result = await writer.run(lambda c: insert(c, [5]))
        assert result == [5]
        await anyio.lowlevel.checkpoint()
    await writer.aclose()
    assert scope.cancelled_caught
    assert stored(tmp_path / "w.db") == [5]


async def test_closing_runs_what_waits(connection: sqlite3.Connection, tmp_path: Path) -> None:
    """Units handed over before the close are durable and told after it."""
    writer = Writer(connection, limit=100)
    writer.start()
    results: list[object] = []
    for number in range(50):
        writer.post(insert, number, results.append)
    await writer.aclose()
    await writer.aclose()
    assert results == list(range(50))
    assert stored(tmp_path / "w.db") == list(range(50))


async def test_a_closed_writer_takes_nothing(connection: sqlite3.Connection) -> None:
    """After the close a unit is refused in its caller's own turn."""
    writer = Writer(connection, limit=100)
    writer.start()
    await writer.aclose()
    with pytest.raises(StoreError, match="closed"):
        writer.post(insert, 1, lambda _: None)
    with pytest.raises(StoreError, match="closed"):
        await writer.run(lambda c: None)


async def test_a_caller_that_fails_on_its_result_harms_nobody(
    connection: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """What a caller raises is logged; the others of the batch are told all the same."""
    writer = Writer(connection, limit=100)
    writer.start()
    results: list[object] = []

    def broken(result: object) -> None:
        raise RuntimeError("caller's own fault")

    writer.post(insert, 1, broken)
    writer.post(insert, 2, results.append)
    await writer.aclose()
    assert results == [2]
    assert "caller's own fault" in caplog.text

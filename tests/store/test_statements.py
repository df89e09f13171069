"""How many statements a write costs, whatever its size; an executemany counts once."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from contracts.talk import said
from world import draft

from mnemo import Mnemo, Repository, Session
from mnemo.errors import UsageError
from mnemo.log.sessions import Handed, append_steps
from mnemo.log.transcript import HandedWork, TranscriptWriter, write_together
from mnemo.runtime.clock import SystemClock
from mnemo.store.tx import Dialect, Result, Tx
from mnemo.testing import HashingEmbedder
from mnemo.values.derived import Thread
from mnemo.values.steps import Step

MOST_PER_COMMIT = 60
MOST_PER_BATCH = 10
MOST_PER_REMEMBERED = 175
"""Of 64 texts: 95 to 117, and up to 10 for each portion that a busy machine makes two of (of steps,
of a segment). One statement a text would be 64 more."""
MOST_PER_FED = 60
"""Of a portion of 64: 9, and up to 10 for each further part, as the writer may begin before all of
it is handed over. One statement a message would be 64 more."""


class CountingTx:
    """A transaction that keeps the statements run over it."""

    def __init__(self, tx: Tx, statements: list[str]) -> None:
        self._tx = tx
        self._statements = statements
        self.refusing = tx.refusing

    @property
    def dialect(self) -> Dialect:
        return self._tx.dialect

    def run(self, statement: str, *values: Any) -> Result:
        self._statements.append(statement)
        return self._tx.run(statement, *values)

    def run_many(self, statement: str, rows: Iterable[Any]) -> int:
        self._statements.append(statement)
        return self._tx.run_many(statement, rows)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        self._statements.append(f"INSERT INTO {table}")
        self._tx.insert(table, columns, rows)


@pytest.fixture(autouse=True)
def guarded_rows() -> None:
    """Nothing: to look for the owners of rows takes statements, too."""


@contextmanager
def counted(memory: Mnemo) -> Iterator[list[str]]:
    """The statements that the writer runs within the block."""
    writer = memory._store.engine._writer()  # type: ignore[union-attr]
    statements: list[str] = []
    plain, writer._tx = writer._tx, CountingTx(writer._tx, statements)
    yield statements
    writer._tx = plain


async def episode(repo: Repository, room: int) -> Session:
    session = await repo.start_session("find the kettles")
    for number in range(12):
        said = f"Ana{room} said the kettle {number} is in the blue kitchen of room {number + room}"
        await session.append(said, f"looked in room {number} and told Omar about colour {number}")
    return session


@pytest.mark.slow
async def test_a_commit_of_twelve_steps_costs_few_statements(path):
    """Also where it changes stored facts, and where something was forgotten before."""
    async with Mnemo(path, embedder=HashingEmbedder(64)) as memory:
        repo = await memory.open_repo("r")
        forgotten = await episode(repo, 7)
        await forgotten.close_and_commit()
        await repo.forget(session_id=forgotten.id)
        changing = []
        for room in range(8):
            session = await episode(repo, room)
            await session.close()
            await session.wait_for("ready")
            with counted(memory) as statements:
                await session.commit()
            if any("UPDATE nodes SET at" in statement for statement in statements):
                changing.append(statements)
        # The writer may do other work meanwhile: the least is what a commit costs.
        assert len(changing) > 1
        assert 15 < min(map(len, changing)) <= MOST_PER_COMMIT, changing


@pytest.mark.parametrize("count", [1, 33, 200])
async def test_a_batch_of_appends_costs_few_statements(kit, count):
    """To two sessions of one repository, with words and parts of words, whatever the size."""
    statements: list[str] = []
    for id in ("s", "t"):
        await kit.start(id)
    kit.store.sessions("r").append("s", "s-1", draft("the table is there 東京都"), kit.owner, print)

    def append(tx: Tx) -> list[Step | UsageError]:
        handed = [
            Handed("r", id, kit.owner.token, f"{id}-1", draft(f"kettle {n} 東京都"))
            for n in range(count)
            for id in ("s", "t")
        ]
        return append_steps(CountingTx(tx, statements), handed, clock=SystemClock())

    steps = await kit.store.engine.writing(append)  # type: ignore[attr-defined]
    assert [step.index for step in steps[1::2]] == list(range(count))
    assert len(statements) <= MOST_PER_BATCH, statements


@pytest.mark.parametrize("count", [1, 33, 64])
async def test_appends_of_many_callers_cost_few_statements(kit, count):
    """To a thread each of one repository: they are written as one."""
    statements: list[str] = []
    clock = SystemClock()

    def append(tx: TranscriptWriter, thread: str) -> None:
        tx.add([said(tx.thread(thread).next_seq, "the kettle 東京都", thread=thread)])
        tx.keep(Thread(id=thread, next_seq=1))

    def write(tx: Tx) -> None:
        handed = [
            HandedWork("r", id, partial(append, thread=id), clock, lambda tx: clock.now())
            for id in (f"thread {n}" for n in range(count))
        ]
        write_together(CountingTx(tx, statements), handed)

    await kit.store.engine.writing(write)  # type: ignore[attr-defined]
    statements.clear()
    await kit.store.engine.writing(write)
    assert len(statements) <= MOST_PER_BATCH, statements


async def test_what_is_remembered_together_costs_few_statements(path):
    """Stored, made steps, extracted and committed; and a thread that is fed to a session."""
    texts = [f"The kettle {n} is in room {n} of the blue house." for n in range(64)]
    async with Mnemo(path, embedder=HashingEmbedder(64)) as memory:
        repo = await memory.open_repo("r")
        with counted(memory) as statements:
            await repo.remember(texts, wait=True)
        assert len(statements) <= MOST_PER_REMEMBERED, statements
        thread, session = repo.conversation("t"), await repo.start_session("g")
        await thread.append([{"role": "user", "content": text} for text in texts])
        with counted(memory) as statements:
            await (await thread.feed(session, from_seq=0)).caught_up()
        assert len(statements) <= MOST_PER_FED, statements
        assert len(session.recent_steps(65)) == 64

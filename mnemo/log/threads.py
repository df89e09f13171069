"""Threads as rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from mnemo.store import tables
from mnemo.store.rows import Passed, chunks, holes, log_passed
from mnemo.store.tx import Tx
from mnemo.values.derived import Thread

_NUMBER = "SELECT no FROM threads WHERE repo = ? AND id = ?"
_ROWS = f"""
SELECT id, no, {", ".join(tables.THREADS.columns)} FROM threads WHERE repo = ? AND id IN ({{}})
"""
_ALL = f"{tables.THREADS.select} ORDER BY id"
_WATCHED = f"{tables.THREADS.select} AND budget_tokens IS NOT NULL ORDER BY id"


_PUTS_AT_ONCE = 32
"""Few sizes of a statement stay prepared (S)."""


@cache
def _put(count: int) -> str:
    return f"{tables.THREADS.upsert_of(count)} RETURNING id, no"


def thread_rows(tx: Tx, repo: int, ids: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Number and columns of the threads of *ids* that somebody wrote to, by id."""
    found: dict[str, Sequence[Any]] = {}
    for some in chunks(ids):
        rows = tx.run(_ROWS.format(holes(some)), (repo, *some))
        found.update((id, row) for id, *row in rows)
    return found


def put_threads(tx: Tx, repo: int, threads: Sequence[Thread]) -> dict[str, int]:
    """Write the rows of different threads; their numbers by id."""
    numbers: dict[str, int] = {}
    for start in range(0, len(threads), _PUTS_AT_ONCE):
        some = threads[start : start + _PUTS_AT_ONCE]
        values = [value for one in some for value in (repo, *tables.THREADS.values(one))]
        numbers.update(tx.run(_put(len(some)), values).fetchall())
    return numbers


def thread_number(tx: Tx, repo: int, id: str) -> int | None:
    """The thread's row number; ``None``: nobody wrote to it yet."""
    row = tx.run(_NUMBER, (repo, id)).fetchone()
    return None if row is None else int(row[0])


def read_thread(tx: Tx, repo: int, id: str) -> Thread:
    """The thread; of one that nobody wrote to, what it would begin with."""
    return tables.THREADS.get(tx, repo, id) or Thread(id=id)


def read_threads(tx: Tx, repo: int, *, watched: bool) -> list[Thread]:
    """All threads of the repository by id, or those with a budget; damaged ones are passed by."""
    query = _WATCHED if watched else _ALL
    passed: Passed = []
    found = tables.THREADS.rows.all(tx.run(query, (repo,)), passed)
    log_passed(passed)
    return found

"""Threads as rows."""

from __future__ import annotations

from mnemo.store import tables
from mnemo.store.damage import Passed, log_passed
from mnemo.store.tx import Tx
from mnemo.values.derived import Thread

__all__ = ["read_thread", "read_threads", "thread_number"]

_NUMBER = "SELECT no FROM threads WHERE repo = ? AND id = ?"
_ALL = f"{tables.THREADS.select} ORDER BY id"
_WATCHED = f"{tables.THREADS.select} AND budget_tokens IS NOT NULL ORDER BY id"


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

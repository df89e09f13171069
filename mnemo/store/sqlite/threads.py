"""Threads as rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from mnemo.store.sqlite.damage import Passed, Rows, log_passed
from mnemo.transcript.derived import Thread

__all__ = ["THREADS", "keep_thread", "read_thread", "read_threads", "thread_number"]

_COLUMNS = """id, next_seq, epoch, epoch_start, boundary, budget_tokens, ttl_s, next_goal,
    declined_to"""
_NUMBER = "SELECT no FROM threads WHERE repo = ? AND id = ?"
_READ = f"SELECT {_COLUMNS} FROM threads WHERE repo = ? AND id = ?"
_READ_ALL = f"SELECT {_COLUMNS} FROM threads WHERE repo = ? ORDER BY id"
_READ_WATCHED = f"""
SELECT {_COLUMNS} FROM threads WHERE repo = ? AND budget_tokens IS NOT NULL ORDER BY id
"""
_KEEP = f"""
INSERT INTO threads (repo, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (repo, id) DO UPDATE SET
    next_seq = excluded.next_seq, epoch = excluded.epoch, epoch_start = excluded.epoch_start,
    boundary = excluded.boundary, budget_tokens = excluded.budget_tokens,
    ttl_s = excluded.ttl_s, next_goal = excluded.next_goal,
    declined_to = excluded.declined_to
"""


def thread_number(connection: sqlite3.Connection, repo: int, id: str) -> int | None:
    """The thread's row number; ``None``: nobody wrote to it yet."""
    row = connection.execute(_NUMBER, (repo, id)).fetchone()
    return None if row is None else int(row[0])


def keep_thread(connection: sqlite3.Connection, repo: int, thread: Thread) -> None:
    """Insert the thread's row, or replace all that it says."""
    values = (thread.next_seq, thread.epoch, thread.epoch_start, thread.boundary)
    settings = (thread.budget_tokens, thread.ttl_s, thread.next_goal, thread.declined_to)
    connection.execute(_KEEP, (repo, thread.id, *values, *settings))


def read_thread(connection: sqlite3.Connection, repo: int, id: str) -> Thread:
    """The thread; of one that nobody wrote to, what it would begin with."""
    row = connection.execute(_READ, (repo, id)).fetchone()
    return Thread(id=id) if row is None else THREADS.one(row)


def read_threads(connection: sqlite3.Connection, repo: int, *, watched: bool) -> list[Thread]:
    """All threads of the repository by id, or those with a budget; damaged ones are passed by."""
    query = _READ_WATCHED if watched else _READ_ALL
    passed: Passed = []
    found = THREADS.all(connection.execute(query, (repo,)), passed)
    log_passed(passed)
    return found


def _thread(row: Sequence[Any]) -> Thread:
    id, next_seq, epoch, epoch_start, boundary, budget_tokens, ttl_s, next_goal, declined_to = row
    return Thread(
        id=id,
        next_seq=next_seq,
        epoch=epoch,
        epoch_start=epoch_start,
        boundary=boundary,
        budget_tokens=budget_tokens,
        ttl_s=ttl_s,
        next_goal=next_goal,
        declined_to=declined_to,
    )


THREADS = Rows("threads", "s i i i i i? f? i i", _thread)
"""Threads of rows with the columns of ``threads`` from the id on."""

"""Jobs as rows, and the leases of owners."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from mnemo.errors import StoreCorrupt
from mnemo.runtime.clock import new_id
from mnemo.store.rows import Rows, log_passed
from mnemo.store.tables import JOBS
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_time, utc_text
from mnemo.values.jobs import Job, JobLevels, JobState
from mnemo.values.journal import Owner

LeaseTime: TypeAlias = Callable[[Tx], datetime]
"""Gives the time, aware, that leases and due times of jobs are measured by, on all machines."""

_INSERT = """
INSERT INTO owners (token, host, pid, started, lease_until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (token) DO UPDATE SET lease_until = excluded.lease_until
"""
_FIND = "SELECT host, pid, started, lease_until FROM owners WHERE token = ?"
_OTHERS = "SELECT token, host, pid, started, lease_until, token FROM owners WHERE host = ?"
_OWNERS = Rows("owners", "s s i i f", lambda row: (*row[1:],))
_RELEASE = "UPDATE sessions SET owner = NULL WHERE owner = ?"
_DELETE = "DELETE FROM owners WHERE token = ?"


class OpenService:
    """A service of this process that messages can name; known as long as this object is held."""

    _known: ClassVar[WeakValueDictionary[str, OpenService]] = WeakValueDictionary()

    def __init__(self, owner: Owner, place: str, since: datetime) -> None:
        self._place, self._since = place, since
        self._known[owner.token] = self

    def __str__(self) -> str:
        since = self._since.astimezone(UTC)
        return f"{self._place}, since {since:%Y-%m-%d %H:%M:%S} UTC"

    @classmethod
    def of(cls, token: str) -> OpenService | None:
        """The one of this process that has *token*."""
        return cls._known.get(token)


def register(tx: Tx, owner: Owner, *, now: datetime, lease_s: float) -> None:
    """Enter *owner*, or prolong its lease, until *lease_s* seconds from *now*."""
    until = now.timestamp() + lease_s
    tx.run(_INSERT, (owner.token, owner.host, owner.pid, owner.started, until))


def unregister(tx: Tx, token: str) -> None:
    """Give up all sessions of *token* and forget it."""
    tx.run(_RELEASE, (token,))
    tx.run(_DELETE, (token,))


def still_owns(tx: Tx, token: str, *, me: Owner, now: datetime) -> bool:
    """
    Whether the holder *token* of a session keeps it from *me*.

    Dead here: no. Another running process here: yes. Otherwise: as long as its lease runs.
    """
    row = tx.run(_FIND, (token,)).fetchone()
    if row is None:
        return False
    host, pid, started, lease_until = _OWNERS.one((token, *row))
    if host == me.host and pid != me.pid:
        alive = is_alive(pid, started)
        if alive is not None:
            return alive
    if host == me.host and pid == me.pid and started != me.started:
        return False
    return bool(now.timestamp() < lease_until)


def holder_named(tx: Tx, token: str, me: Owner) -> str:
    """Name the service *token*, as *me* knows it, for messages to people."""
    row = tx.run(_FIND, (token,)).fetchone()
    if row is None:
        return "another service"
    host, pid, *_ = _OWNERS.one((token, *row))
    if host != me.host:
        return f"a live process of the machine {host.partition('/')[0]!r}"
    if pid == me.pid:
        known = OpenService.of(token)
        which = f" ({known})" if known else ""
        return f"another Mnemo that this process has open{which}: close it, or use its session"
    return f"another live process (pid {pid})"


def forget_the_dead(tx: Tx, me: Owner) -> None:
    """Release what processes owned that died on this host."""
    rows = tx.run(_OTHERS, (me.host,)).fetchall()
    for _, pid, started, _, token in _OWNERS.intact(rows):
        same = (pid, started) == (me.pid, me.started)
        if not same and is_alive(pid, started) is False:
            unregister(tx, token)


# ── Processes ────────────────────────────────────────────────────────────────────────

_ENDED = frozenset("ZXx")
_STOPPED = frozenset("Tt")


def new_owner() -> Owner:
    """An owner for a service that this process opens; unique even within it."""
    boot, space, pid = "", "", os.getpid()
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    # Where a process id means something: the machine, its boot and the process space.
    host = "/".join((platform.node(), boot, space))
    return Owner(token=new_id("owner"), host=host, pid=pid, started=_seen(pid)[1] or 0)


def _seen(pid: int) -> tuple[str, int | None]:
    """State of process *pid*, and when it started; ``None``: there is none alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", None
    # The name before the last bracket may hold anything, blanks and brackets included.
    fields = stat.rpartition(")")[2].split()
    return fields[0], None if fields[0] in _ENDED else int(fields[19])


def is_alive(pid: int, started: int) -> bool | None:
    """
    Whether the process of this host is the one that was recorded; ``None`` if unknowable.

    One that is stopped may go on at any time, or never: unknowable. *started* is as recorded in
    its ``Owner``; 0 if its system could not tell.
    """
    if sys.platform == "linux" and started:
        state, began = _seen(pid)
        return None if began == started and state in _STOPPED else began == started
    if sys.platform == "win32":
        # There a signal 0 is not a question.
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# ── Jobs as rows ──────────────────────────────────────────────────────────────────


# ``$by``: thousands of jobs that are done must not be looked at.
_OF_STATE = f"""
SELECT {", ".join(JOBS.columns)} FROM jobs $by(jobs_pending)
WHERE repo = ? AND state = ? AND state <> 'done'
"""
PENDING = """
SELECT 1 FROM jobs $by(jobs_pending)
WHERE repo = ? AND state IN ('waiting', 'running') AND state <> 'done' LIMIT 1
"""
_BACKLOG = """
SELECT r.id, j.state, count(*), sum(CASE WHEN j.state = 'dead' THEN 0
ELSE coalesce(t.next_seq - t.extracted_seq, 0) END), min(CASE WHEN j.state <> 'dead' THEN (
SELECT m.recorded_at FROM messages m WHERE m.repo = t.repo AND m.thread = t.no
AND m.seq >= t.extracted_seq ORDER BY m.seq LIMIT 1) END)
FROM jobs j $by(jobs_pending) JOIN repos r ON r.no = j.repo
LEFT JOIN threads t ON t.repo = j.repo AND t.id = j.subject AND j.kind = 'extract'
WHERE j.state <> 'done' AND j.kind <> 'embed'
"""
_BY_STATE = " GROUP BY r.id, j.state"
_OWING = """
SELECT r.id, j.owner, j.kind, min(j.due_at) AS first FROM jobs j $by(jobs_due)
JOIN repos r ON r.no = j.repo WHERE j.state = 'running' AND j.state <> 'done'
GROUP BY r.id, j.owner, j.kind UNION ALL
SELECT r.id, j.owner, j.kind, min(j.due_at) AS first FROM jobs j $by(jobs_due)
JOIN repos r ON r.no = j.repo WHERE j.state = 'waiting' AND j.state <> 'done' AND j.due_at <= ?
GROUP BY r.id, j.owner, j.kind ORDER BY 4, 1
"""
MOST_SOON = 100
"""Jobs that fall due next, of all repositories, that a look reads (S)."""
_SOON = f"""
SELECT r.id, j.due_at FROM (
SELECT repo, due_at FROM jobs $by(jobs_due)
WHERE state = 'waiting' AND state <> 'done' AND due_at > ? ORDER BY due_at LIMIT {MOST_SOON}
) j JOIN repos r ON r.no = j.repo ORDER BY j.due_at
"""
_CLAIMS = Rows("jobs", "s s? s", lambda row: (row[0], row[1], row[2]))
_LEVELS = Rows("jobs", "s s i i s?", lambda row: (row[0], _level(*row[1:])))


def find_jobs(
    tx: Tx, repo: int, state: JobState, *, due: datetime | None, limit: int | None
) -> list[Job]:
    """Jobs in *state* by the time when they are due; damaged ones are passed by."""
    query, values = _OF_STATE, [repo, str(state)]
    if due is not None:
        query, values = query + " AND due_at <= ?", [*values, utc_text(due)]
    query += " ORDER BY due_at, subject"
    if limit is not None:
        query, values = query + " LIMIT ?", [*values, limit]
    return JOBS.rows.intact(tx.run(query, values))


class Owing(NamedTuple):
    """
    Repositories with a job to claim, the longest due first; *soon*: those of the next
    ``MOST_SOON`` jobs, and in how many seconds each is due; *are_claimed*: others run some.
    """

    repos: Sequence[str]
    soon: Sequence[tuple[str, float]]
    are_claimed: bool = False


def owing(tx: Tx, me: Owner, *, kinds: Collection[str] | None, now: datetime) -> Owing:
    """What *me* could claim now, in all repositories of the store; its cost is of that alone."""
    held: dict[str | None, bool] = {None: False, me.token: False}
    found: dict[str, None] = {}
    for id, owner, kind in _CLAIMS.intact(tx.run(_OWING, (utc_text(now),)).fetchall()):
        if owner not in held:
            held[owner] = is_held_by(tx, owner, me=me, now=now)
        if not held[owner] and (kinds is None or kind in kinds):
            found[id] = None
    rows = tx.run(_SOON, (utc_text(now),)).fetchall()
    soon = [(id, _seconds_until(due_at, now)) for id, due_at in rows]
    return Owing(tuple(found), soon, any(held.values()))


def _seconds_until(due: Any, now: datetime) -> float:
    """Of a stored time; a damaged one never comes."""
    with suppress(TypeError, ValueError):
        if due is not None:
            return (decode_time(due) - now).total_seconds()
    return math.inf


def is_held_by(tx: Tx, token: str, *, me: Owner, now: datetime) -> bool:
    """
    Whether the service *token* keeps its claims from *me*. One whose row is damaged does not: the
    job's token refuses what it may still write.
    """
    try:
        return still_owns(tx, token, me=me, now=now)
    except StoreCorrupt as damage:
        log_passed([damage])
        return False


def backlog(tx: Tx, repo: int | None = None) -> dict[str, JobLevels]:
    """
    What repositories owe, by id, or *repo* alone; without errors, and without the jobs that embed:
    of these the index counts the texts. Damaged rows are passed by.
    """
    one, values = (" AND j.repo = ?", (repo,)) if repo is not None else ("", ())
    rows = tx.run(_BACKLOG + one + _BY_STATE, values).fetchall()
    found: dict[str, JobLevels] = {}
    for id, level in _LEVELS.intact(rows):
        found[id] = found.get(id, JobLevels()) + level
    return found


def _level(state: str, count: int, messages: int, oldest: str | None) -> JobLevels:
    levels: dict[str, Any] = {JobState(state).value: count}
    oldest_at = None if oldest is None else decode_time(oldest)
    return JobLevels(**levels, messages=messages, oldest_at=oldest_at)

"""Who runs this service, and whether somebody else who owned a session still does."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from datetime import datetime
from pathlib import Path

from mnemo._ids import new_id
from mnemo.episode.journal import Owner

__all__ = ["forget_the_dead", "new_owner", "register", "renew", "still_owns", "unregister"]

_INSERT = """
INSERT INTO owners (token, host, pid, started, lease_until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (token) DO UPDATE SET lease_until = excluded.lease_until
"""
_FIND = "SELECT host, pid, started, lease_until FROM owners WHERE token = ?"
_OTHERS = "SELECT token, host, pid, started FROM owners WHERE host = ?"
_RELEASE = "UPDATE sessions SET owner = NULL WHERE owner = ?"
_DELETE = "DELETE FROM owners WHERE token = ?"

_ENDED = frozenset("ZXx")


def new_owner() -> Owner:
    """An owner for a service that this process opens; unique even within it."""
    pid = os.getpid()
    return Owner(token=new_id("owner"), host=_host(), pid=pid, started=_started(pid) or 0)


def _host() -> str:
    """The machine, its boot and the process space: where a process id means something."""
    return "/".join((platform.node(), _boot(), _process_space()))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _process_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """When process *pid* started, in the system's ticks; ``None`` if there is none alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before the last bracket may hold anything, blanks and brackets included.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else int(fields[19])


def is_alive(pid: int, started: int) -> bool | None:
    """
    Whether the process of this host is the one that was recorded; ``None`` if unknowable.
    """
    if sys.platform == "linux" and started:
        return _started(pid) == started
    if sys.platform == "win32":
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def register(
    connection: sqlite3.Connection, owner: Owner, *, now: datetime, lease_s: float
) -> None:
    """Enter *owner*, or prolong its lease, until *lease_s* seconds from *now*."""
    until = now.timestamp() + lease_s
    connection.execute(_INSERT, (owner.token, owner.host, owner.pid, owner.started, until))


renew = register


def unregister(connection: sqlite3.Connection, token: str) -> None:
    """Give up all sessions of *token* and forget it."""
    connection.execute(_RELEASE, (token,))
    connection.execute(_DELETE, (token,))


def still_owns(connection: sqlite3.Connection, token: str, *, me: Owner, now: datetime) -> bool:
    """
    Whether the holder *token* of a session keeps it from *me*.

    Dead on this host: no. Another process alive on this host: yes. Elsewhere, or
    another service of this very process: as long as its lease runs.
    """
    row = connection.execute(_FIND, (token,)).fetchone()
    if row is None:
        return False
    host, pid, started, lease_until = row
    if host == me.host and pid != me.pid:
        alive = is_alive(pid, started)
        if alive is not None:
            return alive
    if host == me.host and pid == me.pid and started != me.started:
        return False
    return bool(now.timestamp() < lease_until)


def forget_the_dead(connection: sqlite3.Connection, me: Owner) -> None:
    """Release what processes owned that died on this host."""
    for token, _, pid, started in connection.execute(_OTHERS, (me.host,)).fetchall():
        same = (pid, started) == (me.pid, me.started)
        if not same and is_alive(pid, started) is False:
            unregister(connection, token)

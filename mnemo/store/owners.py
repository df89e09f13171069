"""The register of running services, and whether one of them still holds a session."""

from __future__ import annotations

from datetime import datetime

from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.processes import is_alive
from mnemo.store.tx import Tx
from mnemo.values.journal import Owner

__all__ = ["forget_the_dead", "register", "still_owns", "unregister"]

_INSERT = """
INSERT INTO owners (token, host, pid, started, lease_until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (token) DO UPDATE SET lease_until = excluded.lease_until
"""
_FIND = "SELECT host, pid, started, lease_until FROM owners WHERE token = ?"
_OTHERS = "SELECT token, host, pid, started, lease_until, token FROM owners WHERE host = ?"
_OWNERS = Rows("owners", "s s i i f", lambda row: (*row[1:],))
_RELEASE = "UPDATE sessions SET owner = NULL WHERE owner = ?"
_DELETE = "DELETE FROM owners WHERE token = ?"


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

    Dead on this host: no. Another process alive on this host: yes. Elsewhere, or
    another service of this very process: as long as its lease runs.
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


def forget_the_dead(tx: Tx, me: Owner) -> None:
    """Release what processes owned that died on this host."""
    passed: Passed = []
    rows = tx.run(_OTHERS, (me.host,)).fetchall()
    for _, pid, started, _, token in _OWNERS.all(rows, passed):
        same = (pid, started) == (me.pid, me.started)
        if not same and is_alive(pid, started) is False:
            unregister(tx, token)
    log_passed(passed)

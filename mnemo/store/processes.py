"""Processes: how a running service names itself, and whether another one still lives."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from mnemo.runtime.ids import new_id
from mnemo.values.journal import Owner

__all__ = ["is_alive", "new_owner"]

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

    Args:
        started: As recorded in its ``Owner``; 0 if its system could not tell.
    """
    if sys.platform == "linux" and started:
        return _started(pid) == started
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

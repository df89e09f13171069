"""A worker: opens the repositories of a store that have jobs, and closes them again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mnemo.errors import MnemoError, NotFound
from mnemo.jobs.slots import JobSlots
from mnemo.protocols import Clock
from mnemo.runtime.tasks import CancelHandle
from mnemo.runtime.text import is_blank
from mnemo.runtime.user_code import called, traceback_of
from mnemo.values.jobs import JOB_KINDS, JobKind, WorkerStatistics

log = logging.getLogger("mnemo")

MOST_OPEN = 16
"""Repositories that are open for their jobs at once (S)."""
TURN_S = 30.0
"""Seconds after which an open repository makes room for one that waits (S)."""
LINGER_S = 5.0
"""Seconds that a repository without jobs stays open; more may come (S)."""
REFUSED_S = 60.0
"""Seconds after which a repository that could not be opened is tried again (S)."""


@dataclass(slots=True)
class _Open:
    """When a repository was opened, and when it last had a job."""

    since: float
    busy_at: float


class Worker:
    """
    Works off the jobs of many repositories; see ``Mnemo.work``.

    Args:
        owing: Ids of the repositories with a job of these kinds that is due.
        open_repo: Opens one, which then works its jobs off; False: it is open already.
        close_repo: Closes one; what runs there gets its time.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        poll_s: float,
        slots: JobSlots,
        owing: Callable[[Collection[JobKind] | None], Awaitable[list[str]]],
        open_repo: Callable[[str], Awaitable[bool]],
        close_repo: Callable[[str], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._poll_s = poll_s
        self._slots = slots
        self._owing = owing
        self._open_repo = open_repo
        self._close_repo = close_repo
        self._open: dict[str, _Open] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        self._nap = CancelHandle()
        slots.wakeful.add(self)

    def wake(self) -> None:
        """Look for jobs now; a plain call."""
        self._nap.cancel()

    async def run(
        self,
        pattern: str,
        kinds: Sequence[JobKind] | None,
        on_look: Callable[[WorkerStatistics], Any] | None,
    ) -> None:
        """Look for jobs again and again; see ``Mnemo.work``."""
        if not isinstance(pattern, str) or is_blank(pattern):
            raise ValueError(f"repos must be a pattern of ids, such as '*', not {pattern!r}")
        with self._slots.working(_checked(kinds)):
            while True:
                self._nap = nap = CancelHandle()
                await self._look(pattern)
                if on_look is not None:
                    await self._report(on_look)
                with nap:
                    await self._clock.sleep(self._poll_s)

    async def _look(self, pattern: str) -> None:
        try:
            owing = await self._owing(self._slots.kinds)
        except MnemoError as error:
            log.warning("repositories with jobs are looked for again: %s", error)
            return
        due = [id for id in owing if fnmatchcase(id, pattern)]
        now = self._clock.monotonic()
        for id, opened in self._open.items():
            if id in due or self._slots.busy[id]:
                opened.busy_at = now
        waiting = [id for id in due if id not in self._open and not self._is_refused(id, now)]
        await self._make_room(now, len(waiting))
        for id in waiting[: MOST_OPEN - len(self._open)]:
            await self._enter(id, now)

    async def _make_room(self, now: float, wanted: int) -> None:
        """Close what has no jobs and, where others wait, what has had its turn."""
        missing = wanted - (MOST_OPEN - len(self._open))
        for id, opened in sorted(self._open.items(), key=lambda item: item[1].since):
            had_turn = missing > 0 and now - opened.since >= TURN_S
            if had_turn or now - opened.busy_at >= LINGER_S:
                missing -= 1
                del self._open[id]
                with suppress(NotFound):  # somebody else has closed it
                    await self._close_repo(id)

    async def _enter(self, id: str, now: float) -> None:
        try:
            opened = await self._open_repo(id)
        except MnemoError as error:
            log.warning("the jobs of repository %r are left to others: %s", id, error)
            self._refused[id] = (now, str(error))
            return
        if opened:
            self._open[id] = _Open(since=now, busy_at=now)

    def _is_refused(self, id: str, now: float) -> bool:
        if id in self._refused and now - self._refused[id][0] >= REFUSED_S:
            del self._refused[id]
        return id in self._refused

    async def _report(self, on_look: Callable[[WorkerStatistics], Any]) -> None:
        slots = self._slots
        found = WorkerStatistics(
            repos=tuple(sorted(self._open)),
            running=slots.running,
            done=slots.done,
            failed=slots.failed,
            refused={id: why for id, (_, why) in self._refused.items()},
        )
        try:
            await called(on_look, found)
        except Exception as error:
            log.error("on_look of a worker failed: %s", error, exc_info=traceback_of(error))


def _checked(kinds: Sequence[JobKind] | None) -> frozenset[JobKind] | None:
    if kinds is None:
        return None
    if isinstance(kinds, str):
        raise ValueError(f"kinds must be a list, not one text: give [{kinds!r}]")
    if unknown := [kind for kind in kinds if kind not in JOB_KINDS]:
        raise ValueError(f"there are no jobs of kind {unknown[0]!r}, only {', '.join(JOB_KINDS)}")
    return frozenset(kinds)

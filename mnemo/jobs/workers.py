"""The look for jobs of all repositories of a store, and the worker that opens what owes some."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Never

import anyio

from mnemo.errors import MnemoError, NotFound, UsageError
from mnemo.jobs.job_rows import MOST_SOON, Owing
from mnemo.jobs.slots import JobSlots
from mnemo.protocols import Clock
from mnemo.runtime.tasks import CancelHandle
from mnemo.runtime.text import is_blank
from mnemo.runtime.user_code import called, traceback_of
from mnemo.values.jobs import JOB_KINDS, JobKind, WorkerStatistics

log: logging.Logger = logging.getLogger("mnemo")

LEAST_S = 0.1
"""Seconds between two looks, at least, where nobody here asks for one (S)."""
OWING_PER_S = 50_000
"""Repositories that owe jobs, of others mostly, that are read per second, at most (S)."""
RARELY = 5
"""Looks that are left out where others tell of their writes and nothing runs or is due (S)."""


@dataclass(eq=False, kw_only=True)
class Poller:
    """
    Looks for jobs of all repositories, as often as the most impatient that is open asks for, or one
    of here falls due, and has those that are open here claim theirs. *owing*: As of the store.
    """

    clock: Clock
    slots: JobSlots
    owing: Callable[[Collection[JobKind] | None], Awaitable[Owing]]
    is_told: Callable[[], bool] = lambda: False
    """Whether other processes tell of jobs that they write, so that looks may be rare."""
    begun: int = field(default=0, init=False)
    """Looks begun so far."""
    _found: tuple[int, Sequence[str]] = field(default=(0, ()), init=False)
    _ended: bool = field(default=False, init=False)
    _looked: anyio.Event = field(default_factory=anyio.Event, init=False)
    _nap: CancelHandle = field(default_factory=CancelHandle, init=False)
    _rest: CancelHandle = field(default_factory=CancelHandle, init=False)

    def __post_init__(self) -> None:
        self.slots.look, self.slots.look_soon = self.poke, self.hint

    def poke(self) -> None:
        """Look now; a plain call."""
        self._nap.cancel()

    def hint(self) -> None:
        """Look, but not within ``LEAST_S`` after the last look began; a plain call."""
        self._rest.cancel()

    async def run(self) -> Never:
        """Look again and again. *Cancellation*: safe; who waits for a look is told."""
        try:
            await self._look_for_ever()
        finally:
            self._ended = True
            self._looked.set()

    async def _look_for_ever(self) -> Never:
        while True:
            self._nap, self._rest = CancelHandle(), CancelHandle()
            began, least = self.clock.monotonic(), anyio.current_time() + LEAST_S
            pause_s = await self._look() if self.slots.poll_s < math.inf else math.inf
            # From before the look: if the clock has moved meanwhile, that is not slept again.
            with self._nap:
                with self._rest:
                    if pause_s < math.inf:
                        await self.clock.sleep(max(0.0, began + pause_s - self.clock.monotonic()))
                    else:
                        await anyio.sleep_forever()
                if self._rest.cancelled_caught:
                    await anyio.sleep_until(least)

    async def _look(self) -> float:
        """Look once; seconds until the next time."""
        self.begun = number = self.begun + 1
        try:
            owing = await self.owing(self.slots.kinds)
        except Exception as error:
            # Whatever it is: without looks, no repository of the service hears of others' jobs.
            trace = traceback_of(error)
            log.warning("repositories with jobs are looked for again: %s", error, exc_info=trace)
            owing = Owing((), ())
        self.slots.wake(owing.repos)
        self._found = number, owing.repos
        self._looked.set()
        self._looked = anyio.Event()
        next_s = max(LEAST_S, self._next_s(owing.soon))
        # A worker's looks tell that it lives; whoever claimed jobs may die without a word.
        is_quiet = not (owing.repos or owing.are_claimed or self.slots.works)
        pause_s = self.slots.poll_s * (RARELY if is_quiet and self.is_told() else 1)
        return max(min(pause_s, next_s), len(owing.repos) / OWING_PER_S)

    def _next_s(self, soon: Sequence[tuple[str, float]]) -> float:
        """Seconds until the first job that may be one of here."""
        rest_s = soon[-1][1] if len(soon) == MOST_SOON else math.inf
        return min((due_s for id, due_s in soon if self.slots.serves(id)), default=rest_s)

    async def found_since(self, number: int) -> tuple[int, Sequence[str]]:
        """
        The last look after *number*: which, and what owed jobs then. *Raises* ``UsageError``: the
        service was closed. *Cancellation*: safe.
        """
        while self._found[0] <= number:
            if self._ended:
                raise UsageError("the service was closed while it worked")
            await self._looked.wait()
        return self._found


# ── The worker of many repositories ───────────────────────────────────────────────


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


@dataclass(eq=False, kw_only=True)
class Worker:
    """Works off the jobs that *poller* finds; *open_repo* gives False for what is open already."""

    clock: Clock
    poll_s: float
    slots: JobSlots
    poller: Poller
    open_repo: Callable[[str], Awaitable[bool]]
    close_repo: Callable[[str], Awaitable[None]]
    _open: dict[str, _Open] = field(default_factory=dict)
    _refused: dict[str, tuple[float, str]] = field(default_factory=dict)

    async def run(
        self,
        pattern: str,
        kinds: Sequence[JobKind] | None,
        on_look: Callable[[WorkerStatistics], Any] | None,
    ) -> None:
        """Look for jobs again and again; see ``Mnemo.work``."""
        if not isinstance(pattern, str) or is_blank(pattern):
            raise ValueError(f"repos must be a pattern of ids, such as '*', not {pattern!r}")
        seen = self.poller.begun
        with self.slots.working(_checked(kinds), self.poll_s):
            while True:
                seen, owing = await self.poller.found_since(seen)
                await self._turn([id for id in owing if fnmatchcase(id, pattern)])
                if on_look is not None:
                    await self._report(on_look)

    async def _turn(self, due: Collection[str]) -> None:
        """Open what is *due*, as far as there is room, and close what is done."""
        now = self.clock.monotonic()
        for id, opened in self._open.items():
            if id in due or self.slots.busy[id]:
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
                    await self.close_repo(id)

    async def _enter(self, id: str, now: float) -> None:
        try:
            opened = await self.open_repo(id)
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
        slots = self.slots
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

"""Background work: on demand, by key as single flights, and backoff between failed attempts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from mnemo.errors import StoreReadOnly, UsageError
from mnemo.runtime.tasks import Home, Places

log: logging.Logger = logging.getLogger("mnemo")

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Errand:
    """Runs *work* when poked, in a task that *spawn* starts; with nothing left there is none."""

    __slots__ = ("_due", "_running", "_spawn", "_work")

    def __init__(self, spawn: Callable[..., object], work: Callable[[], Awaitable[object]]) -> None:
        self._spawn = spawn
        self._work = work
        self._due = self._running = False

    def poke(self) -> None:
        """Have the work run soon; if it runs already, once more after that. A plain call."""
        self._due = True
        if not self._running:
            with suppress(UsageError):  # closed: what is due is found at the next start
                self._spawn(self._run)
                self._running = True

    async def _run(self) -> None:
        failed = False
        try:
            while self._due:
                self._due = False
                await self._work()
        except Exception:
            failed = True
            raise
        finally:
            self._running = False
            if failed and self._due:
                self.poke()


class _Flight(Generic[R]):
    """
    One run in progress, and whether another has to follow it. *begun*: it has started, and may have
    judged what is due; *next*: the run that followed it.
    """

    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.begun = False
        self.again = False
        self.next: _Flight[R] | None = None
        self.result: R | None = None
        self.error: Exception | None = None


class Flights(Generic[K, R]):
    """
    Runs work for keys: one run per key at a time, a bounded number in all.

    Triggers that come while a key's run is under way are merged into one more run after it.

    Args:
        run: What is done for a key. An exception is told to who joined, and logged as a
            failure unless it is the ``UsageError`` of a repository that closes, or the
            ``StoreReadOnly`` of a store that cannot be written.
        spawn: Starts a task; a plain call. Its tasks may be cancelled at any time.
        limit: Runs at once, over all keys.
    """

    def __init__(
        self, run: Callable[[K], Awaitable[R]], *, spawn: Callable[..., object], limit: int
    ) -> None:
        self._home = Home("the repository")
        self._run = run
        self._spawn = spawn
        self._places = Places(limit)
        self._flights: dict[K, _Flight[R]] = {}

    @property
    def under_way(self) -> int:
        """Keys whose work runs or waits for its turn."""
        return len(self._flights)

    def poke(self, key: K) -> None:
        """Have *key*'s work run soon; if it runs already, once more after that."""
        if key in self._flights:
            self._flights[key].again = True
        else:
            self._start(key)

    async def join(self, key: K) -> R:
        """
        Run *key*'s work now, or join the run that is under way; give that run's result.

        A run that had begun before the call may have looked for work too early: if it gave nothing
        (``None`` or 0), the run that follows it answers.

        *Raises* ``Exception``: what the run raised; ``UsageError``: the repository was closed
        before its end, or belongs to another event loop. *Cancellation*: safe; only the wait ends.
        """
        self._home.check()
        flight = self._flights.get(key) or self._start(key)
        early = flight.begun
        flight.again = flight.again or early
        result = await _ended(flight)
        if early and not result and flight.next is not None:
            result = await _ended(flight.next)
        return result  # type: ignore[return-value]

    async def settled(self, key: K) -> None:
        """Wait until nothing runs, or is to run, for *key*. *Cancellation*: safe."""
        while flight := self._flights.get(key):
            await flight.landed.wait()

    def _start(self, key: K) -> _Flight[R]:
        flight: _Flight[R] = _Flight()
        self._spawn(self._fly, key, flight)
        self._flights[key] = flight
        return flight

    async def _fly(self, key: K, flight: _Flight[R]) -> None:
        flight.error = UsageError("the repository was closed before this was done")
        try:
            async with self._places:
                flight.begun = True
                flight.result = await self._run(key)
            flight.error = None
        # Closed meanwhile, or nothing can be written: what is due is found at the next start.
        except (UsageError, StoreReadOnly) as error:
            log.info("background work on %r ends: %s", key, error)
            flight.error = error
        except Exception as error:
            log.exception("background work on %r failed", key)
            flight.error = error
        except BaseException:
            flight.again = False
            raise
        finally:
            del self._flights[key]
            flight.landed.set()
            if flight.again:
                with suppress(UsageError):  # closed meanwhile, likewise
                    flight.next = self._start(key)


async def _ended(flight: _Flight[R]) -> R | None:
    """The result of *flight*, once it has landed. *Raises* what the run raised."""
    await flight.landed.wait()
    if flight.error is not None:
        raise flight.error
    return flight.result


@dataclass(eq=False)
class Backoff:
    """Counts failures by key; waits *backoff_s* seconds before a retry, doubled each time."""

    sleep: Callable[[float], Awaitable[None]]
    spawn: Callable[..., object]
    backoff_s: float = field(kw_only=True)
    _failed: dict[Hashable, tuple[Hashable, int]] = field(default_factory=dict)
    _pauses: dict[Hashable, anyio.Event] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """Pieces of work that wait for their next attempt."""
        return len(self._pauses)

    def attempts(self, key: Hashable, about: Hashable) -> int:
        """Failed attempts at *key*'s work as far as it was about the same thing."""
        known, failed = self._failed.get(key, (None, 0))
        return failed if known == about else 0

    def failed(self, key: Hashable, about: Hashable) -> int:
        """Count one more; how many there are."""
        number = self.attempts(key, about) + 1
        self._failed[key] = (about, number)
        return number

    def done(self, key: Hashable) -> None:
        """Begin to count anew."""
        self._failed.pop(key, None)

    def holds(self, key: Hashable) -> bool:
        """Whether *key*'s work waits for its next attempt."""
        return key in self._pauses

    def begin(self, key: Hashable, then: Callable[[], None]) -> None:
        """Wait as long as the attempts so far ask for, then call *then*."""
        self.end(key)
        _, failed = self._failed.get(key, (None, 1))
        pause = self._pauses[key] = anyio.Event()
        self.spawn(self._wait, key, pause, self.backoff_s * 2 ** (failed - 1), then)

    def end(self, key: Hashable) -> None:
        """Do not wait any longer; nothing is called."""
        pause = self._pauses.pop(key, None)
        if pause is not None:
            pause.set()

    async def over(self, key: Hashable) -> None:
        """Wait until *key*'s work does not wait any more. *Cancellation*: safe."""
        while pause := self._pauses.get(key):
            await pause.wait()

    async def _wait(
        self, key: Hashable, pause: anyio.Event, seconds: float, then: Callable[[], None]
    ) -> None:
        try:
            await self.sleep(seconds)
            if self._pauses.get(key) is pause:
                del self._pauses[key]
                then()
        finally:
            if self._pauses.get(key) is pause:
                del self._pauses[key]
            pause.set()

"""
Store dialogues as sessions: one per talk, with one step per turn.

Safe to stop anywhere and to run again: sessions have derived ids and steps have keys,
so what is there is found, what is missing is added, and nothing is there twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import anyio
import anyio.to_thread

from mnemo import Conflict, Repository, Session, SessionError, SessionState, Step
from mnemo.cli.importing.dialogues import Talk, Turn
from mnemo.cli.importing.json_stream import ImportFileError
from mnemo.runtime.text import clean

AT_ONCE = 4
"""Sessions that are written side by side."""


@dataclass(slots=True)
class Tally:
    """
    What an import did: sessions begun, taken up again, and left as they were; steps.

    Attributes:
        problem: Where the file ended before its time.
    """

    new_sessions: int = 0
    resumed_sessions: int = 0
    complete_sessions: int = 0
    new_steps: int = 0
    known_steps: int = 0
    problem: ImportFileError | None = None


async def import_talks(
    repo: Repository, talks: Iterable[Talk], advance: Callable[[], None] = lambda: None
) -> Tally:
    """
    Append, close and commit *talks*, ``AT_ONCE`` at a time.

    Args:
        advance: Called once per turn that is in the memory.

    Raises:
        Conflict: A known key came with another text; the first stays.
        SessionBusy: Another process has one of the sessions open.
        ExtractionFailed: Of one session; its steps are kept.
            *Cancellation*: safe; the next import goes on.
    """
    known = {record.id: record.state for record in await repo.sessions()}
    work = _Import(repo, iter(talks), known, advance)
    try:
        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(work.run)
    except ExceptionGroup as failures:
        raise first_of(failures) from failures
    return work.tally


def first_of(failures: ExceptionGroup[Exception]) -> Exception:
    """The first error of a task group, at whatever depth."""
    error = failures.exceptions[0]
    return first_of(error) if isinstance(error, ExceptionGroup) else error


class _Import:
    """Talks that wait, read in a worker thread, and what became of those before."""

    def __init__(
        self,
        repo: Repository,
        waiting: Iterator[Talk],
        known: dict[str, SessionState],
        advance: Callable[[], None],
    ) -> None:
        self._repo = repo
        self._waiting = waiting
        self._known = known
        self._advance = advance
        self._reading = anyio.Lock()
        self._writing: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self.tally = Tally()

    async def run(self) -> None:
        """Store one talk after the other, until none waits."""
        while (talk := await self._next()) is not None:
            # The parts of a session come in order, and wait here for each other in that order.
            async with self._writing[talk.name]:
                await self._import_one(talk)

    async def _next(self) -> Talk | None:
        """The next talk; ``None`` behind the last one, and behind a mistake of the file."""
        async with self._reading:
            if self.tally.problem is not None:
                return None
            try:
                return await anyio.to_thread.run_sync(next, self._waiting, None)
            except ImportFileError as problem:
                self.tally.problem = problem
                return None

    async def _import_one(self, talk: Talk) -> None:
        id = f"{self._repo.id}/{talk.name}"
        if id in self._known or talk.continues:
            session = await self._repo.resume_session(id)
        else:
            session = await self._repo.start_session(talk.goal, session_id=id)
        try:
            added = await _complete(session, talk, self.tally, self._advance)
        finally:
            await session.aclose()
        if talk.continues:
            return
        if id not in self._known:
            self.tally.new_sessions += 1
        elif added or self._known[id] is not SessionState.IDLE:
            self.tally.resumed_sessions += 1
        else:
            self.tally.complete_sessions += 1


async def _complete(
    session: Session, talk: Talk, tally: Tally, advance: Callable[[], None]
) -> bool:
    """Bring *session* to hold all of *talk*, committed. Returns whether it lacked a step."""
    if session.state is not SessionState.COLLECTING:
        await _finish(session)
    lacked = False
    for turn in talk.turns:
        if await _add(session, talk, turn):
            tally.new_steps += 1
            lacked = True
        else:
            tally.known_steps += 1
        advance()
    await _finish(session)
    return lacked


async def _add(session: Session, talk: Talk, turn: Turn) -> bool:
    """Append *turn* unless its key is known. Returns whether it was new."""
    before = session.statistics().steps
    try:
        step = await _append(session, turn)
    except SessionError as error:
        if error.reason != "not_collecting":
            raise
        # The talk has grown since its session was committed.
        await session.start_episode(talk.goal)
        before = 0
        step = await _append(session, turn)
    if (step.observation, step.action) != (clean(turn.observation), clean(turn.action)):
        raise Conflict(
            f"session {session.id!r} holds another text under the key {turn.key!r}; "
            "the first one stays"
        )
    return session.statistics().steps > before


async def _append(session: Session, turn: Turn) -> Step:
    return await session.append(
        turn.observation, turn.action, at=turn.at, actor=turn.actor, key=turn.key
    )


async def _finish(session: Session) -> None:
    """Commit whatever *session* holds."""
    if session.state is SessionState.COLLECTING:
        await session.close_and_commit()
        return
    if session.state is SessionState.FAILED:
        await session.commit()
    state = await session.wait_for(SessionState.READY, SessionState.FAILED, SessionState.IDLE)
    if state is SessionState.READY:
        await session.commit()
    elif state is SessionState.FAILED and session.error is not None:
        raise session.error

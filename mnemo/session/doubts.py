"""
Writes in doubt: reconciliation with the journal where the store's answer was lost.

A store that fails a write may have made it all the same. The journal is read at once;
if it cannot be read either, the session stays in doubt and the next operation reads it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from mnemo.errors import StoreError
from mnemo.session.appends import AppendLane
from mnemo.session.book import EpisodeBook
from mnemo.session.machine import Lifecycle
from mnemo.session.parts import SessionParts
from mnemo.values.journal import Journal, SessionState
from mnemo.values.steps import Step

__all__ = ["Doubts"]


@dataclass(frozen=True, slots=True)
class _Act:
    """A failed act: its operation, the state it leads to, and its effect in memory."""

    operation: str
    leads_to: SessionState
    then: Callable[[], Any]


class Doubts:
    """
    Reconciles one session with its journal.

    Args:
        book: Gives the present episode.
        step_written: Takes over a step that the journal holds.
        repeat_commit: Repeats a commit that the journal holds, whose receipt was lost.
    """

    __slots__ = (
        "_act", "_appends", "_book", "_life", "_parts", "_repeat_commit", "_session_id",
        "_step_written", "_steps", "_turn",
    )  # fmt: skip

    def __init__(
        self,
        parts: SessionParts,
        session_id: str,
        life: Lifecycle,
        appends: AppendLane,
        *,
        book: Callable[[], EpisodeBook | None],
        step_written: Callable[[Step], None],
        repeat_commit: Callable[[], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._session_id = session_id
        self._life = life
        self._appends = appends
        self._book = book
        self._step_written = step_written
        self._repeat_commit = repeat_commit
        self._act: _Act | None = None
        self._steps = False
        self._turn = anyio.Lock()

    @property
    def any(self) -> bool:
        """Whether the journal may hold what the session does not know."""
        return self._steps or self._act is not None

    async def was_written(
        self, operation: str, leads_to: SessionState, then: Callable[[], None]
    ) -> bool:
        """
        Whether the journal holds an act that failed; False if it cannot be read.

        In that case *then* is called by the ``settle`` that finds the act.
        """
        try:
            journal = await self._journal()
        except StoreError:
            self._act = _Act(operation, leads_to, then)
            return False
        return journal is not None and journal.record.state is leads_to

    def commit_failed(self, error: Exception) -> None:
        """A commit of the episode failed with *error*; if the store did, it may be made."""
        if isinstance(error, StoreError):
            self._act = _Act("commit", SessionState.IDLE, lambda: None)

    def steps_missing(self) -> None:
        """The journal holds steps that the episode in memory lacks."""
        self._steps = True

    def append_failed(self) -> None:
        """Look for appends that failed, and answer them; a plain call."""
        self._parts.spawn(self._look_for_appends)

    async def _look_for_appends(self) -> None:
        lane = self._appends
        with anyio.CancelScope(shield=True):
            while failed := lane.take_failed():
                written: dict[str, Step] = {}
                try:
                    written = await self._written_steps()
                except StoreError:
                    self._steps = True
                finally:
                    for appending, error in failed:
                        appending.answer(written.get(appending.draft.node_id, error))

    async def _written_steps(self) -> dict[str, Step]:
        async with self._turn:
            journal = await self._journal()
            self._catch_up(journal)
            return {step.node_id: step for step in journal.steps} if journal else {}

    async def settle(self, operation: str) -> bool:
        """
        Read the journal and take over what it holds.

        Returns:
            Whether *operation* was the act in doubt, and is done.

        Raises:
            StoreError: The journal cannot be read; the doubt remains.
                *Cancellation*: safe.
        """
        if not self.any:
            return False
        async with self._turn:
            journal = await self._journal()
            self._catch_up(journal)
            if journal is None or self._life.closing:
                return False
            act, self._act = self._act, None
            if act is None or journal.record.state is not act.leads_to:
                return False
            if act.operation == "commit" and journal.record.state is SessionState.IDLE:
                # Its changeset's id gives the answer of the first time.
                if operation != "commit":
                    await self._repeat_commit()
                return False
            act.then()
            return operation == act.operation

    def _catch_up(self, journal: Journal | None) -> None:
        self._steps = False
        if journal is None:
            return
        book = self._book()
        if book is not None and journal.record.episode_id == book.id:
            for step in journal.steps[len(book.steps) :]:
                self._step_written(step)
        self._appends.learn(journal.keys)

    def _journal(self) -> Awaitable[Journal | None]:
        return self._parts.store.load(self._session_id)

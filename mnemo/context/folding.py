"""Snapshot folding in the background: several become one, a fallback is reworded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable

from mnemo.context.eviction import taken
from mnemo.context.eviction_due import Due
from mnemo.context.levels import (
    DueFold,
    Offer,
    commit_fold,
    commit_offer,
    decline,
    due_fold,
    first_paragraphs,
    offer,
)
from mnemo.context.runs import NoOutcome, Runs
from mnemo.conversation.settings import ConversationParts
from mnemo.events import Event
from mnemo.runtime.backoff import Backoff
from mnemo.values.derived import Origin, Snapshot

__all__ = ["Folding"]

REMEMBERED = 10_000
"""Refusals of a model that are remembered at most (S)."""


class Folding:
    """
    The levels of one repository's snapshots; called within a thread's single flight.

    Args:
        runs: Asks the model; ``None``: there is none, every text is by rule.
        backoff: Counts attempts, apart from those at evictions.
        publish: Tells what was committed.
        failed: Tells that a run brought nothing, and why.
    """

    def __init__(
        self,
        parts: ConversationParts,
        runs: Runs | None,
        backoff: Backoff,
        publish: Callable[[Iterable[Event]], None],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._parts = parts
        self._runs = runs
        self._backoff = backoff
        self._publish = publish
        self._failed = failed
        self._wanted: dict[str, Callable[[], None]] = {}
        self._refused: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def look_at(self, thread_id: str, again: Callable[[], None]) -> None:
        """
        See to the thread's snapshots when it is next followed.

        Args:
            again: Has the thread followed once more, after a wait.
        """
        self._wanted[thread_id] = again

    def keys(self, thread_id: str) -> tuple[Hashable, ...]:
        """Under which its attempts are counted."""
        return (_key(thread_id),)

    async def follow(self, thread_id: str) -> None:
        """
        Fold as long as something is due.

        Raises:
            StoreError: The store failed. *Cancellation*: safe.
        """
        config = self._parts.config
        again = self._wanted.pop(thread_id, None)
        while again is not None and not self._backoff.holds(_key(thread_id)):
            fold = await self._parts.store.reading(lambda tx: due_fold(tx, thread_id, config))
            if fold is None or fold.key in self._refused:
                return
            await self._fold(fold, again)

    async def offer(self, due: Due) -> None:
        """
        Have the newest fallback of the thread put into better words; a failure is told only.

        Raises:
            StoreError: The store failed. *Cancellation*: safe.
        """
        if self._runs is None:
            return
        config = self._parts.config
        refused = frozenset(ids[0] for ids in self._refused if len(ids) == 1)
        offered = await self._parts.store.reading(
            lambda tx: offer(tx, due, config, declined=refused)
        )
        if offered is not None:
            await self._reword(self._runs, offered)

    async def _reword(self, runs: Runs, offered: Offer) -> None:
        config = self._parts.config
        try:
            zone, verdict = await runs.evict(offered.due, attempt=1)
        except NoOutcome as error:
            self._failed(offered.snapshot.thread_id, error)
            return
        if verdict.kind != "snapshot" or zone.to_seq != offered.snapshot.to_seq:
            self._remember((offered.snapshot.id,))
            return
        better = await self._parts.store.writing(
            lambda tx: commit_offer(tx, offered, verdict, config)
        )
        if better is not None:
            self._tell(better)

    async def _fold(self, fold: DueFold, again: Callable[[], None]) -> None:
        thread_id, key = fold.thread.id, _key(fold.thread.id)
        if self._runs is None:
            await self._fold_by_rule(fold)
            return
        try:
            text = await self._runs.fold(fold.snapshots)
        except NoOutcome as error:
            self._failed(thread_id, error)
            failed = self._backoff.failed(key, fold.key)
            if not error.retryable or failed >= self._parts.config.viewport.max_attempts:
                await self._fold_by_rule(fold)
            else:
                self._wanted[thread_id] = again
                self._backoff.begin(key, again)
            return
        self._backoff.done(key)
        if text is None:
            await self._stay(fold)
        else:
            await self._commit(fold, text, "model")

    async def _fold_by_rule(self, fold: DueFold) -> None:
        self._backoff.done(_key(fold.thread.id))
        text = first_paragraphs(fold.snapshots, self._parts.config.viewport.snapshot_max_chars)
        await self._commit(fold, text, "fallback")

    async def _commit(self, fold: DueFold, text: str, origin: Origin) -> None:
        config = self._parts.config
        folded = await self._parts.store.writing(
            lambda tx: commit_fold(tx, fold, text, origin, config)
        )
        if folded is not None:
            self._parts.meter.ran("snapshot", "model" if origin == "model" else "embedded")
            self._tell(folded)

    async def _stay(self, fold: DueFold) -> None:
        config = self._parts.config
        self._remember(fold.key)
        await self._parts.store.writing(lambda tx: decline(tx, fold, config))

    def _remember(self, refused: tuple[str, ...]) -> None:
        self._refused[refused] = None
        while len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)

    def _tell(self, snapshot: Snapshot) -> None:
        self._publish([taken(self._parts.repo_id, self._parts.clock.now(), snapshot)])


def _key(thread_id: str) -> tuple[str, str]:
    return ("levels", thread_id)

"""Snapshot folding in the background: merge snapshots into level 2, reword fallback texts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from mnemo.config import Config
from mnemo.context.budget import Budget
from mnemo.context.eviction import (
    DueEviction,
    EvictionVerdict,
    attach_all,
    rewritten,
    still_there,
    taken,
)
from mnemo.context.runs import NoOutcome, Runs
from mnemo.context.zones import eviction_zone
from mnemo.conversation.scope import current_snapshots
from mnemo.conversation.settings import ConversationParts
from mnemo.events import Event
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.clock import new_id
from mnemo.runtime.flights import Backoff
from mnemo.runtime.text import clean
from mnemo.values.derived import Origin, Snapshot, Thread
from mnemo.values.digest import clipped
from mnemo.values.messages import StoredMessage
from mnemo.values.units import units_of

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
        Have ``follow`` look at the thread's snapshots next time.

        Args:
            again: Has the thread followed once more, after a wait.
        """
        self._wanted[thread_id] = again

    def keys(self, thread_id: str) -> tuple[Hashable, ...]:
        """Return the keys under which attempts for the thread are counted."""
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

    async def offer(self, due: DueEviction) -> None:
        """
        Have a model reword the newest fallback text; a failure is only published.

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


# ── Transactions: plain functions, none of which asks a model ─────────────────────────


@dataclass(frozen=True, slots=True)
class DueFold:
    """
    Snapshots that are due to be merged into one of level 2.

    Attributes:
        level: Theirs.
        snapshots: At least two, oldest first.
    """

    thread: Thread
    level: Literal[1, 2]
    snapshots: tuple[Snapshot, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The ids of the snapshots."""
        return tuple(snapshot.id for snapshot in self.snapshots)


def due_fold(tx: TranscriptReader, thread_id: str, config: Config) -> DueFold | None:
    """
    Find what to fold next: level 1 first, then level 2 where it exceeds its share.

    A model that wanted no level 2 is not asked again before as many snapshots are new as
    it takes to be asked at all.
    """
    thread = tx.thread(thread_id)
    if thread.budget_tokens is None:
        return None
    current = _current(tx, thread, config)
    for first in _runs_of_first(current):
        if sum(s.from_seq > thread.declined_to for s in first) >= config.viewport.l2_threshold:
            return DueFold(thread, 1, first)
    second = [s for s in current if s.level == 2]
    share = Budget.of(thread.budget_tokens, config.viewport).long_term
    if len(second) >= 2 and sum(s.token_count for s in second) > share:
        return DueFold(thread, 2, tuple(second[:2]))
    return None


def commit_fold(
    tx: TranscriptWriter, fold: DueFold, text: str, origin: Origin, config: Config
) -> Snapshot | None:
    """
    Insert one level-2 snapshot and mark those that it covers; they stay.

    Returns:
        ``None``: nothing was written; they are not what they were, or hidden already.
    """
    if not _unchanged(tx, fold, config):
        return None
    text = clean(text).strip()
    first, last = fold.snapshots[0], fold.snapshots[-1]
    folded = Snapshot(
        id=new_id("snapshot"),
        thread_id=fold.thread.id,
        epoch=fold.thread.epoch,
        level=2,
        from_seq=first.from_seq,
        to_seq=last.to_seq,
        text=text,
        token_count=config.conversation.count(text),
        origin=origin,
        at=tx.now,
        said_from=min(s.said_from for s in fold.snapshots),
        said_to=max(s.said_to for s in fold.snapshots),
    )
    tx.put(folded, *(replace(s, covered_by=folded.id) for s in fold.snapshots))
    return folded


def decline(tx: TranscriptWriter, fold: DueFold, config: Config) -> None:
    """Record that a model declined to merge these; of level 2 nothing is recorded."""
    if fold.level == 1 and _unchanged(tx, fold, config):
        thread = tx.thread(fold.thread.id)
        tx.keep(replace(thread, declined_to=fold.snapshots[-1].to_seq))


def first_paragraphs(snapshots: Sequence[Snapshot], max_chars: int) -> str:
    """The first paragraph of each text, a line break between them, each with its share."""
    share = max(1, (max_chars + 1) // len(snapshots) - 1)
    told = (s.text.strip().split("\n\n", 1)[0].rstrip() for s in snapshots)
    return clipped("\n".join(clipped(text, share) for text in told), max_chars)


@dataclass(frozen=True, slots=True)
class Offer:
    """
    A fallback snapshot that a model is asked to reword.

    Attributes:
        due: Its messages as what leaves, before the window as it is.
        messages: Of its range.
    """

    due: DueEviction
    snapshot: Snapshot
    messages: tuple[StoredMessage, ...]


def offer(
    tx: TranscriptReader,
    due: DueEviction,
    config: Config,
    *,
    declined: frozenset[str] = frozenset(),
) -> Offer | None:
    """
    Read the newest fallback that no level 2 covers, if its messages are still there.

    Args:
        due: The thread as it was last read, for its settings.
        declined: Ids of snapshots that a model left as they are.
    """
    thread = tx.thread(due.thread.id)
    fallbacks = [
        s
        for s in _current(tx, thread, config)
        if s.level == 1 and s.origin == "fallback" and s.id not in declined
    ]
    if not fallbacks or thread.epoch != due.thread.epoch:
        return None
    snapshot = fallbacks[-1]
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    messages = tx.messages(
        thread.id, from_seq=snapshot.from_seq, to_seq=snapshot.to_seq, since=since
    )
    window = tx.messages(thread.id, from_seq=thread.boundary, since=since)
    if not messages or not window:
        return None
    tokens = sum(message.tokens for message in messages)
    shown = replace(
        due,
        thread=replace(thread, boundary=snapshot.from_seq),
        budget=replace(due.budget, zone=tokens, window=0),
        since=since,
        now=tx.now,
        units=[*units_of(messages), *units_of(window)],
        deadline_s=0,
    )
    return Offer(shown, snapshot, tuple(messages)) if _is_its_zone(shown, snapshot) else None


def commit_offer(
    tx: TranscriptWriter, offered: Offer, verdict: EvictionVerdict, config: Config
) -> Snapshot | None:
    """
    Replace the fallback's text by the model's, and pin the messages that it links.

    Returns:
        ``None``: nothing was written; the snapshot or its messages are not what they were.
    """
    thread = tx.thread(offered.snapshot.thread_id)
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    if thread.epoch != offered.snapshot.epoch or offered.snapshot not in _current(
        tx, thread, config
    ):
        return None
    if not still_there(tx, offered.messages, since):
        return None
    count = config.conversation.count
    if not attach_all(tx, thread, verdict.links, since, count):
        return None
    better = rewritten(offered.snapshot, verdict.text, count)
    tx.put(better)
    return better


def _runs_of_first(current: Sequence[Snapshot]) -> list[tuple[Snapshot, ...]]:
    """Group the level-1 snapshots into runs that no level-2 snapshot interrupts."""
    ascending = sorted(current, key=lambda s: (s.from_seq, s.to_seq))
    runs = groupby(ascending, key=lambda s: s.level)
    return [tuple(run) for level, run in runs if level == 1]


def _current(tx: TranscriptReader, thread: Thread, config: Config) -> list[Snapshot]:
    """Read the snapshots that are neither covered nor expired, ascending."""
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    return current_snapshots(tx, thread, since)


def _unchanged(tx: TranscriptReader, fold: DueFold, config: Config) -> bool:
    thread = tx.thread(fold.thread.id)
    if thread.epoch != fold.thread.epoch:
        return False
    current = _current(tx, thread, config)
    return all(snapshot in current for snapshot in fold.snapshots)


def _is_its_zone(due: DueEviction, snapshot: Snapshot) -> bool:
    zone = eviction_zone(
        due.units, due.budget, from_seq=due.thread.boundary, now=due.now, deadline_s=0
    )
    return zone is not None and zone.to_seq == snapshot.to_seq

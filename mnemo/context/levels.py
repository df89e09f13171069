"""
Snapshot levels: the transactions that fold snapshots and replace fallback texts.

All of it is beside the eviction: it moves no boundary, and its failure concerns it alone.
Plain functions over a transaction; none of them asks a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from mnemo.config import Config
from mnemo.context.budget import Budget
from mnemo.context.eviction import Verdict, attach_all, rewritten, still_there
from mnemo.context.eviction_due import Due
from mnemo.context.zones import eviction_zone
from mnemo.conversation.scope import living_snapshots
from mnemo.protocols import TranscriptReader, TranscriptWriter
from mnemo.runtime.ids import new_id
from mnemo.runtime.text import clean
from mnemo.values.derived import Origin, Snapshot, Thread
from mnemo.values.digest import clipped
from mnemo.values.messages import StoredMessage
from mnemo.values.units import units_of

__all__ = [
    "DueFold",
    "Offer",
    "commit_fold",
    "commit_offer",
    "decline",
    "due_fold",
    "first_paragraphs",
    "offer",
]


@dataclass(frozen=True, slots=True)
class DueFold:
    """
    Snapshots that one of level 2 is to cover.

    Attributes:
        level: Theirs.
        snapshots: At least two, oldest first.
    """

    thread: Thread
    level: Literal[1, 2]
    snapshots: tuple[Snapshot, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Says which they are."""
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
    Put one level-2 snapshot in the place of others, which stay, hidden.

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
    """Remember that a model wants no level 2 of these; of level 2 nothing is remembered."""
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

    due: Due
    snapshot: Snapshot
    messages: tuple[StoredMessage, ...]


def offer(
    tx: TranscriptReader, due: Due, config: Config, *, declined: frozenset[str] = frozenset()
) -> Offer | None:
    """
    The newest fallback that no level 2 covers, if its messages can be shown once more.

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
    tx: TranscriptWriter, offered: Offer, verdict: Verdict, config: Config
) -> Snapshot | None:
    """
    Put the fallback into a model's words, and pin what it wants pinned.

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
    """The level-1 snapshots, apart where one of level 2 lies between."""
    ascending = sorted(current, key=lambda s: (s.from_seq, s.to_seq))
    runs = groupby(ascending, key=lambda s: s.level)
    return [tuple(run) for level, run in runs if level == 1]


def _current(tx: TranscriptReader, thread: Thread, config: Config) -> list[Snapshot]:
    """The snapshots that are not covered, and hold nothing that has expired, ascending."""
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    found = tx.all(Snapshot, thread.id, epoch=thread.epoch, live=True)
    return living_snapshots(tx, found, since)


def _unchanged(tx: TranscriptReader, fold: DueFold, config: Config) -> bool:
    thread = tx.thread(fold.thread.id)
    if thread.epoch != fold.thread.epoch:
        return False
    current = _current(tx, thread, config)
    return all(snapshot in current for snapshot in fold.snapshots)


def _is_its_zone(due: Due, snapshot: Snapshot) -> bool:
    zone = eviction_zone(
        due.units, due.budget, from_seq=due.thread.boundary, now=due.now, deadline_s=0
    )
    return zone is not None and zone.to_seq == snapshot.to_seq

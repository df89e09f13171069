"""
Eviction: moves the boundary of a window in one transaction with its outcome.

Plain functions over a transaction; none of them asks a model. Whatever was thought
about a range before is checked here against what the range is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mnemo.config import Config
from mnemo.context import pins
from mnemo.context.zones import Zone
from mnemo.events import Event, EvictionCompleted, SnapshotTaken
from mnemo.protocols import TranscriptReader, TranscriptWriter
from mnemo.runtime.ids import new_id
from mnemo.runtime.text import clean
from mnemo.values.derived import EvictionOutcome, Goal, Origin, OutcomeKind, Snapshot, Thread
from mnemo.values.digest import digest
from mnemo.values.messages import StoredMessage
from mnemo.values.units import Count

__all__ = [
    "Committed",
    "Links",
    "Verdict",
    "attach_all",
    "commit",
    "events_of",
    "evict_by_fallback",
    "rewritten",
    "said_at",
    "still_there",
    "taken",
]

RECENT_OUTCOMES = 100
"""Outcomes among which a fallback of the same range is looked for, the newest (S)."""


@dataclass(frozen=True, slots=True)
class Links:
    """Messages to be pinned, each to every one of the goals."""

    seqs: tuple[int, ...]
    goal_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    The verdict on a zone.

    Attributes:
        kind: ``snapshot`` keeps *text*, ``ok`` nothing, ``fallback`` what a rule writes.
        attempts: Runs that it took, this one included.
    """

    kind: OutcomeKind
    attempts: int
    text: str = ""
    links: tuple[Links, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """
    The rows that an eviction wrote.

    Attributes:
        outcome: Of the range; the fallback's own where its text was replaced.
        snapshot: The one that stands for the range now, if one does.
        moved: Whether the boundary moved; it did not where a fallback's text was replaced.
    """

    outcome: EvictionOutcome
    snapshot: Snapshot | None
    moved: bool = True


def commit(
    tx: TranscriptWriter, read: Thread, zone: Zone, verdict: Verdict, config: Config
) -> Committed | None:
    """
    Let *zone* leave the window, or do nothing if the world has moved on.

    It has if the epoch or the boundary is another, a message of the zone is gone, or one
    that is to be pinned. But a model's text takes the place of a fallback's that covered
    exactly this range meanwhile; then the boundary, which is beyond it, stays.

    Args:
        read: The thread's row as it was when the zone was read.

    Returns:
        ``None``: nothing was written; what is due is to be judged anew.
    """
    thread = tx.thread(read.id)
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    if thread.epoch != read.epoch or not still_there(tx, zone.messages, since):
        return None
    count = config.conversation.count
    if thread.boundary == zone.from_seq:
        replaced = None
    elif (replaced := _fallback_of(tx, thread, zone)) is None or verdict.kind != "snapshot":
        return None
    if not attach_all(tx, thread, verdict.links, since, count):
        return None
    if replaced is None:
        return _evicted(tx, thread, zone, verdict, config)
    outcome, snapshot = replaced
    better = rewritten(snapshot, verdict.text, count)
    tx.put(better)
    return Committed(outcome, better, moved=False)


def evict_by_fallback(
    tx: TranscriptWriter, thread: Thread, zone: Zone, config: Config
) -> EvictionOutcome:
    """
    Let a zone that was read in this very transaction leave, with a text by rule.

    Args:
        thread: Its row as it is now; read it anew before the next zone.
    """
    verdict = Verdict(kind="fallback", attempts=0)
    return _evicted(tx, thread, zone, verdict, config).outcome


def events_of(repo_id: str, at: datetime, committed: Committed) -> list[Event]:
    """Make the events to publish once the transaction is durable."""
    told: list[Event] = []
    outcome, snapshot = committed.outcome, committed.snapshot
    if snapshot is not None:
        told.append(taken(repo_id, at, snapshot))
    if committed.moved:
        told.append(
            EvictionCompleted(
                repo_id=repo_id,
                at=at,
                thread_id=outcome.thread_id,
                from_seq=outcome.from_seq,
                to_seq=outcome.to_seq,
                kind=outcome.kind,
            )
        )
    return told


def taken(repo_id: str, at: datetime, snapshot: Snapshot) -> SnapshotTaken:
    """The event of a snapshot."""
    return SnapshotTaken(
        repo_id=repo_id,
        at=at,
        thread_id=snapshot.thread_id,
        level=snapshot.level,
        from_seq=snapshot.from_seq,
        to_seq=snapshot.to_seq,
        origin=snapshot.origin,
    )


def still_there(
    tx: TranscriptReader, messages: Sequence[StoredMessage], since: datetime | None
) -> bool:
    """Whether every one of *messages*, all of one thread and ascending, is alive."""
    first, last = messages[0], messages[-1]
    found = tx.messages(first.thread_id, from_seq=first.seq, to_seq=last.seq, since=since)
    return {m.stored_id for m in messages} <= {m.stored_id for m in found}


def said_at(message: StoredMessage) -> datetime:
    """When it was said, as far as that is known."""
    return message.at or message.recorded_at


def attach_all(
    tx: TranscriptWriter,
    thread: Thread,
    links: Sequence[Links],
    since: datetime | None,
    count: Count,
) -> bool:
    """
    Pin what *links* say, but to no goal that was completed meanwhile.

    Returns:
        ``False``: a message is not there any more; nothing was pinned.
    """
    if not links:
        return True
    active = {goal.id for goal in tx.all(Goal, thread.id, epoch=thread.epoch, live=True)}
    kept = [Links(x.seqs, tuple(id for id in x.goal_ids if id in active)) for x in links]
    kept = [each for each in kept if each.goal_ids]
    for each in kept:
        if pins.check(tx, thread, each.seqs, each.goal_ids, since=since).missing_messages:
            return False
    for each in kept:
        pins.attach(tx, thread, each.seqs, each.goal_ids, since=since, count=count)
    return True


def _evicted(
    tx: TranscriptWriter, thread: Thread, zone: Zone, verdict: Verdict, config: Config
) -> Committed:
    snapshot = _snapshot(tx, thread, zone, verdict, config)
    outcome = EvictionOutcome(
        thread_id=thread.id,
        epoch=thread.epoch,
        from_seq=zone.from_seq,
        to_seq=zone.to_seq,
        kind=verdict.kind,
        snapshot_id=snapshot.id if snapshot else None,
        attempts=verdict.attempts,
        at=tx.now,
    )
    tx.put(*([snapshot] if snapshot else []), outcome)
    tx.keep(replace(thread, boundary=zone.to_seq + 1))
    return Committed(outcome, snapshot)


def _snapshot(
    tx: TranscriptReader, thread: Thread, zone: Zone, verdict: Verdict, config: Config
) -> Snapshot | None:
    if verdict.kind == "ok":
        return None
    origin: Origin = "model"
    text = verdict.text
    if verdict.kind == "fallback":
        origin, text = "fallback", digest(zone.messages, max_chars=_most(config))
    text = clean(text).strip()
    return Snapshot(
        id=new_id("snapshot"),
        thread_id=thread.id,
        epoch=thread.epoch,
        level=1,
        from_seq=zone.from_seq,
        to_seq=zone.to_seq,
        text=text,
        token_count=config.conversation.count(text),
        origin=origin,
        at=tx.now,
        said_from=said_at(zone.messages[0]),
        said_to=said_at(zone.messages[-1]),
    )


def _most(config: Config) -> int:
    return config.viewport.snapshot_max_chars


def _fallback_of(
    tx: TranscriptReader, thread: Thread, zone: Zone
) -> tuple[EvictionOutcome, Snapshot] | None:
    """The fallback of exactly this range, as long as its text is by rule."""
    outcomes = tx.all(
        EvictionOutcome, thread.id, epoch=thread.epoch, live=True, newest=RECENT_OUTCOMES
    )
    snapshots = {s.id: s for s in tx.all(Snapshot, thread.id, epoch=thread.epoch, live=True)}
    for outcome in outcomes:
        snapshot = snapshots.get(outcome.snapshot_id or "")
        exactly = (outcome.from_seq, outcome.to_seq) == (zone.from_seq, zone.to_seq)
        if exactly and snapshot is not None and snapshot.origin == "fallback":
            return outcome, snapshot
    return None


def rewritten(snapshot: Snapshot, text: str, count: Count) -> Snapshot:
    """Replace the fallback text of *snapshot* by a model's; its id and range stay."""
    text = clean(text).strip()
    return replace(snapshot, text=text, token_count=count(text), origin="model")

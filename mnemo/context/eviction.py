"""
Eviction: move the boundary of a window and write its outcome, in one transaction.

Plain functions over a transaction; none of them asks a model. A verdict on a range is
checked against the stored messages of that range before it is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mnemo.config import Config
from mnemo.context import goals, pins
from mnemo.context.budget import Budget
from mnemo.context.compressed import CompressedViewport, compress
from mnemo.context.zones import Zone, eviction_zone, is_due, reach
from mnemo.conversation.scope import living_pins
from mnemo.events import Event, EvictionCompleted, SnapshotTaken
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.clock import new_id
from mnemo.runtime.text import clean
from mnemo.values.counting import Count
from mnemo.values.derived import EvictionOutcome, Goal, Origin, OutcomeKind, Pin, Snapshot, Thread
from mnemo.values.digest import digest
from mnemo.values.messages import StoredMessage
from mnemo.values.units import Unit, units_of

FAR = 2
"""Times its size from which on only the beginning of a window is read (S)."""
HEAD = 200
"""Messages of such a beginning, at least (S)."""
RECENT_OUTCOMES = 100
"""Outcomes among which a fallback of the same range is looked for, the newest (S)."""


@dataclass(frozen=True, slots=True)
class Links:
    """Messages to be pinned, each to every one of the goals."""

    seqs: tuple[int, ...]
    goal_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionVerdict:
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
    tx: TranscriptWriter, read: Thread, zone: Zone, verdict: EvictionVerdict, config: Config
) -> Committed | None:
    """
    Evict *zone* with its verdict, or write nothing if the range has changed.

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
) -> Committed:
    """
    Evict a zone that was read in this transaction, with a text by rule.

    Args:
        thread: Its row as it is now; read it anew before the next zone.
    """
    verdict = EvictionVerdict(kind="fallback", attempts=0)
    return _evicted(tx, thread, zone, verdict, config)


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
    """Make the event of a snapshot."""
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


def attach_all(
    tx: TranscriptWriter,
    thread: Thread,
    links: Sequence[Links],
    since: datetime | None,
    count: Count,
) -> bool:
    """
    Pin the messages of *links* to their goals; goals completed meanwhile are skipped.

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
    tx: TranscriptWriter, thread: Thread, zone: Zone, verdict: EvictionVerdict, config: Config
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
    tx: TranscriptReader, thread: Thread, zone: Zone, verdict: EvictionVerdict, config: Config
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
        said_from=zone.messages[0].said_at,
        said_to=zone.messages[-1].said_at,
    )


def _most(config: Config) -> int:
    return config.viewport.snapshot_max_chars


def _fallback_of(
    tx: TranscriptReader, thread: Thread, zone: Zone
) -> tuple[EvictionOutcome, Snapshot] | None:
    """Return the outcome and snapshot of exactly this range, if its text is by rule."""
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


# ── What is due ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class DueEviction:
    """
    A thread whose window is above its trigger, as it was read.

    Attributes:
        since: Messages recorded before it are expired.
        now: When it was read.
        units: Of the window.
        goals: The active ones, as they are listed.
        deadline_s: Seconds until an unanswered call counts as abandoned.
    """

    thread: Thread
    budget: Budget
    since: datetime | None
    now: datetime
    units: list[Unit]
    goals: list[Goal]
    pins: list[Pin]
    deadline_s: float

    def zone(self) -> Zone:
        """Return the range that leaves the window."""
        zone = eviction_zone(
            self.units,
            self.budget,
            from_seq=self.thread.boundary,
            now=self.now,
            deadline_s=self.deadline_s,
        )
        assert zone is not None, "a thread is due only if something can leave its window"
        return zone

    def view(self, config: Config) -> CompressedViewport:
        """Render the window as Mneme is shown it; takes milliseconds of computing."""
        return compress(
            self.units,
            self.budget,
            from_seq=self.thread.boundary,
            now=self.now,
            deadline_s=self.deadline_s,
            max_tokens=config.viewport.max_input_tokens,
            count=config.conversation.count,
        )


def due(
    tx: TranscriptReader, thread_id: str, config: Config, *, notes: bool = False
) -> DueEviction | None:
    """
    Read the thread if its window is above the trigger and a range can leave it.

    What is not due costs the thread's row and one aggregate.

    Args:
        notes: Whether its viewport shows notes, which the window is smaller by.
    """
    thread = tx.thread(thread_id)
    if thread.budget_tokens is None:
        return None
    budget = Budget.of(thread.budget_tokens, config.viewport, notes=notes)
    since = thread.alive_since(tx.now, config.conversation.ttl_s)
    span = tx.span(thread_id, from_seq=thread.boundary, since=since)
    if span[1] <= budget.trigger:
        return None
    for units, deadline_s in _readings(tx, thread, since, span, budget, config):
        zone = eviction_zone(
            units, budget, from_seq=thread.boundary, now=tx.now, deadline_s=deadline_s
        )
        if is_due(span[1], len(units), budget) and zone is not None:
            active = goals.listed(tx, thread_id, active_only=True)
            held = living_pins(tx, thread, since) if active else []
            return DueEviction(thread, budget, since, tx.now, units, active, held, deadline_s)
    return None


def _readings(
    tx: TranscriptReader,
    thread: Thread,
    since: datetime | None,
    span: tuple[int, int],
    budget: Budget,
    config: Config,
) -> Iterator[tuple[list[Unit], float]]:
    """
    Yield the units of the window; of one far too long, first those of its beginning.

    Of a beginning it is not known which calls are answered behind it, so there an
    unanswered one counts as open for ever.
    """
    number, tokens = span
    wanted = HEAD
    while tokens > FAR * budget.window and wanted < number:
        last = thread.boundary + wanted - 1
        head = units_of(tx.messages(thread.id, from_seq=thread.boundary, to_seq=last, since=since))
        if sum(unit.tokens for unit in head[:-1]) > max(reach(budget), budget.window):
            yield head, math.inf
            break
        wanted *= 4
    whole = tx.messages(thread.id, from_seq=thread.boundary, since=since)
    yield units_of(whole), config.conversation.tool_deadline_s

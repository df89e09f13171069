"""
Eviction: move the boundary of a window and write its outcome, in one transaction.

No model is asked here. A verdict is written only if the messages of its range are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

from mnemo.config import Config
from mnemo.context.goals import attach_pins, check_pins, listed
from mnemo.context.zones import (
    Budget,
    CompressedViewport,
    Zone,
    compress,
    eviction_zone,
    is_due,
    reach,
)
from mnemo.conversation.scope import ConversationParts, OfThread, ThreadScope
from mnemo.events import EvictionCompleted, SnapshotTaken
from mnemo.log.record_rows import LAST_SEQ
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.clock import new_id
from mnemo.runtime.text import clean
from mnemo.values.counting import Count
from mnemo.values.derived import EvictionOutcome, Goal, Origin, OutcomeKind, Pin, Snapshot, Thread
from mnemo.values.digest import clipped, digest
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
    """``snapshot`` keeps *text*, ``ok`` nothing, ``fallback`` a rule's; *attempts*: runs so far."""

    kind: OutcomeKind
    attempts: int
    text: str = ""
    links: tuple[Links, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What an eviction wrote; boundary not *moved*: only a fallback's text was replaced."""

    outcome: EvictionOutcome
    snapshot: Snapshot | None
    moved: bool = True


def commit(
    tx: TranscriptWriter, read: Thread, zone: Zone, verdict: EvictionVerdict, config: Config
) -> Committed | None:
    """
    Evict *zone* with its verdict; ``None``: nothing was written, for the range has changed.

    It has if the epoch or the boundary is another than in *read*, a message of the zone is gone,
    or one that is to be pinned. But a model's text takes the place of a fallback's that covered
    exactly this range meanwhile; then the boundary, which is beyond it, stays.
    """
    scope = ThreadScope.stored(tx, read.id, config)
    thread = scope.thread
    if thread.epoch != read.epoch or not still_there(tx, scope, zone.messages):
        return None
    count = config.conversation.count
    if thread.boundary == zone.from_seq:
        replaced = None
    elif (replaced := _fallback_of(tx, scope, zone)) is None or verdict.kind != "snapshot":
        return None
    if not attach_all(tx, scope, verdict.links, count):
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
    """Evict a zone of *thread*, as its row is now, with a text by rule."""
    verdict = EvictionVerdict(kind="fallback", attempts=0)
    return _evicted(tx, thread, zone, verdict, config)


def tell_of(parts: ConversationParts, committed: Committed) -> None:
    """Publish what an eviction did, once its transaction is durable."""
    outcome = committed.outcome
    if committed.snapshot is not None:
        tell_of_snapshot(parts, committed.snapshot)
    if committed.moved:
        parts.tell(EvictionCompleted, **_named(outcome), kind=outcome.kind)


def tell_of_snapshot(parts: ConversationParts, snapshot: Snapshot) -> None:
    """Publish that a snapshot was taken or reworded."""
    parts.tell(SnapshotTaken, **_named(snapshot), level=snapshot.level, origin=snapshot.origin)


def _named(of: EvictionOutcome | Snapshot) -> dict[str, Any]:
    return {"thread_id": of.thread_id, "from_seq": of.from_seq, "to_seq": of.to_seq}


def still_there(
    tx: TranscriptReader, scope: ThreadScope, messages: Sequence[StoredMessage]
) -> bool:
    """Whether every one of *messages*, ascending, is alive."""
    found = scope.messages(tx, from_seq=messages[0].seq, to_seq=messages[-1].seq)
    return {m.stored_id for m in messages} <= {m.stored_id for m in found}


def attach_all(
    tx: TranscriptWriter, scope: ThreadScope, links: Sequence[Links], count: Count
) -> bool:
    """Pin messages to their goals unless completed; ``False``: one is gone, nothing was pinned."""
    if not links:
        return True
    active = {goal.id for goal in scope.all(tx, Goal, live=True)}
    kept = [Links(x.seqs, tuple(id for id in x.goal_ids if id in active)) for x in links]
    kept = [each for each in kept if each.goal_ids]
    for each in kept:
        if check_pins(tx, scope, each.seqs, each.goal_ids).missing_messages:
            return False
    for each in kept:
        attach_pins(tx, scope, each.seqs, each.goal_ids, count=count)
    return True


def _evicted(
    tx: TranscriptWriter, thread: Thread, zone: Zone, verdict: EvictionVerdict, config: Config
) -> Committed:
    snapshot = None
    if verdict.kind != "ok":
        origin: Origin = "fallback" if verdict.kind == "fallback" else "model"
        most = config.viewport.snapshot_max_chars
        text = verdict.text if origin == "model" else digest(zone.messages, max_chars=most)
        said = zone.messages[0].said_at, zone.messages[-1].said_at
        snapshot = _made(tx, thread, (zone.from_seq, zone.to_seq), text, origin, said, config)
        tx.put(snapshot)
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
    tx.put(outcome)
    tx.keep(replace(thread, boundary=zone.to_seq + 1))
    return Committed(outcome, snapshot)


def _made(
    tx: TranscriptReader,
    thread: Thread,
    range: tuple[int, int],
    text: str,
    origin: Origin,
    said: tuple[datetime, datetime],
    config: Config,
    *,
    level: Literal[1, 2] = 1,
) -> Snapshot:
    text = clean(text).strip()
    return Snapshot(
        id=new_id("snapshot"),
        thread_id=thread.id,
        epoch=thread.epoch,
        level=level,
        from_seq=range[0],
        to_seq=range[1],
        text=text,
        token_count=config.conversation.count(text),
        origin=origin,
        at=tx.now,
        said_from=said[0],
        said_to=said[1],
    )


def _fallback_of(
    tx: TranscriptReader, scope: ThreadScope, zone: Zone
) -> tuple[EvictionOutcome, Snapshot] | None:
    """Return the outcome and snapshot of exactly this range, if its text is by rule."""
    thread = scope.thread
    outcomes = tx.all(
        EvictionOutcome, thread.id, epoch=thread.epoch, live=True, newest=RECENT_OUTCOMES
    )
    snapshots = {s.id: s for s in scope.all(tx, Snapshot, live=True)}
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
    """A thread above its trigger as of *now*; calls unanswered for *deadline_s* are abandoned."""

    thread: Thread
    budget: Budget
    now: datetime
    units: list[Unit]
    deadline_s: float
    goals: list[Goal] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)

    def with_goals(self, tx: TranscriptReader, scope: ThreadScope) -> DueEviction:
        """The same with the active goals, as they are listed, and the pins that they hold."""
        active = listed(tx, self.thread.id, active_only=True)
        return replace(self, goals=active, pins=scope.all(tx, Pin) if active else [])

    def zone(self) -> Zone | None:
        """Return the range that leaves the window; ``None``: nothing can."""
        return eviction_zone(
            self.units,
            self.budget,
            from_seq=self.thread.boundary,
            now=self.now,
            deadline_s=self.deadline_s,
        )

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


def due_eviction(
    tx: TranscriptReader, thread_id: str, config: Config, *, notes: bool = False
) -> DueEviction | None:
    """
    Read the thread if its window is above the trigger and a range can leave it. What is not due
    costs the thread's row and one aggregate. With *notes* the window is smaller.
    """
    scope = ThreadScope.stored(tx, thread_id, config)
    thread = scope.thread
    if thread.budget_tokens is None:
        return None
    budget = Budget.of(thread.budget_tokens, config.viewport, notes=notes)
    span = tx.span(thread_id, from_seq=thread.boundary, since=scope.since)
    if span[1] <= budget.trigger:
        return None
    for units in _readings(tx, scope, span, budget):
        due = DueEviction(thread, budget, tx.now, units, config.conversation.tool_deadline_s)
        if is_due(span[1], len(units), budget) and due.zone() is not None:
            return due.with_goals(tx, scope)
    return None


def _readings(
    tx: TranscriptReader, scope: ThreadScope, span: tuple[int, int], budget: Budget
) -> Iterator[list[Unit]]:
    """Yield the units of the window; of one far too long, first those of its beginning."""
    number, tokens = span
    boundary, wanted = scope.thread.boundary, HEAD
    while tokens > FAR * budget.window and wanted < number:
        head = scope.messages(tx, from_seq=boundary, to_seq=boundary + wanted - 1)
        units = scope.units(tx, head, ((boundary, LAST_SEQ),))
        if sum(unit.tokens for unit in units[:-1]) > max(reach(budget), budget.window):
            yield units
            break
        wanted *= 4
    yield units_of(scope.messages(tx, from_seq=boundary))


# ── Level 2, and fallbacks that a model rewords ──────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class DueFold:
    """Snapshots of a *level*, at least two, oldest first, due to be merged into one of level 2."""

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

    After a refusal of level 2 the model is asked again only when enough snapshots are new.
    """
    scope = ThreadScope.stored(tx, thread_id, config)
    thread = scope.thread
    if thread.budget_tokens is None:
        return None
    current = scope.all(tx, Snapshot, live=True)
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
    """Insert a level-2 snapshot and mark those it covers; ``None``: they changed, none written."""
    if not _unchanged(tx, fold, config):
        return None
    made_of = fold.snapshots
    range = made_of[0].from_seq, made_of[-1].to_seq
    said = min(s.said_from for s in made_of), max(s.said_to for s in made_of)
    folded = _made(tx, fold.thread, range, text, origin, said, config, level=2)
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
    """A fallback snapshot that a model is asked to reword; *due*: its messages, then the window."""

    due: DueEviction
    snapshot: Snapshot
    messages: tuple[StoredMessage, ...]


def offered(
    tx: TranscriptReader, thread_id: str, config: Config, *, declined: frozenset[str]
) -> Offer | None:
    """Read the newest fallback that nothing covers and no model *declined*, if it is whole."""
    scope = ThreadScope.stored(tx, thread_id, config)
    thread = scope.thread
    fallbacks = [
        s
        for s in scope.all(tx, Snapshot, live=True)
        if s.level == 1 and s.origin == "fallback" and s.id not in declined
    ]
    if not fallbacks or thread.budget_tokens is None:
        return None
    snapshot = fallbacks[-1]
    messages = scope.messages(tx, from_seq=snapshot.from_seq, to_seq=snapshot.to_seq)
    window = scope.messages(tx, from_seq=thread.boundary)
    if not messages or not window:
        return None
    tokens = sum(message.tokens for message in messages)
    shown = DueEviction(
        thread=replace(thread, boundary=snapshot.from_seq),
        budget=replace(Budget.of(thread.budget_tokens, config.viewport), zone=tokens, window=0),
        now=tx.now,
        units=[*units_of(messages), *units_of(window)],
        deadline_s=0,
    ).with_goals(tx, scope)
    zone = shown.zone()
    its_own = zone is not None and zone.to_seq == snapshot.to_seq
    return Offer(shown, snapshot, tuple(messages)) if its_own else None


def commit_offer(
    tx: TranscriptWriter, offered: Offer, verdict: EvictionVerdict, config: Config
) -> Snapshot | None:
    """Replace a fallback's text by the model's and pin its links; ``None``: something changed."""
    scope = ThreadScope.stored(tx, offered.snapshot.thread_id, config)
    count = config.conversation.count
    is_same = offered.snapshot in scope.all(tx, Snapshot, live=True)
    if not is_same or not still_there(tx, scope, offered.messages):
        return None
    if not attach_all(tx, scope, verdict.links, count):
        return None
    better = rewritten(offered.snapshot, verdict.text, count)
    tx.put(better)
    return better


def _runs_of_first(current: Sequence[Snapshot]) -> list[tuple[Snapshot, ...]]:
    """Group the level-1 snapshots into runs that no level-2 snapshot interrupts."""
    ascending = sorted(current, key=lambda s: (s.from_seq, s.to_seq))
    runs = groupby(ascending, key=lambda s: s.level)
    return [tuple(run) for level, run in runs if level == 1]


def _unchanged(tx: TranscriptReader, fold: DueFold, config: Config) -> bool:
    current = ThreadScope.stored(tx, fold.thread.id, config).all(tx, Snapshot, live=True)
    return all(snapshot in current for snapshot in fold.snapshots)


# ── Read for the caller ───────────────────────────────────────────────────────────


class Snapshots(OfThread):
    """The snapshots of one thread's epoch (``conversation.snapshots``)."""

    async def outcomes(self) -> list[EvictionOutcome]:
        """The verdicts of the thread's epoch, ascending. *Cancellation*: safe."""
        return await self._parts.store.reading(lambda tx: self._scope(tx).all(tx, EvictionOutcome))

    async def list(
        self, *, level: Literal[1, 2] | None = None, current: bool = False
    ) -> list[Snapshot]:
        """
        Ascending by range; without those whose range holds an expired message.

        Args:
            level: 1: of messages; 2: of snapshots; ``None``: both.
            current: Only what nothing of a higher level covers.

        Raises:
            ValueError: There is no such level. *Cancellation*: safe.
        """
        if level not in (None, 1, 2):
            raise ValueError(f"level must be 1, 2 or None, not {level!r}")

        def work(tx: TranscriptReader) -> list[Snapshot]:
            alive = self._scope(tx).all(tx, Snapshot, live=current)
            return [snapshot for snapshot in alive if level in (None, snapshot.level)]

        return await self._parts.store.reading(work)

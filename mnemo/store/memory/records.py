"""Every single thing said or observed in one repository, in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from heapq import nsmallest

import anyio.lowlevel
import anyio.to_thread

from mnemo._clock import Breather
from mnemo._text import is_blank
from mnemo.episode.step import Part, Step
from mnemo.errors import Conflict, NotFound
from mnemo.protocols import Clock
from mnemo.store.memory.matching import (
    SHORTEST_TRIPLE,
    holds,
    in_triples,
    relevances_by_triples,
    relevances_by_words,
)
from mnemo.store.memory.state import Kept, RepoState, StepState
from mnemo.store.memory.threads import MessageState, ThreadState
from mnemo.transcript.derived import Snapshot
from mnemo.transcript.records import (
    SNAPSHOTS_BESIDE,
    Hidden,
    Ranking,
    Record,
    RecordHit,
    RecordQuery,
    Surfacing,
    SurfacingQuery,
    Surroundings,
    ViewQuery,
    message_record,
    snapshot_record,
    telling_terms,
    term_weight,
)

__all__ = ["MemoryRecords"]

PARTS: tuple[Part, Part] = ("observation", "action")


@dataclass(frozen=True, slots=True)
class Entry:
    """
    A text of the index.

    Attributes:
        stream: The session's or the thread's id.
        place: Its number among its sort (steps, messages, snapshots), ascending with time.
        epoch_over: Whether its thread was cleared since.
    """

    text: str
    stream: str
    sort: type
    place: int
    source: tuple[Step, Part] | MessageState | Snapshot
    alive: bool = True
    epoch_over: bool = False

    @property
    def record(self) -> Record:
        """What it is the text of."""
        match self.source:
            case (step, part):
                return _half(step, part)
            case Snapshot() as snapshot:
                return snapshot_record(snapshot)
            case MessageState() as state:
                return message_record(state.message)


class MemoryRecords:
    """``RecordStore`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept], clock: Clock) -> None:
        self._repo_id = repo_id
        self._kept = kept
        self._clock = clock

    @property
    def _repo(self) -> RepoState:
        return self._kept().repo(self._repo_id)

    async def search(self, wanted: RecordQuery) -> list[RecordHit]:
        """Find records, best first. *Cancellation*: safe."""
        entries = list(_entries(self._repo, wanted.ranking.now, wanted.default_ttl_s))
        hidden = _hidden(self._repo, wanted.hidden)
        return await anyio.to_thread.run_sync(partial(_search, entries, wanted, hidden))

    async def around(self, wanted: ViewQuery) -> Surroundings:
        """
        A record with its nearest neighbours, and the snapshots around them.

        Raises:
            NotFound: There is no such record.
            Conflict: Several threads have a record of this id. *Cancellation*: safe.
        """
        await anyio.lowlevel.checkpoint()
        found = list(_places(self._repo, wanted, self._clock.now()))
        if not found:
            raise NotFound("message", wanted.message_id)
        if len(found) > 1:
            names = ", ".join(sorted(repr(stream) for stream, _ in found))
            raise Conflict(
                f"message {wanted.message_id!r} is in several threads ({names}); "
                "say which by session_id"
            )
        return found[0][1]()

    async def surfacing(self, wanted: SurfacingQuery) -> Surfacing:
        """Records that match any of some terms, best first. *Cancellation*: safe."""
        entries = list(_entries(self._repo, wanted.ranking.now, wanted.default_ttl_s))
        hidden = _hidden(self._repo, wanted.hidden)
        return await anyio.to_thread.run_sync(partial(_surfacing, entries, wanted, hidden))


# ── What is there ────────────────────────────────────────────────────────────────────


def _entries(repo: RepoState, now: datetime, default_ttl_s: float | None) -> Iterator[Entry]:
    for step_state in repo.steps:
        yield from _of_step(step_state)
    for id, state in repo.threads.items():
        yield from _of_thread(id, state, now, default_ttl_s)


def _of_step(state: StepState) -> Iterator[Entry]:
    step = state.step
    for part in PARTS:
        if text := _said(step, part):
            yield Entry(text, step.session_id, Step, step.ordinal, (step, part))


def _of_thread(
    id: str, state: ThreadState, now: datetime, default_ttl_s: float | None
) -> Iterator[Entry]:
    since = state.row.alive_since(now, default_ttl_s) if state.row else None
    epoch = state.row.epoch if state.row else 0
    for message_state in state.messages.values():
        if message_state.text:
            yield Entry(
                message_state.text,
                id,
                MessageState,
                message_state.no,
                message_state,
                alive=_is_alive(message_state, since),
                epoch_over=message_state.message.epoch < epoch,
            )
    for snapshot in _snapshots(state):
        yield Entry(
            snapshot.text,
            id,
            Snapshot,
            snapshot.to_seq,
            snapshot,
            alive=_snapshot_is_alive(state, snapshot, since),
            epoch_over=snapshot.epoch < epoch,
        )


def _snapshots(state: ThreadState) -> list[Snapshot]:
    shelf = state.shelves.get(Snapshot)
    return [s for s in shelf.values.values() if isinstance(s, Snapshot)] if shelf else []


def _is_alive(state: MessageState, since: datetime | None) -> bool:
    return since is None or state.message.recorded_at >= since


def _snapshot_is_alive(state: ThreadState, snapshot: Snapshot, since: datetime | None) -> bool:
    """Whether none of what it tells is expired."""
    told = _seqs(state, snapshot.from_seq, snapshot.to_seq)
    return not told or _is_alive(state.messages[told[0]], since)


def _seqs(state: ThreadState, from_seq: int, to_seq: int | None) -> list[int]:
    """Of the range, both ends inclusive, ascending."""
    seqs = state.line.seqs
    last = len(seqs) if to_seq is None else bisect_right(seqs, to_seq)
    return seqs[bisect_left(seqs, from_seq) : last]


def _hidden(repo: RepoState, hidden: Hidden | None) -> Callable[[Entry], bool]:
    """Whether an entry is what somebody sees anyhow."""
    if hidden is None:
        return lambda entry: False
    own = [s.step.ordinal for s in repo.steps if s.step.session_id == hidden.stream]
    last = set(own[-hidden.last_steps :]) if hidden.last_steps else set()
    from_seq = hidden.message_seq

    def is_hidden(entry: Entry) -> bool:
        if entry.stream != hidden.stream:
            return False
        match entry.source:
            case (step, _):
                return step.ordinal in last
            case Snapshot() as snapshot:
                return snapshot.id in hidden.ids
            case MessageState() as state:
                return from_seq is not None and state.message.seq >= from_seq

    return is_hidden


# ── Records ──────────────────────────────────────────────────────────────────────────


def _said(step: Step, part: Part) -> str:
    text = step.observation if part == "observation" else step.action
    return "" if is_blank(text) else text


def _half(step: Step, part: Part) -> Record:
    return Record(
        message_id=f"{step.node_id}/{part}",
        session_id=step.session_id,
        seq=2 * step.ordinal + (part == "action"),
        kind=part,
        at=step.at,
        actor=step.actor,
        text=_said(step, part),
    )


# ── Searching, in a worker thread ────────────────────────────────────────────────────


def _search(
    entries: Sequence[Entry], wanted: RecordQuery, hidden: Callable[[Entry], bool]
) -> list[RecordHit]:
    groups = wanted.query.groups
    if in_triples(o for group in groups for o in (*group.wanted, *group.unwanted)):
        entries = [entry for entry in entries if in_triples([entry.text])]
        if all(len(o) < SHORTEST_TRIPLE for group in groups for o in group.wanted):
            entries = _newest(entries, wanted.scan_limit)
        scores = relevances_by_triples(wanted.query, [entry.text for entry in entries])
    else:
        scores = relevances_by_words(wanted.query, [entry.text for entry in entries])
    hits = [
        RecordHit(record=entry.record, relevance=score)
        for entry, score in zip(entries, scores, strict=True)
        if score > 0
        and entry.alive
        and wanted.session_id in (None, entry.stream)
        and not hidden(entry)
    ]
    return nsmallest(wanted.limit, hits, key=partial(_order, wanted.ranking))


def _newest(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Of each sort the newest *limit*."""
    by_sort: dict[type, list[Entry]] = {}
    for entry in entries:
        by_sort.setdefault(entry.sort, []).append(entry)
    newest = []
    for some in by_sort.values():
        newest += sorted(some, key=lambda entry: -entry.place)[:limit]
    return newest


def _order(ranking: Ranking, hit: RecordHit) -> tuple[float, float, str, int]:
    record = hit.record
    return ranking.order(hit.relevance, record.at, record.session_id, record.seq)


def _surfacing(
    entries: Sequence[Entry], wanted: SurfacingQuery, hidden: Callable[[Entry], bool]
) -> Surfacing:
    breather = Breather()
    matched: list[frozenset[str]] = []
    for entry in entries:
        breather.breathe()
        matched.append(frozenset(term for term in wanted.terms if holds(entry.text, term)))
    counts = {term: sum(term in some for some in matched) for term in wanted.terms}
    telling = frozenset(telling_terms(counts, len(entries)))
    hits = [
        (RecordHit(record=entry.record, relevance=_weight(some, counts, len(entries))), some)
        for entry, some in zip(entries, matched, strict=True)
        if len(some) >= wanted.min_terms
        and some & telling
        and entry.alive
        and not entry.epoch_over
        and not hidden(entry)
        and (entry.stream, entry.record.message_id) not in wanted.excluded
    ]
    best = nsmallest(wanted.limit, hits, key=lambda hit: _order(wanted.ranking, hit[0]))
    return Surfacing(records=len(entries), counts=counts, hits=tuple(best))


def _weight(terms: Iterable[str], counts: Mapping[str, int], records: int) -> float:
    return sum(term_weight(counts[term], records) for term in sorted(terms))


# ── Looking around ───────────────────────────────────────────────────────────────────


def _places(
    repo: RepoState, wanted: ViewQuery, now: datetime
) -> Iterator[tuple[str, Callable[[], Surroundings]]]:
    """The streams that have the record, each with how to look around it there."""
    id, _, part = wanted.message_id.rpartition("/")
    step = repo.step_of.get(id)
    if step and part in PARTS and wanted.session_id in (None, step.step.session_id):
        record = _half(step.step, "observation" if part == "observation" else "action")
        if record.text:
            yield record.session_id, partial(_around_step, repo, record, wanted)
    for name, state in repo.threads.items():
        if wanted.session_id not in (None, name):
            continue
        since = state.row.alive_since(now, wanted.default_ttl_s) if state.row else None
        seq = state.seq_of.get(wanted.message_id)
        if seq is not None and _is_alive(state.messages[seq], since):
            yield name, partial(_around_message, state, state.messages[seq], wanted, since)
        for snapshot in _snapshots(state):
            if snapshot.id == wanted.message_id and _snapshot_is_alive(state, snapshot, since):
                yield name, partial(_around_snapshot, state, snapshot, wanted, since)


def _around_step(repo: RepoState, target: Record, wanted: ViewQuery) -> Surroundings:
    own = [s.step for s in repo.steps if s.step.session_id == target.session_id]
    halves = [_half(step, part) for step in own for part in PARTS if _said(step, part)]
    place = next(i for i, half in enumerate(halves) if half.seq == target.seq)
    return Surroundings(
        target=target,
        before=tuple(halves[max(place - wanted.before, 0) : place]),
        after=tuple(halves[place + 1 : place + 1 + wanted.after]),
        last_seq=target.seq,
    )


def _around_message(
    state: ThreadState, target: MessageState, wanted: ViewQuery, since: datetime | None
) -> Surroundings:
    seq = target.message.seq
    before = _messages(state, 0, seq - 1, since)[::-1][: wanted.before][::-1]
    after = _messages(state, seq + 1, None, since)[: wanted.after]
    record = message_record(target.message)
    return _with_snapshots(state, record, target.message.epoch, before, after, seq, since)


def _around_snapshot(
    state: ThreadState, target: Snapshot, wanted: ViewQuery, since: datetime | None
) -> Surroundings:
    before = _messages(state, 0, target.from_seq - 1, since)[::-1][: wanted.before][::-1]
    after = _messages(state, target.from_seq, target.to_seq, since)[: wanted.after]
    record = snapshot_record(target)
    return _with_snapshots(state, record, target.epoch, before, after, target.to_seq, since)


def _messages(
    state: ThreadState, from_seq: int, to_seq: int | None, since: datetime | None
) -> list[Record]:
    found = (state.messages[seq] for seq in _seqs(state, from_seq, to_seq))
    return [message_record(state.message) for state in found if _is_alive(state, since)]


def _with_snapshots(
    state: ThreadState,
    target: Record,
    epoch: int,
    before: Sequence[Record],
    after: Sequence[Record],
    last_seq: int,
    since: datetime | None,
) -> Surroundings:
    first = before[0].seq if before else target.seq
    last = max(after[-1].seq if after else target.seq, last_seq)
    own = [s for s in _snapshots(state) if s.epoch == epoch]
    alive = [s for s in own if _snapshot_is_alive(state, s, since)]
    ahead = _uncontained([s for s in alive if s.to_seq < first])
    behind = _uncontained([s for s in alive if s.from_seq > last])
    return Surroundings(
        target=target,
        before=tuple(before),
        after=tuple(after),
        last_seq=last_seq,
        snapshots_before=tuple(ahead[-SNAPSHOTS_BESIDE:]),
        snapshots_after=tuple(behind[:SNAPSHOTS_BESIDE]),
    )


def _uncontained(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Those that no other one of a higher level, or a wider one of theirs, contains."""
    left = [s for s in snapshots if not any(_contains(other, s) for other in snapshots)]
    return sorted(left, key=lambda s: (s.from_seq, s.to_seq))


def _contains(outer: Snapshot, inner: Snapshot) -> bool:
    if not (outer.from_seq <= inner.from_seq and inner.to_seq <= outer.to_seq):
        return False
    wider = (outer.from_seq, outer.to_seq) != (inner.from_seq, inner.to_seq)
    return outer.level > inner.level or (outer.level == inner.level == 2 and wider)

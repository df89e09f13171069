"""Due summaries: the range of messages, or the records, that one is due for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnemo.conversation.scope import Scope, live_records
from mnemo.conversation.uncovered import Uncovered
from mnemo.values.derived import Compaction
from mnemo.values.messages import StoredMessage
from mnemo.values.strategies import Summary
from mnemo.values.transaction import TranscriptReader
from mnemo.values.units import clean_cuts, units_of

__all__ = ["DueRange", "due_fold", "due_range", "is_unchanged"]

MOST_MESSAGES = 1_000
"""Messages of one summary (S): what was said before compression began is taken in portions."""
PAGE = 128
"""Messages that are looked at first (S)."""
MOST_TOKENS = 40_000
"""Tokens of one summary's messages, likewise, unless they are one unit: a model's window."""


@dataclass(frozen=True, slots=True)
class DueRange:
    """
    A range that is to become a record, as it was read.

    Attributes:
        messages: The whole range, ascending; at least one.
        earlier: Live records before it, ascending.
    """

    epoch: int
    messages: tuple[StoredMessage, ...]
    earlier: tuple[Compaction, ...]

    @property
    def start_seq(self) -> int:
        """Its first seq."""
        return self.messages[0].seq

    @property
    def end_seq(self) -> int:
        """Its last seq."""
        return self.messages[-1].seq


@dataclass(frozen=True, slots=True)
class _Gap:
    """Seqs that no record covers; *end* ``None``: up to the thread's end."""

    start: int
    end: int | None

    @property
    def is_small(self) -> bool:
        return self.end is not None and self.end - self.start < MOST_MESSAGES


def due_range(
    tx: TranscriptReader, scope: Scope, summary: Summary, *, deadline_s: float
) -> DueRange | None:
    """
    The oldest uncovered messages that a summary is due for; ``None``: nothing is due.

    Due is one when the uncovered live messages have more than ``max_tokens`` and are more
    than ``keep_last`` units. The range ends at the last clean cut that leaves ``keep_last``
    of them, and is never longer than a model can be shown. What this costs does not grow
    with what is covered.

    Args:
        deadline_s: Seconds after which a call without a result is abandoned.
    """
    records = live_records(tx, scope)
    gaps = list(_gaps(records, scope.thread.epoch_start))
    if not _exceed(tx, scope, gaps, summary.max_tokens):
        return None
    units = Uncovered(tx, scope, records).newest(summary.keep_last + 1, pinned=True)
    if len(units) <= summary.keep_last:
        return None
    kept_from = units[-summary.keep_last].first_seq if summary.keep_last else scope.thread.next_seq
    for gap in gaps:
        messages = _portion(tx, scope, records, gap, kept_from, deadline_s)
        if messages:
            before = tuple(one for one in records if one.end_seq < messages[0].seq)
            return DueRange(scope.thread.epoch, messages, before)
    return None


def _gaps(records: Sequence[Compaction], start: int) -> Iterator[_Gap]:
    """Yield the gaps before, between and behind *records*; some may hold no message."""
    for record in records:
        if start < record.start_seq:
            yield _Gap(start, record.start_seq - 1)
        start = record.end_seq + 1
    yield _Gap(start, None)


def _exceed(tx: TranscriptReader, scope: Scope, gaps: Sequence[_Gap], most: int) -> bool:
    """Whether the messages of *gaps* have more than *most* tokens together."""
    found = 0
    for gap in reversed(gaps):
        found += _tokens(tx, scope, gap)
        if found > most:
            return True
    return False


def _tokens(tx: TranscriptReader, scope: Scope, gap: _Gap) -> int:
    if gap.is_small:
        return sum(message.tokens for message in _messages(tx, scope, gap.start, gap.end))
    if gap.end is not None and not _holds_any(tx, scope, gap.start, gap.end):
        return 0
    _, tokens = tx.span(scope.thread.id, from_seq=gap.start, since=scope.since)
    if gap.end is not None:
        tokens -= tx.span(scope.thread.id, from_seq=gap.end + 1, since=scope.since)[1]
    return tokens


def _holds_any(tx: TranscriptReader, scope: Scope, start: int, end: int) -> bool:
    thread_id = scope.thread.id
    return bool(tx.messages(thread_id, from_seq=start, to_seq=end, newest=1, since=scope.since))


def _portion(
    tx: TranscriptReader,
    scope: Scope,
    records: Sequence[Compaction],
    gap: _Gap,
    kept_from: int,
    deadline_s: float,
) -> tuple[StoredMessage, ...]:
    """The messages of *gap* up to the last clean cut that is allowed; maybe none."""
    for window, is_all in _windows(tx, scope, gap):
        known = {message.seq: message for message in window}
        known |= _partners(tx, scope, records, window)
        units = units_of(known.values())
        # An open group forbids every cut behind it, so what lies there need not be read: a
        # call that nobody answers would cost each append as much as it holds up.
        if is_all or any(unit.is_open(tx.now, deadline_s) for unit in units):
            cuts = clean_cuts(units, now=tx.now, deadline_s=deadline_s)
            last = min(kept_from, window[-1].seq + 1)
            allowed = [cut for cut in cuts if window[0].seq < cut <= last]
            cut = _affordable(window, allowed)
            return tuple(message for message in window if message.seq < cut)
    return ()


def _windows(
    tx: TranscriptReader, scope: Scope, gap: _Gap
) -> Iterator[tuple[list[StoredMessage], bool]]:
    """
    The first messages of *gap*: some, then all that one summary can be of.

    Where erased ones lie before them, these are passed over.
    """
    end = scope.thread.next_seq - 1 if gap.end is None else gap.end
    start = gap.start
    while start <= end:
        last = min(end, start + MOST_MESSAGES - 1)
        for stop in sorted({min(last, start + PAGE - 1), last}):
            window = _messages(tx, scope, start, stop)
            if window:
                yield window, stop == last
        if window:
            return
        start = last + 1


def _partners(
    tx: TranscriptReader,
    scope: Scope,
    records: Sequence[Compaction],
    window: Sequence[StoredMessage],
) -> dict[int, StoredMessage]:
    """Results of calls in *window* that lie behind it: they forbid cuts before them."""
    ids = sorted({call.id for unit in units_of(window) for call in unit.unanswered})
    found = tx.of_calls(scope.thread.id, ids) if ids else []
    return {
        message.seq: message
        for message in found
        if message.seq > window[-1].seq
        and scope.shows(message)
        and not any(one.start_seq <= message.seq <= one.end_seq for one in records)
    }


def _affordable(window: Sequence[StoredMessage], cuts: Sequence[int]) -> int:
    """The last of *cuts* before which not too much lies, or the first; 0: there is none."""
    chosen = cuts[0] if cuts else 0
    tokens, place = 0, 0
    for cut in cuts:
        while place < len(window) and window[place].seq < cut:
            tokens += window[place].tokens
            place += 1
        if tokens <= MOST_TOKENS:
            chosen = cut
    return chosen


def _messages(
    tx: TranscriptReader, scope: Scope, start: int, end: int | None
) -> list[StoredMessage]:
    return tx.messages(scope.thread.id, from_seq=start, to_seq=end, since=scope.since)


def is_unchanged(tx: TranscriptReader, scope: Scope, due: DueRange) -> bool:
    """Whether the epoch and every message of *due* still are as they were read."""
    if scope.thread.epoch != due.epoch:
        return False
    return tuple(_messages(tx, scope, due.start_seq, due.end_seq)) == due.messages


def due_fold(tx: TranscriptReader, scope: Scope, summary: Summary) -> tuple[Compaction, ...]:
    """
    The records that are due to become one: the oldest that touch each other; or none.

    Due are they when the live summaries have more than half of ``max_tokens``. No more
    are taken than a model can be shown, and at least two.
    """
    records = live_records(tx, scope)
    if 2 * sum(record.token_count for record in records) <= summary.max_tokens:
        return ()
    touching: list[Compaction] = []
    tokens = 0
    for record in records:
        tokens += record.token_count
        if touching and not _touch(tx, scope, touching[-1], record):
            if len(touching) > 1:
                break
            touching, tokens = [], record.token_count
        if len(touching) > 1 and tokens > MOST_TOKENS:
            break
        touching.append(record)
    return tuple(touching) if len(touching) > 1 else ()


def _touch(tx: TranscriptReader, scope: Scope, one: Compaction, other: Compaction) -> bool:
    start, end = one.end_seq + 1, other.start_seq - 1
    return start > end or not _holds_any(tx, scope, start, end)

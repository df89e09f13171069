"""Compaction records: ranges that a summary stands for in what is loaded; their messages stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mnemo.conversation.scope import ConversationParts, ThreadScope
from mnemo.errors import Conflict
from mnemo.events import CompactionRecorded
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.log.units import lies_in
from mnemo.runtime.clock import new_id
from mnemo.values.counting import Count
from mnemo.values.derived import Compaction, Origin
from mnemo.values.messages import Message
from mnemo.values.units import nearest_whole_ranges
from mnemo.values.untrusted import untrusted


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to be made, *text* not blank; *replacing*: live records within its range."""

    start_seq: int
    end_seq: int
    text: str
    tokens: int
    origin: Origin
    replacing: tuple[Compaction, ...] = ()

    def is_same(self, other: Compaction) -> bool:
        """Whether *other* has the same range and text."""
        theirs = (other.start_seq, other.end_seq, other.summary_text)
        return (self.start_seq, self.end_seq, self.text) == theirs

    def overlaps(self, other: Compaction) -> bool:
        """Whether the ranges share a seq."""
        return self.start_seq <= other.end_seq and other.start_seq <= self.end_seq


def compactions(
    tx: TranscriptReader, scope: ThreadScope, *, include_superseded: bool = False
) -> list[Compaction]:
    """The records of the present epoch, ascending by range; without those that expired."""
    found = scope.all(tx, Compaction, live=not include_superseded)
    return sorted(found, key=lambda record: (record.start_seq, record.end_seq, record.level))


def insert_record(
    tx: TranscriptWriter, scope: ThreadScope, new: NewRecord
) -> tuple[Compaction, bool]:
    """
    Insert *new* and mark what it replaces; give the record, and whether it was inserted.

    Tool groups are not checked, see ``require_whole``. *Raises* ``ValueError``: the range is not
    all given yet, reaches into an earlier epoch, or has no message left; ``Conflict``: another live
    record shares a seq with it, or one of *replacing* is live no more.
    """
    existing = existing_record(tx, scope, new)
    if existing is not None:
        return existing, False
    made = Compaction(
        id=new_id("compaction"),
        thread_id=scope.thread.id,
        epoch=scope.thread.epoch,
        start_seq=new.start_seq,
        end_seq=new.end_seq,
        summary_text=new.text,
        token_count=new.tokens,
        level=2 if new.replacing else 1,
        origin=new.origin,
        at=tx.now,
    )
    tx.put(made, *(replace(old, superseded_by=made.id) for old in new.replacing))
    if scope.is_stale:
        tx.keep(scope.thread)
    return made, True


def tell_of_record(parts: ConversationParts, made: Compaction) -> None:
    """Publish that a record was inserted."""
    parts.tell(
        CompactionRecorded,
        thread_id=made.thread_id,
        start_seq=made.start_seq,
        end_seq=made.end_seq,
        level=made.level,
    )


def existing_record(tx: TranscriptReader, scope: ThreadScope, new: NewRecord) -> Compaction | None:
    """Find the record with the range and text of *new*. *Raises*: as ``insert_record``."""
    thread = scope.thread
    if new.end_seq >= thread.next_seq:
        raise ValueError(f"seq {new.end_seq} is not given yet, the next one is {thread.next_seq}")
    if new.start_seq < thread.epoch_start:
        raise ValueError(
            f"seq {new.start_seq} lies before the clearing of the thread, which now begins "
            f"with {thread.epoch_start}"
        )
    live = {one.id: one for one in scope.all(tx, Compaction, live=True)}
    gone = [old for old in new.replacing if old.id not in live]
    if gone:
        raise Conflict(f"record {gone[0].id} is not live any more")
    replaced = {old.id for old in new.replacing}
    shared = [one for one in live.values() if one.id not in replaced and new.overlaps(one)]
    if not shared:
        if not scope.messages(tx, from_seq=new.start_seq, to_seq=new.end_seq, newest=1):
            raise ValueError(f"no message of {new.start_seq}..{new.end_seq} is there any more")
        return None
    same = [one for one in shared if new.is_same(one)]
    same = same or [
        one for one in tx.all(Compaction, thread.id, epoch=thread.epoch) if new.is_same(one)
    ]
    if same:
        return same[0]
    other = shared[0]
    raise Conflict(
        f"{new.start_seq}..{new.end_seq} overlaps with record {other.id} over "
        f"{other.start_seq}..{other.end_seq}"
    )


def require_whole(tx: TranscriptReader, scope: ThreadScope, start_seq: int, end_seq: int) -> None:
    """*Raises* ``ValueError``, with the nearest whole ranges, if a range cuts a seen group."""
    runs = scope.uncovered(scope.all(tx, Compaction, live=True))
    first, last, is_known = start_seq, end_seq, False
    while not is_known:
        found = scope.messages(tx, from_seq=first, to_seq=last)
        units = scope.units(tx, [one for one in found if lies_in(runs, one.seq)], runs)
        ranges = nearest_whole_ranges(units, start_seq, end_seq)
        is_known, (first, last) = ranges[-1] == (first, last), ranges[-1]
    if (start_seq, end_seq) not in ranges:
        named = " and ".join(f"{start}..{end}" for start, end in ranges)
        raise ValueError(
            f"{start_seq}..{end_seq} cuts a tool call from its result; the nearest whole "
            f"ranges are {named}"
        )


def reconstructed(
    placed: Iterable[tuple[int, Message]], records: Sequence[Compaction], count: Count
) -> list[Message]:
    """
    Replace each record's range in *placed*, ascending by seq, by its summary message; of *records*,
    live and in any order, no two share a seq.
    """
    due = sorted(records, key=lambda record: record.start_seq, reverse=True)
    shown: list[Message] = []
    covered_to = -1
    for seq, message in placed:
        while due and due[-1].start_seq <= seq:
            covered_to = due[-1].end_seq
            shown.append(summary_message(due.pop(), count))
        if seq > covered_to:
            shown.append(message)
    return shown + [summary_message(record, count) for record in reversed(due)]


def summary_message(record: Compaction, count: Count) -> Message:
    """Make the message that replaces the range of *record*; its text cannot leave its tag."""
    span = {"start_seq": record.start_seq, "end_seq": record.end_seq}
    content = untrusted("summary", record.summary_text, span)
    return Message(
        role="system",
        kind="summary",
        id=f"summary:{record.id}",
        content=content,
        at=record.at,
        token_count=count(content),
        metadata=span,
    )

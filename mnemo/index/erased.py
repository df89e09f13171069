"""Segments without what leaves recall: whatever of it they hold goes in the same transaction."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.batches import those
from mnemo.index.segment_rows import DROP_FROM, LEFT, Row, bytes_of, marks_of, put_segment
from mnemo.index.segments import Batch, Batches, Chain, Head, packed, unpacked
from mnemo.log.feed import removals_behind
from mnemo.store.rows import UNDECODABLE, listed, repo_row
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_object
from mnemo.values.feed import FeedCursor, document_number, message_document

log = logging.getLogger("mnemo")

MOST_REWRITTEN = 131_072
"""
Documents of the segments that one call writes again, 20 µs each, while other writers wait; what is
behind them the background makes anew of rows, 100 µs each.
"""

ALONE = 8
"""
Of so many documents of a large segment one may be a step that took the place of a message: it is
held in memory, until the segment is made anew.
"""

MOST_WAITING = 64
"""Expired messages that may wait in segments: at each append one expires, or several."""

# ── Without some documents ────────────────────────────────────────────────────────────


def without(batches: Batches, ids: Collection[str]) -> Batches:
    """
    *batches* without the documents of *ids*, which may be changesets, too: no name, word or vector
    that was theirs alone is left. A batch is the same object where nothing is theirs.
    """
    left = {kind: _without(batch, ids) for kind, batch in batches.items()}
    return {kind: batch for kind, batch in left.items() if kind == "steps" or len(batch)}


def _without(batch: Batch, ids: Collection[str]) -> Batch:
    kept = np.array([id not in ids for id in batch.names["ids"]], np.bool_)
    repeats = [one for one in batch.repeats if one[0] not in ids and one[1] not in ids]
    origins = batch.names.get("origins", ())
    if kept.all() and len(repeats) == len(batch.repeats) and not {*origins} & {*ids}:
        return batch
    names = {**batch.names}
    if origins:
        names["origins"] = ["" if origin in ids else origin for origin in origins]
    return those(replace(batch, names=names, repeats=repeats), kept)


def _resting_on(batch: Batch, ids: Collection[str]) -> set[str]:
    """The nodes of *batch* behind which is one of *ids*."""
    hit = np.array([id in ids for id in batch.names["behind"]], np.bool_)
    owners = np.repeat(np.arange(len(batch)), batch.columns["behind"].astype(np.int64))[hit]
    return {batch.names["ids"][at] for at in np.unique(owners).tolist()}


# ── In the transaction in which it leaves ─────────────────────────────────────────────

_SEGMENTS = """
SELECT chain, no, documents, until, named, digest FROM segments
WHERE repo = ? AND chain IN ('nodes', 'steps') AND part = 0 ORDER BY chain, no
"""
_WAIT = """
INSERT INTO segments (repo, chain, no, part, documents, until, named, bytes)
SELECT repo, 'expired', seq - 1, 0, 0, '', ?, ? FROM removals
WHERE repo = ? ORDER BY seq DESC LIMIT 1 OFFSET ?
"""
_WAITING = """
SELECT r.node_id FROM segments s $join removals r ON r.repo = s.repo AND r.seq > s.no
WHERE s.repo = ? AND s.chain = 'expired'
"""
_DONE = "DELETE FROM segments WHERE repo = ? AND chain = 'expired'"
_OWED = """
SELECT r.id FROM segments s $join repos r ON r.no = s.repo WHERE s.chain = 'expired'
"""
_HAVE_STEPS = """
SELECT 1 FROM messages m $join threads t ON t.no = m.thread AND $also t.repo = m.repo
$join steps p ON p.repo = m.repo AND p.thread = t.id AND p.message = m.id AND p.gone = 0
WHERE $also m.repo = ? AND m.no IN $numbers AND p.ordinal > ? LIMIT 1
"""
_DROP = "DELETE FROM segments WHERE repo = ? AND chain = ? AND no = ?"
_CHANGED = """
SELECT id FROM nodes WHERE repo = ? AND revision > ? AND type NOT IN ('episodic', 'source')
"""
_UNCHANGED = "SELECT id FROM nodes WHERE repo = ? AND id IN $texts AND revision <= ? LIMIT 1"
_REPEATED = """
SELECT m.no FROM steps p $join threads q ON q.repo = p.repo AND q.id = p.thread
$join messages m ON m.repo = q.repo AND m.thread = q.no AND m.id = p.message
WHERE p.repo = ? AND p.node_id IN $texts
"""


def leave_segments(tx: Tx, repo: int, ids: Sequence[str], expired: bool = False) -> None:
    """
    Take *ids* out of the segments of a repository, in the transaction in which they leave recall:
    those that name one are written again without it, the others stay. Where that would not be what
    reading anew gives, those from there on go, and are made anew.

    What such a transaction changes of other nodes it gives a new revision: they go, too, and come
    back with the feed. Messages that are *expired* wait for others: until then whoever takes up
    the segments reads of them from the log.
    """
    rows = tx.run(_SEGMENTS, (repo,)).fetchall()
    waiting = [id for (id,) in tx.run(_WAITING, (repo,))]  # with *ids*, if there are others
    may_wait = expired and bool(rows) and max(len(ids), len(waiting)) < MOST_WAITING
    large = [_end(until).step for chain, _, _, until, _, digest in rows if digest is not None]
    if may_wait and not _have_steps(tx, repo, ids, large[-1] if large else 0):
        if not waiting:
            tx.run(_WAIT, (b"", b"", repo, len(ids) - 1))
        return
    tx.run(_DONE, (repo,))
    leaving = _Leaving(tx, repo, {*ids, *waiting})
    for chain, of_chain in groupby(rows, itemgetter(0)):
        leaving.leave(chain, [row[1:] for row in of_chain])


def owing_segments(tx: Tx) -> list[str]:
    """The ids of the repositories in whose segments something waits to leave."""
    return [id for (id,) in tx.run(_OWED)]


def leave_put_off(tx: Tx, repo_id: str) -> None:
    """Take what waits out of the segments of a repository."""
    leave_segments(tx, repo_row(tx, repo_id)[0], ())


def left_since(tx: Tx, head: Head) -> set[str] | None:
    """
    The ids that have left all segments since the one of *head* was made; ``None``: some are logged
    no more.
    """
    (until,) = tx.run(LEFT, {"repo": head.repo}).fetchone()
    gone, missed = removals_behind(tx, head.repo, head.until.removal)
    return None if missed else {id for number, id in gone if number <= until}


def without_left(tx: Tx, row: Row, ids: set[str]) -> Row | None:
    """
    A segment that is about to be the last of its chain without *ids*, which have left the others.
    ``None``: nothing stays, or it is to be made anew.
    """
    head, is_large = row.head, row.digest is not None
    leaving = _Leaving(tx, head.repo, ids)
    wanted = leaving.wanted(head.chain, head.until) if ids else ids
    if not _may_name(row.named, marks_of(wanted)):
        return row
    try:
        left = leaving.left_of(head, unpacked(row.segment)[1], wanted, is_large)
    except ValueError as error:
        log.info("a part of the index is to be made anew: %s", error)
        return None
    return _rewritten(head, left, is_large)


def _rewritten(head: Head, left: Batches, is_large: bool) -> Row | None:
    """A segment of what is left, if anything is."""
    if not any(len(batch) or batch.repeats for batch in left.values()):
        return None
    head = replace(head, documents=sum(map(len, left.values())))
    segment = packed(head, left, findable=is_large)
    return Row.of(head, segment, is_large=is_large, batches=left)


def _have_steps(tx: Tx, repo: int, ids: Iterable[str], after: int) -> bool:
    """Whether steps behind *after* repeat one of these messages, which would take its place."""
    numbers = listed(no for id in ids if (no := document_number(id)) is not None)
    return tx.run(_HAVE_STEPS, (repo, numbers, after)).fetchone() is not None


class _Leaving:
    """What leaves the segments of a repository, and how many documents may be written for that."""

    def __init__(self, tx: Tx, repo: int, ids: set[str]) -> None:
        self._tx, self._repo = tx, repo
        self._ids, self._left = ids, MOST_REWRITTEN

    def leave(self, chain: Chain, rows: Sequence[Sequence[Any]]) -> None:
        wanted = self.wanted(chain, _end(rows[-1][2]))
        marks = marks_of(wanted)
        begin: FeedCursor | None = None
        for no, documents, _, named, digest in rows:
            if begin is None and not _may_name(named, marks):
                continue
            try:
                self._left -= documents
                if self._left < 0:
                    raise ValueError("too much of it is erased at once")
                head, batches = unpacked(bytes_of(self._tx, self._repo, chain, no))
                left = self.left_of(head, batches, wanted, digest is not None)
            except UNDECODABLE as error:
                log.info("a part of the index is to be made anew: %s", error)
                self._tx.run(DROP_FROM, (self._repo, chain, no))
                break
            if begin is None and all(left.get(kind) is batch for kind, batch in batches.items()):
                continue
            self._tx.run(_DROP, (self._repo, chain, no))
            begin = begin or head.after
            row = _rewritten(replace(head, after=begin), left, digest is not None)
            if row is not None:
                put_segment(self._tx, no, row)
                begin = None

    def wanted(self, chain: Chain, end: FeedCursor) -> set[str]:
        """Ids of which something may have to go from a chain up to *end*."""
        if chain == "steps":
            return self._ids
        changed = self._tx.run(_CHANGED, (self._repo, end.revision)).fetchall()
        repeated = self._tx.run(_REPEATED, (self._repo, listed(self._ids))).fetchall()
        return self._ids.union(
            (id for (id,) in changed), (message_document(no) for (no,) in repeated)
        )

    def left_of(self, head: Head, batches: Batches, wanted: set[str], large: bool) -> Batches:
        """*batches* without what leaves. *Raises* ``ValueError``: they are to be made anew."""
        if head.chain == "steps":
            steps = batches["steps"]
            if any(message in wanted and step not in wanted for step, message, *_ in steps.repeats):
                if not large:
                    raise ValueError("a step takes the place of the message that it repeats")
                batches = {"steps": _alone(steps, wanted)}
            return without(batches, wanted)
        ids = (id for batch in batches.values() for id in batch.names["ids"])
        touched = wanted.intersection(ids).union(
            *(_resting_on(batch, wanted) for batch in batches.values())
        )
        others = listed(touched - self._ids)
        if self._tx.run(_UNCHANGED, (self._repo, others, head.until.revision)).fetchone():
            raise ValueError("what is behind a node has changed, and not the node")
        return without(batches, self._ids | touched)


def _end(until: Any) -> FeedCursor:
    """Where a segment ends; one that is damaged, at the beginning."""
    try:
        return FeedCursor(**decode_object(until))
    except UNDECODABLE:
        return FeedCursor()


def _alone(batch: Batch, ids: Collection[str]) -> Batch:
    """*batch*, steps that repeat one of *ids* without it. *Raises* ``ValueError``: too many do."""
    repeats = [(s, "" if message in ids else message, *of) for s, message, *of in batch.repeats]
    if ALONE * sum(not message for _, message, *_ in repeats) > len(batch):
        raise ValueError("many steps take the place of the messages that they repeat")
    return replace(batch, repeats=repeats)


def _may_name(named: Any, marks: NDArray[np.uint32]) -> bool:
    """Whether a segment may name what *marks* are of; one that does not tell may."""
    if not isinstance(named, bytes) or len(named) % 4:
        return True
    known = np.frombuffer(named, "<u4")
    at = np.searchsorted(known, marks)
    return bool((known[np.minimum(at, len(known) - 1)] == marks).any()) if len(known) else False

"""The conversations of one repository: what work on them reads and writes, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import Conflict
from mnemo.jobs import job_rows as jobs
from mnemo.jobs.job_rows import LeaseTime
from mnemo.log.erase_messages import erase_messages, index_shown, unindex_shown
from mnemo.log.record_rows import BY_PLACE, LAST_SEQ, OF_THREAD, message_row, snapshot_row
from mnemo.log.tombstones import erased_messages
from mnemo.log.units import EVERYWHERE, Around, Runs
from mnemo.protocols import Clock, EmbeddingSpace
from mnemo.store.engine import OfRepository, thread_lock
from mnemo.store.rows import (
    Rows,
    chunks,
    holes,
    listed,
    repo_number,
    repo_row,
)
from mnemo.store.table import Table
from mnemo.store.tables import (
    COMPACTIONS,
    GOALS,
    JOBS,
    MESSAGES,
    OUTCOMES,
    PINS,
    SNAPSHOTS,
    SURFACED,
    THREADS,
)
from mnemo.store.texts import drop_texts, put_texts
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_list, decode_time, decode_vector, utc_text
from mnemo.values.derived import Derived, Snapshot, Surfaced, Thread
from mnemo.values.erasure import ErasureReport
from mnemo.values.jobs import Job, JobKind, JobLevels, JobState
from mnemo.values.journal import Owner
from mnemo.values.messages import Role, StoredMessage, searchable_text
from mnemo.values.units import Unit

T = TypeVar("T")
D = TypeVar("D", bound=Derived)

# What no thread has: everything is looked up under it in vain.
_NOBODY = 0
_THREAD_ROWS = f"""
SELECT id, no, {", ".join(THREADS.columns)} FROM threads WHERE repo = ? AND id IN ({{}})
"""
_ALL_THREADS = f"{THREADS.select} ORDER BY id"
_BEGUN_THREADS = f"{THREADS.select} AND next_seq > 0 AND id > ? ORDER BY id LIMIT ?"
_WATCHED_THREADS = f"{THREADS.select} AND budget_tokens IS NOT NULL ORDER BY id"
TENDED = """
SELECT 1 FROM threads WHERE repo = ? AND (ttl_s IS NOT NULL OR budget_tokens IS NOT NULL) LIMIT 1
"""
_PUTS_AT_ONCE = 32
"""Few sizes of a statement stay prepared (S)."""
_READ_AT_ONCE = 1_000
"""Threads that one statement reads (S)."""
_ID = [*THREADS.columns].index("id")
_INDEXES = {"user": "messages_user", "system": "messages_system"}
_BY_ROLE: dict[Role, str] = {
    role: OF_THREAD.format(index=f"$by({_INDEXES.get(role, 'messages_place')})")
    + f"AND m.role = '{role}'"
    for role in get_args(Role)
}
_BY_ID = OF_THREAD.format(index="$by(messages_id)") + "AND m.id IN $texts"
_SPAN = """
SELECT count(*), coalesce(sum(tokens), 0) FROM messages $by(messages_place)
WHERE repo = ? AND thread = ? AND seq BETWEEN ? AND ? AND recorded_at >= ?
"""
_RECORDED = """
SELECT seq, recorded_at FROM messages $by(messages_place)
WHERE repo = ? AND thread = ? AND seq >= ? ORDER BY seq LIMIT ?
"""
_TIMES = Rows("messages", "i s", lambda row: (int(row[0]), decode_time(row[1])))
# The keys of a message's sides and passages: what begins with its document and a slash.
_VECTORS = """
SELECT m.seq, v.vector FROM messages m $by(messages_place) $join vectors v ON v.repo = m.repo
AND v.key > 'message-' || m.no || '/' AND v.key < 'message-' || m.no || '0'
WHERE m.repo = ? AND m.thread = ? AND m.seq >= ? AND m.recorded_at >= ?
ORDER BY m.seq DESC, v.key LIMIT ?
"""
_EXTRACTING = """
SELECT id FROM sessions WHERE repo = ? AND thread_id = ? AND state <> 'idle' ORDER BY no
"""
_OF_MESSAGES = """
FROM steps t JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
JOIN episodes e ON e.no = t.episode AND $also e.repo = t.repo
WHERE t.repo = ? AND t.thread = ? AND t.message IN $texts AND s.thread_id IS
"""
_FED = f"SELECT DISTINCT t.message {_OF_MESSAGES} NULL"
_MADE = f"SELECT DISTINCT e.id, e.receipt_nodes, e.no {_OF_MESSAGES} NOT NULL ORDER BY e.no"
_RECEIPTS = Rows("episodes", "s s i", lambda row: decode_list(row[1], str))
_INSERTED = ("no", "repo", "thread", *MESSAGES.columns)
_CALL = ("repo", "thread", "call_id", "seq")


_DERIVED: dict[type, Table[Any]] = {
    table.entity.kind: table for table in (COMPACTIONS, SNAPSHOTS, OUTCOMES, GOALS, PINS, SURFACED)
}
_LIVE = {
    COMPACTIONS: (" AND superseded_by IS NULL", "compactions_live"),
    SNAPSHOTS: (" AND covered_by IS NULL", "snapshots_live"),
    GOALS: (" AND status = 'active'", "goals_active"),
}
"""The condition for what ``is_live``, and the index that finds it in order."""


@cache
def _put_threads(count: int) -> str:
    return f"{THREADS.upsert_of(count)} RETURNING id, no"


class TranscriptReader:
    """Messages and derived rows as of one moment; *lease_time*: for leases, default *now*."""

    def __init__(
        self, tx: Tx, repo_id: str, now: datetime, lease_time: LeaseTime | None = None
    ) -> None:
        self._tx = tx
        self._repo, _, self._space_name, self._dimensions = repo_row(tx, repo_id)
        self._now = now
        self._lease_time = lease_time
        self._lease_now: datetime | None = None
        self._rows: dict[str, Sequence[Any] | None] = {}
        self._threads: dict[str, Thread] = {}

    @property
    def now(self) -> datetime:
        """The store's time of this transaction."""
        return self._now

    @property
    def lease_now(self) -> datetime:
        """The time that leases and due times are measured by, the same for all of it."""
        if self._lease_now is None:
            self._lease_now = self._lease_time(self._tx) if self._lease_time else self._now
        return self._lease_now

    @property
    def space(self) -> str | None:
        """Of the repository's vectors; ``None`` before the first."""
        if self._space_name is None or self._dimensions is None:
            return None
        return str(EmbeddingSpace(self._space_name, self._dimensions))

    def _number(self, thread_id: str) -> int:
        row = self._row(thread_id)
        return _NOBODY if row is None else int(row[0])

    def _place(self, thread_id: str) -> tuple[int, int]:
        """The numbers that rows of the thread have."""
        number = self._number(thread_id)
        return self._repo, number

    def _row(self, thread_id: str) -> Sequence[Any] | None:
        """Number and columns of the thread; ``None``: nobody wrote to it yet."""
        if thread_id not in self._rows:
            self.look_up([thread_id])
        return self._rows[thread_id]

    def look_up(self, thread_ids: Sequence[str]) -> None:
        """Read the rows of threads that are asked for next, all at once."""
        self._rows.update(dict.fromkeys(thread_ids))
        for some in chunks(thread_ids):
            rows = self._tx.run(_THREAD_ROWS.format(holes(some)), (self._repo, *some))
            self._rows.update((id, row) for id, *row in rows)

    # ── Messages ─────────────────────────────────────────────────────────────────────

    def messages(
        self,
        thread_id: str,
        *,
        from_seq: int = 0,
        to_seq: int | None = None,
        newest: int | None = None,
        role: Role | None = None,
        since: datetime | None = None,
    ) -> list[StoredMessage]:
        """
        Messages of the range (both ends inclusive), ascending; fresh copies. Only the *newest* so
        many; only those recorded *since* then: what was before is expired.
        """
        query = (_BY_ROLE[role] if role else BY_PLACE) + " AND m.seq >= ?"
        values: list[Any] = [*self._place(thread_id), min(from_seq, LAST_SEQ)]
        last = None if to_seq is None else min(to_seq, LAST_SEQ)
        given = ((" AND m.seq <= ?", last), (" AND m.recorded_at >= ?", since and utc_text(since)))
        for condition, value in given:
            if value is not None:
                query += condition
                values.append(value)
        if newest is None:
            return MESSAGES.rows.all(self._tx.run(query + " ORDER BY m.seq", values))
        query += " ORDER BY m.seq DESC LIMIT ?"
        return MESSAGES.rows.all(self._tx.run(query, [*values, newest]))[::-1]

    def recorded(self, thread_id: str, *, from_seq: int, limit: int) -> list[tuple[int, datetime]]:
        """When the first messages from *from_seq* on were recorded; damaged times are left out."""
        values = (*self._place(thread_id), from_seq, limit)
        return _TIMES.intact(self._tx.run(_RECORDED, values))

    def by_id(self, thread_id: str, ids: Sequence[str]) -> dict[str, StoredMessage]:
        """Those of *ids* that the thread holds, expired ones included."""
        rows = self._tx.run(_BY_ID, (*self._place(thread_id), listed(ids)))
        return {message.stored_id: message for message in MESSAGES.rows.all(rows)}

    def whole_units(
        self,
        messages: Sequence[StoredMessage],
        known: Iterable[StoredMessage] = (),
        *,
        since: datetime | None = None,
        runs: Runs = EVERYWHERE,
    ) -> list[Unit]:
        """The units that *messages*, of one thread, are of; as of ``Around.units``."""
        if not messages:
            return []
        place = self._place(messages[0].thread_id)
        return Around(self._tx, *place, since, runs).units(messages, known)

    def span(
        self,
        thread_id: str,
        *,
        from_seq: int,
        to_seq: int = LAST_SEQ,
        since: datetime | None = None,
    ) -> tuple[int, int]:
        """How many messages there are in the range, both ends inclusive, and their tokens."""
        place = (*self._place(thread_id), from_seq, to_seq)
        recorded = "" if since is None else utc_text(since)
        count, tokens = self._tx.run(_SPAN, (*place, recorded)).fetchone()
        return int(count), int(tokens)

    def erased_ids(self, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Those of *ids* that were erased from the thread, by whatever."""
        return erased_messages(self._tx, self._number(thread_id), ids)

    def vectors(
        self,
        thread_id: str,
        *,
        from_seq: int = 0,
        since: datetime | None = None,
        newest: int | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """
        The *newest* vectors, ``(n, d)``, and their seqs, last message first; it may have several.
        """
        dimensions = self._dimensions or 0
        recorded = "" if since is None else utc_text(since)
        values = (*self._place(thread_id), from_seq, recorded, newest or LAST_SEQ)
        read = Rows("vectors", "i b", lambda row: (row[0], decode_vector(row[1], dimensions)))
        rows = read.intact(self._tx.run(_VECTORS, values))
        vectors = np.empty((len(rows), dimensions), dtype=np.float32)
        for place, (_, vector) in enumerate(rows):
            vectors[place] = vector
        return np.array([seq for seq, _ in rows], np.int64), vectors

    # ── Jobs ─────────────────────────────────────────────────────────────────────────

    def job(self, kind: JobKind, subject: str) -> Job | None:
        """The job of this kind and subject; ``None``: there never was one."""
        return JOBS.get(self._tx, self._repo, kind, subject)

    def jobs(
        self, state: JobState, *, due: datetime | None = None, limit: int | None = None
    ) -> list[Job]:
        """Jobs in *state*, by the time when they are due; the first *limit* of those *due* then."""
        return jobs.find_jobs(self._tx, self._repo, state, due=due, limit=limit)

    def job_levels(self) -> JobLevels:
        """How many jobs there are in each state, and messages that wait; without errors."""
        return next(iter(jobs.backlog(self._tx, self._repo).values()), JobLevels())

    def is_owned_elsewhere(self, owner: str | None, me: Owner) -> bool:
        """Whether *owner*, the token of a service, keeps what it has claimed from *me*."""
        if owner is None or owner == me.token:
            return False
        return jobs.is_held_by(self._tx, owner, me=me, now=self.lease_now)

    def extracting(self, thread_id: str) -> list[str]:
        """Ids of the sessions of the thread's job that are not idle."""
        return [id for (id,) in self._tx.run(_EXTRACTING, (self._repo, thread_id))]

    def fed(self, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Those of the messages *ids* that are steps of a session by hand."""
        rows = self._tx.run(_FED, (self._repo, thread_id, listed(ids)))
        return frozenset(id for (id,) in rows)

    def made_of(self, thread_id: str, ids: Sequence[str]) -> list[str]:
        """Ids of the nodes that the job's commits of these messages left."""
        receipts = _RECEIPTS.all(self._tx.run(_MADE, (self._repo, thread_id, listed(ids))))
        return list(dict.fromkeys(id for receipt in receipts for id in receipt))

    # ── What was derived ─────────────────────────────────────────────────────────────

    def thread(self, thread_id: str) -> Thread:
        """Its row; of a thread that nobody wrote to, the one it would begin with."""
        if thread_id not in self._threads:
            row = self._row(thread_id)
            stored = Thread(id=thread_id) if row is None else THREADS.rows.one(row[1:])
            self._threads[thread_id] = stored
        return self._threads[thread_id]

    def threads(self, *, watched: bool = False) -> list[Thread]:
        """All threads by id, or those with a viewport's budget; damaged ones are passed by."""
        query = _WATCHED_THREADS if watched else _ALL_THREADS
        return THREADS.rows.intact(self._tx.run(query, (self._repo,)))

    def begun_threads(self, limit: int | None, after: str) -> list[Thread]:
        """
        Those that anything was appended to, by id: behind *after*, at most *limit*.

        Damaged ones are passed by; no others are read.
        """
        found: list[Thread] = []
        while limit is None or len(found) < limit:
            count = _READ_AT_ONCE if limit is None else limit - len(found)
            rows = self._tx.run(_BEGUN_THREADS, (self._repo, after, count)).fetchall()
            found += THREADS.rows.intact(rows)
            if len(rows) < count:
                break
            after = rows[-1][_ID]
        return found

    def all(
        self,
        kind: type[D],
        thread_id: str,
        *,
        epoch: int | None = None,
        live: bool = False,
        newest: int | None = None,
    ) -> list[D]:
        """
        What of *kind* was derived from the thread, ascending by range, seq or goal id. Only of the
        *epoch*; only what ``is_live`` (by an index, at a cost that does not grow with what is not);
        only the *newest* so many.
        """
        table: Table[D] = _DERIVED[kind]
        condition, index = _LIVE.get(table, ("", "")) if live else ("", "")
        query, descending = table.select + condition, "" if newest is None else " DESC"
        if index:
            query = query.replace(" WHERE ", f" $by({index}) WHERE ", 1)
        if epoch is not None:
            query += " AND epoch = ?"
        query += f" ORDER BY {', '.join(column + descending for column in table.order)}"
        if newest is not None:
            query += " LIMIT ?"
        values = (value for value in (epoch, newest) if value is not None)
        rows = self._tx.run(query, (*self._place(thread_id), *values))
        found = table.rows.all((thread_id, *row) for row in rows)
        return found if newest is None else found[::-1]


_FIND_SNAPSHOT = "SELECT no, text, at FROM snapshots WHERE repo = ? AND thread = ? AND id = ?"


class TranscriptWriter(TranscriptReader):
    """
    One transaction on the threads of a repository, for the works of several callers in turn. Rows
    of threads and new messages are kept until ``flush``; whatever else reads or writes what they
    are part of calls it first.
    """

    def __init__(
        self, tx: Tx, repo_id: str, now: datetime, lease_time: LeaseTime | None = None
    ) -> None:
        super().__init__(tx, repo_id, now, lease_time)
        self._repo_id = repo_id
        self._has_written = False
        self._kept: dict[str, None] = {}
        self._added: list[tuple[StoredMessage, str]] = []

    @property
    def _out(self) -> Tx:
        """The transaction, to write over."""
        self._enter()
        return self._tx

    def _enter(self) -> None:
        """Enter the repository, if it is new: what writes nothing makes none, nor one that went."""
        self._has_written = True
        if not self._repo:
            self._repo = repo_number(self._tx, self._repo_id)

    def run(self, work: Callable[[TranscriptWriter], T]) -> T | Conflict:
        """Do *work*; what it refuses before it has written anything, it refuses for itself."""
        self._has_written = False
        try:
            return work(self)
        except Conflict as refusal:
            if self._has_written:
                raise
            return refusal

    def flush(self) -> None:
        """Write what is kept. *Raises* ``Conflict`` for a seq or id that a thread has."""
        if not self._kept:
            return
        kept, self._kept, added, self._added = self._kept, {}, self._added, []
        has_written, self._has_written = self._has_written, True
        for some in chunks(list(kept), _PUTS_AT_ONCE):
            threads = (THREADS.values(self._threads[id]) for id in some)
            values = [value for one in threads for value in (self._repo, *one)]
            rows = self._tx.run(_put_threads(len(some)), values).fetchall()
            self._rows.update((id, (number,)) for id, number in rows)
        if added:
            self._insert(added)
        self._has_written = has_written

    def _insert(self, added: Sequence[tuple[StoredMessage, str]]) -> None:
        """Insert messages, with calls and full text, into threads whose rows are written."""
        tx = self._tx
        last = tx.dialect.reserve(tx, "messages", {self._repo: len(added)})[self._repo]
        rows, texts, calls = [], [], []
        for no, (message, text) in enumerate(added, last + 1):
            thread = self._number(message.thread_id)
            rows.append((no, self._repo, thread, *MESSAGES.values(message)))
            texts.append((message_row(no), text, message.said_at))
            calls += [(self._repo, thread, call.id, message.seq) for call in message.tool_calls]
        with tx.refusing(Conflict("a message's id or seq is in the thread already")):
            tx.insert("messages", _INSERTED, rows)
        if calls:
            tx.insert("message_calls", _CALL, calls)
        put_texts(tx, self._repo, texts)

    def _number(self, thread_id: str) -> int:
        if thread_id in self._kept:
            self.flush()
        return super()._number(thread_id)

    def threads(self, *, watched: bool = False) -> list[Thread]:
        """All threads by id, or those that have a viewport's budget."""
        self.flush()
        return super().threads(watched=watched)

    def keep(self, thread: Thread) -> None:
        """Write the thread's row."""
        self._enter()
        self._threads[thread.id] = thread
        self._kept[thread.id] = None

    def put_job(self, job: Job) -> None:
        """Insert, or replace by kind and subject."""
        JOBS.put(self._out, self._repo, job)

    def _begun(self, thread_id: str) -> int:
        if not self._number(thread_id):
            self.keep(self.thread(thread_id))
        return self._number(thread_id)

    def add(self, messages: Sequence[StoredMessage], *, search_tools: bool = False) -> None:
        """Insert messages, once the work is done: a seq or id that the thread has fails it."""
        for message in messages:
            self.keep(self.thread(message.thread_id))
            self._added.append((message, searchable_text(message, tools=search_tools)))

    def put(self, *values: Derived) -> None:
        """Insert or replace by id (or place); a snapshot with its row in the full text."""
        for value in values:
            thread = self._begun(value.thread_id)
            if isinstance(value, Snapshot):
                _put_snapshot(self._out, self._repo, thread, value)
                continue
            if isinstance(value, Surfaced):
                index_shown(self._out, self._repo, thread, value)
            _DERIVED[type(value)].put(self._out, self._repo, value, thread)

    def drop(self, *values: Derived) -> None:
        """Delete; what is not there is skipped."""
        for value in values:
            thread = self._number(value.thread_id)
            if isinstance(value, Snapshot):
                _drop_snapshot(self._out, self._repo, thread, value)
            if isinstance(value, Surfaced):
                unindex_shown(self._out, self._repo, thread, value)
            _DERIVED[type(value)].drop(self._out, self._repo, value, thread)

    def erase(self, thread_id: str, seqs: Sequence[int]) -> ErasureReport:
        """Delete expired messages with all that tells of them; their ids stay as erased ones."""
        places = [(self._number(thread_id), seq) for seq in seqs]
        erased = erase_messages(self._out, self._repo, places, expired=True)
        if erased.messages:
            self._out.dialect.note_expired(self._out)
        return erased


# ── Snapshots and their rows in the full text ────────────────────────────────────────


def _put_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Insert it, or replace the one of its id."""
    before = tx.run(_FIND_SNAPSHOT, (repo, thread, snapshot.id)).fetchone()
    SNAPSHOTS.put(tx, repo, snapshot, thread)
    now = tx.run(_FIND_SNAPSHOT, (repo, thread, snapshot.id)).fetchone()
    if before is not None and before == now:
        return
    no, text, _ = now
    drop_texts(tx, repo, [snapshot_row(no)])
    put_texts(tx, repo, [(snapshot_row(no), text, snapshot.at)])


def _drop_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Take its text out of the index, if it is there."""
    row = tx.run(_FIND_SNAPSHOT, (repo, thread, snapshot.id)).fetchone()
    if row is not None:
        drop_texts(tx, repo, [snapshot_row(row[0])])


# ── The store of one repository ──────────────────────────────────────────────────────


class StoredTranscript(OfRepository):
    """The conversations of one repository."""

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """Run *work* in a thread, on one moment. *Raises* ``StoreError``. *Cancellation*: safe."""

        def read(tx: Tx) -> T:
            return work(TranscriptReader(tx, self._repo_id, self._clock.now(), self._lease_time))

        return await self._engine.reading(read)

    async def writing(
        self, work: Callable[[TranscriptWriter], T], *, thread_id: str | None = None
    ) -> T:
        """
        Run *work* in one transaction, with others that wait, and give its result once durable.

        *thread_id*: The thread that *work* asks for first, read with those of the others. Whoever
        adds or erases messages names theirs: nobody makes steps of these meanwhile. *Raises*
        ``Exception``: what *work* raised, or ``StoreError``; nothing was written. *Cancellation*:
        completes.
        """
        handed = HandedWork(self._repo_id, thread_id, work, self._clock, self._lease_time)
        locks = [("transcript", self._repo_id)]
        if thread_id is not None:
            locks.append(thread_lock(self._repo_id, thread_id))
        result: T = await self._engine.merging(write_together, handed, locks=locks)
        return result


class HandedWork(NamedTuple):
    """Work on its way to the writer, and the thread that it reads first."""

    repo_id: str
    thread_id: str | None
    work: Callable[[TranscriptWriter], Any]
    clock: Clock
    lease_time: LeaseTime


def write_together(tx: Tx, handed: Sequence[HandedWork]) -> list[Any]:
    """Do what was handed over, in order; what several callers append is written together."""
    read: dict[str, set[str]] = {}
    for one in handed:
        read.setdefault(one.repo_id, set()).update([one.thread_id] if one.thread_id else ())
    writers: dict[str, TranscriptWriter] = {}
    results = []
    for one in handed:
        if one.repo_id not in writers:
            writer = TranscriptWriter(tx, one.repo_id, one.clock.now(), one.lease_time)
            writer.look_up(sorted(read[one.repo_id]))
            writers[one.repo_id] = writer
        results.append(writers[one.repo_id].run(one.work))
    for writer in writers.values():
        writer.flush()
    return results

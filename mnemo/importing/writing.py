"""Store what a file holds, records of an export or dialogues: each once, and counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from mnemo import (
    Conflict,
    GetItem,
    Memory,
    NotFound,
    PutItem,
    Repository,
    Session,
    SessionError,
    SessionState,
    Step,
    UsageError,
)
from mnemo.importing.json_stream import ImportFileError
from mnemo.importing.records import (
    Broken,
    Item,
    KeyedRecord,
    MemoryRecord,
    Record,
    Skipped,
    Stored,
    Talk,
    Turn,
)
from mnemo.runtime.text import clean

R = TypeVar("R", Record, KeyedRecord)
Way: TypeAlias = Callable[[Any], Awaitable[list[Broken]]]
"""Stores records of one kind that keep their order; gives what was refused."""

AT_ONCE = 500
"""Items that are read at once, unless their texts are long."""
LONG = 1 << 19
"""Characters of texts from which on no further item is read at once (S)."""
SESSIONS_AT_ONCE = 4
"""Sessions that are written side by side."""
MOST_SHOWN = 10
"""Records that a preview shows, and broken ones of which the place is kept."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Arrival:
    """
    What an import did with messages, memories, keyed items or steps.

    Attributes:
        known: Those that were there before, or are erased.
        sessions: Of dialogues: how many are new, were resumed, were complete.
        skipped: Reason → how many.
        broken: The first ones; *broken_records* counts all.
        problem: Where the file itself ended before its time.
    """

    added: int = 0
    known: int = 0
    sessions: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    broken_records: int = 0
    broken: list[Broken] = field(default_factory=list)
    problem: ImportFileError | None = None

    def count(self, new: int, of: int) -> None:
        """Count *of* records, of which so many are new."""
        self.added += new
        self.known += of - new

    def note(self, item: Skipped | Broken, *, strict: bool) -> None:
        """Count it. *Raises* ``UsageError``: it is broken, and none may be."""
        if isinstance(item, Skipped):
            self.skipped[item.reason] += 1
            return
        if strict:
            raise UsageError(f"{item.place}: {item.what}; what stands before it is kept")
        self.broken_records += 1
        if len(self.broken) < MOST_SHOWN:
            self.broken.append(item)


@dataclass(slots=True)
class Preview(Arrival):
    """What an import would do, without a look at what is stored: *added* are all."""

    first: list[Stored] = field(default_factory=list)


def preview(items: Iterator[Item], *, strict: bool) -> Preview:
    """Read *items* to the end. *Raises* as ``Arrival.note``."""
    found = Preview()
    try:
        for item in items:
            if isinstance(item, Skipped | Broken):
                found.note(item, strict=strict)
                continue
            found.added += 1
            if len(found.first) < MOST_SHOWN:
                found.first.append(item)
    except ImportFileError as problem:
        found.problem = problem
    return found


async def import_items(
    repo: Repository,
    items: Iterator[Item],
    *,
    strict: bool = False,
    remembers: bool = True,
    advance: Callable[[int], None] = lambda count: None,
) -> Arrival:
    """
    Store the records of *items*, each once; what is there already is left as it is.

    Messages are remembered, or appended alone; dialogues become sessions, which are committed.
    *advance* is told how many were stored or known. *Cancellation*: safe; the next import goes
    on.

    Raises:
        UsageError: With *strict*, at a broken record; what stands before it is kept.
        Conflict: A step's key is known with another text; the first stays.
        SessionBusy: Another process has a session of a dialogue open.
        ExtractionFailed: Of a session; its steps are kept.
    """
    work = _Import(repo, remembers, advance)
    arrival = work.arrival
    while arrival.problem is None:
        batch: list[Item] = []
        try:
            await anyio.to_thread.run_sync(_read, items, batch, strict)
        except ImportFileError as problem:
            arrival.problem = problem
        if not batch:
            break
        for item in [*batch, *await work.store(batch)]:
            if isinstance(item, Skipped | Broken):
                arrival.note(item, strict=strict)
    return arrival


def _read(items: Iterator[Item], batch: list[Item], strict: bool) -> None:
    """Read into *batch*, which keeps what stands before a mistake of the file."""
    size = 0
    for item in islice(items, AT_ONCE):
        batch.append(item)
        size += _size(item)
        if size >= LONG or (strict and isinstance(item, Broken)):
            return


def _size(item: Item) -> int:
    """Characters of its texts."""
    match item:
        case Record():
            return len(item.message.text)
        case MemoryRecord():
            return len(item.text)
        case KeyedRecord():
            return sum(map(len, item.texts.values()))
        case Talk():
            return sum(turn.size for turn in item.turns)
        case _:
            return 0


class _Import:
    """Stores batches of items in *repo*, and counts."""

    def __init__(self, repo: Repository, remembers: bool, advance: Callable[[int], None]) -> None:
        self._repo = repo
        self._remembers = remembers
        self._advance = advance
        self._sessions = anyio.Semaphore(SESSIONS_AT_ONCE)
        self.arrival = Arrival()

    async def store(self, batch: Sequence[Item]) -> list[Broken]:
        """
        Store *batch*, its threads and sessions side by side, each in order; what was refused.

        Messages of several threads so share transactions.
        """
        lanes: defaultdict[tuple[Way, str], list[Any]] = defaultdict(list)
        for item in batch:
            match item:
                case Record():
                    lanes[self._remember, item.thread_id].append(item)
                case KeyedRecord():
                    lanes[self._put, ""].append(item)
                case MemoryRecord():
                    lanes[self._add, ""].append(item)
                case Talk():
                    lanes[self._complete, item.name].append(item)
        refused: list[Broken] = []

        async def run(way: Way, lane: list[Any]) -> None:
            is_batch = way in (self._remember, self._put)
            refused.extend(await (_kept(lane, way) if is_batch else way(lane)))

        try:
            async with anyio.create_task_group() as group:
                for (way, _), lane in lanes.items():
                    group.start_soon(run, way, lane)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        # The turns of dialogues are told one by one: a model may have to be waited for.
        self._advance(sum(isinstance(one, Record | KeyedRecord | MemoryRecord) for one in batch))
        return refused

    # ── Messages and keyed items ─────────────────────────────────────────────────────────────

    async def _remember(self, records: Sequence[Record]) -> list[Broken]:
        conversation = self._repo.conversation(records[0].thread_id, remember=self._remembers)
        before = await conversation.next_seq()
        stored = await conversation.append([record.message for record in records])
        new = {message.seq for message in stored if message.seq >= before}
        self.arrival.count(len(new), of=len(records))
        return []

    async def _put(self, records: Sequence[KeyedRecord]) -> list[Broken]:
        looks = [GetItem(namespace=r.namespace, key=r.key, refresh=False) for r in records]
        refused: list[Broken] = []
        puts: list[PutItem] = []
        for one, found in zip(records, await self._repo.items.batch(looks), strict=True):
            if found is None:
                puts.append(
                    PutItem(namespace=one.namespace, key=one.key, value=one.value, texts=one.texts)
                )
            elif found.value != one.value:
                what = f"the key {one.key!r} has another value already; the first one stays"
                refused.append(Broken(one.place, what))
        await self._repo.items.batch(puts)
        self.arrival.count(len(puts), of=len(records) - len(refused))
        return refused

    # ── Memories ─────────────────────────────────────────────────────────────────────────────

    async def _add(self, records: Sequence[MemoryRecord]) -> list[Broken]:
        """Add those whose ids are not there, the oldest first."""
        known: dict[str, Memory] = {}
        for name in {record.id_name for record in records}:
            ids = [record.metadata[name] for record in records if record.id_name == name]
            there = await self._repo.memories(where={name: ids}, superseded=True, limit=AT_ONCE)
            known |= {str(memory.metadata[name]): memory for memory in there}
        refused: list[Broken] = []
        for record in sorted(records, key=lambda one: one.at or _LONG_AGO):
            try:
                self.arrival.count(await self._add_one(record, known), of=1)
            except ValueError as error:
                refused.append(Broken(record.place, str(error)))
        return refused

    async def _add_one(self, record: MemoryRecord, known: dict[str, Memory]) -> bool:
        """Whether it is new: not there by its id, and no other memory says the same."""
        id = record.metadata[record.id_name]
        if id not in known:
            known[id] = await self._repo.add_memory(
                record.text, at=record.at, metadata=record.metadata
            )
            return bool(known[id].metadata.get(record.id_name) == id)
        if known[id].version == 1 and known[id].text != record.text:
            raise ValueError(f"memory {id!r} is there with another text; the first one stays")
        return False

    # ── Dialogues ────────────────────────────────────────────────────────────────────────────

    async def _complete(self, talks: Sequence[Talk]) -> list[Broken]:
        """Bring a session to hold all of *talks*, its parts, committed."""
        async with self._sessions:
            for talk in talks:
                id = f"{self._repo.id}/{talk.name}"
                try:
                    session = await self._repo.resume_session(id)
                    kind = "complete" if session.state is SessionState.IDLE else "resumed"
                except NotFound:
                    session = await self._repo.start_session(talk.goal, session_id=id)
                    kind = "new"
                try:
                    lacked = await self._add_turns(session, talk)
                finally:
                    await session.aclose()
                if not talk.continues:
                    kind = "resumed" if lacked and kind == "complete" else kind
                    self.arrival.sessions[kind] += 1
        return []

    async def _add_turns(self, session: Session, talk: Talk) -> bool:
        """Append and commit what *session* lacks of *talk*. Returns whether that was anything."""
        if session.state is not SessionState.COLLECTING:
            await _finish(session)
        new = 0
        for turn in talk.turns:
            is_new = await _add_turn(session, talk, turn)
            self.arrival.count(is_new, of=1)
            new += is_new
            self._advance(1)
        await _finish(session)
        return new > 0


async def _kept(
    records: Sequence[R], keep: Callable[[Sequence[R]], Awaitable[list[Broken]]]
) -> list[Broken]:
    """*keep* the records together, or each by itself where one is refused; what was refused."""
    try:
        return await keep(records)
    except (Conflict, ValueError) as error:
        if len(records) == 1:
            return [Broken(records[0].place, str(error))]
        return [one for record in records for one in await _kept([record], keep)]


async def _add_turn(session: Session, talk: Talk, turn: Turn) -> bool:
    """Append *turn* unless its key is known. Returns whether it was new."""
    before = session.statistics().steps
    try:
        step = await _append(session, turn)
    except SessionError as error:
        if error.reason != "not_collecting":
            raise
        # The talk has grown since its session was committed.
        await session.start_episode(talk.goal)
        before = 0
        step = await _append(session, turn)
    if (step.observation, step.action) != (clean(turn.observation), clean(turn.action)):
        raise Conflict(
            f"session {session.id!r} holds another text under the key {turn.key!r}; "
            "the first one stays"
        )
    return session.statistics().steps > before


async def _append(session: Session, turn: Turn) -> Step:
    return await session.append(
        turn.observation, turn.action, at=turn.at, actor=turn.actor, key=turn.key
    )


async def _finish(session: Session) -> None:
    """Commit whatever *session* holds."""
    if session.state is SessionState.COLLECTING:
        await session.close_and_commit()
        return
    if session.state is SessionState.FAILED:
        await session.commit()
    state = await session.wait_for(SessionState.READY, SessionState.FAILED, SessionState.IDLE)
    if state is SessionState.READY:
        await session.commit()
    elif state is SessionState.FAILED and session.error is not None:
        raise session.error

"""Store what a file holds, records of an export or dialogues: each once, and counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TypeVar

import anyio
import anyio.to_thread

from mnemo import (
    Conflict,
    GetItem,
    Memory,
    PutItem,
    Repository,
    Session,
    SessionError,
    SessionState,
    Step,
    UsageError,
)
from mnemo.cli.importing.dialogues import Talk, Turn
from mnemo.cli.importing.json_stream import ImportFileError
from mnemo.cli.importing.records import Broken, Item, KeyedRecord, MemoryRecord, Record, Skipped
from mnemo.runtime.text import clean

R = TypeVar("R", Record, KeyedRecord)

AT_ONCE = 500
"""Items that are read at once, unless their texts are long."""
LONG = 1 << 19
"""Characters of texts from which on no further item is read at once (S)."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
MOST_SHOWN = 10
"""Records that a preview shows, and broken ones of which the place is kept."""


@dataclass(slots=True)
class Arrival:
    """
    What an import did with messages, memories or keyed items.

    Attributes:
        known: Those that were there before, or are erased.
        skipped: Reason → how many.
        broken: The first ones; *broken_records* counts all.
        problem: Where the file itself ended before its time.
    """

    added: int = 0
    known: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    broken_records: int = 0
    broken: list[Broken] = field(default_factory=list)
    problem: ImportFileError | None = None

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

    first: list[Record | KeyedRecord | MemoryRecord] = field(default_factory=list)


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

    Messages are remembered, or appended alone. *advance* is told how many were stored or known.
    *Cancellation*: safe; the next import goes on.

    Raises:
        UsageError: With *strict*, at a broken record; what stands before it is kept.
    """
    arrival = Arrival()
    while arrival.problem is None:
        batch: list[Item] = []
        try:
            await anyio.to_thread.run_sync(_read, items, batch, strict)
        except ImportFileError as problem:
            arrival.problem = problem
        if not batch:
            break
        records = [item for item in batch if isinstance(item, Record)]
        keyed = [item for item in batch if isinstance(item, KeyedRecord)]
        memories = [item for item in batch if isinstance(item, MemoryRecord)]
        refused = await _stored(records, partial(_remember, repo, arrival, remembers))
        if keyed:
            refused += await _kept(keyed, partial(_put, repo, arrival))
        refused += await _add(repo, memories, arrival)
        for item in [*batch, *refused]:
            if isinstance(item, Skipped | Broken):
                arrival.note(item, strict=strict)
        advance(len(records) + len(keyed) + len(memories))
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
    if isinstance(item, Record):
        return len(item.message.text)
    if isinstance(item, MemoryRecord):
        return len(item.text)
    return sum(map(len, item.texts.values())) if isinstance(item, KeyedRecord) else 0


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


async def _stored(
    records: Sequence[Record], keep: Callable[[Sequence[Record]], Awaitable[list[Broken]]]
) -> list[Broken]:
    """*keep* records, threads side by side, so that they share transactions; what was refused."""
    threads: dict[str, list[Record]] = {}
    for record in records:
        threads.setdefault(record.thread_id, []).append(record)
    refused: list[Broken] = []

    async def store(together: Sequence[Record]) -> None:
        refused.extend(await _kept(together, keep))

    try:
        async with anyio.create_task_group() as group:
            for together in threads.values():
                group.start_soon(store, together)
    except ExceptionGroup as failures:
        raise first_of(failures) from failures
    return refused


async def _remember(
    repo: Repository, arrival: Arrival, remembers: bool, records: Sequence[Record]
) -> list[Broken]:
    conversation = repo.conversation(records[0].thread_id, remember=remembers)
    before = await conversation.next_seq()
    stored = await conversation.append([record.message for record in records])
    new = len({message.seq for message in stored if message.seq >= before})
    arrival.added += new
    arrival.known += len(records) - new
    return []


async def _put(repo: Repository, arrival: Arrival, records: Sequence[KeyedRecord]) -> list[Broken]:
    looks = [GetItem(namespace=r.namespace, key=r.key, refresh=False) for r in records]
    refused: list[Broken] = []
    puts: list[PutItem] = []
    known = 0
    for record, found in zip(records, await repo.items.batch(looks), strict=True):
        if found is None:
            puts.append(
                PutItem(
                    namespace=record.namespace,
                    key=record.key,
                    value=record.value,
                    texts=record.texts,
                )
            )
        elif found.value == record.value:
            known += 1
        else:
            what = f"the key {record.key!r} has another value already; the first one stays"
            refused.append(Broken(record.place, what))
    await repo.items.batch(puts)
    arrival.added += len(puts)
    arrival.known += known
    return refused


async def _add(repo: Repository, records: Sequence[MemoryRecord], arrival: Arrival) -> list[Broken]:
    """Add *records* whose ids are not there, the oldest first; what was refused."""
    known: dict[str, Memory] = {}
    for name in {record.id_name for record in records}:
        ids = [record.metadata[name] for record in records if record.id_name == name]
        there = await repo.memories(where={name: ids}, superseded=True, limit=AT_ONCE)
        known |= {str(memory.metadata[name]): memory for memory in there}
    refused: list[Broken] = []
    for record in sorted(records, key=lambda one: one.at or _LONG_AGO):
        try:
            new = await _add_one(repo, record, known)
        except ValueError as error:
            refused.append(Broken(record.place, str(error)))
            continue
        arrival.added += new
        arrival.known += not new
    return refused


async def _add_one(repo: Repository, record: MemoryRecord, known: dict[str, Memory]) -> bool:
    """Whether it is new: not there by its id, and no other memory says the same."""
    id = record.metadata[record.id_name]
    if id not in known:
        known[id] = await repo.add_memory(record.text, at=record.at, metadata=record.metadata)
        return bool(known[id].metadata.get(record.id_name) == id)
    if known[id].version == 1 and known[id].text != record.text:
        raise ValueError(f"memory {id!r} is there with another text; the first one stays")
    return False


# ── Sessions of dialogues ───────────────────────────────────────────────────────────────


SESSIONS_AT_ONCE = 4
"""Sessions that are written side by side."""


@dataclass(slots=True)
class Tally:
    """What became of sessions and steps; *problem*: where the file ended before its time."""

    new_sessions: int = 0
    resumed_sessions: int = 0
    complete_sessions: int = 0
    new_steps: int = 0
    known_steps: int = 0
    problem: ImportFileError | None = None


async def import_talks(
    repo: Repository, talks: Iterable[Talk], advance: Callable[[], None] = lambda: None
) -> Tally:
    """
    Append, close and commit *talks*, ``SESSIONS_AT_ONCE`` at a time; *advance* after each turn.

    Raises:
        Conflict: A known key came with another text; the first stays.
        SessionBusy: Another process has one of the sessions open.
        ExtractionFailed: Of one session; its steps are kept.
            *Cancellation*: safe; the next import goes on.
    """
    known = {record.id: record.state for record in await repo.sessions()}
    work = _Import(repo, iter(talks), known, advance)
    try:
        async with anyio.create_task_group() as group:
            for _ in range(SESSIONS_AT_ONCE):
                group.start_soon(work.run)
    except ExceptionGroup as failures:
        raise first_of(failures) from failures
    return work.tally


def first_of(failures: ExceptionGroup[Exception]) -> Exception:
    """The first error of a task group, at whatever depth."""
    error = failures.exceptions[0]
    return first_of(error) if isinstance(error, ExceptionGroup) else error


class _Import:
    """Talks that wait, read in a worker thread, and what became of those before."""

    def __init__(
        self,
        repo: Repository,
        waiting: Iterator[Talk],
        known: dict[str, SessionState],
        advance: Callable[[], None],
    ) -> None:
        self._repo = repo
        self._waiting = waiting
        self._known = known
        self._advance = advance
        self._reading = anyio.Lock()
        self._writing: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self.tally = Tally()

    async def run(self) -> None:
        """Store one talk after the other, until none waits."""
        while (talk := await self._next()) is not None:
            # The parts of a session come in order, and wait here for each other in that order.
            async with self._writing[talk.name]:
                await self._import_one(talk)

    async def _next(self) -> Talk | None:
        """The next talk; ``None`` behind the last one, and behind a mistake of the file."""
        async with self._reading:
            if self.tally.problem is not None:
                return None
            try:
                return await anyio.to_thread.run_sync(next, self._waiting, None)
            except ImportFileError as problem:
                self.tally.problem = problem
                return None

    async def _import_one(self, talk: Talk) -> None:
        id = f"{self._repo.id}/{talk.name}"
        if id in self._known or talk.continues:
            session = await self._repo.resume_session(id)
        else:
            session = await self._repo.start_session(talk.goal, session_id=id)
        try:
            added = await _complete(session, talk, self.tally, self._advance)
        finally:
            await session.aclose()
        if talk.continues:
            return
        if id not in self._known:
            self.tally.new_sessions += 1
        elif added or self._known[id] is not SessionState.IDLE:
            self.tally.resumed_sessions += 1
        else:
            self.tally.complete_sessions += 1


async def _complete(
    session: Session, talk: Talk, tally: Tally, advance: Callable[[], None]
) -> bool:
    """Bring *session* to hold all of *talk*, committed. Returns whether it lacked a step."""
    if session.state is not SessionState.COLLECTING:
        await _finish(session)
    lacked = False
    for turn in talk.turns:
        if await _add_turn(session, talk, turn):
            tally.new_steps += 1
            lacked = True
        else:
            tally.known_steps += 1
        advance()
    await _finish(session)
    return lacked


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

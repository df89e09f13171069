"""Two conversations, driven by two services at once, against what the pages say of them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from engines import OverEngines, emptied, on_postgres
from helpers import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from talk_kit import open_talk
from world import store_at

from mnemo.conversation.compression import Compressing
from mnemo.conversation.log import ExpirySweep
from mnemo.errors import Conflict
from mnemo.events import CompactionRecorded
from mnemo.protocols import SummaryRequest
from mnemo.testing import ManualClock
from mnemo.values.messages import Message
from mnemo.values.strategies import Recent, Summary

TTL_S = 60
THREADS = ("t", "fading")
"""Messages of the second one expire."""
UNITS = 4
"""What ``Recent(2)`` loads."""
KEPT = 2
TOKENS = 30
LIMIT = 100
LONG = "and so on " * 12
"""Makes two summaries so long that they are due to become one."""
COMPRESSION = Summary(max_tokens=LIMIT, keep_last=KEPT)


# ── What the pages say, written out once more ────────────────────────────────────────


@dataclass
class Entry:
    """A stored message."""

    seq: int
    id: str
    text: str
    role: str
    at: datetime


@dataclass(eq=False)
class Record:
    """A compaction record; what it takes the place of is not among the live ones."""

    start: int
    end: int
    text: str

    def shares(self, other: Record) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass
class Model:
    """One thread as it must be."""

    ttl_s: int | None
    next_seq: int = 0
    epoch: int = 0
    epoch_start: int = 0
    entries: list[Entry] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def is_alive(self, entry: Entry, now: datetime) -> bool:
        return self.ttl_s is None or entry.at >= now - timedelta(seconds=self.ttl_s)

    def history(self, now: datetime) -> list[Entry]:
        return [entry for entry in self.entries if self.is_alive(entry, now)]

    def expired(self, now: datetime) -> list[Entry]:
        return [entry for entry in self.entries if not self.is_alive(entry, now)]

    def present(self, now: datetime) -> list[Entry]:
        return [entry for entry in self.history(now) if entry.seq >= self.epoch_start]

    def live(self, now: datetime) -> list[Record]:
        seqs = [entry.seq for entry in self.expired(now)]
        whole = [r for r in self.records if not any(r.start <= seq <= r.end for seq in seqs)]
        return sorted(whole, key=lambda record: record.start)

    def uncovered(self, now: datetime) -> list[Entry]:
        live = self.live(now)
        return [
            entry
            for entry in self.present(now)
            if not any(record.start <= entry.seq <= record.end for record in live)
        ]

    def loaded(self, now: datetime) -> list[str]:
        bare = self.uncovered(now)
        newest = [entry for entry in bare if entry.role != "system"][-UNITS:]
        shown = [(e.seq, e.text) for e in bare if e.role == "system" or e in newest]
        summaries = [(record.start, record.text) for record in self.live(now)]
        return [text for _, text in sorted(shown + summaries)]

    def sweep(self, now: datetime) -> None:
        seqs = [entry.seq for entry in self.expired(now)]
        self.gone |= {entry.id for entry in self.expired(now)}
        self.records = self.live(now)
        self.entries = [entry for entry in self.entries if entry.seq not in seqs]

    def restart(self) -> None:
        if self.next_seq:
            self.epoch += 1
            self.epoch_start = self.next_seq
            self.records = []

    def purge(self) -> None:
        self.gone |= {entry.id for entry in self.entries}
        self.entries = []
        self.restart()


# ── A summariser that is slow ────────────────────────────────────────────────────────


@dataclass(eq=False)
class Asked:
    """A summary that is being written, and what its range was when it was asked for."""

    request: SummaryRequest
    text: str
    answered: anyio.Event
    thread: str = ""
    epoch: int = 0
    folded: list[Record] = field(default_factory=list)


class SlowSummarizer:
    """Answers when it is told to; every text is another one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: list[Asked] = []
        self._number = 0

    async def summarize(self, request: SummaryRequest) -> str:
        self._number += 1
        text = f"summary {self.name}{self._number} {LONG}".strip()
        asked = Asked(request, text, anyio.Event())
        self.waiting.append(asked)
        await asked.answered.wait()
        return asked.text


class ConversationMachine(OverEngines):
    """Two handles of each thread, of two services over one file."""

    # ── The world ────────────────────────────────────────────────────────────────────

    @initialize()
    def open(self) -> None:
        """Two services, each with a store of its own over the one file."""
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.models = {"t": Model(None), "fading": Model(TTL_S)}
        self.number = 0
        self.clock = ManualClock()
        self.runner.run(self._open())
        for thread in THREADS:
            self.append(thread, 0, ["user", "assistant", "system", "user", "assistant"], True, 0)

    async def _open(self) -> None:
        self.stack = AsyncExitStack()
        place = emptied(self.url, self.folder.name)
        stores = [store_at(place, self.clock) for _ in range(2)]
        self.talks = [
            await self.stack.enter_async_context(open_talk(store, self.clock)) for store in stores
        ]
        self.slow = [SlowSummarizer(name) for name in "ab"]
        self.compressing = [
            Compressing(talk.parts, summarizer=slow)
            for talk, slow in zip(self.talks, self.slow, strict=True)
        ]
        self.expiry = [ExpirySweep(talk.parts) for talk in self.talks]

    def handle(self, thread: str, who: int) -> Any:
        ttl_s = self.models[thread].ttl_s
        return self.talks[who].log(
            thread, retrieval=Recent(UNITS // 2), ttl_s=ttl_s, compression=COMPRESSION
        )

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def then_settle() -> Any:
            result = await work()
            await self._settle()
            return result

        return self.runner.run(then_settle())

    async def _settle(self) -> None:
        """Let the compressions run as far as their summarisers let them."""
        with anyio.fail_after(120):
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
                while not all(map(self._is_stuck, range(2))):  # noqa: ASYNC110 - any state
                    await anyio.sleep(0.0005)
        for slow in self.slow:
            for asked in slow.waiting:
                if not asked.thread:
                    self._note(asked)

    def _is_stuck(self, who: int) -> bool:
        return self.compressing[who].under_way <= len(self.slow[who].waiting)

    def _note(self, asked: Asked) -> None:
        """See of what it is, and that it was due."""
        if asked.request.messages:
            first, last = asked.request.messages[0], asked.request.messages[-1]
            asked.thread = first.thread_id
            model, now = self.models[asked.thread], self.clock.now()
            bare = [entry.seq for entry in model.uncovered(now)]
            assert len(bare) * TOKENS > LIMIT
            run = [seq for seq in bare if first.seq <= seq <= last.seq]
            assert run == [message.seq for message in asked.request.messages]
            assert run[0] == bare[0], "the oldest uncovered run comes first"
            assert len(bare) - len(run) >= KEPT
            span = Record(first.seq, last.seq, "")
            assert not any(span.shares(record) for record in model.live(now))
        else:
            self._note_folding(asked)
        asked.epoch = self.models[asked.thread].epoch

    def _note_folding(self, asked: Asked) -> None:
        for thread, model in self.models.items():
            live = {record.text: record for record in model.live(self.clock.now())}
            if set(asked.request.summaries) <= live.keys():
                asked.thread = thread
                asked.folded = [live[text] for text in asked.request.summaries]
        assert len(asked.folded) > 1

    def _text(self) -> str:
        self.number += 1
        return f"said {self.number}"

    # ── Appending ────────────────────────────────────────────────────────────────────

    def _message(self, text: str, role: str = "user", id: str | None = None) -> Message:
        return Message(role=role, content=text, id=id, token_count=TOKENS)  # type: ignore[arg-type]

    def _stored(self, thread: str, messages: list[Message], found: list[Any]) -> None:
        """Put what is new into the model, as the store has numbered it."""
        model = self.models[thread]
        for message, entry in zip(messages, found, strict=True):
            assert (entry.seq, entry.epoch) == (model.next_seq, model.epoch)
            assert entry.text == message.text
            assert message.id in (None, entry.id)
            entry = Entry(entry.seq, entry.id, message.text, message.role, self.clock.now())
            model.entries.append(entry)
            model.next_seq += 1

    THREAD = st.sampled_from(THREADS)
    WHO = st.integers(0, 1)

    @rule(
        thread=THREAD,
        who=WHO,
        roles=st.lists(
            st.sampled_from(["user", "user", "assistant", "system"]), min_size=1, max_size=4
        ),
        named=st.booleans(),
        off=st.sampled_from([None, None, 0, 0, 1, -1]),
    )
    def append(self, thread: str, who: int, roles: list[str], named: bool, off: int | None) -> None:
        """New messages: stored in order from the next seq on, or refused for another seq."""
        texts = [self._text() for _ in roles]
        messages = [
            self._message(text, role, text if named else None)
            for text, role in zip(texts, roles, strict=True)
        ]
        expected = None if off is None else self.models[thread].next_seq + off

        async def work() -> None:
            log = self.handle(thread, who)
            if off:
                with pytest.raises(Conflict):
                    await log.append(messages, expected_seq=expected)
                return
            found = await log.append(messages, expected_seq=expected)
            self._stored(thread, messages, found)
            self.compressing[who].appended(log._settings)

        self.run(work)

    @rule(thread=THREAD, who=WHO, pick=st.integers(0, 30), count=st.integers(0, 2))
    def append_again(self, thread: str, who: int, pick: int, count: int) -> None:
        """What is there is given as it is stored, whatever else is new."""
        model = self.models[thread]
        here = model.history(self.clock.now())
        if not here:
            return
        old = here[pick % len(here)]
        again = self._message(old.text, old.role, old.id)
        new = [self._message(self._text()) for _ in range(count)]
        expected = None if new else 0

        async def work() -> None:
            log = self.handle(thread, who)
            first, *rest, last = await log.append([again, *new, again], expected_seq=expected)
            assert (first.seq, last.seq, first.text) == (old.seq, old.seq, old.text)
            self._stored(thread, new, rest)

        self.run(work)

    @rule(thread=THREAD, who=WHO, pick=st.integers(0, 30), twice=st.booleans())
    def append_something_else_under_an_id(
        self, thread: str, who: int, pick: int, twice: bool
    ) -> None:
        """Conflict, and none of the batch is stored; so for an id twice in the batch."""
        here = self.models[thread].history(self.clock.now())
        if not here and not twice:
            return
        id = self._text() if twice else here[pick % len(here)].id
        batch = [self._message(self._text()), self._message("other", id=id)]
        if twice:
            batch.insert(0, self._message("one", id=id))

        async def work() -> None:
            with pytest.raises(Conflict):
                await self.handle(thread, who).append(batch)

        self.run(work)

    @rule(thread=THREAD, who=WHO, pick=st.integers(0, 30))
    def append_what_is_gone(self, thread: str, who: int, pick: int) -> None:
        """Expired or purged, swept or not: it is left out, and the rest is stored."""
        model = self.models[thread]
        gone = sorted(model.gone | {entry.id for entry in model.expired(self.clock.now())})
        if not gone:
            return
        new = self._message(self._text())

        async def work() -> None:
            dead = self._message("whatever", id=gone[pick % len(gone)])
            self._stored(thread, [new], await self.handle(thread, who).append([dead, new]))

        self.run(work)

    @rule(thread=THREAD, who=WHO)
    def append_what_was_loaded(self, thread: str, who: int) -> None:
        """Whatever summaries stand in it: exactly the new message is stored."""
        new = self._message(self._text())

        async def work() -> None:
            log = self.handle(thread, who)
            found = await log.append([*(await log.load()), new])
            self._stored(thread, [new], found[-1:])

        self.run(work)

    @rule(thread=THREAD, first=st.integers(1, 3), second=st.integers(1, 3))
    def append_both_at_once(self, thread: str, first: int, second: int) -> None:
        """Two services, one thread: whole batches, distinct seqs, no gap."""
        batches = [[self._message(self._text()) for _ in range(n)] for n in (first, second)]
        found: dict[int, list[Any]] = {}

        async def one(who: int) -> None:
            found[who] = await self.handle(thread, who).append(batches[who])

        async def work() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(one, 0)
                group.start_soon(one, 1)
            for who in sorted(found, key=lambda who: found[who][0].seq):
                self._stored(thread, batches[who], found[who])

        self.run(work)

    # ── Compacting ───────────────────────────────────────────────────────────────────

    @rule(
        thread=THREAD,
        who=WHO,
        start=st.integers(-1, 40),
        length=st.integers(-1, 6),
        old=st.booleans(),
    )
    def compact(self, thread: str, who: int, start: int, length: int, old: bool) -> None:
        """Recorded, given as it is, or refused: for its range, or for another record."""
        model, now = self.models[thread], self.clock.now()
        live = model.live(now)
        text = f"{self._text()} {LONG}".strip()
        if old and live:
            record = live[start % len(live)]
            start, length, text = record.start, record.end - record.start, record.text
        elif model.next_seq:
            start = start % (model.next_seq + 1) - (start == -1)
        end = start + length
        wanted = Record(start, end, text)
        if any(start <= entry.seq <= end for entry in model.expired(now)):
            self._sweep()
            live = model.live(now)

        async def work() -> None:
            log = self.handle(thread, who)
            if start < max(model.epoch_start, 0) or end < start or end >= model.next_seq:
                with pytest.raises(ValueError, match=r"range|given|clear|at least"):
                    await log.compact(start, end, text)
            elif any((r.start, r.end, r.text) == (start, end, text) for r in live):
                assert (await log.compact(start, end, text)).summary_text == text
            elif any(wanted.shares(record) for record in live):
                with pytest.raises(Conflict):
                    await log.compact(start, end, text)
            elif not any(start <= entry.seq <= end for entry in model.history(now)):
                with pytest.raises(ValueError, match="no message"):
                    await log.compact(start, end, text)
            else:
                await log.compact(start, end, text)
                model.records.append(wanted)

        self.run(work)

    @rule(pick=st.integers(0, 3))
    @precondition(lambda self: any(slow.waiting for slow in self.slow))
    def a_summariser_answers(self, pick: int) -> None:
        """Its record is made only if epoch, range and messages are still as they were read."""
        waiting = [(slow, asked) for slow in self.slow for asked in slow.waiting]
        slow, asked = waiting[pick % len(waiting)]
        slow.waiting.remove(asked)
        model, now = self.models[asked.thread], self.clock.now()
        made = self._record_of(asked, model, now)
        if made is not None:
            model.records = [record for record in model.records if record not in asked.folded]
            model.records.append(made)

        async def work() -> None:
            asked.answered.set()

        self.run(work)

    def _record_of(self, asked: Asked, model: Model, now: datetime) -> Record | None:
        live = model.live(now)
        if asked.epoch != model.epoch:
            return None
        if asked.folded:
            if not all(record in live for record in asked.folded):
                return None
            made = Record(asked.folded[0].start, asked.folded[-1].end, asked.text)
        else:
            messages = asked.request.messages
            made = Record(messages[0].seq, messages[-1].seq, asked.text)
            alive = {entry.id for entry in model.present(now)}
            if not {message.id for message in messages} <= alive:
                return None
        others = [record for record in live if record not in asked.folded]
        return None if any(made.shares(record) for record in others) else made

    # ── Forgetting ───────────────────────────────────────────────────────────────────

    @rule(thread=THREAD, who=WHO, purges=st.booleans())
    def begin_anew(self, thread: str, who: int, purges: bool) -> None:
        """Nothing is loaded any more; the history stays whole, or all is gone."""
        if purges:
            self._purge(thread, who)
        else:
            self.run(self.handle(thread, who).clear)
            self.models[thread].restart()

    def _purge(self, thread: str, who: int) -> None:
        """What is gone is counted; a second time there is nothing to count."""
        model = self.models[thread]
        report = self.run(self.handle(thread, who).purge)
        assert report.messages == len(model.entries)
        model.purge()
        assert self.run(self.handle(thread, who).purge).is_empty
        model.purge()

    @rule(who=WHO, seconds=st.sampled_from([0.5, 20, 39.5, 60]), sweeps=st.booleans())
    def time_passes(self, who: int, seconds: float, sweeps: bool) -> None:
        """What was recorded over a minute ago is not seen in one of the threads, swept or not."""
        self.clock.advance(seconds)
        if sweeps:
            self._sweep(who)

    def _sweep(self, who: int = 0) -> None:
        gone = len(self.models["fading"].expired(self.clock.now()))
        assert self.run(self.expiry[who].sweep) == gone
        self.models["fading"].sweep(self.clock.now())

    # ── What holds at all times ──────────────────────────────────────────────────────

    @invariant()
    def both_services_see_what_the_pages_say(self) -> None:
        """History, what is loaded, the records and the next seq."""
        for who in range(2):
            for thread in THREADS:
                self.run(lambda who=who, thread=thread: self._compare(thread, who))

    async def _compare(self, thread: str, who: int) -> None:
        model, now, log = self.models[thread], self.clock.now(), self.handle(thread, who)
        history = await log.history()
        assert [(m.seq, m.id, m.text, m.role) for m in history] == [
            (e.seq, e.id, e.text, e.role) for e in model.history(now)
        ]
        assert await log.next_seq() == model.next_seq
        records = await log.compactions()
        live = model.live(now)
        assert [(r.start_seq, r.end_seq, r.summary_text) for r in records] == [
            (r.start, r.end, r.text) for r in live
        ]
        loaded = [m.text if m.kind != "summary" else _told(m, live) for m in await log.load()]
        assert loaded == model.loaded(now)

    @invariant()
    def being_too_late_is_no_failure(self) -> None:
        """What comes to nothing because the thread went on is thrown away without a word."""
        for talk in self.talks:
            kinds = {type(event) for event in talk.seen.events}
            assert kinds <= {CompactionRecorded}

    def teardown(self) -> None:
        """Every file is closed, every task has ended."""
        if hasattr(self, "runner"):
            self.runner.run(self.stack.aclose())
            self.runner.close()
            self.folder.cleanup()


def _told(message: Message, live: list[Record]) -> str:
    """The text of the record that a summary message stands for."""
    span = (message.metadata["start_seq"], message.metadata["end_seq"])
    (record,) = [record for record in live if (record.start, record.end) == span]
    assert record.text in message.text
    return record.text


TestConversations = pytest.mark.slow(ConversationMachine.TestCase)
TestConversations.settings = settings(
    max_examples=examples(40),
    stateful_step_count=45,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestConversationsOnPostgres = on_postgres(ConversationMachine, tries=20, steps=25)

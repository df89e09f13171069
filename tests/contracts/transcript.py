"""The contract of conversations' messages: kept exactly, in order, all of a work or nothing."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

import anyio
import pytest
from contracts.talk import (
    KINDS,
    call,
    compaction,
    dump,
    goal,
    outcome,
    pin,
    result,
    said,
    save_vectors,
    snapshot,
    surfaced,
)
from world import NOON, Kit, StoreContract, draft, unit_vector

from mnemo.errors import Conflict, NotToFeed, StoreError
from mnemo.log.transcript import StoredTranscript, TranscriptReader, TranscriptWriter
from mnemo.stores import EngineStore
from mnemo.values.derived import Snapshot, Thread
from mnemo.values.messages import StoredMessage, ToolCall
from mnemo.values.steps import Step

T = TypeVar("T")
NEAR = ("a", "a:b", "A", "a%", "a_", " a")
"""Ids that a pattern, a prefix or a careless comparison takes for one another."""


def transcript_of(store: EngineStore, repo: str = "r") -> StoredTranscript:
    """The conversations of a repository."""
    return store.transcript(repo)


def _group(tx: TranscriptReader, message: StoredMessage) -> Sequence[StoredMessage]:
    """All that belongs together with a message."""
    (unit,) = tx.whole_units([message])
    return unit.messages


class TranscriptContract(StoreContract):
    """``StoredTranscript``: rows of threads and messages, and the transaction around them."""

    async def _write(self, kit: Kit, work: Callable[[TranscriptWriter], T], repo: str = "r") -> T:
        return await transcript_of(kit.store, repo).writing(work)

    async def _read(self, kit: Kit, work: Callable[[TranscriptReader], T], repo: str = "r") -> T:
        return await transcript_of(kit.store, repo).reading(work)

    async def _add(self, kit: Kit, *messages: StoredMessage, repo: str = "r") -> None:
        await self._write(kit, lambda tx: tx.add(messages), repo)

    async def _seqs(self, kit: Kit, thread: str = "t", **choice: Any) -> list[int]:
        messages = await self._read(kit, lambda tx: tx.messages(thread, **choice))
        return [message.seq for message in messages]

    # ── Reading ──────────────────────────────────────────────────────────────────────

    async def test_a_thread_that_nobody_wrote_to_is_empty(self, kit):
        """Every read of it gives nothing, its row is the first one, and none is made."""

        def work(tx: TranscriptReader) -> None:
            assert tx.thread("t") == Thread(id="t")
            assert (tx.messages("t"), tx.by_id("t", ["m0"]), tx.whole_units([])) == ([], {}, [])
            assert tx.span("t", from_seq=0) == (0, 0)
            assert tx.recorded("t", from_seq=0, limit=9) == []
            assert tx.erased_ids("t", ["m0"]) == frozenset()
            seqs, vectors = tx.vectors("t")
            assert (len(seqs), len(vectors)) == (0, 0)
            assert all(tx.all(kind, "t") == [] for kind in KINDS)

        await self._read(kit, work)
        await self._write(kit, work)
        assert await self._read(kit, lambda tx: tx.threads()) == []

    async def test_a_message_comes_back_exactly(self, kit):
        """None and blocks, order of calls, nested values, equal times and their zones."""
        japan = NOON.astimezone(timezone(timedelta(hours=9)))
        blocks = [{"type": "text", "text": "お茶\u2028"}, {"type": "image", "at": [1, None, 0.1]}]
        calls = (ToolCall("z", "look", {"b": 1, "a": [{}]}), ToolCall("y", "think", "thus"))
        messages = [
            said(0, content=None, role="assistant", tool_calls=calls, at=japan, recorded_at=NOON),
            said(1, content=blocks, at=japan, recorded_at=NOON, metadata={"a": {"b": [1, "x"]}}),
            said(2, "", actor="Ana", name="ana", at=NOON, recorded_at=NOON, epoch=3),
            result(3, "z", is_error=True, kind="reply", at=NOON, recorded_at=NOON),
            said(
                4, "so", role="system", token_count=1_000_000, at=datetime.min.replace(tzinfo=UTC)
            ),
            said(9, "a thought", role="assistant", kind="thought", id="x y%_'\"*"),
        ]
        await self._add(kit, *messages)
        found = await self._read(kit, lambda tx: tx.messages("t"))
        assert found == messages
        assert [type(m.tool_calls) for m in found] == [tuple] * 6
        assert [m.at and m.at.utcoffset() for m in found] == [
            m.at.utcoffset() for m in messages if m.at
        ]
        await kit.reopen()
        assert await self._read(kit, lambda tx: tx.messages("t")) == messages

    async def test_what_is_given_and_what_is_got_is_nobody_elses(self, kit):
        """Nested values of a message can be changed on either side; the store's stay."""
        message = call(0, "c", content=[{"text": ["deep"]}], metadata={"list": [1]})
        shown = surfaced(0, ("s", "m"))

        def spoil(m: StoredMessage) -> None:
            m.metadata["list"].append(2)
            m.content[0]["text"].append("changed")  # type: ignore[index, union-attr]
            m.tool_calls[0].arguments["at"].clear()

        async def ways() -> list[StoredMessage]:
            def work(tx: TranscriptReader) -> list[StoredMessage]:
                return [
                    *tx.messages("t"),
                    tx.by_id("t", ["m0"])["m0"],
                    *_group(tx, result(1, "c"))[:1],
                ]

            return await self._read(kit, work)

        await self._add(kit, message)
        await self._write(kit, lambda tx: tx.put(shown))
        before = call(0, "c", content=[{"text": ["deep"]}], metadata={"list": [1]})
        spoil(message)
        for found in await ways():
            assert found == before
            spoil(found)
        assert await ways() == [before] * 3
        shown.hits[0]["at"].append("y")
        for _ in range(2):
            (kept,) = await self._read(kit, lambda tx: tx.all(type(shown), "t"))
            assert kept == surfaced(0, ("s", "m"))
            kept.hits[0]["at"].append("z")

    async def test_messages_are_chosen_by_place_number_role_and_time(self, kit):
        """Both ends inclusive, ascending, the last so many of what the rest allows."""
        roles: list[Any] = ["system", "user", "assistant", "user", "assistant", "user"]
        await self._add(kit, *(said(2 * i, role=role) for i, role in enumerate(roles)))
        assert await self._seqs(kit) == [0, 2, 4, 6, 8, 10]
        assert await self._seqs(kit, from_seq=2, to_seq=6) == [2, 4, 6]
        assert await self._seqs(kit, from_seq=3, to_seq=7) == [4, 6]
        assert await self._seqs(kit, from_seq=7, to_seq=7) == []
        assert await self._seqs(kit, from_seq=11) == []
        assert await self._seqs(kit, newest=2) == [8, 10]
        assert await self._seqs(kit, newest=0) == []
        assert await self._seqs(kit, newest=9, to_seq=4) == [0, 2, 4]
        assert await self._seqs(kit, newest=1, to_seq=9) == [8]
        assert await self._seqs(kit, role="user") == [2, 6, 10]
        assert await self._seqs(kit, role="user", newest=2, to_seq=9) == [2, 6]
        assert await self._seqs(kit, role="tool") == []
        since = NOON + timedelta(minutes=6)
        assert await self._seqs(kit, since=since) == [6, 8, 10]
        assert await self._seqs(kit, since=since + timedelta(microseconds=1)) == [8, 10]
        assert await self._seqs(kit, since=since, role="user", newest=1, to_seq=8) == [6]
        assert await self._seqs(kit, since=since, newest=9) == [6, 8, 10]
        assert await self._seqs(kit, since=NOON + timedelta(hours=1)) == []

    async def test_time_is_looked_at_also_where_it_goes_backwards(self, kit):
        """A clock may be set back; what was recorded before the time is expired all the same."""
        late, early = NOON + timedelta(hours=1), NOON - timedelta(hours=1)
        await self._add(kit, said(0, recorded_at=late), said(1, recorded_at=early), said(2))
        assert await self._seqs(kit, since=NOON) == [0, 2]
        assert await self._seqs(kit, since=NOON, newest=2) == [0, 2]
        assert await self._read(kit, lambda tx: tx.span("t", from_seq=0, since=NOON)) == (2, 22)
        vectors = {("t", seq): unit_vector(1, seq, 0, 0) for seq in range(3)}
        await self._write(kit, lambda tx: save_vectors(tx, vectors))
        seqs, _ = await self._read(kit, lambda tx: tx.vectors("t", since=NOON))
        assert seqs.tolist() == [2, 0]

    async def test_messages_are_found_by_id_and_by_call(self, kit):
        """Of one thread, expired or not; a call with its results, each message once."""
        await self._add(
            kit, result(0, "b"), call(1, "a", "b"), said(2), result(3, "a"), call(4, "x")
        )
        await self._add(kit, call(0, "a", thread="other"))

        def work(tx: TranscriptReader) -> None:
            assert tx.by_id("t", ["m3", "m0", "nobody", "m3"]) == {
                "m3": result(3, "a"),
                "m0": result(0, "b"),
            }
            assert tx.by_id("t", []) == {}
            for message in (result(0, "b"), call(1, "a", "b"), result(3, "a")):
                assert [m.seq for m in _group(tx, message)] == [0, 1, 3]
            assert _group(tx, said(2)) == (said(2),)

        await self._read(kit, work)

    async def test_many_ids_at_once_are_no_trouble(self, kit):
        """More than a statement has parameters."""
        await self._add(kit, *(said(i) for i in range(5)), call(5, "c"))
        ids = [f"x{i}" for i in range(40_000)]

        def work(tx: TranscriptReader) -> None:
            assert tx.by_id("t", [*ids, "m3"]).keys() == {"m3"}
            assert [m.seq for m in _group(tx, call(5, *ids, "c"))] == [5]
            assert tx.erased_ids("t", ids) == frozenset()

        await self._read(kit, work)

    async def test_the_first_messages_say_when_they_were_recorded(self, kit):
        """From a seq on, so many, in the order of their seqs whatever the time."""
        early = NOON - timedelta(hours=1)
        await self._add(kit, said(0), said(3), said(4, recorded_at=early), said(5))
        found = await self._read(kit, lambda tx: tx.recorded("t", from_seq=1, limit=2))
        assert found == [(3, NOON + timedelta(minutes=3)), (4, early)]

    async def test_a_span_counts_messages_and_their_tokens(self, kit):
        """From a seq on, and of those recorded since."""
        await self._add(kit, said(0), said(1), said(4), said(5))

        def spans(tx: TranscriptReader) -> list[tuple[int, int]]:
            found = [tx.span("t", from_seq=seq) for seq in (0, 1, 2, 5, 6)]
            since = NOON + timedelta(minutes=4)
            return [*found, *(tx.span("t", from_seq=seq, since=since) for seq in (0, 5))]

        expected = [(4, 50), (3, 40), (2, 29), (1, 15), (0, 0), (2, 29), (1, 15)]
        assert await self._read(kit, spans) == expected
        await self._write(kit, lambda tx: tx.erase("t", [0, 4]))
        expected = [(2, 26), (2, 26), (1, 15), (1, 15), (0, 0), (1, 15), (1, 15)]
        assert await self._read(kit, spans) == expected

    # ── Rows of threads ──────────────────────────────────────────────────────────────

    async def test_a_threads_row_is_kept_and_listed(self, kit):
        """By id; with a budget if asked for; replaced as a whole; the same after reopening."""
        rows = [
            Thread(id="b", next_seq=7, epoch=2, epoch_start=5, boundary=6, next_goal=4),
            Thread(id="B", budget_tokens=9_000, ttl_s=0.5),
            Thread(id="a", ttl_s=0.0),
        ]
        for row in rows:
            await self._write(kit, methodcaller("keep", row))
        by_id = sorted(rows, key=lambda row: row.id)
        assert await self._read(kit, lambda tx: tx.threads()) == by_id
        assert await self._read(kit, lambda tx: tx.threads(watched=True)) == [rows[1]]
        after = Thread(id="B", next_seq=1)
        await self._write(kit, lambda tx: tx.keep(after))
        await kit.reopen()
        assert await self._read(kit, lambda tx: tx.thread("B")) == after
        assert await self._read(kit, lambda tx: tx.threads(watched=True)) == []
        assert await self._read(kit, lambda tx: len(tx.threads())) == 3

    async def test_a_row_can_be_kept_before_or_after_its_messages(self, kit):
        """The order within a work is the work's own."""

        def after(tx: TranscriptWriter) -> None:
            tx.add([said(0)])
            tx.keep(Thread(id="t", next_seq=1))

        def before(tx: TranscriptWriter) -> None:
            tx.keep(Thread(id="u", next_seq=1))
            tx.add([said(0, thread="u")])

        await self._write(kit, after)
        await self._write(kit, before)
        threads = await self._read(kit, lambda tx: tx.threads())
        assert [(row.id, row.next_seq) for row in threads] == [("t", 1), ("u", 1)]
        assert await self._seqs(kit, "t") == await self._seqs(kit, "u") == [0]

    # ── The transaction ──────────────────────────────────────────────────────────────

    async def test_a_work_gives_its_result_and_sees_what_it_wrote(self, kit):
        """Within the work, and after it; the time is the store's."""

        def work(tx: TranscriptWriter) -> Any:
            tx.keep(Thread(id="t", next_seq=2))
            tx.add([said(0), said(1)])
            tx.put(snapshot(0, 1))
            tx.erase("t", [0])
            return tx.now, [m.seq for m in tx.messages("t")], tx.all(Snapshot, "t")

        assert await self._write(kit, work) == (kit.clock.now(), [1], [])
        assert await self._read(kit, lambda tx: tx.now) == kit.clock.now()
        assert await self._seqs(kit) == [1]

    async def test_a_work_that_raises_leaves_nothing(self, kit):
        """Whatever it has done before; what it raised comes out as it is."""
        await self._write(kit, _fill)
        before = await self._read(kit, lambda tx: dump(tx, "t", "u", ids=("m0", "m1", "new")))
        space = await kit.store.feed("r").space()
        error = KeyError("the work's own")

        def work(tx: TranscriptWriter) -> None:
            _change(tx)
            assert dump(tx, "t", "u", ids=("m0", "m1", "new")) != before
            raise error

        with pytest.raises(KeyError) as raised:
            await self._write(kit, work)
        assert raised.value is error
        after = await self._read(kit, lambda tx: dump(tx, "t", "u", ids=("m0", "m1", "new")))
        assert after == before
        assert await kit.store.feed("r").space() == space
        await kit.reopen()
        after = await self._read(kit, lambda tx: dump(tx, "t", "u", ids=("m0", "m1", "new")))
        assert after == before
        await self._write(kit, _change)

    async def test_a_first_work_that_raises_leaves_no_thread(self, kit):
        """The row, its messages and the space of their vectors are as if it had never run."""

        def work(tx: TranscriptWriter) -> None:
            _fill(tx)
            raise KeyError

        with pytest.raises(KeyError):
            await self._write(kit, work)
        assert await self._read(kit, lambda tx: tx.threads()) == []
        assert await self._seqs(kit) == []
        assert await kit.store.feed("r").space() is None
        await self._write(kit, _fill)

    async def test_a_seq_or_an_id_twice_is_refused(self, kit):
        """The whole work is; the first message stays as it was."""
        await self._add(kit, said(0))
        for double in (said(0, id="other"), said(1, id="m0")):
            with pytest.raises((Conflict, StoreError)):
                await self._add(kit, said(7), double)
        assert await self._read(kit, lambda tx: tx.messages("t")) == [said(0)]

    async def test_two_services_on_one_store_see_each_others_works(self, kit):
        """What one has written the other reads, and goes on with."""
        other, _ = await kit.another()

        def append(tx: TranscriptWriter) -> int:
            row = tx.thread("t")
            tx.add([said(row.next_seq)])
            tx.keep(Thread(id="t", next_seq=row.next_seq + 1))
            return row.next_seq

        stores = (transcript_of(kit.store), transcript_of(other))
        assert [await stores[i % 2].writing(append) for i in range(6)] == list(range(6))
        assert await self._seqs(kit) == list(range(6))

    # ── Isolation ────────────────────────────────────────────────────────────────────

    async def test_threads_of_similar_ids_have_nothing_in_common(self, kit):
        """Same ids and seqs in each; erasing one leaves the others as they were."""
        for thread in NEAR:
            await self._write(kit, partial(_fill, thread=thread))
        before = await self._read(kit, lambda tx: dump(tx, *NEAR))
        assert {len(before[thread]["messages"]) for thread in NEAR} == {5}
        await self._write(kit, lambda tx: tx.erase("a", [0, 1, 2, 3, 4]))
        await self._write(kit, lambda tx: tx.drop(*tx.all(Snapshot, "a%")))
        after = await self._read(kit, lambda tx: dump(tx, *NEAR))
        untouched = set(NEAR) - {"a", "a%"}
        assert {t: after[t] for t in untouched} == {t: before[t] for t in untouched}
        assert await self._read(kit, lambda tx: tx.erased_ids("A", ["m0"])) == frozenset()
        assert await self._read(kit, lambda tx: tx.erased_ids("a", ["m0"])) == {"m0"}

    @pytest.mark.parametrize("fault", ["stale", "late", "twice", "foreign"])
    async def test_one_of_many_that_wait_fails_alone(self, kit, fault):
        """What was handed over together is written once each, but for what fails."""
        await self._write(kit, lambda tx: tx.add([said(0, thread="twice")]))
        gate, failures = threading.Event(), list[Exception]()

        async def told(repo: str, work: Callable[[TranscriptWriter], object]) -> None:
            try:
                await self._write(kit, work, repo)
            except (Conflict, _Foreign) as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(told, "r", lambda tx: gate.wait())
            for number in range(36):
                group.start_soon(told, "rq"[number % 2], partial(_append, f"t{number % 9}"))
                if number == 18:
                    group.start_soon(told, "r", _FAULTS[fault])
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert [type(failure) for failure in failures] == [
            _Foreign if fault == "foreign" else Conflict
        ]
        for number in range(9):
            for repo in ("r", "q"):
                found = await self._read(kit, partial(_tail, f"t{number}"), repo)
                assert found == (["message 0", "message 1"], 2)
        assert await self._read(kit, partial(_tail, "twice")) == (["message 0"], 0)
        assert await self._read(kit, lambda tx: tx.thread("lost")) == Thread(id="lost")

    async def test_repositories_have_nothing_in_common(self, kit):
        """The same thread in two repositories is two threads; so are debts and spaces."""
        await self._write(kit, _fill)
        await self._write(kit, _fill, "q")
        before = await self._read(kit, dump, "q")
        await self._write(kit, _change)
        await self._write(kit, lambda tx: tx.erase("t", list(range(9))))
        assert await self._read(kit, dump, "q") == before
        assert await self._read(kit, lambda tx: tx.threads(), "empty") == []

    async def test_what_is_swept_is_fed_no_more(self, kit):
        """A step of a message waits for the sweep of its thread, and is refused then."""
        await self._add(kit, said(0))
        await kit.start()
        other, _ = await kit.another()
        swept, go_on = threading.Event(), threading.Event()
        answered, answers = anyio.Event(), list[Step | BaseException]()

        def sweep(tx: TranscriptWriter) -> None:
            tx.erase("t", [0])
            swept.set()
            go_on.wait(60)

        def note(answer: Step | BaseException) -> None:
            answers.append(answer)
            answered.set()

        writing = partial(other.transcript("r").writing, sweep, thread_id="t")
        fed = draft("message 0", key="m0", thread_id="t", message_id="m0", is_fed=True)
        async with anyio.create_task_group() as group:
            group.start_soon(writing)
            await anyio.to_thread.run_sync(swept.wait)
            kit.store.sessions("r").append("s", "s-1", fed, kit.owner, note)
            with anyio.move_on_after(0.2):
                await answered.wait()
            go_on.set()
            await answered.wait()
        assert [type(answer) for answer in answers] == [NotToFeed]


def _fill(tx: TranscriptWriter, thread: str = "t") -> None:
    """One of everything."""
    tx.add([said(0, thread=thread), call(1, "c", thread=thread), result(2, "c", thread=thread)])
    tx.add([said(3, thread=thread), said(4, "gone tomorrow", role="assistant", thread=thread)])
    tx.keep(Thread(id=thread, next_seq=5, next_goal=3))
    save_vectors(tx, {(thread, 0): unit_vector(1, 2, 3, 4)})
    tx.put(compaction(0, 2, thread=thread), snapshot(0, 2, thread=thread))
    tx.put(outcome(0, 2, kind="snapshot", snapshot_id="s0-2", thread=thread))
    tx.put(goal(1, thread=thread), goal(2, parent_id=1, thread=thread), pin(3, thread=thread))
    tx.put(surfaced(3, ("elsewhere", "m"), thread=thread))


class _Foreign(Exception):
    """What is no error of ours."""


def _append(thread: str, tx: TranscriptWriter) -> None:
    row = tx.thread(thread)
    message = said(row.next_seq, thread=thread)
    assert tx.by_id(thread, [str(message.id)]) == {}
    tx.add([message])
    tx.keep(replace(row, next_seq=row.next_seq + 1))


def _tail(thread: str, tx: TranscriptReader) -> tuple[list[Any], int]:
    """Contents, and the next seq."""
    return [m.content for m in tx.messages(thread)], tx.thread(thread).next_seq


def _stale(tx: TranscriptWriter) -> None:
    raise Conflict(f"the next seq is {tx.thread('t0').next_seq}")


def _late(tx: TranscriptWriter) -> None:
    _append("lost", tx)
    raise Conflict("refused once it was written")


def _twice(tx: TranscriptWriter) -> None:
    _append("lost", tx)
    tx.add([said(0, thread="twice")])


def _foreign(tx: TranscriptWriter) -> None:
    _append("lost", tx)
    raise _Foreign


_FAULTS = {"stale": _stale, "late": _late, "twice": _twice, "foreign": _foreign}


def _change(tx: TranscriptWriter) -> None:
    """Every way of changing what ``_fill`` has left, and a second thread."""
    tx.keep(Thread(id="u", next_seq=1))
    tx.add([said(0, thread="u", id="new"), said(1, thread="u")])
    tx.keep(Thread(id="t", next_seq=8, epoch=1, epoch_start=5, boundary=5, next_goal=4))
    tx.add([said(5), said(7)], search_tools=True)
    save_vectors(tx, {("t", 3): unit_vector(0, 1, 0, 0), ("u", 0): unit_vector(1, 0, 0, 0)})
    tx.put(compaction(3, 4), compaction(0, 2, superseded_by="c3-4"), snapshot(3, 4))
    tx.put(goal(3), goal(1, status="completed", completed_at=NOON), surfaced(0, ("t", "m1")))
    tx.drop(pin(3), goal(2, parent_id=1), outcome(0, 2), surfaced(3), snapshot(9, 9), pin(99))
    tx.erase("t", [1, 7, 100])

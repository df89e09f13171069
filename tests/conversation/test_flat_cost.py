"""What a load reads does not grow with the history."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from talk_kit import assistant, open_talk, result, turns, user
from world import store_at

from mnemo.conversation.log import MessageLog
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.testing import ManualClock
from mnemo.values.messages import Message
from mnemo.values.strategies import Recent

T = TypeVar("T")


class CountingReader:
    """A transaction that counts the rows of messages and records that it hands out."""

    def __init__(self, tx: Any, counts: dict[str, int]) -> None:
        self._tx = tx
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._tx, name)
        if name not in ("messages", "whole_units", "by_id", "all", "threads", "vectors", "owed"):
            return attribute

        def counted(*args: Any, **kwargs: Any) -> Any:
            rows = attribute(*args, **kwargs)
            self._counts["rows"] += len(rows)
            self._counts["queries"] += 1
            return rows

        return counted


class CountingStore:
    """A ``StoredTranscript`` whose transactions are counted."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.counts = {"rows": 0, "queries": 0}

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """Count what *work* reads."""
        given: T = await self._store.reading(lambda tx: work(CountingReader(tx, self.counts)))  # type: ignore[arg-type]
        return given

    async def writing(self, work: Callable[[TranscriptWriter], T], **named: Any) -> T:
        """Count what *work* reads."""

        def counted(tx: TranscriptWriter) -> T:
            return work(CountingReader(tx, self.counts))  # type: ignore[arg-type]

        given: T = await self._store.writing(counted, **named)
        return given


def agent_turns(count: int, *, reused: bool) -> list[Message]:
    """Turns of an agent: asked, called, answered, said; call ids new each time or the same."""
    said: list[Message] = []
    for number in range(count):
        call = "call_1" if reused else f"call_{number}"
        said += [user(f"u{number}"), assistant(None, call), result(call), assistant("so")]
    return said


@asynccontextmanager
async def filled(
    said: Sequence[Message], **keywords: Any
) -> AsyncIterator[tuple[MessageLog, CountingStore]]:
    """A thread with these messages, on a store that counts."""
    clock = ManualClock()
    store = store_at(None, clock)
    async with open_talk(store, clock) as talk:
        for start in range(0, len(said), MOST_AT_ONCE):
            await talk.log().append(said[start : start + MOST_AT_ONCE])
        counting = CountingStore(store.transcript("r"))
        parts = type(talk.parts)(**{**_fields(talk.parts), "store": counting})
        yield MessageLog(parts, talk.settings(**keywords)), counting


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__slots__}


@pytest.mark.slow
@pytest.mark.parametrize("reused", [False, True])
async def test_a_load_at_twenty_thousand_messages_reads_a_tail(reused):
    """Also where call ids are used again and again, the newest call is open, and a ttl is set."""
    said = [*agent_turns(5_000, reused=reused), user("now"), assistant(None, "call_1", id="open")]
    async with filled(said, retrieval=Recent(10), ttl_s=10_000) as (log, counting):
        counting.counts.update(rows=0, queries=0)
        assert len(await log.load()) >= 20
        assert counting.counts["rows"] < 400
        assert counting.counts["queries"] < 20


@pytest.mark.long
@pytest.mark.slow
async def test_a_load_behind_records_reads_what_they_leave():
    """Records over the past are read, their messages are not."""
    async with filled(turns(20_000)) as (log, counting):
        for start in range(0, 19_500, 1_500):
            await log.compact(start, start + 1_499, f"from {start} on")
        counting.counts.update(rows=0, queries=0)
        assert len(await log.load(budget_tokens=10_000)) == 13 + 20
        assert counting.counts["rows"] < 200


@pytest.mark.slow
async def test_an_append_at_twenty_thousand_messages_reads_its_own_ids():
    """Idempotency is looked up by id, and a refused append reads no more than an accepted one."""
    async with filled(turns(20_000)) as (log, counting):
        counting.counts.update(rows=0, queries=0)
        await log.append([user("new", id="new"), *turns(2)])
        assert counting.counts == {"rows": 2, "queries": 1}

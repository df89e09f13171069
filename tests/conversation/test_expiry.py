"""The sweep: what has expired is deleted with all that was derived from it, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from damaged_stores import damage
from talk_kit import OpenTalk, Talk, turns, user

from mnemo.config import Config
from mnemo.conversation.log import BATCH, ExpirySweep
from mnemo.conversation.scope import ThreadSettings
from mnemo.errors import StoreCorrupt, StoreError
from mnemo.values.derived import Compaction

MINUTE = Config(conversation={"ttl_s": 60})


async def kept(talk: Talk, thread_id: str = "t") -> list[int]:
    """The seqs that the store still has, expired or not."""
    found = await talk.parts.store.reading(lambda tx: tx.messages(thread_id))
    return [message.seq for message in found]


async def vectors(talk: Talk) -> list[int]:
    """The seqs that have a vector, expired or not."""
    seqs, _ = await talk.parts.store.reading(lambda tx: tx.vectors("t"))
    return list(seqs)


async def swept(open_conversations: OpenTalk, **arguments: Any) -> tuple[Talk, ExpirySweep]:
    """A thread that is swept after every append."""
    made: list[Callable[[ThreadSettings], None]] = []
    talk = await open_conversations(appended=lambda settings: made[0](settings), **arguments)
    expiry = ExpirySweep(talk.parts)
    made.append(expiry.appended)
    return talk, expiry


async def test_only_so_many_threads_are_remembered(open_conversations, monkeypatch):
    """A service that lives long meets more threads than it need know of; all are swept."""
    monkeypatch.setattr("mnemo.conversation.log.MOST_KNOWN", 2)
    talk, expiry = await swept(open_conversations, config=MINUTE)
    for name in "abcd":
        await talk.log(name).append(user("tea"))
    assert await expiry.sweep() == 0
    assert list(expiry._known) == ["c", "d"]
    talk.clock.advance(61)
    assert await expiry.sweep() == 4


async def test_a_message_lives_exactly_as_long_as_it_may(open_conversations):
    """At exactly 60 s history, load and vectors have the message; a second later not."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    log = talk.log()
    await log.append(user("tea"))
    await talk.embed()
    talk.clock.advance(60)
    assert await expiry.sweep() == 0
    assert [m.text for m in await log.history()] == ["tea"]
    assert [m.text for m in await log.load()] == ["tea"]
    assert await vectors(talk) == [0]
    talk.clock.advance(1)
    assert await log.history() == []
    assert await log.load() == []
    assert await kept(talk) == [0]
    assert await expiry.sweep() == 1
    assert await kept(talk) == []
    assert await vectors(talk) == []


async def test_appends_sweep(open_conversations):
    """After an append what has expired is deleted; what lives stays."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    await talk.log().append(turns(3))
    talk.clock.advance(40)
    await talk.log().append(turns(2, start=3))
    await expiry._flights.settled("t")
    talk.clock.advance(21)
    assert await kept(talk) == [0, 1, 2, 3, 4]
    await talk.log().append(user("now"))
    await expiry._flights.settled("t")
    assert await kept(talk) == [3, 4, 5]
    talk.clock.advance(41)
    await talk.log().append(user("later"))
    await expiry._flights.settled("t")
    assert await kept(talk) == [5, 6]


async def test_records_go_with_what_they_held(open_conversations):
    """A record whose range held an expired message goes; one of living messages stays."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    await talk.log().append(turns(2))
    talk.clock.advance(30)
    await talk.log().append(turns(4, start=2))
    await talk.log().compact(1, 2, "half of it will expire")
    await talk.log().compact(3, 4, "all of it lives")
    talk.clock.advance(31)
    assert await expiry.sweep() == 2
    left = await talk.parts.store.reading(lambda tx: tx.all(Compaction, "t"))
    assert [(one.start_seq, one.end_seq) for one in left] == [(3, 4)]
    loaded = await talk.log().load()
    assert [(m.kind, m.text) for m in loaded if m.kind != "summary"] == [
        ("user", "m2"),
        ("assistant", "m5"),
    ]


async def test_a_long_past_goes_in_batches(open_conversations):
    """However much has expired, each transaction deletes a part; a later sweep starts behind."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    count = 2 * BATCH + 10
    await talk.log().append(turns(count))
    talk.clock.advance(61)
    erased: list[int] = []
    writing = talk.parts.store.writing

    async def counted(work: Any, **named: Any) -> Any:
        result = await writing(work, **named)
        erased.append(result)
        return result

    talk.parts.store.writing = counted
    assert await expiry.sweep() == count
    assert erased == [BATCH, BATCH, 10]
    talk.parts.store.writing = writing
    await talk.log().append(user("now"))
    assert await ExpirySweep(talk.parts).sweep() == 0
    assert await kept(talk) == [count]


async def test_every_thread_is_swept_by_its_own_time(open_conversations):
    """The stored ``ttl_s`` of each thread counts, that of the configuration for the rest."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    for thread_id, keywords in [("a", {}), ("b", {"ttl_s": 10}), ("c", {"ttl_s": None})]:
        await talk.log(thread_id, **keywords).append(user("tea"))
        await expiry._flights.settled(thread_id)
    talk.clock.advance(11)
    assert await expiry.sweep() == 1
    assert [await kept(talk, one) for one in "abc"] == [[0], [], [0]]
    talk.clock.advance(50)
    assert await expiry.sweep() == 1
    assert [await kept(talk, one) for one in "abc"] == [[], [], [0]]


async def test_a_handles_own_time_is_swept_by(open_conversations):
    """Without a configured ``ttl_s`` the handle's own one is enough."""
    talk, expiry = await swept(open_conversations)
    log = talk.log(ttl_s=60)
    await log.append(user("tea"))
    talk.clock.advance(61)
    await log.append(user("milk"))
    await expiry._flights.settled("t")
    assert await kept(talk) == [1]


async def test_without_a_time_nothing_is_looked_at(open_conversations):
    """Threads that never expire cost a sweep nothing after an append."""
    talk, expiry = await swept(open_conversations)
    await talk.log().append(user("tea"))

    async def reading(work: Any) -> Any:
        raise AssertionError("a thread without ttl_s was looked at")

    before, talk.parts.store.reading = talk.parts.store.reading, reading
    expiry.appended(talk.settings())
    await expiry._flights.settled("t")
    talk.parts.store.reading = before
    assert await kept(talk) == [0]


async def test_a_failing_store_is_swept_later(open_conversations):
    """A sweep that fails deletes nothing and is made up for after the next append."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    await talk.log().append(user("tea"))
    await expiry._flights.settled("t")
    talk.clock.advance(61)
    writing = talk.parts.store.writing

    async def failing(work: Any, **_: Any) -> Any:
        raise StoreError("not now")

    talk.parts.store.writing = failing
    with pytest.raises(StoreError):
        await expiry.sweep()
    talk.parts.store.writing = writing
    assert await kept(talk) == [0]
    await talk.log().append(user("milk"))
    await expiry._flights.settled("t")
    assert await kept(talk) == [1]


async def test_a_damaged_message_is_swept_with_the_others(open_conversations, tmp_path):
    """The sweep reads no more of a message than its time: it and what is behind it goes."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    for thread_id in "ab":
        await talk.log(thread_id).append(turns(3))
        await expiry._flights.settled(thread_id)
    assert damage(tmp_path / "talk.db", "messages", "content", "x'00'")
    talk.clock.advance(61)
    assert await expiry.sweep() == 6
    assert [await kept(talk, one) for one in "ab"] == [[], []]


async def test_a_time_that_is_damaged_is_passed_by(open_conversations, tmp_path):
    """Nobody knows when that message expires; the others go."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    await talk.log().append(turns(3))
    await expiry._flights.settled("t")
    assert damage(tmp_path / "talk.db", "messages", "recorded_at", "'once'")
    talk.clock.advance(61)
    assert await expiry.sweep() == 2


async def test_a_thread_that_cannot_be_swept_does_not_keep_the_others(open_conversations):
    """A thread where the store is damaged is logged; those after it are swept."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    for thread_id in "ab":
        await talk.log(thread_id).append(user("tea"))
        await expiry._flights.settled(thread_id)
    talk.clock.advance(61)
    writing = talk.parts.store.writing

    async def damaged(work: Any, *, thread_id: str) -> Any:
        if thread_id == "a":
            raise StoreCorrupt("a page is damaged", table="messages", key="1")
        return await writing(work, thread_id=thread_id)

    talk.parts.store.writing = damaged
    assert await expiry.sweep() == 1
    assert [await kept(talk, one) for one in "ab"] == [[0], []]


async def test_a_time_that_grew_meanwhile_is_looked_at_anew(open_conversations):
    """What was found, but may live longer as it is to be deleted, is found again later."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    await talk.log().append(turns(2))
    await expiry._flights.settled("t")
    talk.clock.advance(61)
    writing = talk.parts.store.writing

    async def lengthened(work: Any, **named: Any) -> Any:
        talk.parts.store.writing = writing
        await talk.log(ttl_s=90).history()
        return await writing(work, **named)

    talk.parts.store.writing = lengthened
    assert await expiry.sweep() == 0
    assert await kept(talk) == [0, 1]
    talk.clock.advance(30)
    assert await expiry.sweep() == 2


async def test_time_that_went_backwards_hides_nothing_for_ever(
    open_conversations,
):
    """An expired message behind one that lives is not seen, and goes when that one has."""
    talk, expiry = await swept(open_conversations, config=MINUTE)
    await talk.log().append(user("first"))
    talk.clock.advance(-30)
    await talk.log().append(user("second"))
    talk.clock.advance(61)
    assert [m.text for m in await talk.log().history()] == ["first"]
    await expiry.sweep()
    talk.clock.advance(60)
    await expiry.sweep()
    assert await kept(talk) == []

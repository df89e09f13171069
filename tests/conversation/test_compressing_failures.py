"""Compression that fails, comes too late, or meets a store that fails: nothing changes."""

from collections.abc import Callable
from itertools import count
from typing import Any

import anyio
import pytest
from compress_kit import Compressed, compressed
from talk_kit import user

from mnemo.config import Config
from mnemo.conversation.log import ExpirySweep
from mnemo.errors import ModelUnavailable, StoreError
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.values.derived import Compaction
from mnemo.values.messages import Message
from mnemo.values.strategies import Recent, Summary

SUMMARY = Summary(max_tokens=50, keep_last=2)


def said(text: str, tokens: int = 10, **fields: Any) -> Message:
    return user(text, token_count=tokens, **fields)


def ten(start: int = 0) -> list[Message]:
    return [said(f"m{n}", id=f"m{n}") for n in range(start, start + 10)]


async def all_loaded(kit: Compressed) -> list[str]:
    return [message.text for message in await kit.talk.log(retrieval=Recent(100)).load()]


async def hanging(request: ChatRequest) -> str:
    await anyio.sleep_forever()
    return "never"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (RuntimeError("boom"), "ModelUnavailable: the chat model raised RuntimeError: boom"),
        (ModelUnavailable("away"), "ModelUnavailable: away"),
        (" \n", "InvalidReply: the summary is blank"),
        ("<think>hm", "InvalidReply: the summary is blank"),
        (ChatReply(text="They sa", truncated=True), "InvalidReply: the summary was cut off"),
        (["One. " * 999, ""], "InvalidReply: the summary is blank"),
        (hanging, "ModelTimeout: no summarize reply within 0.01 s"),
    ],
)
async def test_a_failing_model_changes_nothing(open_conversations, script, error):
    """Raising, blank, cut off or hanging: appended, no record, load whole, told."""
    config = Config(extraction={"timeout_s": 0.01 if script is hanging else 60})
    kit = await compressed(open_conversations, SUMMARY, script=script, config=config)
    stored = await kit.log.append(ten())
    assert len(stored) == 10
    await kit.compressing.settled("t")
    assert await kit.records(live=False) == []
    assert await all_loaded(kit) == [f"m{n}" for n in range(10)]
    (failure,) = kit.failures
    assert failure.error.startswith(error)
    assert failure.thread_id == "t"
    assert kit.talk.parts.meter.stages["summarize"] == {"failed": 1}


async def test_it_is_tried_again_after_five_and_ten_seconds(open_conversations):
    """Retries wait 5 s, then 10 s of the clock; after three attempts for the next append."""
    kit = await compressed(open_conversations, SUMMARY, script=RuntimeError("boom"))
    await kit.append(*ten())
    assert kit.calls == 1
    for seconds, calls in [(4.9, 1), (0.1, 2), (9.9, 2), (0.1, 3), (500, 3)]:
        await kit.talk.clock.advance(seconds)
        await kit.compressing.settled("t")
        assert kit.calls == calls
    await kit.append(said("one more"))
    assert kit.calls == 4
    assert len(kit.failures) == 4


async def test_a_retry_whose_time_is_over_is_made_at_once(open_conversations, monkeypatch):
    """A pause of 0, or a loop that was late: no clock is asked to wait for less than nothing."""
    config = Config(conversation={"retry_backoff_s": 0})
    kit = await compressed(
        open_conversations, SUMMARY, script=[RuntimeError("boom"), "They said it."], config=config
    )
    moments, pauses = count(), []

    async def sleep(seconds: float) -> None:
        if seconds > 1:  # the time that a model has
            await anyio.sleep_forever()
        pauses.append(seconds)

    monkeypatch.setattr(kit.talk.clock, "monotonic", lambda: float(next(moments)))
    monkeypatch.setattr(kit.talk.clock, "sleep", sleep)
    monkeypatch.setattr(kit.compressing._backoff, "sleep", sleep)
    await kit.append(*ten())
    await kit.talk.until(lambda: kit.calls == 2)
    await kit.compressing.settled("t")
    assert pauses == [0.0]
    assert await kit.ranges() == [(0, 7)]


async def test_appends_do_not_hurry_a_retry(open_conversations):
    """While the next attempt waits for its time, appends do not ask a model that is down."""
    kit = await compressed(
        open_conversations, SUMMARY, script=[RuntimeError("boom"), "They said it."]
    )
    await kit.append(*ten())
    await kit.append(said("m10"))
    assert kit.calls == 1
    await kit.talk.clock.advance(5)
    await kit.compressing.settled("t")
    assert await kit.ranges() == [(0, 8)]


async def test_who_asks_for_compression_does_not_wait_for_the_retry(
    open_conversations,
):
    """``compress()`` is an attempt now; None when it fails, and it never raises for a model."""
    kit = await compressed(
        open_conversations, SUMMARY, script=[RuntimeError("a"), RuntimeError("b"), "Said."]
    )
    await kit.append(*ten())
    assert await kit.compress() is None
    assert kit.calls == 2
    assert await kit.compress() is not None
    await kit.talk.clock.advance(60)
    await kit.compressing.settled("t")
    assert kit.calls == 3


async def test_the_embedded_summarizer_never_steps_in(open_conversations):
    """A configured model that fails is not replaced: there is no record of another origin."""
    kit = await compressed(open_conversations, SUMMARY, script=RuntimeError("boom"))
    await kit.append(*ten())
    for _ in range(5):
        await kit.talk.clock.advance(60)
        await kit.compressing.settled("t")
    assert await kit.records(live=False) == []


async def clear(kit: Compressed) -> None:
    await kit.log.clear()


async def purge(kit: Compressed) -> None:
    await kit.log.purge()


async def compact(kit: Compressed) -> None:
    await kit.log.compact(2, 3, "by hand")


async def erase_one(kit: Compressed) -> None:
    await kit.talk.parts.store.writing(lambda tx: tx.erase("t", [4]))


@pytest.mark.parametrize(
    ("meanwhile", "ranges"),
    [(clear, []), (purge, []), (compact, [(0, 1), (2, 3), (4, 7)]), (erase_one, [(0, 7)])],
)
async def test_a_summary_that_comes_too_late_is_thrown_away(open_conversations, meanwhile, ranges):
    """After clear, purge, compact or erasure the result is dropped and the trigger judged anew."""
    replies = ["Too late.", "In time."]
    kit = await compressed(open_conversations, SUMMARY, script=replies)
    kit.model.block()
    await kit.log.append(ten())
    await kit.talk.until(lambda: kit.model.waiting == 1)
    await meanwhile(kit)
    kit.model.unblock()
    await kit.compressing.settled("t")
    assert await kit.ranges() == ranges
    assert "Too late." not in [one.summary_text for one in await kit.records(live=False)]
    assert kit.failures == []


async def test_a_summary_made_with_an_erased_one_in_view_is_thrown_away(open_conversations):
    """The model was shown the record of a message that is erased meanwhile: it may tell of it."""
    replies = ["Of the erased.", "Too late.", "In time.", "More."]
    kit = await compressed(open_conversations, SUMMARY, script=replies)
    await kit.append(*ten())
    assert await kit.ranges() == [(0, 7)]
    kit.model.block()
    await kit.log.append(ten(10)[:5])
    await kit.talk.until(lambda: kit.model.waiting == 1)
    await kit.talk.parts.store.writing(lambda tx: tx.erase("t", [3]))
    kit.model.unblock()
    await kit.compressing.settled("t")
    assert [one.summary_text for one in await kit.records(live=False)] == ["In time."]
    assert await kit.ranges() == [(0, 12)]


async def test_messages_that_expire_meanwhile_are_not_summarised(
    open_conversations,
):
    """A summary of what has expired before it came is thrown away, swept or not."""
    kit = await compressed(open_conversations, SUMMARY, config=Config(conversation={"ttl_s": 60}))
    kit.model.block()
    await kit.log.append(ten())
    await kit.talk.until(lambda: kit.model.waiting == 1)
    kit.talk.clock.advance(61)
    kit.model.unblock()
    await kit.compressing.settled("t")
    assert await kit.records(live=False) == []


async def test_what_was_expired_and_swept_is_verbatim_again(open_conversations):
    """A record whose range held an expired message goes; the rest is shown, then summarised."""
    kit = await compressed(open_conversations, SUMMARY, config=Config(conversation={"ttl_s": 60}))
    await kit.append(*ten()[:4])
    kit.talk.clock.advance(30)
    await kit.append(*ten(10)[:6])
    assert await kit.ranges() == [(0, 7)]
    kit.talk.clock.advance(31)
    await ExpirySweep(kit.talk.parts).sweep()
    assert await kit.ranges() == []
    assert await all_loaded(kit) == [f"m{n}" for n in range(10, 16)]
    await kit.append(said("m16"))
    assert await kit.ranges() == [(4, 8)]


async def test_a_store_that_fails_at_the_commit_is_tried_again(
    open_conversations,
):
    """A commit that fails leaves nothing behind; the attempt is made again, and told."""
    kit = await compressed(open_conversations, SUMMARY)
    store, failed = kit.talk.parts.store, []
    writing = store.writing

    async def failing(work: Callable[[Any], Any], **named: Any) -> Any:
        if kit.calls == 1 and not failed:
            failed.append(work)
            raise StoreError("the disk is full")
        return await writing(work, **named)

    store.writing = failing
    await kit.append(*ten())
    assert await kit.records(live=False) == []
    assert [event.error for event in kit.failures] == ["StoreError: the disk is full"]
    await kit.talk.clock.advance(5)
    await kit.compressing.settled("t")
    assert await kit.ranges() == [(0, 7)]


async def test_a_store_that_fails_as_it_is_read_is_tried_again(
    open_conversations,
):
    """What is due could not be read: without another append it is read after the pause."""
    kit = await compressed(open_conversations, SUMMARY)
    store, failed = kit.talk.parts.store, []
    reading = store.reading

    async def failing(work: Callable[[Any], Any]) -> Any:
        if not failed:
            failed.append(work)
            raise StoreError("the disk is away")
        return await reading(work)

    await kit.log.append(ten())
    store.reading = failing
    await kit.compressing.settled("t")
    assert [event.error for event in kit.failures] == ["StoreError: the disk is away"]
    await kit.talk.clock.advance(5)
    await kit.compressing.settled("t")
    assert await kit.ranges() == [(0, 7)]


async def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    open_conversations,
):
    """Written, but the answer lost: the next attempt finds nothing due."""
    kit = await compressed(open_conversations, SUMMARY)
    store, lost = kit.talk.parts.store, []
    writing = store.writing

    async def losing(work: Callable[[Any], Any], **named: Any) -> Any:
        answer = await writing(work, **named)
        if isinstance(answer, Compaction) and not lost:
            lost.append(answer)
            raise StoreError("the answer was lost")
        return answer

    store.writing = losing
    await kit.append(*ten())
    await kit.talk.clock.advance(5)
    await kit.compressing.settled("t")
    assert await kit.records(live=False) == lost
    assert kit.calls == 1


async def test_two_services_that_summarise_at_once_keep_one_record(
    open_conversations,
):
    """Compare-and-set: of two compressors over one store the later one's result is dropped."""
    kit = await compressed(open_conversations, SUMMARY)
    other = type(kit.compressing)(kit.talk.parts)
    kit.model.block()
    await kit.talk.log().append(ten())
    async with anyio.create_task_group() as group:
        group.start_soon(kit.compressing.compress, kit.settings)
        group.start_soon(other.compress, kit.settings)
        await kit.talk.until(lambda: kit.model.waiting == 2)
        kit.model.unblock()
    assert await kit.ranges() == [(0, 7)]
    assert len(await kit.records(live=False)) == 1


async def test_summaries_do_not_grow_without_bound(open_conversations):
    """Live summaries above max_tokens / 2: those that touch become one of level 2."""
    text = "word " * 8 + "end."  # 11 tokens
    kit = await compressed(open_conversations, SUMMARY, script=text)
    await kit.append(*ten())
    await kit.append(*ten(10)[:5])
    assert await kit.ranges() == [(0, 7), (8, 12)]
    await kit.append(*ten(20)[:5])
    assert await kit.ranges() == [(0, 17)]
    assert kit.recorded == [(0, 7, 1), (8, 12, 1), (13, 17, 1), (0, 17, 2)]
    made = await kit.records(live=False)
    (whole,) = [one for one in made if one.level == 2]
    assert {one.superseded_by for one in made if one.level == 1} == {whole.id}
    for n in range(10):
        await kit.append(*ten(100 + 10 * n))
    live = await kit.records()
    assert sum(one.token_count for one in live) <= 50


async def test_who_compresses_gets_the_record_of_messages(open_conversations):
    """``compress()`` gives what it made of messages, though that was folded at once."""
    kit = await compressed(open_conversations, SUMMARY, script="word " * 15)
    await kit.append(*ten())
    await kit.talk.log().append(ten(10))
    made = await kit.compress()
    assert made is not None
    assert (made.start_seq, made.end_seq, made.level) == (8, 17, 1)
    assert await kit.ranges() == [(0, 17)]


async def test_records_that_do_not_touch_are_not_folded(open_conversations):
    """An uncovered message between two records keeps them apart."""
    kit = await compressed(open_conversations, SUMMARY, script="Folded.")
    quiet = kit.talk.log()
    await quiet.append(ten()[:4])
    await quiet.compact(0, 0, "word " * 30)
    await quiet.compact(2, 2, "word " * 30)
    await kit.compress()
    assert kit.calls == 0
    await quiet.compact(1, 1, "between")
    await kit.compress()
    assert await kit.ranges() == [(0, 2)]


async def test_a_fold_that_comes_too_late_is_thrown_away(open_conversations):
    """Records that are gone when the fold comes: nothing is superseded, nothing is inserted."""
    kit = await compressed(open_conversations, SUMMARY, script="Folded.")
    quiet = kit.talk.log()
    await quiet.append(ten()[:4])
    await quiet.compact(0, 0, "word " * 30)
    await quiet.compact(1, 1, "word " * 30)
    kit.model.block()
    async with anyio.create_task_group() as group:
        group.start_soon(kit.compress)
        await kit.talk.until(lambda: kit.model.waiting == 1)
        await kit.talk.parts.store.writing(lambda tx: tx.erase("t", [1]))
        kit.model.unblock()
    made = await kit.records(live=False)
    assert [(one.start_seq, one.end_seq, one.superseded_by) for one in made] == [(0, 0, None)]


async def test_a_failing_fold_leaves_the_record_before_it(open_conversations):
    """The record of messages stands though folding fails after it."""
    replies = ["word " * 15, "word " * 15, RuntimeError("boom")]
    kit = await compressed(open_conversations, SUMMARY, script=replies)
    await kit.append(*ten())
    await kit.talk.log().append(ten(10))
    made = await kit.compress()
    assert made is not None
    assert await kit.ranges() == [(0, 7), (8, 17)]
    assert len(kit.failures) == 1

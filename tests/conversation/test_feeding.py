"""Feeding: a session takes a thread's messages as the thread grows, each once, none lost."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from talk_kit import OpenTalk, Talk, assistant, result, turns, user

from mnemo.config import Config
from mnemo.conversation.mirror import Feed, Feeding
from mnemo.errors import InvalidOperation, SessionError, StoreError, UsageError
from mnemo.values.erasure import Selection
from mnemo.values.messages import StoredMessage


class Taker:
    """A session that takes messages, as far as it is let."""

    id = "s"

    def __init__(self) -> None:
        self.taken: dict[str, str] = {}
        self.error: Exception | None = None
        self.gate: anyio.Event | None = None
        self.asked = 0

    async def _take_fed(self, messages: Sequence[StoredMessage]) -> None:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        for message in messages:
            if self.error is not None:
                raise self.error
            self.taken.setdefault(message.stored_id, message.text)

    def held_messages(self, thread_id: str) -> list[str]:
        return list(reversed(self.taken))

    @property
    def texts(self) -> list[str]:
        return list(self.taken.values())


async def opened(open_conversations: OpenTalk, **arguments: Any) -> tuple[Talk, Feeding]:
    """A thread whose appends are told to its feeds."""
    made: list[Feeding] = []
    talk = await open_conversations(
        appended=lambda settings: made[0].appended(settings.thread_id), **arguments
    )
    made.append(Feeding(talk.parts))
    return talk, made[0]


async def fed(feed: Feed) -> None:
    """Everything of this moment is in the session."""
    with anyio.fail_after(120):
        await feed.caught_up()


async def test_a_session_takes_what_is_appended(open_conversations):
    """Issue 5, point 4: a conversation feeds a session as it grows, in order."""
    talk, feeding = await opened(open_conversations)
    session = Taker()
    await talk.log().append(turns(2))
    feed = await feeding.feed("t", session)
    await talk.log().append(turns(4, start=2))
    await talk.log("other").append(turns(3, start=50))
    await talk.log().append(turns(2, start=6))
    await fed(feed)
    assert session.texts == [f"m{n}" for n in range(2, 8)]
    assert feed.active
    assert feed.error is None


async def test_it_happens_without_anybody_waiting(open_conversations):
    """An append is enough: nobody has to ask whether the session has caught up."""
    talk, feeding = await opened(open_conversations)
    session = Taker()
    await feeding.feed("t", session)
    await talk.log().append(turns(3))
    await talk.until(lambda: session.texts == ["m0", "m1", "m2"])
    await talk.log().append(turns(1, start=3))
    await talk.until(lambda: len(session.texts) == 4)


async def test_from_seq_says_where_to_begin(open_conversations):
    """With ``from_seq`` what is stored already is taken too, however long it is."""
    talk, feeding = await opened(open_conversations)
    await talk.log().append(turns(200))
    session = Taker()
    await fed(await feeding.feed("t", session, from_seq=3))
    assert session.texts == [f"m{n}" for n in range(3, 200)]


@pytest.mark.parametrize("from_seq", [-1, True, 1.5, "0"])
async def test_from_seq_is_a_seq(open_conversations, from_seq):
    """Anything else is refused at once."""
    _, feeding = await opened(open_conversations)
    with pytest.raises(ValueError, match="from_seq"):
        await feeding.feed("t", Taker(), from_seq=from_seq)


async def test_a_later_feed_goes_on_where_the_last_one_ended(open_conversations):
    """After a restart nothing is missed that was appended without a feed, nothing twice."""
    talk, feeding = await opened(open_conversations)
    session = Taker()
    feed = await feeding.feed("t", session, from_seq=0)
    await talk.log().append(turns(3))
    await fed(feed)
    feed.cancel()
    await talk.until(lambda: not feed.active)
    await talk.log().append(turns(3, start=3))
    asked = session.asked
    await fed(await feeding.feed("t", session))
    assert session.texts == [f"m{n}" for n in range(6)]
    assert session.asked == asked + 1


async def test_a_session_whose_messages_are_all_gone_gets_what_is_left(
    open_conversations,
):
    """If nothing that it holds is in the thread any more, all that is left came later."""
    talk, feeding = await opened(open_conversations)
    session = Taker()
    feed = await feeding.feed("t", session)
    await talk.log().append(turns(2))
    await fed(feed)
    feed.cancel()
    await talk.log().append(turns(2, start=2))
    await talk.parts.store.writing(lambda tx: tx.erase("t", [0, 1]))
    await fed(await feeding.feed("t", session))
    assert session.texts == ["m0", "m1", "m2", "m3"]


async def test_expired_messages_are_passed_over(open_conversations):
    """What has expired before it was fed is not fed."""
    talk, feeding = await opened(open_conversations, config=Config(conversation={"ttl_s": 60}))
    await talk.log().append(turns(2))
    talk.clock.advance(61)
    await talk.log().append(turns(2, start=2))
    session = Taker()
    await fed(await feeding.feed("t", session, from_seq=0))
    assert session.texts == ["m2", "m3"]


async def test_messages_of_every_epoch_are_fed(open_conversations):
    """``clear`` is no end: the seqs go on, and so does the feed."""
    talk, feeding = await opened(open_conversations)
    await talk.log().append(turns(2))
    await talk.log().clear()
    await talk.log().append(turns(2, start=2))
    session = Taker()
    await fed(await feeding.feed("t", session, from_seq=0))
    assert session.texts == ["m0", "m1", "m2", "m3"]


async def test_it_stops_when_the_session_takes_no_more(open_conversations, caplog):
    """A session that does not collect ends the feed, with a logged reason; waiting raises it."""
    talk, feeding = await opened(open_conversations)
    session = Taker()
    feed = await feeding.feed("t", session)
    session.error = InvalidOperation("not_collecting", state="ready", operation="append")
    await talk.log().append(turns(1))
    with pytest.raises(SessionError, match="not_collecting"):
        await fed(feed)
    assert feed.error is session.error
    assert not feed.active
    assert "session 's' is not fed by thread 't' any more" in caplog.text
    with pytest.raises(SessionError):
        await fed(feed)


async def test_a_store_that_fails_is_waited_out(open_conversations):
    """A failing store is asked again after a pause; nothing is lost and nothing twice."""
    talk, feeding = await opened(open_conversations)
    session = Taker()
    feed = await feeding.feed("t", session)
    session.error = StoreError("the disk is full")
    await talk.log().append(turns(3))
    await talk.until(lambda: session.asked == 1)
    session.error = None
    await talk.clock.advance(4)
    assert session.texts == []
    await talk.clock.advance(2)
    await fed(feed)
    assert session.texts == ["m0", "m1", "m2"]


async def test_who_waits_is_told_of_the_cancellation(open_conversations):
    """A cancelled feed leaves nobody waiting."""
    talk, feeding = await opened(open_conversations)
    session = Taker()
    session.gate = anyio.Event()
    feed = await feeding.feed("t", session)
    await talk.log().append(turns(1))
    await talk.until(lambda: session.asked == 1)
    feed.cancel()
    with pytest.raises(UsageError, match="has ended"):
        await fed(feed)
    assert feed.error is None


async def test_clearing_forgets_nothing(open_conversations):
    """A thread that is cleared while it is fed keeps what was fed."""
    forgotten: list[Selection] = []
    talk, feeding = await opened(open_conversations, forget=forgotten.append)
    session = Taker()
    session.gate = anyio.Event()
    feed = await feeding.feed("t", session)
    await talk.log().append(turns(2))
    await talk.until(lambda: session.asked == 1)
    await talk.log().clear()
    session.gate.set()
    await fed(feed)
    assert session.texts == ["m0", "m1"]
    assert forgotten == []


async def test_two_sessions_are_fed_alike(open_conversations):
    """One that hangs holds up no other."""
    talk, feeding = await opened(open_conversations)
    slow, quick = Taker(), Taker()
    slow.gate = anyio.Event()
    first, second = await feeding.feed("t", slow), await feeding.feed("t", quick)
    await talk.log().append(turns(2))
    await fed(second)
    assert (slow.texts, quick.texts) == ([], ["m0", "m1"])
    slow.gate.set()
    await fed(first)
    assert slow.texts == ["m0", "m1"]


async def test_a_real_session_is_fed(open_kit):
    """Steps in order, named by thread and message; a second feed from the start adds nothing."""
    kit = await open_kit(embedded=True)
    session, talk = await kit.started("plan the trip"), kit.repo.conversation("t")
    feed = await talk.feed(session)
    await talk.append([user("Where?", id="a"), assistant("I look.", "c", id="b")])
    await talk.append([result("c", "Pier 3", id="d"), user(" ", id="e")])
    await fed(feed)
    await fed(await talk.feed(session, from_seq=0))
    steps = session.recent_steps(9)
    assert [(s.thread_id, s.message_id) for s in steps] == [("t", "a"), ("t", "b"), ("t", "d")]
    assert session.held_messages("t") == ["d", "b", "a"]
    await session.close()
    await talk.append(user("too late", id="f"))
    with pytest.raises(SessionError):
        await fed(feed)
    resumed = await talk.feed(session)
    assert isinstance(resumed, Feed)

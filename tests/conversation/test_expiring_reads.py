"""Expiry and purge, as every reader sees them at once."""

import pytest
from talk_kit import assistant, result, seqs, texts, turns, user

from mnemo.config import Config


async def test_a_message_expires_after_its_time(talk):
    """At exactly 60 s it is there; after that no reading gives it, swept or not."""
    log = talk.log(ttl_s=60)
    await log.append([user("old", id="old"), assistant("calls", "a")])
    await talk.clock.advance(60)
    assert len(await log.load()) == len(await log.history()) == 2
    await talk.clock.advance(1)
    await log.append([result("a", "A"), user("new")])
    assert texts(await log.history()) == ["A", "new"]
    assert texts(await log.load()) == ["[late result of a] A", "new"]


async def test_a_record_goes_with_the_first_message_of_its_range(talk):
    """No text derived from what expired is shown; what has not expired is verbatim again."""
    log = talk.log(ttl_s=60)
    await log.append(turns(2))
    await talk.clock.advance(40)
    await log.append(turns(4, start=2))
    await log.compact(0, 3, "s")
    assert len(await log.load()) == 3
    await talk.clock.advance(30)
    assert texts(await log.load()) == ["m2", "m3", "m4", "m5"]
    assert await log.compactions() == await log.compactions(include_superseded=True) == []
    await log.compact(2, 3, "again")
    assert len(await log.load()) == 3


async def test_a_record_over_erased_messages_goes_with_the_rest(talk):
    """Where the first messages of its range are gone already, the oldest of the rest counts."""
    log = talk.log(ttl_s=60)
    await log.append(turns(2))
    await talk.parts.store.writing(lambda tx: tx.erase("t", [0]))
    await talk.clock.advance(30)
    await log.append(turns(2, start=2))
    await log.compact(0, 3, "s")
    assert len(await log.compactions()) == 1
    await talk.clock.advance(31)
    assert texts(await log.load()) == ["m2", "m3"]
    assert await log.compactions() == []


@pytest.mark.parametrize("text", ["s", "another"])
async def test_a_record_over_a_range_that_is_empty_is_refused(talk, text):
    """What was erased or has expired is not told of again, by a text that nothing takes away."""
    log = talk.log(ttl_s=60)
    await log.append(turns(5))
    await log.compact(0, 1, "s")
    await talk.parts.store.writing(lambda tx: tx.erase("t", [0, 1]))
    with pytest.raises(ValueError, match=r"no message of 0\.\.1 is there any more"):
        await log.compact(0, 1, text)
    await talk.clock.advance(61)
    with pytest.raises(ValueError, match=r"no message of 2\.\.4 is there any more"):
        await log.compact(2, 4, text)
    assert await log.compactions() == await log.load() == []


async def test_an_expired_id_does_not_come_back(talk):
    """Appended again it is left out, before the sweep as after it."""
    log = talk.log(ttl_s=60)
    await log.append(user("old", id="old"))
    await talk.clock.advance(61)
    assert await log.append(user("old", id="old")) == []
    assert texts(await log.append([user("old", id="old"), user("new")])) == ["new"]
    assert texts(await log.history()) == ["new"]


async def test_a_ttl_is_kept_with_the_next_write_or_reading(talk):
    """A handle's ttl is stored; one without it goes by what is stored, None turns it off."""
    await talk.log().append(user("said"))
    assert (await talk.row()).ttl_s is None
    await talk.log(ttl_s=60).history()
    assert (await talk.row()).ttl_s == 60
    await talk.clock.advance(61)
    assert await talk.log().history() == []
    assert len(await talk.log(ttl_s=None).history()) == 1
    assert (await talk.row()).ttl_s == 0
    await talk.log(ttl_s=90).append(user("more"))
    assert (await talk.row()).ttl_s == 90


async def test_the_configured_ttl_holds_for_all_threads(open_conversations):
    """It is the default of every thread; an explicit None turns it off for one."""
    talk = await open_conversations(config=Config(conversation={"ttl_s": 10}))
    for name in ("a", "b"):
        await talk.log(name).append(user(name))
    await talk.clock.advance(11)
    assert await talk.log("a").history() == []
    assert len(await talk.log("b", ttl_s=None).history()) == 1


async def test_a_purge_leaves_nothing_but_the_next_seq(talk):
    """The report counts what was there, a second one zero, other threads stay."""
    log, other = talk.log(), talk.log("other")
    await log.append(turns(5))
    await other.append(turns(2))
    await talk.embed()
    await log.compact(0, 1, "s")
    report = await log.purge()
    assert (report.messages, report.compactions, report.vectors) == (5, 1, 5)
    assert [await log.history(), await log.load(), await log.compactions()] == [[], [], []]
    assert (await log.purge()).is_empty
    assert len(await other.history()) == 2
    assert await log.append(turns(5)) == []
    assert seqs(await log.append(user("new"))) == [5]


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf"), "60", True])
def test_a_ttl_is_seconds_above_zero(ttl_s):
    """Anything else is refused where the handle is made."""
    from mnemo.conversation.scope import settings_of

    with pytest.raises(ValueError, match="ttl_s"):
        settings_of("t", Config(), ttl_s=ttl_s)

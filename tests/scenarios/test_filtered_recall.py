"""Filters of recall: what evidence may be used, applied before anything is cut."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mnemo import Message, Mnemo, Repository
from mnemo.testing import HashingEmbedder, ManualClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
async def repo() -> AsyncIterator[Repository]:
    """An empty repository in memory whose clock stands still."""
    async with Mnemo("memory:", clock=ManualClock(NOON), embedder=HashingEmbedder()) as service:
        yield await service.open_repo("r")


def kite(name: str, **values: Any) -> Message:
    """A user's message about a kite."""
    return Message(role="user", content=f"the {name} kite flew", **({"at": NOON} | values))


async def kites(repo: Repository, **filters: Any) -> list[str]:
    """The colours of the kites that a recall finds, in the order of the alphabet."""
    found = await repo.recall("kite", k=50, **filters)
    return sorted(candidate.node.text.split()[1] for candidate in found.candidates)


async def test_conditions_on_metadata_choose_messages_and_steps(repo):
    """Equality, any of, ranges, absence, membership and descent, of both kinds of evidence."""
    await repo.conversation("t").append(
        [
            kite("red", metadata={"project": "atlas", "year": 2024, "by": {"team": "a"}}),
            kite("blue", metadata={"project": "zeus", "year": 2023, "tags": ["x", "y"]}),
        ]
    )
    session = await repo.start_session("talk")
    await session.append("the green kite flew", "", metadata={"project": "atlas", "year": "2024"})
    await session.append("the white kite flew", "")
    asked: list[tuple[dict[str, Any], list[str]]] = [
        ({"project": "atlas"}, ["green", "red"]),
        ({"project": ["zeus", "hera"]}, ["blue"]),
        ({"year": {"gte": 2024}}, ["red"]),
        ({"year": {"gt": 2022, "lt": 2024}}, ["blue"]),
        ({"project": {"ne": "atlas"}}, ["blue"]),
        ({"project": {"exists": False}}, ["white"]),
        ({"tags": "y"}, ["blue"]),
        ({"by.team": "a"}, ["red"]),
        ({"project": "atlas", "year": 2024}, ["red"]),
        ({"project": []}, []),
    ]
    for where, expected in asked:
        assert await kites(repo, where=where) == expected, where


async def test_session_thread_and_actor_choose_evidence(repo):
    """A fed message belongs to its thread and to the session that took it."""
    chat, session = repo.conversation("chat"), await repo.start_session("talk")
    feed = await chat.feed(session, from_seq=1)
    await chat.append([kite("red", actor="Ada"), kite("blue", actor="Bo")])
    await feed.caught_up()
    await session.append("the green kite flew", "noted", actor="Ada")
    assert await kites(repo, thread_id="chat") == ["blue", "red"]
    assert await kites(repo, session_id=session.id) == ["blue", "green"]
    assert await kites(repo, session_id="chat") == ["blue", "red"]
    assert await kites(repo, thread_id="chat", session_id=session.id) == ["blue"]
    assert await kites(repo, actor="ada") == ["green", "red"]
    assert await kites(repo, actor="nobody") == []
    assert await kites(repo, thread_id="nowhere") == []


async def test_time_is_of_the_message(repo):
    """Both bounds are inclusive."""
    later = NOON + timedelta(hours=1)
    await repo.conversation("t").append([kite("red"), kite("blue", at=later)])
    assert await kites(repo, until=NOON) == ["red"]
    assert await kites(repo, since=later) == ["blue"]


async def test_a_fact_matches_if_one_of_its_sources_does(repo):
    """It inherits metadata, thread and speaker of what it was extracted from."""
    chat, session = repo.conversation("chat"), await repo.start_session("talk")
    feed = await chat.feed(session, from_seq=0)
    await chat.append(
        Message(
            role="user", content="My sister Emma lives in Porto.", actor="Ada", metadata={"p": 1}
        )
    )
    await feed.caught_up()
    await session.close_and_commit()

    async def facts(**filters: Any) -> int:
        found = await repo.recall("Where does Emma live?", types=("semantic",), **filters)
        return len(found.candidates)

    every = await facts()
    assert every
    for match in ({"where": {"p": 1}}, {"thread_id": "chat"}, {"actor": "Ada"}):
        assert await facts(**match) == every
    assert await facts(session_id=session.id) == every
    for other in ({"where": {"p": 2}}, {"thread_id": "t"}, {"actor": "Bo"}, {"session_id": "t"}):
        assert await facts(**other) == 0


async def test_a_fact_by_hand_matches_by_its_own_metadata(repo):
    """It has no other source."""
    await repo.add_memory("Emma lives in Porto", metadata={"p": 1})

    async def facts(**filters: Any) -> int:
        return len((await repo.recall("Where does Emma live?", **filters)).candidates)

    assert await facts() == await facts(where={"p": 1}) == await facts(actor="hand") == 1
    assert await facts(where={"p": 2}) == await facts(thread_id="t") == await facts(actor="Bo") == 0


async def test_what_matches_is_found_however_much_does_not(repo):
    """Ten messages among many that fit the question as well: all ten come."""
    many = [kite("grey", metadata={"n": n}) for n in range(300)]
    few = [kite("red", metadata={"n": n, "keep": True}) for n in range(10)]
    await repo.conversation("t").append([*many[:150], *few, *many[150:]])
    assert await kites(repo, where={"keep": True}) == ["red"] * 10


async def test_bad_filters_are_refused(repo):
    """Before anything is looked for, with what is known."""
    with pytest.raises(ValueError, match="gte"):
        await repo.recall("kite", where={"a": {"like": 1}})
    with pytest.raises(ValueError, match="thread_id"):
        await repo.recall("kite", thread_id=5)  # type: ignore[arg-type]


async def found(repo: Repository, **filters: Any) -> list[str]:
    """The colours of the kites that a search finds, in the order of the alphabet."""
    return sorted(hit.snippet.split()[1] for hit in await repo.search("kite", **filters))


async def test_a_search_takes_the_same_filters(repo):
    """Messages and halves of steps, before the limit, by evidence and by kind."""
    chat, session = repo.conversation("chat"), await repo.start_session("talk")
    later = NOON + timedelta(hours=1)
    await chat.append(
        [
            *(kite("grey", metadata={"n": n}) for n in range(20)),
            kite("red", actor="Ada", metadata={"keep": True}),
            Message(role="assistant", content="the blue kite fell", at=later),
        ]
    )
    await session.append("the green kite flew", "", actor="Ada", metadata={"keep": True})
    await session.append("", "the white kite flew")
    assert await found(repo, where={"keep": True}) == ["green", "red"]
    assert await found(repo, actor="ADA") == ["green", "red"]
    assert await found(repo, actor="ada", thread_id="chat") == ["red"]
    assert await found(repo, actor="Agent") == ["blue", "white"]
    assert await found(repo, actor="User", since=later, thread_id="chat") == []
    assert await found(repo, since=later, thread_id="chat") == ["blue"]
    assert await found(repo, types=["action", "assistant"]) == ["blue", "white"]
    assert await found(repo, session_id=session.id, where={"keep": {"exists": False}}) == ["white"]
    with pytest.raises(ValueError, match="observation"):
        await repo.search("kite", types=["steps"])
    with pytest.raises(ValueError, match="gte"):
        await repo.search("kite", where={"a": {"like": 1}})


async def test_a_fed_message_is_found_by_thread_and_by_session(repo):
    """Its step is of both; the hit is the message."""
    chat, session = repo.conversation("chat"), await repo.start_session("talk")
    feed = await chat.feed(session, from_seq=0)
    (stored,) = await chat.append(kite("red", metadata={"keep": True}))
    await feed.caught_up()
    for filters in ({"thread_id": "chat"}, {"session_id": session.id}, {"session_id": "chat"}):
        (hit,) = await repo.search("kite", where={"keep": True}, **filters)
        assert hit.message_id == stored.id

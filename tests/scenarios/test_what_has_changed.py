"""A life told line by line: what no longer holds is closed, by what was said later."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from mnemo import Memory, Mnemo
from mnemo.repository import Repository
from mnemo.testing import HashingEmbedder

MONDAY = datetime(2024, 5, 6, 9, tzinfo=UTC)
A_MINUTE, A_WEEK = timedelta(minutes=1), timedelta(weeks=1)


@pytest.fixture
async def repo() -> AsyncIterator[Repository]:
    """An empty repository; no model."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as service:
        yield await service.open_repo("life")


async def told(repo: Repository, lines: list[str], *, apart: timedelta = A_WEEK) -> None:
    """Remember *lines* one after another."""
    for number, line in enumerate(lines):
        await repo.remember(line, at=MONDAY + number * apart, wait=True)


async def facts(repo: Repository) -> list[Memory]:
    """All facts, oldest first."""
    return list(await repo.memories(types=("semantic",), superseded=True, order="oldest"))


def about(found: list[Memory], word: str) -> Memory:
    """The oldest fact that says *word*."""
    return next(fact for fact in found if word in fact.text)


PAIRS = [
    ("I live in Leeds.", "We moved to York last weekend!"),
    ("I work as a nurse at the hospital.", "I got the job at the college!"),
    ("A coffee at the corner cafe costs 3 euros.", "Coffee at the corner cafe went up to 3.50."),
    ("I'm vegetarian.", "I eat meat again."),
    ("My favourite colour is blue.", "Actually, my favourite colour is green now."),
    ("We have two cats.", "We have three cats now."),
    ("My phone number is 555 1234.", "My phone number has changed, it is 555 9876."),
]


@pytest.mark.parametrize("apart", [A_WEEK, A_MINUTE])
@pytest.mark.parametrize(("older", "newer"), PAIRS)
async def test_a_newer_value_takes_the_place_of_the_older(repo, older, newer, apart):
    """Home, job, price, diet, colour, count and phone, said as people say them."""
    await told(repo, [older, newer], apart=apart)
    old, new, *_ = await facts(repo)
    assert old.valid_to is not None
    assert old.superseded_by == new.id
    assert new.valid_to is None


LINES = [
    "I work as a nurse at St James hospital in Leeds.",
    "My boss is Helen.",
    "We have a dog called Rex.",
    "I pay 900 pounds a month for the flat.",
    "I go to the climbing gym on Tuesdays.",
    "I quit the hospital, I now teach biology at a college.",
    "We moved to York last weekend!",
    "My new boss is Tom, Helen left.",
    "Rex died in his sleep last night.",
    "The rent of the flat went up to 950 pounds.",
]


@pytest.mark.parametrize("apart", [A_WEEK, A_MINUTE])
async def test_a_life_in_ten_lines_knows_what_no_longer_holds(repo, apart):
    """Each change closes what it changes; what nothing contradicts holds."""
    await told(repo, LINES, apart=apart)
    found = await facts(repo)
    by_id = {fact.id: fact for fact in found}
    for old, new in [("nurse", "teach"), ("Helen", "Tom"), ("Rex", "died"), ("900", "950")]:
        closed = about(found, old)
        assert closed.valid_to is not None, old
        assert new in by_id[closed.superseded_by].text
    closed = {fact.text for fact in found if fact.valid_to is not None}
    assert len(closed) == 4
    assert about(found, "climbing").valid_to is None


async def test_what_is_many_by_nature_is_not_closed(repo):
    """Children, hobbies, places, clients and allergies add up."""
    lines = [
        "I have a daughter called Eva.",
        "I have a son called Max.",
        "I play tennis.",
        "I play chess now too.",
        "I visited Rome in April.",
        "I visited Oslo in May.",
        "I have a client in Bonn.",
        "I have a new client in Kiel.",
        "I'm allergic to nuts.",
        "I'm allergic to pollen now.",
    ]
    await told(repo, lines)
    assert [fact.text for fact in await facts(repo) if fact.valid_to is not None] == []

"""A life told line by line: what no longer holds is closed, by what was said later."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from helpers import committed, repository

from mnemo import Config, Memory, Mnemo, Repository
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


# Facts that differ only in who did it to whom, through the public API and without a model.


TURNED_ROUND = [
    ("Bo hired Eve as an engineer.", "Eve hired Bo as an engineer."),
    ("Bo paid Eve for the lamp.", "Eve paid Bo for the lamp."),
    ("Bo lent Eve the old bike.", "Eve lent Bo the old bike."),
    ("Bo married Eve in Bremen.", "Eve married Bo in Bremen."),
    ("Bo manages Eve at Acme.", "Eve manages Bo at Acme."),
    ("Bo sold the boat to Eve.", "Eve sold the boat to Bo."),
    ("Ana prefers tea to coffee.", "Ana prefers coffee to tea."),
]


@pytest.mark.slow
async def test_facts_with_the_parties_turned_round_stay_two():
    """Neither a commit, nor a later session, nor consolidation makes one of them."""
    said_all = {said for pair in TURNED_ROUND for said in pair}
    async with Mnemo("memory:") as memory:
        repo = await memory.open_repo("r")
        for one, other in TURNED_ROUND:
            for said in (one, other):
                session = await committed(repo, said, "", actor="Cy", goal="talk")
                await session.aclose()
        assert await propositions(repo) == said_all
        await repo.consolidate(threshold=0.5)
        assert await propositions(repo) == said_all


async def propositions(repo: Repository) -> set[str]:
    """What the facts of *repo* say that hold."""
    facts = await repo.get_nodes(("semantic",))
    return {fact.proposition for fact in facts if fact.valid_to is None}


# ── What is told all at once becomes as many facts as told one by one ─────────────────


TOLD = [f"My lantern number {n} hangs in room {100 + n} of the inn." for n in range(60)]


async def test_sixty_messages_give_sixty_facts():
    """In one call, waited for, they are one trajectory, whose bound grows with them."""
    async with repository("memory:", "inn") as repo:
        await repo.remember(TOLD, wait=True)
        await repo.settle()
        statistics = await repo.statistics()
    assert statistics.nodes["semantic"] == 60
    assert statistics.left_out == 0


async def test_sixty_messages_that_wait_for_a_worker_give_sixty_facts():
    """However many wait when the job runs."""
    async with repository("memory:", "inn") as repo:
        for told in TOLD:
            await repo.remember(told)
        await repo.settle()
        assert (await repo.statistics()).nodes["semantic"] == 60


async def test_a_session_of_fifty_steps_gives_fifty_facts():
    """One trajectory of fifty steps."""
    async with repository("memory:", "inn") as repo:
        session = await repo.start_session("Tell of the inn")
        for told in TOLD[:50]:
            await session.append(told, "Noted.")
        receipt = await session.close_and_commit()
        assert (await repo.statistics()).nodes["semantic"] == 50
        assert receipt.left_out == 0


async def test_what_a_bound_leaves_out_is_in_the_receipt_and_the_statistics():
    """Ten facts of one step, where four steps may give three."""
    config = Config(extraction={"max_facts": 3})
    async with repository("memory:", "inn", config=config) as repo:
        session = await repo.start_session("Tell of the inn")
        await session.append(" ".join(TOLD[:10]), "Noted.")
        receipt = await session.close_and_commit()
        statistics = await repo.statistics()
        assert statistics.nodes["semantic"] == 3
        assert receipt.left_out == session.statistics().left_out == statistics.left_out == 7

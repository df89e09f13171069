"""Facts that differ only in who did it to whom, through the public API and without a model."""

import pytest

from mnemo import Mnemo, Repository

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
                session = await repo.start_session("talk")
                await session.append(said, "", actor="Cy")
                await session.close_and_commit()
                await session.aclose()
        assert await propositions(repo) == said_all
        await repo.consolidate(threshold=0.5)
        assert await propositions(repo) == said_all


async def propositions(repo: Repository) -> set[str]:
    """What the facts of *repo* say that hold."""
    facts = await repo.get_nodes(("semantic",))
    return {fact.proposition for fact in facts if fact.valid_to is None}

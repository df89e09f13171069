"""Keyword search in PostgreSQL finds what SQLite finds, with the same scores."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from mnemo import Mnemo
from mnemo.repository import Repository
from mnemo.testing import HashingEmbedder, ManualClock

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

_WORDS = (
    "harbour compiler linking parser bread dough oven Tuesday flights Omar Lisbon Porto café "
    "naïve running runs ran possible assembly user's data-base 3,000 v2.1 東京 に 行く 大阪 서울"
)
WORDS = _WORDS.split()
TEXTS = (
    "User wants to visit Tokyo in March",
    "東京の天気は晴れです",
    "The compiler crashes while linking the parser module",
    "Straße und Café, naïve RÉSUMÉ",
    "smile 😀 after a word",
)
QUERIES = (
    *("tokyo", "compiler", '"linking parser"', "compiler OR bread", "compiler -parser", "cafe"),
    *("running", "runs dough", "東京", "東京 OR bread", "大阪 harbour", "v2.1", "user's", "天気は"),
    *("strasse OR straße", "smile", "に", "nothing-of-that-kind", "porto lisbon", '"3,000"'),
)


@pytest_asyncio.fixture
async def repos(postgres_url: str) -> AsyncIterator[list[Repository]]:
    """The same steps, at the same times, in SQLite and in PostgreSQL."""
    chance = random.Random(7)
    texts = [*TEXTS, *(" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(80))]
    async with AsyncExitStack() as stack:
        made = []
        for store in ("memory:", postgres_url):
            clock = ManualClock()
            service = Mnemo(store, embedder=HashingEmbedder(), clock=clock)
            memory = await stack.enter_async_context(service)
            repo = await memory.open_repo("r")
            session = await repo.start_session("talk", session_id="s")
            for text in texts:
                await session.append(text, "noted", at=clock.now())
            made.append(repo)
        yield made


async def test_both_engines_find_the_same_with_the_same_scores(repos: list[Repository]) -> None:
    """Words, phrases, exclusions, accents, scripts without blanks: hits and scores are equal."""
    found = 0
    for query in QUERIES:
        ours, theirs = [
            sorted((hit.snippet, hit.kind, hit.score) for hit in await repo.search(query, limit=50))
            for repo in repos
        ]
        assert [hit[:2] for hit in ours] == [hit[:2] for hit in theirs], query
        scores = [hit[2] for hit in theirs]
        assert [hit[2] for hit in ours] == pytest.approx(scores, abs=1e-6), query
        found += len(ours)
    assert found > 200

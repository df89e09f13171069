"""Keyword search in PostgreSQL finds what SQLite finds, with the same scores."""

import random
import string
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from contracts.talk import snapshot
from postgres_server import execute

from mnemo import Config, Message, Mnemo
from mnemo.repository.repository import Repository
from mnemo.testing import HashingEmbedder, ManualClock

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)

_WORDS = (
    "harbour compiler linking parser bread dough oven Tuesday flights Omar Lisbon Porto café "
    "naïve running runs ran possible assembly user's data-base 3,000 v2.1 東京 に 行く 大阪 서울 "
    "bora"
)
WORDS = _WORDS.split()
TEXTS = (
    "User wants to visit Tokyo in March",
    "東京の天気は晴れです",
    "The compiler crashes while linking the parser module",
    "Straße und Café, naïve RÉSUMÉ",
    "smile 😀 after a word",
    "bora bora bora, then bora bora",
)
QUERIES = (
    *("tokyo", "compiler", '"linking parser"', "compiler OR bread", "compiler -parser", "cafe"),
    *("running", "runs dough", "東京", "東京 OR bread", "大阪 harbour", "v2.1", "user's", "天気は"),
    *("strasse OR straße", "smile", "に", "nothing-of-that-kind", "porto lisbon", '"3,000"'),
    *('"bora bora"', "bora -tokyo -then", "data-base OR user's -bread OR oven dough", "東京 -に"),
)


@pytest_asyncio.fixture
async def repos(postgres_url: str) -> AsyncIterator[list[Repository]]:
    """The same steps, said at the same times in three years, in SQLite and in PostgreSQL."""
    chance = random.Random(7)
    texts = [*TEXTS, *(" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(80))]
    ages = [chance.randrange(900) for _ in texts]
    async with AsyncExitStack() as stack:
        made = []
        for store in ("memory:", postgres_url):
            clock = ManualClock()
            service = Mnemo(store, embedder=HashingEmbedder(), clock=clock)
            memory = await stack.enter_async_context(service)
            repo = await memory.open_repo("r")
            session = await repo.start_session("talk", session_id="s")
            for age, text in zip(ages, texts, strict=True):
                await session.append(text, "noted", at=clock.now() - timedelta(days=age))
            made.append(repo)
        yield made


async def test_both_engines_find_the_same_with_the_same_scores(repos):
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


async def test_500_messages_are_found_and_recalled_in_the_same_order(postgres_url):
    """Also where words are equally rare, texts equal, and scores therefore the same."""
    chance = random.Random(11)
    told = [" ".join(chance.choices(WORDS, k=chance.randint(2, 14))) for _ in range(240)]
    told += chance.choices(told, k=260)
    at = [BEGAN + timedelta(minutes=chance.randrange(900_000)) for _ in told]
    found: list[list[list[tuple[str, float]]]] = []
    for store in ("memory:", postgres_url):
        clock = ManualClock(BEGAN + timedelta(days=700))
        config = Config(recall={"cut": 0, "record_access": False}, jobs={"background": False})
        async with Mnemo(store, config=config, embedder=HashingEmbedder(), clock=clock) as memory:
            repo = await memory.open_repo("r")
            for thread in range(5):
                said = [
                    Message("user", told[n], id=f"m{n}", actor=f"Ana {n % 3}", at=at[n])
                    for n in range(thread, len(told), 5)
                ]
                await repo.conversation(f"t{thread}").append(said)
            hits = [await repo.search(query, limit=100) for query in QUERIES]
            asked = [f"Who spoke of {query.replace(' OR ', ' and ')}?" for query in QUERIES]
            recalls = [await repo.recall(question, k=100) for question in asked]
        by_words = [[(hit.message_id, hit.score) for hit in some] for some in hits]
        recalled = [[(c.node.id, c.score) for c in some.candidates] for some in recalls]
        found.append(by_words + recalled)
    ours, theirs = found
    assert sum(map(len, ours)) > 3_000
    for one, other in zip(ours, theirs, strict=True):
        assert [id for id, _ in one] == [id for id, _ in other]
        expected = [score for _, score in other]
        assert [score for _, score in one] == pytest.approx(expected, abs=1e-6)


async def test_the_best_are_found_among_many(repos):
    """Of 700 that match, those of a session with 7 behind all others, and the 100 best."""
    found = []
    for repo in repos:
        many = await repo.start_session("fill", session_id="many")
        for number in range(693):
            await many.append(f"kettle {'kettle ' * (number % 7)}{'on ' * (number % 5)}", "")
        few = await repo.start_session("talk", session_id="few")
        for number in range(7):
            await few.append("It is long ago that " * 3 + f"I had a kettle of {number} l.", "")
        of_few = await repo.search("kettle", session_id="few", limit=10)
        best = await repo.search("kettle", limit=100)
        assert (len(of_few), len(best)) == (7, 100)
        found.append([(hit.snippet, hit.score) for hit in (*of_few, *best)])
    ours, theirs = found
    assert [snippet for snippet, _ in ours] == [snippet for snippet, _ in theirs]
    assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-6)


async def test_a_word_too_long_for_an_index_is_stored_and_found(repos):
    """3,500 letters without a blank, in a step and in a note; another such word is not it."""
    chance = random.Random(3)
    long, other = ["".join(chance.choices(string.ascii_lowercase, k=3_500)) for _ in range(2)]
    for repo in repos:
        session = await repo.start_session("read a file")
        await session.append(f"The file says {long} at its end.", "read")
        await repo.notes.write("file", f"It says {long} at its end.", "What the file says")
        assert len(await repo.search(long)) == 1
        assert await repo.search(other) == []
        assert await repo.search(f"{long[:-1]}") == []


_DAMAGES = {
    "1 steps without their full-text row": "DELETE FROM {0}.texts WHERE no % 4 = 0",
    "1 snapshots without": "DELETE FROM {0}.texts WHERE no % 4 = 3",
    "1 messages whose full-text row does not fit": "DELETE FROM {0}.texts WHERE no % 4 = 2",
    "1 full-text rows without their record": "UPDATE {0}.texts SET repo = 9 WHERE no % 4 = 0",
    "1 texts whose words or triples do not fit": (
        "UPDATE {0}.texts SET words = '{{other}}' WHERE no % 4 = 0"
    ),
    "1 texts of another time": "UPDATE {0}.texts SET at = at + 0.5 WHERE no % 4 = 3",
    "damaged row: steps": "UPDATE {0}.steps SET at = 'noon'",
    "1 repositories whose texts are not counted right, e.g. r": (
        "UPDATE {0}.repos SET text_words = text_words + 1"
    ),
}


@pytest.mark.parametrize("problem", _DAMAGES)
async def test_a_check_compares_the_full_text_with_the_records(postgres_url, problem):
    """Rows that are missing, of another repository, of other words or times, or not counted."""
    server, schema = postgres_url.partition("&schema")[0], postgres_url.rpartition("=")[2]
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        session = await repo.start_session("talk", session_id="s")
        await session.append("Tokyo in March", "")
        await repo.conversation("chat").append(Message(role="user", content="Lisbon in May"))
        store = memory._store
        assert store is not None
        await store.transcript("r").writing(lambda tx: tx.put(snapshot(0, 0, thread="chat")))
        assert (await memory.check()).problems == ()
        execute(server, _DAMAGES[problem].format(schema))
        assert any(problem in found for found in (await memory.check()).problems)

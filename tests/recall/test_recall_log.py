"""The recall log: what was asked and answered, and that nothing erased stays in it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers import over_http, repository

from mnemo import Config, Mnemo, Repository
from mnemo.config import RecallConfig
from mnemo.recall.recall_log import StoredRecalls
from mnemo.testing import HashingEmbedder, ManualClock

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
LOGGING = Config(recall=RecallConfig(keep_last=5))


@pytest.fixture
def clock() -> ManualClock:
    """The time of the recalls."""
    return ManualClock(NOON)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a store of this test may be."""
    return tmp_path / "m.db"


@pytest.fixture(params=["file", "memory", pytest.param("postgres", marks=pytest.mark.postgres)])
async def repo(
    request: pytest.FixtureRequest, file: Path, clock: ManualClock
) -> AsyncIterator[Repository]:
    """A repository that keeps its last five recalls, on each engine."""
    stores: dict[str, Any] = {"file": lambda: file, "memory": lambda: "memory:"}
    store = stores.get(request.param, lambda: request.getfixturevalue("postgres_url"))()
    async with repository(store, "r", clock=clock, config=LOGGING) as opened:
        await opened.remember("I sail to the pier.", actor="Ada", key="sail")
        await opened.remember("The kettle is in the kitchen.", key="kettle")
        yield opened


async def asked(repo: Any) -> list[str]:
    """The questions of the log, newest first."""
    return [one.query for one in await repo.recalls()]


async def test_a_recall_is_logged_with_what_answered_it(repo):
    """Question, filters, candidates with scores, text and milliseconds; no defaults."""
    found = await repo.recall("Who sails?", k=3, actor="Ada", since=NOON - timedelta(days=1))
    (logged,) = await repo.recalls()
    assert (logged.query, logged.at, logged.caller) == ("Who sails?", NOON, None)
    assert logged.arguments == {"k": 3, "actor": "Ada", "since": "2024-02-29T12:00:00+00:00"}
    (best,) = found.candidates
    said = {"id": best.node.id, "type": "episodic", "score": best.score, "text": best.node.text}
    assert logged.candidates == (said,)
    assert logged.text == found.as_text() != ""
    assert logged.milliseconds > 0


async def test_the_last_recalls_are_kept_newest_first_and_read_by_pages(repo):
    """Five of seven, two a page; an unreadable place is refused."""
    for number in range(7):
        await repo.recall(f"kettle {number}?")
    assert await asked(repo) == [f"kettle {number}?" for number in (6, 5, 4, 3, 2)]
    page = await repo.recalls(limit=2)
    rest = await repo.recalls(limit=3, after=page.next)
    assert [one.query[7] for one in (*page, *rest)] == ["6", "5", "4", "3", "2"]
    assert rest.next is None
    for wrong in ({"limit": 0}, {"after": "x"}):
        with pytest.raises(ValueError, match="must be"):
            await repo.recalls(**wrong)


@pytest.mark.parametrize("nonsense", [0, 7, "", "x", "²", object()])
async def test_a_page_of_recalls_goes_on_from_a_page_alone(repo, nonsense):
    with pytest.raises(ValueError, match="after must be"):
        await repo.recalls(after=nonsense)


async def test_nothing_is_logged_unless_it_is_switched_on(file):
    """By default no question is kept."""
    async with repository(file) as repo:
        await repo.remember("I sail to the pier.")
        await repo.recall("Who sails?")
        assert not await asked(repo)


async def test_the_log_is_written_behind_recalls_and_at_the_end(file, clock, monkeypatch):
    """A log that cannot be written fails no recall; a repository that closes writes it."""
    async with repository(file, "r", clock=clock, config=LOGGING) as repo:
        await repo.remember("I sail to the pier.")

        async def refuse(*_: Any) -> None:
            raise OSError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(StoredRecalls, "add", refuse)
            assert (await repo.recall("Who sails?")).candidates
            assert not await asked(repo)
        await repo.recall("Who sails now?")
    async with repository(file, "r", clock=clock) as repo:
        assert await asked(repo) == ["Who sails now?"]


@pytest.mark.parametrize(
    ("forget", "left"),
    [
        ({"message_ids": ["sail"]}, ["kettle"]),
        ({"message_ids": ["kettle"]}, ["Anything?", "sailing boats"]),
        ({"thread_id": "default"}, []),
        ({"before": NOON + timedelta(days=1)}, []),
    ],
)
async def test_what_holds_something_erased_is_erased_with_it(repo, forget, left):
    """An id among the candidates, or a word, also of the question alone."""
    await repo.recall("sailing boats", k=1)
    await repo.recall("kettle", k=1)
    await repo.recall("Anything?", k=1, actor="Ada")
    assert len(await asked(repo)) == 3
    await repo.forget(**forget, dry_run=True)
    assert len(await asked(repo)) == 3
    await repo.forget(**forget)
    assert await asked(repo) == left


async def test_words_of_erased_steps_goals_and_memories_leave_the_log(repo):
    """Whether or not the recall found them; a memory that is erased alone, too."""
    session = await repo.start_session("plan the divorce", session_id="s")
    await session.append("The lawyer called", "Took notes")
    await session.close_and_commit()
    memory = await repo.add_memory("The code of the safe is Zanzibar.")
    for query in ("divorce?", "lawyers?", "by hand?", "zanzibar?", "kettle?"):
        await repo.recall(query, k=1, thread_id="default")
    await repo.recall("what?", session_id="s")
    await repo.forget(session_id="s")
    assert await asked(repo) == ["kettle?", "zanzibar?", "by hand?"]
    await repo.forget(memory_ids=[memory.id], sources=False)
    assert await asked(repo) == ["kettle?", "by hand?"]


async def test_a_recall_from_before_an_erasure_is_not_logged_after_it(repo, clock):
    """It waits to be written while its words are erased."""
    await repo.recall("sail?")
    await repo.forget(message_ids=["sail"])
    await repo.recall("kettle?")
    await clock.advance(2)
    assert await asked(repo) == ["kettle?"]


async def test_keyed_items_are_logged_by_their_ids_alone(repo):
    """They are put anew, and expire, without the log."""
    await repo.items.put(("a",), "k", {"text": "green tea"}, texts={"text": "green tea"})
    found = await repo.recall("tea?", types=("item",))
    (logged,) = await repo.recalls()
    assert [one["id"] for one in logged.candidates] == [found.candidates[0].node.id]
    assert "green" not in str(logged)


async def test_expired_messages_leave_the_log(repo, clock):
    """As they leave everything else."""
    talk = repo.conversation("t", ttl_s=60)
    await talk.append({"role": "user", "content": "The harbour is closed."})
    await repo.recall("harbour?")
    assert await asked(repo) == ["harbour?"]
    await clock.advance(100)
    await talk.append({"role": "user", "content": "Good morning."})
    with anyio.fail_after(30):
        while await asked(repo):
            await clock.advance(1)


async def test_a_deleted_repository_takes_its_log(file, clock):
    """What comes by its name has none; another one keeps its own."""
    async with Mnemo(file, clock=clock, config=LOGGING, embedder=HashingEmbedder()) as memory:
        for id in ("r", "q"):
            repo = await memory.open_repo(id)
            await repo.remember("I sail to the pier.")
            await repo.recall("Who sails?")
        await memory.close_repo("r")
        await memory.delete_repo("r")
        assert not await asked(await memory.open_repo("r"))
        assert await asked(memory.repo("q")) == ["Who sails?"]


async def test_no_byte_of_what_was_forgotten_stays_in_the_log(file, clock):
    """Not of the question, the candidates or the text, in the file or beside it."""
    async with repository(file, "r", clock=clock, config=LOGGING) as repo:
        await repo.remember("Quizzaciously hidden.", key="m")
        for query in ("quizzaciously?", "quizzaciously not found", "hidden things"):
            await repo.recall(query)
        await repo.remember("The kettle is in the kitchen.")
        await repo.recall("kettle?", thread_id="default")
        assert len(await asked(repo)) == 4
        assert b"quizzaciously not found" in raw(file)
        assert (await repo.forget(message_ids=["m"])).scrubbed
        assert b"quizzac" not in raw(file)
        assert b"hidden" not in raw(file)
    assert b"quizzac" not in raw(file)


def raw(file: Path) -> bytes:
    """The bytes of a store and of what is beside it, in lower case."""
    return b"".join(path.read_bytes().lower() for path in file.parent.iterdir())


async def test_the_log_names_the_caller(file, clock):
    """Over HTTP by the name of its token."""
    async with Mnemo(file, clock=clock, config=LOGGING, embedder=HashingEmbedder()) as memory:
        async with over_http(memory) as client:
            repo = await client.open_repo("r")
            await repo.remember("I sail to the pier.")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(repo.recall, "Who sails?")
        assert [one.caller for one in await memory.repo("r").recalls()] == ["all"]

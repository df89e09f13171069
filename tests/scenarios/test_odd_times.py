"""Times at the ends of the calendar, through the public surface."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from helpers import lines_of

from mnemo import Changeset, Message, Mnemo, Repository, Semantic
from mnemo.testing import HashingEmbedder

WEST, EAST = timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))
ODD = [
    datetime.max,
    datetime.max.replace(tzinfo=WEST),
    datetime.min.replace(tzinfo=EAST),
]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Mnemo, Repository]]:
    """A service without a model over a file, and a repository of it."""
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        yield memory, await memory.open_repo("r")


@pytest.mark.parametrize("at", ODD)
async def test_a_time_that_cannot_be_kept_is_refused_at_every_door(tmp_path, at):
    """Steps, messages and nodes; nothing was written, and the session goes on."""
    async with opened(tmp_path / "m.db") as (_, repo):
        session, talk = await repo.start_session("g"), repo.conversation("t")
        said = {"role": "user", "content": "I live in Oslo.", "at": at}
        with pytest.raises(ValueError, match="years 1 to 9999"):
            await session.append("I live in Oslo.", "", at=at)
        with pytest.raises(ValueError, match="years 1 to 9999"):
            session.append_async("I live in Oslo.", "", at=at)
        with pytest.raises(ValueError, match="years 1 to 9999"):
            await session.append_messages(said)
        with pytest.raises(ValueError, match="years 1 to 9999"):
            await talk.append(said)
        with pytest.raises(ValueError, match="years 1 to 9999"):
            Message(role="user", content="x", at=at)
        fact = Semantic("Ada lives in Oslo", valid_from=at)
        with pytest.raises(ValueError, match="years 1 to 9999"):
            await repo.apply(Changeset(nodes=(fact,)))
        assert await talk.history() == []
        await session.append("I live in Oslo.", "")
        assert (await session.close_and_commit()).status == "committed"


@pytest.mark.parametrize("at", ODD)
async def test_a_filter_at_the_end_of_the_calendar_is_an_open_end(tmp_path, at):
    """A filter is not kept, so any time will do."""
    async with opened(tmp_path / "m.db") as (_, repo):
        session = await repo.start_session("g")
        await session.append("I live in Oslo.", "", at=datetime(2024, 1, 1))
        is_last = at.year == 9999
        bound = {"until": at} if is_last else {"since": at}
        found = await repo.recall("Where do I live?", **bound)  # type: ignore[arg-type]
        assert len(found.candidates) == 1
        report = await repo.forget(before=at)
        assert report.steps == is_last


@pytest.mark.parametrize("at", ODD)
async def test_a_time_that_an_earlier_version_has_stored_poisons_nothing(tmp_path, at):
    """Recall, search, commit and export go on; the step keeps its place in the order."""
    path, stored = tmp_path / "m.db", at.replace(tzinfo=at.tzinfo or UTC).isoformat()
    async with opened(path) as (_, repo):
        session = await repo.start_session("g", session_id="s")
        await session.append("I moved to Oslo yesterday, in three weeks I leave.", "Noted.")
        await repo.conversation("t").append({"role": "user", "content": "Oslo is cold."})
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE steps SET at = ?", (stored,))
        connection.execute("UPDATE messages SET at = ?", (stored,))
    connection.close()
    async with opened(path) as (memory, repo):
        session = await repo.resume_session("s")
        await session.append("I like tea.", "")
        assert (await repo.recall("Oslo yesterday")).candidates
        assert await repo.search("Oslo")
        assert (await session.close_and_commit()).status == "committed"
        found = await repo.recall("Where did I move last week?", since=datetime(1000, 1, 1))
        assert found.as_text() or at.year == 1
        assert (await repo.conversation("t").viewport(2_000).render()).messages
        written = await lines_of(memory, "r")
        damaged = [line for line in written if '"damaged":' in line]
        assert sum('"kind":"step"' in line for line in damaged) == 1
        assert sum('"kind":"message"' in line for line in damaged) == 1
        await memory.import_repo("other", written)
        other = await memory.open_repo("other")
        assert await other.search("tea")

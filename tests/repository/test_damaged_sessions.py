"""A session whose rows are damaged is left as it was."""

import pytest
from engines import change, rows_of
from helpers import repository

from mnemo import Mnemo, StoreCorrupt
from mnemo.testing import HashingEmbedder


async def test_a_session_that_cannot_be_read_is_not_owned(tmp_path):
    """Another service can resume it once it is repaired, while this one stays open."""
    db = tmp_path / "m.db"
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        session = await (await memory.open_repo("r")).start_session("Count", session_id="s")
        await session.append("one", "noted")
    change(db, "UPDATE steps SET metadata = 'garbage'")
    async with repository(db, "r") as repo:
        with pytest.raises(StoreCorrupt):
            await repo.resume_session("s")
        assert rows_of(db, "SELECT owner FROM sessions") == [(None,)]

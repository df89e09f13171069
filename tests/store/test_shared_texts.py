"""Repositories share a full text, and each sees its own."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from contracts.records import asked
from contracts.talk import said, snapshot
from world import opened

from mnemo.store import texts
from mnemo.stores import SqliteStore
from mnemo.values.records import Ranking, RecordQuery, SurfacingQuery

RANKING = Ranking(datetime(2024, 3, 2, tzinfo=UTC))


@pytest.fixture(params=[True, False], ids=["indexed", "looked through"])
async def crowded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[SqliteStore]:
    """A store in which two repositories say the same, in the index or behind it."""
    if request.param:
        monkeypatch.setattr(texts, "_AT_ONCE", 1)
    async with opened(tmp_path / "m.db") as kit:
        for repo in ("a", "b"):
            spoken = [said(n, f"green tea in {repo}, 東京の話") for n in range(3)]
            await kit.store.transcript(repo).writing(lambda tx, spoken=spoken: tx.add(spoken))
        one = snapshot(0, 1, text="green tea")
        await kit.store.transcript("b").writing(lambda tx: tx.put(one))
        yield kit.store


@pytest.mark.parametrize("word", ["tea", "東京の", "東京"])
async def test_a_shared_full_text_is_searched_for_ones_own(crowded, word):
    """Words, triples and short runs of one repository are not found in another."""
    hits = await crowded.records("a").search(RecordQuery(query=asked([word]), ranking=RANKING))
    assert len(hits) == 3
    assert all("in a" in hit.record.text for hit in hits)


async def test_only_ones_own_records_are_counted(crowded):
    """What comes to mind, and how common a term is, is a matter of one repository."""
    wanted = SurfacingQuery(terms=("green", "tea", "東京の"), ranking=RANKING)
    mine, theirs = [await crowded.records(repo).surfacing(wanted) for repo in "ab"]
    assert (mine.records, dict(mine.counts)) == (3, {"green": 3, "tea": 3, "東京の": 3})
    assert (theirs.records, dict(theirs.counts)) == (4, {"green": 4, "tea": 4, "東京の": 3})
    assert (len(mine.hits), len(theirs.hits)) == (3, 4)

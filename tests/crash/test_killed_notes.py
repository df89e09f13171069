"""A process killed while it writes notes leaves each wholly old or wholly new."""

from __future__ import annotations

import pytest
from crash.lives import Lives
from notes_kit import store_of

from mnemo.testing import ManualClock


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 6, 23])
async def test_a_killed_write_is_whole_or_not_there(tmp_path, lives: Lives, lines: int):
    """Note, history, journal and full text agree, and nothing acknowledged is lost."""
    path = tmp_path / "notes.db"
    told = lives.killed("write_notes", when=lambda told: len(told) >= lines, path=str(path))
    acknowledged: dict[str, int] = dict(told)
    store = store_of("sqlite", path, ManualClock())
    await store.open()
    notes = store.notes("r")
    for row in await notes.reading(lambda tx: tx.rows()):
        number = row.version
        assert number >= acknowledged.get(row.topic, 0)
        assert row.description == f"text {number}"
        assert set(row.body.splitlines()) == {f"- this is text {number}"}
        kept = await notes.reading(lambda tx, topic=row.topic: tx.versions(topic))
        assert (kept[-1].version, kept[-1].body) == (number, row.body)
        found = await notes.reading(lambda tx, n=number: tx.matching([str(n)]))
        assert row.topic in found[str(number)]
    assert (await store.check()).problems == ()
    await store.aclose()

"""A process killed while it writes notes leaves each wholly old or wholly new."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from notes_kit import store_of

from mnemo.testing import ManualClock

CHILD = Path(__file__).with_name("notes_child.py")


def killed_after(path: Path, lines: int) -> dict[str, int]:
    """Let a child write until it has told so many versions; the last told of each topic."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(path)], stdout=subprocess.PIPE, text=True
    )
    told = []
    try:
        told += [child.stdout.readline() for _ in range(lines)]
    finally:
        child.kill()
        told += child.communicate()[0].splitlines(keepends=True)
    whole = (line.split() for line in told if line.endswith("\n"))
    return {topic: int(version) for topic, version in whole}


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 6, 23])
async def test_a_killed_write_is_whole_or_not_there(tmp_path, lines):
    """Note, history, journal and full text agree, and nothing acknowledged is lost."""
    path = tmp_path / "notes.db"
    acknowledged = killed_after(path, lines)
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

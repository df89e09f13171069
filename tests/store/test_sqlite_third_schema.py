"""Files of the second schema become files of the third: no word, step or node is lost."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from older_stores import make_second_version

from mnemo.errors import StoreError
from mnemo.store.sqlite import SqliteStore, schema, schema_third
from mnemo.testing.contracts.kit import Kit

MakeSqlite = Callable[..., SqliteStore]

TEXTS = [("The kettle is in Leeds.", "Noted the kettle"), ("", "東京へ行きました"), ("Café", "")]


async def filled(kit: Kit, path: Path, *, times: int = 1) -> None:
    """A closed file of the second version, with steps of two repositories by turns."""
    await kit.start("s")
    await kit.start("other", repo="other")
    for _ in range(times):
        await kit.append_all(TEXTS, session="s")
        await kit.append_all([("A violin in Oslo", "")], session="other")
    await kit.store.aclose()
    make_second_version(path)


def words_of(path: Path) -> dict[str, list[tuple[int, str]]]:
    """The texts of each full text, by row."""
    with closing(sqlite3.connect(path)) as file:
        tables = file.execute(
            "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"
        ).fetchall()
        return {
            name: file.execute(f"SELECT rowid, text FROM {name} ORDER BY rowid").fetchall()
            for (name,) in tables
            if not name.startswith("note")
        }


async def test_words_move_to_their_repositories(kit: Kit, make: MakeSqlite, path: Path) -> None:
    """The one full text of all is gone; each repository has its own, and its triples."""
    await filled(kit, path)
    assert words_of(path).keys() == {"records_fts"}
    store = make()
    await store.open()
    report = await store.check()
    await store.aclose()
    assert (report.problems, report.schema_version) == ((), schema.VERSION)
    assert report.counts["texts"] == 5
    said = {text for pair in TEXTS for text in pair if text}
    words = words_of(path)
    assert words.keys() == {"words_1", "grams_1", "words_2"}
    assert {text for _, text in words["words_1"]} == said
    assert [text for _, text in words["words_2"]] == ["A violin in Oslo"]
    assert [text for _, text in words["grams_1"]] == ["東京へ行きました"]
    assert [rowid % 4 for rowid, _ in words["words_1"]] == [0, 1, 1, 0]


async def test_a_migrated_file_goes_on(kit: Kit, make: MakeSqlite, path: Path) -> None:
    """Steps are where they were, and the next ones are indexed beside them."""
    await kit.start("s")
    await kit.append_all(TEXTS)
    before = (await kit.load()).steps
    await kit.store.sessions.release(kit.owner)
    await kit.store.aclose()
    make_second_version(path)
    store = make(kit.clock)
    again = Kit(make, kit.clock, store, await store.open())
    await store.sessions.claim("s", again.owner)
    assert (await again.load()).steps == before
    assert (await again.append("one more kettle")).index == len(TEXTS)
    assert (await store.check()).problems == ()
    await store.aclose()


async def test_many_steps_are_moved_in_bites(
    kit: Kit, make: MakeSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a bite ends in the middle of a repository's steps."""
    await filled(kit, path, times=20)
    monkeypatch.setattr(schema_third, "_BITE", 7)
    store = make()
    await store.open()
    report = await store.check()
    await store.aclose()
    assert (report.problems, report.counts["texts"]) == ((), 100)


async def test_a_migration_that_fails_late_changes_nothing(
    kit: Kit, make: MakeSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables are made and half the words are moved; the file is as it was, and opens later."""
    await filled(kit, path, times=10)
    before = words_of(path)

    def broken(connection: sqlite3.Connection, repo: int, rows: list[tuple[int, str]]) -> None:
        put(connection, repo, rows)
        raise sqlite3.OperationalError("the disk is gone")

    put = schema_third.put_texts
    with monkeypatch.context() as patch:
        patch.setattr(schema_third, "put_texts", broken)
        with pytest.raises(StoreError, match="to schema 3 failed"):
            await make().open()
    assert words_of(path) == before
    store = make()
    await store.open()
    assert (await store.check()).problems == ()
    await store.aclose()


PROGRAM = """
import os, signal, sys, anyio
from mnemo.runtime.clock import SystemClock
from mnemo.config import StoreConfig
from mnemo.store.sqlite import SqliteStore, schema_third

schema_third._BITE = 20
put, left = schema_third.put_texts, [int(sys.argv[2])]

def killing(connection, repo, rows):
    put(connection, repo, rows)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

schema_third.put_texts = killing
store = SqliteStore(sys.argv[1], config=StoreConfig(), clock=SystemClock(), lease_s=30)
anyio.run(store.open)
"""


@pytest.mark.slow
@pytest.mark.parametrize("bites", [1, 3, 6])
async def test_killed_in_the_middle_it_is_as_before(
    kit: Kit, make: MakeSqlite, path: Path, bites: int
) -> None:
    """The version before is in force, and the next to open migrates it whole."""
    await filled(kit, path, times=30)
    before = words_of(path)
    command = [sys.executable, "-c", PROGRAM, str(path), str(bites)]
    assert (await anyio.run_process(command, check=False)).returncode < 0
    assert words_of(path) == before
    with closing(sqlite3.connect(path)) as file:
        assert schema.stored_version(file) == 2
    store = make()
    await store.open()
    report = await store.check()
    await store.aclose()
    assert (report.problems, report.counts["texts"]) == ((), 150)

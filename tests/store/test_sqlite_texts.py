"""The full text on the embedded store: a table for each repository, within bounds."""

import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from engines import rows_of
from world import draft

from mnemo.store.rows import message_row, snapshot_row, step_row
from mnemo.store.sqlite import dialect as texts
from mnemo.store.sqlite import schema
from mnemo.store.sqlite.connection import SqliteTx
from mnemo.store.sqlite.dialect import (
    TextTables,
    all_text_tables,
    count_texts,
    drop_texts,
    merge_texts,
    put_texts,
    text_tables,
)
from mnemo.store.tx import Text, Tx

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def file(path: Path) -> Iterator[Tx]:
    """A file of the present schema with two repositories, 1 and 2."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA synchronous = OFF")
        schema.migrate(connection, None)
        connection.executemany("INSERT INTO repos (id) VALUES (?)", [("a",), ("b",)])
        yield SqliteTx(connection)


def said(texts: dict[int, str]) -> list[Text]:
    """As the full text takes them."""
    return [(row, text, NOON) for row, text in texts.items()]


def found(file: Tx, table: str | None, match: str) -> list[int]:
    rows = file.run(f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid", (match,))
    return [rowid for (rowid,) in rows]


def test_rows_of_all_kinds_are_told_apart():
    """Two halves of a step, a message and a snapshot never meet, whatever their numbers."""
    rows = {row(n) for row in (message_row, snapshot_row) for n in range(50)}
    rows |= {step_row(n, side) for n in range(50) for side in (0, 1)}
    assert len(rows) == 200


def test_a_repository_gets_its_tables_with_its_texts(file):
    """None at first; words with any text, triples with the first that needs them."""
    assert text_tables(file, 2) == text_tables(file, 77) == TextTables(None, None)
    put_texts(file, 2, said({4: "", 5: ""}))
    assert text_tables(file, 2) == TextTables(None, None)
    put_texts(file, 2, said({4: "Kettles were boiling", 5: ""}))
    assert text_tables(file, 2) == TextTables("words_1", None)
    put_texts(file, 2, said({8: "東京へ行きました", 12: "kettle"}))
    assert text_tables(file, 2) == TextTables("words_1", "grams_1")
    assert text_tables(file, 1) == TextTables(None, None)
    assert found(file, "words_1", "kettle") == [4, 12]
    assert found(file, "grams_1", '"京へ行"') == [8]
    assert [list(tables) for tables in all_text_tables(file)] == [["words_1", "grams_1"]]
    assert count_texts(file) == 3


def test_the_scores_of_a_repository_are_its_own(file):
    """What is said a thousand times elsewhere is as rare as before here."""
    query = "SELECT rank FROM {0} WHERE {0} MATCH 'violin'"
    put_texts(file, 1, said({n: f"kettle {n}" for n in range(4, 40)} | {40: "a violin"}))
    table = text_tables(file, 1).words
    before = file.run(query.format(table)).fetchall()
    put_texts(file, 2, said(dict.fromkeys(range(1000), "violin violin")))
    assert file.run(query.format(table)).fetchall() == before


def test_the_last_repositories_share_one_table(file, monkeypatch):
    """Beyond the bound, of which each connection would pay for every table."""
    monkeypatch.setattr(texts, "_OWN_TABLES", 2)
    file.run_many("INSERT INTO repos (id) VALUES (?)", [("c",), ("d",)])
    for repo in (1, 2, 3, 4):
        put_texts(file, repo, said({4 * repo: "the kettle"}))
    named = [text_tables(file, repo).words for repo in (1, 2, 3, 4)]
    assert named == ["words_1", "words_2", "words_0", "words_0"]
    assert found(file, "words_0", "kettle") == [12, 16]
    put_texts(file, 4, said({20: "東京へ行く"}))
    assert text_tables(file, 3).grams is None
    assert text_tables(file, 4).grams == "grams_0"
    assert drop_texts(file, 4, [16, 20]) == 2
    assert found(file, "words_0", "kettle") == [12]
    assert len(all_text_tables(file)) == 3


@pytest.mark.parametrize("text", ["the zwxqkvbnj was there", "これはぞふたりの言葉zwxqkvbnjです"])
def test_a_dropped_text_leaves_no_byte(file, path, text):
    """Not in its row, not in a segment, not as triples, once the index is merged."""
    put_texts(file, 1, said({n: f"kettle {n} 湯が沸く" for n in range(4, 200)}))
    put_texts(file, 1, said({200: text, 201: "stays"}))
    assert b"zwxqkvbnj" in path.read_bytes()
    assert drop_texts(file, 1, [200, 999]) == 1
    merge_texts(file, 1)
    raw = path.read_bytes()
    assert b"zwxqkvbnj" not in raw
    assert "ぞふた".encode() not in raw
    assert found(file, "words_1", "stays") == [201]
    for table in text_tables(file, 1):
        file.run(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")


@pytest.mark.slow
def test_a_table_that_is_merged_thousands_of_times_can_be_read(file, path):
    """FTS5 of SQLite 3.40 adds a level with each merge, and refuses more than 2,000."""
    for row in range(1, 2_500):
        put_texts(file, 1, said({row: f"kettle {row}", row + 10_000: "湯が沸く"}))
        merge_texts(file, 1)
    with closing(sqlite3.connect(path)) as other:
        assert found(SqliteTx(other), "words_1", "kettle")[-1] == 2_499
        assert len(found(SqliteTx(other), "grams_1", "湯が沸")) == 2_499


async def test_a_refused_unit_takes_its_table_with_it(kit):
    """Whoever shares its transaction is not harmed, and the next text makes the table again."""
    await kit.start()
    engine = kit.store.engine  # type: ignore[attr-defined]

    def refused(connection: Tx) -> None:
        put_texts(connection, 1, said({400: "first words", 404: "最初の言葉"}))
        raise RuntimeError("no")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            await engine.writing(refused)
    results: list[object] = []
    kit.store.sessions("r").append("s", "s-1", draft("beside it"), kit.owner, results.append)
    with pytest.raises(RuntimeError, match="no"):
        await engine.writing(refused)
    await kit.append("最後の言葉")
    assert len(results) == 1
    report = await kit.store.check()
    assert (report.problems, report.counts["texts"]) == ((), 2)


async def test_so_many_repositories_have_a_table_of_their_own(make, path):
    """The first 200 of them; a file with all those tables opens again."""
    store = make(synchronous="normal")
    await store.open()

    def fill(connection: Tx) -> None:
        for number in range(1, 204):
            connection.run("INSERT INTO repos (id) VALUES (?)", (f"r{number}",))
            put_texts(connection, number, said({4 * number: f"kettle {number}"}))

    await store.engine.writing(fill)
    await store.aclose()
    again = make()
    await again.open()
    await again.aclose()
    assert rows_of(path, "SELECT count(*) FROM repos WHERE texts = 0") == [(3,)]
    assert rows_of(path, "SELECT count(DISTINCT texts) FROM repos") == [(201,)]


def test_no_symbol_sticks_to_a_word(file):
    """What has come to Unicode since the full text's own tables is between words, too."""
    symbols = [
        chr(code)
        for first, last in ((0x2000, 0x2BFF), (0x1F300, 0x1F6FF), (0x1F7E0, 0x1FAFF))
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) in ("So", "Sc", "Sk")
    ]
    put_texts(file, 1, said({4 * n: f"x{n}{symbol}y" for n, symbol in enumerate(symbols)}))
    missed = [s for n, s in enumerate(symbols) if found(file, "words_1", f"x{n}") != [4 * n]]
    assert (len(symbols) > 1_000, missed) == (True, [])

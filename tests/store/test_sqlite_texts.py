"""The full text on the embedded store: one index, in which repositories do not meet."""

import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from world import draft

from mnemo.config import StoreConfig
from mnemo.log.record_rows import message_row, snapshot_row, step_row
from mnemo.log.text_search import Texts
from mnemo.store import texts
from mnemo.store.sqlite import dialect, schema
from mnemo.store.sqlite.connection import SqliteTx, connect, connect_in_memory, locate
from mnemo.store.sqlite.dialect import merge_words, text_damage
from mnemo.store.texts import drop_texts, put_texts
from mnemo.store.tx import Text, Tx
from mnemo.values.records import Group, Query, Ranking

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(params=[1, 256], ids=["indexed", "looked through"])
def tail(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether texts are in the index at once."""
    monkeypatch.setattr(texts, "_AT_ONCE", request.param)


@pytest.fixture
def file(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tx]:
    """A file of the present schema with two repositories, 1 and 2."""
    with closing(connected(path)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA synchronous = OFF")
        schema.migrate(connection, None)
        connection.executemany("INSERT INTO repos (id) VALUES (?)", [("a",), ("b",)])
        yield SqliteTx(connection)


def connected(path: Path) -> sqlite3.Connection:
    """A connection with the functions that the index needs."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.create_function("mnemo_tokens", 3, dialect.tokens, deterministic=True)
    connection.create_function("mnemo_occurrences", 2, dialect.count_of, deterministic=True)
    return connection


def said(spoken: dict[int, str]) -> list[Text]:
    """As the full text takes them."""
    return [(row, text, NOON) for row, text in spoken.items()]


def holding(file: Tx, repo: int, term: str) -> list[int]:
    """The rows of a repository that hold a term."""
    found = Texts(file, repo).candidates([(term, 1.0)], 1, "TRUE", ())
    return sorted(row[0] for row in found)


def test_rows_of_all_kinds_are_told_apart():
    """Two halves of a step, a message and a snapshot never meet, whatever their numbers."""
    rows = {row(n) for row in (message_row, snapshot_row) for n in range(50)}
    rows |= {step_row(n, side) for n in range(50) for side in (0, 1)}
    assert len(rows) == 200


@pytest.mark.usefixtures("tail")
def test_a_repository_finds_its_own_texts(file):
    """Words and triples of the same text in two repositories; an empty text is none."""
    put_texts(file, 1, said({4: "Kettles were boiling", 5: "", 8: "東京へ行きました"}))
    put_texts(file, 2, said({12: "kettle", 16: "!?"}))
    assert (holding(file, 1, "kettle"), holding(file, 2, "kettle")) == ([4], [12])
    assert (holding(file, 1, "京へ行"), holding(file, 2, "京へ行")) == ([8], [])
    assert [Texts(file, repo).count() for repo in (1, 2, 77)] == [2, 2, 0]
    assert [Texts(file, repo).count("kettle") for repo in (1, 2, 77)] == [1, 1, 0]
    assert drop_texts(file, 1, [4, 12, 999]) == 1
    assert (holding(file, 1, "kettle"), holding(file, 2, "kettle")) == ([], [12])
    assert text_damage(file) == []


QUERIES = (
    Query((Group(("violin",)),)),
    Query((Group(("kettle", "violin")), Group(("green tea",), ("milk",)))),
    Query((Group(("東京の",)),)),
)


def scores(file: Tx, repo: int, query: Query) -> list[Sequence[object]]:
    unspaced = query == QUERIES[-1]
    rows = Texts(file, repo).matching(query, "TRUE", (), Ranking(NOON), unspaced=unspaced)
    return [row[:2] for row in rows]


def steps_of(file: Tx, repo: int) -> list[int]:
    """The steps of SQLite's machine, in tens, that each query takes of an index of one segment."""
    merge_words(file)
    counts = []
    connection = file._connection  # type: ignore[attr-defined]
    for query in QUERIES:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        connection.set_progress_handler(step, 10)
        scores(file, repo, query)
        connection.set_progress_handler(None, 0)
        counts.append(count)
    return counts


def fill(file: Tx, repo: int) -> None:
    base = 10_000 * repo
    spoken = {base + 4 * n: f"kettle {n} with green tea" for n in range(40)}
    spoken |= {base + 1_000: "a violin", base + 1_004: "green tea, milk", base + 1_008: "東京の話"}
    put_texts(file, repo, said(spoken))


@pytest.mark.usefixtures("tail")
def test_scores_and_cost_of_a_repository_are_its_own(file):
    """The same for the first one and the 300th, whatever the others say, also much of it."""
    fill(file, 1)
    before = [scores(file, 1, query) for query in QUERIES]
    steps = steps_of(file, 1)
    assert [len(found) for found in before] == [1, 40, 1]
    file.run_many("INSERT INTO repos (id) VALUES (?)", [(f"r{n}",) for n in range(3, 301)])
    for repo in range(3, 301):
        fill(file, repo)
    put_texts(file, 2, said({4 * n: "violin, kettle 東京の話" for n in range(1_000)}))
    assert [scores(file, 1, query) for query in QUERIES] == before
    last = [scores(file, 300, query) for query in QUERIES]
    assert [[score for _, score in found] for found in last] == [
        [score for _, score in found] for found in before
    ]
    for one in (1, 300):
        assert steps_of(file, one) == pytest.approx(steps, rel=0.1, abs=1)


@pytest.mark.usefixtures("tail")
@pytest.mark.parametrize("text", ["the zwxqkvbnj was there", "これはぞふたりの言葉zwxqkvbnjです"])
def test_a_dropped_text_leaves_no_byte(file, path, text):
    """Not in its row, not in a segment, not as triples, once the index is merged."""
    put_texts(file, 1, said({n: f"kettle {n} 湯が沸く" for n in range(4, 200)}))
    put_texts(file, 1, said({200: text, 201: "stays"}))
    assert b"zwxqkvbnj" in path.read_bytes()
    assert drop_texts(file, 1, [200, 999]) == 1
    merge_words(file)
    raw = path.read_bytes()
    assert b"zwxqkvbnj" not in raw
    assert "ぞふた".encode() not in raw
    assert holding(file, 1, "stays") == [201]
    assert text_damage(file) == []


@pytest.mark.slow
def test_a_table_that_is_merged_a_thousand_times_can_be_read(file, path, monkeypatch):
    """FTS5 of SQLite 3.40 adds two levels with each merge, and refuses more than 2,000."""
    put_texts(file, 1, said({row: f"pot {row} x{row} y{row}" for row in range(10_000, 10_300)}))
    monkeypatch.setattr(texts, "_AT_ONCE", 1)
    for row in range(1, 1_200):
        put_texts(file, 1, said({row: f"kettle {row}"}))
        drop_texts(file, 1, [row - 1])  # so that each merge is of as little
        merge_words(file, compare=False)
    with closing(connected(path)) as other:
        assert holding(SqliteTx(other), 1, "kettle") == [1_199]
        assert len(holding(SqliteTx(other), 1, "pot")) == 300


async def test_a_refused_unit_takes_its_texts_with_it(kit, monkeypatch):
    """Whoever shares its transaction is not harmed."""
    monkeypatch.setattr(texts, "_AT_ONCE", 1)
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


@pytest.mark.usefixtures("tail")
def test_no_symbol_sticks_to_a_word(file):
    """Of whatever age: what is no letter is between words."""
    symbols = [
        chr(code)
        for first, last in ((0x2000, 0x2BFF), (0x1F300, 0x1F6FF), (0x1F7E0, 0x1FAFF))
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) in ("So", "Sc", "Sk")
    ]
    put_texts(file, 1, said({4 * n: f"x{n}{symbol}y" for n, symbol in enumerate(symbols)}))
    missed = [s for n, s in enumerate(symbols) if holding(file, 1, f"x{n}") != [4 * n]]
    assert (len(symbols) > 1_000, missed) == (True, [])


@pytest.mark.usefixtures("tail")
def test_a_phrase_is_found_where_its_words_follow_each_other(file):
    """Not where they are apart, in another order, or parts of longer words."""
    spoken = {4: "bora bora bora", 8: "bora, then bora", 12: "aurora borealis bora boras"}
    put_texts(file, 1, said(spoken))
    found = {
        row[0]: row[1]
        for row in Texts(file, 1).matching(
            Query((Group(("bora bora",)),)), "TRUE", (), Ranking(NOON, 0.0), unspaced=False
        )
    }
    assert found.keys() == {4, 12}
    assert found[4] > found[12]


def test_all_that_match_are_given_best_first(file):
    """Page by page, each row once."""
    put_texts(file, 1, said({4 * n: "kettle " * (n % 3 + 1) + "on " * n for n in range(300)}))
    found = scores(file, 1, Query((Group(("kettle",)),)))
    assert len({row for row, _ in found}) == len(found) == 300
    assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)


@pytest.mark.usefixtures("tail")
@pytest.mark.parametrize("column", ["words", "lowered"])
@pytest.mark.parametrize("damage", ["CAST(x'20ff20' AS TEXT)", "x'20ff20'"], ids=["text", "blob"])
def test_a_damaged_row_harms_no_other(file, column, damage):
    """Others are indexed, found and dropped, and so is that one."""
    for row in (4, 8):
        put_texts(file, 1, said({row: "kettle 湯が沸く bora bora"}))
        file.run(f"UPDATE texts SET {column} = {damage} WHERE no = 4")
    put_texts(file, 1, said({4 * n: f"kettle {n}" for n in range(10, 300)}))
    assert holding(file, 1, "kettle")[-291:] == [8, *range(40, 1_200, 4)]
    phrase = Query((Group(("bora bora",)),))
    assert 8 in [row for row, _ in scores(file, 1, phrase)]
    assert drop_texts(file, 1, [4, 8]) == 2
    assert holding(file, 1, "kettle")[-290:] == [*range(40, 1_200, 4)]
    assert holding(file, 1, "bora") in ([], [4])


def test_what_was_damaged_once_indexed_leaves_no_byte(file, path):
    """Though FTS5 is told to delete other words than it was given."""
    put_texts(file, 1, said({n: f"kettle {n}" for n in range(4, 284)} | {9: "vzqxw"}))
    file.run("UPDATE texts SET words = x'20' WHERE no = 9")
    drop_texts(file, 1, [9])
    file.run("BEGIN")
    merge_words(file)
    file.run("COMMIT")
    file.run("VACUUM")
    assert b"vzqxw" not in path.read_bytes()
    assert (len(holding(file, 1, "kettle")), text_damage(file)) == (279, [])


def test_texts_can_be_dropped_where_no_schema_is_trusted(path, monkeypatch):
    """Some builds of SQLite let no view call a function that is not built in."""
    made = sqlite3.connect

    def distrusting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = made(*arguments, **options)
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", distrusting)
    config = StoreConfig()
    for connection in connect(locate(path), "rwc", config), connect_in_memory(config):
        with closing(connection):
            schema.migrate(connection, None)
            connection.execute("INSERT INTO repos (id) VALUES ('a')")
            put_texts(SqliteTx(connection), 1, said({4: "kettle"}))
            assert drop_texts(SqliteTx(connection), 1, [4]) == 1


@pytest.mark.usefixtures("tail")
@pytest.mark.parametrize("word", ["чайник", "σὕμφωνον", "καφές", "öl", "آب", "が一緒"])
def test_a_text_is_found_however_its_letters_are_composed(file, word):
    """As letters with marks of their own, or as one character each; so are queries."""
    forms = [unicodedata.normalize(form, word) for form in ("NFC", "NFD")]
    put_texts(file, 1, said({4 * n: f"(a {form} b)" for n, form in enumerate(forms, 1)}))
    assert [holding(file, 1, form) for form in forms] == [[4, 8]] * 2


def test_a_long_text_is_in_the_index_at_once(file):
    """To look through hundreds of them would take seconds."""
    put_texts(file, 1, said({4: "kettle"}))
    assert file.run("SELECT text FROM text_tail").fetchall() == [(4,)]
    put_texts(file, 1, said({8: "kettle " * 4_000, 12: "kettle"}))
    assert file.run("SELECT text FROM text_tail").fetchall() == []
    assert holding(file, 1, "kettle") == [4, 8, 12]

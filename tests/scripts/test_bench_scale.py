"""The stores of ``scripts/bench scale`` are as the library writes them; its rows run."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers import child_environment, ran
from postgres_server import ON_POSTGRES, postgres_store

from mnemo import Mnemo
from mnemo.config import StoreConfig
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.text import terms
from mnemo.stores import SqliteStore

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"
EACH = 60


@pytest.fixture
def large(monkeypatch) -> ModuleType:
    """``scripts/scale_store.py``."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("scale_store")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where a bank is that no model has made."""
    rows = np.random.default_rng(0).standard_normal((40, 384), np.float32)
    np.save(tmp_path / "bank.npy", rows)
    return tmp_path


def store_in(place: Any) -> Any:
    """A store that is not open yet."""
    if isinstance(place, Path):
        return SqliteStore(place, config=StoreConfig(), clock=SystemClock(), lease_s=30)
    return postgres_store(place)


@pytest.mark.parametrize("distinct", [100, 1])
@pytest.mark.parametrize("engine", ["sqlite", ON_POSTGRES])
async def test_nothing_is_wrong_with_a_generated_store(
    large, folder, engine, distinct, monkeypatch, request
):
    """No problem is found, no vector is owed, and each repository answers from its own texts."""
    monkeypatch.setattr(large, "DISTINCT", distinct)
    place = folder / "m.db" if engine == "sqlite" else request.getfixturevalue("postgres_url")
    source = large.Source(folder)
    await large.fill(store_in(place), source, range(3), EACH)
    store = store_in(place)
    await store.open()
    report = await store.check()
    await store.aclose()
    assert report.problems == ()
    assert report.counts["messages"] == 3 * 48
    assert report.counts["nodes"] == 3 * 12
    assert report.counts["vectors"] == 3 * EACH
    (question,) = source.questions(1, EACH, 1)
    async with Mnemo(place, embedder=large.Given([question])) as memory:
        repo = await memory.open_repo(large.repo_name(1))
        found = await repo.recall(question.text)
        assert set(question.words) <= set(found.candidates[0].node.text[:-1].split())
        assert (await repo.statistics()).index.waiting == 0


def test_all_vectors_and_the_full_text_find_what_is_asked_about_first(large, folder):
    """A question about a text finds it first."""
    source = large.Source(folder)
    large.write_exact(folder, source, EACH)
    (question,) = source.questions(0, EACH, 1)
    by_vectors, by_words = large.Exact(folder).ask(*question)
    assert (by_vectors[0], by_words[0][0] - 1) == (0, 0)


@pytest.mark.long
async def test_segments_are_asked_what_is_least(large, folder):
    """Those of a store of 30,000 texts, of which 24,000 are in two, find the first text first."""
    bench, place = import_module("bench_scale"), folder / "m.db"
    source = large.Source(folder)
    await large.fill(store_in(place), source, [0], 30_000)
    await bench.keep_index(str(place))
    assert large.write_segments(folder, str(place)) == 2
    (question,) = source.questions(0, 30_000, 1)
    words = [*terms(" ".join(question.words))]
    assert large.ask_segments(folder, words, question.row)[0] == "message-1"


def test_what_an_engine_adds_is_of_one_table_in_every_process(large):
    """A kept store on PostgreSQL is made anew when that changes, and not for another reason."""
    schema = import_module("bench_scale")._schema
    own, theirs = schema("sqlite"), schema("postgres")
    assert [table for table in own if own[table] != theirs[table]] == [
        min(large.FILLED & own.keys())
    ]


@pytest.mark.long
def test_every_row_of_scale_gives_its_figures(folder):
    """Those with a goal say whether it is met."""
    words = ("scale", f"stores={folder}", "--quick", "--json")
    done = ran(SCRIPTS / "bench.py", *words, env=child_environment())
    assert done.returncode == 0, done.stderr
    phases = json.loads(done.stdout)["phases"]
    rows = ("first", "idle", "open", "recall", "agree", "append")
    assert set(phases) == {f"scale-{row}" for row in rows}
    assert all(phases.values())
    goals = [figure["met"] for figure in phases["scale-first"] if figure["unit"] == "x"]
    assert goals.count(None) == 0

"""Hostile values in the place of every public argument: an answer or a documented exception."""

import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from engines import emptied
from helpers import examples, repository
from hostile_values import OBJECTS, Place, places, world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemo import Repository
from mnemo.client import RemoteMnemo
from mnemo.testing import HashingEmbedder


async def _listed() -> list[Place]:
    async with world("memory:", Path()) as made:
        return places(made)


PLACES = anyio.run(_listed)
CALLS = st.sampled_from(PLACES).flatmap(
    lambda place: st.tuples(st.just(place), st.sampled_from(sorted(place.values)))
)


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str | None:
    """The schema to work in; ``None``: a file."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else None


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are relative; what fails in the background is logged at length."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("mnemo"), "disabled", True)


async def _made(store: Any, folder: Path, calls: list[tuple[Place, str]]) -> None:
    async with world(store, folder) as opened:
        for place, name in calls:
            await opened.call(place, place.values[name])
        assert (await opened.memory.check()).problems == ()


@pytest.mark.slow
def test_every_call_answers_or_raises_what_is_documented(url):
    """By the annotation of each argument; the store is sound afterwards."""

    @settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
    @given(calls=st.lists(CALLS, min_size=10, max_size=40))
    def call(calls: list[tuple[Place, str]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            anyio.run(partial(_made, emptied(url, folder), Path(folder), calls))

    call()


def test_all_public_calls_are_among_them():
    """A new call or argument is tried by itself."""
    named = {f"{place.subject}.{place.call}" for place in PLACES}
    assert {"memory.open_repo", "repo.recall", "session.append", "talk.append"} <= named
    assert {"items.search", "notes.write", "checkpoints.list", "goals.add"} <= named
    assert len(PLACES) > 150


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://h:abc", "http://\ud800", "http://h\0", "", 3]
)
async def test_an_address_that_is_none_is_refused(url):
    """Where the client is made, or where it is opened."""
    with pytest.raises(ValueError, match=r"url|URL"):
        await RemoteMnemo(url, token="t").open()


# ── Single values ────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def opened(url: str | None, folder: Path) -> AsyncIterator[Repository]:
    """A repository with one fact from one message."""
    async with repository(emptied(url, folder), "r", embedder=HashingEmbedder(64)) as repo:
        await repo.remember("Ada lives in Oslo.", metadata={"n": 1}, wait=True)
        yield repo


async def test_a_listing_until_the_end_of_the_calendar_is_a_listing(url, tmp_path):
    """Both ends are as good as none."""
    async with opened(url, tmp_path) as repo:
        whole = [memory.id for memory in await repo.memories()]
        assert whole
        for last in (datetime(9999, 12, 31), datetime.max):
            assert [one.id for one in await repo.memories(until=last)] == whole
        assert [one.id for one in await repo.memories(since=datetime.min)] == whole


async def test_where_with_a_thousand_texts_finds(url, tmp_path):
    """More than the statement names are looked at row by row; too many are refused."""
    async with opened(url, tmp_path) as repo:
        await repo.remember("Bo lives in Bern.", metadata={"city": "Bern"}, wait=True)
        cities = [f"x{number}" for number in range(1_500)]
        found = await repo.memories(where={"city": [*cities, "Bern"]})
        assert [memory.text for memory in found] == ["Bo lives in Bern."]
        assert not list(await repo.memories(where={"city": cities}))
        for call in (repo.memories, partial(repo.recall, "Ada"), partial(repo.search, "Ada")):
            with pytest.raises(ValueError, match="more than 10,000 values"):
                await call(where={"city": [str(number) for number in range(40_000)]})
            with pytest.raises(ValueError, match="finite number"):
                await call(where={"n": 10**400})


async def test_an_item_may_live_as_long_as_a_number_is_large(url, tmp_path):
    """Beyond 64 bits and beyond the calendar it never expires; beyond a float it is refused."""
    async with opened(url, tmp_path) as repo:
        await repo.items.put(("a",), "k", {}, ttl_s=2**63)
        item = await repo.items.get(("a",), "k")
        assert item is not None
        assert (item.ttl_s, item.expires_at) == (2**63, None)
        with pytest.raises(ValueError, match="finite number"):
            await repo.items.put(("a",), "k", {}, ttl_s=10**400)


@pytest.mark.parametrize("name", ["cyclic", "cyclic operand", "deep"])
async def test_a_filter_that_holds_itself_is_refused(url, tmp_path, name):
    """So is one that is nested too deeply."""
    async with opened(url, tmp_path) as repo:
        with pytest.raises(ValueError, match="nested too deeply"):
            await repo.items.search(("a",), filter=OBJECTS[name])

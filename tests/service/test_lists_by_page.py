"""Repositories and conversations by page: in order, whole, and read no further than the page."""

import re
from pathlib import Path
from typing import Any

import pytest
from damaged_stores import service
from engines import bare_transaction
from helpers import repository
from postgres_server import ON_POSTGRES

from mnemo import Mnemo
from mnemo.erasure import repositories
from mnemo.erasure.repositories import repository_records
from mnemo.store.rows import repo_number
from mnemo.testing import HashingEmbedder

IDS = sorted(["a", "a/1", "a/2", "a*/1", "b", "z", "é", "\U0001f4d8", "z" * 200])


@pytest.fixture(params=["file", ON_POSTGRES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a store may be made."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return tmp_path / "memory.db"


async def test_pages_of_repositories_are_the_list_in_order(place, monkeypatch):
    """Whatever the page's size; each record is the same, also where statements read three."""
    async with Mnemo(place, embedder=HashingEmbedder()) as memory:
        for id in reversed(IDS):
            repo = await memory.open_repo(id)
            await repo.conversation("t").append([{"role": "user", "content": f"I am {id}."}])
            await (await repo.start_session("look")).append("seen", "")
        await repo.add_memory("Ada likes tea", tags=["tea"])
        for id in IDS:
            await memory.repo(id).settle()  # an annotation is a change of its session
        every = await memory.repos()
        assert [(one.id, one.threads, one.sessions) for one in every] == [(id, 1, 1) for id in IDS]
        monkeypatch.setattr(repositories, "_AT_ONCE", 3)
        assert await memory.repos() == every
        for size in (1, 4, len(IDS), 1_000):
            pages, after = [], None
            while page := await memory.repos(limit=size, after=after):
                assert len(page) <= size
                pages += page
                after = page[-1].id
            assert pages == every
        assert [one.id for one in await memory.repos(after="a/")] == [i for i in IDS if i > "a/"]


@pytest.mark.parametrize("engine", ["file", ON_POSTGRES])
@pytest.mark.parametrize(
    ("ids", "prefixes"),
    [
        (None, ["a/"]),
        (["z", "nobody", "a"], []),
        (["a/1", "z"], ["a/", "a*", "é"]),
        ([], [""]),
        ([], []),
        ([], ["\U0010ffff"]),
    ],
)
def test_a_list_of_some_ids_and_beginnings_has_these_alone(engine, request, ids, prefixes):
    """Compared character by character, each once, behind an id, up to a limit."""
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else None
    wanted = [i for i in IDS if i in (ids or ()) or i.startswith(tuple(prefixes))]
    with bare_transaction(url) as tx:
        for id in IDS:
            repo_number(tx, id)
        for after in ("", "a", "a/1", "y"):
            given: dict[str, Any] = {"ids": ids, "prefixes": prefixes, "after": after}
            behind = [id for id in wanted if id > after]
            assert [one.id for one in repository_records(tx, **given)] == behind
            assert [one.id for one in repository_records(tx, **given, limit=2)] == behind[:2]


async def test_pages_of_conversations_are_the_list_in_order(place):
    """A thread to which nothing was appended takes no place in a page."""
    async with Mnemo(place, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        for id in IDS:
            await repo.conversation(id).append([{"role": "user", "content": f"I am {id}."}])
        await repo.conversation("empty").viewport(100).render()
        every = await repo.threads()
        assert [one.thread_id for one in every] == IDS
        pages, after = [], None
        while page := await repo.threads(limit=2, after=after):
            assert len(page) <= 2
            pages += page
            after = page[-1].thread_id
        assert pages == every
        assert await repo.threads(limit=1_000, after=IDS[-1]) == []


@pytest.mark.parametrize("given", [{"limit": 0}, {"limit": 1_001}, {"limit": True}, {"limit": "9"}])
async def test_a_page_of_no_size_is_refused(given):
    """The error names the bounds."""
    async with repository("memory:", "r") as repo, service("memory:") as memory:
        for call in (repo.threads, memory.repos):
            with pytest.raises(ValueError, match="limit must be a whole number, at least 1 and"):
                await call(**given)


@pytest.mark.parametrize("after", ["", " ", 7, "x\x00", "\ud800", "x" * 513])
async def test_a_page_behind_what_can_be_no_id_is_refused(after):
    """The error names the argument."""
    async with repository("memory:", "r") as repo, service("memory:") as memory:
        for call in (repo.threads, memory.repos):
            with pytest.raises(ValueError, match=r"^after "):
                await call(after=after)


@pytest.mark.parametrize("engine", ["file", ON_POSTGRES])
def test_a_page_reads_the_rows_of_its_own_repositories(engine, request, monkeypatch):
    """Of a hundred repositories two are read: by an index that is in order, so none is sorted."""
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else None
    fetched: list[int] = []
    with bare_transaction(url) as tx:
        for number in range(100):
            repo_number(tx, f"r{number:02}")
        if url:
            tx.run("ANALYZE")
            tx.run("SET enable_seqscan = off")
            tx.run("SET enable_sort = off")
        plain = type(tx).run

        def run(self: Any, statement: str, values: Any = ()) -> Any:
            explain = "EXPLAIN" if url else "EXPLAIN QUERY PLAN"
            plan = " ".join(str(row) for row in plain(self, f"{explain} {statement}", values))
            if "ORDER BY n.id" in statement:
                assert not re.search("Sort|TEMP B-TREE", plan)
            rows = plain(self, statement, values).fetchall()
            fetched.append(len(rows))
            return Rows(rows)

        monkeypatch.setattr(type(tx), "run", run)
        found = repository_records(tx, limit=2, after="r41")
        assert [one.id for one in found] == ["r42", "r43"]
        assert max(fetched) == 2
        found = repository_records(tx, limit=2, after="r41", ids=(), prefixes=["r5", "r7"])
        assert [one.id for one in found] == ["r50", "r51"]
        assert max(fetched) == 2


class Rows(list[Any]):
    """Rows that were fetched."""

    def fetchall(self) -> list[Any]:
        """Them."""
        return self

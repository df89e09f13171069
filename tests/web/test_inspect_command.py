"""``mnemo inspect``: the page of a store, which cannot write."""

import pytest
from helpers import repository

from mnemo import Config, Mnemo
from mnemo.cli.app import run


@pytest.mark.slow
async def test_inspect_serves_a_store_to_readers_only(tmp_path, serve):
    """What is stored can be read, every write is refused, and what waits goes on waiting."""
    async with repository(tmp_path / "mnemo.db", "ada", workers=0, embedder="static") as repo:
        await repo.add_memory("Ada plays the cello.")
        await repo.remember("I live in Lund.")
    async with serve(what="inspect").client() as client:
        assert (await client.get("/")).status_code == 200
        found = (await client.post("/v1/memories/list?repo=ada", json={})).json()
        assert [memory["text"] for memory in found["items"]] == ["Ada plays the cello."]
        refused = await client.post("/v1/remember?repo=ada", json={"content": "x"})
        assert refused.status_code == 403
        jobs = (await client.get("/v1/jobs?repo=ada")).json()
        assert [job["state"] for job in jobs if job["kind"] != "embed"] == ["waiting"]
        assert {job["state"] for job in jobs} == {"waiting"}


async def known(path):
    """Memories with the counts of their accesses, and the revision."""
    async with repository(path, "ada", workers=0, embedder="static") as repo:
        nodes = await repo.get_nodes(("semantic", "tag"))
        metadata = await repo.get_metadata([node.id for node in nodes])
        return nodes, metadata, (await repo.statistics()).revision


@pytest.mark.slow
async def test_a_recall_of_the_inspector_is_not_counted(tmp_path, serve):
    """What a recall found has the count of accesses that it had before."""
    path = tmp_path / "mnemo.db"
    async with Mnemo(path, workers=0, embedder="static") as memory:
        await (await memory.open_repo("ada")).add_memory("Ada plays the cello.")
    before = await known(path)
    server = serve(what="inspect")
    async with server.client() as client:
        asked = {"query": "Who plays the cello?"}
        found = await client.post("/v1/recall?repo=ada", json=asked)
        assert "Ada plays the cello." in found.text
    server.stop()
    assert await known(path) == before


@pytest.mark.slow
async def test_the_inspector_leaves_vectors_that_are_owed_to_others(tmp_path, serve):
    """What has no vector still has none after it was looked at."""
    path, unembedded = tmp_path / "mnemo.db", Config(jobs={"background": False})
    async with Mnemo(path, workers=0, config=unembedded, embedder="static") as memory:
        await (await memory.open_repo("ada")).remember("Ada plays the cello.")
    server = serve(what="inspect")
    async with server.client() as client:
        await client.post("/v1/memories/list?repo=ada", json={})
        await client.get("/v1/names?repo=ada")
    server.stop()
    async with Mnemo(path, workers=0, config=unembedded, embedder="static") as memory:
        assert (await (await memory.open_repo("ada")).statistics()).vectors == 0


def test_inspecting_a_file_that_is_not_there_makes_none(tmp_path, capsys):
    """A mistyped name is refused, and no empty store is left behind."""
    path = tmp_path / "typo.db"
    assert run(["inspect", str(path)]) == 2
    assert "there is no store at" in capsys.readouterr().err
    assert not path.exists()

"""``mnemo inspect``: the page of a store, which cannot write."""

from __future__ import annotations

import pytest

from mnemo import Mnemo


@pytest.mark.slow
async def test_inspect_serves_a_store_to_readers_only(tmp_path, serve):
    """What is stored can be read, every write is refused, and what waits goes on waiting."""
    async with Mnemo(tmp_path / "mnemo.db", workers=0) as memory:
        repo = await memory.open_repo("ada")
        await repo.add_memory("Ada plays the cello.")
        await repo.remember("I live in Lund.")
    async with serve(what="inspect").client() as client:
        assert (await client.get("/")).status_code == 200
        found = (await client.post("/v1/memories/list?repo=ada", json={})).json()
        assert [memory["text"] for memory in found["items"]] == ["Ada plays the cello."]
        refused = await client.post("/v1/remember?repo=ada", json={"content": "x"})
        assert refused.status_code == 403
        assert [job["state"] for job in (await client.get("/v1/jobs?repo=ada")).json()] == [
            "waiting"
        ]

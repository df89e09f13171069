"""The page of a repository's graph: what is on it, and that a browser can use it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from mnemo import Changeset, Edge, Mnemo, Semantic, Tag
from mnemo.cli.graph_page import graph_data, graph_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--virtual-time-budget=4000",
)


def dom_of(page: Path, tmp_path: Path, *, fragment: str = "") -> str:
    """The page as a browser has it after its program ran."""
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [CHROMIUM, *QUIET, profile, "--dump-dom", f"{page.as_uri()}{fragment}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


async def stored(db: Path) -> None:
    """Two facts under one tag; one of them would end the page's data if it could."""
    tag = Tag("harbour")
    facts = Semantic("Bo works at the harbour."), Semantic("</script><script>alert(1)</script>")
    edges = tuple(Edge(tag.id, fact.id, "membership") for fact in facts)
    async with Mnemo(db) as memory:
        repo = await memory.open_repo("docks")
        await repo.apply(Changeset(nodes=(tag, *facts), edges=edges))


async def test_the_page_holds_the_best_connected_nodes_and_their_edges(db):
    """A limit keeps the hub and one of its neighbours, and says how many there are."""
    await stored(db)
    async with Mnemo(db) as memory:
        repo = await memory.open_repo("docks")
        whole = await graph_data(repo, limit=10)
        cut = await graph_data(repo, limit=2)
        with pytest.raises(ValueError, match="at least 1"):
            await graph_data(repo, limit=0)
    assert (len(whole["nodes"]), len(whole["edges"]), whole["total"]) == (3, 2, 3)
    assert cut["nodes"][0]["text"] == "harbour"
    assert (len(cut["nodes"]), len(cut["edges"]), cut["total"]) == (2, 1, 3)


async def test_stored_text_cannot_leave_its_place_in_the_page(db):
    """Text that ends a script element stays text; nothing is asked of any network."""
    await stored(db)
    async with Mnemo(db) as memory:
        page = graph_page(await graph_data(await memory.open_repo("docks"), limit=10))
    data = re.search(r'type="application/json">(.*?)</script>', page, re.DOTALL)
    assert "</script><script>alert(1)</script>" in {n["text"] for n in json.loads(data[1])["nodes"]}
    assert page.count("<script") == 2
    assert re.findall(r"""(?:src|href)=|https?://|@import|url\(""", page) == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: chromium is not installed")
def test_a_browser_draws_the_page_and_finds_text(db, cli, tmp_path):
    """The command's page draws itself; looking for a word opens the node that has it."""
    anyio.run(stored, db)
    page = tmp_path / "graph.html"
    told = cli("graph", "--html", str(page), "--store", str(db), "--repo", "docks", "--json")
    assert (told.data["nodes"], told.data["edges"]) == (3, 2)
    dom = dom_of(page, tmp_path, fragment="#bo%20works")
    assert 'data-ready="yes"' in dom
    assert int(re.search(r'data-drawn="(\d+)"', dom)[1]) > 100
    details = re.search(r"<aside.*?</aside>", dom, re.DOTALL)[0]
    assert "Bo works at the harbour." in details
    assert "membership" in details
    assert "confidence" in details

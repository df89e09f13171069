"""The exported page of a repository's graph: what is on it, and that a browser can use it."""

from __future__ import annotations

import json
import re

import anyio
import pytest
from inspector_kit import Inspector, chromium

from mnemo import Changeset, Edge, Mnemo, Semantic, Tag
from mnemo.cli.graph_page import graph_page, graph_picture

HARM = "</script><script>document.title = 'owned'</script><img src=x onerror=alert(1)>"


async def stored(db, facts=(), tags=1):
    """Facts under tags, one of which would end the page's data if it could."""
    names = [Tag(f"harbour {number}") for number in range(tags)]
    known = [Semantic(text) for text in ("Bo works at the harbour.", HARM, *facts)]
    edges = [Edge(names[n % tags].id, fact.id, "membership") for n, fact in enumerate(known)]
    async with Mnemo(db, embedder="static") as memory:
        repo = await memory.open_repo("docks")
        await repo.apply(Changeset(nodes=(*names, *known), edges=tuple(edges)))


async def test_the_page_holds_the_best_connected_nodes_and_their_edges(db):
    """A limit keeps the hub and one of its neighbours, and says how many there are."""
    await stored(db)
    async with Mnemo(db, embedder="static") as memory:
        repo = await memory.open_repo("docks")
        whole = await graph_picture(repo, limit=10)
        cut = await graph_picture(repo, limit=2)
        with pytest.raises(ValueError, match="at least 1"):
            await graph_picture(repo, limit=0)
    assert (len(whole.nodes), len(whole.edges), whole.total) == (3, 2, 3)
    assert cut.nodes[0].text == "harbour 0"
    assert (len(cut.nodes), len(cut.edges), cut.total) == (2, 1, 3)


async def test_stored_text_cannot_leave_its_place_in_the_page(db):
    """Text that ends a script element stays text; the page names no file and no address."""
    await stored(db)
    async with Mnemo(db, embedder="static") as memory:
        picture = await graph_picture(await memory.open_repo("docks"), limit=10)
    page = graph_page("<docks>", picture)
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert HARM in {node["text"] for node in json.loads(data)["picture"]["nodes"]}
    assert page.count("<script") == 2
    assert "<docks>" not in page
    assert re.findall(r"""(?:src|href)=|https?://|@import|url\(""", page.replace(data, "")) == []


@pytest.mark.slow
@pytest.mark.long
async def test_a_browser_draws_the_page_and_opens_a_community(db, cli, tmp_path):
    """A large graph opens on communities, a word finds a mark; markup stays text; no request."""
    await stored(db, [f"Crane {n} stands on pier {n % 5}." for n in range(500)], tags=5)
    file = tmp_path / "graph.html"
    told = await anyio.to_thread.run_sync(
        lambda: cli("graph", "--html", str(file), "--store", str(db), "--repo", "docks", "--json")
    )
    assert (told.data["nodes"], told.data["edges"]) == (507, 502)
    async with chromium() as browser:
        page = await (await browser.new_context()).new_page()
        inspector = Inspector(page, file.as_uri())
        inspector.attend()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.partition(":")[0]))
        await page.goto(file.as_uri())
        await page.get_by_text("5 communities of 507").wait_for()
        await page.get_by_text("Placing the marks").wait_for(state="detached")
        assert await page.locator(".canvas canvas").count() > 0
        await page.get_by_role("button", name="harbour 1").click()
        await page.get_by_text("of the community “harbour 1”").wait_for()
        await page.get_by_label("Find among the marks").fill("owned")
        await page.get_by_role("button", name="document.title").click()
        await page.get_by_role("heading", name="Chosen").wait_for()
        assert await page.locator(".lead").inner_text() == HARM
        await page.get_by_role("link", name="Its neighbourhood").click()
        await page.get_by_text("at most two edges from one").wait_for()
        await page.get_by_text("Placing the marks").wait_for(state="detached")
        assert await inspector.violations() == []
        assert await page.title() == "Graph · docks"
        assert inspector.complaints == []
        assert set(asked) <= {"file", "blob"}

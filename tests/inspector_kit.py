"""A headless Chromium on the inspector of a server, and a small store to look at."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

from mnemo import Config, Mnemo
from mnemo.protocols import ChatModel
from mnemo.testing import HashingEmbedder
from mnemo.web import new_token, serve, token_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parent / "web" / "vendor" / "axe.min.js"
VIEWS = ("overview", "sessions", "recall", "memories", "people", "threads", "notes", "activity")
SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
# Effects run after a frame is painted; what they begin to load is shown in the next one.
SIZE = 1280, 900
LIMIT_S = 120
"""Seconds for anything that is waited for: a test fails by what it finds, not by a slow machine."""
TWO_FRAMES = """new Promise((done) =>
    requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(() => setTimeout(done)))))"""
AT = {"at": "2026-03-02T09:00:00+00:00", "actor": "Ada", "thread_id": "chat/1", "wait": True}
LATER = AT | {"at": "2026-06-02T09:00:00+00:00"}


@dataclass
class Inspector:
    """
    The page of one server in a browser.

    Attributes:
        complaints: Console errors, uncaught errors, and requests to another host, as they came.
    """

    page: Any
    url: str
    complaints: list[str] = field(default_factory=list)

    async def open(self, view: str, **params: str) -> str:
        """Open a view and wait until it has loaded; its text."""
        await self.page.goto(f"{self.url}/#/{view}?{urlencode(params)}")
        await self.page.locator(f"main[data-view={view}] h1").wait_for(state="attached")
        return await self.settled()

    async def settled(self) -> str:
        """Wait until nothing is loading, nor begins to after two frames; the text of the view."""
        await self.page.locator("main h1").wait_for(state="attached")
        while True:
            await self.page.get_by_text("Loading …").first.wait_for(state="detached")
            await self.page.evaluate(TWO_FRAMES)
            if "Loading …" not in (text := str(await self.page.inner_text("main"))):
                return text

    async def violations(self) -> list[str]:
        """Serious violations of accessibility rules that axe-core finds on the page as it is."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = await self.page.evaluate("axe.run(document)")
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    def forgive(self, words: str) -> None:
        """Take back the complaints with these words: the test itself gave cause for them."""
        self.complaints = [one for one in self.complaints if words not in one]

    def attend(self) -> None:
        """Note what is to be complained of from now on."""

        def said(message: Any) -> None:
            if message.type == "error":
                self.complaints.append(f"console: {message.text}")

        def requested(request: Any) -> None:
            if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
                self.complaints.append(f"request: {request.url}")

        self.page.on("console", said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        self.page.on("request", requested)


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A headless Chromium; without one the test is skipped."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.async_api", reason="pip install playwright")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage"],  # containers often have 64 MB of it
            timeout=1e3 * LIMIT_S,
        )
        yield browser
        await browser.close()


@dataclass(frozen=True)
class Served:
    """A server of *memory* in this process; *tokens* by what they permit."""

    url: str
    tokens: dict[str, str]
    memory: Mnemo

    def client(self) -> httpx.AsyncClient:
        """A client that may write."""
        headers = {"authorization": f"Bearer {self.tokens['all']}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=LIMIT_S)


@asynccontextmanager
async def served(model: ChatModel | None = None, **config: Any) -> AsyncIterator[Served]:
    """
    Serve a store in memory to tokens for all, for reading only, and for no repository of it.

    Args:
        model: The chat model; none unless it is given.
        config: Sections of the service's configuration.
    """
    secrets = {"all": new_token(), "reader": new_token(), "stranger": new_token()}
    tokens = [
        token_of(secrets["all"], "all"),
        token_of(secrets["reader"], "reader", rights="read"),
        token_of(secrets["stranger"], "stranger", repositories=["another"]),
    ]
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    settings, embedder = Config(**config), HashingEmbedder()
    async with Mnemo("memory:", config=settings, chat_model=model, embedder=embedder) as memory:
        server = asyncio.create_task(serve(memory, tokens=tokens, ready=ready.set_result))
        yield Served(await ready, secrets, memory)
        server.cancel()
        await asyncio.wait([server])


@asynccontextmanager
async def inspected(
    browser: Any, server: Served, *, token: str = "all", size: tuple[int, int] = SIZE
) -> AsyncIterator[Inspector]:
    """The inspector of *server* in a fresh profile; at the end nothing may be complained of."""
    token = server.tokens.get(token, token)
    async with inspected_at(browser, server.url, token, size=size) as inspector:
        yield inspector


@asynccontextmanager
async def inspected_at(
    browser: Any, url: str, token: str, *, size: tuple[int, int] = SIZE
) -> AsyncIterator[Inspector]:
    """The inspector of the server at *url*, as of ``inspected``."""
    # A window that is made smaller later keeps the media queries of the large one now and then.
    context = await browser.new_context(viewport=dict(zip(("width", "height"), size, strict=True)))
    context.set_default_timeout(1e3 * LIMIT_S)
    inspector = Inspector(await context.new_page(), url)
    inspector.attend()
    await inspector.page.goto(f"{url}/#token={token}")
    yield inspector
    await context.close()
    assert not inspector.complaints, inspector.complaints


async def fill(server: Served, repo: str) -> None:
    """Two conversations, two sessions, a note, and a text that would harm a careless page."""
    async with server.client() as client:

        async def post(path: str, body: Any, **params: str) -> None:
            answer = await client.post(f"/v1{path}", params={"repo": repo, **params}, json=body)
            answer.raise_for_status()

        said = ["I play the cello.", "I live in Lund.", "My sister Eva lives in Oslo."]
        await post("/remember", {"content": said} | AT)
        await post("/remember", {"content": "I moved to Malmö."} | LATER)
        await post("/memories", {"text": f"{SCRIPT} harms nobody."})
        await post("/sessions", {"goal": "plan a trip", "session_id": f"{repo}/1"})
        step = {"observation": "Ada wants to see Tokyo.", "action": SCRIPT}
        await post("/session/steps", step, session=f"{repo}/1")
        for body in ("Ada likes trains.", f"Ada likes ships.\n{SCRIPT}"):
            note = {"body": body, "description": "Travel."}
            params = {"repo": repo, "topic": "trips"}
            (await client.put("/v1/note", params=params, json=note)).raise_for_status()

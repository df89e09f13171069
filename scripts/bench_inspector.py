"""
The inspector in a headless Chromium on a large store: clicks, accessibility, memory.

A click is measured by the browser itself (Event Timing): from the input event to the next paint,
steps of 8 ms, reported from 16 ms on. Steps are appended to live sessions all the while.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import httpx
from bench_serve import Server, filled, served
from inspector_kit import VIEWS, Inspector, chromium, inspected_at

REPO = "read"
"""The repository that ``bench_serve.filled`` makes."""
QUESTION = "Where is the lantern of room 5?"
MOST_MS = 100
"""Within this a click must be answered."""
SIZES = ((360, 800), (1_280, 900), (2_560, 1_440))
LISTENED = """
window.paints = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (one.interactionId) paints.push(one.duration);
}).observe({ type: "event", durationThreshold: 16 });
"""
Act = Callable[[Inspector], Awaitable[object]]


async def begun(http: httpx.AsyncClient, sessions: int) -> list[str]:
    """Start sessions, and write a conversation and notes beside them; the sessions' ids."""
    said = [f"Ada put lantern {n} beside crate {n % 7}. {'It rained. ' * 20}" for n in range(1_000)]
    for start in range(0, len(said), 200):
        messages = [{"role": "user", "content": text} for text in said[start : start + 200]]
        where = {"repo": REPO, "thread": "cellar"}
        await http.post("/v1/conversation/messages", params=where, json={"messages": messages})
    for n in range(100):
        note = {"body": f"Shelf {n}.\n" * 50, "description": f"What is on shelf {n}."}
        await http.put("/v1/note", params={"repo": REPO, "topic": f"shelf-{n}"}, json=note)
    ids = [f"live/{n}" for n in range(sessions)]
    for id in ids:
        body = {"goal": f"tidy room {id}", "session_id": id}
        await http.post(f"/v1/sessions?repo={REPO}", json=body)  # 409: of a run before
    return ids


@asynccontextmanager
async def living(server: Server, sessions: int) -> AsyncIterator[None]:
    """Append about ten steps a second, to one session after the other."""
    headers = {"authorization": f"Bearer {server.token}"}
    async with (
        httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as http,
        anyio.create_task_group() as group,
    ):
        ids = await begun(http, sessions)

        async def append() -> None:
            count = 0
            while True:
                step = {"observation": f"Lantern {count} stands in the rain.", "action": "wait"}
                where = {"repo": REPO, "session": ids[count % len(ids)]}
                await http.post("/v1/session/steps", params=where, json=step)
                count += 1
                await anyio.sleep(0.1)

        group.start_soon(append)
        yield
        group.cancel_scope.cancel()


def pressed(role: Any, name: str) -> Act:
    """A click on the first element of that role and name."""

    async def act(inspector: Inspector) -> None:
        await inspector.page.get_by_role(role, name=name).first.click()

    return act


def chosen(selector: str) -> Act:
    """A click on the first element that the selector finds."""

    async def act(inspector: Inspector) -> None:
        await inspector.page.locator(selector).first.click()

    return act


async def mark(inspector: Inspector) -> None:
    """A click into the middle of the drawing."""
    await inspector.page.locator(".canvas").click()


CLICKS: dict[str, tuple[Act, ...]] = {
    "overview": (),
    "memories": (chosen("tbody a"), pressed("button", "Filter"), pressed("link", "Close")),
    "recall": (pressed("button", "Recall"), chosen("summary")),
    "sessions": (chosen("tbody a"), pressed("link", "Close")),
    "threads": (chosen("tbody a"), pressed("link", "Close")),
    "graph": (chosen(".marks button"), mark, chosen(".marks li:nth-child(2) button")),
    "notes": (chosen("tbody a"), chosen("summary"), pressed("link", "Close")),
    "events": (chosen("summary"), pressed("button", "Pause"), pressed("button", "Go on")),
}


async def ready(inspector: Inspector) -> None:
    """Wait until the view has loaded and is drawn."""
    await inspector.settled()
    await inspector.page.get_by_text("Placing the marks").first.wait_for(state="detached")


async def clicked(inspector: Inspector, act: Act) -> tuple[float, float]:
    """Milliseconds of one click until the next paint, and until all that it asked for is there."""
    await inspector.page.evaluate("paints.length = 0")
    start = perf_counter()
    await act(inspector)
    await ready(inspector)
    whole = 1e3 * (perf_counter() - start)
    await inspector.page.wait_for_timeout(150)
    return float(await inspector.page.evaluate("Math.max(16, ...paints)")), whole


async def walked(inspector: Inspector) -> dict[str, list[tuple[float, float]]]:
    """Click through every view."""
    found: dict[str, list[tuple[float, float]]] = {}
    for view in VIEWS:
        acts = (pressed("link", view.title()), *CLICKS[view])
        if view == "recall":
            await inspector.open(view, repo=REPO, query=QUESTION)
        found[view] = [await clicked(inspector, act) for act in acts[view == "recall" :]]
    return found


async def heap_mb(inspector: Inspector) -> float:
    """The JavaScript heap after a collection."""
    devtools = await inspector.page.context.new_cdp_session(inspector.page)
    await devtools.send("HeapProfiler.collectGarbage")
    used = await devtools.send("Runtime.getHeapUsage")
    await devtools.detach()
    return float(used["usedSize"]) / 2**20


async def pictured(inspector: Inspector, folder: Path) -> None:
    """Write pictures of every view, as it opens and after a click, in each scheme and size."""
    for view in VIEWS:
        for scheme in ("light", "dark"):
            await inspector.page.emulate_media(color_scheme=scheme)
            for width, height in SIZES:
                await inspector.page.set_viewport_size({"width": width, "height": height})
                await inspector.open(view, repo=REPO)
                await ready(inspector)
                await inspector.page.screenshot(path=folder / f"{view}-{scheme}-{width}.png")
                if view == "recall":
                    await inspector.open(view, repo=REPO, query=QUESTION)
                for act in CLICKS[view][:1]:
                    await act(inspector)
                    await ready(inspector)
                    path = folder / f"{view}-chosen-{scheme}-{width}.png"
                    await inspector.page.screenshot(path=path)


async def measured(inspector: Inspector, minutes: float) -> None:
    """Print the figures of clicks and memory."""
    late: list[float] = []
    for view, clicks in (await walked(inspector)).items():
        late += [paint for paint, _ in clicks]
        paints = ", ".join(f"{paint:.0f} ({whole:.0f})" for paint, whole in clicks)
        print(f"{view}: ms to the next paint (to all): {paints}", flush=True)
    over = sum(paint > MOST_MS for paint in late)
    print(f"{len(late)} clicks, worst {max(late):.0f} ms, {over} over {MOST_MS} ms")
    for view in VIEWS:
        await inspector.open(view, repo=REPO)
        await ready(inspector)
        for violation in await inspector.violations():
            print(f"{view}: {violation}")
    end = perf_counter() + 60 * minutes
    heaps = [await heap_mb(inspector)]
    while perf_counter() < end:
        late += [paint for clicks in (await walked(inspector)).values() for paint, _ in clicks]
        heaps.append(await heap_mb(inspector))
    over = sum(paint > MOST_MS for paint in late)
    print(f"{len(late)} clicks, worst {max(late):.0f} ms, {over} over {MOST_MS} ms")
    print(f"heap in MB, once a round of {minutes} minutes:", *(f"{mb:.1f}" for mb in heaps))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


async def run(arguments: argparse.Namespace) -> None:
    """Make the store, serve it, and look."""
    with tempfile.TemporaryDirectory() as folder:
        store = arguments.store or Path(folder) / "memory.db"
        start = perf_counter()
        if not store.exists():
            await filled(store, arguments.nodes)
            print(f"{arguments.nodes} nodes stored in {perf_counter() - start:.1f} s", flush=True)
        with served(store) as server:
            async with (
                living(server, arguments.sessions),
                chromium() as browser,
                inspected_at(browser, server.url, server.token) as inspector,
            ):
                await inspector.page.evaluate(LISTENED)
                if arguments.screenshots:
                    arguments.screenshots.mkdir(parents=True, exist_ok=True)
                    await pictured(inspector, arguments.screenshots)
                else:
                    await measured(inspector, arguments.minutes)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of watching the memory")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=50, help="live ones")
    parser.add_argument("--store", type=Path, help="used again if it is there, else made")
    parser.add_argument("--screenshots", type=Path, help="only write pictures into this folder")
    anyio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()

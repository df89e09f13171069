"""
What goes over HTTP: sessions over a model server, the service under load, the inspector.

The model server is the scripted one of the tests, in a process of its own, so that only mnemo is
measured; it fails a share of all requests in every way it knows, and sessions are committed as a
user would: again, when an extraction has failed. The processor time of the service's process says
the same on a busy machine. A click in the inspector is measured by the
browser itself (Event Timing): from the input event to the next paint, steps of 8 ms, from 16 ms on.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import bench_kit as kit
import httpx
from anyio.streams.buffered import BufferedByteReceiveStream
from bench_kit import WORDS, Child, Figure, Figures, Row, Words, at_once, be_child, heartbeat, tell
from bench_read import REPO, file_store, fill

from mnemo import Config, Mnemo, Session
from mnemo.models import OpenAIChatModel, OpenAIEmbedder
from mnemo.models.local import WordLlamaEmbedder

DIMENSIONS, TIMEOUT_S, AT_ONCE, RETRIES, SEED = 256, 3.0, 16, 8, 20
"""Of the scripted models; retries of each session's commit are far more than it takes."""
MOST_MS = 100
"""Within this a click must be answered."""
LISTENED = """
window.paints = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (one.interactionId) paints.push(one.duration);
}).observe({ type: "event", durationThreshold: 16 });
"""


async def serve_models(share: float) -> None:
    """A server that fails *share* of its requests: tell where it is, and when asked what came."""
    from scripted_faults import EVERY_KIND
    from scripted_server import ScriptedServer

    with ScriptedServer(dimensions=DIMENSIONS) as server:
        server.fail_by_chance(share, EVERY_KIND, seed=SEED)
        tell(server.url)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        purposes = Counter(request.purpose for request in server.requests)
        tell(purposes, Counter(request.fault.name for request in server.requests))


async def models(folder: Path, *, share: float, sessions: int, steps: int) -> Figures:
    """Fill and commit so many sessions at once, after one that loads what is loaded once."""
    # What fails on purpose is counted below, and needs no words.
    logging.getLogger("mnemo").setLevel(logging.ERROR)
    opened: list[Session] = []

    async def fill(count: int) -> None:
        session = await repo.start_session(WORDS.sentence(4, 8))
        opened.append(session)
        for _ in range(count):
            await session.append(WORDS.sentence(8, 16), WORDS.sentence(4, 10))

    async def commit(session: Session) -> None:
        await session.close_and_commit(max_retries=RETRIES)

    async with AsyncExitStack() as stack:
        child = await Child.begin(stack, serve_models, share)
        (url,) = json.loads(await child.line())
        memory = await stack.enter_async_context(
            Mnemo(
                folder / "memory.db",
                config=Config(extraction={"timeout_s": TIMEOUT_S}),
                chat_model=OpenAIChatModel(
                    f"{url}/v1", "scripted", timeout_s=TIMEOUT_S, max_concurrency=AT_ONCE
                ),
                embedder=OpenAIEmbedder(f"{url}/v1", "scripted", DIMENSIONS, timeout_s=TIMEOUT_S),
            )
        )
        repo = await memory.open_repo("bench")
        await fill(3)
        await commit(opened.pop())
        async with heartbeat() as beats:
            appended_s = await at_once(fill, [steps] * sessions)
            all_s = appended_s + await at_once(commit, opened)
        calls = sum(session.statistics().model_calls for session in opened)
        await child.say("end")
        requests, faults = json.loads(await child.line())
    lag_p50 = kit.percentile(beats.late_ms or [0.0], 0.5)
    return [
        Figure("durable appends", sessions * steps / appended_s, "/s"),
        Figure("sessions, first append to committed", sessions / all_s, "/s"),
        Figure("steps, first append to committed", sessions * steps / all_s, "/s"),
        Figure("chat calls per session", calls / sessions, ""),
        Figure("everything: loop lag p50", lag_p50, "ms"),
        *beats.figures("everything"),
        *(Figure(f"requests: {name}", n, "") for name, n in sorted(requests.items())),
        *(Figure(f"requests with fault: {name}", n, "") for name, n in sorted(faults.items())),
    ]


class Served:
    """``mnemo serve`` on a free port, in a process of its own."""

    def __init__(self, pid: int, address: str) -> None:
        self.pid = pid
        self.url, _, self.token = address.partition("/#token=")

    def http(self, connections: int = 100) -> httpx.AsyncClient:
        """A client that has its token."""
        headers = {"authorization": f"Bearer {self.token}"}
        limits = httpx.Limits(max_connections=connections)
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60, limits=limits)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Callable[[str, object], Awaitable[None]]]:
        """
        Post JSON by one connection that is kept: a call.

        Of 200 clients of httpx on one loop the clients are what is measured: they got a sixth of
        the answers that these get.
        """
        address = self.url.removeprefix("http://")
        host, _, port = address.partition(":")
        head = f"Host: {address}\r\nAuthorization: Bearer {self.token}"

        async def post(path: str, body: object) -> None:
            content = json.dumps(body).encode()
            given = f"POST {path} HTTP/1.1\r\n{head}\r\nContent-Type: application/json"
            await stream.send(
                f"{given}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
            )
            answer = await received.receive_until(b"\r\n\r\n", 65_536)
            length = re.search(rb"(?i)content-length: *(\d+)", answer)
            if length is None or not answer.startswith(b"HTTP/1.1 2"):
                raise RuntimeError(answer.decode("latin-1"))
            await received.receive_exactly(int(length[1]))

        async with await anyio.connect_tcp(host, int(port)) as stream:
            received = BufferedByteReceiveStream(stream)
            yield post

    def cpu_s(self) -> float:
        """Processor seconds that it has used, with its workers."""
        return sum(map(cpu_s, (self.pid, *self.workers())))

    def workers(self) -> list[int]:
        """The processes that it has begun."""
        return [*map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())]


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def served(
    folder: Path, texts: Sequence[str] = (), *, workers: int = 1
) -> AsyncIterator[Served]:
    """Serve a store; fill it first, where there are *texts*."""
    store = folder / "memory.db"
    if texts:
        await fill(file_store(store), texts, WordLlamaEmbedder())
    command = [sys.executable, "-m", "mnemo", "serve", "--store", str(store), "--port", "0"]
    command += ["--workers", str(workers)]
    async with await anyio.open_process(command, stderr=None) as process:
        try:
            line = await Child(process).line()
            yield Served(process.pid, line.strip())
        finally:
            process.terminate()
            with anyio.CancelScope(shield=True):
                await process.wait()


async def service(
    folder: Path, *, seconds: float, nodes: int, writers: int, readers: int
) -> Figures:
    """Recall and remember with many clients at once; the server's processor time and memory."""
    words, figures, took = Words(), list[Figure](), list[float]()
    texts = [words.sentence() for _ in range(nodes // 2)]
    asked = [words.question(text) for text in texts[:1_000]]

    async with served(folder, texts) as server:

        async def client(path: str, bodies: Iterator[dict[str, str]], end: float) -> None:
            async with server.line() as post:
                while perf_counter() < end:
                    with kit.timing(took):
                        await post(path, next(bodies))

        recalled = ({"query": query} for query in cycle(asked))
        said = (
            {"content": text, "thread_id": f"thread {n % writers}"}
            for n, text in enumerate(cycle(texts))
        )
        for name, path, bodies, clients in (
            ("recall", f"/v1/recall?repo={REPO}", recalled, 1),
            ("recall", f"/v1/recall?repo={REPO}", recalled, readers),
            ("remember", "/v1/remember?repo=written", said, writers),
        ):
            await client(path, bodies, perf_counter() + 0.1)  # a first one takes longer
            took.clear()
            used_s, end = -server.cpu_s(), perf_counter() + seconds
            wall_s = await at_once(client, [path] * clients, [bodies] * clients, [end] * clients)
            used_s += server.cpu_s()
            title = f"{name}, {clients} clients"
            figures += [
                Figure(f"{title}: answered", len(took) / wall_s, "/s"),
                *kit.spread(title, took, "p50", "p99"),
                Figure(f"{title}: processor of the server, each", 1e3 * used_s / len(took), "ms"),
                Figure(f"{title}: cores of the server", used_s / wall_s, ""),
                Figure(f"{title}: resident", kit.resident_bytes(server.pid) / 2**20, "MB"),
            ]
    return figures


async def serve_workers(
    folder: Path, *, seconds: float, nodes: int, clients: int, remembering: int
) -> Figures:
    """
    Recall through one worker and through two, without extraction and with.

    On a machine that has not two cores for them alone, what two can do follows from the processor
    time of a recall and from how even the recalls are spread: that of one worker, twice, by that
    of two, less what the busier one has more.
    """
    words, figures = Words(), list[Figure]()
    texts = [words.sentence() for _ in range(nodes // 2)]
    asked = cycle([{"query": words.question(text)} for text in texts[:1_000]])
    said = ({"content": text} for text in cycle(texts))

    async def measured(count: int, title: str, writers: int) -> tuple[float, float]:
        """Milliseconds of the processor per recall, and the part of the busiest worker."""
        async with served(folder, workers=count) as server, server.http(clients + writers) as http:
            recalls = 0

            async def recalling(end: float) -> None:
                nonlocal recalls
                while perf_counter() < end:
                    answer = await http.post(f"/v1/recall?repo={REPO}", json=next(asked))
                    answer.raise_for_status()
                    recalls += 1

            async def remember(end: float) -> None:
                while perf_counter() < end:
                    (await http.post("/v1/remember?repo=w", json=next(said))).raise_for_status()
                    await anyio.sleep(0.05)

            while f"\nmnemo_workers {count}\n" not in (await http.get("/metrics")).text:  # noqa: ASYNC110
                await anyio.sleep(0.1)
            for _ in range(2):  # a first round loads what is loaded once
                recalls, end, own = 0, perf_counter() + seconds, -cpu_s(os.getpid())
                used = {pid: -cpu_s(pid) for pid in (server.pid, *server.workers())}
                async with anyio.create_task_group() as group:
                    for _ in range(clients):
                        group.start_soon(recalling, end)
                    for _ in range(writers):
                        group.start_soon(remember, end)
            used = {pid: before + cpu_s(pid) for pid, before in used.items()}
            own += cpu_s(os.getpid())
        each_ms, most = 1e3 * sum(used.values()) / recalls, max(used.values()) / sum(used.values())
        cores = sum(used.values()) / seconds
        figures.extend(
            [
                Figure(f"{title}: answered", recalls / seconds, "/s"),
                Figure(f"{title}: processor of the service, each", each_ms, "ms"),
                Figure(f"{title}: cores of the service", cores, ""),
                Figure(f"{title}: cores of the load", own / seconds, ""),
                Figure(f"{title}: part of the busiest worker", 100 * most, "%"),
            ]
        )
        return each_ms, most

    await fill(file_store(folder / "memory.db"), texts, WordLlamaEmbedder())
    for writers, what in ((0, ""), (remembering, " beside extraction")):
        one_ms, _ = await measured(1, f"one worker{what}", writers)
        two_ms, most = await measured(2, f"two workers{what}", writers)
        figures.append(Figure(f"two workers can do{what}", one_ms / two_ms / most, "times"))
    return figures


@asynccontextmanager
async def living(server: Served, sessions: int) -> AsyncIterator[None]:
    """Messages, notes and live sessions: about ten steps a second, to one after the other."""
    said = [f"Ada put lantern {n} beside crate {n % 7}. {'It rained. ' * 20}" for n in range(1_000)]
    repo = {"repo": REPO}
    async with server.http() as http, anyio.create_task_group() as group:
        for start in range(0, len(said), 200):
            messages = [{"role": "user", "content": text} for text in said[start : start + 200]]
            where, body = {**repo, "thread": "cellar"}, {"messages": messages}
            await http.post("/v1/conversation/messages", params=where, json=body)
        for n in range(100):
            note = {"body": f"Shelf {n}.\n" * 50, "description": f"What is on shelf {n}."}
            await http.put("/v1/note", params={**repo, "topic": f"shelf-{n}"}, json=note)
        ids = [f"live/{n}" for n in range(sessions)]
        for id in ids:
            body = {"goal": f"tidy room {id}", "session_id": id}
            await http.post("/v1/sessions", params=repo, json=body)  # 409: of a run before

        async def append() -> None:
            count = 0
            while True:
                step = {"observation": f"Lantern {count} stands in the rain.", "action": "wait"}
                where = {**repo, "session": ids[count % len(ids)]}
                await http.post("/v1/session/steps", params=where, json=step)
                count += 1
                await anyio.sleep(0.1)

        group.start_soon(append)
        yield
        group.cancel_scope.cancel()


Act = Callable[[Any], Awaitable[object]]


def pressed(role: str, name: str) -> Act:
    """A click on the first element of that role and name."""
    return lambda inspector: inspector.page.get_by_role(role, name=name).first.click()


def picked(selector: str) -> Act:
    """A click on the first element that the selector finds."""
    return lambda inspector: inspector.page.locator(selector).first.click()


CLICKS: dict[str, tuple[Act, ...]] = {
    "overview": (),
    "sessions": (picked("main .row"),),
    "recall": (pressed("button", "Recall"), picked("main summary")),
    "memories": (picked("main .row"), pressed("link", "Close"), pressed("button", "Load more")),
    "people": (picked("main .row"), pressed("link", "Graph"), pressed("link", "Facts")),
    "threads": (pressed("button", "Oldest"), pressed("link", "As sent")),
    "notes": (picked("main .row"), picked("main summary"), pressed("link", "Close")),
    "activity": (picked("main summary"), pressed("button", "Pause"), pressed("button", "Go on")),
}


async def walked(inspector: Any, question: str) -> dict[str, list[tuple[float, float]]]:
    """Click through every view; ms of each until the next paint, and until all of it is there."""
    found: dict[str, list[tuple[float, float]]] = {}
    for view, clicks in CLICKS.items():
        acts = (pressed("link", view.title()), *clicks)
        if view == "recall":
            await inspector.open(view, repo=REPO, query=question)
        for act in acts[view == "recall" :]:
            await inspector.page.evaluate("paints.length = 0")
            start = perf_counter()
            await act(inspector)
            await inspector.settled()
            whole = 1e3 * (perf_counter() - start)
            await inspector.page.wait_for_timeout(150)
            paint = float(await inspector.page.evaluate("Math.max(16, ...paints)"))
            found.setdefault(view, []).append((paint, whole))
    return found


async def heap_mb(inspector: Any) -> float:
    """The JavaScript heap after a collection."""
    devtools = await inspector.page.context.new_cdp_session(inspector.page)
    await devtools.send("HeapProfiler.collectGarbage")
    used = await devtools.send("Runtime.getHeapUsage")
    await devtools.detach()
    return float(used["usedSize"]) / 2**20


async def inspector(folder: Path, *, minutes: float, nodes: int, sessions: int) -> Figures:
    """Clicks, accessibility and memory on a large store with live sessions."""
    from inspector_kit import chromium, inspected_at

    words = Words()
    texts = [words.sentence() for _ in range(nodes // 2)]
    async with (
        served(folder, texts) as server,
        living(server, sessions),
        chromium() as browser,
        inspected_at(browser, server.url, server.token) as opened,
    ):
        await opened.page.evaluate(LISTENED)
        figures, paints = list[Figure](), list[float]()
        for view, clicks in (await walked(opened, texts[0])).items():
            paints += [paint for paint, _ in clicks]
            whole = max(whole for _, whole in clicks)
            worst = max(paint for paint, _ in clicks)
            figures.append(Figure(f"{view}: longest click to its paint", worst, "ms"))
            figures.append(Figure(f"{view}: longest click to all it asked for", whole, "ms"))
        for view in CLICKS:
            await opened.open(view, repo=REPO)
            await opened.settled()
            found = await opened.violations()
            name = f"{view}: violations of accessibility {'; '.join(map(str, found))}".rstrip()
            figures.append(Figure(name, len(found), "", most=0))
        end, heaps = perf_counter() + 60 * minutes, [await heap_mb(opened)]
        while perf_counter() < end:
            paints += [
                paint for clicks in (await walked(opened, texts[0])).values() for paint, _ in clicks
            ]
            heaps.append(await heap_mb(opened))
    return [
        *figures,
        Figure(f"{len(paints)} clicks: worst", max(paints), "ms", most=MOST_MS),
        Figure(f"over {MOST_MS} ms", sum(paint > MOST_MS for paint in paints), ""),
        Figure("heap in the beginning", heaps[0], "MB"),
        Figure(f"heap after {minutes:g} minutes, {len(heaps)} rounds", heaps[-1], "MB"),
    ]


ROWS = {
    "models": Row(models, share=([0.0, 0.05], [0.0, 0.15]), sessions=(200, 4), steps=(20, 5)),
    "service": Row(
        service, seconds=(10.0, 0.5), nodes=(10_000, 200), writers=(200, 4), readers=(16, 2)
    ),
    "serve-workers": Row(
        serve_workers,
        seconds=(10.0, 1.0),
        nodes=(10_000, 200),
        clients=(16, 4),
        remembering=(2, 1),
    ),
    "inspector": Row(inspector, minutes=(10.0, 0.0), nodes=(10_000, 200), sessions=(50, 3)),
}


if __name__ == "__main__":
    be_child(globals())

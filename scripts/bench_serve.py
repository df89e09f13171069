"""
The HTTP service under load: a server of its own process, driven by clients of this one.

Rates, latencies, and the processor time of the server, which says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import anyio
import httpx

from mnemo import Changeset, Edge, Mnemo, Semantic, Tag
from mnemo.client import RemoteMnemo

REMEMBERING, RECALLING, LISTENING = 200, 16, 100
"""Clients of each phase."""
WORDS = ("lantern", "ladder", "boat", "tile", "crate", "kettle", "clock", "rope", "oar", "bell")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
Call = Callable[[int], tuple[str, object]]


@dataclass
class Server:
    """A server's process."""

    process: subprocess.Popen[str]
    address: str

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.address.partition("/#")[0]

    @property
    def token(self) -> str:
        """Its token."""
        return self.address.partition("token=")[2]

    def cpu_s(self) -> float:
        """Processor seconds that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def resident_mb(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@contextmanager
def served(store: Path) -> Iterator[Server]:
    """Run ``mnemo serve`` on a free port."""
    command = [sys.executable, "-m", "mnemo", "serve", "--store", str(store), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Server(process, process.stdout.readline().strip())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@dataclass
class Load:
    """Calls that were answered, with their latencies in ms."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    cpu_s: float = 0.0

    def told(self, name: str) -> str:
        """One line of figures."""
        done = sorted(self.latencies)
        middle, late = done[len(done) // 2], done[int(len(done) * 0.99)]
        return (
            f"{name}: {len(done) / self.seconds:,.0f}/s, p50 {middle:.1f} ms, p99 {late:.1f} ms, "
            f"{self.refused} refused, server {1e3 * self.cpu_s / len(done):.2f} ms CPU each, "
            f"{self.cpu_s / self.seconds:.2f} cores"
        )


class Connection:
    """One connection that is kept, and sends JSON: cheaper than a client of a library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, server: Server) -> Connection:
        """Connect to *server*."""
        parts = urlsplit(server.url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def post(self, server: Server, path: str, body: object) -> int:
        """Send a request, and read its answer whole; its status."""
        sent = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {urlsplit(server.url).netloc}\r\n"
            f"Authorization: Bearer {server.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(sent)}\r\n\r\n"
        )
        self._writer.write(head.encode() + sent)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
        await self._reader.readexactly(int(length[1]) if length else 0)
        return int(answer[9:12])

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def loaded(server: Server, clients: int, seconds: float, call: Call) -> Load:
    """Have so many *clients* call, each one call after the other, for so long."""
    load = Load(seconds)

    async def one(number: int, end: float) -> None:
        connection, count = await Connection.open(server), 0
        while (begun := perf_counter()) < end:
            path, body = call(number * 1_000_000 + count)
            status = await connection.post(server, path, body)
            count += 1
            if status == 200:
                load.latencies.append(1e3 * (perf_counter() - begun))
            else:
                load.refused += 1
        connection.close()

    begun, used_s = perf_counter(), server.cpu_s()
    async with anyio.create_task_group() as group:
        for number in range(clients):
            group.start_soon(one, number, begun + seconds)
    load.seconds, load.cpu_s = perf_counter() - begun, server.cpu_s() - used_s
    return load


async def lags(server: Server) -> dict[float, int]:
    """How often the server's event loop lagged at most so many milliseconds, so far."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        headers = {"authorization": f"Bearer {server.token}"}
        text = (await http.get("/metrics", headers=headers)).text
    found = re.findall(r'mnemo_loop_lag_seconds_bucket{le="(.*?)"} (\d+)', text)
    return {1e3 * float(end): int(count) for end, count in found}


def late_lag(before: dict[float, int], after: dict[float, int]) -> float:
    """Milliseconds within which the loop went on in 99 of 100 looks, as a class says."""
    counts = {end: after[end] - before[end] for end in after}
    return min(end for end, count in counts.items() if count >= 0.99 * max(counts.values()))


async def held(server: Server, seconds: float) -> list[float]:
    """Resident memory, sampled 20 times while clients look, ask and listen; nothing is added."""
    paths = ("/v1/memories/list", "/v1/search", "/v1/recall")
    samples: list[float] = []

    async def look(number: int) -> None:
        connection, count = await Connection.open(server), 0
        while True:
            path, (_, body) = paths[count % 3], recall(number * 1_000 + count % 500)
            await connection.post(server, f"{path}?repo=read", body if count % 3 else {})
            count += 1
            await anyio.sleep(0.05)

    async def watch(memory: RemoteMnemo) -> None:
        repo = memory.repo("read")
        while True:
            await memory.call("GET", "/v1/graph", {"repo": "read"})
            await repo.statistics()
            await repo.sessions()
            await anyio.sleep(1)

    async def listen(memory: RemoteMnemo) -> None:
        while True:
            with anyio.move_on_after(seconds / 5):
                async with memory.events("read") as events:
                    async for _ in events:
                        pass

    async with RemoteMnemo(server.address) as memory, anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(look, number)
        for _ in range(20):
            group.start_soon(listen, memory)
        group.start_soon(watch, memory)
        for _ in range(20):
            await anyio.sleep(seconds / 20)
            samples.append(server.resident_mb())
        group.cancel_scope.cancel()
    return samples


def remember(number: int) -> tuple[str, object]:
    """Remember a sentence in one of many threads."""
    body = {
        "content": f"Ada put the {WORDS[number % len(WORDS)]} number {number} into the cellar.",
        "thread_id": f"thread-{number // 1_000_000}",
        "key": str(number),
    }
    return "/v1/remember?repo=written", body


def recall(number: int) -> tuple[str, object]:
    """Ask for one of the facts."""
    query = f"Where is the {WORDS[number % len(WORDS)]} of room {number % 977}?"
    return "/v1/recall?repo=read", {"query": query}


async def filled(store: Path, nodes: int) -> None:
    """Make a repository of *nodes* facts, some thousand to a changeset."""
    async with Mnemo(store, embedder="static") as memory:
        repo = await memory.open_repo("read")
        for start in range(0, nodes, 2_000):
            tags = {word: Tag(f"{word} {start}") for word in WORDS}
            facts = [
                Semantic(f"The {WORDS[n % len(WORDS)]} of room {n % 977} is on shelf {n}.")
                for n in range(start, min(start + 2_000, nodes))
            ]
            edges = [
                Edge(tags[WORDS[n % len(WORDS)]].id, fact.id, "membership")
                for n, fact in enumerate(facts, start)
            ]
            await repo.apply(Changeset((*tags.values(), *facts), tuple(edges)))
        await repo.settle()


async def streamed(server: Server, writes: int) -> list[float]:
    """Milliseconds from sending a message until each of many listeners was told."""
    sent: dict[int, float] = {}
    waits: list[float] = []
    ready = anyio.Semaphore(0)

    async def listen(memory: RemoteMnemo) -> None:
        heard = 0
        async with memory.events("streamed") as events:
            async for event in events:
                if event.name == "ready":
                    ready.release()
                if event.name != "changes":
                    continue
                now = perf_counter()
                for _, seq in event.data["messages"]:
                    waits.append(1e3 * (now - sent[seq]))
                    heard += 1
                if heard >= writes:
                    return

    async with RemoteMnemo(server.address) as writer:
        repo = writer.repo("streamed")
        await repo.notes.write("made", "The repository is there.", "A beginning.")
        limits = httpx.Limits(max_connections=LISTENING + 1)
        transport = httpx.AsyncHTTPTransport(limits=limits)
        async with (
            RemoteMnemo(server.address, transport=transport) as reader,
            anyio.create_task_group() as group,
        ):
            for _ in range(LISTENING):
                group.start_soon(listen, reader)
            for _ in range(LISTENING):
                await ready.acquire()
            for seq in range(writes):
                sent[seq] = perf_counter()
                await repo.remember(f"Ada said {seq}.", key=str(seq))
                await anyio.sleep(0.1)
    return sorted(waits)


async def measured(seconds: float, nodes: int) -> None:
    """Print the figures of all phases."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "memory.db"
        await filled(store, nodes)
        with served(store) as server:
            await loaded(server, 1, 2, recall)  # the first one reads the index
            for clients in (1, RECALLING):
                load = await loaded(server, clients, seconds, recall)
                print(load.told(f"recall, {clients} clients"), flush=True)
            waits = await streamed(server, 30)
            middle, late = waits[len(waits) // 2], waits[int(len(waits) * 0.95)]
            print(f"stream to {LISTENING}: p50 {middle:.0f} ms, p95 {late:.0f} ms", flush=True)
            before_mb = server.resident_mb()
            await loaded(server, 1, 0.2, remember)  # makes the repository
            before = await lags(server)
            load = await loaded(server, REMEMBERING, seconds, remember)
            told = load.told(f"remember, {REMEMBERING} clients")
            print(f"loop lag p99 <= {late_lag(before, await lags(server)):.0f} ms")
            print(told, f"; resident {before_mb:.0f} to {server.resident_mb():.0f} MB", flush=True)
            print(f"load of the machine: {os.getloadavg()[0]:.1f}")


async def kept_flat(seconds: float, nodes: int) -> None:
    """Print the resident memory of a server that is looked at for so long."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "memory.db"
        await filled(store, nodes)
        with served(store) as server:
            samples = await held(server, seconds)
    print("resident MB:", *(f"{sample:.0f}" for sample in samples))


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--nodes", type=int, default=10_000, help="of the recalled repository")
    parser.add_argument("--hold", type=float, help="only watch the memory, for so many seconds")
    arguments = parser.parse_args()
    if arguments.hold:
        anyio.run(kept_flat, arguments.hold, arguments.nodes)
    else:
        anyio.run(measured, arguments.seconds, arguments.nodes)


if __name__ == "__main__":
    main()

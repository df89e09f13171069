"""
The HTTP service under load: a server of its own process, driven by clients of this one.

Rates, latencies, and the processor time of the server, which says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import anyio
import httpx

from mnemo import Changeset, Edge, Mnemo, Semantic, Tag
from mnemo.client import RemoteMnemo

REMEMBERING, RECALLING, LISTENING = 200, 16, 100
"""Clients of each phase."""
WORDS = ("lantern", "ladder", "boat", "tile", "crate", "kettle", "clock", "rope", "oar", "bell")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
Call = Callable[[httpx.AsyncClient, int], Awaitable[object]]


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

    def told(self, name: str, cpu_s: float) -> str:
        """One line of figures."""
        done = sorted(self.latencies)
        middle, late = done[len(done) // 2], done[int(len(done) * 0.99)]
        return (
            f"{name}: {len(done) / self.seconds:,.0f}/s, p50 {middle:.1f} ms, p99 {late:.1f} ms, "
            f"{self.refused} refused, server {1e3 * cpu_s / len(done):.2f} ms CPU each"
        )


async def loaded(server: Server, clients: int, seconds: float, call: Call) -> Load:
    """Have so many *clients* call, each one call after the other, for so long."""
    load, headers = Load(seconds), {"authorization": f"Bearer {server.token}"}
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def one(http: httpx.AsyncClient, number: int, end: float) -> None:
        count = 0
        while (begun := perf_counter()) < end:
            answer = await call(http, number * 1_000_000 + count)
            count += 1
            if getattr(answer, "status_code", 0) == 200:
                load.latencies.append(1e3 * (perf_counter() - begun))
            else:
                load.refused += 1

    begun = perf_counter()
    async with (
        httpx.AsyncClient(base_url=server.url, headers=headers, limits=limits, timeout=60) as http,
        anyio.create_task_group() as group,
    ):
        for number in range(clients):
            group.start_soon(one, http, number, begun + seconds)
    load.seconds = perf_counter() - begun
    return load


async def remember(http: httpx.AsyncClient, number: int) -> object:
    """Remember a sentence in one of many threads."""
    body = {
        "content": f"Ada put the {WORDS[number % len(WORDS)]} number {number} into the cellar.",
        "thread_id": f"thread-{number // 1_000_000}",
        "key": str(number),
    }
    return await http.post("/v1/remember?repo=written", json=body)


async def recall(http: httpx.AsyncClient, number: int) -> object:
    """Ask for one of the facts."""
    query = f"Where is the {WORDS[number % len(WORDS)]} of room {number % 977}?"
    return await http.post("/v1/recall?repo=read", json={"query": query})


async def filled(store: Path, nodes: int) -> None:
    """Make a repository of *nodes* facts, some thousand to a changeset."""
    async with Mnemo(store) as memory:
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
    lags: list[float] = []
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
                    lags.append(1e3 * (now - sent[seq]))
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
    return sorted(lags)


async def measured(seconds: float, nodes: int) -> None:
    """Print the figures of all phases."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "memory.db"
        await filled(store, nodes)
        with served(store) as server:
            await loaded(server, 1, 2, recall)  # the first one reads the index
            for clients in (1, RECALLING):
                cpu_s = server.cpu_s()
                load = await loaded(server, clients, seconds, recall)
                told = load.told(f"recall, {clients} clients", server.cpu_s() - cpu_s)
                print(told, flush=True)
            lags = await streamed(server, 30)
            middle, late = lags[len(lags) // 2], lags[int(len(lags) * 0.95)]
            print(f"stream to {LISTENING}: p50 {middle:.0f} ms, p95 {late:.0f} ms", flush=True)
            before_mb, cpu_s = server.resident_mb(), server.cpu_s()
            load = await loaded(server, REMEMBERING, seconds, remember)
            told = load.told(f"remember, {REMEMBERING} clients", server.cpu_s() - cpu_s)
            print(told, f"; resident {before_mb:.0f} to {server.resident_mb():.0f} MB", flush=True)
            print(f"load of the machine: {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--nodes", type=int, default=10_000, help="of the recalled repository")
    arguments = parser.parse_args()
    anyio.run(measured, arguments.seconds, arguments.nodes)


if __name__ == "__main__":
    main()

"""
Measure many sessions over a model server: appends, commits, model calls, loop lag.

The server is the scripted one of the tests, in a process of its own, so that only
mnemo is measured: its adapters, and all that the pipeline does around them. Once it
answers everything well, once it fails a share of all requests in every way it knows.
What an idle loop lags is what the machine itself adds.
The sessions are committed as a user would: again, when an extraction has failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from bench import headline, idle_loop, line
from bench_kit import SIZES, Figure, Heartbeat, Words, heartbeat, machine, percentile

from mnemo import Config, Mnemo, Repository, Session
from mnemo.models import OpenAIChatModel, OpenAIEmbedder
from mnemo.runtime import settle_collector

TESTS = Path(__file__).parents[1] / "tests"
DIMENSIONS = 256
TIMEOUT_S = 3.0
AT_ONCE = 16
RETRIES = 8
"""Of each session's commit; far more than it takes."""
SEED = 20


@dataclass
class Served:
    """
    A model server in another process.

    Attributes:
        requests: Purpose → how many came, once it has stopped; *faults* likewise by name.
    """

    url: str
    requests: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)


@contextmanager
def served(share: float) -> Iterator[Served]:
    """Run a server that fails *share* of its requests while the block runs."""
    command = [sys.executable, __file__, "--serve", str(share)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        server = Served(process.stdout.readline().strip())
        try:
            yield server
        finally:
            process.stdin.close()
            server.requests, server.faults = json.loads(process.stdout.readline())


def serve(share: float) -> None:
    """Be that server: say where it is, and at the end of the input what came."""
    sys.path.insert(0, str(TESTS))
    from scripted_faults import EVERY_KIND
    from scripted_server import ScriptedServer

    with ScriptedServer(dimensions=DIMENSIONS) as server:
        server.fail_by_chance(share, EVERY_KIND, seed=SEED)
        print(server.url, flush=True)
        sys.stdin.read()
        purposes = Counter(request.purpose for request in server.requests)
        faults = Counter(request.fault.name for request in server.requests)
    print(json.dumps([purposes, faults]))


# ── Measuring ────────────────────────────────────────────────────────────────────────


async def measured(server: Served, folder: Path, sessions: int, steps: int) -> list[Figure]:
    """Fill and commit so many sessions at once, after one that loads what is loaded once."""
    chat_model = OpenAIChatModel(
        f"{server.url}/v1", "scripted", timeout_s=TIMEOUT_S, max_concurrency=AT_ONCE
    )
    embedder = OpenAIEmbedder(f"{server.url}/v1", "scripted", DIMENSIONS, timeout_s=TIMEOUT_S)
    config = Config(extraction={"timeout_s": TIMEOUT_S})
    async with Mnemo(
        folder / "memory.db", config=config, chat_model=chat_model, embedder=embedder
    ) as memory:
        repo = await memory.open_repo("bench")
        await commit_all([await filled(repo, 3)])
        return await _timed(repo, sessions, steps)


async def _timed(repo: Repository, sessions: int, steps: int) -> list[Figure]:
    opened: list[Session] = []

    async def fill() -> None:
        opened.append(await filled(repo, steps))

    async with heartbeat() as beats:
        began = perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(sessions):
                group.start_soon(fill)
        appended_s = perf_counter() - began
        await commit_all(opened)
        all_s = perf_counter() - began
    calls = sum(session.statistics().model_calls for session in opened)
    return [
        Figure("durable appends", sessions * steps / appended_s, "/s"),
        Figure("sessions, first append to committed", sessions / all_s, "/s"),
        Figure("steps, first append to committed", sessions * steps / all_s, "/s"),
        Figure("chat calls per session", calls / sessions, ""),
        *lags(beats),
    ]


async def filled(repo: Repository, steps: int) -> Session:
    """A session with so many steps."""
    session = await repo.start_session(WORDS.sentence(4, 8))
    for _ in range(steps):
        await session.append(WORDS.sentence(8, 16), WORDS.sentence(4, 10))
    return session


async def commit_all(sessions: Sequence[Session]) -> None:
    """Close and commit all at once; raises if one could not be."""

    async def commit(session: Session) -> None:
        await session.close_and_commit(max_retries=RETRIES)

    async with anyio.create_task_group() as group:
        for session in sessions:
            group.start_soon(commit, session)


def lags(beats: Heartbeat) -> list[Figure]:
    """The lag of mnemo's event loop."""
    middle = Figure("everything: loop lag p50", percentile(beats.late_ms or [0.0], 0.5), "ms")
    return [middle, *beats.figures("everything")]


WORDS = Words()


def phase(share: float, sessions: int, steps: int) -> dict[str, Any]:
    """Everything about a server that fails *share* of its requests."""
    with tempfile.TemporaryDirectory(prefix="mnemo-bench-") as folder, served(share) as server:
        figures = anyio.run(measured, server, Path(folder), sessions, steps)
    return {
        "share": share,
        "figures": [figure.as_json() for figure in figures],
        "requests": server.requests,
        "faults": server.faults,
    }


# ── Printing ─────────────────────────────────────────────────────────────────────────


def show(result: dict[str, Any]) -> None:
    """One phase as a table."""
    print(f"\n{result['share']:.0%} of all requests fail", *map(line, result["figures"]), sep="\n")
    for name, count in sorted(result["requests"].items()):
        print(f"  {'requests: ' + name:<64}{count:>10,}")
    failed = sum(count for name, count in result["faults"].items() if name != "none")
    print(f"  {'requests that were made to fail':<64}{failed:>10,}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; 0 also where a target is missed."""
    arguments = _parse(argv)
    if arguments.serve is not None:
        serve(arguments.serve)
        return 0
    # What fails on purpose is counted below, and needs no words.
    logging.getLogger("mnemo").setLevel(logging.ERROR)
    settle_collector()
    facts = machine()
    idle = [figure.as_json() for figure in anyio.run(idle_loop, SIZES["quick"], Path())]
    if not arguments.json:
        print(headline(facts), *map(line, idle), sep="\n")
        print(f"{arguments.sessions} sessions of {arguments.steps} steps at once")
    results = []
    for share in (0.0, arguments.share):
        results.append(phase(share, arguments.sessions, arguments.steps))
        if not arguments.json:
            show(results[-1])
    if arguments.json:
        settings = {"sessions": arguments.sessions, "steps": arguments.steps}
        whole = {"machine": facts, "idle": idle, **settings, "phases": results}
        print(json.dumps(whole, indent=2))
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_models", description=__doc__)
    parser.add_argument("--sessions", type=int, default=200, help="at once (default: 200)")
    parser.add_argument("--steps", type=int, default=20, help="of each session (default: 20)")
    parser.add_argument(
        "--quick", dest="sessions", action="store_const", const=40, help="40 sessions"
    )
    parser.add_argument(
        "--share", type=float, default=0.05, help="of requests that fail, from 0 to 1"
    )
    parser.add_argument("--json", action="store_true", help="machine, figures and requests")
    parser.add_argument("--serve", type=float, metavar="SHARE", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

"""
Measure what a message costs as its thread grows: appending, reading the window, searching.

Two threads grow side by side to each size in turn: one that nobody watches, and one with
everything on: a viewport that makes room, summaries, vectors, expiry. The embedded
summaries are taken, so that no model is waited for. Single calls are timed one after the
other once the work behind the appends is done; then 64 further threads, with everything
on as well, append at once. The ratios compare the last size with the first.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from time import perf_counter

import anyio
from bench import headline, line
from bench_kit import Figure, Words, batches, heartbeat, machine, percentile

from mnemo import Config, Mnemo
from mnemo.repository import Repository
from mnemo.repository.conversation import Conversation
from mnemo.runtime import settle_collector
from mnemo.values.messages import Message, ToolCall
from mnemo.values.strategies import Recent, Summary

SIZES = (1_000, 10_000, 100_000)
BUDGET = 8_000
SUMMARY = Summary(max_tokens=4_000, keep_last=5)
WEEK_S = 7 * 86_400.0
AT_ONCE = 250
IN_FLIGHT = 64
WARM_UP = 5

Figures = dict[str, list[Figure]]
Call = Callable[[], Awaitable[object]]


class Sayings:
    """
    Turns of an agent: a question, a call and its result, an answer.

    The same seed gives the same ones; each has a word of its own, by its number.
    """

    def __init__(self, seed: int = 11) -> None:
        self._words = Words(seed)
        self._numbers = count()

    def next(self) -> Message:
        """The next message, with an id of its own."""
        number = next(self._numbers)
        return [self._asked, self._called, self._answered, self._said][number % 4](number)

    def some(self, number: int) -> Iterator[Message]:
        """So many of them."""
        return (self.next() for _ in range(number))

    def _text(self, number: int) -> str:
        return f"{self._words.sentence()} Noted as item{number}."

    def _asked(self, number: int) -> Message:
        return Message(role="user", content=self._text(number), id=f"m{number}")

    def _called(self, number: int) -> Message:
        call = ToolCall(f"call{number}", "look_up", {"about": self._words.sentence(3, 6)})
        return Message(role="assistant", content=None, tool_calls=(call,), id=f"m{number}")

    def _answered(self, number: int) -> Message:
        text = self._words.sentence(20, 60)
        return Message(role="tool", content=text, tool_call_id=f"call{number - 1}", id=f"m{number}")

    def _said(self, number: int) -> Message:
        return Message(role="assistant", content=self._text(number), id=f"m{number}")


@dataclass
class Growing:
    """A thread that grows, and what is said in it."""

    talk: Conversation
    sayings: Sayings
    length: int = 0

    async def grow(self, length: int) -> None:
        """Append up to that length, and wait for all that follows from it."""
        for numbers in batches(range(length - self.length), AT_ONCE):
            await self.talk.append(list(self.sayings.some(len(numbers))))
        self.length = max(length, self.length)
        await self.talk.settle()

    async def say(self) -> None:
        """Append one message."""
        self.length += 1
        await self.talk.append(self.sayings.next())

    async def ask(self) -> None:
        """Go on up to the next question of the user, which begins a turn."""
        await self.say()
        while self.length % 4 != 1:
            await self.say()


# ── Measuring ────────────────────────────────────────────────────────────────────────


async def measure(path: Path, sizes: Sequence[int], calls: int, each: int) -> Figures:
    """Grow to each of *sizes*, and measure there; the ratios come last."""
    figures: Figures = {}
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo("bench")
        alone = Growing(repo.conversation("alone"), Sayings())
        watched = Growing(everything(repo, "watched"), Sayings(seed=12))
        watched.talk.viewport(BUDGET)
        for length in sizes:
            began = perf_counter()
            await alone.grow(length)
            await watched.grow(length)
            grown = Figure("grown to this length", perf_counter() - began, "s")
            settle_collector()
            at_size = await _single(repo, alone, watched, calls)
            at_size += await _crowd(repo, f"crowd of {length}", each)
            figures[f"{length:,} messages in the thread"] = [grown, *at_size]
    first, *_, last = [*figures.values(), *figures.values()]
    figures[f"ratio, {sizes[-1]:,} to {sizes[0]:,} messages"] = ratios(first, last)
    return figures


def everything(repo: Repository, thread_id: str) -> Conversation:
    """A handle of a thread whose appends have every consequence there is."""
    return repo.conversation(thread_id, retrieval=Recent(10), compression=SUMMARY, ttl_s=WEEK_S)


async def _single(repo: Repository, alone: Growing, watched: Growing, calls: int) -> list[Figure]:
    viewport = watched.talk.viewport(BUDGET)
    older = cycle(range(0, alone.length, 4))

    async def new_turn() -> None:
        await watched.ask()
        await watched.talk.settle()

    timed: dict[str, tuple[Call, Call]] = {
        "append alone": (_nothing, alone.say),
        "append, everything on": (_nothing, watched.say),
        "append, everything on, work behind it done": (watched.talk.settle, watched.say),
        "load, the last 10 turns": (_nothing, watched.talk.load),
        "viewport.messages": (_nothing, viewport.messages),
        "viewport.render": (_nothing, viewport.render),
        "viewport.render of a new turn": (new_turn, viewport.render),
        "search": (_nothing, lambda: repo.search(f"item{next(older)}")),
        "view": (_nothing, lambda: repo.view(f"m{next(older)}", session_id="alone")),
    }
    figures = []
    for name, (before, call) in timed.items():
        figures += await _timed(name, before, call, calls)
        await alone.talk.settle()
        await watched.talk.settle()
    return figures


async def _nothing() -> None:
    """What is done before a call that needs nothing."""


async def _timed(name: str, before: Call, call: Call, calls: int) -> list[Figure]:
    took = []
    for _ in range(WARM_UP + calls):
        await before()
        began = perf_counter()
        await call()
        took.append(1_000 * (perf_counter() - began))
    return _percentiles(name, took[WARM_UP:])


def _percentiles(name: str, took: Sequence[float]) -> list[Figure]:
    return [
        Figure(f"{name}: p50", percentile(took, 0.5), "ms"),
        Figure(f"{name}: p95", percentile(took, 0.95), "ms"),
    ]


async def _crowd(repo: Repository, name: str, each: int) -> list[Figure]:
    """Threads that append at once, each one message after the other."""
    took: list[float] = []
    talks = [everything(repo, f"{name}-{number}") for number in range(IN_FLIGHT)]
    messages = list(Sayings(seed=13).some(each))

    async def say(talk: Conversation) -> None:
        talk.viewport(BUDGET)
        for message in messages:
            began = perf_counter()
            await talk.append(message)
            took.append(1_000 * (perf_counter() - began))

    began = perf_counter()
    async with heartbeat() as beats, anyio.create_task_group() as group:
        for talk in talks:
            group.start_soon(say, talk)
    per_s = len(took) / (perf_counter() - began)
    for talk in talks:
        await talk.settle()
    what = f"{IN_FLIGHT} threads at once"
    rate = Figure(f"{what}: durable appends", per_s, "/s")
    return [rate, *_percentiles(f"{what}: append", took), *beats.figures(what)[:2]]


def ratios(first: Sequence[Figure], last: Sequence[Figure]) -> list[Figure]:
    """How many times as long each single call takes at the last size; 1: flat."""
    before = {figure.name: figure.value for figure in first}
    return [
        Figure(figure.name, figure.value / before[figure.name], "×")
        for figure in last
        if figure.name.endswith(("p50", "p95")) and before.get(figure.name)
    ]


# ── The command ──────────────────────────────────────────────────────────────────────


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for."""
    arguments = _parse(argv)
    facts = machine() | {"synchronous": Config().store.synchronous}
    with tempfile.TemporaryDirectory(prefix="mnemo-bench-", dir=arguments.dir) as folder:
        path = Path(folder) / "conversations.db"
        measured = anyio.run(measure, path, arguments.sizes, arguments.calls, arguments.each)
    phases = {name: [one.as_json() for one in some] for name, some in measured.items()}
    if arguments.json:
        print(json.dumps({"machine": facts, "phases": phases}, indent=2))
        return 0
    print(f"{headline(facts)}, synchronous = {facts['synchronous']}")
    for name, figures in phases.items():
        print("", name, *map(line, figures), sep="\n")
    return 0


def _sizes(text: str) -> list[int]:
    sizes = sorted({int(part) for part in text.split(",")})
    if sizes[0] < 100:
        raise argparse.ArgumentTypeError("a thread is measured from 100 messages on")
    return sizes


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_conversations", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=list(SIZES),
        help="lengths of the thread, with commas (default: 1000,10000,100000)",
    )
    parser.add_argument("--calls", type=int, default=200, help="of each sort (default: 200)")
    parser.add_argument("--each", type=int, default=100, help="by each of the 64 (default: 100)")
    parser.add_argument("--json", action="store_true", help="machine and figures")
    parser.add_argument("--dir", type=Path, help="where the store is made (default: temporary)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

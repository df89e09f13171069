"""
Measure keyword search, drill-down and passive recall over a long history.

A store is filled below the conversations: messages of fifty threads, said over two years,
one in twenty in Japanese. Every figure is of single calls, one after another, through the
library's own functions: the store's read, the ranking by age, and the excerpts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from bench import headline, line
from bench_kit import Figure, Words, batches, heartbeat, machine, percentile

from mnemo.config import Config, StoreConfig
from mnemo.context.passive import PassiveRecall
from mnemo.conversation.scope import ConversationParts
from mnemo.log.transcript import TranscriptWriter
from mnemo.prompts.usage import UsageMeter
from mnemo.recall.keyword import search
from mnemo.recall.view import view
from mnemo.runtime import settle_collector
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.text import STOP_WORDS, count_tokens
from mnemo.stores import SqliteStore
from mnemo.testing.models import HashingEmbedder
from mnemo.values.derived import Thread
from mnemo.values.erasure import Erased, Selection
from mnemo.values.messages import StoredMessage
from mnemo.values.records import Hidden

REPO = "bench"
THREADS = 50
JAPANESE = 0.05
DAYS = 730.0
AT_ONCE = 500
KANJI = (
    "日本語東京都大阪府人口時間会議資料予算旅行電車飛行機写真音楽天気料理野菜魚肉酒茶水火木金土月"
)
KANA = "のはがをにでとものからまでです"
SEARCH_P95_MS, VIEW_P95_MS = 15.0, 5.0

Call = Callable[[], Awaitable[Any]]
Make = Callable[[random.Random], Call | Awaitable[Call]]
"""Prepares a call, which alone is measured."""


@dataclass
class History:
    """
    What was said, as far as the questions need to know it.

    Attributes:
        counts: In how many messages each word occurs; function words apart.
    """

    threads: list[str]
    counts: Counter[str] = field(default_factory=Counter)
    function_words: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    japanese: list[str] = field(default_factory=list)

    def words(self, least: float, most: float) -> list[str]:
        """Words that this share of the messages hold, at least the nearest one."""
        total = len(self.texts)
        held = [w for w, n in self.counts.items() if least * total <= n <= most * total]
        return sorted(held) or [self.counts.most_common(1)[0][0]]


class Sayings:
    """Texts of the history; the same seed gives the same ones."""

    def __init__(self, seed: int = 5) -> None:
        self._random = random.Random(seed)
        self._words = Words(seed)

    def next(self) -> tuple[str, bool]:
        """A text, and whether it is Japanese."""
        if self._random.random() >= JAPANESE:
            return self._words.sentence(), False
        chosen = (
            "".join(self._random.choices(KANJI, k=self._random.randint(1, 4)))
            + self._random.choice(KANA)
            for _ in range(self._random.randint(3, 10))
        )
        return "".join(chosen) + "。", True


# ── Filling ──────────────────────────────────────────────────────────────────────────


async def fill(store: SqliteStore, messages: int) -> History:
    """Say so many things."""
    history = History([f"thread-{n}" for n in range(THREADS)])
    sayings, now = Sayings(), datetime.now(UTC)
    transcript = store.transcript(REPO)
    for numbers in batches(range(messages), AT_ONCE):
        rows = []
        for number in numbers:
            text, japanese = sayings.next()
            history.texts.append(text)
            if japanese:
                history.japanese.append(text)
            else:
                words = set(text.lower().rstrip(".").split())
                history.counts.update(words - STOP_WORDS)
                history.function_words.update(words & STOP_WORDS)
            at = now - timedelta(days=DAYS * (1 - number / messages))
            rows.append(_message(number, text, at))
        await transcript.writing(partial(_say, messages=rows))
    return history


def _message(number: int, text: str, at: datetime) -> StoredMessage:
    return StoredMessage(
        role="user" if number % 2 else "assistant",
        content=text,
        id=f"message-{number}",
        at=at,
        recorded_at=at,
        token_count=count_tokens(text),
        thread_id=f"thread-{number % THREADS}",
        seq=number // THREADS,
        epoch=0,
    )


def _say(tx: TranscriptWriter, messages: Sequence[StoredMessage]) -> None:
    tx.add(messages)
    for message in messages:
        boundary = max(message.seq - 20, 0)
        tx.keep(Thread(id=message.thread_id, next_seq=message.seq + 1, boundary=boundary))


# ── Measuring ────────────────────────────────────────────────────────────────────────


async def measure(path: Path, messages: int, calls: int) -> dict[str, list[dict[str, Any]]]:
    """Fill a store, and ask it."""
    clock = SystemClock()
    store = SqliteStore(path, config=StoreConfig(), clock=clock, lease_s=60)
    await store.open()
    try:
        began = perf_counter()
        history = await fill(store, messages)
        filling = Figure(f"{messages:,} messages written", perf_counter() - began, "s")
        settle_collector()
        figures = {"filling": [filling]}
        asked = {
            **_searches(store, history, clock),
            **_views(store, messages),
            **_turns(store, history, clock),
        }
        for name, (make, most) in asked.items():
            figures[name] = await _timed(name, make, calls, most)
    finally:
        await store.aclose()
    return {name: [figure.as_json() for figure in some] for name, some in figures.items()}


async def _timed(name: str, make: Make, calls: int, most: float | None) -> list[Figure]:
    chance = random.Random(3)
    ready = [made if callable(made) else await made for made in map(make, [chance] * (calls + 3))]
    for call in ready[:3]:
        await call()
    took = []
    async with heartbeat() as beats:
        for call in ready[3:]:
            began = perf_counter()
            await call()
            took.append(1_000 * (perf_counter() - began))
    return [
        Figure(f"{name}: p50", percentile(took, 0.5), "ms"),
        Figure(f"{name}: p95", percentile(took, 0.95), "ms", most=most),
        *beats.figures(name)[:2],
    ]


def _searches(store: SqliteStore, history: History, clock: SystemClock) -> dict[str, Any]:
    """What is looked for: name → how to make a call, and its bound."""
    records, config = store.records(REPO), Config()
    rare, common = history.words(0.000_02, 0.001), history.words(0.005, 1.0)
    most_common = [word for word, _ in history.counts.most_common(1)]
    ubiquitous = history.function_words.most_common(1)[0][0]
    japanese = history.japanese or ["日本語"]

    def ask(query: str, **options: Any) -> Call:
        return partial(search, records, query, clock=clock, config=config, **options)

    def phrase(chance: random.Random) -> Call:
        words = chance.choice(history.texts).rstrip(".").split()
        return ask('"' + " ".join(words[:3]) + '"')

    def part(chance: random.Random, length: int) -> Call:
        text = chance.choice(japanese)
        start = chance.randrange(max(len(text) - length, 1))
        return ask(text[start : start + length])

    def hidden(chance: random.Random) -> Hidden:
        return Hidden(stream=chance.choice(history.threads), message_seq=100)

    made: dict[str, Make] = {
        "a rare word": lambda chance: ask(chance.choice(rare)),
        "a common word": lambda chance: ask(chance.choice(common)),
        "the most common word": lambda chance: ask(chance.choice(most_common)),
        "a word that seven in ten hold": lambda chance: ask(ubiquitous),
        "two common words": lambda chance: ask(
            " ".join(chance.sample(common, min(2, len(common))))
        ),
        "a phrase": phrase,
        "eight words by OR": lambda chance: ask(" OR ".join(chance.choices(rare + common, k=8))),
        "three characters": lambda chance: part(chance, 3),
        "two characters": lambda chance: part(chance, 2),
        "one thread": lambda chance: ask(
            chance.choice(common), session_id=chance.choice(history.threads)
        ),
        "what is not visible": lambda chance: ask(chance.choice(common), hidden=hidden(chance)),
    }
    return {f"search, {name}": (make, SEARCH_P95_MS) for name, make in made.items()}


def _views(store: SqliteStore, messages: int) -> dict[str, Any]:
    records, config = store.records(REPO), Config()

    def near(chance: random.Random, named: bool) -> Call:
        number = chance.randrange(messages)
        stream = f"thread-{number % THREADS}" if named else None
        return partial(view, records, f"message-{number}", config=config, session_id=stream)

    return {
        "view": (lambda chance: near(chance, True), VIEW_P95_MS),
        "view, thread not named": (lambda chance: near(chance, False), VIEW_P95_MS),
    }


def _turns(store: SqliteStore, history: History, clock: SystemClock) -> dict[str, Any]:
    """A user's turn in a thread of its own each time."""
    transcript = store.transcript(REPO)
    parts = ConversationParts(
        repo_id=REPO,
        store=transcript,
        embedder=HashingEmbedder(),
        chat_model=None,
        clock=clock,
        config=Config(),
        publish=lambda event: None,
        spawn=lambda *work: None,
        meter=UsageMeter(),
        forget=_forget,
        appended=lambda settings: None,
    )
    passive = PassiveRecall(parts, store.records(REPO))
    turns = count()

    async def turn(chance: random.Random) -> Call:
        thread, text = f"turn-{next(turns)}", " ".join(chance.choices(history.texts, k=2))
        said = replace(_message(1, text, clock.now()), thread_id=thread, seq=0)
        await transcript.writing(partial(_say, messages=[said]))
        return partial(passive.recalled, thread, 120_000)

    return {"passive recall, with its write": (turn, None)}


async def _forget(selection: Selection) -> Erased:
    raise NotImplementedError(f"a bench forgets nothing, not even {selection}")


# ── The command ──────────────────────────────────────────────────────────────────────


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; 0 also where a target is missed."""
    arguments = _parse(argv)
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="mnemo-bench-", dir=arguments.dir) as folder:
        path = Path(folder) / "search.db"
        measured = anyio.run(measure, path, arguments.messages, arguments.calls)
    if arguments.json:
        print(json.dumps({"machine": facts, "phases": measured}, indent=2))
        return 0
    print(headline(facts))
    for figures in measured.values():
        print("", *map(line, figures), sep="\n")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_search", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--calls", type=int, default=200, help="of each sort (default: 200)")
    parser.add_argument("--json", action="store_true", help="machine and figures")
    parser.add_argument("--dir", type=Path, help="where the store is made (default: temporary)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

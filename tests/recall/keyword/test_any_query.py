"""Any string is a query: nothing raises but a blank one, and both stores find the same."""

import asyncio
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from contracts.talk import said, snapshot
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world import store_at

from mnemo.config import Config, RecallConfig
from mnemo.recall.keyword import Excerpts, SearchHit, parse, search
from mnemo.runtime.text import index_stem, is_blank, lower_each
from mnemo.testing import ManualClock

TEXTS = [
    "The signal and the noise",
    "Two sub-agents were started; user:42 said don't",
    "Tests are running, testing went possibly well in the café",
    "ПРИВЕТ, мир! Ελληνικά ΣΊΣΥΦΟΣ",
    'the set {x} of "quoted" things, 3.5 of them*',
    "naïve Zürich straße İstanbul",
    "foo OR bar AND baz NOT qux NEAR(a b)",
    "東京都に住んでいます",
    "京都のお寺 Hotel É",
    "ผมพูดว่าสวัสดีครับ",
    "그를사랑한다 Seoul",
    "e\u0301te\u0301 re\u0301sume\u0301",
    "snake_case and CamelCase, https://example.org/a?b=c",
    "party 🎉 time 👩‍👩‍👧",
    "a\nb\tc d   e",
]
PIECES = ["signal", "noise", "tests", "cafe", "привет", "東京", "東京都", "京", "สวัส", "사랑", "É"]
SYNTAX = ["AND", "OR", "NOT", "NEAR", '"', "(", ")", "*", "-", ":", "^", "+", "{x}", "@@@", "the"]
ALPHABET = st.characters(exclude_categories=["Cn"], max_codepoint=0x0530) | st.sampled_from(
    "東京都にお寺สวัสดีครับ그를사랑한다🎉\0\ud800\u3000\u200d"
)
QUERIES = st.one_of(
    st.text(ALPHABET, max_size=12),
    st.lists(st.sampled_from(PIECES + SYNTAX) | st.text(ALPHABET, max_size=3), max_size=8).map(
        " ".join
    ),
    st.lists(st.sampled_from([*TEXTS, *PIECES, *SYNTAX]), max_size=4).map("".join),
)
CONFIG = Config(recall=RecallConfig(snippet_chars=50))


@dataclass
class Both:
    """Two stores that hold the same, and the loop that they live in."""

    stores: list[Any]
    clock: ManualClock
    loop: asyncio.AbstractEventLoop

    def search(self, store: Any, query: str) -> list[SearchHit]:
        """Its hits."""
        searching = search(store.records("r"), query, clock=self.clock, config=CONFIG, limit=100)
        return self.loop.run_until_complete(searching)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    clock = ManualClock()
    folder: Path = tmp_path_factory.mktemp("both")
    stores = [
        store_at(None, clock),
        store_at(folder / "m.db", clock),
    ]
    messages = [said(n, text) for n, text in enumerate(TEXTS)]

    def fill(tx: Any) -> None:
        tx.add(messages)
        tx.put(snapshot(0, 3, text="the noise of tests in 東京都"))

    async def open_them() -> None:
        for store in stores:
            await store.open()
            await store.transcript("r").writing(fill)

    async def close_them() -> None:
        for store in stores:
            await store.aclose()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(open_them())
    yield Both(stores, clock, loop)
    loop.run_until_complete(close_them())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.mark.slow
@given(query=QUERIES)
@settings(
    max_examples=examples(400),
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_string_finds_the_same_in_both_stores(both, query, caplog):
    """Only a blank query is refused; nothing falls back, nothing else raises."""
    if is_blank(query):
        with pytest.raises(ValueError, match=r"^Query cannot be blank$"):
            both.search(both.stores[0], query)
        return
    memory, sqlite = (both.search(store, query) for store in both.stores)
    assert _ids(memory) == _ids(sqlite)
    assert not caplog.records
    assert {h.message_id: h.snippet for h in memory} == {h.message_id: h.snippet for h in sqlite}
    for hit in sqlite:
        assert len(hit.snippet) <= CONFIG.recall.snippet_chars
        assert _holds_one(hit.snippet, query), hit.snippet


def _ids(hits: list[SearchHit]) -> list[str]:
    return sorted(hit.message_id for hit in hits)


def _holds_one(snippet: str, query: str) -> bool:
    """Whether the excerpt holds a word of some operand, or its beginning."""
    stems = {index_stem(word) for word in _words(snippet)}
    operands = parse(query).wanted
    return any(
        lower_each(operand)[:20] in lower_each(snippet)
        or any(index_stem(word) in stems for word in _words(operand))
        for operand in operands
    )


def _words(text: str) -> list[str]:
    kept = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in text)
    return kept.split()


@given(
    words=st.lists(
        st.sampled_from(["tea", "東京", "x" * 30, "é\u0301", "と", "\n", " "]), max_size=80
    ),
    place=st.integers(0, 80),
    chars=st.integers(50, 300),
    operand=st.sampled_from(["zebra", "縞馬"]),
    gap=st.sampled_from(["", " "]),
)
@settings(max_examples=examples(150))
def test_an_excerpt_holds_the_match(words, place, chars, operand, gap):
    """Whatever stands around it, within the bound, and no mark leads."""
    if operand.isascii():
        words = [*words[:place], f" {operand} ", *words[place:]]
    else:
        words = [*words[:place], operand, *words[place:]]
    text = gap.join(words)
    shown = Excerpts(text, [operand]).of(chars)
    assert operand in shown
    assert len(shown) <= chars
    collapsed = " ".join(text.split())
    inner = shown.strip("…").strip()
    assert inner in collapsed
    assert (shown == collapsed) == (len(collapsed) <= chars)
    if not collapsed.startswith(inner):
        assert shown.startswith("…")
        assert not unicodedata.combining(inner[0])

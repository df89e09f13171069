"""The embedded default embedder."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from real_texts import TEXTS

from mnemo import Mnemo, ModelUnavailable
from mnemo.models import wordllama
from mnemo.models.wordllama import MAX_CHARACTERS, MAX_TOKENS, WordLlamaEmbedder
from mnemo.runtime.text import clean
from mnemo.testing import HashingEmbedder


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    """One embedder for all tests: its weights are read once."""
    return WordLlamaEmbedder()


async def test_rows_are_of_unit_length_and_in_order(embedder: WordLlamaEmbedder) -> None:
    """Each text gives one float32 row of length 1, whatever the batch around it."""
    texts = ["a cat sat on the mat", "trains to Kyoto " * 40, "x"] * 20
    rows = await embedder.embed(texts)
    assert rows.shape == (60, embedder.space.dimensions)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    alone = await embedder.embed([texts[0]])
    assert np.allclose(alone[0], rows[0], atol=1e-6)


async def test_related_texts_are_closer_than_unrelated_ones(embedder: WordLlamaEmbedder) -> None:
    """The cosine carries meaning without a shared word."""
    kitten, cat, train = await embedder.embed(["a small kitten", "the young cat", "railway fares"])
    assert kitten @ cat > kitten @ train


@pytest.mark.parametrize("text", ["", "   ", "\ud800", "\0", "𐎀" * 3])
async def test_any_text_gives_a_unit_row(embedder: WordLlamaEmbedder, text: str) -> None:
    """A text without tokens, or with broken characters, gives the same unit row each time."""
    first, second = await embedder.embed([text, text])
    assert np.isclose(np.linalg.norm(first), 1, atol=1e-5)
    assert np.array_equal(first, second)


async def test_no_text_gives_no_row(embedder: WordLlamaEmbedder) -> None:
    """An empty batch is answered with an empty array of the right width."""
    assert (await embedder.embed([])).shape == (0, 256)


@cache
def _half_precision() -> NDArray[np.float16]:
    return wordllama._load().table.astype(np.float16)


def _straightforward(texts: list[str]) -> NDArray[np.float32]:
    """Each text tokenized whole, its half precision vectors added up in single precision."""
    tokenizer, half = wordllama._load().tokenizer, _half_precision()
    rows = np.zeros((len(texts), half.shape[1]), np.float32)
    for row, text in zip(rows, texts, strict=True):
        encoded = tokenizer.encode(clean(text[:MAX_CHARACTERS]), add_special_tokens=False)
        if ids := encoded.ids[:MAX_TOKENS]:
            np.sum(half[np.asarray(ids, np.intp)], axis=0, dtype=np.float32, out=row)
    return wordllama._unit_or_fixed(rows)


def _assert_same_bits(texts: list[str]) -> None:
    expected = _straightforward(texts).tobytes()
    for _first_and_remembered in range(2):
        assert wordllama._load().pool(texts).tobytes() == expected


@pytest.mark.slow
def test_vectors_are_those_of_texts_tokenized_whole() -> None:
    """Dialogue, tool output, code and other scripts give the same bits piece by piece."""
    _assert_same_bits(TEXTS)


@pytest.mark.slow
def test_no_token_of_the_vocabulary_spans_a_cut() -> None:
    """No blank stands behind another character, no mark behind a letter, and a letter is one."""
    tokenizer = wordllama._load().tokenizer
    tokens = [token for token in tokenizer.get_vocab() if not token.startswith("<")]
    assert len(tokens) > 31_000
    assert [t for t in tokens if re.search("[^▁]▁|[A-Za-z][.,!?;:'\"()-]", t)] == []
    assert tokenizer.encode("a", add_special_tokens=False).tokens == ["▁a"]


_ODD = st.sampled_from(
    [*" ▁\n\t\u3000\xa0<☕", "  ", "<s>", "</s>", "<unk>", "word", "end.", "a", "it's", "("]
)


@pytest.mark.slow
@given(st.lists(st.lists(_ODD | st.text(max_size=12), max_size=20).map("".join), max_size=6))
def test_any_text_gives_the_vector_of_its_whole(texts: list[str]) -> None:
    """Runs of blanks, the tokenizer's own marks and any character give the same bits."""
    _assert_same_bits(texts)


def test_remembered_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound what is remembered begins anew, and vectors stay the same."""
    monkeypatch.setattr(wordllama, "MAX_PIECES", 100)
    texts = [f"item{number} and item{number + 1} of many" for number in range(60)]
    _assert_same_bits(texts)
    wordllama._load().pool(["x" * 4_000])
    known = wordllama._load().known
    assert len(known) < 100
    assert all(len(piece) <= 32 for piece in known)


async def test_only_the_beginning_of_a_very_long_text_counts(
    embedder: WordLlamaEmbedder,
) -> None:
    """What comes after the documented bound does not change the vector."""
    head = "boats and harbours " * (MAX_CHARACTERS // 19 + 1)
    short, long = await embedder.embed([head, head + "volcano " * 100_000])
    assert np.array_equal(short, long)


async def test_the_root_logger_is_left_alone(embedder: WordLlamaEmbedder) -> None:
    """Embedding installs no log handler and imports nothing that would."""
    before = list(logging.getLogger().handlers)
    await embedder.embed(["hello"])
    assert logging.getLogger().handlers == before
    assert "wordllama" not in sys.modules


@pytest.mark.slow
def test_constructing_it_loads_nothing() -> None:
    """Neither the import of its module nor its constructor loads the tokenizer."""
    code = (
        "import sys; from mnemo.models.wordllama import WordLlamaEmbedder; WordLlamaEmbedder();"
        "sys.exit('tokenizers' in sys.modules or 'safetensors' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_service_that_opens_loads_it_in_a_worker_thread(monkeypatch) -> None:
    """With no embedder given, the model is there before the first append; with one, it is not."""
    threads: list[int] = []
    load = wordllama._load

    def seen() -> object:
        threads.append(threading.get_ident())
        return load()

    monkeypatch.setattr(wordllama, "_load", seen)
    async with Mnemo("memory:", embedder=HashingEmbedder()):
        assert not threads
    async with Mnemo("memory:"):
        assert len(threads) == 1
        assert threads[0] != threading.get_ident()


async def test_a_service_opens_without_the_weights(monkeypatch, caplog) -> None:
    """Where the wheel is missing the service opens: a repository may bring its own embedder."""

    def absent() -> object:
        raise ModelUnavailable("the package wordllama is not installed")

    monkeypatch.setattr(wordllama, "_load", absent)
    async with Mnemo("memory:") as memory:
        await memory.open_repo("r", embedder=HashingEmbedder())
    assert "wordllama is not installed" in caplog.text

"""The static embedder of the extra ``[static]``."""

import logging
import re
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from real_texts import TEXTS

from mnemo.models import local
from mnemo.models.local import MAX_CHARACTERS, STATIC_TOKENS, WordLlamaEmbedder
from mnemo.runtime.text import clean


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    """One embedder for all tests: its weights are read once."""
    return WordLlamaEmbedder()


@cache
def _half_precision() -> NDArray[np.float16]:
    return WordLlamaEmbedder.load().table.astype(np.float16)


def _straightforward(texts: list[str]) -> NDArray[np.float32]:
    """Each text tokenized whole, its half precision vectors added up in single precision."""
    tokenizer, half = WordLlamaEmbedder.load().tokenizer, _half_precision()
    rows = np.zeros((len(texts), half.shape[1]), np.float32)
    for row, text in zip(rows, texts, strict=True):
        encoded = tokenizer.encode(clean(text[:MAX_CHARACTERS]), add_special_tokens=False)
        if ids := encoded.ids[:STATIC_TOKENS]:
            np.sum(half[np.asarray(ids, np.intp)], axis=0, dtype=np.float32, out=row)
    return local._unit_or_fixed(rows)


def _assert_same_bits(texts: list[str]) -> None:
    expected = _straightforward(texts).tobytes()
    for _first_and_remembered in range(2):
        assert WordLlamaEmbedder.load().embed(texts).tobytes() == expected


@pytest.mark.slow
def test_vectors_are_those_of_texts_tokenized_whole():
    """Dialogue, tool output, code and other scripts give the same bits piece by piece."""
    _assert_same_bits(TEXTS)


@pytest.mark.slow
def test_no_token_of_the_vocabulary_spans_a_cut():
    """No blank stands behind another character, no mark behind a letter, and a letter is one."""
    tokenizer = WordLlamaEmbedder.load().tokenizer
    tokens = [token for token in tokenizer.get_vocab() if not token.startswith("<")]
    assert len(tokens) > 31_000
    assert [t for t in tokens if re.search("[^▁]▁|[A-Za-z][.,!?;:'\"()-]", t)] == []
    assert tokenizer.encode("a", add_special_tokens=False).tokens == ["▁a"]


_ODD = st.sampled_from(
    [*" ▁\n\t\u3000\xa0<☕", "  ", "<s>", "</s>", "<unk>", "word", "end.", "a", "it's", "("]
)


@pytest.mark.slow
@given(st.lists(st.lists(_ODD | st.text(max_size=12), max_size=20).map("".join), max_size=6))
def test_any_text_gives_the_vector_of_its_whole(texts):
    """Runs of blanks, the tokenizer's own marks and any character give the same bits."""
    _assert_same_bits(texts)


def test_remembered_pieces_are_bounded(monkeypatch):
    """Past the bound what is remembered begins anew, and vectors stay the same."""
    monkeypatch.setattr(local, "MAX_PIECES", 100)
    texts = [f"item{number} and item{number + 1} of many" for number in range(60)]
    _assert_same_bits(texts)
    WordLlamaEmbedder.load().embed(["x" * 4_000])
    known = WordLlamaEmbedder.load().known
    assert len(known) < 100
    assert all(len(piece) <= 32 for piece in known)


async def test_the_root_logger_is_left_alone(embedder):
    """Embedding installs no log handler and imports nothing that would."""
    before = list(logging.getLogger().handlers)
    await embedder.embed(["hello"])
    assert logging.getLogger().handlers == before
    assert "wordllama" not in sys.modules

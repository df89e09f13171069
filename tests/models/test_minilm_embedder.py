"""The contextual embedder of the extra ``[minilm]``."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mnemo.errors import ModelUnavailable
from mnemo.models import minilm
from mnemo.models.minilm import MAX_CHARACTERS, MiniLMEmbedder


@pytest.fixture(scope="module")
def embedder() -> MiniLMEmbedder:
    """One embedder for all tests: its weights are read once."""
    return MiniLMEmbedder()


@pytest.mark.slow
async def test_rows_are_of_unit_length_and_in_order(embedder: MiniLMEmbedder) -> None:
    """Each text gives one float32 row of length 1, whatever the batch around it."""
    texts = ["a cat sat on the mat", "trains to Kyoto " * 20, "x"] * 3
    rows = await embedder.embed(texts)
    assert rows.shape == (9, embedder.space.dimensions)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    alone = await embedder.embed([texts[0]])
    assert np.allclose(alone[0], rows[0], atol=1e-4)


async def test_meaning_is_nearer_than_words(embedder: MiniLMEmbedder) -> None:
    """A paraphrase without a common word beats an unrelated text that shares some."""
    question, answer, other = await embedder.embed(
        ["Where is she employed?", "Mara works at a bakery.", "Where is she? Not employed here?"]
    )
    bread, loaf, linker = await embedder.embed(
        ["How do I bake bread?", "The recipe for a sourdough loaf", "How do I link a library?"]
    )
    assert bread @ loaf > bread @ linker
    assert question @ answer > 0.2
    assert np.isfinite(other).all()


@pytest.mark.parametrize("text", ["", "   ", "\ud800", "\0", "𐎀" * 3])
async def test_any_text_gives_a_unit_row(embedder: MiniLMEmbedder, text: str) -> None:
    """A text without words, or with broken characters, has a vector, too."""
    (row,) = await embedder.embed([text])
    assert np.isclose(np.linalg.norm(row), 1, atol=1e-5)


async def test_no_text_gives_no_row(embedder: MiniLMEmbedder) -> None:
    """An empty batch is answered with an empty array of the right width."""
    assert (await embedder.embed([])).shape == (0, 384)


async def test_only_the_beginning_of_a_very_long_text_counts(embedder: MiniLMEmbedder) -> None:
    """What comes after the documented bound does not change the vector."""
    head = "boats and harbours " * (MAX_CHARACTERS // 19 + 1)
    (short,) = await embedder.embed([head])
    (long,) = await embedder.embed([head + "volcano " * 10_000])
    assert np.array_equal(short, long)


async def test_without_the_extra_it_says_what_to_install(monkeypatch) -> None:
    """A missing package is a typed error that names the extra; nothing is retried."""
    monkeypatch.setattr(minilm, "_WEIGHTS", ("no_such_package", "model.onnx"))
    minilm._load.cache_clear()
    try:
        with pytest.raises(ModelUnavailable, match=r"\[minilm\]") as caught:
            await MiniLMEmbedder().embed(["text"])
    finally:
        minilm._load.cache_clear()
    assert not caught.value.retryable


@pytest.mark.slow
def test_constructing_it_loads_nothing() -> None:
    """Neither the import of its module nor its constructor loads the runtime."""
    code = (
        "import sys; from mnemo.models.minilm import MiniLMEmbedder; MiniLMEmbedder();"
        "sys.exit('onnxruntime' in sys.modules or 'tokenizers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

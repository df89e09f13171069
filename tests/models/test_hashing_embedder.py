"""The embedder without a model."""

from __future__ import annotations

import numpy as np
import pytest

from mnemo.models.hashing import HashingEmbedder


async def test_shared_words_make_texts_close() -> None:
    """The cosine grows with the share of common terms; stems and case do not matter."""
    near, same, far = await HashingEmbedder().embed(
        ["Ana adopted two cats", "ana ADOPTS a cat", "Bo sells harbour cranes"]
    )
    assert near @ same > 0.5 > near @ far


async def test_two_embedders_agree() -> None:
    """The same text gives the same row in every instance: nothing depends on the run."""
    first = await HashingEmbedder(64).embed(["a red boat"])
    second = await HashingEmbedder(64).embed(["a red boat"])
    assert first.shape == (1, 64)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("text", ["", "the of and", "\ud800"])
async def test_a_text_without_terms_gives_a_unit_row(text: str) -> None:
    """Even nothing has a vector of length 1."""
    row = (await HashingEmbedder().embed([text]))[0]
    assert np.isclose(np.linalg.norm(row), 1)


def test_too_few_dimensions_are_refused() -> None:
    """One dimension could not tell two texts apart."""
    with pytest.raises(ValueError, match="at least 2"):
        HashingEmbedder(1)

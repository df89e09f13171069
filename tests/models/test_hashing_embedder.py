"""The embedder without a model."""

import numpy as np
import pytest

from mnemo.testing.models import HashingEmbedder


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

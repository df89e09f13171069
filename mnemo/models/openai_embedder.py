"""An embedder over HTTP, for any OpenAI-compatible server: batches, requests, vectors."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, Unpack

import anyio
import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from mnemo.errors import ConfigError, InvalidReply, ModelError
from mnemo.models.failures import Failure
from mnemo.models.prices import Price, counted, usage_of
from mnemo.models.transport import HttpModel, HttpSettings, Transport, number, whole, with_settings
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import clean, count_tokens, is_blank
from mnemo.values.vectors import VectorCache

BYTES_PER_TOKEN = 4
"""What ``count_tokens`` reckons with."""


def key_of(text: str) -> bytes:
    """What a text is remembered by: 16 bytes of its hash."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def cut(text: str, max_tokens: int) -> str:
    """The beginning of *text* that counts at most *max_tokens*, by the service's count."""
    if count_tokens(text) <= max_tokens:
        return text
    beginning = text.encode("utf-8")[: max_tokens * BYTES_PER_TOKEN]
    return beginning.decode("utf-8", "ignore")


def batches(
    texts: Mapping[bytes, str], *, batch_size: int, max_batch_tokens: int
) -> Iterator[dict[bytes, str]]:
    """Cut *texts* into runs of both bounds; one above *max_batch_tokens* is a batch of its own."""
    batch: dict[bytes, str] = {}
    tokens = 0
    for key, text in texts.items():
        cost = count_tokens(text)
        if batch and (len(batch) >= batch_size or tokens + cost > max_batch_tokens):
            yield batch
            batch, tokens = {}, 0
        batch[key] = text
        tokens += cost
    if batch:
        yield batch


# ── The reply ───────────────────────────────────────────────────────────────────────────


def read_rows(payload: Any, *, rows: int, dimensions: int, model: str) -> NDArray[np.float32]:
    """
    Unit rows ``(rows, dimensions)``, ordered by ``index``; numbers or base64 of float32.
    *Raises* ``InvalidReply``: one lacks, is of another width, zero or not finite.
    """
    entries = _entries(payload, rows, model)
    vectors = [_vector(entry.get("embedding"), model) for entry in entries]
    widths = {len(vector) for vector in vectors}
    if widths - {dimensions}:
        raise _wrong_width(widths, dimensions, model)
    return _unit(np.stack(vectors), model)


def _entries(payload: Any, rows: int, model: str) -> list[Mapping[str, Any]]:
    data = payload.get("data") if isinstance(payload, Mapping) else None
    if not isinstance(data, list) or not all(isinstance(entry, Mapping) for entry in data):
        raise _invalid(
            f"the reply of {model!r} has no list of embeddings: is base_url the address of an "
            "OpenAI-compatible server, up to and including /v1?"
        )
    if len(data) != rows:
        raise _invalid(
            f"{model!r} gave {len(data)} vectors for {rows} texts: give a smaller batch_size, "
            "if the server takes fewer texts at once"
        )
    return _in_order(data, model)


def _in_order(data: Sequence[Mapping[str, Any]], model: str) -> list[Mapping[str, Any]]:
    indexes = [entry.get("index") for entry in data]
    if not all(isinstance(index, int | None) for index in indexes):
        raise _invalid(f"an index of {model!r}'s vectors is no number")
    by_index = dict(zip(indexes, data, strict=True))
    if by_index.keys() == {None}:
        return list(data)
    if by_index.keys() != set(range(len(data))):
        raise _invalid(f"the indexes of {model!r}'s vectors are not those of its texts")
    return [by_index[i] for i in range(len(data))]


def _vector(given: Any, model: str) -> NDArray[np.float32]:
    try:
        vector = _unpacked(given) if isinstance(given, str) else _plain(given)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise _invalid(f"a vector of {model!r} cannot be read: {error}") from error
    if vector.ndim != 1:
        raise _invalid(
            f"{model!r} gave an array of shape {vector.shape} for one text, not a vector: "
            "set the server to pool its token vectors"
        )
    return vector


def _unpacked(packed: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(packed, validate=True), "<f4").astype(np.float32)


def _plain(numbers: Any) -> NDArray[np.float32]:
    # What overflows becomes infinite, and is refused as that.
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=np.float32)


def _unit(vectors: NDArray[np.float32], model: str) -> NDArray[np.float32]:
    # In double precision: the squares of large numbers leave float32.
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)):
        raise _invalid(f"{model!r} gave a vector with NaN or infinity in it: try again")
    if not np.all(lengths > 0):
        raise _invalid(f"{model!r} gave a vector of length zero: is it an embedding model?")
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
    return unit


def _wrong_width(widths: set[int], dimensions: int, model: str) -> InvalidReply:
    given = ", ".join(map(str, sorted(widths)))
    return _invalid(
        f"{model!r} gives vectors of {given} dimensions, but {dimensions} were expected: make "
        f"the embedder with dimensions={given}, or with send_dimensions=True if the model can "
        "shorten its vectors; a repository keeps the dimensions it was made with"
    )


def _invalid(message: str) -> InvalidReply:
    return InvalidReply(message, purpose="embed")


log: logging.Logger = logging.getLogger("mnemo")
T = TypeVar("T")

LEAST_TEXT_TOKENS = 32
"""Tokens below which a text is not cut further, however often a server says "too long"."""
INLINE_CHARACTERS = 50_000
"""Characters that are prepared on the event loop, in well under a millisecond; more off it."""
INLINE_NUMBERS = 20_000
"""Numbers of a reply that are read on the event loop; more off it."""
BYTES_PER_NUMBER = 32
"""Most bytes that a number takes in a reply, written out."""
WIDEST = 8_192
"""Numbers of a vector that are read even if fewer are expected, to say how many there are."""
SLACK_BYTES = 256 * 1024
"""Bytes of a reply besides its numbers, at most."""

REFUSALS = (400, 413, 422, 500)
"""Statuses with which servers refuse a text that is too long, or a field they do not know."""

_TOO_LONG = re.compile(
    r"context[ _]length|too (?:long|large|many tokens)|reduce the length"
    r"|(?:maximum|exceed|less than).{0,60}(?:tokens|length)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class EmbeddingUsage:
    """
    What an embedder has asked for so far.

    Attributes:
        calls: Requests that were sent, failed ones included.
        input_tokens: What the answers say was read, in the model's tokens.
        cost_usd: US dollars of that; ``None`` until a price is known.
    """

    calls: int = 0
    input_tokens: int = 0
    cost_usd: float | None = None


class OpenAIEmbedder(HttpModel):
    """
    An ``Embedder`` that asks ``POST {base_url}/embeddings``.

    Texts are sent in batches, side by side as far as *max_concurrency* lets them, and
    each only once as long as its vector is remembered. A text that is longer than
    *max_text_tokens*, or than the server turns out to take, counts with its beginning.
    A blank text is sent as one space. Nothing is opened before the first request.

    Args:
        base_url: Up to and including ``/v1``, e.g. ``"http://localhost:8000/v1"``.
        dimensions: Width of the model's vectors; another width is ``InvalidReply``.
        name: Of the space, stamped in the store; default: the model and its prefixes.
        dense_weight: See ``EmbeddingSpace``.
        send_dimensions: Ask the server for vectors of *dimensions* (of the models that
            can shorten theirs).
        batch_size: Texts per request, 1 to 2,048 (what OpenAI takes at most).
        max_batch_tokens: Tokens per request, by the service's count, at least 1; OpenAI takes
            300,000 of its own.
        max_text_tokens: Tokens of a text that are sent, likewise; OpenAI takes 8,191.
        query_prefix: Put before the texts of ``kind="query"``, as some models want it.
        document_prefix: Likewise for ``kind="document"``.
        cache_size: Vectors that are remembered, at least 0; each takes 4 bytes per dimension.
        prices: Model name → price; the cost of any other is ``None``.
        api_key, headers, timeout_s, max_retries, max_wait_s, max_concurrency,
            requests_per_minute, tokens_per_minute, transport: As for the chat models.

    Raises:
        ConfigError: An argument cannot be used.
    """

    @with_settings
    def __init__(
        self,
        base_url: str,
        model: str,
        dimensions: int,
        api_key: str | SecretStr | None = None,
        *,
        name: str | None = None,
        dense_weight: float = 1.0,
        send_dimensions: bool = False,
        batch_size: int = 64,
        max_batch_tokens: int = 100_000,
        max_text_tokens: int = 8_000,
        query_prefix: str = "",
        document_prefix: str = "",
        cache_size: int = 10_000,
        prices: Mapping[str, Price] | None = None,
        **http: Unpack[HttpSettings],
    ) -> None:
        if is_blank(model):
            raise ConfigError("model is blank: give the name that the server knows it by")
        super().__init__(Transport(base_url, api_key, **http), model, prices)
        self._prefixes = {"query": query_prefix, "document": document_prefix}
        prefixes = (query_prefix, document_prefix)
        self._space = EmbeddingSpace(
            # With other prefixes the vectors are not comparable.
            name or (f"{model} {prefixes!r}" if any(prefixes) else model),
            whole("dimensions", dimensions, least=1),
            number("dense_weight", dense_weight, least=0),
        )
        self._send_dimensions = send_dimensions
        self._packed = True
        self._batch_size = whole("batch_size", batch_size, least=1)
        self._max_batch_tokens = whole("max_batch_tokens", max_batch_tokens, least=1)
        self._max_text_tokens = whole("max_text_tokens", max_text_tokens, least=1)
        self._cache = VectorCache[bytes](whole("cache_size", cache_size, least=0))
        self._threads = Threads(2)
        self._usage = EmbeddingUsage()

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self._space.dimensions})"

    @property
    def space(self) -> EmbeddingSpace:
        """Its name and dimensions; known without asking the server."""
        return self._space

    @property
    def usage(self) -> EmbeddingUsage:
        """What was asked for so far."""
        return self._usage

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """
        Embed *texts*; shape ``(len(texts), d)``, unit rows.

        Raises:
            ModelError: Of the transport; ``InvalidReply`` for vectors that cannot be used.
                What other batches had brought by then is remembered.
                *Cancellation*: safe; the requests are dropped.
        """
        if kind not in self._prefixes:
            raise ValueError(f"kind must be 'document' or 'query', not {kind!r}")
        size = sum(map(len, texts))
        keys, sent = await self._aside(size > INLINE_CHARACTERS, self._prepared, texts, kind)
        rows = self._cache.found(keys)
        missing = {key: text for key, text in sent.items() if key not in rows}
        if missing:
            parts = await self._aside(size > INLINE_CHARACTERS, self._batched, missing)
            rows |= await self._all(parts)
        empty = np.empty((0, self._space.dimensions), np.float32)
        return np.stack([rows[key] for key in keys]) if keys else empty

    async def _aside(self, large: bool, work: Callable[..., T], *given: Any) -> T:
        """Do *work* off the event loop if it is *large*."""
        if not large:
            return work(*given)
        return await self._threads.run(work, *given)

    # ── Before a request ─────────────────────────────────────────────────────────────

    def _prepared(self, texts: Sequence[str], kind: str) -> tuple[list[bytes], dict[bytes, str]]:
        whole = (self._prefixes[kind] + text for text in texts)
        sent = [" " if is_blank(text) else clean(text) for text in whole]  # empty ones are refused
        keys = [key_of(text) for text in sent]
        return keys, dict(zip(keys, sent, strict=True))

    def _batched(self, texts: Mapping[bytes, str]) -> list[dict[bytes, str]]:
        short = {key: cut(text, self._max_text_tokens) for key, text in texts.items()}
        return list(
            batches(short, batch_size=self._batch_size, max_batch_tokens=self._max_batch_tokens)
        )

    # ── Requests ─────────────────────────────────────────────────────────────────────

    async def _all(self, parts: Sequence[Mapping[bytes, str]]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors of all *parts*, asked for side by side; the first error ends the others."""
        found: dict[bytes, NDArray[np.float32]] = {}
        errors: list[ModelError] = []

        async def ask(part: Mapping[bytes, str]) -> None:
            try:
                rows = await self._one(part)
            except ModelError as error:
                errors.append(error)
                group.cancel_scope.cancel()
            else:
                self._cache.keep(rows)
                found.update(rows)

        async with anyio.create_task_group() as group:
            for part in parts:
                group.start_soon(ask, part)
        if errors:
            raise errors[0]
        return found

    async def _one(self, part: Mapping[bytes, str]) -> dict[bytes, NDArray[np.float32]]:
        texts = list(part.values())
        answer = await self._transport.patiently(lambda: self._answer(texts), purpose="embed")
        large = len(texts) * self._space.dimensions > INLINE_NUMBERS
        rows = await self._aside(large, self._read, answer, len(texts))
        # Copies: a view would keep its whole batch in memory.
        return {key: row.copy() for key, row in zip(part, rows, strict=True)}

    def _read(self, answer: Any, rows: int) -> NDArray[np.float32]:
        dimensions = self._space.dimensions
        return read_rows(answer, rows=rows, dimensions=dimensions, model=self._model)

    async def _answer(self, texts: Sequence[str]) -> Any:
        """Try once, and at once again where the request can be made to suit the server."""
        longest, packed = self._max_text_tokens, self._packed
        while True:
            given = [cut(text, longest) for text in texts]
            try:
                answer = await self._sent(given, packed)
            except Failure as failure:
                half = max(map(count_tokens, given)) // 2
                refused = failure.text if failure.status in REFUSALS else ""
                if packed and "encoding_format" in refused:
                    packed = False
                elif half >= LEAST_TEXT_TOKENS and _TOO_LONG.search(refused):
                    longest = half
                else:
                    raise
            else:
                self._learn(longest, packed)
                return answer

    def _learn(self, longest: int, packed: bool) -> None:
        """Ask from now on as it has turned out to work."""
        self._packed = self._packed and packed
        if longest < self._max_text_tokens:
            log.warning("%r takes no longer texts: cutting them to %d tokens", self, longest)
            self._max_text_tokens = longest

    async def _sent(self, texts: list[str], packed: bool) -> Any:
        estimate = sum(map(count_tokens, texts))
        width = max(self._space.dimensions, WIDEST)
        self._usage = replace(self._usage, calls=self._usage.calls + 1)
        answer = await self._transport.send(
            "/embeddings",
            self._body(texts, packed),
            tokens=estimate,
            max_bytes=SLACK_BYTES + len(texts) * width * BYTES_PER_NUMBER,
        )
        self._count(estimate, answer)
        return answer

    def _body(self, texts: list[str], packed: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "input": texts}
        if packed:
            body["encoding_format"] = "base64"
        if self._send_dimensions:
            body["dimensions"] = self._space.dimensions
        return body

    def _count(self, estimate: int, answer: Any) -> None:
        told = answer if isinstance(answer, Mapping) else {}
        tokens = counted(told.get("usage"), "prompt_tokens")
        if tokens:
            self._transport.settle(estimate, tokens)
        usage = usage_of(self._model, told.get("model"), tokens, 0, 0, prices=self._prices)
        cost = usage.cost_usd
        before = self._usage
        self._usage = EmbeddingUsage(
            before.calls,
            before.input_tokens + tokens,
            before.cost_usd if cost is None else (before.cost_usd or 0.0) + cost,
        )

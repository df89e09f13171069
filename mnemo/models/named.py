"""Embedders by the names that users give them, and what is wrapped around each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Literal

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.errors import ConfigError, ModelError, ModelUnavailable
from mnemo.models.local import (
    LocalEmbedder,
    MiniLMEmbedder,
    MultilingualEmbedder,
    WordLlamaEmbedder,
    not_installed,
)
from mnemo.protocols import Embedder, EmbeddingSpace
from mnemo.runtime.spans import NO_SPANS, Spans, Value, model_attributes
from mnemo.runtime.user_code import called, foreign

EMBEDDERS: Mapping[str, type[LocalEmbedder]] = {
    "minilm": MiniLMEmbedder,
    "multilingual": MultilingualEmbedder,
    "static": WordLlamaEmbedder,
}
"""Name → class; the first is the default."""
_DEFAULT = "minilm"


def named_embedder(name: str) -> Embedder:
    """The embedder called *name*; nothing is loaded. *Raises* ``ConfigError``: there is none."""
    if name not in EMBEDDERS:
        names = ", ".join(f'"{one}"' for one in EMBEDDERS)
        raise ConfigError(f"there is no embedder {name!r}: give {names}, or an object to ask")
    return EMBEDDERS[name]()


def checked_models(
    chat_model: object, embedder: Embedder | str | None, clock: object = None
) -> Embedder | None:
    """
    The embedder, or that of its name.

    *Raises* ``ConfigError``: an argument is no such object; ``ModelUnavailable``: the one that is
    named is not installed.
    """
    if isinstance(embedder, str):
        name, embedder = embedder, named_embedder(embedder)
        if missing := _missing(name):
            raise not_installed(f"{missing}, which {name!r} needs,", EMBEDDERS[name].install)
    for argument, model, method, like in (
        ("chat_model", chat_model, "complete", "OpenAIChatModel(base_url, name)"),
        ("embedder", embedder, "embed", "OpenAIEmbedder(base_url, name, dimensions)"),
        ("clock", clock, "monotonic", "ManualClock()"),
    ):
        if model is None:
            continue
        is_class = isinstance(model, type)
        if is_class or not callable(getattr(model, method, None)):
            given = f"the class {model!r}" if is_class else f"a {type(model).__name__}"
            raise ConfigError(f"{argument} must be an object to ask, like {like}, not {given}")
    return embedder


def chosen_by_default(stored: EmbeddingSpace | None) -> str:
    """The installed embedder of space *stored*, or the default; else ``ModelUnavailable``."""
    name = _name_of(stored)
    if name is not None and not _missing(name):
        return name
    if stored is None and (missing := _missing(_DEFAULT)):
        raise not_installed(
            f"{missing}, which the default embedder needs,", EMBEDDERS[_DEFAULT].install
        )
    return _DEFAULT


class DefaultEmbedders:
    """The embedders of a service that was given none: one of each name, for all repositories."""

    def __init__(self) -> None:
        self._made: dict[str, Embedder] = {}

    def of(self, stored: EmbeddingSpace | None) -> Embedder:
        """That of the name ``chosen_by_default``. *Raises* likewise."""
        name = chosen_by_default(stored)
        if name not in self._made:
            self._made[name] = named_embedder(name)
        return self._made[name]


def way_to(stored: EmbeddingSpace) -> str:
    """How to come by an embedder of the space *stored*, in words."""
    name = _name_of(stored)
    if name is None:
        return "open it with the embedder it was made with"
    way = f'open it with embedder="{name}"'
    return f"{way} ({EMBEDDERS[name].install})" if _missing(name) else way


def _name_of(stored: EmbeddingSpace | None) -> str | None:
    if stored is None:
        return None
    spaces = {name: kind.space for name, kind in EMBEDDERS.items()}
    wanted = (stored.name, stored.dimensions)
    return next((n for n, s in spaces.items() if (s.name, s.dimensions) == wanted), None)


def _missing(name: str) -> str | None:
    """The first package that the embedder needs and that is not installed."""
    return next((one for one in EMBEDDERS[name].needs if find_spec(one) is None), None)


def traced(embedder: Embedder, spans: Spans) -> Embedder:
    """*embedder*, raising only ``ModelError``; a span per call if it names a ``provider``."""
    return _TracedEmbedder(embedder, spans if hasattr(embedder, "provider") else NO_SPANS)


class _TracedEmbedder:
    def __init__(self, embedder: Embedder, spans: Spans) -> None:
        self._embedder = embedder
        self._spans = spans
        self._named, self._name = dict[str, Value](), "embeddings"
        if spans.active:
            self._named = model_attributes("embeddings", embedder)
            self._named["gen_ai.embeddings.dimension.count"] = embedder.space.dimensions
            self._name += f" {self._named.get('gen_ai.request.model', embedder.space.name)}"

    @property
    def space(self) -> EmbeddingSpace:
        return self._embedder.space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        with self._spans.span(self._name, kind="client", attributes=self._named) as span:
            span.set("mnemo.embeddings.texts", len(texts))
            span.set("mnemo.embeddings.kind", kind)
            try:
                rows: NDArray[np.float32] = await called(self._embedder.embed, texts, kind=kind)
            except ModelError:
                raise
            except Exception as error:
                raise foreign("the embedder", error) from error
            return rows


class MovableEmbedder:
    """
    Passes everything on to an embedder that can be replaced, by *others* of another space.

    From ``hold`` to ``release`` it embeds no query, so that recall goes by keywords;
    documents wait for ``move_to`` (or ``release``) and are then embedded in the new space.
    """

    def __init__(
        self,
        embedder: Embedder,
        others: Callable[[EmbeddingSpace | None], Embedder],
    ) -> None:
        self._embedder, self._others = embedder, others
        self._settled: anyio.Event | None = None
        self._mute = False

    @property
    def space(self) -> EmbeddingSpace:
        """That of the embedder behind it at this moment."""
        return self._embedder.space

    def follow(self, space: EmbeddingSpace | None, check: Callable[[Embedder], None]) -> bool:
        """
        Move to that of *space*, where another process has moved to, if *check* raises nothing.

        False: it is there already, or between ``hold`` and ``release``.
        """
        if self._mute or self.space.is_like(space):
            return False
        other = self._others(space)
        check(other)
        self._embedder = other
        return True

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """
        Embed *texts*; shape ``(len(texts), d)``, unit rows. *Cancellation*: safe.

        Raises:
            ModelUnavailable: A query, while the space changes. Else as the one behind it.
        """
        if self._mute and kind == "query":
            raise ModelUnavailable("the repository changes its embedding space", retryable=True)
        if self._settled is not None:
            await self._settled.wait()
        return await self._embedder.embed(texts, kind=kind)

    def hold(self) -> None:
        """The space is about to change."""
        self._mute, self._settled = True, anyio.Event()

    def move_to(self, embedder: Embedder) -> None:
        """It has changed: documents are embedded by *embedder* from now on."""
        self._embedder = embedder
        self._let_go()

    def release(self) -> None:
        """What recall searches is of the present space again."""
        self._mute = False
        self._let_go()

    def _let_go(self) -> None:
        if self._settled is not None:
            self._settled.set()
            self._settled = None

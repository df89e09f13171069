"""The vectors that an index owes: their keys, and the texts as far as a bound allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice

from mnemo.values.passages import passage_place

MOST_CHARACTERS = 4_000_000
"""Of the texts that are held; those of other keys are read again when their turn comes."""


class Owed:
    """
    Keys of vectors that are to be made, in order of arrival, first passages before further ones.

    Each debt has a number, so that one that is made anew meanwhile is not taken for paid.
    """

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._further: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._characters = 0
        self._made = 0

    def __len__(self) -> int:
        return len(self._first) + len(self._further)

    def __contains__(self, key: str) -> bool:
        return key in self._first or key in self._further

    def add(self, texts: Mapping[str, str]) -> None:
        """Owe the vectors of *texts*, by key."""
        for key, text in texts.items():
            self._owe(key, text)

    def _owe(self, key: str, text: str | None) -> None:
        self.drop(key)
        self._made += 1
        self._of(key)[key] = self._made
        if text is not None and self._characters + len(text) <= MOST_CHARACTERS:
            self._texts[key] = text
            self._characters += len(text)

    def drop(self, key: str) -> None:
        """Owe *key* no more, if it was owed."""
        self._of(key).pop(key, None)
        self._characters -= len(self._texts.pop(key, ""))

    def rename(self, key: str, other: str) -> None:
        """Owe *other* what was owed to *key*."""
        if key in self:
            text = self.text(key)
            self.drop(key)
            self._owe(other, text)

    def text(self, key: str) -> str | None:
        """What the vector of *key* is made of, if it is held."""
        return self._texts.get(key)

    def oldest(self, most: int) -> dict[str, int]:
        """At most so many debts, those of first passages before all others: key → number."""
        return dict(islice(chain(self._first.items(), self._further.items()), most))

    def newest(self, most: int) -> dict[str, int]:
        """Likewise, the last ones first."""
        debts = chain(reversed(self._first.items()), reversed(self._further.items()))
        return dict(islice(debts, most))

    def among(self, keys: Iterable[str]) -> dict[str, int]:
        """The debts among *keys*, in their order."""
        return {key: number for key in keys if (number := self._of(key).get(key)) is not None}

    def paid(self, debts: Mapping[str, int]) -> None:
        """Drop *debts*, but for what is owed anew since."""
        for key, number in debts.items():
            if self._of(key).get(key) == number:
                self.drop(key)

    def _of(self, key: str) -> dict[str, int]:
        return self._further if passage_place(key)[1] else self._first

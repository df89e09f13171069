"""The vectors that documents of an index wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

from mnemo.index.columns import LISTED, TEXT, weight
from mnemo.values.graph import Node, Vector
from mnemo.values.vectors import passage_place

MOST_CHARACTERS = 4_000_000
"""Of the texts that are held; those of other keys are read again when their turn comes."""


class Group(Protocol):
    """Documents of one type."""

    ids: list[str]
    nodes: list[Node | None]

    def add_vectors(
        self, numbers: Sequence[int], passages: Sequence[int], vectors: Sequence[Vector]
    ) -> None:
        """Give documents vectors."""


@dataclass(slots=True, eq=False)
class Debt:
    """A vector that a document waits for; *paid*: it was made, and is to come with the feed."""

    group: Group
    number: int
    passage: int
    text: str | None
    paid: bool = False

    @property
    def node_id(self) -> str:
        """The node that the document speaks for."""
        return self.group.ids[self.number]


class Owed:
    """Key of a vector → its debt, in order of arrival, first passages before further ones."""

    def __init__(self) -> None:
        self._first: dict[str, Debt] = {}
        self._further: dict[str, Debt] = {}
        self._unpaid = 0
        self._characters = 0

    def __len__(self) -> int:
        return self._unpaid

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        each = 2 * TEXT + LISTED  # a key, the debt, its text's head
        return self._characters + weight(self._first, each) + weight(self._further, each)

    def items(self) -> Iterator[tuple[str, Debt]]:
        """All that wait, paid or not."""
        return chain(self._first.items(), self._further.items())

    def add(self, key: str, debt: Debt) -> None:
        """Owe the vector of *key*."""
        self.take(key)
        if debt.text is not None and self._characters + len(debt.text) > MOST_CHARACTERS:
            debt.text = None
        self._characters += len(debt.text or "")
        self._unpaid += 1
        self._of(key)[key] = debt

    def take(self, key: str) -> Debt | None:
        """Wait for *key* no more, if anything did; give what waited."""
        if (debt := self._of(key).get(key)) is not None:
            self.pay({key: debt})
            del self._of(key)[key]
        return debt

    def rename(self, key: str, other: str) -> None:
        """Owe *other* what was owed to *key*."""
        self._of(other)[other] = self._of(key).pop(key)

    def oldest(self, most: int) -> dict[str, Debt]:
        """At most so many unpaid debts, those of first passages before all others."""
        return dict(islice(((k, d) for k, d in self.items() if not d.paid), most))

    def newest(self, most: int) -> dict[str, Debt]:
        """Likewise, the last ones first."""
        debts = chain(reversed(self._first.items()), reversed(self._further.items()))
        return dict(islice(((k, d) for k, d in debts if not d.paid), most))

    def among(self, keys: Iterable[str]) -> dict[str, Debt]:
        """The unpaid debts among *keys*, in their order."""
        debts = ((key, self._of(key).get(key)) for key in keys)
        return {key: debt for key, debt in debts if debt is not None and not debt.paid}

    def pay(self, debts: Mapping[str, Debt]) -> None:
        """Owe *debts* no more, but for what is owed anew since."""
        for key, debt in debts.items():
            if self._of(key).get(key) is debt and not debt.paid:
                debt.paid = True
                self._unpaid -= 1
                self._characters -= len(debt.text or "")
                debt.text = None

    def _of(self, key: str) -> dict[str, Debt]:
        return self._further if passage_place(key)[1] else self._first

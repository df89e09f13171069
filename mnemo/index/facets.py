"""
Facets: the metadata of documents by key, so that conditions are looked up, not tried one by one.

Equal metadata objects share a number. A key's facet is made when the key is first asked
for, and then follows what is added.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.columns import Column
from mnemo.runtime.clock import Breather
from mnemo.values.filters import Condition, ScalarKind, Where, kind_of, members

MOST_FACETS = 64
"""Keys whose facets are kept, the last ones asked for."""
MOST_INSERTED = 64
"""New values that are put in their places one by one; more are sorted with all others."""
_KINDS: tuple[ScalarKind, ...] = ("text", "number", "boolean", "null")

Mask = NDArray[np.bool_]


class Facets:
    """
    The metadata objects of an index, numbered; 0 is the empty one.

    One writer adds; several readers ask, which wait for one another.
    """

    def __init__(self) -> None:
        self._objects: list[Mapping[str, Any]] = [{}]
        self._numbers = {"{}": 0}
        self._facets: dict[tuple[str, ...], _Facet] = {}
        self._lock = Lock()

    def number(self, metadata: Mapping[str, Any] | None) -> int:
        """The number of *metadata*, a JSON object; the same for an equal one."""
        if not metadata:
            return 0
        text = json.dumps(metadata, sort_keys=True)
        number = self._numbers.setdefault(text, len(self._objects))
        if number == len(self._objects):
            self._objects.append(metadata)
        return number

    def holding(self, where: Where) -> Mask:
        """By number, whether *where* holds; shape ``(n,)``, n all that are numbered by now."""
        with self._lock:
            count = len(self._objects)
            found = np.ones(count, np.bool_)
            for condition in where.conditions:
                found &= self._facet(condition.path, count).holding(condition, count)
            return found

    def _facet(self, path: tuple[str, ...], count: int) -> _Facet:
        facet = self._facets.pop(path, None) or _Facet(path)
        self._facets[path] = facet
        if len(self._facets) > MOST_FACETS:
            del self._facets[next(iter(self._facets))]
        facet.follow(self._objects, count)
        return facet


@dataclass(slots=True)
class _Order:
    """Values of one kind, ascending, and the number of each."""

    values: list[Any] = field(default_factory=list)
    numbers: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    fresh: list[tuple[Any, int]] = field(default_factory=list)

    def settle(self) -> None:
        """Put what is new in its place."""
        if len(self.fresh) <= MOST_INSERTED:
            for value, number in self.fresh:
                self.numbers = np.insert(self.numbers, bisect_left(self.values, value), number)
                insort(self.values, value)
        else:
            known = zip(self.values, self.numbers.tolist(), strict=True)
            pairs = sorted([*known, *self.fresh])
            self.values = [value for value, _ in pairs]
            self.numbers = np.array([number for _, number in pairs], np.intp)
        self.fresh = []

    def within(self, operator: str, operand: Any) -> NDArray[np.intp]:
        """The numbers of the values that stand so to *operand*."""
        side = bisect_left if operator in ("gte", "lt") else bisect_right
        at = side(self.values, operand)
        return self.numbers[at:] if operator in ("gt", "gte") else self.numbers[:at]


class _Facet:
    """What the metadata objects hold under one key."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        self._present = Column(np.bool_)
        # A row for each member: whose it is, and the number of its value.
        self._owners = Column(np.intp)
        self._members = Column(np.intp)
        self._values: dict[tuple[ScalarKind, Any], int] = {}
        self._kinds = Column(np.int8)
        self._orders = {kind: _Order() for kind in _KINDS}

    def follow(self, objects: Sequence[Mapping[str, Any]], count: int) -> None:
        """Read on, up to object number *count*."""
        breather = Breather()
        for number in range(self._present.count, count):
            found = members(objects[number], self._path)
            self._present.append(found is not None)
            for member in found or ():
                if (kind := kind_of(member)) is not None:
                    self._owners.append(number)
                    self._members.append(self._value(kind, member))
            breather.breathe()

    def _value(self, kind: ScalarKind, value: Any) -> int:
        number = self._values.setdefault((kind, value), len(self._values))
        if number == self._kinds.count:
            self._kinds.append(_KINDS.index(kind))
            if kind in ("text", "number"):
                self._orders[kind].fresh.append((value, number))
        return number

    def holding(self, condition: Condition, count: int) -> Mask:
        """By object number, whether *condition* holds."""
        present = self._present.view(count)
        if condition.exists is False:
            return ~present if condition.only_absence else np.zeros(count, np.bool_)
        found = present.copy()
        if condition.tests_members:
            found &= self._owned(self._accepted(condition), count)
        for operand in condition.unequal:
            alike = self._kinds.view() == _KINDS.index(_kind(operand))
            found &= self._owned(alike, count) & ~self._owned(self._equal((operand,)), count)
        return found

    def _owned(self, values: Mask, count: int) -> Mask:
        """The objects that have a member among *values*."""
        found = np.zeros(count, np.bool_)
        found[self._owners.view()[values[self._members.view()]]] = True
        return found

    def _equal(self, wanted: Sequence[Any]) -> Mask:
        found = np.zeros(len(self._values), np.bool_)
        for one in wanted:
            if (number := self._values.get((_kind(one), one))) is not None:
                found[number] = True
        return found

    def _accepted(self, condition: Condition) -> Mask:
        """The values that pass ``any_of`` and ``bounds``."""
        found = np.ones(len(self._values), np.bool_)
        if condition.any_of is not None:
            found = self._equal(condition.any_of)
        for operator, operand in condition.bounds:
            order = self._orders[_kind(operand)]
            order.settle()
            inside = np.zeros(len(self._values), np.bool_)
            inside[order.within(operator, operand)] = True
            found &= inside
        return found


def _kind(operand: Any) -> ScalarKind:
    """The kind of an operand, which is a scalar."""
    kind = kind_of(operand)
    assert kind is not None
    return kind

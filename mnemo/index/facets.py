"""
Facets: the metadata of documents by key, so that conditions are looked up, not tried one by one.

Equal metadata objects share a number. A key's facet is made when the key is first asked
for, and then follows what is added.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.columns import Column
from mnemo.runtime.clock import Breather
from mnemo.values.filters import BOUNDS, Condition, ScalarKind, Where, kind_of, members

MOST_FACETS = 64
"""Keys whose facets are kept, the last ones asked for."""

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


class _Facet:
    """What the metadata objects hold under one key."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        self._present = Column(np.bool_)
        # A row for each member: whose it is, and the number of its value.
        self._owners = Column(np.intp)
        self._members = Column(np.intp)
        # In the order of their numbers.
        self._values: dict[tuple[ScalarKind | None, Any], int] = {}

    def follow(self, objects: Sequence[Mapping[str, Any]], count: int) -> None:
        """Read on, up to object number *count*."""
        breather = Breather()
        for number in range(self._present.count, count):
            found = members(objects[number], self._path)
            self._present.append(found is not None)
            for member in found or ():
                if (kind := kind_of(member)) is not None:
                    self._owners.append(number)
                    value = self._values.setdefault((kind, member), len(self._values))
                    self._members.append(value)
            breather.breathe()

    def holding(self, condition: Condition, count: int) -> Mask:
        """By object number, whether *condition* holds."""
        present = self._present.view(count)
        if condition.exists is False:
            return ~present if condition.only_absence else np.zeros(count, np.bool_)
        found = present.copy()
        if condition.any_of is not None:
            found &= self._owned(self._equal(condition.any_of), count)
        if condition.bounds:
            inside = np.ones(len(self._values), np.bool_)
            for operator, operand in condition.bounds:
                inside &= self._compared(BOUNDS[operator], operand)
            found &= self._owned(inside, count)
        for operand in condition.unequal:
            alike = self._compared(lambda one, other: True, operand)
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
            if (number := self._values.get((kind_of(one), one))) is not None:
                found[number] = True
        return found

    def _compared(self, holds: Callable[[Any, Any], bool], operand: Any) -> Mask:
        """The values of the kind of *operand* that stand so to it."""
        kind, values = kind_of(operand), self._values
        stand = (one == kind and holds(value, operand) for one, value in values)
        return np.fromiter(stand, np.bool_, len(values))

"""Which facts are near each other: stored ones by the index, those of the changeset here."""

from __future__ import annotations

import numpy as np

from mnemo.commit.known import Known
from mnemo.graph.changeset import Changeset
from mnemo.graph.nodes import Semantic
from mnemo.runtime.clock import Breather

__all__ = ["Neighbours"]

_ROWS = 256
# Rounding of float32 must not turn "equal to the threshold" into "below".
_ROUNDING = 1e-6


class Neighbours:
    """For each new fact the stored ones and the earlier new ones near it, best first."""

    def __init__(self, changeset: Changeset, known: Known, *, threshold: float) -> None:
        facts = [node for node in changeset.nodes if isinstance(node, Semantic)]
        self._near = {fact.id: list(known.near.get(fact.id, ())) for fact in facts}
        self._add_earlier([f for f in facts if f.vector is not None], threshold - _ROUNDING)

    def of(self, id: str) -> list[str]:
        """Ids near the new fact *id*, best first; new ones may have been replaced since."""
        return [other for other, _ in sorted(self._near[id], key=lambda pair: -pair[1])]

    def _add_earlier(self, facts: list[Semantic], threshold: float) -> None:
        """Compare in blocks, so that many facts need no square of memory."""
        if len(facts) < 2:
            return
        rows = np.stack([fact.vector for fact in facts if fact.vector is not None])
        breather = Breather()
        for first in range(0, len(facts), _ROWS):
            breather.breathe()
            cosines = rows[first : first + _ROWS] @ rows[: first + _ROWS].T
            for i, j in zip(*np.nonzero(cosines >= threshold), strict=True):
                if j < first + i:
                    self._near[facts[first + i].id].append((facts[j].id, float(cosines[i, j])))

"""Time, chance, tasks and text, and settings of the whole process."""

from __future__ import annotations

import gc

THRESHOLDS = (5_000, 3, 10_000)
"""
Allocations until a young collection, young ones until a middle one, middle ones until a full
one (S). Sessions, commits and recall leave no cycles behind, so that no memory waits for it.
"""


def settle_collector() -> None:
    """
    Keep full garbage collections from stopping the event loop.

    A full collection stops every thread for as long as the heap is large: some 180 ms with
    64 open episodes. This collects once, takes everything that lives now out of later
    collections (``gc.freeze``), and makes those rare. Call it once, after opening the
    service and its repositories and before serving; it takes as long as one collection.

    It changes the whole process. Code that leaves many cycles behind keeps more memory
    until it is collected; ``gc.unfreeze`` and ``gc.set_threshold`` undo it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

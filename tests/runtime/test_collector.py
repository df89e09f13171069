"""The garbage collector as a service sets it."""

import gc
from collections.abc import Iterator

import pytest

from mnemo.runtime import settle_collector


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector of the test run is left as it was."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.long
def test_what_lives_is_taken_out_of_later_collections():
    """Everything alive is frozen, and collections of what comes later are rarer."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.collect()  # what other tests have left is none of what lives
    alive = len(gc.get_objects())
    settle_collector()
    assert gc.get_freeze_count() > alive // 2
    assert gc.get_threshold() > before


def test_cycles_made_before_are_collected_first():
    """What is garbage already is not frozen for ever."""
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    settle_collector()
    assert gc.collect() == 0

"""What is held in memory is bounded: what was used longest ago goes first."""

from collections.abc import Sequence

import numpy as np

from mnemo.runtime.budget import MemoryBudget


class Held:
    """Something that holds; *busy*: it lets go of nothing."""

    def __init__(self) -> None:
        self.busy = False
        self.gone = 0

    def let_go(self) -> bool:
        """Count it."""
        self.gone += not self.busy
        return not self.busy


def test_what_was_used_longest_ago_goes_first():
    """Before it what nobody has used since it was read; no more than has to."""
    budget, held = MemoryBudget(100), [Held() for _ in range(5)]
    for one in held[:4]:
        budget.hold(one, 25)
    for one in (held[0], held[1], held[2], held[0]):
        budget.use(one)
    held[4].busy = True
    budget.hold(held[4], 20)
    assert [one.gone for one in held] == [0, 0, 0, 1, 0]
    assert budget.bytes == 95
    budget.use(held[4])
    budget.hold(held[4], 40)
    assert [one.gone for one in held] == [0, 1, 0, 1, 0]
    budget.hold(held[3], 10)
    assert budget.bytes == 100
    assert [one.gone for one in held] == [0, 1, 0, 1, 0]


def test_what_is_in_use_stays_however_large_it_is():
    """It goes when the next one is read."""
    budget, large, small = MemoryBudget(100), Held(), Held()
    large.busy = True
    budget.hold(large, 1_000)
    assert (large.gone, budget.bytes) == (0, 1_000)
    large.busy = False
    small.busy = True
    budget.hold(small, 50)
    assert (large.gone, budget.bytes) == (1, 50)


def test_what_is_dropped_counts_no_more():
    """However often, and what was never held."""
    budget, one = MemoryBudget(100), Held()
    budget.use(one)
    budget.drop(one)
    budget.hold(one, 60)
    budget.hold(one, 70)
    budget.use(one)
    budget.drop(one)
    budget.drop(one)
    assert (budget.bytes, one.gone) == (0, 0)


def readings(order: Sequence[int]) -> list[int]:
    """How much is held after indexes were read in *order*, of at most three at once."""
    budget, held = MemoryBudget(3), [Held() for _ in range(6)]
    for number in order:
        budget.hold(held[number], 1)
        budget.use(held[number])
    return [budget.bytes, len(set(order[-3:]))]


def test_no_order_of_use_holds_more():
    """Whatever is read how often."""
    for seed in range(200):
        order = np.random.default_rng(seed).integers(0, 6, 20).tolist()
        bytes_held, at_least = readings(order)
        assert at_least <= bytes_held <= 3

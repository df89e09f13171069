"""The search for near vectors finds what comparing all with all finds."""

from collections.abc import Iterator

import numpy as np
import pytest
from helpers import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mnemo.maintenance import near_pairs as near
from mnemo.maintenance.near_pairs import NEIGHBOURS, Neighbourhood
from mnemo.values.vectors import COSINE_ROUNDING

Pairs = dict[tuple[int, int], float]
NEVER_CROWDED = 1_000_000


@pytest.fixture(autouse=True)
def small_numbers() -> Iterator[None]:
    """Sizes at which few vectors are many: bounds, tiles and crowds are met."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "SMALL", 0)
        patch.setattr(near, "COARSE", 5)
        patch.setattr(near, "_COLUMNS", 128)
        patch.setattr(near, "_EXACT", 50)
        patch.setattr(near, "_FEW", near._FEW)
        yield


def vectors(seed: int, count: int, clusters: int, spread: float) -> NDArray[np.float32]:
    """Unit rows around some centres."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(clusters, 32))[random.integers(0, clusters, count)]
    rows = rows + spread * random.normal(size=rows.shape)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def found(hood: Neighbourhood, count: int, band: int) -> tuple[Pairs, set[int]]:
    pairs: Pairs = {}
    truncated: set[int] = set()
    for first in range(0, count, band):
        part = hood.near(np.arange(first, min(first + band, count)))
        ends = zip(part.left.tolist(), part.right.tolist(), strict=True)
        pairs |= dict(zip(ends, part.cosines.tolist(), strict=True))
        truncated |= set(part.truncated.tolist())
    return pairs, truncated


def expected(rows: NDArray[np.float32], threshold: float) -> tuple[Pairs, set[int]]:
    whole = rows.astype(np.float64) @ rows.astype(np.float64).T
    # So near to the threshold, what single precision makes of it is not the same everywhere.
    assume(np.all(np.abs(whole - threshold) > 2 * COSINE_ROUNDING))
    pairs: Pairs = {}
    truncated = set()
    for i in range(len(rows)):
        later = [j for j in range(i + 1, len(rows)) if whole[i, j] > threshold]
        later.sort(key=lambda j: -whole[i, j])
        pairs |= {(i, j): whole[i, j] for j in later[:NEIGHBOURS]}
        truncated |= {i} if len(later) > NEIGHBOURS else set()
    return pairs, truncated


def by_left(pairs: Pairs) -> dict[int, list[float]]:
    grouped: dict[int, list[float]] = {}
    for (i, _), cosine in pairs.items():
        grouped.setdefault(i, []).append(cosine)
    return {i: sorted(cosines) for i, cosines in grouped.items()}


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 300),
    clusters=st.integers(1, 60),
    spread=st.sampled_from([0.1, 0.3, 0.6]),
    threshold=st.sampled_from([0.6, 0.85, 0.95]),
    few=st.sampled_from([0, 40, NEVER_CROWDED]),
)
def test_no_pair_is_missed_and_none_is_invented(seed, count, clusters, spread, threshold, few):
    """Whether tiles are crowded or not, and however the bands fall."""
    near._FEW = few
    rows = vectors(seed, count, clusters, spread)
    order = np.random.default_rng(seed).permutation(count)
    hood = Neighbourhood(rows, order, threshold=threshold)
    pairs, truncated = found(hood, count, band=70)
    wanted, crowded = expected(rows[order], threshold)
    assert truncated >= crowded
    if few == NEVER_CROWDED:
        assert (pairs.keys(), truncated) == (wanted.keys(), crowded)
    # Of many that are equally near to five places, any may be among the nearest.
    mine, theirs = by_left(pairs), by_left(wanted)
    assert mine.keys() == theirs.keys()
    for i, cosines in mine.items():
        assert cosines == pytest.approx(theirs[i], abs=2e-5)


@pytest.mark.parametrize("few", [0, NEVER_CROWDED])
def test_what_was_dropped_is_found_no_more(few):
    """Not as a later neighbour, in crowded tiles or others."""
    near._FEW = few
    rows = vectors(3, 60, 1, 0.01)
    hood = Neighbourhood(rows, np.arange(60), threshold=0.5)
    hood.drop(np.arange(20, 60))
    pairs, _ = found(hood, 20, band=20)
    assert pairs
    assert all(j < 20 for _, j in pairs)


def test_some_places_are_asked_for_alone():
    """The places need not follow one another."""
    rows = vectors(5, 200, 10, 0.1)
    hood = Neighbourhood(rows, np.arange(200), threshold=0.85)
    whole, _ = found(hood, 200, band=200)
    part = hood.near(np.array([3, 90, 199]))
    ends = set(zip(part.left.tolist(), part.right.tolist(), strict=True))
    assert ends == {pair for pair in whole if pair[0] in (3, 90, 199)}


def test_a_cosine_at_the_threshold_is_not_above_it():
    """Equal vectors have a cosine of 1, which does not exceed 1."""
    rows = np.repeat(np.eye(8, dtype=np.float32)[:1], 4, axis=0)
    assert found(Neighbourhood(rows, np.arange(4), threshold=1.0), 4, band=4)[0] == {}
    assert len(found(Neighbourhood(rows, np.arange(4), threshold=0.99), 4, band=4)[0]) == 6

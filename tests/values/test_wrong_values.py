"""Values from outside that are of the wrong shape are refused by name, before anything is done."""

from typing import Any

import pytest

from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.checkpoints import CheckpointHead, checked_head
from mnemo.values.graph import Semantic, Tag
from mnemo.values.strategies import Composite, Nearest, Recent


@pytest.mark.parametrize(
    "given",
    [
        {"nodes": [5]},
        {"edges": ["a"]},
        {"changes": [5]},
        {"changes": [NodeChange("a", 5)]},  # type: ignore[arg-type]
        {"metadata": 5},
        {"metadata": {"a": 5}},
        {"replaces": 5},
        {"replaces": {"a": 5}},
        {"nodes": [Tag(5)]},  # type: ignore[arg-type]
        {"nodes": [Semantic("A fact.", vector="v")]},  # type: ignore[arg-type]
    ],
)
def test_a_changeset_of_other_values_is_refused(given: dict[str, Any]):
    """As a ``ValueError``, whatever stands in it."""
    with pytest.raises(ValueError, match="must be"):
        Changeset(**given).check_storable()


@pytest.mark.parametrize(
    "given", [{"versions": ["a"]}, {"versions": None}, {"deltas": 5}, {"deltas": "ab"}]
)
def test_a_head_of_other_values_is_refused(given: dict[str, Any]):
    """Versions are a mapping, and deltas are several names."""
    with pytest.raises(ValueError, match="must be"):
        checked_head(CheckpointHead(thread_id="t", id="1", type="x", data=b"", **given))


@pytest.mark.parametrize("weights", [5, "ab", [1], [1, 0], [1, float("nan")], ["1", "2"]])
def test_weights_that_are_none_are_refused(weights: Any):
    """There is one above 0 for each strategy."""
    with pytest.raises(ValueError, match="weight"):
        Composite(Recent(), Nearest(), weights=weights)

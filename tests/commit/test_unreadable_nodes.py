"""What is applied from outside can be read again, or is refused before anything is written."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from mnemo import Changeset, Edit, Episodic, Intent, MetadataDelta, Mnemo, NodeChange, Semantic
from mnemo.testing import HashingEmbedder

FACT = "Ada lives in Oslo."
NAIVE = datetime(2024, 1, 1)


def _fact(**fields: Any) -> Changeset:
    return Changeset((Semantic(FACT, id="new", **fields),))


@pytest.mark.parametrize(
    "changeset",
    [
        _fact(valid_from=NAIVE),
        _fact(valid_from="2024-01-01"),
        _fact(created_at=NAIVE),
        _fact(superseded_by=5),
        _fact(metadata={"a": "x\0"}),
        _fact(metadata={"a": {1, 2}}),
        _fact(edits=("x",)),
        _fact(edits=(Edit("today"),)),  # type: ignore[arg-type]
        Changeset((Episodic("Ada", id="new", state=5),)),  # type: ignore[arg-type]
        Changeset((Episodic("Ada", id="new", step_index="x"),)),  # type: ignore[arg-type]
        Changeset((Episodic("Ada", id="new", session_id="x" * 600),)),
        Changeset((Intent("go", id="new", wordings=("x",)),)),  # type: ignore[arg-type]
        Changeset(changes=(NodeChange("old", {"valid_to": NAIVE}),)),
        Changeset(changes=(NodeChange("old", {"confidence": "high"}),)),
        Changeset(changes=(NodeChange("old", {"proposition": 5}),)),
        Changeset(metadata={"old": MetadataDelta(support_count=2**70)}),
        Changeset(metadata={"old": MetadataDelta(cumulative_reward="x")}),  # type: ignore[arg-type]
        Changeset(metadata={"old": MetadataDelta(cumulative_reward=float("nan"))}),
        Changeset(metadata={"old": MetadataDelta(support_count=-(2**70))}),
        Changeset(metadata={"old": MetadataDelta(support_count=True)}),
        Changeset(metadata={"old": MetadataDelta(support_count=1.0)}),  # type: ignore[arg-type]
        Changeset(metadata={"old": MetadataDelta(support_count=-2)}),
        Changeset(metadata={"old": MetadataDelta(reward_count=-1)}),
        Changeset(metadata={"old": MetadataDelta(cumulative_reward=-0.1)}),
        replace(_fact(), metadata={"new": MetadataDelta(support_count=-1)}),
    ],
)
async def test_a_node_that_could_not_be_read_again_is_refused(changeset):
    """As a ``ValueError``; what was there is there, and nothing in the store is damaged."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        old = Semantic("Bo lives in Bern.", id="old", created_at=NAIVE.replace(tzinfo=UTC))
        await repo.apply(Changeset((old,)))
        with pytest.raises(ValueError, match=r"\S"):
            await repo.apply(changeset)
        assert await repo.get_node("new") is None
        assert await repo.get_node("old") == old
        assert (await memory.check()).problems == ()


async def test_a_negative_difference_is_added_where_the_sum_is_not(open_kit):
    """Also from NumPy; 0.3 - 0.1 - 0.2, which floats make a little less than 0, is 0."""
    kit = await open_kit()
    await kit.repo.apply(Changeset((Semantic(FACT, id="old"),)))
    for reward, count in [(0.3, np.int64(2)), (-0.1, np.int32(-1))]:
        delta = MetadataDelta(cumulative_reward=reward, reward_count=count)
        await kit.repo.apply(Changeset(metadata={"old": delta}))
    last = MetadataDelta(cumulative_reward=-0.2, reward_count=-1, support_count=np.int64(-1))
    changeset = Changeset(metadata={"old": last}, id="last")
    first = await kit.repo.apply(changeset)
    assert await kit.repo.apply(changeset) == first
    counts = (await kit.repo.get_metadata(["old"]))["old"]
    assert (counts.cumulative_reward, counts.reward_count, counts.support_count) == (0, 0, 0)
    assert {type(counts.reward_count), type(counts.support_count)} == {int}
    assert (await kit.memory.check()).problems == ()

"""``mnemo.Semantic`` is a fact and a retrieval strategy, as two pages of the surface say."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest

import mnemo
from mnemo.transcript import strategies


def test_a_text_makes_a_fact():
    """With a proposition it is a node, which can be copied, pickled and replaced."""
    fact = mnemo.Semantic("The pier is closed.", confidence=0.9)
    assert isinstance(fact, mnemo.Semantic)
    assert isinstance(mnemo.Semantic(proposition="It rains."), mnemo.Semantic)
    for again in (copy.deepcopy(fact), pickle.loads(pickle.dumps(fact)), replace(fact)):
        assert again == fact


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: mnemo.Semantic(2), strategies.Semantic(2)),
        (lambda: mnemo.Semantic(), strategies.Semantic()),
        (lambda: mnemo.Semantic(k=3, max_index_size=9), strategies.Semantic(3, 9)),
    ],
)
async def test_a_number_makes_a_strategy(made, expected):
    """As ``Semantic(k)`` it is what a conversation takes for its retrieval."""
    assert made() == expected
    async with mnemo.Mnemo("memory:") as memory:
        repo = await memory.open_repo("r")
        talk = repo.conversation("t", retrieval=mnemo.Composite(mnemo.Recent(1), made()))
        await talk.append({"role": "user", "content": "hello"})
        assert [message.text for message in await talk.load(query="hello")] == ["hello"]


def test_a_strategy_out_of_range_is_refused():
    """The strategy's own checks hold under this name, too."""
    with pytest.raises(ValueError, match="k must be"):
        mnemo.Semantic(0)

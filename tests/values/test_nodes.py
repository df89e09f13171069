"""Nodes of the graph as values."""

import copy
import pickle
from dataclasses import replace

import mnemo


def test_a_fact_can_be_copied_pickled_and_replaced():
    """A node survives each of them unchanged."""
    fact = mnemo.Semantic("The pier is closed.", confidence=0.9)
    assert mnemo.Semantic(proposition="It rains.").text == "It rains."
    for again in (copy.deepcopy(fact), pickle.loads(pickle.dumps(fact)), replace(fact)):
        assert again == fact

"""The value function: what a candidate is worth, before its mode's weight."""

from __future__ import annotations

import math
from datetime import datetime

from mnemo.config import ScoringConfig, TypeScoring
from mnemo.graph.metadata import NodeMetadata
from mnemo.graph.nodes import Node, NodeType
from mnemo.protocols import ValueFunction

__all__ = ["NudgedRelevance", "parameters_of", "value_function"]


class NudgedRelevance:
    """
    Relevance, nudged by recency, frequency and reward, lessened by the penalty.

    ``relevance · R^a · F^b · W^c · (1 - penalty)`` with a, b, c of *scoring*. Under
    the defaults the three factors together lie between 0.62 and 1.04: a candidate
    more than 1.7 times as relevant as another is never overtaken by it.
    """

    def __init__(self, scoring: ScoringConfig) -> None:
        self._scoring = scoring

    def __call__(
        self,
        relevance: float,
        node: Node,
        metadata: NodeMetadata | None,
        parameters: TypeScoring,
        now: datetime,
    ) -> float:
        scoring = self._scoring
        fresh = recency(node, metadata, parameters, now, scoring.recency_floor)
        nudges = (
            math.pow(fresh, scoring.recency_weight)
            * math.pow(frequency(metadata, parameters), scoring.frequency_weight)
            * math.pow(reward(metadata, parameters), scoring.reward_weight)
        )
        return relevance * nudges * (1 - (metadata.penalty if metadata else 0.0))


def value_function(scoring: ScoringConfig) -> ValueFunction:
    """The one that *scoring* names, or the shipped one."""
    chosen: ValueFunction = scoring.value_function or NudgedRelevance(scoring)
    return chosen


def parameters_of(scoring: ScoringConfig, type: NodeType) -> TypeScoring:
    """The row of *type*; a type without one has the row of facts."""
    row: TypeScoring = getattr(scoring, type, scoring.semantic)
    return row


def recency(
    node: Node,
    metadata: NodeMetadata | None,
    parameters: TypeScoring,
    now: datetime,
    floor: float,
) -> float:
    """Falls by the hour since the last access, else since creation; 1 if neither is known."""
    since = node.created_at
    if metadata is not None:
        since = metadata.last_accessed_at or metadata.created_at
    if since is None:
        return 1.0
    hours = max((now - since).total_seconds() / 3600, 0.0)
    return max(floor, math.exp(-parameters.lambda_per_hour * hours))


def frequency(metadata: NodeMetadata | None, parameters: TypeScoring) -> float:
    """Rises from the first access, towards 1."""
    accesses = metadata.access_count if metadata else 0
    floor = parameters.base_floor
    return floor + (1 - floor) * accesses / (accesses + parameters.k)


def reward(metadata: NodeMetadata | None, parameters: TypeScoring) -> float:
    """Above 1 for good mean rewards, below for bad ones, 1 for unknown."""
    mean = metadata.mean_reward if metadata else None
    if mean is None:
        return 1.0
    return 2 / (1 + math.exp(-parameters.beta * (mean - 0.5)))

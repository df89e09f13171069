"""
The value function: relevance nudged by recency, frequency and reward, and the decay score.

Recall multiplies relevance by the factors; maintenance decides by them alone what decays.
"""

from __future__ import annotations

import math
from datetime import datetime
from functools import partial
from typing import Any

from mnemo.config import ScoringConfig, TypeScoring
from mnemo.protocols import ValueFunction
from mnemo.recall.candidate import Explanation
from mnemo.runtime.user_code import call
from mnemo.values.graph import Node, NodeMetadata, NodeType


def parameters_of(scoring: ScoringConfig, type: NodeType) -> TypeScoring:
    """Return the parameters of *type*; those of facts where it has none."""
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


def decay_score(
    node: Node, metadata: NodeMetadata | None, parameters: TypeScoring, now: datetime
) -> float:
    """
    Return the score that keeps a node: the product of its factors, less the penalty.

    Without a floor: what nobody asks for comes to nothing, however slowly. Never
    accessed and never rewarded, under the defaults: 0.29 after a day, 0.1 after 46.
    """
    used = recency(node, metadata, parameters, now, 0.0) * frequency(metadata, parameters)
    penalty = metadata.penalty if metadata else 0.0
    return used * reward(metadata, parameters) * (1 - penalty)


def nudged_relevance(
    scoring: ScoringConfig,
    relevance: float,
    node: Node,
    metadata: NodeMetadata | None,
    parameters: TypeScoring,
    now: datetime,
) -> float:
    """
    Relevance, nudged by recency, frequency and reward, lessened by the penalty.

    ``relevance · R^a · F^b · W^c · (1 - penalty)`` with a, b, c of *scoring*. Under
    the defaults the three factors together lie between 0.62 and 1.04: a candidate
    more than 1.7 times as relevant as another is never overtaken by it.
    """
    fresh = recency(node, metadata, parameters, now, scoring.recency_floor)
    nudges = (
        math.pow(fresh, scoring.recency_weight)
        * math.pow(frequency(metadata, parameters), scoring.frequency_weight)
        * math.pow(reward(metadata, parameters), scoring.reward_weight)
    )
    return relevance * nudges * (1 - (metadata.penalty if metadata else 0.0))


def explained(
    scoring: ScoringConfig, node: Node, metadata: NodeMetadata | None, now: datetime, **given: Any
) -> Explanation:
    """What made its relevance, as *given*, and with what the value function nudged that."""
    parameters = parameters_of(scoring, node.type)
    return Explanation(
        recency=recency(node, metadata, parameters, now, scoring.recency_floor),
        frequency=frequency(metadata, parameters),
        reward=reward(metadata, parameters),
        penalty=metadata.penalty if metadata else 0.0,
        **given,
    )


def value_function(scoring: ScoringConfig) -> ValueFunction:
    """Return the value function of *scoring*, or the default one."""
    given: ValueFunction | None = scoring.value_function
    return partial(call, given) if given else partial(nudged_relevance, scoring)

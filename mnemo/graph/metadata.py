"""What is counted about a node, apart from what it says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

__all__ = ["MetadataDelta", "NodeMetadata", "united_confidence"]

MOST_CONFIDENT = 0.99
"""Confidence that repeated statements approach; nothing said is certain."""


def united_confidence(*stated: float) -> float:
    """The confidence of a fact that was stated with each of *stated*, in [0, 1]."""
    doubt = math.prod(1 - confidence for confidence in stated)
    return max(*stated, min(MOST_CONFIDENT, 1 - doubt))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetadata:
    """
    The stored counts of one node.

    Attributes:
        created_at: The node's own, aware.
        last_accessed_at: Last time a recall returned it; ``None`` is never.
        access_count: How often a recall returned it.
        cumulative_reward: Sum of *reward_count* rewards, each in [0, 1].
        reward_count: Rewards known; unknown ones are never counted.
        support_count: Episodes that stated it.
        penalty: From validation, in [0, 1).
    """

    created_at: datetime
    last_accessed_at: datetime | None = None
    access_count: int = 0
    cumulative_reward: float = 0.0
    reward_count: int = 0
    support_count: int = 0
    penalty: float = 0.0

    @property
    def mean_reward(self) -> float | None:
        """The mean of the known rewards; ``None`` if there is none."""
        return self.cumulative_reward / self.reward_count if self.reward_count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDelta:
    """A difference to be added to a node's stored counts; never overwrites them."""

    cumulative_reward: float = 0.0
    reward_count: int = 0
    support_count: int = 0

    def __add__(self, other: MetadataDelta) -> MetadataDelta:
        return MetadataDelta(
            cumulative_reward=self.cumulative_reward + other.cumulative_reward,
            reward_count=self.reward_count + other.reward_count,
            support_count=self.support_count + other.support_count,
        )

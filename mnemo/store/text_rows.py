"""The numbers of texts in the full text of a repository."""

from __future__ import annotations

__all__ = ["message_row", "snapshot_row", "step_row"]


def step_row(ordinal: int, side: int) -> int:
    """The row of a step's half: *side* 0 is the observation, 1 the action."""
    return 4 * ordinal + side


def message_row(no: int) -> int:
    """The row of a message."""
    return 4 * no + 2


def snapshot_row(no: int) -> int:
    """The row of a snapshot."""
    return 4 * no + 3

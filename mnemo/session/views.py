"""The public values of a session: receipts, context and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mnemo.prompts.usage import How, ModelUsage
from mnemo.protocols import Purpose
from mnemo.values.journal import SessionState


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReceipt:
    """
    The receipt of a commit.

    Attributes:
        status: ``committed``, or ``retrying`` where a failed extraction was started again.
        node_ids: Ids that exist afterwards, created or changed; never replaced ones.
        revision: The repository's revision that shows them.
        changeset_id: The changeset that was applied; ``None`` while retrying.
        left_out: Facts of the episode that ``config.extraction.max_facts`` left out.
    """

    status: Literal["committed", "retrying"]
    node_ids: tuple[str, ...] = ()
    revision: int = 0
    changeset_id: str | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """
    The context of a session for its agent's prompt.

    Attributes:
        steps: The last five durable steps as ``"observation -> action"``, in order.
    """

    goal: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """
    Levels and costs of one session.

    Attributes:
        steps: Durable steps of the present episode.
        pending_operations: Operations that wait in the queue.
        append_backlog: Durable steps that wait for annotation.
        running_workers: Trajectories being extracted.
        model_calls: Since the session was opened, failed and corrective ones included; so
            the tokens and the cost.
        cost_usd: ``None`` where no price is known.
        usage: Purpose → what its calls cost.
        stages: Stage → ``model``, ``embedded`` or ``failed`` → how often it ran so.
        left_out: Facts that ``config.extraction.max_facts`` left out since it was opened.
        queue: Names of the operations that have not ended, in the order in which they run;
            the first may have begun.
    """

    state: SessionState
    steps: int
    pending_operations: int
    append_backlog: int
    running_workers: int
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    cached_tokens: int = 0
    usage: Mapping[Purpose, ModelUsage] = field(default_factory=dict)
    stages: Mapping[str, Mapping[How, int]] = field(default_factory=dict)
    left_out: int = 0
    queue: tuple[str, ...] = ()

"""The dependencies of a session, given by its repository."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from mnemo.config import Config
from mnemo.events import Event
from mnemo.log.sessions import StoredSessions
from mnemo.prompts.usage import How, ModelUsage, UsageMeter
from mnemo.protocols import Applied, Clock, Purpose
from mnemo.runtime.bus import EventBus
from mnemo.runtime.spans import NO_SPANS, Spans, Value
from mnemo.runtime.tasks import TaskRoot
from mnemo.runtime.transactions import confirmed
from mnemo.runtime.user_code import traceback_of
from mnemo.values.changeset import Changeset
from mnemo.values.journal import Act, Journal, Owner, SessionState, Settlement
from mnemo.values.steps import Annotation, Step, Trajectory

log: logging.Logger = logging.getLogger("mnemo")


class Extraction(Protocol):
    """The stages of one session; ``mnemo.extraction.pipeline`` has them, loaded at first use."""

    @property
    def batch_size(self) -> int:
        """Steps per ``annotate``, at most."""

    @property
    def embedded(self) -> bool:
        """Whether no model is asked, so that this process computes."""

    async def annotate(
        self, *, goal: str, known: Sequence[Step], fresh: Sequence[Step], closing: bool
    ) -> list[Annotation]:
        """Annotate *fresh*. *Raises* ``ModelError`` with nothing annotated."""

    async def extract(self, trajectory: Trajectory) -> Changeset:
        """Distil a trajectory. *Raises* ``ModelError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """
    The seams of one session.

    Attributes:
        commit: Writes a changeset and what it does to the session, in one transaction. Raises
            ``CommitFailed`` with nothing written, ``Conflict`` for a lost owner.
        extraction: Gives the stages, with the chat model or without one, built at first use;
            *meter* counts what they ask.
        spawn: Starts a task that the service owns; what it does is no part of any trace
            that the caller is in.
        written: Called after an act that indexes follow: steps, a discard, a commit.
        ended: Called once, when the session has ended.
        extracted_elsewhere: Has its closed episode be extracted by a worker, and gives the
            journal with the outcome; ``None``: it is extracted here. Raises ``ExtractionFailed``
            where that was given up, ``SessionClosed`` where another process has gone on.
        closed_above: Says that the repository or the service is closed; ``None``: neither is.
        preceding: Steps before those of its episodes, for their annotation and extraction.
    """

    repo_id: str
    session_id: str
    store: StoredSessions
    owner: Owner
    clock: Clock
    config: Config
    commit: Callable[[Changeset, Settlement], Awaitable[Applied]]
    extraction: Callable[[bool], Extraction]
    meter: UsageMeter
    bus: EventBus[Event]
    spawn: Callable[..., None]
    root: TaskRoot
    written: Callable[[], None]
    ended: Callable[[], object]
    closed_above: Callable[[], str | None]
    spans: Spans = NO_SPANS
    extracted_elsewhere: Callable[[], Awaitable[Journal]] | None = None
    preceding: tuple[Step, ...] = ()

    @property
    def named(self) -> dict[str, Value]:
        """The attributes of every span of the session."""
        return {"mnemo.repo.id": self.repo_id, "mnemo.session.id": self.session_id}

    def tell(self, kind: Callable[..., Event], /, **facts: Any) -> None:
        """Publish an event of the session, if anybody listens."""
        if self.bus.listeners:
            of = {"repo_id": self.repo_id, "session_id": self.session_id}
            self.bus.publish(kind(at=self.clock.now(), **of, **facts))

    async def record(self, act: Act) -> bool:
        """Write *act*; True, once it is durable. *Raises* ``StoreError``."""
        await self.store.record(act, self.owner)
        return True

    async def record_again(self, act: Act) -> None:
        """Write an act that may be written twice; a second time if the store fails the first."""
        write = partial(self.record, act)
        await confirmed(write, write)


def log_unexpected(error: Exception, what: str) -> None:
    """Log that *what* failed with *error*, unless it is one of mnemo's, which its caller gets."""
    if traceback_of(error) is not None:
        log.error("%s failed", what, exc_info=error)


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

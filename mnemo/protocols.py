"""
Every replaceable part, on one page.

What the parts hand to each other is here or in ``values``.
Fakes of all of them are in ``mnemo.testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mnemo.config import TypeScoring
from mnemo.events import Event
from mnemo.values.chat import ChatMessage, ChatReply, ChatRequest, EmbeddingSpace, Purpose, Usage
from mnemo.values.derived import SummaryRequest
from mnemo.values.feed import FeedChanges, FeedCursor
from mnemo.values.graph import Node, NodeMetadata
from mnemo.values.journal import Applied, GraphWrite, StoreReport
from mnemo.values.steps import Annotated, AnnotationRequest, Fact, Instruction, Trajectory

__all__ = [
    "Annotated",
    "AnnotationRequest",
    "Annotator",
    "Applied",
    "ChatMessage",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Clock",
    "Embedder",
    "EmbeddingSpace",
    "FeedChanges",
    "FeedCursor",
    "GraphWrite",
    "Observer",
    "ProceduralExtractor",
    "Purpose",
    "SemanticExtractor",
    "StoreReport",
    "Summarizer",
    "SummaryRequest",
    "Usage",
    "ValueFunction",
]

# ── Models ───────────────────────────────────────────────────────────────────────────


class ChatModel(Protocol):
    """
    Answers requests; retries of the network are its own affair.

    A model that bounds every try by ``request.timeout_s`` itself says so by an attribute
    ``keeps_time = True``; any other is cut off from outside after that time. One with an
    ``aclose()`` is closed with the service that it was given to.
    """

    async def complete(self, request: ChatRequest) -> ChatReply:
        """
        Answer *request*.

        Raises:
            ModelError: One of its kinds. *Cancellation*: safe; the request is dropped.
        """


class Embedder(Protocol):
    """Turns texts into unit vectors of one space."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space of its vectors; known without loading the model."""

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """
        Embed *texts*; shape ``(len(texts), d)``, unit rows.

        Raises:
            ModelError: One of its kinds. *Cancellation*: safe.
        """


# ── Extraction ───────────────────────────────────────────────────────────────────────


class Annotator(Protocol):
    """Gives steps their state and subgoal, and the steps before them their reward."""

    @property
    def batch_size(self) -> int | None:
        """Most steps per call; ``None``: ``config.annotation.batch_size``."""

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        """
        Annotate every step of ``request.fresh``, in order, and give the last reward if closing.

        Raises:
            ModelError: One of its kinds; the whole batch stays unannotated.
        """


class SemanticExtractor(Protocol):
    """Distils facts from a trajectory."""

    async def extract_facts(self, trajectory: Trajectory) -> Sequence[Fact]:
        """Give the facts, in the order in which they were said. *Raises* ``ModelError``."""


class ProceduralExtractor(Protocol):
    """Distils instructions from a trajectory and says how well each did."""

    async def extract_instructions(self, trajectory: Trajectory) -> Sequence[Instruction]:
        """Give the instructions with their returns. *Raises* ``ModelError``."""


# ── Conversations ────────────────────────────────────────────────────────────────────


class Summarizer(Protocol):
    """Writes the text that stands for a part of a conversation."""

    async def summarize(self, request: SummaryRequest) -> str:
        """
        Give the text: not blank, at most ``request.max_tokens`` long.

        Raises:
            ModelError: One of its kinds. *Cancellation*: safe.
        """


# ── Recall ───────────────────────────────────────────────────────────────────────────


class ValueFunction(Protocol):
    """What a candidate is worth, before its mode's weight."""

    def __call__(
        self,
        relevance: float,
        node: Node,
        metadata: NodeMetadata | None,
        parameters: TypeScoring,
        now: datetime,
    ) -> float: ...


# ── Around it ────────────────────────────────────────────────────────────────────────

Observer: TypeAlias = Callable[[Event], Any]
"""``observer(event)``, a function or a coroutine function."""


class Clock(Protocol):
    """Time, as the service sees it."""

    def now(self) -> datetime:
        """Aware, UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin."""

    async def sleep(self, seconds: float) -> None:
        """Wait. *Cancellation*: safe."""

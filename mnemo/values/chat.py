"""What is said to models and what they say back; frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Purpose: TypeAlias = Literal[
    "annotate",
    "semantic",
    "procedural",
    "returns",
    "mode",
    "plan",
    "refine",
    "reason_semantic",
    "reason_procedural",
    "reason_episodic",
    "merge_intent",
    "summarize",
    "update_notes",
]
"""The name of the pipeline step that asks a model."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """
    One message of a request.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        tool_calls: Of an assistant: ``{"id", "name", "arguments"}`` each, as replies have them.
        tool_call_id: Of a tool message: the call it answers.
    """

    role: str
    content: str
    tool_calls: Sequence[Mapping[str, Any]] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """
    One question to a chat model.

    Attributes:
        purpose: Selects per-step overrides and names the call in traces and test doubles.
        response_schema: JSON schema that the reply must satisfy, or ``None`` for free text.
        max_output_tokens: Upper bound of the reply, in the model's tokens.
        timeout_s: Seconds that one try of the network may take; ``None``: the model's own
            bound. Waiting for a turn, and between tries, does not count.
    """

    messages: Sequence[ChatMessage]
    purpose: Purpose
    response_schema: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    max_output_tokens: int | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call cost; ``cost_usd`` is ``None`` where no price is known."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class ChatReply:
    """
    A model's reply.

    Attributes:
        parsed: The reply as JSON, if the adapter has parsed it already.
        tool_calls: ``{"id", "name", "arguments"}`` each, in order.
        truncated: Whether it was cut off at the limit of output tokens.
    """

    text: str = ""
    parsed: Any = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    usage: Usage = field(default_factory=Usage)
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class EmbeddingSpace:
    """
    Which vectors are comparable; stamped in the store by the first vector.

    Attributes:
        name: Model and version, e.g. ``"wordllama-l2-supercat"``.
        dimensions: Length of every vector.
        dense_weight: How much its cosine is worth beside BM25 in recall: 1.0 for
            contextual embedders, 0.6 for static ones, 0.2 for hashing. Not stamped.
        static: Whether a text's vector is the mean of its words', so that recall may ask
            for single words and weight them by how rare they are. Not stamped.
        passage_tokens: Tokens, by the estimate of ``values.vectors``, that one vector says;
            a longer text gets one for each of its overlapping passages. ``None``: every
            text gets one. Not stamped.
        english_only: Whether it knows no other language, so that a repository whose messages
            are in one is told so. Not stamped.
    """

    name: str
    dimensions: int
    dense_weight: float = 1.0
    static: bool = False
    passage_tokens: int | None = None
    english_only: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.dimensions} dimensions)"

    def is_like(self, other: EmbeddingSpace | None) -> bool:
        """Whether vectors of both can be compared; ``None``: nothing is stamped yet."""
        mine = self.name, self.dimensions
        return other is None or (other.name, other.dimensions) == mine

"""A candidate of a recall, with the raw steps it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from mnemo.runtime.text import shown
from mnemo.values.graph import Claim, Node, NodeMetadata
from mnemo.values.steps import Step

GROUPS: Mapping[str, tuple[str, ...]] = {
    "words": ("words", "joined", "session"),
    "meaning": ("cosine", "window", "restated", "attribute"),
    "who": ("speaker", "not the agent", "first person", "asks", "name", "another"),
    "when and where": ("date", "where: place", "how long: number", "length", "value"),
}
"""What signals are about, as explanations group them."""

Phase: TypeAlias = Literal["initial", "multi_hop", "refinement", "provenance"]


@dataclass(frozen=True, slots=True)
class SourceRef:
    """
    The raw step, message or keyed item a memory comes from.

    Attributes:
        session_id: ``None`` for a message that is no step of a session, and for a node that
            was stored without a step behind it.
        step_index: 0-based within the episode.
        at: When it happened, aware.
        key: The caller's idempotency key; of a message its id, of an item its key.
        text: What was said: the observation, and the action if there is one.
        thread_id: The conversation thread it was said in; ``None``: in none, or unknown.
        message_id: The message that it is, or that the step was made of; ``None``: of none.
        namespace: Of a keyed item; ``None`` for anything else.
    """

    session_id: str | None
    episode_id: str | None
    step_index: int | None
    at: datetime | None
    actor: str | None
    key: str | None
    text: str
    thread_id: str | None = None
    message_id: str | None = None
    namespace: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        place = self.session_id or self.thread_id or self.key or "no step"
        step = "" if self.step_index is None else f"#{self.step_index}"
        when = f" {self.at:%Y-%m-%d}" if self.at else ""
        return f"<SourceRef {shown(place)}{step}{when}: {shown(self.text)!r}>"

    @classmethod
    def of(cls, step: Step) -> SourceRef:
        """The reference to *step*, which may stand for a message that is no step."""
        return cls(
            session_id=step.session_id or None,
            episode_id=step.episode_id or None,
            step_index=step.index if step.session_id else None,
            at=step.at,
            actor=step.actor,
            key=step.key,
            text=step.text,
            thread_id=step.thread_id,
            message_id=step.message_id,
        )

    @classmethod
    def of_node(cls, node: Node, key: str | None = None) -> SourceRef:
        """The reference of a node without steps to itself; ``actor`` is ``hand`` if it wrote it."""
        at = node.worded_at if isinstance(node, Claim) else None
        actor = "hand" if at is not None else None
        return cls(None, None, None, at or node.created_at, actor, key, node.text)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for two references to one step, to one message, or to one item."""
        if self.namespace is not None:
            return ("item", self.namespace, self.key)
        if self.thread_id is not None and self.message_id is not None:
            return ("message", self.thread_id, self.message_id)
        if self.session_id is None:
            return (None, self.key, self.text)
        return (self.session_id, self.episode_id, self.step_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """
    Why a candidate came, and why it stands where it does.

    Attributes:
        signals: Signal → what it added to its score at hop 0, on one scale for all
            candidates; of a fact, to that of the step it was made of.
        cosine: Best cosine with the question or a tag, the tag's share counted.
        via: What the tag, intent or candidate says that led to it; ``None``: the question did.
        recency: In [0, 1]; as *frequency*, *reward* before their exponents.
        penalty: From validation, in [0, 1).
        mode_weight: Of its type in the mode, in [0, 1].
    """

    signals: Mapping[str, float]
    cosine: float
    via: str | None = None
    recency: float
    frequency: float
    reward: float
    penalty: float
    mode_weight: float = 1.0

    @property
    def grouped(self) -> dict[str, dict[str, float]]:
        """Words, meaning, who, when and where → the signals of the group that count."""
        held = {
            group: {name: self.signals[name] for name in names if name in self.signals}
            for group, names in GROUPS.items()
        }
        return {group: signals for group, signals in held.items() if signals}


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    A memory that may answer the question.

    Attributes:
        score: Its value; candidates are ordered by it.
        relevance: How well it answers, in [0, 1], before metadata and mode.
        hop: How far it is from what the question itself finds; ``None`` for provenance.
        sources: The steps it comes from, at least one, best first; of a step also the facts
            that restate it in other words and share its place, as references to that step.
        metadata: Its stored counts; ``None`` for a step that is not committed yet.
        outdated_by: Node id of the newer candidate that replaced or ended it; it stands before
            this one. ``None``: nothing is known to.
        valid_to: When it ceased to hold; ``None`` while it does.
        why: How it came about, if ``explain=True`` asked for it.
    """

    node: Node
    score: float
    relevance: float
    phase: Phase
    hop: int | None
    sources: list[SourceRef]
    metadata: NodeMetadata | None = field(default=None, compare=False)
    outdated_by: str | None = None
    valid_to: datetime | None = None
    why: Explanation | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<Candidate {self.node.type} {self.score:.2f} {shown(self.node.text)!r}>"

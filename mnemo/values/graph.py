"""Graph nodes: frozen values of seven types, vectors made at commit; and items as recalled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from numbers import Integral
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mnemo.runtime.clock import new_id
from mnemo.runtime.validation import every, quoted
from mnemo.values.fast_init import fast_init
from mnemo.values.filters import Filters

Vector: TypeAlias = NDArray[np.float32]
NodeType: TypeAlias = Literal[
    "episodic", "semantic", "procedural", "subgoal", "intent", "tag", "source", "item"
]


@dataclass(frozen=True, slots=True)
class Node:
    """
    What all nodes have.

    Attributes:
        id: Given if left out.
        created_at: Aware; the clock's at commit if left out.
        vector: Unit-norm float32 of shape ``(d,)``; ``None`` until it is made.
    """

    type: ClassVar[NodeType]
    _said: ClassVar[tuple[str, ...]] = ()
    """Fields that its text consists of."""

    id: str = field(default="", kw_only=True)
    created_at: datetime | None = field(default=None, kw_only=True)
    vector: Vector | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", new_id(self.type))

    @property
    def text(self) -> str:
        """What the node says, in its own words; what is embedded unless a page says otherwise."""
        if not self._said:
            raise TypeError("a bare Node has no text; use one of its kinds")
        return "\n".join(part for name in self._said if (part := getattr(self, name)))


@fast_init
@dataclass(frozen=True, slots=True)
class Episodic(Node):
    """A raw step as the graph holds it; its id is fixed when the step is appended."""

    type: ClassVar[NodeType] = "episodic"
    _said = ("observation", "action")

    observation: str
    action: str = ""
    state: str | None = None
    subgoal: str | None = None
    reward: float | None = None
    trajectory_id: str | None = None
    session_id: str | None = None
    episode_id: str | None = None
    step_index: int | None = None
    at: datetime | None = None
    actor: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """
    An addition by hand, or a correction of what a fact or instruction says.

    Attributes:
        at: When it was made, aware.
        by: Who made it; maintenance merges, penalizes and deletes, and words nothing anew.
        before: The wording that it replaced; ``None``: it added the fact or instruction.
        reason: Why, if that was said.
    """

    at: datetime
    by: Literal["hand"] = "hand"
    before: str | None = None
    reason: str | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class Claim(Node):
    """
    What facts and instructions have; without *edits* it says what extraction made of its steps.

    Edits stand oldest first; *metadata* was given by hand, that of its steps is theirs.
    """

    edits: tuple[Edit, ...] = field(default=(), kw_only=True)
    metadata: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)

    @property
    def version(self) -> int:
        """Number of its present wording, from 1."""
        return 1 + sum(edit.before is not None for edit in self.edits)

    @property
    def worded_at(self) -> datetime | None:
        """When the hand gave it its wording; ``None``: it never did."""
        return next((edit.at for edit in reversed(self.edits) if edit.by == "hand"), None)

    @property
    def former_texts(self) -> tuple[str, ...]:
        """The wordings that it had before, oldest first."""
        return tuple(edit.before for edit in self.edits if edit.before is not None)


@fast_init
@dataclass(frozen=True, slots=True)
class Semantic(Claim):
    """
    A fact: self-contained and atomic.

    Attributes:
        confidence: In [0, 1].
        valid_from: Time of the earliest supporting step.
        valid_to: When it ceased to hold; ``None`` while it does.
        superseded_by: Id of the fact that replaced it.
    """

    type: ClassVar[NodeType] = "semantic"
    _said = ("proposition",)

    proposition: str
    confidence: float = 0.8
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    superseded_by: str | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class Procedural(Claim):
    """
    An instruction: when *condition*, do *instruction*, expect *expected_outcome*.

    Attributes:
        return_score: How far its intent was reached, in [0, 1]; ``None`` is unknown.
    """

    type: ClassVar[NodeType] = "procedural"
    _said = ("condition", "instruction")

    instruction: str
    condition: str = ""
    expected_outcome: str = ""
    return_score: float | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class Subgoal(Node):
    """Why a trajectory's actions were taken."""

    type: ClassVar[NodeType] = "subgoal"
    _said = ("description",)

    description: str
    parent_goal: str | None = None
    trajectory_id: str | None = None


@dataclass(frozen=True, slots=True)
class Wording:
    """
    What an intent was called.

    Attributes:
        sources: Ids of the episodic nodes behind the instructions that it came with.
        vector: ``None`` while it is the intent's own.
    """

    text: str
    sources: tuple[str, ...] = ()
    vector: Vector | None = field(default=None, compare=False, repr=False)


@fast_init
@dataclass(frozen=True, slots=True)
class Intent(Node):
    """
    The goal that instructions serve, free of names and numbers.

    Attributes:
        wordings: What it was called by those whose instructions it has, at most eight;
            made at commit. Another intent that is near one of them is near this one.
    """

    type: ClassVar[NodeType] = "intent"
    _said = ("description",)

    description: str
    wordings: tuple[Wording, ...] = field(default=(), kw_only=True)


@fast_init
@dataclass(frozen=True, slots=True)
class Tag(Node):
    """A concept that facts share."""

    type: ClassVar[NodeType] = "tag"
    _said = ("label",)

    label: str


@fast_init
@dataclass(frozen=True, slots=True)
class Source(Node):
    """The words of a raw step, as they were said."""

    type: ClassVar[NodeType] = "source"
    _said = ("plain_text",)

    plain_text: str
    session_id: str | None = None
    episode_id: str | None = None
    step_index: int | None = None
    at: datetime | None = None
    actor: str | None = None
    key: str | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class KeyedItem(Node):
    """
    A keyed item as recall returns it; never stored as a node.

    Attributes:
        namespace: Where the item is; ``repo.items.get(namespace, key)`` reads it again.
        value: The whole JSON object; ``text`` has only the texts that it is found by.
        texts: Field and text.
    """

    type: ClassVar[NodeType] = "item"

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any] = field(hash=False)
    texts: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(dict.fromkeys(text for _, text in self.texts))


NODE_TYPES: dict[NodeType, type[Node]] = {
    kind.type: kind for kind in (Episodic, Semantic, Procedural, Subgoal, Intent, Tag, Source)
}
"""The types that the graph stores."""


def known_types(types: Sequence[str]) -> list[NodeType]:
    """*types* as node types, in their order. *Raises* ``ValueError`` for an unknown one."""
    given = every("types", types)
    unknown = [name for name in given if not isinstance(name, str) or name not in NODE_TYPES]
    if unknown:
        raise ValueError(f"unknown node types {quoted(unknown)}; known: {sorted(NODE_TYPES)}")
    return [name for name in NODE_TYPES if name in given]


class EdgeKind(StrEnum):
    """What an edge says of its two ends."""

    MEMBERSHIP = "membership"
    HIERARCHICAL = "hierarchical"
    PROVENANCE = "provenance"
    SIBLING = "sibling"


ENDS: dict[EdgeKind, frozenset[tuple[NodeType, NodeType]]] = {
    EdgeKind.MEMBERSHIP: frozenset({("tag", "semantic")}),
    EdgeKind.HIERARCHICAL: frozenset({("subgoal", "episodic"), ("intent", "procedural")}),
    EdgeKind.PROVENANCE: frozenset(
        {("semantic", "episodic"), ("procedural", "episodic"), ("episodic", "source")}
    ),
    EdgeKind.SIBLING: frozenset({("semantic", "semantic")}),
}
"""The (source type, target type) pairs that each kind may join."""


@dataclass(frozen=True, slots=True)
class Edge:
    """*source* and *target* are node ids; a node never links to itself."""

    source: str
    target: str
    kind: EdgeKind

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", EdgeKind(self.kind))


def neighbours(ids: Sequence[str], edges: Iterable[Edge]) -> list[str]:
    """The ids at the other ends of *edges* that begin or end at one of *ids*, each once."""
    wanted, found = set(ids), dict[str, None]()
    for edge in edges:
        if edge.source in wanted:
            found[edge.target] = None
        if edge.target in wanted:
            found[edge.source] = None
    return list(found)


MOST_CONFIDENT = 0.99
"""Confidence that repeated statements approach; nothing said is certain."""


def united_metadata(*claims: Node) -> dict[str, Any] | None:
    """What was given by hand to facts or instructions that become one; the last has the say."""
    given = (one.metadata for one in claims if isinstance(one, Claim) and one.metadata)
    return {key: value for metadata in given for key, value in metadata.items()} or None


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
    """
    A difference to be added to a node's stored counts; never overwrites them.

    A difference may be negative, a sum may not; the counts of a new node are 0 before it.
    """

    cumulative_reward: float = 0.0
    reward_count: int = 0
    support_count: int = 0

    def __post_init__(self) -> None:
        for name in ("reward_count", "support_count"):
            count = getattr(self, name)
            if isinstance(count, Integral) and not isinstance(count, bool):  # NumPy's too
                object.__setattr__(self, name, int(count))

    def __add__(self, other: MetadataDelta) -> MetadataDelta:
        return MetadataDelta(
            cumulative_reward=self.cumulative_reward + other.cumulative_reward,
            reward_count=self.reward_count + other.reward_count,
            support_count=self.support_count + other.support_count,
        )

    def __sub__(self, other: MetadataDelta) -> MetadataDelta:
        return MetadataDelta(
            cumulative_reward=self.cumulative_reward - other.cumulative_reward,
            reward_count=self.reward_count - other.reward_count,
            support_count=self.support_count - other.support_count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """
    At most *limit* nodes of some types, in the order in which they were made, ties by id.

    Attributes:
        after: Creation time and id of the node before the first one.
        holding: Without those that are superseded; *superseded_by*: only what these superseded;
            *ids*: only these.
        filters: Without claims that no evidence of theirs can match; the rest is to be checked.
    """

    types: tuple[NodeType, ...]
    limit: int
    newest_first: bool = True
    after: tuple[datetime, str] | None = None
    holding: bool = False
    superseded_by: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    filters: Filters = field(default_factory=Filters)


# ── Wordings of intents ──────────────────────────────────────────────────────────────

_WORDING_MARK = "/wording-"
MOST_WORDINGS = 8
"""Wordings that an intent keeps, the first ones (S): bounds what a merge has to compare."""
MOST_SOURCES = 32
"""Steps that a wording names, the first ones (S)."""


def added_wording(wordings: Sequence[Wording], wording: Wording) -> tuple[Wording, ...]:
    """Add *wording*: a known text gets its sources, a new one a place if there is one."""
    kept = list(wordings)
    for at, one in enumerate(kept):
        if one.text == wording.text:
            sources = tuple(dict.fromkeys((*one.sources, *wording.sources)))[:MOST_SOURCES]
            vector = wording.vector if one.vector is None else one.vector
            kept[at] = replace(one, sources=sources, vector=vector)
            return tuple(kept)
    return (*kept, replace(wording, sources=wording.sources[:MOST_SOURCES]))[:MOST_WORDINGS]


def wording_key(intent_id: str, text: str) -> str:
    """The key of a wording's vector while a repository moves to another space."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{intent_id}{_WORDING_MARK}{digest}"


def wording_owner(key: str) -> str:
    """The id of the intent that a ``wording_key`` is of; any other key as it is."""
    return key.partition(_WORDING_MARK)[0]

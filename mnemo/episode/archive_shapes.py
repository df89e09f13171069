"""What the lines of an archive must look like, and the records that they become."""

from __future__ import annotations

import base64
import binascii
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mnemo.episode.archive import (
    KINDS,
    ArchivedChangeset,
    ArchivedEpisode,
    ArchivedNode,
    ArchivedSession,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    ArchiveHead,
    EpisodeStatus,
)
from mnemo.episode.journal import SessionState, StagedTrajectory
from mnemo.episode.step import Annotation, Step
from mnemo.graph.changeset import Changeset, NodeChange
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import MetadataDelta, NodeMetadata
from mnemo.graph.nodes import NODE_TYPES, Node, NodeType, Vector
from mnemo.graph.wordings import read_wordings
from mnemo.messages import EmbeddingSpace
from mnemo.runtime.validation import MOST_NUMBER, finite_number, stored_time, whole_number

__all__ = ["KINDS_OF", "SHAPES", "Count", "HeadShape", "Id", "Packed", "Shape", "Time"]

_TIMES = frozenset({"created_at", "at", "valid_from", "valid_to"})
_NUMBERS = frozenset({"confidence", "reward", "return_score"})
_WHOLE_NUMBERS = frozenset({"step_index"})
_UNIT_TOLERANCE = 1e-3


def _as_time(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError("a time must be text")
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError("a time must name its zone")
    return stored_time("a time", at)


def _as_vector(value: Any) -> Vector:
    if not isinstance(value, str):
        raise ValueError("a vector must be text: base64 of little-endian float32")
    try:
        raw = base64.b64decode(value, validate=True)
        vector = np.frombuffer(raw, dtype="<f4").astype(np.float32, copy=False)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is no base64 of little-endian float32: {error}") from None
    if not abs(float(np.linalg.norm(vector)) - 1.0) < _UNIT_TOLERANCE:
        raise ValueError("a vector must be of length 1")
    return vector


def _as_changes(said: Any) -> dict[str, Any]:
    """Fields of a node, by name. *Raises* ``ValueError`` for a value that does not fit."""
    if not isinstance(said, dict):
        raise ValueError("fields must be an object")
    return {name: _as_value(name, value) for name, value in said.items()}


def _as_value(name: str, value: Any) -> Any:
    if name == "vector":
        return _as_vector(value) if value is not None else None
    if name == "wordings":
        return read_wordings(value)
    if name in _TIMES:
        return _as_time(value) if value is not None else None
    wanted: tuple[type, ...] = (str,)
    if name in _WHOLE_NUMBERS:
        wanted = (int,)
    elif name in _NUMBERS:
        wanted = (int, float)
    if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
        raise ValueError(f"{name} must be {' or '.join(kind.__name__ for kind in wanted)}")
    if name in _WHOLE_NUMBERS and value is not None:
        return whole_number(name, value, 0)
    return finite_number(name, value) if isinstance(value, float) else value


def _node(type: NodeType, id: str, said: dict[str, Any], vector: Vector | None = None) -> Node:
    kind = NODE_TYPES[type]
    known = {f.name: f for f in fields(kind) if f.name not in ("id", "vector")}
    if strange := said.keys() - known.keys():
        raise ValueError(f"a node of type {type!r} has no {min(strange)!r}")
    for name, f in known.items():
        if f.default is MISSING and said.get(name) is None:
            raise ValueError(f"a node of type {type!r} needs {name!r}")
    return kind(id=id, vector=vector, **said)


Id: TypeAlias = Annotated[str, Field(min_length=1)]
Time: TypeAlias = Annotated[Any, BeforeValidator(_as_time)]
Packed: TypeAlias = Annotated[Any, BeforeValidator(_as_vector)]
Fields: TypeAlias = Annotated[Any, BeforeValidator(_as_changes)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
NodeTypeName: TypeAlias = Literal[
    "episodic", "semantic", "procedural", "subgoal", "intent", "tag", "source"
]
EdgeName: TypeAlias = Literal["membership", "hierarchical", "provenance", "sibling"]
StateName: TypeAlias = Literal["idle", "collecting", "extracting", "ready", "failed"]


class Shape(BaseModel):
    """A line, or a part of one: exactly these fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    def record(self) -> Any:
        """What it says. *Raises* ``ValueError`` for what only shows when it is put together."""
        raise NotImplementedError


# ── The head ─────────────────────────────────────────────────────────────────────────


class _Space(Shape):
    name: Id
    dimensions: Annotated[int, Field(ge=1, le=MOST_NUMBER)]


KINDS_OF: dict[int, tuple[str, ...]] = {1: tuple(KINDS)[:8], 2: tuple(KINDS)}
"""The kinds of record of each version of the format, in their order."""


class HeadShape(Shape):
    """The first line."""

    format: str
    version: int
    revision: Count
    space: _Space | None
    counts: dict[str, Count]

    @model_validator(mode="after")
    def _is_whole(self) -> HeadShape:
        kinds = KINDS_OF[self.version]
        if self.counts.keys() != set(kinds):
            raise ValueError(f"counts must name {', '.join(kinds)}")
        return self

    def record(self) -> ArchiveHead:
        """What it says; of kinds that its version does not know there are none."""
        space = EmbeddingSpace(self.space.name, self.space.dimensions) if self.space else None
        counts = dict.fromkeys(KINDS, 0) | self.counts
        return ArchiveHead(revision=self.revision, space=space, counts=counts)


# ── Sessions ─────────────────────────────────────────────────────────────────────────


class _StagedNode(Shape):
    id: Id
    type: NodeTypeName
    fields: Fields
    vector: Packed | None

    def node(self) -> Node:
        return _node(self.type, self.id, self.fields, self.vector)


class _Change(Shape):
    id: Id
    fields: Fields


class _Changeset(Shape):
    id: str | None
    nodes: list[_StagedNode]
    edges: list[Annotated[list[str], Field(min_length=3, max_length=3)]]
    metadata: dict[str, Annotated[list[float], Field(min_length=3, max_length=3)]]
    changes: list[_Change]
    replaces: dict[str, list[str]]

    def record(self) -> Changeset:
        return Changeset(
            nodes=tuple(node.node() for node in self.nodes),
            edges=tuple(Edge(a, b, EdgeKind(kind)) for a, b, kind in self.edges),
            metadata={
                id: MetadataDelta(
                    cumulative_reward=reward, reward_count=int(count), support_count=int(support)
                )
                for id, (reward, count, support) in self.metadata.items()
            },
            id=self.id,
            changes=tuple(NodeChange(change.id, change.fields) for change in self.changes),
            replaces={id: tuple(replaced) for id, replaced in self.replaces.items()},
        )


class _Session(Shape):
    id: Id
    state: StateName
    updated_at: Time
    error: str | None
    error_trajectory: str | None

    def record(self) -> ArchivedSession:
        return ArchivedSession(
            id=self.id,
            state=SessionState(self.state),
            updated_at=self.updated_at,
            error=self.error,
            error_trajectory=self.error_trajectory,
        )


class _Episode(Shape):
    id: Id
    session: Id
    goal: str
    goal_at: Time
    status: EpisodeStatus
    changeset: _Changeset | None
    changeset_steps: list[Count]
    receipt_nodes: list[str]

    def record(self) -> ArchivedEpisode:
        return ArchivedEpisode(
            id=self.id,
            session_id=self.session,
            goal=self.goal,
            goal_at=self.goal_at,
            status=self.status,
            changeset=self.changeset.record() if self.changeset else None,
            changeset_steps=tuple(self.changeset_steps),
            receipt_nodes=tuple(self.receipt_nodes),
        )


class _Trajectory(Shape):
    episode: Id
    key: Id
    trajectory: str
    steps: list[Count]
    changeset: _Changeset

    def record(self) -> ArchivedTrajectory:
        staged = StagedTrajectory(
            key=self.key,
            trajectory_id=self.trajectory,
            steps=tuple(self.steps),
            changeset=self.changeset.record(),
        )
        return ArchivedTrajectory(episode_id=self.episode, staged=staged)


class _Annotation(Shape):
    state: str | None
    subgoal: str
    reward: Share | None
    trajectory: str
    boundary: bool
    embedded: bool
    vector: Packed | None


class _Step(Shape):
    session: Id
    episode: Id
    index: Count
    node_id: Id
    observation: str
    action: str
    at: Time
    actor: str
    key: str | None
    metadata: dict[str, Any]
    committed: bool
    gone: bool
    annotation: _Annotation | None
    thread: Id | None = None
    message: Id | None = None

    def record(self) -> ArchivedStep:
        step = Step(
            session_id=self.session,
            episode_id=self.episode,
            index=self.index,
            observation=self.observation,
            action=self.action,
            at=self.at,
            actor=self.actor,
            node_id=self.node_id,
            key=self.key,
            metadata=self.metadata,
            thread_id=self.thread,
            message_id=self.message,
            annotation=self._annotation(),
        )
        return ArchivedStep(step=step, committed=self.committed, gone=self.gone)

    def _annotation(self) -> Annotation | None:
        found = self.annotation
        if found is None:
            return None
        return Annotation(
            index=self.index,
            state=found.state,
            subgoal=found.subgoal,
            reward=found.reward,
            trajectory_id=found.trajectory,
            boundary=found.boundary,
            vector=found.vector,
            embedded=found.embedded,
        )


# ── The graph ────────────────────────────────────────────────────────────────────────


class _Counts(Shape):
    created_at: Time
    last_accessed_at: Time | None
    access_count: Count
    cumulative_reward: Annotated[float, Field(ge=0)]
    reward_count: Count
    support_count: Count
    penalty: Annotated[float, Field(ge=0, lt=1)]


class _Node(Shape):
    id: Id
    type: NodeTypeName
    revision: Count
    fields: Fields
    counts: _Counts

    def node(self) -> Node:
        node = _node(self.type, self.id, self.fields)
        if node.created_at is None:
            raise ValueError("a stored node needs 'created_at'")
        return node

    def record(self) -> ArchivedNode:
        # Not model_dump: the counts are all that there is, by their names.
        metadata = NodeMetadata(**dict(self.counts))
        return ArchivedNode(node=self.node(), metadata=metadata, revision=self.revision)


class _Edge(Shape):
    source: Id
    target: Id
    type: EdgeName

    def record(self) -> Edge:
        return Edge(self.source, self.target, EdgeKind(self.type))


class _Vector(Shape):
    key: Id
    vector: Packed

    def record(self) -> ArchivedVector:
        return ArchivedVector(key=self.key, vector=self.vector)


class _Applied(Shape):
    id: Id
    revision: Count
    node_ids: list[str]
    edge_count: Count

    def record(self) -> ArchivedChangeset:
        return ArchivedChangeset(
            id=self.id,
            revision=self.revision,
            node_ids=tuple(self.node_ids),
            edge_count=self.edge_count,
        )


SHAPES: dict[str, type[Shape]] = {
    "session": _Session,
    "episode": _Episode,
    "trajectory": _Trajectory,
    "step": _Step,
    "node": _Node,
    "edge": _Edge,
    "vector": _Vector,
    "changeset": _Applied,
}
"""By the kind of record."""

"""A changeset on its way: checked, given vectors, what it meets, and what is decided of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import add, attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import Conflict
from mnemo.graph.apply import check_readable
from mnemo.graph.graph import StoredGraph
from mnemo.index.follower import RepositoryIndex
from mnemo.protocols import GraphWrite
from mnemo.runtime.clock import Breather, new_id
from mnemo.values.changeset import Changeset, Revision
from mnemo.values.changeset import NodeChange as Change
from mnemo.values.graph import (
    Claim,
    Edge,
    EdgeKind,
    Edit,
    Episodic,
    MetadataDelta,
    Node,
    NodeMetadata,
    NodeType,
    Procedural,
    Semantic,
    Vector,
)
from mnemo.values.lookup import former_key, lookup_keys, rival_keys, text_key
from mnemo.values.vectors import COSINE_ROUNDING

_VECTORED: frozenset[NodeType] = frozenset(("semantic", "procedural", "subgoal", "intent", "tag"))
_DERIVED: frozenset[NodeType] = frozenset(("episodic", "source", "subgoal"))
_FOUND_BY_KEY: frozenset[NodeType] = frozenset(("tag", "intent", "semantic", "procedural"))
_FOUND_BY_VECTOR: tuple[NodeType, ...] = ("semantic", "intent")
_ROUNDING = 1e-9
NEIGHBOURS = 12
"""Stored nodes that each new one is compared with, by vector; the nearest."""
MOST_PER_KEY = 200
"""
Stored nodes of one lookup key that are compared, those stored last (S): the history of a
value that changes with every episode must not make every further commit dearer.
"""


def named_ids(changeset: Changeset) -> tuple[str, ...]:
    """The ids of all nodes that *changeset* brings or refers to, each once."""
    ids = [node.id for node in changeset.nodes]
    ids += [end for edge in changeset.edges for end in (edge.source, edge.target)]
    ids += [change.id for change in changeset.changes]
    ids += changeset.metadata
    ids += [id for replaced in changeset.replaces.values() for id in replaced]
    return tuple(dict.fromkeys(ids))


# ── Steps and subgoals that are there already ────────────────────────────────────────


def tidied(changeset: Changeset, stored: Mapping[str, Node]) -> Changeset:
    """
    Drop steps and subgoals of *changeset* that are stored or repeated; their ids are derived.

    A stored step stays as it is; a subgoal gets its latest description. *Raises* ``ValueError``:
    the id of any other node is taken.
    """
    new: dict[str, Node] = {}
    again: dict[str, Node] = {}
    for node in changeset.nodes:
        there = stored.get(node.id) or new.get(node.id)
        if there and (there.type != node.type or node.type not in _DERIVED):
            raise ValueError(f"node id {node.id!r} is already taken")
        (again if node.id in stored else new)[node.id] = node
    steps = {id for id, node in again.items() if node.type != "subgoal"}
    redescribed = (
        Change(
            id,
            {"description": node.text} | ({} if node.vector is None else {"vector": node.vector}),
        )
        for id, node in again.items()
        if node.type == "subgoal" and node.text != stored[id].text
    )
    return replace(
        changeset,
        nodes=tuple(new.values()),
        metadata={id: d for id, d in changeset.metadata.items() if id not in steps},
        changes=(*changeset.changes, *redescribed),
    )


def without_gone(changeset: Changeset, stored: Mapping[str, Node]) -> Changeset:
    """*changeset* without changes of nodes that are deleted: a session's late rewards may be."""
    there = stored.keys() | {node.id for node in changeset.nodes}
    return replace(changeset, changes=tuple(c for c in changeset.changes if c.id in there))


# ── What cannot be stored ────────────────────────────────────────────────────────────


def check(
    changeset: Changeset, stored: Mapping[str, Node], *, dimensions: int, given: bool
) -> None:
    """
    Refuse what could not be stored.

    *given*: From outside: steps of a session go on, whatever an earlier version let in. *Raises*
    ``ValueError``: as ``Changeset.validate``; or a change names a field that its node lacks, or a
    node could not be read again; ``Conflict``: what it corrects was corrected meanwhile.
    """
    changeset.validate(stored={id: node.type for id, node in stored.items()}, dimensions=dimensions)
    known = {**stored, **{node.id: node for node in changeset.nodes}}
    for change in changeset.changes:
        node = known[change.id]
        allowed = {field.name for field in fields(node)} - {"id", "created_at"}
        if unknown := set(change.fields) - allowed:
            raise ValueError(f"a {node.type} node has no field {min(unknown)!r} to change")
        edits: Sequence[Edit] = change.fields.get("edits", getattr(node, "edits", ()))
        if isinstance(node, Claim) and edits[: len(node.edits)] != node.edits:
            raise Conflict(f"memory {node.id!r} was changed meanwhile; look at it and try again")
    changed = (replace(known[change.id], **change.fields) for change in changeset.changes)
    breather = Breather()
    for node in (*changeset.nodes, *changed) if given else ():
        check_readable(node)
        breather.breathe()


_counts = attrgetter("cumulative_reward", "reward_count", "support_count")


async def check_sums(changeset: Changeset, graph: StoredGraph) -> None:
    """*Raises* ``ValueError``: a negative difference would bring a stored count below 0."""
    lowered = {id: delta for id, delta in changeset.metadata.items() if min(_counts(delta)) < 0}
    stored = await graph.metadata([*lowered]) if lowered else {}
    for id, delta in lowered.items():
        sums = map(add, _counts(delta), _counts(stored.get(id, _NOTHING)))
        if min(sums) < -_ROUNDING:
            raise ValueError(f"a difference would bring the counts of {id!r} below 0")


def without(changeset: Changeset, ids: Collection[str]) -> Changeset:
    """*changeset* without the new nodes *ids*, and without the tags and intents of those alone."""
    grouped = {edge.source for edge in changeset.edges if edge.target in ids}
    left = {edge.source for edge in changeset.edges if edge.target not in ids}
    gone = {*ids, *(grouped - left)}
    return replace(
        changeset,
        nodes=tuple(node for node in changeset.nodes if node.id not in gone),
        edges=tuple(e for e in changeset.edges if not {e.source, e.target} & gone),
        metadata={id: delta for id, delta in changeset.metadata.items() if id not in gone},
        replaces={id: old for id, old in changeset.replaces.items() if id not in gone},
    )


# ── Vectors ──────────────────────────────────────────────────────────────────────────


def texts_to_embed(changeset: Changeset, stored: Mapping[str, Node]) -> list[str]:
    """The distinct texts that need a vector, of new nodes and of changed ones."""
    texts = [n.text for n in changeset.nodes if n.vector is None and n.type in _VECTORED]
    texts += [node.text for node in _reworded(changeset, stored).values()]
    return list(dict.fromkeys(texts))


def with_vectors(
    changeset: Changeset, stored: Mapping[str, Node], vectors: Mapping[str, Vector]
) -> Changeset:
    """*changeset* with *vectors*; reworded nodes without one lose theirs, steps never have one."""
    reworded = _reworded(changeset, stored)
    changes = (
        Change(c.id, {**c.fields, "vector": vectors.get(reworded[c.id].text)})
        if c.id in reworded and "vector" not in c.fields
        else c
        for c in changeset.changes
    )
    return replace(
        changeset,
        nodes=tuple(_with_vector(node, vectors) for node in changeset.nodes),
        changes=tuple(changes),
    )


def _with_vector(node: Node, vectors: Mapping[str, Vector]) -> Node:
    if node.type not in _VECTORED:
        return node if node.vector is None else replace(node, vector=None)
    if node.vector is not None or node.text not in vectors:
        return node
    return replace(node, vector=vectors[node.text])


def _reworded(changeset: Changeset, stored: Mapping[str, Node]) -> dict[str, Node]:
    """Nodes whose text is changed without a new vector, as they will be."""
    found: dict[str, Node] = {}
    known = {**stored, **{node.id: node for node in changeset.nodes}}
    for change in changeset.changes:
        before = known[change.id]
        after = replace(before, **change.fields)
        if after.type in _VECTORED and after.text != before.text:
            found[change.id] = after
    given = {c.id for c in changeset.changes if c.fields.get("vector") is not None}
    return {id: node for id, node in found.items() if id not in given}


# ── What to ask the store ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What reconciling reads: lookup keys and vectors by type, and steps that get a late reward."""

    keys: Mapping[NodeType, tuple[str, ...]]
    vectors: Mapping[NodeType, tuple[tuple[str, ...], NDArray[np.float32]]]
    rewarded: Collection[str]


def corrected(changeset: Changeset, stored: Mapping[str, Node]) -> list[Node]:
    """The stored facts and instructions that *changeset* corrects, as they will be."""
    edits = (change for change in changeset.changes if "edits" in change.fields)
    return [replace(stored[change.id], **change.fields) for change in edits]


def questions(
    changeset: Changeset, stored: Mapping[str, Node], vectors: Mapping[str, Vector]
) -> tuple[Changeset, Questions]:
    """*changeset* ``with_vectors``, and what to look up for it; for a worker thread."""
    changeset = with_vectors(changeset, stored, vectors)
    keys: dict[NodeType, dict[str, None]] = {}
    breather = Breather()
    nodes = (*changeset.nodes, *corrected(changeset, stored))
    for node in nodes:
        breather.breathe()
        if node.type in _FOUND_BY_KEY:
            keys.setdefault(node.type, {}).update(dict.fromkeys(_keys_to_compare(node)))
    rows: dict[NodeType, tuple[tuple[str, ...], NDArray[np.float32]]] = {}
    for type in _FOUND_BY_VECTOR:
        own = [(n.id, n.vector) for n in nodes if n.type == type and n.vector is not None]
        if own:
            rows[type] = tuple(id for id, _ in own), np.stack([vector for _, vector in own])
    return changeset, Questions(
        keys={type: tuple(asked) for type, asked in keys.items()},
        vectors=rows,
        rewarded=frozenset(late_rewards(changeset, stored)),
    )


def late_rewards(changeset: Changeset, stored: Mapping[str, Node]) -> dict[str, Episodic]:
    """The stored steps whose reward is known only now, with it."""
    late: dict[str, Episodic] = {}
    for change in changeset.changes:
        step, reward = stored.get(change.id), change.fields.get("reward")
        if reward is not None and isinstance(step, Episodic) and step.reward is None:
            late[step.id] = replace(step, reward=float(reward))
    return late


def _keys_to_compare(node: Node) -> tuple[str, ...]:
    """
    Keys of what restates or contradicts *node*: not those of other activities, which are many.
    """
    match node:
        case Semantic(proposition=text):
            return (text_key(text), former_key(text), *rival_keys(text))
        case Procedural():
            return (text_key(node.condition, node.instruction), former_key(node.text))
        case _:
            return lookup_keys(node)


# ── What the store answers ───────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """
    The stored nodes and edges that a changeset concerns, of one revision.

    *keys*: By type and lookup key, oldest first. *near*: By new node's id, with cosines, best
    first. *counts*: Of instructions that rest on steps with a late reward, and of facts with
    several steps.
    """

    revision: Revision = 0
    nodes: Mapping[str, Node] = field(default_factory=dict)
    keys: Mapping[tuple[NodeType, str], tuple[Node, ...]] = field(default_factory=dict)
    near: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    counts: Mapping[str, NodeMetadata] = field(default_factory=dict)


async def look_up(
    asked: Questions,
    stored: Mapping[str, Node],
    graph: StoredGraph,
    index: RepositoryIndex,
    *,
    revision: Revision,
    thresholds: Mapping[NodeType, float],
) -> Known:
    """
    Look up *asked* in store and index; *thresholds* are the least near cosines, per type.

    Take *revision* before, and expect it when writing: the reads may straddle another write.
    """
    nodes = dict(stored)
    found: dict[tuple[NodeType, str], dict[str, Node]] = {}
    for type, keys in asked.keys.items():
        for node in await graph.nodes(types=(type,), keys=keys, newest=MOST_PER_KEY, intact=True):
            nodes[node.id] = node
            for key in lookup_keys(node):
                found.setdefault((type, key), {})[node.id] = node
    near: dict[str, tuple[tuple[str, float], ...]] = {}
    for type, (ids, rows) in asked.vectors.items():
        pairs = await index.nearest(rows, type=type, threshold=thresholds[type], limit=NEIGHBOURS)
        near.update({id: tuple(found) for id, found in zip(ids, pairs, strict=True)})
    await _add(nodes, graph, (id for pairs in near.values() for id, _ in pairs))
    # Of what closed a fact at the same time, the first said decides.
    facts = [node for node in nodes.values() if isinstance(node, Semantic)]
    await _add(nodes, graph, (fact.superseded_by for fact in facts if fact.superseded_by))
    edges, counts = await _surroundings(asked, graph, nodes)
    await _add(nodes, graph, (edge.target for edge in edges))
    return Known(
        revision=revision,
        nodes=nodes,
        keys={key: tuple(by_id.values()) for key, by_id in found.items()},
        near=near,
        edges=edges,
        counts=counts,
    )


async def _surroundings(
    asked: Questions, graph: StoredGraph, nodes: dict[str, Node]
) -> tuple[tuple[Edge, ...], Mapping[str, NodeMetadata]]:
    """
    Provenance of facts, instructions, rewarded steps; intents; tags of facts with several steps;
    see also ``Known.counts``.
    """
    supported = [id for id, n in nodes.items() if n.type in ("semantic", "procedural")]
    edges: list[Edge] = []
    if supported or asked.rewarded:
        ids = tuple(dict.fromkeys((*supported, *asked.rewarded)))
        edges += await graph.edges(ids, kind=EdgeKind.PROVENANCE, intact=True)
    rewarded = {edge.source for edge in edges if edge.target in asked.rewarded}
    if paid := tuple(rewarded.difference(supported)):
        # What a late reward changes follows from all that its claim rests on.
        edges += await graph.edges(paid, kind=EdgeKind.PROVENANCE, intact=True)
        await _add(nodes, graph, paid)
    steps = Counter(edge.source for edge in edges if isinstance(nodes.get(edge.source), Semantic))
    if several := [id for id, n in steps.items() if n > 1]:
        edges += await graph.edges(several, kind=EdgeKind.MEMBERSHIP, intact=True)
    if instructions := [id for id, n in nodes.items() if n.type == "procedural"]:
        edges += await graph.edges(instructions, kind=EdgeKind.HIERARCHICAL, intact=True)
    counted = [*several, *rewarded.intersection(instructions)]
    counts = await graph.metadata(counted, intact=True) if counted else {}
    return tuple(edges), counts


async def _add(nodes: dict[str, Node], graph: StoredGraph, ids: Iterable[str]) -> None:
    missing = tuple(dict.fromkeys(id for id in ids if id not in nodes))
    if missing:
        nodes.update({node.id: node for node in await graph.nodes(missing, intact=True)})


_ROWS = 256


class Neighbours:
    """For each new or corrected fact the stored ones and the earlier new ones near it."""

    def __init__(self, changeset: Changeset, known: Known, *, threshold: float) -> None:
        nodes = (*changeset.nodes, *corrected(changeset, known.nodes))
        facts = [node for node in nodes if isinstance(node, Semantic)]
        self._near = {fact.id: list(known.near.get(fact.id, ())) for fact in facts}
        self._add_earlier([f for f in facts if f.vector is not None], threshold - COSINE_ROUNDING)

    def of(self, id: str) -> list[str]:
        """Ids near the new fact *id*, best first; new ones may have been replaced since."""
        return [other for other, _ in sorted(self._near[id], key=lambda pair: -pair[1])]

    def _add_earlier(self, facts: list[Semantic], threshold: float) -> None:
        """Compare in blocks, so that many facts need no square of memory."""
        if len(facts) < 2:
            return
        rows = np.stack([fact.vector for fact in facts if fact.vector is not None])
        breather = Breather()
        for first in range(0, len(facts), _ROWS):
            breather.breathe()
            cosines = rows[first : first + _ROWS] @ rows[: first + _ROWS].T
            for i, j in zip(*np.nonzero(cosines >= threshold), strict=True):
                if j < first + i:
                    self._near[facts[first + i].id].append((facts[j].id, float(cosines[i, j])))


# ── What was decided ─────────────────────────────────────────────────────────────────

_Kind = TypeVar("_Kind", bound=Node)
_NOTHING = MetadataDelta()


class Draft:
    """Decisions about a changeset, for one thread; *now* is ``created_at`` of nodes without one."""

    def __init__(self, changeset: Changeset, known: Known, *, now: datetime) -> None:
        self._changeset = changeset
        self._known = known
        self._new: dict[str, Node] = {
            node.id: node if node.created_at else replace(node, created_at=now)
            for node in changeset.nodes
        }
        self._replaced: dict[str, str] = {}
        self._moved: dict[tuple[str, str], str] = {}
        self._added: list[Edge] = []
        self._fields: dict[str, dict[str, Any]] = {}
        self._deltas: dict[str, MetadataDelta] = dict(changeset.metadata)
        for change in changeset.changes:
            self.set(change.id, **change.fields)

    def new(self, kind: type[_Kind]) -> list[_Kind]:
        """The changeset's nodes of one kind that are kept so far, in its order."""
        return [node for node in self._new.values() if isinstance(node, kind)]

    def node(self, id: str) -> Node:
        """A node as it will be. *Raises* ``KeyError``: it is neither new nor known."""
        if id in self._new:
            return self._new[id]
        stored = self._known.nodes[id]
        return replace(stored, **self._fields[id]) if id in self._fields else stored

    def survivor(self, id: str, kind: type[_Kind]) -> _Kind | None:
        """What stands for *id*; ``None`` if nobody knows it, or it is of another kind."""
        end = self.end(id)
        if end not in self._new and end not in self._known.nodes:
            return None
        node = self.node(end)
        return node if isinstance(node, kind) else None

    def end(self, id: str) -> str:
        """The node that stands for *id*; survivors are never replaced themselves."""
        return self._replaced.get(id, id)

    def set(self, id: str, **values: Any) -> None:
        """Give a node new field values; those it has already change nothing."""
        node = self.node(id)
        values = {name: v for name, v in values.items() if not _equal(getattr(node, name), v)}
        if not values:
            return
        if id in self._new:
            self._new[id] = replace(node, **values)
        else:
            self._fields.setdefault(id, {}).update(values)

    def add(self, id: str, delta: MetadataDelta) -> None:
        self._deltas[id] = self._deltas.get(id, _NOTHING) + delta

    def given(self, id: str) -> MetadataDelta | None:
        """All that a new node counts so far; ``None``: it is stored, and has more."""
        return self._deltas.get(id, _NOTHING) if id in self._new else None

    def is_rewarded(self, id: str) -> bool:
        """Whether a node has rewards, stored or so far."""
        stored = self._known.counts.get(id, _NOTHING)
        return stored.reward_count + self._deltas.get(id, _NOTHING).reward_count > 0

    def supported(self, id: str, support: int) -> None:
        """Count the statement that a new fact or instruction comes with, if nobody has."""
        counted = self._deltas.get(id, _NOTHING).support_count
        self.add(id, MetadataDelta(support_count=max(support, 1, counted) - counted))

    def replace(
        self,
        id: str,
        survivor: str,
        *,
        adjust: Callable[[MetadataDelta], MetadataDelta] = lambda delta: delta,
    ) -> None:
        """Let *survivor*, stored or new, stand for the new node *id*, and get its difference."""
        del self._new[id]
        self._replaced[id] = survivor
        self.add(survivor, adjust(self._deltas.pop(id, _NOTHING)))

    def split(self, id: str, steps: Collection[str], *, since: datetime) -> Semantic:
        """Give *steps* of a fact, with its tags, to a new fact of the same words."""
        fact = self.node(id)
        assert isinstance(fact, Semantic)
        piece = replace(fact, id=new_id("semantic"), valid_from=since)
        self._new[piece.id] = piece
        for edge in (*self._changeset.edges, *self._known.edges, *self._added):
            if edge.kind is EdgeKind.MEMBERSHIP and self.end(edge.target) == id:
                self._added.append(replace(edge, target=piece.id))
        if id in self._known.nodes:
            self._added += [Edge(id, step, EdgeKind.PROVENANCE) for step in steps]
        self._moved.update({(id, step): piece.id for step in steps})
        return piece

    def edges(self) -> tuple[Edge, ...]:
        """The edges between survivors, without doubles and self-links."""
        breather = Breather()
        kept: dict[Edge, None] = {}
        for given in (*self._changeset.edges, *self._added):
            breather.breathe()
            edge = replace(given, source=self._source(given), target=self.end(given.target))
            if edge.source != edge.target:
                kept[edge] = None
        return tuple(kept)

    def _source(self, edge: Edge) -> str:
        source = edge.source
        while True:
            # First: a fact may have been cut before another came to stand for its rest.
            after = self._moved.get((source, edge.target)) or self.end(source)
            if after == source:
                return source
            source = after

    def finished(self) -> GraphWrite:
        deltas = {
            id: delta for id, delta in self._deltas.items() if id in self._new or delta != _NOTHING
        }
        named = (self.end(node.id) for node in self._changeset.nodes)
        touched = {*self._new, *self._fields, *deltas}
        ids = (*(id for id in named if id in touched), *self._fields, *deltas)
        moved = [(id, step) for id, step in self._moved if id in self._known.nodes]
        assert self._changeset.id is not None
        return GraphWrite(
            changeset_id=self._changeset.id,
            expected_revision=self._known.revision,
            nodes=tuple(self._new.values()),
            edges=self.edges(),
            dropped=tuple(Edge(id, step, EdgeKind.PROVENANCE) for id, step in moved),
            metadata=deltas,
            changes=tuple(Change(id, values) for id, values in self._fields.items()),
            node_ids=tuple(dict.fromkeys(ids)),
        )


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, np.ndarray) or isinstance(after, np.ndarray):
        return before is not None and after is not None and np.array_equal(before, after)
    return bool(before == after)

"""Removal of nodes: their edges, lookup keys and vectors go with them; followers are notified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mnemo.log.feed import leave_recall
from mnemo.store.rows import SIDE_KEYS, listed
from mnemo.store.spaces import drop_vectors
from mnemo.store.tx import Tx
from mnemo.values.passages import PASSAGE_KEYS

_DROP_EDGES = [f"DELETE FROM edges WHERE {end} IN $numbers" for end in ("source", "target")]
_DROP_NODES = (
    "DELETE FROM node_keys WHERE node IN $numbers",
    "DELETE FROM nodes WHERE no IN $numbers",
)


class Removed(NamedTuple):
    """How many rows went with the nodes."""

    edges: int
    vectors: int


def remove_nodes(tx: Tx, repo: int, gone: Mapping[int, str]) -> Removed:
    """
    Delete nodes, also as steps that have a vector for each side.

    Args:
        gone: Number of each node → its id, in the order in which followers read them.
    """
    numbers = listed(gone)
    edges = sum(tx.run(statement, (numbers,)).rowcount for statement in _DROP_EDGES)
    for statement in _DROP_NODES:
        tx.run(statement, (numbers,))
    ends = (*PASSAGE_KEYS, *SIDE_KEYS)
    vectors = drop_vectors(tx, repo, [f"{id}{end}" for id in gone.values() for end in ends])
    leave_recall(tx, repo, list(gone.values()))
    return Removed(edges, vectors)

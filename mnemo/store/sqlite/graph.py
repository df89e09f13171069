"""The graph of one repository on the embedded store: reading, and its one kind of write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

from mnemo._clock import Breather
from mnemo.episode.journal import Owner
from mnemo.errors import StoreError
from mnemo.graph.changeset import Revision
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import NodeMetadata
from mnemo.graph.nodes import Node, NodeType
from mnemo.protocols import Applied, Clock, GraphWrite
from mnemo.store.sqlite.codec import encode_time
from mnemo.store.sqlite.commit import apply_write, delete_nodes, prepare
from mnemo.store.sqlite.connection import commit_failure
from mnemo.store.sqlite.readers import Readers
from mnemo.store.sqlite.rows import chunks, holes, read_nodes, repo_row
from mnemo.store.sqlite.writer import Writer

__all__ = ["SqliteGraph"]

_NODES = """
SELECT n.id, n.type, n.body, v.vector FROM nodes n
LEFT JOIN vectors v ON v.repo = n.repo AND v.key = n.id
WHERE n.repo = ?
"""
_OLDEST_FIRST = " ORDER BY n.created_at, n.no"
_NEWEST_FIRST = " ORDER BY n.created_at DESC, n.id LIMIT ?"
_HAS_KEY = " AND n.no IN (SELECT node FROM node_keys WHERE repo = ? AND key IN ({}))"
_LAST_OF_KEY = """
 AND n.no IN (SELECT node FROM node_keys WHERE repo = ? AND key = ? ORDER BY node DESC LIMIT ?)
"""
_METADATA = """
SELECT id, created_at, last_accessed_at, access_count, cumulative_reward, reward_count,
       support_count, penalty
FROM nodes WHERE repo = ? AND id IN ({})
"""
_EDGES = """
SELECT a.id, b.id, e.kind FROM edges e
JOIN nodes a ON a.no = e.source JOIN nodes b ON b.no = e.target
WHERE {} IN (SELECT no FROM nodes WHERE repo = ? AND id IN ({}))
"""
_TOUCH = """
UPDATE nodes SET access_count = access_count + ?,
                 last_accessed_at = max(coalesce(last_accessed_at, ''), ?)
WHERE repo = ? AND id = ?
"""


class SqliteGraph:
    """``GraphStore`` over one file; made by ``SqliteStore``."""

    def __init__(
        self,
        repo_id: str,
        writer: Callable[[], Writer],
        readers: Callable[[], Readers],
        clock: Clock,
    ):
        self._repo_id = repo_id
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def revision(self) -> Revision:
        """The present revision, of whatever process wrote it."""
        return await self._readers().read(lambda c: repo_row(c, self._repo_id)[1])

    async def apply(self, write: GraphWrite, owner: Owner) -> Applied:
        """
        Write everything of *write* in one transaction, or nothing.

        Raises:
            StaleRevision: Another write came between; reconcile again.
            Conflict: *owner* does not own the settled session any more.
            CommitFailed: The transaction was rolled back. *Cancellation*: completes.
        """
        now = self._clock.now()
        prepared = await self._readers().compute(partial(prepare, write, now))
        try:
            return await self._writer().run(
                lambda connection: apply_write(connection, self._repo_id, prepared, owner.token)
            )
        except StoreError as error:
            failure = commit_failure(error)
            if failure is error:
                raise
            raise failure from error

    async def delete(self, ids: Sequence[str]) -> tuple[str, ...]:
        """
        Delete nodes with their edges, metadata and vectors; give the ids that existed.

        *Cancellation*: completes.
        """
        return await self._writer().run(partial(delete_nodes, repo_id=self._repo_id, ids=ids))

    async def nodes(
        self,
        ids: Sequence[str] | None = None,
        *,
        types: Sequence[NodeType] | None = None,
        keys: Sequence[str] | None = None,
        newest: int | None = None,
    ) -> list[Node]:
        """Nodes by id (in the order of *ids*) or by type, oldest first; see ``GraphStore``."""
        if ids is not None:
            return await self._readers().read(partial(_by_id, repo_id=self._repo_id, ids=ids))
        return await self._readers().read(
            partial(_by_type, repo_id=self._repo_id, types=types, keys=keys, newest=newest)
        )

    async def metadata(self, ids: Sequence[str]) -> dict[str, NodeMetadata]:
        """Entries of the ids that exist."""
        return await self._readers().read(partial(_metadata, repo_id=self._repo_id, ids=ids))

    async def edges(self, ids: Sequence[str], *, kind: EdgeKind | None = None) -> list[Edge]:
        """Edges with an end among *ids*, each once."""
        return await self._readers().read(
            partial(_edges, repo_id=self._repo_id, ids=ids, kind=kind)
        )

    async def touch(self, counts: Mapping[str, int], at: datetime) -> None:
        """Add to access counts of nodes that exist; no new revision. *Cancellation*: completes."""
        if not counts:
            return

        def add(connection: sqlite3.Connection) -> None:
            repo = repo_row(connection, self._repo_id)[0]
            text = encode_time(at)
            connection.executemany(_TOUCH, [(n, text, repo, id) for id, n in counts.items()])

        await self._writer().run(add)


def _by_id(connection: sqlite3.Connection, repo_id: str, ids: Sequence[str]) -> list[Node]:
    repo = repo_row(connection, repo_id)[0]
    wanted = list(dict.fromkeys(ids))
    found: dict[str, Node] = {}
    for chunk in chunks(wanted):
        query = f"{_NODES} AND n.id IN ({holes(chunk)})"
        rows = connection.execute(query, (repo, *chunk)).fetchall()
        found.update((node.id, node) for node in read_nodes(rows))
    return [found[id] for id in wanted if id in found]


def _by_type(
    connection: sqlite3.Connection,
    repo_id: str,
    types: Sequence[NodeType] | None,
    keys: Sequence[str] | None,
    newest: int | None,
) -> list[Node]:
    repo = repo_row(connection, repo_id)[0]
    query, values = _NODES, [repo]
    rows: list[tuple[str, str, str, bytes | None]] = []
    parameters: list[object] = [*values]
    if types is not None:
        query += f" AND n.type IN ({holes(types)})"
        parameters += types
    if keys is None:
        order, bound = (_OLDEST_FIRST, ()) if newest is None else (_NEWEST_FIRST, (newest,))
        return read_nodes(connection.execute(query + order, (*parameters, *bound)).fetchall())
    sought = list(dict.fromkeys(keys))
    if newest is not None:
        for key in sought:
            narrowed = query + _LAST_OF_KEY + _OLDEST_FIRST
            rows += connection.execute(narrowed, (*parameters, repo, key, newest))
        return read_nodes(dict.fromkeys(rows))
    for chunk in chunks(sought):
        narrowed = query + _HAS_KEY.format(holes(chunk)) + _OLDEST_FIRST
        rows += connection.execute(narrowed, (*parameters, repo, *chunk))
    return read_nodes(dict.fromkeys(rows))


def _metadata(
    connection: sqlite3.Connection, repo_id: str, ids: Sequence[str]
) -> dict[str, NodeMetadata]:
    repo = repo_row(connection, repo_id)[0]
    entries = {}
    breather = Breather()
    for chunk in chunks(list(dict.fromkeys(ids))):
        query = _METADATA.format(holes(chunk))
        for id, created_at, accessed_at, *counts in connection.execute(query, (repo, *chunk)):
            entries[id] = NodeMetadata(
                created_at=datetime.fromisoformat(created_at),
                last_accessed_at=datetime.fromisoformat(accessed_at) if accessed_at else None,
                access_count=counts[0],
                cumulative_reward=counts[1],
                reward_count=counts[2],
                support_count=counts[3],
                penalty=counts[4],
            )
            breather.breathe()
    return entries


def _edges(
    connection: sqlite3.Connection, repo_id: str, ids: Sequence[str], kind: EdgeKind | None
) -> list[Edge]:
    repo = repo_row(connection, repo_id)[0]
    tail, extra = (" AND e.kind = ?", (str(kind),)) if kind is not None else ("", ())
    found: dict[tuple[str, str, str], None] = {}
    breather = Breather()
    for chunk in chunks(list(dict.fromkeys(ids))):
        for end in ("e.source", "e.target"):
            query = _EDGES.format(end, holes(chunk)) + tail
            for row in connection.execute(query, (repo, *chunk, *extra)):
                found[row] = None
                breather.breathe()
    return [Edge(source, target, EdgeKind(kind)) for source, target, kind in found]

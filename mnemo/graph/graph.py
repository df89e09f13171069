"""The graph of one repository."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from mnemo.errors import CommitFailed, EmbeddingSpaceMismatch, StoreError, StoreLocked
from mnemo.graph.apply import applied_before, apply_write, delete_nodes, prepare
from mnemo.protocols import Applied, GraphWrite
from mnemo.runtime.clock import Breather, moved
from mnemo.store.engine import OfRepository, compute, session_lock
from mnemo.store.rows import Passed, Rows, found_repo, holes, listed, log_passed, repo_row
from mnemo.store.tables import EDGES, NODES
from mnemo.store.tx import Tx
from mnemo.values.changeset import Revision
from mnemo.values.codec import decode_object, decode_time, encode_json, encode_time, utc_text
from mnemo.values.filters import Filters
from mnemo.values.graph import Edge, EdgeKind, Listing, Node, NodeMetadata, NodeType
from mnemo.values.journal import Intact, Owner, Settlement

T = TypeVar("T")

_NODES = """
SELECT n.id, n.type, n.body, v.vector FROM nodes n
LEFT JOIN vectors v ON v.repo = n.repo AND v.key = n.id
WHERE n.repo = ?
"""
_PLACED = """
SELECT n.id, n.type, n.body, v.vector FROM nodes n
LEFT JOIN vectors v ON v.repo = n.repo AND v.key = n.id
WHERE $also n.repo = ? AND n.no IN $numbers
"""
_WALKED = 2_000
"""Nodes whose evidence is read at once."""
_OLDEST_FIRST = " ORDER BY n.created_at, n.no"
_NEWEST_FIRST = " ORDER BY n.created_at DESC, n.id LIMIT ?"
_OF_KEYS = "SELECT node FROM node_keys WHERE repo = ? AND key IN $texts"
_LAST_OF_KEY = """
SELECT node FROM (SELECT node FROM node_keys WHERE repo = ? AND key = ?
                  ORDER BY node DESC LIMIT ?) k
"""
_MOST_KEYS = 100
"""Of a statement that asks for the last of each."""
_METADATA = f"SELECT {NODES.counted} FROM nodes WHERE repo = ? AND id IN $texts"
_EDGES = f"""
SELECT a.id, b.id, {EDGES.of("e")} FROM edges e
JOIN nodes a ON a.no = e.source AND $also a.repo = e.repo
JOIN nodes b ON b.no = e.target AND $also b.repo = e.repo
WHERE e.repo = ? AND {{}} IN (SELECT no FROM nodes WHERE repo = ? AND id IN $texts)
"""
_TOUCH = """
UPDATE nodes SET access_count = access_count + ?,
                 last_accessed_at = $greatest(coalesce(last_accessed_at, ''), ?)
WHERE repo = ? AND id = ?
"""
TURN_S = 5.0
"""Seconds of a turn; who needs longer may meet others again."""
_FREE = "(turn IS NULL OR turn = :holder OR turn_until <= :now)"
_OF_OTHERS = f"SELECT 1 FROM repos WHERE no = :repo AND NOT {_FREE}"
_TAKE_TURN = f"""
UPDATE repos SET turn = :holder, turn_until = :now + {TURN_S} WHERE no = :repo AND {_FREE}
"""
_END_TURN = "UPDATE repos SET turn = NULL WHERE no = ? AND turn = ?"


class StoredGraph(OfRepository):
    """The graph of one repository; reads are of one revision and never wait for the writer."""

    async def revision(self) -> Revision:
        """The present revision, of whatever process wrote it."""
        return await self._engine.reading(lambda c: repo_row(c, self._repo_id)[1])

    async def apply(self, write: GraphWrite, owner: Owner) -> Applied:
        """
        Write everything of *write* in one transaction, or nothing.

        *Raises* ``StaleRevision``: another write came between, or has its turn; reconcile again;
        ``Conflict``: *owner* does not own the settled session any more; ``CommitFailed``: the
        transaction was rolled back. *Cancellation*: completes.
        """
        prepared = await compute(partial(prepare, write, self._clock.now()))
        return await self._committed(
            lambda tx: apply_write(tx, self._repo_id, prepared, owner.token, self._lease_time),
            write.settlement,
        )

    async def first_answer(
        self, changeset_id: str, owner: Owner, settlement: Settlement | None = None
    ) -> Applied | None:
        """
        The answer to a changeset when it was applied, its session settled; ``None``: it never was.
        It waits for whoever writes the graph, as a commit in doubt may do. *Raises* as ``apply``.
        *Cancellation*: completes.
        """
        return await self._committed(
            lambda tx: applied_before(tx, self._repo_id, changeset_id, settlement, owner.token),
            settlement,
        )

    async def _committed(self, work: Callable[[Tx], T], settlement: Settlement | None) -> T:
        locks = [("graph", self._repo_id)]
        if settlement is not None:
            locks.append(session_lock(self._repo_id, settlement.session_id))
            if settlement.intake is not None:
                # It finishes a job and moves its thread on, which whoever appends writes, too.
                locks.append(("transcript", self._repo_id))
        try:
            return await self._engine.writing(work, locks=locks)
        except (CommitFailed, EmbeddingSpaceMismatch):
            raise
        except StoreError as error:
            kind = _CommitLocked if isinstance(error, StoreLocked) else CommitFailed
            raise kind(f"nothing was written: {error}") from error

    async def take_turn(self, changeset_id: str) -> bool:
        """
        Let no other changeset be written until this one is, for at most some seconds. False:
        another one has its turn; ask again. *Cancellation*: completes.
        """

        def asked(tx: Tx) -> dict[str, Any]:
            now = self._lease_time(tx).timestamp()
            return {"repo": found_repo(tx, self._repo_id), "holder": changeset_id, "now": now}

        def is_free(tx: Tx) -> bool:
            return tx.run(_OF_OTHERS, asked(tx)).fetchone() is None

        # Whoever waits asks again and again, and writes nothing for that.
        return await self._engine.reading(is_free) and await self._engine.writing(
            lambda tx: bool(tx.run(_TAKE_TURN, asked(tx)).rowcount) or is_free(tx),
            locks=[("turn", self._repo_id)],
        )

    async def end_turn(self, changeset_id: str) -> None:
        """Let others write, if the turn is this changeset's. *Cancellation*: completes."""
        await self._engine.writing(
            lambda tx: tx.run(_END_TURN, (found_repo(tx, self._repo_id), changeset_id)).rowcount,
            locks=[("turn", self._repo_id)],
        )

    async def delete(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Delete nodes with all of theirs; give the ids that existed. *Cancellation*: completes."""
        return await self._engine.writing(
            partial(delete_nodes, repo_id=self._repo_id, ids=ids), locks=[("graph", self._repo_id)]
        )

    async def nodes(
        self,
        ids: Sequence[str] | None = None,
        *,
        types: Sequence[NodeType] | None = None,
        keys: Sequence[str] | None = None,
        newest: int | None = None,
        listing: Listing | None = None,
        intact: Intact = False,
    ) -> list[Node]:
        """
        Nodes by id (in the order of *ids*, unknown ones absent) or by type, oldest first.

        With *keys*, those of *types* that have one of them among their ``lookup_keys``
        (``values.lookup``), each once; answered from an index, at a cost that does not grow
        with the graph. With *newest*, only so many of *types*, newest first, ties by id;
        with both, of each key only so many of those stored last, all of them oldest first.
        With *listing*, which stands alone, what it says in its order.
        A damaged one is ``StoreCorrupt``; if *intact*, it is logged and left out; a list gets it.
        """
        if listing is not None:
            work = partial(_listed, listing=listing)
        elif ids is not None:
            work = partial(_by_id, ids=ids)
        else:
            work = partial(_by_type, types=types, keys=keys, newest=newest)
        return await self._read(work, intact)

    async def metadata(
        self, ids: Sequence[str], *, intact: Intact = False
    ) -> dict[str, NodeMetadata]:
        """Entries of the ids that exist; *intact* as in ``nodes``."""
        return await self._read(partial(_metadata, ids=ids), intact)

    async def edges(
        self, ids: Sequence[str], *, kind: EdgeKind | None = None, intact: Intact = False
    ) -> list[Edge]:
        """Edges with an end among *ids*, each once; *intact* as in ``nodes``."""
        return await self._read(partial(_edges, ids=ids, kind=kind), intact)

    async def _read(self, work: Callable[..., T], intact: Intact) -> T:
        passed: Passed | None = None if intact is False else []
        found = await self._engine.reading(
            lambda tx: work(tx, repo_row(tx, self._repo_id)[0], passed)
        )
        log_passed(passed or [])
        if isinstance(intact, list):
            intact += passed or []
        return found

    async def touch(self, counts: Mapping[str, int], at: datetime) -> None:
        """Add to access counts of nodes that exist; no new revision. *Cancellation*: completes."""
        if not counts:
            return

        def add(tx: Tx) -> None:
            repo = repo_row(tx, self._repo_id)[0]
            text = encode_time(at)
            tx.run_many(_TOUCH, [(n, text, repo, id) for id, n in counts.items()])

        await self._engine.writing(add, locks=[("graph", self._repo_id)])


def _by_id(tx: Tx, repo: int, passed: Passed | None, ids: Sequence[str]) -> list[Node]:
    rows = tx.run(f"{_NODES} AND n.id IN $texts", (repo, listed(ids))).fetchall()
    found = {node.id: node for node in NODES.whole.all(rows, passed)}
    return [found[id] for id in dict.fromkeys(ids) if id in found]


def _by_type(
    tx: Tx,
    repo: int,
    passed: Passed | None,
    types: Sequence[NodeType] | None,
    keys: Sequence[str] | None,
    newest: int | None,
) -> list[Node]:
    if keys is not None:
        return _by_keys(tx, repo, types, list(dict.fromkeys(keys)), newest, passed)
    query, values = _NODES, list[object]([repo])
    if types is not None:
        query += f" AND n.type IN ({holes(types)})"
        values += types
    order, bound = (_OLDEST_FIRST, ()) if newest is None else (_NEWEST_FIRST, (newest,))
    return NODES.whole.all(tx.run(query + order, (*values, *bound)).fetchall(), passed)


def _by_keys(
    tx: Tx,
    repo: int,
    types: Sequence[NodeType] | None,
    keys: Sequence[str],
    newest: int | None,
    passed: Passed | None,
) -> list[Node]:
    """First places, then nodes: one statement may scan the repository on a fresh server."""
    numbers: set[int] = set()
    if newest is None:
        numbers.update(no for (no,) in tx.run(_OF_KEYS, (repo, listed(keys))))
    else:
        for start in range(0, len(keys), _MOST_KEYS):
            some = keys[start : start + _MOST_KEYS]
            values = [value for key in some for value in (repo, key, newest)]
            statement = "UNION ".join([_LAST_OF_KEY] * len(some))
            numbers.update(no for (no,) in tx.run(statement, values))
    if not numbers:
        return []
    rows = tx.run(_PLACED + _OLDEST_FIRST, (repo, listed(numbers))).fetchall()
    wanted = [row for row in rows if types is None or row[1] in types]
    return NODES.whole.all(wanted, passed)


def _listed(tx: Tx, repo: int, passed: Passed | None, listing: Listing) -> list[Node]:
    """First the places, then the bodies of those alone: a page reads no more than it shows."""
    numbers: list[int] = []
    for some in _places(tx, repo, listing):
        numbers += some
        if len(numbers) >= listing.limit:
            break
    order = f"ORDER BY created_at {_direction(listing)}, id"
    placed = (repo, listed(numbers[: listing.limit]))
    return NODES.whole.all(tx.run(f"{_PLACED} {order}", placed), passed)


def _places(tx: Tx, repo: int, listing: Listing) -> Iterator[list[int]]:
    """Numbers of the nodes of *listing* in its order, some at a time."""
    after = listing.after and (utc_text(listing.after[0]), listing.after[1])
    limit = listing.limit if listing.filters.is_open else max(listing.limit, _WALKED)
    among = resting_on(tx, repo, listing.filters)
    while True:
        statement, values = _walk(repo, listing, after, limit, among)
        places = tx.run(statement, values).fetchall()
        yield may_match(tx, repo, [number for number, *_ in places], listing.filters)
        if len(places) < limit:
            return
        after = places[-1][1:]


def _direction(listing: Listing) -> str:
    return "DESC" if listing.newest_first else "ASC"


def _walk(
    repo: int,
    listing: Listing,
    after: tuple[str, str] | None,
    limit: int,
    among: Collection[int] | None,
) -> tuple[str, list[Any]]:
    """The statement for the next places of *listing*, unfiltered; each type by its index."""
    # Those of some ids, or superseded by something, are found by that; an expression keeps SQL from
    # reading a whole type in order instead.
    only = [("n.superseded_by", listing.superseded_by), ("n.id", listing.ids)]
    only = [(column, some) for column, some in only if some is not None]
    type = "n.type || ''" if only else "n.type"
    query, values = (
        f"SELECT n.no, n.created_at, n.id FROM nodes n WHERE n.repo = ? AND {type} = ?",
        [],
    )
    later = "<" if listing.newest_first else ">"
    if after is not None:
        query += f" AND n.created_at {later}= ? AND (n.created_at {later} ? OR n.id > ?)"
        values += [after[0], *after]
    if among is not None:
        query += " AND n.no IN $numbers"
        values.append(listed(among))
    if listing.holding:
        query += " AND n.superseded_by IS NULL"
    for column, some in only:
        query += f" AND {column} IN $texts"
        values.append(listed(some or ()))
    order = f"ORDER BY created_at {_direction(listing)}, id"
    one = f"SELECT * FROM ({query} {order} LIMIT ?) x"
    every = " UNION ALL ".join([one] * len(listing.types))
    asked = [v for kind in listing.types for v in (repo, kind, *values, limit)]
    return f"SELECT * FROM ({every}) y {order} LIMIT ?", [*asked, limit]


def _metadata(
    tx: Tx, repo: int, passed: Passed | None, ids: Sequence[str]
) -> dict[str, NodeMetadata]:
    return dict(NODES.counts.all(tx.run(_METADATA, (repo, listed(ids))), passed))


def _edges(
    tx: Tx, repo: int, passed: Passed | None, ids: Sequence[str], kind: EdgeKind | None
) -> list[Edge]:
    tail, extra = (" AND e.kind = ?", (str(kind),)) if kind is not None else ("", ())
    found: dict[tuple[Any, ...], None] = {}
    breather = Breather()
    for end in ("e.source", "e.target"):
        for row in tx.run(_EDGES.format(end) + tail, (repo, repo, listed(ids), *extra)):
            found[row] = None
            breather.breathe()
    return EDGES.rows.all(found, passed)


class _CommitLocked(CommitFailed, StoreLocked):
    """A commit that failed because another process held the write lock; try again."""


# ── Filters of a listing, checked on the evidence as it is stored ────────────────────

_MOST_NARROWED = 64
"""Texts of a condition that a statement looks for; with more, rows are looked at instead (S)."""
# What a fact or an instruction rests on. Without a step, or worded by hand, it is also its own
# evidence, which is in its body.
_BEHIND = """
SELECT x.value, CASE WHEN {own} THEN NULL ELSE t.ordinal END,
       s.id, t.thread, t.actor, t.at, t.metadata
FROM $numbers x $join nodes n ON n.no = x.value AND $also n.repo = ?
LEFT JOIN edges e ON e.repo = n.repo AND e.source = n.no AND e.kind = 'provenance'
LEFT JOIN nodes p ON p.no = e.target AND $also p.repo = e.repo
LEFT JOIN steps t ON t.repo = p.repo AND t.node_id = p.id
LEFT JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
WHERE {own} OR ({condition})
"""
# The claims that rest on the steps ``t``, or on what was applied as said in a session.
_RESTING = """
SELECT e.source FROM {steps} $join nodes p ON p.repo = t.repo AND p.id = t.node_id
$join edges e ON e.repo = p.repo AND e.target = p.no AND e.kind = 'provenance' WHERE {of}
"""
_OF_SESSION = _RESTING.format(
    steps="""sessions s $join episodes x ON x.repo = s.repo AND x.session = s.no
    $join steps t ON t.repo = x.repo AND t.episode = x.no""",
    of="s.repo = ? AND s.id = ?",
)
_OF_THREAD = _RESTING.format(steps="steps t", of="t.repo = ? AND t.thread = ?")
_APPLIED = """
SELECT e.source FROM nodes p
$join edges e ON e.repo = p.repo AND e.target = p.no AND e.kind = 'provenance'
WHERE p.repo = ? AND p.type = 'episodic' AND replace(p.body, ?, '') <> p.body
"""
_OWN = "(t.ordinal IS NULL OR n.body LIKE '%\"edits\"%')"
# A time is stored with its offset, by which it differs from UTC by less than a day.
_OFFSET = timedelta(days=1)
_BEHIND_ROWS: Rows[tuple[int, Sequence[Any] | None]] = Rows(
    "steps", "i i? s? s? s? s? s?", lambda row: (row[0], None if row[1] is None else row[2:])
)


def resting_on(tx: Tx, repo: int, filters: Filters) -> set[int] | None:
    """The numbers of all claims of the session or thread of *filters*; ``None``: of any."""
    if filters.session_id is None and filters.thread_id is None:
        return None
    found: list[set[int]] = []
    if (thread := filters.thread_id) is not None:
        found.append({no for (no,) in tx.run(_OF_THREAD, (repo, thread))})
    if (session := filters.session_id) is not None:
        either = ((_OF_SESSION, session), (_OF_THREAD, session), (_APPLIED, encode_json(session)))
        found.append({no for statement, id in either for (no,) in tx.run(statement, (repo, id))})
    return set.intersection(*found)


def may_match(tx: Tx, repo: int, claims: Sequence[int], filters: Filters) -> list[int]:
    """Those of *claims*, by number, in order, whose evidence, maybe their own, matches."""
    if filters.is_open:
        return list(claims)
    conditions, values = _narrowing(filters)
    statement = _BEHIND.format(own=_OWN, condition=" AND ".join(conditions))
    found = {
        claim
        for claim, step in _BEHIND_ROWS.all(tx.run(statement, [listed(claims), repo, *values]))
        if step is None or _step_matches(filters, step)
    }
    return [claim for claim in claims if claim in found]


def _narrowing(filters: Filters) -> tuple[list[str], list[str]]:
    """Conditions that every step fulfils that matches *filters*, and their values."""
    conditions, values = ["t.ordinal IS NOT NULL"], []
    for one in filters.where.conditions:
        texts = [encode_json(value) for value in one.any_of or () if isinstance(value, str)]
        if 0 < len(texts) <= _MOST_NARROWED and len(texts) == len(one.any_of or ()):
            holds = ["replace(t.metadata, ?, '') <> t.metadata"] * len(texts)
            conditions.append(f"({' OR '.join(holds)})")
            values += texts
    if filters.thread_id is not None:
        conditions.append("t.thread = ?")
        values.append(filters.thread_id)
    if filters.session_id is not None:
        conditions.append("(s.id = ? OR t.thread = ?)")
        values += [filters.session_id] * 2
    bounds = ((">=", filters.since, -_OFFSET), ("<=", filters.until, _OFFSET))
    for compared, bound, offset in bounds:
        if bound is not None:
            conditions.append(f"t.at {compared} ?")
            values.append(utc_text(moved(bound, offset)))
    return conditions, values


def _step_matches(filters: Filters, step: Sequence[Any]) -> bool:
    session, thread, actor, at, metadata = step
    return filters.holds(
        at=decode_time(at) if filters.since or filters.until else None,
        actors=(actor,) if actor else (),
        session_ids=(session,),
        thread_id=thread,
        metadata=decode_object(metadata or "{}") if filters.where.conditions else {},
    )

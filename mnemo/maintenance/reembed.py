"""
Re-embed a repository: give every text a vector of another space, then switch.

The new vectors wait in a place of their own, each with a digest of its text, so that a second run
goes on where the first one ended. Until the switch, which is one transaction, the old space is in
force.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import islice

import anyio

from mnemo.erasure.erase import StoredErasure
from mnemo.errors import Conflict
from mnemo.items.item_rows import owe_items
from mnemo.jobs.job_rows import find_jobs
from mnemo.log.feed import StoredFeed, owned_keys
from mnemo.protocols import Embedder, EmbeddingSpace
from mnemo.runtime.clock import Breather, elapsed
from mnemo.runtime.progress import reached
from mnemo.runtime.tasks import Threads
from mnemo.store.engine import repository_locks
from mnemo.store.rows import Rows, listed, repo_number, repo_row
from mnemo.store.tables import JOBS, NODES
from mnemo.store.tx import Tx
from mnemo.values.codec import (
    decode_changeset,
    decode_vector,
    encode_changeset,
    encode_vector,
    stored_node,
)
from mnemo.values.feed import NO_VECTORS, FeedChanges, FeedCursor
from mnemo.values.graph import Intent, Vector, wording_key
from mnemo.values.jobs import JobState
from mnemo.values.vectors import PASSAGE_KEYS, SIDE_KEYS, passage_place, unit_rows

BATCH = 64
"""Texts per call of the embedder, at most: what a run that is stopped may lose."""
PAGE = 2_000
"""Steps and nodes that are read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembeddingProgress:
    """
    How far a repository is on its way to another space.

    Attributes:
        done: Documents that have a new vector, of this run and of those before it.
        total: Documents with a vector in the old space, which a later write may add to.
        embedded: Texts that this run embedded, further passages of long documents among them.
        texts_per_s: How many of these in a second, so far.
    """

    done: int
    total: int
    embedded: int
    texts_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembeddingReport:
    """
    What moving a repository to another space did; nothing, if it was there.

    Attributes:
        before: The space that it was in; ``None`` if it had no vector yet.
        after: The space that it is in now, if it has one.
        embedded: Texts that this call embedded; earlier ones had embedded the rest.
        vectors: Vectors that are in force since the switch.
    """

    before: str | None = None
    after: str | None = None
    embedded: int = 0
    vectors: int = 0
    duration_s: float = 0.0


class Reembedding:
    """
    Moves one repository to the space of *embedder*; *tell* is called after each batch.

    *texts*: Gives the texts of a piece of the feed by vector key. *switching*: Held around the
    switch, keeps others from writing vectors of the old space.
    """

    def __init__(
        self,
        *,
        feed: StoredFeed,
        overhaul: StoredOverhaul,
        embedder: Embedder,
        texts: Callable[[FeedChanges], Mapping[str, str]],
        switching: Callable[[], AbstractAsyncContextManager[None]],
        tell: Callable[[ReembeddingProgress], Awaitable[None]],
    ) -> None:
        self._feed = feed
        self._overhaul = overhaul
        self._embedder = embedder
        self._texts = texts
        self._switching = switching
        self._tell = tell
        self._threads = Threads()
        self._began = elapsed()
        self._done = self._total = self._embedded = 0

    async def run(self) -> ReembeddingReport:
        """
        Embed what has no new vector yet, then switch.

        *Raises* ``ModelError``: the embedder failed; what was embedded before is kept for the next
        run; ``StoreError``: the store could not be read or written. *Cancellation*: safe; the
        switch completes or does not begin.
        """
        space = self._embedder.space
        before = await self._feed.space()
        if before is None or (before.name, before.dimensions) == (space.name, space.dimensions):
            named = str(before) if before else None
            return ReembeddingReport(before=named, after=named)
        self._total = (await self._feed.counts())["vectors"]
        await self._overhaul.begin_move(space)
        cursor = await self._follow(FeedCursor(vector=NO_VECTORS))
        async with self._switching():
            cursor = await self._follow(cursor)
            with anyio.CancelScope(shield=True):
                vectors = await self._overhaul.switch(space, cursor)
        return ReembeddingReport(
            before=str(before),
            after=str(space),
            embedded=self._embedded,
            vectors=vectors,
            duration_s=elapsed() - self._began,
        )

    async def _follow(self, cursor: FeedCursor) -> FeedCursor:
        """Embed what came after *cursor*, up to what is there now; give how far it came."""
        more = True
        while more:
            changes = await self._feed.changes(cursor, limit=PAGE)
            texts, digests = await self._threads.run(self._read, changes)
            missing = await self._overhaul.unmoved(digests)
            self._done += _documents(texts.keys() - missing)
            await self._embed({key: texts[key] for key in texts if key in missing}, digests)
            cursor, more = changes.cursor, changes.more
        return cursor

    def _read(self, changes: FeedChanges) -> tuple[Mapping[str, str], dict[str, bytes]]:
        texts = self._texts(changes)
        breather, digests = Breather(), {}
        for key, text in texts.items():
            digests[key] = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            breather.breathe()
        return texts, digests

    async def _embed(self, texts: Mapping[str, str], digests: Mapping[str, bytes]) -> None:
        """Embed *texts*, those of like length together and equal ones once, and stage them."""
        space, same = self._embedder.space, dict[bytes, list[str]]()
        for key in sorted(texts, key=lambda key: len(texts[key])):
            same.setdefault(digests[key], []).append(key)
        left = iter(same.items())
        while batch := dict(islice(left, BATCH)):
            said = [texts[keys[0]] for keys in batch.values()]
            reply = await self._embedder.embed(said, kind="document")
            rows = unit_rows(reply, rows=len(batch), dimensions=space.dimensions)
            staged = {
                key: (digest, row)
                for (digest, keys), row in zip(batch.items(), rows, strict=True)
                for key in keys
            }
            await self._overhaul.stage(space, staged)
            self._embedded += len(staged)
            self._done += _documents(staged)
            progress = self._progress()
            reached(progress.done, progress.total)
            await self._tell(progress)

    def _progress(self) -> ReembeddingProgress:
        return ReembeddingProgress(
            done=self._done,
            total=max(self._total, self._done),
            embedded=self._embedded,
            texts_per_s=self._embedded / max(elapsed() - self._began, 1e-9),
        )


def _documents(keys: Iterable[str]) -> int:
    return sum(not passage_place(key)[1] for key in keys)


# ── The way to another space, as rows ────────────────────────────────────────────────


class StoredOverhaul(StoredErasure):
    """What is written to a repository while nobody else writes: erasure, another space."""

    async def begin_move(self, space: EmbeddingSpace) -> None:
        """Set the target space; staging for another is dropped. *Cancellation*: completes."""

        def begin(tx: Tx) -> None:
            repo = repo_number(tx, self._repo_id)
            if _next(tx, repo) != (space.name, space.dimensions):
                tx.run(_CLEAR, (repo,))
                tx.run(_SET_NEXT, (space.name, space.dimensions, repo))

        await self._engine.writing(begin, locks=[("graph", self._repo_id)])

    async def unmoved(self, digests: Mapping[str, bytes]) -> frozenset[str]:
        """Those of the keys that no vector is staged for, of a text with this digest."""

        def staged(tx: Tx) -> dict[str, bytes]:
            repo = repo_row(tx, self._repo_id)[0]
            return dict(tx.run(_STAGED, (repo, listed(digests))).fetchall())

        found = await self._engine.reading(staged)
        return frozenset(key for key, digest in digests.items() if found.get(key) != digest)

    async def stage(
        self, space: EmbeddingSpace, vectors: Mapping[str, tuple[bytes, Vector]]
    ) -> None:
        """
        Keep vectors with their texts' digests for the switch, of those whose owner is there.

        *Raises* ``Conflict``: the repository is not on its way to *space* any more. *Cancellation*:
        completes.
        """
        rows = [(key, digest, encode_vector(row)) for key, (digest, row) in vectors.items()]

        def keep(tx: Tx) -> None:
            repo = repo_row(tx, self._repo_id)[0]
            _check_next(tx, repo, space)
            owned = owned_keys(tx, repo, list(vectors))
            tx.run_many(_STAGE, [(repo, *row) for row in rows if row[0] in owned])

        kinds = ("graph", "transcript")  # of what the owners are
        await self._engine.writing(keep, locks=[(kind, self._repo_id) for kind in kinds])

    async def switch(self, space: EmbeddingSpace, cursor: FeedCursor) -> int:
        """Put the staged vectors in force, in one transaction. *Cancellation*: completes."""
        return await self._engine.writing(
            partial(switch_space, repo_id=self._repo_id, space=space, cursor=cursor),
            locks=repository_locks(self._repo_id),
        )


_NEXT = "SELECT next_space_name, next_space_dimensions FROM repos WHERE no = ?"
_SET_NEXT = "UPDATE repos SET next_space_name = ?, next_space_dimensions = ? WHERE no = ?"
_CLEAR = "DELETE FROM moving WHERE repo = ?"
_STAGED = "SELECT key, digest FROM moving WHERE repo = ? AND key IN $texts"
_STAGE = """
INSERT INTO moving (repo, key, digest, vector) VALUES (?, ?, ?, ?)
ON CONFLICT (repo, key) DO UPDATE SET digest = excluded.digest, vector = excluded.vector
"""

_DROP = "DELETE FROM vectors WHERE repo = ?"


def _ends(id: str, ends: Iterable[str]) -> str:
    """The keys of the vectors of *id*, an expression, in a list of SQL."""
    return ", ".join(f"{id} || '{end}'" for end in ends)


_WAITING = "SELECT count(*) FROM moving WHERE repo = ?"
_MOVE = """
INSERT INTO vectors (seq, repo, key, vector)
SELECT CAST(? AS BIGINT) + row_number() OVER (ORDER BY {}), m.repo, m.key, m.vector
"""
# What was said anew since it was read is embedded again, as anything new is.
_MOVE_NODES = f"""
{_MOVE.format("n.no")} FROM moving m
JOIN nodes n ON n.repo = m.repo AND m.key IN ({_ends("n.id", PASSAGE_KEYS)})
WHERE m.repo = ? AND n.revision <= ?
"""
_MOVE_STEPS = f"""
{_MOVE.format("t.ordinal")} FROM steps t
$join moving m ON m.repo = t.repo
AND m.key IN ({_ends("t.node_id", SIDE_KEYS)})
WHERE t.repo = ? AND t.gone = 0
"""
_MOVE_MESSAGES = f"""
{_MOVE.format("o.no")} FROM messages o $join moving m ON m.repo = o.repo
AND m.key IN ({_ends("'message-' || o.no", SIDE_KEYS)})
WHERE o.repo = ?
"""
_WORDED = """
SELECT no, id, type, body FROM nodes
WHERE repo = ? AND type = 'intent' AND body LIKE '%"wordings"%'
"""
_SET_BODY = "UPDATE nodes SET body = ? WHERE $also repo = ? AND no = ?"
_STAGED_VECTOR = "SELECT vector FROM moving WHERE repo = ? AND key = ?"
_STAMP = """
UPDATE repos SET space_name = ?, space_dimensions = ?,
       next_space_name = NULL, next_space_dimensions = NULL
WHERE no = ?
"""
_UNENDED = """
FROM episodes e WHERE e.repo = ? AND e.status IN ('open', 'closed')
"""
_FORGET_SUBGOALS = f"""
UPDATE steps SET subgoal_vector = NULL
WHERE repo = ? AND episode IN (SELECT e.no {_UNENDED}) AND subgoal_vector IS NOT NULL
"""
_CHANGESETS = f"SELECT e.no, e.changeset {_UNENDED} AND e.changeset IS NOT NULL"
_SET_CHANGESET = "UPDATE episodes SET changeset = ? WHERE $also repo = ? AND no = ?"
_TRAJECTORIES = f"""
SELECT g.episode, g.key, g.changeset FROM staged g
WHERE g.repo = ? AND g.episode IN (SELECT e.no {_UNENDED})
"""
_SET_TRAJECTORY = "UPDATE staged SET changeset = ? WHERE repo = ? AND episode = ? AND key = ?"


def _next(tx: Tx, repo: int) -> tuple[str | None, int | None]:
    found: tuple[str | None, int | None] | None = tx.run(_NEXT, (repo,)).fetchone()
    return found or (None, None)


def _check_next(tx: Tx, repo: int, space: EmbeddingSpace) -> None:
    """*Raises* ``Conflict``: somebody else moves it to another space, or has moved it."""
    if _next(tx, repo) != (space.name, space.dimensions):
        raise Conflict(f"the repository is not on its way to {space} any more")


def switch_space(tx: Tx, repo_id: str, space: EmbeddingSpace, cursor: FeedCursor) -> int:
    """
    Put the staged vectors in the place of the old ones; give how many there are.

    Staged changesets, annotations of unfinished sessions and items lose theirs, to be embedded
    again. *Raises* ``Conflict``: the repository is not on its way to *space* any more.
    """
    repo = repo_row(tx, repo_id)[0]
    _check_next(tx, repo, space)
    tx.run(_DROP, (repo,))
    (waiting,) = tx.run(_WAITING, (repo,)).fetchone()
    last = tx.dialect.reserve(tx, "vectors", {repo: waiting})[repo]
    moved = tx.run(_MOVE_STEPS, (last, repo)).rowcount
    moved += tx.run(_MOVE_MESSAGES, (last + moved, repo)).rowcount
    moved += tx.run(_MOVE_NODES, (last + moved, repo, cursor.revision)).rowcount
    _move_wordings(tx, repo)
    _move_jobs(tx, repo, space)
    tx.run(_STAMP, (space.name, space.dimensions, repo))
    tx.run(_CLEAR, (repo,))
    tx.run(_FORGET_SUBGOALS, (repo, repo))
    owe_items(tx, repo)
    changesets = _EPISODES.intact(tx.run(_CHANGESETS, (repo,)).fetchall())
    tx.run_many(_SET_CHANGESET, [(blob, repo, no) for blob, no in changesets])
    staged = _STAGED_ROWS.intact(tx.run(_TRAJECTORIES, (repo, repo)).fetchall())
    tx.run_many(_SET_TRAJECTORY, [(blob, repo, *place) for blob, *place in staged])
    return moved


def _move_wordings(tx: Tx, repo: int) -> None:
    """Give the wordings of intents their staged vectors; those that have none lose theirs."""
    breather = Breather()
    for number, *row in tx.run(_WORDED, (repo,)).fetchall():
        # A damaged one says nothing that could be found by a vector.
        intent = next(iter(NODES.whole.all([row], [])), None)
        if not isinstance(intent, Intent):
            continue
        moved = tuple(
            replace(one, vector=_staged_vector(tx, repo, wording_key(intent.id, one.text)))
            for one in intent.wordings
        )
        after = stored_node(replace(intent, wordings=moved)).body
        tx.run(_SET_BODY, (after, repo, number))
        breather.breathe()


def _move_jobs(tx: Tx, repo: int, space: EmbeddingSpace) -> None:
    """Have the jobs that are owed be done in the new space."""
    for state in (JobState.WAITING, JobState.RUNNING, JobState.DEAD):
        for job in find_jobs(tx, repo, state, due=None, limit=None):
            if "space" in job.needs:
                # Up to where all was embedded is said of the space before.
                needs = {name: need for name, need in job.needs.items() if name != "until"}
                needs["space"] = str(space)
                JOBS.put(tx, repo, replace(job, needs=needs))


def _staged_vector(tx: Tx, repo: int, key: str) -> Vector | None:
    row = tx.run(_STAGED_VECTOR, (repo, key)).fetchone()
    return None if row is None else next(iter(_MOVED.all([(key, *row)], [])), None)


def _unembedded(blob: bytes) -> bytes:
    return encode_changeset(decode_changeset(blob).without_vectors())


_MOVED = Rows("moving", "s b", lambda row: decode_vector(row[1]))
_EPISODES = Rows("episodes", "i b", lambda row: (_unembedded(row[1]), row[0]))
_STAGED_ROWS = Rows(
    "staged", "i s b", lambda row: (_unembedded(row[2]), row[0], row[1]), key=(0, 1)
)

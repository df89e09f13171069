"""What one repository's indexes follow: every searchable text, in order of change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from mnemo.log.vectors import check_space, drop_vectors, put_vectors, stamp
from mnemo.protocols import EmbeddingSpace, FeedChanges, FeedCursor
from mnemo.runtime.clock import Breather
from mnemo.store import tables
from mnemo.store.engine import OfRepository, compute
from mnemo.store.rows import Passed, Rows, listed, log_passed, repo_row
from mnemo.store.table import ARRIVAL
from mnemo.store.tx import Tx
from mnemo.values.changeset import Revision
from mnemo.values.codec import decode_time, decode_vector, encode_vector
from mnemo.values.feed import document_number, is_document, message_document
from mnemo.values.graph import Node, Vector, wording_owner
from mnemo.values.messages import EMBEDDED, StoredMessage
from mnemo.values.steps import Step
from mnemo.values.vectors import SIDE_KEYS, SIDES, owner_of_vector

T = TypeVar("T")

_STEP = f"s.id, e.id, {tables.STEPS.of('t')}, t.ordinal"
STEP_COLUMNS = f"{_STEP}, {tables.ANNOTATIONS.of('t')}"
"""What ``STEPS.rows`` expects, of ``steps t``, ``episodes e``, ``sessions s``."""
# Annotations are half of what is stored of a step.
_UNANNOTATED = f"{_STEP}{', NULL' * len(tables.ANNOTATIONS.columns)}"
_FROM_STEPS = """
SELECT {} FROM steps t
JOIN episodes e ON e.no = t.episode AND $also e.repo = t.repo
JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
"""
_NEW_STEPS = (
    _FROM_STEPS.format(_UNANNOTATED)
    + """
WHERE t.repo = ? AND t.ordinal > ? AND t.gone = 0 ORDER BY t.ordinal LIMIT ?
"""
)
_SPOKEN = ", ".join(f"'{kind}'" for kind in sorted(EMBEDDED))
_NEW_MESSAGES = f"""
SELECT {tables.MESSAGE_COLUMNS}, m.no FROM messages m
$join threads t ON t.no = m.thread AND $also t.repo = m.repo
WHERE m.repo = ? AND m.no > ? AND m.kind IN ({_SPOKEN}) ORDER BY m.no LIMIT ?
"""
_REPEATS = f"""
SELECT p.node_id, m.no FROM steps p $join threads q ON q.repo = p.repo AND q.id = p.thread
$join messages m ON m.repo = q.repo AND m.thread = q.no AND m.id = p.message
WHERE p.repo = ? AND p.ordinal BETWEEN ? AND ? AND p.gone = 0 AND m.kind IN ({_SPOKEN})
"""
_OF_MESSAGE = """
SELECT m.no FROM threads t $join messages m ON m.repo = t.repo AND m.thread = t.no
WHERE t.repo = ? AND m.id IN $texts
"""
_MESSAGES_BY_NUMBER = f"""
SELECT {tables.MESSAGE_COLUMNS}, m.no, t.ttl_s FROM messages m
$join threads t ON t.no = m.thread AND $also t.repo = m.repo
WHERE m.repo = ? AND m.no IN $numbers
"""
_BEFORE = f"""
SELECT m.no, p.no FROM messages m
$join messages p ON p.repo = m.repo AND p.thread = m.thread AND p.epoch = m.epoch
  AND p.seq BETWEEN m.seq - 2 AND m.seq - 1
WHERE m.repo = ? AND m.no IN $numbers AND p.kind IN ({_SPOKEN}) ORDER BY p.seq DESC
"""
_STEPS_BY_NODE = _FROM_STEPS.format(STEP_COLUMNS) + "WHERE t.repo = ? AND t.node_id IN $texts"
_CHANGED_NODES = """
SELECT id, type, body, NULL, revision FROM nodes
WHERE repo = ? AND revision > ? AND revision <= ? AND type NOT IN ('episodic', 'source')
ORDER BY revision, no
"""
# The last revision of which everything fits into the limit; at least the first one.
_LAST_WHOLE_REVISION = """
SELECT revision, count(*) FROM nodes
WHERE repo = ? AND revision > ? AND type NOT IN ('episodic', 'source')
GROUP BY revision ORDER BY revision
"""
_LAST_REMOVAL = "SELECT coalesce(max(seq), 0) FROM removals WHERE repo = ?"
_NEW_VECTORS = """
SELECT seq, key, vector FROM vectors WHERE repo = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_NEWEST = (
    """SELECT node_id FROM steps WHERE repo = ? AND gone = 0 AND message IS NULL
       ORDER BY ordinal DESC LIMIT 32""",
    f"SELECT no FROM messages WHERE repo = ? AND kind IN ({_SPOKEN}) ORDER BY no DESC LIMIT 32",
    """SELECT id FROM nodes WHERE repo = ? AND type NOT IN ('episodic', 'source')
       ORDER BY revision DESC, no DESC LIMIT 32""",
)
_VECTORS_OF = "SELECT seq, key, vector FROM vectors WHERE repo = ? AND key IN $texts"
_WITH_VECTORS = "SELECT key FROM vectors WHERE repo = ? AND key IN $texts"
# ``$join`` keeps the order: the few ids, then their edges by index.
_TAGS = """
SELECT f.id, $field(t.body, label) FROM nodes f
$join edges e ON e.repo = f.repo AND e.target = f.no AND e.kind = 'membership'
$join nodes t ON t.no = e.source AND $also t.repo = e.repo
WHERE f.repo = ? AND f.id IN $texts ORDER BY t.no
"""
_STEPS_BEHIND = """
SELECT f.id, s.id, s.at FROM nodes f
$join edges e ON e.repo = f.repo AND e.source = f.no AND e.kind = 'provenance'
$join nodes s ON s.no = e.target AND $also s.repo = e.repo
WHERE f.repo = ? AND f.id IN $texts ORDER BY s.no
"""
_INTENTS = """
SELECT p.id, $field(i.body, description) FROM nodes p
$join edges e ON e.repo = p.repo AND e.target = p.no AND e.kind = 'hierarchical'
$join nodes i ON i.no = e.source AND $also i.repo = e.repo
WHERE p.repo = ? AND p.id IN $texts ORDER BY i.no
"""
# Of changesets with one revision the first wrote it, unless an erasure did; the others wrote
# nothing, and name nothing. Upkeep never does, but is remembered only where it wrote.
_CHANGESETS = f"""
SELECT revision, id FROM changesets WHERE repo = ? AND revision BETWEEN ? AND ?
AND (node_ids <> '[]' OR edge_count > 0 OR id LIKE 'upkeep-%') ORDER BY {ARRIVAL} DESC
"""
# Most vectors are of steps.
_OWNERS_OF_VECTORS = (
    "SELECT node_id FROM steps WHERE repo = ? AND gone = 0 AND node_id IN $texts",
    "SELECT id FROM nodes WHERE repo = ? AND id IN $texts",
)
_CHANGED_SINCE = """
SELECT id FROM nodes WHERE repo = ? AND revision > ? AND id IN $texts
AND type <> 'episodic'
"""
# A step's node comes with a commit, its text with the step: that never changes.
_STORED_MESSAGES = "SELECT no FROM messages WHERE repo = ? AND no IN $numbers"
_GOALS = "SELECT id, goal FROM episodes WHERE repo = ? AND id IN $texts"
_COUNTS = """
SELECT 'steps', count(*) FROM steps WHERE repo = :repo
UNION ALL SELECT 'messages', coalesce(sum(next_seq - erased), 0) FROM threads WHERE repo = :repo
UNION ALL SELECT 'messages_in_sessions', count(*) FROM (
          SELECT DISTINCT thread, message FROM steps
          WHERE repo = :repo AND thread IS NOT NULL) taken
UNION ALL SELECT 'vectors', count(*) FROM vectors WHERE repo = :repo
UNION ALL SELECT 'checkpoints', count(*) FROM checkpoints WHERE repo = :repo
UNION ALL SELECT 'items', count(*) FROM items WHERE repo = :repo
UNION ALL SELECT 'nodes:' || type, count(*) FROM nodes WHERE repo = :repo GROUP BY type
UNION ALL SELECT 'edges:' || kind, count(*) FROM edges WHERE repo = :repo GROUP BY kind
"""


_TIMES = Rows("nodes", "s s?", lambda row: row[1] and decode_time(row[1]))
_EPISODES = Rows("episodes", "s s", lambda row: (row[0], row[1]))

_Found: TypeAlias = tuple[StoredMessage, float | None]
"""A message and the ``ttl_s`` of its thread."""


class StoredFeed(OfRepository):
    """What one repository's indexes follow."""

    async def changes(self, after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        """
        What came after *after*, of one read transaction; *removed* goes before the rest. At most
        *limit* steps, messages, nodes and vectors each.
        """
        return await self._engine.reading(
            partial(_changes, repo_id=self._repo_id, after=after, limit=limit)
        )

    async def save_vectors(
        self,
        space: EmbeddingSpace,
        vectors: Mapping[str, Vector],
        *,
        as_of: Revision | None = None,
    ) -> None:
        """
        Keep vectors; keys whose owner is gone are skipped, and those of nodes that changed since
        the revision *as_of*, when their texts were read. *Cancellation*: completes.

        *Raises* ``EmbeddingSpaceMismatch``: the repository is stamped with another space.
        """
        rows = await compute(partial(_encoded, vectors))
        # Else an owner that is looked for, and is there, may be gone by the time of the insert.
        kinds = ("graph", "transcript") if any(map(_is_of_message, rows)) else ("graph",)
        await self._engine.writing(
            partial(_save_vectors, repo_id=self._repo_id, space=space, vectors=rows, as_of=as_of),
            locks=[(kind, self._repo_id) for kind in kinds],
        )

    async def vectors(self, keys: Sequence[str]) -> dict[str, Vector]:
        """The vectors of *keys*, as far as there are any. *Cancellation*: safe."""

        def read(tx: Tx) -> dict[str, Vector]:
            repo, _, _, dimensions = repo_row(tx, self._repo_id)
            passed: Passed = []
            rows = tx.run(_VECTORS_OF, (repo, listed(keys))).fetchall()
            vectors = _vectors(rows, dimensions, passed) if rows else {}
            log_passed(passed)
            return vectors

        return await self._engine.reading(read)

    async def space(self) -> EmbeddingSpace | None:
        """What the repository is stamped with; ``None`` before the first vector."""
        return await self._engine.reading(lambda tx: stamp(repo_row(tx, self._repo_id)))

    async def steps(self, node_ids: Sequence[str]) -> dict[str, Step]:
        """The steps behind episodic node ids, committed or not, with their annotations."""
        return await self._named(
            _STEPS_BY_NODE,
            node_ids,
            lambda rows: {s.node_id: s for s in tables.STEPS.rows.intact(rows)},
        )

    async def messages(self, ids: Sequence[str]) -> dict[str, _Found]:
        """The messages behind ids of documents; expired ones are among them."""
        numbers = [no for id in ids if (no := document_number(id)) is not None]
        return await self._named(_MESSAGES_BY_NUMBER, numbers, _by_document)

    async def before(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Ids of messages' documents → those of the two before each, the latest first."""
        numbers = [no for id in ids if (no := document_number(id)) is not None]
        found: dict[str, list[str]] = {message_document(no): [] for no in numbers}
        for number, before in await self._named(_BEFORE, numbers, list) if numbers else ():
            found[message_document(number)].append(message_document(before))
        return found

    async def documents_of(self, message_id: str) -> list[str]:
        """The ids of the documents of messages of this id, in whatever threads."""
        found = await self._named(_OF_MESSAGE, [message_id], list)
        return [message_document(number) for (number,) in found]

    async def without_vectors(self, keys: Collection[str]) -> set[str]:
        """Those of *keys* under which no vector is stored."""
        return {*keys} - await self._named(_WITH_VECTORS, keys, lambda rows: {k for (k,) in rows})

    async def goals(self, episode_ids: Sequence[str]) -> dict[str, str]:
        """The goals of episodes; unknown ones are absent."""
        return await self._named(_GOALS, episode_ids, lambda rows: dict(_EPISODES.intact(rows)))

    async def _named(
        self, query: str, names: Iterable[str | int], made: Callable[[list[Any]], T]
    ) -> T:
        """What is *made* of the rows of *query* that have one of *names*."""

        def read(tx: Tx) -> T:
            return made(tx.run(query, (repo_row(tx, self._repo_id)[0], listed(names))).fetchall())

        return await self._engine.reading(read)

    async def counts(self) -> dict[str, int]:
        """How many there are of each thing, and of nodes and edges as ``nodes:<type>``."""

        def count(tx: Tx) -> dict[str, int]:
            repo = repo_row(tx, self._repo_id)[0]
            counts = tx.run(_COUNTS, {"repo": repo}).fetchall()
            # A damaged type or kind is no text, and none that is counted.
            return {kind: count for kind, count in counts if isinstance(kind, str)}

        return await self._engine.reading(count)


def _by_document(rows: Iterable[Sequence[Any]]) -> dict[str, _Found]:
    found = ((row, message) for row in rows for message in tables.MESSAGES.rows.intact([row]))
    return {message_document(row[-2]): (message, row[-1]) for row, message in found}


# ── Following ────────────────────────────────────────────────────────────────────────


def _changes(tx: Tx, repo_id: str, after: FeedCursor, limit: int) -> FeedChanges:
    row = repo_row(tx, repo_id)
    repo, revision, _, dimensions = row
    passed: Passed = []
    steps, last_step, more_steps = _new_steps(tx, repo, after.step, limit, passed)
    unread = {damage.row: damage.key or "" for damage in passed}
    new = _new_messages(tx, repo, after.message, limit, passed, unread)
    messages, last_message, more_messages = new
    until = _whole_revisions(tx, repo, after.revision, revision, limit)
    rows = tx.run(_CHANGED_NODES, (repo, after.revision, until)).fetchall()
    nodes = tables.NODES.whole.all(rows, passed)
    removals, missed = _removals(tx, repo, after)
    stored = tx.run(_NEW_VECTORS, (repo, after.vector, limit)).fetchall()
    cursor = FeedCursor(
        step=last_step,
        revision=until,
        removal=removals[-1][0] if removals else after.removal,
        vector=stored[-1][0] if stored else after.vector,
        message=last_message,
    )
    vectors = _vectors(stored, dimensions, passed) if stored else {}
    details = _details(tx, repo, nodes, passed) if nodes else {}
    log_passed(passed)
    return FeedChanges(
        cursor=cursor,
        revision=revision,
        repo=repo,
        steps=tuple(steps),
        messages=messages,
        repeats=_repeats(tx, repo, steps) if steps else {},
        nodes=tuple(nodes),
        details=details,
        origins=_origins(tx, repo, {row[0]: row[4] for row in rows}) if rows else {},
        removed=tuple(id for _, id in removals if id is not None),
        vectors=vectors,
        damaged=tuple(damage.row for damage in passed),
        unread=unread,
        missed=missed or last_step < after.step or last_message < after.message,
        more=more_steps or more_messages or until < revision or len(stored) == limit,
        space=stamp(row),
    )


def _new_steps(
    tx: Tx, repo: int, after: int, limit: int, passed: Passed
) -> tuple[list[Step], int, bool]:
    """Steps behind *after*, the ordinal up to which that is all, and whether more follow."""
    rows = tx.run(_NEW_STEPS, (repo, after, limit)).fetchall()
    steps = tables.STEPS.rows.all(rows, passed)
    if len(rows) == limit:
        return steps, rows[-1][tables.STEPS.ordinal], True
    return steps, tx.dialect.last_number(tx, "steps", repo), False


def _new_messages(
    tx: Tx, repo: int, after: int, limit: int, passed: Passed, unread: dict[str, str]
) -> tuple[dict[str, StoredMessage], int, bool]:
    """
    Messages behind *after* by document, the number up to which that is all, whether more; damaged
    ones with their documents to *unread*.
    """
    rows = tx.run(_NEW_MESSAGES, (repo, after, limit)).fetchall()
    found = dict[str, StoredMessage]()
    for row in rows:
        document, known = message_document(row[-1]), len(passed)
        for message in filter(is_document, tables.MESSAGES.rows.all([row], passed)):
            found[document] = message
        unread |= {damage.row: document for damage in passed[known:]}
    if len(rows) == limit:
        return found, rows[-1][-1], True
    return found, tx.dialect.last_number(tx, "messages", repo), False


def _repeats(tx: Tx, repo: int, steps: Sequence[Step]) -> dict[str, str]:
    """Node ids of *steps* that were made of a stored message → the document of that."""
    ordinals = [step.ordinal for step in steps if step.message_id is not None]
    if not ordinals:
        return {}
    rows = tx.run(_REPEATS, (repo, min(ordinals), max(ordinals)))
    return {node_id: message_document(no) for node_id, no in rows}


def _whole_revisions(tx: Tx, repo: int, after: int, present: int, limit: int) -> int:
    """How far one read goes: a revision is read whole or not at all, but at least one."""
    count = 0
    last = after
    for revision, number in tx.run(_LAST_WHOLE_REVISION, (repo, after)):
        count += number
        if count > limit and last > after:
            return int(last)
        last = revision
    return present


def _removals(
    tx: Tx, repo: int, after: FeedCursor
) -> tuple[Sequence[tuple[int, str | None]], bool]:
    """What is gone since *after*, and whether some is missed; who starts anew has it all."""
    if replace(after, vector=0) == FeedCursor():
        (last,) = tx.run(_LAST_REMOVAL, (repo,)).fetchone()
        return [(last, None)], False
    return removals_behind(tx, repo, after.removal)


def _details(tx: Tx, repo: int, nodes: Sequence[Node], passed: Passed) -> dict[str, dict[str, Any]]:
    facts = [node.id for node in nodes if node.type == "semantic"]
    instructions = [node.id for node in nodes if node.type == "procedural"]
    tags = _grouped(tx, _TAGS, repo, facts)
    intents = _grouped(tx, _INTENTS, repo, instructions)
    steps = _grouped(tx, _STEPS_BEHIND, repo, [*facts, *instructions])
    details: dict[str, dict[str, Any]] = {}
    for id in facts:
        behind = steps.get(id, ())
        times = [at for at in _TIMES.all(behind, passed) if at is not None]
        details[id] = {
            "tags": _texts(tags.get(id, ())),
            "latest_at": max(times, default=None),
            "steps": _ids(behind),
        }
    for id in instructions:
        behind = steps.get(id, ())
        details[id] = {"intents": _texts(intents.get(id, ())), "steps": _ids(behind)}
    return details


def _ids(rows: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    return tuple(sorted(id for id, _ in rows if isinstance(id, str)))


def _texts(rows: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """What routing nodes say; a damaged one says nothing, and is itself met as a node."""
    return tuple(text for (text,) in rows if isinstance(text, str))


def _origins(tx: Tx, repo: int, revisions: Mapping[str, int]) -> dict[str, str]:
    between = (repo, min(revisions.values()), max(revisions.values()))
    changesets = dict(tx.run(_CHANGESETS, between).fetchall())
    origins = ((id, changesets.get(no)) for id, no in revisions.items())
    return {id: origin for id, origin in origins if isinstance(origin, str)}


def _grouped(tx: Tx, query: str, repo: int, ids: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of *query* by their first column, which is an id of *ids*."""
    groups: dict[str, list[tuple[Any, ...]]] = {}
    breather = Breather()
    for id, *values in tx.run(query, (repo, listed(ids))) if ids else ():
        groups.setdefault(id, []).append(tuple(values))
        breather.breathe()
    return groups


# ── Vectors ──────────────────────────────────────────────────────────────────────────


def _vectors(
    stored: Sequence[tuple[int, Any, Any]], dimensions: int | None, passed: Passed
) -> dict[str, Vector]:
    """Key → vector of rows (number, key, vector)."""
    found = _decoded(stored, dimensions)
    if found is not None:
        return found
    rows: Rows[tuple[str, Vector]] = Rows(
        "vectors", "i s b", lambda row: (row[1], decode_vector(row[2], dimensions)), key=(1,)
    )
    return dict(rows.all(stored, passed))


def _decoded(
    stored: Sequence[tuple[int, Any, Any]], dimensions: int | None
) -> dict[str, Vector] | None:
    """All of them at once, which takes a third of the time; ``None`` if one is damaged."""
    keys, blobs = [row[1] for row in stored], [row[2] for row in stored]
    if not {*map(type, keys)} <= {str} or not {*map(type, blobs)} <= {bytes}:
        return None
    if dimensions is None or {*map(len, blobs)} != {4 * dimensions}:
        return None
    try:
        rows = decode_vector(b"".join(blobs)).reshape(-1, dimensions)
    except ValueError:
        return None
    return dict(zip(keys, rows, strict=True))


def _encoded(vectors: Mapping[str, Vector]) -> dict[str, bytes]:
    breather = Breather()
    rows = {}
    for key, vector in vectors.items():
        rows[key] = encode_vector(vector)
        breather.breathe()
    return rows


def _save_vectors(
    tx: Tx,
    repo_id: str,
    space: EmbeddingSpace,
    vectors: dict[str, bytes],
    as_of: Revision | None = None,
) -> None:
    # Of a repository that was deleted meanwhile nothing is kept, not even its name.
    row = repo_row(tx, repo_id)
    owned = owned_keys(tx, row[0], list(vectors))
    if as_of is not None and as_of < row[1]:
        owners = {key: {key, owner_of_vector(key)[0]} for key in owned}
        said_anew = (row[0], as_of, listed(set().union(*owners.values())))
        changed = {id for (id,) in tx.run(_CHANGED_SINCE, said_anew)}
        owned = {key for key in owned if not owners[key] & changed}
    kept = {key: vector for key, vector in vectors.items() if key in owned}
    check_space(tx, repo_id, space, kept.values(), row)
    put_vectors(tx, row[0], kept)


def owes_vectors(tx: Tx, repo: int) -> bool:
    """Whether one of the newest 32 steps, messages or nodes has none: an earlier run left it."""
    for query in _NEWEST:
        newest = (one for (one,) in tx.run(query, (repo,)).fetchall())
        ids = [message_document(one) if isinstance(one, int) else one for one in newest]
        keys = [key for id in ids for key in (id, *(f"{id}{side}" for side in SIDES))]
        known = tx.run(_WITH_VECTORS, (repo, listed(keys))).fetchall() if keys else ()
        if {*ids} - {owner_of_vector(key)[0] for (key,) in known}:
            return True
    return False


def _is_of_message(key: str) -> bool:
    return document_number(owner_of_vector(key)[0]) is not None


def owned_keys(tx: Tx, repo: int, keys: Iterable[str]) -> set[str]:
    """Those of *keys* whose node, step or message is there."""
    # An id may itself look like the key of a passage.
    owners = {key: {key, wording_owner(owner_of_vector(key)[0])} for key in keys}
    known = _stored_messages(tx, repo, set().union(*owners.values()))
    for query in _OWNERS_OF_VECTORS:
        if unknown := set().union(*(ids for ids in owners.values() if not ids & known)):
            known.update(id for (id,) in tx.run(query, (repo, listed(unknown))))
    return {key for key, ids in owners.items() if ids & known}


def _stored_messages(tx: Tx, repo: int, ids: Iterable[str]) -> set[str]:
    """Those of *ids* that are of documents of stored messages."""
    numbers = [no for id in ids if (no := document_number(id)) is not None]
    rows = tx.run(_STORED_MESSAGES, (repo, listed(numbers))) if numbers else ()
    return {message_document(no) for (no,) in rows}


# ── Removals ─────────────────────────────────────────────────────────────────────────


KEPT = 10_000
"""
Removals of a repository that stay to be read, about half a megabyte; whoever follows from
before them starts again from nothing.
"""

_COLUMNS = ("seq", "repo", "node_id")
_DROP_OLD = """
DELETE FROM removals WHERE repo = ? AND seq <=
    (SELECT seq FROM removals WHERE repo = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)
"""
_BEHIND = "SELECT seq, node_id FROM removals WHERE repo = ? AND seq > ? ORDER BY seq"
_FIRST = "SELECT min(seq) FROM removals WHERE repo = ?"
_UNCOMMITTED = "repo = ? AND episode IN $numbers AND committed = 0 AND gone = 0"
_HIDDEN = f"SELECT node_id FROM steps $by(steps_place) WHERE {_UNCOMMITTED} ORDER BY ordinal"
_HIDE = f"UPDATE steps SET gone = 1 WHERE {_UNCOMMITTED}"


LEAVING: list[Callable[[Tx, int, Sequence[str], bool], None]] = []
"""What else leaves with ids, in their transaction; rooms above this one keep it."""


def leave_recall(
    tx: Tx,
    repo: int,
    ids: Sequence[str],
    *,
    changesets: Sequence[str] = (),
    expired: bool = False,
) -> None:
    """
    Log that *ids* are gone from recall, in the order in which followers read them; *changesets*
    are gone with them. What was made of them goes as well (``LEAVING``); of messages that are
    *expired* it may stay until the next scrub.
    """
    if ids := [*ids, *changesets]:
        first = tx.dialect.reserve(tx, "removals", {repo: len(ids)})[repo] + 1
        tx.insert("removals", _COLUMNS, [(no, repo, id) for no, id in enumerate(ids, first)])
        # After the numbers, which take the repository's row where writers run side by side.
        for leave in LEAVING:
            leave(tx, repo, ids, expired)
        # Not before: whoever adds holds the repository's row, and nobody else drops.
        tx.run(_DROP_OLD, (repo, repo, KEPT + len(ids)))


def removals_behind(tx: Tx, repo: int, after: int) -> tuple[list[tuple[int, str]], bool]:
    """
    The numbers and ids behind the number *after*, and whether some of them are logged no more. Rows
    go only while ``KEPT`` later ones stay; who stands where the log still is has missed none.
    """
    rows = tx.run(_BEHIND, (repo, after)).fetchall()
    return rows, len(rows) >= KEPT and after < tx.run(_FIRST, (repo,)).fetchone()[0]


def hide_uncommitted(tx: Tx, repo: int, episodes: Iterable[int]) -> None:
    """Take the uncommitted steps of *episodes* from recall; they stay in the record."""
    numbers = listed(episodes)
    # A damaged id was never followed.
    ids = [id for (id,) in tx.run(_HIDDEN, (repo, numbers)).fetchall() if isinstance(id, str)]
    drop_vectors(tx, repo, [f"{id}{end}" for id in ids for end in SIDE_KEYS])
    tx.run(_HIDE, (repo, numbers))
    leave_recall(tx, repo, ids)

"""Rows of an erasure: what is selected or named by ids, and the graph around it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from mnemo.errors import Conflict, NotFound, StoreCorrupt
from mnemo.log.erase_messages import thread_number, whole_units
from mnemo.runtime.clock import Breather
from mnemo.store.rows import Passed, Rows, listed
from mnemo.store.tables import MESSAGE_COLUMNS, MESSAGES, NODES
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_object, decode_time, utc_text
from mnemo.values.erasure import Selection
from mnemo.values.graph import Claim, EdgeKind, Node, NodeMetadata
from mnemo.values.messages import StoredMessage

CLAIMS = ("semantic", "procedural")
"""Types of facts and instructions."""
_ANY_TIME = datetime.min.replace(tzinfo=UTC)

# ── Rows of the graph ────────────────────────────────────────────────────────────────

_NODE = "no, id, type, episode_id, superseded_by"
_FIND = f"SELECT {_NODE} FROM nodes WHERE {{}} = ? AND {{}} IN {{}} ORDER BY no"
_WORDED = f"""
SELECT {_NODE}, body FROM nodes WHERE repo = ? AND type = 'intent'
AND body LIKE '%"wordings"%' ORDER BY no
"""
# ``$join`` keeps the order: a few numbers, then their edges by index.
_EDGES = """
SELECT e.source, e.target FROM $numbers x $join edges e ON e.repo = ? AND e.{} = x.value
WHERE e.kind IN $texts
"""
_READ = "SELECT id, type, body FROM nodes WHERE $also repo = ? AND no = ?"
_COUNTS = f"SELECT {NODES.counted} FROM nodes WHERE $also repo = ? AND no = ?"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The columns that erasure judges a node by, whether or not its body can be decoded."""

    no: int
    id: str
    type: str
    episode_id: str | None = None
    superseded_by: str | None = None


class GraphRows:
    """The graph of one repository as rows; nodes by ascending number."""

    def __init__(self, tx: Tx, repo: int) -> None:
        self._tx = tx
        self._repo = repo
        self._breather = Breather()

    def find(
        self,
        column: Literal["no", "id", "superseded_by"],
        values: Collection[int] | Collection[str],
    ) -> list[NodeRow]:
        owner, given = ("$also repo", "$numbers") if column == "no" else ("repo", "$texts")
        rows = self._tx.run(_FIND.format(owner, column, given), (self._repo, listed(values)))
        return [NodeRow(*row) for row in rows]

    def worded_by(self, step_ids: Collection[str]) -> list[NodeRow]:
        """The intents with a wording that one of these steps gave."""
        wanted, found = set(step_ids), []
        for *row, body in self._tx.run(_WORDED, (self._repo,)):
            if not wanted.isdisjoint(_wording_sources(body)):
                found.append(NodeRow(*row))
            self._breather.breathe()
        return found

    def edges(
        self,
        end: Literal["source", "target"],
        numbers: Collection[int],
        kinds: Sequence[EdgeKind] = tuple(EdgeKind),
    ) -> list[tuple[int, int]]:
        """Source and target of the edges with that end among *numbers*."""
        values = (listed(numbers), self._repo, listed(map(str, kinds)))
        found = self._tx.run(_EDGES.format(end), values)
        # A damaged end is no number, and leads nowhere.
        return [row for row in found if {*map(type, row)} == {int}]

    def read(self, number: int) -> Node:
        """The node of this number. *Raises* ``StoreCorrupt``: it is damaged."""
        self._breather.breathe()
        return NODES.whole.one(self._tx.run(_READ, (self._repo, number)).fetchone())

    def counts(self, number: int) -> NodeMetadata:
        """Its metadata. *Raises* ``StoreCorrupt``: they are damaged."""
        return NODES.counts.one(self._tx.run(_COUNTS, (self._repo, number)).fetchone())[1]


def _wording_sources(body: Any) -> list[str]:
    """The steps that gave the wordings of an intent; those that can be read of a damaged one."""
    try:
        said = decode_object(body)["wordings"]
        return [id for wording in said for id in wording[1] if isinstance(id, str)]
    except (ValueError, TypeError, LookupError, RecursionError):
        return []


# ── What is selected ─────────────────────────────────────────────────────────────────

_STEPS = """
SELECT t.ordinal, t.session, t.episode, t.node_id, t.at, t.thread FROM sessions s
$join episodes e ON e.repo = s.repo AND e.session = s.no
$join steps t ON t.repo = e.repo AND t.episode = e.no
WHERE s.repo = ? AND (CAST(? AS TEXT) IS NULL OR s.id = ?) ORDER BY t.ordinal
"""
_STEPS_OF_THREAD = """
SELECT t.ordinal, t.session, t.episode, t.node_id, t.at, t.thread FROM steps t $by(steps_message)
$join sessions s ON s.no = t.session AND $also s.repo = t.repo
WHERE t.repo = ? AND (CAST(? AS TEXT) IS NULL OR s.id = ?) AND t.thread = ? ORDER BY t.ordinal
"""
_MESSAGES = """
SELECT m.thread, m.seq, coalesce(m.at, m.recorded_at), t.id, m.id
FROM threads t $join messages m ON m.repo = t.repo AND m.thread = t.no
WHERE t.repo = ? AND (CAST(? AS TEXT) IS NULL OR t.id = ?) ORDER BY t.no, m.seq
"""
_SESSION = "SELECT no FROM sessions WHERE repo = ? AND id = ?"
_SESSION_IDS = "SELECT no, id FROM sessions WHERE $also repo = ? AND no IN $numbers"


StepRow = tuple[int, int, int, str]
"""Ordinal, session, episode and node's id of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """
    What is erased: steps, messages by thread and seq, facts and instructions themselves.

    *whole*: The number of the session that goes with everything it has. *thread*: That of the
    thread that goes whole, or 0. *applied*: Ids of nodes of steps that were applied by hand and are
    in no session. *newest*: Messages chosen from the end of a thread.
    """

    steps: Sequence[StepRow] = ()
    whole: frozenset[int] = frozenset()
    places: Sequence[tuple[int, int]] = ()
    thread: int = 0
    claims: Sequence[NodeRow] = ()
    applied: Sequence[str] = ()
    newest: tuple[StoredMessage, ...] = ()

    @property
    def sessions(self) -> frozenset[int]:
        """The sessions that lose steps, or go."""
        return self.whole.union(row[1] for row in self.steps)


def session_ids(tx: Tx, repo: int, sessions: Iterable[int]) -> dict[int, str]:
    return dict(tx.run(_SESSION_IDS, (repo, listed(sessions))).fetchall())


def choose(tx: Tx, repo: int, selection: Selection, unreadable: Passed) -> Chosen:
    """
    What *selection* takes.

    *Raises* ``NotFound``: an id is unknown; ``ValueError``: one of memories is of another node;
    ``Conflict``: a message's id is in several threads.
    """
    if selection.names_ids:
        named = _Named(tx, repo, selection, unreadable)
        return named.newest() if selection.newest else named.chosen()
    id, thread = selection.session_id, selection.thread_id
    query, of_thread = (_STEPS, ()) if thread is None else (_STEPS_OF_THREAD, (thread,))
    read = Rows("steps", "i i i s s s?", _taken_by(selection, 4), key=(3,))
    steps = read.all(tx.run(query, (repo, id, id, *of_thread)), unreadable)
    whole, places = selection.whole_thread, list[tuple[int, int]]()
    if selection.takes_messages and whole is None:
        read = Rows("messages", "i i s s s", _taken_by(selection, 2), key=(3, 4))
        rows = read.all(tx.run(_MESSAGES, (repo, thread, thread)), unreadable)
        places = [row[:2] for row in rows if row]
    return Chosen(
        steps=[row[:4] for row in steps if row],
        whole=frozenset(no for (no,) in tx.run(_SESSION, (repo, selection.whole_session))),
        places=places,
        thread=0 if whole is None else thread_number(tx, repo, whole),
    )


def _taken_by(selection: Selection, place: int) -> Callable[[Sequence[Any]], Any]:
    """Return a row if selected by time, compared as instants, at *place* and by thread."""

    def taken(row: Sequence[Any]) -> Any:
        at = _ANY_TIME if selection.before is None else decode_time(row[place])
        return row if selection.takes(at, row[place + 1]) else None

    return taken


# ── What is named ────────────────────────────────────────────────────────────────────

_NAMED_STEPS = """
SELECT t.ordinal, t.session, t.episode, t.node_id, t.thread, t.message FROM steps t
WHERE t.repo = ? AND t.node_id IN $texts
"""
_NEWEST = f"""
SELECT {MESSAGE_COLUMNS} FROM threads t
$join messages m $by(messages_place) ON m.repo = t.repo AND m.thread = t.no
WHERE $also t.repo = ? AND t.no = ? AND m.seq >= t.epoch_start AND m.recorded_at >= ?
ORDER BY m.seq DESC LIMIT ?
"""
_STEPS_OF_MESSAGES = """
SELECT t.node_id FROM threads h $join messages m ON m.repo = h.repo AND m.thread = h.no
$join steps t ON t.repo = h.repo AND t.thread = h.id
AND t.message = m.id WHERE $also h.repo = ? AND h.no = ? AND m.seq IN $numbers
"""
NAMED_MESSAGES = """
SELECT t.no, m.seq, m.id, t.id FROM threads t
$join messages m ON m.repo = t.repo AND m.thread = t.no
WHERE t.repo = ? AND (CAST(? AS TEXT) IS NULL OR t.id = ?) AND m.id IN $texts
"""


class _Named:
    """Finds what ids name, what it rests on, what was made of it, and the rest of tool groups."""

    def __init__(self, tx: Tx, repo: int, selection: Selection, unreadable: Passed) -> None:
        self._tx = tx
        self._repo = repo
        self._rows = GraphRows(tx, repo)
        self._selection = selection
        self._unreadable = unreadable
        self._steps: dict[str, StepRow] = {}
        self._applied: dict[str, None] = {}
        self._seqs: dict[int, set[int]] = {}

    def chosen(self) -> Chosen:
        claims = self._claims()
        self._add_messages(self._messages())
        # What claims rest on goes with them.
        numbers = [row.no for row in claims] if self._selection.sources else []
        links = self._rows.edges("source", numbers, (EdgeKind.PROVENANCE,))
        grounds = self._rows.find("no", {target for _, target in links})
        self._add_steps([*self._selection.step_ids, *(row.id for row in grounds)])
        if unknown := next((id for id in self._selection.step_ids if not self._has(id)), None):
            raise NotFound("step", unknown)
        return self._found(claims=claims)

    def newest(self) -> Chosen:
        """The last messages of a thread's epoch, with the steps that were made of them."""
        id = self._selection.thread_id or ""
        thread = thread_number(self._tx, self._repo, id)
        since = self._selection.since
        values = (thread, "" if since is None else utc_text(since), self._selection.newest)
        found = MESSAGES.rows.all(self._tx.run(_NEWEST, (self._repo, *values)))[::-1]
        self._take(thread, {message.seq for message in found})
        return self._found(newest=tuple(found))

    def _found(self, **more: Any) -> Chosen:
        places = [(thread, seq) for thread, seqs in self._seqs.items() for seq in sorted(seqs)]
        steps = sorted(self._steps.values())
        return Chosen(steps=steps, places=places, applied=[*self._applied], **more)

    def _has(self, id: str) -> bool:
        return id in self._steps or id in self._applied

    def _claims(self) -> list[NodeRow]:
        found = {row.id: row for row in self._rows.find("id", self._selection.memory_ids)}
        for id in self._selection.memory_ids:
            if id not in found:
                raise NotFound("memory", id)
            if found[id].type not in CLAIMS:
                raise ValueError(
                    f"{id!r} is no fact or instruction but {found[id].type}: name raw steps in "
                    "steps; what only routes goes with its last member"
                )
        return list(found.values())

    def _messages(self) -> dict[int, set[int]]:
        """The seqs of the named messages, by thread."""
        ids, thread = self._selection.message_ids, self._selection.thread_id
        rows = self._tx.run(NAMED_MESSAGES, (self._repo, thread, thread, listed(ids))).fetchall()
        for id in ids:
            threads = sorted(str(row[3]) for row in rows if row[2] == id)
            if not threads:
                raise NotFound("message", id)
            if len(threads) > 1:
                raise Conflict(f"message {id!r} is in {', '.join(threads)}: say which, thread_id=")
        found: dict[int, set[int]] = {}
        for number, seq, *_ in rows:
            found.setdefault(number, set()).add(seq)
        return found

    def _add_messages(self, places: Mapping[int, Iterable[int]]) -> None:
        for thread, seqs in places.items():
            if not self._selection.newest:
                seqs = whole_units(self._tx, self._repo, thread, seqs, self._unreadable)
            self._take(thread, seqs)

    def _take(self, thread: int, seqs: Iterable[int]) -> None:
        known = self._seqs.setdefault(thread, set())
        fresh = set(seqs) - known
        known |= fresh
        made = self._tx.run(_STEPS_OF_MESSAGES, (self._repo, thread, listed(fresh))).fetchall()
        self._add_steps([id for (id,) in made])

    def _add_steps(self, ids: Iterable[str]) -> None:
        """Add steps, and the messages that they were made of."""
        wanted = [id for id in dict.fromkeys(ids) if not self._has(id)]
        if not wanted:
            return
        places: dict[int, set[int]] = {}
        rows = self._tx.run(_NAMED_STEPS, (self._repo, listed(wanted))).fetchall()
        self._steps.update((row[3], row[:4]) for row in rows)
        applied = (row for row in self._rows.find("id", wanted) if row.type == "episodic")
        self._applied.update((row.id, None) for row in applied if row.id not in self._steps)
        for *_, thread, message in rows:
            if thread is not None and message is not None:
                asked = (self._repo, thread, thread, listed([message]))
                for number, seq, *_ in self._tx.run(NAMED_MESSAGES, asked).fetchall():
                    places.setdefault(number, set()).add(seq)
        self._add_messages(places)


def readable_claims(rows: GraphRows, chosen: Chosen, unreadable: Passed) -> list[Claim]:
    """The erased facts and instructions; what a damaged one says is not known."""
    found = []
    for row in chosen.claims:
        try:
            node = rows.read(row.no)
        except StoreCorrupt as damage:
            unreadable.append(damage)
            continue
        found += [node] if isinstance(node, Claim) else []
    return found

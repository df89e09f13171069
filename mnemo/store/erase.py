"""
Erasure in SQLite: read the rows, plan by ``store.erasure``, delete; one transaction.

Numbers go into statements as JSON lists, so that there are as many statements for a
thousand rows as for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from mnemo.runtime.clock import Breather
from mnemo.store.codec import node_columns, stored_time
from mnemo.store.damage import Passed, Rows
from mnemo.store.erasure_messages import erase_messages, erase_notes, erase_thread
from mnemo.store.erasure_plan import (
    AnnotatedStep,
    Column,
    Deletions,
    End,
    EpisodeRow,
    Link,
    NodeRow,
    Said,
    SessionPlan,
    plan_annotations,
    plan_graph,
    plan_sessions,
)
from mnemo.store.rows import (
    LISTED,
    METADATA,
    METADATA_COLUMNS,
    NODES,
    SET_COLUMNS,
    listed,
    repo_row,
)
from mnemo.store.surfaced import erase_showing
from mnemo.store.text_rows import step_row
from mnemo.store.threads import thread_number
from mnemo.store.tombstones import remember_erased
from mnemo.store.tx import Tx
from mnemo.values.derived import ErasedRows
from mnemo.values.erasure import Erased, ErasureReport, Selection
from mnemo.values.graph import EdgeKind, Episodic, Node, NodeMetadata
from mnemo.values.lookup import lookup_keys
from mnemo.values.upkeep import ROUTING

__all__ = ["erase", "touched_sessions"]

_ANY_TIME = datetime.min.replace(tzinfo=UTC)

# ── What is selected ─────────────────────────────────────────────────────────────────

_STEPS = """
SELECT t.ordinal, t.session, t.episode, t.node_id, t.at, t.thread FROM sessions s
CROSS JOIN episodes e ON e.session = s.no CROSS JOIN steps t ON t.episode = e.no
WHERE s.repo = ? AND (? IS NULL OR s.id = ?) ORDER BY t.ordinal
"""
_STEPS_OF_THREAD = """
SELECT t.ordinal, t.session, t.episode, t.node_id, t.at, t.thread FROM steps t
CROSS JOIN sessions s ON s.no = t.session
WHERE t.repo = ? AND (? IS NULL OR s.id = ?) AND t.thread = ? ORDER BY t.ordinal
"""
_MESSAGES = """
SELECT m.thread, m.seq, coalesce(m.at, m.recorded_at), t.id, m.id
FROM threads t CROSS JOIN messages m ON m.thread = t.no
WHERE t.repo = ? AND (? IS NULL OR t.id = ?) ORDER BY t.no, m.seq
"""
_SESSION = "SELECT no FROM sessions WHERE repo = ? AND id = ?"
_SESSION_IDS = f"SELECT id FROM sessions WHERE no IN {LISTED}"


@dataclass(frozen=True, slots=True)
class _Steps:
    """Rows (ordinal, session, episode, node id) of erased steps; sessions that go *whole*."""

    rows: list[tuple[int, int, int, str]]
    whole: set[int]

    @property
    def ordinals(self) -> list[int]:
        return [row[0] for row in self.rows]

    @property
    def node_ids(self) -> list[str]:
        return [row[3] for row in self.rows]

    @property
    def sessions(self) -> set[int]:
        return self.whole.union(row[1] for row in self.rows)


def touched_sessions(tx: Tx, repo_id: str, selection: Selection) -> tuple[str, ...]:
    """The sessions that steps are selected of, and the one that goes whole; changes nothing."""
    repo = repo_row(tx, repo_id)[0]
    return _session_ids(tx, _selected_steps(tx, repo, selection, []))


def _selected_steps(tx: Tx, repo: int, selection: Selection, unreadable: Passed) -> _Steps:
    read = Rows("steps", "i i i s s s?", _taken_by(selection, 4), key=(3,))
    id, thread = selection.session_id, selection.thread_id
    query, of_thread = (_STEPS, ()) if thread is None else (_STEPS_OF_THREAD, (thread,))
    rows = read.all(tx.run(query, (repo, id, id, *of_thread)), unreadable)
    whole = tx.run(_SESSION, (repo, selection.whole_session))
    return _Steps([row[:4] for row in rows if row], {no for (no,) in whole})


def _selected_messages(
    tx: Tx, repo: int, selection: Selection, unreadable: Passed
) -> list[tuple[int, int]]:
    read = Rows("messages", "i i s s s", _taken_by(selection, 2), key=(3, 4))
    rows = tx.run(_MESSAGES, (repo, selection.thread_id, selection.thread_id))
    return [row[:2] for row in read.all(rows, unreadable) if row]


def _taken_by(selection: Selection, place: int) -> Callable[[Sequence[Any]], Any]:
    """
    Give a row back if it is selected, by its time at *place* and its thread's id behind that.

    As text, times do not sort as the instants do: each keeps its own zone. Where no time
    was given, none is read.
    """
    takes = selection.takes()

    def taken(row: Sequence[Any]) -> Any:
        at = _ANY_TIME if selection.before is None else stored_time(row[place])
        return row if takes(at, row[place + 1]) else None

    return taken


def _session_ids(tx: Tx, steps: _Steps) -> tuple[str, ...]:
    return tuple(id for (id,) in tx.run(_SESSION_IDS, (listed(steps.sessions),)))


# ── Erasing ──────────────────────────────────────────────────────────────────────────


def erase(tx: Tx, repo_id: str, selection: Selection) -> Erased:
    """Erase what is selected, with all that was derived from it alone."""
    repo, revision, _, _ = repo_row(tx, repo_id)
    unreadable: Passed = []
    steps = _selected_steps(tx, repo, selection, unreadable)
    erased = Erased(session_ids=_session_ids(tx, steps))
    if steps.sessions:
        erased = _erase_steps(tx, repo, revision + 1, steps, erased, unreadable)
    rows = _erase_messages(tx, repo, selection, unreadable)
    notes = erase_notes(tx, repo, selection, unreadable)
    report = replace(
        erased.report,
        notes=notes.notes,
        note_versions=notes.versions,
        mixed_notes=notes.mixed,
        unreadable=tuple(dict.fromkeys(one.row for one in unreadable)),
        messages=rows.messages,
        compactions=rows.compactions,
        snapshots=rows.snapshots,
        pins=rows.pins,
        goals=rows.goals,
        vectors=erased.report.vectors + rows.vectors + notes.vectors,
        fulltext_rows=erased.report.fulltext_rows + rows.fulltext_rows + notes.fulltext_rows,
    )
    if report.fulltext_rows:
        tx.dialect.merge_texts(tx, repo)
    if not report.is_empty:
        tx.dialect.note_erased(tx)
    return replace(erased, report=report)


def _erase_steps(
    tx: Tx,
    repo: int,
    revision: int,
    steps: _Steps,
    erased: Erased,
    unreadable: Passed,
) -> Erased:
    """Plan from what is there, then write: nothing is read that was changed before."""
    rows = _GraphRows(tx, repo)
    episodes = _episodes(tx, steps)
    said = _said_in(tx, steps, episodes)
    graph = plan_graph(rows, steps.node_ids, said)
    annotations = _annotations(tx, steps, episodes, said)
    _reannotate(rows, graph, annotations)
    unreadable += graph.unreadable
    sessions = plan_sessions(episodes, steps.sessions, steps.whole)
    erase_showing(tx, repo, _records(tx, steps))
    report = _delete_graph(tx, repo, revision, graph)
    report = _delete_steps(tx, repo, steps, report)
    _annotate(tx, annotations)
    _end_sessions(tx, sessions)
    node_ids = tuple(row.id for row in graph.gone.values())
    return replace(erased, report=replace(report, sessions=len(sessions.gone)), node_ids=node_ids)


# ── Rows of the graph ────────────────────────────────────────────────────────────────

_NODE = "SELECT no, id, type, episode_id, superseded_by FROM nodes"
_FIND = f"{_NODE} WHERE repo = ? AND {{}} IN {LISTED} ORDER BY no"
_WORDED = f"""
{_NODE} WHERE repo = ? AND type = 'intent' AND EXISTS (
    SELECT 1 FROM json_each(iif(json_valid(body), body, '{{}}'), '$.wordings') w,
                  json_each(iif(json_valid(w.value), w.value, '[]'), '$[1]') s
    WHERE s.value IN {LISTED}
) ORDER BY no
"""
# CROSS JOIN keeps the order: a few numbers, then their edges by index.
_EDGES = """
SELECT e.source, e.target FROM json_each(?) x CROSS JOIN edges e ON e.{} = x.value
WHERE e.kind IN (SELECT value FROM json_each(?))
AND typeof(e.source) = 'integer' AND typeof(e.target) = 'integer'
"""
_READ = "SELECT id, type, body FROM nodes WHERE no = ?"
_COUNTS = f"SELECT {METADATA_COLUMNS} FROM nodes WHERE no = ?"


class _GraphRows:
    """``GraphRows`` over a transaction."""

    def __init__(self, tx: Tx, repo: int) -> None:
        self._tx = tx
        self._repo = repo
        self._breather = Breather()

    def find(self, column: Column, values: Collection[int] | Collection[str]) -> list[NodeRow]:
        """The nodes with one of *values* in that column."""
        return self._rows(_FIND.format(column), values)

    def worded_by(self, step_ids: Collection[str]) -> list[NodeRow]:
        """The intents with a wording that one of these steps gave."""
        return self._rows(_WORDED, step_ids)

    def _rows(self, query: str, values: Iterable[int | str]) -> list[NodeRow]:
        rows = self._tx.run(query, (self._repo, listed(values)))
        return [NodeRow(*row) for row in rows]

    def edges(
        self, end: End, numbers: Collection[int], kinds: Sequence[EdgeKind] = tuple(EdgeKind)
    ) -> list[Link]:
        """Source and target of the edges with that end among *numbers*."""
        values = (listed(numbers), listed(map(str, kinds)))
        return self._tx.run(_EDGES.format(end), values).fetchall()

    def read(self, number: int) -> Node:
        """The node of this number. *Raises* ``StoreCorrupt``: it is damaged."""
        self._breather.breathe()
        return NODES.one(self._tx.run(_READ, (number,)).fetchone())

    def counts(self, number: int) -> NodeMetadata:
        """Its metadata. *Raises* ``StoreCorrupt``: they are damaged."""
        return METADATA.one(self._tx.run(_COUNTS, (number,)).fetchone())[1]


# ── Deleting from the graph ──────────────────────────────────────────────────────────

_CHANGE = f"UPDATE nodes SET {SET_COLUMNS}, revision = ? WHERE no = ?"
_COUNT = "UPDATE nodes SET cumulative_reward = ?, reward_count = ?, support_count = ? WHERE no = ?"
_DROP_KEYS = "DELETE FROM node_keys WHERE node = ?"
_ADD_KEY = "INSERT INTO node_keys (repo, key, node) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
# What a tag or an intent says is part of its members' documents.
_SHOW_MEMBERS = """
UPDATE nodes SET revision = ? WHERE no IN
    (SELECT e.target FROM json_each(?) x CROSS JOIN edges e ON e.source = x.value
     WHERE e.kind IN ('membership', 'hierarchical'))
"""
_DROP_EDGES = [f"DELETE FROM edges WHERE {end} IN {LISTED}" for end in ("source", "target")]
_DROP_NODES = [
    f"DELETE FROM node_keys WHERE node IN {LISTED}",
    f"DELETE FROM nodes WHERE no IN {LISTED}",
]
_DROP_VECTORS = f"DELETE FROM vectors WHERE repo = ? AND key IN {LISTED}"
# Staged vectors of wordings are few, and made again by the next attempt.
_DROP_MOVING = f"""
DELETE FROM moving WHERE repo = ? AND (key IN {LISTED} OR instr(key, '/wording-'))
"""
_REMOVALS = "INSERT INTO removals (repo, node_id) SELECT ?, value FROM json_each(?)"
_NEXT_REVISION = "UPDATE repos SET revision = revision + 1 WHERE no = ?"


def _delete_graph(tx: Tx, repo: int, revision: int, plan: Deletions) -> ErasureReport:
    _change_nodes(tx, repo, revision, plan)
    gone, ids = listed(plan.gone), [row.id for row in plan.gone.values()]
    shown = listed([*plan.gone, *plan.reworded])
    tx.run(_SHOW_MEMBERS, (revision, shown))
    edges = sum(tx.run(statement, (gone,)).rowcount for statement in _DROP_EDGES)
    vectors = tx.run(_DROP_VECTORS, (repo, listed(ids))).rowcount
    for statement in _DROP_NODES:
        tx.run(statement, (gone,))
    tx.run(_REMOVALS, (repo, listed(ids)))
    tx.run(_DROP_MOVING, (repo, listed(ids)))
    if plan.gone or plan.changed:
        tx.run(_NEXT_REVISION, (repo,))
    return ErasureReport(
        nodes=len(ids),
        edges=edges,
        vectors=vectors,
        facts_changed=len(plan.counts),
        facts_restored=plan.facts_restored,
    )


def _change_nodes(tx: Tx, repo: int, revision: int, plan: Deletions) -> None:
    for number, node in plan.changed.items():
        tx.run(_CHANGE, (*node_columns(node), revision, number))
        if node.type in ROUTING:
            tx.run(_DROP_KEYS, (number,))
            tx.run_many(_ADD_KEY, [(repo, key, number) for key in lookup_keys(node)])
    counts = [
        (one.cumulative_reward, one.reward_count, one.support_count, number)
        for number, one in plan.counts.items()
    ]
    tx.run_many(_COUNT, counts)
    stale = [plan.changed[number].id for number in plan.reworded & plan.changed.keys()]
    tx.run(_DROP_VECTORS, (repo, listed(stale)))


# ── Steps ────────────────────────────────────────────────────────────────────────────

_SIDES = ("observation", "action")
_SESSIONS_OF = f"SELECT no, id FROM sessions WHERE no IN {LISTED}"
_DELETE_STEPS = f"DELETE FROM steps WHERE ordinal IN {LISTED}"
_TEXTS = "SELECT ordinal, observation, action, actor, state, subgoal FROM steps WHERE episode = ?"
_ANNOTATED = """
SELECT ordinal, node_id, observation, action, actor, state, subgoal FROM steps
WHERE episode = ? AND subgoal IS NOT NULL ORDER BY idx
"""
_ANNOTATE = "UPDATE steps SET state = ?, subgoal = ?, subgoal_vector = NULL WHERE ordinal = ?"


def _records(tx: Tx, steps: _Steps) -> list[tuple[str, str]]:
    """Stream and id of the records that the steps are found by."""
    ids = dict(tx.run(_SESSIONS_OF, (listed(steps.sessions),)).fetchall())
    return [(ids[row[1]], f"{row[3]}/{side}") for row in steps.rows for side in _SIDES]


def _delete_steps(tx: Tx, repo: int, steps: _Steps, report: ErasureReport) -> ErasureReport:
    remember_erased(tx, steps.node_ids)
    texts = [step_row(ordinal, side) for ordinal in steps.ordinals for side in (0, 1)]
    keys = listed([f"{id}/{side}" for id in steps.node_ids for side in _SIDES])
    vectors = tx.run(_DROP_VECTORS, (repo, keys)).rowcount
    tx.run(_DROP_MOVING, (repo, keys))
    tx.run(_REMOVALS, (repo, listed(steps.node_ids)))
    return replace(
        report,
        fulltext_rows=tx.dialect.drop_texts(tx, repo, texts),
        vectors=report.vectors + vectors,
        steps=tx.run(_DELETE_STEPS, (listed(steps.ordinals),)).rowcount,
    )


def _said_in(tx: Tx, steps: _Steps, episodes: Iterable[EpisodeRow]) -> Said:
    """What the erased steps of each episode say; its goal, too, if they are all that it has."""
    known, ordinals = {one.id: one for one in episodes}, set(steps.ordinals)

    def texts_of(id: str | None) -> list[str | None]:
        episode = known.get(id or "")
        if episode is None:
            return []
        rows = tx.run(_TEXTS, (episode.no,))
        texts = [_text(text) for ordinal, *said in rows if ordinal in ordinals for text in said]
        return [*texts, episode.goal] if episode.is_emptied else texts

    return Said(texts_of)


def _text(stored: Any) -> str | None:
    """*stored* as text; of one that is damaged what can be read of it."""
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored


def _annotations(
    tx: Tx, steps: _Steps, episodes: Iterable[EpisodeRow], said: Said
) -> list[AnnotatedStep]:
    """The annotations of remaining steps that change."""
    breather, found, ordinals = Breather(), list[AnnotatedStep](), set(steps.ordinals)
    for episode in episodes:
        breather.breathe()
        if not episode.erased or episode.is_emptied:
            continue
        rows = tx.run(_ANNOTATED, (episode.no,)).fetchall()
        annotated = [_annotated(row) for row in rows if row[0] not in ordinals]
        if annotated:
            found += plan_annotations(annotated, episode.goal, said.of([episode.id]))
    return found


def _annotated(row: Sequence[Any]) -> AnnotatedStep:
    ordinal, node_id, *texts = row
    *said, state, subgoal = map(_text, texts)
    return AnnotatedStep(ordinal, node_id, "\n".join(text or "" for text in said), state, subgoal)


def _reannotate(rows: _GraphRows, plan: Deletions, steps: Sequence[AnnotatedStep]) -> None:
    """The nodes of these steps say the same as they do."""
    numbers = {row.id: row.no for row in rows.find("id", [step.node_id for step in steps])}
    for step in steps:
        node = plan.node(rows, numbers[step.node_id]) if step.node_id in numbers else None
        if isinstance(node, Episodic):
            after = replace(node, state=step.state, subgoal=step.subgoal)
            plan.changed[numbers[step.node_id]] = after


def _annotate(tx: Tx, steps: Sequence[AnnotatedStep]) -> None:
    values = [(step.state, step.subgoal, step.ordinal) for step in steps]
    tx.run_many(_ANNOTATE, values)


# ── Sessions ─────────────────────────────────────────────────────────────────────────

_EPISODES = f"""
SELECT e.no, e.id, e.session, e.status, e.goal,
       (SELECT count(*) FROM steps t WHERE t.episode = e.no)
FROM episodes e WHERE e.session IN {LISTED} ORDER BY e.no
"""
_DROP_STAGED = f"DELETE FROM staged WHERE episode IN {LISTED}"
_SHORTEN = """
UPDATE episodes SET erased = erased + ?, changeset = NULL, changeset_steps = NULL,
       status = iif(status IN ('open', 'closed'), 'discarded', status)
WHERE no = ?
"""
# What is left of an episode that was not over stays in the record and leaves recall.
_UNCOMMITTED = f"FROM steps WHERE episode IN {LISTED} AND committed = 0 AND gone = 0"
_HIDE = (
    f"INSERT INTO removals (repo, node_id) SELECT repo, node_id {_UNCOMMITTED} ORDER BY ordinal",
    f"""DELETE FROM vectors WHERE (repo, key) IN
        (SELECT repo, node_id || p.value
         FROM (SELECT repo, node_id {_UNCOMMITTED}), json_each('["/observation", "/action"]') p)""",
    f"UPDATE steps SET gone = 1 WHERE ordinal IN (SELECT ordinal {_UNCOMMITTED})",
)
_DROP_EPISODES = f"DELETE FROM episodes WHERE no IN {LISTED}"
_DROP_SESSIONS = f"DELETE FROM sessions WHERE no IN {LISTED}"
_RELEASE = f"UPDATE sessions SET owner = NULL WHERE no IN {LISTED}"
_COME_TO_REST = f"""
UPDATE sessions SET state = 'idle', error = NULL, error_trajectory = NULL,
       episode = (SELECT max(no) FROM episodes WHERE session = sessions.no)
WHERE no IN {LISTED} AND NOT EXISTS (SELECT 1 FROM episodes e WHERE e.no = sessions.episode
                                      AND e.status IN ('open', 'closed'))
"""


def _episodes(tx: Tx, steps: _Steps) -> list[EpisodeRow]:
    rows = tx.run(_EPISODES, (listed(steps.sessions),)).fetchall()
    erased = Counter(row[2] for row in steps.rows)
    return [
        EpisodeRow(
            no=no,
            id=id,
            session=session,
            status=status,
            goal=_text(goal) or "",
            steps=count,
            erased=erased[no],
        )
        for no, id, session, status, goal, count in rows
    ]


def _end_sessions(tx: Tx, plan: SessionPlan) -> None:
    """After the erased steps are gone."""
    gone = tx.run(_SESSIONS_OF, (listed(plan.gone),)).fetchall()
    over = [episode.id for episode in plan.gone_episodes]
    remember_erased(tx, [*over, *(e.id for e in plan.ended), *(id for _, id in gone)])
    dropped = listed(episode.no for episode in plan.gone_episodes)
    tx.run(_DROP_STAGED, (listed(e.no for e in plan.shortened),))
    tx.run(_DROP_STAGED, (dropped,))
    tx.run_many(_SHORTEN, [(e.erased, e.no) for e in plan.shortened])
    for statement in _HIDE:
        tx.run(statement, (listed(episode.no for episode in plan.ended),))
    tx.run(_DROP_EPISODES, (dropped,))
    tx.run(_DROP_SESSIONS, (listed(plan.gone),))
    for statement in (_RELEASE, _COME_TO_REST):
        tx.run(statement, (listed(plan.shaken),))


# ── Messages ─────────────────────────────────────────────────────────────────────────


def _erase_messages(tx: Tx, repo: int, selection: Selection, unreadable: Passed) -> ErasedRows:
    if not selection.takes_messages:
        return ErasedRows()
    if selection.whole_thread is not None:
        thread = thread_number(tx, repo, selection.whole_thread)
        return erase_thread(tx, repo, thread) if thread else ErasedRows()
    places = _selected_messages(tx, repo, selection, unreadable)
    return erase_messages(tx, repo, places)

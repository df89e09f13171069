"""
Erasure: end the sessions, read the rows, plan by ``plan``, delete in one transaction.

Numbers go into statements as JSON lists: as many statements for a thousand rows as for one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from mnemo.commit.lane import CommitLane
from mnemo.erasure.plan import (
    AnnotatedStep,
    Deletions,
    Said,
    SessionPlan,
    TouchedEpisode,
    plan_annotations,
    plan_graph,
    plan_sessions,
    words_of,
)
from mnemo.erasure.selecting import (
    CLAIMS,
    NAMED_MESSAGES,
    Chosen,
    GraphRows,
    choose,
    readable_claims,
    session_ids,
)
from mnemo.errors import MnemoError, StoreError
from mnemo.graph.apply import NEXT_REVISION, SHOW_MEMBERS, remove_nodes, restate
from mnemo.items.item_rows import erase_items
from mnemo.log.erase_messages import (
    THREAD_ID,
    by_thread,
    erase_messages,
    erase_showing,
    erase_thread,
    ids_at,
    messages_of,
)
from mnemo.log.feed import hide_uncommitted, leave_recall
from mnemo.log.record_rows import step_row
from mnemo.log.tombstones import bar_claims, remember_erased
from mnemo.log.vectors import drop_vectors
from mnemo.notes.note_rows import erase_notes
from mnemo.recall.recall_log import drop_recalls, drop_recalls_before, mark_forgotten
from mnemo.runtime.clock import Breather
from mnemo.runtime.spans import memory_attributes
from mnemo.runtime.transactions import transacted
from mnemo.store.engine import Engine, OfRepository, repository_locks
from mnemo.store.rows import Passed, listed, repo_row
from mnemo.store.tables import CHANGESETS, NODES
from mnemo.store.texts import drop_texts
from mnemo.store.tx import Tx
from mnemo.values.erasure import Erased, ErasureReport, Selection
from mnemo.values.feed import sides_of
from mnemo.values.graph import EdgeKind, Episodic, Subgoal
from mnemo.values.vectors import SIDE_KEYS, vector_keys

log: logging.Logger = logging.getLogger("mnemo")

MOST_TEXTS = 100
"""Texts of messages, of steps, and of claims that a dry run shows."""

# ── Forgetting, in one process ───────────────────────────────────────────────────────


@dataclass(eq=False, kw_only=True)
class Forgetting:
    """
    Erases from one repository, in the turn of its *lane*; *end_sessions*: those open here.

    *drop*: Called when the store has changed: nothing erased may be found afterwards.
    """

    rows: StoredErasure
    lane: CommitLane
    end_sessions: Callable[[Collection[str]], Awaitable[None]]
    drop: Callable[[], Awaitable[None]]
    _in_doubt: bool = False

    async def forget(self, selection: Selection) -> Erased:
        """
        Erase what is selected, after its sessions have ended.

        *Raises* ``NotFound``: an id is unknown; ``StoreError``: nothing was erased. *Cancellation*:
        run it in a task that outlives its caller.
        """
        named = memory_attributes("delete_memory", self.lane.repo_id)
        with self.lane.spans.span("delete_memory", attributes=named) as span:
            if selection.session_id is not None:
                span.set("mnemo.session.id", selection.session_id)
            erased = await self._erased_by(selection)
            span.set("gen_ai.memory.record.count", erased.report.nodes)
            span.set("mnemo.step.count", erased.report.steps)
            return erased

    async def _erased_by(self, selection: Selection) -> Erased:
        if selection.dry_run:
            return await self.rows.erase(selection)
        await self.end_sessions(await self.rows.touched(selection))
        async with self.lane.turn:
            try:
                erased = await self.rows.erase(selection)
            except MnemoError as error:
                # What it may have erased all the same is dropped from memory by the next call.
                self._in_doubt = True
                self.lane.report_failure("forget", error)
                raise
            self._in_doubt |= not erased.report.is_empty
            if erased.node_ids:
                self.lane.report_deleted(erased.node_ids)
        # A session that got its first such step in between has lost it.
        await self.end_sessions(erased.session_ids)
        if self._in_doubt:
            try:
                await self.drop()
                self._in_doubt = False
            except StoreError as error:
                # It is erased: whoever reads catches up first, and the next call drops it.
                log.warning("what was erased could not be dropped from memory: %s", error)
        return erased


class StoredErasure(OfRepository):
    """Erasure from one repository, as transactions."""

    async def touched(self, selection: Selection) -> tuple[str, ...]:
        """The sessions that would lose steps, or go; changes nothing."""

        def find(tx: Tx) -> tuple[str, ...]:
            repo = repo_row(tx, self._repo_id)[0]
            return tuple(session_ids(tx, repo, choose(tx, repo, selection, []).sessions).values())

        return await self._engine.reading(find)

    async def erase(self, selection: Selection) -> Erased:
        """
        Erase what is selected with all that was derived from it alone, in one transaction.

        Then, if the selection says so, the log is cut and a file of up to 64 MB rewritten:
        ``report.scrubbed``. A dry run says what that would do, and changes nothing.

        *Raises* ``StoreError``: nothing was erased. *Cancellation*: the transaction completes.
        """
        if selection.dry_run:
            return await self._rehearsed(selection)
        erased: Erased = await transacted(
            partial(self._engine.writing, locks=repository_locks(self._repo_id)),
            self._engine.reading,
            partial(erase, repo_id=self._repo_id, selection=selection),
            self._are_taken,
        )
        if not selection.scrub:
            return replace(erased, report=replace(erased.report, scrubbed=False))
        return replace(erased, report=await scrubbed(self._engine, erased.report))

    def _are_taken(self, tx: Tx, erased: Erased) -> bool:
        """Whether messages were withdrawn: asked for again, the next ones would go too."""
        thread = next((one.thread_id for one in erased.messages), None)
        ids = listed(one.stored_id for one in erased.messages)
        asked = (repo_row(tx, self._repo_id)[0], thread, thread, ids)
        return thread is not None and tx.run(NAMED_MESSAGES, asked).fetchone() is None

    async def _rehearsed(self, selection: Selection) -> Erased:
        """What would be erased: it is, and undone."""

        def rehearse(tx: Tx) -> None:
            raise _Rehearsed(erase(tx, self._repo_id, selection))

        try:
            await self._engine.writing(rehearse, locks=repository_locks(self._repo_id))
        except _Rehearsed as done:
            return replace(done.erased, report=replace(done.erased.report, scrubbed=False))
        raise AssertionError("a rehearsal always ends with an exception")


async def scrubbed(engine: Engine, report: ErasureReport) -> ErasureReport:
    """Scrub what was erased, also from the caches of other machines; *report* with the outcome."""
    try:
        is_clean, left = await engine.scrub(at_once=False), await engine.unswept()
    except StoreError as error:
        log.warning("whether erased bytes are still in the store is not known: %s", error)
        is_clean, left = False, ()
    is_clean = is_clean and not (left or report.unreadable)
    return replace(report, scrubbed=is_clean, unconfirmed=left)


class _Rehearsed(Exception):
    """Undoes an erasure, and carries what it did."""

    def __init__(self, erased: Erased) -> None:
        super().__init__()
        self.erased = erased


# ── Erasing ──────────────────────────────────────────────────────────────────────────


def erase(tx: Tx, repo_id: str, selection: Selection) -> Erased:
    """Erase what is selected, with all that was derived from it alone. *Raises* as ``choose``."""
    repo, revision, _, _ = repo_row(tx, repo_id)
    unreadable: Passed = []
    chosen = choose(tx, repo, selection, unreadable)
    shown = _shown_to(tx, repo, chosen)
    owing = (one.session for one in shown if one.is_owed)
    sessions = session_ids(tx, repo, chosen.sessions.union(owing))
    if not selection.sources:
        claims = readable_claims(GraphRows(tx, repo), chosen, unreadable)
        bar_claims(tx, repo_id, claims)
    texts = _texts_of_messages(tx, repo, chosen) if selection.dry_run else ()
    report, node_ids, gone = ErasureReport(texts=texts), tuple[str, ...](), frozenset[str]()
    taken = _taken(tx, repo, chosen)
    if sessions or shown or chosen.claims or chosen.applied:
        dry = selection.dry_run
        of_steps, node_ids, gone = _erase_steps(
            tx, repo_id, repo, revision + 1, chosen, sessions, shown, unreadable, shows=dry
        )
        report += of_steps
    if chosen.thread:
        report += erase_thread(tx, repo, chosen.thread)
    report += erase_messages(tx, repo, chosen.places)
    report += erase_notes(
        tx,
        repo,
        selection,
        taken=taken,
        touched=sessions.values(),
        gone=gone,
        unreadable=unreadable,
    )
    report += erase_items(tx, repo, selection)
    report = replace(
        report,
        unreadable=tuple(dict.fromkeys(one.row for one in unreadable)),
        texts=tuple(dict.fromkeys(report.texts)),
    )
    before = selection.all_before
    asked = before is not None and drop_recalls_before(tx, repo, before)
    if asked or not report.is_empty:
        mark_forgotten(tx, repo)
        tx.dialect.note_erased(tx)
    return Erased(
        report=report,
        node_ids=node_ids,
        session_ids=tuple(sessions.values()),
        messages=chosen.newest,
    )


def _erase_steps(
    tx: Tx,
    repo_id: str,
    repo: int,
    revision: int,
    chosen: Chosen,
    ids: Mapping[int, str],
    shown: Sequence[Shown],
    unreadable: Passed,
    *,
    shows: bool,
) -> tuple[ErasureReport, tuple[str, ...], frozenset[str]]:
    """
    Plan from what is there, then write: nothing is read that was changed before. *ids* are the
    sessions', by number, *shown* what saw erased messages. Gives also the ids of nodes and sessions
    that are gone.
    """
    graph, ordinals = GraphRows(tx, repo), {row[0] for row in chosen.steps}
    step_ids = [row[3] for row in chosen.steps]
    episodes = _episodes(tx, repo, chosen, ids)
    said = _said_in(tx, repo, ordinals, episodes)
    plan = plan_graph(graph, [*step_ids, *chosen.applied], said, chosen.claims)
    annotations = _annotations(tx, repo, ordinals, episodes, said, shown)
    texts = _texts_of_graph(tx, repo, ordinals, plan) if shows else ()
    _reannotate(graph, plan, annotations)
    unreadable += plan.unreadable
    owed = {one.episode for one in shown if one.is_owed}
    sessions = plan_sessions(episodes, ids.keys(), chosen.whole, owed)
    records = [(ids[row[1]], f"{row[3]}/{side}") for row in chosen.steps for side in _SIDES]
    erase_showing(tx, repo, records)
    changesets = _drop_changesets(tx, repo, step_ids)
    report = _delete_graph(tx, repo, revision, plan)
    over = [episode.id for episode in (*sessions.gone_episodes, *sessions.ended)]
    gone = frozenset(ids[no] for no in sessions.gone)
    drop_recalls(tx, repo, gone, lambda: plan.words | said.of(one.id for one in episodes))
    remember_erased(tx, repo_id, [*step_ids, *over, *gone])
    report += _delete_steps(tx, repo, ordinals, step_ids, changesets)
    told = [(step.state, step.subgoal, repo, step.ordinal) for step in annotations]
    tx.run_many(_ANNOTATE, told)
    _end_sessions(tx, repo, sessions)
    report += ErasureReport(sessions=len(gone), texts=texts)
    return report, tuple(row.id for row in plan.gone.values()), gone


_MADE_FROM = """
SELECT DISTINCT thread, message FROM steps
WHERE $also repo = ? AND ordinal IN $numbers AND thread IS NOT NULL AND message IS NOT NULL
"""


def _taken(tx: Tx, repo: int, chosen: Chosen) -> dict[str, set[str]]:
    """The ids of the chosen messages, and of those of chosen steps, by the id of their thread."""
    taken = ids_at(tx, repo, chosen.places)
    for thread, message in tx.run(_MADE_FROM, (repo, listed(row[0] for row in chosen.steps))):
        taken.setdefault(thread, set()).add(message)
    return taken


# ── What a job was shown before its messages ────

SHOWN_TO = 3
"""Episodes of jobs, at most, that a message was shown to: each has a message of its own."""
LOOKED_AT = 256
"""Messages before and behind an end of what is erased: more than a portion and its context (S)."""
_BEHIND = """
SELECT e.no, e.session, e.status, e.goal FROM
(SELECT id, seq FROM messages WHERE repo = ? AND thread = ? AND seq > ? ORDER BY seq LIMIT ?) m
$join steps t ON t.repo = ? AND t.thread = ? AND t.message = m.id
$join sessions s ON s.no = t.session AND $also s.repo = t.repo AND s.thread_id = ?
JOIN episodes e ON e.no = t.episode AND $also e.repo = t.repo
ORDER BY m.seq
"""


class Shown(NamedTuple):
    """
    An episode of a job that may have been shown erased messages, and their *words*: its annotations
    may tell them; so may what is staged, of one that *is_owed* its extraction.
    """

    episode: int
    session: int
    is_owed: bool
    goal: str
    words: frozenset[str]


def _shown_to(tx: Tx, repo: int, chosen: Chosen) -> list[Shown]:
    found: dict[int, Shown] = {}
    for thread, seqs in by_thread(chosen.places).items():
        erased = set(seqs)
        (id,) = tx.run(THREAD_ID, (repo, thread)).fetchone()
        for last in (seq for seq in seqs if seq + 1 not in erased):
            behind = (repo, thread, last, LOOKED_AT, repo, id, id)
            rows = tx.run(_BEHIND, behind).fetchall()
            if not rows:
                continue
            near = [seq for seq in range(last - LOOKED_AT, last + 1) if seq in erased]
            messages = messages_of(tx, repo, thread, near, 0)
            words = words_of(side for one in messages for side in sides_of(one))
            for no, session, status, goal in list(dict.fromkeys(rows))[:SHOWN_TO]:
                owed, before = status in ("open", "closed"), found.get(no)
                told = words | before.words if before else words
                found[no] = Shown(no, session, owed, _text(goal) or "", told)
    return [*found.values()]


# ── Showing what a dry run would erase ───────────────────────────────────────────────

_STEP_TEXTS = """
SELECT observation, action FROM steps WHERE $also repo = ? AND ordinal IN $numbers ORDER BY ordinal
"""
_NODES = "SELECT id, type, body FROM nodes WHERE $also repo = ? AND no IN $numbers ORDER BY no"


def _texts_of_messages(tx: Tx, repo: int, chosen: Chosen) -> tuple[str, ...]:
    places = chosen.places[:MOST_TEXTS]
    threads = [chosen.thread] if chosen.thread else list(dict.fromkeys(no for no, _ in places))
    seqs = {no: [seq for one, seq in places if one == no] for no in threads}
    found = [messages_of(tx, repo, no, seqs[no] or None, MOST_TEXTS) for no in threads]
    return tuple(message.text for messages in found for message in messages if message.text)


def _texts_of_graph(
    tx: Tx, repo: int, ordinals: Collection[int], plan: Deletions
) -> tuple[str, ...]:
    """What the first of the erased steps, and of the facts and instructions, say."""
    rows = tx.run(_STEP_TEXTS, (repo, listed(sorted(ordinals)[:MOST_TEXTS])))
    said = [_text(text) for row in rows for text in row]
    numbers = [row.no for row in plan.gone.values() if row.type in CLAIMS][:MOST_TEXTS]
    # What is damaged the plan has named, where it had to be judged.
    claims = NODES.whole.all(tx.run(_NODES, (repo, listed(numbers))), [])
    return (*filter(None, said), *(claim.text for claim in claims))


# ── Deleting from the graph ──────────────────────────────────────────────────────────

_COUNT = """
UPDATE nodes SET cumulative_reward = ?, reward_count = ?, support_count = ?
WHERE $also repo = ? AND no = ?
"""
# Staged vectors of wordings are few, and made again by the next attempt.
_DROP_MOVING = """
DELETE FROM moving WHERE repo = ? AND (key IN $texts OR key LIKE '%/wording-%')
"""


def _delete_graph(tx: Tx, repo: int, revision: int, plan: Deletions) -> ErasureReport:
    restate(tx, repo, plan.changed.items(), revision)
    counts = [
        (one.cumulative_reward, one.reward_count, one.support_count, repo, number)
        for number, one in plan.counts.items()
    ]
    tx.run_many(_COUNT, counts)
    stale = [plan.changed[number].id for number in plan.reworded & plan.changed.keys()]
    drop_vectors(tx, repo, vector_keys(stale))
    tx.run(SHOW_MEMBERS, (revision, repo, listed([*plan.gone, *plan.reworded]), repo))
    gone = {number: row.id for number, row in plan.gone.items()}
    report = remove_nodes(tx, repo, gone)
    tx.run(_DROP_MOVING, (repo, listed(vector_keys(gone.values()))))
    if plan.gone or plan.changed:
        tx.run(NEXT_REVISION, (repo,))
    return report + ErasureReport(
        facts_changed=len(plan.counts), facts_restored=plan.facts_restored
    )


# ── Steps ────────────────────────────────────────────────────────────────────────────

_SIDES = ("observation", "action")
_DELETE_STEPS = "DELETE FROM steps WHERE $also repo = ? AND ordinal IN $numbers"
_MADE_OF = f"""
SELECT DISTINCT {", ".join(f"c.{column}" for column in CHANGESETS.columns)} FROM nodes n
$join changesets c ON c.repo = n.repo AND c.revision = n.revision
WHERE n.repo = ? AND n.id IN $texts
"""
_DROP_CHANGESET = "DELETE FROM changesets WHERE repo = ? AND id = ?"
_TEXTS = """
SELECT ordinal, observation, action, actor, state, subgoal FROM steps
WHERE repo = ? AND episode = ?
"""
_ANNOTATED = """
SELECT ordinal, node_id, observation, action, actor, state, subgoal FROM steps
WHERE repo = ? AND episode = ? AND subgoal IS NOT NULL ORDER BY idx
"""
_ANNOTATE = """
UPDATE steps SET state = ?, subgoal = ?, subgoal_vector = NULL WHERE $also repo = ? AND ordinal = ?
"""


def _drop_changesets(tx: Tx, repo: int, step_ids: Sequence[str]) -> list[str]:
    """Whoever applies one again is refused for its erased steps, whether or not it is known."""
    steps = set(step_ids)
    applied = CHANGESETS.rows.all(tx.run(_MADE_OF, (repo, listed(steps))), [])
    gone = [one.id for one in applied if not steps.isdisjoint(one.node_ids)]
    tx.run_many(_DROP_CHANGESET, [(repo, id) for id in gone])
    return gone


def _delete_steps(
    tx: Tx,
    repo: int,
    ordinals: Collection[int],
    step_ids: Sequence[str],
    changesets: Sequence[str],
) -> ErasureReport:
    texts = [step_row(ordinal, side) for ordinal in ordinals for side in (0, 1)]
    keys = [f"{id}{end}" for id in step_ids for end in SIDE_KEYS]
    tx.run(_DROP_MOVING, (repo, listed(keys)))
    leave_recall(tx, repo, step_ids, changesets=changesets)
    return ErasureReport(
        fulltext_rows=drop_texts(tx, repo, texts),
        vectors=drop_vectors(tx, repo, keys),
        steps=tx.run(_DELETE_STEPS, (repo, listed(ordinals))).rowcount,
    )


def _said_in(
    tx: Tx, repo: int, ordinals: Collection[int], episodes: Iterable[TouchedEpisode]
) -> Said:
    """What the erased steps of each episode say; its goal, too, if they are all that it has."""
    known = {one.id: one for one in episodes}

    def texts_of(id: str | None) -> list[str | None]:
        episode = known.get(id or "")
        if episode is None:
            return []
        rows = tx.run(_TEXTS, (repo, episode.no))
        texts = [_text(text) for ordinal, *said in rows if ordinal in ordinals for text in said]
        return [*texts, episode.goal] if episode.is_emptied else texts

    return Said(texts_of)


def _text(stored: Any) -> str | None:
    """*stored* as text; of one that is damaged what can be read of it."""
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored


def _annotations(
    tx: Tx,
    repo: int,
    ordinals: Collection[int],
    episodes: Iterable[TouchedEpisode],
    said: Said,
    shown: Iterable[Shown],
) -> list[AnnotatedStep]:
    breather, found = Breather(), list[AnnotatedStep]()
    goals = {one.episode: one.goal for one in shown}
    lost = {one.episode: one.words for one in shown}
    for episode in episodes:
        if episode.leaving and not episode.is_emptied:
            goals[episode.no] = episode.goal
            lost[episode.no] = lost.get(episode.no, frozenset()) | said.of([episode.id])
    for number, goal in goals.items():
        breather.breathe()
        rows = tx.run(_ANNOTATED, (repo, number)).fetchall()
        annotated = [_annotated(row) for row in rows if row[0] not in ordinals]
        if annotated:
            found += plan_annotations(annotated, goal, lost[number])
    return found


def _annotated(row: Sequence[Any]) -> AnnotatedStep:
    ordinal, node_id, *texts = row
    *said, state, subgoal = map(_text, texts)
    return AnnotatedStep(ordinal, node_id, "\n".join(text or "" for text in said), state, subgoal)


def _reannotate(rows: GraphRows, plan: Deletions, steps: Sequence[AnnotatedStep]) -> None:
    """The nodes of these steps, and the subgoals worded as theirs, say the same as they do."""
    numbers = {row.id: row.no for row in rows.find("id", [step.node_id for step in steps])}
    for step in steps:
        number = numbers.get(step.node_id, 0)
        node = plan.node(rows, number) if number else None
        if not isinstance(node, Episodic):
            continue
        plan.changed[number] = replace(node, state=step.state, subgoal=step.subgoal)
        aims = rows.edges("target", [number], (EdgeKind.HIERARCHICAL,))
        for aim in {source for source, _ in aims} - plan.gone.keys():
            subgoal = plan.node(rows, aim) if node.subgoal != step.subgoal else None
            if isinstance(subgoal, Subgoal) and subgoal.description == node.subgoal:
                said = step.subgoal or ""
                plan.changed[aim] = replace(subgoal, description=said, vector=None)
                plan.reworded.add(aim)


# ── Sessions ─────────────────────────────────────────────────────────────────────────

_EPISODES = """
SELECT e.no, e.id, e.session, e.status, e.goal,
       (SELECT count(*) FROM steps t WHERE t.repo = e.repo AND t.episode = e.no)
FROM episodes e WHERE e.repo = ? AND e.session IN $numbers ORDER BY e.no
"""
_DROP_STAGED = "DELETE FROM staged WHERE repo = ? AND episode IN $numbers"
_SHORTEN = """
UPDATE episodes SET erased = erased + ?, changeset = NULL, changeset_steps = NULL,
       status = CASE WHEN status IN ('open', 'closed') THEN 'discarded' ELSE status END
WHERE $also repo = ? AND no = ?
"""
_DROP_EPISODES = "DELETE FROM episodes WHERE $also repo = ? AND no IN $numbers"
_OF_SESSIONS = """ repo = ? AND kind = 'session'
AND subject IN (SELECT id FROM sessions WHERE $also repo = ? AND no IN $numbers)
"""
_DROP_JOBS = f"DELETE FROM jobs WHERE{_OF_SESSIONS}"
# It may quote what was said; as may what a worker of now would still write.
_FORGET_ERRORS = f"UPDATE jobs SET error = NULL WHERE{_OF_SESSIONS}"
_TAKE_BACK = f"""
UPDATE jobs SET state = 'waiting', tries = tries - 1, token = token + 1, owner = NULL
WHERE{_OF_SESSIONS} AND state = 'running'
"""
_DROP_SESSIONS = "DELETE FROM sessions WHERE $also repo = ? AND no IN $numbers"
_RELEASE = "UPDATE sessions SET owner = NULL WHERE $also repo = ? AND no IN $numbers"
_COME_TO_REST = """
UPDATE sessions SET state = 'idle', error = NULL, error_trajectory = NULL,
       episode = (SELECT max(no) FROM episodes
                  WHERE repo = sessions.repo AND session = sessions.no)
WHERE $also repo = ? AND no IN $numbers AND NOT EXISTS (
    SELECT 1 FROM episodes e WHERE e.no = sessions.episode AND $also e.repo = sessions.repo
    AND e.status IN ('open', 'closed'))
"""


def _episodes(tx: Tx, repo: int, chosen: Chosen, sessions: Collection[int]) -> list[TouchedEpisode]:
    leaving = Counter(row[2] for row in chosen.steps)
    return [
        TouchedEpisode(
            no=no,
            id=id,
            session=session,
            status=status,
            goal=_text(goal) or "",
            steps=count,
            leaving=leaving[no],
        )
        for no, id, session, status, goal, count in tx.run(_EPISODES, (repo, listed(sessions)))
    ]


def _end_sessions(tx: Tx, repo: int, plan: SessionPlan) -> None:
    """After the erased steps are gone."""
    dropped = listed(episode.no for episode in plan.gone_episodes)
    tx.run(_DROP_STAGED, (repo, listed(e.no for e in plan.shortened)))
    tx.run(_DROP_STAGED, (repo, dropped))
    tx.run_many(_SHORTEN, [(e.leaving, repo, e.no) for e in plan.shortened])
    # What is left of an episode that was not over stays in the record.
    hide_uncommitted(tx, repo, [episode.no for episode in plan.ended])
    tx.run(_DROP_EPISODES, (repo, dropped))
    gone, shaken = listed(plan.gone), listed(plan.shaken)
    tx.run(_DROP_JOBS, (repo, repo, gone))
    tx.run(_DROP_SESSIONS, (repo, gone))
    for statement in (_RELEASE, _COME_TO_REST):
        tx.run(statement, (repo, shaken))
    for statement in (_FORGET_ERRORS, _TAKE_BACK):
        tx.run(statement, (repo, repo, shaken))

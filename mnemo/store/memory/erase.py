"""Erasing in memory: the same rules as on disk, over plain objects, in one turn of the loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial

from mnemo.episode.erasure import Erased, ErasureReport, Selection
from mnemo.episode.journal import SessionState
from mnemo.graph.edges import EdgeKind
from mnemo.graph.erasure import Claim, Ground, Said, judge, relinked, reworded, stripped
from mnemo.graph.nodes import Episodic, Node, Semantic
from mnemo.graph.upkeep import ROUTING
from mnemo.note.forgetting import ForgottenNotes, forget_sources
from mnemo.store.memory.erase_threads import erase_messages
from mnemo.store.memory.notes import NoteWriting
from mnemo.store.memory.state import EpisodeState, Kept, RepoState, SessionData, StepState
from mnemo.store.memory.writing import Writing
from mnemo.transcript.derived import ErasedRows

__all__ = ["erase", "touched_sessions"]

_MEMBERSHIPS = (EdgeKind.MEMBERSHIP, EdgeKind.HIERARCHICAL)


def touched_sessions(kept: Kept, repo_id: str, selection: Selection) -> tuple[str, ...]:
    """The sessions that steps are selected of, and the one that goes whole."""
    return tuple(s.id for s in kept.sessions.values() if _is_touched(s, repo_id, selection))


def _is_touched(session: SessionData, repo_id: str, selection: Selection) -> bool:
    if session.repo_id != repo_id:
        return False
    return session.id == selection.whole_session or bool(_selected(session, selection))


def _selected(session: SessionData, selection: Selection) -> list[StepState]:
    if selection.session_id not in (None, session.id):
        return []
    takes = selection.takes()
    steps = [state for episode in session.episodes for state in episode.steps]
    return [state for state in steps if takes(state.step.at, state.step.thread_id)]


def erase(kept: Kept, repo_id: str, selection: Selection, *, now: datetime) -> Erased:
    """Erase what is selected with all that was derived from it alone."""
    repo = kept.repo(repo_id)
    sessions = [kept.sessions[id] for id in touched_sessions(kept, repo_id, selection)]
    erasing, writing = _Erasing(kept, repo, sessions, selection), Writing(kept, repo, now)
    writing.unshow(erasing.records)
    erased = erasing.run() if sessions else Erased()
    rows = erase_messages(writing, selection)
    notes = _forget_notes(writing, selection)
    return replace(erased, report=_with_notes(_with_messages(erased.report, rows), notes))


def _forget_notes(writing: Writing, selection: Selection) -> ForgottenNotes:
    """What notes rest on the erased; after it was erased, and its ids remembered."""
    notes = writing.repo.notes.copy()
    forgotten = forget_sources(
        NoteWriting(notes, writing.now),
        thread_id=selection.whole_thread,
        session_id=selection.whole_session,
        erased=writing.erased_ids,
    )
    writing.repo.notes = notes
    return forgotten


def _with_notes(report: ErasureReport, notes: ForgottenNotes) -> ErasureReport:
    return replace(
        report,
        notes=notes.notes,
        note_versions=notes.versions,
        mixed_notes=notes.mixed,
        vectors=report.vectors + notes.vectors,
        fulltext_rows=report.fulltext_rows + notes.fulltext_rows,
    )


def _with_messages(report: ErasureReport, rows: ErasedRows) -> ErasureReport:
    return replace(
        report,
        messages=rows.messages,
        compactions=rows.compactions,
        snapshots=rows.snapshots,
        pins=rows.pins,
        goals=rows.goals,
        vectors=report.vectors + rows.vectors,
        fulltext_rows=report.fulltext_rows + rows.fulltext_rows,
    )


class _Erasing:
    """One erasure."""

    def __init__(
        self, kept: Kept, repo: RepoState, sessions: list[SessionData], selection: Selection
    ) -> None:
        self._kept = kept
        self._repo = repo
        self._sessions = sessions
        self._selection = selection
        steps = (state for session in sessions for state in _selected(session, selection))
        self._steps = {state.step.node_id: state for state in steps}
        self._going: dict[str, None] = {}
        self._changed = 0
        self._episodes = {e.id: e for session in sessions for e in session.episodes}
        self._said = Said(self._texts_of)

    @property
    def records(self) -> set[tuple[str, str]]:
        """Session and id of each half of the steps that go."""
        steps = [state.step for state in self._steps.values()]
        return {
            (step.session_id, f"{step.node_id}/{part}")
            for step in steps
            for part in ("observation", "action")
        }

    def run(self) -> Erased:
        """Plan, then do it."""
        repo = self._repo
        repo.revision += 1
        self._take_steps()
        changed = self._settle_claims()
        restored = self._settle_superseded()
        self._settle_routing()
        self._end_episodes()
        edges = {edge for id in self._going for edge in repo.edges_of.get(id, ())}
        report = ErasureReport(
            steps=len(self._steps),
            nodes=len(self._going),
            edges=len(edges),
            vectors=self._vectors(),
            fulltext_rows=self._texts(),
            facts_changed=changed,
            facts_restored=restored,
        )
        self._delete()
        if not (self._going or changed or restored or self._changed):
            repo.revision -= 1
        sessions = self._end_sessions()
        ids = tuple(session.id for session in self._sessions)
        return Erased(
            report=replace(report, sessions=sessions),
            node_ids=tuple(self._going),
            session_ids=ids,
        )

    # ── The graph ────────────────────────────────────────────────────────────────────

    def _texts_of(self, episode_id: str | None) -> Iterable[str | None]:
        episode = self._episodes.get(episode_id or "")
        if episode is None:
            return
        left = False
        for state in episode.steps:
            step = state.step
            if step.node_id in self._steps:
                yield from (step.observation, step.action, step.actor, step.state, step.subgoal)
            else:
                left = True
        if not left:
            yield episode.goal

    def _take_steps(self) -> None:
        nodes = self._repo.nodes
        for id in self._steps:
            for node_id in (id, "source" + id[8:]):
                if node_id in nodes and nodes[node_id].node.type in ("episodic", "source"):
                    self._going[node_id] = None
        for id in list(self._going):
            for source in self._ends(id, EdgeKind.PROVENANCE, type="source"):
                behind = self._behind(source.id)
                if all(other.id in self._going for other in behind):
                    self._going[source.id] = None

    def _ends(self, id: str, *kinds: EdgeKind, type: str | None = None) -> list[Node]:
        edges = [e for e in self._repo.edges_of.get(id, ()) if e.source == id and e.kind in kinds]
        found = [self._repo.nodes[edge.target].node for edge in edges]
        return [node for node in found if type in (None, node.type)]

    def _behind(self, id: str, *kinds: EdgeKind) -> list[Node]:
        wanted = kinds or (EdgeKind.PROVENANCE,)
        edges = [e for e in self._repo.edges_of.get(id, ()) if e.target == id and e.kind in wanted]
        return [self._repo.nodes[edge.source].node for edge in edges]

    def _settle_claims(self) -> int:
        kept = 0
        found = {n.id: n for id in list(self._going) for n in self._behind(id)}
        for node in found.values():
            if node.type not in ("semantic", "procedural") or node.id in self._going:
                continue
            state = self._repo.nodes[node.id]
            verdict = judge(Claim(node, state.metadata, self._grounds(node)), self._said)
            if verdict.node is None or verdict.metadata is None:
                self._going[node.id] = None
                continue
            self._repo.put_node(verdict.node, verdict.metadata)
            kept += 1
        return kept

    def _grounds(self, node: Node) -> tuple[Ground, ...]:
        steps = self._ends(node.id, EdgeKind.PROVENANCE)
        return tuple(Ground(s, s.id in self._going) for s in steps if isinstance(s, Episodic))

    def _settle_superseded(self) -> int:
        restored = 0
        gone = {id: n for id in self._going if isinstance(n := self._node(id), Semantic)}
        for state in list(self._repo.nodes.values()):
            fact = state.node
            if not isinstance(fact, Semantic) or fact.id in self._going:
                continue
            if fact.superseded_by in gone:
                after = relinked(fact, gone)
                self._repo.put_node(after, state.metadata)
                restored += after.superseded_by is None
        return restored

    def _node(self, id: str) -> Node:
        return self._repo.nodes[id].node

    def _settle_routing(self) -> None:
        found = {n.id: n for id in list(self._going) for n in self._behind(id, *_MEMBERSHIPS)}
        for node in found.values():
            if node.type not in ROUTING:
                continue
            members = [n for n in self._ends(node.id, *_MEMBERSHIPS) if n.id not in self._going]
            after = reworded(node, members, partial(self._said_behind, node)) if members else None
            if after is None:
                self._going[node.id] = None
            elif after is not node:
                self._reword(after)

    def _said_behind(self, node: Node) -> frozenset[str]:
        gone = [n for n in self._ends(node.id, *_MEMBERSHIPS) if n.id in self._going]
        steps = [s for n in gone for s in (n, *self._ends(n.id, EdgeKind.PROVENANCE))]
        return self._said.of(s.episode_id for s in steps if isinstance(s, Episodic))

    def _reword(self, node: Node) -> None:
        self._repo.put_node(node, self._repo.nodes[node.id].metadata)
        self._repo.vectors.pop(node.id, None)
        if node.type in ("tag", "intent"):
            self._repo.mark_changed(self._repo.neighbours(node.id))
        self._changed += 1

    # ── Sessions ─────────────────────────────────────────────────────────────────────

    def _end_episodes(self) -> None:
        for session in self._sessions:
            for episode in session.episodes:
                if any(state.step.node_id in self._steps for state in episode.steps):
                    self._end_episode(session, episode)

    def _end_episode(self, session: SessionData, episode: EpisodeState) -> None:
        episode.staged.clear()
        episode.changeset, episode.changeset_steps = None, ()
        left = [state for state in episode.steps if state.step.node_id not in self._steps]
        if not episode.is_over:
            self._kept.erased.add(episode.id)
            episode.status = "discarded"
            for state in left:
                if not state.committed and not state.gone:
                    state.gone = True
                    self._repo.remove(state.step.node_id)
        erased = self._said.of([episode.id]) if left else frozenset()
        for state in left:
            self._strip(state, episode.goal, erased)

    def _strip(self, state: StepState, goal: str, erased: frozenset[str]) -> None:
        step, annotation = state.step, state.step.annotation
        if annotation is None:
            return
        own = "\n".join((step.observation, step.action, step.actor))
        after = stripped(annotation.state, annotation.subgoal, own, goal, erased)
        if after == (annotation.state, annotation.subgoal):
            return
        kept = replace(annotation, state=after[0], subgoal=after[1] or goal, vector=None)
        state.step = step.annotated(kept)
        known = self._repo.nodes.get(step.node_id)
        if known is not None and isinstance(known.node, Episodic):
            node = replace(known.node, state=after[0], subgoal=after[1])
            self._repo.put_node(node, known.metadata)
            self._changed += 1

    def _end_sessions(self) -> int:
        gone = 0
        for session in self._sessions:
            for episode in session.episodes:
                left = [s for s in episode.steps if s.step.node_id not in self._steps]
                if len(left) < len(episode.steps) and not left:
                    self._kept.erased.add(episode.id)
                episode.steps[:] = left
            self._forget_keys(session)
            session.owner = None
            buried = self._kept.erased
            session.episodes = [e for e in session.episodes if e.steps or e.id not in buried]
            alive = any(e.steps or not e.is_over for e in session.episodes)
            if not alive or session.id == self._selection.whole_session:
                self._bury(session)
                gone += 1
            elif session.episodes[-1].is_over:
                session.state = SessionState.IDLE
                session.error = session.error_trajectory = None
        return gone

    def _forget_keys(self, session: SessionData) -> None:
        lost = [key for key, s in session.keys.items() if s.step.node_id in self._steps]
        for key in lost:
            del session.keys[key]

    def _bury(self, session: SessionData) -> None:
        self._kept.erased |= {session.id, *(episode.id for episode in session.episodes)}
        del self._kept.sessions[session.id]

    # ── Deleting ─────────────────────────────────────────────────────────────────────

    def _vectors(self) -> int:
        keys = {f"{id}/{part}" for id in self._steps for part in ("observation", "action")}
        return len((keys | self._going.keys()) & self._repo.vectors.keys())

    def _texts(self) -> int:
        steps = [state.step for state in self._steps.values()]
        return sum(bool(step.observation) + bool(step.action) for step in steps)

    def _delete(self) -> None:
        repo = self._repo
        self._kept.erased |= self._steps.keys()
        gone = self._going.keys() | self._steps.keys()
        repo.moving = {k: v for k, v in repo.moving.items() if k.split("/")[0] not in gone}
        for id in self._going:
            repo.mark_changed(n.id for n in self._ends(id, *_MEMBERSHIPS))
        for id in self._going:
            repo.discard_node(id)
        for id in self._steps:
            repo.remove(id)
            repo.step_of.pop(id)
        repo.steps[:] = [s for s in repo.steps if s.step.node_id not in self._steps]

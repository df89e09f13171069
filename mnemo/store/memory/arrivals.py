"""Records of an archive becoming the state of a repository, apart from all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mnemo._clock import Breather
from mnemo.episode.archive import (
    ArchivedChangeset,
    ArchivedEpisode,
    ArchivedNode,
    ArchivedSession,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    ArchiveHead,
    NumberedRecord,
    Record,
    owner_of_vector,
)
from mnemo.episode.archive_notes import NoteRecord
from mnemo.episode.journal import SessionState
from mnemo.errors import Conflict, InvalidArchive
from mnemo.graph.edges import ENDS, Edge
from mnemo.graph.lookup import lookup_keys
from mnemo.protocols import Applied
from mnemo.store.memory.arrivals_notes import ArrivingNotes
from mnemo.store.memory.arrivals_talk import ArrivingTalk
from mnemo.store.memory.state import EpisodeState, NodeState, RepoState, SessionData, StepState

__all__ = ["Arrivals"]

_DOUBLE = "it is there twice"


class Arrivals:
    """
    What has arrived of one archive; for worker threads, one after the other.

    Attributes:
        sessions: By id; *episodes* likewise.
        repo: The repository that it becomes.
    """

    def __init__(self, repo_id: str, head: ArchiveHead) -> None:
        self.sessions: dict[str, SessionData] = {}
        self.episodes: dict[str, EpisodeState] = {}
        self.repo = RepoState(repo_id, revision=head.revision, space=head.space)
        self._session_of: dict[str, str] = {}
        self._session_lines: dict[str, int] = {}
        self._episode_lines: dict[str, int] = {}
        self._step_lines: list[int] = []
        self._talk = ArrivingTalk(self.repo)
        self._notes = ArrivingNotes(self.repo.notes)
        self._line = 0
        self._past = 0

    @property
    def messages(self) -> int:
        """How many messages have arrived; they are numbered from 1."""
        return self._talk.messages

    def add(self, records: Sequence[NumberedRecord]) -> None:
        """Take records. *Raises* ``InvalidArchive`` for one that does not fit those before."""
        breather = Breather()
        for self._line, record in records:
            self._add(record)
            breather.breathe()

    def _add(self, record: Record) -> None:
        match record:
            case ArchivedStep():
                self._add_step(record)
            case ArchivedNode():
                self._add_node(record)
            case Edge():
                self._add_edge(record)
            case ArchivedVector():
                self._add_vector(record)
            case ArchivedSession():
                self._add_session(record)
            case ArchivedEpisode():
                self._add_episode(record)
            case ArchivedTrajectory():
                self._add_trajectory(record)
            case ArchivedChangeset():
                self._add_changeset(record)
            case _ if isinstance(record, NoteRecord):
                self._notes.add(record, self._line)
            case _:
                self._talk.add(record, self._line)

    def _insist(self, fits: bool, reason: str) -> None:
        if not fits:
            raise InvalidArchive(self._line, reason)

    # ── Sessions ─────────────────────────────────────────────────────────────────────

    def _add_session(self, record: ArchivedSession) -> None:
        self._insist(record.id not in self.sessions, _DOUBLE)
        self._session_lines[record.id] = self._line
        self.sessions[record.id] = SessionData(
            record.id,
            self.repo.id,
            record.state,
            None,
            record.updated_at,
            [],
            error=record.error,
            error_trajectory=record.error_trajectory,
        )

    def _add_episode(self, record: ArchivedEpisode) -> None:
        self._insist(record.id not in self.episodes, _DOUBLE)
        self._insist(record.session_id in self.sessions, "its session is not in the archive")
        episode = EpisodeState(
            record.id,
            record.goal,
            record.goal_at,
            status=record.status,
            changeset=record.changeset,
            changeset_steps=record.changeset_steps,
            receipt_nodes=record.receipt_nodes,
        )
        self.episodes[record.id] = episode
        self._episode_lines[record.id] = self._line
        self._session_of[record.id] = record.session_id
        self.sessions[record.session_id].episodes.append(episode)

    def _add_trajectory(self, record: ArchivedTrajectory) -> None:
        episode = self.episodes.get(record.episode_id)
        if episode is None or episode.is_over:
            raise InvalidArchive(self._line, "its episode is not in the archive, or is over")
        self._insist(record.staged.key not in episode.staged, _DOUBLE)
        episode.staged[record.staged.key] = record.staged

    def _add_step(self, record: ArchivedStep) -> None:
        step = record.step
        self._insist(step.node_id not in self.repo.step_of, _DOUBLE)
        self._insist(
            self._session_of.get(step.episode_id) == step.session_id,
            "its episode is not in the archive, or of another session",
        )
        session, episode = self.sessions[step.session_id], self.episodes[step.episode_id]
        before = episode.steps[-1].step.index if episode.steps else -1
        follows = step.index > before if episode.is_over else step.index == before + 1
        self._insist(follows, "its index does not follow that of the step before it")
        self._insist(step.key not in session.keys, "its key is there twice in its session")
        state = StepState(step, committed=record.committed, gone=record.gone)
        episode.steps.append(state)
        self.repo.steps.append(state)
        self.repo.step_of[step.node_id] = state
        self._step_lines.append(self._line)
        if step.key is not None:
            session.keys[step.key] = state

    # ── The graph ────────────────────────────────────────────────────────────────────

    def _add_node(self, record: ArchivedNode) -> None:
        id = record.node.id
        self._insist(id not in self.repo.nodes, _DOUBLE)
        self.repo.nodes[id] = NodeState(record.node, record.metadata, record.revision)
        for key in lookup_keys(record.node):
            self.repo.keyed[key][id] = None

    def _add_edge(self, edge: Edge) -> None:
        nodes = self.repo.nodes
        ends = [nodes[id].node.type for id in (edge.source, edge.target) if id in nodes]
        self._insist(
            edge.source != edge.target and tuple(ends) in ENDS[edge.kind],
            "an end of the edge is not in the archive, or of a type that it cannot join",
        )
        self._insist(self.repo.put_edge(edge), _DOUBLE)

    def _add_vector(self, record: ArchivedVector) -> None:
        self._insist(record.key not in self.repo.vectors, _DOUBLE)
        owner, is_side = owner_of_vector(record.key)
        step = self.repo.step_of.get(owner)
        of_step = is_side and step is not None and not step.gone
        self._insist(
            of_step or record.key in self.repo.nodes or owner in self.repo.nodes,
            "what the vector is of is not in the archive, or gone",
        )
        self.repo.put_vector(record.key, record.vector)

    def _add_changeset(self, record: ArchivedChangeset) -> None:
        self._insist(record.id not in self.repo.changesets, _DOUBLE)
        self.repo.changesets[record.id] = Applied(
            revision=record.revision, node_ids=record.node_ids, edge_count=record.edge_count
        )

    # ── At the end ───────────────────────────────────────────────────────────────────

    def settle(self, before: RepoState, *, after: int) -> None:
        """
        Check what only shows when everything is there, and number it.

        Args:
            before: What the repository was until now: readers may follow its logs.
            after: The step before the first one.

        Raises:
            InvalidArchive: Which line does not fit the others.
        """
        self._check_sessions()
        self._check_steps()
        self._talk.settle()
        self._notes.settle()
        for state in self.repo.steps:
            after += 1
            state.step = replace(state.step, ordinal=after)
        self._past = past = len(before.vector_log)
        repo = self.repo
        repo.vector_log = before.vector_log + repo.vector_log
        repo.vectors = {key: (past + seq, v) for key, (seq, v) in repo.vectors.items()}
        changed = ((state.revision, id) for id, state in repo.nodes.items())
        repo.changed = sorted(changed, key=lambda pair: pair[0])

    def follow(self, before: RepoState) -> None:
        """Go on with the logs of *before*. *Raises* ``Conflict`` if it was not let alone."""
        if len(before.vector_log) != self._past:
            raise Conflict("the repository was written to meanwhile; nothing was imported")
        self.repo.removals = before.removals
        self.repo.notes.stay_at_home(before.notes)

    def _check_sessions(self) -> None:
        for id, session in self.sessions.items():
            self._line = self._session_lines[id]
            self._insist(_fits(session), "the state of the session does not fit its last episode")
            for episode in session.episodes[:-1]:
                self._line = self._episode_lines[episode.id]
                last = "an episode that is not over must be the last of its session"
                self._insist(episode.is_over, last)

    def _check_steps(self) -> None:
        for line, state in zip(self._step_lines, self.repo.steps, strict=True):
            self._line = line
            there = state.gone or not state.committed or state.step.node_id in self.repo.nodes
            self._insist(there, "it is committed, but its node is not in the archive")


def _fits(session: SessionData) -> bool:
    if not session.episodes:
        return False
    last = session.episodes[-1]
    match session.state:
        case SessionState.IDLE:
            return last.is_over
        case SessionState.COLLECTING:
            return last.status == "open"
        case SessionState.READY:
            return last.status == "closed" and last.changeset is not None
        case _:
            return last.status == "closed"

"""One repository as records, out of memory and into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.archive import (
    KINDS,
    ArchivedChangeset,
    ArchivedEpisode,
    ArchivedMessage,
    ArchivedMessageVector,
    ArchivedNode,
    ArchivedSession,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    ArchiveHead,
    NumberedRecord,
    Record,
)
from mnemo.episode.archive_notes import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
)
from mnemo.errors import Conflict, UsageError
from mnemo.graph.edges import Edge
from mnemo.note.rows import Covered
from mnemo.protocols import Applied
from mnemo.store.memory.arrivals import Arrivals
from mnemo.store.memory.note_state import NotesState
from mnemo.store.memory.reading import copied
from mnemo.store.memory.state import EpisodeState, Kept, RepoState, SessionData
from mnemo.store.memory.threads import MessageState, ThreadState
from mnemo.transcript.derived import (
    Compaction,
    Derived,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
)

__all__ = ["MemoryArchive"]

_PAGE = 500
_DERIVED: dict[str, type[Derived]] = {
    "compaction": Compaction,
    "snapshot": Snapshot,
    "outcome": EvictionOutcome,
    "goal": Goal,
    "pin": Pin,
}


class MemoryArchive:
    """``Archive`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept]) -> None:
        self._repo_id = repo_id
        self._kept = kept

    @asynccontextmanager
    async def read(self) -> AsyncIterator[tuple[ArchiveHead, AsyncIterator[Sequence[Record]]]]:
        """Everything as of one moment; see ``Archive``."""
        repo = self._kept().repo(self._repo_id)
        sessions = [s for s in self._kept().sessions.values() if s.repo_id == self._repo_id]
        sections = {**_said(repo, sessions), **_known(repo), **_talked(repo), **_noted(repo.notes)}
        counts = {kind: len(sections[kind].rows) for kind in KINDS}
        head = ArchiveHead(revision=repo.revision, space=repo.space, counts=counts)
        await cancel_shielded_checkpoint()
        yield head, _pages([sections[kind] for kind in KINDS])

    async def write(
        self, head: ArchiveHead, pages: AsyncIterator[Sequence[NumberedRecord]]
    ) -> None:
        """Build everything apart, then let it in within one turn of the loop; see ``Archive``."""
        self._refuse_filled()
        arrivals, limiter = Arrivals(self._repo_id, head), CapacityLimiter(1)
        async for page in pages:
            await anyio.to_thread.run_sync(arrivals.add, page, limiter=limiter)
        kept = self._kept()
        before, after = kept.repo(self._repo_id), kept.ordinal
        # Numbers that nobody else gets; if it comes to nothing, a gap is no harm.
        kept.ordinal += len(arrivals.repo.steps)
        settle = partial(arrivals.settle, before, after=after)
        await anyio.to_thread.run_sync(settle, limiter=limiter)
        self._let_in(arrivals)
        await cancel_shielded_checkpoint()

    def _refuse_filled(self) -> None:
        kept = self._kept()
        repo = kept.repo(self._repo_id)
        sessions = any(s.repo_id == self._repo_id for s in kept.sessions.values())
        known = (repo.revision, repo.nodes, repo.changesets, repo.threads, sessions)
        if any(known) or not repo.notes.is_empty:
            raise UsageError(f"repository {self._repo_id!r} is not empty: import into another one")

    def _let_in(self, arrivals: Arrivals) -> None:
        kept = self._kept()
        self._refuse_filled()
        for kind, known, new in (
            ("session", kept.sessions.keys(), arrivals.sessions.keys()),
            ("episode", kept.episode_ids, arrivals.episodes.keys()),
        ):
            if double := min(known & new, default=None):
                raise Conflict(f"{kind} {double!r} is in this store already; nothing was imported")
        kept.refuse_erased([*arrivals.sessions, *arrivals.episodes, *arrivals.repo.step_of])
        arrivals.follow(kept.repo(self._repo_id))
        kept.sessions |= arrivals.sessions
        kept.episode_ids |= arrivals.episodes.keys()
        kept.message_no = max(kept.message_no, arrivals.messages)
        kept.repos[self._repo_id] = arrivals.repo


@dataclass(frozen=True, slots=True)
class _Section:
    """
    Records of one kind, still to be made.

    Attributes:
        rows: What they are made of; nothing in it changes any more.
        make: Makes one.
        order: Gives the key that they are sorted by; ``None``: they are in order.
    """

    rows: Sequence[Any]
    make: Callable[[Any], Record]
    order: Callable[[], Callable[[Any], Any]] | None = None

    def sorted(self) -> Sequence[Any]:
        return self.rows if self.order is None else sorted(self.rows, key=self.order())

    def page(self, rows: Sequence[Any]) -> Sequence[Record]:
        return [self.make(row) for row in rows]


async def _pages(sections: Sequence[_Section]) -> AsyncIterator[Sequence[Record]]:
    limiter = CapacityLimiter(1)
    for section in sections:
        rows = await anyio.to_thread.run_sync(section.sorted, limiter=limiter)
        for start in range(0, len(rows), _PAGE):
            page = rows[start : start + _PAGE]
            yield await anyio.to_thread.run_sync(section.page, page, limiter=limiter)


def _said(repo: RepoState, sessions: Sequence[SessionData]) -> dict[str, _Section]:
    """Sessions and what is theirs; what may still change is copied."""
    episodes = [(session, episode) for session in sessions for episode in session.episodes]
    staged = [(e.id, result) for _, e in episodes for result in e.staged.values()]
    steps = [(state.step, state.committed, state.gone) for state in repo.steps]
    return {
        "session": _Section([_session(session) for session in sessions], _itself),
        "episode": _Section([_episode(*pair) for pair in episodes], _itself),
        "trajectory": _Section(
            staged, lambda row: ArchivedTrajectory(episode_id=row[0], staged=row[1])
        ),
        "step": _Section(
            steps, lambda row: ArchivedStep(step=row[0], committed=row[1], gone=row[2])
        ),
    }


def _known(repo: RepoState) -> dict[str, _Section]:
    """The graph; what may still change is copied."""
    nodes = [(state.node, state.metadata, state.revision) for state in repo.nodes.values()]

    def by_ends() -> Callable[[Edge], Any]:
        places = {node.id: place for place, (node, _, _) in enumerate(nodes)}
        return lambda edge: (places[edge.source], places[edge.target], str(edge.kind))

    return {
        "node": _Section(
            nodes, lambda row: ArchivedNode(node=row[0], metadata=row[1], revision=row[2])
        ),
        "edge": _Section(list(repo.edges), _itself, by_ends),
        "vector": _Section(
            list(repo.vectors.items()),
            lambda row: ArchivedVector(key=row[0], vector=row[1][1]),
            lambda: lambda row: row[1][0],
        ),
        "changeset": _Section(list(repo.changesets.items()), _changeset),
    }


def _talked(repo: RepoState) -> dict[str, _Section]:
    """Conversations; what may still change is copied."""
    threads = [repo.threads[id] for id in sorted(repo.threads)]
    messages = [
        (entry, entry.no in repo.owed.all) for state in threads for entry in state.messages.values()
    ]
    vectors = [
        (state.messages[seq].no, state.row.id, seq, vector)
        for state in threads
        for seq, vector in state.vectors.items()
    ]
    return {
        "thread": _Section([state.row for state in threads], _itself),
        "message": _Section(messages, _message, lambda: lambda row: row[0].no),
        "message_vector": _Section(
            vectors,
            lambda row: ArchivedMessageVector(thread_id=row[1], seq=row[2], vector=row[3]),
            lambda: lambda row: row[0],
        ),
        **{name: _Section(_derived(threads, kind), _itself) for name, kind in _DERIVED.items()},
    }


def _noted(state: NotesState) -> dict[str, _Section]:
    """Notes; every value in them is frozen."""
    rows = state.rows
    return {
        "note": _Section([rows[topic] for topic in sorted(rows)], _itself),
        "note_version": _Section(
            [version for topic in sorted(rows) for version in state.versions.get(topic, ())],
            _itself,
        ),
        "note_change": _Section(
            [(id, change) for id in sorted(state.journal) for change in state.journal[id]],
            lambda row: ArchivedNoteChange(update_id=row[0] or None, change=row[1]),
        ),
        "note_mark": _Section(list(state.marks), lambda key: ArchivedNoteMark(key=key)),
        "note_request": _Section(
            [(digest, _unerased(state.covered[digest], rows)) for digest in sorted(state.covered)],
            lambda row: ArchivedNoteRequest(digest=row[0], covered=row[1]),
        ),
        "note_task": _Section(sorted(state.done), lambda id: ArchivedNoteTask(task_id=id)),
    }


def _unerased(covered: Covered, rows: Collection[str]) -> Covered:
    """*covered* without the topic of a note that was purged: it would be a trace of it."""
    return covered if covered.topic in rows else replace(covered, topic=None)


def _derived(threads: Sequence[ThreadState], kind: type[Derived]) -> list[Derived]:
    choice: dict[str, Any] = {"epoch": None, "live": False, "newest": None}
    return [value for state in threads for value in state.shelf(kind).chosen(**choice)]


def _message(row: tuple[MessageState, bool]) -> Record:
    entry, owed = row
    message = copied(entry.message)
    return ArchivedMessage(message=message, searched=bool(entry.text), owed=owed)


def _itself(record: Record) -> Record:
    return record


def _changeset(row: tuple[str, Applied]) -> Record:
    id, done = row
    return ArchivedChangeset(
        id=id, revision=done.revision, node_ids=done.node_ids, edge_count=done.edge_count
    )


def _session(session: SessionData) -> ArchivedSession:
    return ArchivedSession(
        id=session.id,
        state=session.state,
        updated_at=session.updated_at,
        error=session.error,
        error_trajectory=session.error_trajectory,
    )


def _episode(session: SessionData, episode: EpisodeState) -> ArchivedEpisode:
    return ArchivedEpisode(
        id=episode.id,
        session_id=session.id,
        goal=episode.goal,
        goal_at=episode.goal_at,
        status=episode.status,
        changeset=episode.changeset,
        changeset_steps=episode.changeset_steps,
        receipt_nodes=episode.receipt_nodes,
    )

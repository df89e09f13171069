"""One repository as records, out of memory and into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio.to_thread
from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.archive import (
    KINDS,
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
)
from mnemo.errors import Conflict, UsageError
from mnemo.store.memory.arrivals import Arrivals
from mnemo.store.memory.state import EpisodeState, Kept, RepoState, SessionData

__all__ = ["MemoryArchive"]

_PAGE = 500


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
        records = _records(repo, sessions)
        counts = {kind: sum(type(r) is made for r in records) for kind, made in KINDS.items()}
        await cancel_shielded_checkpoint()
        yield ArchiveHead(revision=repo.revision, space=repo.space, counts=counts), _pages(records)

    async def write(
        self, head: ArchiveHead, pages: AsyncIterator[Sequence[NumberedRecord]]
    ) -> None:
        """Build everything apart, then let it in within one turn of the loop; see ``Archive``."""
        self._refuse_filled()
        arrivals = Arrivals(self._repo_id, head)
        async for page in pages:
            await anyio.to_thread.run_sync(arrivals.add, page)
        await anyio.to_thread.run_sync(arrivals.check)
        self._let_in(arrivals)
        await cancel_shielded_checkpoint()

    def _refuse_filled(self) -> None:
        kept = self._kept()
        repo = kept.repo(self._repo_id)
        sessions = any(s.repo_id == self._repo_id for s in kept.sessions.values())
        if repo.revision or repo.nodes or repo.changesets or sessions:
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
        kept.ordinal = arrivals.renumber(after=kept.ordinal)
        kept.sessions |= arrivals.sessions
        kept.episode_ids |= arrivals.episodes.keys()
        kept.repos[self._repo_id] = arrivals.take_over(kept.repo(self._repo_id))


async def _pages(records: list[Record]) -> AsyncIterator[Sequence[Record]]:
    for start in range(0, len(records), _PAGE):
        await cancel_shielded_checkpoint()
        yield records[start : start + _PAGE]


def _records(repo: RepoState, sessions: list[SessionData]) -> list[Record]:
    """All of it, in the order of an archive; what may still change is copied."""
    episodes = [(session, episode) for session in sessions for episode in session.episodes]
    return [
        *map(_session, sessions),
        *(_episode(session, episode) for session, episode in episodes),
        *(
            ArchivedTrajectory(episode_id=episode.id, staged=staged)
            for _, episode in episodes
            for staged in episode.staged.values()
        ),
        *(
            ArchivedStep(step=state.step, committed=state.committed, gone=state.gone)
            for state in repo.steps
        ),
        *_graph(repo),
    ]


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


def _graph(repo: RepoState) -> list[Record]:
    places = {id: place for place, id in enumerate(repo.nodes)}
    edges = sorted(repo.edges, key=lambda e: (places[e.source], places[e.target], str(e.kind)))
    vectors = sorted(repo.vectors.items(), key=lambda item: item[1][0])
    return [
        *(
            ArchivedNode(node=state.node, metadata=state.metadata, revision=state.revision)
            for state in repo.nodes.values()
        ),
        *edges,
        *(ArchivedVector(key=key, vector=vector) for key, (_, vector) in vectors),
        *(
            ArchivedChangeset(
                id=id, revision=done.revision, node_ids=done.node_ids, edge_count=done.edge_count
            )
            for id, done in repo.changesets.items()
        ),
    ]

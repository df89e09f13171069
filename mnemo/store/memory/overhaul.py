"""What is rarely done to one repository as a whole, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.erasure import Erased, Selection
from mnemo.episode.feed import FeedCursor
from mnemo.errors import Conflict
from mnemo.graph.nodes import Vector
from mnemo.protocols import Clock, EmbeddingSpace
from mnemo.store.memory.erase import erase, touched_sessions
from mnemo.store.memory.feed import is_owned
from mnemo.store.memory.state import Kept, RepoState, SessionData

__all__ = ["MemoryOverhaul"]


class MemoryOverhaul:
    """``Overhaul`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept], clock: Clock) -> None:
        self._repo_id = repo_id
        self._kept = kept
        self._clock = clock

    async def touched(self, selection: Selection) -> tuple[str, ...]:
        """The sessions that would lose steps, or go; changes nothing."""
        await cancel_shielded_checkpoint()
        return touched_sessions(self._kept(), self._repo_id, selection)

    async def erase(self, selection: Selection) -> Erased:
        """Erase what is selected; there are no files to be rid of it."""
        erased = erase(self._kept(), self._repo_id, selection, now=self._clock.now())
        await cancel_shielded_checkpoint()
        return erased

    @property
    def _repo(self) -> RepoState:
        return self._kept().repo(self._repo_id)

    async def begin_move(self, space: EmbeddingSpace) -> None:
        """Say where the vectors go; what was staged for another space is dropped."""
        repo = self._repo
        if repo.next_space is None or str(repo.next_space) != str(space):
            repo.next_space, repo.moving = space, {}
        await cancel_shielded_checkpoint()

    async def unmoved(self, digests: Mapping[str, bytes]) -> frozenset[str]:
        """Those of the keys that no vector is staged for, of a text with this digest."""
        await cancel_shielded_checkpoint()
        staged = self._repo.moving
        return frozenset(
            key for key, digest in digests.items() if key not in staged or staged[key][0] != digest
        )

    async def stage(
        self, space: EmbeddingSpace, vectors: Mapping[str, tuple[bytes, Vector]]
    ) -> None:
        """Keep vectors with their texts' digests for the switch."""
        self._check_next(space)
        repo = self._repo
        repo.moving.update({key: v for key, v in vectors.items() if is_owned(repo, key)})
        await cancel_shielded_checkpoint()

    def _check_next(self, space: EmbeddingSpace) -> None:
        if self._repo.next_space is None or str(self._repo.next_space) != str(space):
            raise Conflict(f"the repository is not on its way to {space} any more")

    async def switch(self, space: EmbeddingSpace, cursor: FeedCursor) -> int:
        """Put the staged vectors in force."""
        self._check_next(space)
        repo, staged = self._repo, self._repo.moving
        steps = [s.step.node_id for s in repo.steps if not s.gone]
        keys = [f"{id}/{part}" for id in steps for part in ("observation", "action")]
        keys += [id for id, state in repo.nodes.items() if state.revision <= cursor.revision]
        repo.vectors.clear()
        for key in keys:
            if key in staged:
                repo.put_vector(key, staged[key][1])
        repo.space = EmbeddingSpace(space.name, space.dimensions)
        repo.next_space, repo.moving = None, {}
        repo.owe_messages_anew()
        for session in self._kept().sessions.values():
            if session.repo_id == self._repo_id:
                _forget_vectors(session)
        await cancel_shielded_checkpoint()
        return len(repo.vectors)


def _forget_vectors(session: SessionData) -> None:
    for episode in session.episodes:
        if episode.changeset is not None:
            episode.changeset = episode.changeset.without_vectors()
        for key, staged in episode.staged.items():
            whole = staged.changeset.without_vectors()
            episode.staged[key] = replace(staged, changeset=whole)
        for state in () if episode.is_over else episode.steps:
            if state.step.annotation is not None:
                state.step = state.step.annotated(replace(state.step.annotation, vector=None))

"""The notes of one repository in memory: a transaction works on a copy that takes its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo._text import terms
from mnemo.graph.nodes import Vector
from mnemo.messages import EmbeddingSpace
from mnemo.note.rows import (
    ConversationRow,
    Covered,
    ErasedNoteRows,
    NoteReader,
    NoteRow,
    NoteWriter,
    UsageRow,
)
from mnemo.note.values import NoteChange, NoteVersion
from mnemo.protocols import Clock
from mnemo.store.memory.note_state import NotesState
from mnemo.store.memory.state import Kept

__all__ = ["MemoryNotes", "NoteWriting"]

T = TypeVar("T")


class MemoryNotes:
    """``NoteStore`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept], clock: Clock) -> None:
        self._repo_id = repo_id
        self._kept = kept
        self._clock = clock

    async def reading(self, work: Callable[[NoteReader], T]) -> T:
        """Run *work* at once, in this turn of the loop."""
        result = work(_Reading(self._kept().repo(self._repo_id).notes, self._clock.now()))
        await cancel_shielded_checkpoint()
        return result

    async def writing(self, work: Callable[[NoteWriter], T]) -> T:
        """Run *work* at once, on a copy; if it raises, nothing has happened."""
        repo = self._kept().repo(self._repo_id)
        changed = repo.notes.copy()
        result = work(NoteWriting(changed, self._clock.now()))
        repo.notes = changed
        await cancel_shielded_checkpoint()
        return result


class _Reading:
    """``NoteReader`` over the state of one repository."""

    def __init__(self, state: NotesState, now: datetime) -> None:
        self._state = state
        self._now = now

    @property
    def now(self) -> datetime:
        """The store's time of this transaction."""
        return self._now

    def rows(self, topics: Sequence[str] | None = None) -> list[NoteRow]:
        """The notes that are there, by topic; of *topics* also those that were deleted."""
        rows = self._state.rows
        if topics is None:
            return [rows[topic] for topic in sorted(rows) if rows[topic].is_there]
        return [rows[topic] for topic in sorted(set(topics)) if topic in rows]

    def topics(self, *, deleted: bool = False) -> list[str]:
        """The topics of the notes that are there, sorted; with those that were, if asked."""
        return sorted(self._state.rows if deleted else self._state.terms)

    def versions(self, topic: str) -> list[NoteVersion]:
        """What is kept of its versions, oldest first."""
        return list(self._state.versions.get(topic, ()))

    def changes(self, update_id: str) -> list[NoteChange]:
        """What an update did, in order."""
        return list(self._state.journal.get(update_id, ()))

    def counts(self) -> tuple[int, int]:
        """Notes that are there, and versions kept of all."""
        return len(self._state.terms), sum(map(len, self._state.versions.values()))

    def matching(self, terms: Sequence[str]) -> dict[str, frozenset[str]]:
        """Term → topics of the notes that hold it."""
        known = self._state.terms
        return {
            term: frozenset(topic for topic, held in known.items() if term in held)
            for term in terms
        }

    def vectors(self, space: EmbeddingSpace) -> dict[str, Vector]:
        """Topic → vector of its present version, where there is one of *space*."""
        return {
            topic: vector
            for topic, (version, made_in, vector) in self._state.vectors.items()
            if version == self._state.rows[topic].version and _same(made_in, space)
        }

    def owed(self, space: EmbeddingSpace, *, limit: int) -> list[NoteRow]:
        """Notes that have no vector of *space*, by topic."""
        has = self.vectors(space)
        return [row for row in self.rows() if row.topic not in has][:limit]

    def marked(self, keys: Sequence[str]) -> frozenset[str]:
        """Those of *keys* that are marks."""
        return frozenset(key for key in keys if key in self._state.marks)

    def covered(self, digests: Sequence[str]) -> dict[str, Covered]:
        """What became of the requests with these digests, where that is settled."""
        known = self._state.covered
        return {digest: known[digest] for digest in digests if digest in known}

    def is_done(self, task_id: str) -> bool:
        """Whether an update of this task has ended without error."""
        return task_id in self._state.done

    def conversation(self, key: str) -> ConversationRow:
        """What is known of its updates; of an unknown one, nothing."""
        return self._state.conversations.get(key) or ConversationRow(key=key)

    def usage(self, update_id: str) -> list[UsageRow]:
        """What its calls cost, in order."""
        return list(self._state.usage.get(update_id, ()))


class NoteWriting(_Reading):
    """``NoteWriter`` over a copy of the state."""

    def put(self, row: NoteRow, version: NoteVersion, *, keep: int) -> None:
        """Write a note with a version, its journal row and its full-text row."""
        state, topic = self._state, row.topic
        state.rows[topic] = row
        state.versions[topic] = (*state.versions.get(topic, ()), version)[-keep:]
        change = NoteChange(
            topic=topic, action=version.action, version=version.version, by=version.by
        )
        update = version.update_id or ""
        state.journal[update] = (*state.journal.get(update, ()), change)
        state.vectors.pop(topic, None)
        if row.is_there:
            state.terms[topic] = frozenset(terms(row.text))
        else:
            state.terms.pop(topic, None)

    def touch(self, topics: Sequence[str], at: datetime) -> None:
        """Set when they were last read; no version."""
        for row in self.rows(topics):
            self._state.rows[row.topic] = replace(row, last_read_at=at)

    def erase(self, topic: str) -> ErasedNoteRows:
        """Delete a note with all its versions and rows."""
        state = self._state
        state.rows.pop(topic, None)
        for update, changes in state.journal.items():
            state.journal[update] = tuple(c for c in changes if c.topic != topic)
        # The request stays covered; the topic may be made of its words.
        for digest, covered in state.covered.items():
            if covered.topic == topic:
                state.covered[digest] = replace(covered, topic=None)
        return ErasedNoteRows(
            versions=len(state.versions.pop(topic, ())),
            fulltext_rows=int(state.terms.pop(topic, None) is not None),
            vectors=int(state.vectors.pop(topic, None) is not None),
        )

    def rewrite(self, version: NoteVersion) -> None:
        """Replace a version by one with fewer words."""
        kept = self._state.versions.get(version.topic, ())
        self._state.versions[version.topic] = tuple(
            version if old.version == version.version else old for old in kept
        )

    def drop(self, topic: str, version: int) -> None:
        """Delete one version."""
        kept = self._state.versions.get(topic, ())
        self._state.versions[topic] = tuple(old for old in kept if old.version != version)

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[str, tuple[int, Vector]]
    ) -> None:
        """Keep vectors by topic, of the versions that they name; others are skipped."""
        for topic, (version, vector) in vectors.items():
            row = self._state.rows.get(topic)
            if row is not None and row.is_there and row.version == version:
                self._state.vectors[topic] = (version, space, vector.copy())

    def mark(self, key: str, *, keep: int) -> None:
        """Remember a judged message."""
        marks = self._state.marks
        marks.pop(key, None)
        marks[key] = None
        while len(marks) > keep:
            del marks[next(iter(marks))]

    def cover(self, digest: str, covered: Covered) -> None:
        """Remember for good what became of a request; the first word about it stays."""
        self._state.covered.setdefault(digest, covered)

    def finish(self, task_id: str) -> None:
        """Remember that an update of this task has ended without error."""
        self._state.done[task_id] = None

    def keep_conversation(self, row: ConversationRow) -> None:
        """Write what is known of a conversation's updates."""
        self._state.conversations[row.key] = row

    def add_usage(self, row: UsageRow) -> None:
        """Write what a call cost."""
        usage = self._state.usage
        usage[row.update_id] = (*usage.get(row.update_id, ()), row)


def _same(one: EmbeddingSpace, other: EmbeddingSpace) -> bool:
    return (one.name, one.dimensions) == (other.name, other.dimensions)

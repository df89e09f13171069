"""
What an archive says of itself, and values that only a store and its archive know.

An archive holds everything of a repository, as rows of tables (``store.archive_rows``).
The repository's own id is in none of them, nor are numbers that a store gives. What was
erased leaves no trace in them: the digests by which a store knows an erased message's id
again are that store's own, and so is what surfaced by itself, which only the present needs.
Of notes, what calls of models cost stays at home, and when an update last ended; vectors of
messages, notes and items are owed after an import. Marks and requests are known by digests of
the words themselves, the same in every store: after an import nothing is judged or written
twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from mnemo.values.changeset import Changeset, Revision
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.graph import Vector
from mnemo.values.journal import SessionState
from mnemo.values.notes import Covered, NoteChange

EpisodeStatus: TypeAlias = Literal["open", "closed", "committed", "discarded"]

FORMAT: Final = "mnemo-archive"
VERSION: Final = 1
"""Of the format of lines; it has nothing to do with the schema of any store."""
DEVELOPMENT_FORMAT: Final = "mnemo-repository"
"""What archives were called before the first release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveHead:
    """
    What an archive says of itself, before all else.

    Attributes:
        revision: Of the graph.
        space: What the vectors are of; ``None`` if there never was one.
        counts: Kind of record → how many follow; every kind there is.
    """

    revision: Revision
    space: EmbeddingSpace | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the repository was never written to, or might as well not have been."""
        return not self.revision and not any(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session; its present or last episode is the last of its episodes."""

    id: str
    state: SessionState
    updated_at: datetime
    error: str | None = None
    error_trajectory: str | None = None
    thread_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """An episode; *changeset* is what ``ready`` waits to commit, *receipt_nodes* what is done."""

    id: str
    session_id: str
    goal: str
    goal_at: datetime
    status: EpisodeStatus
    changeset: Changeset | None = None
    changeset_steps: tuple[int, ...] = ()
    receipt_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRow:
    """A vector of a node or of a step's side, or of a further passage: see ``values.vectors``."""

    key: str
    vector: Vector = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesetRow:
    """A changeset that was applied, so that it is not applied again."""

    id: str
    revision: Revision
    node_ids: tuple[str, ...]
    edge_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChangeRow:
    """What was done to a note; *update_id*: by which update, if by any."""

    update_id: str | None
    change: NoteChange


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteMark:
    """The mark of a message that an update has judged."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRequestRow:
    """What became of an explicit request; it names no note that was erased."""

    digest: str
    covered: Covered


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteTask:
    """A task that was looked back over."""

    task_id: str

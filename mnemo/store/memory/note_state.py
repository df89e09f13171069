"""What the memory store holds of one repository's notes; every value in it is frozen."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

from mnemo.graph.nodes import Vector
from mnemo.messages import EmbeddingSpace
from mnemo.note.rows import ConversationRow, Covered, NoteRow, UsageRow
from mnemo.note.values import NoteChange, NoteVersion

__all__ = ["NotesState"]


@dataclass(slots=True, eq=False)
class NotesState:
    """
    The notes of one repository.

    Attributes:
        terms: Topic → what full text knows the note by; of those that are there only.
        vectors: Topic → version, space and vector.
        journal: Update → what it did; ``""`` → what no update did.
        marks: In the order in which they were set.
    """

    rows: dict[str, NoteRow] = field(default_factory=dict)
    versions: dict[str, tuple[NoteVersion, ...]] = field(default_factory=dict)
    terms: dict[str, frozenset[str]] = field(default_factory=dict)
    vectors: dict[str, tuple[int, EmbeddingSpace, Vector]] = field(default_factory=dict)
    journal: dict[str, tuple[NoteChange, ...]] = field(default_factory=dict)
    marks: dict[str, None] = field(default_factory=dict)
    covered: dict[str, Covered] = field(default_factory=dict)
    done: dict[str, None] = field(default_factory=dict)
    conversations: dict[str, ConversationRow] = field(default_factory=dict)
    usage: dict[str, tuple[UsageRow, ...]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether an archive of it would hold nothing."""
        return not (self.rows or self.marks or self.covered or self.done)

    def stay_at_home(self, before: NotesState) -> None:
        """Go on with what of *before* no archive holds, so that none can bring it."""
        self.conversations = before.conversations
        self.usage = before.usage

    def copy(self) -> Self:
        """One that can be changed without this one noticing."""
        return type(self)(**{f.name: dict(getattr(self, f.name)) for f in fields(self)})

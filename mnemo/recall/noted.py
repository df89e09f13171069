"""Notes beside the candidates of a recall: what is known of them here, and how they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mnemo.note.values import Note
from mnemo.runtime.text import count_tokens
from mnemo.transcript.counting import Count

__all__ = ["FoundNote", "FoundNotes", "behind"]

GAP = "\n\n"


class FoundNote(Protocol):
    """A note that was found."""

    @property
    def note(self) -> Note:
        """The whole note."""
        ...

    @property
    def score(self) -> float:
        """How well it fits, and how lately it was used."""
        ...

    @property
    def passage(self) -> str:
        """The part of its body that fits best."""
        ...


class FoundNotes(Protocol):
    """What a recall of notes found; ``NoteRecall`` is one."""

    @property
    def hits(self) -> Sequence[FoundNote]:
        """Best first."""
        ...

    def as_text(self, budget_tokens: int | None = None) -> str:
        """They in words, labelled as data, in about so many tokens."""
        ...


def behind(
    text: str, notes: FoundNotes | None, budget_tokens: int | None, count: Count = count_tokens
) -> str:
    """*text*, and behind it as much of *notes* as fits what it leaves of the budget."""
    if notes is None or not notes.hits:
        return text
    before = f"{text}{GAP}" if text else ""
    if budget_tokens is None:
        return before + notes.as_text()
    left = budget_tokens - count(before)
    whole = before + notes.as_text(left) if left > 0 else text
    return whole if count(whole) <= budget_tokens else text

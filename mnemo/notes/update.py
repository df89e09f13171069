"""What an update comes to, as its caller is told."""

from __future__ import annotations

from dataclasses import dataclass

from mnemo.messages import Usage
from mnemo.note.values import NoteChange
from mnemo.notes.requests import NoteRequest
from mnemo.notes.trigger import SkipReason, TriggeredBy

__all__ = ["NoteUpdate", "one_per_topic"]

_NOTHING = Usage(cost_usd=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteUpdate:
    """
    What ``update_after_task`` did.

    Attributes:
        ran: Whether the rules said yes and the work began.
        wrote: Whether the store's journal holds a change of this update.
        notes: One per changed topic, in order of first change.
        usage: Of all calls of the model that answered, failed updates included.
        skipped_because: Why it did not run; ``None``: it ran, or failed before it could.
        error: What ended it; may be set although it wrote.
        id: Names the update, for ``undo``.
        triggered_by: The strongest cue, or ``iterations``.
        requests: Every explicit request found, and what became of it.
    """

    ran: bool = False
    wrote: bool = False
    notes: tuple[NoteChange, ...] = ()
    usage: Usage = _NOTHING
    skipped_because: SkipReason | None = None
    error: BaseException | None = None
    id: str = ""
    triggered_by: TriggeredBy | None = None
    requests: tuple[NoteRequest, ...] = ()


def one_per_topic(changes: list[NoteChange]) -> tuple[NoteChange, ...]:
    """The changes of an update, one per topic: what was done first, at the last version."""
    merged: dict[str, NoteChange] = {}
    for change in changes:
        first = merged.get(change.topic)
        action = change.action
        if first is not None and action == "updated" and first.action in ("created", "merged"):
            action = first.action
        by, version = change.by, change.version
        merged[change.topic] = NoteChange(topic=change.topic, action=action, version=version, by=by)
    return tuple(merged.values())

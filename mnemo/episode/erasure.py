"""What is to be forgotten, and what was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mnemo._clock import as_utc

__all__ = ["Erased", "ErasureReport", "Selection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """
    Which steps are to be forgotten; what is given must hold of each.

    Attributes:
        thread_id: Steps belong to no thread, so it selects none of them.
        before: Exclusive, looks at a step's own time; aware.
    """

    session_id: str | None = None
    thread_id: str | None = None
    before: datetime | None = None

    @classmethod
    def of(
        cls, *, session_id: str | None, thread_id: str | None, before: datetime | None
    ) -> Selection:
        """Check the arguments of ``forget``. *Raises* ``ValueError`` if none is given."""
        if session_id is None and thread_id is None and before is None:
            raise ValueError("say what to forget: session_id, thread_id or before")
        for name, id in (("session_id", session_id), ("thread_id", thread_id)):
            if id is not None and not isinstance(id, str):
                raise ValueError(f"{name} must be text, not {type(id).__name__}")
        if before is not None and not isinstance(before, datetime):
            raise ValueError(f"before must be a datetime, not {type(before).__name__}")
        aware = as_utc(before) if before is not None else None
        return cls(session_id=session_id, thread_id=thread_id, before=aware)

    @property
    def whole_session(self) -> str | None:
        """The session that goes with everything it has, its goals included, if one does."""
        narrowed = self.thread_id is not None or self.before is not None
        return None if narrowed else self.session_id

    def takes(self) -> Callable[[datetime], bool]:
        """Whether a step of its session (or any session) with this time is selected."""
        if self.thread_id is not None:
            return lambda at: False
        if self.before is None:
            return lambda at: True
        end = self.before.astimezone(UTC)
        return lambda at: as_utc(at) < end


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """
    What ``forget`` erased and changed.

    Attributes:
        messages, compactions, snapshots, pins, goals: Those of conversation threads.
        steps: Raw steps, committed or not.
        sessions: Sessions of which nothing is left.
        nodes: Deleted, of all types; *edges* and *vectors* likewise.
        fulltext_rows: Texts that keyword search does not know any more.
        facts_changed: Facts and instructions that lost a part of what they rest on.
        facts_restored: Facts that hold again because what replaced them is gone.
        scrubbed: Whether the bytes are gone from the store's files too. False: another
            process reads an older state, or the disk refused; it is finished later.
    """

    messages: int = 0
    compactions: int = 0
    snapshots: int = 0
    pins: int = 0
    goals: int = 0
    steps: int = 0
    sessions: int = 0
    nodes: int = 0
    edges: int = 0
    vectors: int = 0
    fulltext_rows: int = 0
    facts_changed: int = 0
    facts_restored: int = 0
    scrubbed: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing was there to forget."""
        return replace(self, scrubbed=True) == ErasureReport()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What a store did: the report, the ids of deleted nodes, and the sessions it touched."""

    report: ErasureReport = ErasureReport()
    node_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()

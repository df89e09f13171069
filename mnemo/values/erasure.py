"""What is to be forgotten, and what was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from mnemo.runtime.clock import as_utc, in_utc
from mnemo.runtime.validation import every, flag, known_id, known_ids, known_time
from mnemo.values.messages import StoredMessage
from mnemo.values.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """
    Which steps and messages are to be forgotten; what is given must hold of each.

    Ids name what goes, each kind beside the others; a thread's id says where messages are.

    Attributes:
        session_id: Selects steps alone; *thread_id* its messages, and steps made from it.
        before: Exclusive, looks at when it happened or was said; aware.
        memory_ids: Of facts and instructions; *step_ids* of the nodes of steps.
        message_ids: With the rest of their tool groups.
        sources: Whether what memories rest on goes as well; otherwise they go alone, and are
            not extracted again.
        newest: How many of the last messages of the thread's epoch, recorded at *since* or
            later, go alone, chosen in the erasing transaction. 0: the others select.
        scrub: Whether the bytes go at once; otherwise with the next scrub.
    """

    session_id: str | None = None
    thread_id: str | None = None
    before: datetime | None = None
    memory_ids: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    step_ids: tuple[str, ...] = ()
    sources: bool = True
    dry_run: bool = False
    newest: int = 0
    since: datetime | None = None
    scrub: bool = True

    @classmethod
    def of(
        cls,
        *,
        session_id: str | None = None,
        thread_id: str | None = None,
        before: datetime | str | None = None,
        memory_ids: Sequence[str] = (),
        message_ids: Sequence[str] = (),
        steps: Sequence[Step | str] = (),
        sources: bool = True,
        dry_run: bool = False,
    ) -> Selection:
        """Check the arguments of ``forget``. *Raises* ``ValueError``: none, or they do not fit."""
        memories, messages = _ids(memory_ids), _ids(message_ids)
        named = _ids(
            [step.node_id if isinstance(step, Step) else step for step in every("ids", steps)]
        )
        narrowed = session_id is not None or before is not None
        if not (memories or messages or named or narrowed) and thread_id is None:
            raise ValueError(
                "say what to forget: memory_ids, message_ids, steps, session_id, thread_id or "
                "before"
            )
        if narrowed and (memories or messages or named):
            raise ValueError(
                "session_id and before do not narrow ids: forget these in a call apart"
            )
        if thread_id is not None and (memories or named):
            raise ValueError("thread_id says where message_ids are; memories and steps need none")
        if not flag("sources", sources) and (messages or named or not memories):
            raise ValueError("sources=False is of memory_ids alone: their sources stay")
        return cls(
            session_id=None if session_id is None else known_id("session_id", session_id),
            thread_id=None if thread_id is None else known_id("thread_id", thread_id),
            before=None if before is None else known_time("before", before),
            memory_ids=memories,
            message_ids=messages,
            step_ids=named,
            sources=sources,
            dry_run=flag("dry_run", dry_run),
        )

    @property
    def names_ids(self) -> bool:
        """Whether it names what goes, one by one or from the end."""
        return bool(self.memory_ids or self.message_ids or self.step_ids or self.newest)

    @property
    def whole_session(self) -> str | None:
        """The session that goes with everything it has, its goals included, if one does."""
        narrowed = self.thread_id is not None or self.before is not None
        return None if narrowed else self.session_id

    @property
    def whole_thread(self) -> str | None:
        """The thread that goes with everything derived from it, its goals included, if one does."""
        narrowed = self.session_id is not None or self.before is not None or self.names_ids
        return None if narrowed else self.thread_id

    @property
    def takes_messages(self) -> bool:
        """Whether messages can be selected: of its thread, or else of any, said *before*."""
        return self.session_id is None

    @property
    def all_before(self) -> datetime | None:
        """The time before which all goes, if that alone selects."""
        narrowed = self.session_id is not None or self.thread_id is not None or self.names_ids
        return None if narrowed else self.before

    def takes(self, at: datetime, thread_id: str | None = None) -> bool:
        """Whether a step of that time, made from that thread, is selected if its session is."""
        is_before = self.before is None or as_utc(at) < in_utc(self.before)
        return self.thread_id in (None, thread_id) and is_before


def _ids(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(known_ids(given)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """
    What ``forget`` erased and changed.

    Attributes:
        messages: Of conversation threads; *compactions*, *snapshots*, *pins* and *goals*
            likewise, all that were stored, of whatever epoch.
        steps: Raw steps, committed or not.
        sessions: Sessions of which nothing is left.
        nodes: Deleted, of all types; *edges* and *vectors* likewise.
        fulltext_rows: Texts that keyword search does not know any more.
        facts_changed: Facts and instructions that lost a part of what they rest on.
        facts_restored: Facts that hold again because what replaced them is gone.
        notes: Of which nothing is left; *note_versions* those that were deleted, of all notes.
        checkpoints: Of graphs, by ``delete_repo`` alone.
        mixed_notes: Topics of notes that rest on other sources, too: what was said in the
            erased ones may still stand in their text.
        items: Keyed items that were put last before that time.
        unreadable: Damaged rows that may hold something of the erased, and could not be
            judged: "the table, a blank, the row's key". They were left as they are.
        scrubbed: Whether the bytes are gone from the store's files too. False: the file has
            more than 64 MB and is rewritten when nothing is written for 5 s, or by
            ``Mnemo.scrub``; another process reads an older state, or the disk refused, and
            it is finished later; or something is *unreadable*; or it was a dry run. In
            PostgreSQL, ``Mnemo.scrub`` alone does it.
        unconfirmed: Machines whose copies of the index may still hold it: they did not say in
            3 s that they dropped it, and do so before they use them again. PostgreSQL only.
        texts: Of a dry run: what messages, steps, facts and instructions say that would go, at
            most 100 of each; empty where it was erased.
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
    notes: int = 0
    note_versions: int = 0
    checkpoints: int = 0
    mixed_notes: tuple[str, ...] = ()
    items: int = 0
    unreadable: tuple[str, ...] = ()
    scrubbed: bool = True
    unconfirmed: tuple[str, ...] = ()
    texts: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __add__(self, other: ErasureReport) -> ErasureReport:
        """What both erased."""
        names = [one.name for one in fields(self)]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, **sums | {"scrubbed": self.scrubbed and other.scrubbed})

    @property
    def is_empty(self) -> bool:
        """Whether nothing was there to forget."""
        return replace(self, scrubbed=True, unconfirmed=()) == ErasureReport()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What a store did; *messages*: the newest of a thread where these were selected, ascending."""

    report: ErasureReport = ErasureReport()
    node_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    messages: tuple[StoredMessage, ...] = ()

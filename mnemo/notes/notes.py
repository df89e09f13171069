"""The public interface of notes: ``repo.notes``."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from os import PathLike
from typing import Any

from mnemo.errors import NotFound, StoreError
from mnemo.notes.folder import Folder, FolderReport
from mnemo.notes.material import Material, mark_keys
from mnemo.notes.note_rows import erase_note, surely
from mnemo.notes.shelf import NoteRecall, NotesParts, Shelf, one_line_of
from mnemo.notes.tools import NoteToolbox
from mnemo.notes.trigger import copied
from mnemo.notes.update import NoteUpdate, OnProgress
from mnemo.notes.updater import Updater
from mnemo.notes.writing import Changed, NoteSource, Write, checked_text, restore, undo
from mnemo.runtime.clock import new_id
from mnemo.runtime.operations import Outcome, PendingOperation
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.validation import stored_text, whole_number
from mnemo.values.erasure import ErasureReport
from mnemo.values.messages import Message
from mnemo.values.notes import Note, NoteChange, NoteInfo, NoteVersion, is_topic

FAILED_KEPT = 16
"""Undoings that the store failed whose id is kept for the next try, the last ones (S)."""
_APPLICATION = NoteSource(by="application", trust="application")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesStatistics:
    """
    Numbers of notes, versions and updates of a repository.

    Attributes:
        versions: Kept of all notes, deleted ones included.
        updates_running: At this moment; so the others.
        updates_held: Waiting for the end of their window.
    """

    notes: int
    versions: int
    updates_running: int
    updates_waiting: int
    updates_held: int


class Notes:
    """The notes of one repository; safe to use from many tasks."""

    def __init__(self, parts: NotesParts) -> None:
        self._parts = parts
        self._shelf = Shelf(parts)
        self._updater = Updater(self._shelf)
        self._failed: dict[str, str] = {}  # update → id of the undoing that the store failed

    def __repr__(self) -> str:
        return f"<Notes of {self._parts.repo_id!r}>"

    # ── The end of a task ────────────────────────────────────────────────────────────

    async def update_after_task(
        self,
        history: Sequence[Message | Mapping[str, Any]],
        *,
        iterations: int,
        task_id: str | None = None,
        on_progress: OnProgress | None = None,
        outcome: str = "completed",
        tools: Sequence[Mapping[str, Any]] = (),
        session: Any = None,
        thread_id: str | None = None,
    ) -> NoteUpdate:
        """
        Let the model look back over a task's conversation once, and keep what will matter.

        Nothing but cancellation leaves it: what went wrong is the result's ``error``. The
        history is copied before anything is awaited, and never changed.

        Args:
            history: The conversation, system message included: at most 10,000 messages or their
                mappings.
            iterations: Passes of this task's loop, not of the agent's life; at least 0.
            task_id: Names the task; one that was looked back over is not again.
            on_progress: Told of every step by a ``Progress``; a function or coroutine function.
            outcome: ``completed``, ``failed``, ``interrupted`` or ``awaiting_user``.
            tools: What the task's own requests listed, for the provider's cache; at most 1,000.
            session: A ``Session`` or its id: receives the cost.
            thread_id: The conversation's thread.

        *Cancellation*: the call under way is dropped, a write that has begun is finished;
        the end is told, the part stays new.
        """
        return await self._updater.update(
            history=history, iterations=iterations, task_id=task_id, on_progress=on_progress,
            outcome=outcome, tools=tools, session=session, thread_id=thread_id,
        )  # fmt: skip

    def update_after_task_async(
        self,
        history: Sequence[Message | Mapping[str, Any]],
        *,
        iterations: int,
        task_id: str | None = None,
        on_progress: OnProgress | None = None,
        outcome: str = "completed",
        tools: Sequence[Mapping[str, Any]] = (),
        session: Any = None,
        thread_id: str | None = None,
        callback: Callable[[Outcome], Any] | None = None,
    ) -> PendingOperation:
        """
        The same in the background; a plain call that never raises.

        The history is copied before it returns. ``await`` of what it returns gives the
        ``NoteUpdate``; its ``cancel()`` works while the update runs, too. Inside the
        debounce window the update is held until that has passed.
        """
        return self._updater.begin(
            callback,
            history=history, iterations=iterations, task_id=task_id, on_progress=on_progress,
            outcome=outcome, tools=tools, session=session, thread_id=thread_id,
        )  # fmt: skip

    # ── Reading and writing ──────────────────────────────────────────────────────────

    async def list(
        self, *, query: str | None = None, limit: int | None = None
    ) -> builtins.list[NoteInfo]:
        """
        All notes: latest use first, or best for *query* first.

        Args:
            limit: At most so many, from 1; ``None``: all.

        Raises:
            ValueError: *limit* is no number from 1, or *query* no text. *Cancellation*: safe.
        """
        if limit is not None:
            whole_number("limit", limit, 1)
        if query is not None:
            query = stored_text("query", query)
        return [row.info for row in (await self._shelf.ranked(query))[:limit]]

    async def read(self, topic: str) -> Note:
        """The note. *Raises* ``NotFound``: it is not there. *Cancellation*: safe."""
        return (await self._shelf.read(_possible(topic), touching=True)).note

    async def write(
        self, topic: str, body: str, description: str, *, expected_version: int | None = None
    ) -> Note:
        """
        Create or replace a note; the same text again makes no new version.

        Args:
            expected_version: What the note is thought to be at, whatever its text, 0: not
                there; ``None``: the last writer wins, and the former text stays in the history.

        Raises:
            InvalidNote: The texts cannot be kept; ``.reason`` says why.
            ValueError: *expected_version* is no whole number from 0.
            Conflict: The version is another. *Cancellation*: completes once it is begun.
        """
        if expected_version is not None:
            whole_number("expected_version", expected_version, 0)
        text = checked_text(self._parts.config, topic, description, body)
        change = Write(text=text, source=_APPLICATION, expected=expected_version)
        return (await self._shelf.write(change)).row.note

    async def delete(self, topic: str, *, expected_version: int | None = None) -> None:
        """
        Retire a note: it leaves lists, recall and exports, and can be restored.

        The same *expected_version* again changes nothing: a deletion whose answer was lost
        can be repeated.

        Raises:
            NotFound: There is no such note.
            ValueError: *expected_version* is no whole number from 0.
            Conflict: Its version is another. *Cancellation*: completes.
        """
        if expected_version is not None:
            whole_number("expected_version", expected_version, 0)
        try:
            await self._shelf.delete(_possible(topic), _APPLICATION, expected=expected_version)
        except Changed as changed:
            if changed.row is None:
                raise NotFound("note", topic) from None
            raise

    async def history(self, topic: str) -> builtins.list[NoteVersion]:
        """
        Every kept version of a note, oldest first, deletions included.

        Raises:
            NotFound: There never was such a note. *Cancellation*: safe.
        """
        _possible(topic)
        versions = await self._parts.store.reading(lambda tx: tx.versions(topic))
        if not versions:
            raise NotFound("note", topic)
        return versions

    async def restore(self, topic: str, version: int) -> Note:
        """
        Write an old version as a new one; it also revives a deleted note.

        Raises:
            NotFound: There never was such a note, or the version is not kept.
            ValueError: *version* is no whole number from 1.
            InvalidNote: ``no_text``: that version is a deletion. *Cancellation*: completes.
        """
        _possible(topic)
        whole_number("version", version, 1)
        row = await surely(
            self._parts.store,
            lambda tx: restore(tx, topic, version, _APPLICATION, self._parts.config),
            lambda tx, row: tx.row(topic) == row,
        )
        await self._shelf.settle_debts()
        return row.note

    async def undo(self, update_id: str) -> builtins.list[NoteChange]:
        """
        Take back all that an update did, in one transaction; that can be undone itself.

        After a ``StoreError`` the same call again takes it back once, whether or not the first
        call did.

        Raises:
            NotFound: No update of this id changed anything.
            Conflict: Notes that it changed have been changed since; the message names them,
                and nothing was touched. *Cancellation*: completes.
        """
        # A skipped update has no id; what no update did has none either.
        if not isinstance(update_id, str) or not update_id or clean(update_id) != update_id:
            raise NotFound("update", str(update_id))
        undoing = self._failed.get(update_id) or new_id("update")
        source = NoteSource(by="undo", trust="application", update_id=undoing)
        try:
            changes = await surely(
                self._parts.store,
                lambda tx: tx.changes(undoing) or undo(tx, update_id, source, self._parts.config),
                lambda tx, changes: tx.changes(undoing) == changes,
            )
        except StoreError:
            self._failed[update_id] = undoing
            while len(self._failed) > FAILED_KEPT:
                del self._failed[next(iter(self._failed))]
            raise
        self._failed.pop(update_id, None)
        await self._shelf.settle_debts()
        return changes

    async def purge(self, topic: str) -> ErasureReport:
        """
        Erase a note with all its versions and index rows; nothing brings it back.

        Raises:
            NotFound: There never was such a note. *Cancellation*: completes.
        """
        _possible(topic)
        erased = await surely(
            self._parts.store,
            lambda tx: erase_note(tx, topic),
            lambda tx, erased: not tx.versions(topic),
        )
        if not erased.notes:
            raise NotFound("note", topic)
        return replace(erased, scrubbed=await self._parts.scrub())

    # ── For agents ───────────────────────────────────────────────────────────────────

    async def recall(self, query: str, *, k: int = 5) -> NoteRecall:
        """
        The notes that share a content word with *query* or mean much the same, best first.

        Needs no model. The notes that it returns count as read.

        Raises:
            ValueError: *query* is blank, or *k* is no number from 1. *Cancellation*: safe.
        """
        if not isinstance(query, str) or is_blank(query):
            raise ValueError("Query cannot be blank")
        whole_number("k", k, 1)
        return await self._shelf.recall(query, k)

    async def overview(self, budget_tokens: int = 1000) -> str:
        """
        One line per note, latest change first: the same text until a note changes.

        Reading and recalling change nothing of it, so that a prompt may begin with it.

        Args:
            budget_tokens: At most so many; how many notes are not shown is said at the end.

        Raises:
            ValueError: *budget_tokens* is no whole number from 0. *Cancellation*: safe.
        """
        whole_number("budget_tokens", budget_tokens, 0)
        rows = await self._parts.store.reading(lambda tx: tx.rows())
        rows.sort(key=lambda row: (-row.updated_at.timestamp(), row.topic))
        if not rows:
            return "There are no notes yet."
        lines: builtins.list[str] = []
        count = self._parts.count
        left = budget_tokens - count(_more(len(rows)))
        for row in rows:
            day = row.updated_at.astimezone(UTC).date().isoformat()
            line = one_line_of(row.topic, row.description, day)
            left -= count(line) + 1
            if left < 0:
                break
            lines.append(line)
        hidden = len(rows) - len(lines)
        return "\n".join([*lines, _more(hidden)] if hidden else lines)

    def toolbox(
        self, *, history: Sequence[Message | Mapping[str, Any]] | None = None, limited: bool = True
    ) -> NoteToolbox:
        """
        The four note tools for the host's own agent; one toolbox for one task.

        Args:
            history: What evidence is looked for in; ``None``: it is kept unchecked.
            limited: Whether ``config.notes.max_writes`` and ``max_deletes`` hold; not for a
                toolbox that serves more than one task.

        Raises:
            ValueError: *history* is no sequence of messages, or has more than 10,000.
        """
        material = None
        if history is not None:
            messages = copied(history)
            keys = mark_keys(messages, None)
            material = Material(messages, self._parts.config, keys=keys)
        source = NoteSource(by="agent", trust="unquoted")
        return NoteToolbox(
            self._shelf, source=source, material=material, touching=True, limited=limited
        )

    # ── As files ─────────────────────────────────────────────────────────────────────

    async def export_folder(self, path: str | PathLike[str]) -> FolderReport:
        """
        Write one Markdown file per note into a folder, each at once or not at all.

        Raises:
            ValueError: *path* is no path.
            OSError: The folder cannot be made or written. *Cancellation*: safe between files.
        """
        return await Folder(path, self._shelf).write()

    async def import_folder(self, path: str | PathLike[str]) -> FolderReport:
        """
        Take in a folder of Markdown files: a merge, no overwriting; what differs is reported.

        A folder that is not there is taken for an empty one.

        Raises:
            ValueError: *path* is no path.
            StoreError: What was taken in before stays. *Cancellation*: safe between notes.
        """
        return await Folder(path, self._shelf).read()

    # ── For the repository ───────────────────────────────────────────────────────────

    async def statistics(self) -> NotesStatistics:
        """How many notes and versions there are, and what updates are doing."""
        notes, versions = await self._parts.store.reading(lambda tx: tx.counts())
        return NotesStatistics(notes=notes, versions=versions, **self._updater.counts)

    @property
    def _is_busy(self) -> bool:
        return self._updater.is_busy

    async def _aclose(self, grace_s: float) -> None:
        """Let updates end, for at most *grace_s* seconds; the part of others stays new."""
        await self._updater.aclose(grace_s)


def _possible(topic: object) -> str:
    """*topic*, if a note can have it. *Raises* ``NotFound``: none has it."""
    if not is_topic(topic):
        raise NotFound("note", str(topic))
    return str(topic)


def _more(hidden: int) -> str:
    return f"({hidden} more notes are not shown.)"

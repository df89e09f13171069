"""
Pins: messages that goals hold on to after they have left the window.

A pin lives as long as an active goal holds it; it shows an excerpt, the message itself
stays where it was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mnemo.conversation.scope import ThreadScope, living_pins
from mnemo.conversation.settings import ConversationParts, ThreadSettings
from mnemo.errors import Conflict, NotFound
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.text import count_tokens
from mnemo.values.counting import Count
from mnemo.values.derived import Goal, Pin, Thread
from mnemo.values.messages import StoredMessage

EXCERPT_CHARACTERS = 200
"""Of a pin's excerpt, its mark included."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why messages cannot be pinned; each field names what is wrong, ascending."""

    nothing: tuple[str, ...] = ()
    missing_messages: tuple[int, ...] = ()
    completed_goals: tuple[int, ...] = ()
    missing_goals: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """In words, in the order in which they are told."""
        found = (
            ("Messages not found", self.missing_messages),
            ("Goals already completed", self.completed_goals),
            ("Goals not found", self.missing_goals),
        )
        named = (f"{what}: {', '.join(map(str, which))}" for what, which in found if which)
        return (*self.nothing, *named)

    def __str__(self) -> str:
        return "; ".join(self.reasons)

    def error(self) -> ValueError | NotFound | Conflict:
        """The typed error of the first reason, with all of them as its note."""
        error = self._first()
        error.add_note(str(self))
        return error

    def _first(self) -> ValueError | NotFound | Conflict:
        if self.nothing:
            return ValueError(str(self))
        if self.missing_messages:
            return NotFound("message", ", ".join(map(str, self.missing_messages)))
        if self.completed_goals:
            return Conflict(str(self))
        return NotFound("goal", ", ".join(map(str, self.missing_goals)))


def check(
    tx: TranscriptReader,
    thread: Thread,
    seqs: Sequence[int],
    goal_ids: Sequence[int],
    *,
    since: datetime | None = None,
) -> Refusal:
    """
    Return what forbids pinning the messages at *seqs* to *goal_ids*; empty: nothing.

    Only messages of the thread's epoch can be pinned, and none recorded before *since*.
    """
    found = _messages(tx, thread, seqs, since)
    known = {goal.id: goal for goal in tx.all(Goal, thread.id, epoch=thread.epoch)}
    asked = sorted(set(goal_ids))
    empty = (("No message ids given", seqs), ("No goal ids given", goal_ids))
    return Refusal(
        nothing=tuple(words for words, given in empty if not given),
        missing_messages=tuple(seq for seq in sorted(set(seqs)) if seq not in found),
        completed_goals=tuple(id for id in asked if id in known and not known[id].is_live),
        missing_goals=tuple(id for id in asked if id not in known),
    )


def attach(
    tx: TranscriptWriter,
    thread: Thread,
    seqs: Sequence[int],
    goal_ids: Sequence[int],
    *,
    since: datetime | None = None,
    count: Count = count_tokens,
) -> int:
    """
    Pin every message to every goal; how many links that makes, existing ones included.

    Args:
        since: Messages recorded before it are expired.
        count: Counts the tokens of excerpts.

    Raises:
        ValueError: No message, or no goal, is given.
        NotFound: A message or goal is unknown in the thread's epoch.
        Conflict: A goal is completed.
    """
    if refusal := check(tx, thread, seqs, goal_ids, since=since):
        raise refusal.error()
    existing = {pin.seq: pin for pin in tx.all(Pin, thread.id, epoch=thread.epoch)}
    messages = _messages(tx, thread, seqs, since)
    for seq, message in messages.items():
        pin = existing.get(seq) or _pin(message, count)
        tx.put(replace(pin, goal_ids=tuple(sorted({*pin.goal_ids, *goal_ids}))))
    return len(messages) * len(set(goal_ids))


def release(tx: TranscriptWriter, thread_id: str) -> int:
    """Delete the pins that no active goal holds any more; how many."""
    epoch = tx.thread(thread_id).epoch
    active = {goal.id for goal in tx.all(Goal, thread_id, epoch=epoch, live=True)}
    pins = tx.all(Pin, thread_id, epoch=epoch)
    released = [pin for pin in pins if active.isdisjoint(pin.goal_ids)]
    tx.drop(*released)
    return len(released)


def excerpt(message: StoredMessage) -> str:
    """Return what a pin shows of *message*: at most 200 characters of its text."""
    text = message.text.strip() or ", ".join(call.name for call in message.tool_calls)
    if len(text) > EXCERPT_CHARACTERS:
        return text[: EXCERPT_CHARACTERS - 1] + "…"
    return text or f"message {message.seq}"


def _pin(message: StoredMessage, count: Count) -> Pin:
    shown = excerpt(message)
    return Pin(
        thread_id=message.thread_id,
        epoch=message.epoch,
        seq=message.seq,
        message_id=message.stored_id,
        excerpt=shown,
        goal_ids=(),
        token_count=count(shown),
    )


def _messages(
    tx: TranscriptReader, thread: Thread, seqs: Sequence[int], since: datetime | None
) -> dict[int, StoredMessage]:
    """Read the messages at *seqs* that can be pinned, ascending; one index look-up each."""
    asked = sorted({seq for seq in seqs if thread.epoch_start <= seq < thread.next_seq})
    return {
        message.seq: message
        for seq in asked
        for message in tx.messages(thread.id, from_seq=seq, to_seq=seq, since=since)
    }


class Pins:
    """
    The pins of one thread (``conversation.pins``).

    Args:
        parts: The repository's conversations.
        settings: Of the handle that it belongs to.
    """

    __slots__ = ("_parts", "_settings")

    def __init__(self, parts: ConversationParts, settings: ThreadSettings) -> None:
        self._parts = parts
        self._settings = settings

    def __repr__(self) -> str:
        return f"<Pins of {self._settings.thread_id!r}>"

    async def attach(self, seqs: Sequence[int], goal_ids: Sequence[int]) -> int:
        """
        Pin every message to every goal; all of it or nothing, and idempotent.

        Returns:
            How many message-goal links that makes, existing ones included.

        Raises:
            ValueError: No message or no goal is given, or one is not a whole number.
            NotFound: A message or a goal is not in the thread's epoch.
            Conflict: A goal is completed. *Cancellation*: completes.
        """
        given = _numbers("seqs", seqs), _numbers("goal_ids", goal_ids)
        count = self._parts.config.conversation.count

        def work(tx: TranscriptWriter) -> int:
            scope = self._scope(tx)
            return attach(tx, scope.thread, *given, since=scope.since, count=count)

        return await self._parts.store.writing(work)

    async def list(self) -> list[Pin]:
        """All of them, by seq. *Cancellation*: safe."""

        def work(tx: TranscriptReader) -> list[Pin]:
            scope = self._scope(tx)
            return living_pins(tx, scope.thread, scope.since)

        return await self._parts.store.reading(work)

    def _scope(self, tx: TranscriptReader) -> ThreadScope:
        return ThreadScope.of(tx, self._settings, self._parts.config)


def _numbers(name: str, given: Any) -> list[int]:
    numbers: list[Any] = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in numbers):
        raise ValueError(f"{name} must be a list of whole numbers")
    return numbers

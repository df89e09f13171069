"""
Append messages: tell new ones from stored and erased ones, by id.

A message is new because its id is not in the thread, never because of its place or words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

from mnemo.conversation.scope import ThreadScope
from mnemo.errors import Conflict
from mnemo.log.transcript import TranscriptWriter
from mnemo.runtime.clock import new_id
from mnemo.values.counting import Count, tokens_of
from mnemo.values.derived import Thread
from mnemo.values.messages import COMPARED_FIELDS, Message, StoredMessage
from mnemo.values.units import is_view_made


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A valid message that is to be stored, with its token count and the id it would get."""

    message: Message
    id: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Appended:
    """
    The result of an append.

    Attributes:
        messages: One per message of the batch that was not left out, in order.
        stored: How many of them are new.
    """

    messages: list[StoredMessage]
    stored: int


def drafts_of(
    messages: Iterable[Message], count: Count, *, pause: Callable[[], None] | None = None
) -> list[MessageDraft]:
    """
    Leave out what views made, and count the tokens of the others.

    Args:
        pause: Called after each message, where this does not run on the event loop.
    """
    drafts = []
    for message in messages:
        if not is_view_made(message):
            tokens = message.token_count or tokens_of(message, count)
            drafts.append(MessageDraft(message, message.id or new_id("message"), tokens))
        if pause is not None:
            pause()
    return drafts


def append(
    tx: TranscriptWriter,
    scope: ThreadScope,
    drafts: Sequence[MessageDraft],
    *,
    expected_seq: int | None = None,
    search_tools: bool = False,
) -> Appended:
    """
    Store the new messages of a batch at the end of the thread; return every stored one.

    What is there already is given as it is stored; an id that was erased, or whose message
    has expired, is left out.

    Args:
        expected_seq: What the thread's next seq must be, if anything is new.
        search_tools: Whether calls and results are searched for as well.

    Raises:
        Conflict: An id stands for something else already, or *expected_seq* is not next.
    """
    ids = [draft.id for draft in drafts if draft.message.id is not None]
    known = tx.by_id(scope.thread.id, ids) if ids else {}
    erased = tx.erased_ids(scope.thread.id, ids) if len(known) < len(ids) else frozenset()
    entries: list[StoredMessage] = []
    new: dict[str, StoredMessage] = {}
    for draft in drafts:
        there = known.get(draft.id) or new.get(draft.id)
        if there is None and draft.id not in erased:
            there = new[draft.id] = _stored(draft, scope.thread, len(new), tx.now)
        elif there is None or not scope.is_alive(there):
            continue
        else:
            _require_same(there, draft.message)
        entries.append(there)
    if new:
        _require_next(scope.thread, expected_seq)
        tx.add(list(new.values()), search_tools=search_tools)
    if new or scope.is_stale:
        tx.keep(replace(scope.thread, next_seq=scope.thread.next_seq + len(new)))
    return Appended(entries, len(new))


def _stored(draft: MessageDraft, thread: Thread, place: int, now: datetime) -> StoredMessage:
    values = {name: getattr(draft.message, name) for name in _GIVEN}
    values["at"] = draft.message.at or now
    return StoredMessage.restored(
        **values,
        id=draft.id,
        token_count=draft.tokens,
        thread_id=thread.id,
        seq=thread.next_seq + place,
        epoch=thread.epoch,
        recorded_at=now,
    )


def _require_same(there: StoredMessage, given: Message) -> None:
    differing = [name for name in COMPARED_FIELDS if getattr(there, name) != getattr(given, name)]
    if differing:
        raise Conflict(
            f"message {there.id!r} is in thread {there.thread_id!r} with another "
            f"{' and '.join(differing)}; give what is new an id of its own"
        )


def _require_next(thread: Thread, expected_seq: int | None) -> None:
    if expected_seq is not None and expected_seq != thread.next_seq:
        raise Conflict(
            f"the next seq of thread {thread.id!r} is {thread.next_seq}, not {expected_seq}: "
            "somebody else has appended; read the history and decide again"
        )


_GIVEN = tuple(f.name for f in fields(Message) if f.name not in ("id", "token_count"))

"""Decide whether an update is due: rules in a fixed order, the first refusal is named."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, count
from typing import Any, Literal, TypeAlias

from mnemo.config import NotesConfig
from mnemo.errors import InvalidNote
from mnemo.notes.material import Asked, Material, folded, mark_keys, pair_keys, voice_of
from mnemo.notes.note_rows import NoteReader, NoteWriter
from mnemo.notes.shelf import Shelf
from mnemo.notes.writing import AlreadyServed, Changed, NoteSource, Write, checked_text, redact
from mnemo.prompts.update_notes import INSTRUCTION_MARK
from mnemo.runtime.text import content_words, fold, has_unspaced, one_line, stem
from mnemo.runtime.validation import every, one_of, stored_id, whole_number
from mnemo.values.messages import Message, StoredMessage, answered_ids
from mnemo.values.notes import MAX_TOPIC, Covered, NoteRow, check_neighbours, is_topic, plain_text
from mnemo.wire import messages_of

MOST_MESSAGES = 10_000
"""Messages of a history, at most: it is copied on the event loop (S)."""


def copied(history: Sequence[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """Copy *history*, less a trailing call that lacks answers. *Raises* ``ValueError``."""
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Sequence):
        raise ValueError(f"history must be a sequence of messages, not {type(history).__name__}")
    return _answered(tuple(map(_own, messages_of(every("history", history, MOST_MESSAGES)))))


def _own(message: Message) -> Message:
    """Copy *message* field by field: ``deepcopy`` would block the event loop."""
    copy = object.__new__(type(message))
    for name in message.__dataclass_fields__:
        object.__setattr__(copy, name, _unshared(getattr(message, name)))
    return copy


def _unshared(value: Any) -> Any:
    if value is None or isinstance(value, str | int | datetime):
        return value
    return deepcopy(value) if value else type(value)()


def _answered(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Drop a trailing tool call that lacks answers."""
    at = len(messages)
    while at and messages[at - 1].role == "tool":
        at -= 1
    if not at or not messages[at - 1].tool_calls:
        return messages
    answers = {id for message in messages[at:] for id in answered_ids(message)}
    if all(call.id in answers for call in messages[at - 1].tool_calls):
        return messages
    return messages[: at - 1]


# ── Explicit requests, served by rule whether or not a model does ─────────────────


SHARED_WORDS = 2
"""Content words that a request shares with the topic and description of a note it goes under."""
TOPIC_WORDS = 4
DESCRIPTION_CHARACTERS = 120
ATTEMPTS = 20
"""Times that a note which others keep changing is read again, before the request fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRequest:
    """
    Outcome of an explicit request.

    Attributes:
        text: Its words, without secrets.
        topic: The note that holds it now, or ``None``.
        refused: The code that says why none does, or ``None``.
    """

    text: str
    topic: str | None = None
    refused: str | None = None


def open_requests(tx: NoteReader, asked: Sequence[Asked]) -> list[Asked]:
    """Requests that are not covered: neither settled before nor stated in a note."""
    settled = tx.covered([one.digest for one in asked])
    waiting = [one for one in asked if one.digest not in settled]
    bodies = _bodies(tx) if waiting else {}
    return [one for one in waiting if one.forgets or _told_in(bodies, one) is None]


def _bodies(tx: NoteReader) -> dict[str, str]:
    """Topic → folded body of the notes that are there."""
    return {row.topic: folded(row.body) for row in tx.rows()}


def _told_in(bodies: Mapping[str, str], asked: Asked) -> str | None:
    """The topic of the first note that contains the request as whole words."""
    clause = folded(asked.text)
    words = re.escape(clause)
    if not has_unspaced(clause):
        words = rf"(?<!\w){words}(?!\w)"
    told = (topic for topic, body in bodies.items() if re.search(words, body))
    return next(told, None) if clause else None


def settle_said(tx: NoteWriter, asked: Sequence[Asked]) -> None:
    """Mark requests that a note states as covered, also after the note is deleted."""
    settled = tx.covered([one.digest for one in asked])
    waiting = [one for one in asked if one.digest not in settled and not one.forgets]
    bodies = _bodies(tx) if waiting else {}
    for one in waiting:
        if topic := _told_in(bodies, one):
            tx.cover(one.digest, Covered(topic=topic))


def outcomes(tx: NoteReader, asked: Sequence[Asked]) -> tuple[NoteRequest, ...]:
    """Outcomes of *asked*, in order."""
    settled = tx.covered([one.digest for one in asked])
    bodies = _bodies(tx)
    told = []
    for one in asked:
        found = settled.get(one.digest, Covered())
        topic = found.topic if found.topic in bodies else None
        if topic is None and not one.forgets and found.refused is None:
            topic = _told_in(bodies, one)
        told.append(NoteRequest(text=redact(one.text), topic=topic, refused=found.refused))
    return tuple(told)


async def keep_by_rule(shelf: Shelf, asked: Sequence[Asked], source: NoteSource) -> None:
    """
    Write each uncovered request to a note, and mark it as covered or refused.

    *Raises* ``StoreError``. *Cancellation*: completes a write that has begun.
    """
    for one in await shelf.store.reading(lambda tx: open_requests(tx, asked)):
        if not one.by_rule:
            continue
        try:
            await _keep(shelf, one, source)
        except AlreadyServed:
            continue
        except InvalidNote as refused:
            digest, covered = one.digest, Covered(refused=refused.reason)
            await shelf.store.writing(partial(NoteWriter.cover, digest=digest, covered=covered))


async def _keep(shelf: Shelf, asked: Asked, source: NoteSource) -> None:
    clause = plain_text(asked.text).strip()
    if shelf.config.redact and redact(clause) != clause:
        raise InvalidNote("secret", "without the secret in it, it would be worthless")
    quoting = replace(
        source,
        by="rule",
        trust="stated",
        evidence=one_line(clause)[:300],
        message_ids=asked.message_ids,
        covers=(asked.digest,),
    )
    for attempt in range(ATTEMPTS):
        change = await shelf.store.reading(lambda tx: _change(tx, clause, quoting, shelf.config))
        try:
            await shelf.write(change)
        except Changed:
            # Somebody else wrote to it in between: their text is read, the line goes behind it.
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _change(tx: NoteReader, clause: str, source: NoteSource, config: NotesConfig) -> Write:
    line = f"- {tx.now.date()}: {clause}"
    row = _home(tx.rows(), clause, len(line), config)
    if row is not None:
        text = checked_text(config, row.topic, row.description, f"{row.body}\n{line}")
        return Write(text=text, source=source, expected=row.version)
    description = one_line(clause)[: min(DESCRIPTION_CHARACTERS, config.description_max_chars)]
    text = checked_text(config, _free_topic(tx, clause), description, line)
    return Write(text=text, source=source, expected=0)


def _home(rows: Sequence[NoteRow], clause: str, size: int, config: NotesConfig) -> NoteRow | None:
    """Choose the note with room that shares most words with *clause*; ties by topic."""
    wanted = {stem(word) for word in content_words(clause)}

    def shared(row: NoteRow) -> int:
        about = f"{row.topic.replace('-', ' ')} {row.description}"
        return len(wanted & {stem(word) for word in content_words(about)})

    fitting = [row for row in rows if len(row.body) + 1 + size <= config.body_max_chars]
    alike = [row for row in fitting if shared(row) >= SHARED_WORDS]
    return max(alike, key=shared, default=None)


def _free_topic(tx: NoteReader, clause: str) -> str:
    """A free topic: the first content words of *clause*, else with a digest."""
    taken = tx.topics()
    named = _topic_of(clause)
    start = (named or "note")[: MAX_TOPIC - 9].rstrip("-")
    further = (f"{start}-{_digest(clause, number)}" for number in count())
    return next(topic for topic in chain([named] if named else [], further) if _fits(topic, taken))


def _digest(clause: str, number: int) -> str:
    text = f"{clause}{number}" if number else clause
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _fits(topic: str, taken: Sequence[str]) -> bool:
    try:
        check_neighbours(topic, taken, known=None)
    except InvalidNote:
        return False
    return topic not in taken


def _topic_of(clause: str) -> str | None:
    plain = (re.sub(r"[^a-z0-9]", "", fold(word)) for word in content_words(clause))
    parts = [word for word in plain if word]
    while parts and not (parts[0][0].isalpha() and len(parts[0]) <= MAX_TOPIC):
        parts.pop(0)
    parts = parts[:TOPIC_WORDS]
    while len(topic := "-".join(parts)) > MAX_TOPIC:
        parts.pop()
    return topic if is_topic(topic) else None


# ── The trigger ───────────────────────────────────────────────────────────────────


SkipReason: TypeAlias = Literal[
    "closing",
    "disabled",
    "nested",
    "task_failed",
    "task_interrupted",
    "awaiting_user",
    "already_done",
    "nothing_new",
    "too_few_iterations",
    "debounced",
    "no_model",
    "superseded",
]
TriggeredBy: TypeAlias = Literal["iterations", "request", "correction", "preference"]

OUTCOMES: dict[str, SkipReason | None] = {
    "completed": None,
    "failed": "task_failed",
    "interrupted": "task_interrupted",
    "awaiting_user": "awaiting_user",
}
"""How a task may have ended, and the reason why it is not looked back over."""
UPDATING: ContextVar[bool] = ContextVar("mnemo_notes_updating", default=False)
"""Set inside of an update, and so in every task that is started from it."""
_SEARCHED = 200
"""Keys that are looked up at once, from the end of a history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """
    Validated and copied arguments of an update.

    Attributes:
        keys: Of the messages; see ``material.mark_keys``.
        conversation: What the conversation is known by.
    """

    history: tuple[Message, ...]
    keys: tuple[str, ...]
    iterations: int
    task_id: str | None
    outcome: str
    tools: tuple[Mapping[str, Any], ...]
    session_id: str | None
    thread_id: str | None
    conversation: str

    @classmethod
    def of(
        cls,
        history: Sequence[Message | Mapping[str, Any]],
        *,
        iterations: int,
        task_id: str | None,
        outcome: str,
        tools: Sequence[Mapping[str, Any]],
        session: Any,
        thread_id: str | None,
    ) -> Ask:
        """Check the arguments of an update and copy its history. *Raises* ``ValueError``."""
        whole_number("iterations", iterations, 0)
        one_of("outcome", outcome, OUTCOMES)
        if isinstance(tools, Mapping):
            raise ValueError("tools must be a list of tools, not one tool")
        session_id = _name("session", getattr(session, "id", session))
        thread = _name("thread_id", thread_id)
        messages = copied(history)
        keys = tuple(mark_keys(messages, thread or session_id))
        first = (key for m, key in zip(messages, keys, strict=True) if m.role != "system")
        known_by = f"session {session_id}" if session_id is not None else f"first {next(first, '')}"
        return cls(
            history=messages,
            keys=keys,
            iterations=iterations,
            task_id=_name("task_id", task_id),
            outcome=outcome,
            tools=tuple(
                deepcopy(dict(t) if isinstance(t, Mapping) else t) for t in every("tools", tools)
            ),
            session_id=session_id,
            thread_id=thread
            or next((m.thread_id for m in messages if isinstance(m, StoredMessage)), None),
            conversation=f"thread {thread}" if thread is not None else known_by,
        )

    @property
    def marks(self) -> tuple[str, str]:
        """Marks of the last message."""
        return self.keys[-1], pair_keys(self.keys[-2:])[-1]

    def is_judged(self, index: int, marked: frozenset[str], pairs: Sequence[str]) -> bool:
        """
        Whether the message at *index* is a marked one.

        Ids are unique in a thread only: where none is known, the message before has to be
        marked, too, unless it was compacted since.
        """
        key = self.keys[index]
        if key not in marked:
            return False
        alone = index == 0 or voice_of(self.history[index - 1]) == "other"
        sure = self.thread_id is not None or self.session_id is not None or key.startswith("h:")
        return sure or alone or pairs[index] in marked

    @property
    def refused(self) -> SkipReason | None:
        """Reason of its history or outcome against an update; ``None``: none."""
        if any(m.role == "user" and m.text.startswith(INSTRUCTION_MARK) for m in self.history):
            return "nested"  # they contain the question of an update
        if self.outcome == "completed" and _was_denied(self.history):
            return "task_interrupted"
        return OUTCOMES[self.outcome]


def _name(what: str, given: object) -> str | None:
    return None if given is None else stored_id(what, given)


def _was_denied(messages: Sequence[Message]) -> bool:
    """Whether the user denied a call of this task: its result's metadata says ``denied``."""
    for message in reversed(messages):
        if voice_of(message) == "user":
            return False
        if message.role == "tool" and message.metadata.get("denied"):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Skip:
    """Why no update is due; *until*: when the window of a debounced one has passed."""

    reason: SkipReason
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueUpdate:
    """Why an update is due, over what, how failures name it, and requests not covered."""

    triggered_by: TriggeredBy
    material: Material
    part: str
    open: tuple[Asked, ...]


def judge(
    tx: NoteReader, ask: Ask, config: NotesConfig, *, has_model: bool, debounced: bool
) -> DueUpdate | Skip:
    """Apply the rules that need the store; *debounced*: also that of the window."""
    if ask.task_id is not None and tx.is_done(ask.task_id):
        return Skip("already_done")
    start = _new_from(tx, ask)
    material = Material(ask.history, config, keys=ask.keys, start=start)
    if not material.speaks:
        return Skip("nothing_new")
    waiting = tuple(open_requests(tx, material.asked))
    cue = material.cue(bool(waiting))
    if cue is None and ask.iterations < config.min_iterations:
        return Skip("too_few_iterations")
    ended_at = tx.conversation(ask.conversation).ended_at
    if debounced and ended_at is not None and cue != "request":
        until = ended_at + timedelta(seconds=config.debounce_s)
        if tx.now < until:
            return Skip("debounced", until)
    if not has_model and not any(one.by_rule for one in waiting):
        return Skip("no_model")
    part = f"{ask.conversation} {ask.keys[start - 1] if start else 'all'}"
    return DueUpdate(triggered_by=cue or "iterations", material=material, part=part, open=waiting)


def _new_from(tx: NoteReader, ask: Ask) -> int:
    """Index at which the new part begins: behind the last marked message."""
    pairs = pair_keys(ask.keys)
    for end in range(len(ask.keys), 0, -_SEARCHED):
        first = max(0, end - _SEARCHED)
        marked = tx.marked([*ask.keys[first:end], *pairs[first:end]])
        for index in range(end - 1, first - 1, -1):
            if ask.is_judged(index, marked, pairs):
                return index + 1
    return 0

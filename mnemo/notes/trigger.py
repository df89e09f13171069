"""Decide whether an update is due: rules in a fixed order, the first refusal is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from mnemo.config import NotesConfig
from mnemo.notes.cues import Phrases
from mnemo.notes.material import Asked, Material, mark_keys, pair_keys, voice_of
from mnemo.notes.model_input import carries_instruction, copied
from mnemo.notes.note_rows import NoteReader
from mnemo.notes.requests import open_requests
from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import every, one_of, stored_id, whole_number
from mnemo.values.messages import Message, StoredMessage

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
        """
        Check the arguments of an update and copy its history.

        Raises:
            ValueError: One of them cannot be what it is meant to be.
        """
        whole_number("iterations", iterations, 0)
        one_of("outcome", outcome, OUTCOMES)
        if isinstance(tools, Mapping):
            raise ValueError("tools must be a list of tools, not one tool")
        session_id = _name("session", getattr(session, "id", session))
        thread = _name("thread_id", thread_id)
        messages = copied(history)
        keys = tuple(mark_keys(messages, thread or session_id))
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
            thread_id=thread or _thread_of(messages),
            conversation=_conversation(thread, session_id, messages, keys),
        )

    @property
    def marks(self) -> tuple[str, str]:
        """Marks of the last message."""
        return self.keys[-1], pair_keys(self.keys[-2:])[-1]

    def is_judged(self, index: int, marked: frozenset[str], pairs: Sequence[str]) -> bool:
        """
        Whether the message at *index* is a marked one.

        Ids are unique in a thread only. Where no thread is known, the message before it
        has to be the same as well, unless that was compacted since.
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
        if carries_instruction(self.history):
            return "nested"
        if self.outcome == "completed" and _was_denied(self.history):
            return "task_interrupted"
        return OUTCOMES[self.outcome]


def _name(what: str, given: object) -> str | None:
    return None if given is None else stored_id(what, given)


def _thread_of(messages: Sequence[Message]) -> str | None:
    threads = (m.thread_id for m in messages if isinstance(m, StoredMessage))
    return next(threads, None)


def _conversation(
    thread: str | None,
    session_id: str | None,
    messages: Sequence[Message],
    keys: Sequence[str],
) -> str:
    if thread is not None:
        return f"thread {thread}"
    if session_id is not None:
        return f"session {session_id}"
    first = (key for message, key in zip(messages, keys, strict=True) if message.role != "system")
    return f"first {next(first, '')}"


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
    """
    An update is due.

    Attributes:
        part: Names the new part, for counting failures over it.
        open: The explicit requests that are not covered.
    """

    triggered_by: TriggeredBy
    material: Material
    part: str
    open: tuple[Asked, ...]


def judge(
    tx: NoteReader,
    ask: Ask,
    config: NotesConfig,
    *,
    has_model: bool,
    now: datetime | None = None,
) -> DueUpdate | Skip:
    """
    Apply the rules that need the store.

    Args:
        now: When the window is looked at; ``None``: now.
    """
    if ask.task_id is not None and tx.is_done(ask.task_id):
        return Skip("already_done")
    start = _new_from(tx, ask)
    material = Material(
        ask.history,
        keys=ask.keys,
        start=start,
        phrases=phrases_of(config),
        allow_tools=config.allow_tool_evidence,
    )
    if not material.speaks:
        return Skip("nothing_new")
    waiting = tuple(open_requests(tx, material.asked))
    cue = material.cue(bool(waiting))
    if cue is None and ask.iterations < config.min_iterations:
        return Skip("too_few_iterations")
    ended_at = tx.conversation(ask.conversation).ended_at
    if ended_at is not None and cue != "request":
        until = ended_at + timedelta(seconds=config.debounce_s)
        if (now or tx.now) < until:
            return Skip("debounced", until)
    if not has_model and not any(map(by_rule, waiting)):
        return Skip("no_model")
    part = f"{ask.conversation} {ask.keys[start - 1] if start else 'all'}"
    return DueUpdate(triggered_by=cue or "iterations", material=material, part=part, open=waiting)


def by_rule(asked: Asked) -> bool:
    """Whether ``keep_by_rule`` can serve it."""
    return not asked.forgets and not is_blank(asked.text)


def phrases_of(config: NotesConfig) -> Phrases:
    """Phrases that the configuration adds."""
    return Phrases(config.request_phrases, config.correction_phrases, config.preference_phrases)


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

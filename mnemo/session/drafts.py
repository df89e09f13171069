"""
Step drafts: the arguments of an append checked, and chat messages turned into steps.

A step is keyed by its message's id, so that a replay of the same messages adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any

from mnemo.runtime.ids import new_id
from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import stored_id, stored_json, stored_text, stored_time
from mnemo.values.message_steps import sides_of, speaker_of
from mnemo.values.messages import Message, StoredMessage
from mnemo.values.steps import Step, StepDraft
from mnemo.values.units import is_view_made
from mnemo.wire import Given, messages_of

__all__ = ["draft_of", "drafts_of", "is_of", "make_draft"]


def make_draft(
    observation: str,
    action: str,
    *,
    at: datetime | None,
    actor: str | None,
    key: str | None,
    metadata: Mapping[str, Any] | None,
    now: datetime,
    default_actor: str,
) -> StepDraft:
    """
    Check a step's arguments and make it storable.

    Raises:
        ValueError: Both texts blank, a text that is no ``str``, a blank actor or key,
            metadata that is no JSON object, or a value that exceeds a limit of
            ``runtime.validation``.
    """
    observed, acted = stored_text("observation", observation), stored_text("action", action)
    if is_blank(observed) and is_blank(acted):
        raise ValueError("observation and action cannot both be blank")
    if actor is not None and (not isinstance(actor, str) or is_blank(actor)):
        raise ValueError("actor must be text that is not blank, or None")
    return StepDraft(
        observation=observed,
        action=acted,
        at=stored_time("at", at) if at is not None else now,
        actor=stored_text("actor", actor) if actor is not None else default_actor,
        node_id=new_id("episodic"),
        key=stored_id("key", key) if key is not None else None,
        metadata=_storable(metadata),
    )


def _storable(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise ValueError(f"metadata must be a JSON object, not {type(metadata).__name__}")
    copy: dict[str, Any] = stored_json("metadata", dict(metadata))
    return copy


def drafts_of(given: Sequence[Given], *, now: datetime, default_actor: str) -> list[StepDraft]:
    """
    Turn chat messages into drafts, in order; see ``draft_of``.

    Raises:
        ValueError: One of *given* is no message.
    """
    messages = [*messages_of(given)]
    drafts = (draft_of(message, now=now, default_actor=default_actor) for message in messages)
    return [draft for draft in drafts if draft is not None]


def draft_of(message: Message, *, now: datetime, default_actor: str) -> StepDraft | None:
    """
    Turn *message* into a draft; ``None``: it says and does nothing, or a view made it.

    Args:
        now: When a message without a time was said.
        default_actor: Whose words those of a user are who is not named.
    """
    observation, action = sides_of(message)
    if is_view_made(message) or (is_blank(observation) and is_blank(action)):
        return None
    return StepDraft(
        observation=observation,
        action=action,
        at=message.at or now,
        actor=speaker_of(message, default_actor),
        node_id=new_id("episodic"),
        key=message.id,
        metadata=deepcopy(dict(message.metadata)),
        thread_id=message.thread_id if isinstance(message, StoredMessage) else None,
        message_id=message.id,
        role=message.role,
    )


def is_of(draft: StepDraft, known: Step | StepDraft) -> bool:
    """
    Whether *known*, which has *draft*'s key, was made of the same message.

    A step that is of no thread is taken for it if it says the same.
    """
    if known.thread_id is None:
        return (known.observation, known.action) == (draft.observation, draft.action)
    return (known.thread_id, known.message_id) == (draft.thread_id, draft.message_id)
